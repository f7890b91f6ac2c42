"""What accumulators gather over columns: a run of rows at a time, for all groups at once.

Each answers its results slot by slot, and can hand over what it holds to a state of the row engine.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from bson import DatetimeMS, Int64
from numpy.typing import NDArray

from ...common.numbers import INT64_MAX, INT64_MIN
from ...common.values import MISSING, BsonType
from ...kernels import BucketTotals, GroupExtremes, GroupSpreads, GroupSums, within_sums
from ..expression.base import Expression
from ..expression.ranking import percentile_of
from .batch import ABSENT, MIXED, Column, ColumnBatch
from .computed import computed
from .keys import Runs
from .operands import Unfit
from .told import TotalsWanted

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

    @property
    def held_bytes(self) -> int:
        """About how much memory it takes beyond a fixed amount for each group."""
        return 0

    def wanted(self) -> TotalsWanted | None:
        """What buckets would have to tell, for that to be enough; None where it never is."""
        return None

    def add_told(self, totals: BucketTotals, runs: Runs) -> None:
        """Take what buckets tell, where `wanted` says that it is enough; the rows of the runs are buckets."""
        raise AssertionError(f"{type(self).__name__} needs the measurements")

    @abstractmethod
    def add(self, batch: ColumnBatch, runs: Runs) -> None:
        """Take the rows of a batch."""

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

    def wanted(self) -> TotalsWanted | None:
        """See `Gathering.wanted`."""
        if isinstance(self._source, Expression):
            return None
        return TotalsWanted(sums=() if isinstance(self._source, int) else (self._source,))

    def add_told(self, totals: BucketTotals, runs: Runs) -> None:
        """See `Gathering.add_told`."""
        if isinstance(self._source, int):
            self._sums.add_constant_totals(runs.native, totals, self._source)
        else:
            self._sums.add_totals(runs.native, totals, str(self._source))

    def add(self, batch: ColumnBatch, runs: Runs) -> None:
        """See `Gathering.add`."""
        if isinstance(self._source, int):
            self._sums.add_constant(runs.native, self._source)
            return
        column = _column(self._source, batch)
        if column.kind == BsonType.DOUBLE:
            taken = self._sums.add_doubles(runs.native, column.values, column.present)
            assert taken
        elif column.kind in _WHOLE:
            wide = column.kind == BsonType.INT64
            self._sums.add_whole(runs.native, wide, column.values, column.present)

    def results(self, start: int, stop: int) -> list[Any]:
        """See `Gathering.results`."""
        kinds, whole, doubles, counts = self._sums.results(start, stop)
        if self._average and (kinds == BsonType.DOUBLE).all() and counts.all():
            with np.errstate(all="ignore"):
                return list((doubles / counts).tolist())
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
        self._greatest = greatest
        self._extremes = GroupExtremes(greatest)

    def wanted(self) -> TotalsWanted | None:
        """See `Gathering.wanted`."""
        if not isinstance(self._source, str):
            return None
        return TotalsWanted(greatest=(self._source,)) if self._greatest else TotalsWanted(least=(self._source,))

    def add_told(self, totals: BucketTotals, runs: Runs) -> None:
        """See `Gathering.add_told`."""
        self._extremes.add_totals(runs.native, totals, str(self._source))

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Gathering.fits`."""
        column = _fitting(self._source, batch)
        return column is not None and column.kind in (ABSENT, *_NUMBERS, BsonType.DATE)

    def add(self, batch: ColumnBatch, runs: Runs) -> None:
        """See `Gathering.add`."""
        column = _column(self._source, batch)
        if column.kind == BsonType.DOUBLE:
            self._extremes.add_doubles(runs.native, column.values, column.present)
        elif column.kind != ABSENT:
            self._extremes.add_whole(runs.native, column.kind, column.values, column.present)

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

    def add(self, batch: ColumnBatch, runs: Runs) -> None:
        """See `Gathering.add`."""
        column = _column(self._source, batch)
        known, groups = len(self._values), runs.groups
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


class Spreads(Gathering):
    """`$stdDevPop` and `$stdDevSamp`."""

    def __init__(self, source: Source, sample: bool) -> None:
        self._source = source
        self._sample = sample
        self._spreads = GroupSpreads()

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Gathering.fits`."""
        return _fitting(self._source, batch) is not None

    def add(self, batch: ColumnBatch, runs: Runs) -> None:
        """See `Gathering.add`."""
        column = _column(self._source, batch)
        if column.kind in _NUMBERS:
            values = column.values.astype(np.float64)
            self._spreads.add(runs.native, values, column.present)

    def results(self, start: int, stop: int) -> list[Any]:
        """See `Gathering.results`."""
        made: list[float | None] = []
        for count, _, squares in self._spreads.results(start, stop):
            below = count - 1 if self._sample else count
            if below <= 0:
                made.append(None)
            else:
                made.append(math.sqrt(squares / below) if squares == squares else math.nan)
        return made

    def kept(self, slot: int) -> Any:
        """See `Gathering.kept`."""
        return list(self._spreads.results(slot, slot + 1)[0])


class Ranks(Gathering):
    """`$median` and `$percentile`, from all the numbers."""

    def __init__(self, source: Source, shares: Sequence[float], single: bool) -> None:
        self._source = source
        self._shares = list(shares)
        self._single = single
        self._values: list[NDArray[np.float64]] = []
        self._slots: list[NDArray[np.int64]] = []
        self._held = 0
        self._sorted = False

    @property
    def held_bytes(self) -> int:
        """See `Gathering.held_bytes`."""
        return self._held

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Gathering.fits`."""
        return _fitting(self._source, batch) is not None

    def add(self, batch: ColumnBatch, runs: Runs) -> None:
        """See `Gathering.add`."""
        column = _column(self._source, batch)
        if column.kind not in _NUMBERS:
            return
        values = column.values.astype(np.float64)
        slots = np.repeat(runs.slots, runs.stops - runs.starts)
        here = values == values
        if column.present is not None:
            here &= column.present
        if not here.all():
            values, slots = values[here], slots[here]
        self._values.append(values)
        self._slots.append(slots)
        self._sorted = False
        self._held += values.nbytes + slots.nbytes

    def results(self, start: int, stop: int) -> list[Any]:
        """See `Gathering.results`."""
        made: list[Any] = []
        for slot in range(start, stop):
            numbers = self._numbers(slot)
            found = [percentile_of(numbers, share) for share in self._shares]
            made.append(found[0] if self._single else found)
        return made

    def kept(self, slot: int) -> Any:
        """See `Gathering.kept`."""
        return self._numbers(slot)

    def _numbers(self, slot: int) -> list[float]:
        """The numbers of a slot, sorted."""
        if len(self._values) > 1:
            self._values, self._slots = [np.concatenate(self._values)], [np.concatenate(self._slots)]
        if not self._values:
            return []
        if not self._sorted:
            order = np.lexsort((self._values[0], self._slots[0]))
            self._values, self._slots = [self._values[0][order]], [self._slots[0][order]]
            self._sorted = True
        low, high = np.searchsorted(self._slots[0], [slot, slot + 1])
        return list(self._values[0][low:high].tolist())
