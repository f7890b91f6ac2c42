//! Rows on their way into a reply: each is written once, where the reply is sent from.

use crate::bucket_rows::BucketRows;
use crate::elements::kind;
use crate::writer::Digits;
use std::ops::Range;

/// Some rows of one kind.
#[derive(Debug)]
pub enum Part {
    /// Documents that are written already, and where each ends.
    Written { bytes: Vec<u8>, ends: Vec<usize> },
    /// Measurements of a bucket, which still are columns.
    Bucket(BucketRows),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Written { ends, .. } => ends.len(),
            Self::Bucket(rows) => rows.len(),
        }
    }

    /// How many bytes the rows before this one take.
    fn before(&self, row: usize) -> usize {
        match self {
            Self::Written { ends, .. } => row
                .checked_sub(1)
                .and_then(|last| ends.get(last).or(ends.last()))
                .copied()
                .unwrap_or(0),
            Self::Bucket(rows) => rows.before(row),
        }
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Self::Written { bytes, .. } => {
                let place = self.before(row)..self.before(row + 1);
                out.extend_from_slice(bytes.get(place).unwrap_or_default());
            }
            Self::Bucket(rows) => rows.write(row, out),
        }
    }
}

/// Where a part begins in its block.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    rows: usize,
    bytes: usize,
}

/// Rows in parts, numbered from 0.
#[derive(Debug, Default)]
pub struct Block {
    parts: Vec<(Place, Part)>,
    end: Place,
}

impl Block {
    /// A block of these parts.
    pub fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        let mut block = Self::default();
        for part in parts {
            let place = block.end;
            block.end.rows += part.len();
            block.end.bytes += part.before(part.len());
            block.parts.push((place, part));
        }
        block
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.end.rows
    }

    /// How many bytes the rows before this one take.
    pub fn before(&self, row: usize) -> usize {
        let after = self.parts.partition_point(|(place, _)| place.rows <= row);
        match after.checked_sub(1).and_then(|at| self.parts.get(at)) {
            Some((place, part)) => place.bytes + part.before(row - place.rows),
            None => 0,
        }
    }

    /// Gives some rows to `each`, part by part: a part and which rows of it.
    fn walk(&self, rows: Range<usize>, mut each: impl FnMut(&Part, Range<usize>)) {
        let first = self
            .parts
            .partition_point(|(place, _)| place.rows <= rows.start);
        for (place, part) in self.parts.iter().skip(first.saturating_sub(1)) {
            if place.rows >= rows.end {
                break;
            }
            let from = rows.start.max(place.rows) - place.rows;
            let to = (rows.end - place.rows).min(part.len());
            each(part, from..to);
        }
    }

    /// Gives the bytes of each of some rows to `each`.
    pub fn documents(&self, rows: Range<usize>, mut each: impl FnMut(&[u8])) {
        let mut own = Vec::new();
        self.walk(rows, |part, range| {
            for row in range {
                if let Part::Written { bytes, .. } = part {
                    let place = part.before(row)..part.before(row + 1);
                    each(bytes.get(place).unwrap_or_default());
                } else {
                    own.clear();
                    part.write(row, &mut own);
                    each(&own);
                }
            }
        });
    }

    /// The rows at these positions, written; None if there is no such row.
    pub fn select(&self, positions: &[i64]) -> Option<Part> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(positions.len()));
        for position in positions {
            let row = usize::try_from(*position).ok()?;
            if row >= self.len() {
                return None;
            }
            self.walk(row..row + 1, |part, range| {
                part.write(range.start, &mut bytes);
            });
            ends.push(bytes.len());
        }
        Some(Part::Written { bytes, ends })
    }
}

/// Rows of a block, or documents that lie anywhere.
pub enum Piece<'a> {
    Block(&'a Block, Range<usize>),
    Documents(Vec<&'a [u8]>),
}

/// Appends rows as the elements of an array.
pub fn write_elements(pieces: &[Piece<'_>], out: &mut Vec<u8>) {
    let mut index = Digits::of(0);
    let mut head = |out: &mut Vec<u8>| {
        out.push(kind::OBJECT);
        out.extend_from_slice(index.as_bytes());
        out.push(0);
        index.increase();
    };
    for piece in pieces {
        match piece {
            Piece::Block(block, rows) => block.walk(rows.clone(), |part, range| {
                for row in range {
                    head(out);
                    part.write(row, out);
                }
            }),
            Piece::Documents(documents) => {
                for document in documents {
                    head(out);
                    out.extend_from_slice(document);
                }
            }
        }
    }
}

/// How many bytes type bytes and names of this many elements of an array take.
pub fn heads_bytes(count: usize) -> usize {
    let (mut total, mut digits, mut from) = (0, 1, 0);
    let mut to: usize = 10;
    while from < count {
        total += (count.min(to) - from) * (digits + 2);
        (digits, from) = (digits + 1, to);
        to = to.saturating_mul(10);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::{heads_bytes, write_elements, Block, Part, Piece};

    const ROW: &[u8] = b"\x05\0\0\0\0";
    const LONG: &[u8] = b"\x0c\0\0\0\x10a\0\x01\0\0\0\0";

    fn written(rows: &[&[u8]]) -> Part {
        let mut end = 0;
        let ends = rows.iter().map(|row| {
            end += row.len();
            end
        });
        Part::Written {
            ends: ends.collect(),
            bytes: rows.concat(),
        }
    }

    #[test]
    fn sizes_are_those_of_what_is_written() {
        for count in [0, 1, 9, 10, 11, 99, 100, 101, 1234] {
            let pieces = [Piece::Documents(vec![ROW; count])];
            let mut out = Vec::new();
            write_elements(&pieces, &mut out);
            assert_eq!(out.len(), heads_bytes(count) + count * ROW.len());
        }
    }

    #[test]
    fn rows_are_found_in_any_part() {
        let none: &[&[u8]] = &[];
        let block = Block::of([written(&[ROW, LONG]), written(none), written(&[LONG, ROW])]);
        let all = [ROW, LONG, LONG, ROW];
        for start in 0..=all.len() {
            assert_eq!(block.before(start), all[..start].concat().len());
            for stop in start..=all.len() {
                let mut found = Vec::new();
                block.documents(start..stop, |row| found.push(row.to_vec()));
                assert_eq!(found, all[start..stop]);
                let mut whole = Vec::new();
                let halves = [
                    Piece::Block(&block, 0..start),
                    Piece::Documents(all[start..stop].to_vec()),
                ];
                write_elements(&halves, &mut whole);
                let mut alike = Vec::new();
                write_elements(&[Piece::Block(&block, 0..stop)], &mut alike);
                assert_eq!(whole, alike);
            }
        }
        let chosen = Block::of(block.select(&[3, 1]));
        assert_eq!((chosen.len(), chosen.before(2)), (2, 17));
        assert!(block.select(&[4]).is_none() && block.select(&[-1]).is_none());
    }
}
