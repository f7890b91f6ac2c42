//! The edge to Python of KeyStrings and index keys.

use crate::elements::find;
use crate::index_keys::{row_document, ArrayComponents, KeyPattern};
use crate::key_values::KeyReader;
use crate::keystring::{self, capped, of_values, Failure, LONG_KEY_BYTES, LONG_KEY_PREFIX};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

create_exception!(
    _native,
    ParallelArrays,
    PyValueError,
    "Two paths of an index lead to different arrays."
);
create_exception!(
    _native,
    AmbiguousPath,
    PyValueError,
    "A number in a path is both a position and a field name."
);

create_exception!(
    _native,
    IndexRefused,
    PyValueError,
    "A document that an index cannot hold; `args` are MongoDB's code and the message."
);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Malformed(why) => PyValueError::new_err(why),
            Failure::Collation(why) => PyValueError::new_err(why),
            Failure::Refused(code, why) => IndexRefused::new_err((code, why)),
            Failure::ParallelArrays(later, earlier) => ParallelArrays::new_err(format!(
                "cannot index parallel arrays [{later}] [{earlier}]"
            )),
            Failure::Ambiguous(field) => AmbiguousPath::new_err(format!(
                "Ambiguous field name found in array (do not use numeric field names in embedded elements in an array), \
                 field: '{field}'"
            )),
        }
    }
}

/// Call `body` with the sort keys of a Python function, or with none.
pub fn with_collation<T>(
    collate: Option<&Bound<'_, PyAny>>,
    body: impl FnOnce(Option<keystring::Collate<'_>>) -> Result<T, Failure>,
) -> PyResult<T> {
    let Some(function) = collate else {
        return Ok(body(None)?);
    };
    let call = |text: &str| {
        function
            .call1((text,))
            .and_then(|key| key.extract::<Vec<u8>>())
            .map_err(|error| Failure::Collation(error.to_string()))
    };
    Ok(body(Some(&call))?)
}

fn mask(descending: &[bool]) -> u64 {
    descending
        .iter()
        .take(64)
        .enumerate()
        .fold(0, |mask, (bit, &set)| mask | (u64::from(set) << bit))
}

#[pyfunction]
#[pyo3(signature = (values, descending = Vec::new(), collate = None))]
fn key_string<'py>(
    py: Python<'py>,
    values: &[u8],
    descending: Vec<bool>,
    collate: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let key = with_collation(collate, |collate| {
        of_values(values, mask(&descending), collate)
    })?;
    Ok(PyBytes::new(py, &key))
}

#[pyfunction]
fn cap_key<'py>(py: Python<'py>, key: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &capped(key.to_vec()))
}

#[pyfunction]
#[pyo3(signature = (document, collate = None))]
fn key_of_id<'py>(
    py: Python<'py>,
    document: &[u8],
    collate: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let identity = find(document, b"_id")
        .map_err(Failure::from)?
        .ok_or_else(|| PyValueError::new_err("the document has no _id"))?;
    let key = with_collation(collate, |collate| {
        let mut key = Vec::with_capacity(16);
        keystring::append(&mut key, identity, false, collate)?;
        Ok(capped(key))
    })?;
    Ok(PyBytes::new(py, &key))
}

pub type Keys<'py> = (Vec<Bound<'py, PyBytes>>, Option<ArrayComponents>);

/// The keys of one index, its paths prepared.
#[pyclass(frozen, module = "bucketd.kernels._native")]
struct IndexKeyMaker {
    paths: Vec<String>,
    pattern: KeyPattern,
}

#[pymethods]
impl IndexKeyMaker {
    #[new]
    #[pyo3(signature = (paths, descending, sparse = false, hashed = None))]
    fn new(
        paths: Vec<String>,
        descending: Vec<bool>,
        sparse: bool,
        hashed: Option<usize>,
    ) -> PyResult<Self> {
        if descending.len() != paths.len() {
            return Err(PyValueError::new_err("one direction for each path"));
        }
        if paths.is_empty() || paths.len() > 64 {
            return Err(PyValueError::new_err("an index has 1 to 64 paths"));
        }
        let pattern = KeyPattern::new(&paths, &descending, sparse, hashed);
        Ok(IndexKeyMaker { paths, pattern })
    }

