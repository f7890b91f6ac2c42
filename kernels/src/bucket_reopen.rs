//! Stored buckets that go on growing, or lose some of their rows.

use crate::bucket::{Bucket, Field, FIELD_OVERHEAD};
use crate::bucket_columns::Column;
use crate::column::ColumnDecoder;
use crate::control::Node;
use crate::elements::{elements, fixed, kind, Elements};
use crate::keystring::Collate;
use crate::stored::{bad_bucket, Stored};
use crate::unpack::{check_size, packed, row_number, Failure, ROWS_MAX};
use crate::writer::{begin, end};
use std::collections::HashMap;

impl Bucket {
    /// Goes on with a stored bucket. One of version 1 becomes version 2, its rows sorted by time.
    pub fn reopen(bucket: &[u8], time_field: &[u8]) -> Result<Self, Failure> {
        let stored = Stored::parse(bucket)?;
        if !(1..=3).contains(&stored.version) {
            return Err(bad_bucket(format!(
                "Invalid value for 'control.version'. Expected 1, 2, or 3, but got {}.",
                stored.version
            )));
        }
        let version = if stored.version == 3 { 3 } else { 2 };
        let mut reopened = Self::empty(&stored, time_field, version)?;
        reopened.take_names(&stored)?;
        reopened.take_control(&stored)?;
        reopened.take_rows(&stored, None)?;
        reopened.document()?;
        Ok(reopened)
    }

    /// A stored bucket with only the rows whose byte in `keep` is not 0; None where there is none.
    pub fn keep_rows(
        bucket: &[u8],
        time_field: &[u8],
        keep: &[u8],
        collate: Option<Collate<'_>>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let stored = Stored::parse(bucket)?;
        let mut kept = Self::empty(&stored, time_field, stored.version)?;
        let times = stored.times(time_field)?;
        if keep.len() != times.len() {
            return Err(bad_bucket(format!(
                "the bucket has {} measurements, not {}",
                times.len(),
                keep.len()
            )));
        }
        if keep.iter().all(|keep| *keep == 0) {
            return Ok(None);
        }
        kept.take_names(&stored)?;
        kept.take_rows(&stored, Some(keep))?;
        if kept.version == 3 && kept.is_sorted(&times, keep) {
            kept.version = 2;
        }
        kept.merge_columns(collate)?;
        kept.document().map(Some)
    }

    fn is_sorted(&self, times: &[i64], keep: &[u8]) -> bool {
        let mut kept = times
            .iter()
            .zip(keep)
            .filter(|(_, keep)| **keep != 0)
            .map(|(time, _)| *time);
        let mut last = i64::MIN;
        kept.all(|time| {
            let sorted = time >= last;
            last = time;
            sorted
        })
    }

    fn empty(stored: &Stored<'_>, time_field: &[u8], version: i32) -> Result<Self, Failure> {
        let min_ms = crate::elements::find(stored.min, time_field)?
            .filter(|time| time.kind == kind::DATE)
            .ok_or_else(|| bad_bucket("the bucket's control.min has no time"))?;
        let meta = stored.meta.map(|(type_byte, value)| {
            let mut meta = vec![type_byte];
            meta.extend_from_slice(value);
            meta
        });
        let min_ms = i64::from_le_bytes(fixed(min_ms.value)?);
        let mut empty = Self::new(stored.id, time_field, meta.as_deref(), min_ms, version);
        empty.closed = stored.closed;
        empty.fixed_bytes = meta.map_or(0, |meta| meta.len() + 5);
        Ok(empty)
    }

