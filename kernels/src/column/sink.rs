//! Where a stream's finished records go: blocks are gathered under control bytes.

use super::control;

/// Length of one record, and how many entries of its stream it stands for.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    pub bytes: usize,
    pub entries: u32,
}

/// The finished bytes of a stream.
#[derive(Debug, Clone, Default)]
pub struct Sink {
    pub bytes: Vec<u8>,
    /// Where the record begins that further blocks may join.
    open: Option<usize>,
    /// Filled for the streams of an interleaved section, whose records are shuffled in the end.
    pub records: Option<Vec<Record>>,
}

impl Sink {
    /// A sink that remembers where each record ends.
    pub fn with_records() -> Self {
        Self {
            records: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// A copy that goes on behind the bytes of `out`.
    pub fn appended_to(&self, mut out: Vec<u8>) -> Self {
        let open = self.open.map(|at| at + out.len());
        out.extend_from_slice(&self.bytes);
        Self {
            bytes: out,
            open,
            records: None,
        }
    }

    /// A block of `entries` slots under a control byte with these high bits.
    pub fn block(&mut self, high: u8, block: u64, entries: u32) {
        let joined = self
            .open
            .and_then(|at| self.bytes.get_mut(at))
            .filter(|byte| {
                **byte & 0xF0 == high && usize::from(**byte & 15) + 1 < control::BLOCKS_MAX
            });
        let mut added = 8;
        if let Some(byte) = joined {
            *byte += 1;
        } else {
            self.open = Some(self.bytes.len());
            self.bytes.push(high);
            added += 1;
            if let Some(records) = &mut self.records {
                records.push(Record {
                    bytes: 0,
                    entries: 0,
                });
            }
        }
        self.bytes.extend_from_slice(&block.to_le_bytes());
        if let Some(record) = self.records.as_mut().and_then(|records| records.last_mut()) {
            record.bytes += added;
            record.entries += entries;
        }
    }

    /// A value as it is.
    pub fn literal(&mut self, kind: u8, value: &[u8]) {
        self.end_record();
        self.bytes.extend_from_slice(&[kind, 0]);
        self.bytes.extend_from_slice(value);
        if let Some(records) = &mut self.records {
            records.push(Record {
                bytes: value.len() + 2,
                entries: 1,
            });
        }
    }

    /// Lets the next block begin a record of its own.
    pub fn end_record(&mut self) {
        self.open = None;
    }
}
