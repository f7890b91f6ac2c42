//! The edge to Python of unpacking, and of single columns.

use crate::column::{ColumnDecoder, ColumnEncoder};
use crate::unpack::{check_size, rows, summary, Failure, Wanted};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

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

/// The documents of rows, in one buffer, and where each ends.
struct Rows {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

fn collect(
    buckets: &[&[u8]],
    time_field: &str,
    meta_field: Option<&str>,
    wanted: Wanted<'_>,
) -> Result<Rows, Failure> {
    let mut found = Rows {
        bytes: Vec::new(),
        ends: Vec::new(),
    };
    for bucket in buckets {
        let (bytes, ends) = (&mut found.bytes, &mut found.ends);
        let meta_field = meta_field.map(str::as_bytes);
        rows(
            bucket,
            time_field.as_bytes(),
            meta_field,
            wanted,
            bytes,
            |end| ends.push(end),
        )?;
    }
    Ok(found)
}

/// The same on several threads, where there are many buckets; in order.
fn collect_beside(
    buckets: &[&[u8]],
    time_field: &str,
    meta_field: Option<&str>,
    wanted: Wanted<'_>,
) -> Result<Vec<Rows>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    let share = buckets.len().div_ceil(threads).max(BUCKETS_A_THREAD);
    let (own, others) = buckets.split_at(share.min(buckets.len()));
    std::thread::scope(|scope| {
        let beside: Vec<_> = others
            .chunks(share)
            .map(|part| scope.spawn(move || collect(part, time_field, meta_field, wanted)))
            .collect();
        let first = collect(own, time_field, meta_field, wanted);
        let rest = beside.into_iter().map(|part| {
            part.join()
                .unwrap_or_else(|_| Err(Failure::new(1, "unpacking failed")))
        });
        [first].into_iter().chain(rest).collect()
    })
}

fn to_list<'py>(py: Python<'py>, parts: &[Rows]) -> PyResult<Bound<'py, PyList>> {
    let mut documents = Vec::with_capacity(parts.iter().map(|part| part.ends.len()).sum());
    for part in parts {
        let mut start = 0;
        for end in &part.ends {
            let row = part.bytes.get(start..*end).unwrap_or_default();
            documents.push(PyBytes::new(py, row));
            start = *end;
        }
    }
    PyList::new(py, documents)
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
    let found = py.detach(|| collect(&[bucket], time_field, meta_field, choice))?;
    to_list(py, &[found])
}

#[pyfunction]
#[pyo3(signature = (buckets, time_field, meta_field, include = None, exclude = None))]
fn unpack_many<'py>(
    py: Python<'py>,
    buckets: Vec<Bound<'py, PyBytes>>,
    time_field: &str,
    meta_field: Option<&str>,
    include: Option<Vec<String>>,
    exclude: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyList>> {
    let choice = wanted(include.as_ref(), exclude.as_ref());
    let raw: Vec<&[u8]> = buckets.iter().map(|bucket| bucket.as_bytes()).collect();
    let found = py.detach(|| collect_beside(&raw, time_field, meta_field, choice))?;
    to_list(py, &found)
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
