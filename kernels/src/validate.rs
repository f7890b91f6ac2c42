//! Checks raw BSON through and through before anybody trusts it: lengths, types, text, nesting.

use crate::elements::{self, elements, kind, split_cstring, Malformed};

/// How deep documents and arrays may lie in each other, the outermost counted.
pub const DEPTH_MAX: usize = 200;

/// Fails unless the bytes are one valid document that nests at most `depth_max` levels.
pub fn validate(document: &[u8], depth_max: usize) -> Result<(), Malformed> {
    let left = depth_max
        .checked_sub(1)
        .ok_or(Malformed("a document nests too deeply"))?;
    for element in elements(document)? {
        let element = element?;
        check_text(element.name)?;
        check_value(element.kind, element.value, left)?;
    }
    Ok(())
}

/// Fails unless a value, whose length is right, is valid; `depth` more levels may nest in it.
#[inline]
pub fn check_value(type_byte: u8, value: &[u8], depth: usize) -> Result<(), Malformed> {
    match type_byte {
        kind::STRING | kind::CODE | kind::SYMBOL => check_text(elements::string(value)?),
        kind::OBJECT | kind::ARRAY => validate(value, depth),
        kind::BOOL if value != [0] && value != [1] => {
            Err(Malformed("a boolean is neither 0 nor 1"))
        }
        kind::BINARY if value.get(4) == Some(&2) => check_old_binary(value),
        kind::REGEX => {
            let (pattern, after) = split_cstring(value)?;
            check_text(pattern)?;
            check_text(split_cstring(after)?.0)
        }
        kind::DB_POINTER => {
            let name = value.get(..value.len().saturating_sub(12));
            check_text(elements::string(name.unwrap_or_default())?)
        }
        kind::CODE_WITH_SCOPE => {
            let (code, scope) = split_code(value)?;
            check_text(elements::string(code)?)?;
            validate(scope, depth)
        }
        _ => Ok(()),
    }
}

/// The code (a string value) and the scope (a document) of code with scope.
fn split_code(value: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let body = value.get(4..).ok_or(Malformed("code is cut short"))?;
    let length = elements::value_length(kind::STRING, body)?;
    body.split_at_checked(length)
        .ok_or(Malformed("code is cut short"))
}

fn check_old_binary(value: &[u8]) -> Result<(), Malformed> {
    let inner = elements::int32(value.get(5..).unwrap_or_default())?;
    if usize::try_from(inner).ok() != value.len().checked_sub(9) {
        return Err(Malformed(
            "binary data of subtype 2 has a wrong inner length",
        ));
    }
    Ok(())
}

#[inline]
fn check_text(text: &[u8]) -> Result<(), Malformed> {
    if text.is_ascii() || std::str::from_utf8(text).is_ok() {
        Ok(())
    } else {
        Err(Malformed("text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::validate;

    fn wrapped(kind: u8, value: &[u8]) -> Vec<u8> {
        let mut document = ((value.len() + 8) as i32).to_le_bytes().to_vec();
        document.extend_from_slice(&[kind, b'a', 0]);
        document.extend_from_slice(value);
        document.push(0);
        document
    }

    #[test]
    fn takes_what_is_valid() {
        for document in [
            wrapped(2, b"\x03\0\0\0\xc3\xa9\0"),
            wrapped(8, b"\x01"),
            wrapped(5, b"\x05\0\0\0\x02\x01\0\0\0x"),
            wrapped(11, b"a\0i\0"),
            wrapped(15, b"\x0f\0\0\0\x02\0\0\0x\0\x05\0\0\0\0"),
        ] {
            assert_eq!(validate(&document, 200), Ok(()));
            for end in 0..document.len() {
                assert!(validate(&document[..end], 200).is_err());
            }
        }
    }

    #[test]
    fn refuses_what_is_not() {
        for (kind, value) in [
            (2, &b"\x02\0\0\0\xc3\0"[..]),
            (8, b"\x02"),
            (5, b"\x05\0\0\0\x02\x02\0\0\0x"),
            (3, b"\x06\0\0\0\0\0"),
            (20, b""),
        ] {
            assert!(validate(&wrapped(kind, value), 200).is_err());
        }
    }

    #[test]
    fn nests_as_deep_as_allowed() {
        let mut document = vec![5, 0, 0, 0, 0];
        for _ in 1..200 {
            document = wrapped(3, &document);
        }
        assert!(validate(&document, 200).is_ok());
        assert!(validate(&document, 199).is_err());
        assert!(validate(&document, 0).is_err());
    }
}
