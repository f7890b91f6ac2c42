//! What is wrong with a stored bucket: control against data, order, counts, names, versions.

use crate::bucket::Field;
use crate::column::ColumnDecoder;
use crate::control::{Keep, Node};
use crate::elements::{elements, find, fixed, kind, Element, Malformed};
use crate::keystring::Collate;
use crate::stored::Stored;
use crate::unpack::{check_size, packed, row_number, Failure, ROWS_MAX};
use std::collections::HashSet;

/// Latest time that the seconds of an `_id` stand for.
const STANDARD_MAX_MS: i64 = i32::MAX as i64 * 1000;

/// Everything that is wrong with the bucket, in words; empty where nothing is.
pub fn problems(
    bucket: &[u8],
    time_field: &[u8],
    meta_field: Option<&[u8]>,
    span_ms: i64,
    rounding_ms: i64,
    collate: Option<Collate<'_>>,
) -> Vec<String> {
    let mut found = Vec::new();
    let checked = Stored::parse(bucket).and_then(|stored| {
        let mut check = Check {
            stored,
            time_field,
            found: &mut found,
            collate,
        };
        check.frame(meta_field, span_ms)?;
        check.columns()?;
        check.times(rounding_ms)
    });
    if let Err(failure) = checked {
        found.push(failure.message);
    }
    found
}

/// So many entries more than claimed are counted, for the report.
const SURPLUS_MAX: usize = 1000;

struct Check<'a> {
    stored: Stored<'a>,
    time_field: &'a [u8],
    found: &'a mut Vec<String>,
    collate: Option<Collate<'a>>,
}

