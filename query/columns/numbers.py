"""Operators on arrays of numbers, and conversions: rounding, remainders, functions of real numbers, `$toInt` and its kin.

Each value has the bits that the row engine gives it: NumPy computes what IEEE 754 defines to the last bit, and the same
functions of `math` as there, one by one, what it does not.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from bson import Int64
from numpy.typing import NDArray

from ...common.errors import MongoError
from ...common.numbers import INT32_MAX, INT32_MIN, INT64_MAX, whole_number
from ...common.values import BsonType
from ..expression.base import Call, Constant
from .batch import ABSENT, Column
from .operands import NUMBERS, WHOLE, Unfit, doubles, largest, nothing, of_numbers, present_in, shown, whole_result

Doubles = NDArray[np.float64]
Compute = Callable[[Sequence[Column]], Column]

_PLACES_MAX: Final = 15
_SPLIT: Final = float(2**27 + 1)
_ROUND_MAX: Final = 2.0**50
_LONG: Final = float(2**63)


def absolute(columns: Sequence[Column]) -> Column:
    """`$abs`."""
    (column,) = columns
    absent = of_numbers(columns)
    if absent is not None:
        return absent
    if column.kind == BsonType.DOUBLE:
        return Column(BsonType.DOUBLE, np.abs(column.values), column.present)
    if largest(column) > INT64_MAX:
        raise Unfit
    return whole_result(np.abs(column.values), columns, column.present)


def _to_whole(of_doubles: Callable[[Doubles], Doubles]) -> Compute:
    """`$floor` and `$ceil`."""

    def compute(columns: Sequence[Column]) -> Column:
        (column,) = columns
        absent = of_numbers(columns)
        if absent is not None or column.kind != BsonType.DOUBLE:
            return absent or column
        values = column.values
        return Column(BsonType.DOUBLE, np.where(np.isfinite(values), of_doubles(values), values), column.present)

    return compute


def rounding(name: str, places: int) -> Compute | None:
    """`$round` or `$trunc` to so many places; None where there are too many for arrays."""
    if abs(places) > _PLACES_MAX:
        return None
    rounds = name == "$round"

    def compute(columns: Sequence[Column]) -> Column:
        (column,) = columns
        absent = of_numbers(columns)
        if absent is not None:
            return absent
        if column.kind == BsonType.DOUBLE:
            values = column.values
            finite = np.where(np.isfinite(values), values, 0.0)
            found = _right_of_point(finite, places, rounds) if places >= 0 else _left_of_point(finite, -places, rounds)
            return Column(BsonType.DOUBLE, np.where(np.isfinite(values), found, values), column.present)
        if places >= 0:
            return column
        if largest(column) >= 2**60:
            raise Unfit
        return whole_result(_whole_tens(column.values, 10**-places, rounds), columns, column.present)

    return compute


def _right_of_point(values: Doubles, places: int, rounds: bool) -> Doubles:
    """Doubles to so many decimal places: their exact value rounded, and that as the nearest double."""
    if places == 0:
        return np.rint(values) if rounds else np.trunc(values)
    scale = float(10**places)
    high = values * scale
    if len(high) and float(np.abs(high).max()) >= _ROUND_MAX:
        raise Unfit
    # What the product lost (Dekker): high + low is exactly the value, scaled.
    low = _lost(values, scale, high)
    if rounds:
        whole = np.rint(high)
        rest = high - whole
        whole += ((rest == 0.5) & (low > 0)).astype(np.float64)
        whole -= ((rest == -0.5) & (low < 0)).astype(np.float64)
    else:
        whole = np.trunc(high)
        exact = whole == high
        whole -= (exact & (low < 0) & (high > 0)).astype(np.float64)
        whole += (exact & (low > 0) & (high < 0)).astype(np.float64)
    return np.copysign(whole / scale, values)


def _lost(values: Doubles, scale: float, product: Doubles) -> Doubles:
    wide = values * _SPLIT
    head = wide - (wide - values)
    tail = values - head
    scale_wide = scale * _SPLIT
    scale_head = scale_wide - (scale_wide - scale)
    scale_tail = scale - scale_head
    found: Doubles = ((head * scale_head - product) + head * scale_tail + tail * scale_head) + tail * scale_tail
    return found


def _left_of_point(values: Doubles, places: int, rounds: bool) -> Doubles:
    """Doubles to tens, hundreds and so on."""
    if len(values) and float(np.abs(values).max()) >= _ROUND_MAX:
        raise Unfit
    scale = float(10**places)
    rest = np.fmod(values, scale)
    base = values - rest
    if rounds:
        half = scale / 2
        odd = np.fmod(base, 2 * scale) != 0
        up = (np.abs(rest) > half) | ((np.abs(rest) == half) & odd)
        base = base + np.where(up, np.copysign(scale, values), 0.0)
    return np.copysign(base, values)


def _whole_tens(values: NDArray[np.int64], scale: int, rounds: bool) -> NDArray[np.int64]:
    rest = np.fmod(values, scale)
    base = values - rest
    if rounds:
        odd = np.fmod(base, 2 * scale) != 0
        up = (2 * np.abs(rest) > scale) | ((2 * np.abs(rest) == scale) & odd)
        base = base + np.where(up, np.sign(values) * scale, 0)
    return base


def _modulo(columns: Sequence[Column]) -> Column:
    absent = of_numbers(columns)
    if absent is not None:
        return absent
    left, right = columns
    present = present_in(columns)
    divisors = right.values if present is None else np.where(present, right.values, 1)
    if (divisors == 0).any():
        raise Unfit
    if left.kind in WHOLE and right.kind in WHOLE:
        if max(largest(left), largest(right)) > INT64_MAX:
            raise Unfit
        return whole_result(np.fmod(left.values, divisors), columns, present)
    low, high = doubles(left), divisors.astype(np.float64)
    if not np.isfinite(shown(low, present)).all() or np.isnan(shown(high, present)).any():
        # The sign of what is no number is told one by one.
        raise Unfit
    return Column(BsonType.DOUBLE, np.fmod(low, high), present)


def _square_root(columns: Sequence[Column]) -> Column:
    absent = of_numbers(columns)
    if absent is not None:
        return absent
    (column,) = columns
    values = doubles(column)
    if (shown(values, column.present) < 0).any():
        raise Unfit
    return Column(BsonType.DOUBLE, np.sqrt(values), column.present)


def singly(function: Callable[..., Any]) -> Compute:
    """What the row engine's own function gives for each row's numbers, where it gives numbers of one type."""

    def compute(columns: Sequence[Column]) -> Column:
        absent = of_numbers(columns)
        if absent is not None:
            return absent
        rows, present = len(columns[0].values), present_in(columns)
        places = np.arange(rows) if present is None else np.flatnonzero(present)
        try:
            made = list(map(function, *(_numbers(column, places) for column in columns)))
        except MongoError as error:
            raise Unfit from error
        kinds = set(map(type, made))
        kind = _KINDS.get(kinds.pop()) if len(kinds) == 1 else None
        if not made:
            return nothing(rows)
        if kind is None:
            raise Unfit
        values: NDArray[Any] = np.zeros(rows, dtype=np.float64 if kind == BsonType.DOUBLE else np.int64)
        values[places] = made
        return Column(kind, values, present)

    return compute


_KINDS: Final[dict[type, int]] = {float: BsonType.DOUBLE, int: BsonType.INT32, Int64: BsonType.INT64}


def _numbers(column: Column, places: NDArray[np.int64]) -> list[Any]:
    """The numbers of these rows as Python holds them."""
    found = column.values[places].tolist()
    return list(map(Int64, found)) if column.kind == BsonType.INT64 else found


def _converted(name: str) -> Compute:
    """`$toBool $toDate $toDouble $toInt $toLong`; what cannot be converted is told row by row."""
    kind = {
        "$toBool": BsonType.BOOL,
        "$toDate": BsonType.DATE,
        "$toDouble": BsonType.DOUBLE,
        "$toInt": BsonType.INT32,
        "$toLong": BsonType.INT64,
    }[name]

    def compute(columns: Sequence[Column]) -> Column:
        (column,) = columns
        if column.kind == ABSENT:
            return nothing(len(column.values))
        if column.kind == kind:
            return column
        numeric = column.kind in (BsonType.BOOL, *NUMBERS)
        if not numeric and column.kind != BsonType.DATE:
            raise Unfit
        if kind == BsonType.BOOL:
            true = column.values != 0 if numeric else np.ones(len(column.values), dtype=np.bool_)
            return Column(kind, true, column.present)
        if (kind == BsonType.INT32 and not numeric) or (
            kind == BsonType.DATE and column.kind not in (BsonType.INT64, BsonType.DOUBLE)
        ):
            raise Unfit
        if kind == BsonType.DOUBLE:
            return Column(kind, column.values.astype(np.float64), column.present)
        values = column.values
        if column.kind == BsonType.DOUBLE:
            values = np.trunc(values) if column.present is None else np.where(column.present, np.trunc(values), 0.0)
            if not (np.abs(values) < _LONG).all():
                raise Unfit
        whole = values.astype(np.int64)
        if kind == BsonType.INT32 and len(whole) and not (whole.min() >= INT32_MIN and whole.max() <= INT32_MAX):
            raise Unfit
        return Column(kind, whole, column.present)

    return compute


OPERATORS: Final[dict[str, Compute]] = {
    "$abs": absolute,
    "$ceil": _to_whole(np.ceil),
    "$floor": _to_whole(np.floor),
    "$mod": _modulo,
    "$sqrt": _square_root,
    **{name: _converted(name) for name in ("$toBool", "$toDate", "$toDouble", "$toInt", "$toLong")},
}
SINGLY: Final = frozenset(
    {
        "$acos", "$acosh", "$asin", "$asinh", "$atan", "$atan2", "$atanh", "$cos", "$cosh", "$degreesToRadians", "$exp", "$ln",
        "$log", "$log10", "$pow", "$radiansToDegrees", "$sin", "$sinh", "$tan", "$tanh",
    }
)  # fmt: skip
"""Operators that are computed one by one, with the row engine's own functions."""


def places_of(call: Call) -> int | None:
    """To how many places `$round` or `$trunc` goes; None where that is no fixed whole number."""
    if len(call.operands) == 1:
        return 0
    second = call.operands[1]
    return whole_number(second.value) if isinstance(second, Constant) else None