    /// Takes the fields, in the order of the columns and in that of control, without their values.
    fn take_names(&mut self, stored: &Stored<'_>) -> Result<(), Failure> {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        for column in elements(stored.data)? {
            let name = column?.name;
            if name == self.time_field {
                places.insert(name, 0);
            } else if places.insert(name, self.fields.len()).is_none() {
                self.fields.push(Field::new(name, self.version));
            } else {
                return Err(bad_bucket("the bucket has two columns of one name"));
            }
        }
        self.order.clear();
        for element in elements(stored.min)? {
            self.order.extend(places.remove(element?.name));
        }
        let mut rest: Vec<usize> = places.into_values().collect();
        rest.sort_unstable();
        self.order.extend(rest);
        Ok(())
    }

    /// Takes minima and maxima as stored; where a bucket is to grow, they must be of one class of type.
    fn take_control(&mut self, stored: &Stored<'_>) -> Result<(), Failure> {
        let uneven =
            || bad_bucket("the bucket's control.min and control.max have different fields");
        let mut maxima = elements(stored.max)?;
        for (position, element) in elements(stored.min)?.enumerate() {
            let (element, other) = (element?, maxima.next().ok_or_else(uneven)??);
            let field = self
                .order
                .get(position)
                .and_then(|at| self.fields.get_mut(*at));
            let field = field
                .filter(|field| field.name == element.name && field.name == other.name)
                .ok_or_else(uneven)?;
            let least = Node::of(element.kind, element.value)?;
            let greatest = Node::of(other.kind, other.value)?;
            if !least.same_classes(&greatest) {
                return Err(Failure::new(
                    408,
                    "the bucket holds values of different types in one field",
                ));
            }
            (field.least, field.greatest) = (least, greatest);
            if element.name == self.time_field {
                if other.kind != kind::DATE {
                    return Err(bad_bucket("the bucket's control.max has no time"));
                }
                self.max_ms = i64::from_le_bytes(fixed(other.value)?);
            }
            let whole = element.name.len() * 2 + 4 + element.value.len() + other.value.len();
            self.fixed_bytes += FIELD_OVERHEAD + element.name.len() + whole;
        }
        if maxima.next().is_some() {
            return Err(uneven());
        }
        Ok(())
    }

    /// Takes the rows that are to be kept, those of version 1 sorted by time unless version 1 is written.
    fn take_rows(&mut self, stored: &Stored<'_>, keep: Option<&[u8]>) -> Result<(), Failure> {
        let times = stored.times(&self.time_field)?;
        let count = match stored.count {
            Some(count) if stored.version != 1 => usize::try_from(count).unwrap_or(0),
            _ => times.len(),
        };
        if count != times.len() || count > ROWS_MAX {
            return Err(bad_bucket(
                "the bucket's control.count is not the number of its times",
            ));
        }
        let mut rows: Vec<usize> = (0..count)
            .filter(|row| keep.is_none_or(|keep| keep.get(*row).is_some_and(|keep| *keep != 0)))
            .collect();
        if stored.version == 1 && self.version != 1 {
            rows.sort_by_key(|row| times.get(*row));
        }
        // Where each stored row goes to.
        let mut target = vec![None; count];
        for (new, old) in rows.iter().enumerate() {
            if let Some(target) = target.get_mut(*old) {
                *target = Some(new);
            }
        }
        let in_order = target.iter().flatten().is_sorted();
        let mut cursor = 0;
        for column in elements(stored.data)? {
            let column = column?;
            let position = self.find(column.name, cursor);
            let at = position.and_then(|position| self.order.get(position));
            let Some(field) = at.and_then(|at| self.fields.get_mut(*at)) else {
                continue;
            };
            cursor = position.map_or(0, |position| position + 1);
            if field.column.rows() > 0 {
                return Err(bad_bucket("the bucket has two columns of one name"));
            }
            let mut entries: Vec<(usize, u8, Vec<u8>)> = Vec::new();
            let mut size = 0;
            let mut add = |row: usize, type_byte: u8, value: &[u8]| -> Result<(), Failure> {
                size += value.len();
                check_size(size)?;
                let new = *target
                    .get(row)
                    .ok_or_else(|| bad_bucket("a column of the bucket has too many rows"))?;
                match new {
                    Some(new) if in_order => field.column.append(new, type_byte, value)?,
                    Some(new) => entries.push((new, type_byte, value.to_vec())),
                    None => {}
                }
                Ok(())
            };
            if column.kind == kind::OBJECT {
                each_plain(elements(column.value)?, &mut add)?;
            } else {
                let mut found = 0;
                for (row, entry) in ColumnDecoder::new(packed(column)?, count).enumerate() {
                    if let Some(value) = entry? {
                        add(row, value.kind(), value.bytes())?;
                    }
                    found = row + 1;
                }
                if found != count {
                    return Err(Failure::new(
                        6067601,
                        "a column of the bucket has fewer entries than control.count says",
                    ));
                }
            }
            entries.sort_by_key(|entry| entry.0);
            for (row, type_byte, value) in &entries {
                field.column.append(*row, *type_byte, value)?;
            }
        }
        self.encoded = rows.len();
        // Version 3 may hold its latest measurement anywhere; what comes after the last row decides nothing there.
        self.last_ms = rows
            .last()
            .and_then(|row| times.get(*row))
            .copied()
            .unwrap_or(i64::MIN);
        self.fill_columns()
    }

    /// Takes minima and maxima from the columns; the least time stays the rounded one.
    fn merge_columns(&mut self, collate: Option<Collate<'_>>) -> Result<(), Failure> {
        let encoded = self.encoded;
        for field in &mut self.fields {
            field.merge_column(encoded, collate)?;
        }
        self.drop_empty();
        let time = self
            .fields
            .iter()
            .find(|field| field.name == self.time_field);
        if let Some(Node::Scalar(kind::DATE, value)) = time.map(|field| &field.greatest) {
            self.max_ms = i64::from_le_bytes(fixed(value)?);
        }
        Ok(())
    }

    /// Lets go of fields that no row has any more.
    fn drop_empty(&mut self) {
        let kept: Vec<bool> = self
            .fields
            .iter()
            .map(|field| field.least != Node::Unset)
            .collect();
        let new: Vec<usize> = kept
            .iter()
            .scan(0, |next, kept| {
                let at = *next;
                *next += usize::from(*kept);
                Some(at)
            })
            .collect();
        self.order.retain(|at| kept.get(*at) == Some(&true));
        for at in &mut self.order {
            *at = new.get(*at).copied().unwrap_or(0);
        }
        let mut kept = kept.into_iter();
        self.fields.retain(|_| kept.next() == Some(true));
    }
}

