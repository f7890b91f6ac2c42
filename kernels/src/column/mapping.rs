//! From values to the numbers whose deltas are stored, and back.

use super::decoder::Scalar;
use crate::elements::kind;

/// How the values of a type are expressed against the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Only as the same again.
    Repeat,
    /// By the difference of 64-bit numbers.
    Delta,
    /// By the change of that difference.
    DeltaOfDelta,
    /// By the difference of scaled integers.
    Double,
    /// By the difference of 128-bit numbers.
    Wide,
}

/// The coding of a type.
pub fn coding(type_byte: u8) -> Coding {
    match type_byte {
        kind::DOUBLE => Coding::Double,
        kind::BOOL | kind::INT32 | kind::INT64 => Coding::Delta,
        kind::OBJECT_ID | kind::DATE | kind::TIMESTAMP => Coding::DeltaOfDelta,
        kind::STRING | kind::CODE | kind::BINARY | kind::DECIMAL128 => Coding::Wide,
        _ => Coding::Repeat,
    }
}

/// Bytes of an object id in the order of their weight in its number; the other five must not change.
const OBJECT_ID_BYTES: [usize; 7] = [11, 3, 10, 2, 9, 1, 0];
/// Where the bytes of an object id lie that its number leaves out.
pub const OBJECT_ID_FIXED: std::ops::Range<usize> = 4..9;
/// Length and subtype before the bytes of binary data.
pub const BINARY_HEADER: usize = 5;
/// Longest text or binary data that has a number.
const WIDE_BYTES_MAX: usize = 16;

/// An unsigned number for a signed one, small if it is near 0.
#[inline]
pub fn zigzag(delta: i64) -> u64 {
    (delta << 1 ^ delta >> 63) as u64
}

/// The signed number that [`zigzag`] was given.
#[inline]
pub fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// [`zigzag`] in 128 bits.
pub fn zigzag_wide(delta: i128) -> u128 {
    (delta << 1 ^ delta >> 127) as u128
}

/// [`unzigzag`] in 128 bits.
pub fn unzigzag_wide(number: u128) -> i128 {
    (number >> 1) as i128 ^ -((number & 1) as i128)
}

/// The number of a value of 64 bits or less, or of an object id; 0 if the value is cut short.
#[inline]
pub fn narrow_number(type_byte: u8, value: &[u8]) -> i64 {
    match type_byte {
        kind::BOOL => i64::from(value.first().is_some_and(|byte| *byte != 0)),
        kind::INT32 => value
            .first_chunk()
            .map_or(0, |bytes| i64::from(i32::from_le_bytes(*bytes))),
        kind::OBJECT_ID => OBJECT_ID_BYTES
            .iter()
            .enumerate()
            .map(|(at, from)| i64::from(value.get(*from).copied().unwrap_or(0)) << (8 * at))
            .sum(),
        _ => value
            .first_chunk()
            .map_or(0, |bytes| i64::from_le_bytes(*bytes)),
    }
}

/// The value of a number; `before` is an earlier value of the stream, for what the number leaves out.
pub fn narrow_value<'a>(type_byte: u8, number: i64, before: &Scalar<'a>) -> Scalar<'a> {
    match type_byte {
        kind::BOOL => Scalar::fixed(type_byte, [u8::from(number != 0)]),
        kind::INT32 => Scalar::fixed(type_byte, (number as i32).to_le_bytes()),
        kind::OBJECT_ID => {
            let fixed = before.bytes().get(OBJECT_ID_FIXED);
            let fixed = fixed.and_then(|fixed| fixed.try_into().ok());
            Scalar::fixed(type_byte, object_id(number, &fixed.unwrap_or_default()))
        }
        _ => Scalar::fixed(type_byte, number.to_le_bytes()),
    }
}

/// The object id of a number, and of what it leaves out.
#[inline]
pub fn object_id(number: i64, fixed: &[u8; 5]) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[OBJECT_ID_FIXED].copy_from_slice(fixed);
    for (at, to) in OBJECT_ID_BYTES.iter().enumerate() {
        bytes[*to] = (number >> (8 * at)) as u8;
    }
    bytes
}

/// The 128-bit number of a value, if it has one.
pub fn wide_number(type_byte: u8, value: &[u8]) -> Option<u128> {
    match type_byte {
        kind::DECIMAL128 => value.first_chunk().map(|bytes| u128::from_le_bytes(*bytes)),
        kind::BINARY => {
            let data = value.get(BINARY_HEADER..)?;
            let mut bytes = [0; WIDE_BYTES_MAX];
            bytes.get_mut(..data.len())?.copy_from_slice(data);
            Some(u128::from_le_bytes(bytes))
        }
        _ => {
            let text = value.get(4..value.len().checked_sub(1)?)?;
            // The number of a text that begins with NUL would be that of a shorter one.
            if text.len() > WIDE_BYTES_MAX || text.first() == Some(&0) {
                return None;
            }
            Some(
                text.iter()
                    .fold(0, |number, byte| number << 8 | u128::from(*byte)),
            )
        }
    }
}

/// The value of a 128-bit number, or None if the value before tells that there cannot be one.
pub fn wide_value<'a>(type_byte: u8, number: u128, before: &Scalar<'a>) -> Option<Scalar<'a>> {
    match type_byte {
        kind::DECIMAL128 => Some(Scalar::fixed(type_byte, number.to_le_bytes())),
        kind::BINARY => {
            let before = before.bytes();
            let length = before.len().checked_sub(BINARY_HEADER)?;
            let mut bytes = [0; BINARY_HEADER + WIDE_BYTES_MAX];
            let value = bytes.get_mut(..before.len())?;
            value[..BINARY_HEADER].copy_from_slice(&before[..BINARY_HEADER]);
            value[BINARY_HEADER..].copy_from_slice(&number.to_le_bytes()[..length]);
            Some(Scalar::inline(type_byte, value))
        }
        _ => {
            let length = WIDE_BYTES_MAX - number.leading_zeros() as usize / 8;
            let mut bytes = [0; 4 + WIDE_BYTES_MAX + 1];
            bytes[..4].copy_from_slice(&(length as u32 + 1).to_le_bytes());
            bytes[4..4 + length].copy_from_slice(&number.to_be_bytes()[WIDE_BYTES_MAX - length..]);
            Some(Scalar::inline(type_byte, &bytes[..4 + length + 1]))
        }
    }
}
