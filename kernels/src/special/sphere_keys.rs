//! Keys of 2dsphere indexes: the cells of geometries, and the values of ordinary fields beside them.

use crate::elements::{kind, Element};
use crate::index_keys::ArrayComponents;
use crate::keystring::{append, append_cell, capped, Collate, Failure};
use crate::special::cells::{stored_cells, Cell};
use crate::special::geojson::geometry;
use crate::special::paths::{product, split, values, Plain, NULL};

const NO_GEOMETRY: i32 = 16755;

pub enum SphereField {
    Place(Vec<Vec<u8>>),
    Plain(Plain),
}

impl SphereField {
    pub fn new(path: &str, place: bool, descending: bool) -> Self {
        if place {
            SphereField::Place(split(path))
        } else {
            SphereField::Plain(Plain::new(path, descending))
        }
    }
}

pub struct SphereKeys {
    pub fields: Vec<SphereField>,
    /// Documents without any geometry are left out.
    pub sparse: bool,
}

impl SphereKeys {
    /// The different keys of a document, in order, and for each field the components that were arrays.
    pub fn keys(
        &self,
        document: &[u8],
        collate: Option<Collate<'_>>,
    ) -> Result<(Vec<Vec<u8>>, ArrayComponents), Failure> {
        let mut parts = Vec::with_capacity(self.fields.len());
        let mut arrays = Vec::with_capacity(self.fields.len());
        let mut placed = false;
        for field in &self.fields {
            let (keys, components) = match field {
                SphereField::Plain(plain) => plain.keys(document, collate)?,
                SphereField::Place(path) => {
                    let found = values(document, path, false)?;
                    let mut cells: Vec<Cell> = Vec::new();
                    let mut components = found.arrays;
                    for element in found.found {
                        cells.extend(cells_of(element)?);
                    }
                    cells.sort_unstable();
                    cells.dedup();
                    if cells.len() > 1 && components.is_empty() {
                        components.push(path.len());
                    }
                    placed |= !cells.is_empty();
                    (cell_keys(&cells)?, components)
                }
            };
            parts.push(keys);
            arrays.push(components);
        }
        if self.sparse && !placed {
            return Ok((Vec::new(), arrays));
        }
        let mut keys: Vec<Vec<u8>> = product(&parts).into_iter().map(capped).collect();
        keys.sort_unstable();
        keys.dedup();
        Ok((keys, arrays))
    }
}

/// One key for each cell; null where there is none.
pub fn cell_keys(cells: &[Cell]) -> Result<Vec<Vec<u8>>, Failure> {
    if cells.is_empty() {
        let mut key = Vec::new();
        append(&mut key, NULL, false, None)?;
        return Ok(vec![key]);
    }
    Ok(cells
        .iter()
        .map(|cell| {
            let mut key = Vec::with_capacity(9);
            append_cell(&mut key, cell.0);
            key
        })
        .collect())
}

/// The cells of one value; none for null and the empty array.
pub fn cells_of(element: Element<'_>) -> Result<Vec<Cell>, Failure> {
    match element.kind {
        kind::NULL | kind::UNDEFINED => return Ok(Vec::new()),
        kind::ARRAY if element.value.len() == 5 => return Ok(Vec::new()),
        kind::OBJECT | kind::ARRAY => {}
        _ => return Err(refused("geo element must be an array or object")),
    }
    let found = geometry(element).map_err(|fault| refused(&fault))?;
    if found.strict {
        return Err(refused("can't index geometry with strict winding order"));
    }
    Ok(stored_cells(&found))
}

fn refused(why: &str) -> Failure {
    Failure::Refused(NO_GEOMETRY, format!("Can't extract geo keys: {why}"))
}
