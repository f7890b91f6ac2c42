//! The edge to Python of packs, and of what stands for the buckets in them.

use super::bytes::Torn;
use super::make::make;
use super::read::Pack;
use super::totals::{bound, bounds, whole_value, Totals};
use super::BucketSource;
use crate::elements::{find, fixed, kind, Element};
use crate::gather::Extreme;
use crate::unpack::{summary, Failure};
use numpy::PyArray1;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

impl From<Torn> for PyErr {
    fn from(_: Torn) -> Self {
        PyValueError::new_err("a pack of buckets is not what was written")
    }
}

/// Buckets as Python gives them: documents, or heads that know their pack and their number in it.
pub struct Given<'py> {
    raws: Vec<Bound<'py, PyBytes>>,
    packs: Vec<Option<(Bound<'py, BucketPack>, usize)>>,
}

impl<'a, 'py> FromPyObject<'a, 'py> for Given<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let raws: Vec<Bound<'py, PyBytes>> = given.extract()?;
        let packs = raws
            .iter()
            .map(|raw| {
                if raw.is_exact_instance_of::<PyBytes>() {
                    return Ok(None);
                }
                let py = raw.py();
                let pack = raw.getattr(intern!(py, "pack"))?;
                let number = raw.getattr(intern!(py, "number"))?.extract()?;
                Ok(Some((pack.cast_into::<BucketPack>()?, number)))
            })
            .collect::<PyResult<_>>()?;
        Ok(Self { raws, packs })
    }
}

impl Given<'_> {
    /// The buckets.
    pub fn sources(&self) -> Vec<BucketSource<'_>> {
        self.raws
            .iter()
            .zip(&self.packs)
            .map(|(raw, pack)| match pack {
                None => BucketSource::Stored(raw.as_bytes()),
                Some((pack, number)) => BucketSource::Packed {
                    head: raw.as_bytes(),
                    pack: &pack.get().pack,
                    number: *number,
                },
            })
            .collect()
    }
}

/// A pack that has been read.
#[pyclass(frozen, module = "bucketd.kernels._native")]
pub struct BucketPack {
    pack: Pack,
}

#[pymethods]
impl BucketPack {
    #[new]
    fn new(py: Python<'_>, heads: &[u8], body: &[u8]) -> PyResult<Self> {
        let pack = py.detach(|| Pack::parse(heads.to_vec(), body.to_vec()))?;
        Ok(Self { pack })
    }

    fn __len__(&self) -> usize {
        self.pack.len()
    }

    #[getter]
    fn held_bytes(&self) -> usize {
        self.pack.held_bytes()
    }

    fn heads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let heads = (0..self.pack.len()).map(|number| self.pack.head(number));
        let heads = heads.collect::<Result<Vec<_>, _>>()?;
        PyList::new(py, heads.into_iter().map(|head| PyBytes::new(py, head)))
    }

    fn document<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyBytes>> {
        let document = py.detach(|| self.pack.document(number))?;
        Ok(PyBytes::new(py, &document))
    }

    fn tells_true(&self, py: Python<'_>, number: usize) -> PyResult<bool> {
        Ok(py.detach(|| self.pack.tells_true(number))?)
    }
}

/// What is to be compressed of a pack, and what is not; None where the buckets cannot be kept by columns.
#[pyfunction]
fn make_pack<'py>(
    py: Python<'py>,
    documents: Vec<Bound<'py, PyBytes>>,
) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let raws: Vec<&[u8]> = documents.iter().map(|raw| raw.as_bytes()).collect();
    let (heads, body) = py.detach(|| make(&raws))?;
    Some((PyBytes::new(py, &heads), PyBytes::new(py, &body)))
}

/// What a bucket tells of one field.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told {
    pub count: u64,
    pub totals: Totals,
    pub min: Extreme,
    pub max: Extreme,
}

/// What buckets tell of themselves without their columns, one row for each.
#[pyclass(frozen, module = "bucketd.kernels._native")]
pub struct BucketTotals {
    pub counts: Vec<u64>,
    fits: Vec<bool>,
    earliest: Vec<i64>,
    latest: Vec<i64>,
    metas: Vec<Option<Vec<u8>>>,
    names: Vec<String>,
    told: Vec<Vec<Told>>,
}

