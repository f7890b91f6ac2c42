//! A stream of doubles on its way into blocks: which scale each block gets.
//!
//! The scale grows as values need it: if no block gets full by it, the waiting values are expressed anew at the larger scale, else
//! they are written at the old one first. When a block was written, the values after it start from the smallest scale again.

use super::control;
use super::double;
use super::mapping::{unzigzag, zigzag};
use super::simple8b_builder::{Builder, Span};
use super::sink::Sink;

/// The scale of a stream of doubles, and the values that deltas are taken from.
#[derive(Debug, Clone)]
pub struct DoubleEncoder {
    scale: usize,
    /// The previous value, and its integer at `scale`.
    previous: f64,
    number: i64,
    /// The value of the last slot that is in a block, or of the literal.
    written: f64,
}

impl DoubleEncoder {
    /// The state after a literal.
    pub fn new(literal: f64) -> Self {
        let (number, scale) = double::encode_from(literal, 0);
        Self {
            scale,
            previous: literal,
            number,
            written: literal,
        }
    }

    /// High bits of the control byte of blocks at this scale.
    pub fn control(&self) -> u8 {
        control::BY_SCALE[self.scale.min(double::RAW)]
    }

    /// Adds a value; false if it must become a literal.
    pub fn append(&mut self, value: f64, builder: &mut Builder<u64>, sink: &mut Sink) -> bool {
        let (mut number, scale) = double::encode_from(value, self.scale);
        if scale != self.scale {
            number = self.grow(value, scale, builder, sink);
        }
        let delta = zigzag(number.wrapping_sub(self.number));
        let mut written: Option<i64> = None;
        let control = self.control();
        let stored = builder.append(delta, &mut |block, span| {
            written = Some(advance(&span).wrapping_add(written.unwrap_or(0)));
            sink.block(control, block, span.slots());
        });
        if let Some(advance) = written {
            self.restart(advance, builder, sink);
        } else if stored {
            self.previous = value;
            self.number = number;
        }
        stored
    }

    /// Adds a missing value.
    pub fn append_missing(&mut self, builder: &mut Builder<u64>, sink: &mut Sink) {
        let mut written: Option<i64> = None;
        let control = self.control();
        builder.append_missing(&mut |block, span| {
            written = Some(advance(&span).wrapping_add(written.unwrap_or(0)));
            sink.block(control, block, span.slots());
        });
        if let Some(advance) = written {
            self.restart(advance, builder, sink);
        }
    }

    /// Goes to a larger scale and returns the integer of the value there.
    fn grow(
        &mut self,
        value: f64,
        mut scale: usize,
        builder: &mut Builder<u64>,
        sink: &mut Sink,
    ) -> i64 {
        if let Some(rescaled) = self.rescaled(scale, builder) {
            *builder = rescaled;
        } else {
            let control = self.control();
            builder.flush(&mut |block, span| sink.block(control, block, span.slots()));
            sink.end_record();
            self.written = self.previous;
        }
        // The larger scale must fit the value before, too; the bits of a double always do.
        loop {
            let (before, common) = double::encode_from(self.previous, scale);
            let (number, fitting) = double::encode_from(value, common);
            if fitting == common {
                self.scale = common;
                self.number = before;
                return number;
            }
            scale = fitting;
        }
    }

    /// The waiting values at another scale, if all fit it and none completes a block.
    fn rescaled(&self, scale: usize, builder: &Builder<u64>) -> Option<Builder<u64>> {
        let mut number = double::encode(self.written, self.scale)?;
        let mut before = double::encode(self.written, scale)?;
        let mut rescaled = Builder::following(builder);
        let mut full = false;
        for delta in builder.waiting() {
            let mut emit = |_, _: Span<'_, u64>| full = true;
            let Some(delta) = delta else {
                rescaled.append_missing(&mut emit);
                continue;
            };
            number = number.wrapping_add(unzigzag(delta));
            let new = double::encode(double::decode(number, self.scale), scale)?;
            if !rescaled.append(zigzag(new.wrapping_sub(before)), &mut emit) || full {
                return None;
            }
            before = new;
        }
        (!full).then_some(rescaled)
    }

    /// After blocks were written, whose deltas add up to `advance`: expresses what still waits from the smallest scale on.
    fn restart(&mut self, advance: i64, builder: &mut Builder<u64>, sink: &mut Sink) {
        let scale = self.scale;
        let start = double::encode(self.written, scale).unwrap_or(self.number);
        let mut number = start.wrapping_add(advance);
        self.written = double::decode(number, scale);
        self.previous = self.written;
        (self.number, self.scale) = double::encode_from(self.written, 0);
        let rest = Builder::following(builder);
        let waiting = std::mem::replace(builder, rest);
        for delta in waiting.waiting() {
            if let Some(delta) = delta {
                number = number.wrapping_add(unzigzag(delta));
                let stored = self.append(double::decode(number, scale), builder, sink);
                debug_assert!(stored, "a delta that was stored once is stored again");
            } else {
                self.append_missing(builder, sink);
            }
        }
    }
}

/// The sum of the deltas of a block.
fn advance(span: &Span<'_, u64>) -> i64 {
    let once = span
        .values
        .iter()
        .fold(0_i64, |sum, value| sum.wrapping_add(unzigzag(*value)));
    once.wrapping_mul(i64::from(span.times))
}
