//! A bucket that is being filled: which measurements it takes, and what is known of those it took.

use crate::bucket_columns::Column;
use crate::control::{merge_bounds, Node};
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

/// A measurement that was taken but is not yet in the columns, and the number of its source.
#[derive(Clone, Copy)]
pub struct Pending {
    pub source: u32,
    pub measurement: Measurement,
}

/// A batch of which measurements wait.
#[derive(Clone)]
pub struct Source {
    pub lot: Arc<Lot>,
    pub places: Places,
}

/// Which field of the bucket each name of a lot is, as far as that was asked.
#[derive(Debug, Clone, Default)]
pub struct Places(Vec<u32>);

impl Places {
    const UNKNOWN: u32 = u32::MAX;
    const NAMES_LIKELY: usize = 64;

    /// Nothing is known of the names of a lot.
    fn for_names(names: usize) -> Self {
        Self(Vec::with_capacity(names.min(Self::NAMES_LIKELY)))
    }

    /// The place of a name's field.
    #[inline]
    pub fn get(&self, name: u32) -> Option<usize> {
        let place = self.0.get(name as usize).copied();
        place
            .filter(|place| *place != Self::UNKNOWN)
            .map(|place| place as usize)
    }

    fn set(&mut self, name: u32, place: usize) {
        let name = name as usize;
        if name >= self.0.len() {
            self.0.resize(name + 1, Self::UNKNOWN);
        }
        self.0[name] = place as u32;
    }
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
    pub sources: Vec<Source>,
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
            sources: Vec::new(),
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
        let latest = self.sources.pop();
        let mut source = match latest {
            Some(source) if Arc::ptr_eq(&source.lot, lot) => source,
            other => {
                self.sources.extend(other);
                Source {
                    lot: Arc::clone(lot),
                    places: Places::for_names(lot.view().names()),
                }
            }
        };
        let number = self.sources.len() as u32;
        self.pending.reserve(measurements.len());
        let mut taken = 0;
        let mut outcome = Ok(None);
        for measurement in measurements {
            outcome = self.take(view, measurement, limits, collate, &mut source.places);
            if outcome != Ok(None) {
                break;
            }
            self.pending.push(Pending {
                source: number,
                measurement: *measurement,
            });
            taken += 1;
        }
        self.sources.push(source);
        Ok((taken, outcome?, self.kept_open != kept_before))
    }

    /// Takes a measurement into control and into the sizes, or says why it does not fit.
    fn take(
        &mut self,
        lot: View<'_>,
        measurement: &Measurement,
        limits: &Limits,
        collate: Option<Collate<'_>>,
        places: &mut Places,
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

    /// What the measurement would add, and whether its types are those of the bucket. Leaves in `places` the fields of its parts,
    /// as far as the bucket has them.
    fn fit(
        &self,
        lot: View<'_>,
        parts: &[Part],
        limits: &Limits,
        places: &mut Places,
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
        let mut cursor = 0;
        for part in parts {
            let length = part.length as usize;
            let known = places
                .get(part.name)
                .or_else(|| self.look_up(lot, part, &mut cursor, places));
            match known.and_then(|at| self.fields.get(at)) {
                Some(field) => {
                    let alike = field.least.is_scalar_of(part.kind);
                    fit.schema =
                        fit.schema && (alike || field.least.accepts(part.kind, lot.value(part))?);
                }
                None => {
                    let name = lot.name(part);
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

    /// The field of a part whose name was not asked for before.
    #[cold]
    fn look_up(
        &self,
        lot: View<'_>,
        part: &Part,
        cursor: &mut usize,
        places: &mut Places,
    ) -> Option<usize> {
        let position = self.find(lot.name(part), *cursor)?;
        *cursor = position + 1;
        let at = self.order.get(position).copied()?;
        places.set(part.name, at);
        Some(at)
    }

    /// Takes the measurement into control.
    fn merge(
        &mut self,
        lot: View<'_>,
        parts: &[Part],
        collate: Option<Collate<'_>>,
        places: &mut Places,
    ) -> Result<(), Malformed> {
        let mut before: Option<usize> = None;
        for part in parts {
            let at = match places.get(part.name) {
                Some(at) => at,
                None => {
                    let at = self.insert(lot.name(part), before);
                    places.set(part.name, at);
                    at
                }
            };
            before = Some(at);
            if let Some(field) = self.fields.get_mut(at) {
                merge_bounds(
                    &mut field.least,
                    &mut field.greatest,
                    (part.kind, lot.value(part)),
                    collate,
                )?;
            }
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
