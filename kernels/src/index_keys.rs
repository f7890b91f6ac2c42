//! The keys under which an index keeps a document, straight from its raw BSON.
//!
//! Paths go through objects by name. Where a path meets an array, each element of the array gives a row of its own, and a
//! numeric component may also name a position in the array. All paths of an index may go through one array at a time, the
//! same one; a row holds one value for each path, null where there is none. An empty array stands for one undefined value.

use crate::elements::{find, kind, Element};
use crate::key_values::{types_of, UNTOLD};
use crate::keystring::{append, append_hash, capped, Collate, Failure, LONG_KEY_BYTES};

/// One index: its paths, and which of them are kept from the highest value.
pub struct KeyPattern {
    paths: Vec<Vec<Vec<u8>>>,
    descending: Vec<bool>,
    sparse: bool,
    hashed: Option<usize>,
}

/// MongoDB's code for an array under a hashed index.
const ARRAY_UNDER_HASH: i32 = 16766;

/// One value for each path.
pub type Row<'a> = Vec<Element<'a>>;

/// For each path the numbers (from 1) of its components that were arrays.
pub type ArrayComponents = Vec<Vec<usize>>;

/// Keys, components that were arrays, and the types of the key.
pub type TypedKeys = (Vec<Vec<u8>>, ArrayComponents, Vec<u8>);

const NULL: Element<'static> = Element {
    kind: kind::NULL,
    name: b"",
    value: b"",
};
const UNDEFINED: Element<'static> = Element {
    kind: kind::UNDEFINED,
    name: b"",
    value: b"",
};

impl KeyPattern {
    /// `hashed` is the position of the path of which a hash is kept in place of the value.
    pub fn new(paths: &[String], descending: &[bool], sparse: bool, hashed: Option<usize>) -> Self {
        fn split(path: &str) -> Vec<Vec<u8>> {
            path.split('.')
                .map(|part| part.as_bytes().to_vec())
                .collect()
        }
        KeyPattern {
            paths: paths.iter().map(|path| split(path)).collect(),
            descending: descending.to_vec(),
            sparse,
            hashed,
        }
    }

