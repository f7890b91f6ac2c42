//! Walks the elements of raw BSON without building values; checks every length before it trusts it.

/// Why raw BSON could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// One element: its type byte, its name without the NUL, and the bytes of its value.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    pub kind: u8,
    pub name: &'a [u8],
    pub value: &'a [u8],
}

pub mod kind {
    //! Type bytes of BSON.
    pub const DOUBLE: u8 = 1;
    pub const STRING: u8 = 2;
    pub const OBJECT: u8 = 3;
    pub const ARRAY: u8 = 4;
    pub const BINARY: u8 = 5;
    pub const UNDEFINED: u8 = 6;
    pub const OBJECT_ID: u8 = 7;
    pub const BOOL: u8 = 8;
    pub const DATE: u8 = 9;
    pub const NULL: u8 = 10;
    pub const REGEX: u8 = 11;
    pub const DB_POINTER: u8 = 12;
    pub const CODE: u8 = 13;
    pub const SYMBOL: u8 = 14;
    pub const CODE_WITH_SCOPE: u8 = 15;
    pub const INT32: u8 = 16;
    pub const TIMESTAMP: u8 = 17;
    pub const INT64: u8 = 18;
    pub const DECIMAL128: u8 = 19;
    pub const MAX_KEY: u8 = 127;
    pub const MIN_KEY: u8 = 255;
}

/// The elements of a document or array, in their order.
#[derive(Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

/// The elements of the document that `document` holds from its first byte to its last.
pub fn elements(document: &[u8]) -> Result<Elements<'_>, Malformed> {
    let length = int32(document)?;
    if length < 5 || length as usize != document.len() {
        return Err(Malformed("a document's length is wrong"));
    }
    match document.split_last() {
        Some((0, body)) => Ok(Elements {
            rest: body.get(4..).ok_or(Malformed("a document is cut short"))?,
        }),
        _ => Err(Malformed("a document does not end in NUL")),
    }
}

/// The element with this name, if the document has one.
pub fn find<'a>(document: &'a [u8], name: &[u8]) -> Result<Option<Element<'a>>, Malformed> {
    for element in elements(document)? {
        let element = element?;
        if element.name == name {
            return Ok(Some(element));
        }
    }
    Ok(None)
}

impl<'a> Elements<'a> {
    fn read(&mut self) -> Result<Element<'a>, Malformed> {
        let (&kind, after) = self
            .rest
            .split_first()
            .ok_or(Malformed("an element is cut short"))?;
        let (name, body) = split_cstring(after)?;
        let length = value_length(kind, body)?;
        if length > body.len() {
            return Err(Malformed("an element is cut short"));
        }
        let (value, rest) = body.split_at(length);
        self.rest = rest;
        Ok(Element { kind, name, value })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let element = self.read();
        if element.is_err() {
            self.rest = &[];
        }
        Some(element)
    }
}

/// The bytes before the first NUL, and those after it.
pub fn split_cstring(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .ok_or(Malformed("a name does not end"))?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// The text of a string value, without its length and NUL.
pub fn string(value: &[u8]) -> Result<&[u8], Malformed> {
    let length = int32(value)?;
    if length < 1 || value.len() != 4 + length as usize || value.last() != Some(&0) {
        return Err(Malformed("a string's length is wrong"));
    }
    Ok(&value[4..value.len() - 1])
}

/// The bytes of a value of fixed size.
pub fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value
        .get(..N)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(Malformed("a value is cut short"))
}

/// The 32-bit integer that the bytes begin with.
pub fn int32(bytes: &[u8]) -> Result<i32, Malformed> {
    Ok(i32::from_le_bytes(fixed(bytes)?))
}

fn length_at(body: &[u8], more: usize, least: i32) -> Result<usize, Malformed> {
    let length = int32(body)?;
    if length < least {
        return Err(Malformed("a value's length is negative"));
    }
    Ok(length as usize + more)
}

/// Length of the value that the bytes begin with; the bytes may be fewer.
#[inline]
pub fn value_length(kind: u8, body: &[u8]) -> Result<usize, Malformed> {
    Ok(match kind {
        kind::UNDEFINED | kind::NULL | kind::MIN_KEY | kind::MAX_KEY => 0,
        kind::BOOL => 1,
        kind::INT32 => 4,
        kind::DOUBLE | kind::DATE | kind::TIMESTAMP | kind::INT64 => 8,
        kind::OBJECT_ID => 12,
        kind::DECIMAL128 => 16,
        kind::STRING | kind::CODE | kind::SYMBOL => length_at(body, 4, 1)?,
        kind::OBJECT | kind::ARRAY => length_at(body, 0, 5)?,
        kind::CODE_WITH_SCOPE => length_at(body, 0, 14)?,
        kind::BINARY => length_at(body, 5, 0)?,
        kind::DB_POINTER => length_at(body, 4 + 12, 1)?,
        kind::REGEX => {
            let (pattern, after) = split_cstring(body)?;
            let (options, _) = split_cstring(after)?;
            pattern.len() + options.len() + 2
        }
        _ => return Err(Malformed("a type is unknown")),
    })
}

#[cfg(test)]
mod tests {
    use super::{elements, find, Malformed};

    const ONE: &[u8] = b"\x0c\0\0\0\x10a\0\x01\0\0\0\0";

    #[test]
    fn finds_by_name() {
        assert_eq!(
            find(ONE, b"a").map(|found| found.map(|element| element.value)),
            Ok(Some(&b"\x01\0\0\0"[..]))
        );
        assert!(matches!(find(ONE, b"b"), Ok(None)));
    }

    #[test]
    fn no_cut_document_is_read_and_none_panics() {
        for end in 0..ONE.len() {
            assert!(elements(&ONE[..end]).is_err());
        }
        let mut lying = ONE.to_vec();
        lying[4] = 2;
        let outcome: Result<Vec<_>, Malformed> = match elements(&lying) {
            Ok(all) => all.collect(),
            Err(error) => Err(error),
        };
        assert!(outcome.is_err());
    }
}
