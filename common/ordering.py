"""How BSON values compare: one total order, one equality, and keys that carry both.

Two values are equal exactly when their `order_key`s are equal, and sort as their keys do; a key is hashable, so that
sorting, grouping and sets all mean the same by "equal". A key is a tuple that begins with the value's type class; types
without content (null, MinKey, NaN among the numbers) are the class alone, which sorts before longer keys of the class.
"""

import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Protocol

from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from .values import MISSING, BsonType, Missing, type_of

OrderKey = tuple[Any, ...]


class Collator(Protocol):
    """Turns a string into bytes that sort as the string does under a collation."""

    def key(self, string: str) -> bytes:
        """The sort key of `string`."""
        ...


CLASS_MIN_KEY: Final = -1
CLASS_MISSING: Final = 0
CLASS_NULL: Final = 5
CLASS_NUMBER: Final = 10
CLASS_STRING: Final = 15
CLASS_OBJECT: Final = 20
CLASS_ARRAY: Final = 25
CLASS_BINARY: Final = 30
CLASS_OBJECT_ID: Final = 35
CLASS_BOOL: Final = 40
CLASS_DATE: Final = 45
CLASS_TIMESTAMP: Final = 47
CLASS_REGEX: Final = 50
CLASS_DB_POINTER: Final = 55
CLASS_CODE: Final = 60
CLASS_CODE_WITH_SCOPE: Final = 65
CLASS_MAX_KEY: Final = 127

_CLASSES: Final[dict[BsonType, int]] = {
    BsonType.MIN_KEY: CLASS_MIN_KEY,
    BsonType.UNDEFINED: CLASS_MISSING,
    BsonType.NULL: CLASS_NULL,
    BsonType.DOUBLE: CLASS_NUMBER,
    BsonType.INT32: CLASS_NUMBER,
    BsonType.INT64: CLASS_NUMBER,
    BsonType.DECIMAL128: CLASS_NUMBER,
    BsonType.STRING: CLASS_STRING,
    BsonType.SYMBOL: CLASS_STRING,
    BsonType.OBJECT: CLASS_OBJECT,
    BsonType.ARRAY: CLASS_ARRAY,
    BsonType.BINARY: CLASS_BINARY,
    BsonType.OBJECT_ID: CLASS_OBJECT_ID,
    BsonType.BOOL: CLASS_BOOL,
    BsonType.DATE: CLASS_DATE,
    BsonType.TIMESTAMP: CLASS_TIMESTAMP,
    BsonType.REGEX: CLASS_REGEX,
    BsonType.DB_POINTER: CLASS_DB_POINTER,
    BsonType.CODE: CLASS_CODE,
    BsonType.CODE_WITH_SCOPE: CLASS_CODE_WITH_SCOPE,
    BsonType.MAX_KEY: CLASS_MAX_KEY,
}

KEY_MIN: Final[OrderKey] = (CLASS_MIN_KEY,)
KEY_MISSING: Final[OrderKey] = (CLASS_MISSING,)
KEY_NULL: Final[OrderKey] = (CLASS_NULL,)
KEY_NAN: Final[OrderKey] = (CLASS_NUMBER,)
KEY_MAX: Final[OrderKey] = (CLASS_MAX_KEY,)


def canonical_class(value: Any) -> int:
    """The number of the value's type class in the order of BSON types."""
    if value is MISSING:
        return CLASS_MISSING
    return _CLASSES[type_of(value)]


def order_key(value: Any, collator: Collator | None = None) -> OrderKey:
    """A hashable key that sorts and equals as the value does; `MISSING` sorts just before null."""
    return (_MAKERS.get(type(value)) or _maker_for(value))(value, collator)


def compare(a: Any, b: Any, collator: Collator | None = None) -> int:
    """-1, 0 or 1: how `a` stands to `b` in the order of BSON values."""
    key_a, key_b = order_key(a, collator), order_key(b, collator)
    if key_a == key_b:
        return 0
    return -1 if key_a < key_b else 1


def equal(a: Any, b: Any, collator: Collator | None = None) -> bool:
    """Whether the two are the same value; numbers by value whatever their type, NaN equal to NaN."""
    if a is b:
        return True
    return order_key(a, collator) == order_key(b, collator)


