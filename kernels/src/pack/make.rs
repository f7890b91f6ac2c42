//! Buckets → a pack.

use super::ans::{encode, Coder, Frequencies};
use super::bytes::Writer;
use super::form::{width_of, Kind, Numbers};
use super::read::{ABSENT, GAPS, RAW, RISES};
use super::totals::{bound, bounds, flag, Totals};
use crate::columns::Data;
use crate::elements::{elements, find, int32, kind, Element};
use crate::unpack::{packed, ROWS_MAX};

/// About what the start of a column takes, and a stream beyond its symbols.
const COLUMN_BYTES: usize = 10;
const STREAM_BYTES: usize = 5;

/// A bucket as its pack sees it.
struct Bucket<'a> {
    /// The document without `data`.
    head: Vec<u8>,
    count: usize,
    columns: Vec<(&'a [u8], &'a [u8])>,
    min: Option<&'a [u8]>,
    max: Option<&'a [u8]>,
}

/// The parts of a bucket; None where it is none that can be kept by columns and come back as it was.
fn taken_apart(document: &[u8]) -> Option<Bucket<'_>> {
    let mut data = None;
    for element in elements(document).ok()? {
        if data.is_some() {
            return None;
        }
        let element = element.ok()?;
        if element.name == b"data" {
            data = Some(element);
        }
    }
    let data = data.filter(|data| data.kind == kind::OBJECT)?;
    let control = find(document, b"control").ok()??;
    let number = |name| {
        let element = find(control.value, name).ok()??;
        (element.kind == kind::INT32).then(|| int32(element.value).ok())?
    };
    let count = usize::try_from(number(b"count")?).ok()?;
    if !matches!(number(b"version")?, 2 | 3) || count == 0 || count > ROWS_MAX {
        return None;
    }
    let mut columns: Vec<(&[u8], &[u8])> = Vec::new();
    for element in elements(data.value).ok()? {
        let element: Element<'_> = element.ok()?;
        let column = packed(element).ok()?;
        if columns.iter().any(|(name, _)| *name == element.name) {
            return None;
        }
        columns.push((element.name, column));
    }
    // `data` is the last element: a type byte, the name and the value.
    let kept = document
        .len()
        .checked_sub(data.value.len() + b"data\0".len() + 2)?;
    let mut head = document.get(..kept)?.to_vec();
    head.push(0);
    let length = (head.len() as u32).to_le_bytes();
    head.get_mut(..4)?.copy_from_slice(&length);
    Some(Bucket {
        head,
        count,
        columns,
        min: bounds(document, b"min"),
        max: bounds(document, b"max"),
    })
}

/// A column of one bucket.
struct Cell<'a> {
    column: &'a [u8],
    numbers: Option<Numbers>,
    totals: Totals,
}

/// A pack of the buckets: what describes them, which is to be compressed, and what is so already. None where one of them
/// cannot be kept in such a way.
pub fn make(documents: &[&[u8]]) -> Option<(Vec<u8>, Vec<u8>)> {
    let buckets: Vec<Bucket<'_>> = documents
        .iter()
        .map(|document| taken_apart(document))
        .collect::<Option<_>>()?;
    let mut names: Vec<&[u8]> = Vec::new();
    let mut orders: Vec<Vec<u64>> = Vec::new();
    let mut order_of = Vec::with_capacity(buckets.len());
    for bucket in &buckets {
        let order: Vec<u64> = bucket
            .columns
            .iter()
            .map(|(name, _)| {
                let known = names.iter().position(|one| one == name);
                known.unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                }) as u64
            })
            .collect();
        let known = orders.iter().position(|one| *one == order);
        order_of.push(known.unwrap_or_else(|| {
            orders.push(order);
            orders.len() - 1
        }));
    }
    let mut out = Writer::default();
    let mut body = Vec::new();
    out.number(buckets.len() as u64);
    buckets
        .iter()
        .for_each(|bucket| out.number(bucket.count as u64));
    out.number(names.len() as u64);
    for (place, name) in names.iter().enumerate() {
        let cells: Vec<Option<Cell<'_>>> = buckets
            .iter()
            .map(|bucket| {
                let usual = bucket.columns.get(place).filter(|(one, _)| one == name);
                let found = usual.or_else(|| bucket.columns.iter().find(|(one, _)| one == name))?;
                Some(cell(bucket, name, found.1))
            })
            .collect();
        write_field(name, cells, &mut out, &mut body);
    }
    out.number(orders.len() as u64);
    for order in &orders {
        out.number(order.len() as u64);
        order.iter().for_each(|place| out.number(*place));
    }
    order_of.iter().for_each(|order| out.number(*order as u64));
    buckets.iter().for_each(|bucket| out.block(&bucket.head));
    let checksum = ::crc32c::crc32c(&body);
    out.bytes.extend_from_slice(&checksum.to_le_bytes());
    Some((out.bytes, body))
}

fn cell<'a>(bucket: &Bucket<'_>, name: &[u8], column: &'a [u8]) -> Cell<'a> {
    let data = Data::of_column(column, bucket.count);
    let numbers = data.as_ref().and_then(Numbers::of);
    let totals = data.map_or_else(Totals::default, |data| {
        Totals::of(&data, bound(bucket.min, name), bound(bucket.max, name))
    });
    Cell {
        column,
        // Where other bytes would come back, these are kept.
        numbers: numbers.filter(|numbers| numbers.column().is_some_and(|made| made == column)),
        totals,
    }
}

