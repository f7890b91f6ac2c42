"""Frames of windows: which rows around a row a window function looks at, by count or by the value that orders them."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from bson import DatetimeMS, Decimal128
from numpy.typing import NDArray

from ...common.errors import FailedToParse, Location
from ...common.numbers import is_number, whole_number
from ...common.values import BsonType, Document, is_string, type_name
from ...kernels import window_double_places, window_places
from ..columns.batch import Column
from ..columns.dates import dates_later
from ..columns.operands import EXACT, NUMBERS, WHOLE, Unfit, doubles, largest
from ..expression import calendar
from ..expression.arithmetic import to_decimal
from ..expression.calendar import UNITS, UTC_ZONE
from ..sort import SortPattern

Bound = Any
"""`None` for unbounded, else a number; current is 0."""
Rows = NDArray[np.int64]
_FAR: Final = 2**40
_WORDS: Final = ("unbounded", "current")


@dataclass(frozen=True, slots=True)
class Frame:
    """The window of one output field."""

    low: Bound = None
    high: Bound = None
    by_range: bool = False
    unit: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it spans the whole partition."""
        return self.low is None and self.high is None

    def spans(self, values: Sequence[Any], count: int) -> list[tuple[int, int]]:
        """Where the frame of each row of a partition begins and ends; `values` are what the rows are ordered by.

        Raises:
            Location: 5429413, 5429414, 5429513 for values that have no distance.
        """
        if not self.by_range:
            return [
                (
                    0 if self.low is None else min(max(row + self.low, 0), count),
                    count if self.high is None else max(min(row + self.high + 1, count), 0),
                )
                for row in range(count)
            ]
        keys = [self._key(value) for value in values]
        spans = []
        for key in keys:
            low = 0 if self.low is None else bisect_left(keys, self._moved(key, self.low))
            high = count if self.high is None else bisect_right(keys, self._moved(key, self.high))
            spans.append((low, high))
        return spans

    def edges(self, key: Column | None, starts: Rows, begins: Rows, ends: Rows) -> tuple[Rows, Rows]:
        """The same for the rows of several partitions at a time.

        Args:
            key: what the rows are ordered by.
            starts: where the partitions begin.
            begins, ends: for each row where its partition begins and ends.

        Raises:
            Unfit: the values have no distance, or none that arrays tell.
        """
        if self.by_range:
            if key is None or key.present is not None:
                raise Unfit
            lows = begins if self.low is None else self._places(key, self.low, starts, through=False)
            highs = ends if self.high is None else self._places(key, self.high, starts, through=True)
            return lows, highs
        rows: Rows = np.arange(len(begins))
        low, high = (None if bound is None else max(min(int(bound), _FAR), -_FAR) for bound in (self.low, self.high))
        return (
            begins if low is None else np.clip(rows + low, begins, ends),
            ends if high is None else np.clip(rows + high + 1, begins, ends),
        )

    def _places(self, key: Column, by: Any, starts: Rows, *, through: bool) -> Rows:
        """Where the keys of each partition reach those of the rows, moved by a bound."""
        if self.unit is not None:
            if key.kind != BsonType.DATE or isinstance(by, Decimal128):
                raise Unfit
            return window_places(key.values, dates_later(key, self.unit, int(by)), starts, through)
        if isinstance(by, Decimal128) or key.kind not in NUMBERS:
            raise Unfit
        if key.kind in WHOLE and isinstance(by, int):
            if largest(key) + abs(by) >= 2**62:
                raise Unfit
            return window_places(key.values, key.values + int(by), starts, through)
        values = doubles(key)
        if not np.isfinite(values).all() or not np.isfinite(float(by)):
            raise Unfit
        if (key.kind in WHOLE and largest(key) >= EXACT) or (isinstance(by, int) and abs(by) >= EXACT):
            raise Unfit
        with np.errstate(all="ignore"):
            return window_double_places(values, values + float(by), starts, through)

    def _key(self, value: Any) -> Any:
        if self.unit is not None:
            if type(value) is not DatetimeMS:
                raise Location(5429513, f"Expected the sortBy field to be a Date, but it was {type_name(value)}")
            return int(value)
        if not is_number(value):
            code = 5429413 if type(value) is DatetimeMS else 5429414
            raise Location(code, f"Expected the sortBy field to be a number, but it was {type_name(value)}")
        return value.to_decimal() if isinstance(value, Decimal128) else value

    def _moved(self, key: Any, by: Any) -> Any:
        if self.unit is not None:
            return calendar.add(key, self.unit, int(by), UTC_ZONE)
        if isinstance(by, Decimal128) or not isinstance(key, (int, float)):
            return to_decimal(key if isinstance(key, (int, float)) else Decimal128(key)) + to_decimal(by)
        return key + by


