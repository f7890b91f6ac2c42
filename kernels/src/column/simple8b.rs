//! Simple-8b blocks: 64-bit words that hold up to 60 slots of equal width, or a run of up to 1920 equal ones.
//!
//! The low four bits of a block select its layout. Selectors 7 and 8 have four more bits, of which a value other than 0
//! means that each slot carries a count of trailing zeros beside its value. A slot of all ones is a missing value.

use super::ColumnError;

/// Selector of a run.
pub const RUN: u64 = 15;
/// A run stands for a multiple of so many slots.
pub const RUN_UNIT: u32 = 120;
/// The longest run of one block, in units.
pub const RUN_UNITS_MAX: u32 = 16;
/// Most slots of a block that is no run.
pub const SLOTS_MAX: usize = 60;

/// How the slots of a block lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The block's low byte or nibble: selector, and extension where it has one.
    pub tag: u64,
    /// Position of the first slot's lowest bit.
    pub start: u32,
    pub slots: u32,
    pub value_bits: u32,
    /// Width of the count of trailing zeros below each value; 0 where there is none.
    pub count_bits: u32,
    /// By how many bits one count shifts.
    pub shift_unit: u32,
}

impl Layout {
    const fn base(selector: u64, slots: u32, value_bits: u32) -> Self {
        let start = if selector == 7 || selector == 8 { 8 } else { 4 };
        Self {
            tag: selector,
            start,
            slots,
            value_bits,
            count_bits: 0,
            shift_unit: 0,
        }
    }

    const fn shifted(
        selector: u64,
        extension: u64,
        value_bits: u32,
        count_bits: u32,
        slots: u32,
    ) -> Self {
        Self {
            tag: selector | extension << 4,
            start: 8,
            slots,
            value_bits,
            count_bits,
            shift_unit: if selector == 7 { 1 } else { 4 },
        }
    }

    /// Width of one slot.
    pub const fn slot_bits(&self) -> u32 {
        self.value_bits + self.count_bits
    }

    /// A slot of all ones, which is a missing value.
    pub const fn missing(&self) -> u64 {
        u64::MAX >> (64 - self.slot_bits())
    }
}

/// Layouts without counts, by falling number of slots.
pub const BASE: [Layout; 14] = [
    Layout::base(1, 60, 1),
    Layout::base(2, 30, 2),
    Layout::base(3, 20, 3),
    Layout::base(4, 15, 4),
    Layout::base(5, 12, 5),
    Layout::base(6, 10, 6),
    Layout::base(7, 8, 7),
    Layout::base(8, 7, 8),
    Layout::base(9, 6, 10),
    Layout::base(10, 5, 12),
    Layout::base(11, 4, 15),
    Layout::base(12, 3, 20),
    Layout::base(13, 2, 30),
    Layout::base(14, 1, 60),
];

/// Layouts of selector 7 with counts of single zeros, by extension from 1.
pub const SEVEN: [Layout; 9] = [
    Layout::shifted(7, 1, 2, 4, 9),
    Layout::shifted(7, 2, 3, 4, 8),
    Layout::shifted(7, 3, 4, 4, 7),
    Layout::shifted(7, 4, 5, 4, 6),
    Layout::shifted(7, 5, 7, 4, 5),
    Layout::shifted(7, 6, 10, 4, 4),
    Layout::shifted(7, 7, 14, 4, 3),
    Layout::shifted(7, 8, 24, 4, 2),
    Layout::shifted(7, 9, 52, 4, 1),
];

/// Layouts of selector 8 with four-bit counts of four zeros each, by extension from 1.
pub const EIGHT_SMALL: [Layout; 7] = [
    Layout::shifted(8, 1, 4, 4, 7),
    Layout::shifted(8, 2, 5, 4, 6),
    Layout::shifted(8, 3, 7, 4, 5),
    Layout::shifted(8, 4, 10, 4, 4),
    Layout::shifted(8, 5, 14, 4, 3),
    Layout::shifted(8, 6, 24, 4, 2),
    Layout::shifted(8, 7, 52, 4, 1),
];

/// Layouts of selector 8 with five-bit counts of four zeros each, by extension from 8.
pub const EIGHT_LARGE: [Layout; 6] = [
    Layout::shifted(8, 8, 4, 5, 6),
    Layout::shifted(8, 9, 6, 5, 5),
    Layout::shifted(8, 10, 9, 5, 4),
    Layout::shifted(8, 11, 13, 5, 3),
    Layout::shifted(8, 12, 23, 5, 2),
    Layout::shifted(8, 13, 51, 5, 1),
];

