//! Simple-8b blocks by themselves: each layout is written, and both ways of reading agree.

use super::super::simple8b::{layout, run_length, Slot, Slots, RUN_UNIT};
use super::super::simple8b_builder::{Builder, Word};
use super::super::unpack::{unpack, Unpacked, MISSING};
use super::generate::Numbers;
use std::collections::BTreeSet;

/// The blocks of these values, as bytes.
fn pack<T: Word>(values: &[Option<T>]) -> Vec<u8> {
    let mut blocks = Vec::new();
    let mut builder = Builder::new();
    let mut emit = |block: u64, _: super::super::simple8b_builder::Span<'_, T>| {
        blocks.extend(block.to_le_bytes());
    };
    for value in values {
        match value {
            Some(value) => assert!(builder.append(*value, &mut emit)),
            None => builder.append_missing(&mut emit),
        }
    }
    builder.flush(&mut emit);
    blocks
}

fn slots(blocks: &[u8]) -> Vec<Slot> {
    let mut reader = Slots::new();
    reader.enter(blocks);
    let mut slots = Vec::new();
    while let Ok(Some(slot)) = reader.next() {
        slots.push(slot);
    }
    assert!(reader.is_empty());
    slots
}

/// A value of up to `bits` bits with so many zeros below.
fn shifted(numbers: &mut Numbers, bits: u32, zeros: u32) -> u128 {
    u128::from(numbers.next() >> (64 - bits) | 1) << zeros
}

#[test]
fn every_layout_is_used_and_read_back() {
    let mut numbers = Numbers::new(3);
    let mut tags = BTreeSet::new();
    let gaps: Vec<_> = (0..70).map(|at| (at % 3 > 0).then_some(0_u128)).collect();
    tags.extend(pack(&gaps).chunks_exact(8).map(|block| block[0] & 15));
    for bits in 1..=48 {
        for zeros in 0..=124_u32.min(127 - bits) {
            let values: Vec<_> = (0..70)
                .map(|_| (numbers.below(9) > 0).then(|| shifted(&mut numbers, bits, zeros)))
                .collect();
            let blocks = pack(&values);
            let wide: Vec<_> = slots(&blocks).into_iter().map(Slot::wide).collect();
            assert_eq!(wide, values);
            for block in blocks.chunks_exact(8) {
                tags.insert(if matches!(block[0] & 15, 7 | 8) {
                    block[0]
                } else {
                    block[0] & 15
                });
            }
        }
    }
    let base = (1..=6).chain([7, 8]).chain(9..=14);
    let seven = (1..=9).map(|extension| extension << 4 | 7);
    let eight = (1..=13).map(|extension| extension << 4 | 8);
    let expected: BTreeSet<u8> = base.chain(seven).chain(eight).collect();
    assert_eq!(tags.difference(&expected).count(), 0);
    let unused: Vec<_> = expected.difference(&tags).collect();
    assert!(unused.is_empty(), "{unused:02x?}");
}

#[test]
fn narrow_values_are_read_alike_both_ways() {
    let mut numbers = Numbers::new(4);
    let mut array = [0; 60];
    for _ in 0..200_000 {
        let block = numbers.next();
        let Ok(unpacked) = unpack(block, &mut array) else {
            assert!(layout(block).is_err() && run_length(block).is_none());
            continue;
        };
        let bytes = block.to_le_bytes();
        let expected: Vec<_> = slots(&bytes).into_iter().map(Slot::narrow).collect();
        match unpacked {
            Unpacked::Run(count) => assert_eq!(expected, vec![Some(0); count]),
            Unpacked::Slots { count, missing } => {
                let found: Vec<_> = array[..count]
                    .iter()
                    .map(|slot| (*slot != MISSING).then_some(*slot))
                    .collect();
                assert_eq!(found, expected);
                assert_eq!(missing, expected.contains(&None));
            }
        }
    }
}

#[test]
fn runs_of_every_length() {
    for length in [1, 60, 61, 119, 120, 121, 240, 1920, 1921, 4000] {
        for value in [Some(0_u64), Some(5), None] {
            for before in [&[][..], &[Some(5_u64)], &[None, None]] {
                let mut values = before.to_vec();
                values.resize(before.len() + length, value);
                values.push(Some(77));
                let blocks = pack(&values);
                let read: Vec<_> = slots(&blocks).into_iter().map(Slot::narrow).collect();
                assert_eq!(read, values);
            }
        }
    }
    let long = pack(&vec![Some(0_u64); 16 * RUN_UNIT as usize]);
    assert_eq!(long, [0xFF, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn what_no_block_holds_is_refused() {
    let mut builder = Builder::<u64>::new();
    let mut emit = |_: u64, _: super::super::simple8b_builder::Span<'_, u64>| {};
    for value in [u64::MAX, u64::MAX - 1, (1 << 60) - 1, (1 << 60) | 1] {
        assert!(!builder.append(value, &mut emit));
    }
    for value in [(1 << 60) - 2, 1 << 60, 1 << 63, (1 << 63) | (1 << 12)] {
        assert!(builder.append(value, &mut emit));
    }
    assert!(!Builder::<u128>::new().append(u128::from(u64::MAX), &mut |_, _| {}));
}
