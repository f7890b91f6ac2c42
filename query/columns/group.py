"""`$group` over columns: rows are cut into runs of one group, and each accumulator takes a run at a time.

A key may be any expression of shared values (the meta of buckets), of columns of one type, and of the time as far as it does
not change within some minutes. It is evaluated once for each group of a batch, on a row that stands for all.
Results are those of the row engine, to the last bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from bson import DatetimeMS
from numpy.typing import NDArray

from ...common.ordering import order_key
from ...common.values import MISSING, BsonType, Document
from ..accumulators.base import Accumulator, State
from ..accumulators.choices import Extreme, First, Last
from ..accumulators.sums import Sum
from ..expression.base import Constant, Expression, FieldPath
from .batch import ABSENT, MIXED, Column, ColumnBatch

_NUMBERS: Final = (BsonType.DOUBLE, BsonType.INT32, BsonType.INT64)
_WHOLE: Final = (BsonType.INT32, BsonType.INT64)
_ORDERED: Final = (*_NUMBERS, BsonType.DATE)
_CODED: Final = (BsonType.INT32, BsonType.INT64, BsonType.DATE, BsonType.STRING, BsonType.BOOL)
_SECOND, _MINUTE, _QUARTER = 1000, 60_000, 900_000
_EVEN_OFFSETS_MS: Final = 63_072_000_000
"""1972: since then every time zone is some quarters of an hour from UTC."""
_SAFE_SUM: Final = 2**62
_STEADY: Final = frozenset(
    {
        "$year",
        "$month",
        "$dayOfMonth",
        "$dayOfWeek",
        "$dayOfYear",
        "$hour",
        "$week",
        "$isoWeek",
        "$isoWeekYear",
        "$isoDayOfWeek",
    }
)
_UNSTEADY: Final = ("$rand", "$meta", "$function", "$getField", "$toHashedIndexKey")


class Table(Protocol):
    """The groups, as `$group` keeps them."""

    def make_room(self, rows: int) -> None:
        """So many rows come next."""

    def group(self, key: Any, value: Any) -> Sequence[State]:
        """The states of a group, begun where it is new; they are its until the next `make_room`."""


@dataclass(slots=True)
class ColumnGroup:
    """A `$group` that columns can do.

    Attributes:
        shares: the key reads the shared field.
        time_grain_ms: within so much time (from a multiple of it) the key does not change; None where it reads no time.
        columns: the columns that the key reads.
        inputs: for each accumulator the column that it reads, or the whole number that it adds for every row.
    """

    key: Expression
    collation: Any
    shares: bool
    time_field: str
    time_grain_ms: int | None
    columns: list[str]
    inputs: list[tuple[str, str | int]]

    def gather(self, table: Table, batch: ColumnBatch, variables: Mapping[str, Any]) -> bool:
        """Add the rows of a batch to the groups; False, and nothing done, where the types of its columns forbid it."""
        if not len(batch):
            return True
        if not self._fits(batch):
            return False
        codes = self._codes(batch)
        if codes is None:
            return False
        borders = np.flatnonzero(np.diff(codes)) + 1
        order: NDArray[np.int64] | None = None
        if len(borders) * 4 <= len(codes):
            starts = np.concatenate(([0], borders))
            stops = np.concatenate((borders, [len(codes)]))
            table.make_room(len(starts))
            groups = self._groups(table, batch, variables, codes[starts], starts)
        else:
            # Groups take turns: the rows of each are brought together, in their order.
            met, firsts, found = np.unique(codes, return_index=True, return_inverse=True)
            table.make_room(len(met))
            of_codes = self._groups(table, batch, variables, met, firsts)
            # Several codes may stand for one group.
            numbers: dict[int, int] = {}
            places = [numbers.setdefault(id(states), len(numbers)) for states in of_codes]
            rows = np.asarray(places, dtype=np.int64)[found]
            order = np.argsort(rows, kind="stable")
            borders = np.flatnonzero(np.diff(rows[order])) + 1
            starts = np.concatenate(([0], borders))
            stops = np.concatenate((borders, [len(codes)]))
            by_place = dict(zip(places, of_codes, strict=True))
            groups = [by_place[place] for place in range(len(numbers))]
        for number, (name, source) in enumerate(self.inputs):
            states = [states_of[number] for states_of in groups]
            if isinstance(source, int):
                for state, rows in zip(states, (stops - starts).tolist(), strict=True):
                    assert isinstance(state, Sum)
                    state.add_whole(source * rows, rows, wide=False)
                continue
            column = batch.column(source)
            _feed(name, column if order is None else column.select(order), starts, stops, states)
        return True

    def _fits(self, batch: ColumnBatch) -> bool:
        for name, source in self.inputs:
            if isinstance(source, str):
                kind = batch.column(source).kind
                if kind == MIXED or (name in ("$min", "$max") and kind not in (ABSENT, *_ORDERED)):
                    return False
        return all(batch.column(name).kind in (ABSENT, *_CODED) for name in self.columns)

    def _codes(self, batch: ColumnBatch) -> NDArray[np.int64] | None:
        """A number for each row, equal where the key is; None where there would be too many."""
        codes = np.zeros(len(batch), dtype=np.int64)
        width = 1
        parts: list[NDArray[np.int64]] = []
        if self.shares:
            parts.append(batch.shared.numbers[batch.segments])
        if self.time_grain_ms is not None:
            times = batch.column(self.time_field).values
            grain = self.time_grain_ms if times.min() >= _EVEN_OFFSETS_MS else _SECOND
            parts.append(times // grain)
        for name in self.columns:
            column = batch.column(name)
            if column.kind != ABSENT:
                _, found = np.unique(column.values, return_inverse=True)
                parts.append(found if column.present is None else np.where(column.present, found + 1, 0))
        for part in parts:
            part = part - part.min()
            span = int(part.max()) + 1
            if width * span >= _SAFE_SUM:
                return None
            codes = codes * span + part
            width *= span
        return codes

    def _groups(
        self,
        table: Table,
        batch: ColumnBatch,
        variables: Mapping[str, Any],
        codes: NDArray[np.int64],
        firsts: NDArray[np.int64],
    ) -> list[Sequence[State]]:
        """The states of each run, groups begun in the order of their first rows."""
        known: dict[int, Sequence[State]] = {}
        runs = list(zip(codes.tolist(), firsts.tolist(), strict=True))
        segments = batch.segments
        for code, row in sorted(runs, key=lambda run: run[1]):
            if code in known:
                continue
            document: Document = {}
            if self.time_grain_ms is not None:
                document[self.time_field] = DatetimeMS(int(batch.column(self.time_field).values[row]))
            if self.shares and batch.shared.name is not None:
                document[batch.shared.name] = batch.shared.values[int(segments[row])]
            for name in self.columns:
                document[name] = batch.column(name).value(row)
            value = self.key.evaluate({name: item for name, item in document.items() if item is not MISSING}, variables)
            value = None if value is MISSING else value
            key = value if type(value) is str and self.collation is None else order_key(value, self.collation)
            known[code] = table.group(key, value)
        return [known[code] for code, _ in runs]


def column_group(
    key: Expression,
    accumulators: Sequence[Accumulator],
    collation: Any,
    *,
    time_field: str,
    shared_field: str | None,
) -> ColumnGroup | None:
    """The `$group` over columns; None where it reads anything that arrays do not hold, or gathers what they cannot."""
    fields = key.fields()
    shown = key.serialize()
    if fields is None or any(name in str(shown) for name in _UNSTEADY):
        return None
    shares, columns, grain = False, [], None
    for path in sorted(fields):
        if shared_field is not None and (path == shared_field or path.startswith(shared_field + ".")):
            shares = True
        elif path == time_field:
            found = _grain(shown, time_field)
            if found is None:
                return None
            grain = int(found)
        elif "." in path:
            return None
        else:
            columns.append(path)
    inputs: list[tuple[str, str | int]] = []
    for accumulator in accumulators:
        source = _input(accumulator, shared_field)
        if source is None:
            return None
        inputs.append((accumulator.name, source))
    return ColumnGroup(key, collation, shares, time_field, grain, columns, inputs)


def _input(accumulator: Accumulator, shared_field: str | None) -> str | int | None:
    expression = accumulator.expression
    if isinstance(expression, Constant):
        whole = type(expression.value) is int and abs(expression.value) < 2**31
        return expression.value if whole and accumulator.name == "$sum" else None
    if accumulator.name not in ("$sum", "$avg", "$min", "$max", "$first", "$last"):
        return None
    if not isinstance(expression, FieldPath) or expression.variable != "CURRENT" or len(expression.path) != 1:
        return None
    name = str(expression.path[0])
    return None if name == shared_field else name


def _grain(shown: Any, time_field: str) -> float | None:
    """How much time an expression in its normal form takes as one; infinite without the time, None where it takes each apart."""
    if isinstance(shown, str):
        return None if shown == f"${time_field}" else float("inf")
    if isinstance(shown, list):
        return _least([_grain(item, time_field) for item in shown])
    if not isinstance(shown, dict) or "$const" in shown:
        return float("inf")
    if len(shown) == 1:
        ((operator, operand),) = shown.items()
        own = _own_grain(operator, operand, time_field)
        if own is not None:
            return own
    return _least([_grain(item, time_field) for item in shown.values()])


def _own_grain(operator: str, operand: Any, time_field: str) -> float | None:
    """The same of an operator on the time itself; None where it is none of those that are known."""
    if isinstance(operand, list) and len(operand) == 1:
        operand = operand[0]
    if operand == f"${time_field}":
        operand = {"date": operand}
    if not isinstance(operand, dict) or operand.get("date") != f"${time_field}":
        return None
    if not all(isinstance(item, dict) and "$const" in item for name, item in operand.items() if name != "date"):
        return None
    if operator in _STEADY:
        return _QUARTER
    if operator in ("$minute", "$second"):
        return _MINUTE if operator == "$minute" else _SECOND
    if operator == "$dateTrunc":
        unit = operand.get("unit", {}).get("$const")
        if unit == "millisecond":
            return None
        return {"second": _SECOND, "minute": _MINUTE}.get(str(unit), _QUARTER)
    return None


def _least(found: list[float | None]) -> float | None:
    known = [grain for grain in found if grain is not None]
    return None if len(known) != len(found) else min(known, default=float("inf"))


def _feed(
    name: str, column: Column, starts: NDArray[np.int64], stops: NDArray[np.int64], states: Sequence[State]
) -> None:
    """Give each state its run of the column."""
    if name in ("$first", "$last"):
        for state, start, stop in zip(states, starts.tolist(), stops.tolist(), strict=True):
            if isinstance(state, First):
                state.take(column.value(start))
            elif isinstance(state, Last):
                state.take(column.value(stop - 1))
        return
    if column.kind == ABSENT or (name in ("$sum", "$avg") and column.kind not in _NUMBERS):
        return
    values = column.values
    if column.present is not None:
        # Rows without a value are taken out, and with them the runs that have no other.
        before = np.concatenate(([0], np.cumsum(column.present)))
        starts, stops = before[starts], before[stops]
        some = stops > starts
        values = values[column.present]
        states = [state for state, kept in zip(states, some.tolist(), strict=True) if kept]
        starts, stops = starts[some], stops[some]
    if not len(starts):
        return
    if name in ("$min", "$max"):
        _feed_extremes(name, column, values, starts, stops, states)
    elif column.kind in _WHOLE:
        _feed_whole(column.kind, values, starts, stops, states)
    else:
        for state, start, stop in zip(states, starts.tolist(), stops.tolist(), strict=True):
            assert isinstance(state, Sum)
            state.add_doubles(values[start:stop])


def _feed_whole(
    kind: int, values: NDArray[Any], starts: NDArray[np.int64], stops: NDArray[np.int64], states: Sequence[State]
) -> None:
    counts = (stops - starts).tolist()
    largest = max(abs(int(values.max())), abs(int(values.min())))
    if largest * len(values) < _SAFE_SUM:
        totals = np.add.reduceat(values, starts).tolist()
    else:
        totals = [sum(values[start:stop].tolist()) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    for state, total, count in zip(states, totals, counts, strict=True):
        assert isinstance(state, Sum)
        state.add_whole(total, count, wide=kind == BsonType.INT64)


def _feed_extremes(
    name: str,
    column: Column,
    values: NDArray[Any],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    states: Sequence[State],
) -> None:
    # NaN is the least number: a minimum hands it on, a maximum only where there is nothing else.
    found = (np.minimum if name == "$min" else np.fmax if column.kind == BsonType.DOUBLE else np.maximum).reduceat(
        values, starts
    )
    for state, value, start, stop in zip(states, found, starts.tolist(), stops.tolist(), strict=True):
        assert isinstance(state, Extreme)
        if column.kind == BsonType.DOUBLE and value == 0:
            # Of equal zeros the first counts, whatever its sign.
            run = values[start:stop]
            value = run[np.flatnonzero(run == 0)[0]]
        state.take(column.converted(value))
