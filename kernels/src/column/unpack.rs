//! Whole Simple-8b blocks into arrays of numbers, a loop of fixed length for each layout.

use super::simple8b::{run_length, SLOTS_MAX};
use super::ColumnError;

/// Stands for a missing slot; no slot of a valid block has this value.
pub const MISSING: u64 = u64::MAX;

/// What one block stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpacked {
    /// So many numbers at the beginning of the array; whether some are missing.
    Slots { count: usize, missing: bool },
    /// The last slot before, so many times.
    Run(usize),
}

/// The slots of one block.
pub type Slots = [u64; SLOTS_MAX];

/// Unpacks one block.
#[inline]
pub fn unpack(block: u64, out: &mut Slots) -> Result<Unpacked, ColumnError> {
    let missing = match (block & 15, block >> 4 & 15) {
        (1, _) => plain::<60, 1, 4>(block, out),
        (2, _) => plain::<30, 2, 4>(block, out),
        (3, _) => plain::<20, 3, 4>(block, out),
        (4, _) => plain::<15, 4, 4>(block, out),
        (5, _) => plain::<12, 5, 4>(block, out),
        (6, _) => plain::<10, 6, 4>(block, out),
        (7, 0) => plain::<8, 7, 8>(block, out),
        (8, 0) => plain::<7, 8, 8>(block, out),
        (9, _) => plain::<6, 10, 4>(block, out),
        (10, _) => plain::<5, 12, 4>(block, out),
        (11, _) => plain::<4, 15, 4>(block, out),
        (12, _) => plain::<3, 20, 4>(block, out),
        (13, _) => plain::<2, 30, 4>(block, out),
        (14, _) => plain::<1, 60, 4>(block, out),
        (7, 1) => shifted::<9, 2, 4, 1>(block, out),
        (7, 2) => shifted::<8, 3, 4, 1>(block, out),
        (7, 3) => shifted::<7, 4, 4, 1>(block, out),
        (7, 4) => shifted::<6, 5, 4, 1>(block, out),
        (7, 5) => shifted::<5, 7, 4, 1>(block, out),
        (7, 6) => shifted::<4, 10, 4, 1>(block, out),
        (7, 7) => shifted::<3, 14, 4, 1>(block, out),
        (7, 8) => shifted::<2, 24, 4, 1>(block, out),
        (7, 9) => shifted::<1, 52, 4, 1>(block, out),
        (8, 1) => shifted::<7, 4, 4, 4>(block, out),
        (8, 2) => shifted::<6, 5, 4, 4>(block, out),
        (8, 3) => shifted::<5, 7, 4, 4>(block, out),
        (8, 4) => shifted::<4, 10, 4, 4>(block, out),
        (8, 5) => shifted::<3, 14, 4, 4>(block, out),
        (8, 6) => shifted::<2, 24, 4, 4>(block, out),
        (8, 7) => shifted::<1, 52, 4, 4>(block, out),
        (8, 8) => shifted::<6, 4, 5, 4>(block, out),
        (8, 9) => shifted::<5, 6, 5, 4>(block, out),
        (8, 10) => shifted::<4, 9, 5, 4>(block, out),
        (8, 11) => shifted::<3, 13, 5, 4>(block, out),
        (8, 12) => shifted::<2, 23, 5, 4>(block, out),
        (8, 13) => shifted::<1, 51, 5, 4>(block, out),
        _ => {
            let length = run_length(block).ok_or(ColumnError::InvalidBlock)?;
            return Ok(Unpacked::Run(length as usize));
        }
    };
    let (count, missing) = missing;
    Ok(Unpacked::Slots { count, missing })
}

#[inline]
fn plain<const SLOTS: usize, const BITS: u32, const START: u32>(
    block: u64,
    out: &mut Slots,
) -> (usize, bool) {
    let mask = u64::MAX >> (64 - BITS);
    let block = block >> START;
    let mut missing = false;
    for (at, slot) in out[..SLOTS].iter_mut().enumerate() {
        let value = block >> (at as u32 * BITS) & mask;
        let gone = value == mask;
        missing |= gone;
        // All ones where the slot is missing.
        *slot = value | 0_u64.wrapping_sub(u64::from(gone));
    }
    (SLOTS, missing)
}

#[inline]
fn shifted<const SLOTS: usize, const BITS: u32, const COUNT: u32, const UNIT: u32>(
    block: u64,
    out: &mut Slots,
) -> (usize, bool) {
    let width = BITS + COUNT;
    let mask = u64::MAX >> (64 - width);
    let block = block >> 8;
    let mut missing = false;
    for (at, slot) in out[..SLOTS].iter_mut().enumerate() {
        let value = block >> (at as u32 * width) & mask;
        let gone = value == mask;
        missing |= gone;
        let count = (value & ((1 << COUNT) - 1)) as u32 * UNIT;
        *slot = value >> COUNT << (count & 63) | 0_u64.wrapping_sub(u64::from(gone));
    }
    (SLOTS, missing)
}
