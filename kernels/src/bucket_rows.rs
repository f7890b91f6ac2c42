//! The measurements of a bucket as documents that are not written yet: how large each is is known, and each can be written
//! straight to where it is needed.

use crate::column::ColumnDecoder;
use crate::columns::Data;
use crate::elements::{elements, kind, Element, Elements};
use crate::pack::{BucketSource, Pack, PackedColumn, Torn};
use crate::unpack::{
    check_size, data_of, meta_of, packed, row_number, summary, Failure, Wanted, INVALID_COLUMN,
    ROWS_MAX,
};
use crate::writer::{begin, element, end};

/// A part of every row.
#[derive(Debug)]
enum Part {
    /// The meta, as an element.
    Same(Vec<u8>),
    /// The value that the row has in a column, if any.
    Column { name: Vec<u8>, data: Data },
}

/// Where the values of a column lie in rows that are laid out alike.
#[derive(Debug)]
struct Slot {
    at: usize,
    width: usize,
    part: usize,
}

/// How long rows are.
#[derive(Debug)]
enum Layout {
    /// One row without its values; all others are laid out alike.
    Alike { row: Vec<u8>, slots: Vec<Slot> },
    /// Where each row ends, if they are written one after the other.
    Each { ends: Vec<usize> },
}

/// The measurements of one bucket, in stored order: time, meta, then the other columns.
#[derive(Debug)]
pub struct BucketRows {
    count: usize,
    parts: Vec<Part>,
    layout: Layout,
}

impl BucketRows {
    /// The wanted fields of a bucket of any version.
    pub fn open(
        source: BucketSource<'_>,
        time_field: &[u8],
        meta_field: Option<&[u8]>,
        wanted: Wanted<'_>,
    ) -> Result<Self, Failure> {
        let bucket = source.head();
        let count = summary(bucket, time_field)?.count;
        if count > ROWS_MAX {
            return Err(Failure::new(
                INVALID_COLUMN,
                "the bucket claims too many measurements",
            ));
        }
        let meta = meta_of(bucket, meta_field)?;
        let mut parts = Vec::new();
        let mut time = None;
        let mut timed = false;
        let mut add = |name: &[u8], column: Given<'_>| -> Result<(), Failure> {
            if name == time_field {
                timed = true;
                if wanted.has(time_field) {
                    time = Some(times(column, count)?);
                }
            } else if wanted.has(name) {
                parts.push(Part::Column {
                    name: name.to_vec(),
                    data: values(column, count)?,
                });
            }
            Ok(())
        };
        match source {
            BucketSource::Stored(bucket) => {
                for column in elements(data_of(bucket)?.value)? {
                    let column = column?;
                    add(column.name, Given::Element(column))?;
                }
            }
            BucketSource::Packed { pack, number, .. } => {
                for (field, name) in pack.fields_of(number) {
                    add(name, Given::Packed(pack, number, field))?;
                }
            }
        }
        if !timed {
            return Err(Failure::new(
                5346700,
                "The $_internalUnpackBucket stage requires the data region to have a timeField object",
            ));
        }
        if let (Some(meta), Some(name)) = (meta, meta_field.filter(|name| wanted.has(name))) {
            let mut same = Vec::with_capacity(meta.value.len() + name.len() + 2);
            element(&mut same, meta.kind, name, meta.value);
            parts.insert(0, Part::Same(same));
        }
        if let Some(data) = time {
            let name = time_field.to_vec();
            parts.insert(0, Part::Column { name, data });
        }
        let layout = match alike(&parts) {
            Some(layout) => layout,
            None => each(&parts, count)?,
        };
        let rows = Self {
            count,
            parts,
            layout,
        };
        check_size(rows.before(count))?;
        Ok(rows)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.count
    }

    /// How many bytes the rows before this one take.
    pub fn before(&self, row: usize) -> usize {
        match &self.layout {
            Layout::Alike { row: one, .. } => row.min(self.count) * one.len(),
            Layout::Each { ends } => row
                .checked_sub(1)
                .and_then(|last| ends.get(last).or(ends.last()))
                .copied()
                .unwrap_or(0),
        }
    }

    /// Appends a row as a document.
    #[inline]
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        match &self.layout {
            Layout::Alike { row: one, slots } => {
                let begun = out.len();
                out.extend_from_slice(one);
                let written = out.get_mut(begun..).unwrap_or_default();
                for slot in slots {
                    if let (Some(Part::Column { data, .. }), Some(place)) = (
                        self.parts.get(slot.part),
                        written.get_mut(slot.at..slot.at + slot.width),
                    ) {
                        data.put(row, place);
                    }
                }
            }
            Layout::Each { .. } => {
                let begun = begin(out);
                for part in &self.parts {
                    match part {
                        Part::Same(bytes) => out.extend_from_slice(bytes),
                        Part::Column { name, data } => {
                            data.write(row, name, out);
                        }
                    }
                }
                end(out, begun);
            }
        }
    }
}

