//! Takes a batch of measurements apart by series.

use crate::documents::split;
use crate::elements::{elements, fixed, kind, Element, Malformed};
use crate::object_id;
use crate::validate::{check_value, DEPTH_MAX};
use crate::writer::{begin, element, end, header};
use std::collections::HashMap;

/// MongoDB's codes for what is refused here.
const BAD_VALUE: i32 = 2;
const INVALID_BSON: i32 = 22;

/// Type and value of a meta field as it was sent.
type Sent<'a> = Option<(u8, &'a [u8])>;

/// One measurement: where its document lies in the buffer, its place in the batch, its time, the `_id` it was given.
#[derive(Debug, Clone, Copy)]
pub struct Measurement {
    pub start: usize,
    pub end: usize,
    pub index: usize,
    pub time_ms: i64,
    pub id: Option<[u8; 12]>,
}

impl Measurement {
    /// Its fields, a new `_id` first.
    pub fn fields<'a>(
        &'a self,
        buffer: &'a [u8],
    ) -> Result<impl Iterator<Item = Result<Element<'a>, Malformed>>, Malformed> {
        let id = self.id.as_ref().map(|id| {
            Ok(Element {
                kind: kind::OBJECT_ID,
                name: b"_id",
                value: id,
            })
        });
        Ok(id.into_iter().chain(elements(self.bytes(buffer))?))
    }

    /// The document as a client would have sent it with its `_id`.
    pub fn document(&self, buffer: &[u8]) -> Vec<u8> {
        let bytes = self.bytes(buffer);
        let Some(id) = &self.id else {
            return bytes.to_vec();
        };
        let mut out = Vec::with_capacity(bytes.len() + 17);
        let begun = begin(&mut out);
        element(&mut out, kind::OBJECT_ID, b"_id", id);
        out.extend_from_slice(
            bytes
                .get(4..bytes.len().saturating_sub(1))
                .unwrap_or_default(),
        );
        end(&mut out, begun);
        out
    }

    fn bytes<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        buffer.get(self.start..self.end).unwrap_or_default()
    }
}

/// The measurements of one series, in the order in which they came.
#[derive(Debug)]
pub struct Series {
    /// Type byte and value of the normalised meta.
    pub meta: Option<Vec<u8>>,
    pub measurements: Vec<Measurement>,
}

/// A batch taken apart.
#[derive(Debug, Default)]
pub struct Batch {
    pub series: Vec<Series>,
    /// Position in the batch, code, message.
    pub errors: Vec<(usize, i32, String)>,
    pub count: usize,
}

/// Takes the documents apart that lie back to back in the buffer. Fails where not even their lengths are right.
pub fn partition(
    buffer: &[u8],
    time_field: &[u8],
    meta_field: Option<&[u8]>,
) -> Result<Batch, Malformed> {
    let documents = split(buffer)?;
    let seconds = object_id::now_seconds();
    let mut batch = Batch {
        count: documents.len(),
        ..Batch::default()
    };
    // As sent, so that a meta value is normalised only when it is met for the first time.
    let mut by_sent: HashMap<Sent<'_>, usize> = HashMap::new();
    let mut by_meta: HashMap<Option<Vec<u8>>, usize> = HashMap::new();
    let mut latest: Option<(Sent<'_>, usize)> = None;
    let mut start = 0;
    for (index, document) in documents.into_iter().enumerate() {
        let end = start + document.len();
        match read(document, time_field, meta_field) {
            Ok(found) => {
                // Clients often send a series at a time.
                let place = match latest {
                    Some((meta, place)) if meta == found.meta => place,
                    _ => match by_sent.get(&found.meta) {
                        Some(place) => *place,
                        None => {
                            let meta = found.meta.map(normalised);
                            let place = *by_meta.entry(meta).or_insert_with_key(|meta| {
                                batch.series.push(Series {
                                    meta: meta.clone(),
                                    measurements: Vec::new(),
                                });
                                batch.series.len() - 1
                            });
                            by_sent.insert(found.meta, place);
                            place
                        }
                    },
                };
                latest = Some((found.meta, place));
                batch.series[place].measurements.push(Measurement {
                    start,
                    end,
                    index,
                    time_ms: found.time_ms,
                    id: (!found.has_id).then(|| object_id::generate(seconds)),
                });
            }
            Err((code, message)) => batch.errors.push((index, code, message)),
        }
        start = end;
    }
    Ok(batch)
}

struct Found<'a> {
    time_ms: i64,
    meta: Sent<'a>,
    has_id: bool,
}

/// Checks a document wholly; of each name the first field counts.
fn read<'a>(
    document: &'a [u8],
    time_field: &[u8],
    meta_field: Option<&[u8]>,
) -> Result<Found<'a>, (i32, String)> {
    let invalid = |malformed: Malformed| (INVALID_BSON, malformed.0.to_owned());
    let mut time = None;
    let mut meta = None;
    let mut has_id = false;
    for element in elements(document).map_err(invalid)? {
        let element = element.map_err(invalid)?;
        if !element.name.is_ascii() && std::str::from_utf8(element.name).is_err() {
            return Err(invalid(Malformed("text is not UTF-8")));
        }
        check_value(element.kind, element.value, DEPTH_MAX - 1).map_err(invalid)?;
        if element.name == time_field {
            time = time.or(Some((element.kind, element.value)));
        } else if Some(element.name) == meta_field {
            meta = meta.or(Some((element.kind, element.value)));
        } else if element.name == b"_id" {
            has_id = true;
        }
    }
    has_id |= time_field == b"_id";
    match time {
        Some((kind::DATE, value)) => Ok(Found {
            time_ms: i64::from_le_bytes(fixed(value).map_err(invalid)?),
            meta,
            has_id,
        }),
        _ => Err((
            BAD_VALUE,
            format!(
                "'{}' must be present and contain a valid BSON UTC datetime value",
                String::from_utf8_lossy(time_field)
            ),
        )),
    }
}

/// Type byte and value, the fields of every object in it sorted by name.
fn normalised((type_byte, value): (u8, &[u8])) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 1);
    out.push(type_byte);
    if normalise(type_byte, value, &mut out).is_err() {
        // Validated before, so this is not met; the value as sent is a series of its own.
        out.truncate(1);
        out.extend_from_slice(value);
    }
    out
}

fn normalise(type_byte: u8, value: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    if type_byte != kind::OBJECT && type_byte != kind::ARRAY {
        out.extend_from_slice(value);
        return Ok(());
    }
    let mut fields = elements(value)?.collect::<Result<Vec<_>, _>>()?;
    if type_byte == kind::OBJECT {
        fields.sort_by(|one, other| one.name.cmp(other.name));
    }
    let begun = begin(out);
    for field in fields {
        header(out, field.kind, field.name);
        normalise(field.kind, field.value, out)?;
    }
    end(out, begun);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::partition;
    use crate::elements::{elements, kind};
    use crate::writer::{begin, begin_named, date, element, end, int32};

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
        let batch = partition(&buffer, b"t", Some(b"m")).unwrap();
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
        let batch = partition(&buffer, b"t", None).unwrap();
        let document = batch.series[0].measurements[0].document(&buffer);
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
        let batch = partition(&buffer, b"t", None).unwrap();
        let codes: Vec<_> = batch
            .errors
            .iter()
            .map(|error| (error.0, error.1))
            .collect();
        assert_eq!(codes, [(0, 2), (2, 22)]);
        assert_eq!(batch.series[0].measurements[0].index, 1);
        assert!(partition(&buffer[1..], b"t", None).is_err());
    }
}
