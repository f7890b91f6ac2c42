//! From a stored bucket back to its measurements: time, meta, then the other columns in stored order.

use crate::column::{ColumnDecoder, ColumnError};
use crate::columns::Data;
use crate::elements::{elements, find, fixed, int32, kind, Element, Elements, Malformed};
use crate::writer;

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
    fn has(&self, name: &[u8]) -> bool {
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

fn data_of(bucket: &[u8]) -> Result<Element<'_>, Failure> {
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

/// Where the values of one field come from.
enum Source<'a> {
    Typed(Data),
    Packed(Box<ColumnDecoder<'a>>),
    Plain {
        rest: Elements<'a>,
        ahead: Option<(usize, Element<'a>)>,
    },
}

/// One field of the measurements.
struct Field<'a> {
    name: &'a [u8],
    source: Source<'a>,
}

impl<'a> Field<'a> {
    fn open(element: Element<'a>, rows: usize) -> Result<Self, Failure> {
        let source = if element.kind == kind::OBJECT {
            let mut rest = elements(element.value)?;
            let ahead = next_row(&mut rest)?;
            Source::Plain { rest, ahead }
        } else {
            let column = packed(element)?;
            // One value after the other where the types change, and to tell what is wrong with a column.
            Data::of_column(column, rows).map_or_else(
                || Source::Packed(Box::new(ColumnDecoder::new(column, rows))),
                Source::Typed,
            )
        };
        Ok(Self {
            name: element.name,
            source,
        })
    }

    /// Append the value of the next row, where it has one; returns whether.
    fn write(&mut self, row: usize, name: &[u8], out: &mut Vec<u8>) -> Result<bool, Failure> {
        match &mut self.source {
            Source::Typed(data) => Ok(data.write(row, name, out)),
            Source::Packed(decoder) => match decoder.advance() {
                Some(entry) => {
                    let present = entry?;
                    if present {
                        let (kind, value) = decoder.value();
                        writer::element(out, kind, name, value);
                    }
                    Ok(present)
                }
                None => Err(Failure::new(
                    6067601,
                    "a column of the bucket has fewer entries than control.count says",
                )),
            },
            Source::Plain { rest, ahead } => match ahead {
                Some((at, element)) if *at == row => {
                    writer::element(out, element.kind, name, element.value);
                    *ahead = next_row(rest)?;
                    Ok(true)
                }
                _ => Ok(false),
            },
        }
    }
}

fn next_row<'a>(rest: &mut Elements<'a>) -> Result<Option<(usize, Element<'a>)>, Failure> {
    let Some(element) = rest.next() else {
        return Ok(None);
    };
    let element = element?;
    let row = row_number(element.name)?;
    Ok(Some((row, element)))
}

/// The row that a name in a column of version 1 stands for.
pub fn row_number(name: &[u8]) -> Result<usize, Failure> {
    std::str::from_utf8(name)
        .ok()
        .and_then(|name| name.parse().ok())
        .ok_or_else(|| Failure::new(22, "a row number of the bucket is no number"))
}

/// Append every measurement of the bucket as a raw document, in stored order; `each` hears where it ends.
pub fn rows(
    bucket: &[u8],
    time_field: &[u8],
    meta_field: Option<&[u8]>,
    wanted: Wanted<'_>,
    out: &mut Vec<u8>,
    mut each: impl FnMut(usize),
) -> Result<(), Failure> {
    let count = summary(bucket, time_field)?.count;
    if count > ROWS_MAX {
        return Err(Failure::new(
            INVALID_COLUMN,
            "the bucket claims too many measurements",
        ));
    }
    let data = data_of(bucket)?;
    let meta =
        meta_of(bucket, meta_field)?.filter(|_| meta_field.is_some_and(|name| wanted.has(name)));
    let mut time = None;
    let mut fields = Vec::new();
    for element in elements(data.value)? {
        let element = element?;
        if element.name == time_field {
            time = wanted
                .has(time_field)
                .then(|| Field::open(element, count))
                .transpose()?;
        } else if wanted.has(element.name) {
            fields.push(Field::open(element, count)?);
        }
    }
    if time.is_none() && find(data.value, time_field)?.is_none() {
        return Err(Failure::new(
            5346700,
            "The $_internalUnpackBucket stage requires the data region to have a timeField object",
        ));
    }
    for row in 0..count {
        let begun = writer::begin(out);
        if let Some(time) = &mut time {
            if !time.write(row, time_field, out)? {
                return Err(Failure::new(
                    INVALID_COLUMN,
                    "a measurement of the bucket has no time",
                ));
            }
        }
        if let (Some(meta), Some(name)) = (meta, meta_field) {
            writer::element(out, meta.kind, name, meta.value);
        }
        for field in &mut fields {
            field.write(row, field.name, out)?;
        }
        writer::end(out, begun);
        check_size(out.len())?;
        each(out.len());
    }
    Ok(())
}

fn meta_of<'a>(
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

#[cfg(test)]
mod tests {
    use super::{rows, summary, Wanted};

    /// `{control: {version: 1, min: {t: date 0}, max: {t: date 1}}, data: {t: {"0": date 0, "1": date 1}, a: {"1": null}}}`.
    fn plain_bucket() -> Vec<u8> {
        use crate::elements::kind;
        use crate::writer::*;
        let mut out = Vec::new();
        let all = begin(&mut out);
        let control = begin_named(&mut out, kind::OBJECT, b"control");
        int32(&mut out, b"version", 1);
        for (name, millis) in [(&b"min"[..], 0), (b"max", 1)] {
            let bound = begin_named(&mut out, kind::OBJECT, name);
            date(&mut out, b"t", millis);
            end(&mut out, bound);
        }
        end(&mut out, control);
        let data = begin_named(&mut out, kind::OBJECT, b"data");
        let times = begin_named(&mut out, kind::OBJECT, b"t");
        date(&mut out, b"0", 0);
        date(&mut out, b"1", 1);
        end(&mut out, times);
        let column = begin_named(&mut out, kind::OBJECT, b"a");
        element(&mut out, kind::NULL, b"1", b"");
        end(&mut out, column);
        end(&mut out, data);
        end(&mut out, all);
        out
    }

    #[test]
    fn plain_rows_come_back() {
        let bucket = plain_bucket();
        let (mut found, mut bytes, mut start) = (Vec::new(), Vec::new(), 0);
        let mut ends = Vec::new();
        let all = Wanted::Exclude(&[]);
        rows(&bucket, b"t", Some(b"m"), all, &mut bytes, |end| {
            ends.push(end)
        })
        .expect("well formed");
        for end in ends {
            found.push(bytes[start..end].to_vec());
            start = end;
        }
        assert_eq!(
            found,
            [
                b"\x10\0\0\0\x09t\0\0\0\0\0\0\0\0\0\0".to_vec(),
                b"\x13\0\0\0\x09t\0\x01\0\0\0\0\0\0\0\x0aa\0\0".to_vec()
            ]
        );
        assert_eq!(
            summary(&bucket, b"t").map(|summary| (summary.count, summary.max_ms)),
            Ok((2, 1))
        );
    }

    #[test]
    fn no_changed_byte_makes_it_panic() {
        let bucket = plain_bucket();
        for position in 0..bucket.len() {
            for value in [0, 1, 5, 7, 0x7f, 0xff] {
                let mut changed = bucket.clone();
                changed[position] = value;
                let none = Wanted::Include(&[]);
                let _ = rows(&changed, b"t", None, none, &mut Vec::new(), |_| {});
            }
        }
    }
}
