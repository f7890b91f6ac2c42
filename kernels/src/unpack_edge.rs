//! The edge to Python of unpacking, and of single columns.

use crate::bucket_rows::BucketRows;
use crate::column::{ColumnDecoder, ColumnEncoder};
use crate::pack::edge::Given;
use crate::pack::BucketSource;
use crate::rows::{Block, Part};
use crate::rows_edge::RowBlock;
use crate::unpack::{check_size, summary, Failure, Wanted};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::sync::Arc;

create_exception!(
    _native,
    BucketError,
    PyValueError,
    "A bucket document that cannot be unpacked; args are MongoDB's code and the message."
);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        BucketError::new_err((failure.code, failure.message))
    }
}

/// Below this a thread costs more than it saves.
const BUCKETS_A_THREAD: usize = 8;

fn open(
    buckets: &[BucketSource<'_>],
    time_field: &str,
    meta_field: Option<&str>,
    wanted: Wanted<'_>,
) -> Result<Vec<BucketRows>, Failure> {
    let meta_field = meta_field.map(str::as_bytes);
    let mut bytes = 0;
    let open = |bucket: &BucketSource<'_>| {
        let rows = BucketRows::open(*bucket, time_field.as_bytes(), meta_field, wanted)?;
        bytes += rows.before(rows.len());
        check_size(bytes)?;
        Ok(rows)
    };
    buckets.iter().map(open).collect()
}

/// The same on several threads, where there are many buckets; in order.
fn open_beside(
    buckets: &[BucketSource<'_>],
    time_field: &str,
    meta_field: Option<&str>,
    wanted: Wanted<'_>,
) -> Result<Block, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    let share = buckets.len().div_ceil(threads).max(BUCKETS_A_THREAD);
    let (own, others) = buckets.split_at(share.min(buckets.len()));
    let parts: Result<Vec<_>, Failure> = std::thread::scope(|scope| {
        let beside: Vec<_> = others
            .chunks(share)
            .map(|part| scope.spawn(move || open(part, time_field, meta_field, wanted)))
            .collect();
        let first = open(own, time_field, meta_field, wanted);
        let rest = beside.into_iter().map(|part| {
            part.join()
                .unwrap_or_else(|_| Err(Failure::new(1, "unpacking failed")))
        });
        [first].into_iter().chain(rest).collect()
    });
    let rows = parts?.into_iter().flatten().map(Arc::new);
    Ok(Block::of(rows.map(Part::Bucket)))
}

fn wanted<'a>(include: Option<&'a Vec<String>>, exclude: Option<&'a Vec<String>>) -> Wanted<'a> {
    match (include, exclude) {
        (Some(names), _) => Wanted::Include(names),
        (None, Some(names)) => Wanted::Exclude(names),
        (None, None) => Wanted::Exclude(&[]),
    }
}

#[pyfunction]
#[pyo3(signature = (bucket, time_field, meta_field, include = None, exclude = None))]
fn unpack_rows<'py>(
    py: Python<'py>,
    bucket: &[u8],
    time_field: &str,
    meta_field: Option<&str>,
    include: Option<Vec<String>>,
    exclude: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyList>> {
    let choice = wanted(include.as_ref(), exclude.as_ref());
    let block = py.detach(|| {
        open_beside(
            &[BucketSource::Stored(bucket)],
            time_field,
            meta_field,
            choice,
        )
    })?;
    let mut documents = Vec::with_capacity(block.len());
    block.documents(0..block.len(), |row| documents.push(PyBytes::new(py, row)));
    PyList::new(py, documents)
}

#[pyfunction]
#[pyo3(signature = (buckets, time_field, meta_field, include = None, exclude = None))]
fn unpack_many(
    py: Python<'_>,
    buckets: Given<'_>,
    time_field: &str,
    meta_field: Option<&str>,
    include: Option<Vec<String>>,
    exclude: Option<Vec<String>>,
) -> PyResult<RowBlock> {
    let choice = wanted(include.as_ref(), exclude.as_ref());
    let sources = buckets.sources();
    let block = py.detach(|| open_beside(&sources, time_field, meta_field, choice))?;
    Ok(RowBlock::new(block))
}

#[pyfunction]
fn bucket_summary(bucket: &[u8], time_field: &str) -> PyResult<(usize, i32, bool, i64, i64)> {
    let found = summary(bucket, time_field.as_bytes())?;
    Ok((
        found.count,
        found.version,
        found.closed,
        found.min_ms,
        found.max_ms,
    ))
}

#[pyfunction]
fn column_decode<'py>(
    py: Python<'py>,
    column: &[u8],
    entries_max: usize,
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    let mut entries = Vec::new();
    let mut size = 0;
    for entry in ColumnDecoder::new(column, entries_max) {
        let entry = entry.map_err(|error| PyValueError::new_err(error.to_string()))?;
        size += entry.as_ref().map_or(0, |value| value.bytes().len());
        check_size(size)?;
        entries.push(entry.map(|value| {
            let mut bytes = vec![value.kind()];
            bytes.extend_from_slice(value.bytes());
            PyBytes::new(py, &bytes)
        }));
    }
    Ok(entries)
}

#[pyfunction]
fn column_encode<'py>(
    py: Python<'py>,
    values: Vec<Option<Bound<'py, PyBytes>>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut encoder = ColumnEncoder::new();
    for value in &values {
        let appended = match value {
            None => encoder.append_missing(),
            Some(value) => match value.as_bytes().split_first() {
                Some((kind, bytes)) => encoder.append(*kind, bytes),
                None => return Err(PyValueError::new_err("a value has no type byte")),
            },
        };
        appended.map_err(|error| PyValueError::new_err(error.to_string()))?;
    }
    let column = encoder
        .finish()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &column))
}

/// Add these functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("BucketError", module.py().get_type::<BucketError>())?;
    module.add_function(wrap_pyfunction!(unpack_rows, module)?)?;
    module.add_function(wrap_pyfunction!(unpack_many, module)?)?;
    module.add_function(wrap_pyfunction!(bucket_summary, module)?)?;
    module.add_function(wrap_pyfunction!(column_decode, module)?)?;
    module.add_function(wrap_pyfunction!(column_encode, module)?)
}
