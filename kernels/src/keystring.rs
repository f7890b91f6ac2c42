//! KeyStrings: bytes that compare, as unsigned bytes, as the BSON values do that they were made from.
//!
//! Each value is a class byte and a payload that ends itself, so that no value's bytes begin another's, and values can be
//! put one after the other. Equal values have equal bytes, whatever their types (1, 1.0 and Decimal 1.00). A descending
//! component is the same with every bit turned round.
//!
//! Numbers: class NAN, NEGATIVE, ZERO or POSITIVE. Of the magnitude, the largest double that is not above it, in 63 bits,
//! and one bit that tells whether the number lies between that double and the next. Where it does, which only int64 and
//! decimals can, decimal digits follow. Negative numbers have everything after the class byte turned round.
//!
//! Strings end in 00 01 and have FF after each NUL of their own. The ending has two bytes so that it also ends the
//! inverted form: with one, "a" descending would begin "a\0" descending.
//!
//! Objects: for each field a class byte, the name with its NUL, the value; a 00 at the end. Arrays: values, then 00.

use crate::decimal::{self, Decimal};
use crate::elements::{self, elements, fixed, kind, Element, Malformed};
use sha2::{Digest, Sha256};

/// Bytes of a long key that are kept as they are; a hash of the whole key follows.
pub const LONG_KEY_PREFIX: usize = 350;
/// Length of every long key after it was cut. Keys of fewer bytes are whole.
pub const LONG_KEY_BYTES: usize = LONG_KEY_PREFIX + 16;
/// How deep objects and arrays may lie in each other.
const DEPTH_MAX: usize = 250;

pub mod class {
    //! The first byte of a value. None is near 00 or FF, which end things and bound prefixes.
    pub const MIN_KEY: u8 = 10;
    pub const UNDEFINED: u8 = 15;
    pub const NULL: u8 = 20;
    /// Eight bytes of a hash, of a cell of the sphere or of a cell of the plane follow.
    pub const CELL: u8 = 50;
    pub const NAN: u8 = 30;
    pub const NEGATIVE: u8 = 31;
    pub const ZERO: u8 = 32;
    pub const POSITIVE: u8 = 33;
    pub const STRING: u8 = 60;
    pub const OBJECT: u8 = 70;
    pub const ARRAY: u8 = 80;
    pub const BINARY: u8 = 90;
    pub const OBJECT_ID: u8 = 100;
    pub const FALSE: u8 = 110;
    pub const TRUE: u8 = 111;
    pub const DATE: u8 = 120;
    pub const TIMESTAMP: u8 = 130;
    pub const REGEX: u8 = 140;
    pub const DB_POINTER: u8 = 150;
    pub const CODE: u8 = 160;
    pub const CODE_WITH_SCOPE: u8 = 170;
    pub const MAX_KEY: u8 = 240;
}

/// Why no key could be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    Malformed(&'static str),
    /// Two of the paths lead to different arrays; the names of the later and the earlier one.
    ParallelArrays(String, String),
    /// A numeric component is both a position in an array and a field of the array's objects.
    Ambiguous(String),
    Collation(String),
    /// What MongoDB refuses with a code of its own.
    Refused(i32, String),
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Failure::Malformed(malformed.0)
    }
}

/// Bytes that a string sorts by under a collation.
pub type Collate<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, Failure>;

/// Append eight bytes that stand for a value: a hash or a cell.
pub fn append_cell(key: &mut Vec<u8>, cell: u64) {
    key.push(class::CELL);
    key.extend_from_slice(&cell.to_be_bytes());
}

/// Append a text without a collation.
pub fn append_text(key: &mut Vec<u8>, text: &[u8]) {
    key.push(class::STRING);
    append_bytes(key, text);
}

/// Append the hash of one value: the same for values that are equal.
pub fn append_hash(
    key: &mut Vec<u8>,
    element: Element<'_>,
    collate: Option<Collate<'_>>,
) -> Result<(), Failure> {
    let mut whole = Vec::with_capacity(32);
    append_value(&mut whole, element, collate, 0)?;
    append_cell(key, hash_of(&whole));
    Ok(())
}

/// The hash of the key of one value.
pub fn hash_of(key: &[u8]) -> u64 {
    let digest = Sha256::digest(key);
    digest[..8]
        .iter()
        .fold(0, |hash, &byte| (hash << 8) | u64::from(byte))
}

