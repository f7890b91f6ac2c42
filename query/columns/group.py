"""`$group` over columns: rows are cut into runs of one group, and each accumulator takes all runs at a time.

Results are those of the row engine, to the last bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ...common.ordering import order_key
from ...common.values import Document
from ..accumulators.base import Accumulator, State
from ..expression.base import Constant, Expression, FieldPath
from .batch import ABSENT, ColumnBatch
from .computed import can_compute
from .gathering import Ends, Extremes, Gathering, Source, Sums
from .keys import CODED, GroupKeys, KeyPart, key_parts

_UNSTEADY: Final = ("$rand", "$meta", "$function", "$getField", "$toHashedIndexKey")
_GROUP_BYTES: Final = 400
_STATE_BYTES: Final = 120


class Table(Protocol):
    """The groups as the row engine keeps them."""

    def states(self, key: Any, value: Any) -> Sequence[State]:
        """The states of a group, begun where it is new."""


@dataclass(slots=True)
class ColumnGroup:
    """A `$group` that columns can do: its key in parts, and for each accumulator its name and what it reads.

    What is read is a column, what is computed of columns, or the whole number that is added for every row.
    """

    parts: list[KeyPart]
    collation: Any
    time_field: str
    inputs: list[tuple[str, Source | int]]

    def begin(self, memory_bytes_max: int) -> "ColumnGrouping":
        """A run of it."""
        return ColumnGrouping(self, memory_bytes_max)


class ColumnGrouping:
    """The groups of a stage as far as they came in columns."""

    def __init__(self, group: ColumnGroup, memory_bytes_max: int) -> None:
        self._group = group
        self._groups_max = max(memory_bytes_max // (_GROUP_BYTES + _STATE_BYTES * len(group.inputs)), 1)
        self._columns = [name for part in group.parts for name in part.columns]
        self._keys = GroupKeys(group.parts, group.collation, group.time_field)
        self._gatherings = self._begin()

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self._keys.values)

    @property
    def keys(self) -> Sequence[Any]:
        """The keys of the groups."""
        return self._keys.values

    @property
    def full(self) -> bool:
        """Whether the groups take as much memory as they may."""
        return len(self) > self._groups_max

    def gather(self, batch: ColumnBatch, variables: Mapping[str, Any]) -> bool:
        """Add the rows of a batch to the groups; False, and nothing done, where the types of its columns forbid it."""
        if not len(batch):
            return True
        if not all(batch.column(name).kind in (ABSENT, *CODED) for name in self._columns):
            return False
        if not all(gathering.fits(batch) for gathering in self._gatherings):
            return False
        runs = self._keys.runs(batch, variables)
        if runs is None:
            return False
        for gathering in self._gatherings:
            gathering.add(batch, runs, len(self._keys.values))
        return True

    def rows(self, names: Sequence[str], start: int, stop: int) -> list[Document]:
        """The groups of these slots, under the names of `_id` and of the accumulators."""
        results = [gathering.results(start, stop) for gathering in self._gatherings]
        keys = self._keys.values[start:stop]
        return [dict(zip(names, row, strict=True)) for row in zip(keys, *results, strict=True)]

    def hand_over(self, table: Table) -> None:
        """Give all groups to the row engine's table, and begin anew."""
        collation = self._group.collation
        for slot, value in enumerate(self._keys.values):
            key = value if type(value) is str and collation is None else order_key(value, collation)
            for state, gathering in zip(table.states(key, value), self._gatherings, strict=True):
                state.absorb(gathering.kept(slot))
        self._keys.clear()
        self._gatherings = self._begin()

    def _begin(self) -> list[Gathering]:
        return [_gathering(name, source) for name, source in self._group.inputs]


def _gathering(name: str, source: Source | int) -> Gathering:
    if isinstance(source, int) or name in ("$sum", "$avg"):
        return Sums(source, name == "$avg")
    if name in ("$min", "$max"):
        return Extremes(source, name == "$max")
    return Ends(source, name == "$last")


def column_group(
    key: Expression,
    accumulators: Sequence[Accumulator],
    collation: Any,
    *,
    time_field: str,
    shared_field: str | None,
) -> ColumnGroup | None:
    """The `$group` over columns; None where it reads anything that arrays do not hold, or gathers what they cannot."""
    if any(name in str(key.serialize()) for name in _UNSTEADY):
        return None
    parts = key_parts(key, time_field, shared_field)
    if parts is None:
        return None
    inputs: list[tuple[str, Source | int]] = []
    for accumulator in accumulators:
        source = _input(accumulator, shared_field)
        if source is None:
            return None
        inputs.append((accumulator.name, source))
    return ColumnGroup(parts, collation, time_field, inputs)


def _input(accumulator: Accumulator, shared_field: str | None) -> Source | int | None:
    expression = accumulator.expression
    if isinstance(expression, Constant):
        whole = type(expression.value) is int and abs(expression.value) < 2**31
        return expression.value if whole and accumulator.name == "$sum" else None
    if accumulator.name not in ("$sum", "$avg", "$min", "$max", "$first", "$last"):
        return None
    if not can_compute(expression, shared_field):
        return None
    return str(expression.path[0]) if isinstance(expression, FieldPath) else expression
