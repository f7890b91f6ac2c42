//! Packs numbers and missing values into Simple-8b blocks, with the choices that MongoDB makes.
//!
//! Values wait until one comes that does not fit into a block with them. Four families of layouts are tried in a fixed
//! order; a value that repeats the last slot of the block before is counted instead, and becomes a run.

use super::simple8b::{
    Layout, BASE, EIGHT_LARGE, EIGHT_SMALL, RUN, RUN_UNIT, RUN_UNITS_MAX, SEVEN, SLOTS_MAX,
};

/// An unsigned number of 64 or 128 bits.
pub trait Word: Copy + Eq {
    const ZERO: Self;
    const MAX: Self;
    /// Bits without the leading zeros.
    fn bit_length(self) -> u32;
    fn trailing_zeros(self) -> u32;
    fn shifted(self, by: u32) -> Self;
    /// The number plus one, which must not be [`Word::MAX`].
    fn above(self) -> Self;
    fn low(self) -> u64;
}

macro_rules! word {
    ($number:ty) => {
        impl Word for $number {
            const ZERO: Self = 0;
            const MAX: Self = Self::MAX;

            #[inline]
            fn bit_length(self) -> u32 {
                Self::BITS - self.leading_zeros()
            }

            fn trailing_zeros(self) -> u32 {
                self.trailing_zeros()
            }

            fn shifted(self, by: u32) -> Self {
                self >> by
            }

            #[inline]
            fn above(self) -> Self {
                self.wrapping_add(1)
            }

            fn low(self) -> u64 {
                self as u64
            }
        }
    };
}

word!(u64);
word!(u128);

/// Layouts that are tried together.
struct Family {
    layouts: &'static [Layout],
    /// Bits of a block that slots may fill.
    data_bits: u32,
    count_bits: u32,
    /// Fewest bits that any value takes.
    value_bits_min: u32,
    /// Most trailing zeros that a slot can leave out.
    zeros_max: u32,
    shift_unit: u32,
}

static FAMILIES: [Family; 4] = [
    Family {
        layouts: &BASE,
        data_bits: 60,
        count_bits: 0,
        value_bits_min: 1,
        zeros_max: 0,
        shift_unit: 1,
    },
    Family {
        layouts: &SEVEN,
        data_bits: 56,
        count_bits: 4,
        value_bits_min: 2,
        zeros_max: 15,
        shift_unit: 1,
    },
    Family {
        layouts: &EIGHT_SMALL,
        data_bits: 56,
        count_bits: 4,
        value_bits_min: 4,
        zeros_max: 60,
        shift_unit: 4,
    },
    Family {
        layouts: &EIGHT_LARGE,
        data_bits: 56,
        count_bits: 5,
        value_bits_min: 4,
        zeros_max: 124,
        shift_unit: 4,
    },
];

impl Family {
    /// Trailing zeros of a value that its slot leaves out.
    fn zeros<T: Word>(&self, value: T) -> u32 {
        if value == T::ZERO {
            return 0;
        }
        let zeros = value.trailing_zeros().min(self.zeros_max);
        zeros - zeros % self.shift_unit
    }

    /// Bits that a value takes beside its count.
    fn value_bits<T: Word>(&self, value: T) -> u32 {
        // A slot of all ones means missing. Only where the count is all ones must the value be kept from being so too.
        let bits = if self.count_bits == 0 {
            base_bits(value)
        } else {
            let zeros = self.zeros(value);
            if self.zeros_max == value.trailing_zeros() {
                value.shifted(zeros).above().bit_length()
            } else {
                base_bits(value) - zeros
            }
        };
        bits.max(self.value_bits_min)
    }

    /// Whether so many slots, of which the widest has this many value bits, fill no more than a block.
    fn holds(&self, value_bits: u32, slots: usize) -> bool {
        (value_bits + self.count_bits) as usize * slots <= self.data_bits as usize
    }

    fn slot<T: Word>(&self, value: T) -> u64 {
        let zeros = self.zeros(value);
        value.shifted(zeros).low() << self.count_bits | u64::from(zeros / self.shift_unit)
    }
}

/// Bits of a value in a slot without a count, where all ones are taken.
#[inline]
fn base_bits<T: Word>(value: T) -> u32 {
    let plain = value.bit_length();
    if plain > 64 {
        plain
    } else {
        value.above().bit_length()
    }
}

/// The slots that a finished block stands for: some values, so many times. A missing one is given as 0.
pub struct Span<'a, T> {
    pub values: &'a [T],
    pub times: u32,
}

