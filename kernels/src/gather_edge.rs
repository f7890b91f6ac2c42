//! The edge to Python of what `$group` gathers of columns.

use crate::elements::kind;
use crate::gather::{
    add_doubles, add_spread, add_whole, extremes_of_doubles, extremes_of_whole, within, Extreme,
    Span, Spread, Sum,
};
use crate::pack::edge::BucketTotals;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::cmp::Ordering;

type Numbers<'py> = PyReadonlyArray1<'py, i64>;
type Presence<'py> = Option<PyReadonlyArray1<'py, bool>>;

/// Runs of rows, of which none leaves the rows or names a slot that is not there.
#[pyclass(frozen, module = "bucketd.kernels._native")]
struct GroupRuns {
    spans: Vec<Span>,
    rows: usize,
    groups: usize,
}

#[pymethods]
impl GroupRuns {
    #[new]
    fn new(
        rows: usize,
        groups: usize,
        starts: Numbers<'_>,
        stops: Numbers<'_>,
        slots: Numbers<'_>,
    ) -> PyResult<Self> {
        let (starts, stops, slots) = (starts.as_slice()?, stops.as_slice()?, slots.as_slice()?);
        if starts.len() != stops.len() || starts.len() != slots.len() {
            return Err(PyValueError::new_err("runs of different number"));
        }
        let wrong = || PyValueError::new_err("a run outside of the rows or groups");
        let spans = starts
            .iter()
            .zip(stops)
            .zip(slots)
            .map(|((start, stop), slot)| {
                let span = Span {
                    start: usize::try_from(*start).map_err(|_| wrong())?,
                    stop: usize::try_from(*stop).map_err(|_| wrong())?,
                    slot: usize::try_from(*slot).map_err(|_| wrong())?,
                };
                let right = span.start <= span.stop && span.stop <= rows && span.slot < groups;
                right.then_some(span).ok_or_else(wrong)
            })
            .collect::<PyResult<_>>()?;
        Ok(Self {
            spans,
            rows,
            groups,
        })
    }
}

/// What one column gives to the states of groups.
struct Input<'a, T> {
    values: &'a [T],
    present: Option<&'a [bool]>,
}

impl GroupRuns {
    /// The values and their presence, of as many rows as there are; there are as many states as groups then.
    fn input<'a, S: Clone + Default, T: numpy::Element>(
        &self,
        states: &mut Vec<S>,
        values: &'a PyReadonlyArray1<'_, T>,
        present: &'a Presence<'_>,
    ) -> PyResult<Input<'a, T>> {
        let values = values.as_slice()?;
        let present = present.as_ref().map(|mask| mask.as_slice()).transpose()?;
        if values.len() != self.rows || present.is_some_and(|present| present.len() != self.rows) {
            return Err(PyValueError::new_err("a column of another number of rows"));
        }
        grow(states, self.groups);
        Ok(Input { values, present })
    }
}

fn grow<T: Clone + Default>(states: &mut Vec<T>, groups: usize) {
    if states.len() < groups {
        states.resize(groups, T::default());
    }
}

/// The sums of groups.
#[pyclass(module = "bucketd.kernels._native")]
#[derive(Default)]
struct GroupSums {
    sums: Vec<Sum>,
}

type Kept = (String, bool, Vec<f64>, f64, bool, u64);
type Found<'py> = (
    Bound<'py, PyArray1<u8>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<f64>>,
);
type Results<'py> = (
    Bound<'py, PyArray1<u8>>,
    Vec<i128>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<u64>>,
);

#[pymethods]
impl GroupSums {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[pyo3(signature = (runs, wide, values, present))]
    fn add_whole(
        &mut self,
        py: Python<'_>,
        runs: &GroupRuns,
        wide: bool,
        values: Numbers<'_>,
        present: Presence<'_>,
    ) -> PyResult<()> {
        let sums = &mut self.sums;
        let input = runs.input(sums, &values, &present)?;
        py.detach(|| add_whole(sums, input.values, input.present, &runs.spans, wide));
        Ok(())
    }

