"""COLUMNS AND BYTES, FAST (Rust): the only face of the native module."""
