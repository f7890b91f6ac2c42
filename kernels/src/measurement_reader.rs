//! Reads measurements one after another, of which most have the fields of the one before.

use crate::elements::{fixed, kind, split_cstring, value_length, Malformed};
use crate::lot::{Fields, Part};
use crate::object_id;
use crate::partition::Reading;
use crate::series_places::Sent;
use crate::validate::{check_value, DEPTH_MAX};
use std::collections::HashMap;

/// MongoDB's codes for what is refused here.
const BAD_VALUE: i32 = 2;
pub const INVALID_BSON: i32 = 22;
const TOO_LARGE: i32 = 10334;

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

/// What a document is as a measurement.
#[derive(Debug)]
pub struct Found<'a> {
    pub time_ms: i64,
    pub meta: Sent<'a>,
    pub has_id: bool,
}

/// A field that the next document is expected to have.
struct Slot {
    name: u32,
    role: Role,
    /// The name with the NUL behind it, and the same as a number where it is short.
    bytes: Box<[u8]>,
    word: u128,
    mask: u128,
}

impl Slot {
    fn new(name: u32, role: Role, bytes: &[u8]) -> Self {
        let mut word = [0; 16];
        let mut mask = [0; 16];
        if bytes.len() <= word.len() {
            for (at, byte) in bytes.iter().enumerate() {
                word[at] = *byte;
                mask[at] = 0xFF;
            }
        }
        Self {
            name,
            role,
            bytes: bytes.into(),
            word: u128::from_le_bytes(word),
            mask: u128::from_le_bytes(mask),
        }
    }

    #[inline]
    fn begins(&self, rest: &[u8]) -> bool {
        match rest.first_chunk() {
            Some(chunk) if self.mask != 0 => {
                (u128::from_le_bytes(*chunk) ^ self.word) & self.mask == 0
            }
            _ => rest.starts_with(&self.bytes),
        }
    }
}

/// Reads documents one after another, of which most have the names of the one before.
pub struct Reader<'r> {
    reading: &'r Reading<'r>,
    pub fields: Fields,
    names: Vec<Name>,
    numbers: HashMap<Box<[u8]>, u32>,
    /// The names of the document before, in its order.
    layout: Vec<u32>,
    /// The same where no name came twice; else nothing.
    slots: Vec<Slot>,
    /// Whether the `_id` of such a document is its own.
    has_id: bool,
    /// Of the latest document: another one than that of any document whose fields are not the same.
    pub shape: u32,
    number: usize,
    buffer_bytes: usize,
    seconds: u32,
}

impl<'r> Reader<'r> {
    /// A reader of the documents of a buffer.
    pub fn new(reading: &'r Reading<'r>, buffer_bytes: usize) -> Self {
        Self {
            reading,
            fields: Fields::default(),
            names: Vec::new(),
            numbers: HashMap::new(),
            layout: Vec::new(),
            slots: Vec::new(),
            has_id: false,
            shape: 0,
            number: 0,
            buffer_bytes,
            seconds: object_id::now_seconds(),
        }
    }

    /// Checks a document wholly, its meta value excepted, and keeps its fields; of each name the first counts.
    pub fn read<'a>(
        &mut self,
        document: &'a [u8],
        start: usize,
    ) -> Result<Found<'a>, (i32, String)> {
        if !self.slots.is_empty() && document.len() <= self.reading.bytes_max {
            let first_part = self.fields.parts.len();
            if let Some(found) = self.read_alike(document, start) {
                return Ok(found);
            }
            self.fields.parts.truncate(first_part);
        }
        self.read_any(document, start)
    }

    /// The same for a document whose fields have the names of the one before; nothing where it is another.
    #[inline]
    fn read_alike<'a>(&mut self, document: &'a [u8], start: usize) -> Option<Found<'a>> {
        let body = document.get(4..document.len() - 1)?;
        let mut at = 0;
        let mut time_ms = None;
        let mut meta = None;
        for slot in &self.slots {
            let (&type_byte, after) = body.get(at..)?.split_first()?;
            if !slot.begins(after) {
                return None;
            }
            at += 1 + slot.bytes.len();
            let value = match type_byte {
                kind::DOUBLE | kind::DATE | kind::TIMESTAMP | kind::INT64 => {
                    body.get(at..at + 8)?
                }
                kind::INT32 => body.get(at..at + 4)?,
                kind::OBJECT_ID => body.get(at..at + 12)?,
                _ => {
                    let rest = body.get(at..)?;
                    let value = rest.get(..value_length(type_byte, rest).ok()?)?;
                    if slot.role != Role::Meta {
                        check_value(type_byte, value, DEPTH_MAX - 1).ok()?;
                    }
                    value
                }
            };
            let length = value.len();
            match slot.role {
                Role::Meta => meta = Some((type_byte, value)),
                Role::Time if type_byte != kind::DATE => return None,
                role => {
                    if role == Role::Time {
                        time_ms = value.first_chunk().map(|time| i64::from_le_bytes(*time));
                    }
                    self.fields.parts.push(Part {
                        name: slot.name,
                        kind: type_byte,
                        start: (start + 4 + at) as u32,
                        length: length as u32,
                    });
                }
            }
            at += length;
        }
        (at == body.len()).then_some(Found {
            time_ms: time_ms?,
            meta,
            has_id: self.has_id,
        })
    }

    /// The same for any document, which is what the next one is expected to be like.
    fn read_any<'a>(
        &mut self,
        document: &'a [u8],
        start: usize,
    ) -> Result<Found<'a>, (i32, String)> {
        self.slots.clear();
        self.shape += 1;
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
        let mut twice = false;
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
            twice |= again;
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
            Some((kind::DATE, value)) => {
                if !twice {
                    self.expect(slot, has_id);
                }
                Ok(Found {
                    time_ms: i64::from_le_bytes(fixed(value).map_err(invalid)?),
                    meta,
                    has_id,
                })
            }
            _ => Err((
                BAD_VALUE,
                format!(
                    "'{}' must be present and contain a valid BSON UTC datetime value",
                    String::from_utf8_lossy(self.reading.time_field)
                ),
            )),
        }
    }

    /// The next document is expected to have the first `count` fields of the layout, and no others.
    fn expect(&mut self, count: usize, has_id: bool) {
        self.has_id = has_id;
        for number in self.layout.iter().take(count) {
            let at = *number as usize;
            if let (Some(name), Some(bytes)) = (self.names.get(at), self.fields.names.get(at)) {
                self.slots.push(Slot::new(*number, name.role, bytes));
            }
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
    pub fn make_id(&mut self, first_part: usize) {
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
