"""`$setWindowFields` over columns: each window function for all rows of all partitions at a time.

Results are those of the row engine, to the last bit; `Unfit` says where rows have to tell, before any row has gone out.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from bson import DatetimeMS, Decimal128, Int64
from numpy.typing import NDArray

from ...common.numbers import INT32_MAX, INT32_MIN
from ...common.values import BsonType
from ...kernels import (
    moving_average,
    window_covariances,
    window_deviations,
    window_extremes,
    window_sums,
    window_whole_extremes,
    window_whole_sums,
)
from ..accumulators.base import Accumulator
from ..columns.arranged import NULL, Added, Arranged, added
from ..columns.batch import ABSENT, Column
from ..columns.computed import can_compute, computed
from ..columns.operands import EXACT, NUMBERS, WHOLE, Mask, Unfit, doubles, largest, shown
from ..expression.base import ArrayExpression, Constant, Expression
from ..expression.calendar import FIXED_MS
from .moments import Covariance, SlidingDeviation
from .window_frames import Frame
from .window_functions import Area, LastSeen, LinearFill, MovingAverage, Rank, Shift, Slope, WindowFunction

Rows = NDArray[np.int64]
Doubles = NDArray[np.float64]

_FAR: Final = 2**40


@dataclass(slots=True)
class WindowRows:
    """What a window function looks at: rows in order, their partitions, and the window of each."""

    rows: Arranged
    begins: Rows
    """Where the partition of each row begins."""
    ends: Rows
    lows: Rows
    highs: Rows
    key: Column | None
    """What the rows are ordered by first."""
    collated: bool

    def source(self, expression: Expression) -> Column:
        """The values of an expression."""
        batch = self.rows.batch
        return batch.made(id(expression), lambda batch: computed(expression, batch))


class ArrayFunction(ABC):
    """A window function on arrays."""

    @abstractmethod
    def field(self, windows: WindowRows) -> Added:
        """The value of each row.

        Raises:
            Unfit: rows have to tell.
        """


def _of_doubles(values: Doubles, here: Mask) -> Added:
    return Added(np.where(here, BsonType.DOUBLE, NULL).astype(np.uint8), np.where(here, values, 0.0).view(np.int64))


def _whole_kinds(values: Rows) -> NDArray[np.uint8]:
    narrow = (values >= INT32_MIN) & (values <= INT32_MAX)
    return np.where(narrow, BsonType.INT32, BsonType.INT64).astype(np.uint8)


def _finite(column: Column) -> None:
    """Leave what is no finite number to rows."""
    if column.kind == BsonType.DOUBLE and not np.isfinite(shown(column.values, column.present)).all():
        raise Unfit


def _filled(column: Column) -> NDArray[Any]:
    """Numbers with 0 where there is none."""
    return column.values if column.present is None else np.where(column.present, column.values, 0)


def _present(column: Column) -> Mask:
    rows = len(column.values)
    return np.ones(rows, dtype=np.bool_) if column.present is None else column.present


def _nulls(rows: int) -> Added:
    return Added(np.full(rows, NULL, dtype=np.uint8), np.zeros(rows, dtype=np.int64))


class _Counted(ArrayFunction):
    """`$sum` of a constant, of which `$count` is one."""

    def __init__(self, one: int) -> None:
        self._one = one

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        totals = (windows.highs - windows.lows) * self._one
        return Added(_whole_kinds(totals), totals)


class _Summed(ArrayFunction):
    """`$sum` and `$avg`."""

    def __init__(self, source: Expression, *, average: bool) -> None:
        self._source = source
        self._average = average

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        column = windows.source(self._source)
        rows = len(windows.lows)
        if column.kind not in NUMBERS:
            zero = Added(np.full(rows, BsonType.INT32, dtype=np.uint8), np.zeros(rows, dtype=np.int64))
            return _nulls(rows) if self._average else zero
        whole = column.kind in WHOLE
        sums: NDArray[Any]
        if whole:
            found: Any = window_whole_sums(column.values, column.present, windows.lows, windows.highs)
        else:
            _finite(column)
            found = window_sums(column.values, column.present, windows.lows, windows.highs)
        if found is None:
            raise Unfit
        sums, counts = found
        some = counts > 0
        if self._average:
            if whole and len(sums) and max(abs(int(sums.max())), abs(int(sums.min()))) >= EXACT:
                raise Unfit
            return _of_doubles(sums / np.maximum(counts, 1), some)
        if whole:
            kinds = _whole_kinds(sums)
            if column.kind == BsonType.INT64:
                kinds[some] = BsonType.INT64
            return Added(kinds, sums)
        kinds = np.where(some, BsonType.DOUBLE, BsonType.INT32).astype(np.uint8)
        return Added(kinds, np.where(some, sums, 0.0).view(np.int64))


class _Extreme(ArrayFunction):
    """`$min` and `$max`."""

    def __init__(self, source: Expression, *, greatest: bool) -> None:
        self._source = source
        self._greatest = greatest

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        column = windows.source(self._source)
        rows = len(windows.lows)
        if column.kind == ABSENT:
            return _nulls(rows)
        if column.kind == BsonType.DOUBLE:
            places = window_extremes(column.values, column.present, windows.lows, windows.highs, self._greatest)
            return added(column, rows, places)
        values = column.values
        if column.kind == BsonType.STRING:
            if windows.collated or column.texts is None:
                raise Unfit
            ranks = np.zeros(len(column.texts) + 1, dtype=np.int64)
            ranks[sorted(range(len(column.texts)), key=column.texts.__getitem__)] = np.arange(len(column.texts))
            values = ranks[np.minimum(values, len(column.texts))]
        whole = values.astype(np.int64)
        return added(
            column, rows, window_whole_extremes(whole, column.present, windows.lows, windows.highs, self._greatest)
        )


class _End(ArrayFunction):
    """`$first` and `$last`."""

    def __init__(self, source: Expression, *, last: bool) -> None:
        self._source = source
        self._last = last

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        places = windows.highs - 1 if self._last else windows.lows
        places = np.where(windows.lows < windows.highs, places, -1)
        return added(windows.source(self._source), len(places), places)


class _Deviation(ArrayFunction):
    """`$stdDevPop` and `$stdDevSamp`."""

    def __init__(self, source: Expression, *, sample: bool, growing: bool) -> None:
        self._source = source
        self._sample = sample
        self._growing = growing

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        column = windows.source(self._source)
        if column.kind not in NUMBERS:
            return _nulls(len(windows.lows))
        if self._growing:
            _finite(column)
        kinds, found = window_deviations(
            doubles(column), column.present, windows.lows, windows.highs, self._sample, self._growing
        )
        return Added(np.where(kinds == 0, NULL, kinds).astype(np.uint8), found.view(np.int64))


class _Covariance(ArrayFunction):
    """`$covariancePop` and `$covarianceSamp`."""

    def __init__(self, left: Expression, right: Expression, *, sample: bool) -> None:
        self._pair = (left, right)
        self._sample = sample

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        left, right = (windows.source(one) for one in self._pair)
        if left.kind not in NUMBERS or right.kind not in NUMBERS:
            return _nulls(len(windows.lows))
        _finite(left)
        _finite(right)
        present = None
        if left.present is not None or right.present is not None:
            present = _present(left) & _present(right)
        kinds, found = window_covariances(
            doubles(left), doubles(right), present, windows.lows, windows.highs, self._sample
        )
        return _of_doubles(found, kinds != 0)


class _Ranked(ArrayFunction):
    """`$rank $denseRank $documentNumber`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        rows: Rows = np.arange(len(windows.begins))
        begins, changed = windows.begins, windows.rows.changed
        numbers: Rows
        if self._name == "$documentNumber":
            numbers = rows - begins + 1
        elif self._name == "$rank":
            numbers = np.maximum.accumulate(np.where(changed, rows, 0)) - begins + 1
        else:
            different = np.cumsum(changed).astype(np.int64)
            numbers = different - different[begins] + 1
        return Added(np.full(len(rows), BsonType.INT32, dtype=np.uint8), numbers.astype(np.int64))