/// Append the key of one value.
pub fn append(
    key: &mut Vec<u8>,
    element: Element<'_>,
    descending: bool,
    collate: Option<Collate<'_>>,
) -> Result<(), Failure> {
    let start = key.len();
    append_value(key, element, collate, 0)?;
    if descending {
        invert(&mut key[start..]);
    }
    Ok(())
}

/// The key of the values of a document, names apart; bit `i` of `descending` is for the value at `i`.
pub fn of_values(
    values: &[u8],
    descending: u64,
    collate: Option<Collate<'_>>,
) -> Result<Vec<u8>, Failure> {
    let mut key = Vec::with_capacity(values.len() + 8);
    for (position, element) in elements(values)?.enumerate() {
        let inverted = position < 64 && (descending >> position) & 1 == 1;
        append(&mut key, element?, inverted, collate)?;
    }
    Ok(key)
}

/// The key as indexes keep it: a long one cut, with a hash of the whole in place of the rest.
///
/// Two different keys stay different. Cut keys with the same prefix are in no order among themselves, nor beside whole
/// keys with that prefix, so bounds are cut to the prefix and what is found is compared again.
pub fn capped(mut key: Vec<u8>) -> Vec<u8> {
    if key.len() >= LONG_KEY_BYTES {
        let hash = Sha256::digest(&key);
        key.truncate(LONG_KEY_PREFIX);
        key.extend_from_slice(&hash[..LONG_KEY_BYTES - LONG_KEY_PREFIX]);
    }
    key
}

