//! All values that one path leads to, through the elements of arrays, and the values of ordinary fields of an index.

use crate::elements::{elements, find, kind, Element};
use crate::keystring::{append, Collate, Failure};

pub const NULL: Element<'static> = Element {
    kind: kind::NULL,
    name: b"",
    value: b"",
};
pub const UNDEFINED: Element<'static> = Element {
    kind: kind::UNDEFINED,
    name: b"",
    value: b"",
};

pub fn split(path: &str) -> Vec<Vec<u8>> {
    path.split('.')
        .map(|part| part.as_bytes().to_vec())
        .collect()
}

/// The values at a path, and the components (from 1) that were arrays on the way.
#[derive(Default)]
pub struct Values<'a> {
    pub found: Vec<Element<'a>>,
    pub arrays: Vec<usize>,
}

/// Look a path up; `expand` takes the elements of an array at its end one by one.
pub fn values<'a>(
    document: &'a [u8],
    parts: &[Vec<u8>],
    expand: bool,
) -> Result<Values<'a>, Failure> {
    let mut values = Values::default();
    collect(document, parts, 0, expand, &mut values)?;
    values.arrays.sort_unstable();
    values.arrays.dedup();
    Ok(values)
}

fn collect<'a>(
    object: &'a [u8],
    parts: &[Vec<u8>],
    at: usize,
    expand: bool,
    values: &mut Values<'a>,
) -> Result<(), Failure> {
    let Some(part) = parts.get(at) else {
        return Ok(());
    };
    let Some(element) = find(object, part)? else {
        return Ok(());
    };
    let last = at + 1 == parts.len();
    match element.kind {
        kind::ARRAY if last && !expand => values.found.push(element),
        kind::ARRAY => {
            values.arrays.push(at + 1);
            let mut empty = true;
            for item in elements(element.value)? {
                let item = item?;
                empty = false;
                if last {
                    values.found.push(item);
                } else if item.kind == kind::OBJECT {
                    collect(item.value, parts, at + 1, expand, values)?;
                }
            }
            if !last && parts[at + 1].iter().all(u8::is_ascii_digit) {
                // A number may also name a position in the array.
                collect(element.value, parts, at + 1, expand, values)?;
            }
            if empty && last {
                values.found.push(UNDEFINED);
            }
        }
        _ if last => values.found.push(element),
        kind::OBJECT => collect(element.value, parts, at + 1, expand, values)?,
        _ => {}
    }
    Ok(())
}

/// An ordinary field among the special ones of an index.
pub struct Plain {
    pub parts: Vec<Vec<u8>>,
    pub descending: bool,
}

impl Plain {
    pub fn new(path: &str, descending: bool) -> Self {
        Plain {
            parts: split(path),
            descending,
        }
    }

    /// The keys of its values, null where there is none, and the components that were arrays.
    pub fn keys(
        &self,
        document: &[u8],
        collate: Option<Collate<'_>>,
    ) -> Result<(Vec<Vec<u8>>, Vec<usize>), Failure> {
        let mut values = values(document, &self.parts, true)?;
        if values.found.is_empty() {
            values.found.push(NULL);
        }
        let mut keys = Vec::with_capacity(values.found.len());
        for element in values.found {
            let mut key = Vec::with_capacity(16);
            append(&mut key, element, self.descending, collate)?;
            keys.push(key);
        }
        Ok((keys, values.arrays))
    }

    /// The key of its only value.
    pub fn only_key(
        &self,
        document: &[u8],
        collate: Option<Collate<'_>>,
        code: i32,
        why: &str,
    ) -> Result<Vec<u8>, Failure> {
        let (mut keys, arrays) = self.keys(document, collate)?;
        if !arrays.is_empty() {
            return Err(Failure::Refused(code, why.to_string()));
        }
        Ok(keys.pop().unwrap_or_default())
    }
}

/// Every way of taking one key of each field, one behind the other.
pub fn product(fields: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let mut rows = vec![Vec::new()];
    for keys in fields {
        let mut longer = Vec::with_capacity(rows.len() * keys.len());
        for row in &rows {
            for key in keys {
                let mut next: Vec<u8> = Vec::with_capacity(row.len() + key.len());
                next.extend_from_slice(row);
                next.extend_from_slice(key);
                longer.push(next);
            }
        }
        rows = longer;
    }
    rows
}
