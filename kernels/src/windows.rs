//! Windows that slide over rows in order: sums, extremes, deviations and the like of each row's window.
//!
//! Sums are exact, as those of groups are: values come in and go out of a wide whole number, which is rounded once for each
//! row. What is defined by a recurrence (deviations, covariances, moving averages) follows it step by step.

use std::cmp::Ordering;
use std::collections::VecDeque;

/// The rows that a row looks at: from `lows[i]` up to and without `highs[i]`. None leaves the rows.
#[derive(Debug, Clone, Copy)]
pub struct Windows<'a> {
    pub lows: &'a [i64],
    pub highs: &'a [i64],
}

impl Windows<'_> {
    /// Whether there are as many of both, and none leaves the rows.
    pub fn fit(&self, rows: usize) -> bool {
        self.lows.len() == self.highs.len()
            && self
                .lows
                .iter()
                .chain(self.highs)
                .all(|edge| usize::try_from(*edge).is_ok_and(|edge| edge <= rows))
    }

    fn each(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.lows
            .iter()
            .zip(self.highs)
            .map(|(low, high)| (*low as usize, (*high as usize).max(*low as usize)))
    }

    /// Hands over what comes in and what goes out, then asks for the result; `begin` is called where nothing is kept.
    fn slide<S, R>(
        &self,
        mut begin: impl FnMut() -> S,
        mut enter: impl FnMut(&mut S, usize),
        mut leave: impl FnMut(&mut S, usize),
        mut result: impl FnMut(&S) -> R,
    ) -> Vec<R> {
        let mut state = begin();
        let (mut low, mut high) = (0, 0);
        self.each()
            .map(|(start, end)| {
                if start < low || end < high || start >= high {
                    state = begin();
                    (low, high) = (start, start);
                }
                for row in high..end {
                    enter(&mut state, row);
                }
                for row in low..start {
                    leave(&mut state, row);
                }
                (low, high) = (start, end);
                result(&state)
            })
            .collect()
    }
}

fn is_here(present: Option<&[bool]>, row: usize) -> bool {
    present.is_none_or(|present| present.get(row) == Some(&true))
}

/// A whole number of 64·N bits, in two's complement, the lowest first.
#[derive(Debug, Clone, Copy)]
struct Wide<const N: usize>([u64; N]);

impl<const N: usize> Wide<N> {
    const ZERO: Self = Self([0; N]);

    /// Adds `mantissa << shift`, or takes it away.
    fn add(&mut self, mantissa: u64, shift: u32, negative: bool) {
        let (limb, within) = ((shift / 64) as usize, shift % 64);
        let wide = u128::from(mantissa) << within;
        let parts = [wide as u64, (wide >> 64) as u64];
        let mut carry = false;
        for (at, place) in self.0.iter_mut().enumerate().skip(limb) {
            let part = parts.get(at - limb).copied().unwrap_or(0);
            if at > limb + 1 && !carry {
                break;
            }
            let (sum, first) = if negative {
                place.overflowing_sub(part)
            } else {
                place.overflowing_add(part)
            };
            let (sum, second) = if negative {
                sum.overflowing_sub(u64::from(carry))
            } else {
                sum.overflowing_add(u64::from(carry))
            };
            *place = sum;
            carry = first || second;
        }
    }

    /// The number times 2^exponent as the nearest double; of two, the even one. Zero has no sign.
    fn rounded(&self, exponent: i32) -> f64 {
        let negative = self.0[N - 1] >> 63 == 1;
        let mut limbs = self.0;
        if negative {
            let mut carry = true;
            for limb in &mut limbs {
                let (turned, more) = (!*limb).overflowing_add(u64::from(carry));
                *limb = turned;
                carry = more;
            }
        }
        let Some(top) = limbs.iter().rposition(|limb| *limb != 0) else {
            return 0.0;
        };
        let highest = top as u32 * 64 + 63 - limbs[top].leading_zeros();
        let bits = |from: u32, count: u32| -> u64 {
            let (limb, within) = ((from / 64) as usize, from % 64);
            let low = u128::from(limbs[limb]);
            let high = u128::from(limbs.get(limb + 1).copied().unwrap_or(0));
            (((high << 64 | low) >> within) as u64) & ((1 << count) - 1)
        };
        let (mut mantissa, mut scale) = (0, exponent);
        if highest < 53 {
            mantissa = limbs[0];
        } else {
            let cut = highest - 52;
            mantissa |= bits(cut, 53);
            scale += cut as i32;
            let half = bits(cut - 1, 1) == 1;
            let below = (0..cut - 1)
                .step_by(32)
                .any(|from| bits(from, 32.min(cut - 1 - from)) != 0);
            if half && (below || mantissa & 1 == 1) {
                mantissa += 1;
            }
        }
        let size = scaled(mantissa as f64, scale);
        if negative {
            -size
        } else {
            size
        }
    }
}

