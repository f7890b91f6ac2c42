//! A column that is finished again and again while it grows.

use super::{add, encode, finish, generate, ColumnEncoder};

#[test]
fn finishing_at_every_length_changes_nothing() {
    for seed in 0..60 {
        let entries = generate::entries(seed);
        let entries = &entries[..entries.len().min(300)];
        let mut grown = ColumnEncoder::new();
        for (at, entry) in entries.iter().enumerate() {
            add(&mut grown, entry);
            let column = finish(&grown);
            assert_eq!(grown.count(), at + 1);
            assert_eq!(grown.finished_len(), Ok(column.len()));
            if at % 7 == 0 || at + 1 == entries.len() {
                assert_eq!(column, finish(&encode(&entries[..=at])));
            }
        }
    }
}

#[test]
fn a_copy_grows_by_itself() {
    let entries = generate::entries(5);
    let (first, second) = entries.split_at(entries.len() / 2);
    let original = encode(first);
    let before = finish(&original);
    let mut copy = original.clone();
    for entry in second {
        add(&mut copy, entry);
    }
    assert_eq!(finish(&original), before);
    assert_eq!(finish(&copy), finish(&encode(&entries)));
}

#[test]
fn the_estimate_is_near_and_never_low_for_scalars() {
    for seed in 0..200 {
        let entries: Vec<_> = generate::entries(seed)
            .into_iter()
            .filter(|entry| !matches!(entry, Some((3 | 4, _))))
            .collect();
        let encoder = encode(&entries);
        let exact = finish(&encoder).len();
        assert!(encoder.size_estimate() >= exact);
        assert!(encoder.size_estimate() <= exact + 8 * 64);
    }
}
