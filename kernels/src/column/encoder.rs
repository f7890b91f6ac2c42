//! A column that grows entry by entry, and whose bytes can be had at any time.

use super::control;
use super::interleaved::Section;
use super::reader::check_value;
use super::reference::{holds_scalar, is_container};
use super::scalar::ScalarEncoder;
use super::sink::Sink;
use super::ColumnError;

/// Writes one column.
///
/// What is final is kept as bytes. [`ColumnEncoder::finish`] copies these and adds what still waits, so that a bucket can be
/// written after every commit while its columns go on growing; its bytes are those of an encoder that got the same entries at once.
#[derive(Debug, Clone)]
pub struct ColumnEncoder {
    sink: Sink,
    stream: ScalarEncoder,
    /// The section that objects go to, while there is one. Nothing waits in `stream` then.
    section: Option<Section>,
    count: usize,
}

impl Default for ColumnEncoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ColumnEncoder {
    /// A column without entries.
    pub fn new() -> Self {
        Self {
            sink: Sink::default(),
            stream: ScalarEncoder::new(),
            section: None,
            count: 0,
        }
    }

    /// Number of entries, missing ones included.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a value, given as BSON without its name. A value that is not valid BSON is refused, and nothing is changed.
    #[inline]
    pub fn append(&mut self, kind: u8, value: &[u8]) -> Result<(), ColumnError> {
        check_value(kind, value)?;
        if is_container(kind) {
            match holds_scalar(value) {
                Ok(scalar) => self.append_object(kind, value, scalar)?,
                Err(ColumnError::TooDeep) => self.append_scalar(kind, value)?,
                Err(error) => return Err(error),
            }
        } else {
            self.append_scalar(kind, value)?;
        }
        self.count += 1;
        Ok(())
    }

    /// Adds an entry that is missing.
    pub fn append_missing(&mut self) -> Result<(), ColumnError> {
        let taken = match &mut self.section {
            Some(section) => section.append_missing()?,
            None => false,
        };
        if !taken {
            self.end_section()?;
            self.stream.append_missing(&mut self.sink);
        }
        self.count += 1;
        Ok(())
    }

    /// The whole column as of now.
    pub fn finish(&self) -> Result<Vec<u8>, ColumnError> {
        let mut bytes = Vec::with_capacity(self.size_estimate());
        self.finish_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends the whole column as of now.
    pub fn finish_into(&self, out: &mut Vec<u8>) -> Result<(), ColumnError> {
        let mut sink = self.sink.appended_to(std::mem::take(out));
        let done = match &self.section {
            Some(section) => section.write(&mut sink.bytes),
            None => {
                self.stream.flush_copy(&mut sink);
                Ok(())
            }
        };
        sink.bytes.push(control::END);
        *out = sink.bytes;
        done
    }

    /// Length of [`ColumnEncoder::finish`], exact.
    pub fn finished_len(&self) -> Result<usize, ColumnError> {
        self.finish().map(|bytes| bytes.len())
    }

    /// Length of [`ColumnEncoder::finish`] with at most a few blocks too much, for the price of an addition.
    pub fn size_estimate(&self) -> usize {
        let waiting = match &self.section {
            Some(section) => section.size_estimate(),
            None => self.stream.waiting_bytes_max(),
        };
        self.sink.bytes.len() + waiting + 2
    }

    #[inline]
    fn append_scalar(&mut self, kind: u8, value: &[u8]) -> Result<(), ColumnError> {
        if self.section.is_some() {
            self.end_section()?;
        }
        self.stream.append(kind, value, &mut self.sink);
        Ok(())
    }

    fn append_object(&mut self, kind: u8, object: &[u8], scalar: bool) -> Result<(), ColumnError> {
        if let Some(section) = &mut self.section {
            // An object without fields says nothing about the shape.
            if object.len() > super::reference::EMPTY.len()
                && section.root() == kind
                && section.append(object)?
            {
                return Ok(());
            }
        }
        if !scalar {
            return self.append_scalar(kind, object);
        }
        self.end_section()?;
        self.stream.flush(&mut self.sink);
        self.stream = ScalarEncoder::new();
        self.section = Some(Section::new(kind, object));
        Ok(())
    }

    fn end_section(&mut self) -> Result<(), ColumnError> {
        if let Some(section) = self.section.take() {
            self.sink.end_record();
            section.write(&mut self.sink.bytes)?;
        }
        Ok(())
    }
}
