//! A bucket of version 3, whose measurements came out of order, as one of version 2 with the same measurements.

use crate::column::ColumnEncoder;
use crate::columns::Data;
use crate::elements::{elements, find, int32, kind, Element};
use crate::stored::bad_bucket;
use crate::unpack::{check_size, packed, summary, Failure, ROWS_MAX};
use crate::writer::{self, begin, begin_named, end};

/// The bucket in the order of time, those of equal times as they came; None where it is of another version.
pub fn in_order(bucket: &[u8], time_field: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let found = summary(bucket, time_field)?;
    let data = find(bucket, b"data")?.filter(|data| data.kind == kind::OBJECT);
    let (3, Some(data), true) = (found.version, data, found.count <= ROWS_MAX) else {
        return Ok(None);
    };
    let Some(times) = find(data.value, time_field)? else {
        return Ok(None);
    };
    let Some(Data::Whole {
        kind: kind::DATE,
        values,
        present,
    }) = Data::of_column(packed(times)?, found.count)
    else {
        return Ok(None);
    };
    if present.contains(&0) {
        return Ok(None);
    }
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|row| values.get(*row));
    let mut out = Vec::with_capacity(bucket.len());
    let all = begin(&mut out);
    for element in elements(bucket)? {
        let element = element?;
        match element.name {
            b"control" => {
                let control = begin_named(&mut out, kind::OBJECT, b"control");
                for element in elements(element.value)? {
                    let element = element?;
                    if element.name == b"version" && int32(element.value) == Ok(3) {
                        writer::int32(&mut out, b"version", 2);
                    } else {
                        writer::element(&mut out, element.kind, element.name, element.value);
                    }
                }
                end(&mut out, control);
            }
            b"data" => {
                let data = begin_named(&mut out, kind::OBJECT, b"data");
                for column in elements(element.value)? {
                    write_column(column?, &order, &mut out)?;
                }
                end(&mut out, data);
            }
            name => writer::element(&mut out, element.kind, name, element.value),
        }
    }
    end(&mut out, all);
    Ok(Some(out))
}

fn write_column(column: Element<'_>, order: &[usize], out: &mut Vec<u8>) -> Result<(), Failure> {
    let data = Data::all_of_column(packed(column)?, order.len())?;
    let mut encoder = ColumnEncoder::new();
    let (mut value, mut size) = (Vec::new(), 0);
    for row in order {
        value.clear();
        data.write_bare(*row, &mut value);
        size += value.len();
        check_size(size)?;
        match value.split_first() {
            Some((kind, value)) => encoder.append(*kind, value)?,
            None => encoder.append_missing()?,
        }
    }
    let bytes = encoder.finish()?;
    if data.len() != order.len() {
        return Err(bad_bucket(
            "a column has another number of entries than the times",
        ));
    }
    writer::header(out, kind::BINARY, column.name);
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.push(7);
    out.extend_from_slice(&bytes);
    Ok(())
}
