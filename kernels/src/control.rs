//! control.min and control.max: the least and greatest value of every path of the measurements in a bucket.
//!
//! Objects and arrays are merged element by element, so the result is usually no value that was ever inserted. Because a
//! bucket takes only one class of type at each path, the tree of minima also tells whether a measurement fits its schema.
//! Strings are compared by the collation of the collection.

use crate::compare::{canonical, compare_collated};
use crate::elements::{elements, kind, Malformed};
use crate::keystring::Collate;
use crate::writer::{begin_named, element, end, Digits};
use std::cmp::Ordering;

/// Which of two values is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Least,
    Greatest,
}

/// What is known of one path.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Unset,
    Scalar(u8, Vec<u8>),
    Object(Vec<(Vec<u8>, Node)>),
    Array(Vec<Node>),
}

impl Node {
    /// A node that knows one value.
    pub fn of(type_byte: u8, value: &[u8]) -> Result<Self, Malformed> {
        let mut node = Self::Unset;
        node.merge(type_byte, value, Keep::Least, None)?;
        Ok(node)
    }

    /// Takes one more value into account. Equal values keep the earlier one.
    #[inline]
    pub fn merge(
        &mut self,
        type_byte: u8,
        value: &[u8],
        keep: Keep,
        collate: Option<Collate<'_>>,
    ) -> Result<(), Malformed> {
        let wins = match keep {
            Keep::Least => Ordering::Less,
            Keep::Greatest => Ordering::Greater,
        };
        match self {
            Self::Scalar(own, bytes)
                if *own == type_byte || canonical(*own) == canonical(type_byte) =>
            {
                if compare_collated((type_byte, value), (*own, bytes), collate)? == wins {
                    *own = type_byte;
                    bytes.clear();
                    bytes.extend_from_slice(value);
                }
                return Ok(());
            }
            Self::Object(fields) if type_byte == kind::OBJECT => {
                return merge_fields(fields, value, keep, collate)
            }
            Self::Array(items) if type_byte == kind::ARRAY => {
                return merge_items(items, value, keep, collate)
            }
            Self::Unset => {}
            // Values of different classes: one takes the place of everything below.
            _ if canonical(type_byte).cmp(&self.class()) != wins => return Ok(()),
            _ => {}
        }
        *self = match type_byte {
            kind::OBJECT => {
                let mut fields = Vec::new();
                merge_fields(&mut fields, value, keep, collate)?;
                Self::Object(fields)
            }
            kind::ARRAY => {
                let mut items = Vec::new();
                merge_items(&mut items, value, keep, collate)?;
                Self::Array(items)
            }
            _ => Self::Scalar(type_byte, value.to_vec()),
        };
        Ok(())
    }

    /// Whether it knows a scalar of exactly this type.
    #[inline]
    pub fn is_scalar_of(&self, type_byte: u8) -> bool {
        matches!(self, Self::Scalar(own, _) if *own == type_byte)
    }

    fn class(&self) -> u8 {
        match self {
            Self::Unset => 0,
            Self::Scalar(type_byte, _) => canonical(*type_byte),
            Self::Object(_) => canonical(kind::OBJECT),
            Self::Array(_) => canonical(kind::ARRAY),
        }
    }

