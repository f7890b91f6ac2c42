"""Accumulators that choose a few rows of a group: columns tell which, and the row engine's own states take these alone.

`$topN` of a group takes no row that is not among the first of its group within its batch, `$addToSet` no value twice in a batch.
What states keep, how ties fall and what results look like is therefore theirs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.values import MISSING, BsonType
from ..accumulators.base import Accumulator, State, check_bytes, value_bytes
from ..accumulators.parse import WithFields
from ..expression.base import ArrayExpression, Constant, Expression, FieldPath, ObjectExpression
from ..sort import SortPattern, parse_sort
from .batch import ABSENT, MIXED, Column, ColumnBatch
from .computed import absent_value, can_compute, computed
from .gathering import Gathering
from .keys import Runs
from .operands import Unfit
from .top import Key, column_at, sort_keys, turned
from .zones import distinct

Rows = NDArray[np.int64]

_COUNT_MAX: Final = 10_000
_VALUE_BYTES: Final = 40


class Chooser(ABC):
    """Which rows of a batch can matter to an accumulator."""

    @abstractmethod
    def fits(self, batch: ColumnBatch) -> bool:
        """Whether columns can tell."""

    @abstractmethod
    def rows(self, batch: ColumnBatch, runs: Runs) -> Rows:
        """The rows, ascending."""


def _slots(runs: Runs) -> Rows:
    return np.repeat(runs.slots, runs.stops - runs.starts)


def _leading(slots: Rows, order: Rows, count: int, *, last: bool) -> Rows:
    """Of rows in an order of their slots, the first (or last) few of each slot, ascending."""
    ordered = slots[order]
    borders = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = np.concatenate(([0], borders))
    lengths = np.diff(np.concatenate((starts, [len(ordered)])))
    ranks = np.arange(len(ordered)) - np.repeat(starts, lengths)
    if last:
        ranks = np.repeat(lengths, lengths) - 1 - ranks
    return np.sort(order[ranks < count])


class _Ends(Chooser):
    """The first or last few rows."""

    def __init__(self, count: int, *, last: bool) -> None:
        self._count = count
        self._last = last

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Chooser.fits`."""
        return True

    def rows(self, batch: ColumnBatch, runs: Runs) -> Rows:
        """See `Chooser.rows`."""
        lengths = np.minimum(runs.stops - runs.starts, self._count)
        # No run gives more than its own first or last rows.
        starts = runs.stops - lengths if self._last else runs.starts
        slots = np.repeat(runs.slots, lengths)
        firsts = np.cumsum(lengths) - lengths
        rows: Rows = np.arange(len(slots)) + np.repeat(starts - firsts, lengths)
        if len(runs.slots) < 2:
            return rows
        picked: Rows = rows[_leading(slots, np.argsort(slots, kind="stable"), self._count, last=self._last)]
        return picked


