//! What `$group` gathers of columns: runs of rows go to the slots of their groups.
//!
//! Sums of whole numbers are exact, sums of doubles are kept as a few doubles whose exact sum they are, and rounded once.

use crate::elements::kind;
use crate::pack::Totals;
use std::cmp::Ordering;

/// Rows from `start` up to and without `stop` belong to `slot`.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub start: usize,
    pub stop: usize,
    pub slot: usize,
}

/// Hands each state its rows: the values of a span, and which of them there are.
fn parts<'a, S, T>(
    states: &mut [S],
    values: &'a [T],
    present: Option<&'a [bool]>,
    spans: &[Span],
    mut each: impl FnMut(&mut S, &'a [T], Option<&'a [bool]>),
) {
    for span in spans {
        let rows = span.start..span.stop;
        if let (Some(values), Some(state)) = (values.get(rows.clone()), states.get_mut(span.slot)) {
            each(state, values, present.and_then(|present| present.get(rows)));
        }
    }
}

/// The values that there are.
fn here<'a, T: Copy>(values: &'a [T], present: Option<&'a [bool]>) -> impl Iterator<Item = T> + 'a {
    values
        .iter()
        .enumerate()
        .filter(move |(at, _)| present.is_none_or(|present| present.get(*at) == Some(&true)))
        .map(|(_, value)| *value)
}

/// A larger double could take a sum beyond the doubles on its way.
const LARGEST: f64 = 1e290;

/// The sum of one group.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    pub whole: i128,
    pub wide: bool,
    pub any_double: bool,
    /// Doubles of which no two share a digit, the smallest first.
    partials: Vec<f64>,
    /// The sum of what is no finite number.
    pub special: f64,
    pub count: u64,
}

impl Sum {
    fn add_double(&mut self, value: f64) {
        let mut rest = value;
        let mut kept = 0;
        for at in 0..self.partials.len() {
            let mut other = self.partials[at];
            if rest.abs() < other.abs() {
                (rest, other) = (other, rest);
            }
            let high = rest + other;
            let low = other - (high - rest);
            if low != 0.0 {
                self.partials[kept] = low;
                kept += 1;
            }
            rest = high;
        }
        self.partials.truncate(kept);
        self.partials.push(rest);
    }

    /// Adds what a bucket tells of so many values.
    pub fn add_totals(&mut self, count: u64, totals: &Totals) {
        match totals.kind {
            kind::DOUBLE => {
                self.any_double |= count > 0;
                self.add_double(totals.high);
                self.add_double(totals.low);
            }
            kind::INT32 | kind::INT64 => {
                self.whole += i128::from(totals.whole);
                self.wide |= totals.kind == kind::INT64 && count > 0;
            }
            _ => return,
        }
        self.count += count;
    }

    /// The doubles that together are the sum of the doubles that came.
    pub fn parts(&self) -> Vec<f64> {
        self.partials
            .iter()
            .copied()
            .filter(|part| *part != 0.0)
            .collect()
    }

    /// The sum of everything, rounded once to the nearest double.
    pub fn rounded(&self) -> f64 {
        if self.special != 0.0 {
            return self.special;
        }
        let mut all = self.clone();
        let high = self.whole as f64;
        all.add_double(high);
        all.add_double((self.whole - high as i128) as f64);
        let mut parts = all
            .partials
            .iter()
            .rev()
            .copied()
            .filter(|part| *part != 0.0);
        let Some(mut sum) = parts.next() else {
            return 0.0;
        };
        // The first addition that is not exact rounds; what is below decides where it is a tie.
        for part in parts.by_ref() {
            let before = sum;
            sum = before + part;
            let lost = part - (sum - before);
            if lost != 0.0 {
                if let Some(next) = parts.next() {
                    if (lost < 0.0) == (next < 0.0) {
                        let twice = lost * 2.0;
                        let other = sum + twice;
                        if twice == other - sum {
                            sum = other;
                        }
                    }
                }
                break;
            }
        }
        sum
    }
}

