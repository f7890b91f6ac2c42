//! Doubles as integers: multiplied by a power of ten where that loses nothing, else their bits.

/// Factors by scale index. The index after the last one takes the bits of the double.
const FACTORS: [f64; 5] = [1.0, 10.0, 100.0, 10_000.0, 100_000_000.0];
/// Scale index of bits taken as they are.
pub const RAW: usize = FACTORS.len();
/// Largest magnitude of a scaled double; up to here every integer is one.
const SCALED_MAX: f64 = 9_007_199_254_740_992.0;

/// What doubles are multiplied by at a scale; None where their bits are taken.
pub fn factor(scale: usize) -> Option<f64> {
    FACTORS.get(scale).copied()
}

/// More than a double and its integer at a scale can differ by, relatively, if one comes back from the other: each of the
/// two roundings between them loses at most 2^-53.
const LOSS_MAX: f64 = 1.0 / (1_u64 << 50) as f64;

/// The integer of a double at a scale, if the double comes back from it bit by bit.
#[inline]
pub fn encode(value: f64, scale: usize) -> Option<i64> {
    let Some(factor) = factor(scale) else {
        return Some(value.to_bits() as i64);
    };
    let scaled = value * factor;
    if !(-SCALED_MAX..=SCALED_MAX).contains(&scaled) {
        return None;
    }
    let number = round(scaled);
    let whole = number as f64;
    // Most doubles that do not fit are told by this, without the slow division.
    if (scaled - whole).abs() > scaled.abs() * LOSS_MAX {
        return None;
    }
    let back = if scale == 0 { whole } else { whole / factor };
    (back.to_bits() == value.to_bits()).then_some(number)
}

/// The nearest integer, halves away from zero, of a number no larger than 2^53.
#[inline]
fn round(value: f64) -> i64 {
    let whole = value as i64;
    let rest = value - whole as f64;
    whole + i64::from(rest >= 0.5) - i64::from(rest <= -0.5)
}

/// The integer of a double at the smallest scale from `least` on that fits, and that scale.
#[inline]
pub fn encode_from(value: f64, least: usize) -> (i64, usize) {
    (least..RAW)
        .find_map(|scale| encode(value, scale).map(|number| (number, scale)))
        .unwrap_or((value.to_bits() as i64, RAW))
}

/// The double of an integer at a scale.
#[inline]
pub fn decode(number: i64, scale: usize) -> f64 {
    match factor(scale) {
        Some(factor) => number as f64 / factor,
        None => f64::from_bits(number as u64),
    }
}