impl Field {
    fn merge_column(&mut self, rows: usize, collate: Option<Collate<'_>>) -> Result<(), Failure> {
        use crate::control::Keep::{Greatest, Least};
        match &self.column {
            Column::Compressed(encoder) => {
                for entry in ColumnDecoder::new(&encoder.finish()?, rows) {
                    if let Some(value) = entry? {
                        self.least
                            .merge(value.kind(), value.bytes(), Least, collate)?;
                        self.greatest
                            .merge(value.kind(), value.bytes(), Greatest, collate)?;
                    }
                }
            }
            Column::Plain { body, .. } => {
                let mut document = Vec::with_capacity(body.len() + 5);
                let begun = begin(&mut document);
                document.extend_from_slice(body);
                end(&mut document, begun);
                for element in elements(&document)? {
                    let element = element?;
                    self.least
                        .merge(element.kind, element.value, Least, collate)?;
                    self.greatest
                        .merge(element.kind, element.value, Greatest, collate)?;
                }
            }
        }
        Ok(())
    }
}

/// Calls `each` with row, type byte and value of the entries of a column of version 1.
fn each_plain(
    rows: Elements<'_>,
    each: &mut impl FnMut(usize, u8, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for element in rows {
        let element = element?;
        each(row_number(element.name)?, element.kind, element.value)?;
    }
    Ok(())
}
