//! The edge to Python: conversions and errors, no arithmetic.
#![forbid(unsafe_code)]

use pyo3::prelude::*;

mod bucket;
mod bucket_check;
mod bucket_columns;
mod bucket_edge;
mod bucket_order;
mod bucket_reopen;
mod bucket_rows;
#[cfg(test)]
mod bucket_tests;
mod checksum;
mod collation;
pub mod column;
mod columns;
mod columns_edge;
mod compare;
mod control;
mod decimal;
mod documents;
mod documents_edge;
mod elements;
mod fields_edge;
mod gather;
mod gather_edge;
mod index_edge;
mod index_keys;
mod key_values;
mod keystring;
mod lot;
mod measurement_reader;
mod merging;
mod narrow;
mod object_id;
mod open_series;
mod pack;
mod partition;
mod raw_filter;
mod rows;
mod rows_edge;
mod series_places;
mod shape;
mod special;
mod stored;
mod unpack;
mod unpack_edge;
mod validate;
mod windows;
mod windows_edge;
mod writer;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(checksum::crc32c, module)?)?;
    module.add_function(wrap_pyfunction!(shape::document_shape, module)?)?;
    module.add_function(wrap_pyfunction!(narrow::narrow_documents, module)?)?;
    module.add_class::<collation::Collator>()?;
    module.add_class::<raw_filter::RawFilter>()?;
    documents_edge::add(module)?;
    bucket_edge::add(module)?;
    open_series::add(module)?;
    columns_edge::add(module)?;
    gather_edge::add(module)?;
    rows_edge::add(module)?;
    pack::edge::add(module)?;
    unpack_edge::add(module)?;
    windows_edge::add(module)?;
    fields_edge::add(module)?;
    index_edge::add(module)?;
    special::edge::add(module)
}
