"""`$group` over columns: rows are cut into runs of one group, and each accumulator takes all runs at a time.

Results are those of the row engine, to the last bit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ...common.ordering import order_key
from ...common.values import Document
from ..accumulators.base import Accumulator, State
from ..accumulators.statistics import Percentiles
from ..expression.base import Constant, Expression
from .batch import ABSENT, ColumnBatch
from .choices import chosen
from .computed import can_compute, column_name
from .gathering import Ends, Extremes, Gathering, Ranks, Source, Spreads, Sums
from .keys import CODED, GroupKeys, KeyPart, key_parts
from .told import ToldBatch, TotalsWanted

_UNSTEADY: Final = ("$rand", "$meta", "$function", "$getField", "$toHashedIndexKey")
_GROUP_BYTES: Final = 400
_STATE_BYTES: Final = 120


class Table(Protocol):
    """The groups as the row engine keeps them."""

    def states(self, key: Any, value: Any) -> Sequence[State]:
        """The states of a group, begun where it is new."""


@dataclass(slots=True)
class ColumnGroup:
    """A `$group` that columns can do: its key in parts, and what makes the states of each accumulator."""

    parts: list[KeyPart]
    collation: Any
    time_field: str
    inputs: list[Callable[[], Gathering]]

    def begin(self, memory_bytes_max: int) -> "ColumnGrouping":
        """A run of it."""
        return ColumnGrouping(self, memory_bytes_max)

    def totals(self) -> TotalsWanted | None:
        """What buckets would have to tell of themselves, for none to be unpacked; None where it is never enough."""
        if any(part.columns or part.computes for part in self.parts):
            return None
        wanted = [make().wanted() for make in self.inputs]
        known = [one for one in wanted if one is not None]
        if len(known) < len(wanted):
            return None
        grains = [part.grain_ms for part in self.parts if part.grain_ms is not None]
        return TotalsWanted(
            sums=tuple({name: True for one in known for name in one.sums}),
            least=tuple({name: True for one in known for name in one.least}),
            greatest=tuple({name: True for one in known for name in one.greatest}),
            grain_ms=min(grains, default=None),
        )


class ColumnGrouping:
    """The groups of a stage as far as they came in columns."""

    def __init__(self, group: ColumnGroup, memory_bytes_max: int) -> None:
        self._group = group
        self._memory_bytes_max = memory_bytes_max
        self._group_bytes = _GROUP_BYTES + _STATE_BYTES * len(group.inputs)
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
        held = sum(gathering.held_bytes for gathering in self._gatherings)
        return len(self) * self._group_bytes + held > self._memory_bytes_max

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
            gathering.add(batch, runs)
        return True

    def gather_told(self, batch: ToldBatch, variables: Mapping[str, Any]) -> bool:
        """Add what buckets tell to the groups; False, and nothing done, where there are too many keys to number."""
        runs = self._keys.runs(batch.keys, variables)
        if runs is None:
            return False
        for gathering in self._gatherings:
            gathering.add_told(batch.totals, runs)
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
        return [make() for make in self._group.inputs]


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
    inputs: list[Callable[[], Gathering]] = []
    for accumulator in accumulators:
        make = _gathering(accumulator, shared_field) or chosen(accumulator, collation, shared_field)
        if make is None:
            return None
        inputs.append(make)
    return ColumnGroup(parts, collation, time_field, inputs)


def _gathering(accumulator: Accumulator, shared_field: str | None) -> Callable[[], Gathering] | None:
    """What makes the states of an accumulator over columns; None where it reads something else, or is not known here."""
    expression, name = accumulator.expression, accumulator.name
    if isinstance(expression, Constant):
        value = expression.value
        if type(value) is not int or abs(value) >= 2**31 or name != "$sum":
            return None
        return lambda: Sums(int(value), average=False)
    if not can_compute(expression, shared_field):
        return None
    source: Source = column_name(expression, shared_field) or expression
    match name:
        case "$sum" | "$avg":
            return lambda: Sums(source, average=name == "$avg")
        case "$min" | "$max":
            return lambda: Extremes(source, greatest=name == "$max")
        case "$first" | "$last":
            return lambda: Ends(source, last=name == "$last")
        case "$stdDevPop" | "$stdDevSamp":
            return lambda: Spreads(source, sample=name == "$stdDevSamp")
        case "$median" | "$percentile":
            state = accumulator.begin({})
            if isinstance(state, Percentiles):
                shares, single = state.shares, state.single
                return lambda: Ranks(source, shares, single)
    return None