#[pymethods]
impl BucketTotals {
    #[new]
    fn new(
        py: Python<'_>,
        buckets: Given<'_>,
        time_field: &str,
        sums: Vec<String>,
        least: Vec<String>,
        greatest: Vec<String>,
    ) -> PyResult<Self> {
        let sources = buckets.sources();
        Ok(py.detach(|| Self::of(&sources, time_field, &sums, &least, &greatest))?)
    }

    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_slice(py, &self.counts)
    }

    #[getter]
    fn fits<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<bool>> {
        PyArray1::from_slice(py, &self.fits)
    }

    #[getter]
    fn time_bounds<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>) {
        (
            PyArray1::from_slice(py, &self.earliest),
            PyArray1::from_slice(py, &self.latest),
        )
    }

    #[getter]
    fn metas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let metas = self.metas.iter();
        PyList::new(
            py,
            metas.map(|meta| meta.as_ref().map(|meta| PyBytes::new(py, meta))),
        )
    }
}

impl BucketTotals {
    /// What is told of a field, one for each bucket.
    pub fn told(&self, field: &str) -> PyResult<&[Told]> {
        let place = self.names.iter().position(|name| name == field);
        place
            .and_then(|place| self.told.get(place))
            .map(Vec::as_slice)
            .ok_or_else(|| PyKeyError::new_err(field.to_owned()))
    }

    fn of(
        sources: &[BucketSource<'_>],
        time_field: &str,
        sums: &[String],
        least: &[String],
        greatest: &[String],
    ) -> Result<Self, Failure> {
        let mut names: Vec<String> = Vec::new();
        for name in sums.iter().chain(least).chain(greatest) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let mut made = Self {
            counts: Vec::with_capacity(sources.len()),
            fits: Vec::with_capacity(sources.len()),
            earliest: Vec::with_capacity(sources.len()),
            latest: Vec::with_capacity(sources.len()),
            metas: Vec::with_capacity(sources.len()),
            told: vec![Vec::with_capacity(sources.len()); names.len()],
            names,
        };
        for source in sources {
            let head = source.head();
            let found = summary(head, time_field.as_bytes())?;
            made.counts.push(found.count as u64);
            let known = found.bounded && found.min_ms <= found.max_ms;
            made.earliest
                .push(if known { found.min_ms } else { i64::MIN });
            made.latest
                .push(if known { found.max_ms } else { i64::MAX });
            let meta = find(head, b"meta")?;
            made.metas
                .push(meta.map(|meta| [&[meta.kind], meta.value].concat()));
            let mut fits = true;
            let bounds_if = |wanted: &[String], name| {
                (!wanted.is_empty()).then(|| bounds(head, name)).flatten()
            };
            let (min, max) = (bounds_if(least, b"min"), bounds_if(greatest, b"max"));
            for (name, told) in made.names.iter().zip(&mut made.told) {
                let field = name.as_bytes();
                let (lower, upper) = (least.contains(name), greatest.contains(name));
                let one = match source {
                    BucketSource::Packed { pack, number, .. } => {
                        let totals = pack.field(field).and_then(|at| pack.totals(*number, at));
                        totals.map_or_else(
                            || Some(Told::default()),
                            |totals| {
                                let one = Told {
                                    count: found.count.saturating_sub(totals.missing) as u64,
                                    totals,
                                    min: extreme(bound(min, field)),
                                    max: extreme(bound(max, field)),
                                };
                                let fits = totals.kind != 0
                                    && (totals.least || !lower)
                                    && (totals.greatest || !upper);
                                fits.then_some(one)
                            },
                        )
                    }
                    BucketSource::Stored(_) => None,
                };
                fits &= one.is_some();
                told.push(one.unwrap_or_default());
            }
            made.fits.push(fits);
        }
        Ok(made)
    }
}

fn extreme(element: Option<Element<'_>>) -> Extreme {
    match element {
        Some(element) if element.kind == kind::DOUBLE => fixed(element.value)
            .map_or(Extreme::Nothing, |bytes| {
                Extreme::Double(f64::from_le_bytes(bytes))
            }),
        Some(element) => whole_value(element).map_or(Extreme::Nothing, |value| {
            Extreme::Whole(element.kind, value)
        }),
        None => Extreme::Nothing,
    }
}

/// Add these to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BucketPack>()?;
    module.add_class::<BucketTotals>()?;
    module.add_function(wrap_pyfunction!(make_pack, module)?)
}
