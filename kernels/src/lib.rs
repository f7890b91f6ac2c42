//! The edge to Python: conversions and errors, no arithmetic.
#![forbid(unsafe_code)]

use pyo3::prelude::*;

#[pymodule]
fn _native(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
