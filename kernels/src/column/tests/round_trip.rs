//! What goes in comes out.

use super::generate::{self, Numbers, SCALARS};
use super::{check_arrays, decode, encode, finish, ColumnError, Entry};
use crate::elements::kind;

fn check(entries: &[Entry]) {
    let column = finish(&encode(entries));
    assert_eq!(decode(&column, entries.len()).as_deref(), Ok(entries));
    check_arrays(&column, entries);
    if !entries.is_empty() {
        assert_eq!(
            decode(&column, entries.len() - 1),
            Err(ColumnError::TooManyEntries)
        );
    }
}

#[test]
fn random_entries() {
    for seed in 0..800 {
        check(&generate::entries(seed));
    }
}

#[test]
fn unrelated_values_of_each_type() {
    let mut numbers = Numbers::new(7);
    for type_byte in SCALARS {
        for length in [1, 2, 50, 400] {
            let entries: Vec<_> = (0..length)
                .map(|_| Some((type_byte, generate::scalar(&mut numbers, type_byte))))
                .collect();
            check(&entries);
        }
    }
}

#[test]
fn objects_of_one_shape_and_of_many() {
    let mut numbers = Numbers::new(8);
    for round in 0..300 {
        let entries: Vec<Entry> = (0..numbers.below(120))
            .map(|_| match numbers.below(12) {
                0 => None,
                1 if round % 2 == 0 => Some((kind::OBJECT, generate::object(&mut numbers, 0))),
                _ => Some((kind::OBJECT, generate::alike(&mut numbers))),
            })
            .collect();
        check(&entries);
    }
}

#[test]
fn empty_objects_stay_apart_from_missing_ones() {
    let empty = Some((kind::OBJECT, vec![5, 0, 0, 0, 0]));
    let none = Some((kind::ARRAY, vec![5, 0, 0, 0, 0]));
    let inner = Some((
        kind::OBJECT,
        b"\x14\0\0\0\x10a\0\x01\0\0\0\x03b\0\x05\0\0\0\0\0".to_vec(),
    ));
    check(&[
        empty.clone(),
        None,
        empty.clone(),
        none.clone(),
        inner.clone(),
        None,
        inner,
        none,
        empty,
    ]);
}

#[test]
fn objects_deeper_than_any_document() {
    let mut value = vec![5, 0, 0, 0, 0];
    for _ in 0..100_000 {
        let mut outer = (value.len() as u32 + 8).to_le_bytes().to_vec();
        outer.extend(b"\x03a\0");
        outer.append(&mut value);
        outer.push(0);
        value = outer;
        if value.len() > 20_000 {
            break;
        }
    }
    check(&[
        Some((kind::OBJECT, value.clone())),
        Some((kind::OBJECT, value)),
    ]);
}

#[test]
fn doubles_whose_steps_repeat_after_a_block() {
    // Thirty equal steps fill a block; what follows must not be taken for a run of them.
    let mut values: Vec<f64> = (0..=30).map(f64::from).collect();
    values.extend([30.0; 500]);
    values.extend((0..400).map(|step| 30.0 + f64::from(step) / 4.0));
    values.extend([f64::NAN; 300]);
    values.extend([-0.0; 3]);
    let entries: Vec<Entry> = values
        .iter()
        .map(|value| Some((kind::DOUBLE, value.to_le_bytes().to_vec())))
        .collect();
    check(&entries);
}

#[test]
fn values_that_are_not_bson_are_refused() {
    let mut encoder = super::ColumnEncoder::new();
    let refused: [(u8, &[u8]); 6] = [
        (kind::INT32, &[1, 2, 3]),
        (kind::STRING, &[2, 0, 0, 0, b'a']),
        (kind::STRING, &[2, 0, 0, 0, b'a', b'b']),
        (kind::OBJECT, &[5, 0, 0, 0, 1]),
        (kind::OBJECT, &[8, 0, 0, 0, 16, b'a', 0, 0]),
        (99, &[]),
    ];
    for (type_byte, value) in refused {
        assert!(encoder.append(type_byte, value).is_err());
    }
    assert_eq!(encoder.count(), 0);
    assert_eq!(finish(&encoder), [0]);
}
