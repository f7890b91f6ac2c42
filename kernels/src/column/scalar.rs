//! One stream of values on its way into records: literals where it must be, deltas where it can be.

use super::control;
use super::double_encoder::DoubleEncoder;
use super::mapping::{
    coding, narrow_number, wide_number, zigzag, zigzag_wide, Coding, BINARY_HEADER, OBJECT_ID_FIXED,
};
use super::simple8b_builder::Builder;
use super::sink::Sink;
use crate::elements::kind;

/// What the next delta is taken from.
#[derive(Debug, Clone)]
enum State {
    Repeat,
    Delta { number: i64 },
    DeltaOfDelta { number: i64, delta: i64 },
    Double(DoubleEncoder),
    Wide { number: Option<u128> },
}

/// The encoder of one stream. What is finished goes to the sink that each call is given.
#[derive(Debug, Clone)]
pub struct ScalarEncoder {
    /// Type of the latest literal; None before the first.
    kind: Option<u8>,
    state: State,
    /// The previous value, where its number does not tell enough about it.
    previous: Vec<u8>,
    narrow: Builder<u64>,
    wide: Builder<u128>,
}

impl ScalarEncoder {
    /// A stream without values.
    pub fn new() -> Self {
        Self {
            kind: None,
            state: State::Repeat,
            previous: Vec::new(),
            narrow: Builder::new(),
            wide: Builder::new(),
        }
    }

    /// A stream that goes on from a value which the reader knows already.
    pub fn following(kind: u8, value: &[u8]) -> Self {
        let mut stream = Self::new();
        stream.start(kind, value);
        stream
    }

    /// Adds a value whose bytes are whole.
    #[inline]
    pub fn append(&mut self, kind: u8, value: &[u8], sink: &mut Sink) {
        if self.kind != Some(kind) || !self.append_delta(kind, value, sink) {
            self.flush(sink);
            sink.literal(kind, value);
            self.start(kind, value);
        }
    }

    /// Adds a missing value.
    pub fn append_missing(&mut self, sink: &mut Sink) {
        match &mut self.state {
            State::Double(double) => double.append_missing(&mut self.narrow, sink),
            State::Wide { .. } => self.wide.append_missing(&mut |block, span| {
                sink.block(control::PLAIN, block, span.slots());
            }),
            _ => self.narrow.append_missing(&mut |block, span| {
                sink.block(control::PLAIN, block, span.slots());
            }),
        }
    }

    /// Puts what waits into blocks.
    pub fn flush(&mut self, sink: &mut Sink) {
        let high = self.control();
        self.narrow
            .flush(&mut |block, span| sink.block(high, block, span.slots()));
        self.wide
            .flush(&mut |block, span| sink.block(high, block, span.slots()));
    }

    /// Puts what waits into blocks, and goes on as if nothing had been done.
    pub fn flush_copy(&self, sink: &mut Sink) {
        let high = self.control();
        self.narrow
            .flush_copy(&mut |block, span| sink.block(high, block, span.slots()));
        self.wide
            .flush_copy(&mut |block, span| sink.block(high, block, span.slots()));
    }

    /// Bytes that [`ScalarEncoder::flush`] adds at most.
    pub fn waiting_bytes_max(&self) -> usize {
        self.narrow.waiting_bytes_max() + self.wide.waiting_bytes_max()
    }

    fn control(&self) -> u8 {
        match &self.state {
            State::Double(double) => double.control(),
            _ => control::PLAIN,
        }
    }

    fn start(&mut self, kind: u8, value: &[u8]) {
        self.kind = Some(kind);
        self.state = match coding(kind) {
            Coding::Repeat => State::Repeat,
            Coding::Delta => State::Delta {
                number: narrow_number(kind, value),
            },
            Coding::DeltaOfDelta => State::DeltaOfDelta {
                number: narrow_number(kind, value),
                delta: 0,
            },
            Coding::Double => State::Double(DoubleEncoder::new(double_of(value))),
            Coding::Wide => State::Wide {
                number: wide_number(kind, value),
            },
        };
        self.remember(kind, value);
    }

    fn remember(&mut self, kind: u8, value: &[u8]) {
        self.previous.clear();
        if matches!(self.state, State::Repeat | State::Wide { .. }) || kind == kind::OBJECT_ID {
            self.previous.extend_from_slice(value);
        }
    }

    /// Adds a value of the type of the one before; false, and nothing done, if it takes a literal.
    #[inline]
    fn append_delta(&mut self, kind: u8, value: &[u8], sink: &mut Sink) -> bool {
        match &mut self.state {
            State::Repeat => {
                self.previous == value
                    && self.narrow.append(0, &mut |block, span| {
                        sink.block(control::PLAIN, block, span.slots())
                    })
            }
            State::Delta { number } => {
                let new = narrow_number(kind, value);
                let delta = zigzag(new.wrapping_sub(*number));
                *number = new;
                self.narrow.append(delta, &mut |block, span| {
                    sink.block(control::PLAIN, block, span.slots())
                })
            }
            State::DeltaOfDelta { number, delta } => {
                if kind == kind::OBJECT_ID
                    && self.previous.get(OBJECT_ID_FIXED) != value.get(OBJECT_ID_FIXED)
                {
                    return false;
                }
                let new = narrow_number(kind, value);
                let step = new.wrapping_sub(*number);
                let change = zigzag(step.wrapping_sub(*delta));
                *number = new;
                *delta = step;
                self.narrow.append(change, &mut |block, span| {
                    sink.block(control::PLAIN, block, span.slots())
                })
            }
            State::Double(double) => double.append(double_of(value), &mut self.narrow, sink),
            State::Wide { .. } => self.append_wide(kind, value, sink),
        }
    }

    fn append_wide(&mut self, kind: u8, value: &[u8], sink: &mut Sink) -> bool {
        let State::Wide { number } = &mut self.state else {
            return false;
        };
        let mut emit = |block, span: super::simple8b_builder::Span<'_, u128>| {
            sink.block(control::PLAIN, block, span.slots());
        };
        if self.previous == value {
            return self.wide.append(0, &mut emit);
        }
        if kind == kind::BINARY && !same_shape(&self.previous, value) {
            return false;
        }
        let Some(new) = wide_number(kind, value) else {
            return false;
        };
        // After a value without a number the reader counts from 0, where no change means the same value again.
        let delta = zigzag_wide(new.wrapping_sub(number.unwrap_or(0)) as i128);
        if delta == 0 || !self.wide.append(delta, &mut emit) {
            return false;
        }
        *number = Some(new);
        self.previous.clear();
        self.previous.extend_from_slice(value);
        true
    }
}

/// Whether two binary values agree in length and subtype.
fn same_shape(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.get(..BINARY_HEADER) == other.get(..BINARY_HEADER)
}

fn double_of(value: &[u8]) -> f64 {
    value
        .first_chunk()
        .map_or(0.0, |bytes| f64::from_le_bytes(*bytes))
}
