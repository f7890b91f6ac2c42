//! The reference object of an interleaved section: which objects fit it, and how it grows to fit more.

use super::{ColumnError, DEPTH_MAX};
use crate::elements::{elements, kind, Element};
use std::collections::{HashMap, HashSet};

/// An empty object or array.
pub const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

/// Whether values of this type have elements.
pub fn is_container(type_byte: u8) -> bool {
    matches!(type_byte, kind::OBJECT | kind::ARRAY)
}

fn is_empty(container: &[u8]) -> bool {
    container.len() <= EMPTY.len()
}

/// Whether a scalar lies anywhere in the object. Fails if the object is not valid or too deep.
pub fn holds_scalar(object: &[u8]) -> Result<bool, ColumnError> {
    fn look(object: &[u8], depth: usize) -> Result<bool, ColumnError> {
        if depth > DEPTH_MAX {
            return Err(ColumnError::TooDeep);
        }
        let mut found = false;
        for element in elements(object)? {
            let element = element?;
            found |= !is_container(element.kind) || look(element.value, depth + 1)?;
        }
        Ok(found)
    }
    look(object, 1)
}

/// Whether the object or array is empty or holds one that is. The object must have been found valid.
pub fn holds_empty(object: &[u8]) -> Result<bool, ColumnError> {
    if is_empty(object) {
        return Ok(true);
    }
    for element in elements(object)? {
        let element = element?;
        if is_container(element.kind) && holds_empty(element.value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_or_holds_empty(element: &Element<'_>) -> Result<bool, ColumnError> {
    Ok(is_container(element.kind) && holds_empty(element.value)?)
}

/// Walks the scalars of the reference and gives each with its counterpart in the object, until the object does not fit.
/// Returns whether it fits to its end.
pub fn lock_step<'a>(
    reference: &'a [u8],
    object: &'a [u8],
    visit: &mut impl FnMut(Element<'a>, Option<Element<'a>>),
) -> Result<bool, ColumnError> {
    let mut given = elements(object)?;
    let mut next = given.next().transpose()?;
    for known in elements(reference)? {
        let known = known?;
        let matching = next.filter(|element| element.name == known.name);
        match matching {
            Some(element) if is_container(known.kind) => {
                let alike =
                    element.kind == known.kind && is_empty(element.value) == is_empty(known.value);
                if !alike || !lock_step(known.value, element.value, visit)? {
                    return Ok(false);
                }
            }
            Some(element) if is_container(element.kind) => return Ok(false),
            None if is_container(known.kind) => {
                if holds_empty(known.value)? {
                    return Ok(false);
                }
                lock_step(known.value, EMPTY, visit)?;
            }
            _ => visit(known, matching),
        }
        if matching.is_some() {
            next = given.next().transpose()?;
        }
    }
    Ok(next.is_none())
}

/// Writes an object element by element.
#[derive(Debug, Clone, Default)]
pub struct ObjectWriter {
    pub bytes: Vec<u8>,
    /// Where the objects begin that are not at their end yet.
    open: Vec<usize>,
}

impl ObjectWriter {
    /// Begins an object that has no name: the root.
    pub fn open_root(&mut self) {
        self.open.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
    }

    /// Begins an object or array under a name.
    pub fn open(&mut self, kind: u8, name: &[u8]) {
        self.name(kind, name);
        self.open_root();
    }

    /// Adds a value under a name.
    pub fn element(&mut self, kind: u8, name: &[u8], value: &[u8]) {
        self.name(kind, name);
        self.bytes.extend_from_slice(value);
    }

    /// Ends the latest object that was begun.
    pub fn close(&mut self) {
        self.bytes.push(0);
        if let Some(start) = self.open.pop() {
            let length = (self.bytes.len() - start) as u32;
            self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Takes the latest object that was begun away again, with everything from this position on.
    pub fn discard(&mut self, position: usize) {
        self.bytes.truncate(position);
        self.open.pop();
    }

    fn name(&mut self, kind: u8, name: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
    }
}

/// A reference that the old one and the object both fit, if their fields have a common order.
pub fn merge(reference: &[u8], object: &[u8]) -> Result<Option<Vec<u8>>, ColumnError> {
    let mut writer = ObjectWriter::default();
    writer.open_root();
    if !merge_into(&mut writer, reference, object)? {
        return Ok(None);
    }
    writer.close();
    Ok(Some(writer.bytes))
}

fn merge_into(
    writer: &mut ObjectWriter,
    reference: &[u8],
    object: &[u8],
) -> Result<bool, ColumnError> {
    let known = elements(reference)?.collect::<Result<Vec<_>, _>>()?;
    let given = elements(object)?.collect::<Result<Vec<_>, _>>()?;
    let places: HashMap<&[u8], usize> = given
        .iter()
        .enumerate()
        .map(|(at, element)| (element.name, at))
        .collect();
    let mut written = HashSet::new();
    let (mut at, mut from) = (0, 0);
    loop {
        let one_sided = match (known.get(at), given.get(from)) {
            (None, None) => return Ok(true),
            (Some(old), Some(new)) if old.name == new.name => {
                if !written.insert(old.name) || !merge_element(writer, old, new)? {
                    return Ok(false);
                }
                at += 1;
                from += 1;
                continue;
            }
            (Some(old), Some(new)) => {
                // What the reference has next may come later in the object; then the object's fields before it are new.
                if places.get(old.name).is_some_and(|place| *place > from) {
                    from += 1;
                    new
                } else {
                    at += 1;
                    old
                }
            }
            (Some(old), None) => {
                at += 1;
                old
            }
            (None, Some(new)) => {
                from += 1;
                new
            }
        };
        if is_or_holds_empty(one_sided)? || !written.insert(one_sided.name) {
            return Ok(false);
        }
        writer.element(one_sided.kind, one_sided.name, one_sided.value);
    }
}

fn merge_element(
    writer: &mut ObjectWriter,
    old: &Element<'_>,
    new: &Element<'_>,
) -> Result<bool, ColumnError> {
    if !is_container(old.kind) {
        writer.element(old.kind, old.name, old.value);
        return Ok(!is_container(new.kind));
    }
    if old.kind != new.kind || is_empty(old.value) != is_empty(new.value) {
        return Ok(false);
    }
    writer.open(old.kind, old.name);
    let merged = merge_into(writer, old.value, new.value)?;
    writer.close();
    Ok(merged)
}
