//! Objects or arrays of like shape on their way into an interleaved section: a stream for each scalar of the shape.

use super::control;
use super::reference::{self, holds_empty, lock_step, merge, EMPTY};
use super::scalar::ScalarEncoder;
use super::sink::Sink;
use super::ColumnError;
use crate::elements::{kind, Element};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The stream of one scalar of the reference.
#[derive(Debug, Clone)]
struct Leaf {
    stream: ScalarEncoder,
    sink: Sink,
}

#[derive(Debug, Clone)]
enum Phase {
    /// Objects wait while the reference can still grow.
    Gathering(Vec<Vec<u8>>),
    /// The reference is fixed.
    Streaming(Vec<Leaf>),
}

/// The section that is being written.
#[derive(Debug, Clone)]
pub struct Section {
    root: u8,
    reference: Vec<u8>,
    phase: Phase,
}

impl Section {
    /// A section that begins with this object or array, in which there is a scalar.
    pub fn new(root: u8, object: &[u8]) -> Self {
        Self {
            root,
            reference: object.to_vec(),
            phase: Phase::Gathering(vec![object.to_vec()]),
        }
    }

    /// Type byte of the section's entries.
    pub fn root(&self) -> u8 {
        self.root
    }

    /// Adds an object; false, and nothing done, if it does not fit.
    pub fn append(&mut self, object: &[u8]) -> Result<bool, ColumnError> {
        if let Phase::Gathering(waiting) = &mut self.phase {
            let mut scalars = 0;
            if !lock_step(&self.reference, object, &mut |_, _| scalars += 1)? {
                match merge(&self.reference, object)? {
                    Some(merged) => self.reference = merged,
                    None => return Ok(false),
                }
            }
            if scalars * 2 >= waiting.len() {
                waiting.push(object.to_vec());
                return Ok(true);
            }
            self.phase = Phase::Streaming(stream(&self.reference, waiting)?);
        }
        match &mut self.phase {
            Phase::Streaming(leaves) => append_to(leaves, &self.reference, object),
            Phase::Gathering(_) => Ok(false),
        }
    }

    /// Adds a missing entry; false, and nothing done, if the reference has an empty object, which every entry must have.
    pub fn append_missing(&mut self) -> Result<bool, ColumnError> {
        if holds_empty(&self.reference)? {
            return Ok(false);
        }
        match &mut self.phase {
            Phase::Gathering(waiting) => waiting.push(EMPTY.to_vec()),
            Phase::Streaming(leaves) => {
                for leaf in leaves {
                    leaf.stream.append_missing(&mut leaf.sink);
                }
            }
        }
        Ok(true)
    }

    /// Writes the whole section, and changes nothing in it.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), ColumnError> {
        out.push(if self.root == kind::ARRAY {
            control::INTERLEAVED_ARRAY
        } else {
            control::INTERLEAVED_OBJECT
        });
        out.extend_from_slice(&self.reference);
        let streamed;
        let leaves = match &self.phase {
            Phase::Gathering(waiting) => {
                streamed = stream(&self.reference, waiting)?;
                &streamed
            }
            Phase::Streaming(leaves) => leaves,
        };
        let sinks = leaves
            .iter()
            .map(|leaf| {
                let mut sink = leaf.sink.clone();
                leaf.stream.flush_copy(&mut sink);
                sink
            })
            .collect();
        shuffle(sinks, out);
        out.push(control::END);
        Ok(())
    }

    /// Bytes that [`Section::write`] writes, roughly.
    pub fn size_estimate(&self) -> usize {
        let streams = match &self.phase {
            Phase::Gathering(waiting) => {
                waiting.iter().map(|object| object.len() / 2).sum::<usize>()
            }
            Phase::Streaming(leaves) => leaves
                .iter()
                .map(|leaf| leaf.sink.bytes.len() + leaf.stream.waiting_bytes_max())
                .sum(),
        };
        self.reference.len() + streams + 2
    }
}

/// Streams for the scalars of the reference, with these objects in them.
fn stream(reference: &[u8], objects: &[Vec<u8>]) -> Result<Vec<Leaf>, ColumnError> {
    let mut leaves = Vec::new();
    lock_step(reference, reference, &mut |known, _| {
        leaves.push(Leaf {
            stream: ScalarEncoder::following(known.kind, known.value),
            sink: Sink::with_records(),
        });
    })?;
    for object in objects {
        append_to(&mut leaves, reference, object)?;
    }
    Ok(leaves)
}

fn append_to(leaves: &mut [Leaf], reference: &[u8], object: &[u8]) -> Result<bool, ColumnError> {
    let mut entries: Vec<Option<Element<'_>>> = Vec::with_capacity(leaves.len());
    if !reference::lock_step(reference, object, &mut |_, entry| entries.push(entry))? {
        return Ok(false);
    }
    for (leaf, entry) in leaves.iter_mut().zip(entries) {
        match entry {
            Some(element) => leaf
                .stream
                .append(element.kind, element.value, &mut leaf.sink),
            None => leaf.stream.append_missing(&mut leaf.sink),
        }
    }
    Ok(true)
}

/// Puts the records into the order in which a reader needs them: always the stream that is furthest behind.
fn shuffle(sinks: Vec<Sink>, out: &mut Vec<u8>) {
    let mut behind: BinaryHeap<_> = (0..sinks.len())
        .map(|leaf| Reverse((0_u64, leaf)))
        .collect();
    let mut rest: Vec<_> = sinks
        .iter()
        .map(|sink| (sink.bytes.as_slice(), sink.records.iter().flatten()))
        .collect();
    while let Some(Reverse((entries, leaf))) = behind.pop() {
        let (bytes, records) = &mut rest[leaf];
        if let Some(record) = records.next() {
            let (now, later) = bytes.split_at(record.bytes);
            out.extend_from_slice(now);
            *bytes = later;
            behind.push(Reverse((entries + u64::from(record.entries), leaf)));
        }
    }
}