/// How the residuals of a field are kept.
struct Plan {
    second_order: bool,
    coders: Vec<Coder>,
}

fn write_field(
    name: &[u8],
    mut cells: Vec<Option<Cell<'_>>>,
    out: &mut Writer,
    body: &mut Vec<u8>,
) {
    let plan = plan(&cells);
    if plan.is_none() {
        cells
            .iter_mut()
            .flatten()
            .for_each(|cell| cell.numbers = None);
    }
    let plan = plan.unwrap_or(Plan {
        second_order: false,
        coders: Vec::new(),
    });
    out.block(name);
    out.number(u64::from(plan.second_order));
    out.number(plan.coders.len() as u64);
    plan.coders
        .iter()
        .for_each(|coder| coder.frequencies().write(out));
    out.bytes.extend(cells.iter().map(|cell| match cell {
        None => ABSENT,
        Some(Cell { numbers: None, .. }) => RAW,
        Some(Cell {
            numbers: Some(numbers),
            ..
        }) => {
            numbers.kind.tag()
                | flag(numbers.present.is_some(), GAPS)
                | flag(numbers.rises(), RISES)
        }
    }));
    let coded: Vec<&Numbers> = cells
        .iter()
        .flatten()
        .filter_map(|cell| cell.numbers.as_ref())
        .collect();
    let mut widths = Vec::with_capacity(coded.len());
    let mut lengths = Vec::with_capacity(coded.len());
    let (mut residuals, mut words) = (Vec::new(), Vec::new());
    for numbers in &coded {
        numbers.residuals(plan.second_order, &mut residuals);
        let width = width_of(&residuals);
        let start = body.len();
        if width > 0 {
            let symbols: Vec<(u8, &Coder)> = residuals
                .iter()
                .flat_map(|residual| {
                    let planes = plan.coders.iter().take(width).zip((0..64).step_by(8));
                    planes.map(move |(coder, shift)| ((residual >> shift) as u8, coder))
                })
                .collect();
            encode(symbols.into_iter(), &mut words, body);
        }
        widths.push(width as u8);
        lengths.push(body.len() - start);
    }
    out.bytes.extend_from_slice(&widths);
    let first = |numbers: &&Numbers| numbers.numbers.first().copied().unwrap_or(0);
    out.planes(
        &coded
            .iter()
            .map(|numbers| first(numbers) as u64)
            .collect::<Vec<_>>(),
    );
    if plan.second_order {
        let seconds = coded.iter().map(|numbers| {
            let second = numbers.numbers.get(1).copied();
            second.map_or(0, |second| second.wrapping_sub(first(numbers)) as u64)
        });
        out.planes(&seconds.collect::<Vec<_>>());
    }
    let last = |numbers: &&Numbers| numbers.numbers.last().map_or(0, |last| *last as u64);
    out.planes(&coded.iter().map(last).collect::<Vec<_>>());
    lengths.iter().for_each(|length| out.number(*length as u64));
    for numbers in &coded {
        if let Kind::Id(process) = numbers.kind {
            out.bytes.extend_from_slice(&process);
        }
    }
    for present in coded.iter().filter_map(|numbers| numbers.present.as_ref()) {
        out.bytes.extend(present.chunks(8).map(|rows| {
            let bits = rows.iter().enumerate();
            bits.fold(0_u8, |byte, (at, present)| byte | present << at)
        }));
    }
    for cell in cells.iter().flatten().filter(|cell| cell.numbers.is_none()) {
        out.block(cell.column);
    }
    let totals = cells.iter().map(|cell| {
        cell.as_ref()
            .map_or_else(Totals::default, |cell| cell.totals)
    });
    Totals::write_all(&totals.collect::<Vec<_>>(), out);
}

/// How the columns of a field take least; None where that is as they are.
fn plan(cells: &[Option<Cell<'_>>]) -> Option<Plan> {
    let (mut raw_bytes, mut coded) = (0, Vec::new());
    for cell in cells.iter().flatten() {
        if let Some(numbers) = &cell.numbers {
            raw_bytes += cell.column.len();
            coded.push(numbers);
        }
    }
    let mut best: Option<(f64, Plan)> = None;
    let mut residuals = Vec::new();
    for second_order in [false, true] {
        let mut counts = [[0_u64; 256]; 8];
        let mut streams = 0;
        for numbers in &coded {
            numbers.residuals(second_order, &mut residuals);
            let width = width_of(&residuals);
            streams += usize::from(width > 0);
            for (plane, counts) in counts.iter_mut().enumerate().take(width) {
                for residual in &residuals {
                    counts[usize::from((residual >> (8 * plane)) as u8)] += 1;
                }
            }
        }
        let frequencies: Vec<Frequencies> = counts.iter().map_while(Frequencies::of).collect();
        let bits: f64 = frequencies
            .iter()
            .zip(&counts)
            .map(|(frequencies, counts)| frequencies.cost_bits(counts))
            .sum();
        let starts = coded.len() * COLUMN_BYTES + streams * STREAM_BYTES;
        let seconds = if second_order { coded.len() } else { 0 };
        let cost = bits / 8.0 + (starts + seconds) as f64;
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            let coders = frequencies.into_iter().map(Coder::new).collect();
            best = Some((
                cost,
                Plan {
                    second_order,
                    coders,
                },
            ));
        }
    }
    best.filter(|(cost, _)| *cost < raw_bytes as f64)
        .map(|(_, plan)| plan)
}