    #[pyo3(signature = (document, collate = None))]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        document: &[u8],
        collate: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Keys<'py>> {
        let (keys, arrays) =
            with_collation(collate, |collate| self.pattern.keys(document, collate))?;
        let keys = keys.iter().map(|key| PyBytes::new(py, key)).collect();
        let multikey = arrays.iter().any(|components| !components.is_empty());
        Ok((keys, multikey.then_some(arrays)))
    }

    #[allow(clippy::type_complexity)]
    fn typed_keys<'py>(
        &self,
        py: Python<'py>,
        document: &[u8],
    ) -> PyResult<(
        Vec<Bound<'py, PyBytes>>,
        Option<ArrayComponents>,
        Bound<'py, PyBytes>,
    )> {
        let (keys, arrays, types) = self.pattern.typed_keys(document, None, true)?;
        let keys = keys.iter().map(|key| PyBytes::new(py, key)).collect();
        let multikey = arrays.iter().any(|components| !components.is_empty());
        Ok((keys, multikey.then_some(arrays), PyBytes::new(py, &types)))
    }

    #[pyo3(signature = (document, collate = None))]
    #[allow(clippy::type_complexity)]
    fn rows<'py>(
        &self,
        py: Python<'py>,
        document: &[u8],
        collate: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let rows = with_collation(collate, |collate| {
            let (rows, _) = self.pattern.rows(document)?;
            rows.iter()
                .map(|row| {
                    Ok((
                        self.pattern.key(row, collate)?,
                        row_document(&self.paths, row),
                    ))
                })
                .collect::<Result<Vec<_>, Failure>>()
        })?;
        Ok(rows
            .iter()
            .map(|(key, values)| (PyBytes::new(py, key), PyBytes::new(py, values)))
            .collect())
    }
}

/// Turns entries of one index back into documents of some of its paths.
#[pyclass(frozen, module = "bucketd.kernels._native")]
struct IndexEntryReader {
    reader: KeyReader,
}

#[pymethods]
impl IndexEntryReader {
    #[new]
    fn new(paths: Vec<String>, descending: Vec<bool>, wanted: Vec<bool>) -> PyResult<Self> {
        if descending.len() != paths.len() || wanted.len() != paths.len() {
            return Err(PyValueError::new_err(
                "one direction and one wish for each path",
            ));
        }
        let told: Vec<&String> = paths
            .iter()
            .zip(&wanted)
            .filter_map(|(path, &wanted)| wanted.then_some(path))
            .collect();
        for (position, path) in told.iter().enumerate() {
            for (at, other) in told.iter().enumerate() {
                let below = other
                    .strip_prefix(path.as_str())
                    .is_some_and(|rest| rest.starts_with('.') || rest.is_empty());
                if at != position && below {
                    return Err(PyValueError::new_err("one path lies below another"));
                }
            }
        }
        Ok(IndexEntryReader {
            reader: KeyReader::new(&paths, &descending, &wanted),
        })
    }

    fn documents<'py>(
        &self,
        py: Python<'py>,
        entries: Vec<(PyBackedBytes, PyBackedBytes)>,
    ) -> Vec<Option<Bound<'py, PyBytes>>> {
        entries
            .iter()
            .map(|(key, types)| {
                let document = self.reader.document(key, types)?;
                Some(PyBytes::new(py, &document))
            })
            .collect()
    }
}

#[pyfunction]
#[pyo3(signature = (document, paths, descending, sparse = false, collate = None))]
fn index_keys<'py>(
    py: Python<'py>,
    document: &[u8],
    paths: Vec<String>,
    descending: Vec<bool>,
    sparse: bool,
    collate: Option<&Bound<'py, PyAny>>,
) -> PyResult<Keys<'py>> {
    IndexKeyMaker::new(paths, descending, sparse, None)?.keys(py, document, collate)
}

#[pyfunction]
fn key_hash(key: &[u8]) -> u64 {
    keystring::hash_of(key)
}

/// Add these functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("ParallelArrays", py.get_type::<ParallelArrays>())?;
    module.add("AmbiguousPath", py.get_type::<AmbiguousPath>())?;
    module.add("IndexRefused", py.get_type::<IndexRefused>())?;
    module.add("LONG_KEY_PREFIX", LONG_KEY_PREFIX)?;
    module.add("LONG_KEY_BYTES", LONG_KEY_BYTES)?;
    module.add_class::<IndexKeyMaker>()?;
    module.add_class::<IndexEntryReader>()?;
    module.add_function(wrap_pyfunction!(key_string, module)?)?;
    module.add_function(wrap_pyfunction!(cap_key, module)?)?;
    module.add_function(wrap_pyfunction!(key_hash, module)?)?;
    module.add_function(wrap_pyfunction!(key_of_id, module)?)?;
    module.add_function(wrap_pyfunction!(index_keys, module)?)
}