    /// Whether a value has, at every known path, the class of type that is known there.
    #[inline]
    pub fn accepts(&self, type_byte: u8, value: &[u8]) -> Result<bool, Malformed> {
        match self {
            Self::Unset => Ok(true),
            Self::Scalar(own, _) => {
                Ok(*own == type_byte || canonical(*own) == canonical(type_byte))
            }
            Self::Object(fields) => Ok(type_byte == kind::OBJECT && fields_accept(fields, value)?),
            Self::Array(items) => {
                if type_byte != kind::ARRAY {
                    return Ok(false);
                }
                for (item, element) in items.iter().zip(elements(value)?) {
                    let element = element?;
                    if !item.accepts(element.kind, element.value)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Whether two trees, least and greatest, know the same classes of type.
    pub fn same_classes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(one), Self::Object(other)) => {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(other)
                        .all(|(one, other)| one.0 == other.0 && one.1.same_classes(&other.1))
            }
            (Self::Array(one), Self::Array(other)) => {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(other)
                        .all(|(one, other)| one.same_classes(other))
            }
            _ => self.class() == other.class(),
        }
    }

    /// Whether two trees stand for equal values, whatever the order of fields.
    pub fn equals(&self, other: &Self, collate: Option<Collate<'_>>) -> Result<bool, Malformed> {
        Ok(match (self, other) {
            (Self::Unset, Self::Unset) => true,
            (Self::Scalar(kind, value), Self::Scalar(other_kind, other)) => {
                compare_collated((*kind, value), (*other_kind, other), collate)? == Ordering::Equal
            }
            (Self::Object(one), Self::Object(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (at, (name, node)) in one.iter().enumerate() {
                    match position_from(other, name, at) {
                        Some(position) if node.equals(&other[position].1, collate)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Self::Array(one), Self::Array(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (one, other) in one.iter().zip(other) {
                    if !one.equals(other, collate)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }

    /// Appends the element `name: value`.
    pub fn write(&self, name: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Unset => {}
            Self::Scalar(type_byte, value) => element(out, *type_byte, name, value),
            Self::Object(fields) => {
                let begun = begin_named(out, kind::OBJECT, name);
                for (name, node) in fields {
                    node.write(name, out);
                }
                end(out, begun);
            }
            Self::Array(items) => {
                let begun = begin_named(out, kind::ARRAY, name);
                for (position, node) in items.iter().enumerate() {
                    node.write(Digits::of(position).as_bytes(), out);
                }
                end(out, begun);
            }
        }
    }

    /// About what it takes in memory.
    pub fn memory(&self) -> usize {
        32 + match self {
            Self::Unset => 0,
            Self::Scalar(_, value) => value.capacity(),
            Self::Object(fields) => fields
                .iter()
                .map(|(name, node)| 24 + name.capacity() + node.memory())
                .sum(),
            Self::Array(items) => items.iter().map(Self::memory).sum(),
        }
    }
}

/// Takes a value into account on both sides, as two calls of [`Node::merge`] do.
#[inline]
pub fn merge_bounds(
    least: &mut Node,
    greatest: &mut Node,
    (type_byte, value): (u8, &[u8]),
    collate: Option<Collate<'_>>,
) -> Result<(), Malformed> {
    if let (Node::Scalar(low_type, low), Node::Scalar(high_type, high)) =
        (&mut *least, &mut *greatest)
    {
        if *low_type == type_byte && *high_type == type_byte {
            let orders = (
                plain_order(type_byte, value, low),
                plain_order(type_byte, value, high),
            );
            if let (Some(to_low), Some(to_high)) = orders {
                if to_low == Ordering::Less {
                    low.copy_from_slice(value);
                }
                if to_high == Ordering::Greater {
                    high.copy_from_slice(value);
                }
                return Ok(());
            }
        }
    }
    least.merge(type_byte, value, Keep::Least, collate)?;
    greatest.merge(type_byte, value, Keep::Greatest, collate)
}

/// The order of two values of a type that has a fixed length and a simple order; none where it is not simple.
#[inline]
fn plain_order(type_byte: u8, value: &[u8], other: &[u8]) -> Option<Ordering> {
    match type_byte {
        kind::INT32 => {
            let (value, other): (&[u8; 4], &[u8; 4]) =
                (value.try_into().ok()?, other.try_into().ok()?);
            Some(i32::from_le_bytes(*value).cmp(&i32::from_le_bytes(*other)))
        }
        kind::INT64 | kind::DATE => {
            let (value, other): (&[u8; 8], &[u8; 8]) =
                (value.try_into().ok()?, other.try_into().ok()?);
            Some(i64::from_le_bytes(*value).cmp(&i64::from_le_bytes(*other)))
        }
        kind::DOUBLE => {
            let (value, other): (&[u8; 8], &[u8; 8]) =
                (value.try_into().ok()?, other.try_into().ok()?);
            f64::from_le_bytes(*value).partial_cmp(&f64::from_le_bytes(*other))
        }
        kind::OBJECT_ID => {
            let (value, other): (&[u8; 12], &[u8; 12]) =
                (value.try_into().ok()?, other.try_into().ok()?);
            Some(value.cmp(other))
        }
        _ => None,
    }
}

/// Where a field stands, looked for from `cursor` on and then from the beginning.
fn position_from(fields: &[(Vec<u8>, Node)], name: &[u8], cursor: usize) -> Option<usize> {
    let (before, after) = fields.split_at(cursor.min(fields.len()));
    let found = after.iter().position(|(own, _)| own == name);
    found
        .map(|position| position + before.len())
        .or_else(|| before.iter().position(|(own, _)| own == name))
}

/// New fields come where the last known one of the object was left behind.
fn merge_fields(
    fields: &mut Vec<(Vec<u8>, Node)>,
    object: &[u8],
    keep: Keep,
    collate: Option<Collate<'_>>,
) -> Result<(), Malformed> {
    let mut cursor = 0;
    for element in elements(object)? {
        let element = element?;
        let position = position_from(fields, element.name, cursor).unwrap_or_else(|| {
            let at = cursor.min(fields.len());
            fields.insert(at, (element.name.to_vec(), Node::Unset));
            at
        });
        fields[position]
            .1
            .merge(element.kind, element.value, keep, collate)?;
        cursor = position + 1;
    }
    Ok(())
}

fn merge_items(
    items: &mut Vec<Node>,
    array: &[u8],
    keep: Keep,
    collate: Option<Collate<'_>>,
) -> Result<(), Malformed> {
    for (position, element) in elements(array)?.enumerate() {
        let element = element?;
        if position == items.len() {
            items.push(Node::Unset);
        }
        items[position].merge(element.kind, element.value, keep, collate)?;
    }
    Ok(())
}

fn fields_accept(fields: &[(Vec<u8>, Node)], object: &[u8]) -> Result<bool, Malformed> {
    let mut cursor = 0;
    for element in elements(object)? {
        let element = element?;
        if let Some(position) = position_from(fields, element.name, cursor) {
            cursor = position + 1;
            if !fields[position].1.accepts(element.kind, element.value)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{Keep, Node};
    use crate::elements::kind;
    use crate::writer::{begin, element, end, int32};

    fn document(parts: &[(&str, i32)]) -> Vec<u8> {
        let mut out = Vec::new();
        let begun = begin(&mut out);
        for (name, value) in parts {
            int32(&mut out, name.as_bytes(), *value);
        }
        end(&mut out, begun);
        out
    }

    fn merged(values: &[(u8, Vec<u8>)], keep: Keep) -> Node {
        let mut node = Node::Unset;
        for (kind, value) in values {
            node.merge(*kind, value, keep, None).expect("well formed");
        }
        node
    }

    #[test]
    fn objects_are_merged_field_by_field() {
        let values = [
            (kind::OBJECT, document(&[("x", 1), ("y", 2)])),
            (
                kind::OBJECT,
                document(&[("z", 5), ("x", 2), ("w", 0), ("y", 1)]),
            ),
        ];
        let least = document(&[("z", 5), ("x", 1), ("w", 0), ("y", 1)]);
        let greatest = document(&[("z", 5), ("x", 2), ("w", 0), ("y", 2)]);
        assert_eq!(
            merged(&values, Keep::Least),
            Node::of(kind::OBJECT, &least).unwrap()
        );
        assert_eq!(
            merged(&values, Keep::Greatest),
            Node::of(kind::OBJECT, &greatest).unwrap()
        );
    }

    #[test]
    fn arrays_are_merged_by_position_and_grow() {
        let values = [
            (kind::ARRAY, document(&[("0", 3)])),
            (kind::ARRAY, document(&[("0", 4), ("1", 1)])),
        ];
        let greatest = document(&[("0", 4), ("1", 1)]);
        assert_eq!(
            merged(&values, Keep::Greatest),
            Node::of(kind::ARRAY, &greatest).unwrap()
        );
        let mut out = Vec::new();
        merged(&values, Keep::Least).write(b"a", &mut out);
        let mut expected = Vec::new();
        element(
            &mut expected,
            kind::ARRAY,
            b"a",
            &document(&[("0", 3), ("1", 1)]),
        );
        assert_eq!(out, expected);
    }

    #[test]
    fn a_lower_class_takes_the_place_of_everything_below() {
        let values = [(kind::OBJECT, document(&[("x", 1)])), (kind::NULL, vec![])];
        assert_eq!(
            merged(&values, Keep::Least),
            Node::Scalar(kind::NULL, vec![])
        );
        assert_eq!(
            merged(&values, Keep::Greatest),
            Node::of(kind::OBJECT, &document(&[("x", 1)])).unwrap()
        );
    }

    #[test]
    fn a_number_does_not_fit_where_null_was() {
        let node = Node::of(kind::NULL, b"").unwrap();
        assert_eq!(node.accepts(kind::INT32, &[0; 4]), Ok(false));
        assert_eq!(node.accepts(kind::NULL, b""), Ok(true));
    }

    #[test]
    fn equal_values_keep_the_earlier_type() {
        let mut node = Node::of(kind::INT32, &2_i32.to_le_bytes()).unwrap();
        node.merge(kind::INT64, &2_i64.to_le_bytes(), Keep::Greatest, None)
            .unwrap();
        assert_eq!(
            node,
            Node::Scalar(kind::INT32, 2_i32.to_le_bytes().to_vec())
        );
    }
}
