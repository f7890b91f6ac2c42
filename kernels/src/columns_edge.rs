//! The edge to Python of the columns of many buckets.

use crate::columns::{Columns, Data};
use crate::pack::edge::Given;
use crate::pack::BucketSource;
use crate::rows::{Block, Part};
use crate::rows_edge::RowBlock;
use crate::unpack::{check_size, Failure};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

#[pyclass(frozen, module = "bucketd.kernels._native", name = "BucketColumns")]
struct BucketColumns {
    columns: Columns,
}

type Presence<'py> = Option<Bound<'py, PyArray1<bool>>>;

fn presence<'py>(py: Python<'py>, present: &[u8]) -> Presence<'py> {
    if !present.contains(&0) {
        return None;
    }
    Some(PyArray1::from_iter(
        py,
        present.iter().map(|present| *present != 0),
    ))
}

#[pymethods]
impl BucketColumns {
    fn __len__(&self) -> usize {
        self.columns.rows()
    }

    #[getter]
    fn fields(&self) -> Vec<String> {
        self.columns
            .names
            .iter()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_slice(py, &self.columns.offsets)
    }

    #[getter]
    fn time_bounds<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>) {
        (
            PyArray1::from_slice(py, &self.columns.earliest),
            PyArray1::from_slice(py, &self.columns.latest),
        )
    }

    #[getter]
    fn metas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let metas = self.columns.metas.iter();
        PyList::new(
            py,
            metas.map(|meta| meta.as_ref().map(|meta| PyBytes::new(py, meta))),
        )
    }

    fn column<'py>(
        &self,
        py: Python<'py>,
        field: &str,
    ) -> PyResult<(u8, Bound<'py, PyAny>, Presence<'py>)> {
        Ok(match self.data(field)? {
            Data::Missing(rows) => {
                let values = PyArray1::<f64>::zeros(py, *rows, false).into_any();
                (0, values, Some(PyArray1::<bool>::zeros(py, *rows, false)))
            }
            Data::Whole {
                kind,
                values,
                present,
            } if *kind == crate::elements::kind::BOOL => {
                let values = PyArray1::from_iter(py, values.iter().map(|value| *value != 0));
                (*kind, values.into_any(), presence(py, present))
            }
            Data::Whole {
                kind,
                values,
                present,
            } => (
                *kind,
                PyArray1::from_slice(py, values).into_any(),
                presence(py, present),
            ),
            Data::Double { values, present } => (
                1,
                PyArray1::from_slice(py, values).into_any(),
                presence(py, present),
            ),
            Data::Text { codes, dictionary } => {
                let known = dictionary.len() as u32;
                let missing = codes.iter().any(|code| *code >= known);
                let present = missing
                    .then(|| PyArray1::from_iter(py, codes.iter().map(|code| *code < known)));
                (2, PyArray1::from_slice(py, codes).into_any(), present)
            }
            Data::Ids { values, present } => {
                let mut end = 0;
                let ends = present.iter().map(|present| {
                    end +=
                        i64::from(*present) * (values.first().map_or(0, |id| id.len()) + 1) as i64;
                    end
                });
                let starts = PyArray1::from_iter(py, [0].into_iter().chain(ends));
                (255, starts.into_any(), presence(py, present))
            }
            Data::Raw { ends, bytes } => {
                let starts = [0].into_iter().chain(ends.iter().map(|end| *end as i64));
                let mut before = 0;
                let present: Vec<u8> = ends
                    .iter()
                    .map(|end| u8::from(*end > std::mem::replace(&mut before, *end)))
                    .collect();
                debug_assert!(ends.last().is_none_or(|end| *end == bytes.len()));
                (
                    255,
                    PyArray1::from_iter(py, starts).into_any(),
                    presence(py, &present),
                )
            }
        })
    }

    fn strings<'py>(&self, py: Python<'py>, field: &str) -> PyResult<Bound<'py, PyList>> {
        let Data::Text { dictionary, .. } = self.data(field)? else {
            return Err(PyKeyError::new_err("the field is no column of strings"));
        };
        let texts =
            (0..dictionary.len() as u32).map(|code| dictionary.get(code).unwrap_or_default());
        PyList::new(py, texts.map(String::from_utf8_lossy).collect::<Vec<_>>())
    }

    fn raw<'py>(&self, py: Python<'py>, field: &str) -> PyResult<Bound<'py, PyBytes>> {
        match self.data(field)? {
            Data::Raw { bytes, .. } => Ok(PyBytes::new(py, bytes)),
            data @ Data::Ids { values, .. } => {
                let mut bytes = Vec::with_capacity(values.len() * 13);
                for row in 0..values.len() {
                    data.write_bare(row, &mut bytes);
                }
                Ok(PyBytes::new(py, &bytes))
            }
            _ => Err(PyKeyError::new_err("the field is no column of mixed types")),
        }
    }

    #[pyo3(signature = (positions, meta_field = None))]
    fn build_rows(
        &self,
        py: Python<'_>,
        positions: PyReadonlyArray1<'_, i64>,
        meta_field: Option<&str>,
    ) -> PyResult<RowBlock> {
        let positions: Vec<i64> = positions.as_array().iter().copied().collect();
        let rows = py.detach(|| {
            let mut rows = Vec::with_capacity(positions.len());
            let mut bytes = Vec::new();
            let mut bucket = 0;
            for position in &positions {
                let row = usize::try_from(*position).ok();
                let Some(row) = row.filter(|row| *row < self.columns.rows()) else {
                    return Ok(None);
                };
                let meta_field = meta_field.map(str::as_bytes);
                if !self
                    .columns
                    .write_row(row, meta_field, &mut bucket, &mut bytes)
                {
                    return Ok(None);
                }
                check_size(bytes.len())?;
                rows.push(bytes.len());
            }
            Ok::<_, Failure>(Some((bytes, rows)))
        })?;
        let (bytes, ends) =
            rows.ok_or_else(|| PyIndexError::new_err("a position is beyond the rows"))?;
        Ok(RowBlock::new(Block::of([Part::Written { bytes, ends }])))
    }
}

