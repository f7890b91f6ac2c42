"""Numbers of every BSON type, read as whole numbers where a request wants one."""

from decimal import Decimal
from typing import Any, Final

from bson import Decimal128, Int64

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def is_number(value: Any) -> bool:
    """Whether the value is an int32, int64, double or Decimal128 (and no boolean)."""
    return isinstance(value, (int, float, Decimal128)) and not isinstance(value, bool)


def whole_number(value: Any) -> int | None:
    """The integer that a number of any type equals; None for fractions, NaN, infinities and what is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, Decimal128):
        number: Decimal = value.to_decimal()
        if not number.is_finite() or number.adjusted() > 40:
            return None
        return int(number) if number == number.to_integral_value() else None
    return None


def truncated(value: Any) -> int | None:
    """A number cut to an integer and held to the range of int64; None for NaN and for what is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal128):
        number: Decimal = value.to_decimal()
        if number.is_nan():
            return None
        if number.is_infinite() or number.adjusted() > 30:
            return INT64_MIN if number.is_signed() else INT64_MAX
        return max(INT64_MIN, min(INT64_MAX, int(number)))
    if isinstance(value, float):
        if value != value:
            return None
        return INT64_MIN if value <= INT64_MIN else INT64_MAX if value >= INT64_MAX else int(value)
    return None


def sized_int(value: int, *, wide: bool = False) -> int:
    """The integer as the BSON type it belongs to: int32 where it fits, int64 when `wide` or larger."""
    return Int64(value) if wide or not INT32_MIN <= value <= INT32_MAX else int(value)
