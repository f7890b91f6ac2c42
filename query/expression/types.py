"""Types: `$type $isNumber`, and what a value is as a bool, a number, a string, a date or an ObjectId."""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from bson import DatetimeMS, Decimal128, Int64, ObjectId, Timestamp
from bson.errors import InvalidId

from ...common.errors import ConversionFailure
from ...common.numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, is_number
from ...common.values import is_string, type_name
from .arithmetic import DECIMAL, to_decimal
from .base import OperatorParser, call_of, to_bool
from .calendar import UTC_ZONE
from .date_strings import read_date
from .dates import format_date, milliseconds_of

_WHOLE: Final = re.compile(r"[+-]?[0-9]+\Z")
_NUMBER: Final = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z|[+-]?(inf|infinity|nan)\Z", re.IGNORECASE
)

_HEXADECIMAL: Final = re.compile(r"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?[0-9]+)?\Z", re.IGNORECASE)


def _unsupported(value: Any, target: str) -> ConversionFailure:
    return ConversionFailure(
        f"Unsupported conversion from {type_name(value)} to {target} in $convert with no onError value"
    )


def _unparsed(value: str, kind: str, why: str) -> ConversionFailure:
    return ConversionFailure(f"Failed to parse {kind} '{value}' in $convert with no onError value: {why}")


def _to_whole(value: Any, target: str, low: int, high: int) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        if not _WHOLE.match(value):
            raise _unparsed(value, "number", "Did not consume whole string.")
        digits = value.lstrip("+-").lstrip("0") or "0"
        # Python refuses to read very long numbers.
        whole = int(digits) * (-1 if value[0] == "-" else 1) if len(digits) < 25 else high + 1
        if not low <= whole <= high:
            raise _unparsed(value, "number", "Overflow")
        return whole
    if isinstance(value, float) and not math.isfinite(value):
        raise ConversionFailure(
            f"Attempt to convert {'NaN' if value != value else 'infinity'} value to integer type in $convert "
            "with no onError value"
        )
    if isinstance(value, Decimal128) and not value.to_decimal().is_finite():
        raise ConversionFailure(
            "Attempt to convert NaN or infinity value to integer type in $convert with no onError value"
        )
    if not is_number(value):
        raise _unsupported(value, target)
    whole = int(value.to_decimal()) if isinstance(value, Decimal128) else int(value)
    if not low <= whole <= high:
        raise ConversionFailure(f"Conversion would overflow target type in $convert with no onError value: {value}")
    return whole


def _to_int(value: Any) -> int:
    return _to_whole(value, "int", INT32_MIN, INT32_MAX)


def _to_long(value: Any) -> Int64:
    if isinstance(value, DatetimeMS):
        return Int64(int(value))
    return Int64(_to_whole(value, "long", INT64_MIN, INT64_MAX))


def _to_double(value: Any) -> float:
    if isinstance(value, DatetimeMS):
        return float(int(value))
    if isinstance(value, str):
        if _HEXADECIMAL.match(value):
            return float.fromhex(value)
        if not _NUMBER.match(value):
            raise _unparsed(value, "number", "Did not consume whole string.")
        number = float(value)
        if number == 0 and any(digit in "123456789" for digit in value.lower().partition("e")[0]):
            raise _unparsed(value, "number", "Out of range")
        if math.isinf(number) and "inf" not in value.lower():
            raise _unparsed(value, "number", "Out of range")
        return number
    if isinstance(value, Decimal128):
        number = float(value.to_decimal())
        if math.isinf(number) and value.to_decimal().is_finite():
            raise ConversionFailure(f"Conversion would overflow target type in $convert with no onError value: {value}")
        return number
    if isinstance(value, bool) or is_number(value):
        return float(value)
    raise _unsupported(value, "double")


def _to_decimal(value: Any) -> Decimal128:
    if isinstance(value, DatetimeMS):
        return Decimal128(Decimal(int(value)))
    if isinstance(value, bool):
        return Decimal128(Decimal(int(value)))
    if isinstance(value, str):
        if not _NUMBER.match(value):
            raise _unparsed(value, "number", "Failed to parse string to decimal")
        number = DECIMAL.create_decimal(value)
        exact = Decimal(value)
        if exact.is_finite() and (number.is_infinite() or (number == 0 and exact != 0)):
            raise _unparsed(value, "number", "Conversion from string to decimal would overflow")
        return Decimal128(number)
    if is_number(value):
        return value if isinstance(value, Decimal128) else Decimal128(to_decimal(value))
    raise _unsupported(value, "decimal")


def _to_string(value: Any) -> str:
    if is_string(value):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return repr(value).removesuffix(".0")
    if is_number(value):
        return str(value)
    if isinstance(value, ObjectId):
        return str(value)
    if isinstance(value, DatetimeMS):
        return format_date(int(value), "%Y-%m-%dT%H:%M:%S.%LZ", UTC_ZONE)
    raise _unsupported(value, "string")


def _to_date(value: Any) -> DatetimeMS:
    if isinstance(value, DatetimeMS):
        return value
    if isinstance(value, (ObjectId, Timestamp)):
        return DatetimeMS(milliseconds_of(value))
    if isinstance(value, str):
        return DatetimeMS(read_date(value))
    if isinstance(value, (Int64, float, Decimal128)) or (
        isinstance(value, int) and not INT32_MIN <= value <= INT32_MAX
    ):
        return DatetimeMS(_to_whole(value, "date", INT64_MIN, INT64_MAX))
    raise _unsupported(value, "date")


def _to_object_id(value: Any) -> ObjectId:
    if isinstance(value, ObjectId):
        return value
    if not isinstance(value, str):
        raise _unsupported(value, "objectId")
    try:
        if len(value) != 24:
            raise InvalidId(f"Invalid string length for parsing to OID, expected 24 but found {len(value)}")
        return ObjectId(value)
    except InvalidId as error:
        raise _unparsed(value, "objectId", str(error)) from error


def _to_bool(value: Any) -> bool:
    return to_bool(value)


SIMPLE_TARGETS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": _to_bool,
    "date": _to_date,
    "decimal": _to_decimal,
    "double": _to_double,
    "int": _to_int,
    "long": _to_long,
    "objectId": _to_object_id,
    "string": _to_string,
}
"""Conversions that need no options, by the alias of the type that they give."""

OPERATORS: Final[dict[str, OperatorParser]] = {
    "$isNumber": call_of(is_number, 1),
    "$type": call_of(type_name, 1),
}
