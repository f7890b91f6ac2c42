"""What accumulators gather over columns: a run of rows at a time, for all groups at once.

Each answers its results slot by slot, and can hand over what it holds to a state of the row engine.
"""

from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
from bson import DatetimeMS, Int64

from ...common.numbers import INT64_MAX, INT64_MIN
from ...common.values import MISSING, BsonType
from ...kernels import GroupExtremes, GroupSums, within_sums
from ..expression.base import Expression
from .batch import ABSENT, MIXED, Column, ColumnBatch
from .computed import Unfit, computed
from .keys import Runs

_WHOLE: Final = (BsonType.INT32, BsonType.INT64)
_NUMBERS: Final = (BsonType.DOUBLE, *_WHOLE)
_EXACT: Final = 2**53


Source = str | Expression
"""The name of a column, or what is computed of columns."""


def _column(source: Source, batch: ColumnBatch) -> Column:
    """The values that an accumulator reads.

    Raises:
        Unfit: it has to read rows.
    """
    if isinstance(source, str):
        return batch.column(source)
    return batch.made(id(source), lambda batch: computed(source, batch))


def _fitting(source: Source, batch: ColumnBatch) -> Column | None:
    try:
        column = _column(source, batch)
    except Unfit:
        return None
    return None if column.kind == MIXED else column


class Gathering(ABC):
    """One accumulator over columns."""

    def fits(self, batch: ColumnBatch) -> bool:
        """Whether the types of the batch allow it."""
        return True

    @abstractmethod
    def add(self, batch: ColumnBatch, runs: Runs, groups: int) -> None:
        """Take the rows of a batch; slots are below `groups`."""

    @abstractmethod
    def results(self, start: int, stop: int) -> list[Any]:
        """The results of these slots."""

    @abstractmethod
    def kept(self, slot: int) -> Any:
        """What a slot holds, as `State.absorb` of the same accumulator takes it."""


class Sums(Gathering):
    """`$sum` and `$avg` of a column, and `$sum` of a whole number."""

    def __init__(self, source: Source | int, average: bool) -> None:
        self._source = source
        self._average = average
        self._sums = GroupSums()

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Gathering.fits`."""
        if isinstance(self._source, int):
            return True
        column = _fitting(self._source, batch)
        return column is not None and (column.kind != BsonType.DOUBLE or within_sums(column.values))

    def add(self, batch: ColumnBatch, runs: Runs, groups: int) -> None:
        """See `Gathering.add`."""
        if isinstance(self._source, int):
            self._sums.add_constant(groups, self._source, runs.stops - runs.starts, runs.slots)
            return
        column = _column(self._source, batch)
        if column.kind == BsonType.DOUBLE:
            taken = self._sums.add_doubles(groups, column.values, column.present, runs.starts, runs.stops, runs.slots)
            assert taken
        elif column.kind in _WHOLE:
            wide = column.kind == BsonType.INT64
            self._sums.add_whole(groups, wide, column.values, column.present, runs.starts, runs.stops, runs.slots)

    def results(self, start: int, stop: int) -> list[Any]:
        """See `Gathering.results`."""
        kinds, whole, doubles, counts = self._sums.results(start, stop)
        if self._average:
            exact = np.where(kinds == BsonType.DOUBLE, doubles, [float(total) for total in whole])
            with np.errstate(all="ignore"):
                means = (exact / counts).tolist()
            return [
                (None if not count else mean if kind == BsonType.DOUBLE or abs(total) < _EXACT else total / count)
                for kind, total, mean, count in zip(kinds.tolist(), whole, means, counts.tolist(), strict=True)
            ]
        return [
            total
            if kind == BsonType.INT32
            else double
            if kind == BsonType.DOUBLE
            else Int64(total)
            if INT64_MIN <= total <= INT64_MAX
            else float(total)
            for kind, total, double in zip(kinds.tolist(), whole, doubles.tolist(), strict=True)
        ]

    def kept(self, slot: int) -> Any:
        """See `Gathering.kept`."""
        whole, wide, doubles, special, any_double, count = self._sums.kept(slot)
        return [whole, wide, doubles, special, any_double, None, count]


class Extremes(Gathering):
    """`$min` and `$max` of a column."""

    def __init__(self, source: Source, greatest: bool) -> None:
        self._source = source
        self._extremes = GroupExtremes(greatest)

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Gathering.fits`."""
        column = _fitting(self._source, batch)
        return column is not None and column.kind in (ABSENT, *_NUMBERS, BsonType.DATE)

    def add(self, batch: ColumnBatch, runs: Runs, groups: int) -> None:
        """See `Gathering.add`."""
        column = _column(self._source, batch)
        if column.kind == BsonType.DOUBLE:
            self._extremes.add_doubles(groups, column.values, column.present, runs.starts, runs.stops, runs.slots)
        elif column.kind != ABSENT:
            self._extremes.add_whole(
                groups, column.kind, column.values, column.present, runs.starts, runs.stops, runs.slots
            )

    def results(self, start: int, stop: int) -> list[Any]:
        """See `Gathering.results`."""
        kinds, whole, doubles = self._extremes.results(start, stop)
        one = int(kinds[0]) if len(kinds) and (kinds == kinds[0]).all() else -1
        if one in (BsonType.INT32, BsonType.DOUBLE):
            return list((whole if one == BsonType.INT32 else doubles).tolist())
        return [
            _as_python(kind, number, double)
            for kind, number, double in zip(kinds.tolist(), whole.tolist(), doubles.tolist(), strict=True)
        ]

    def kept(self, slot: int) -> Any:
        """See `Gathering.kept`."""
        return self.results(slot, slot + 1)[0]


def _as_python(kind: int, whole: int, double: float) -> Any:
    match kind:
        case BsonType.DOUBLE:
            return double
        case BsonType.INT32:
            return whole
        case BsonType.INT64:
            return Int64(whole)
        case BsonType.DATE:
            return DatetimeMS(whole)
    return None


class Ends(Gathering):
    """`$first` and `$last` of a column."""

    def __init__(self, source: Source, last: bool) -> None:
        self._source = source
        self._last = last
        self._values: list[Any] = []

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Gathering.fits`."""
        return _fitting(self._source, batch) is not None

    def add(self, batch: ColumnBatch, runs: Runs, groups: int) -> None:
        """See `Gathering.add`."""
        column = _column(self._source, batch)
        known = len(self._values)
        self._values += [MISSING] * (groups - known)
        if self._last:
            # Of several runs of a slot the last one stays.
            rows = np.full(groups, -1, dtype=np.int64)
            rows[runs.slots] = runs.stops - 1
        else:
            rows = np.full(groups, -1, dtype=np.int64)
            rows[runs.slots[::-1]] = runs.starts[::-1]
            rows[:known] = -1
        for slot in np.flatnonzero(rows >= 0).tolist():
            self._values[slot] = column.value(int(rows[slot]))

    def results(self, start: int, stop: int) -> list[Any]:
        """See `Gathering.results`."""
        return [None if value is MISSING else value for value in self._values[start:stop]]

    def kept(self, slot: int) -> Any:
        """See `Gathering.kept`."""
        value = self.results(slot, slot + 1)[0]
        return value if self._last else [False, value]