/// The layout of a block that is no run.
pub fn layout(block: u64) -> Result<&'static Layout, ColumnError> {
    let selector = (block & 15) as usize;
    let extension = (block >> 4 & 15) as usize;
    let found = match (selector, extension) {
        (0 | 15, _) => None,
        (7, 1..) => SEVEN.get(extension - 1),
        (8, 1..=7) => EIGHT_SMALL.get(extension - 1),
        (8, 8..) => EIGHT_LARGE.get(extension - 8),
        _ => BASE.get(selector - 1),
    };
    found.ok_or(ColumnError::InvalidBlock)
}

/// How many slots a run block stands for, if the block is a run.
pub fn run_length(block: u64) -> Option<u32> {
    (block & 15 == RUN).then(|| ((block >> 4 & 15) as u32 + 1) * RUN_UNIT)
}

/// One entry of a block: missing, or a value with zeros to be added below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Missing,
    Value { bits: u64, shift: u32 },
}

impl Slot {
    pub const ZERO: Self = Self::Value { bits: 0, shift: 0 };

    /// The number in 64 bits, unless the slot is missing.
    pub fn narrow(self) -> Option<u64> {
        match self {
            Self::Missing => None,
            Self::Value { bits, shift } => Some(bits << (shift & 63)),
        }
    }

    /// The number in 128 bits, unless the slot is missing.
    pub fn wide(self) -> Option<u128> {
        match self {
            Self::Missing => None,
            Self::Value { bits, shift } => Some(u128::from(bits) << (shift & 127)),
        }
    }
}

/// Reads the slots of consecutive blocks one at a time.
#[derive(Debug, Clone)]
pub struct Slots<'a> {
    blocks: &'a [u8],
    block: u64,
    layout: &'static Layout,
    /// Slots of the current block, or of the current run, that are still to come.
    left: u32,
    running: bool,
    last: Slot,
}

impl<'a> Slots<'a> {
    /// Nothing to read, and nothing read before.
    pub fn new() -> Self {
        Self {
            blocks: &[],
            block: 0,
            layout: &BASE[0],
            left: 0,
            running: false,
            last: Slot::ZERO,
        }
    }

    /// Goes on with these blocks. Runs at their beginning repeat the last slot of the blocks before.
    pub fn enter(&mut self, blocks: &'a [u8]) {
        self.blocks = blocks;
        self.left = 0;
    }

    /// Forgets what came before, as a literal makes a stream do.
    pub fn forget(&mut self) {
        *self = Self::new();
    }

    /// Whether all slots were read.
    pub fn is_empty(&self) -> bool {
        self.left == 0 && self.blocks.is_empty()
    }

    /// The next slot, if there is one.
    pub fn next(&mut self) -> Result<Option<Slot>, ColumnError> {
        if self.left == 0 && !self.next_block()? {
            return Ok(None);
        }
        self.left -= 1;
        if !self.running {
            let layout = self.layout;
            let at = layout.start + (layout.slots - 1 - self.left) * layout.slot_bits();
            let slot = self.block >> at & layout.missing();
            self.last = if slot == layout.missing() {
                Slot::Missing
            } else {
                let count = slot & ((1 << layout.count_bits) - 1);
                Slot::Value {
                    bits: slot >> layout.count_bits,
                    shift: count as u32 * layout.shift_unit,
                }
            };
        }
        Ok(Some(self.last))
    }

    /// What is left of the current run, or the whole next one: the slot that it repeats, and how often.
    pub fn rest_of_run(&mut self) -> Result<Option<(Slot, usize)>, ColumnError> {
        if self.left == 0 && !self.next_block()? || !self.running {
            return Ok(None);
        }
        Ok(Some((self.last, std::mem::take(&mut self.left) as usize)))
    }

    fn next_block(&mut self) -> Result<bool, ColumnError> {
        let Some((block, rest)) = self.blocks.split_first_chunk::<8>() else {
            return Ok(false);
        };
        self.blocks = rest;
        self.block = u64::from_le_bytes(*block);
        if let Some(length) = run_length(self.block) {
            self.running = true;
            self.left = length;
        } else {
            self.layout = layout(self.block)?;
            self.running = false;
            self.left = self.layout.slots;
        }
        Ok(true)
    }
}
