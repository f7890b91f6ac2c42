//! A batch of measurements whose fields were found once: names counted, values by where they lie.

use crate::elements::kind;
use crate::partition::Measurement;
use crate::writer::{begin, element, end};

/// One field of a measurement: the number of its name in the lot, its type, and where its value lies.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub name: u32,
    pub kind: u8,
    pub start: u32,
    pub length: u32,
}

/// The bytes of a batch and what was found in them. Buckets hold on to it until they have encoded their measurements.
pub struct Lot {
    bytes: Box<dyn AsRef<[u8]> + Send + Sync>,
    found: Fields,
}

/// The fields of all measurements of a batch, the meta field left out, of each name the first in a document.
#[derive(Debug, Default)]
pub struct Fields {
    /// Each name with the NUL behind it.
    pub names: Vec<Box<[u8]>>,
    pub parts: Vec<Part>,
    /// Values of `_id` that were made here; they count as lying behind the bytes of the batch.
    pub made: Vec<u8>,
}

impl Lot {
    /// A batch and its fields.
    pub fn new(bytes: Box<dyn AsRef<[u8]> + Send + Sync>, found: Fields) -> Self {
        Self { bytes, found }
    }

    /// The lot as it is read.
    pub fn view(&self) -> View<'_> {
        View {
            bytes: (*self.bytes).as_ref(),
            found: &self.found,
        }
    }
}

/// A lot as it is read.
#[derive(Clone, Copy)]
pub struct View<'a> {
    bytes: &'a [u8],
    found: &'a Fields,
}

impl<'a> View<'a> {
    /// The fields of a measurement.
    #[inline]
    pub fn parts(&self, measurement: &Measurement) -> &'a [Part] {
        let start = measurement.first_part as usize;
        let stop = start + measurement.parts as usize;
        self.found.parts.get(start..stop).unwrap_or_default()
    }

    /// How many names there are.
    pub fn names(&self) -> usize {
        self.found.names.len()
    }

    /// One field of a measurement.
    #[inline]
    pub fn part(&self, measurement: &Measurement, position: u32) -> Option<&'a Part> {
        self.found
            .parts
            .get((measurement.first_part + position) as usize)
    }

    /// Name of a field, without its NUL.
    #[inline]
    pub fn name(&self, part: &Part) -> &'a [u8] {
        match self.found.names.get(part.name as usize).map(Box::as_ref) {
            Some([name @ .., _]) => name,
            _ => &[],
        }
    }

    /// Value of a field.
    #[inline]
    pub fn value(&self, part: &Part) -> &'a [u8] {
        let start = part.start as usize;
        let length = part.length as usize;
        match start.checked_sub(self.bytes.len()) {
            None => self.bytes.get(start..start + length),
            Some(start) => self.found.made.get(start..start + length),
        }
        .unwrap_or_default()
    }

    /// The document as a client would have sent it with its `_id`.
    pub fn document(&self, measurement: &Measurement) -> Vec<u8> {
        let (start, end_) = (measurement.start as usize, measurement.end as usize);
        let bytes = self.bytes.get(start..end_).unwrap_or_default();
        let made = self
            .parts(measurement)
            .first()
            .filter(|part| part.start as usize >= self.bytes.len());
        let Some(id) = made else {
            return bytes.to_vec();
        };
        let mut out = Vec::with_capacity(bytes.len() + 17);
        let begun = begin(&mut out);
        element(&mut out, kind::OBJECT_ID, b"_id", self.value(id));
        let body = bytes.get(4..bytes.len().saturating_sub(1));
        out.extend_from_slice(body.unwrap_or_default());
        end(&mut out, begun);
        out
    }
}