impl<T> Span<'_, T> {
    pub fn slots(&self) -> u32 {
        self.values.len() as u32 * self.times
    }
}

/// Values of one stream on their way into blocks.
#[derive(Debug, Clone)]
pub struct Builder<T> {
    /// Values without a block yet; a missing one is 0 here and has its bit set in `missing`.
    pending: Vec<T>,
    missing: u64,
    /// The first family that held the pending values when the last of them came.
    family: usize,
    /// What the widest pending value takes in `family`; None when a block was written since.
    value_bits: Option<u32>,
    /// What a run block would repeat: the last slot that was written. None where a run must not begin.
    last: Option<Option<T>>,
    /// How often `last` came again since. Nothing is pending while this is not 0.
    repeated: u32,
}

impl<T: Word> Builder<T> {
    /// No values; a run of zeros may come first.
    pub fn new() -> Self {
        Self {
            pending: Vec::new(),
            missing: 0,
            family: 0,
            value_bits: Some(0),
            last: Some(Some(T::ZERO)),
            repeated: 0,
        }
    }

    /// An empty builder for the slots that follow the last block of another one.
    pub fn following(other: &Self) -> Self {
        let zero = Some(Some(T::ZERO));
        Self {
            // MongoDB lets a run go on only if nothing was pending, or of zeros. The reader repeats the last slot it saw, so
            // that a run of zeros after another slot would be read as something else: then none may begin.
            last: other.last.filter(|_| other.may_run() || other.last == zero),
            ..Self::new()
        }
    }