/// One row for all, if every row has a value of the same length in each column.
fn alike(parts: &[Part]) -> Option<Layout> {
    let mut row = Vec::new();
    let mut slots = Vec::with_capacity(parts.len());
    let begun = begin(&mut row);
    for (part, of) in parts.iter().enumerate() {
        match of {
            Part::Same(bytes) => row.extend_from_slice(bytes),
            Part::Column { name, data } => {
                let (type_byte, width) = data.fixed()?;
                element(&mut row, type_byte, name, &[0; 12][..width]);
                let at = row.len() - width;
                slots.push(Slot { at, width, part });
            }
        }
    }
    end(&mut row, begun);
    Some(Layout::Alike { row, slots })
}

/// Where each row ends.
fn each(parts: &[Part], count: usize) -> Result<Layout, Failure> {
    let same: usize = parts
        .iter()
        .map(|part| match part {
            Part::Same(bytes) => bytes.len(),
            Part::Column { .. } => 0,
        })
        .sum();
    // Length and end of a document, and what is the same in all.
    let mut ends = vec![5 + same; count];
    for part in parts {
        if let Part::Column { name, data } = part {
            data.add_sizes(name.len() + 2, &mut ends);
        }
    }
    let mut total = 0;
    for end in &mut ends {
        total += *end;
        check_size(total)?;
        *end = total;
    }
    Ok(Layout::Each { ends })
}

/// Where a column is.
#[derive(Clone, Copy)]
enum Given<'a> {
    Element(Element<'a>),
    /// By the numbers of bucket and field.
    Packed(&'a Pack, usize, usize),
}

/// The times, one of which every measurement has.
fn times(column: Given<'_>, count: usize) -> Result<Data, Failure> {
    let data = values(column, count)?;
    if data.complete() {
        return Ok(data);
    }
    Err(Failure::new(
        INVALID_COLUMN,
        "a measurement of the bucket has no time",
    ))
}

/// The values of a column.
fn values(column: Given<'_>, count: usize) -> Result<Data, Failure> {
    let bytes = match column {
        Given::Element(column) if column.kind == kind::OBJECT => return plain(column, count),
        Given::Element(column) => packed(column)?,
        Given::Packed(pack, bucket, field) => match pack.column(bucket, field)?.ok_or(Torn)? {
            PackedColumn::Raw(bytes) => bytes,
            coded @ PackedColumn::Coded(_) => {
                let mut data = Data::Missing(0);
                data.add_packed(&coded, count)?;
                return Ok(data);
            }
        },
    };
    // One value after the other where the types change, and to tell what is wrong with a column.
    Data::of_column(bytes, count).map_or_else(|| singly(bytes, count), Ok)
}

/// The values of a packed column, one after the other.
fn singly(column: &[u8], count: usize) -> Result<Data, Failure> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(count));
    let mut decoder = ColumnDecoder::new(column, count);
    for _ in 0..count {
        match decoder.advance() {
            Some(present) => {
                if present? {
                    let (type_byte, value) = decoder.value();
                    bytes.push(type_byte);
                    bytes.extend_from_slice(value);
                    check_size(bytes.len())?;
                }
            }
            None => {
                return Err(Failure::new(
                    6067601,
                    "a column of the bucket has fewer entries than control.count says",
                ))
            }
        }
        ends.push(bytes.len());
    }
    Ok(Data::Raw { bytes, ends })
}

