//! Sequences of entries out of a seed, with the habits of real measurements and with none.

use super::Entry;
use crate::elements::kind;

/// A small generator of numbers (splitmix64); the same seed gives the same entries everywhere.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number of any magnitude, with trailing zeros more often than chance.
    pub fn number(&mut self) -> i64 {
        match self.below(8) {
            0 => [0, 1, -1, i64::MIN, i64::MAX, i64::MAX - 1, i64::MIN + 1][self.below(7)],
            1..=3 => self.next() as i64 >> self.below(64),
            _ => (self.next() as i64 >> (40 + self.below(24))).wrapping_shl(self.below(64) as u32),
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Types of scalars.
pub const SCALARS: [u8; 19] = [
    kind::DOUBLE,
    kind::STRING,
    kind::BINARY,
    kind::UNDEFINED,
    kind::OBJECT_ID,
    kind::BOOL,
    kind::DATE,
    kind::NULL,
    kind::REGEX,
    kind::DB_POINTER,
    kind::CODE,
    kind::SYMBOL,
    kind::CODE_WITH_SCOPE,
    kind::INT32,
    kind::TIMESTAMP,
    kind::INT64,
    kind::DECIMAL128,
    kind::MAX_KEY,
    kind::MIN_KEY,
];

/// A value that has nothing to do with any other.
pub fn scalar(numbers: &mut Numbers, type_byte: u8) -> Vec<u8> {
    match type_byte {
        kind::DOUBLE => double(numbers).to_le_bytes().to_vec(),
        kind::STRING | kind::CODE | kind::SYMBOL => {
            let length = [0, 1, 2, 15, 16, 17, 40][numbers.below(7)];
            let mut text = match numbers.below(3) {
                0 => numbers.bytes(length),
                _ => vec![b'a' + numbers.below(3) as u8; length],
            };
            if numbers.below(8) == 0 && length > 0 {
                text[0] = 0;
            }
            string(&text)
        }
        kind::BINARY => {
            let length = [0, 1, 3, 15, 16, 17][numbers.below(6)];
            let mut value = (length as u32).to_le_bytes().to_vec();
            value.push([0, 0, 0, 2, 5][numbers.below(5)]);
            value.extend(numbers.bytes(length));
            value
        }
        kind::OBJECT_ID => {
            let mut id = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3];
            let at = numbers.below(12);
            id[at] = numbers.next() as u8;
            id[11] = numbers.next() as u8;
            id
        }
        kind::BOOL => vec![numbers.below(2) as u8],
        kind::REGEX => [&b"a\0\0"[..], b"\0i\0", b"abc\0ix\0"][numbers.below(3)].to_vec(),
        kind::DB_POINTER => {
            let mut value = string(b"db.c");
            value.extend([numbers.below(2) as u8; 12]);
            value
        }
        kind::CODE_WITH_SCOPE => {
            let mut value = string(&vec![b'c'; numbers.below(3)]);
            value.extend([5, 0, 0, 0, 0]);
            let mut whole = (value.len() as u32 + 4).to_le_bytes().to_vec();
            whole.extend(value);
            whole
        }
        kind::INT32 => (numbers.number() as i32).to_le_bytes().to_vec(),
        kind::DATE | kind::TIMESTAMP | kind::INT64 => numbers.number().to_le_bytes().to_vec(),
        kind::DECIMAL128 => {
            let mut value = numbers.number().to_le_bytes().to_vec();
            value.extend(numbers.number().to_le_bytes());
            value
        }
        _ => Vec::new(),
    }
}

fn double(numbers: &mut Numbers) -> f64 {
    match numbers.below(10) {
        0 => f64::from_bits(numbers.next()),
        1 => [
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            5e-324,
            f64::MIN,
            f64::MAX,
        ][numbers.below(8)],
        2 => f64::from_bits(0x7FF8_0000_0000_0000 | numbers.next() >> 16),
        3 => 9_007_199_254_740_990.0 + numbers.below(5) as f64,
        4 => -0.123_456_789_012_3 * (numbers.below(3) as f64 - 1.0),
        scale => (numbers.number() >> 40) as f64 / 10_f64.powi(scale as i32 - 4),
    }
}

pub fn string(text: &[u8]) -> Vec<u8> {
    let mut value = (text.len() as u32 + 1).to_le_bytes().to_vec();
    value.extend_from_slice(text);
    value.push(0);
    value
}

/// A value that a sensor might send after this one.
pub fn next_scalar(numbers: &mut Numbers, type_byte: u8, before: &[u8]) -> Vec<u8> {
    let step = numbers.below(7) as i64 - 3;
    match type_byte {
        kind::DOUBLE => {
            let before = f64::from_le_bytes(before.try_into().unwrap_or_default());
            let factor = [1.0, 1.0, 10.0, 100.0, 1e8][numbers.below(5)];
            ((before * factor).round() / factor + step as f64 / factor)
                .to_le_bytes()
                .to_vec()
        }
        kind::INT32 => {
            let before = i32::from_le_bytes(before.try_into().unwrap_or_default());
            before.wrapping_add(step as i32).to_le_bytes().to_vec()
        }
        kind::DATE | kind::TIMESTAMP | kind::INT64 => {
            let before = i64::from_le_bytes(before.try_into().unwrap_or_default());
            before.wrapping_add(step * 1000).to_le_bytes().to_vec()
        }
        kind::STRING | kind::CODE | kind::OBJECT_ID | kind::BINARY | kind::DECIMAL128 => {
            let mut value = before.to_vec();
            // Neither a length before the bytes nor the NUL after them may change.
            let last = match type_byte {
                kind::STRING | kind::CODE => value.len() - 2,
                _ => value.len() - 1,
            };
            let first = match type_byte {
                kind::STRING | kind::CODE => 4,
                kind::BINARY => 5,
                _ => 0,
            };
            if let Some(byte) = value.get_mut(first..=last).and_then(<[u8]>::last_mut) {
                *byte = byte.wrapping_add(step as u8).max(1);
            }
            value
        }
        _ => scalar(numbers, type_byte),
    }
}

/// An object or array of a random shape.
pub fn object(numbers: &mut Numbers, depth: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let fields = [0, 1, 1, 2, 3, 4][numbers.below(6)];
    for field in 0..fields {
        let name = b'a' + (numbers.below(3) + field) as u8;
        let container = depth < 3 && numbers.below(4) == 0;
        let type_byte = if container {
            [kind::OBJECT, kind::ARRAY][numbers.below(2)]
        } else {
            SCALARS[numbers.below(SCALARS.len())]
        };
        body.extend([type_byte, name, 0]);
        body.extend(if container {
            object(numbers, depth + 1)
        } else {
            scalar(numbers, type_byte)
        });
    }
    let mut value = (body.len() as u32 + 5).to_le_bytes().to_vec();
    value.extend(body);
    value.push(0);
    value
}

/// An object of one shape: a few fields of which each may be left out, and an object inside.
pub fn alike(numbers: &mut Numbers) -> Vec<u8> {
    let mut body = Vec::new();
    for (at, type_byte) in [kind::INT32, kind::DOUBLE, kind::STRING]
        .into_iter()
        .enumerate()
    {
        if numbers.below(6) > 0 {
            body.extend([type_byte, b'a' + at as u8, 0]);
            body.extend(match type_byte {
                kind::INT32 => (numbers.below(9) as i32).to_le_bytes().to_vec(),
                kind::DOUBLE => (numbers.below(9) as f64 / 10.0).to_le_bytes().to_vec(),
                _ => string(&vec![b'x'; numbers.below(20)]),
            });
        }
    }
    if numbers.below(9) > 0 {
        body.extend(b"\x03o\0\x0c\0\0\0\x10n\0");
        body.extend((numbers.below(3) as i32).to_le_bytes());
        body.push(0);
    }
    let mut value = (body.len() as u32 + 5).to_le_bytes().to_vec();
    value.extend(body);
    value.push(0);
    value
}

/// Entries in stretches: of one type or of many, steady, stepping or wild, with gaps or without.
pub fn entries(seed: u64) -> Vec<Entry> {
    let mut numbers = Numbers::new(seed);
    let only = SCALARS[numbers.below(SCALARS.len())];
    let mixed = numbers.below(3) == 0;
    let gaps = [0, 0, 3, 40][numbers.below(4)];
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..1 + numbers.below(6) {
        let type_byte = if mixed {
            SCALARS[numbers.below(SCALARS.len())]
        } else {
            only
        };
        let manner = numbers.below(7);
        let length = [1, 2, 5, 30, 70, 200, 700][numbers.below(7)];
        let mut value = scalar(&mut numbers, type_byte);
        for _ in 0..length {
            let entry = match manner {
                0 => Some((type_byte, value.clone())),
                1 => Some((type_byte, scalar(&mut numbers, type_byte))),
                2 if mixed => Some((kind::OBJECT, alike(&mut numbers))),
                3 if mixed => Some((
                    [kind::OBJECT, kind::ARRAY][numbers.below(2)],
                    object(&mut numbers, 0),
                )),
                4 => None,
                _ => {
                    if numbers.below(4) > 0 {
                        value = next_scalar(&mut numbers, type_byte, &value);
                    }
                    Some((type_byte, value.clone()))
                }
            };
            let gap = gaps > 0 && numbers.below(gaps) == 0;
            entries.push(entry.filter(|_| !gap));
        }
    }
    entries
}