/// A double times a power of two; exact where the result is a double.
fn scaled(mut value: f64, mut exponent: i32) -> f64 {
    while exponent > 1000 {
        value *= 2f64.powi(1000);
        exponent -= 1000;
    }
    while exponent < -1000 {
        value *= 2f64.powi(-1000);
        exponent += 1000;
    }
    value * 2f64.powi(exponent)
}

/// Mantissa and exponent of a finite double: it is their product with 2^exponent, sign apart.
fn taken_apart(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    if exponent == 0 {
        (fraction, -1074)
    } else {
        (fraction | 1 << 52, exponent - 1075)
    }
}

/// The sums of doubles, each rounded once, and how many there are. None where one is not finite, or they are too far apart.
pub fn sums_of_doubles(
    values: &[f64],
    present: Option<&[bool]>,
    windows: Windows<'_>,
) -> Option<(Vec<f64>, Vec<i64>)> {
    let (mut lowest, mut highest) = (i32::MAX, i32::MIN);
    for (row, value) in values.iter().enumerate() {
        if is_here(present, row) && *value != 0.0 {
            if !value.is_finite() {
                return None;
            }
            let (mantissa, exponent) = taken_apart(*value);
            lowest = lowest.min(exponent + mantissa.trailing_zeros() as i32);
            highest = highest.max(exponent + 64 - mantissa.leading_zeros() as i32);
        }
    }
    if lowest > highest {
        (lowest, highest) = (0, 0);
    }
    // As many rows as memory holds add no more than these bits, the sign among them.
    let bits = highest - lowest + 42;
    if highest > 960 {
        return None;
    }
    let found = if bits <= 128 {
        exact_sums::<2>(values, present, windows, lowest)
    } else if bits <= 256 {
        exact_sums::<4>(values, present, windows, lowest)
    } else {
        // From the smallest double to the largest.
        exact_sums::<34>(values, present, windows, lowest)
    };
    Some(found.into_iter().unzip())
}

fn exact_sums<const N: usize>(
    values: &[f64],
    present: Option<&[bool]>,
    windows: Windows<'_>,
    lowest: i32,
) -> Vec<(f64, i64)> {
    let add = |sum: &mut (Wide<N>, i64), row: usize, out: bool| {
        if let Some(value) = values.get(row).filter(|_| is_here(present, row)) {
            sum.1 += if out { -1 } else { 1 };
            let (mantissa, exponent) = taken_apart(*value);
            if mantissa != 0 {
                // Zeros at the end make room for a small exponent.
                let zeros = mantissa.trailing_zeros();
                let shift = (exponent + zeros as i32 - lowest) as u32;
                sum.0
                    .add(mantissa >> zeros, shift, value.is_sign_negative() != out);
            }
        }
    };
    windows.slide(
        || (Wide::ZERO, 0),
        |sum, row| add(sum, row, false),
        |sum, row| add(sum, row, true),
        |sum| (sum.0.rounded(lowest), sum.1),
    )
}

/// The sums of whole numbers, and how many there are; None where one leaves 64 bits.
pub fn sums_of_whole(
    values: &[i64],
    present: Option<&[bool]>,
    windows: Windows<'_>,
) -> Option<(Vec<i64>, Vec<i64>)> {
    let value = |row: usize| i128::from(values.get(row).copied().unwrap_or(0));
    let sums = windows.slide(
        || (0_i128, 0),
        |sum, row| {
            if is_here(present, row) {
                *sum = (sum.0 + value(row), sum.1 + 1);
            }
        },
        |sum, row| {
            if is_here(present, row) {
                *sum = (sum.0 - value(row), sum.1 - 1);
            }
        },
        |sum| (i64::try_from(sum.0).ok(), sum.1),
    );
    sums.into_iter()
        .map(|(sum, count)| sum.map(|sum| (sum, count)))
        .collect::<Option<Vec<_>>>()
        .map(|sums| sums.into_iter().unzip())
}

