//! Rows put into another order, and given further fields, on their way to a reply.

use crate::elements::{elements, kind, Element, Malformed};
use crate::rows::{Block, Part};
use crate::rows_edge::RowBlock;
use crate::unpack::{check_size, Failure};
use crate::writer::{begin, begin_named, element, end, header, Digits};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

const DEPTH_MAX: usize = 256;

/// A field that documents get, of each a type byte and the bits of a value.
struct Field<'a> {
    name: String,
    kinds: &'a [u8],
    bits: &'a [i64],
    texts: Vec<String>,
}

impl Field<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        let (Some(type_byte), Some(bits)) = (self.kinds.get(row), self.bits.get(row)) else {
            return;
        };
        let (name, bytes) = (self.name.as_bytes(), bits.to_le_bytes());
        match *type_byte {
            kind::STRING => {
                let text = usize::try_from(*bits)
                    .ok()
                    .and_then(|at| self.texts.get(at));
                let text = text.map_or(&b""[..], |text| text.as_bytes());
                header(out, kind::STRING, name);
                out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
                out.extend_from_slice(text);
                out.push(0);
            }
            kind::BOOL => element(out, kind::BOOL, name, &bytes[..1]),
            kind::INT32 => element(out, kind::INT32, name, &bytes[..4]),
            kind::DOUBLE | kind::INT64 | kind::DATE => element(out, *type_byte, name, &bytes),
            _ => element(out, kind::NULL, name, &[]),
        }
    }
}

/// Which fields stay: whole, or what is within them.
struct Tree(Vec<(Vec<u8>, Option<Tree>)>);

impl Tree {
    fn of(kept: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut names = Vec::with_capacity(kept.len());
        for (name, below) in kept {
            let below = match below.is_none() {
                true => None,
                false => Some(Self::of(&below.cast_into::<PyDict>()?)?),
            };
            names.push((name.extract::<String>()?.into_bytes(), below));
        }
        Ok(Self(names))
    }

