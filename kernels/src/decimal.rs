//! Decimal128 beside doubles: its value as coefficient and exponent, and exact comparison of the two.

use std::cmp::Ordering;

const EXPONENT_BIAS: i32 = 6176;
const COEFFICIENT_MAX: u128 = 10_u128.pow(34) - 1;

/// The value of a Decimal128 in its binary integer encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decimal {
    NotANumber,
    Infinite {
        negative: bool,
    },
    /// `coefficient * 10^exponent`.
    Finite {
        negative: bool,
        coefficient: u128,
        exponent: i32,
    },
}

/// Read the sixteen bytes of a BSON value.
pub fn from_bytes(bytes: [u8; 16]) -> Decimal {
    let bits = u128::from_le_bytes(bytes);
    let high = (bits >> 64) as u64;
    let negative = high >> 63 == 1;
    match (high >> 58) & 0x1f {
        0x1f => return Decimal::NotANumber,
        0x1e => return Decimal::Infinite { negative },
        _ => {}
    }
    // The form for coefficients beyond 113 bits exists, and every number in it is too large to count: zero.
    let large = (high >> 61) & 3 == 3;
    let biased = if large { high >> 47 } else { high >> 49 } & 0x3fff;
    let stored = bits & ((1_u128 << 113) - 1);
    let coefficient = if large || stored > COEFFICIENT_MAX {
        0
    } else {
        stored
    };
    Decimal::Finite {
        negative,
        coefficient,
        exponent: biased as i32 - EXPONENT_BIAS,
    }
}

/// The largest double that is not above `coefficient * 10^exponent`, and whether it is equal. The coefficient is not 0.
pub fn truncated(coefficient: u128, exponent: i32) -> (f64, bool) {
    let leading = exponent + coefficient.ilog10() as i32;
    if leading > 308 {
        return (f64::MAX, false);
    }
    if leading < -324 {
        return (0.0, false);
    }
    let nearest = format!("{coefficient}e{exponent}")
        .parse::<f64>()
        .unwrap_or(f64::MAX)
        .min(f64::MAX);
    match compare(coefficient, exponent, nearest) {
        Ordering::Equal => (nearest, true),
        Ordering::Greater => (nearest, false),
        Ordering::Less => (f64::from_bits(nearest.to_bits().saturating_sub(1)), false),
    }
}

/// How `coefficient * 10^exponent` stands to a double that is finite and not negative.
fn compare(coefficient: u128, exponent: i32, double: f64) -> Ordering {
    if double == 0.0 {
        return if coefficient == 0 {
            Ordering::Equal
        } else {
            Ordering::Greater
        };
    }
    let bits = double.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let (significand, power) = match (bits >> 52) as i32 {
        0 => (fraction, -1074),
        biased => (fraction | (1 << 52), biased - 1075),
    };
    // coefficient * 5^exponent * 2^exponent against significand * 2^power, with negative powers carried across.
    let mut left = Big::from(coefficient);
    let mut right = Big::from(u128::from(significand));
    if exponent >= 0 {
        left.multiply_by_power_of_five(exponent.unsigned_abs());
    } else {
        right.multiply_by_power_of_five(exponent.unsigned_abs());
    }
    let shift = exponent - power;
    if shift >= 0 {
        left.shift_left(shift.unsigned_abs());
    } else {
        right.shift_left(shift.unsigned_abs());
    }
    left.compare(&right)
}

/// A whole number of any size, in words of 32 bits, lowest first, without zero words at the end.
struct Big(Vec<u32>);

impl From<u128> for Big {
    fn from(value: u128) -> Self {
        let mut big = Big((0..4).map(|word| (value >> (32 * word)) as u32).collect());
        big.trim();
        big
    }
}

impl Big {
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn multiply(&mut self, factor: u32) {
        let mut carry = 0_u64;
        for word in &mut self.0 {
            let product = u64::from(*word) * u64::from(factor) + carry;
            *word = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn multiply_by_power_of_five(&mut self, mut power: u32) {
        while power > 0 {
            let step = power.min(13);
            self.multiply(5_u32.pow(step));
            power -= step;
        }
    }

    fn shift_left(&mut self, bits: u32) {
        self.multiply(1 << (bits % 32));
        let words = (bits / 32) as usize;
        if !self.0.is_empty() {
            self.0.splice(0..0, std::iter::repeat_n(0, words));
        }
    }

    fn compare(&self, other: &Big) -> Ordering {
        self.0
            .len()
            .cmp(&other.0.len())
            .then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use super::{compare, truncated};
    use std::cmp::Ordering;

    #[test]
    fn a_tenth_is_less_than_the_double() {
        assert_eq!(compare(1, -1, 0.1), Ordering::Less);
        assert_eq!(compare(5, -1, 0.5), Ordering::Equal);
        assert_eq!(truncated(5, -1), (0.5, true));
        assert_eq!(
            truncated(1, -1),
            (f64::from_bits(0.1_f64.to_bits() - 1), false)
        );
    }

    #[test]
    fn beyond_the_doubles() {
        assert_eq!(truncated(1, 400), (f64::MAX, false));
        assert_eq!(truncated(1, -400), (0.0, false));
        assert_eq!(truncated(2, 308), (f64::MAX, false));
        assert_eq!(truncated(4, -324), (0.0, false));
        assert_eq!(truncated(5, -324), (f64::from_bits(1), false));
    }

    #[test]
    fn large_whole_numbers() {
        assert_eq!(truncated(1 << 60, 0), ((1_u64 << 60) as f64, true));
        assert_eq!(truncated((1 << 53) + 1, 0), ((1_u64 << 53) as f64, false));
    }
}