class _Sorted(Chooser):
    """The first or last few rows in an order."""

    def __init__(self, pattern: SortPattern, count: int, *, last: bool, collated: bool) -> None:
        self._pattern = pattern
        self._count = count
        self._last = last
        self._collated = collated

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Chooser.fits`."""
        return self._keys(batch) is not None

    def rows(self, batch: ColumnBatch, runs: Runs) -> Rows:
        """See `Chooser.rows`."""
        slots = _slots(runs)
        keys = self._keys(batch) or []
        return _leading(slots, np.lexsort((*keys[::-1], slots)), self._count, last=self._last)

    def _keys(self, batch: ColumnBatch) -> list[Key] | None:
        keys: list[Key] = []
        for path, part in zip(self._pattern.fields, self._pattern.parts, strict=True):
            column = column_at(batch, path)
            made = None if column is None else sort_keys(column, collated=self._collated)
            if made is None:
                return None
            keys += made if part.ascending else [turned(key) for key in made]
        return keys


class _Extremes(Chooser):
    """The least or greatest few values; of equal ones the first."""

    def __init__(self, source: Expression, count: int, *, greatest: bool, collated: bool) -> None:
        self._source = source
        self._count = count
        self._greatest = greatest
        self._collated = collated

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Chooser.fits`."""
        try:
            return sort_keys(_made(self._source, batch), collated=self._collated) is not None
        except Unfit:
            return False

    def rows(self, batch: ColumnBatch, runs: Runs) -> Rows:
        """See `Chooser.rows`."""
        column = _made(self._source, batch)
        keys = sort_keys(column, collated=self._collated) or []
        if self._greatest:
            keys = [turned(key) for key in keys]
        here = _present(column, len(batch))
        slots = _slots(runs)[here]
        order = np.lexsort((*(key[here] for key in keys[::-1]), slots))
        return here[_leading(slots, order, self._count, last=False)] if len(here) else here


class _Different(Chooser):
    """A row for each value that a group has."""

    def __init__(self, source: Expression) -> None:
        self._source = source

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Chooser.fits`."""
        return _with_absent(self._source, batch) is not None

    def rows(self, batch: ColumnBatch, runs: Runs) -> Rows:
        """See `Chooser.rows`."""
        column = _made(self._source, batch)
        slots = _slots(runs)
        if column.kind == ABSENT:
            codes = np.zeros(len(batch), dtype=np.int64)
        else:
            values = column.values
            bits = values.view(np.int64) if column.kind == BsonType.DOUBLE else values.astype(np.int64)
            codes = distinct(bits)[2]
            if column.present is not None:
                codes = np.where(column.present, codes + 1, 0)
        return np.sort(distinct(slots * (int(codes.max()) + 1) + codes)[1])


def _made(source: Expression, batch: ColumnBatch) -> Column:
    return batch.made(id(source), lambda batch: computed(source, batch))


def _present(column: Column, rows: int) -> Rows:
    if column.kind == ABSENT:
        return np.zeros(0, dtype=np.int64)
    return np.arange(rows) if column.present is None else np.flatnonzero(column.present)


def _with_absent(source: Expression, batch: ColumnBatch) -> tuple[Column, Any] | None:
    """The values, and what rows without one have: null or missing; None where rows have to tell."""
    try:
        column = _made(source, batch)
        whole = column.kind != ABSENT and column.present is None
        return column, None if whole else absent_value(source, column)
    except Unfit:
        return None


