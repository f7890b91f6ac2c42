//! Keys of 2dsphere indexes: the cells of geometries, and the values of ordinary fields beside them.

use crate::column::ColumnDecoder;
use crate::elements::{elements, find, kind, Element};
use crate::index_keys::ArrayComponents;
use crate::keystring::{append, append_cell, capped, Collate, Failure};
use crate::special::cells::{merged, stored_cells, Cell};
use crate::special::geojson::geometry;
use crate::special::paths::{product, split, values, Plain, NULL};
use crate::unpack::{self, packed, ROWS_MAX};

/// Under how many cells a bucket is kept at most.
const MEASURED_CELLS_MAX: usize = 64;
const NO_GEOMETRY: i32 = 16755;

pub enum SphereField {
    Place(Vec<Vec<u8>>),
    /// A place in every measurement of a bucket; the path begins with `data` and the name of a column.
    Measured(Vec<Vec<u8>>),
    Plain(Plain),
}

impl SphereField {
    /// `kind` is that of the field in the key of the index; ordinary fields have none.
    pub fn new(path: &str, kind: Option<&str>, descending: bool) -> Self {
        match kind {
            Some("2dsphere_bucket") => SphereField::Measured(split(path)),
            Some(_) => SphereField::Place(split(path)),
            None => SphereField::Plain(Plain::new(path, descending)),
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
                SphereField::Measured(path) => {
                    let cells = measured_cells(document, path)?;
                    placed |= !cells.is_empty();
                    let components = if cells.len() > 1 {
                        vec![path.len()]
                    } else {
                        Vec::new()
                    };
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

/// Cells that hold all places in a column of a bucket.
fn measured_cells(bucket: &[u8], path: &[Vec<u8>]) -> Result<Vec<Cell>, Failure> {
    let data = find(bucket, b"data")?.filter(|data| data.kind == kind::OBJECT);
    let column = match (data, path.get(1)) {
        (Some(data), Some(name)) => find(data.value, name)?,
        _ => None,
    };
    let Some(column) = column else {
        return Ok(Vec::new());
    };
    let rest = &path[2..];
    let mut cells: Vec<Cell> = Vec::new();
    let mut see = |kind: u8, value: &[u8]| -> Result<(), Failure> {
        let element = Element {
            kind,
            name: b"",
            value,
        };
        if rest.is_empty() {
            cells.extend(cells_of(element)?);
        } else if kind == kind::OBJECT {
            for found in values(value, rest, false)?.found {
                cells.extend(cells_of(found)?);
            }
        }
        Ok(())
    };
    if column.kind == kind::OBJECT {
        for item in elements(column.value)? {
            let item = item?;
            see(item.kind, item.value)?;
        }
    } else {
        let packed = packed(column).map_err(unreadable)?;
        let mut decoder = ColumnDecoder::new(packed, ROWS_MAX);
        while let Some(entry) = decoder.advance() {
            if entry.map_err(|error| unreadable(error.into()))? {
                let (kind, value) = decoder.value();
                see(kind, value)?;
            }
        }
    }
    Ok(merged(cells, MEASURED_CELLS_MAX))
}

fn unreadable(failure: unpack::Failure) -> Failure {
    Failure::Refused(failure.code, failure.message)
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