fn invert(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

fn append_value(
    key: &mut Vec<u8>,
    element: Element<'_>,
    collate: Option<Collate<'_>>,
    depth: usize,
) -> Result<(), Failure> {
    let value = element.value;
    match element.kind {
        kind::MIN_KEY => key.push(class::MIN_KEY),
        kind::UNDEFINED => key.push(class::UNDEFINED),
        kind::NULL => key.push(class::NULL),
        kind::DOUBLE => append_double(key, f64::from_le_bytes(fixed(value)?)),
        kind::INT32 => append_double(key, f64::from(elements::int32(value)?)),
        kind::INT64 => append_int64(key, i64::from_le_bytes(fixed(value)?)),
        kind::DECIMAL128 => append_decimal(key, decimal::from_bytes(fixed(value)?)),
        kind::STRING | kind::SYMBOL => {
            key.push(class::STRING);
            append_collated(key, elements::string(value)?, collate)?;
        }
        kind::OBJECT => {
            key.push(class::OBJECT);
            append_object(key, value, collate, depth)?;
        }
        kind::ARRAY => {
            key.push(class::ARRAY);
            check_depth(depth)?;
            for item in elements(value)? {
                append_value(key, item?, collate, depth + 1)?;
            }
            key.push(0);
        }
        kind::BINARY => {
            let (length, rest) = value
                .split_at_checked(4)
                .ok_or(Failure::Malformed("a binary value is cut short"))?;
            key.push(class::BINARY);
            key.extend(length.iter().rev());
            key.extend_from_slice(rest);
        }
        kind::OBJECT_ID => {
            key.push(class::OBJECT_ID);
            key.extend_from_slice(value);
        }
        kind::BOOL => key.push(if value == [0] {
            class::FALSE
        } else {
            class::TRUE
        }),
        kind::DATE => {
            key.push(class::DATE);
            let millis = i64::from_le_bytes(fixed(value)?);
            key.extend_from_slice(&((millis as u64) ^ (1 << 63)).to_be_bytes());
        }
        kind::TIMESTAMP => {
            key.push(class::TIMESTAMP);
            key.extend_from_slice(&u64::from_le_bytes(fixed(value)?).to_be_bytes());
        }
        kind::REGEX => {
            let (pattern, after) = elements::split_cstring(value)?;
            let (options, _) = elements::split_cstring(after)?;
            let mut options = options.to_vec();
            options.sort_unstable();
            key.push(class::REGEX);
            key.extend_from_slice(pattern);
            key.push(0);
            key.extend_from_slice(&options);
            key.push(0);
        }
        kind::DB_POINTER => {
            key.push(class::DB_POINTER);
            key.extend_from_slice(&(value.len() as u32).to_be_bytes());
            key.extend_from_slice(value);
        }
        kind::CODE => {
            key.push(class::CODE);
            append_bytes(key, elements::string(value)?);
        }
        kind::CODE_WITH_SCOPE => {
            let code = value
                .get(4..)
                .ok_or(Failure::Malformed("code is cut short"))?;
            let length = usize::try_from(elements::int32(code)?)
                .map_err(|_| Failure::Malformed("code has a negative length"))?;
            let (code, scope) = code
                .split_at_checked(length.saturating_add(4))
                .ok_or(Failure::Malformed("code is cut short"))?;
            key.push(class::CODE_WITH_SCOPE);
            append_bytes(key, elements::string(code)?);
            append_object(key, scope, None, depth)?;
        }
        kind::MAX_KEY => key.push(class::MAX_KEY),
        _ => return Err(Failure::Malformed("a type is unknown")),
    }
    Ok(())
}

fn check_depth(depth: usize) -> Result<(), Failure> {
    if depth >= DEPTH_MAX {
        return Err(Failure::Malformed("objects lie too deep in each other"));
    }
    Ok(())
}

fn append_object(
    key: &mut Vec<u8>,
    document: &[u8],
    collate: Option<Collate<'_>>,
    depth: usize,
) -> Result<(), Failure> {
    check_depth(depth)?;
    for field in elements(document)? {
        let field = field?;
        key.push(type_class(field.kind));
        key.extend_from_slice(field.name);
        key.push(0);
        append_value(key, field, collate, depth + 1)?;
    }
    key.push(0);
    Ok(())
}

/// One byte for each class of types that compare with each other by value.
fn type_class(element_kind: u8) -> u8 {
    match element_kind {
        kind::MIN_KEY => class::MIN_KEY,
        kind::UNDEFINED => class::UNDEFINED,
        kind::NULL => class::NULL,
        kind::DOUBLE | kind::INT32 | kind::INT64 | kind::DECIMAL128 => class::ZERO,
        kind::STRING | kind::SYMBOL => class::STRING,
        kind::OBJECT => class::OBJECT,
        kind::ARRAY => class::ARRAY,
        kind::BINARY => class::BINARY,
        kind::OBJECT_ID => class::OBJECT_ID,
        kind::BOOL => class::FALSE,
        kind::DATE => class::DATE,
        kind::TIMESTAMP => class::TIMESTAMP,
        kind::REGEX => class::REGEX,
        kind::DB_POINTER => class::DB_POINTER,
        kind::CODE => class::CODE,
        kind::CODE_WITH_SCOPE => class::CODE_WITH_SCOPE,
        _ => class::MAX_KEY,
    }
}

fn append_collated(
    key: &mut Vec<u8>,
    text: &[u8],
    collate: Option<Collate<'_>>,
) -> Result<(), Failure> {
    match collate {
        None => append_bytes(key, text),
        Some(collate) => {
            let text = std::str::from_utf8(text)
                .map_err(|_| Failure::Malformed("a string is not UTF-8"))?;
            append_bytes(key, &collate(text)?);
        }
    }
    Ok(())
}

fn append_bytes(key: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.contains(&0) {
        for &byte in bytes {
            key.push(byte);
            if byte == 0 {
                key.push(0xff);
            }
        }
    } else {
        key.extend_from_slice(bytes);
    }
    key.extend_from_slice(&[0, 1]);
}

fn append_double(key: &mut Vec<u8>, number: f64) {
    if number.is_nan() {
        key.push(class::NAN);
    } else if number == 0.0 {
        key.push(class::ZERO);
    } else {
        append_magnitude(key, number < 0.0, number.abs(), None);
    }
}

fn append_int64(key: &mut Vec<u8>, number: i64) {
    if number == 0 {
        key.push(class::ZERO);
        return;
    }
    let magnitude = number.unsigned_abs();
    let nearest = magnitude as f64;
    // A double holds these sizes exactly as u128; the nearest one may lie above.
    match (nearest as u128).cmp(&u128::from(magnitude)) {
        std::cmp::Ordering::Equal => append_magnitude(key, number < 0, nearest, None),
        std::cmp::Ordering::Less => {
            let digits = Some((u128::from(magnitude), 0));
            append_magnitude(key, number < 0, nearest, digits);
        }
        std::cmp::Ordering::Greater => {
            let below = f64::from_bits(nearest.to_bits() - 1);
            append_magnitude(key, number < 0, below, Some((u128::from(magnitude), 0)));
        }
    }
}

fn append_decimal(key: &mut Vec<u8>, number: Decimal) {
    match number {
        Decimal::NotANumber => key.push(class::NAN),
        Decimal::Infinite { negative } => append_magnitude(key, negative, f64::INFINITY, None),
        Decimal::Finite { coefficient: 0, .. } => key.push(class::ZERO),
        Decimal::Finite {
            negative,
            coefficient,
            exponent,
        } => {
            let (double, exact) = decimal::truncated(coefficient, exponent);
            let digits = (!exact).then_some((coefficient, exponent));
            append_magnitude(key, negative, double, digits);
        }
    }
}

/// Append a number other than zero: the double below or equal to its magnitude and, unless equal, the exact decimal.
fn append_magnitude(key: &mut Vec<u8>, negative: bool, double: f64, digits: Option<(u128, i32)>) {
    key.push(if negative {
        class::NEGATIVE
    } else {
        class::POSITIVE
    });
    let start = key.len();
    let bits = (double.to_bits() << 1) | u64::from(digits.is_some());
    key.extend_from_slice(&bits.to_be_bytes());
    if let Some((coefficient, exponent)) = digits {
        append_digits(key, coefficient, exponent);
    }
    if negative {
        invert(&mut key[start..]);
    }
}

/// Append exponent of the leading digit and the digits, two in a byte, without zeros at the end.
fn append_digits(key: &mut Vec<u8>, coefficient: u128, exponent: i32) {
    const BIAS: i32 = 10_000;
    let text = coefficient.to_string();
    let leading = exponent + text.len() as i32 - 1;
    key.extend_from_slice(&((leading + BIAS) as u16).to_be_bytes());
    for pair in text.trim_end_matches('0').as_bytes().chunks(2) {
        let low = pair.get(1).map_or(0, |digit| digit - b'0');
        key.push((pair[0] - b'0') * 10 + low + 1);
    }
    key.push(0);
}

#[cfg(test)]
mod tests {
    use super::{append, capped, of_values, LONG_KEY_BYTES, LONG_KEY_PREFIX};
    use crate::elements::{kind, Element};

    fn key(kind: u8, value: &[u8], descending: bool) -> Vec<u8> {
        let mut key = Vec::new();
        let element = Element {
            kind,
            name: b"",
            value,
        };
        append(&mut key, element, descending, None).expect("well formed");
        key
    }

    fn int64(number: i64) -> Vec<u8> {
        key(kind::INT64, &number.to_le_bytes(), false)
    }

    fn double(number: f64) -> Vec<u8> {
        key(kind::DOUBLE, &number.to_le_bytes(), false)
    }

    #[test]
    fn numbers_are_ordered_exactly_across_types() {
        let row = [
            double(f64::NAN),
            double(f64::NEG_INFINITY),
            int64(i64::MIN),
            int64(i64::MIN + 1),
            double(-1.5),
            int64(-1),
            double(-0.0),
            double(f64::from_bits(1)),
            int64(1),
            double((1_u64 << 53) as f64),
            int64((1 << 53) + 1),
            int64((1 << 53) + 2),
            int64(i64::MAX - 1),
            int64(i64::MAX),
            double(9_223_372_036_854_775_808.0),
            double(f64::INFINITY),
        ];
        assert!(row.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(int64(1 << 60), double((1_u64 << 60) as f64));
    }

    #[test]
    fn strings_with_nul_in_both_directions() {
        let texts: [&[u8]; 4] = [
            b"\x01\0\0\0\0",
            b"\x02\0\0\0a\0",
            b"\x03\0\0\0a\0\0",
            b"\x03\0\0\0aa\0",
        ];
        for pair in texts.windows(2) {
            for descending in [false, true] {
                let low = key(kind::STRING, pair[0], descending);
                let high = key(kind::STRING, pair[1], descending);
                assert_eq!(low < high, !descending);
                assert!(!low.starts_with(&high) && !high.starts_with(&low));
            }
        }
    }

    #[test]
    fn long_keys_are_cut_and_stay_different() {
        let whole = vec![7; LONG_KEY_BYTES - 1];
        assert_eq!(capped(whole.clone()), whole);
        let one = capped(vec![7; 1000]);
        let other = capped(vec![7; 1001]);
        assert_eq!(one.len(), LONG_KEY_BYTES);
        assert_ne!(one, other);
        assert_eq!(one[..LONG_KEY_PREFIX], other[..LONG_KEY_PREFIX]);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(of_values(b"", 0, None).is_err());
        assert!(of_values(b"\x0a\0\0\0\x0fa\0\x01\0\0", 0, None).is_err());
    }
}
