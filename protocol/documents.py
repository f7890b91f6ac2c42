"""Reading raw BSON as it came in, only as deep as needed: documents in a row, elements of a document."""

import struct
from collections.abc import Iterator
from typing import Final

from ..common.errors import InvalidBSON, TypeMismatch
from ..common.values import TYPE_ALIASES, BsonType
from ..kernels import split_documents as native_split

_INT32: Final = struct.Struct("<i")
_DOCUMENT_BYTES_MIN: Final = 5

_OBJECT: Final = 0x03
_ARRAY: Final = 0x04

# Bytes of a value by its type, where they do not depend on the value.
_FIXED_BYTES: Final[dict[int, int]] = {
    0x01: 8,
    0x06: 0,
    0x07: 12,
    0x08: 1,
    0x09: 8,
    0x0A: 0,
    0x10: 4,
    0x11: 8,
    0x12: 8,
    0x13: 16,
    0x7F: 0,
    0xFF: 0,
}
# The types whose value begins with the length of what follows, and how much more than that length they take.
_COUNTED_BYTES: Final[dict[int, int]] = {0x02: 4, 0x0D: 4, 0x0E: 4, 0x05: 5, 0x0C: 16, 0x03: 0, 0x04: 0, 0x0F: 0}


def split_documents(sequence: bytes) -> list[bytes]:
    """The documents that stand one after another in a buffer.

    Raises:
        InvalidBSON: the lengths do not add up.
    """
    try:
        return native_split(sequence)
    except ValueError as error:
        raise InvalidBSON(f"invalid BSON document length: {error}") from error


def document_size(buffer: bytes, at: int, end: int) -> int:
    """Size of the document that begins at `at` and must lie before `end`.

    Raises:
        InvalidBSON: it claims too little or too much, or has no end.
    """
    if end - at < _DOCUMENT_BYTES_MIN:
        raise InvalidBSON("not enough bytes for a BSON document")
    size: int = _INT32.unpack_from(buffer, at)[0]
    if size < _DOCUMENT_BYTES_MIN or size > end - at:
        raise InvalidBSON(f"invalid BSON document length {size}")
    if buffer[at + size - 1] != 0:
        raise InvalidBSON("BSON document is not terminated by EOO")
    return size


def elements(raw: bytes) -> Iterator[tuple[int, str, int, int]]:
    """Type byte, name, and start and end of the value of each top-level element of a raw document.

    Raises:
        InvalidBSON: a length or a name is broken. What lies within a value is not looked at.
    """
    document_size(raw, 0, len(raw))
    at, end = 4, _INT32.unpack_from(raw, 0)[0] - 1
    while at < end:
        kind = raw[at]
        name_end = raw.find(b"\0", at + 1, end)
        if name_end < 0:
            raise InvalidBSON("field name is not terminated")
        try:
            name = raw[at + 1 : name_end].decode()
        except UnicodeDecodeError as error:
            raise InvalidBSON("field name is not valid UTF-8") from error
        start = name_end + 1
        size = value_size(kind, raw, start, end)
        if size > end - start:
            raise InvalidBSON(f"value of field '{name}' reaches beyond its document")
        yield kind, name, start, start + size
        at = start + size


def value_size(kind: int, raw: bytes, start: int, end: int) -> int:
    """Bytes that the value of this type takes, as it says itself; it may claim more than there is."""
    fixed = _FIXED_BYTES.get(kind)
    if fixed is not None:
        return fixed
    more = _COUNTED_BYTES.get(kind)
    if more is not None:
        if end - start < 4:
            raise InvalidBSON("value is cut off")
        length: int = _INT32.unpack_from(raw, start)[0]
        if length < 0 or (more == 0 and length < _DOCUMENT_BYTES_MIN):
            raise InvalidBSON(f"invalid length {length} of a value")
        return length + more
    if kind == 0x0B:
        pattern_end = raw.find(b"\0", start, end)
        options_end = raw.find(b"\0", pattern_end + 1, end)
        if pattern_end < 0 or options_end < 0:
            raise InvalidBSON("regular expression is not terminated")
        return options_end + 1 - start
    raise InvalidBSON(f"unknown BSON type {kind}")


def array_documents(raw: bytes, name: str, shown_as: str) -> list[bytes]:
    """The documents in the array that is the top-level field `name` of a raw document.

    Raises:
        TypeMismatch: the field is no array, or something in it no document; `shown_as` names the field in the message.
        InvalidBSON: the document is broken.
    """
    for kind, found, start, end in elements(raw):
        if found != name:
            continue
        if kind != _ARRAY:
            raise TypeMismatch(f"BSON field '{shown_as}' is the wrong type '{_alias(kind)}', expected type 'array'")
        documents = []
        for inner_kind, position, inner_start, inner_end in elements(raw[start:end]):
            if inner_kind != _OBJECT:
                raise TypeMismatch(
                    f"BSON field '{shown_as}.{position}' is the wrong type '{_alias(inner_kind)}', "
                    "expected type 'object'"
                )
            documents.append(raw[start + inner_start : start + inner_end])
        return documents
    return []


def _alias(kind: int) -> str:
    return TYPE_ALIASES[BsonType(kind if kind < 128 else kind - 256)]
