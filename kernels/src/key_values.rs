//! The way back from an index key to the values that it was made from.
//!
//! A KeyString keeps values apart that differ in the order of BSON, and nothing else: 1, 1.0 and Decimal 1.00 have the same
//! bytes. What it leaves out stands beside the record key in the value of an entry, as its types: one byte for each number
//! and each null of the key in order, zeros at the end left off but for one. A zero says that the value has the type that
//! its size suggests: the smallest integer type that holds it, else a double. A key whose values cannot be told from it
//! (a cut key, a symbol, code with a scope) has the types `FF` alone.

use crate::elements::{self, elements, fixed, kind, Element};
use crate::keystring::{class, Failure};
use crate::writer::{begin, begin_named, element, end, header, Begun, Digits};

/// Types of a key that does not tell its values.
pub const UNTOLD: &[u8] = &[0xff];

const AS_SIZED: u8 = 0;
const INT64: u8 = 1;
const DOUBLE: u8 = 2;
/// Sixteen bytes follow.
const DECIMAL: u8 = 3;
/// Eight bytes follow: a zero with a sign, or a NaN of its own.
const DOUBLE_BITS: u8 = 4;
/// Of a null: the document has no such field.
const MISSING: u8 = 1;
const DEPTH_MAX: usize = 250;
const NAN_BITS: u64 = 0x7ff8_0000_0000_0000;

