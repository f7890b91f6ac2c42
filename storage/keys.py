"""How keys are put together: numbers big-endian in front, so that what belongs together lies together."""

import struct
from typing import Final

_NUMBER: Final = struct.Struct(">Q")
NUMBER_MAX: Final = 2**64 - 1
RECORD_ID_BYTES: Final = 8


def number_key(number: int) -> bytes:
    """Eight bytes that sort as the number does."""
    return _NUMBER.pack(number)


def number_of(key: bytes) -> int:
    """The number that a key begins with."""
    return int(_NUMBER.unpack_from(key)[0])


def after(prefix: bytes) -> bytes:
    """The least key above every key that begins with `prefix`."""
    for position in range(len(prefix) - 1, -1, -1):
        if prefix[position] != 0xFF:
            return prefix[:position] + bytes([prefix[position] + 1])
    return b"\xff" * 512


def next_key(key: bytes) -> bytes:
    """The least key above `key`."""
    return key + b"\0"
