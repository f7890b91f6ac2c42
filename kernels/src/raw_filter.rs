//! Predicates on raw documents: most rows are judged without building a value of Python; the others are named.

use crate::compare::{canonical, compare};
use crate::elements::{find, kind, string, Malformed};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::cmp::Ordering;
use std::collections::HashSet;

/// What is known of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    No = 0,
    Yes = 1,
    /// Arrays and types that need the whole language.
    Unsure = 2,
}

use Verdict::{No, Unsure, Yes};

#[derive(Debug)]
enum Test {
    /// The value stands in the relation to a constant of its own class, or does not match.
    Compare {
        holds: Relation,
        constant: Value,
    },
    /// The same in the order of all types.
    Loose {
        holds: Relation,
        constant: Value,
    },
    In {
        strings: HashSet<Vec<u8>>,
        others: Vec<Value>,
    },
    Exists(bool),
}

#[derive(Debug, Clone)]
struct Value {
    kind: u8,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Relation {
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Relation {
    fn parse(name: &str) -> PyResult<Self> {
        Ok(match name {
            "$eq" => Self::Equal,
            "$gt" => Self::Greater,
            "$gte" => Self::GreaterOrEqual,
            "$lt" => Self::Less,
            "$lte" => Self::LessOrEqual,
            _ => return Err(PyValueError::new_err("no such relation")),
        })
    }

    #[inline]
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order == Ordering::Equal,
            Self::Greater => order == Ordering::Greater,
            Self::GreaterOrEqual => order != Ordering::Less,
            Self::Less => order == Ordering::Less,
            Self::LessOrEqual => order != Ordering::Greater,
        }
    }
}

#[derive(Debug)]
enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Leaf { path: Vec<Vec<u8>>, test: Test },
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Self {
        if holds {
            Yes
        } else {
            No
        }
    }
}

/// What a path leads to.
enum Found<'a> {
    Missing,
    Value(u8, &'a [u8]),
    /// An array is on the way or at the end.
    Array,
}

#[inline]
fn resolve<'a>(document: &'a [u8], path: &[Vec<u8>]) -> Result<Found<'a>, Malformed> {
    let mut inner = document;
    for (at, name) in path.iter().enumerate() {
        let Some(element) = find(inner, name)? else {
            return Ok(Found::Missing);
        };
        match element.kind {
            kind::ARRAY => return Ok(Found::Array),
            _ if at + 1 == path.len() => return Ok(Found::Value(element.kind, element.value)),
            kind::OBJECT => inner = element.value,
            _ => return Ok(Found::Missing),
        }
    }
    Ok(Found::Missing)
}

impl Node {
    fn verdict(&self, document: &[u8]) -> Result<Verdict, Malformed> {
        match self {
            Self::And(nodes) => {
                let mut known = Yes;
                for node in nodes {
                    match node.verdict(document)? {
                        No => return Ok(No),
                        Unsure => known = Unsure,
                        Yes => {}
                    }
                }
                Ok(known)
            }
            Self::Or(nodes) => {
                let mut known = No;
                for node in nodes {
                    match node.verdict(document)? {
                        Yes => return Ok(Yes),
                        Unsure => known = Unsure,
                        No => {}
                    }
                }
                Ok(known)
            }
            Self::Leaf { path, test } => test.verdict(resolve(document, path)?),
        }
    }
}

fn is_number(kind: u8) -> bool {
    matches!(kind, kind::DOUBLE | kind::INT32 | kind::INT64)
}

fn is_nan(kind: u8, value: &[u8]) -> bool {
    kind == kind::DOUBLE
        && value
            .first_chunk()
            .is_some_and(|bytes| f64::from_le_bytes(*bytes).is_nan())
}

/// The order of two values of one class; None where this is no place to tell it.
#[inline]
fn order(kind: u8, value: &[u8], constant: &Value) -> Result<Option<Ordering>, Malformed> {
    let decided = match kind {
        kind::DOUBLE | kind::INT32 | kind::INT64 => is_number(constant.kind),
        kind::STRING | kind::DATE | kind::OBJECT_ID | kind::BOOL | kind::TIMESTAMP => {
            kind == constant.kind
        }
        _ => false,
    };
    if !decided {
        return Ok(None);
    }
    Ok(Some(compare(
        (kind, value),
        (constant.kind, &constant.bytes),
    )?))
}

impl Test {
    #[inline]
    fn verdict(&self, found: Found<'_>) -> Result<Verdict, Malformed> {
        let (kind, value) = match (found, self) {
            (Found::Array, _) => return Ok(Unsure),
            (Found::Missing, Self::Exists(wanted)) => return Ok(Verdict::from(!wanted)),
            (Found::Missing, Self::Loose { .. }) => return Ok(Unsure),
            (Found::Missing, _) => return Ok(No),
            (Found::Value(..), Self::Exists(wanted)) => return Ok(Verdict::from(*wanted)),
            (Found::Value(kind, value), _) => (kind, value),
        };
        match self {
            Self::Compare { holds, constant } => {
                if canonical(kind) != canonical(constant.kind) || is_nan(kind, value) {
                    return Ok(No);
                }
                Ok(order(kind, value, constant)?
                    .map_or(Unsure, |order| Verdict::from(holds.holds(order))))
            }
            Self::Loose { holds, constant } => Ok(order(kind, value, constant)?
                .map_or(Unsure, |order| Verdict::from(holds.holds(order)))),
            Self::In { strings, others } => {
                if kind == kind::STRING {
                    return Ok(Verdict::from(strings.contains(string(value)?)));
                }
                for constant in others {
                    if canonical(kind) == canonical(constant.kind) && !is_nan(kind, value) {
                        match order(kind, value, constant)? {
                            Some(Ordering::Equal) => return Ok(Yes),
                            Some(_) => {}
                            None => return Ok(Unsure),
                        }
                    }
                }
                Ok(if kind == kind::SYMBOL { Unsure } else { No })
            }
            Self::Exists(wanted) => Ok(Verdict::from(*wanted)),
        }
    }
}

