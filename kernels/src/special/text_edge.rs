//! The edge to Python of text indexes.

use crate::index_edge::Keys;
use crate::keystring::Failure;
use crate::special::edge::{plain, reply, Fields};
use crate::special::language::{language, Language};
use crate::special::text_keys::TextKeys;
use crate::special::text_search::TextSearch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

fn known(name: &str) -> PyResult<&'static Language> {
    language(name).ok_or_else(|| PyValueError::new_err(format!("unknown language {name}")))
}

/// The keys of one text index.
#[pyclass(frozen, module = "bucketd.kernels._native")]
struct TextKeyMaker {
    keys: TextKeys,
    position: usize,
    fields: usize,
}

#[pymethods]
impl TextKeyMaker {
    #[new]
    #[pyo3(signature = (before, behind, weights, others, default_language, language_field))]
    fn new(
        before: Fields,
        behind: Fields,
        weights: Vec<(String, f64)>,
        others: Option<f64>,
        default_language: &str,
        language_field: &str,
    ) -> PyResult<Self> {
        Ok(TextKeyMaker {
            position: before.len(),
            fields: before.len() + 2 + behind.len(),
            keys: TextKeys {
                before: plain(&before),
                behind: plain(&behind),
                weights: weights
                    .into_iter()
                    .map(|(path, weight)| (path.into_bytes(), weight))
                    .collect(),
                others,
                default_language: known(default_language)?,
                language_field: language_field.as_bytes().to_vec(),
            },
        })
    }

    #[pyo3(signature = (document, collate = None))]
    #[allow(unused_variables)]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        document: &[u8],
        collate: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Keys<'py>> {
        let keys = self.keys.keys(document)?;
        let arrays = (keys.len() > 1).then(|| {
            let mut arrays = vec![Vec::new(); self.fields];
            arrays[self.position].push(1);
            arrays
        });
        Ok(reply(py, &keys, arrays))
    }
}

/// One search in a text index.
#[pyclass(frozen, module = "bucketd.kernels._native", name = "TextSearch")]
struct PyTextSearch {
    maker: Py<TextKeyMaker>,
    search: TextSearch,
}

#[pymethods]
impl PyTextSearch {
    #[new]
    fn new(
        maker: Py<TextKeyMaker>,
        search: &str,
        language: &str,
        case_sensitive: bool,
        diacritic_sensitive: bool,
    ) -> PyResult<Self> {
        Ok(PyTextSearch {
            maker,
            search: TextSearch::parse(
                search,
                known(language)?,
                case_sensitive,
                diacritic_sensitive,
            ),
        })
    }

    #[getter]
    fn terms(&self) -> Vec<&str> {
        self.search.terms.iter().map(String::as_str).collect()
    }

    #[getter]
    fn negated(&self) -> Vec<&str> {
        self.search.negated.iter().map(String::as_str).collect()
    }

    #[getter]
    fn phrases(&self) -> Vec<&str> {
        self.search.phrases.iter().map(String::as_str).collect()
    }

    #[getter]
    fn negated_phrases(&self) -> Vec<&str> {
        let phrases = &self.search.negated_phrases;
        phrases.iter().map(String::as_str).collect()
    }

    fn scores(&self, documents: Vec<PyBackedBytes>) -> PyResult<Vec<Option<f64>>> {
        let keys = &self.maker.get().keys;
        let scored: Result<Vec<_>, Failure> = documents
            .iter()
            .map(|document| self.search.score(keys, document))
            .collect();
        Ok(scored?)
    }
}

/// Add these classes to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TextKeyMaker>()?;
    module.add_class::<PyTextSearch>()
}
