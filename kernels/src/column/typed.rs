//! Whole columns of one type of fixed length into arrays.

use super::double;
use super::mapping::{narrow_number, object_id, unzigzag, OBJECT_ID_FIXED};
use super::reader::{Reader, Record};
use super::scalar_decoder::scale_of;
use super::unpack::{unpack, Slots, Unpacked, MISSING};
use super::{control, ColumnError};
use crate::elements::kind;

/// What the values of a column have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uniform {
    /// Every entry is missing.
    Empty,
    /// All values have this type.
    Kind(u8),
    /// There are values of another type than the function decodes, or of several: nothing was decoded.
    Mixed,
}

/// Adds the entries of a column of int32, int64, bool, date or timestamp to `values`, and to `present` 1 for each, or 0
/// with the value 0 for a missing one. If the result is an error or [`Uniform::Mixed`], nothing was added.
pub fn decode_i64(
    column: &[u8],
    max_entries: usize,
    values: &mut Vec<i64>,
    present: &mut Vec<u8>,
) -> Result<Uniform, ColumnError> {
    let start = values.len();
    let uniform = whole_column(
        column,
        max_entries,
        values,
        present,
        &mut Integers::default(),
    )?;
    let new = values.get_mut(start..).unwrap_or_default();
    match uniform {
        Uniform::Kind(kind::INT32) => new
            .iter_mut()
            .for_each(|value| *value = i64::from(*value as i32)),
        Uniform::Kind(kind::BOOL) => new
            .iter_mut()
            .for_each(|value| *value = i64::from(*value != 0)),
        _ => {}
    }
    Ok(uniform)
}

/// Adds the entries of a column of doubles to `values` and `present`, as [`decode_i64`] does. Integers among them are
/// [`Uniform::Mixed`].
pub fn decode_f64(
    column: &[u8],
    max_entries: usize,
    values: &mut Vec<f64>,
    present: &mut Vec<u8>,
) -> Result<Uniform, ColumnError> {
    whole_column(
        column,
        max_entries,
        values,
        present,
        &mut Doubles::default(),
    )
}

/// Adds the entries of a column of object ids to `values` and `present`, as [`decode_i64`] does.
pub fn decode_object_ids(
    column: &[u8],
    max_entries: usize,
    values: &mut Vec<[u8; 12]>,
    present: &mut Vec<u8>,
) -> Result<Uniform, ColumnError> {
    whole_column(
        column,
        max_entries,
        values,
        present,
        &mut ObjectIds::default(),
    )
}

/// The values of one stream.
trait Numbers {
    type Item: Copy + Default;

    /// Whether values of this type are of this sort.
    fn accepts(type_byte: u8) -> bool;
    /// Goes on from a literal and returns its value.
    fn literal(&mut self, type_byte: u8, value: &[u8]) -> Self::Item;
    /// Adds the entries of the blocks of one record.
    fn blocks(&mut self, high: u8, blocks: Blocks<'_, Self::Item>) -> Result<(), ColumnError>;
}

fn whole_column<N: Numbers>(
    column: &[u8],
    max_entries: usize,
    values: &mut Vec<N::Item>,
    present: &mut Vec<u8>,
    numbers: &mut N,
) -> Result<Uniform, ColumnError> {
    let (start, first) = (values.len(), present.len());
    let uniform = add_column(column, max_entries, values, present, numbers);
    if !matches!(uniform, Ok(Uniform::Empty | Uniform::Kind(_))) {
        values.truncate(start);
        present.truncate(first);
    }
    uniform
}

fn add_column<N: Numbers>(
    column: &[u8],
    max_entries: usize,
    values: &mut Vec<N::Item>,
    present: &mut Vec<u8>,
    numbers: &mut N,
) -> Result<Uniform, ColumnError> {
    let mut reader = Reader::new(column);
    let mut type_byte = None;
    let mut left = max_entries;
    let mut last = 0;
    let mut slots = [0; 60];
    loop {
        match reader.record()? {
            Record::End if !reader.is_empty() => return Err(ColumnError::TrailingBytes),
            Record::End => return Ok(type_byte.map_or(Uniform::Empty, Uniform::Kind)),
            Record::Interleaved { .. } => return Ok(Uniform::Mixed),
            Record::Literal(value) => {
                if *type_byte.get_or_insert(value.kind()) != value.kind()
                    || !N::accepts(value.kind())
                {
                    return Ok(Uniform::Mixed);
                }
                left = left.checked_sub(1).ok_or(ColumnError::TooManyEntries)?;
                values.push(numbers.literal(value.kind(), value.bytes()));
                present.push(1);
                last = 0;
            }
            Record::Blocks { high, blocks } => {
                let blocks = Blocks {
                    blocks,
                    last: &mut last,
                    left: &mut left,
                    slots: &mut slots,
                    values,
                    present,
                };
                if type_byte.is_some() {
                    numbers.blocks(high, blocks)?;
                } else if high == control::PLAIN {
                    blocks.add_missing()?;
                } else {
                    return Err(ColumnError::InvalidScale);
                }
            }
        }
    }
}

/// The blocks of one record, and where their entries go.
struct Blocks<'a, T> {
    blocks: &'a [u8],
    /// The last slot of the latest block that was no run.
    last: &'a mut u64,
    left: &'a mut usize,
    slots: &'a mut Slots,
    values: &'a mut Vec<T>,
    present: &'a mut Vec<u8>,
}

