//! Whole columns of strings into codes of a dictionary.

use super::decoder::Scalar;
use super::mapping::{unzigzag_wide, wide_number, wide_value};
use super::reader::{Reader, Record};
use super::simple8b::{Slot, Slots};
use super::typed::Uniform;
use super::{control, ColumnError};
use crate::elements::kind;
use std::collections::HashMap;

/// The code of a missing entry.
pub const MISSING_CODE: u32 = u32::MAX;

/// The distinct strings of any number of columns, numbered in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct StringDictionary {
    text: Vec<u8>,
    /// Where in `text` the string of each code ends.
    ends: Vec<usize>,
    codes: HashMap<Box<[u8]>, u32>,
}

impl StringDictionary {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string with this code.
    pub fn get(&self, code: u32) -> Option<&[u8]> {
        let at = code as usize;
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }

    /// The code of a string, a new one if it was not there.
    pub fn code(&mut self, text: &[u8]) -> Result<u32, ColumnError> {
        if let Some(code) = self.codes.get(text) {
            return Ok(*code);
        }
        let code = u32::try_from(self.ends.len())
            .ok()
            .filter(|code| *code != MISSING_CODE)
            .ok_or(ColumnError::TooManyEntries)?;
        self.text.extend_from_slice(text);
        self.ends.push(self.text.len());
        self.codes.insert(text.into(), code);
        Ok(code)
    }
}

/// The codes of strings by their numbers, as far as there is room: much faster than the dictionary for columns of few strings.
struct Known([(u128, u32); 64]);

impl Known {
    fn place(number: u128) -> usize {
        let folded = (number ^ number >> 64) as u64;
        (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
    }

    fn get(&self, number: u128) -> Option<u32> {
        let (known, code) = self.0[Self::place(number)];
        (known == number && code != MISSING_CODE).then_some(code)
    }

    fn set(&mut self, number: u128, code: u32) {
        self.0[Self::place(number)] = (number, code);
    }
}

/// Adds the codes of a column of strings to `codes`. If the result is an error or [`Uniform::Mixed`], no code was added.
pub fn decode_strings(
    column: &[u8],
    max_entries: usize,
    dictionary: &mut StringDictionary,
    codes: &mut Vec<u32>,
) -> Result<Uniform, ColumnError> {
    let start = codes.len();
    let uniform = add_column(column, max_entries, dictionary, codes);
    if !matches!(uniform, Ok(Uniform::Empty | Uniform::Kind(_))) {
        codes.truncate(start);
    }
    uniform
}

fn add_column(
    column: &[u8],
    max_entries: usize,
    dictionary: &mut StringDictionary,
    codes: &mut Vec<u32>,
) -> Result<Uniform, ColumnError> {
    let mut reader = Reader::new(column);
    let mut slots = Slots::new();
    let mut left = max_entries;
    let mut current = None;
    let mut known = Known([(0, MISSING_CODE); 64]);
    loop {
        let blocks = match reader.record()? {
            Record::End if !reader.is_empty() => return Err(ColumnError::TrailingBytes),
            Record::End => {
                return Ok(current.map_or(Uniform::Empty, |_| Uniform::Kind(kind::STRING)))
            }
            Record::Interleaved { .. } => return Ok(Uniform::Mixed),
            Record::Literal(value) if value.kind() != kind::STRING => return Ok(Uniform::Mixed),
            Record::Literal(value) => {
                left = left.checked_sub(1).ok_or(ColumnError::TooManyEntries)?;
                let latest = Latest::of(&value, dictionary)?;
                codes.push(latest.code);
                current = Some(latest);
                slots.forget();
                continue;
            }
            Record::Blocks { high, blocks } if high == control::PLAIN => blocks,
            Record::Blocks { .. } => return Err(ColumnError::InvalidScale),
        };
        slots.enter(blocks);
        while !slots.is_empty() {
            let (slot, times) = match slots.rest_of_run()? {
                Some(run) => run,
                None => (slots.next()?.ok_or(ColumnError::Truncated)?, 1),
            };
            left = left.checked_sub(times).ok_or(ColumnError::TooManyEntries)?;
            add_slot(slot, times, &mut current, &mut known, dictionary, codes)?;
        }
    }
}

/// The latest string of a column.
struct Latest {
    number: u128,
    code: u32,
}

impl Latest {
    fn of(value: &Scalar<'_>, dictionary: &mut StringDictionary) -> Result<Self, ColumnError> {
        let bytes = value.bytes();
        let text = bytes
            .len()
            .checked_sub(1)
            .and_then(|end| bytes.get(4..end))
            .ok_or(ColumnError::Truncated)?;
        Ok(Self {
            number: wide_number(kind::STRING, bytes).unwrap_or(0),
            code: dictionary.code(text)?,
        })
    }

    fn numbered(number: u128, dictionary: &mut StringDictionary) -> Result<Self, ColumnError> {
        let empty = Scalar::borrowed(kind::STRING, &[]);
        let value = wide_value(kind::STRING, number, &empty).ok_or(ColumnError::InvalidDelta)?;
        let latest = Self::of(&value, dictionary)?;
        Ok(Self { number, ..latest })
    }
}

fn add_slot(
    slot: Slot,
    times: usize,
    current: &mut Option<Latest>,
    known: &mut Known,
    dictionary: &mut StringDictionary,
    codes: &mut Vec<u32>,
) -> Result<(), ColumnError> {
    let delta = slot.wide().map(unzigzag_wide);
    match (delta, current) {
        (None, _) | (Some(0), None) => codes.resize(codes.len() + times, MISSING_CODE),
        (Some(_), None) => return Err(ColumnError::InvalidDelta),
        (Some(0), Some(latest)) => codes.resize(codes.len() + times, latest.code),
        (Some(delta), Some(latest)) => {
            for _ in 0..times {
                let number = latest.number.wrapping_add(delta as u128);
                *latest = match known.get(number) {
                    Some(code) => Latest { number, code },
                    None => Latest::numbered(number, dictionary)?,
                };
                known.set(number, latest.code);
                codes.push(latest.code);
            }
        }
    }
    Ok(())
}