impl Check<'_> {
    fn report(&mut self, problem: impl Into<String>) {
        self.found.push(problem.into());
    }

    fn bound(&self, bound: &[u8]) -> Result<Option<i64>, Malformed> {
        find(bound, self.time_field)?
            .filter(|time| time.kind == kind::DATE)
            .map(|time| fixed(time.value).map(i64::from_le_bytes))
            .transpose()
    }

    fn frame(&mut self, meta_field: Option<&[u8]>, span_ms: i64) -> Result<(), Failure> {
        let version = self.stored.version;
        if !(1..=3).contains(&version) {
            self.report(format!(
                "Invalid value for 'control.version'. Expected 1, 2, or 3, but got {version}."
            ));
        }
        if version != 1 && self.stored.count.is_none() {
            self.report("'control.count' is missing.");
        }
        if self.stored.meta.is_some() && meta_field.is_none() {
            self.report("The bucket has a 'meta' field, but the collection has no metaField.");
        }
        match (self.bound(self.stored.min)?, self.bound(self.stored.max)?) {
            (Some(min), Some(max)) => {
                if max.saturating_sub(min) >= span_ms {
                    self.report(
                        "The times of the bucket lie further apart than the bucket may span.",
                    );
                }
                let [a, b, c, d, ..] = self.stored.id;
                let seconds = i64::from(u32::from_be_bytes([a, b, c, d]));
                if (0..=STANDARD_MAX_MS).contains(&min) && seconds != min / 1000 {
                    self.report("The time in the bucket's '_id' is not that of 'control.min'.");
                }
            }
            _ => self.report("'control.min' or 'control.max' has no time."),
        }
        let names = |document| -> Result<Vec<&[u8]>, Malformed> {
            elements(document)?
                .map(|element| element.map(|element| element.name))
                .collect()
        };
        let lists = [
            ("data", names(self.stored.data)?),
            ("control.min", names(self.stored.min)?),
            ("control.max", names(self.stored.max)?),
        ];
        let sets: Vec<HashSet<&[u8]>> = lists
            .iter()
            .map(|(_, list)| list.iter().copied().collect())
            .collect();
        for ((place, list), set) in lists.iter().zip(&sets) {
            if list.len() != set.len() {
                self.report(format!("A field name occurs twice in '{place}'."));
            }
        }
        if sets.windows(2).any(|pair| pair.first() != pair.last()) {
            self.report("'data', 'control.min' and 'control.max' do not have the same fields.");
        }
        Ok(())
    }

    fn columns(&mut self) -> Result<(), Failure> {
        for column in elements(self.stored.data)? {
            let column = column?;
            let name = String::from_utf8_lossy(column.name).into_owned();
            let mut field = Field::new(column.name, 2);
            let read = if self.stored.version == 1 {
                self.plain_column(column, &mut field)
            } else {
                self.packed_column(column, &mut field)
            };
            if let Err(failure) = read {
                self.report(format!("Column '{name}': {}", failure.message));
                continue;
            }
            if column.name == self.time_field {
                continue;
            }
            for (bound, values, node) in [
                ("control.min", self.stored.min, &field.least),
                ("control.max", self.stored.max, &field.greatest),
            ] {
                let stored = match find(values, column.name)? {
                    Some(element) => Node::of(element.kind, element.value)?,
                    None => Node::Unset,
                };
                if !stored.equals(node, self.collate)? {
                    self.found.push(format!(
                        "'{bound}' of column '{name}' is not that of its values."
                    ));
                }
            }
        }
        Ok(())
    }

    fn packed_column(&mut self, column: Element<'_>, field: &mut Field) -> Result<(), Failure> {
        let (mut entries, mut size) = (0, 0);
        let mut last = (kind::UNDEFINED, Vec::new());
        // More entries than are claimed need not be counted to the last.
        let claimed = self.stored.count.unwrap_or(i32::MAX).max(0) as usize;
        let entries_max = claimed.saturating_add(SURPLUS_MAX).min(ROWS_MAX);
        for entry in ColumnDecoder::new(packed(column)?, entries_max) {
            if let Some(value) = entry? {
                size += value.bytes().len();
                check_size(size)?;
                // Columns repeat values, and a value that was taken changes nothing.
                if last.0 != value.kind() || last.1 != value.bytes() {
                    take(self.collate, field, value.kind(), value.bytes())?;
                    last.0 = value.kind();
                    last.1.clear();
                    last.1.extend_from_slice(value.bytes());
                }
            }
            entries += 1;
        }
        let count = self.stored.count.unwrap_or(entries);
        if entries != count {
            return Err(Failure::new(
                2,
                format!("it has {entries} entries, but 'control.count' is {count}."),
            ));
        }
        Ok(())
    }

    fn plain_column(&mut self, column: Element<'_>, field: &mut Field) -> Result<(), Failure> {
        if column.kind != kind::OBJECT {
            return Err(Failure::new(2, "it is no object."));
        }
        let mut next = 0;
        for element in elements(column.value)? {
            let element = element?;
            let row = row_number(element.name)?;
            let gap = column.name == self.time_field && row != next;
            if gap || row < next {
                return Err(Failure::new(2, "its row numbers are not in order."));
            }
            next = row + 1;
            take(self.collate, field, element.kind, element.value)?;
        }
        Ok(())
    }

    fn times(&mut self, rounding_ms: i64) -> Result<(), Failure> {
        let times = self.stored.times(self.time_field)?;
        let (Some(earliest), Some(latest)) = (times.iter().min(), times.iter().max()) else {
            self.report("The bucket holds no measurements.");
            return Ok(());
        };
        let rounded = |time: i64| time.div_euclid(rounding_ms.max(1));
        if let (Some(min), Some(max)) = (self.bound(self.stored.min)?, self.bound(self.stored.max)?)
        {
            if rounded(*earliest) < rounded(min) {
                self.report("A measurement lies before 'control.min'.");
            }
            if *latest > max || (*latest >= 0 && *latest != max) {
                self.report("The latest measurement is not at 'control.max'.");
            }
        }
        match (self.stored.version, times.is_sorted()) {
            (2, false) => self.report(
                "The bucket has version 2, but its measurements are not in the order of time.",
            ),
            (3, true) => self
                .report("The bucket has version 3, but its measurements are in the order of time."),
            _ => {}
        }
        Ok(())
    }
}

fn take(
    collate: Option<Collate<'_>>,
    field: &mut Field,
    type_byte: u8,
    value: &[u8],
) -> Result<(), Malformed> {
    field.least.merge(type_byte, value, Keep::Least, collate)?;
    field
        .greatest
        .merge(type_byte, value, Keep::Greatest, collate)
}
