//! The edge to Python of the special indexes.

use crate::index_edge::{with_collation, Keys};
use crate::special::paths::{split, Plain};
use crate::special::wildcard::Wildcard;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Ordinary fields: path, and whether the highest value comes first.
pub type Fields = Vec<(String, bool)>;

pub fn plain(fields: &Fields) -> Vec<Plain> {
    fields
        .iter()
        .map(|(path, descending)| Plain::new(path, *descending))
        .collect()
}

pub fn reply<'py>(py: Python<'py>, keys: &[Vec<u8>], arrays: Option<Vec<Vec<usize>>>) -> Keys<'py> {
    (
        keys.iter().map(|key| PyBytes::new(py, key)).collect(),
        arrays,
    )
}

/// The keys of one wildcard index.
#[pyclass(frozen, module = "bucketd.kernels._native")]
struct WildcardKeyMaker {
    wildcard: Wildcard,
    position: usize,
    fields: usize,
}

#[pymethods]
impl WildcardKeyMaker {
    #[new]
    fn new(
        before: Fields,
        behind: Fields,
        scope: &str,
        descending: bool,
        projection: Vec<(String, bool)>,
        others: bool,
    ) -> Self {
        let scope = if scope.is_empty() {
            Vec::new()
        } else {
            split(scope)
        };
        WildcardKeyMaker {
            position: before.len(),
            fields: before.len() + 1 + behind.len(),
            wildcard: Wildcard::new(
                plain(&before),
                plain(&behind),
                scope,
                descending,
                &projection,
                others,
            ),
        }
    }

    #[pyo3(signature = (document, collate = None))]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        document: &[u8],
        collate: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Keys<'py>> {
        let (keys, in_array) =
            with_collation(collate, |collate| self.wildcard.keys(document, collate))?;
        let arrays = in_array.then(|| {
            let mut arrays = vec![Vec::new(); self.fields];
            arrays[self.position].push(1);
            arrays
        });
        Ok(reply(py, &keys, arrays))
    }
}

/// Add these classes to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<WildcardKeyMaker>()?;
    crate::special::geo_edge::add(module)?;
    crate::special::text_edge::add(module)
}