    /// Appends what stays of a field of a document.
    fn write(&self, field: &Element<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), Malformed> {
        match self.0.iter().find(|(name, _)| name == field.name) {
            Some((_, None)) => element(out, field.kind, field.name, field.value),
            Some((_, Some(below))) => {
                below.write_within(field.kind, field.name, field.value, out, depth)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Appends what stays of a value under a name: of an object its fields, of an array its objects and arrays; of others nothing.
    fn write_within(
        &self,
        type_byte: u8,
        name: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<bool, Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed("a document is nested too deeply"));
        }
        match type_byte {
            kind::OBJECT => {
                let begun = begin_named(out, kind::OBJECT, name);
                for field in elements(value)? {
                    self.write(&field?, out, depth + 1)?;
                }
                end(out, begun);
            }
            kind::ARRAY => {
                let begun = begin_named(out, kind::ARRAY, name);
                let mut index = Digits::of(0);
                for item in elements(value)? {
                    let item = item?;
                    let place = index.as_bytes().to_vec();
                    if self.write_within(item.kind, &place, item.value, out, depth + 1)? {
                        index.increase();
                    }
                }
                end(out, begun);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The document with the fields in the places of those of their names, or at its end; without what is not kept.
fn with_fields_of(
    document: &[u8],
    row: usize,
    fields: &[Field<'_>],
    kept: Option<&Tree>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let begun = begin(out);
    let mut met = vec![false; fields.len()];
    for old in elements(document)? {
        let old = old?;
        if let Some(kept) = kept {
            kept.write(&old, out, 0)?;
            continue;
        }
        let at = fields
            .iter()
            .position(|field| field.name.as_bytes() == old.name);
        match at.and_then(|at| fields.get(at).zip(met.get_mut(at))) {
            Some((field, met)) => {
                *met = true;
                field.write(row, out);
            }
            None => element(out, old.kind, old.name, old.value),
        }
    }
    for (field, _) in fields.iter().zip(&met).filter(|(_, met)| !**met) {
        field.write(row, out);
    }
    end(out, begun);
    Ok(())
}

/// Stretches of rows that follow each other in one of the blocks, as (block, first row, how many).
fn stretches(blocks: &[&Block], positions: &[i64]) -> Option<Vec<(usize, usize, usize)>> {
    let mut firsts = vec![0];
    for block in blocks {
        firsts.push(firsts.last().copied().unwrap_or(0) + block.len());
    }
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    for position in positions {
        let row = usize::try_from(*position).ok()?;
        if row >= firsts.last().copied().unwrap_or(0) {
            return None;
        }
        let at = firsts.partition_point(|first| *first <= row) - 1;
        let own = row - firsts.get(at)?;
        match found.last_mut() {
            Some((block, first, count)) if *block == at && *first + *count == own => *count += 1,
            _ => found.push((at, own, 1)),
        }
    }
    Some(found)
}

type Given<'py> = (
    String,
    PyReadonlyArray1<'py, u8>,
    PyReadonlyArray1<'py, i64>,
    Option<Vec<String>>,
);

/// Rows that are somewhere already, or raw documents.
#[derive(FromPyObject)]
enum Rows<'py> {
    Block(Bound<'py, RowBlock>),
    Raws(Vec<Bound<'py, PyBytes>>),
}

impl Rows<'_> {
    /// A block of the raw documents; None where there is a block.
    fn written(&self) -> Option<Block> {
        let Self::Raws(raws) = self else {
            return None;
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(raws.len()));
        for raw in raws {
            bytes.extend_from_slice(raw.as_bytes());
            ends.push(bytes.len());
        }
        Some(Block::of([Part::Written { bytes, ends }]))
    }
}

#[pyfunction]
#[pyo3(signature = (blocks, positions, fields = Vec::new(), kept = None))]
fn arrange_rows(
    py: Python<'_>,
    blocks: Vec<Rows<'_>>,
    positions: PyReadonlyArray1<'_, i64>,
    fields: Vec<Given<'_>>,
    kept: Option<Bound<'_, PyDict>>,
) -> PyResult<RowBlock> {
    let kept = kept.as_ref().map(Tree::of).transpose()?;
    let positions = positions.as_slice()?;
    let mut given = Vec::with_capacity(fields.len());
    for (name, kinds, bits, texts) in &fields {
        let (kinds, bits) = (kinds.as_slice()?, bits.as_slice()?);
        if kinds.len() != positions.len() || bits.len() != positions.len() || name.contains('\0') {
            return Err(PyValueError::new_err("a field of another number of rows"));
        }
        given.push(Field {
            name: name.clone(),
            kinds,
            bits,
            texts: texts.clone().unwrap_or_default(),
        });
    }
    let written: Vec<Option<Block>> = blocks.iter().map(Rows::written).collect();
    let blocks: Vec<&Block> = blocks
        .iter()
        .zip(&written)
        .filter_map(|(rows, written)| match rows {
            Rows::Block(block) => Some(block.get().block()),
            Rows::Raws(_) => written.as_ref(),
        })
        .collect();
    let made = py.detach(|| {
        let Some(stretches) = stretches(&blocks, positions) else {
            return Ok(None);
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(positions.len()));
        let mut wrong = None;
        for (at, first, count) in stretches {
            let Some(block) = blocks.get(at) else {
                return Ok(None);
            };
            block.documents(first..first + count, |row| {
                if given.is_empty() && kept.is_none() {
                    bytes.extend_from_slice(row);
                } else if let Err(malformed) =
                    with_fields_of(row, ends.len(), &given, kept.as_ref(), &mut bytes)
                {
                    wrong = Some(malformed);
                }
                ends.push(bytes.len());
            });
            check_size(bytes.len())?;
        }
        match wrong {
            Some(malformed) => Err(Failure::from(malformed)),
            None => Ok(Some(Part::Written { bytes, ends })),
        }
    })?;
    let part = made.ok_or_else(|| PyIndexError::new_err("a position is beyond the rows"))?;
    Ok(RowBlock::new(Block::of([part])))
}

/// Add the function to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(arrange_rows, module)?)
}
