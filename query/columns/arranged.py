"""Batches of columns put together, and in another order: by partition, then by the order of a stage.

Rows stay where they are; what is kept is in which batch and at which place each lies. They are built when somebody wants them,
a batch at a time, with the fields that a stage has added.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.ordering import order_key
from ...common.values import MISSING, BsonType
from ...kernels import RowBlock, arrange_rows
from ..sort import SortPattern
from .batch import ABSENT, MIXED, Column, ColumnBatch, Positions, Shared
from .keys import GroupKeys, KeyPart
from .operands import Unfit
from .top import Key, column_at, sort_keys, turned

NULL: Final = int(BsonType.NULL)
_NO_TEXT: Final = 2**32 - 1


@dataclass(slots=True)
class Added:
    """A field that rows get: of each its type, `NULL` among them, and the bits of its value.

    Attributes:
        kinds: type bytes.
        bits: doubles by their bits, strings as places in `texts`, what is null as 0.
    """

    kinds: NDArray[np.uint8]
    bits: NDArray[np.int64]
    texts: list[str] | None = None

    def column(self) -> Column:
        """The same as a column; mixed where there are several types beside null."""
        here = self.kinds != NULL
        found = np.unique(self.kinds[here])
        rows = len(self.kinds)
        if not len(found):
            return Column(ABSENT, np.zeros(rows, dtype=np.int64), absent=None)
        if len(found) > 1:
            return Column(MIXED, np.zeros(rows, dtype=np.int64))
        kind = int(found[0])
        present = None if here.all() else here
        values: NDArray[Any] = self.bits
        if kind == BsonType.DOUBLE:
            values = self.bits.view(np.float64)
        elif kind == BsonType.BOOL:
            values = self.bits != 0
        elif kind == BsonType.STRING:
            values = np.where(here, self.bits, _NO_TEXT).astype(np.uint32)
        return Column(kind, values, present, self.texts if kind == BsonType.STRING else None, None)


def added(column: Column, rows: int, places: Positions | None = None) -> Added:
    """The values of a column as a field; `places` are the rows that they are taken of, -1 for none."""
    here = np.ones(rows, dtype=np.bool_) if places is None else places >= 0
    if column.kind == ABSENT:
        return Added(np.full(rows, NULL, dtype=np.uint8), np.zeros(rows, dtype=np.int64))
    values, present = column.values, column.present
    if places is not None:
        safe = np.where(here, places, 0)
        values = values[safe] if len(values) else np.zeros(rows, dtype=values.dtype)
        present = None if present is None else present[safe]
    if present is not None:
        here = here & present
    bits = values.view(np.int64) if column.kind == BsonType.DOUBLE else values.astype(np.int64)
    return Added(np.where(here, column.kind, NULL).astype(np.uint8), np.where(here, bits, 0), column.texts)


def joined(columns: Sequence[Column]) -> Column:
    """Columns one behind the other; mixed where their types differ."""
    rows = sum(len(column.values) for column in columns)
    if len(columns) == 1:
        return columns[0]
    kinds = {column.kind for column in columns} - {ABSENT}
    gaps = {id(column.absent) for column in columns if column.kind == ABSENT or column.present is not None}
    if len(kinds) > 1 or MIXED in kinds or len(gaps) > 1:
        return Column(MIXED, np.zeros(rows, dtype=np.int64))
    absent = next((column.absent for column in columns if id(column.absent) in gaps), MISSING)
    if not kinds:
        return Column(ABSENT, np.zeros(rows, dtype=np.int64), absent=absent)
    (kind,) = kinds
    texts: dict[str, int] = {}
    parts: list[NDArray[Any]] = []
    dtype = next(column.values.dtype for column in columns if column.kind == kind)
    for column in columns:
        if column.kind == ABSENT:
            parts.append(np.full(len(column.values), _NO_TEXT if kind == BsonType.STRING else 0, dtype=dtype))
        elif kind == BsonType.STRING:
            codes = [texts.setdefault(text, len(texts)) for text in column.texts or ()]
            moved = np.array([*codes, _NO_TEXT], dtype=np.uint32)
            parts.append(moved[np.minimum(column.values, len(codes))])
        else:
            parts.append(column.values)
    present = None
    if gaps:
        present = np.concatenate([_here(column) for column in columns])
    return Column(kind, np.concatenate(parts), present, list(texts) if kind == BsonType.STRING else None, absent)


def _here(column: Column) -> NDArray[np.bool_]:
    if column.kind == ABSENT:
        return np.zeros(len(column.values), dtype=np.bool_)
    return np.ones(len(column.values), dtype=np.bool_) if column.present is None else column.present


class Arranged:
    """Rows of several batches in an order, partition after partition.

    Attributes:
        batch: all rows in order, as a batch.
        starts: where each partition begins.
        changed: where a row differs from the one before it in partition or order.
    """

    def __init__(self, gathered: ColumnBatch, order: Positions, starts: Positions, changed: NDArray[np.bool_]) -> None:
        self.order = order
        self.starts = starts
        self.changed = changed
        self._gathered = gathered
        self._added: dict[str, Added] = {}
        self._kept: dict[str, Any] | None = None
        self._columns: dict[str, Column] = {}
        segments = gathered.segments[order]
        runs = np.flatnonzero(np.concatenate(([True], segments[1:] != segments[:-1])))
        self._offsets = np.concatenate((runs, [len(order)])).astype(np.int64)
        self._segments = segments[runs]
        self.batch = self._part(0, len(order))

    def __len__(self) -> int:
        return len(self.order)

    def add(self, name: str, field: Added) -> None:
        """Give the rows a field."""
        self._added[name] = field
        self._columns.pop(name, None)

    def keep(self, fields: dict[str, Any]) -> None:
        """Leave out of rows that are built what is not among these fields; see `arrange_rows`."""
        self._kept = fields

    def column(self, name: str) -> Column:
        """A column of all rows in order, those that were added among them."""
        column = self._columns.get(name)
        if column is None:
            given = self._added.get(name)
            if given is not None:
                column = given.column()
            else:
                column = self._gathered.column(name)
                column = column if column.kind in (ABSENT, MIXED) else column.select(self.order)
            self._columns[name] = column
        return column

    def parts(self, rows: int) -> Iterator[ColumnBatch]:
        """The rows in batches, with the fields that were added."""
        for start in range(0, len(self.order), rows):
            yield self._part(start, min(start + rows, len(self.order)))

    def _part(self, start: int, stop: int) -> ColumnBatch:
        low = int(np.searchsorted(self._offsets, start, side="right")) - 1
        high = int(np.searchsorted(self._offsets, stop, side="left"))
        offsets = np.clip(self._offsets[low : high + 1], start, stop) - start
        segments = self._segments[low:high]
        shared = self._gathered.shared
        keys = [shared.keys[segment] for segment in segments.tolist()]
        earliest, latest = self._gathered.time_bounds

        def column(name: str) -> Column:
            whole = self.column(name)
            if stop - start == len(self.order):
                return whole
            if whole.kind in (ABSENT, MIXED):
                return Column(whole.kind, np.zeros(stop - start, dtype=np.int64), absent=whole.absent)
            return whole.select(np.arange(start, stop))

        return ColumnBatch(
            column,
            offsets,
            Shared(shared.name, keys, shared.of),
            lambda positions: self._build(positions + start),
            time_field=self._gathered.time_field,
            time_bounds=(earliest[segments], latest[segments]),
        )

    def _build(self, positions: Positions) -> RowBlock:
        block = self._gathered.select(self.order[positions]).packed()[0]
        if not self._added and self._kept is None:
            return block
        fields = [
            (name, field.kinds[positions], field.bits[positions], field.texts) for name, field in self._added.items()
        ]
        return arrange_rows([block], np.arange(len(positions)), fields, self._kept)


def gathered(batches: Sequence[ColumnBatch]) -> ColumnBatch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0].as_segments()
    parts = [batch.as_segments() for batch in batches]
    firsts = np.cumsum([0, *(len(batch) for batch in parts)])
    bounds = [batch.bounds for batch in parts]
    offsets = [bound[:-1] + first for bound, first in zip(bounds, firsts.tolist(), strict=False) if bound is not None]
    keys = [key for batch in parts for key in batch.shared.keys]

    def build(positions: Positions) -> RowBlock:
        which = np.searchsorted(firsts, positions, side="right") - 1
        used = np.unique(which).tolist()
        if len(used) == 1:
            only: ColumnBatch = parts[used[0]]
            return only.select(positions - firsts[used[0]]).packed()[0]
        moved = np.empty(len(positions), dtype=np.int64)
        blocks, before = [], 0
        for at in used:
            places = np.flatnonzero(which == at)
            blocks.append(parts[at].select(positions[places] - firsts[at]).packed()[0])
            moved[places] = np.arange(before, before + len(places))
            before += len(places)
        return arrange_rows(blocks, moved)

    first = batches[0]
    return ColumnBatch(
        lambda name: joined([batch.column(name) for batch in parts]),
        np.concatenate((*offsets, firsts[-1:])).astype(np.int64),
        Shared(first.shared.name, keys, first.shared.of),
        build,
        time_field=first.time_field,
        time_bounds=(
            np.concatenate([batch.time_bounds[0] for batch in parts]),
            np.concatenate([batch.time_bounds[1] for batch in parts]),
        ),
    )


def partition_codes(
    batch: ColumnBatch, by: Sequence[KeyPart], collation: Any, variables: Mapping[str, Any]
) -> Positions:
    """The partition of each row, numbered in the order of their keys.

    Raises:
        Unfit: rows have to tell.
    """
    keys = GroupKeys(by, collation, batch.time_field)
    if not all(batch.column(name).kind != MIXED for part in by for name in part.columns):
        raise Unfit
    runs = keys.runs(batch, variables)
    if runs is None or any(isinstance(value, list) for value in keys.values):
        raise Unfit
    ranked = sorted(range(len(keys.values)), key=lambda slot: order_key(keys.values[slot], collation))
    ranks = np.empty(len(ranked), dtype=np.int64)
    ranks[ranked] = np.arange(len(ranked))
    return np.repeat(ranks[runs.slots], runs.stops - runs.starts)


def arranged(batch: ColumnBatch, partitions: Positions | None, pattern: SortPattern | None, collation: Any) -> Arranged:
    """The rows by the numbers of their partitions, then in an order; what is equal stays as it is.

    Raises:
        Unfit: rows have to tell.
    """
    rows = len(batch)
    codes = np.zeros(rows, dtype=np.int64) if partitions is None else partitions
    keyed = _sort_keys(batch, pattern, collated=collation is not None)
    order: Positions = np.arange(rows) if partitions is None else np.argsort(codes, kind="stable")
    found = codes[order]
    begins = np.concatenate(([True], found[1:] != found[:-1]))
    if not _ascends(keyed, order, begins):
        order = np.lexsort((*keyed[::-1], codes)).astype(np.int64)
    changed = begins.copy()
    for key in keyed:
        moved = key[order]
        changed[1:] |= moved[1:] != moved[:-1]
    return Arranged(batch, order.astype(np.int64), np.flatnonzero(begins).astype(np.int64), changed)


def _sort_keys(batch: ColumnBatch, pattern: SortPattern | None, *, collated: bool) -> list[Key]:
    keys: list[Key] = []
    if pattern is not None:
        for path, part in zip(pattern.fields, pattern.parts, strict=True):
            column = column_at(batch, path)
            made = None if column is None else sort_keys(column, collated=collated)
            if made is None:
                raise Unfit
            keys += made if part.ascending else [turned(key) for key in made]
    return keys


def _ascends(keys: Sequence[Key], order: Positions, begins: NDArray[np.bool_]) -> bool:
    """Whether rows in this order ascend within partitions by one key already; not looked at for several."""
    if not keys:
        return True
    if len(keys) > 1:
        return False
    moved = keys[0][order]
    return bool(((moved[1:] >= moved[:-1]) | begins[1:]).all())