impl BucketColumns {
    fn data(&self, field: &str) -> PyResult<&Data> {
        let place = self
            .columns
            .names
            .iter()
            .position(|name| name == field.as_bytes());
        place
            .and_then(|place| self.columns.data.get(place))
            .ok_or_else(|| PyKeyError::new_err(field.to_owned()))
    }
}

#[pyfunction]
#[pyo3(signature = (buckets, time_field, fields = None))]
fn unpack_columns(
    py: Python<'_>,
    buckets: Given<'_>,
    time_field: &str,
    fields: Option<Vec<String>>,
) -> PyResult<BucketColumns> {
    let sources = buckets.sources();
    let columns =
        py.detach(|| Columns::unpack(&sources, time_field.as_bytes(), fields.as_deref()))?;
    Ok(BucketColumns { columns })
}

/// The same of the newest or oldest measurements of buckets that tell them without being unpacked, and of all of others.
#[pyfunction]
#[pyo3(signature = (buckets, time_field, fields, newest))]
fn unpack_edges(
    py: Python<'_>,
    buckets: Given<'_>,
    time_field: &str,
    fields: Option<Vec<String>>,
    newest: bool,
) -> PyResult<BucketColumns> {
    let sources = buckets.sources();
    let (time_field, fields) = (time_field.as_bytes(), fields.as_deref());
    let unpack = || Columns::unpack_edges(&sources, time_field, fields, Some(newest));
    Ok(BucketColumns {
        columns: py.detach(unpack)?,
    })
}

/// The same, some buckets on each of several threads.
#[pyfunction]
fn unpack_columns_beside(
    py: Python<'_>,
    buckets: Given<'_>,
    time_field: &str,
    fields: Vec<String>,
    threads: usize,
) -> PyResult<Vec<BucketColumns>> {
    let sources = buckets.sources();
    let share = sources.len().div_ceil(threads.clamp(1, 64)).max(1);
    let unpack =
        |some: &[BucketSource<'_>]| Columns::unpack(some, time_field.as_bytes(), Some(&fields));
    let parts: Vec<Result<Columns, Failure>> = py.detach(|| {
        std::thread::scope(|scope| {
            let (own, others) = sources.split_at(share.min(sources.len()));
            let beside: Vec<_> = others
                .chunks(share)
                .map(|part| scope.spawn(move || unpack(part)))
                .collect();
            let first = unpack(own);
            let rest = beside.into_iter().map(|part| {
                part.join()
                    .unwrap_or_else(|_| Err(Failure::new(1, "unpacking failed")))
            });
            [first].into_iter().chain(rest).collect()
        })
    });
    parts
        .into_iter()
        .map(|columns| Ok(BucketColumns { columns: columns? }))
        .collect()
}

/// Add these functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BucketColumns>()?;
    module.add_function(wrap_pyfunction!(unpack_columns_beside, module)?)?;
    module.add_function(wrap_pyfunction!(unpack_edges, module)?)?;
    module.add_function(wrap_pyfunction!(unpack_columns, module)?)
}
