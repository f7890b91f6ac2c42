"""Sums and products of `$inc` and `$mul`, with MongoDB's result types."""

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from bson import Decimal128, Int64
from bson.decimal128 import create_decimal128_context

from ...common.numbers import INT64_MAX, INT64_MIN, sized_int

_CONTEXT: Final[Context] = create_decimal128_context()
_DIGITS_OF_DOUBLE: Final = Context(prec=15, rounding=ROUND_HALF_EVEN)


def plus(a: Any, b: Any) -> Any | None:
    """The sum; None when it leaves int64."""
    return _combined(a, b, lambda x, y: x + y, _CONTEXT.add)


def times(a: Any, b: Any) -> Any | None:
    """The product; None when it leaves int64."""
    return _combined(a, b, lambda x, y: x * y, _CONTEXT.multiply)


def zero_like(value: Any) -> Any:
    """Zero in the type of a number."""
    if isinstance(value, Decimal128):
        return Decimal128("0")
    if isinstance(value, float):
        return 0.0
    return Int64(0) if isinstance(value, Int64) else 0


def _combined(
    a: Any, b: Any, plain: Callable[[Any, Any], Any], exact: Callable[[Decimal, Decimal], Decimal]
) -> Any | None:
    if isinstance(a, Decimal128) or isinstance(b, Decimal128):
        return Decimal128(exact(as_decimal(a), as_decimal(b)))
    if isinstance(a, float) or isinstance(b, float):
        return float(plain(float(a), float(b)))
    result = plain(int(a), int(b))
    if not INT64_MIN <= result <= INT64_MAX:
        return None
    return sized_int(result, wide=isinstance(a, Int64) or isinstance(b, Int64))


def as_decimal(value: Any) -> Decimal:
    """The number as a decimal; of a double its first 15 digits."""
    if isinstance(value, Decimal128):
        number: Decimal = value.to_decimal()
        return number
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return Decimal(value)
        return _DIGITS_OF_DOUBLE.create_decimal(f"{value:.14e}")
    return Decimal(int(value))
