//! What a stored bucket says of its measurements, and where they lie in it.

use crate::column::{ColumnDecoder, ColumnError};
use crate::elements::{elements, find, fixed, int32, kind, Element, Malformed};

/// Most measurements that a bucket may claim; a column of a few bytes can claim thousands.
pub const ROWS_MAX: usize = 1 << 20;
/// Most bytes that the measurements of some buckets may take: a column of a few bytes can repeat a long value.
const ROWS_BYTES_MAX: usize = 1 << 29;
const EXCEEDED_MEMORY_LIMIT: i32 = 146;
const COLUMN_SUBTYPE: u8 = 7;

/// Refuse to go on where what was unpacked so far takes too much memory.
pub fn check_size(bytes: usize) -> Result<(), Failure> {
    if bytes <= ROWS_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::new(
        EXCEEDED_MEMORY_LIMIT,
        format!("the measurements of the buckets take more than {ROWS_BYTES_MAX} bytes of memory"),
    ))
}

/// Why a bucket cannot be unpacked: MongoDB's code and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: i32,
    pub message: String,
}

impl Failure {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::new(22, malformed.0)
    }
}

impl From<ColumnError> for Failure {
    fn from(error: ColumnError) -> Self {
        Self::new(INVALID_COLUMN, error.to_string())
    }
}

/// InvalidBSONColumn.
pub const INVALID_COLUMN: i32 = 400;

/// Which top-level fields of the measurements are wanted.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    Include(&'a [String]),
    Exclude(&'a [String]),
}

impl Wanted<'_> {
    /// Whether it is one of them.
    pub fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::Include(names) => names.iter().any(|one| one.as_bytes() == name),
            Self::Exclude(names) => !names.iter().any(|one| one.as_bytes() == name),
        }
    }
}

/// What control says of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub count: usize,
    pub version: i32,
    pub closed: bool,
    pub min_ms: i64,
    pub max_ms: i64,
    /// Whether control tells the two.
    pub bounded: bool,
}

/// Read control, and the count of a bucket that has none in it.
pub fn summary(bucket: &[u8], time_field: &[u8]) -> Result<Summary, Failure> {
    let control = find(bucket, b"control")?
        .filter(|control| control.kind == kind::OBJECT)
        .ok_or_else(|| {
            Failure::new(
                5857902,
                "The $_internalUnpackBucket stage requires 'control' object to be present",
            )
        })?;
    let version = find(control.value, b"version")?
        .and_then(number)
        .ok_or_else(|| {
            Failure::new(
                5857903,
                "The $_internalUnpackBucket stage requires 'control.version' field to be present",
            )
        })?;
    let closed = find(control.value, b"closed")?
        .is_some_and(|closed| closed.kind == kind::BOOL && closed.value == [1]);
    let bound = |name: &[u8]| -> Result<Option<i64>, Failure> {
        let Some(bounds) = find(control.value, name)?.filter(|bounds| bounds.kind == kind::OBJECT)
        else {
            return Ok(None);
        };
        match find(bounds.value, time_field)? {
            Some(time) if time.kind == kind::DATE => {
                Ok(Some(i64::from_le_bytes(fixed(time.value)?)))
            }
            _ => Ok(None),
        }
    };
    let (min_ms, max_ms) = (bound(b"min")?, bound(b"max")?);
    let count = match find(control.value, b"count")?.and_then(number) {
        Some(count) if version != 1 => usize::try_from(count).unwrap_or(0),
        _ => count_rows(bucket, time_field)?,
    };
    Ok(Summary {
        count,
        version,
        closed,
        min_ms: min_ms.unwrap_or(0),
        max_ms: max_ms.unwrap_or(0),
        bounded: min_ms.is_some() && max_ms.is_some(),
    })
}

fn number(element: Element<'_>) -> Option<i32> {
    match element.kind {
        kind::INT32 => int32(element.value).ok(),
        kind::INT64 => i32::try_from(i64::from_le_bytes(fixed(element.value).ok()?)).ok(),
        kind::DOUBLE => Some(f64::from_le_bytes(fixed(element.value).ok()?) as i32),
        _ => None,
    }
}

fn count_rows(bucket: &[u8], time_field: &[u8]) -> Result<usize, Failure> {
    let data = data_of(bucket)?;
    match find(data.value, time_field)? {
        Some(times) if times.kind == kind::OBJECT => Ok(elements(times.value)?.count()),
        Some(times) => {
            let mut count = 0;
            let mut column = ColumnDecoder::new(packed(times)?, ROWS_MAX);
            while let Some(entry) = column.advance() {
                entry?;
                count += 1;
            }
            Ok(count)
        }
        None => Err(Failure::new(
            5346700,
            "The $_internalUnpackBucket stage requires the data region to have a timeField object",
        )),
    }
}

/// The columns of a bucket.
pub fn data_of(bucket: &[u8]) -> Result<Element<'_>, Failure> {
    let data = find(bucket, b"data")?
        .filter(|data| data.kind == kind::OBJECT)
        .ok_or_else(|| {
            Failure::new(
                5346510,
                "The $_internalUnpackBucket stage requires 'data' object to be present",
            )
        })?;
    if data.value.len() <= 5 {
        return Err(Failure::new(
            5346509,
            "The $_internalUnpackBucket stage requires the data region to not be empty",
        ));
    }
    Ok(data)
}

/// The bytes of a column.
pub fn packed(element: Element<'_>) -> Result<&[u8], Failure> {
    if element.kind != kind::BINARY || element.value.get(4) != Some(&COLUMN_SUBTYPE) {
        return Err(Failure::new(
            INVALID_COLUMN,
            "a column of the bucket is no binary data of subtype 7",
        ));
    }
    Ok(&element.value[5..])
}

/// The row that a name in a column of version 1 stands for.
pub fn row_number(name: &[u8]) -> Result<usize, Failure> {
    std::str::from_utf8(name)
        .ok()
        .and_then(|name| name.parse().ok())
        .ok_or_else(|| Failure::new(22, "a row number of the bucket is no number"))
}

/// The meta of a bucket.
pub fn meta_of<'a>(
    bucket: &'a [u8],
    meta_field: Option<&[u8]>,
) -> Result<Option<Element<'a>>, Failure> {
    let meta = find(bucket, b"meta")?;
    match (meta, meta_field) {
        (Some(meta), Some(_)) if meta.kind == kind::UNDEFINED => Err(Failure::new(
            5369600,
            "The $_internalUnpackBucket stage allows metadata to be absent or otherwise it must not be the deprecated undefined BSON type",
        )),
        (Some(_), None) => Err(Failure::new(
            5369601,
            "The $_internalUnpackBucket stage expects buckets to have missing metadata regions if the metaField parameter is not provided",
        )),
        (meta, _) => Ok(meta),
    }
}
