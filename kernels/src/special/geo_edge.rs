//! The edge to Python of geospatial indexes.

use crate::elements::elements;
use crate::index_edge::{with_collation, Keys};
use crate::keystring::Failure;
use crate::special::cells::{self, cap, covering, search_ranges};
use crate::special::edge::reply;
use crate::special::flat::{FlatKeys, Plane};
use crate::special::geojson::{geometry, Geometry};
use crate::special::paths::split;
use crate::special::relations;
use crate::special::sphere_keys::{SphereField, SphereKeys};
use crate::special::vectors::Ring;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The keys of one 2dsphere index.
#[pyclass(frozen, module = "bucketd.kernels._native")]
struct SphereKeyMaker {
    keys: SphereKeys,
}

#[pymethods]
impl SphereKeyMaker {
    #[new]
    fn new(fields: Vec<(String, Option<String>, bool)>, sparse: bool) -> Self {
        SphereKeyMaker {
            keys: SphereKeys {
                fields: fields
                    .iter()
                    .map(|(path, kind, descending)| {
                        SphereField::new(path, kind.as_deref(), *descending)
                    })
                    .collect(),
                sparse,
            },
        }
    }

    #[pyo3(signature = (document, collate = None))]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        document: &[u8],
        collate: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Keys<'py>> {
        let (keys, arrays) = with_collation(collate, |collate| self.keys.keys(document, collate))?;
        let many = arrays.iter().any(|components| !components.is_empty());
        Ok(reply(py, &keys, many.then_some(arrays)))
    }
}

/// The keys of one 2d index, and where to look in it.
#[pyclass(frozen, module = "bucketd.kernels._native")]
struct FlatKeyMaker {
    keys: FlatKeys,
    fields: usize,
}

#[pymethods]
impl FlatKeyMaker {
    #[new]
    fn new(path: &str, fields: usize, bits: u32, min: f64, max: f64) -> Self {
        FlatKeyMaker {
            keys: FlatKeys {
                path: split(path),
                plane: Plane::new(bits, min, max),
            },
            fields: fields.max(1),
        }
    }

    #[pyo3(signature = (document, collate = None))]
    #[allow(unused_variables)]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        document: &[u8],
        collate: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Keys<'py>> {
        let keys = self.keys.keys(document)?;
        let arrays = (keys.len() > 1).then(|| {
            let mut arrays = vec![Vec::new(); self.fields];
            arrays[0].push(self.keys.path.len());
            arrays
        });
        Ok(reply(py, &keys, arrays))
    }

    fn covering(&self, low: (f64, f64), high: (f64, f64), count: usize) -> Vec<(u64, u64)> {
        self.keys.plane.covering(low, high, count)
    }
}

#[pyfunction]
fn cover_cap(longitude: f64, latitude: f64, radius: f64, count: usize) -> Vec<(u64, u64)> {
    search_ranges(&covering(&cap(longitude, latitude, radius), count, 30))
}

#[pyfunction]
fn cover_geometry(document: &[u8], count: usize) -> PyResult<Vec<(u64, u64)>> {
    let found = first_geometry(document)?.map_err(PyValueError::new_err)?;
    Ok(search_ranges(&covering(
        &cells::Region::Geometry(&found),
        count,
        30,
    )))
}

/// A region of the sphere that stored geometries are compared with.
#[pyclass(frozen, module = "bucketd.kernels._native")]
struct SphereRegion {
    region: relations::Region,
}

/// The geometry that is the first value of a document.
fn first_geometry(document: &[u8]) -> PyResult<Result<Geometry, String>> {
    let first = elements(document)
        .map_err(Failure::from)?
        .next()
        .ok_or_else(|| PyValueError::new_err("the document is empty"))?
        .map_err(Failure::from)?;
    Ok(geometry(first))
}

#[pymethods]
impl SphereRegion {
    #[staticmethod]
    fn of_geometry(document: &[u8]) -> PyResult<Self> {
        let found = first_geometry(document)?.map_err(PyValueError::new_err)?;
        Ok(SphereRegion {
            region: relations::Region::new(relations::Area::Geometry(found)),
        })
    }

    #[staticmethod]
    fn of_cap(centre: [f64; 3], radius: f64) -> Self {
        SphereRegion {
            region: relations::Region::new(relations::Area::Cap { centre, radius }),
        }
    }

    fn holds(&self, document: &[u8]) -> PyResult<bool> {
        Ok(first_geometry(document)?.is_ok_and(|found| self.region.holds(&found)))
    }

    fn meets(&self, document: &[u8]) -> PyResult<bool> {
        Ok(first_geometry(document)?.is_ok_and(|found| self.region.meets(&found)))
    }
}

#[pyfunction]
fn ring_crosses_itself(vertices: Vec<[f64; 3]>) -> bool {
    vertices.len() > 3 && relations::crosses_itself(&Ring::new(vertices, false))
}

/// Add these to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SphereKeyMaker>()?;
    module.add_class::<FlatKeyMaker>()?;
    module.add_class::<SphereRegion>()?;
    module.add_function(wrap_pyfunction!(ring_crosses_itself, module)?)?;
    module.add_function(wrap_pyfunction!(cover_cap, module)?)?;
    module.add_function(wrap_pyfunction!(cover_geometry, module)?)
}
