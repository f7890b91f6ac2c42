//! The edge to Python of rows on their way into a reply.

use crate::rows::{heads_bytes, write_elements, Block, Piece};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView};

/// From this size on bytes are handed over rather than copied.
const HANDED_OVER_BYTES: usize = 64 * 1024;
/// What the place of a row in an array takes at most, about.
const HEAD_BYTES: usize = 12;

/// Some rows. They are immutable, so several threads may look at them.
#[pyclass(frozen, module = "bucketd.kernels._native", name = "RowBlock")]
pub struct RowBlock {
    block: Block,
}

impl RowBlock {
    /// The rows of a block.
    pub fn new(block: Block) -> Self {
        Self { block }
    }

    /// The rows.
    pub fn block(&self) -> &Block {
        &self.block
    }
}

#[pymethods]
impl RowBlock {
    fn __len__(&self) -> usize {
        self.block.len()
    }

    #[pyo3(signature = (start = 0, stop = None))]
    fn raws<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        stop: Option<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        let stop = stop.unwrap_or(usize::MAX).min(self.block.len());
        let mut documents = Vec::with_capacity(stop.saturating_sub(start));
        self.block.documents(start..stop.max(start), |row| {
            documents.push(PyBytes::new(py, row));
        });
        PyList::new(py, documents)
    }

    fn select(&self, py: Python<'_>, positions: PyReadonlyArray1<'_, i64>) -> PyResult<Self> {
        let positions: Vec<i64> = positions.as_array().iter().copied().collect();
        let chosen = py.detach(|| self.block.select(&positions));
        let chosen =
            chosen.ok_or_else(|| PyIndexError::new_err("a position is beyond the rows"))?;
        Ok(Self::new(chosen))
    }
}

enum Held {
    Block(Py<RowBlock>, usize, usize),
    Raws(Vec<Py<PyBytes>>),
}

#[derive(FromPyObject)]
enum Given<'py> {
    Block(Bound<'py, RowBlock>),
    Raws(Vec<Bound<'py, PyBytes>>),
}

/// Rows for one reply, up to a size.
#[pyclass(module = "bucketd.kernels._native", name = "RowArray")]
struct RowArray {
    bytes_max: usize,
    held: Vec<Held>,
    count: usize,
    bytes: usize,
}

impl RowArray {
    /// Takes rows whose sizes `before` tells, as far as there is room; returns up to where.
    fn fit(&mut self, start: usize, stop: usize, before: impl Fn(usize) -> usize) -> usize {
        let first = before(start);
        let room = |next: usize| {
            let own = before(next) - first + (next - start) * HEAD_BYTES;
            self.bytes + self.count * HEAD_BYTES + own <= self.bytes_max.saturating_add(HEAD_BYTES)
        };
        // Rows that follow each other are looked for by halves.
        let (mut fits, mut beyond) = (start, stop + 1);
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if room(middle) {
                fits = middle;
            } else {
                beyond = middle;
            }
        }
        if fits == start && self.count == 0 && stop > start {
            // The first is taken however large it is.
            fits = start + 1;
        }
        self.count += fits - start;
        self.bytes += before(fits) - first;
        fits
    }
}

#[pymethods]
impl RowArray {
    #[new]
    #[pyo3(signature = (bytes_max = usize::MAX))]
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            held: Vec::new(),
            count: 0,
            bytes: 0,
        }
    }

    fn __len__(&self) -> usize {
        self.count
    }

    #[getter]
    fn elements_bytes(&self) -> usize {
        self.bytes + heads_bytes(self.count)
    }

    fn take(&mut self, rows: Given<'_>, start: usize, stop: usize) -> PyResult<usize> {
        let length = match &rows {
            Given::Block(block) => block.get().block.len(),
            Given::Raws(raws) => raws.len(),
        };
        if start > stop || stop > length {
            return Err(PyIndexError::new_err("there are no such rows"));
        }
        let reached = match rows {
            Given::Block(block) => {
                let reached = self.fit(start, stop, |row| block.get().block.before(row));
                self.held.push(Held::Block(block.unbind(), start, reached));
                reached
            }
            Given::Raws(raws) => {
                let mut total = 0;
                let mut ends = Vec::with_capacity(raws.len() + 1);
                ends.push(0);
                for raw in &raws {
                    total += raw.as_bytes().len();
                    ends.push(total);
                }
                let reached = self.fit(start, stop, |row| ends.get(row).copied().unwrap_or(total));
                let taken = raws.into_iter().skip(start).take(reached - start);
                self.held
                    .push(Held::Raws(taken.map(Bound::unbind).collect()));
                reached
            }
        };
        Ok(reached - start)
    }

    fn raws<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut documents = Vec::with_capacity(self.count);
        for held in &self.held {
            match held {
                Held::Block(block, start, stop) => {
                    block.get().block.documents(*start..*stop, |row| {
                        documents.push(PyBytes::new(py, row));
                    });
                }
                Held::Raws(raws) => documents.extend(raws.iter().map(|raw| raw.bind(py).clone())),
            }
        }
        PyList::new(py, documents)
    }

    fn write<'py>(
        &self,
        py: Python<'py>,
        before: &[u8],
        after: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        let pieces: Vec<Piece<'_>> = self
            .held
            .iter()
            .map(|held| match held {
                Held::Block(block, start, stop) => Piece::Block(&block.get().block, *start..*stop),
                Held::Raws(raws) => {
                    Piece::Documents(raws.iter().map(|raw| raw.as_bytes(py)).collect())
                }
            })
            .collect();
        let size = before.len() + self.elements_bytes() + after.len();
        let out = py.detach(|| {
            let mut out = Vec::with_capacity(size);
            out.extend_from_slice(before);
            write_elements(&pieces, &mut out);
            out.extend_from_slice(after);
            out
        });
        debug_assert_eq!(out.len(), size);
        if out.len() < HANDED_OVER_BYTES {
            return Ok(PyBytes::new(py, &out).into_any());
        }
        let array = PyArray1::from_vec(py, out);
        Ok(PyMemoryView::from(&array)?.into_any())
    }
}

/// Add these classes to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RowBlock>()?;
    module.add_class::<RowArray>()
}
