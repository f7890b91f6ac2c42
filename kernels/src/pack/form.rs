//! A column as numbers whose differences are kept.

use super::ans::{Decoder, Table};
use super::bytes::Torn;
use crate::column::{double, ColumnEncoder};
use crate::columns::Data;
use crate::elements::kind;

/// What the numbers of a column stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Doubles at a scale.
    Double(u8),
    /// int32, int64, date, bool or timestamp.
    Whole(u8),
    /// ObjectIds of one process, by its five bytes: seconds and counter.
    Id([u8; 5]),
}

const DOUBLES: u8 = 0x10;
const WHOLES: u8 = 0x20;
const IDS: u8 = 0x30;
const WHOLE_KINDS: [u8; 5] = [
    kind::INT32,
    kind::INT64,
    kind::DATE,
    kind::BOOL,
    kind::TIMESTAMP,
];

impl Kind {
    /// A byte for it; none is less than 16 or has one of the two highest bits.
    pub fn tag(self) -> u8 {
        match self {
            Self::Double(scale) => DOUBLES | scale,
            Self::Whole(kind) => {
                let place = WHOLE_KINDS.iter().position(|one| *one == kind);
                WHOLES | place.unwrap_or(0) as u8
            }
            Self::Id(_) => IDS,
        }
    }

    /// The kind of a tag; the process of ObjectIds is told beside it.
    pub fn of_tag(tag: u8) -> Option<Self> {
        let low = tag & 0x0f;
        match tag & 0xf0 {
            DOUBLES if usize::from(low) <= double::RAW => Some(Self::Double(low)),
            WHOLES => WHOLE_KINDS
                .get(usize::from(low))
                .map(|kind| Self::Whole(*kind)),
            IDS if low == 0 => Some(Self::Id([0; 5])),
            _ => None,
        }
    }
}

/// Seconds and counter of an ObjectId as one number, and the process between them.
fn id_number(id: [u8; 12]) -> (i64, [u8; 5]) {
    let [a, b, c, d, process @ .., e, f, g] = id;
    (i64::from_be_bytes([0, a, b, c, d, e, f, g]), process)
}

/// The ObjectId of a number.
pub fn id_of(number: i64, process: [u8; 5]) -> [u8; 12] {
    let [_, a, b, c, d, e, f, g] = number.to_be_bytes();
    let [h, i, j, k, l] = process;
    [a, b, c, d, h, i, j, k, l, e, f, g]
}

/// The numbers of a column, and which rows have one.
#[derive(Debug)]
pub struct Numbers {
    pub kind: Kind,
    pub numbers: Vec<i64>,
    /// For each row 1 or 0; None where all have a number.
    pub present: Option<Vec<u8>>,
}

impl Numbers {
    /// The numbers of a column's values; None where they are none, of no such type, or of several.
    pub fn of(data: &Data) -> Option<Self> {
        let (kind, all, present) = match data {
            Data::Whole {
                kind,
                values,
                present,
            } => {
                WHOLE_KINDS.contains(kind).then_some(())?;
                (Kind::Whole(*kind), values.clone(), present)
            }
            Data::Double { values, present } => {
                let scale = scale_of(values, present);
                let numbers = values
                    .iter()
                    .zip(present)
                    .map(|(value, present)| {
                        if *present == 0 {
                            Some(0)
                        } else {
                            double::encode(*value, scale)
                        }
                    })
                    .collect::<Option<_>>()?;
                (Kind::Double(scale as u8), numbers, present)
            }
            Data::Ids { values, present } => {
                let mut here = values
                    .iter()
                    .zip(present)
                    .filter(|(_, present)| **present != 0);
                let process = id_number(*here.next()?.0).1;
                if here.any(|(id, _)| id_number(*id).1 != process) {
                    return None;
                }
                let numbers = values.iter().map(|id| id_number(*id).0).collect();
                (Kind::Id(process), numbers, present)
            }
            _ => return None,
        };
        let gaps = present.contains(&0);
        let numbers: Vec<i64> = if gaps {
            all.iter()
                .zip(present)
                .filter(|(_, present)| **present != 0)
                .map(|(number, _)| *number)
                .collect()
        } else {
            all
        };
        (!numbers.is_empty()).then_some(Self {
            kind,
            numbers,
            present: gaps.then(|| present.clone()),
        })
    }

