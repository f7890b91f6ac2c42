//! The edge to Python of windows.

use crate::elements::kind;
use crate::windows::{
    covariances, deviations, extremes, moving_averages, order_of_doubles, places, sums_of_doubles,
    sums_of_whole, Deviation, Windows,
};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::cmp::Ordering;

type Numbers<'py> = PyReadonlyArray1<'py, i64>;
type Doubles<'py> = PyReadonlyArray1<'py, f64>;
type Presence<'py> = Option<PyReadonlyArray1<'py, bool>>;
type Whole<'py> = Bound<'py, PyArray1<i64>>;
type Made<'py> = Bound<'py, PyArray1<f64>>;
type Kinds<'py> = Bound<'py, PyArray1<u8>>;

fn windows<'a>(
    lows: &'a Numbers<'_>,
    highs: &'a Numbers<'_>,
    rows: usize,
) -> PyResult<Windows<'a>> {
    let windows = Windows {
        lows: lows.as_slice()?,
        highs: highs.as_slice()?,
    };
    if !windows.fit(rows) {
        return Err(PyValueError::new_err("a window outside of the rows"));
    }
    Ok(windows)
}

fn presence<'a>(present: &'a Presence<'_>, rows: usize) -> PyResult<Option<&'a [bool]>> {
    let present = present.as_ref().map(|mask| mask.as_slice()).transpose()?;
    if present.is_some_and(|present| present.len() != rows) {
        return Err(PyValueError::new_err("a column of another number of rows"));
    }
    Ok(present)
}

#[pyfunction]
#[pyo3(signature = (values, present, lows, highs))]
fn window_sums<'py>(
    py: Python<'py>,
    values: Doubles<'py>,
    present: Presence<'py>,
    lows: Numbers<'py>,
    highs: Numbers<'py>,
) -> PyResult<Option<(Made<'py>, Whole<'py>)>> {
    let values = values.as_slice()?;
    let windows = windows(&lows, &highs, values.len())?;
    let present = presence(&present, values.len())?;
    let found = py.detach(|| sums_of_doubles(values, present, windows));
    Ok(found.map(|(sums, counts)| (PyArray1::from_vec(py, sums), PyArray1::from_vec(py, counts))))
}

#[pyfunction]
#[pyo3(signature = (values, present, lows, highs))]
fn window_whole_sums<'py>(
    py: Python<'py>,
    values: Numbers<'py>,
    present: Presence<'py>,
    lows: Numbers<'py>,
    highs: Numbers<'py>,
) -> PyResult<Option<(Whole<'py>, Whole<'py>)>> {
    let values = values.as_slice()?;
    let windows = windows(&lows, &highs, values.len())?;
    let present = presence(&present, values.len())?;
    let found = py.detach(|| sums_of_whole(values, present, windows));
    Ok(found.map(|(sums, counts)| (PyArray1::from_vec(py, sums), PyArray1::from_vec(py, counts))))
}

fn direction(greatest: bool) -> Ordering {
    if greatest {
        Ordering::Greater
    } else {
        Ordering::Less
    }
}

#[pyfunction]
#[pyo3(signature = (values, present, lows, highs, greatest))]
fn window_extremes<'py>(
    py: Python<'py>,
    values: Doubles<'py>,
    present: Presence<'py>,
    lows: Numbers<'py>,
    highs: Numbers<'py>,
    greatest: bool,
) -> PyResult<Whole<'py>> {
    let values = values.as_slice()?;
    let windows = windows(&lows, &highs, values.len())?;
    let present = presence(&present, values.len())?;
    let wanted = direction(greatest);
    let found = py.detach(|| extremes(values, present, windows, wanted, order_of_doubles));
    Ok(PyArray1::from_vec(py, found))
}

#[pyfunction]
#[pyo3(signature = (values, present, lows, highs, greatest))]
fn window_whole_extremes<'py>(
    py: Python<'py>,
    values: Numbers<'py>,
    present: Presence<'py>,
    lows: Numbers<'py>,
    highs: Numbers<'py>,
    greatest: bool,
) -> PyResult<Whole<'py>> {
    let values = values.as_slice()?;
    let windows = windows(&lows, &highs, values.len())?;
    let present = presence(&present, values.len())?;
    let wanted = direction(greatest);
    let order = |left: i64, right: i64| left.cmp(&right);
    let found = py.detach(|| extremes(values, present, windows, wanted, order));
    Ok(PyArray1::from_vec(py, found))
}

