"""`$densify` of the time over columns: which times are missing in each partition, and rows of these among the others."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.ordering import order_key
from ...common.paths import Path, get_path
from ...common.values import MISSING, BsonType, Document, encode
from ...kernels import RowBlock, arrange_rows
from ..expression.calendar import FIXED_MS
from .arranged import Arranged, gathered
from .batch import ABSENT, Column, ColumnBatch, Positions, Shared
from .dates import dates_later
from .operands import Unfit, largest

_TIMES_MAX: Final = 2**60
_MONTH_MS: Final = 28 * FIXED_MS["day"]
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


@dataclass(slots=True)
class ColumnDensify:
    """A `$densify` that columns can do.

    Attributes:
        by: paths within the shared field.
        step, unit: how far times are apart.
        low, high: bounds that were given; None for those of all rows (`full`), or of each partition.
        made_max: how many rows may be made.
    """

    by: list[Path]
    step: int
    unit: str
    full: bool
    low: int | None
    high: int | None
    collation: Any
    identity_of: Callable[[Document], Document]
    made_max: int

    def rows(self, batches: Sequence[ColumnBatch]) -> Generator[None, None, Arranged]:
        """The rows in order, with those that were missing; breathes between the steps.

        Raises:
            Unfit: rows have to tell.
        """
        whole = gathered(batches)
        time = whole.column(whole.time_field)
        if time.kind != BsonType.DATE or time.present is not None or largest(time) >= _TIMES_MAX:
            raise Unfit
        yield None
        codes = self._codes(whole)
        order, starts = _by_time(codes, time.values)
        yield None
        times, partitions = time.values[order], codes[order]
        made, owners = self._made(times, partitions, starts)
        yield None
        if not len(made[0]):
            return Arranged(whole, order, starts, np.zeros(len(order), dtype=np.bool_))
        new = self._new_rows(whole, made[0], whole.segments[order[owners]])
        joined = gathered([*batches, new])
        old_places = np.arange(len(order)) + np.searchsorted(made[1], made[2], side="left")
        new_places = np.arange(len(made[0])) + np.searchsorted(made[2], made[1], side="left")
        merged = np.empty(len(order) + len(made[0]), dtype=np.int64)
        merged[old_places] = order
        merged[new_places] = len(order) + np.arange(len(made[0]))
        yield None
        return Arranged(joined, merged, np.zeros(1, dtype=np.int64), np.zeros(len(merged), dtype=np.bool_))

    def _codes(self, batch: ColumnBatch) -> Positions:
        """The partition of each row, numbered in order."""
        if not self.by:
            return np.zeros(len(batch), dtype=np.int64)
        shared = batch.shared
        keys: dict[bytes | None, Any] = {}
        for key in shared.keys:
            if key not in keys:
                value = shared.of(key)
                document = {} if value is MISSING or shared.name is None else {shared.name: value}
                keys[key] = tuple(order_key(get_path(document, path), self.collation) for path in self.by)
        ranks = {one: rank for rank, one in enumerate(sorted(set(keys.values())))}
        by_segment = np.array([ranks[keys[key]] for key in shared.keys], dtype=np.int64)
        return by_segment[batch.segments]

    def _made(
        self, times: Positions, partitions: Positions, starts: Positions
    ) -> tuple[tuple[Positions, Positions, Positions], Positions]:
        """The missing times, with numbers that put them and the rows in order, and the row that each takes its partition of."""
        stops = np.concatenate((starts[1:], [len(times)]))
        lows, ends = times[starts], times[stops - 1]
        if self.full:
            lows, ends = np.full_like(lows, times.min()), np.full_like(ends, times.max() + 1)
        elif self.low is not None and self.high is not None:
            lows, ends = np.full_like(lows, self.low), np.full_like(ends, self.high)
        grids = self._grids(lows, ends, len(times))
        counts = np.array([len(grid) for grid in grids], dtype=np.int64)
        found = np.concatenate(grids) if grids else np.zeros(0, dtype=np.int64)
        wheres = np.repeat(np.arange(len(starts)), counts)
        least = min(int(times.min()), int(found.min()) if len(found) else 0)
        span = max(int(times.max()), int(found.max()) if len(found) else 0) - least + 1
        if span * (len(starts) + 1) >= 2**62:
            raise Unfit
        old = np.repeat(np.arange(len(starts)), stops - starts) * span + (times - least)
        new = wheres * span + (found - least)
        after = np.searchsorted(old, new, side="left")
        fresh = old[np.minimum(after, len(old) - 1)] != new
        found, new, wheres, after = found[fresh], new[fresh], wheres[fresh], after[fresh]
        if len(found) > self.made_max:
            # That is an error, which rows tell when they come to it.
            raise Unfit
        # Before a row, a partition is that of the row; behind the last one that of the first.
        owners = np.where(after < stops[wheres], after, starts[wheres])
        return (found, new, old), owners

    def _grids(self, lows: Positions, ends: Positions, rows: int) -> list[Positions]:
        """The times from each low, up to and without each end."""
        length = FIXED_MS.get(self.unit)
        shortest = self.step * (length or _MONTH_MS * _MONTHS[self.unit])
        if shortest >= _TIMES_MAX or max(abs(int(lows.min())), abs(int(ends.max()))) >= _TIMES_MAX:
            raise Unfit
        counts = np.maximum(-((lows - ends) // shortest), 0)
        if int(counts.sum()) > 2 * (self.made_max + rows):
            raise Unfit
        known: dict[tuple[int, int], Positions] = {}
        grids = []
        for low, end, count in zip(lows.tolist(), ends.tolist(), counts.tolist(), strict=True):
            grid = known.get((low, end))
            if grid is None:
                if length is not None:
                    grid = low + np.arange(count, dtype=np.int64) * shortest
                else:
                    grid = self._of_months(low, end, count)
                known = {(low, end): grid}
            grids.append(grid)
        return grids

    def _of_months(self, low: int, end: int, count: int) -> Positions:
        dates = Column(BsonType.DATE, np.full(count + 1, low, dtype=np.int64))
        grid = dates_later(dates, self.unit, np.arange(count + 1, dtype=np.int64) * self.step)
        return grid[grid < end]

    def _new_rows(self, whole: ColumnBatch, times: Positions, segments: Positions) -> ColumnBatch:
        """Rows of these times, each with what tells its partition as a row of a segment has it."""
        shared = whole.shared
        used, inverse = np.unique(segments, return_inverse=True)
        templates, keys = [], []
        for segment in used.tolist():
            value = shared.values[segment]
            document = {} if value is MISSING or shared.name is None else {shared.name: value}
            identity = self.identity_of(document)
            raw = encode(identity)
            templates.append(raw)
            keys.append(None if shared.name not in identity else _key(identity[shared.name]))
        runs = np.flatnonzero(np.concatenate(([True], inverse[1:] != inverse[:-1])))
        offsets = np.concatenate((runs, [len(times)])).astype(np.int64)
        time_field = whole.time_field
        kinds: NDArray[np.uint8] = np.full(len(times), BsonType.DATE, dtype=np.uint8)

        def column(name: str) -> Column:
            if name == time_field:
                return Column(BsonType.DATE, times)
            return Column(ABSENT, np.zeros(len(times), dtype=np.int64))

        def build(positions: Positions) -> RowBlock:
            fields = [(time_field, kinds[positions], times[positions], None)]
            return arrange_rows([templates], inverse[positions].astype(np.int64), fields)

        return ColumnBatch(
            column,
            offsets,
            Shared(shared.name, [keys[at] for at in inverse[runs].tolist()], shared.of),
            build,
            time_field=time_field,
            time_bounds=(np.minimum.reduceat(times, runs), np.maximum.reduceat(times, runs)),
        )


def _key(value: Any) -> bytes:
    """A value as the keys of shared fields are: its type byte and its bytes."""
    raw = encode({"": value})
    return raw[4:5] + raw[6:-1]


def _by_time(codes: Positions, times: Positions) -> tuple[Positions, Positions]:
    """The rows by partition and time, and where partitions begin."""
    order: Positions = np.argsort(codes, kind="stable")
    found, moved = codes[order], times[order]
    begins = np.concatenate(([True], found[1:] != found[:-1]))
    if not ((moved[1:] >= moved[:-1]) | begins[1:]).all():
        order = np.lexsort((times, codes)).astype(np.int64)
    return order, np.flatnonzero(begins).astype(np.int64)
