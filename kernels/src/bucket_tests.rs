//! Buckets in Rust alone: growth, and every changed byte.

use crate::bucket::{Bucket, Limits, Refusal};
use crate::bucket_check::problems;
use crate::bucket_rows::BucketRows;
use crate::columns::Columns;
use crate::elements::kind;
use crate::lot::Lot;
use crate::pack::BucketSource::Stored;
use crate::partition::{partition, Batch, Reading};
use crate::unpack::Wanted;
use crate::writer::{begin, begin_named, date, element, end, int32};
use std::sync::Arc;

const LIMITS: Limits = Limits {
    span_ms: 3_600_000,
    max_count: 1000,
    effective_max: 128_000,
    absolute_max: 12_582_912,
    min_count: 10,
    large_threshold: 512,
};

fn measurement(time_ms: i64, value: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let begun = begin(&mut out);
    int32(&mut out, b"_id", value);
    date(&mut out, b"t", time_ms);
    element(&mut out, kind::STRING, b"s", b"\x03\0\0\0ab\0");
    let object = begin_named(&mut out, kind::OBJECT, b"o");
    element(
        &mut out,
        kind::DOUBLE,
        b"d",
        &f64::from(value).to_le_bytes(),
    );
    let array = begin_named(&mut out, kind::ARRAY, b"a");
    int32(&mut out, b"0", value);
    end(&mut out, array);
    end(&mut out, object);
    if value % 2 == 0 {
        element(&mut out, kind::DECIMAL128, b"n", &[7; 16]);
    }
    end(&mut out, begun);
    out
}

fn batch(times: &[i64]) -> (Arc<Lot>, Batch) {
    let bytes: Vec<u8> = times
        .iter()
        .enumerate()
        .flat_map(|(value, time)| measurement(*time, value as i32))
        .collect();
    let reading = Reading {
        time_field: b"t",
        meta_field: Some(b"m"),
        bytes_max: usize::MAX,
        stop: usize::MAX,
    };
    let (batch, fields) = partition(&bytes, &reading).expect("well formed");
    (Arc::new(Lot::new(Box::new(bytes), fields)), batch)
}

fn bucket(times: &[i64], version: i32) -> (Bucket, Option<Refusal>) {
    let (lot, batch) = batch(times);
    let mut bucket = Bucket::new([0; 12], b"t", Some(&[kind::NULL]), 0, version);
    let measurements = &batch.series[0].measurements;
    let (_, refusal, _) = bucket
        .append(&lot, measurements, &LIMITS, None)
        .expect("well formed");
    (bucket, refusal)
}

#[test]
fn it_stops_where_a_rule_says_so() {
    assert_eq!(bucket(&[1, 2, 3_600_000], 2).1, Some(Refusal::TimeForward));
    assert_eq!(bucket(&[1, 2, -1], 2).1, Some(Refusal::TimeBackward));
    assert_eq!(bucket(&[1; 1001], 2).1, Some(Refusal::Count));
    assert_eq!(bucket(&[1; 1000], 2).1, None);
}

#[test]
fn what_was_encoded_bit_by_bit_is_the_same() {
    let times: Vec<i64> = (0..200).map(|i| i * 7).collect();
    let (mut at_once, _) = bucket(&times, 2);
    let (lot, batch) = batch(&times);
    let mut by_one = Bucket::new([0; 12], b"t", Some(&[kind::NULL]), 0, 2);
    for measurement in batch.series[0].measurements.chunks(1) {
        by_one
            .append(&lot, measurement, &LIMITS, None)
            .expect("well formed");
        by_one.document().expect("well formed");
    }
    let stored = at_once.document().expect("well formed");
    assert_eq!(by_one.document(), Ok(stored.clone()));
    let mut reopened = Bucket::reopen(&stored, b"t").expect("well formed");
    assert_eq!(reopened.document(), Ok(stored));
}

#[test]
fn no_changed_byte_makes_it_panic() {
    for version in [1, 2] {
        let stored = bucket(&[5, 3, 4, 9], version)
            .0
            .document()
            .expect("well formed");
        assert_eq!(
            problems(&stored, b"t", Some(b"m"), 3_600_000, 60_000, None),
            Vec::<String>::new()
        );
        for position in 0..stored.len() {
            for value in [
                0,
                1,
                2,
                5,
                0x10,
                0x7f,
                0x80,
                0xf1,
                0xff,
                stored[position] ^ 1,
            ] {
                let mut changed = stored.clone();
                changed[position] = value;
                problems(&changed, b"t", Some(b"m"), 3_600_000, 60_000, None);
                let _ = Bucket::keep_rows(&changed, b"t", &[1, 0, 1, 1], None);
                if let Ok(mut bucket) = Bucket::reopen(&changed, b"t") {
                    let (lot, batch) = batch(&[6, 7]);
                    let _ = bucket.append(&lot, &batch.series[0].measurements, &LIMITS, None);
                    let _ = bucket.document();
                }
                let all = Wanted::Exclude(&[]);
                if let Ok(rows) = BucketRows::open(Stored(&changed), b"t", Some(b"m"), all) {
                    let mut out = Vec::new();
                    for row in 0..rows.len().min(20) {
                        rows.write(row, &mut out);
                        assert_eq!(out.len(), rows.before(row + 1));
                    }
                }
                if let Ok(columns) =
                    Columns::unpack(&[Stored(&changed), Stored(&stored)], b"t", None)
                {
                    let mut out = Vec::new();
                    for row in 0..columns.rows().min(20) {
                        columns.write_row(row, Some(b"m"), &mut 0, &mut out);
                    }
                }
            }
        }
    }
}