fn parse_value(given: &Bound<'_, PyAny>) -> PyResult<Value> {
    let (kind, bytes): (u8, Vec<u8>) = given.extract()?;
    let known = matches!(
        kind,
        kind::DOUBLE
            | kind::INT32
            | kind::INT64
            | kind::STRING
            | kind::DATE
            | kind::OBJECT_ID
            | kind::BOOL
            | kind::TIMESTAMP
    );
    if !known || is_nan(kind, &bytes) || crate::elements::value_length(kind, &bytes)? != bytes.len()
    {
        return Err(PyValueError::new_err("no constant of that type"));
    }
    Ok(Value { kind, bytes })
}

fn parse(given: &Bound<'_, PyAny>) -> PyResult<Node> {
    let given = given.cast::<PyTuple>()?;
    let what: String = given.get_item(0)?.extract()?;
    let below = || -> PyResult<Vec<Node>> {
        given
            .get_item(1)?
            .try_iter()?
            .map(|node| parse(&node?))
            .collect()
    };
    let test = match what.as_str() {
        "and" => return Ok(Node::And(below()?)),
        "or" => return Ok(Node::Or(below()?)),
        "compare" | "loose" => {
            let holds = Relation::parse(&given.get_item(2)?.extract::<String>()?)?;
            let constant = parse_value(&given.get_item(3)?)?;
            if what == "loose" {
                Test::Loose { holds, constant }
            } else {
                Test::Compare { holds, constant }
            }
        }
        "in" => {
            let (mut strings, mut others) = (HashSet::new(), Vec::new());
            for value in given.get_item(2)?.try_iter()? {
                let value = parse_value(&value?)?;
                if value.kind == kind::STRING {
                    strings.insert(string(&value.bytes)?.to_vec());
                } else {
                    others.push(value);
                }
            }
            Test::In { strings, others }
        }
        "exists" => Test::Exists(given.get_item(2)?.extract()?),
        _ => return Err(PyValueError::new_err("no such condition")),
    };
    let path: Vec<String> = given.get_item(1)?.extract()?;
    Ok(Node::Leaf {
        path: path.into_iter().map(String::into_bytes).collect(),
        test,
    })
}

/// A predicate on raw documents.
#[pyclass(frozen, module = "bucketd.kernels._native")]
pub struct RawFilter {
    root: Node,
}

#[pymethods]
impl RawFilter {
    #[new]
    fn new(condition: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            root: parse(condition)?,
        })
    }

    fn verdicts<'py>(
        &self,
        py: Python<'py>,
        documents: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut verdicts = Vec::with_capacity(documents.len());
        for document in documents.iter() {
            let raw = document.cast::<PyBytes>()?.as_bytes();
            // What is malformed is for those to tell who decode it.
            verdicts.push(self.root.verdict(raw).unwrap_or(Unsure) as u8);
        }
        Ok(PyBytes::new(py, &verdicts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{a: {b: 5}, c: [1]}`
    const ROW: &[u8] =
        b"\x23\0\0\0\x03a\0\x0c\0\0\0\x10b\0\x05\0\0\0\0\x04c\0\x0c\0\0\0\x100\0\x01\0\0\0\0\0";

    fn leaf(path: &[&str], holds: Relation, number: i32) -> Node {
        Node::Leaf {
            path: path.iter().map(|part| part.as_bytes().to_vec()).collect(),
            test: Test::Compare {
                holds,
                constant: Value {
                    kind: kind::INT32,
                    bytes: number.to_le_bytes().to_vec(),
                },
            },
        }
    }

    #[test]
    fn tells_what_holds_what_does_not_and_what_it_does_not_know() {
        let b = ["a", "b"];
        assert_eq!(leaf(&b, Relation::Equal, 5).verdict(ROW), Ok(Yes));
        assert_eq!(leaf(&b, Relation::Less, 5).verdict(ROW), Ok(No));
        assert_eq!(leaf(&["a", "x"], Relation::Equal, 5).verdict(ROW), Ok(No));
        assert_eq!(leaf(&["c"], Relation::Equal, 1).verdict(ROW), Ok(Unsure));
        let both = |first| {
            let second = leaf(&["c"], Relation::Equal, 1);
            [leaf(&b, Relation::Equal, first), second].into()
        };
        assert_eq!(Node::And(both(5)).verdict(ROW), Ok(Unsure));
        assert_eq!(Node::And(both(6)).verdict(ROW), Ok(No));
        assert_eq!(Node::Or(both(5)).verdict(ROW), Ok(Yes));
        assert_eq!(Node::Or(both(6)).verdict(ROW), Ok(Unsure));
    }

    #[test]
    fn no_cut_row_panics() {
        for end in 0..ROW.len() {
            let _ = leaf(&["a", "b"], Relation::Equal, 5).verdict(&ROW[..end]);
        }
    }
}
