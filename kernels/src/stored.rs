//! A stored bucket taken to pieces, strictly: what is not as it must be is an error.

use crate::elements::{elements, fixed, int32, kind, Element, Malformed};
use crate::unpack::{packed, Failure};
use crate::validate::validate;

/// Nesting that a bucket adds around the values of its measurements.
const BUCKET_LEVELS: usize = 3;

/// The parts of a bucket.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    pub id: [u8; 12],
    pub version: i32,
    pub count: Option<i32>,
    pub closed: Option<bool>,
    pub min: &'a [u8],
    pub max: &'a [u8],
    pub meta: Option<(u8, &'a [u8])>,
    pub data: &'a [u8],
}

/// The failure of a bucket that was not written by this or another server.
pub fn bad_bucket(message: impl Into<String>) -> Failure {
    Failure::new(2, message)
}

impl<'a> Stored<'a> {
    /// Takes a bucket to pieces.
    pub fn parse(bucket: &'a [u8]) -> Result<Self, Failure> {
        validate(bucket, crate::validate::DEPTH_MAX + BUCKET_LEVELS)?;
        let (mut id, mut control, mut meta, mut data) = (None, None, None, None);
        for element in elements(bucket)? {
            let element = element?;
            match (element.name, element.kind) {
                (b"_id", kind::OBJECT_ID) => id = Some(fixed(element.value)?),
                (b"control", kind::OBJECT) => control = Some(element.value),
                (b"meta", _) => meta = Some((element.kind, element.value)),
                (b"data", kind::OBJECT) => data = Some(element.value),
                (name, _) => {
                    let name = String::from_utf8_lossy(name);
                    return Err(bad_bucket(format!(
                        "the bucket's field '{name}' is not as expected"
                    )));
                }
            }
        }
        let control = Control::parse(control.ok_or_else(|| {
            Failure::new(
                5857902,
                "The $_internalUnpackBucket stage requires 'control' object to be present",
            )
        })?)?;
        Ok(Self {
            id: id.ok_or_else(|| bad_bucket("the bucket has no _id"))?,
            version: control.version,
            count: control.count,
            closed: control.closed,
            min: control.min,
            max: control.max,
            meta,
            data: data.ok_or_else(|| bad_bucket("the bucket has no data"))?,
        })
    }

    /// The times of all rows, in stored order.
    pub fn times(&self, time_field: &[u8]) -> Result<Vec<i64>, Failure> {
        let Some(column) = crate::elements::find(self.data, time_field)? else {
            return Err(bad_bucket("the bucket has no times"));
        };
        let mut times = Vec::new();
        let mut add = |type_byte: u8, value: &[u8]| -> Result<(), Failure> {
            if type_byte != kind::DATE {
                return Err(bad_bucket("a time of the bucket is no date"));
            }
            times.push(i64::from_le_bytes(fixed(value)?));
            Ok(())
        };
        if column.kind == kind::OBJECT {
            for element in elements(column.value)? {
                let element = element?;
                add(element.kind, element.value)?;
            }
            return Ok(times);
        }
        for entry in crate::column::ColumnDecoder::new(packed(column)?, crate::unpack::ROWS_MAX) {
            let entry =
                entry?.ok_or_else(|| bad_bucket("a measurement of the bucket has no time"))?;
            add(entry.kind(), entry.bytes())?;
        }
        Ok(times)
    }
}

struct Control<'a> {
    version: i32,
    count: Option<i32>,
    closed: Option<bool>,
    min: &'a [u8],
    max: &'a [u8],
}

impl<'a> Control<'a> {
    fn parse(control: &'a [u8]) -> Result<Self, Failure> {
        let (mut version, mut count, mut closed) = (None, None, None);
        let (mut min, mut max) = (None, None);
        for element in elements(control)? {
            let element = element?;
            match (element.name, element.kind) {
                (b"version", _) => version = whole_number(element)?,
                (b"count", _) => count = whole_number(element)?,
                (b"closed", kind::BOOL) => closed = Some(element.value == [1]),
                (b"min", kind::OBJECT) => min = Some(element.value),
                (b"max", kind::OBJECT) => max = Some(element.value),
                (name, _) => {
                    let name = String::from_utf8_lossy(name);
                    return Err(bad_bucket(format!(
                        "the bucket's field 'control.{name}' is not as expected"
                    )));
                }
            }
        }
        Ok(Self {
            version: version.ok_or_else(|| {
                Failure::new(
                    5857903,
                    "The $_internalUnpackBucket stage requires 'control.version' field to be present",
                )
            })?,
            count,
            closed,
            min: min.ok_or_else(|| bad_bucket("the bucket has no control.min"))?,
            max: max.ok_or_else(|| bad_bucket("the bucket has no control.max"))?,
        })
    }
}

fn whole_number(element: Element<'_>) -> Result<Option<i32>, Malformed> {
    Ok(match element.kind {
        kind::INT32 => Some(int32(element.value)?),
        kind::INT64 => i32::try_from(i64::from_le_bytes(fixed(element.value)?)).ok(),
        kind::DOUBLE => {
            let number = f64::from_le_bytes(fixed(element.value)?);
            (number.fract() == 0.0 && number.abs() < f64::from(i32::MAX)).then_some(number as i32)
        }
        _ => None,
    })
}
