//! The edge to Python: conversions and errors, no arithmetic.
#![forbid(unsafe_code)]

use pyo3::prelude::*;

mod checksum;
pub mod column;
mod decimal;
mod elements;
mod index_edge;
mod index_keys;
mod keystring;
mod shape;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(checksum::crc32c, module)?)?;
    module.add_function(wrap_pyfunction!(shape::document_shape, module)?)?;
    index_edge::add(module)
}
