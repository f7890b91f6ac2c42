//! The edge to Python of raw documents and values.

use crate::elements::{self, Malformed};
use crate::{compare, documents, object_id, validate};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

impl From<Malformed> for PyErr {
    fn from(malformed: Malformed) -> Self {
        PyValueError::new_err(malformed.0)
    }
}

#[pyfunction]
#[pyo3(signature = (document, depth_max = validate::DEPTH_MAX))]
fn validate_document(document: &[u8], depth_max: usize) -> PyResult<()> {
    Ok(validate::validate(document, depth_max.min(1000))?)
}

fn to_list<'py>(py: Python<'py>, documents: &[&[u8]]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(
        py,
        documents.iter().map(|document| PyBytes::new(py, document)),
    )
}

#[pyfunction]
fn split_documents<'py>(py: Python<'py>, buffer: &[u8]) -> PyResult<Bound<'py, PyList>> {
    to_list(py, &documents::split(buffer)?)
}

#[pyfunction]
fn array_to_documents<'py>(py: Python<'py>, array: &[u8]) -> PyResult<Bound<'py, PyList>> {
    to_list(py, &documents::of_array(array)?)
}

#[pyfunction]
fn concat_array<'py>(
    py: Python<'py>,
    documents: Vec<Bound<'py, PyBytes>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let documents: Vec<&[u8]> = documents
        .iter()
        .map(|document| document.as_bytes())
        .collect();
    Ok(PyBytes::new(py, &documents::to_array(&documents)))
}

#[pyfunction]
fn find_field<'py>(
    py: Python<'py>,
    document: &[u8],
    name: &str,
) -> PyResult<Option<(u8, Bound<'py, PyBytes>)>> {
    let found = elements::find(document, name.as_bytes())?;
    Ok(found.map(|element| (element.kind, PyBytes::new(py, element.value))))
}

#[pyfunction]
fn with_id<'py>(py: Python<'py>, document: Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(match documents::with_id(document.as_bytes())? {
        Some(changed) => PyBytes::new(py, &changed),
        None => document,
    })
}

#[pyfunction]
fn compare_values(left: &[u8], right: &[u8]) -> PyResult<i8> {
    let (Some(left), Some(right)) = (left.split_first(), right.split_first()) else {
        return Err(PyValueError::new_err("a value has no type byte"));
    };
    for (type_byte, value) in [left, right] {
        if elements::value_length(*type_byte, value)? != value.len() {
            return Err(PyValueError::new_err("a value's length is wrong"));
        }
        validate::check_value(*type_byte, value, validate::DEPTH_MAX)?;
    }
    Ok(compare::compare((*left.0, left.1), (*right.0, right.1))? as i8)
}

#[pyfunction]
fn new_object_id(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &object_id::generate(object_id::now_seconds()))
}

#[pyfunction]
fn set_object_id_clock(stopped_at_ms: Option<i64>, ahead_ms: i64) {
    object_id::set_clock(stopped_at_ms, ahead_ms);
}

/// Add these functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(validate_document, module)?)?;
    module.add_function(wrap_pyfunction!(split_documents, module)?)?;
    module.add_function(wrap_pyfunction!(array_to_documents, module)?)?;
    module.add_function(wrap_pyfunction!(concat_array, module)?)?;
    module.add_function(wrap_pyfunction!(find_field, module)?)?;
    module.add_function(wrap_pyfunction!(with_id, module)?)?;
    module.add_function(wrap_pyfunction!(compare_values, module)?)?;
    module.add_function(wrap_pyfunction!(new_object_id, module)?)?;
    module.add_function(wrap_pyfunction!(set_object_id_clock, module)?)
}