    /// The column, as it is when these values were added one after the other.
    pub fn column(&self) -> Option<Vec<u8>> {
        let mut encoder = ColumnEncoder::new();
        let mut numbers = self.numbers.iter();
        let rows = self
            .present
            .as_ref()
            .map_or(self.numbers.len(), |present| present.len());
        for row in 0..rows {
            let missing = self
                .present
                .as_ref()
                .is_some_and(|present| present.get(row) != Some(&1));
            if missing {
                encoder.append_missing().ok()?;
                continue;
            }
            let number = *numbers.next()?;
            match self.kind {
                Kind::Double(scale) => {
                    let value = double::decode(number, usize::from(scale));
                    encoder.append(kind::DOUBLE, &value.to_le_bytes())
                }
                Kind::Whole(kind @ kind::INT32) => {
                    encoder.append(kind, &(number as i32).to_le_bytes())
                }
                Kind::Whole(kind @ kind::BOOL) => encoder.append(kind, &[u8::from(number != 0)]),
                Kind::Whole(kind) => encoder.append(kind, &number.to_le_bytes()),
                Kind::Id(process) => encoder.append(kind::OBJECT_ID, &id_of(number, process)),
            }
            .ok()?;
        }
        encoder.finish().ok()
    }

    /// Whether each number is greater than the one before.
    pub fn rises(&self) -> bool {
        self.numbers.windows(2).all(|pair| pair[0] < pair[1])
    }

    /// The differences of the numbers, or of their differences, from the second or third number on.
    pub fn residuals(&self, second_order: bool, out: &mut Vec<u64>) {
        out.clear();
        if !second_order {
            let pairs = self.numbers.windows(2);
            out.extend(pairs.map(|pair| zigzag(pair[1].wrapping_sub(pair[0]))));
            return;
        }
        out.extend(self.numbers.windows(3).map(|three| {
            let before = three[1].wrapping_sub(three[0]);
            zigzag(three[2].wrapping_sub(three[1]).wrapping_sub(before))
        }));
    }
}

/// The least scale at which all of the doubles are integers; that of their bits if there is none.
fn scale_of(values: &[f64], present: &[u8]) -> usize {
    let mut scale = 0;
    for (value, present) in values.iter().zip(present) {
        if *present != 0 && double::encode(*value, scale).is_none() {
            scale = double::encode_from(*value, scale).1;
            if scale == double::RAW {
                return scale;
            }
        }
    }
    let fits = values
        .iter()
        .zip(present)
        .all(|(value, present)| *present == 0 || double::encode(*value, scale).is_some());
    if fits {
        scale
    } else {
        double::RAW
    }
}

#[inline]
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

#[inline]
fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Bytes that the largest of the residuals takes.
pub fn width_of(residuals: &[u64]) -> usize {
    let all = residuals.iter().fold(0, |all, residual| all | residual);
    8 - all.leading_zeros() as usize / 8
}

/// Where the numbers of a column begin, and how their residuals are kept.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub count: usize,
    pub first: i64,
    /// The first difference, where those of the differences are kept.
    pub second: Option<i64>,
    pub width: usize,
}

impl Start {
    /// One number.
    pub fn alone(number: i64) -> Self {
        Self {
            count: 1,
            first: number,
            second: None,
            width: 0,
        }
    }

    /// The numbers, where all of their residuals are nothing.
    pub fn even(&self) -> Option<impl Iterator<Item = i64>> {
        let (first, step) = (self.first, self.second.unwrap_or(0));
        let steps = (0..self.count as i64).map(move |at| first.wrapping_add(at.wrapping_mul(step)));
        (self.width == 0).then_some(steps)
    }

    /// Takes the numbers out of their stream.
    #[inline]
    pub fn restore(
        &self,
        stream: &[u8],
        tables: &[Table],
        mut each: impl FnMut(i64),
    ) -> Result<(), Torn> {
        match (self.width, tables) {
            (0, _) => self.restored(|| 0, &mut each),
            (1, [table, ..]) => {
                let mut decoder = Decoder::new(stream)?;
                self.restored(|| u64::from(decoder.symbol(table)), &mut each);
                decoder.finish()?;
            }
            (width, tables) if width <= tables.len() => {
                let tables = &tables[..width];
                let mut decoder = Decoder::new(stream)?;
                let next = || {
                    let planes = tables.iter().zip((0..64).step_by(8));
                    planes.fold(0, |number, (table, shift)| {
                        number | u64::from(decoder.symbol(table)) << shift
                    })
                };
                self.restored(next, &mut each);
                decoder.finish()?;
            }
            _ => return Err(Torn),
        }
        Ok(())
    }

    #[inline]
    fn restored(&self, mut next: impl FnMut() -> u64, each: &mut impl FnMut(i64)) {
        if self.count == 0 {
            return;
        }
        let mut number = self.first;
        each(number);
        match self.second {
            None => {
                for _ in 1..self.count {
                    number = number.wrapping_add(unzigzag(next()));
                    each(number);
                }
            }
            Some(second) => {
                let mut delta = second;
                for at in 1..self.count {
                    if at > 1 {
                        delta = delta.wrapping_add(unzigzag(next()));
                    }
                    number = number.wrapping_add(delta);
                    each(number);
                }
            }
        }
    }
}
