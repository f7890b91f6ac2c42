//! An interleaved section on its way back to objects or arrays.

use super::control;
use super::decoder::Scalar;
use super::reader::{Reader, Record};
use super::reference::ObjectWriter;
use super::scalar_decoder::{ScalarDecoder, Step};
use super::{ColumnError, DEPTH_MAX};
use crate::elements::{elements, kind};

/// The shape of the entries, depth first.
#[derive(Debug, Clone, Copy)]
enum Node<'a> {
    Leaf {
        name: &'a [u8],
    },
    Open {
        kind: u8,
        name: &'a [u8],
    },
    /// The end of an object; whether it stays if nothing is in it.
    Close {
        empty: bool,
    },
}

/// The section that is being read.
#[derive(Debug, Clone)]
pub struct Section<'a> {
    root: u8,
    nodes: Vec<Node<'a>>,
    streams: Vec<ScalarDecoder<'a>>,
    begun: bool,
    writer: ObjectWriter,
    /// Where each open object's name begins, and the length of what was written when it was opened.
    open: Vec<(usize, usize)>,
}

impl<'a> Section<'a> {
    /// The section with this control byte and reference.
    pub fn new(control: u8, reference: &'a [u8]) -> Result<Self, ColumnError> {
        let root = if control == control::INTERLEAVED_ARRAY {
            kind::ARRAY
        } else {
            kind::OBJECT
        };
        let mut section = Self {
            root,
            nodes: Vec::new(),
            streams: Vec::new(),
            begun: false,
            writer: ObjectWriter::default(),
            open: Vec::new(),
        };
        section.learn(reference, control != control::INTERLEAVED_LEGACY, 1)?;
        if section.streams.is_empty() {
            return Err(ColumnError::UnevenStreams);
        }
        Ok(section)
    }

    /// Type byte of the entries.
    pub fn kind(&self) -> u8 {
        self.root
    }

    fn learn(&mut self, object: &'a [u8], arrays: bool, depth: usize) -> Result<(), ColumnError> {
        if depth > DEPTH_MAX {
            return Err(ColumnError::TooDeep);
        }
        let before = self.nodes.len();
        for element in elements(object)? {
            let element = element?;
            if element.kind == kind::OBJECT || arrays && element.kind == kind::ARRAY {
                self.nodes.push(Node::Open {
                    kind: element.kind,
                    name: element.name,
                });
                self.learn(element.value, arrays, depth + 1)?;
            } else {
                self.nodes.push(Node::Leaf { name: element.name });
                let value = Scalar::borrowed(element.kind, element.value);
                super::reader::check_value(element.kind, element.value)?;
                self.streams.push(ScalarDecoder::following(value));
            }
        }
        let empty = self.nodes.len() == before;
        self.nodes.push(Node::Close { empty });
        Ok(())
    }

    /// The latest entry that has a value.
    pub fn current(&self) -> &[u8] {
        &self.writer.bytes
    }

    /// Goes to the next entry.
    pub fn step(&mut self, reader: &mut Reader<'a>) -> Result<Step, ColumnError> {
        if self.streams.first().is_some_and(ScalarDecoder::is_empty) && reader.at_end() {
            reader.record()?;
            let even = self.begun && self.streams.iter().all(ScalarDecoder::is_empty);
            return even.then_some(Step::End).ok_or(ColumnError::UnevenStreams);
        }
        self.begun = true;
        let writer = &mut self.writer;
        writer.bytes.clear();
        writer.open_root();
        self.open.clear();
        self.open.push((0, writer.bytes.len()));
        let mut streams = self.streams.iter_mut();
        for node in &self.nodes {
            match *node {
                Node::Open { kind, name } => {
                    let start = writer.bytes.len();
                    writer.open(kind, name);
                    self.open.push((start, writer.bytes.len()));
                }
                Node::Leaf { name } => {
                    let stream = streams.next().ok_or(ColumnError::UnevenStreams)?;
                    if leaf_step(stream, reader)? == Step::Value {
                        let value = stream.current();
                        writer.element(value.kind(), name, value.bytes());
                    }
                }
                Node::Close { empty } => match self.open.pop() {
                    Some((start, length)) if !empty && writer.bytes.len() == length => {
                        writer.discard(start);
                    }
                    _ => writer.close(),
                },
            }
        }
        Ok(if writer.bytes.is_empty() {
            Step::Missing
        } else {
            Step::Value
        })
    }
}

/// Goes to the next entry of one stream, into further records where needed.
fn leaf_step<'a>(
    stream: &mut ScalarDecoder<'a>,
    reader: &mut Reader<'a>,
) -> Result<Step, ColumnError> {
    loop {
        let step = stream.step()?;
        if step != Step::End {
            return Ok(step);
        }
        match reader.record()? {
            Record::Literal(value) => {
                stream.literal(value);
                return Ok(Step::Value);
            }
            Record::Blocks { high, blocks } => stream.blocks(high, blocks)?,
            Record::End => return Err(ColumnError::UnevenStreams),
            Record::Interleaved { control, .. } => {
                return Err(ColumnError::InvalidControl(control))
            }
        }
    }
}
