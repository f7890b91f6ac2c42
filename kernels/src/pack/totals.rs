//! What a bucket tells of a column's numbers without them: how many, their sum, and which of their extremes control has.

use super::bytes::{Reader, Torn, Writer};
use crate::columns::Data;
use crate::elements::{elements, find, fixed, kind, Element};
use crate::gather::{add_doubles, Span, Sum};

/// The totals of one column of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Type of all values: a number's or a date's. 0 where there are none of those, or where they are not exact.
    pub kind: u8,
    /// How many rows have no value.
    pub missing: usize,
    /// Whether `control.min` is the least of the values, and `control.max` the greatest.
    pub least: bool,
    pub greatest: bool,
    /// The sum of whole numbers.
    pub whole: i64,
    /// Two doubles whose sum, not rounded, is that of the doubles.
    pub high: f64,
    pub low: f64,
}

const LEAST: u8 = 0x80;
const GREATEST: u8 = 0x40;

impl Totals {
    /// The totals of a column, if they tell all that its values do about sums and extremes.
    pub fn of(data: &Data, least: Option<Element<'_>>, greatest: Option<Element<'_>>) -> Self {
        match data {
            Data::Double { values, present } => {
                of_doubles(values, present, least, greatest).unwrap_or_default()
            }
            Data::Whole {
                kind,
                values,
                present,
            } => of_whole(*kind, values, present, least, greatest).unwrap_or_default(),
            _ => Self::default(),
        }
    }

    pub fn write_all(all: &[Self], out: &mut Writer) {
        out.bytes.extend(
            all.iter()
                .map(|one| one.kind | flag(one.least, LEAST) | flag(one.greatest, GREATEST)),
        );
        let gaps = all.iter().any(|one| one.missing > 0);
        out.number(u64::from(gaps));
        if gaps {
            all.iter().for_each(|one| out.number(one.missing as u64));
        }
        let summed = || all.iter().filter(|one| has_sum(one.kind));
        let highs: Vec<u64> = summed()
            .map(|one| match one.kind {
                kind::DOUBLE => one.high.to_bits(),
                _ => one.whole as u64,
            })
            .collect();
        out.planes(&highs);
        let lows: Vec<u64> = summed().map(|one| one.low.to_bits()).collect();
        let any = lows.iter().any(|low| *low != 0);
        out.number(u64::from(any));
        if any {
            out.planes(&lows);
        }
    }

    pub fn read_all(count: usize, input: &mut Reader<'_>) -> Result<Vec<Self>, Torn> {
        let mut all: Vec<Self> = input
            .take(count)?
            .iter()
            .map(|byte| Self {
                kind: byte & !(LEAST | GREATEST),
                least: byte & LEAST != 0,
                greatest: byte & GREATEST != 0,
                ..Self::default()
            })
            .collect();
        if input.number()? != 0 {
            for one in &mut all {
                one.missing = usize::try_from(input.number()?).map_err(|_| Torn)?;
            }
        }
        let summed = all.iter().filter(|one| has_sum(one.kind)).count();
        let highs = input.planes(summed)?;
        let lows = if input.number()? == 0 {
            vec![0; summed]
        } else {
            input.planes(summed)?
        };
        let places = all.iter_mut().filter(|one| has_sum(one.kind));
        for ((one, high), low) in places.zip(highs).zip(lows) {
            if one.kind == kind::DOUBLE {
                (one.high, one.low) = (f64::from_bits(high), f64::from_bits(low));
            } else {
                one.whole = high as i64;
            }
        }
        Ok(all)
    }
}

/// A bit, if it is set.
pub fn flag(set: bool, bit: u8) -> u8 {
    if set {
        bit
    } else {
        0
    }
}

fn has_sum(kind: u8) -> bool {
    matches!(kind, kind::DOUBLE | kind::INT32 | kind::INT64)
}

fn of_doubles(
    values: &[f64],
    present: &[u8],
    least: Option<Element<'_>>,
    greatest: Option<Element<'_>>,
) -> Option<Totals> {
    let here: Vec<f64> = values
        .iter()
        .zip(present)
        .filter(|(_, present)| **present != 0)
        .map(|(value, _)| *value)
        .collect();
    // Of zeros of two signs the first counts, and what is no number has an order of its own.
    let plain = |value: &f64| value.is_finite() && (*value != 0.0 || value.is_sign_positive());
    if here.is_empty() || !here.iter().all(plain) {
        return None;
    }
    let mut sums = vec![Sum::default()];
    let span = Span {
        start: 0,
        stop: here.len(),
        slot: 0,
    };
    if !add_doubles(&mut sums, &here, None, &[span]) {
        return None;
    }
    let parts = sums.first()?.parts();
    let (low, high) = match parts[..] {
        [] => (0.0, 0.0),
        [high] => (0.0, high),
        [low, high] => (low, high),
        _ => return None,
    };
    let bound = |element: Option<Element<'_>>| match element {
        Some(element) if element.kind == kind::DOUBLE => {
            fixed(element.value).ok().map(f64::from_le_bytes)
        }
        _ => None,
    };
    let min = here.iter().copied().reduce(f64::min);
    let max = here.iter().copied().reduce(f64::max);
    Some(Totals {
        kind: kind::DOUBLE,
        missing: values.len() - here.len(),
        least: bound(least) == min,
        greatest: bound(greatest) == max,
        whole: 0,
        high,
        low,
    })
}

fn of_whole(
    kind: u8,
    values: &[i64],
    present: &[u8],
    least: Option<Element<'_>>,
    greatest: Option<Element<'_>>,
) -> Option<Totals> {
    if !matches!(kind, kind::INT32 | kind::INT64 | kind::DATE) {
        return None;
    }
    let here = || {
        values
            .iter()
            .zip(present)
            .filter(|(_, present)| **present != 0)
            .map(|(value, _)| *value)
    };
    let min = here().min()?;
    let max = here().max()?;
    let whole = if kind == kind::DATE {
        0
    } else {
        i64::try_from(here().map(i128::from).sum::<i128>()).ok()?
    };
    let bound = |element: Option<Element<'_>>| whole_value(element.filter(|one| one.kind == kind)?);
    Some(Totals {
        kind,
        missing: values.len() - here().count(),
        least: bound(least) == Some(min),
        greatest: bound(greatest) == Some(max),
        whole,
        ..Totals::default()
    })
}

/// The number of an int32, int64 or date.
pub fn whole_value(element: Element<'_>) -> Option<i64> {
    match element.kind {
        kind::INT32 => fixed(element.value)
            .ok()
            .map(i32::from_le_bytes)
            .map(i64::from),
        kind::INT64 | kind::DATE => fixed(element.value).ok().map(i64::from_le_bytes),
        _ => None,
    }
}

/// `control.min` or `control.max` of a bucket, by its name.
pub fn bounds<'a>(bucket: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let control = find(bucket, b"control").ok()??;
    let found = find(control.value, name).ok()??;
    (found.kind == kind::OBJECT).then_some(found.value)
}

/// The value of a field in such bounds.
pub fn bound<'a>(bounds: Option<&'a [u8]>, field: &[u8]) -> Option<Element<'a>> {
    elements(bounds?)
        .ok()?
        .filter_map(Result::ok)
        .find(|element| element.name == field)
}
