"""Values as error messages print them: `{ a: 1, b: [ "x" ] }`."""

import re
import uuid
from typing import Any

from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, MaxKey, MinKey, ObjectId, Regex, Timestamp

from .ordering import regex_options
from .values import MISSING

_LONGEST = 10_000


def value_text(value: Any, *, tight: bool = False) -> str:
    """The value in the shell-like notation of error messages; `tight` leaves out the blanks inside brackets."""
    text = _text(value, "" if tight else " ")
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def element_text(name: str, value: Any) -> str:
    """A field with its name: `a: 1`."""
    return f"{name}: {value_text(value)}"


def number_text(value: float) -> str:
    """A double as error messages print it: always with a point or an exponent."""
    if value != value:
        return "nan.0"
    if value in (float("inf"), float("-inf")):
        return "inf.0" if value > 0 else "-inf.0"
    text = f"{value:.15g}"
    if float(text) != value:
        text = f"{value:.17g}"
    return text if "." in text or "e" in text else text + ".0"


def _text(value: Any, blank: str) -> str:
    if isinstance(value, dict):
        if not value:
            return "{}"
        return "{" + blank + ", ".join(f"{name}: {_text(item, blank)}" for name, item in value.items()) + blank + "}"
    if isinstance(value, (list, tuple)):
        return "[" + blank + ", ".join(_text(item, blank) for item in value) + blank + "]" if value else "[]"
    return _scalar_text(value, blank)


def _scalar_text(value: Any, blank: str) -> str:
    if value is MISSING:
        return "EOO"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, Code):
        return str(value) if value.scope is None else f'CodeWScope( "{value}", {_text(dict(value.scope), blank)})'
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, ObjectId):
        return f"ObjectId('{value}')"
    if isinstance(value, DatetimeMS):
        return f"new Date({int(value)})"
    if isinstance(value, uuid.UUID):
        return f'UUID("{value}")'
    if isinstance(value, bytes):
        subtype = value.subtype if isinstance(value, Binary) else 0
        if subtype == 4 and len(value) == 16:
            return f'UUID("{uuid.UUID(bytes=bytes(value))}")'
        return f"BinData({subtype}, {value.hex().upper()})"
    if isinstance(value, Timestamp):
        return f"Timestamp({value.time}, {value.inc})"
    if isinstance(value, (Regex, re.Pattern)):
        pattern = value.pattern if isinstance(value.pattern, str) else value.pattern.decode("utf-8", "replace")
        return f"/{pattern}/{regex_options(value)}"
    if isinstance(value, DBRef):
        return _text(dict(value.as_doc()), blank)
    if isinstance(value, MinKey):
        return "MinKey"
    if isinstance(value, MaxKey):
        return "MaxKey"
    if isinstance(value, Decimal128):
        return str(value)
    return repr(value)
