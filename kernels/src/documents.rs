//! Whole raw documents: cut apart, put together, given an `_id`; no value is decoded.

use crate::elements::{elements, int32, kind, Malformed};
use crate::object_id;
use crate::writer::{begin, element, end, Digits};

/// The documents that lie back to back in the bytes. Only their lengths are looked at.
pub fn split(mut buffer: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut documents = Vec::new();
    while !buffer.is_empty() {
        let document;
        (document, buffer) = next_document(buffer)?;
        documents.push(document);
    }
    Ok(documents)
}

/// The document that the bytes begin with, and what lies behind it. Only its length is looked at.
#[inline]
pub fn next_document(buffer: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let length = int32(buffer)?;
    let (document, rest) = usize::try_from(length)
        .ok()
        .filter(|length| *length >= 5)
        .and_then(|length| buffer.split_at_checked(length))
        .ok_or(Malformed("a document's length is wrong"))?;
    if document.last() != Some(&0) {
        return Err(Malformed("a document does not end in NUL"));
    }
    Ok((document, rest))
}

/// The documents in a raw array.
pub fn of_array(array: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    elements(array)?
        .map(|item| {
            let item = item?;
            if item.kind == kind::OBJECT {
                Ok(item.value)
            } else {
                Err(Malformed("an item of the array is no document"))
            }
        })
        .collect()
}

/// A raw array of documents.
pub fn to_array(documents: &[&[u8]]) -> Vec<u8> {
    let bytes: usize = documents.iter().map(|document| document.len() + 8).sum();
    let mut out = Vec::with_capacity(bytes + 8);
    let array = begin(&mut out);
    for (position, document) in documents.iter().enumerate() {
        element(
            &mut out,
            kind::OBJECT,
            Digits::of(position).as_bytes(),
            document,
        );
    }
    end(&mut out, array);
    out
}

/// The document with its `_id` as first field, a new one where it had none; None if it is that already.
pub fn with_id(document: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut offset = 4;
    let mut id = None;
    for item in elements(document)? {
        let item = item?;
        let length = item.name.len() + item.value.len() + 2;
        if item.name == b"_id" {
            id = Some((item, offset, length));
            break;
        }
        offset += length;
    }
    let body = document
        .get(4..document.len().saturating_sub(1))
        .unwrap_or_default();
    let mut out = Vec::with_capacity(document.len() + 17);
    let begun = begin(&mut out);
    match id {
        Some((_, 4, _)) => return Ok(None),
        Some((item, offset, length)) => {
            element(&mut out, item.kind, item.name, item.value);
            out.extend_from_slice(body.get(..offset - 4).unwrap_or_default());
            out.extend_from_slice(body.get(offset - 4 + length..).unwrap_or_default());
        }
        None => {
            let new = object_id::generate(object_id::now_seconds());
            element(&mut out, kind::OBJECT_ID, b"_id", &new);
            out.extend_from_slice(body);
        }
    }
    end(&mut out, begun);
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::{of_array, split, to_array, with_id};
    use crate::elements::elements;

    const PLAIN: &[u8] = b"\x0c\0\0\0\x10a\0\x01\0\0\0\0";
    const LATE: &[u8] = b"\x15\0\0\0\x10a\0\x01\0\0\0\x10_id\0\x02\0\0\0\0";
    const MOVED: &[u8] = b"\x15\0\0\0\x10_id\0\x02\0\0\0\x10a\0\x01\0\0\0\0";

    #[test]
    fn an_id_comes_first() {
        assert_eq!(with_id(LATE), Ok(Some(MOVED.to_vec())));
        assert_eq!(with_id(MOVED), Ok(None));
        let made = with_id(PLAIN).unwrap().unwrap();
        let names: Vec<_> = elements(&made)
            .unwrap()
            .map(|item| item.unwrap().name)
            .collect();
        assert_eq!(names, [&b"_id"[..], b"a"]);
    }

    #[test]
    fn arrays_and_back() {
        let many: Vec<&[u8]> = vec![PLAIN; 12];
        assert_eq!(of_array(&to_array(&many)), Ok(many.clone()));
        assert_eq!(split(&many.concat()), Ok(many));
        assert!(of_array(PLAIN).is_err());
        assert!(split(&PLAIN[..11]).is_err());
        assert!(split(b"\0\0\0\0\0").is_err());
    }
}
