//! Columns whose bytes are known, both ways.

use super::{check_arrays, decode, encode, finish, Entry};
use crate::elements::kind;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text
        .bytes()
        .map(|digit| (digit as char).to_digit(16).unwrap_or(0) as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn int32(value: i32) -> Entry {
    Some((kind::INT32, value.to_le_bytes().to_vec()))
}

fn wide(type_byte: u8, value: i64) -> Entry {
    Some((type_byte, value.to_le_bytes().to_vec()))
}

fn double(value: f64) -> Entry {
    Some((kind::DOUBLE, value.to_le_bytes().to_vec()))
}

fn string(text: &str) -> Entry {
    let mut value = (text.len() as u32 + 1).to_le_bytes().to_vec();
    value.extend_from_slice(text.as_bytes());
    value.push(0);
    Some((kind::STRING, value))
}

fn object(elements: &[(u8, &str, Vec<u8>)]) -> Entry {
    let mut body = Vec::new();
    for (type_byte, name, value) in elements {
        body.push(*type_byte);
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(value);
    }
    body.push(0);
    let mut value = (body.len() as u32 + 4).to_le_bytes().to_vec();
    value.extend_from_slice(&body);
    Some((kind::OBJECT, value))
}

fn field(name: &'static str, entry: Entry) -> (u8, &'static str, Vec<u8>) {
    let (type_byte, value) = entry.unwrap_or((kind::NULL, Vec::new()));
    (type_byte, name, value)
}

fn check(column: &str, entries: &[Entry]) {
    let column = hex(column);
    assert_eq!(decode(&column, entries.len()), Ok(entries.to_vec()));
    check_arrays(&column, entries);
    assert_eq!(finish(&encode(entries)), column);
}

#[test]
fn written_by_servers() {
    check(
        "0900e89732f18201000080fe7c00000000000000",
        &[1_661_904_001_000, 1_661_904_000_000].map(|time| wide(kind::DATE, time)),
    );
    check(
        "0900188608148d010000800e0000000000000000",
        &[1_705_438_119_448; 2].map(|time| wide(kind::DATE, time)),
    );
    check(
        "0700630fabf7c388456f8aea4f2d804e0000000000000000",
        &["630fabf7c388456f8aea4f2d", "630fabf7c388456f8aea4f2f"]
            .map(|id| Some((kind::OBJECT_ID, hex(id)))),
    );
    check("100000000000802e0000000000000000", &[0, 1].map(int32));
    check(
        "01000000000000000000902e0000000000000000",
        &[0.0, 1.0].map(double),
    );
    check(
        "01000000000000000040937f00000000000000020000000000000007000000000000000e0000000000000000",
        &vec![double(2.0); 1000],
    );
    check(
        "0900c035f6568e01000000",
        &[wide(kind::DATE, 1_710_855_960_000)],
    );
}

#[test]
fn dates() {
    check(
        "09000068e5cf8b010000800c7d00000000000000",
        &[0, 1, 2, 3].map(|step| wide(kind::DATE, 1_700_000_000_000 + 1000 * step)),
    );
}

#[test]
fn integers() {
    check(
        "100005000000804c0000000060000000",
        &[5, 7, 7, 10].map(int32),
    );
    check(
        "80feffffffffffffff10000500000080fdffffff0b00000000",
        &[None, int32(5), None, int32(6)],
    );
    check(
        "100007000000810f000000000000000b0000000000000000",
        &vec![int32(7); 125],
    );
    check(
        "12000000000000000000800e0000000020000000",
        &[0, 1 << 40].map(|value| wide(kind::INT64, value)),
    );
    check(
        "1200000000000000000080970f00000000000800",
        &[0, 1 << 61].map(|value| wide(kind::INT64, value)),
    );
    check(
        "1100010000000500000080870f00400000000000",
        &[5, 6, 7].map(|seconds| wide(kind::TIMESTAMP, seconds << 32 | 1)),
    );
}

#[test]
fn doubles() {
    check(
        "01009a99999999193440b04d0100002400000000",
        &[20.1, 20.2, 20.15].map(double),
    );
}

#[test]
fn texts_and_bytes() {
    check(
        "020003000000613100802d0000000000000000",
        &["a1", "a2", "a2"].map(string),
    );
    check(
        "050002000000000102800e2000000000000000",
        &[[1, 2], [1, 3]]
            .map(|bytes| Some((kind::BINARY, [&[2, 0, 0, 0, 0], &bytes[..]].concat()))),
    );
}

#[test]
fn other_types() {
    check(
        "080001801d0000000800000000",
        &[1, 0, 1].map(|truth| Some((kind::BOOL, vec![truth]))),
    );
    check(
        "0a00800d0000000000000000",
        &vec![Some((kind::NULL, Vec::new())); 3],
    );
    check(
        "130001000000000000000000000000000000804e0000000000000000",
        &[1_u128, 3].map(|raw| Some((kind::DECIMAL128, raw.to_le_bytes().to_vec()))),
    );
}

#[test]
fn objects() {
    check(
        "f11700000010780001000000017900000000000000044000800c00000200200000a00c00000000f0ffff0000",
        &[
            object(&[field("x", int32(1)), field("y", double(2.5))]),
            object(&[field("x", int32(2)), field("y", double(2.5))]),
            object(&[field("x", int32(3))]),
        ],
    );
}

#[test]
fn sections_of_old_versions_take_arrays_whole() {
    let array = b"\x0c\0\0\0\x100\0\x01\0\0\0\0".to_vec();
    let entry = object(&[(kind::ARRAY, "a", array)]);
    let mut column = vec![0xF0];
    column.extend(entry.iter().flat_map(|(_, value)| value.clone()));
    column.extend(hex("800d0000000000000000"));
    column.push(0);
    assert_eq!(decode(&column, 2), Ok(vec![entry.clone(), entry.clone()]));
    // Read as a section of today, the array's own scalar is the stream.
    column[0] = 0xF1;
    assert_eq!(decode(&column, 2), Ok(vec![entry.clone(), entry]));
}

#[test]
fn arrays_and_values_that_change_type_inside() {
    let array = |value: Entry| {
        let (_, body) = object(&[field("0", value)]).unwrap_or_default();
        Some((kind::ARRAY, body))
    };
    check(
        concat!(
            "f20c00000010300001000000",
            "00800e00000000000000",
            "0200020000006100",
            "800e00000000000000",
            "0000"
        ),
        &[array(int32(1)), array(string("a")), array(string("a"))],
    );
}

#[test]
fn no_entries() {
    check("00", &[]);
}
