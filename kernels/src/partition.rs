//! Takes a batch of measurements apart by series, and finds the fields of each once for all who need them.

use crate::documents::split;
use crate::elements::{elements, fixed, kind, split_cstring, value_length, Malformed};
use crate::lot::{Fields, Part};
use crate::object_id;
use crate::validate::{check_value, DEPTH_MAX};
use crate::writer::{begin, end, header};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// MongoDB's codes for what is refused here.
const BAD_VALUE: i32 = 2;
const INVALID_BSON: i32 = 22;
const TOO_LARGE: i32 = 10334;

/// The last millisecond whose second the `_id` of a bucket can tell.
const STANDARD_MS_MAX: i64 = 0x7FFF_FFFF * 1000 + 999;

/// Type and value of a meta field as it was sent.
type Sent<'a> = Option<(u8, &'a [u8])>;

/// One measurement: where its document and its fields lie in the lot, its place in the batch, its time.
#[derive(Debug, Clone, Copy)]
pub struct Measurement {
    pub time_ms: i64,
    pub start: u32,
    pub end: u32,
    pub index: u32,
    pub first_part: u32,
    pub parts: u32,
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
    let documents = split(buffer)?;
    let mut batch = Batch {
        count: documents.len(),
        ..Batch::default()
    };
    let mut reader = Reader::new(reading, buffer.len());
    let mut places = Places::default();
    let mut start = 0;
    for (index, document) in documents.into_iter().enumerate().take(reading.stop) {
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
                });
            }
            Err((code, message)) => {
                reader.fields.parts.truncate(first_part);
                batch.errors.push((index, code, message));
            }
        }
        if index == 0 {
            // Most documents of a batch are like the first.
            let likely = batch.count * reader.fields.parts.len();
            reader.fields.parts.reserve(likely.min(buffer.len() / 8));
        }
        start += document.len();
    }
    Ok((batch, reader.fields))
}

/// Which series a meta value belongs to.
#[derive(Default)]
struct Places<'a> {
    /// By a hash of the value as sent, so that one is checked and normalised only when it is met for the first time.
    by_sent: HashMap<u64, (Sent<'a>, usize)>,
    by_meta: HashMap<Option<Vec<u8>>, usize>,
    latest: Option<(Sent<'a>, usize)>,
}

impl<'a> Places<'a> {
    fn of(&mut self, sent: Sent<'a>, series: &mut Vec<Series>) -> Result<usize, Malformed> {
        // Clients often send a series at a time.
        if let Some((meta, place)) = self.latest {
            if meta == sent {
                return Ok(place);
            }
        }
        let hash = sent.map_or(0, |(type_byte, value)| {
            xxh3_64_with_seed(value, u64::from(type_byte) + 1)
        });
        let known = self.by_sent.get(&hash).filter(|known| known.0 == sent);
        let place = match known {
            Some((_, place)) => *place,
            None => {
                if let Some((type_byte, value)) = sent {
                    check_value(type_byte, value, DEPTH_MAX - 1)?;
                }
                let meta = sent.map(normalised);
                let place = *self.by_meta.entry(meta).or_insert_with_key(|meta| {
                    series.push(Series {
                        meta: meta.clone(),
                        measurements: Vec::new(),
                    });
                    series.len() - 1
                });
                self.by_sent.insert(hash, (sent, place));
                place
            }
        };
        self.latest = Some((sent, place));
        Ok(place)
    }
}

/// What a field is to a measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Time,
    Meta,
    Id,
    Other,
}

struct Name {
    role: Role,
    /// The latest document that has it, counted from 1.
    seen: usize,
}

struct Found<'a> {
    time_ms: i64,
    meta: Sent<'a>,
    has_id: bool,
}

/// Reads documents one after another, of which most have the names of the one before.
struct Reader<'r> {
    reading: &'r Reading<'r>,
    fields: Fields,
    names: Vec<Name>,
    numbers: HashMap<Box<[u8]>, u32>,
    /// The names of the document before, in its order.
    layout: Vec<u32>,
    number: usize,
    buffer_bytes: usize,
    seconds: u32,
}