/// Adds whole numbers to the sums; `wide` for 64 bits.
pub fn add_whole(
    sums: &mut [Sum],
    values: &[i64],
    present: Option<&[bool]>,
    spans: &[Span],
    wide: bool,
) {
    parts(sums, values, present, spans, |sum, values, present| {
        let mut count = values.len();
        if present.is_some() {
            count = 0;
            for value in here(values, present) {
                count += 1;
                sum.whole += i128::from(value);
            }
        } else if wide {
            sum.whole += values.iter().map(|value| i128::from(*value)).sum::<i128>();
        } else {
            // Numbers of 32 bits: as many as memory holds stay within 64.
            sum.whole += i128::from(values.iter().sum::<i64>());
        }
        sum.count += count as u64;
        sum.wide |= wide && count > 0;
    });
}

/// Whether none of the doubles is so large that a sum might leave the doubles.
pub fn within(values: &[f64]) -> bool {
    !values
        .iter()
        .any(|value| value.is_finite() && value.abs() > LARGEST)
}

/// Adds doubles to the sums; false, and nothing done, where one is so large that a sum might leave the doubles.
pub fn add_doubles(
    sums: &mut [Sum],
    values: &[f64],
    present: Option<&[bool]>,
    spans: &[Span],
) -> bool {
    if !within(values) {
        return false;
    }
    parts(sums, values, present, spans, |sum, values, present| {
        for value in here(values, present) {
            sum.count += 1;
            sum.any_double = true;
            if value.is_finite() {
                sum.add_double(value);
            } else {
                sum.special += value;
            }
        }
    });
    true
}

/// Count, mean and sum of squared differences of one group, by Welford's recurrence.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spread {
    pub count: u64,
    pub mean: f64,
    pub squares: f64,
}

impl Spread {
    #[inline]
    fn add(&mut self, value: f64) {
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
    }
}

/// Adds doubles to the spreads, one after the other.
pub fn add_spread(
    spreads: &mut [Spread],
    values: &[f64],
    present: Option<&[bool]>,
    spans: &[Span],
) {
    parts(
        spreads,
        values,
        present,
        spans,
        |spread, values, present| {
            here(values, present).for_each(|value| spread.add(value));
        },
    );
}

/// The least or greatest value of one group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Extreme {
    #[default]
    Nothing,
    /// int32, int64 or date, by its type byte.
    Whole(u8, i64),
    Double(f64),
}

impl Extreme {
    fn class(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Whole(kind::DATE, _) => 2,
            _ => 1,
        }
    }

    /// The order of values as BSON has it.
    fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(_, left), Self::Whole(_, right)) if self.class() == other.class() => {
                left.cmp(&right)
            }
            (Self::Double(left), Self::Double(right)) => double_order(left, right),
            (Self::Whole(_, left), Self::Double(right)) if self.class() == 1 => {
                whole_order(left, right)
            }
            (Self::Double(left), Self::Whole(_, right)) if other.class() == 1 => {
                whole_order(right, left).reverse()
            }
            _ => self.class().cmp(&other.class()),
        }
    }

    /// Takes a value where it goes beyond this one in the direction wanted.
    pub fn take(&mut self, value: Self, wanted: Ordering) {
        if *self == Self::Nothing || value.order(*self) == wanted {
            *self = value;
        }
    }
}

/// NaN is the lowest number and equal to itself.
#[inline]
fn double_order(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right)
        .unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
}

fn whole_order(left: i64, right: f64) -> Ordering {
    if right.is_nan() {
        return Ordering::Greater;
    }
    // Beyond the whole numbers of 64 bits, and exact within.
    if right >= 9_223_372_036_854_775_808.0 {
        return Ordering::Less;
    }
    if right < -9_223_372_036_854_775_808.0 {
        return Ordering::Greater;
    }
    let floor = right.floor();
    left.cmp(&(floor as i64)).then(if right > floor {
        Ordering::Less
    } else {
        Ordering::Equal
    })
}