/// The types of the values of a row. Values that are missing have no name.
pub fn types_of(row: &[Element<'_>]) -> Result<Vec<u8>, Failure> {
    let mut types = Vec::new();
    for value in row {
        if value.kind == kind::NULL {
            types.push(u8::from(value.name.is_empty()));
        } else if !append_types(&mut types, *value, 0)? {
            return Ok(UNTOLD.to_vec());
        }
    }
    while types.len() > 1 && types.last() == Some(&AS_SIZED) {
        types.pop();
    }
    if types.is_empty() {
        types.push(AS_SIZED);
    }
    Ok(types)
}

/// Append the types of one value; false where its key does not tell it.
fn append_types(types: &mut Vec<u8>, item: Element<'_>, depth: usize) -> Result<bool, Failure> {
    let value = item.value;
    match item.kind {
        kind::INT32 | kind::NULL => types.push(AS_SIZED),
        kind::INT64 => {
            let number = i64::from_le_bytes(fixed(value)?);
            types.push(if i32::try_from(number).is_ok() {
                INT64
            } else {
                AS_SIZED
            });
        }
        kind::DOUBLE => {
            let bytes: [u8; 8] = fixed(value)?;
            let number = f64::from_le_bytes(bytes);
            if number.is_nan() && number.to_bits() == NAN_BITS {
                types.push(AS_SIZED);
            } else if number.is_nan() || (number == 0.0 && number.is_sign_negative()) {
                types.push(DOUBLE_BITS);
                types.extend_from_slice(&bytes);
            } else {
                types.push(if whole(number).is_some() {
                    DOUBLE
                } else {
                    AS_SIZED
                });
            }
        }
        kind::DECIMAL128 => {
            types.push(DECIMAL);
            types.extend_from_slice(&fixed::<16>(value)?);
        }
        kind::SYMBOL | kind::CODE_WITH_SCOPE => return Ok(false),
        kind::REGEX => {
            let (_, after) = elements::split_cstring(value)?;
            let (options, _) = elements::split_cstring(after)?;
            return Ok(options.is_sorted());
        }
        kind::OBJECT | kind::ARRAY => {
            if depth >= DEPTH_MAX {
                return Ok(false);
            }
            for inner in elements(value)? {
                if !append_types(types, inner?, depth + 1)? {
                    return Ok(false);
                }
            }
        }
        _ => {}
    }
    Ok(true)
}

/// The double as an integer of 64 bits, where it is one.
fn whole(number: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (number.trunc() == number && (-LIMIT..LIMIT).contains(&number)).then_some(number as i64)
}

/// One path of an index, or one level of objects above several.
enum Node {
    /// A path of the index by its position.
    Leaf(Vec<u8>, usize),
    Inner(Vec<u8>, Vec<Node>),
}

/// What turns entries of one index back into documents of some of its paths.
pub struct KeyReader {
    descending: Vec<bool>,
    dotted: Vec<bool>,
    tree: Vec<Node>,
    wanted: Vec<bool>,
}

impl KeyReader {
    /// `wanted` says which of the paths to tell; none of those may lie below another.
    pub fn new(paths: &[String], descending: &[bool], wanted: &[bool]) -> Self {
        let mut tree = Vec::new();
        for (position, path) in paths.iter().enumerate() {
            if wanted.get(position) == Some(&true) {
                let parts: Vec<&str> = path.split('.').collect();
                place(&mut tree, &parts, position);
            }
        }
        KeyReader {
            descending: descending.to_vec(),
            dotted: paths.iter().map(|path| path.contains('.')).collect(),
            tree,
            wanted: wanted.to_vec(),
        }
    }

    /// A document with the wanted paths of a key (more may follow it); `None` where the entry does not tell them.
    pub fn document(&self, key: &[u8], types: &[u8]) -> Option<Vec<u8>> {
        if types.is_empty() || types == UNTOLD {
            return None;
        }
        let mut types = Types(types);
        let mut values = Vec::with_capacity(key.len() + 32);
        let mut places: Vec<Option<(usize, usize)>> = Vec::with_capacity(self.descending.len());
        let mut rest = key;
        for (position, &descending) in self.descending.iter().enumerate() {
            let mut reader = Reader {
                bytes: rest,
                flip: if descending { 0xff } else { 0 },
            };
            let start = values.len();
            let told = reader.value(&mut types, &mut values, b"", 0)?;
            rest = reader.bytes;
            let wanted = self.wanted.get(position) == Some(&true);
            if !told && wanted && self.dotted.get(position) == Some(&true) {
                // What is missing below a path may be missing at any level.
                return None;
            }
            places.push((told && wanted).then_some((start, values.len())));
        }
        let mut out = Vec::with_capacity(values.len() + 48);
        let begun = begin(&mut out);
        write(&mut out, &self.tree, &values, &places);
        end(&mut out, begun);
        Some(out)
    }
}

fn place(level: &mut Vec<Node>, parts: &[&str], position: usize) {
    let Some((first, below)) = parts.split_first() else {
        return;
    };
    if below.is_empty() {
        level.push(Node::Leaf(first.as_bytes().to_vec(), position));
        return;
    }
    for node in level.iter_mut() {
        if let Node::Inner(name, inner) = node {
            if name == first.as_bytes() {
                place(inner, below, position);
                return;
            }
        }
    }
    let mut inner = Vec::new();
    place(&mut inner, below, position);
    level.push(Node::Inner(first.as_bytes().to_vec(), inner));
}

fn write(out: &mut Vec<u8>, tree: &[Node], values: &[u8], places: &[Option<(usize, usize)>]) {
    for node in tree {
        match node {
            Node::Leaf(name, position) => {
                // A value was written as its type, an empty name and its bytes.
                if let Some([type_byte, _, value @ ..]) = places
                    .get(*position)
                    .copied()
                    .flatten()
                    .and_then(|(start, stop)| values.get(start..stop))
                {
                    element(out, *type_byte, name, value);
                }
            }
            Node::Inner(name, inner) => {
                let begun = begin_named(out, kind::OBJECT, name);
                write(out, inner, values, places);
                end(out, begun);
            }
        }
    }
}

/// The types that are left.
struct Types<'a>(&'a [u8]);

impl Types<'_> {
    fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => AS_SIZED,
        }
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_at_checked(N)?;
        self.0 = rest;
        bytes.try_into().ok()
    }
}

