//! The outline of a document: how many fields it has and how deeply it nests, without decoding a value.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::elements::kind::{ARRAY, OBJECT};
use crate::elements::{elements, Malformed};

/// Number of top-level fields, and levels of nesting: 1 for a document without documents or arrays in it.
///
/// The walk ends at `depth_max + 1` levels, however many more there are.
pub fn shape(document: &[u8], depth_max: usize) -> Result<(usize, usize), Malformed> {
    let mut fields = 0;
    let mut depth = 1;
    for element in elements(document)? {
        let element = element?;
        fields += 1;
        if element.kind == OBJECT || element.kind == ARRAY {
            depth = depth.max(1 + depth_of(element.value, depth_max)?);
        }
    }
    Ok((fields, depth))
}

fn depth_of(document: &[u8], left: usize) -> Result<usize, Malformed> {
    if left == 0 {
        return Ok(1);
    }
    let mut depth = 1;
    for element in elements(document)? {
        let element = element?;
        if element.kind == OBJECT || element.kind == ARRAY {
            depth = depth.max(1 + depth_of(element.value, left - 1)?);
        }
    }
    Ok(depth)
}

/// See `shape`.
#[pyfunction]
pub fn document_shape(document: &[u8], depth_max: usize) -> PyResult<(usize, usize)> {
    shape(document, depth_max.min(1000)).map_err(|error| PyValueError::new_err(error.0))
}

#[cfg(test)]
mod tests {
    use super::shape;

    fn nested(levels: usize) -> Vec<u8> {
        let mut document = vec![5, 0, 0, 0, 0];
        for _ in 1..levels {
            let mut outer = ((document.len() + 8) as i32).to_le_bytes().to_vec();
            outer.extend_from_slice(b"\x03a\0");
            outer.extend_from_slice(&document);
            outer.push(0);
            document = outer;
        }
        document
    }

    #[test]
    fn counts_levels_up_to_the_limit() {
        assert_eq!(shape(&nested(1), 200).unwrap(), (0, 1));
        assert_eq!(shape(&nested(7), 200).unwrap(), (1, 7));
        assert_eq!(shape(&nested(200), 200).unwrap(), (1, 200));
        assert_eq!(shape(&nested(201), 200).unwrap(), (1, 201));
        assert!(shape(&nested(5000), 200).unwrap().1 > 200);
    }

    #[test]
    fn refuses_what_is_no_document() {
        for bytes in [&b""[..], &b"\x05\0\0\0"[..], &b"\xff\xff\xff\x7f\0"[..]] {
            assert!(shape(bytes, 200).is_err());
        }
    }
}
