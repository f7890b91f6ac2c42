//! The edge to Python of what `$group` gathers of columns.

use crate::elements::kind;
use crate::gather::{
    add_doubles, add_spread, add_whole, extremes_of_doubles, extremes_of_whole, within, Extreme,
    Span, Spread, Sum,
};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::cmp::Ordering;

type Numbers<'py> = PyReadonlyArray1<'py, i64>;
type Presence<'py> = Option<PyReadonlyArray1<'py, bool>>;

/// The spans of some runs, of which none leaves the rows or names a slot that is not there.
fn spans(
    starts: &Numbers<'_>,
    stops: &Numbers<'_>,
    slots: &Numbers<'_>,
    rows: usize,
    groups: usize,
) -> PyResult<Vec<Span>> {
    let (starts, stops, slots) = (starts.as_slice()?, stops.as_slice()?, slots.as_slice()?);
    if starts.len() != stops.len() || starts.len() != slots.len() {
        return Err(PyValueError::new_err("runs of different number"));
    }
    let wrong = || PyValueError::new_err("a run outside of the rows or groups");
    starts
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
        .collect()
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

    #[pyo3(signature = (groups, wide, values, present, starts, stops, slots))]
    #[allow(clippy::too_many_arguments)]
    fn add_whole(
        &mut self,
        py: Python<'_>,
        groups: usize,
        wide: bool,
        values: Numbers<'_>,
        present: Presence<'_>,
        starts: Numbers<'_>,
        stops: Numbers<'_>,
        slots: Numbers<'_>,
    ) -> PyResult<()> {
        grow(&mut self.sums, groups);
        let values = values.as_slice()?;
        let present = present.as_ref().map(|mask| mask.as_slice()).transpose()?;
        let spans = spans(&starts, &stops, &slots, values.len(), groups)?;
        let sums = &mut self.sums;
        py.detach(|| add_whole(sums, values, present, &spans, wide));
        Ok(())
    }

    #[pyo3(signature = (groups, values, present, starts, stops, slots))]
    #[allow(clippy::too_many_arguments)]
    fn add_doubles(
        &mut self,
        py: Python<'_>,
        groups: usize,
        values: PyReadonlyArray1<'_, f64>,
        present: Presence<'_>,
        starts: Numbers<'_>,
        stops: Numbers<'_>,
        slots: Numbers<'_>,
    ) -> PyResult<bool> {
        grow(&mut self.sums, groups);
        let values = values.as_slice()?;
        let present = present.as_ref().map(|mask| mask.as_slice()).transpose()?;
        let spans = spans(&starts, &stops, &slots, values.len(), groups)?;
        let sums = &mut self.sums;
        Ok(py.detach(|| add_doubles(sums, values, present, &spans)))
    }

    /// Adds a whole number so many times to each slot.
    fn add_constant(
        &mut self,
        groups: usize,
        value: i64,
        counts: Numbers<'_>,
        slots: Numbers<'_>,
    ) -> PyResult<()> {
        grow(&mut self.sums, groups);
        for (count, slot) in counts.as_slice()?.iter().zip(slots.as_slice()?) {
            let slot = usize::try_from(*slot).unwrap_or(usize::MAX);
            let sum = self
                .sums
                .get_mut(slot)
                .ok_or_else(|| PyValueError::new_err("no such group"))?;
            sum.whole += i128::from(value) * i128::from(*count);
            sum.count += u64::try_from(*count).unwrap_or(0);
        }
        Ok(())
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

    #[pyo3(signature = (groups, values, present, starts, stops, slots))]
    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        py: Python<'_>,
        groups: usize,
        values: PyReadonlyArray1<'_, f64>,
        present: Presence<'_>,
        starts: Numbers<'_>,
        stops: Numbers<'_>,
        slots: Numbers<'_>,
    ) -> PyResult<()> {
        grow(&mut self.spreads, groups);
        let values = values.as_slice()?;
        let present = present.as_ref().map(|mask| mask.as_slice()).transpose()?;
        let spans = spans(&starts, &stops, &slots, values.len(), groups)?;
        let spreads = &mut self.spreads;
        py.detach(|| add_spread(spreads, values, present, &spans));
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

    #[pyo3(signature = (groups, kind, values, present, starts, stops, slots))]
    #[allow(clippy::too_many_arguments)]
    fn add_whole(
        &mut self,
        py: Python<'_>,
        groups: usize,
        kind: u8,
        values: Numbers<'_>,
        present: Presence<'_>,
        starts: Numbers<'_>,
        stops: Numbers<'_>,
        slots: Numbers<'_>,
    ) -> PyResult<()> {
        grow(&mut self.extremes, groups);
        let values = values.as_slice()?;
        let present = present.as_ref().map(|mask| mask.as_slice()).transpose()?;
        let spans = spans(&starts, &stops, &slots, values.len(), groups)?;
        let (extremes, wanted) = (&mut self.extremes, self.wanted);
        py.detach(|| extremes_of_whole(extremes, kind, values, present, &spans, wanted));
        Ok(())
    }

    #[pyo3(signature = (groups, values, present, starts, stops, slots))]
    #[allow(clippy::too_many_arguments)]
    fn add_doubles(
        &mut self,
        py: Python<'_>,
        groups: usize,
        values: PyReadonlyArray1<'_, f64>,
        present: Presence<'_>,
        starts: Numbers<'_>,
        stops: Numbers<'_>,
        slots: Numbers<'_>,
    ) -> PyResult<()> {
        grow(&mut self.extremes, groups);
        let values = values.as_slice()?;
        let present = present.as_ref().map(|mask| mask.as_slice()).transpose()?;
        let spans = spans(&starts, &stops, &slots, values.len(), groups)?;
        let (extremes, wanted) = (&mut self.extremes, self.wanted);
        py.detach(|| extremes_of_doubles(extremes, values, present, &spans, wanted));
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
    module.add_class::<GroupSums>()?;
    module.add_class::<GroupSpreads>()?;
    module.add_class::<GroupExtremes>()
}