def regex_options(value: "Regex[str] | re.Pattern[str]") -> str:
    """The option letters of a regular expression, alphabetically, as BSON stores them."""
    flags = value.flags
    letters = ""
    for letter, flag in _REGEX_LETTERS:
        if flags & flag:
            letters += letter
    return letters


_REGEX_LETTERS: Final = (
    ("i", re.IGNORECASE),
    ("l", re.LOCALE),
    ("m", re.MULTILINE),
    ("s", re.DOTALL),
    ("u", re.UNICODE),
    ("x", re.VERBOSE),
)


def _text(pattern: str | bytes) -> str:
    return pattern if isinstance(pattern, str) else pattern.decode("utf-8", "surrogateescape")


def _float_key(value: float, _: Collator | None) -> OrderKey:
    return (CLASS_NUMBER, value) if value == value else KEY_NAN


def _int_key(value: int, _: Collator | None) -> OrderKey:
    return (CLASS_NUMBER, value)


def _decimal_key(value: Decimal128, _: Collator | None) -> OrderKey:
    number: Decimal = value.to_decimal()
    return KEY_NAN if number.is_nan() else (CLASS_NUMBER, number)


def _string_key(value: str, collator: Collator | None) -> OrderKey:
    # Code point order is the byte order of UTF-8.
    return (CLASS_STRING, value) if collator is None else (CLASS_STRING, collator.key(value))


def _object_key(value: dict[str, Any], collator: Collator | None) -> OrderKey:
    rows = []
    for name, item in value.items():
        key = (_MAKERS.get(type(item)) or _maker_for(item))(item, collator)
        rows.append((key[0], name, key))
    return (CLASS_OBJECT, tuple(rows))


def _array_key(value: list[Any], collator: Collator | None) -> OrderKey:
    return (CLASS_ARRAY, tuple([(_MAKERS.get(type(item)) or _maker_for(item))(item, collator) for item in value]))


def _binary_key(value: bytes, _: Collator | None) -> OrderKey:
    subtype = value.subtype if isinstance(value, Binary) else 0
    # Subtype 2 is stored with an inner length of 4 bytes, which decoding takes away and comparing counts.
    length = len(value) + 4 if subtype == 2 else len(value)
    return (CLASS_BINARY, length, subtype, bytes(value))


def _uuid_key(value: uuid.UUID, _: Collator | None) -> OrderKey:
    return (CLASS_BINARY, 16, 4, value.bytes)


def _regex_key(value: "Regex[str] | re.Pattern[str]", _: Collator | None) -> OrderKey:
    return (CLASS_REGEX, _text(value.pattern), regex_options(value))


def _code_key(value: Code, collator: Collator | None) -> OrderKey:
    if value.scope is None:
        return (CLASS_CODE, str(value))
    return (CLASS_CODE_WITH_SCOPE, str(value), _object_key(dict(value.scope), None))


_MAKERS: Final[dict[type, Callable[[Any, Collator | None], OrderKey]]] = {
    int: _int_key,
    Int64: _int_key,
    float: _float_key,
    str: _string_key,
    dict: _object_key,
    list: _array_key,
    tuple: _array_key,
    bool: lambda value, _: (CLASS_BOOL, value),
    type(None): lambda _value, _: KEY_NULL,
    Missing: lambda _value, _: KEY_MISSING,
    DatetimeMS: lambda value, _: (CLASS_DATE, int(value)),
    ObjectId: lambda value, _: (CLASS_OBJECT_ID, value.binary),
    Decimal128: _decimal_key,
    bytes: _binary_key,
    Binary: _binary_key,
    uuid.UUID: _uuid_key,
    Timestamp: lambda value, _: (CLASS_TIMESTAMP, value.time, value.inc),
    Regex: _regex_key,
    re.Pattern: _regex_key,
    DBRef: lambda value, collator: _object_key(dict(value.as_doc()), collator),
    Code: _code_key,
    MinKey: lambda _value, _: KEY_MIN,
    MaxKey: lambda _value, _: KEY_MAX,
}


def _maker_for(value: Any) -> Callable[[Any, Collator | None], OrderKey]:
    for base, maker in _MAKERS.items():
        if isinstance(value, base):
            return maker
    raise TypeError(f"not a BSON value: {type(value).__name__}")
