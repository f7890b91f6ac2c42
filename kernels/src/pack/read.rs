//! A pack → heads, columns, documents and totals.

use super::ans::{Frequencies, Table};
use super::bytes::{Reader, Torn};
use super::form::{Kind, Numbers, Start};
use super::totals::{bound, bounds, Totals};
use crate::columns::Data;
use crate::elements::kind;
use crate::unpack::ROWS_MAX;
use crate::writer::{begin_named, end};
use std::ops::Range;
use std::sync::OnceLock;

/// Tags of columns that are kept in no stream.
pub const ABSENT: u8 = 0;
pub const RAW: u8 = 1;
/// Added to a tag where some rows have no number.
pub const GAPS: u8 = 0x80;
/// Added to a tag where each number is greater than the one before.
pub const RISES: u8 = 0x40;

/// A pack as it is read.
#[derive(Debug)]
pub struct Pack {
    heads: Vec<u8>,
    body: Vec<u8>,
    counts: Vec<usize>,
    fields: Vec<Field>,
    orders: Vec<Vec<usize>>,
    order_of: Vec<usize>,
    /// Where the documents without `data` lie among the heads.
    documents: Vec<Range<usize>>,
}

#[derive(Debug)]
struct Field {
    name: Vec<u8>,
    frequencies: Vec<Frequencies>,
    tables: OnceLock<Vec<Table>>,
    /// One for each bucket.
    cells: Vec<Cell>,
    totals: Vec<Totals>,
}

#[derive(Debug, Clone)]
enum Cell {
    Absent,
    /// A column's bytes, among the heads.
    Raw(Range<usize>),
    Coded {
        kind: Kind,
        start: Start,
        last: i64,
        rises: bool,
        /// Bits of the rows that have a number, among the heads; None where all have one.
        present: Option<Range<usize>>,
        /// In the body.
        stream: Range<usize>,
    },
}

/// A column of one bucket.
pub enum PackedColumn<'a> {
    /// As the bucket has it.
    Raw(&'a [u8]),
    Coded(CodedColumn<'a>),
}

/// A column whose numbers are in a stream.
pub struct CodedColumn<'a> {
    pub kind: Kind,
    start: Start,
    rows: usize,
    present: Option<&'a [u8]>,
    stream: &'a [u8],
    tables: &'a [Table],
}

impl CodedColumn<'_> {
    /// Appends what is made of the number of each row, and for a row that has none the default; returns for each row 1 or 0,
    /// where some have none.
    #[inline]
    pub fn values<T: Default>(
        &self,
        out: &mut Vec<T>,
        make: impl Fn(i64) -> T,
    ) -> Result<Option<Vec<u8>>, Torn> {
        let Some(present) = self.present else {
            match self.start.even() {
                Some(numbers) => out.extend(numbers.map(make)),
                None => self
                    .start
                    .restore(self.stream, self.tables, |number| out.push(make(number)))?,
            }
            return Ok(None);
        };
        let mut numbers = Vec::with_capacity(self.start.count);
        self.start
            .restore(self.stream, self.tables, |number| numbers.push(number))?;
        let mut numbers = numbers.into_iter();
        let here = (0..self.rows).map(|row| bit(present, row));
        Ok(Some(
            here.map(|here| {
                let number = if here { numbers.next() } else { None };
                out.push(number.map_or_else(T::default, &make));
                u8::from(here)
            })
            .collect(),
        ))
    }
}

#[inline]
fn bit(bits: &[u8], at: usize) -> bool {
    bits.get(at / 8)
        .is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

/// Reads of the heads, and where it is.
struct Heads<'a> {
    whole: &'a [u8],
    rest: Reader<'a>,
}

impl<'a> Heads<'a> {
    fn range_of(&self, taken: &[u8]) -> Range<usize> {
        let stop = self.whole.len() - self.rest.left();
        stop - taken.len()..stop
    }

    fn block(&mut self) -> Result<Range<usize>, Torn> {
        let taken = self.rest.block()?;
        Ok(self.range_of(taken))
    }

