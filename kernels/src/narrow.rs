//! Documents without the fields that nobody reads.

use crate::elements::{elements, Malformed};
use crate::writer::{begin, element, end};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// A document with those of its fields that have one of these names.
fn narrow(document: &[u8], names: &[Vec<u8>]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(64);
    let begun = begin(&mut out);
    for field in elements(document)? {
        let field = field?;
        if names.iter().any(|name| name == field.name) {
            element(&mut out, field.kind, field.name, field.value);
        }
    }
    end(&mut out, begun);
    Ok(out)
}

#[pyfunction]
pub fn narrow_documents<'py>(
    py: Python<'py>,
    documents: Vec<PyBackedBytes>,
    names: Vec<String>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let names: Vec<Vec<u8>> = names.into_iter().map(String::into_bytes).collect();
    documents
        .iter()
        .map(|document| {
            let kept = narrow(document, &names).map_err(|error| PyValueError::new_err(error.0))?;
            Ok(PyBytes::new(py, &kept))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::narrow;

    #[test]
    fn keeps_what_is_named_in_its_order() {
        let document = b"\x1a\0\0\0\x10a\0\x01\0\0\0\x0ab\0\x10c\0\x02\0\0\0\0";
        let document = [&[document.len() as u8], &document[1..]].concat();
        let names = [b"c".to_vec(), b"b".to_vec(), b"x".to_vec()];
        let expected = b"\x0f\0\0\0\x0ab\0\x10c\0\x02\0\0\0\0";
        assert_eq!(narrow(&document, &names).as_deref(), Ok(&expected[..]));
        assert_eq!(narrow(&document, &[]).as_deref(), Ok(&b"\x05\0\0\0\0"[..]));
        assert!(narrow(&document[..9], &names).is_err());
    }
}