impl<T: Copy + Default> Blocks<'_, T> {
    /// Adds the entries; `next` turns a slot into a value. If `steady`, slots of 0 repeat the value before.
    #[inline]
    fn add(self, steady: bool, mut next: impl FnMut(u64) -> T) -> Result<(), ColumnError> {
        for block in self.blocks.chunks_exact(8) {
            let block = block
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
            match unpack(block, self.slots)? {
                Unpacked::Slots { count, missing } => {
                    *self.left = self
                        .left
                        .checked_sub(count)
                        .ok_or(ColumnError::TooManyEntries)?;
                    let slots = &self.slots[..count];
                    *self.last = slots.last().copied().unwrap_or(0);
                    if missing {
                        for slot in slots {
                            let gone = *slot == MISSING;
                            self.values
                                .push(if gone { T::default() } else { next(*slot) });
                            self.present.push(u8::from(!gone));
                        }
                    } else {
                        self.values.extend(slots.iter().map(|slot| next(*slot)));
                        self.present.resize(self.present.len() + count, 1);
                    }
                }
                Unpacked::Run(count) => {
                    *self.left = self
                        .left
                        .checked_sub(count)
                        .ok_or(ColumnError::TooManyEntries)?;
                    let gone = *self.last == MISSING;
                    if gone {
                        self.values.resize(self.values.len() + count, T::default());
                    } else if steady && *self.last == 0 {
                        self.values.resize(self.values.len() + count, next(0));
                    } else {
                        self.values.extend((0..count).map(|_| next(*self.last)));
                    }
                    self.present
                        .resize(self.present.len() + count, u8::from(!gone));
                }
            }
        }
        Ok(())
    }

    /// Adds the entries as missing, as those before the first literal are.
    fn add_missing(self) -> Result<(), ColumnError> {
        let first = self.present.len();
        let present = &mut *self.present;
        let blocks = Blocks {
            present: &mut *present,
            ..self
        };
        let mut changed = false;
        blocks.add(false, |slot| {
            changed |= slot != 0;
            T::default()
        })?;
        if changed {
            return Err(ColumnError::InvalidDelta);
        }
        present
            .iter_mut()
            .skip(first)
            .for_each(|present| *present = 0);
        Ok(())
    }
}

/// Integers, dates, timestamps and truth values.
#[derive(Default)]
struct Integers {
    number: i64,
    delta: i64,
    second_order: bool,
}

impl Numbers for Integers {
    type Item = i64;

    fn accepts(type_byte: u8) -> bool {
        matches!(
            type_byte,
            kind::BOOL | kind::DATE | kind::INT32 | kind::TIMESTAMP | kind::INT64
        )
    }

    fn literal(&mut self, type_byte: u8, value: &[u8]) -> i64 {
        *self = Self {
            number: narrow_number(type_byte, value),
            delta: 0,
            second_order: matches!(type_byte, kind::DATE | kind::TIMESTAMP),
        };
        self.number
    }

    fn blocks(&mut self, high: u8, blocks: Blocks<'_, i64>) -> Result<(), ColumnError> {
        if high != control::PLAIN {
            return Err(ColumnError::InvalidScale);
        }
        let (mut number, mut delta) = (self.number, self.delta);
        if self.second_order {
            blocks.add(false, |slot| {
                delta = delta.wrapping_add(unzigzag(slot));
                number = number.wrapping_add(delta);
                number
            })?;
        } else {
            blocks.add(true, |slot| {
                number = number.wrapping_add(unzigzag(slot));
                number
            })?;
        }
        (self.number, self.delta) = (number, delta);
        Ok(())
    }
}

/// Doubles.
#[derive(Default)]
struct Doubles {
    previous: f64,
}

impl Numbers for Doubles {
    type Item = f64;

    fn accepts(type_byte: u8) -> bool {
        type_byte == kind::DOUBLE
    }

    fn literal(&mut self, _type_byte: u8, value: &[u8]) -> f64 {
        self.previous = value
            .first_chunk()
            .map_or(0.0, |bytes| f64::from_le_bytes(*bytes));
        self.previous
    }

    fn blocks(&mut self, high: u8, blocks: Blocks<'_, f64>) -> Result<(), ColumnError> {
        let scale = scale_of(high)?;
        let mut number = double::encode(self.previous, scale).ok_or(ColumnError::InvalidScale)?;
        let mut sum = |slot| {
            number = number.wrapping_add(unzigzag(slot));
            number
        };
        match double::factor(scale) {
            Some(1.0) => blocks.add(true, |slot| sum(slot) as f64)?,
            Some(factor) => blocks.add(true, |slot| sum(slot) as f64 / factor)?,
            None => blocks.add(true, |slot| f64::from_bits(sum(slot) as u64))?,
        }
        self.previous = double::decode(number, scale);
        Ok(())
    }
}

/// Object ids.
#[derive(Default)]
struct ObjectIds {
    number: i64,
    delta: i64,
    /// What the number leaves out.
    fixed: [u8; 5],
}

impl Numbers for ObjectIds {
    type Item = [u8; 12];

    fn accepts(type_byte: u8) -> bool {
        type_byte == kind::OBJECT_ID
    }

    fn literal(&mut self, type_byte: u8, value: &[u8]) -> [u8; 12] {
        *self = Self {
            number: narrow_number(type_byte, value),
            delta: 0,
            fixed: value
                .get(OBJECT_ID_FIXED)
                .and_then(|fixed| fixed.try_into().ok())
                .unwrap_or_default(),
        };
        object_id(self.number, &self.fixed)
    }

    fn blocks(&mut self, high: u8, blocks: Blocks<'_, [u8; 12]>) -> Result<(), ColumnError> {
        if high != control::PLAIN {
            return Err(ColumnError::InvalidScale);
        }
        let (mut number, mut delta) = (self.number, self.delta);
        let fixed = self.fixed;
        blocks.add(false, |slot| {
            delta = delta.wrapping_add(unzigzag(slot));
            number = number.wrapping_add(delta);
            object_id(number, &fixed)
        })?;
        (self.number, self.delta) = (number, delta);
        Ok(())
    }
}