/// What is left of a key, every byte to be turned round where `flip` says so.
struct Reader<'a> {
    bytes: &'a [u8],
    flip: u8,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first ^ self.flip)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.bytes.split_at_checked(N)?;
        self.bytes = rest;
        let mut found: [u8; N] = bytes.try_into().ok()?;
        for byte in &mut found {
            *byte ^= self.flip;
        }
        Some(found)
    }

    fn copy(&mut self, out: &mut Vec<u8>, count: usize) -> Option<()> {
        let (bytes, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        out.extend(bytes.iter().map(|byte| byte ^ self.flip));
        Some(())
    }

    /// Copy up to a NUL, and the NUL.
    fn cstring(&mut self, out: &mut Vec<u8>) -> Option<()> {
        loop {
            let byte = self.byte()?;
            out.push(byte);
            if byte == 0 {
                return Some(());
            }
        }
    }

    /// A string with its length before it and a NUL behind it.
    fn text(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        loop {
            let byte = self.byte()?;
            if byte == 0 && self.byte()? == 1 {
                break;
            }
            out.push(byte);
        }
        out.push(0);
        let length = i32::try_from(out.len() - start - 4).ok()?;
        out.get_mut(start..start + 4)?
            .copy_from_slice(&length.to_le_bytes());
        Some(())
    }

    /// Append an element with the next value. `Some(false)`: it is missing, and nothing was appended.
    fn value(
        &mut self,
        types: &mut Types<'_>,
        out: &mut Vec<u8>,
        name: &[u8],
        depth: usize,
    ) -> Option<bool> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.byte()? {
            class::MIN_KEY => header(out, kind::MIN_KEY, name),
            class::UNDEFINED => header(out, kind::UNDEFINED, name),
            class::NULL => {
                if types.next() == MISSING {
                    return Some(false);
                }
                header(out, kind::NULL, name);
            }
            class::NAN => number(types, out, name, f64::from_bits(NAN_BITS), None)?,
            class::ZERO => number(types, out, name, 0.0, None)?,
            class::POSITIVE => {
                let (double, integer) = self.magnitude(false)?;
                number(types, out, name, double, integer)?;
            }
            class::NEGATIVE => {
                self.flip = !self.flip;
                let (double, integer) = self.magnitude(true)?;
                self.flip = !self.flip;
                number(types, out, name, double, integer)?;
            }
            class::STRING => {
                header(out, kind::STRING, name);
                self.text(out)?;
            }
            class::OBJECT => {
                let begun = begin_named(out, kind::OBJECT, name);
                self.fields(types, out, begun, depth)?;
            }
            class::ARRAY => {
                let begun = begin_named(out, kind::ARRAY, name);
                let mut count = 0;
                while self.bytes.first().map(|first| first ^ self.flip)? != 0 {
                    self.value(types, out, Digits::of(count).as_bytes(), depth + 1)?;
                    count += 1;
                }
                self.byte()?;
                end(out, begun);
            }
            class::BINARY => {
                let length = u32::from_be_bytes(self.array()?);
                element(out, kind::BINARY, name, &length.to_le_bytes());
                self.copy(out, length as usize + 1)?;
            }
            class::OBJECT_ID => {
                header(out, kind::OBJECT_ID, name);
                self.copy(out, 12)?;
            }
            class::FALSE => element(out, kind::BOOL, name, &[0]),
            class::TRUE => element(out, kind::BOOL, name, &[1]),
            class::DATE => {
                let millis = u64::from_be_bytes(self.array()?) ^ (1 << 63);
                element(out, kind::DATE, name, &millis.to_le_bytes());
            }
            class::TIMESTAMP => {
                let stamp = u64::from_be_bytes(self.array()?);
                element(out, kind::TIMESTAMP, name, &stamp.to_le_bytes());
            }
            class::REGEX => {
                header(out, kind::REGEX, name);
                self.cstring(out)?;
                self.cstring(out)?;
            }
            class::DB_POINTER => {
                let length = u32::from_be_bytes(self.array()?);
                header(out, kind::DB_POINTER, name);
                self.copy(out, length as usize)?;
            }
            class::CODE => {
                header(out, kind::CODE, name);
                self.text(out)?;
            }
            class::MAX_KEY => header(out, kind::MAX_KEY, name),
            _ => return None,
        }
        Some(true)
    }

    /// The fields of an object up to its end.
    fn fields(
        &mut self,
        types: &mut Types<'_>,
        out: &mut Vec<u8>,
        begun: Begun,
        depth: usize,
    ) -> Option<()> {
        let mut name = Vec::new();
        while self.byte()? != 0 {
            name.clear();
            self.cstring(&mut name)?;
            name.pop();
            self.value(types, out, &name, depth + 1)?;
        }
        end(out, begun);
        Some(())
    }

    /// A number other than zero: the double, and the integer where digits follow that say one.
    #[allow(clippy::type_complexity)]
    fn magnitude(&mut self, negative: bool) -> Option<(f64, Option<i64>)> {
        let bits = u64::from_be_bytes(self.array()?);
        let double = f64::from_bits(bits >> 1);
        let signed = if negative { -double } else { double };
        if bits & 1 == 0 {
            return Some((signed, None));
        }
        let leading = i32::from(u16::from_be_bytes(self.array()?)) - 10_000;
        let mut digits = Vec::new();
        loop {
            match self.byte()? {
                0 => break,
                pair => digits.extend([(pair - 1) / 10, (pair - 1) % 10]),
            }
        }
        Some((signed, integer_of(&digits, leading, negative)))
    }
}

