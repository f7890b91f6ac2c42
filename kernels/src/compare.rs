//! BSON's order of values, on raw bytes: by canonical type first, then by value; the same as that of KeyStrings.

use crate::elements::{kind, string, Element, Malformed};
use crate::keystring::{self, Collate};
use std::cmp::Ordering;

/// The class that a type is compared by, ascending in MongoDB's order of types.
#[inline]
pub fn canonical(type_byte: u8) -> u8 {
    match type_byte {
        kind::MIN_KEY => 0,
        kind::UNDEFINED => 1,
        kind::NULL => 5,
        kind::DOUBLE | kind::INT32 | kind::INT64 | kind::DECIMAL128 => 10,
        kind::STRING | kind::SYMBOL => 15,
        kind::OBJECT => 20,
        kind::ARRAY => 25,
        kind::BINARY => 30,
        kind::OBJECT_ID => 35,
        kind::BOOL => 40,
        kind::DATE => 45,
        kind::TIMESTAMP => 47,
        kind::REGEX => 50,
        kind::DB_POINTER => 55,
        kind::CODE => 60,
        kind::CODE_WITH_SCOPE => 65,
        _ => 127,
    }
}

/// How one value, a type byte and bytes, stands to another.
#[inline]
pub fn compare(left: (u8, &[u8]), right: (u8, &[u8])) -> Result<Ordering, Malformed> {
    if left.0 == right.0 {
        if let Some(order) = same_type(left.0, left.1, right.1) {
            return Ok(order);
        }
    }
    let classes = canonical(left.0).cmp(&canonical(right.0));
    if classes != Ordering::Equal {
        return Ok(classes);
    }
    Ok(key(left, None)?.cmp(&key(right, None)?))
}

/// The order of two values of a type that has a short way.
#[inline]
fn same_type(type_byte: u8, left: &[u8], right: &[u8]) -> Option<Ordering> {
    Some(match type_byte {
        kind::DOUBLE => {
            let left = f64::from_le_bytes(*left.first_chunk()?);
            let right = f64::from_le_bytes(*right.first_chunk()?);
            // NaN is the lowest number and equal to itself.
            left.partial_cmp(&right)
                .unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
        }
        kind::INT32 => {
            i32::from_le_bytes(*left.first_chunk()?).cmp(&i32::from_le_bytes(*right.first_chunk()?))
        }
        kind::INT64 | kind::DATE => {
            i64::from_le_bytes(*left.first_chunk()?).cmp(&i64::from_le_bytes(*right.first_chunk()?))
        }
        kind::TIMESTAMP => {
            u64::from_le_bytes(*left.first_chunk()?).cmp(&u64::from_le_bytes(*right.first_chunk()?))
        }
        kind::OBJECT_ID | kind::BOOL => left.cmp(right),
        kind::STRING => string(left).ok()?.cmp(string(right).ok()?),
        kind::NULL | kind::UNDEFINED | kind::MIN_KEY | kind::MAX_KEY => Ordering::Equal,
        _ => return None,
    })
}

/// The same under a collation, where strings are compared by their sort keys.
#[inline]
pub fn compare_collated(
    left: (u8, &[u8]),
    right: (u8, &[u8]),
    collate: Option<Collate<'_>>,
) -> Result<Ordering, Malformed> {
    let concerned = |type_byte| matches!(type_byte, kind::STRING | kind::SYMBOL);
    if collate.is_none() || !concerned(left.0) || !concerned(right.0) {
        return compare(left, right);
    }
    Ok(key(left, collate)?.cmp(&key(right, collate)?))
}

fn key((kind, value): (u8, &[u8]), collate: Option<Collate<'_>>) -> Result<Vec<u8>, Malformed> {
    let mut key = Vec::with_capacity(value.len() + 8);
    let element = Element {
        kind,
        name: b"",
        value,
    };
    keystring::append(&mut key, element, false, collate).map_err(|failure| match failure {
        keystring::Failure::Malformed(why) => Malformed(why),
        _ => Malformed("a value cannot be compared"),
    })?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::compare;
    use std::cmp::Ordering;

    #[test]
    fn numbers_compare_exactly_across_types() {
        let large = (1_i64 << 53) + 1;
        let double = (1_u64 << 53) as f64;
        assert_eq!(
            compare((18, &large.to_le_bytes()), (1, &double.to_le_bytes())),
            Ok(Ordering::Greater)
        );
        assert_eq!(
            compare((16, &2_i32.to_le_bytes()), (1, &2.0_f64.to_le_bytes())),
            Ok(Ordering::Equal)
        );
    }

    #[test]
    fn not_a_number_is_the_lowest_number() {
        let nan = f64::NAN.to_le_bytes();
        let low = f64::NEG_INFINITY.to_le_bytes();
        assert_eq!(compare((1, &nan), (1, &low)), Ok(Ordering::Less));
        assert_eq!(compare((1, &low), (1, &nan)), Ok(Ordering::Greater));
        assert_eq!(compare((1, &nan), (1, &nan)), Ok(Ordering::Equal));
        assert_eq!(compare((1, &nan), (10, b"")), Ok(Ordering::Greater));
    }

    #[test]
    fn classes_come_before_content() {
        let low = |order| assert_eq!(order, Ok(Ordering::Less));
        low(compare((10, b""), (16, &[0; 4])));
        low(compare((2, b"\x01\0\0\0\0"), (9, &[0; 8])));
    }

    #[test]
    fn cut_values_are_errors() {
        assert!(compare((2, b"\x05\0\0\0"), (2, b"\x05\0\0\0")).is_err());
        assert!(compare((1, b""), (1, b"")).is_err());
    }
}
