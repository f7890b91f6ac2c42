//! The edge to Python of partitioning and of buckets that are being filled.

use crate::bucket::{Bucket, Limits};
use crate::bucket_check;
use crate::bucket_order::in_order;
use crate::keystring::{self, Collate};
use crate::lot::Lot;
use crate::merging::{merge, Form};
use crate::partition::{partition as take_apart, Batch, Measurement, Reading, Series};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// A batch and what it lies in.
pub struct Shared {
    pub lot: Arc<Lot>,
    pub batch: Batch,
}

#[pyclass(frozen, module = "bucketd.kernels._native")]
pub struct Partition {
    pub shared: Arc<Shared>,
}

#[pymethods]
impl Partition {
    #[getter]
    fn runs(&self) -> Vec<Run> {
        (0..self.shared.batch.series.len())
            .map(|at| Run::new(&self.shared, at))
            .collect()
    }

    #[getter]
    fn errors(&self) -> Vec<(usize, i32, String)> {
        self.shared.batch.errors.clone()
    }

    #[getter]
    fn count(&self) -> usize {
        self.shared.batch.count
    }

    #[getter]
    fn first_ms(&self) -> i64 {
        let series = self.shared.batch.series.iter();
        let firsts = series.filter_map(|series| series.measurements.first());
        firsts.map(|first| first.time_ms).min().unwrap_or(0)
    }

    #[getter]
    fn measurements(&self) -> usize {
        let series = self.shared.batch.series.iter();
        series.map(|series| series.measurements.len()).sum()
    }

    #[getter]
    fn extended(&self) -> bool {
        self.shared.batch.extended
    }
}

#[pyclass(frozen, module = "bucketd.kernels._native")]
pub struct Run {
    shared: Arc<Shared>,
    at: usize,
}

impl Run {
    /// The run at this place of a batch.
    pub fn new(shared: &Arc<Shared>, at: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            at,
        }
    }

    fn series(&self) -> PyResult<&Series> {
        self.shared
            .batch
            .series
            .get(self.at)
            .ok_or_else(|| PyIndexError::new_err("no such run"))
    }

    fn measurement(&self, position: usize) -> PyResult<&Measurement> {
        self.series()?
            .measurements
            .get(position)
            .ok_or_else(|| PyIndexError::new_err("position is beyond the run"))
    }
}

#[pymethods]
impl Run {
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self
            .series()?
            .meta
            .as_ref()
            .map(|meta| PyBytes::new(py, meta)))
    }

    #[getter]
    fn first_ms(&self) -> PyResult<i64> {
        Ok(self.measurement(0)?.time_ms)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.series()?.measurements.len())
    }

    fn time_ms(&self, position: usize) -> PyResult<i64> {
        Ok(self.measurement(position)?.time_ms)
    }

    fn index(&self, position: usize) -> PyResult<u32> {
        Ok(self.measurement(position)?.index)
    }

    #[pyo3(signature = (start = 0, stop = None))]
    fn indices(&self, start: usize, stop: Option<usize>) -> PyResult<Vec<u32>> {
        let all = &self.series()?.measurements;
        let stop = stop.unwrap_or(all.len()).min(all.len());
        let some = all.get(start.min(stop)..stop).unwrap_or_default();
        Ok(some.iter().map(|measurement| measurement.index).collect())
    }

    fn document<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyBytes>> {
        let document = self.shared.lot.view().document(self.measurement(position)?);
        Ok(PyBytes::new(py, &document))
    }
}

#[derive(FromPyObject)]
enum Documents {
    #[pyo3(transparent)]
    Buffer(PyBackedBytes),
    #[pyo3(transparent)]
    List(Vec<PyBackedBytes>),
}

fn joined(documents: &[PyBackedBytes]) -> PyResult<Vec<u8>> {
    let mut buffer = Vec::with_capacity(documents.iter().map(|document| document.len()).sum());
    for document in documents {
        let claimed = crate::elements::int32(document)?;
        if usize::try_from(claimed).ok() != Some(document.len()) {
            return Err(PyValueError::new_err("a document's length is wrong"));
        }
        buffer.extend_from_slice(document);
    }
    Ok(buffer)
}

/// A buffer without its first bytes.
struct Tail {
    bytes: PyBackedBytes,
    start: usize,
}