impl<'r> Reader<'r> {
    fn new(reading: &'r Reading<'r>, buffer_bytes: usize) -> Self {
        Self {
            reading,
            fields: Fields::default(),
            names: Vec::new(),
            numbers: HashMap::new(),
            layout: Vec::new(),
            number: 0,
            buffer_bytes,
            seconds: object_id::now_seconds(),
        }
    }

    /// Checks a document wholly, its meta value excepted, and keeps its fields; of each name the first counts.
    fn read<'a>(&mut self, document: &'a [u8], start: usize) -> Result<Found<'a>, (i32, String)> {
        let invalid = |malformed: Malformed| (INVALID_BSON, malformed.0.to_owned());
        if document.len() > self.reading.bytes_max {
            return Err((
                TOO_LARGE,
                format!(
                    "a measurement of {} bytes does not fit into a bucket",
                    document.len()
                ),
            ));
        }
        self.number += 1;
        let mut time = None;
        let mut meta = None;
        let mut has_id =
            self.reading.time_field == b"_id" || self.reading.meta_field == Some(&b"_id"[..]);
        let mut rest = document.get(4..document.len() - 1).unwrap_or_default();
        let mut slot = 0;
        while let Some((&type_byte, after)) = rest.split_first() {
            let (name, body) = self.name(slot, after).map_err(invalid)?;
            slot += 1;
            let length = value_length(type_byte, body).map_err(invalid)?;
            let Some((value, next)) = body.split_at_checked(length) else {
                return Err(invalid(Malformed("an element is cut short")));
            };
            rest = next;
            let known = &mut self.names[name as usize];
            let again = known.seen == self.number;
            known.seen = self.number;
            if known.role == Role::Meta && !again {
                meta = Some((type_byte, value));
                continue;
            }
            check_value(type_byte, value, DEPTH_MAX - 1).map_err(invalid)?;
            if again {
                continue;
            }
            match known.role {
                Role::Time => time = Some((type_byte, value)),
                Role::Id => has_id = true,
                _ => {}
            }
            // What is left of the document ends one byte before the document does.
            let offset = document.len() - 1 - next.len() - length;
            self.fields.parts.push(Part {
                name,
                kind: type_byte,
                start: (start + offset) as u32,
                length: length as u32,
            });
        }
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
                    String::from_utf8_lossy(self.reading.time_field)
                ),
            )),
        }
    }

    /// Number of the name that the bytes begin with, and the bytes behind it.
    #[inline]
    fn name<'a>(&mut self, slot: usize, after: &'a [u8]) -> Result<(u32, &'a [u8]), Malformed> {
        if let Some(expected) = self.layout.get(slot) {
            let name = &self.fields.names[*expected as usize];
            if let Some(body) = after.strip_prefix(&name[..]) {
                return Ok((*expected, body));
            }
        }
        let (name, body) = split_cstring(after)?;
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => self.new_name(name)?,
        };
        match self.layout.get_mut(slot) {
            Some(place) => *place = number,
            None => self.layout.push(number),
        }
        Ok((number, body))
    }

    fn new_name(&mut self, name: &[u8]) -> Result<u32, Malformed> {
        if !name.is_ascii() && std::str::from_utf8(name).is_err() {
            return Err(Malformed("text is not UTF-8"));
        }
        let number = self.names.len() as u32;
        let role = if name == self.reading.time_field {
            Role::Time
        } else if Some(name) == self.reading.meta_field {
            Role::Meta
        } else if name == b"_id" {
            Role::Id
        } else {
            Role::Other
        };
        self.names.push(Name { role, seen: 0 });
        self.numbers.insert(name.into(), number);
        self.fields.names.push([name, b"\0"].concat().into());
        Ok(number)
    }

    /// Gives the measurement whose fields begin here an `_id` in front.
    fn make_id(&mut self, first_part: usize) {
        let name = match self.numbers.get(&b"_id"[..]) {
            Some(number) => *number,
            // Three letters of ASCII are never refused.
            None => self.new_name(b"_id").unwrap_or_default(),
        };
        let part = Part {
            name,
            kind: kind::OBJECT_ID,
            start: (self.buffer_bytes + self.fields.made.len()) as u32,
            length: 12,
        };
        let id = object_id::generate(self.seconds);
        self.fields.made.extend_from_slice(&id);
        self.fields.parts.insert(first_part, part);
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
