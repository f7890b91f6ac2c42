//! Writes raw BSON: elements one after the other, lengths filled in at the end of each document.

use crate::elements::kind;

/// A document that was begun; the place of its length.
#[derive(Debug, Clone, Copy)]
pub struct Begun(usize);

/// Begins a document at the end of the bytes.
pub fn begin(out: &mut Vec<u8>) -> Begun {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    Begun(at)
}

/// Begins a document that is the value of an element.
pub fn begin_named(out: &mut Vec<u8>, type_byte: u8, name: &[u8]) -> Begun {
    header(out, type_byte, name);
    begin(out)
}

/// Ends a document and fills in its length.
pub fn end(out: &mut Vec<u8>, begun: Begun) {
    out.push(0);
    let length = (out.len() - begun.0) as i32;
    if let Some(place) = out.get_mut(begun.0..begun.0 + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

/// The type and the name of an element whose value comes next.
#[inline]
pub fn header(out: &mut Vec<u8>, type_byte: u8, name: &[u8]) {
    // Room for a number too, so that one check of the room is enough.
    out.reserve(name.len() + 10);
    out.push(type_byte);
    out.extend_from_slice(name);
    out.push(0);
}

/// A whole element.
#[inline]
pub fn element(out: &mut Vec<u8>, type_byte: u8, name: &[u8], value: &[u8]) {
    header(out, type_byte, name);
    out.extend_from_slice(value);
}

/// A 32-bit integer.
pub fn int32(out: &mut Vec<u8>, name: &[u8], value: i32) {
    element(out, kind::INT32, name, &value.to_le_bytes());
}

/// A date.
#[cfg(test)]
pub fn date(out: &mut Vec<u8>, name: &[u8], millis: i64) {
    element(out, kind::DATE, name, &millis.to_le_bytes());
}

/// A number in decimal digits, as the names in arrays are.
pub struct Digits {
    digits: [u8; 20],
    start: usize,
}

impl Digits {
    /// The digits of a number.
    pub fn of(mut number: usize) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 || start == 0 {
                return Self { digits, start };
            }
        }
    }

    /// Goes on to the next number.
    #[inline]
    pub fn increase(&mut self) {
        let mut at = self.digits.len();
        while at > 0 {
            at -= 1;
            if self.digits[at] < b'9' {
                self.digits[at] += 1;
                break;
            }
            self.digits[at] = b'0';
        }
        // What stands before the first digit is 0 until it becomes one.
        self.start = self.start.min(at);
    }

    /// The digits as text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::{begin, begin_named, end, int32, Digits};

    #[test]
    fn lengths_are_filled_in() {
        let mut out = vec![];
        let outer = begin(&mut out);
        int32(&mut out, b"a", 1);
        let inner = begin_named(&mut out, 3, b"b");
        end(&mut out, inner);
        end(&mut out, outer);
        assert_eq!(out, b"\x14\0\0\0\x10a\0\x01\0\0\0\x03b\0\x05\0\0\0\0\0");
    }

    #[test]
    fn digits_as_printed() {
        for number in [0, 7, 10, 999, 1000, usize::MAX] {
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
        }
        let mut digits = Digits::of(0);
        for number in 0..12_345 {
            assert_eq!(digits.as_bytes(), number.to_string().as_bytes());
            digits.increase();
        }
    }
}