/// The values of a column of version 1.
fn plain(column: Element<'_>, count: usize) -> Result<Data, Failure> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(count));
    let mut rest = elements(column.value)?;
    let mut ahead = next_row(&mut rest)?;
    for row in 0..count {
        if let Some((_, element)) = ahead.filter(|(at, _)| *at == row) {
            bytes.push(element.kind);
            bytes.extend_from_slice(element.value);
            check_size(bytes.len())?;
            ahead = next_row(&mut rest)?;
        }
        ends.push(bytes.len());
    }
    Ok(Data::Raw { bytes, ends })
}

fn next_row<'a>(rest: &mut Elements<'a>) -> Result<Option<(usize, Element<'a>)>, Failure> {
    let Some(element) = rest.next() else {
        return Ok(None);
    };
    let element = element?;
    let row = row_number(element.name)?;
    Ok(Some((row, element)))
}

#[cfg(test)]
mod tests {
    use super::BucketRows;
    use crate::pack::BucketSource;
    use crate::unpack::{summary, Wanted};

    /// `{control: {version: 1, min: {t: date 0}, max: {t: date 1}}, data: {t: {"0": date 0, "1": date 1}, a: {"1": null}}}`.
    fn plain_bucket() -> Vec<u8> {
        use crate::elements::kind;
        use crate::writer::*;
        let mut out = Vec::new();
        let all = begin(&mut out);
        let control = begin_named(&mut out, kind::OBJECT, b"control");
        int32(&mut out, b"version", 1);
        for (name, millis) in [(&b"min"[..], 0), (b"max", 1)] {
            let bound = begin_named(&mut out, kind::OBJECT, name);
            date(&mut out, b"t", millis);
            end(&mut out, bound);
        }
        end(&mut out, control);
        let data = begin_named(&mut out, kind::OBJECT, b"data");
        let times = begin_named(&mut out, kind::OBJECT, b"t");
        date(&mut out, b"0", 0);
        date(&mut out, b"1", 1);
        end(&mut out, times);
        let column = begin_named(&mut out, kind::OBJECT, b"a");
        element(&mut out, kind::NULL, b"1", b"");
        end(&mut out, column);
        end(&mut out, data);
        end(&mut out, all);
        out
    }

    fn documents(rows: &BucketRows) -> Vec<Vec<u8>> {
        let written = |row| {
            let mut out = Vec::new();
            rows.write(row, &mut out);
            assert_eq!(out.len(), rows.before(row + 1) - rows.before(row));
            out
        };
        (0..rows.len()).map(written).collect()
    }

    #[test]
    fn plain_rows_come_back() {
        let bucket = plain_bucket();
        let all = Wanted::Exclude(&[]);
        let found = BucketRows::open(BucketSource::Stored(&bucket), b"t", Some(b"m"), all)
            .expect("well formed");
        assert_eq!(
            documents(&found),
            [
                b"\x10\0\0\0\x09t\0\0\0\0\0\0\0\0\0\0".to_vec(),
                b"\x13\0\0\0\x09t\0\x01\0\0\0\0\0\0\0\x0aa\0\0".to_vec()
            ]
        );
        assert_eq!(
            summary(&bucket, b"t").map(|summary| (summary.count, summary.max_ms)),
            Ok((2, 1))
        );
    }

    #[test]
    fn no_changed_byte_makes_it_panic() {
        let bucket = plain_bucket();
        for position in 0..bucket.len() {
            for value in [0, 1, 5, 7, 0x7f, 0xff] {
                let mut changed = bucket.clone();
                changed[position] = value;
                for wanted in [Wanted::Include(&[]), Wanted::Exclude(&[])] {
                    if let Ok(rows) =
                        BucketRows::open(BucketSource::Stored(&changed), b"t", None, wanted)
                    {
                        documents(&rows);
                    }
                }
            }
        }
    }
}