    fn take(&mut self, length: usize) -> Result<Range<usize>, Torn> {
        let taken = self.rest.take(length)?;
        Ok(self.range_of(taken))
    }
}

impl Pack {
    /// Reads what describes a pack, and keeps both parts.
    pub fn parse(heads: Vec<u8>, body: Vec<u8>) -> Result<Self, Torn> {
        let mut pack = Self {
            heads: Vec::new(),
            body: Vec::new(),
            counts: Vec::new(),
            fields: Vec::new(),
            orders: Vec::new(),
            order_of: Vec::new(),
            documents: Vec::new(),
        };
        let mut input = Heads {
            whole: &heads,
            rest: Reader::new(&heads),
        };
        let buckets = input.rest.count()?;
        for _ in 0..buckets {
            let count = usize::try_from(input.rest.number()?).map_err(|_| Torn)?;
            if count > ROWS_MAX {
                return Err(Torn);
            }
            pack.counts.push(count);
        }
        let fields = input.rest.count()?;
        let mut stream_at = 0;
        for _ in 0..fields {
            let field = read_field(&mut input, &pack.counts, &mut stream_at)?;
            pack.fields.push(field);
        }
        if stream_at != body.len() {
            return Err(Torn);
        }
        let orders = input.rest.count()?;
        for _ in 0..orders {
            let length = input.rest.count()?;
            let order = (0..length)
                .map(|_| place(&mut input.rest, fields))
                .collect::<Result<_, _>>()?;
            pack.orders.push(order);
        }
        for _ in 0..buckets {
            pack.order_of.push(place(&mut input.rest, orders)?);
        }
        for _ in 0..buckets {
            pack.documents.push(input.block()?);
        }
        let checksum: [u8; 4] = input.rest.take(4)?.try_into().map_err(|_| Torn)?;
        if !input.rest.is_empty() || ::crc32c::crc32c(&body) != u32::from_le_bytes(checksum) {
            return Err(Torn);
        }
        (pack.heads, pack.body) = (heads, body);
        Ok(pack)
    }

    /// How many buckets there are.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// About the bytes of memory it takes when all of it has been read.
    pub fn held_bytes(&self) -> usize {
        let tables: usize = self
            .fields
            .iter()
            .map(|field| field.frequencies.len())
            .sum();
        let cells = self.fields.len() * self.len();
        self.heads.len() + self.body.len() + 8192 * tables + 160 * cells
    }

    /// How many measurements a bucket has.
    pub fn count(&self, bucket: usize) -> usize {
        self.counts.get(bucket).copied().unwrap_or(0)
    }

    /// A bucket's document without `data`.
    pub fn head(&self, bucket: usize) -> Result<&[u8], Torn> {
        let range = self.documents.get(bucket).ok_or(Torn)?;
        self.heads.get(range.clone()).ok_or(Torn)
    }

    /// The number of a field.
    pub fn field(&self, name: &[u8]) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The numbers and names of a bucket's fields, in the order of its columns.
    pub fn fields_of(&self, bucket: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let order = self
            .order_of
            .get(bucket)
            .and_then(|order| self.orders.get(*order));
        order.into_iter().flatten().filter_map(|place| {
            let field = self.fields.get(*place)?;
            Some((*place, field.name.as_slice()))
        })
    }