/// The place of the least (`Less`) or greatest value of each window, of equal ones the first; -1 where there is none.
pub fn extremes<T: Copy>(
    values: &[T],
    present: Option<&[bool]>,
    windows: Windows<'_>,
    wanted: Ordering,
    order: impl Fn(T, T) -> Ordering,
) -> Vec<i64> {
    let mut best: VecDeque<usize> = VecDeque::new();
    let (mut low, mut high) = (0, 0);
    windows
        .each()
        .map(|(start, end)| {
            if start < low || end < high || start >= high {
                best.clear();
                (low, high) = (start, start);
            }
            for row in high..end {
                let Some(value) = values.get(row).filter(|_| is_here(present, row)) else {
                    continue;
                };
                while best
                    .back()
                    .and_then(|last| values.get(*last))
                    .is_some_and(|last| order(*value, *last) == wanted)
                {
                    best.pop_back();
                }
                best.push_back(row);
            }
            (low, high) = (start, end);
            while best.front().is_some_and(|first| *first < start) {
                best.pop_front();
            }
            best.front().map_or(-1, |first| *first as i64)
        })
        .collect()
}

/// NaN is the lowest number and equal to itself.
pub fn order_of_doubles(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right)
        .unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
}

/// What a deviation is: nothing, the whole number 0, or a double.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Deviation {
    Nothing,
    Zero,
    Double(f64),
}

#[derive(Clone, Copy, Default)]
struct Welford {
    count: u64,
    mean: f64,
    squares: f64,
    finite: bool,
}

impl Welford {
    fn add(&mut self, value: f64) {
        self.finite &= value.is_finite();
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
    }

    fn deviation(&self, sample: bool) -> Option<f64> {
        let below = self.count.saturating_sub(u64::from(sample));
        (below > 0).then(|| (self.squares / below as f64).sqrt())
    }
}

/// The standard deviations of windows, by Welford's recurrence from the beginning of each. `growing`: as one that goes on from
/// the window before where both begin with the same row.
pub fn deviations(
    values: &[f64],
    present: Option<&[bool]>,
    windows: Windows<'_>,
    sample: bool,
    growing: bool,
) -> Vec<Deviation> {
    let fresh = Welford {
        finite: true,
        ..Welford::default()
    };
    let (mut state, mut at) = (fresh, (0, 0));
    windows
        .each()
        .map(|(low, high)| {
            if !growing || low != at.0 || high < at.1 {
                (state, at) = (fresh, (low, low));
            }
            for row in at.1..high {
                if let Some(value) = values.get(row).filter(|_| is_here(present, row)) {
                    state.add(*value);
                }
            }
            at = (low, high.max(at.1));
            if !growing && !state.finite {
                return Deviation::Nothing;
            }
            if !growing && !sample && state.count == 1 {
                return Deviation::Zero;
            }
            state
                .deviation(sample)
                .map_or(Deviation::Nothing, Deviation::Double)
        })
        .collect()
}

/// The sum that the row engine makes of two doubles: zero has no sign.
fn plus(left: f64, right: f64) -> f64 {
    0.0 + left + right
}

/// Exponential moving averages; `starts` are where partitions begin. Rows without a value have none, and change none.
pub fn moving_averages(
    values: &[f64],
    present: Option<&[bool]>,
    starts: &[i64],
    weight: f64,
) -> Vec<f64> {
    let mut average = None;
    let mut starts = starts.iter().peekable();
    values
        .iter()
        .enumerate()
        .map(|(row, value)| {
            while starts.next_if(|start| **start <= row as i64).is_some() {
                average = None;
            }
            if !is_here(present, row) {
                return 0.0;
            }
            let next = average.map_or(*value, |before: f64| {
                plus(*value * weight, before * (1.0 - weight))
            });
            average = Some(next);
            next
        })
        .collect()
}

#[derive(Clone, Copy, Default)]
struct Moment {
    count: u64,
    sums: (f64, f64),
    moment: f64,
}

impl Moment {
    fn enter(&mut self, left: f64, right: f64) {
        let mean = if self.count > 0 {
            self.sums.0 / self.count as f64
        } else {
            left
        };
        self.sums = if self.count > 0 {
            (plus(self.sums.0, left), plus(self.sums.1, right))
        } else {
            (left, right)
        };
        self.count += 1;
        let product = (left - mean) * (right - self.sums.1 / self.count as f64);
        self.moment = if self.count > 1 {
            plus(self.moment, product)
        } else {
            product
        };
    }

    fn leave(&mut self, left: f64, right: f64) {
        let mean = self.sums.1 / self.count as f64;
        self.count -= 1;
        if self.count == 0 {
            *self = Self::default();
            return;
        }
        self.sums = (self.sums.0 - left, self.sums.1 - right);
        self.moment -= (left - self.sums.0 / self.count as f64) * (right - mean);
    }
}

