//! Damaged columns: an error or other values, but never a panic and never more than was asked for.

use super::generate::{self, Numbers};
use super::{
    decode, decode_f64, decode_i64, decode_strings, encode, finish, ColumnDecoder, StringDictionary,
};

/// Most entries that a damaged column may give.
const ENTRIES_MAX: usize = 5000;

fn read_every_way(column: &[u8]) {
    let generic = decode(column, ENTRIES_MAX);
    if let Ok(entries) = &generic {
        assert!(entries.len() <= ENTRIES_MAX);
    }
    let mut present = Vec::new();
    let mut integers = Vec::new();
    let outcome = decode_i64(column, ENTRIES_MAX, &mut integers, &mut present);
    agree(outcome.is_err(), &generic, integers.len());
    present.clear();
    let mut doubles = Vec::new();
    let outcome = decode_f64(column, ENTRIES_MAX, &mut doubles, &mut present);
    agree(outcome.is_err(), &generic, doubles.len());
    let mut codes = Vec::new();
    let outcome = decode_strings(
        column,
        ENTRIES_MAX,
        &mut StringDictionary::default(),
        &mut codes,
    );
    agree(outcome.is_err(), &generic, codes.len());
}

/// A column that the whole-column functions refuse is refused entry by entry, too, and one that they read is read.
fn agree<T>(failed: bool, generic: &Result<Vec<T>, super::ColumnError>, decoded: usize) {
    if failed {
        assert!(generic.is_err());
        assert_eq!(decoded, 0);
    } else if decoded > 0 {
        assert_eq!(generic.as_ref().map(Vec::len).ok(), Some(decoded));
    }
}

#[test]
fn flipped_bytes() {
    let mut numbers = Numbers::new(11);
    for seed in 0..400 {
        let column = finish(&encode(&generate::entries(seed)));
        for _ in 0..10 {
            let mut damaged = column.clone();
            for _ in 0..=numbers.below(3) {
                let at = numbers.below(damaged.len().min(400));
                damaged[at] = match numbers.below(3) {
                    0 => damaged[at] ^ 1 << numbers.below(8),
                    1 => [0, 0x80, 0x90, 0xF1, 0xFF, 0x0F, 0xFE][numbers.below(7)],
                    _ => numbers.next() as u8,
                };
            }
            read_every_way(&damaged);
        }
    }
}

#[test]
fn cut_columns() {
    for seed in 0..200 {
        let column = finish(&encode(&generate::entries(seed)));
        let step = column.len() / 50 + 1;
        for end in (0..column.len()).step_by(step) {
            assert!(decode(&column[..end], ENTRIES_MAX).is_err());
            read_every_way(&column[..end]);
        }
    }
}

#[test]
fn noise() {
    let mut numbers = Numbers::new(12);
    for _ in 0..20_000 {
        let column: Vec<u8> = (0..numbers.below(60))
            .map(|_| numbers.next() as u8)
            .collect();
        read_every_way(&column);
    }
}

#[test]
fn nothing_comes_after_an_error() {
    let mut decoder = ColumnDecoder::new(&[0x10, 0, 1], ENTRIES_MAX);
    assert!(matches!(decoder.next(), Some(Err(_))));
    assert!(decoder.next().is_none());
}

#[test]
fn a_few_bytes_that_claim_much() {
    // One literal, then records of runs: 16 * 1920 entries each.
    let mut column = vec![0x10, 0, 1, 0, 0, 0];
    let mut record = vec![0x8F];
    record.extend(0xFF_u64.to_le_bytes().repeat(16));
    column.extend(record.repeat(100));
    column.push(0);
    assert!(decode(&column, ENTRIES_MAX).is_err());
    read_every_way(&column);
}