    /// The column of a field; None where the bucket has none.
    pub fn column(&self, bucket: usize, field: usize) -> Result<Option<PackedColumn<'_>>, Torn> {
        let field = self.fields.get(field).ok_or(Torn)?;
        Ok(match field.cells.get(bucket).ok_or(Torn)? {
            Cell::Absent => None,
            Cell::Raw(range) => Some(PackedColumn::Raw(
                self.heads.get(range.clone()).ok_or(Torn)?,
            )),
            Cell::Coded {
                kind,
                start,
                present,
                stream,
                ..
            } => Some(PackedColumn::Coded(CodedColumn {
                kind: *kind,
                start: *start,
                rows: self.counts.get(bucket).copied().ok_or(Torn)?,
                present: present
                    .as_ref()
                    .map(|range| self.heads.get(range.clone()).ok_or(Torn))
                    .transpose()?,
                stream: self.body.get(stream.clone()).ok_or(Torn)?,
                tables: field
                    .tables
                    .get_or_init(|| field.frequencies.iter().map(Frequencies::table).collect()),
            })),
        })
    }

    /// The columns of a bucket's first or last row as the only one, by the numbers of their fields, in order. None where the
    /// time of that row is not known to be its own alone, or where a column among those wanted has to be read.
    pub fn edge(
        &self,
        bucket: usize,
        time_field: &[u8],
        newest: bool,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Option<Vec<(usize, CodedColumn<'_>)>> {
        let mut edge = Vec::new();
        let mut timed = false;
        for (place, name) in self.fields_of(bucket) {
            let Cell::Coded {
                kind,
                start,
                last,
                rises,
                present,
                ..
            } = self.fields.get(place)?.cells.get(bucket)?
            else {
                if wanted(name) || name == time_field {
                    return None;
                }
                continue;
            };
            if name == time_field {
                timed = *rises && present.is_none();
            }
            if !wanted(name) {
                continue;
            }
            let rows = self.count(bucket);
            let here = present.as_ref().is_none_or(|range| {
                let bits = self.heads.get(range.clone()).unwrap_or_default();
                bit(bits, if newest { rows.saturating_sub(1) } else { 0 })
            });
            if here {
                let number = if newest { *last } else { start.first };
                edge.push((
                    place,
                    CodedColumn {
                        kind: *kind,
                        start: Start::alone(number),
                        rows: 1,
                        present: None,
                        stream: &[],
                        tables: &[],
                    },
                ));
            }
        }
        timed.then_some(edge)
    }

    /// What is known of a field of a bucket without its column; None where it has none.
    pub fn totals(&self, bucket: usize, field: usize) -> Option<Totals> {
        let field = self.fields.get(field)?;
        if matches!(field.cells.get(bucket)?, Cell::Absent) {
            return None;
        }
        field.totals.get(bucket).copied()
    }

    /// Whether what is told of a bucket's fields without their columns is what these say.
    pub fn tells_true(&self, bucket: usize) -> Result<bool, Torn> {
        let head = self.head(bucket)?;
        let (min, max) = (bounds(head, b"min"), bounds(head, b"max"));
        let count = self.counts.get(bucket).copied().ok_or(Torn)?;
        for (field, name) in self.fields_of(bucket) {
            let column = self.column(bucket, field)?.ok_or(Torn)?;
            let mut data = Data::Missing(0);
            data.add_packed(&column, count).map_err(|_| Torn)?;
            let found = Totals::of(&data, bound(min, name), bound(max, name));
            if self.totals(bucket, field) != Some(found) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A bucket as it was.
    pub fn document(&self, bucket: usize) -> Result<Vec<u8>, Torn> {
        let head = self.head(bucket)?;
        let (_, head) = head.split_last().ok_or(Torn)?;
        let mut out = head.to_vec();
        let data = begin_named(&mut out, kind::OBJECT, b"data");
        for (field, name) in self.fields_of(bucket) {
            let column = self.column(bucket, field)?.ok_or(Torn)?;
            match column {
                PackedColumn::Raw(bytes) => write_column(name, bytes, &mut out),
                PackedColumn::Coded(coded) => {
                    let bytes = as_numbers(&coded)?.column().ok_or(Torn)?;
                    write_column(name, &bytes, &mut out);
                }
            }
        }
        end(&mut out, data);
        out.push(0);
        let length = (out.len() as u32).to_le_bytes();
        out.get_mut(..4).ok_or(Torn)?.copy_from_slice(&length);
        Ok(out)
    }
}

fn as_numbers(coded: &CodedColumn<'_>) -> Result<Numbers, Torn> {
    let mut numbers = Vec::with_capacity(coded.rows);
    let present = coded.values(&mut numbers, |number| number)?;
    if let Some(present) = &present {
        let mut rows = present.iter();
        numbers.retain(|_| rows.next() == Some(&1));
    }
    Ok(Numbers {
        kind: coded.kind,
        numbers,
        present,
    })
}

fn write_column(name: &[u8], bytes: &[u8], out: &mut Vec<u8>) {
    crate::writer::header(out, kind::BINARY, name);
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.push(7);
    out.extend_from_slice(bytes);
}

/// A number below another one.
fn place(input: &mut Reader<'_>, below: usize) -> Result<usize, Torn> {
    let number = usize::try_from(input.number()?).map_err(|_| Torn)?;
    if number < below {
        Ok(number)
    } else {
        Err(Torn)
    }
}

fn read_field(
    input: &mut Heads<'_>,
    counts: &[usize],
    stream_at: &mut usize,
) -> Result<Field, Torn> {
    let name = input.rest.block()?.to_vec();
    let second_order = input.rest.number()? != 0;
    let planes = input.rest.count()?;
    let frequencies = (0..planes.min(8))
        .map(|_| Frequencies::read(&mut input.rest))
        .collect::<Result<Vec<_>, _>>()?;
    let tags = input.rest.take(counts.len())?;
    let coded = tags.iter().filter(|tag| **tag > RAW).count();
    let widths = input.rest.take(coded)?;
    let firsts = input.rest.planes(coded)?;
    let seconds = if second_order {
        input.rest.planes(coded)?
    } else {
        Vec::new()
    };
    let lasts = input.rest.planes(coded)?;
    let mut starts = Vec::with_capacity(coded);
    let mut streams = Vec::with_capacity(coded);
    for (at, width) in widths.iter().enumerate() {
        let length = usize::try_from(input.rest.number()?).map_err(|_| Torn)?;
        let stop = stream_at.checked_add(length).ok_or(Torn)?;
        streams.push(*stream_at..stop);
        *stream_at = stop;
        if usize::from(*width) > frequencies.len() {
            return Err(Torn);
        }
        starts.push(Start {
            count: 0,
            first: firsts.get(at).copied().ok_or(Torn)? as i64,
            second: second_order.then(|| seconds.get(at).copied().unwrap_or(0) as i64),
            width: usize::from(*width),
        });
    }
    let mut kinds = tags
        .iter()
        .filter(|tag| **tag > RAW)
        .map(|tag| Kind::of_tag(tag & !(GAPS | RISES)).ok_or(Torn))
        .collect::<Result<Vec<_>, _>>()?;
    for kind in &mut kinds {
        if let Kind::Id(process) = kind {
            *process = input.rest.take(5)?.try_into().map_err(|_| Torn)?;
        }
    }
    let mut kinds = kinds.into_iter();
    let mut cells = Vec::with_capacity(counts.len());
    let mut coded = starts.into_iter().zip(streams).zip(lasts);
    for (tag, count) in tags.iter().zip(counts) {
        cells.push(match *tag {
            ABSENT => Cell::Absent,
            RAW => Cell::Raw(0..0),
            tag => {
                let ((mut start, stream), last) = coded.next().ok_or(Torn)?;
                let present = if tag & GAPS == 0 {
                    start.count = *count;
                    None
                } else {
                    let range = input.take(count.div_ceil(8))?;
                    let bits = input.whole.get(range.clone()).unwrap_or_default();
                    start.count = (0..*count).filter(|row| bit(bits, *row)).count();
                    Some(range)
                };
                Cell::Coded {
                    kind: kinds.next().ok_or(Torn)?,
                    start,
                    last: last as i64,
                    rises: tag & RISES != 0,
                    present,
                    stream,
                }
            }
        });
    }
    for cell in &mut cells {
        if let Cell::Raw(range) = cell {
            *range = input.block()?;
        }
    }
    let totals = Totals::read_all(counts.len(), &mut input.rest)?;
    Ok(Field {
        name,
        frequencies,
        tables: OnceLock::new(),
        cells,
        totals,
    })
}