impl AsRef<[u8]> for Tail {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[pyfunction]
#[pyo3(signature = (documents, time_field, meta_field, *, bytes_max = usize::MAX, stop = usize::MAX, start = 0))]
#[allow(clippy::too_many_arguments)]
fn partition(
    py: Python<'_>,
    documents: Documents,
    time_field: &str,
    meta_field: Option<&str>,
    bytes_max: usize,
    stop: usize,
    start: usize,
) -> PyResult<Partition> {
    let buffer: Box<dyn AsRef<[u8]> + Send + Sync> = match documents {
        Documents::Buffer(bytes) => Box::new(Tail { bytes, start }),
        Documents::List(list) => Box::new(joined(&list)?),
    };
    let (buffer, batch, fields) = py.detach(|| {
        let reading = Reading {
            time_field: time_field.as_bytes(),
            meta_field: meta_field.map(str::as_bytes),
            bytes_max,
            stop,
        };
        let taken = take_apart((*buffer).as_ref(), &reading);
        taken.map(|(batch, fields)| (buffer, batch, fields))
    })?;
    let lot = Arc::new(Lot::new(buffer, fields));
    Ok(Partition {
        shared: Arc::new(Shared { lot, batch }),
    })
}

#[pyclass(module = "bucketd.kernels._native")]
pub struct BucketBuilder {
    pub bucket: Bucket,
    pub collate: Option<Py<PyAny>>,
}

/// Calls `body` with the sort keys of a Python function; without one, other threads run meanwhile.
pub fn collated<T: Send>(
    py: Python<'_>,
    collate: Option<&Py<PyAny>>,
    body: impl FnOnce(Option<Collate<'_>>) -> T + Send,
) -> T {
    let Some(function) = collate else {
        return py.detach(|| body(None));
    };
    let call = |text: &str| {
        function
            .bind(py)
            .call1((text,))
            .and_then(|key| key.extract::<Vec<u8>>())
            .map_err(|error| keystring::Failure::Collation(error.to_string()))
    };
    body(Some(&call))
}

#[pymethods]
impl BucketBuilder {
    #[new]
    #[pyo3(signature = (time_field, meta, bucket_id, min_ms, version = 2, collate = None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        time_field: &str,
        meta: Option<&[u8]>,
        bucket_id: &[u8],
        min_ms: i64,
        version: i32,
        collate: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let id = bucket_id
            .try_into()
            .map_err(|_| PyValueError::new_err("a bucket's id has 12 bytes"))?;
        if version != 1 && version != 2 {
            return Err(PyValueError::new_err("a bucket begins with version 1 or 2"));
        }
        if let Some(meta) = meta {
            let (type_byte, value) = meta
                .split_first()
                .ok_or_else(|| PyValueError::new_err("meta has no type byte"))?;
            if crate::elements::value_length(*type_byte, value)? != value.len() {
                return Err(PyValueError::new_err("meta's length is wrong"));
            }
            crate::validate::check_value(*type_byte, value, crate::validate::DEPTH_MAX)?;
        }
        Ok(Self {
            bucket: Bucket::new(id, time_field.as_bytes(), meta, min_ms, version),
            collate,
        })
    }

    #[staticmethod]
    #[pyo3(signature = (bucket, time_field, collate = None))]
    fn from_document(
        py: Python<'_>,
        bucket: &[u8],
        time_field: &str,
        collate: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let bucket = py.detach(|| Bucket::reopen(bucket, time_field.as_bytes()))?;
        Ok(Self { bucket, collate })
    }

    #[pyo3(signature = (run, start, *, span_ms, max_count, effective_max, absolute_max, min_count, large_threshold = 512))]
    #[allow(clippy::too_many_arguments)]
    fn append_run(
        &mut self,
        py: Python<'_>,
        run: &Bound<'_, Run>,
        start: usize,
        span_ms: i64,
        max_count: usize,
        effective_max: usize,
        absolute_max: usize,
        min_count: usize,
        large_threshold: usize,
    ) -> PyResult<(usize, Option<&'static str>, bool)> {
        let limits = Limits {
            span_ms,
            max_count,
            effective_max,
            absolute_max,
            min_count,
            large_threshold,
        };
        let run = run.get();
        let rest = run
            .series()?
            .measurements
            .get(start..)
            .ok_or_else(|| PyIndexError::new_err("start is beyond the run"))?;
        let lot = &run.shared.lot;
        let bucket = &mut self.bucket;
        let append = |collate: Option<Collate<'_>>| bucket.append(lot, rest, &limits, collate);
        let (taken, refusal, kept_open) = collated(py, self.collate.as_ref(), append)?;
        Ok((taken, refusal.map(|refusal| refusal.name()), kept_open))
    }

    fn document<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bucket = &mut self.bucket;
        let document = py.detach(|| bucket.document())?;
        Ok(PyBytes::new(py, &document))
    }

    fn clone(&self, py: Python<'_>) -> Self {
        Self {
            bucket: self.bucket.clone(),
            collate: self.collate.as_ref().map(|collate| collate.clone_ref(py)),
        }
    }

    #[getter]
    fn count(&self) -> usize {
        self.bucket.count()
    }

    #[getter]
    fn uncommitted(&self) -> usize {
        self.bucket.pending.len()
    }

    #[getter]
    fn min_ms(&self) -> i64 {
        self.bucket.min_ms
    }

    #[getter]
    fn max_ms(&self) -> i64 {
        self.bucket.max_ms
    }

    #[getter]
    fn size_bytes(&self) -> usize {
        self.bucket.size_bytes()
    }

    #[getter]
    fn memory_bytes(&self) -> usize {
        self.bucket.memory_bytes()
    }

    #[getter]
    fn version(&self) -> i32 {
        self.bucket.version
    }