/// Gives each slot the least (`Less`) or greatest value of its spans of whole numbers of a type.
pub fn extremes_of_whole(
    extremes: &mut [Extreme],
    kind: u8,
    values: &[i64],
    present: Option<&[bool]>,
    spans: &[Span],
    wanted: Ordering,
) {
    parts(
        extremes,
        values,
        present,
        spans,
        |extreme, values, present| {
            let found = match (present, wanted) {
                (None, Ordering::Less) => values.iter().min().copied(),
                (None, _) => values.iter().max().copied(),
                (_, Ordering::Less) => here(values, present).min(),
                _ => here(values, present).max(),
            };
            if let Some(found) = found {
                extreme.take(Extreme::Whole(kind, found), wanted);
            }
        },
    );
}

/// The same of doubles.
pub fn extremes_of_doubles(
    extremes: &mut [Extreme],
    values: &[f64],
    present: Option<&[bool]>,
    spans: &[Span],
    wanted: Ordering,
) {
    parts(
        extremes,
        values,
        present,
        spans,
        |extreme, values, present| {
            // Of equal values, such as zeros of both signs, the first stays.
            let found = here(values, present).reduce(|found, value| {
                if double_order(value, found) == wanted {
                    value
                } else {
                    found
                }
            });
            if let Some(found) = found {
                extreme.take(Extreme::Double(found), wanted);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Span; 1] = [Span {
        start: 0,
        stop: 4,
        slot: 0,
    }];

    #[test]
    fn sums_of_doubles_round_once() {
        let mut sums = vec![Sum::default()];
        assert!(add_doubles(
            &mut sums,
            &[1e16, 1.0, -1e16, 1e-3],
            None,
            &ALL
        ));
        assert_eq!(sums[0].rounded(), 1.001);
        let mut sums = vec![Sum::default()];
        assert!(add_doubles(&mut sums, &[0.1, 0.2, 0.3, -0.6], None, &ALL));
        assert_eq!(sums[0].rounded(), 2.7755575615628914e-17);
        assert!(!add_doubles(&mut sums, &[1e308], None, &ALL));
    }

    #[test]
    fn ties_are_decided_by_what_is_below() {
        let mut sums = vec![Sum::default()];
        let tie = 2f64.powi(-53);
        assert!(add_doubles(
            &mut sums,
            &[1.0, tie, 2f64.powi(-106), 0.0],
            None,
            &ALL
        ));
        assert_eq!(sums[0].rounded(), 1.0 + 2f64.powi(-52));
        let mut sums = vec![Sum::default()];
        assert!(add_doubles(&mut sums, &[1.0, tie, 0.0, 0.0], None, &ALL));
        assert_eq!(sums[0].rounded(), 1.0);
    }

    #[test]
    fn whole_numbers_and_doubles_compare_exactly() {
        let large = (1_i64 << 53) + 1;
        assert_eq!(whole_order(large, (1_u64 << 53) as f64), Ordering::Greater);
        assert_eq!(whole_order(2, 2.5), Ordering::Less);
        assert_eq!(whole_order(-3, -2.5), Ordering::Less);
        assert_eq!(
            whole_order(i64::MAX, 9_223_372_036_854_775_808.0),
            Ordering::Less
        );
        assert_eq!(whole_order(i64::MIN, f64::NAN), Ordering::Greater);
    }

    #[test]
    fn the_greatest_is_no_nan_where_there_is_a_number() {
        let mut found = vec![Extreme::Nothing];
        let values = [f64::NAN, -0.0, 0.0, -1.0];
        extremes_of_doubles(&mut found, &values, None, &ALL, Ordering::Greater);
        assert!(
            matches!(found[0], Extreme::Double(zero) if zero == 0.0 && zero.is_sign_negative())
        );
        extremes_of_doubles(&mut found, &values, None, &ALL, Ordering::Less);
        assert!(matches!(found[0], Extreme::Double(value) if value.is_nan()));
    }
}