class _Shifted(ArrayFunction):
    """`$shift`."""

    def __init__(self, output: Expression, by: int, default: Any) -> None:
        self._output = output
        self._by = max(min(by, _FAR), -_FAR)
        self._default = default

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        rows = len(windows.begins)
        places = np.arange(rows) + self._by
        within = (places >= windows.begins) & (places < windows.ends)
        column = windows.source(self._output)
        made = added(column, rows, np.where(within, places, -1))
        default = self._default
        if default is None:
            return made
        kind, bits, texts = int(BsonType.NULL), 0, made.texts
        match default:
            case bool():
                kind, bits = BsonType.BOOL, int(default)
            case float():
                kind, bits = BsonType.DOUBLE, int(np.float64(default).view(np.int64))
            case DatetimeMS():
                kind, bits = BsonType.DATE, int(default)
            case str():
                texts = [*(made.texts or ()), default]
                kind, bits = BsonType.STRING, len(texts) - 1
            case int():
                wide = isinstance(default, Int64) or not INT32_MIN <= default <= INT32_MAX
                kind, bits = BsonType.INT64 if wide else BsonType.INT32, int(default)
        kinds = np.where(within, made.kinds, kind).astype(np.uint8)
        return Added(kinds, np.where(within, made.bits, bits), texts)