class Chosen(Gathering):
    """An accumulator of which columns choose the rows."""

    def __init__(
        self, begin: Callable[[], State], chooser: Chooser, fields: Sequence[str] | None, checked: Sequence[Expression]
    ) -> None:
        """Prepare to gather.

        Args:
            fields: the top-level fields that are read; None for whole documents.
            checked: what might fail for rows that are not chosen.
        """
        self._begin = begin
        self._chooser = chooser
        self._fields = fields
        self._checked = checked
        self._states: list[State] = []
        self._held = 0
        self._stale = False

    @property
    def held_bytes(self) -> int:
        """See `Gathering.held_bytes`."""
        if self._stale:
            self._held = sum(state.size_bytes() for state in self._states)
            self._stale = False
        return self._held

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Gathering.fits`."""
        names = [name for name in self._fields or () if name != batch.shared.name]
        if any(batch.column(name).kind == MIXED for name in names):
            return False
        try:
            for expression in self._checked:
                _made(expression, batch)
        except Unfit:
            return False
        return self._chooser.fits(batch)

    def add(self, batch: ColumnBatch, runs: Runs) -> None:
        """See `Gathering.add`."""
        self._states += [self._begin() for _ in range(runs.groups - len(self._states))]
        rows = self._chooser.rows(batch, runs)
        places = np.searchsorted(runs.starts, rows, side="right") - 1
        documents = batch.documents_of(rows, self._fields)
        for slot, document in zip(runs.slots[places].tolist(), documents, strict=True):
            self._states[slot].add(document, {})
        self._stale = True

    def results(self, start: int, stop: int) -> list[Any]:
        """See `Gathering.results`."""
        return [state.result() for state in self._states[start:stop]]

    def kept(self, slot: int) -> Any:
        """See `Gathering.kept`."""
        return self._states[slot].kept()


class Pushed(Gathering):
    """`$push` of what columns hold."""

    def __init__(self, source: Expression) -> None:
        self._source = source
        self._values: list[list[Any]] = []
        self._bytes: list[int] = []
        self._held = 0

    @property
    def held_bytes(self) -> int:
        """See `Gathering.held_bytes`."""
        return self._held

    def fits(self, batch: ColumnBatch) -> bool:
        """See `Gathering.fits`."""
        return _with_absent(self._source, batch) is not None

    def add(self, batch: ColumnBatch, runs: Runs) -> None:
        """See `Gathering.add`."""
        found = _with_absent(self._source, batch)
        assert found is not None
        column, absent = found
        new = runs.groups - len(self._values)
        self._values += [[] for _ in range(new)]
        self._bytes += [0] * new
        values = column.listed(len(batch), absent)
        gaps = column.kind == ABSENT or column.present is not None
        text = column.kind == BsonType.STRING
        for start, stop, slot in zip(runs.starts.tolist(), runs.stops.tolist(), runs.slots.tolist(), strict=True):
            taken = values[start:stop]
            if gaps and absent is MISSING:
                taken = [value for value in taken if value is not MISSING]
            self._values[slot] += taken
            size = sum(map(value_bytes, taken)) if text else _VALUE_BYTES * len(taken)
            self._bytes[slot] += size
            self._held += size
            check_bytes("$push", self._bytes[slot])

    def results(self, start: int, stop: int) -> list[Any]:
        """See `Gathering.results`."""
        return self._values[start:stop]

    def kept(self, slot: int) -> Any:
        """See `Gathering.kept`."""
        return self._values[slot]


def _parts(expression: Expression, shared_field: str | None) -> list[Expression] | None:
    """What of an expression has to be computed for all rows, since it might fail; None where columns cannot."""
    match expression:
        case Constant():
            return []
        case FieldPath():
            return [] if expression.variable in ("CURRENT", "ROOT") else None
        case ObjectExpression() | ArrayExpression():
            found: list[Expression] = []
            for child in expression.children():
                parts = _parts(child, shared_field)
                if parts is None:
                    return None
                found += parts
            return found
    return [expression] if can_compute(expression, shared_field) else None


def chosen(accumulator: Accumulator, collation: Any, shared_field: str | None) -> Callable[[], Gathering] | None:
    """What makes the states of an accumulator that chooses rows; None where columns cannot tell which."""
    name, expression, shown = accumulator.name, accumulator.expression, accumulator.shown
    begin: Callable[[], State] = lambda: accumulator.begin({})  # noqa: E731
    plain = can_compute(expression, shared_field)
    if name == "$push":
        return (lambda: Pushed(expression)) if plain else None
    count = 1
    if isinstance(shown, dict) and "n" in shown and name.endswith("N"):
        fixed = shown["n"].get("$const") if isinstance(shown["n"], dict) else None
        if type(fixed) is not int or fixed > _COUNT_MAX:
            return None
        count = fixed
    inner = expression.inner if isinstance(expression, WithFields) else expression
    checked = _parts(inner, shared_field)
    if checked is None:
        return None
    collated = collation is not None
    chooser: Chooser
    match name:
        case "$first" | "$firstN" | "$last" | "$lastN":
            chooser = _Ends(count, last=name.startswith("$last"))
        case "$minN" | "$maxN" if plain:
            chooser = _Extremes(expression, count, greatest=name == "$maxN", collated=collated)
        case "$top" | "$topN" | "$bottom" | "$bottomN":
            pattern = parse_sort(shown["sortBy"])
            if not _sortable(pattern, shared_field):
                return None
            chooser = _Sorted(pattern, count, last=name.startswith("$bottom"), collated=collated)
        case "$addToSet" if plain:
            chooser = _Different(expression)
        case _:
            return None
    paths = expression.fields()
    fields = None if paths is None else sorted({path.partition(".")[0] for path in paths})
    return lambda: Chosen(begin, chooser, fields, checked)


def _sortable(pattern: SortPattern, shared_field: str | None) -> bool:
    return not pattern.metadata and all(
        "." not in path or path.partition(".")[0] == shared_field for path in pattern.fields
    )
