"""`$toHashedIndexKey`: the number that a hashed index keeps in place of a value."""

import hashlib
import struct
from typing import Any, Final

from bson import Decimal128, Int64

from ...common.numbers import INT64_MAX, INT64_MIN, is_number
from ...common.ordering import canonical_class
from ...common.values import MISSING, encode

_SEED: Final = 0
_HEAD_BYTES: Final = 6
"""Of a document with one field without a name: its length, the type of the field, the end of the name."""


def hashed_index_key(value: Any) -> Int64:
    """The hash of a value as MongoDB makes it: equal numbers have one, whatever their types; fractions do not count."""
    digest = hashlib.md5(struct.pack("<i", _SEED), usedforsecurity=False)
    for part in _parts(None if value is MISSING else value):
        digest.update(part)
    return Int64(struct.unpack_from("<q", digest.digest())[0])


def _parts(value: Any) -> list[bytes]:
    parts = [struct.pack("<i", canonical_class(value))]
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else ((str(at), item) for at, item in enumerate(value))
        for name, item in items:
            first, *rest = _parts(item)
            parts += [first, name.encode() + b"\0", *rest]
        # The end of the elements counts as one.
        parts.append(struct.pack("<i", 0))
    elif is_number(value):
        parts.append(struct.pack("<q", _whole(value)))
    else:
        parts.append(encode({"": value})[_HEAD_BYTES:-1])
    return parts


def _whole(value: Any) -> int:
    """A number without its fraction, within 64 bits."""
    number = value.to_decimal() if isinstance(value, Decimal128) else value
    if number != number:
        return 0
    if number >= 2**63:
        return INT64_MAX
    return INT64_MIN if number < -(2**63) else int(number)