def _distances(key: Column | None, firsts: Rows, lasts: Rows, unit: str | None) -> Doubles:
    """How far the keys of rows are apart, in units where they are dates."""
    if key is None or key.present is not None:
        raise Unfit
    if unit is not None:
        if key.kind != BsonType.DATE or largest(key) >= EXACT // 2:
            raise Unfit
        run: Doubles = (key.values[lasts] - key.values[firsts]) / FIXED_MS[unit]
        return run
    if key.kind not in NUMBERS or (key.kind in WHOLE and largest(key) >= EXACT // 2):
        raise Unfit
    _finite(key)
    found: Doubles = (key.values[lasts] - key.values[firsts]).astype(np.float64)
    return found


def _differences(column: Column, firsts: Rows, lasts: Rows) -> Doubles:
    """The values of rows less those of others, as doubles."""
    if column.kind in (*WHOLE, BsonType.DATE) and largest(column) >= 2**62:
        raise Unfit
    _finite(column)
    values = _filled(column)
    found: Doubles = (values[lasts] - values[firsts]).astype(np.float64)
    return found


class _Slope(ArrayFunction):
    """`$derivative`."""

    def __init__(self, source: Expression, unit: str | None) -> None:
        self._source = source
        self._unit = unit

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        column = windows.source(self._source)
        if column.kind not in (ABSENT, BsonType.DATE, *NUMBERS):
            raise Unfit
        wide = windows.highs - windows.lows >= 2
        firsts, lasts = np.where(wide, windows.lows, 0), np.where(wide, windows.highs - 1, 0)
        run = _distances(windows.key, firsts, lasts, self._unit)
        if column.kind == ABSENT:
            return _nulls(len(wide))
        here = _present(column)
        wide &= here[firsts] & here[lasts] & (run != 0)
        with np.errstate(all="ignore"):
            slopes = _differences(column, firsts, lasts) / np.where(wide, run, 1.0)
        return _of_doubles(slopes, wide)


class _Area(ArrayFunction):
    """`$integral`."""

    def __init__(self, source: Expression, unit: str | None) -> None:
        self._source = source
        self._unit = unit

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        column = windows.source(self._source)
        rows = len(windows.lows)
        points = np.flatnonzero(_present(column)) if column.kind in NUMBERS else np.zeros(0, dtype=np.int64)
        if not len(points):
            return _nulls(rows)
        if column.kind in WHOLE and largest(column) >= 2**62:
            raise Unfit
        _finite(column)
        before = np.concatenate((points[:1], points[:-1]))
        # The first of a partition has nothing before it, and no window looks at its area.
        before = np.where(windows.begins[before] == windows.begins[points], before, points)
        run = _distances(windows.key, before, points, self._unit)
        values = column.values
        with np.errstate(all="ignore"):
            areas = (values[before] + values[points]).astype(np.float64) / 2 * run
        starts = np.searchsorted(points, windows.lows)
        stops = np.searchsorted(points, windows.highs)
        found = window_sums(areas, None, np.minimum(starts + 1, stops), stops)
        if found is None:
            raise Unfit
        return _of_doubles(found[0], stops > starts)


class _MovingAverage(ArrayFunction):
    """`$expMovingAvg`."""

    def __init__(self, source: Expression, weight: float) -> None:
        self._source = source
        self._weight = weight

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        column = windows.source(self._source)
        if column.kind not in NUMBERS:
            return _nulls(len(windows.begins))
        _finite(column)
        averages = moving_average(doubles(column), column.present, windows.rows.starts, self._weight)
        return _of_doubles(averages, _present(column))


def _last_here(here: Mask, begins: Rows) -> Rows:
    """For each row the last one up to it, in its partition, that has a value; -1 for none."""
    places = np.maximum.accumulate(np.where(here, np.arange(len(here)), -1))
    return np.where(places >= begins, places, -1)


class _LastSeen(ArrayFunction):
    """`$locf`."""

    def __init__(self, source: Expression) -> None:
        self._source = source

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        column = windows.source(self._source)
        if column.kind == ABSENT:
            return _nulls(len(windows.begins))
        return added(column, len(windows.begins), _last_here(_present(column), windows.begins))


class _LinearFill(ArrayFunction):
    """`$linearFill`."""

    def __init__(self, source: Expression) -> None:
        self._source = source

    def field(self, windows: WindowRows) -> Added:
        """See `ArrayFunction.field`."""
        column, key = windows.source(self._source), windows.key
        if column.kind not in (ABSENT, *NUMBERS) or not windows.rows.changed.all():
            raise Unfit
        if key is None or key.present is not None or key.kind not in (BsonType.DATE, *NUMBERS):
            raise Unfit
        if key.kind != BsonType.DOUBLE and largest(key) >= EXACT // 2:
            raise Unfit
        _finite(key)
        rows = len(windows.begins)
        if column.kind == ABSENT:
            return _nulls(rows)
        here = _present(column)
        left = _last_here(here, windows.begins)
        right = np.minimum.accumulate(np.where(here, np.arange(rows), rows)[::-1])[::-1]
        right = np.where(right < windows.ends, right, -1)
        gaps = ~here & (left >= 0) & (right >= 0)
        made = added(column, rows)
        if gaps.any():
            at, low, high = np.flatnonzero(gaps), left[gaps], right[gaps]
            places = key.values
            with np.errstate(all="ignore"):
                share = (places[at] - places[low]).astype(np.float64) / (places[high] - places[low])
                rise = _differences(column, low, high) * share
                values = 0.0 + doubles(column)[low] + rise
            made.kinds[gaps] = BsonType.DOUBLE
            made.bits[gaps] = values.view(np.int64)
        return made


def array_function(
    function: WindowFunction, accumulator: Accumulator | None, frame: Frame, shared_field: str | None
) -> ArrayFunction | None:
    """The function on arrays; None where it, or what it reads, has none. `accumulator` is what gathers, if it is one."""

    def can(*expressions: Expression) -> bool:
        return all(can_compute(expression, shared_field) for expression in expressions)

    if accumulator is not None:
        return _of_accumulator(accumulator, frame, shared_field)
    match function:
        case Rank():
            return _Ranked(function.name)
        case Shift() if can(function.output):
            plain = function.default is None or type(function.default) in (bool, int, Int64, float, str, DatetimeMS)
            return _Shifted(function.output, function.by, function.default) if plain else None
        case Slope() if can(function.source):
            return _Slope(function.source, function.unit)
        case Area() if can(function.source):
            return _Area(function.source, function.unit)
        case MovingAverage() if can(function.source) and not isinstance(function.weight, Decimal128):
            return _MovingAverage(function.source, float(function.weight))
        case LastSeen() if can(function.source):
            return _LastSeen(function.source)
        case LinearFill() if can(function.source):
            return _LinearFill(function.source)
        case SlidingDeviation() if can(function.operand):
            return _Deviation(function.operand, sample=function.sample, growing=False)
        case Covariance() if isinstance(function.pairs, ArrayExpression) and len(function.pairs.items) == 2:
            left, right = function.pairs.items
            return _Covariance(left, right, sample=function.sample) if can(left, right) else None
    return None


def _of_accumulator(accumulator: Accumulator, frame: Frame, shared_field: str | None) -> ArrayFunction | None:
    name, source = accumulator.name, accumulator.expression
    if name == "$sum" and isinstance(source, Constant) and type(source.value) is int:
        whole: int = source.value
        return _Counted(whole) if abs(whole) < 2**31 else None
    if not can_compute(source, shared_field):
        return None
    match name:
        case "$sum" | "$avg":
            return _Summed(source, average=name == "$avg")
        case "$min" | "$max":
            return _Extreme(source, greatest=name == "$max")
        case "$first" | "$last":
            return _End(source, last=name == "$last")
        case "$stdDevPop" | "$stdDevSamp" if frame.low is None:
            return _Deviation(source, sample=name == "$stdDevSamp", growing=True)
    return None
