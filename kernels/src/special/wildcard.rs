//! Keys of wildcard indexes: for every leaf that the index takes in, its path and its value.
//!
//! Elements of arrays stand under the path of their array. An array right inside an array is a value, and so are empty
//! objects; an empty array stands for one undefined value. Ordinary fields of a compound index stand before and behind.

use crate::elements::{elements, find, kind, Element};
use crate::keystring::{append, append_text, capped, Collate, Failure};
use crate::special::paths::{Plain, UNDEFINED};
use std::collections::HashMap;

const ARRAY_BESIDE_WILDCARD: i32 = 7_246_301;
const MIN_KEY: Element<'static> = Element {
    kind: kind::MIN_KEY,
    name: b"",
    value: b"",
};

/// What a projection says of one name.
enum Node {
    Leaf(bool),
    Branch(HashMap<Vec<u8>, Node>),
}

pub struct Wildcard {
    before: Vec<Plain>,
    behind: Vec<Plain>,
    scope: Vec<Vec<u8>>,
    descending: bool,
    projection: HashMap<Vec<u8>, Node>,
    /// Whether a name that the projection does not mention is taken in.
    others: bool,
}

impl Wildcard {
    /// `projection` has the paths that are named, and whether they are taken in; `others` is for all the rest.
    pub fn new(
        before: Vec<Plain>,
        behind: Vec<Plain>,
        scope: Vec<Vec<u8>>,
        descending: bool,
        projection: &[(String, bool)],
        others: bool,
    ) -> Self {
        let mut root = HashMap::new();
        for (path, included) in projection {
            let mut names = &mut root;
            let mut parts = path.split('.').peekable();
            while let Some(part) = parts.next() {
                let part = part.as_bytes().to_vec();
                if parts.peek().is_none() {
                    names.insert(part, Node::Leaf(*included));
                    break;
                }
                let next = names
                    .entry(part)
                    .or_insert_with(|| Node::Branch(HashMap::new()));
                match next {
                    Node::Branch(inner) => names = inner,
                    Node::Leaf(_) => break,
                }
            }
        }
        Wildcard {
            before,
            behind,
            scope,
            descending,
            projection: root,
            others,
        }
    }

    /// The different keys of a document, in order, and whether a leaf stood in an array.
    pub fn keys(
        &self,
        document: &[u8],
        collate: Option<Collate<'_>>,
    ) -> Result<(Vec<Vec<u8>>, bool), Failure> {
        let before = plain_key(&self.before, document, collate)?;
        let behind = plain_key(&self.behind, document, collate)?;
        let mut found = Found {
            wildcard: self,
            collate,
            before: &before,
            behind: &behind,
            keys: Vec::new(),
            arrays: false,
        };
        if self.scope.is_empty() {
            found.object(document, b"", &mut Vec::new(), Some(&self.projection), 0)?;
        } else {
            found.scoped(document, 0)?;
        }
        if found.keys.is_empty() && !(self.before.is_empty() && self.behind.is_empty()) {
            // Such a document is still found by the ordinary fields.
            found.add_bare()?;
        }
        let (mut keys, arrays) = (found.keys, found.arrays);
        keys.sort_unstable();
        keys.dedup();
        Ok((keys, arrays))
    }
}

fn plain_key(
    fields: &[Plain],
    document: &[u8],
    collate: Option<Collate<'_>>,
) -> Result<Vec<u8>, Failure> {
    let mut key = Vec::new();
    for field in fields {
        let path = String::from_utf8_lossy(&field.parts.join(&b'.')).into_owned();
        key.extend(field.only_key(
            document,
            collate,
            ARRAY_BESIDE_WILDCARD,
            &format!(
                "Non-wildcard field of a compound wildcard index cannot be multikey: '{path}'"
            ),
        )?);
    }
    Ok(key)
}

struct Found<'w, 'c> {
    wildcard: &'w Wildcard,
    collate: Option<Collate<'c>>,
    before: &'w [u8],
    behind: &'w [u8],
    keys: Vec<Vec<u8>>,
    arrays: bool,
}