    #[pyo3(signature = (runs, values, present))]
    fn add_doubles(
        &mut self,
        py: Python<'_>,
        runs: &GroupRuns,
        values: PyReadonlyArray1<'_, f64>,
        present: Presence<'_>,
    ) -> PyResult<bool> {
        let sums = &mut self.sums;
        let input = runs.input(sums, &values, &present)?;
        Ok(py.detach(|| add_doubles(sums, input.values, input.present, &runs.spans)))
    }

    /// Adds a whole number for every row.
    fn add_constant(&mut self, runs: &GroupRuns, value: i64) {
        grow(&mut self.sums, runs.groups);
        for span in &runs.spans {
            if let Some(sum) = self.sums.get_mut(span.slot) {
                let rows = span.stop - span.start;
                sum.whole += i128::from(value) * rows as i128;
                sum.count += rows as u64;
            }
        }
    }

    /// Adds what buckets tell of a field; a run's rows are buckets.
    fn add_totals(&mut self, runs: &GroupRuns, totals: &BucketTotals, field: &str) -> PyResult<()> {
        grow(&mut self.sums, runs.groups);
        let told = totals.told(field)?;
        for span in &runs.spans {
            let rows = told.get(span.start..span.stop).unwrap_or_default();
            if let Some(sum) = self.sums.get_mut(span.slot) {
                rows.iter()
                    .for_each(|one| sum.add_totals(one.count, &one.totals));
            }
        }
        Ok(())
    }

    /// Adds a whole number for every measurement of buckets; a run's rows are buckets.
    fn add_constant_totals(&mut self, runs: &GroupRuns, totals: &BucketTotals, value: i64) {
        grow(&mut self.sums, runs.groups);
        for span in &runs.spans {
            let counts = totals.counts.get(span.start..span.stop).unwrap_or_default();
            if let Some(sum) = self.sums.get_mut(span.slot) {
                let rows: u64 = counts.iter().sum();
                sum.whole += i128::from(value) * i128::from(rows);
                sum.count += rows;
            }
        }
    }

    fn kept(&self, slot: usize) -> Kept {
        let sum = self.sums.get(slot).cloned().unwrap_or_default();
        (
            sum.whole.to_string(),
            sum.wide,
            sum.parts(),
            sum.special,
            sum.any_double,
            sum.count,
        )
    }

    fn results<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> Results<'py> {
        let none = Sum::default();
        let sums: Vec<&Sum> = (start..stop)
            .map(|slot| self.sums.get(slot).unwrap_or(&none))
            .collect();
        let kind_of = |sum: &Sum| {
            if sum.any_double {
                kind::DOUBLE
            } else if !sum.wide && i32::try_from(sum.whole).is_ok() {
                kind::INT32
            } else {
                kind::INT64
            }
        };
        (
            PyArray1::from_iter(py, sums.iter().map(|sum| kind_of(sum))),
            sums.iter().map(|sum| sum.whole).collect(),
            PyArray1::from_iter(
                py,
                sums.iter()
                    .map(|sum| if sum.any_double { sum.rounded() } else { 0.0 }),
            ),
            PyArray1::from_iter(py, sums.iter().map(|sum| sum.count)),
        )
    }
}

/// The spreads of groups.
#[pyclass(module = "bucketd.kernels._native")]
#[derive(Default)]
struct GroupSpreads {
    spreads: Vec<Spread>,
}

#[pymethods]
impl GroupSpreads {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[pyo3(signature = (runs, values, present))]
    fn add(
        &mut self,
        py: Python<'_>,
        runs: &GroupRuns,
        values: PyReadonlyArray1<'_, f64>,
        present: Presence<'_>,
    ) -> PyResult<()> {
        let spreads = &mut self.spreads;
        let input = runs.input(spreads, &values, &present)?;
        py.detach(|| add_spread(spreads, input.values, input.present, &runs.spans));
        Ok(())
    }