/// The covariances of pairs; None where there are too few.
pub fn covariances(
    lefts: &[f64],
    rights: &[f64],
    present: Option<&[bool]>,
    windows: Windows<'_>,
    sample: bool,
) -> Vec<Option<f64>> {
    let pair = |row: usize| {
        let pair = lefts.get(row).copied().zip(rights.get(row).copied());
        pair.filter(|_| is_here(present, row))
    };
    windows.slide(
        Moment::default,
        |moment, row| {
            if let Some((left, right)) = pair(row) {
                moment.enter(left, right);
            }
        },
        |moment, row| {
            if let Some((left, right)) = pair(row) {
                moment.leave(left, right);
            }
        },
        |moment| {
            let below = moment.count.saturating_sub(u64::from(sample));
            match (below, moment.count) {
                (0, _) => None,
                (_, 1) => Some(0.0),
                _ => Some(moment.moment / below as f64),
            }
        },
    )
}

/// For each row, how many of its partition's keys (which ascend) lie before what is wanted, or (`through`) not behind it,
/// counted from the first row of all. `starts` are where partitions begin.
pub fn places<T: PartialOrd>(keys: &[T], wanted: &[T], starts: &[i64], through: bool) -> Vec<i64> {
    let mut made = Vec::with_capacity(keys.len());
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).map_or(keys.len(), |end| *end as usize);
        let start = *start as usize;
        let (Some(part), Some(wanted)) = (keys.get(start..end), wanted.get(start..end)) else {
            continue;
        };
        made.extend(wanted.iter().map(|limit| {
            let before = part.partition_point(|key| key < limit || (through && key == limit));
            (start + before) as i64
        }));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows<'a>(lows: &'a [i64], highs: &'a [i64]) -> Windows<'a> {
        Windows { lows, highs }
    }

    #[test]
    fn sums_are_exact_however_far_apart_values_are() {
        let values = [1e16, 1.0, -1e16, 1e-3, 5e-324, 1e200];
        let (lows, highs) = ([0, 1, 0, 4, 3, 0], [4, 4, 3, 5, 5, 6]);
        let (sums, counts) =
            sums_of_doubles(&values, None, windows(&lows, &highs)).expect("finite");
        assert_eq!(sums, [1.001, 1.0 + 1e-3 - 1e16, 1.0, 5e-324, 1e-3, 1e200]);
        assert_eq!(counts, [4, 3, 3, 1, 2, 6]);
    }

    #[test]
    fn ties_round_to_even() {
        let tie = 2f64.powi(-53);
        let values = [1.0, tie, 2f64.powi(-106), -1.0, -tie, 1.0 + 2.0 * tie, tie];
        let (lows, highs) = ([0, 0, 3, 5], [2, 3, 5, 7]);
        let (sums, _) = sums_of_doubles(&values, None, windows(&lows, &highs)).expect("finite");
        assert_eq!(sums, [1.0, 1.0 + 2.0 * tie, -1.0, 1.0 + 4.0 * tie]);
    }

    #[test]
    fn sums_that_are_empty_have_no_sign() {
        let (sums, counts) =
            sums_of_doubles(&[-0.0, 3.0, -3.0], None, windows(&[0, 0, 1], &[1, 3, 1]))
                .expect("finite");
        assert!(sums.iter().all(|sum| sum.to_bits() == 0));
        assert_eq!(counts, [1, 3, 0]);
        assert!(sums_of_doubles(&[f64::NAN], None, windows(&[0], &[1])).is_none());
    }

    #[test]
    fn the_first_of_equal_extremes_stays() {
        let values = [2.0, 1.0, 1.0, 3.0, f64::NAN];
        let found = extremes(
            &values,
            Some(&[true, true, true, true, true]),
            windows(&[0, 0, 1, 2, 4, 4], &[1, 3, 4, 4, 4, 5]),
            Ordering::Less,
            order_of_doubles,
        );
        assert_eq!(found, [0, 1, 1, 2, -1, 4]);
    }

    #[test]
    fn places_are_found_within_partitions() {
        let keys = [1, 3, 3, 9, 2, 4];
        assert_eq!(
            places(&keys, &[2, 3, 3, 9, 1, 5], &[0, 4], false),
            [1, 1, 1, 3, 4, 6]
        );
        assert_eq!(
            places(&keys, &[2, 3, 3, 9, 1, 5], &[0, 4], true),
            [1, 3, 3, 4, 4, 6]
        );
    }
}