const DEPTH_MAX: usize = 250;

impl Found<'_, '_> {
    /// Go down the path that the index begins at.
    fn scoped(&mut self, object: &[u8], at: usize) -> Result<(), Failure> {
        let Some(element) = find(object, &self.wildcard.scope[at])? else {
            return Ok(());
        };
        if at + 1 == self.wildcard.scope.len() {
            let mut path = self.wildcard.scope.join(&b'.');
            return self.value(element, &mut path, None, 0);
        }
        match element.kind {
            kind::OBJECT => self.scoped(element.value, at + 1),
            kind::ARRAY => {
                self.arrays = true;
                for item in elements(element.value)? {
                    let item = item?;
                    if item.kind == kind::OBJECT {
                        self.scoped(item.value, at + 1)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The fields of an object under a path; `names` is what the projection says of them, None takes in all.
    fn object(
        &mut self,
        object: &[u8],
        prefix: &[u8],
        path: &mut Vec<u8>,
        names: Option<&HashMap<Vec<u8>, Node>>,
        depth: usize,
    ) -> Result<(), Failure> {
        if depth > DEPTH_MAX {
            return Err(Failure::Malformed("objects lie too deep in each other"));
        }
        for field in elements(object)? {
            let field = field?;
            if field.name.contains(&b'.') {
                // No path leads to such a field.
                continue;
            }
            path.clear();
            path.extend_from_slice(prefix);
            if !prefix.is_empty() {
                path.push(b'.');
            }
            path.extend_from_slice(field.name);
            let Some(names) = names else {
                self.value(field, path, None, depth)?;
                continue;
            };
            match names.get(field.name) {
                None if self.wildcard.others => self.value(field, path, None, depth)?,
                Some(Node::Leaf(true)) => self.value(field, path, None, depth)?,
                Some(Node::Branch(inner)) => self.value(field, path, Some(inner), depth)?,
                None | Some(Node::Leaf(false)) => {}
            }
        }
        Ok(())
    }

    fn value(
        &mut self,
        element: Element<'_>,
        path: &mut Vec<u8>,
        names: Option<&HashMap<Vec<u8>, Node>>,
        depth: usize,
    ) -> Result<(), Failure> {
        // A projection that names something below takes in a value without anything below only where it excludes.
        let leaves = names.is_none() || self.wildcard.others;
        match element.kind {
            kind::OBJECT if element.value.len() > 5 => {
                let prefix = path.clone();
                self.object(element.value, &prefix, path, names, depth + 1)
            }
            kind::ARRAY => {
                self.arrays = true;
                let own = path.clone();
                let mut empty = true;
                for item in elements(element.value)? {
                    let item = item?;
                    empty = false;
                    if item.kind == kind::OBJECT && item.value.len() > 5 {
                        self.object(item.value, &own, path, names, depth + 1)?;
                    } else if leaves {
                        self.add(&own, item)?;
                    }
                }
                if empty && leaves {
                    self.add(&own, UNDEFINED)?;
                }
                Ok(())
            }
            _ if leaves => self.add(path, element),
            _ => Ok(()),
        }
    }

    fn add(&mut self, path: &[u8], element: Element<'_>) -> Result<(), Failure> {
        let mut key = Vec::with_capacity(self.before.len() + path.len() + self.behind.len() + 32);
        key.extend_from_slice(self.before);
        append_text(&mut key, path);
        append(&mut key, element, self.wildcard.descending, self.collate)?;
        key.extend_from_slice(self.behind);
        self.keys.push(capped(key));
        Ok(())
    }

    fn add_bare(&mut self) -> Result<(), Failure> {
        let mut key = self.before.to_vec();
        append(&mut key, MIN_KEY, false, None)?;
        append(&mut key, MIN_KEY, self.wildcard.descending, None)?;
        key.extend_from_slice(self.behind);
        self.keys.push(capped(key));
        Ok(())
    }
}