    fn results(&self, start: usize, stop: usize) -> Vec<(u64, f64, f64)> {
        (start..stop)
            .map(|slot| self.spreads.get(slot).copied().unwrap_or_default())
            .map(|spread| (spread.count, spread.mean, spread.squares))
            .collect()
    }
}

/// The least or greatest values of groups.
#[pyclass(module = "bucketd.kernels._native")]
struct GroupExtremes {
    extremes: Vec<Extreme>,
    wanted: Ordering,
}

#[pymethods]
impl GroupExtremes {
    #[new]
    fn new(greatest: bool) -> Self {
        Self {
            extremes: Vec::new(),
            wanted: if greatest {
                Ordering::Greater
            } else {
                Ordering::Less
            },
        }
    }

    #[pyo3(signature = (runs, kind, values, present))]
    fn add_whole(
        &mut self,
        py: Python<'_>,
        runs: &GroupRuns,
        kind: u8,
        values: Numbers<'_>,
        present: Presence<'_>,
    ) -> PyResult<()> {
        let (extremes, wanted) = (&mut self.extremes, self.wanted);
        let input = runs.input(extremes, &values, &present)?;
        let (values, present) = (input.values, input.present);
        py.detach(|| extremes_of_whole(extremes, kind, values, present, &runs.spans, wanted));
        Ok(())
    }

    #[pyo3(signature = (runs, values, present))]
    fn add_doubles(
        &mut self,
        py: Python<'_>,
        runs: &GroupRuns,
        values: PyReadonlyArray1<'_, f64>,
        present: Presence<'_>,
    ) -> PyResult<()> {
        let (extremes, wanted) = (&mut self.extremes, self.wanted);
        let input = runs.input(extremes, &values, &present)?;
        let (values, present) = (input.values, input.present);
        py.detach(|| extremes_of_doubles(extremes, values, present, &runs.spans, wanted));
        Ok(())
    }

    /// Takes what buckets tell of a field; a run's rows are buckets.
    fn add_totals(&mut self, runs: &GroupRuns, totals: &BucketTotals, field: &str) -> PyResult<()> {
        grow(&mut self.extremes, runs.groups);
        let told = totals.told(field)?;
        for span in &runs.spans {
            let rows = told.get(span.start..span.stop).unwrap_or_default();
            let Some(extreme) = self.extremes.get_mut(span.slot) else {
                continue;
            };
            for one in rows {
                let found = match self.wanted {
                    Ordering::Less => one.min,
                    _ => one.max,
                };
                if found != Extreme::Nothing {
                    extreme.take(found, self.wanted);
                }
            }
        }
        Ok(())
    }

    fn results<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> Found<'py> {
        let found: Vec<Extreme> = (start..stop)
            .map(|slot| self.extremes.get(slot).copied().unwrap_or_default())
            .collect();
        let kinds = found.iter().map(|extreme| match extreme {
            Extreme::Nothing => 0,
            Extreme::Whole(kind, _) => *kind,
            Extreme::Double(_) => kind::DOUBLE,
        });
        let whole = found.iter().map(|extreme| match extreme {
            Extreme::Whole(_, value) => *value,
            _ => 0,
        });
        let doubles = found.iter().map(|extreme| match extreme {
            Extreme::Double(value) => *value,
            _ => 0.0,
        });
        (
            PyArray1::from_iter(py, kinds),
            PyArray1::from_iter(py, whole),
            PyArray1::from_iter(py, doubles),
        )
    }
}

/// Whether doubles may be added up with any others.
#[pyfunction]
fn within_sums(values: PyReadonlyArray1<'_, f64>) -> PyResult<bool> {
    Ok(within(values.as_slice()?))
}

/// Add these classes to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(within_sums, module)?)?;
    module.add_class::<GroupRuns>()?;
    module.add_class::<GroupSums>()?;
    module.add_class::<GroupSpreads>()?;
    module.add_class::<GroupExtremes>()
}
