"""Documents and values as the server holds them in Python, and their BSON types.

A document is a `dict` as pymongo's `bson` decodes it with `CODEC`: int32 is `int`, int64 is `Int64`, a date is
`DatetimeMS` (milliseconds, any range), binary of subtype 0 is `bytes` and of any other subtype `Binary`. A Python `int`
outside 32 bits counts, and is written, as int64. Deprecated types that `bson` folds together when it decodes (symbol as
string, undefined as null) keep their identity only in raw BSON, which is what the read path passes through.
"""

import re
import uuid
from enum import IntEnum
from typing import Any, Final, TypeGuard

import bson
from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError

from .errors import InvalidBSON

Document = dict[str, Any]

# `Code` is a string that cannot be looked up: whoever asks a table for a name that a client sent would fail. Equal ones
# are equal strings, so the hash of the string is theirs; and a name is never equal to code.
Code.__hash__ = str.__hash__  # type: ignore[assignment]

CODEC: Final[CodecOptions[Document]] = CodecOptions(
    document_class=dict,
    tz_aware=False,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    unicode_decode_error_handler="strict",
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)


class Missing:
    """The type of `MISSING`: no value at all, which is not null."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()


class BsonType(IntEnum):
    """The type byte of a BSON element."""

    DOUBLE = 1
    STRING = 2
    OBJECT = 3
    ARRAY = 4
    BINARY = 5
    UNDEFINED = 6
    OBJECT_ID = 7
    BOOL = 8
    DATE = 9
    NULL = 10
    REGEX = 11
    DB_POINTER = 12
    CODE = 13
    SYMBOL = 14
    CODE_WITH_SCOPE = 15
    INT32 = 16
    TIMESTAMP = 17
    INT64 = 18
    DECIMAL128 = 19
    MAX_KEY = 127
    MIN_KEY = -1


TYPE_ALIASES: Final[dict[BsonType, str]] = {
    BsonType.DOUBLE: "double",
    BsonType.STRING: "string",
    BsonType.OBJECT: "object",
    BsonType.ARRAY: "array",
    BsonType.BINARY: "binData",
    BsonType.UNDEFINED: "undefined",
    BsonType.OBJECT_ID: "objectId",
    BsonType.BOOL: "bool",
    BsonType.DATE: "date",
    BsonType.NULL: "null",
    BsonType.REGEX: "regex",
    BsonType.DB_POINTER: "dbPointer",
    BsonType.CODE: "javascript",
    BsonType.SYMBOL: "symbol",
    BsonType.CODE_WITH_SCOPE: "javascriptWithScope",
    BsonType.INT32: "int",
    BsonType.TIMESTAMP: "timestamp",
    BsonType.INT64: "long",
    BsonType.DECIMAL128: "decimal",
    BsonType.MAX_KEY: "maxKey",
    BsonType.MIN_KEY: "minKey",
}
"""The names that `$type` and error messages use."""

_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1

_TYPES: Final[dict[type, BsonType]] = {
    float: BsonType.DOUBLE,
    str: BsonType.STRING,
    dict: BsonType.OBJECT,
    list: BsonType.ARRAY,
    tuple: BsonType.ARRAY,
    bytes: BsonType.BINARY,
    Binary: BsonType.BINARY,
    uuid.UUID: BsonType.BINARY,
    ObjectId: BsonType.OBJECT_ID,
    bool: BsonType.BOOL,
    DatetimeMS: BsonType.DATE,
    type(None): BsonType.NULL,
    Regex: BsonType.REGEX,
    re.Pattern: BsonType.REGEX,
    DBRef: BsonType.OBJECT,
    Timestamp: BsonType.TIMESTAMP,
    Int64: BsonType.INT64,
    Decimal128: BsonType.DECIMAL128,
    MinKey: BsonType.MIN_KEY,
    MaxKey: BsonType.MAX_KEY,
}


def type_of(value: Any) -> BsonType:
    """The BSON type that `value` has when it is written."""
    kind = _TYPES.get(type(value))
    if kind is not None:
        return kind
    if type(value) is int:
        return BsonType.INT32 if _INT32_MIN <= value <= _INT32_MAX else BsonType.INT64
    if isinstance(value, Code):
        return BsonType.CODE if value.scope is None else BsonType.CODE_WITH_SCOPE
    for base, base_kind in _TYPES.items():
        if isinstance(value, base):
            return base_kind
    raise TypeError(f"not a BSON value: {type(value).__name__}")


def is_string(value: Any) -> TypeGuard[str]:
    """Whether the value is a BSON string; JavaScript code is a `str` in Python, and none here."""
    return isinstance(value, str) and not isinstance(value, Code)


def type_name(value: Any) -> str:
    """The alias of the value's type, `missing` for MISSING."""
    return "missing" if value is MISSING else TYPE_ALIASES[type_of(value)]


def decode(raw: bytes) -> Document:
    """The document of a complete raw BSON document.

    Raises:
        InvalidBSON: the bytes are no BSON document.
    """
    try:
        return bson.decode(raw, CODEC)
    except BSONError as error:
        raise InvalidBSON(str(error)) from error


def encode(document: Document) -> bytes:
    """Raw BSON of a document, fields in their order."""
    return bson.encode(document, codec_options=CODEC)