def parse_frame(spec: Any, order: SortPattern | None) -> Frame:
    """The frame that a `window` asks for.

    Raises:
        MongoError: 9 for its form, 5339900, 5339901, 5339902, 8947401 for bounds that do not fit each other or the order.
    """
    if not isinstance(spec, dict):
        raise FailedToParse("'window' field must be an object")
    for name in spec:
        if name not in ("documents", "range", "unit"):
            raise FailedToParse(f"'window' field that is not recognized: {name}")
    if "documents" in spec and "range" in spec:
        raise FailedToParse("'window' field can contain 'documents' or 'range', but not both")
    if "documents" in spec:
        if "unit" in spec:
            raise FailedToParse("Window bounds can only specify 'unit' with range-based bounds.")
        low, high = _bounds(spec["documents"], whole=True)
        _check_order(low, high)
        if not (low is None and high is None) and order is None:
            raise Location(5339901, "Document-based bounds require a sortBy")
        return Frame(low, high)
    if "range" in spec:
        unit = _unit(spec)
        low, high = _bounds(spec["range"], whole=unit is not None)
        _check_order(low, high)
        if not (low is None and high is None):
            if order is None or len(order.parts) != 1:
                raise Location(5339902, "Range-based bounds require sortBy a single field")
            if not order.parts[0].ascending:
                raise Location(8947401, "Range-based bounds require an ascending sortBy")
        return Frame(low, high, by_range=True, unit=unit)
    if "unit" in spec:
        raise FailedToParse("'unit' is only allowed with 'range'")
    return Frame()


def _unit(spec: Document) -> str | None:
    if "unit" not in spec:
        return None
    unit = spec["unit"]
    if not is_string(unit):
        raise FailedToParse("'unit' must be a string")
    if unit not in UNITS:
        raise FailedToParse(f"unknown time unit value: {unit}")
    return str(unit)


def _bounds(given: Any, *, whole: bool) -> tuple[Bound, Bound]:
    if not isinstance(given, list) or len(given) != 2:
        raise FailedToParse(f"Window bounds must be a 2-element array: {given}")
    low, high = (_bound(item, whole=whole) for item in given)
    return low, high


def _bound(item: Any, *, whole: bool) -> Bound:
    if is_string(item):
        if item not in _WORDS:
            raise FailedToParse(f"Window bounds must be 'unbounded', 'current', or a number: {item}")
        return None if item == "unbounded" else 0
    if not is_number(item):
        raise FailedToParse(f"Window bounds must be 'unbounded', 'current', or a number, found: {type_name(item)}")
    if not whole:
        return item
    number = whole_number(item)
    if number is None:
        raise FailedToParse(f"Numeric document-based bounds must be an integer: {item}")
    return number


def _check_order(low: Bound, high: Bound) -> None:
    if low is None or high is None:
        return
    first, last = to_decimal(low), to_decimal(high)
    if not (first.is_nan() or last.is_nan()) and first > last:
        raise Location(5339900, f"Lower bound must not exceed upper bound: [{low}, {high}]")