    #[getter]
    fn bucket_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bucket.id)
    }

    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.bucket.meta.as_ref().map(|meta| PyBytes::new(py, meta))
    }
}

/// The document, its fingerprint, about what the bucket takes in memory, its version.
type Written<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, usize, i32);

#[pyfunction]
fn bucket_documents<'py>(
    py: Python<'py>,
    mut builders: Vec<PyRefMut<'py, BucketBuilder>>,
) -> PyResult<Vec<Written<'py>>> {
    let buckets: Vec<&mut Bucket> = builders
        .iter_mut()
        .map(|builder| &mut builder.bucket)
        .collect();
    let written = py.detach(|| {
        let write = |bucket: &mut Bucket| {
            let document = bucket.document()?;
            let print = fingerprint_of(&document);
            Ok((document, print, bucket.memory_bytes(), bucket.version))
        };
        let all: Result<Vec<_>, crate::unpack::Failure> = buckets.into_iter().map(write).collect();
        all
    })?;
    Ok(written
        .into_iter()
        .map(|(document, print, memory, version)| {
            let document = PyBytes::new(py, &document);
            (document, PyBytes::new(py, &print), memory, version)
        })
        .collect())
}

/// What tells stored bytes from others.
fn fingerprint_of(bytes: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes()
}

#[pyfunction]
fn fingerprint<'py>(py: Python<'py>, document: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &fingerprint_of(document))
}

#[pyfunction]
#[pyo3(signature = (bucket, time_field, keep, collate = None))]
fn keep_rows<'py>(
    py: Python<'py>,
    bucket: &[u8],
    time_field: &str,
    keep: &[u8],
    collate: Option<Py<PyAny>>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let kept = collated(py, collate.as_ref(), |collate| {
        Bucket::keep_rows(bucket, time_field.as_bytes(), keep, collate)
    })?;
    Ok(kept.map(|kept| PyBytes::new(py, &kept)))
}

#[pyfunction]
#[pyo3(signature = (
    buckets, time_field, meta_field, *, rounding_ms, version, span_ms, max_count, effective_max, absolute_max, min_count,
    large_threshold = 512, collate = None
))]
#[allow(clippy::too_many_arguments)]
fn merge_buckets<'py>(
    py: Python<'py>,
    buckets: Vec<Bound<'py, PyBytes>>,
    time_field: &str,
    meta_field: Option<&str>,
    rounding_ms: i64,
    version: i32,
    span_ms: i64,
    max_count: usize,
    effective_max: usize,
    absolute_max: usize,
    min_count: usize,
    large_threshold: usize,
    collate: Option<Py<PyAny>>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let limits = Limits {
        span_ms,
        max_count,
        effective_max,
        absolute_max,
        min_count,
        large_threshold,
    };
    let raws: Vec<&[u8]> = buckets.iter().map(|bucket| bucket.as_bytes()).collect();
    let merged = collated(py, collate.as_ref(), |collate| {
        let form = Form {
            time_field: time_field.as_bytes(),
            meta_field: meta_field.map(str::as_bytes),
            rounding_ms,
            version,
            limits,
            collate,
        };
        merge(&raws, &form)
    })?;
    Ok(merged.map(|merged| PyBytes::new(py, &merged)))
}

#[pyfunction]
#[pyo3(signature = (bucket, time_field, meta_field, span_ms, rounding_ms, collate = None))]
#[allow(clippy::too_many_arguments)]
fn validate_bucket(
    py: Python<'_>,
    bucket: &[u8],
    time_field: &str,
    meta_field: Option<&str>,
    span_ms: i64,
    rounding_ms: i64,
    collate: Option<Py<PyAny>>,
) -> Vec<String> {
    let meta_field = meta_field.map(str::as_bytes);
    collated(py, collate.as_ref(), |collate| {
        let time_field = time_field.as_bytes();
        bucket_check::problems(
            bucket,
            time_field,
            meta_field,
            span_ms,
            rounding_ms,
            collate,
        )
    })
}

/// A bucket of version 3 with its measurements in the order of time; None for one of another version.
#[pyfunction]
fn bucket_in_order<'py>(
    py: Python<'py>,
    bucket: &[u8],
    time_field: &str,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let made = py.detach(|| in_order(bucket, time_field.as_bytes()))?;
    Ok(made.map(|made| PyBytes::new(py, &made)))
}

/// Add these functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Run>()?;
    module.add_class::<Partition>()?;
    module.add_class::<BucketBuilder>()?;
    module.add_function(wrap_pyfunction!(partition, module)?)?;
    module.add_function(wrap_pyfunction!(bucket_documents, module)?)?;
    module.add_function(wrap_pyfunction!(fingerprint, module)?)?;
    module.add_function(wrap_pyfunction!(keep_rows, module)?)?;
    module.add_function(wrap_pyfunction!(merge_buckets, module)?)?;
    module.add_function(wrap_pyfunction!(bucket_in_order, module)?)?;
    module.add_function(wrap_pyfunction!(validate_bucket, module)?)
}
