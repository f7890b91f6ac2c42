//! BSONColumn (BinData subtype 7): one field of many measurements as literals, deltas and runs, byte for byte as MongoDB writes it.
//!
//! Encoding: [`ColumnEncoder`]. Decoding, one value at a time and of any type: [`ColumnDecoder`]. Decoding a whole column
//! of one type into arrays: [`decode_i64`], [`decode_f64`], [`decode_object_ids`], [`decode_strings`].

mod decoder;
pub mod double;
mod double_encoder;
mod encoder;
mod interleaved;
mod interleaved_decoder;
mod mapping;
mod reader;
mod reference;
mod scalar;
mod scalar_decoder;
mod simple8b;
mod simple8b_builder;
mod sink;
mod strings;
#[cfg(test)]
mod tests;
mod typed;
mod unpack;

pub use decoder::{ColumnDecoder, Value};
pub use encoder::ColumnEncoder;
pub use strings::{decode_strings, StringDictionary, MISSING_CODE};
pub use typed::{decode_f64, decode_i64, decode_object_ids, Uniform};

/// How deep objects and arrays may lie in each other; MongoDB itself stops at 200.
const DEPTH_MAX: usize = 250;

/// First bytes of records.
mod control {
    /// End of the column or of an interleaved section.
    pub const END: u8 = 0;
    /// High bits of a Simple-8b record whose values are not scaled doubles.
    pub const PLAIN: u8 = 0x80;
    /// High bits of a Simple-8b record of doubles, by scale.
    pub const BY_SCALE: [u8; 6] = [0x90, 0xA0, 0xB0, 0xC0, 0xD0, PLAIN];
    /// An interleaved section whose arrays are scalars; written by old versions only.
    pub const INTERLEAVED_LEGACY: u8 = 0xF0;
    /// An interleaved section of objects.
    pub const INTERLEAVED_OBJECT: u8 = 0xF1;
    /// An interleaved section of arrays.
    pub const INTERLEAVED_ARRAY: u8 = 0xF2;
    /// Most blocks of one Simple-8b record.
    pub const BLOCKS_MAX: usize = 16;
}

/// Why a column could not be read, or a value not be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnError {
    /// The bytes end in the middle of something.
    Truncated,
    /// There are bytes after the end of the column.
    TrailingBytes,
    /// A record begins with a byte that has no meaning there.
    InvalidControl(u8),
    /// A literal or a reference object is not BSON; what is wrong with it.
    InvalidValue(&'static str),
    /// A Simple-8b block has a selector that does not exist.
    InvalidBlock,
    /// The scale of a record does not fit the type or the value before it.
    InvalidScale,
    /// A delta follows a value that has none.
    InvalidDelta,
    /// The streams of an interleaved section end at different entries, or there is none.
    UnevenStreams,
    /// Objects lie too deep in each other.
    TooDeep,
    /// There are more entries than the caller allows.
    TooManyEntries,
}

impl std::fmt::Display for ColumnError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => write!(formatter, "the column ends in the middle of a record"),
            Self::TrailingBytes => write!(formatter, "bytes follow the end of the column"),
            Self::InvalidControl(byte) => {
                write!(formatter, "no record begins with {byte:#04x} here")
            }
            Self::InvalidValue(why) => write!(formatter, "a value is not valid BSON: {why}"),
            Self::InvalidBlock => write!(formatter, "a Simple-8b block has an unknown selector"),
            Self::InvalidScale => write!(formatter, "a scale does not fit the value before it"),
            Self::InvalidDelta => write!(formatter, "a delta follows a value that has none"),
            Self::UnevenStreams => write!(formatter, "interleaved streams differ in length"),
            Self::TooDeep => write!(formatter, "objects lie too deep in each other"),
            Self::TooManyEntries => write!(formatter, "the column has more entries than allowed"),
        }
    }
}

impl std::error::Error for ColumnError {}

impl From<crate::elements::Malformed> for ColumnError {
    fn from(malformed: crate::elements::Malformed) -> Self {
        Self::InvalidValue(malformed.0)
    }
}
