//! Takes a batch of measurements apart by series, and finds the fields of each once for all who need them.

use crate::documents::next_document;
use crate::elements::Malformed;
use crate::lot::Fields;
use crate::measurement_reader::{Reader, INVALID_BSON};
use crate::series_places::Places;

/// The last millisecond whose second the `_id` of a bucket can tell.
const STANDARD_MS_MAX: i64 = 0x7FFF_FFFF * 1000 + 999;

/// One measurement: where its document and its fields lie in the lot, its place in the batch, its time.
#[derive(Debug, Clone, Copy)]
pub struct Measurement {
    pub time_ms: i64,
    pub start: u32,
    pub end: u32,
    pub index: u32,
    pub first_part: u32,
    pub parts: u32,
    /// Measurements of one shape have parts of the same names in the same order.
    pub shape: u32,
}

/// The measurements of one series, in the order in which they came.
#[derive(Debug)]
pub struct Series {
    /// Type byte and value of the normalised meta.
    pub meta: Option<Vec<u8>>,
    pub hash: u64,
    pub measurements: Vec<Measurement>,
}

/// A batch taken apart.
#[derive(Debug, Default)]
pub struct Batch {
    pub series: Vec<Series>,
    /// Position in the batch, code, message.
    pub errors: Vec<(usize, i32, String)>,
    pub count: usize,
    /// Whether a time lies outside of those that the `_id` of a bucket can tell.
    pub extended: bool,
}

/// How a batch is read.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    pub time_field: &'a [u8],
    pub meta_field: Option<&'a [u8]>,
    /// A larger document is refused.
    pub bytes_max: usize,
    /// Documents from this position on are left alone.
    pub stop: usize,
}

/// Takes the documents apart that lie back to back in the buffer. Fails where not even their lengths are right.
pub fn partition(buffer: &[u8], reading: &Reading<'_>) -> Result<(Batch, Fields), Malformed> {
    if u32::try_from(buffer.len()).is_err() {
        return Err(Malformed("a batch is too long"));
    }
    let mut batch = Batch::default();
    let mut reader = Reader::new(reading, buffer.len());
    let mut places = Places::default();
    let mut start = 0;
    let mut rest = buffer;
    while !rest.is_empty() {
        let document;
        (document, rest) = next_document(rest)?;
        let index = batch.count;
        batch.count += 1;
        if index >= reading.stop {
            continue;
        }
        let first_part = reader.fields.parts.len();
        match reader.read(document, start) {
            Ok(found) => {
                let place = match places.of(found.meta, &mut batch.series) {
                    Ok(place) => place,
                    Err(Malformed(why)) => {
                        reader.fields.parts.truncate(first_part);
                        batch.errors.push((index, INVALID_BSON, why.to_owned()));
                        start += document.len();
                        continue;
                    }
                };
                if !found.has_id {
                    reader.make_id(first_part);
                }
                batch.extended |= !(0..=STANDARD_MS_MAX).contains(&found.time_ms);
                batch.series[place].measurements.push(Measurement {
                    time_ms: found.time_ms,
                    start: start as u32,
                    end: (start + document.len()) as u32,
                    index: index as u32,
                    first_part: first_part as u32,
                    parts: (reader.fields.parts.len() - first_part) as u32,
                    shape: reader.shape,
                });
            }
            Err((code, message)) => {
                reader.fields.parts.truncate(first_part);
                batch.errors.push((index, code, message));
            }
        }
        if index == 0 {
            // Most documents of a batch are like the first.
            let likely = buffer.len() / document.len() * reader.fields.parts.len();
            reader.fields.parts.reserve(likely.min(buffer.len() / 8));
        }
        start += document.len();
    }
    Ok((batch, reader.fields))
}

#[cfg(test)]
mod tests {
    use super::{partition, Batch, Malformed, Reading};
    use crate::elements::{elements, kind};
    use crate::lot::Lot;
    use crate::writer::{begin, begin_named, date, element, end, int32};

    fn taken(buffer: &[u8], meta_field: Option<&[u8]>) -> Result<(Batch, Lot), Malformed> {
        let reading = Reading {
            time_field: b"t",
            meta_field,
            bytes_max: 1000,
            stop: usize::MAX,
        };
        let (batch, fields) = partition(buffer, &reading)?;
        Ok((batch, Lot::new(Box::new(buffer.to_vec()), fields)))
    }

    fn measurement(time_ms: i64, meta: &[(&str, i32)]) -> Vec<u8> {
        let mut out = Vec::new();
        let begun = begin(&mut out);
        date(&mut out, b"t", time_ms);
        let tags = begin_named(&mut out, kind::OBJECT, b"m");
        for (name, value) in meta {
            int32(&mut out, name.as_bytes(), *value);
        }
        end(&mut out, tags);
        end(&mut out, begun);
        out
    }

    #[test]
    fn meta_is_equal_whatever_the_order_of_its_fields() {
        let buffer = [
            measurement(1, &[("b", 1), ("a", 2)]),
            measurement(2, &[("a", 2)]),
            measurement(3, &[("a", 2), ("b", 1)]),
        ]
        .concat();
        let (batch, _) = taken(&buffer, Some(b"m")).unwrap();
        let times: Vec<Vec<i64>> = batch
            .series
            .iter()
            .map(|series| series.measurements.iter().map(|one| one.time_ms).collect())
            .collect();
        assert_eq!(times, [vec![1, 3], vec![2]]);
        let meta = batch.series[0].meta.as_ref().unwrap();
        let names: Vec<_> = elements(&meta[1..])
            .unwrap()
            .map(|field| field.unwrap().name)
            .collect();
        assert_eq!(names, [b"a", b"b"]);
    }

    #[test]
    fn a_new_id_comes_first() {
        let buffer = measurement(1, &[]);
        let (batch, lot) = taken(&buffer, None).unwrap();
        let document = lot.view().document(&batch.series[0].measurements[0]);
        let names: Vec<_> = elements(&document)
            .unwrap()
            .map(|field| field.unwrap().name)
            .collect();
        assert_eq!(names, [&b"_id"[..], b"t", b"m"]);
    }

    #[test]
    fn what_is_refused_leaves_the_others_alone() {
        let mut no_date = Vec::new();
        let begun = begin(&mut no_date);
        int32(&mut no_date, b"t", 1);
        end(&mut no_date, begun);
        let mut no_text = Vec::new();
        let begun = begin(&mut no_text);
        element(&mut no_text, kind::STRING, b"a", b"\x02\0\0\0\xff\0");
        end(&mut no_text, begun);
        let buffer = [no_date, measurement(5, &[]), no_text].concat();
        let (batch, _) = taken(&buffer, None).unwrap();
        let codes: Vec<_> = batch
            .errors
            .iter()
            .map(|error| (error.0, error.1))
            .collect();
        assert_eq!(codes, [(0, 2), (2, 22)]);
        assert_eq!(batch.series[0].measurements[0].index, 1);
        assert!(taken(&buffer[1..], None).is_err());
    }
}
