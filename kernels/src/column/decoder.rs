//! A column entry by entry, whatever its types.

use super::interleaved_decoder::Section;
use super::reader::{Reader, Record};
use super::scalar_decoder::{ScalarDecoder, Step};
use super::ColumnError;

/// Longest value that is rebuilt from a number: text of 16 bytes with length and NUL, or binary data of 16 bytes.
const INLINE_MAX: usize = 21;

#[derive(Debug, Clone, Copy)]
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Inline { bytes: [u8; INLINE_MAX], length: u8 },
}

/// A value that lies in the column or was rebuilt from a number.
#[derive(Debug, Clone, Copy)]
pub struct Scalar<'a> {
    kind: u8,
    bytes: Bytes<'a>,
}

impl<'a> Scalar<'a> {
    pub(super) fn borrowed(kind: u8, bytes: &'a [u8]) -> Self {
        Self {
            kind,
            bytes: Bytes::Borrowed(bytes),
        }
    }

    /// A copy of a value whose length is known beforehand, at most [`INLINE_MAX`].
    #[inline]
    pub(super) fn fixed<const LENGTH: usize>(kind: u8, value: [u8; LENGTH]) -> Self {
        const { assert!(LENGTH <= INLINE_MAX) };
        let mut bytes = [0; INLINE_MAX];
        bytes[..LENGTH].copy_from_slice(&value);
        Self {
            kind,
            bytes: Bytes::Inline {
                bytes,
                length: LENGTH as u8,
            },
        }
    }

    /// A copy of at most [`INLINE_MAX`] bytes.
    pub(super) fn inline(kind: u8, value: &[u8]) -> Self {
        let length = value.len().min(INLINE_MAX);
        let mut bytes = [0; INLINE_MAX];
        bytes[..length].copy_from_slice(&value[..length]);
        Self {
            kind,
            bytes: Bytes::Inline {
                bytes,
                length: length as u8,
            },
        }
    }

    /// The value's BSON type byte.
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// The value as BSON, without type and name.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Inline { bytes, length } => &bytes[..usize::from(*length)],
        }
    }
}

/// One entry of a column.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    Scalar(Scalar<'a>),
    /// An object or array out of an interleaved section: its type byte and its bytes.
    Built(u8, Vec<u8>),
}

impl Value<'_> {
    /// The value's BSON type byte.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Scalar(scalar) => scalar.kind(),
            Self::Built(kind, _) => *kind,
        }
    }

    /// The value as BSON, without type and name.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Scalar(scalar) => scalar.bytes(),
            Self::Built(_, bytes) => bytes,
        }
    }
}

/// Gives the entries of a column in their order, None for a missing one. After an error there is nothing more.
///
/// Where the values are only looked at, [`ColumnDecoder::advance`] and [`ColumnDecoder::value`] spare the copies of the iterator.
#[derive(Debug, Clone)]
pub struct ColumnDecoder<'a> {
    reader: Reader<'a>,
    stream: ScalarDecoder<'a>,
    section: Option<Section<'a>>,
    /// Entries that may still come.
    left: usize,
    done: bool,
}

impl<'a> ColumnDecoder<'a> {
    /// A decoder that fails rather than give more than `max_entries`.
    pub fn new(column: &'a [u8], max_entries: usize) -> Self {
        Self {
            reader: Reader::new(column),
            stream: ScalarDecoder::new(),
            section: None,
            left: max_entries,
            done: false,
        }
    }

    /// Goes to the next entry and tells whether it has a value; None after the last one.
    pub fn advance(&mut self) -> Option<Result<bool, ColumnError>> {
        if self.done {
            return None;
        }
        match self.step() {
            Ok(Step::End) => {
                self.done = true;
                None
            }
            Ok(step) => {
                let Some(left) = self.left.checked_sub(1) else {
                    self.done = true;
                    return Some(Err(ColumnError::TooManyEntries));
                };
                self.left = left;
                Some(Ok(step == Step::Value))
            }
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }

    /// Type byte and bytes of the value that [`ColumnDecoder::advance`] came to last.
    #[inline]
    pub fn value(&self) -> (u8, &[u8]) {
        match &self.section {
            Some(section) => (section.kind(), section.current()),
            None => {
                let value = self.stream.current();
                (value.kind(), value.bytes())
            }
        }
    }

    fn step(&mut self) -> Result<Step, ColumnError> {
        loop {
            if let Some(section) = &mut self.section {
                let step = section.step(&mut self.reader)?;
                if step != Step::End {
                    return Ok(step);
                }
                self.section = None;
                self.stream = ScalarDecoder::new();
            }
            let step = self.stream.step()?;
            if step != Step::End {
                return Ok(step);
            }
            match self.reader.record()? {
                Record::End if self.reader.is_empty() => return Ok(Step::End),
                Record::End => return Err(ColumnError::TrailingBytes),
                Record::Literal(value) => {
                    self.stream.literal(value);
                    return Ok(Step::Value);
                }
                Record::Blocks { high, blocks } => self.stream.blocks(high, blocks)?,
                Record::Interleaved { control, reference } => {
                    self.section = Some(Section::new(control, reference)?);
                }
            }
        }
    }
}

impl<'a> Iterator for ColumnDecoder<'a> {
    type Item = Result<Option<Value<'a>>, ColumnError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.advance()?.map(|present| {
            present.then(|| match &self.section {
                Some(section) => Value::Built(section.kind(), section.current().to_vec()),
                None => Value::Scalar(*self.stream.current()),
            })
        });
        Some(entry)
    }
}