#[pyfunction]
#[pyo3(signature = (values, present, lows, highs, sample, growing))]
fn window_deviations<'py>(
    py: Python<'py>,
    values: Doubles<'py>,
    present: Presence<'py>,
    lows: Numbers<'py>,
    highs: Numbers<'py>,
    sample: bool,
    growing: bool,
) -> PyResult<(Kinds<'py>, Made<'py>)> {
    let values = values.as_slice()?;
    let windows = windows(&lows, &highs, values.len())?;
    let present = presence(&present, values.len())?;
    let found = py.detach(|| deviations(values, present, windows, sample, growing));
    let kinds = found.iter().map(|one| match one {
        Deviation::Nothing => 0,
        Deviation::Zero => kind::INT32,
        Deviation::Double(_) => kind::DOUBLE,
    });
    let doubles = found.iter().map(|one| match one {
        Deviation::Double(value) => *value,
        _ => 0.0,
    });
    Ok((
        PyArray1::from_iter(py, kinds),
        PyArray1::from_iter(py, doubles),
    ))
}

#[pyfunction]
#[pyo3(signature = (lefts, rights, present, lows, highs, sample))]
fn window_covariances<'py>(
    py: Python<'py>,
    lefts: Doubles<'py>,
    rights: Doubles<'py>,
    present: Presence<'py>,
    lows: Numbers<'py>,
    highs: Numbers<'py>,
    sample: bool,
) -> PyResult<(Kinds<'py>, Made<'py>)> {
    let (lefts, rights) = (lefts.as_slice()?, rights.as_slice()?);
    let windows = windows(&lows, &highs, lefts.len().min(rights.len()))?;
    let present = presence(&present, lefts.len())?;
    let found = py.detach(|| covariances(lefts, rights, present, windows, sample));
    let kinds = found
        .iter()
        .map(|one| if one.is_some() { kind::DOUBLE } else { 0 });
    let doubles = found.iter().map(|one| one.unwrap_or(0.0));
    Ok((
        PyArray1::from_iter(py, kinds),
        PyArray1::from_iter(py, doubles),
    ))
}

#[pyfunction]
#[pyo3(signature = (values, present, starts, weight))]
fn moving_average<'py>(
    py: Python<'py>,
    values: Doubles<'py>,
    present: Presence<'py>,
    starts: Numbers<'py>,
    weight: f64,
) -> PyResult<Made<'py>> {
    let (values, starts) = (values.as_slice()?, starts.as_slice()?);
    let present = presence(&present, values.len())?;
    let found = py.detach(|| moving_averages(values, present, starts, weight));
    Ok(PyArray1::from_vec(py, found))
}

fn checked_starts(starts: &[i64], rows: usize) -> PyResult<()> {
    let ascending = starts.windows(2).all(|pair| pair[0] <= pair[1]);
    let within = starts
        .iter()
        .all(|start| usize::try_from(*start).is_ok_and(|start| start <= rows));
    if ascending && within && (starts.first() == Some(&0) || rows == 0) {
        return Ok(());
    }
    Err(PyValueError::new_err("partitions that do not fit the rows"))
}

#[pyfunction]
fn window_places<'py>(
    py: Python<'py>,
    keys: Numbers<'py>,
    wanted: Numbers<'py>,
    starts: Numbers<'py>,
    through: bool,
) -> PyResult<Whole<'py>> {
    let (keys, wanted, starts) = (keys.as_slice()?, wanted.as_slice()?, starts.as_slice()?);
    checked_starts(starts, keys.len().min(wanted.len()))?;
    let found = py.detach(|| places(keys, wanted, starts, through));
    Ok(PyArray1::from_vec(py, found))
}

#[pyfunction]
fn window_double_places<'py>(
    py: Python<'py>,
    keys: Doubles<'py>,
    wanted: Doubles<'py>,
    starts: Numbers<'py>,
    through: bool,
) -> PyResult<Whole<'py>> {
    let (keys, wanted, starts) = (keys.as_slice()?, wanted.as_slice()?, starts.as_slice()?);
    checked_starts(starts, keys.len().min(wanted.len()))?;
    let found = py.detach(|| places(keys, wanted, starts, through));
    Ok(PyArray1::from_vec(py, found))
}

/// Add these functions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(window_sums, module)?)?;
    module.add_function(wrap_pyfunction!(window_whole_sums, module)?)?;
    module.add_function(wrap_pyfunction!(window_extremes, module)?)?;
    module.add_function(wrap_pyfunction!(window_whole_extremes, module)?)?;
    module.add_function(wrap_pyfunction!(window_deviations, module)?)?;
    module.add_function(wrap_pyfunction!(window_covariances, module)?)?;
    module.add_function(wrap_pyfunction!(moving_average, module)?)?;
    module.add_function(wrap_pyfunction!(window_places, module)?)?;
    module.add_function(wrap_pyfunction!(window_double_places, module)?)
}