    /// The rows of a document, equal ones included; none where a sparse index leaves the document out.
    pub fn rows<'a>(&self, document: &'a [u8]) -> Result<(Vec<Row<'a>>, ArrayComponents), Failure> {
        let count = self.paths.len();
        let mut found = Found {
            pattern: self,
            rows: Vec::with_capacity(1),
            arrays: vec![Vec::new(); count],
        };
        let state = State {
            consumed: vec![0; count],
            row: vec![NULL; count],
            missing: 0,
        };
        found.collect(state, Some(document), &vec![None; count])?;
        for components in &mut found.arrays {
            components.sort_unstable();
            components.dedup();
        }
        if self.hashed.is_some() {
            self.refuse_arrays(&found.arrays)?;
        }
        Ok((found.rows, found.arrays))
    }

    fn refuse_arrays(&self, arrays: &ArrayComponents) -> Result<(), Failure> {
        for (path, components) in self.paths.iter().zip(arrays) {
            if let Some(&first) = components.first() {
                let found = path[..first.min(path.len())].join(&b'.');
                return Err(Failure::Refused(
                    ARRAY_UNDER_HASH,
                    format!(
                        "Error: hashed indexes do not currently support array values. Found array at path: {}",
                        String::from_utf8_lossy(&found)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The key of a row, at its full length.
    pub fn key(&self, row: &Row<'_>, collate: Option<Collate<'_>>) -> Result<Vec<u8>, Failure> {
        let mut key = Vec::with_capacity(16 * row.len());
        for (position, element) in row.iter().enumerate() {
            let descending = self.descending.get(position).copied().unwrap_or(false);
            if self.hashed == Some(position) {
                append_hash(&mut key, *element, collate)?;
            } else {
                append(&mut key, *element, descending, collate)?;
            }
        }
        Ok(key)
    }

    /// The different keys of a document as an index keeps them, in order, and the components that were arrays.
    pub fn keys(
        &self,
        document: &[u8],
        collate: Option<Collate<'_>>,
    ) -> Result<(Vec<Vec<u8>>, ArrayComponents), Failure> {
        let (keys, arrays, _) = self.typed_keys(document, collate, false)?;
        Ok((keys, arrays))
    }

    /// The same with the types of the key, where it is the only one and can be told back; else they are empty.
    pub fn typed_keys(
        &self,
        document: &[u8],
        collate: Option<Collate<'_>>,
        typed: bool,
    ) -> Result<TypedKeys, Failure> {
        let (rows, arrays) = self.rows(document)?;
        let mut keys = Vec::with_capacity(rows.len());
        for row in &rows {
            keys.push(capped(self.key(row, collate)?));
        }
        let mut types = Vec::new();
        if let ([row], [key]) = (rows.as_slice(), keys.as_slice()) {
            let plain = self.hashed.is_none() && collate.is_none();
            if typed && plain && arrays.iter().all(Vec::is_empty) {
                types = if key.len() < LONG_KEY_BYTES {
                    types_of(row)?
                } else {
                    UNTOLD.to_vec()
                };
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok((keys, arrays, types))
    }
}

/// Raw BSON of a row, named by the paths.
pub fn row_document(paths: &[String], row: &Row<'_>) -> Vec<u8> {
    let mut document = vec![0; 4];
    for (path, element) in paths.iter().zip(row) {
        document.push(element.kind);
        document.extend_from_slice(path.as_bytes());
        document.push(0);
        document.extend_from_slice(element.value);
    }
    document.push(0);
    let length = document.len() as u32;
    document[..4].copy_from_slice(&length.to_le_bytes());
    document
}

/// How far each path has come (components read), and the values of those that are at their end.
#[derive(Clone)]
struct State<'a> {
    consumed: Vec<usize>,
    row: Row<'a>,
    missing: usize,
}

/// What a numeric component found at its position in an array, with the rest of the path already walked.
#[derive(Clone)]
struct Positional<'a> {
    at_position: Element<'a>,
    reached: Option<(Element<'a>, usize)>,
}

struct Found<'p, 'a> {
    pattern: &'p KeyPattern,
    rows: Vec<Row<'a>>,
    arrays: ArrayComponents,
}

impl<'a> Found<'_, 'a> {
    /// Walk all paths on from `object`, and again from each element of the array they meet.
    fn collect(
        &mut self,
        mut state: State<'a>,
        object: Option<&'a [u8]>,
        positional: &[Option<Positional<'a>>],
    ) -> Result<(), Failure> {
        let pattern = self.pattern;
        let mut array: Option<Element<'a>> = None;
        let mut at_end = Vec::new();
        let mut expand_ends = true;
        for (index, parts) in pattern.paths.iter().enumerate() {
            if state.consumed[index] >= parts.len() {
                continue;
            }
            let (reached, nested) = step(
                parts,
                state.consumed[index],
                object,
                positional[index].as_ref(),
            )?;
            let Some((element, consumed)) = reached else {
                state.consumed[index] = parts.len();
                state.missing += 1;
                continue;
            };
            state.consumed[index] = consumed;
            if element.kind == kind::ARRAY {
                match array {
                    Some(other) if !std::ptr::eq(other.value, element.value) => {
                        return Err(Failure::ParallelArrays(name(element), name(other)));
                    }
                    _ => array = Some(element),
                }
                self.arrays[index].push(consumed);
            }
            if consumed >= parts.len() {
                state.row[index] = element;
                expand_ends &= !nested;
                if element.kind == kind::ARRAY {
                    at_end.push(index);
                }
            }
        }
        match array {
            None => {
                if !(pattern.sparse && state.missing == pattern.paths.len()) {
                    self.rows.push(state.row);
                }
                Ok(())
            }
            Some(array) => self.expand(&state, array, &at_end, expand_ends),
        }
    }

    fn expand(
        &mut self,
        state: &State<'a>,
        array: Element<'a>,
        at_end: &[usize],
        expand_ends: bool,
    ) -> Result<(), Failure> {
        let mut positional = Vec::with_capacity(state.consumed.len());
        for (parts, &consumed) in self.pattern.paths.iter().zip(&state.consumed) {
            positional.push(position_in(parts, consumed, array)?);
        }
        let mut empty = true;
        for item in crate::elements::elements(array.value)? {
            empty = false;
            let item = item?;
            let mut next = state.clone();
            if expand_ends {
                for &index in at_end {
                    next.row[index] = item;
                }
            }
            let inner = (item.kind == kind::OBJECT).then_some(item.value);
            self.collect(next, inner, &positional)?;
        }
        if empty {
            let mut next = state.clone();
            for &index in at_end {
                next.row[index] = UNDEFINED;
            }
            self.collect(next, None, &vec![None; state.consumed.len()])?;
        }
        Ok(())
    }
}

/// Where one path leads next, and whether that is an array right inside an array.
#[allow(clippy::type_complexity)]
fn step<'a>(
    parts: &[Vec<u8>],
    consumed: usize,
    object: Option<&'a [u8]>,
    positional: Option<&Positional<'a>>,
) -> Result<(Option<(Element<'a>, usize)>, bool), Failure> {
    let own = match object {
        Some(object) => find(object, &parts[consumed])?,
        None => None,
    };
    match (own, positional) {
        (Some(_), Some(_)) => Err(Failure::Ambiguous(
            String::from_utf8_lossy(&parts[consumed]).into_owned(),
        )),
        (Some(element), None) => Ok((walk(element, parts, consumed + 1)?, false)),
        (None, Some(positional)) => Ok((
            positional.reached,
            positional.at_position.kind == kind::ARRAY,
        )),
        (None, None) => Ok((None, false)),
    }
}

/// Follow a path through objects to its end or to the first array.
fn walk<'a>(
    mut element: Element<'a>,
    parts: &[Vec<u8>],
    mut consumed: usize,
) -> Result<Option<(Element<'a>, usize)>, Failure> {
    while consumed < parts.len() && element.kind != kind::ARRAY {
        if element.kind != kind::OBJECT {
            return Ok(None);
        }
        match find(element.value, &parts[consumed])? {
            Some(inner) => element = inner,
            None => return Ok(None),
        }
        consumed += 1;
    }
    Ok(Some((element, consumed)))
}

fn position_in<'a>(
    parts: &[Vec<u8>],
    consumed: usize,
    array: Element<'a>,
) -> Result<Option<Positional<'a>>, Failure> {
    let Some(part) = parts.get(consumed) else {
        return Ok(None);
    };
    if !part.iter().all(u8::is_ascii_digit) {
        return Ok(None);
    }
    let Some(at_position) = find(array.value, part)? else {
        return Ok(None);
    };
    Ok(Some(Positional {
        at_position,
        reached: walk(at_position, parts, consumed + 1)?,
    }))
}

fn name(element: Element<'_>) -> String {
    String::from_utf8_lossy(element.name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::KeyPattern;
    use crate::elements::kind;
    use crate::keystring::Failure;

    /// `{a: [<int32>…], b: <same>}` as raw BSON, with the fields of `names`.
    fn arrays(names: &[&str], numbers: &[i32]) -> Vec<u8> {
        let items = numbers.iter().enumerate().map(|(index, number)| {
            (
                kind::INT32,
                index.to_string(),
                number.to_le_bytes().to_vec(),
            )
        });
        let array = document(items.collect());
        document(
            names
                .iter()
                .map(|name| (kind::ARRAY, (*name).to_string(), array.clone()))
                .collect(),
        )
    }

    fn document(fields: Vec<(u8, String, Vec<u8>)>) -> Vec<u8> {
        let mut raw = vec![0; 4];
        for (kind, name, value) in fields {
            raw.push(kind);
            raw.extend_from_slice(name.as_bytes());
            raw.push(0);
            raw.extend_from_slice(&value);
        }
        raw.push(0);
        let length = raw.len() as u32;
        raw[..4].copy_from_slice(&length.to_le_bytes());
        raw
    }

    fn pattern(paths: &[&str]) -> KeyPattern {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_string()).collect();
        KeyPattern::new(&paths, &vec![false; paths.len()], false, None)
    }

    #[test]
    fn one_key_for_each_different_element() {
        let (keys, arrays) = pattern(&["a"])
            .keys(&arrays(&["a"], &[2, 1, 2]), None)
            .expect("well formed");
        assert_eq!(keys.len(), 2);
        assert_eq!(arrays, vec![vec![1]]);
    }

    #[test]
    fn an_empty_array_has_a_key() {
        let (rows, _) = pattern(&["a", "a.b"])
            .rows(&arrays(&["a"], &[]))
            .map(|(rows, arrays)| {
                (
                    rows.iter()
                        .map(|row| row.iter().map(|one| one.kind).collect::<Vec<_>>())
                        .collect::<Vec<_>>(),
                    arrays,
                )
            })
            .expect("well formed");
        assert_eq!(rows, vec![vec![kind::UNDEFINED, kind::NULL]]);
    }

    #[test]
    fn two_arrays_are_too_many() {
        let outcome = pattern(&["a", "b"]).keys(&arrays(&["a", "b"], &[1]), None);
        assert_eq!(
            outcome,
            Err(Failure::ParallelArrays("b".into(), "a".into()))
        );
    }

    #[test]
    fn a_number_names_a_position() {
        let raw = arrays(&["a"], &[7, 8]);
        let (rows, _) = pattern(&["a.1"]).rows(&raw).expect("well formed");
        assert!(rows.iter().all(|row| row[0].value == 8_i32.to_le_bytes()));
    }

    #[test]
    fn a_sparse_index_leaves_out_what_has_no_field() {
        let sparse = KeyPattern::new(
            &["x".to_string(), "y".to_string()],
            &[false, false],
            true,
            None,
        );
        assert!(sparse
            .keys(&arrays(&["a"], &[1]), None)
            .expect("well formed")
            .0
            .is_empty());
    }
}