    /// The values that are in no block yet, missing ones as None.
    pub fn waiting(&self) -> impl Iterator<Item = Option<T>> + '_ {
        let repeated = self
            .last
            .into_iter()
            .flat_map(|last| std::iter::repeat_n(last, self.repeated as usize));
        let pending = self
            .pending
            .iter()
            .enumerate()
            .map(|(at, value)| (self.missing >> at & 1 == 0).then_some(*value));
        repeated.chain(pending)
    }

    /// Bytes that the waiting values will take at most.
    pub fn waiting_bytes_max(&self) -> usize {
        8 * (self.pending.len() + if self.repeated > 0 { 8 } else { 0 })
    }

    /// Adds a value; false, and nothing done, if no block can hold it. Full blocks go to `emit`.
    #[inline]
    pub fn append(&mut self, value: T, emit: &mut impl FnMut(u64, Span<'_, T>)) -> bool {
        if !storable(value) {
            return false;
        }
        self.add(Some(value), emit);
        true
    }

    /// Adds a missing value.
    pub fn append_missing(&mut self, emit: &mut impl FnMut(u64, Span<'_, T>)) {
        self.add(None, emit);
    }

    /// Gives the blocks of everything that waits, and goes on as if nothing had been done.
    pub fn flush_copy(&self, emit: &mut impl FnMut(u64, Span<'_, T>)) {
        if self.repeated > 0 {
            self.clone().flush(emit);
            return;
        }
        let (mut rest, mut missing) = (&self.pending[..], self.missing);
        while let Some(layout) = layout_for(self.family, rest.len()) {
            let slots = layout.slots as usize;
            let (now, later) = rest.split_at(slots);
            emit(
                block_of(self.family, layout, now, missing),
                Span {
                    values: now,
                    times: 1,
                },
            );
            rest = later;
            missing = missing.checked_shr(slots as u32).unwrap_or(0);
        }
    }

    /// Puts everything into blocks.
    pub fn flush(&mut self, emit: &mut impl FnMut(u64, Span<'_, T>)) {
        self.end_run(emit);
        while !self.pending.is_empty() {
            self.write_block(emit);
        }
        self.value_bits = None;
        self.last = Some(Some(T::ZERO));
    }

    fn may_run(&self) -> bool {
        self.pending.is_empty() || self.repeated > 0
    }

    #[inline]
    fn add(&mut self, value: Option<T>, emit: &mut impl FnMut(u64, Span<'_, T>)) {
        if self.may_run() {
            if self.last == Some(value) {
                self.repeated += 1;
                return;
            }
            self.end_run(emit);
        }
        self.push(value, true, emit);
    }

    #[inline]
    fn end_run(&mut self, emit: &mut impl FnMut(u64, Span<'_, T>)) {
        let Some(last) = self.last.filter(|_| self.repeated > 0) else {
            return;
        };
        let mut units = self.repeated / RUN_UNIT;
        let rest = self.repeated % RUN_UNIT;
        self.repeated = 0;
        while units > 0 {
            let now = units.min(RUN_UNITS_MAX);
            let span = Span {
                values: &[last.unwrap_or(T::ZERO)],
                times: now * RUN_UNIT,
            };
            emit(RUN | u64::from(now - 1) << 4, span);
            units -= now;
        }
        for _ in 0..rest {
            self.push(last, false, emit);
        }
    }

    #[inline]
    fn push(&mut self, value: Option<T>, may_run: bool, emit: &mut impl FnMut(u64, Span<'_, T>)) {
        if !self.fits(value) {
            loop {
                self.write_block(emit);
                if self.pending.is_empty() || self.fits(value) {
                    break;
                }
            }
            if self.pending.is_empty() {
                if may_run && self.last == Some(value) {
                    self.repeated = 1;
                    return;
                }
                let fitting = self.fits(value);
                debug_assert!(fitting, "only storable values are pushed");
            }
        }
        if value.is_none() {
            self.missing |= 1 << self.pending.len();
        }
        self.pending.push(value.unwrap_or(T::ZERO));
    }

    /// Whether a block can hold the pending values and this one; remembers by which family.
    #[inline]
    fn fits(&mut self, value: Option<T>) -> bool {
        let slots = self.pending.len() + 1;
        if let (0, Some(widest)) = (self.family, self.value_bits) {
            // Nearly every value takes this way, which the loop below would come to as well.
            let bits = widest.max(value.map_or(1, base_bits));
            if FAMILIES[0].holds(bits, slots) {
                self.value_bits = Some(bits);
                return true;
            }
        }
        self.fits_some_family(value, slots)
    }

    fn fits_some_family(&mut self, value: Option<T>, slots: usize) -> bool {
        let first = if self.value_bits.is_some() {
            self.family
        } else {
            0
        };
        for (at, family) in FAMILIES.iter().enumerate().skip(first) {
            if !family.holds(family.value_bits_min, slots) {
                continue;
            }
            let known = self.value_bits.filter(|_| at == self.family);
            let widest = known.unwrap_or_else(|| self.widest(family));
            let bits = widest.max(match value {
                Some(value) => family.value_bits(value),
                None => family.value_bits_min,
            });
            if family.holds(bits, slots) {
                self.family = at;
                self.value_bits = Some(bits);
                return true;
            }
        }
        false
    }

    fn widest(&self, family: &Family) -> u32 {
        self.pending
            .iter()
            .map(|value| family.value_bits(*value))
            .max()
            .unwrap_or(0)
    }

    /// Writes as many of the pending values as the last fitting family holds without an empty slot.
    fn write_block(&mut self, emit: &mut impl FnMut(u64, Span<'_, T>)) {
        let waiting = self.pending.len();
        debug_assert!(waiting > 0 && waiting <= SLOTS_MAX);
        let Some(layout) = layout_for(self.family, waiting) else {
            return;
        };
        let slots = layout.slots as usize;
        let block = block_of(self.family, layout, &self.pending[..slots], self.missing);
        let last_missing = self.missing >> (slots - 1) & 1 == 1;
        self.last = Some((!last_missing).then(|| self.pending[slots - 1]));
        let span = Span {
            values: &self.pending[..slots],
            times: 1,
        };
        emit(block, span);
        self.pending.drain(..slots);
        self.missing = self.missing.checked_shr(slots as u32).unwrap_or(0);
        self.value_bits = None;
    }
}

/// The layout of a family that so many values fill without an empty slot, and that leaves the fewest over.
fn layout_for(family: usize, waiting: usize) -> Option<&'static Layout> {
    let layouts = FAMILIES[family].layouts;
    layouts
        .iter()
        .find(|layout| layout.slots as usize <= waiting)
}

/// The block of these values, of which those with their bit in `missing` are missing.
fn block_of<T: Word>(family: usize, layout: &Layout, values: &[T], missing: u64) -> u64 {
    let family = &FAMILIES[family];
    let mut block = layout.tag;
    let mut at = layout.start;
    if missing == 0 && family.count_bits == 0 {
        let width = layout.slot_bits();
        for value in values {
            block |= value.low() << at;
            at += width;
        }
        return block;
    }
    for (index, value) in values.iter().enumerate() {
        let slot = if missing >> index & 1 == 1 {
            layout.missing()
        } else {
            family.slot(*value)
        };
        block |= slot << at;
        at += layout.slot_bits();
    }
    block
}

/// Whether some family has a slot wide enough.
#[inline]
fn storable<T: Word>(value: T) -> bool {
    if value == T::MAX {
        return false;
    }
    value.bit_length() < 60
        || FAMILIES
            .iter()
            .any(|family| family.holds(family.value_bits(value), 1))
}
