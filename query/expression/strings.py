"""Strings: `$concat $toLower $toUpper $strLenBytes $strLenCP $substrBytes $substrCP $split $trim …`."""

import math
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN
from typing import Any, Final

from bson import Code, DatetimeMS, Decimal128, Timestamp

from ...common.errors import Location
from ...common.numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, is_number, whole_number
from ...common.values import is_string, type_name
from .arithmetic import absent
from .base import VARIADIC, Call, Expression, OperatorParser, ParseContext, call_of, named_operands


def _concat(*parts: Any) -> Any:
    for part in parts:
        if absent(part):
            return None
        if not is_string(part):
            raise Location(16702, f"$concat only supports strings, not {type_name(part)}")
    joined = "".join(parts)
    if len(joined) >= _BYTES_MAX // 4 and len(joined.encode()) >= _BYTES_MAX:
        raise Location(16493, "the string that $concat makes is too large")
    return joined


_BYTES_MAX: Final = 16 * 1024 * 1024


def text_of(value: Any) -> str:
    """A value as the string operators coerce it.

    Raises:
        Location: 16007, it has no text.
    """
    if absent(value):
        return ""
    if is_string(value):
        text = str(value)
        if len(text) >= _BYTES_MAX // 4 and len(text.encode()) >= _BYTES_MAX:
            raise Location(16493, "the string is too large")
        return text
    if isinstance(value, Code) and value.scope is None:
        return str(value)
    if isinstance(value, float):
        # Six digits, as C++ prints a double.
        return "nan" if math.isnan(value) else f"{value:g}"
    if is_number(value):
        return str(value)
    if isinstance(value, DatetimeMS):
        from .calendar import UTC_ZONE
        from .dates import format_date

        return format_date(int(value), "%Y-%m-%dT%H:%M:%S.%LZ", UTC_ZONE)
    if isinstance(value, Timestamp):
        moment = datetime.fromtimestamp(value.time, UTC)
        return f"{moment:%b} {moment.day:2} {moment:%H:%M:%S}:{value.inc}"
    raise Location(16007, f"can't convert from BSON type {type_name(value)} to String")


def _length(name: str, code: int, as_bytes: bool) -> OperatorParser:
    def function(value: Any) -> int:
        if not is_string(value):
            raise Location(code, f"{name} requires a string argument, found: {type_name(value)}")
        return len(value.encode()) if as_bytes else len(value)

    return call_of(function, 1)


def _substr_bytes(value: Any, start: Any, count: Any) -> str:
    raw = text_of(value).encode()
    if not is_number(start):
        raise Location(16034, f"$substrBytes:  starting index must be a numeric type (is BSON type {type_name(start)})")
    if not is_number(count):
        raise Location(16035, f"$substrBytes:  length must be a numeric type (is BSON type {type_name(count)})")
    low, size = _long(start), _long(count)
    if low < 0:
        raise Location(50752, f"$substrBytes:  starting index must be non-negative (got: {low})")
    high = len(raw) if size < 0 else min(len(raw), low + size)
    for edge, code in ((low, 28656), (high, 28657)):
        if 0 <= edge < len(raw) and raw[edge] & 0xC0 == 0x80:
            raise Location(code, "$substrBytes:  Invalid range, starting or ending index is a UTF-8 continuation byte")
    return raw[low:high].decode() if low < len(raw) else ""


def _long(number: Any) -> int:
    """A number as a 64-bit integer: a Decimal128 rounded, and the least one where it has no such value.

    Raises:
        Location: 31109, a double out of range.
    """
    if isinstance(number, Decimal128):
        decimal = number.to_decimal()
        if not decimal.is_finite() or decimal.adjusted() > 18:
            return INT64_MIN
        whole = int(decimal.to_integral_value(ROUND_HALF_EVEN))
        return whole if INT64_MIN <= whole <= INT64_MAX else INT64_MIN
    if isinstance(number, float) and not -(2.0**63) <= number < 2.0**63:
        raise Location(31109, f"Can't coerce out of range value {number} to long")
    return int(number)


def _substr_cp(value: Any, start: Any, count: Any) -> str:
    text = text_of(value)
    numbers = []
    for number, not_number, not_whole in ((start, 34450, 34451), (count, 34452, 34453)):
        if not is_number(number):
            raise Location(
                not_number, f"$substrCP: index and length must be numeric (is BSON type {type_name(number)})"
            )
        whole = whole_number(number)
        if whole is None or not INT32_MIN <= whole <= INT32_MAX:
            raise Location(not_whole, f"$substrCP: index and length must be 32-bit integers, found {number}")
        numbers.append(whole)
    for whole, negative in ((numbers[1], 34454), (numbers[0], 34455)):
        if whole < 0:
            raise Location(negative, f"$substrCP: index and length must be non-negative, but is {whole}")
    return text[numbers[0] : numbers[0] + numbers[1]]


def _lower(value: Any) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text_of(value))


def _upper(value: Any) -> str:
    return "".join(character.upper() if character.isascii() else character for character in text_of(value))


def _compare(left: Any, right: Any) -> int:
    one, other = _upper(left), _upper(right)
    return (one > other) - (one < other)


def _split(value: Any, separator: Any) -> Any:
    if absent(value) or absent(separator):
        return None
    for part, code in ((value, 40085), (separator, 10503900)):
        if not is_string(part):
            raise Location(code, f"$split requires an expression that evaluates to a string, found: {type_name(part)}")
    if not separator:
        raise Location(40087, "$split requires a non-empty separator")
    return str(value).split(separator)


_BLANKS: Final = "\0 \t\n\v\f\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"


def _parse_trim(name: str, spec: Any, context: ParseContext) -> Expression:
    given = named_operands(
        name, spec, context, required=("input",), optional=("chars",), not_object=50696, unknown=50694, missing=50695
    )

    def function(value: Any, characters: Any = _BLANKS) -> Any:
        if absent(value):
            return None
        if not is_string(value):
            raise Location(
                50699, f"{name} requires its input to be a string, got {value} (of type {type_name(value)}) instead."
            )
        if absent(characters):
            return None
        if not is_string(characters):
            raise Location(50700, f"{name} requires 'chars' to be a string, got {type_name(characters)} instead.")
        text = str(value)
        # Each character once: stripping looks at every one of them for every character of the text.
        characters = "".join(set(characters))
        if name != "$rtrim":
            text = text.lstrip(characters) if characters else text
        if name != "$ltrim":
            text = text.rstrip(characters) if characters else text
        return text

    items = [given[key] for key in ("input", "chars") if key in given]
    names = [key for key in ("input", "chars") if key in given]
    return Call(name, items, function, shown=lambda values: dict(zip(names, values, strict=True)))


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$concat": call_of(_concat, 0, VARIADIC),
    "$ltrim": _parse_trim,
    "$rtrim": _parse_trim,
    "$split": call_of(_split, 2),
    "$strLenBytes": _length("$strLenBytes", 34473, True),
    "$strLenCP": _length("$strLenCP", 34471, False),
    "$strcasecmp": call_of(_compare, 2),
    "$substr": call_of(_substr_bytes, 3),
    "$substrBytes": call_of(_substr_bytes, 3),
    "$substrCP": call_of(_substr_cp, 3),
    "$toLower": call_of(_lower, 1),
    "$toUpper": call_of(_upper, 1),
    "$trim": _parse_trim,
}