/// The integer with these digits, the first of which counts ten to the `leading`.
fn integer_of(digits: &[u8], leading: i32, negative: bool) -> Option<i64> {
    let length = usize::try_from(leading + 1)
        .ok()
        .filter(|&length| length <= 19)?;
    let mut number: i128 = 0;
    for position in 0..length {
        number = number * 10 + i128::from(digits.get(position).copied().unwrap_or(0));
    }
    i64::try_from(if negative { -number } else { number }).ok()
}

/// Append a number of the type that the types say. `integer` is its value where no double has it.
fn number(
    types: &mut Types<'_>,
    out: &mut Vec<u8>,
    name: &[u8],
    double: f64,
    integer: Option<i64>,
) -> Option<()> {
    match types.next() {
        AS_SIZED => match integer.or_else(|| whole(double)) {
            Some(integer) => match i32::try_from(integer) {
                Ok(small) => element(out, kind::INT32, name, &small.to_le_bytes()),
                Err(_) => element(out, kind::INT64, name, &integer.to_le_bytes()),
            },
            None => element(out, kind::DOUBLE, name, &double.to_le_bytes()),
        },
        INT64 => {
            let integer = integer.or_else(|| whole(double))?;
            element(out, kind::INT64, name, &integer.to_le_bytes());
        }
        DOUBLE => element(out, kind::DOUBLE, name, &double.to_le_bytes()),
        DECIMAL => element(out, kind::DECIMAL128, name, &types.bytes::<16>()?),
        DOUBLE_BITS => element(out, kind::DOUBLE, name, &types.bytes::<8>()?),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{types_of, KeyReader};
    use crate::elements::{kind, Element};
    use crate::keystring::append;

    fn round_trip(type_byte: u8, value: &[u8], descending: bool) -> Option<Vec<u8>> {
        let item = Element {
            kind: type_byte,
            name: b"a",
            value,
        };
        let mut key = Vec::new();
        append(&mut key, item, descending, None).ok()?;
        let types = types_of(&[item]).ok()?;
        let reader = KeyReader::new(&["a".to_owned()], &[descending], &[true]);
        let document = reader.document(&key, &types)?;
        for end in 0..key.len() {
            // A key that is cut short is told as such, or as what it says so far; nothing panics.
            let _ = reader.document(&key[..end], &types);
        }
        Some(document.get(7..document.len() - 1)?.to_vec())
    }

    #[test]
    fn numbers_come_back_with_their_types() {
        for descending in [false, true] {
            for number in [0, 1, -1, i32::MIN, i32::MAX] {
                let bytes = number.to_le_bytes();
                assert_eq!(
                    round_trip(kind::INT32, &bytes, descending),
                    Some(bytes.to_vec())
                );
            }
            for number in [0, 1, -7, i64::MIN, i64::MAX, i64::MAX - 1, (1 << 53) + 1] {
                let bytes = number.to_le_bytes();
                assert_eq!(
                    round_trip(kind::INT64, &bytes, descending),
                    Some(bytes.to_vec())
                );
            }
            let odd = f64::from_bits(0xfff8_0000_0000_0001);
            for number in [
                0.0,
                -0.0,
                1.0,
                -2.5,
                1e300,
                9_223_372_036_854_775_808.0,
                f64::NAN,
                odd,
                f64::INFINITY,
            ] {
                let bytes = number.to_le_bytes();
                assert_eq!(
                    round_trip(kind::DOUBLE, &bytes, descending),
                    Some(bytes.to_vec())
                );
            }
        }
    }

    #[test]
    fn what_a_key_does_not_tell_is_not_told() {
        assert_eq!(round_trip(kind::SYMBOL, b"\x02\0\0\0a\0", false), None);
        assert_eq!(round_trip(kind::REGEX, b"a\0mi\0", false), None);
        assert_eq!(
            round_trip(kind::REGEX, b"a\0im\0", true),
            Some(b"a\0im\0".to_vec())
        );
    }
}
