//! Splits a column into records, and checks each one's length.

use super::control;
use super::decoder::Scalar;
use super::ColumnError;
use crate::elements::{self, kind};

/// One record of a column or of an interleaved section.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    End,
    Literal(Scalar<'a>),
    /// Blocks, and the high bits of the control byte before them.
    Blocks {
        high: u8,
        blocks: &'a [u8],
    },
    /// The beginning of an interleaved section; its reference object or array.
    Interleaved {
        control: u8,
        reference: &'a [u8],
    },
}

/// Reads records one after the other.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(column: &'a [u8]) -> Self {
        Self { rest: column }
    }

    /// Whether every byte was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Whether the next record ends the column or the section.
    pub fn at_end(&self) -> bool {
        self.rest.first() == Some(&control::END)
    }

    /// The next record.
    pub fn record(&mut self) -> Result<Record<'a>, ColumnError> {
        let (&first, after) = self.rest.split_first().ok_or(ColumnError::Truncated)?;
        match first {
            control::END => {
                self.rest = after;
                Ok(Record::End)
            }
            kind::MIN_KEY | kind::MAX_KEY | 1..=0x1F => {
                let (&name, body) = after.split_first().ok_or(ColumnError::Truncated)?;
                if name != 0 {
                    return Err(ColumnError::InvalidValue("a literal has a name"));
                }
                let (value, rest) = split_value(first, body)?;
                self.rest = rest;
                Ok(Record::Literal(Scalar::borrowed(first, value)))
            }
            0x80..=0xDF => {
                let length = 8 * (usize::from(first & 15) + 1);
                let (blocks, rest) = after
                    .split_at_checked(length)
                    .ok_or(ColumnError::Truncated)?;
                self.rest = rest;
                Ok(Record::Blocks {
                    high: first & 0xF0,
                    blocks,
                })
            }
            control::INTERLEAVED_LEGACY
            | control::INTERLEAVED_OBJECT
            | control::INTERLEAVED_ARRAY => {
                let (reference, rest) = split_value(kind::OBJECT, after)?;
                self.rest = rest;
                Ok(Record::Interleaved {
                    control: first,
                    reference,
                })
            }
            other => Err(ColumnError::InvalidControl(other)),
        }
    }
}

/// The bytes of a value, and those after it.
fn split_value(type_byte: u8, body: &[u8]) -> Result<(&[u8], &[u8]), ColumnError> {
    let length = elements::value_length(type_byte, body)?;
    let (value, rest) = body
        .split_at_checked(length)
        .ok_or(ColumnError::Truncated)?;
    check_end(type_byte, value)?;
    Ok((value, rest))
}

/// Fails unless the bytes are one whole value of the type.
#[inline]
pub fn check_value(type_byte: u8, value: &[u8]) -> Result<(), ColumnError> {
    if elements::value_length(type_byte, value)? != value.len() {
        return Err(ColumnError::InvalidValue("a value's length is wrong"));
    }
    check_end(type_byte, value)
}

#[inline]
fn check_end(type_byte: u8, value: &[u8]) -> Result<(), ColumnError> {
    let ended = match type_byte {
        kind::STRING | kind::CODE | kind::SYMBOL | kind::OBJECT | kind::ARRAY => {
            value.last() == Some(&0)
        }
        _ => true,
    };
    ended
        .then_some(())
        .ok_or(ColumnError::InvalidValue("a value does not end in NUL"))
}
