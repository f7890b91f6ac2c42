//! A bucket that is being filled: which measurements it takes, and what is known of those it took.

use crate::bucket_columns::Column;
use crate::control::{Keep, Node};
use crate::elements::{kind, Malformed};
use crate::keystring::Collate;
use crate::lot::{Lot, Part, View};
use crate::partition::Measurement;
use std::sync::Arc;

/// Overhead of a new field in the sizes that MongoDB reckons with.
pub const FIELD_OVERHEAD: usize = 12;

/// The numbers of the closing rules. Sizes are bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub span_ms: i64,
    pub max_count: usize,
    pub effective_max: usize,
    pub absolute_max: usize,
    pub min_count: usize,
    pub large_threshold: usize,
}

/// Why a measurement does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    TimeForward,
    TimeBackward,
    Count,
    Size,
    Schema,
}

impl Refusal {
    /// Its name for Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::TimeForward => "time_forward",
            Self::TimeBackward => "time_backward",
            Self::Count => "count",
            Self::Size => "size",
            Self::Schema => "schema",
        }
    }
}

/// One field of the measurements: least and greatest value, and its column.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: Vec<u8>,
    pub least: Node,
    pub greatest: Node,
    pub column: Column,
}

impl Field {
    /// A field without values.
    pub fn new(name: &[u8], version: i32) -> Self {
        Self {
            name: name.to_vec(),
            least: Node::Unset,
            greatest: Node::Unset,
            column: Column::new(version),
        }
    }
}

/// A measurement that was taken but is not yet in the columns.
#[derive(Clone)]
pub struct Pending {
    pub lot: Arc<Lot>,
    pub measurement: Measurement,
}

/// A bucket that is being filled.
#[derive(Clone)]
pub struct Bucket {
    pub id: [u8; 12],
    pub time_field: Vec<u8>,
    pub meta: Option<Vec<u8>>,
    pub min_ms: i64,
    pub max_ms: i64,
    pub version: i32,
    pub closed: Option<bool>,
    /// In the order of their columns.
    pub fields: Vec<Field>,
    /// The same, as positions, in the order of control.
    pub order: Vec<usize>,
    /// Rows in the columns, and the time of the last one.
    pub encoded: usize,
    pub last_ms: i64,
    pub pending: Vec<Pending>,
    /// Bytes by which names, meta, minima and maxima count.
    pub fixed_bytes: usize,
    /// Bytes of the columns when they were last written, and of large values that came since.
    pub column_bytes: usize,
    pub pending_bytes: usize,
    pub kept_open: bool,
}

impl Bucket {
    /// An empty bucket that begins at a rounded time.
    pub fn new(
        id: [u8; 12],
        time_field: &[u8],
        meta: Option<&[u8]>,
        min_ms: i64,
        version: i32,
    ) -> Self {
        let start = Node::Scalar(kind::DATE, min_ms.to_le_bytes().to_vec());
        Self {
            id,
            time_field: time_field.to_vec(),
            meta: meta.map(<[u8]>::to_vec),
            min_ms,
            max_ms: min_ms,
            version,
            closed: None,
            fields: vec![Field {
                least: start.clone(),
                greatest: start,
                ..Field::new(time_field, version)
            }],
            order: vec![0],
            encoded: 0,
            last_ms: i64::MIN,
            pending: Vec::new(),
            fixed_bytes: 0,
            column_bytes: 0,
            pending_bytes: 0,
            kept_open: false,
        }
    }

    /// Measurements in it.
    pub fn count(&self) -> usize {
        self.encoded + self.pending.len()
    }

    /// Its size for the closing rules.
    pub fn size_bytes(&self) -> usize {
        self.fixed_bytes + self.column_bytes + self.pending_bytes
    }

