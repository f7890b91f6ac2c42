//! CRC-32C (Castagnoli), the checksum of wire messages.

use pyo3::prelude::*;

/// The checksum of the bytes, with the processor's instruction where it has one.
#[pyfunction]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn check_value_of_the_polynomial() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
