"""COLUMNS AND BYTES, FAST (Rust): the only face of the native module."""

from ._native import (
    LONG_KEY_BYTES,
    LONG_KEY_PREFIX,
    AmbiguousPath,
    IndexKeyMaker,
    ParallelArrays,
    cap_key,
    crc32c,
    document_shape,
    index_keys,
    key_of_id,
    key_string,
)

__all__ = [
    "LONG_KEY_BYTES",
    "LONG_KEY_PREFIX",
    "AmbiguousPath",
    "IndexKeyMaker",
    "ParallelArrays",
    "cap_key",
    "crc32c",
    "document_shape",
    "index_keys",
    "key_of_id",
    "key_string",
]
