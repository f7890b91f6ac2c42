//! One stream of records on its way back to values.

use super::control;
use super::decoder::Scalar;
use super::double;
use super::mapping::{
    coding, narrow_number, narrow_value, unzigzag, unzigzag_wide, wide_number, wide_value, Coding,
};
use super::simple8b::{Slot, Slots};
use super::ColumnError;
use crate::elements::kind;

/// What the next delta is added to.
#[derive(Debug, Clone, Copy)]
enum State {
    /// Before the first literal.
    Nothing,
    Repeat,
    Delta {
        number: i64,
    },
    DeltaOfDelta {
        number: i64,
        delta: i64,
    },
    Double {
        number: i64,
        scale: usize,
    },
    Wide {
        number: u128,
    },
}

/// What a step through a stream came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is no further entry.
    End,
    /// An entry that is missing.
    Missing,
    /// An entry with a value.
    Value,
}

/// The decoder of one stream: it is given records, and gives entries.
#[derive(Debug, Clone)]
pub struct ScalarDecoder<'a> {
    current: Scalar<'a>,
    state: State,
    slots: Slots<'a>,
}

impl<'a> ScalarDecoder<'a> {
    /// A stream without a value.
    pub fn new() -> Self {
        Self {
            current: Scalar::borrowed(kind::NULL, &[]),
            state: State::Nothing,
            slots: Slots::new(),
        }
    }

    /// A stream whose value is known; the value is no entry.
    pub fn following(value: Scalar<'a>) -> Self {
        let mut stream = Self::new();
        stream.literal(value);
        stream
    }

    /// Whether another record is needed before the next entry.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Goes on from this value. It is for the caller to give it out as an entry.
    pub fn literal(&mut self, value: Scalar<'a>) {
        let (type_byte, bytes) = (value.kind(), value.bytes());
        self.state = match coding(type_byte) {
            Coding::Repeat => State::Repeat,
            Coding::Delta => State::Delta {
                number: narrow_number(type_byte, bytes),
            },
            Coding::DeltaOfDelta => State::DeltaOfDelta {
                number: narrow_number(type_byte, bytes),
                delta: 0,
            },
            Coding::Double => State::Double {
                number: 0,
                scale: double::RAW,
            },
            Coding::Wide => State::Wide {
                number: wide_number(type_byte, bytes).unwrap_or(0),
            },
        };
        self.current = value;
        self.slots.forget();
    }

    /// Goes on with the blocks of a record.
    pub fn blocks(&mut self, high: u8, blocks: &'a [u8]) -> Result<(), ColumnError> {
        if let State::Double { number, scale } = &mut self.state {
            let before = self
                .current
                .bytes()
                .first_chunk()
                .map(|bytes| f64::from_le_bytes(*bytes));
            *scale = scale_of(high)?;
            *number = before
                .and_then(|before| double::encode(before, *scale))
                .ok_or(ColumnError::InvalidScale)?;
        } else if high != control::PLAIN {
            return Err(ColumnError::InvalidScale);
        }
        self.slots.enter(blocks);
        Ok(())
    }

    /// The value of the latest entry that has one.
    #[inline]
    pub fn current(&self) -> &Scalar<'a> {
        &self.current
    }

    /// Goes to the next entry of the records so far.
    pub fn step(&mut self) -> Result<Step, ColumnError> {
        let Some(slot) = self.slots.next()? else {
            return Ok(Step::End);
        };
        if slot == Slot::Missing {
            return Ok(Step::Missing);
        }
        let type_byte = self.current.kind();
        match &mut self.state {
            State::Nothing => return no_change(slot).map(|()| Step::Missing),
            State::Repeat => no_change(slot)?,
            State::Delta { number } => {
                let delta = unzigzag(slot.narrow().unwrap_or(0));
                if delta != 0 {
                    *number = number.wrapping_add(delta);
                    self.current = narrow_value(type_byte, *number, &self.current);
                }
            }
            State::DeltaOfDelta { number, delta } => {
                *delta = delta.wrapping_add(unzigzag(slot.narrow().unwrap_or(0)));
                *number = number.wrapping_add(*delta);
                self.current = narrow_value(type_byte, *number, &self.current);
            }
            State::Double { number, scale } => {
                let delta = unzigzag(slot.narrow().unwrap_or(0));
                if delta != 0 {
                    *number = number.wrapping_add(delta);
                    self.current =
                        Scalar::fixed(type_byte, double::decode(*number, *scale).to_le_bytes());
                }
            }
            State::Wide { number } => {
                let delta = unzigzag_wide(slot.wide().unwrap_or(0));
                if delta != 0 {
                    *number = number.wrapping_add(delta as u128);
                    self.current = wide_value(type_byte, *number, &self.current)
                        .ok_or(ColumnError::InvalidDelta)?;
                }
            }
        }
        Ok(Step::Value)
    }
}

/// Fails if the slot tells of a change.
fn no_change(slot: Slot) -> Result<(), ColumnError> {
    match slot.wide() {
        Some(0) | None => Ok(()),
        Some(_) => Err(ColumnError::InvalidDelta),
    }
}

/// The scale index of a control byte's high bits.
pub fn scale_of(high: u8) -> Result<usize, ColumnError> {
    control::BY_SCALE
        .iter()
        .position(|of_scale| *of_scale == high)
        .ok_or(ColumnError::InvalidControl(high))
}
