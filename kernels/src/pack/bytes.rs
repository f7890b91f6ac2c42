//! Numbers of variable length and arrays turned on their side, one behind the other.

/// Bytes that are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Torn;

/// Writes.
#[derive(Debug, Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    /// Seven bits a byte, the lowest first.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// A length, and so many bytes.
    pub fn block(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Numbers of eight bytes: all first bytes, then all second ones, as those are more alike.
    pub fn planes(&mut self, numbers: &[u64]) {
        for plane in 0..8 {
            let shift = 8 * plane;
            self.bytes
                .extend(numbers.iter().map(|number| (number >> shift) as u8));
        }
    }
}

/// Reads what a [`Writer`] has written.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes are not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    pub fn number(&mut self) -> Result<u64, Torn> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first().ok_or(Torn)?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Torn)
    }

    /// A number that counts what follows, each of at least a byte: no more than there are bytes.
    pub fn count(&mut self) -> Result<usize, Torn> {
        let count = usize::try_from(self.number()?).map_err(|_| Torn)?;
        if count <= self.bytes.len() {
            Ok(count)
        } else {
            Err(Torn)
        }
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Torn> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Torn)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub fn block(&mut self) -> Result<&'a [u8], Torn> {
        let length = self.count()?;
        self.take(length)
    }

    pub fn planes(&mut self, count: usize) -> Result<Vec<u64>, Torn> {
        let bytes = self.take(count.checked_mul(8).ok_or(Torn)?)?;
        let mut numbers = vec![0; count];
        for (plane, bytes) in bytes.chunks_exact(count.max(1)).enumerate() {
            for (number, byte) in numbers.iter_mut().zip(bytes) {
                *number |= u64::from(*byte) << (8 * plane);
            }
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut out = Writer::default();
        out.number(u64::MAX);
        out.block(b"abc");
        out.planes(&[1, u64::MAX, 0x0102_0304_0506_0708]);
        out.number(0);
        let mut input = Reader::new(&out.bytes);
        assert_eq!(input.number(), Ok(u64::MAX));
        assert_eq!(input.block(), Ok(&b"abc"[..]));
        assert_eq!(
            input.planes(3),
            Ok(vec![1, u64::MAX, 0x0102_0304_0506_0708])
        );
        assert_eq!(input.number(), Ok(0));
        assert!(input.is_empty());
        assert_eq!(input.number(), Err(Torn));
        assert_eq!(input.take(1), Err(Torn));
    }
}
