//! Rows on their way into a reply: each is written once, where the reply is sent from.

use crate::bucket_rows::BucketRows;
use crate::elements::kind;
use crate::writer::Digits;
use std::ops::Range;
use std::sync::Arc;

/// Some rows of one kind.
#[derive(Debug)]
pub enum Part {
    /// Documents that are written already, and where each ends.
    Written { bytes: Vec<u8>, ends: Vec<usize> },
    /// Measurements of a bucket, which still are columns.
    Bucket(Arc<BucketRows>),
    /// Some of them, and where each ends.
    Chosen {
        rows: Arc<BucketRows>,
        chosen: Vec<usize>,
        ends: Vec<usize>,
    },
}

/// Where the rows before one end.
fn end_before(ends: &[usize], row: usize) -> usize {
    row.checked_sub(1)
        .and_then(|last| ends.get(last).or(ends.last()))
        .copied()
        .unwrap_or(0)
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Written { ends, .. } | Self::Chosen { ends, .. } => ends.len(),
            Self::Bucket(rows) => rows.len(),
        }
    }

    /// How many bytes the rows before this one take.
    fn before(&self, row: usize) -> usize {
        match self {
            Self::Written { ends, .. } | Self::Chosen { ends, .. } => end_before(ends, row),
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
            Self::Chosen { rows, chosen, .. } => {
                if let Some(row) = chosen.get(row) {
                    rows.write(*row, out);
                }
            }
        }
    }

    /// Some of its rows, by their numbers.
    fn select(&self, chosen: Vec<usize>) -> Self {
        let (rows, chosen) = match self {
            Self::Written { .. } => {
                let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(chosen.len()));
                for row in chosen {
                    self.write(row, &mut bytes);
                    ends.push(bytes.len());
                }
                return Self::Written { bytes, ends };
            }
            Self::Bucket(rows) => (rows, chosen),
            Self::Chosen {
                rows,
                chosen: within,
                ..
            } => {
                let found = chosen.iter().filter_map(|row| within.get(*row));
                (rows, found.copied().collect())
            }
        };
        let mut end = 0;
        let ends = chosen.iter().map(|row| {
            end += rows.before(row + 1) - rows.before(*row);
            end
        });
        Self::Chosen {
            ends: ends.collect(),
            rows: Arc::clone(rows),
            chosen,
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

    /// The rows at these positions; None if there is no such row.
    pub fn select(&self, positions: &[i64]) -> Option<Self> {
        let mut found = Vec::new();
        let mut here: Option<(usize, Vec<usize>)> = None;
        for position in positions {
            let row = usize::try_from(*position)
                .ok()
                .filter(|row| *row < self.len())?;
            let within = |at: &usize| {
                let (place, part) = self.parts.get(*at)?;
                let row = row.checked_sub(place.rows)?;
                (row < part.len()).then_some(row)
            };
            // Mostly the next row lies in the part of the one before.
            let known = here.as_ref().and_then(|(at, _)| within(at));
            if let (Some(row), Some((_, chosen))) = (known, &mut here) {
                chosen.push(row);
                continue;
            }
            let after = self.parts.partition_point(|(place, _)| place.rows <= row);
            let at = after.checked_sub(1)?;
            if let Some((before, chosen)) = here.replace((at, vec![within(&at)?])) {
                found.push(self.parts.get(before)?.1.select(chosen));
            }
        }
        if let Some((at, chosen)) = here {
            found.push(self.parts.get(at)?.1.select(chosen));
        }
        Some(Self::of(found))
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
        let chosen = block.select(&[3, 1]).expect("they are there");
        assert_eq!((chosen.len(), chosen.before(2)), (2, 17));
        assert_eq!(block.select(&[]).map(|none| none.len()), Some(0));
        assert!(block.select(&[4]).is_none() && block.select(&[-1]).is_none());
    }
}
