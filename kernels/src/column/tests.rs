//! What holds of every column: known bytes, round trips, growth, and calm in the face of damage.

use super::{
    decode_f64, decode_i64, decode_strings, ColumnDecoder, ColumnEncoder, ColumnError,
    StringDictionary, Uniform, MISSING_CODE,
};
use crate::elements::kind;

mod blocks;
mod generate;
mod growth;
mod known;
mod mutation;
mod round_trip;

/// One entry: a type byte and the bytes of the value; None where it is missing.
type Entry = Option<(u8, Vec<u8>)>;

fn encode(entries: &[Entry]) -> ColumnEncoder {
    let mut encoder = ColumnEncoder::new();
    for entry in entries {
        add(&mut encoder, entry);
    }
    encoder
}

fn add(encoder: &mut ColumnEncoder, entry: &Entry) {
    let added = match entry {
        Some((kind, value)) => encoder.append(*kind, value),
        None => encoder.append_missing(),
    };
    assert_eq!(added, Ok(()));
}

fn finish(encoder: &ColumnEncoder) -> Vec<u8> {
    match encoder.finish() {
        Ok(bytes) => bytes,
        Err(error) => panic!("{error}"),
    }
}

fn decode(column: &[u8], max_entries: usize) -> Result<Vec<Entry>, ColumnError> {
    ColumnDecoder::new(column, max_entries)
        .map(|entry| Ok(entry?.map(|value| (value.kind(), value.bytes().to_vec()))))
        .collect()
}

/// Fails unless the whole-column functions agree with the decoder about the entries, or leave them to it.
fn check_arrays(column: &[u8], entries: &[Entry]) {
    let mut present = Vec::new();
    let mut integers = Vec::new();
    let uniform = decode_i64(column, entries.len(), &mut integers, &mut present);
    match uniform {
        Ok(Uniform::Mixed) => assert!(integers.is_empty() && present.is_empty()),
        Ok(_) => {
            let expected: Vec<_> = entries
                .iter()
                .map(|entry| entry.as_ref().map(integer))
                .collect();
            assert_eq!(with_missing(&integers, &present), expected);
        }
        Err(error) => panic!("{error}"),
    }
    let mut doubles = Vec::new();
    present.clear();
    match decode_f64(column, entries.len(), &mut doubles, &mut present) {
        Ok(Uniform::Mixed) => assert!(doubles.is_empty() && present.is_empty()),
        Ok(_) => {
            let bits: Vec<_> = doubles.iter().map(|value| value.to_bits() as i64).collect();
            let expected: Vec<_> = entries
                .iter()
                .map(|entry| entry.as_ref().map(integer))
                .collect();
            assert_eq!(with_missing(&bits, &present), expected);
        }
        Err(error) => panic!("{error}"),
    }
    let mut dictionary = StringDictionary::default();
    let mut codes = Vec::new();
    match decode_strings(column, entries.len(), &mut dictionary, &mut codes) {
        Ok(Uniform::Mixed) => assert!(codes.is_empty()),
        Ok(_) => {
            let texts: Vec<_> = codes
                .iter()
                .map(|code| dictionary.get(*code).map(<[u8]>::to_vec))
                .collect();
            let expected: Vec<_> = entries
                .iter()
                .map(|entry| entry.as_ref().map(text))
                .collect();
            assert_eq!(texts, expected);
            assert!(codes
                .iter()
                .all(|code| *code == MISSING_CODE || (*code as usize) < dictionary.len()));
        }
        Err(error) => panic!("{error}"),
    }
}

fn with_missing(values: &[i64], present: &[u8]) -> Vec<Option<i64>> {
    assert_eq!(values.len(), present.len());
    let pairs = values.iter().zip(present);
    pairs
        .map(|(value, present)| (*present == 1).then_some(*value))
        .collect()
}

fn integer((type_byte, value): &(u8, Vec<u8>)) -> i64 {
    match *type_byte {
        kind::BOOL => i64::from(value[0]),
        kind::INT32 => i64::from(i32::from_le_bytes(value[..].try_into().unwrap_or_default())),
        _ => i64::from_le_bytes(value[..].try_into().unwrap_or_default()),
    }
}

fn text((_, value): &(u8, Vec<u8>)) -> Vec<u8> {
    value[4..value.len() - 1].to_vec()
}
