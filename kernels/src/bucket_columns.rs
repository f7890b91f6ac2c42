//! The columns of a bucket that is being filled, and the document it is stored as.

use crate::bucket::{Bucket, Pending, Source};
use crate::column::{ColumnEncoder, ColumnError};
use crate::elements::kind;
use crate::unpack::Failure;
use crate::writer::{begin, begin_named, element, end, header, int32, Digits};

const COLUMN_SUBTYPE: u8 = 7;

/// One column: compressed, or as in version 1 an object keyed by row numbers.
#[derive(Debug, Clone)]
pub enum Column {
    Compressed(Box<ColumnEncoder>),
    Plain { body: Vec<u8>, rows: usize },
}

impl Column {
    /// An empty column of a bucket of this version.
    pub fn new(version: i32) -> Self {
        if version == 1 {
            Self::Plain {
                body: Vec::new(),
                rows: 0,
            }
        } else {
            Self::Compressed(Box::default())
        }
    }

    /// Rows that it has.
    #[inline]
    pub fn rows(&self) -> usize {
        match self {
            Self::Compressed(encoder) => encoder.count(),
            Self::Plain { rows, .. } => *rows,
        }
    }

    /// Adds missing values up to a row.
    #[inline]
    pub fn fill(&mut self, row: usize) -> Result<(), ColumnError> {
        match self {
            Self::Compressed(encoder) => {
                while encoder.count() < row {
                    encoder.append_missing()?;
                }
            }
            Self::Plain { rows, .. } => *rows = row.max(*rows),
        }
        Ok(())
    }

    /// Adds the value of a row, and missing values before it; nothing if the row has a value already.
    #[inline]
    pub fn append(&mut self, row: usize, type_byte: u8, value: &[u8]) -> Result<(), ColumnError> {
        if self.rows() > row {
            return Ok(());
        }
        self.fill(row)?;
        match self {
            Self::Compressed(encoder) => encoder.append(type_byte, value),
            Self::Plain { body, rows } => {
                element(body, type_byte, Digits::of(row).as_bytes(), value);
                *rows = row + 1;
                Ok(())
            }
        }
    }

    /// Adds the values of all rows from one on that has none yet, and missing values before it.
    fn extend<'a>(
        &mut self,
        row: usize,
        values: impl Iterator<Item = (u8, &'a [u8])>,
    ) -> Result<(), ColumnError> {
        self.fill(row)?;
        match self {
            Self::Compressed(encoder) => {
                for (type_byte, value) in values {
                    encoder.append(type_byte, value)?;
                }
                Ok(())
            }
            Self::Plain { .. } => {
                for (more, (type_byte, value)) in values.enumerate() {
                    self.append(row + more, type_byte, value)?;
                }
                Ok(())
            }
        }
    }

    /// Its length, with at most a few blocks too much.
    pub fn size_estimate(&self) -> usize {
        match self {
            Self::Compressed(encoder) => encoder.size_estimate(),
            Self::Plain { body, .. } => body.len() + 5,
        }
    }

    /// Writes it as an element and returns how many bytes it has.
    fn write(&self, name: &[u8], out: &mut Vec<u8>) -> Result<usize, Failure> {
        match self {
            Self::Compressed(encoder) => {
                header(out, kind::BINARY, name);
                let begun = out.len();
                out.extend_from_slice(&[0, 0, 0, 0, COLUMN_SUBTYPE]);
                encoder.finish_into(out)?;
                let bytes = out.len() - begun - 5;
                let length = i32::try_from(bytes)
                    .map_err(|_| Failure::new(10334, "a column is too long for BSON"))?;
                if let Some(place) = out.get_mut(begun..begun + 4) {
                    place.copy_from_slice(&length.to_le_bytes());
                }
                Ok(bytes)
            }
            Self::Plain { body, .. } => {
                let begun = begin_named(out, kind::OBJECT, name);
                out.extend_from_slice(body);
                end(out, begun);
                Ok(body.len() + 5)
            }
        }
    }
}

impl Bucket {
    /// The bucket as it is stored. What was taken since the last time is sorted by time and goes to the columns.
    pub fn document(&mut self) -> Result<Vec<u8>, Failure> {
        self.encode_pending()?;
        let mut out = Vec::with_capacity(self.size_bytes() + 256);
        let all = begin(&mut out);
        element(&mut out, kind::OBJECT_ID, b"_id", &self.id);
        let control = begin_named(&mut out, kind::OBJECT, b"control");
        int32(&mut out, b"version", self.version);
        for (name, bound) in [(&b"min"[..], false), (b"max", true)] {
            let begun = begin_named(&mut out, kind::OBJECT, name);
            for field in self.order.iter().filter_map(|at| self.fields.get(*at)) {
                let node = if bound { &field.greatest } else { &field.least };
                node.write(&field.name, &mut out);
            }
            end(&mut out, begun);
        }
        if let Some(closed) = self.closed {
            element(&mut out, kind::BOOL, b"closed", &[u8::from(closed)]);
        }
        if self.version != 1 {
            int32(
                &mut out,
                b"count",
                i32::try_from(self.encoded).unwrap_or(i32::MAX),
            );
        }
        end(&mut out, control);
        if let Some((type_byte, value)) = self.meta.as_deref().and_then(<[u8]>::split_first) {
            element(&mut out, *type_byte, b"meta", value);
        }
        let data = begin_named(&mut out, kind::OBJECT, b"data");
        let mut column_bytes = 0;
        for field in &self.fields {
            column_bytes += field.column.write(&field.name, &mut out)?;
        }
        end(&mut out, data);
        end(&mut out, all);
        self.column_bytes = column_bytes;
        self.pending_bytes = 0;
        Ok(out)
    }

    fn encode_pending(&mut self) -> Result<(), Failure> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let sources = std::mem::take(&mut self.sources);
        if self.version != 1 {
            pending.sort_by_key(|pending| pending.measurement.time_ms);
            let first = pending
                .first()
                .map_or(i64::MAX, |pending| pending.measurement.time_ms);
            if first < self.last_ms {
                self.version = 3;
            }
        }
        let alike = |one: &Pending, other: &Pending| {
            one.source == other.source && one.measurement.shape == other.measurement.shape
        };
        for rows in pending.chunk_by(alike) {
            let Some((first, last)) = rows.first().zip(rows.last()) else {
                continue;
            };
            if let Some(source) = sources.get(first.source as usize) {
                self.encode_rows(source, rows, first.measurement.parts)?;
            }
            self.encoded += rows.len();
            self.last_ms = last.measurement.time_ms;
        }
        self.fill_columns()
    }

    /// Adds measurements of one shape to the columns, one column after another.
    fn encode_rows(
        &mut self,
        source: &Source,
        rows: &[Pending],
        parts: u32,
    ) -> Result<(), Failure> {
        let lot = source.lot.view();
        for position in 0..parts {
            // They have the same names.
            let first = rows
                .first()
                .and_then(|first| lot.part(&first.measurement, position));
            let at = first.and_then(|part| source.places.get(part.name));
            let Some(field) = at.and_then(|at| self.fields.get_mut(at)) else {
                continue;
            };
            let parts = rows
                .iter()
                .filter_map(|row| lot.part(&row.measurement, position));
            field
                .column
                .extend(self.encoded, parts.map(|part| (part.kind, lot.value(part))))?;
        }
        Ok(())
    }

    /// Lets every column have all rows.
    pub fn fill_columns(&mut self) -> Result<(), Failure> {
        for field in &mut self.fields {
            field.column.fill(self.encoded)?;
        }
        Ok(())
    }
}