    /// About what it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        let fields: usize = self
            .fields
            .iter()
            .map(|field| {
                256 + field.name.capacity()
                    + field.least.memory()
                    + field.greatest.memory()
                    + field.column.size_estimate()
            })
            .sum();
        let pending: usize = self
            .pending
            .iter()
            .map(|pending| 64 + (pending.measurement.end - pending.measurement.start) as usize)
            .sum();
        256 + fields + pending + self.meta.as_ref().map_or(0, Vec::capacity)
    }

    /// Takes measurements until one does not fit. Returns how many, why the next was not taken, and whether the bucket was, for the
    /// first time, kept open although it is large.
    pub fn append(
        &mut self,
        lot: &Arc<Lot>,
        measurements: &[Measurement],
        limits: &Limits,
        collate: Option<Collate<'_>>,
    ) -> Result<(usize, Option<Refusal>, bool), Malformed> {
        let kept_before = self.kept_open;
        let view = lot.view();
        let mut places = Vec::new();
        for (taken, measurement) in measurements.iter().enumerate() {
            let refusal = self.take(view, measurement, limits, collate, &mut places)?;
            if refusal.is_some() {
                return Ok((taken, refusal, self.kept_open != kept_before));
            }
            self.pending.push(Pending {
                lot: Arc::clone(lot),
                measurement: *measurement,
            });
        }
        Ok((measurements.len(), None, self.kept_open != kept_before))
    }

    /// Takes a measurement into control and into the sizes, or says why it does not fit.
    fn take(
        &mut self,
        lot: View<'_>,
        measurement: &Measurement,
        limits: &Limits,
        collate: Option<Collate<'_>>,
        places: &mut Vec<Option<usize>>,
    ) -> Result<Option<Refusal>, Malformed> {
        if measurement.time_ms.saturating_sub(self.min_ms) >= limits.span_ms {
            return Ok(Some(Refusal::TimeForward));
        }
        if measurement.time_ms < self.min_ms {
            return Ok(Some(Refusal::TimeBackward));
        }
        let count = self.count();
        if count >= limits.max_count {
            return Ok(Some(Refusal::Count));
        }
        let parts = lot.parts(measurement);
        let fit = self.fit(lot, parts, limits, places)?;
        if count > 0 {
            let size = self.size_bytes() + fit.fixed_bytes + fit.value_bytes;
            if size > limits.effective_max {
                if count >= limits.min_count || size > limits.absolute_max {
                    return Ok(Some(Refusal::Size));
                }
                self.kept_open = true;
            }
            if !fit.schema {
                return Ok(Some(Refusal::Schema));
            }
        }
        self.merge(lot, parts, collate, places)?;
        self.fixed_bytes += fit.fixed_bytes;
        self.pending_bytes += fit.value_bytes;
        self.max_ms = self.max_ms.max(measurement.time_ms);
        Ok(None)
    }

    /// What the measurement would add, and whether its types are those of the bucket. Leaves in `places` which field of the bucket
    /// each of its parts belongs to, None where there is none yet.
    fn fit(
        &self,
        lot: View<'_>,
        parts: &[Part],
        limits: &Limits,
        places: &mut Vec<Option<usize>>,
    ) -> Result<Fit, Malformed> {
        let mut fit = Fit {
            fixed_bytes: 0,
            value_bytes: 0,
            schema: true,
        };
        if self.count() == 0 {
            // "meta" with its NUL; the type byte is part of the meta.
            fit.fixed_bytes += self.meta.as_ref().map_or(0, |meta| meta.len() + 5);
        }
        places.clear();
        let mut cursor = 0;
        for part in parts {
            let name = lot.name(part);
            let length = part.length as usize;
            let found = self.find(name, cursor);
            let at = found.and_then(|position| self.order.get(position)).copied();
            places.push(at);
            match at.and_then(|at| self.fields.get(at)) {
                Some(field) => {
                    cursor = found.map_or(0, |position| position + 1);
                    fit.schema = fit.schema && field.least.accepts(part.kind, lot.value(part))?;
                }
                None => {
                    let whole = name.len() + length + 2;
                    fit.fixed_bytes += FIELD_OVERHEAD + name.len() + 2 * whole;
                }
            }
            if length > limits.large_threshold {
                fit.value_bytes += length + decimal_digits(self.count()) + 1;
            }
        }
        Ok(fit)
    }

    /// Takes the measurement into control.
    fn merge(
        &mut self,
        lot: View<'_>,
        parts: &[Part],
        collate: Option<Collate<'_>>,
        places: &[Option<usize>],
    ) -> Result<(), Malformed> {
        let mut before: Option<usize> = None;
        for (part, place) in parts.iter().zip(places) {
            let at = match place {
                Some(at) => *at,
                None => self.insert(lot.name(part), before),
            };
            before = Some(at);
            let Some(field) = self.fields.get_mut(at) else {
                continue;
            };
            let value = lot.value(part);
            field.least.merge(part.kind, value, Keep::Least, collate)?;
            field
                .greatest
                .merge(part.kind, value, Keep::Greatest, collate)?;
        }
        Ok(())
    }

    /// Where in the order of control a field stands, looked for from `cursor` on and then from the beginning.
    #[inline]
    pub fn find(&self, name: &[u8], cursor: usize) -> Option<usize> {
        let named = |at: &usize| self.fields.get(*at).is_some_and(|field| field.name == name);
        let (before, after) = self.order.split_at(cursor.min(self.order.len()));
        let found = after.iter().position(named);
        found
            .map(|position| position + before.len())
            .or_else(|| before.iter().position(named))
    }

    /// A new field, in control behind another one, or first; returns its place among the fields.
    fn insert(&mut self, name: &[u8], before: Option<usize>) -> usize {
        let position = before
            .and_then(|before| self.order.iter().position(|at| *at == before))
            .map_or(0, |position| position + 1);
        let at = self.fields.len();
        self.order.insert(position, at);
        self.fields.push(Field::new(name, self.version));
        at
    }
}

/// What a measurement adds to the size of a bucket, and whether its types fit.
struct Fit {
    fixed_bytes: usize,
    value_bytes: usize,
    schema: bool,
}

fn decimal_digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
