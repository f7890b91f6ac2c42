"""Stages that need all rows before the first can go out, over columns: what they hold, and in which order."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ..columns.arranged import Arranged, arranged, gathered, partition_codes
from ..columns.batch import ColumnBatch
from ..columns.keys import KeyPart
from ..columns.operands import Unfit
from ..columns.top import column_at
from ..plan.batches import Batch
from ..plan.nodes import NodeStats
from ..sort import SortPattern
from .window_columns import ArrayFunction, Rows, WindowRows
from .window_frames import Frame

Plan = TypeVar("Plan")

_ROW_BYTES: Final = 100
"""About what a row takes while it is held."""
PART_ROWS: Final = 4096
"""How many rows are built at a time."""


@dataclass(slots=True)
class ColumnWindows:
    """A `$setWindowFields` that columns can do: partitions, their order, and the fields with their windows."""

    by: list[KeyPart] | None
    order: SortPattern | None
    collation: Any
    fields: list[tuple[str, Frame, ArrayFunction]]

    def rows(self, batches: Sequence[ColumnBatch], variables: Mapping[str, Any]) -> Generator[None, None, Arranged]:
        """The rows in order, with the fields; breathes between the steps.

        Raises:
            Unfit: rows have to tell.
        """
        whole = gathered(batches)
        yield None
        codes = None if self.by is None else partition_codes(whole, self.by, self.collation, variables)
        rows = arranged(whole, codes, self.order, self.collation)
        yield None
        lengths = np.diff(np.concatenate((rows.starts, [len(rows)])))
        begins = np.repeat(rows.starts, lengths)
        ends = begins + np.repeat(lengths, lengths)
        path = "" if self.order is None or not self.order.parts else self.order.parts[0].path
        key = column_at(rows.batch, path) if path else None
        made = []
        edges: dict[Frame, tuple[Rows, Rows]] = {}
        for name, frame, function in self.fields:
            if frame not in edges:
                edges[frame] = frame.edges(key, rows.starts, begins, ends)
            lows, highs = edges[frame]
            windows = WindowRows(rows, begins, ends, lows, highs, key, self.collation is not None)
            made.append((name, function.field(windows)))
            yield None
        for name, field in made:
            rows.add(name, field)
        return rows


def can_arrange(order: SortPattern | None, shared_field: str | None) -> bool:
    """Whether columns hold what the rows are ordered by."""
    if order is None:
        return True
    return not order.metadata and all(
        "." not in path or path.partition(".")[0] == shared_field for path in order.fields
    )


class ColumnGathering(Generic[Plan]):
    """The batches of a source, held as long as they are columns and fit into memory.

    Attributes:
        plan: what can be done with the columns; None where rows have to be taken.
        held: the batches so far.
    """

    def __init__(
        self,
        plan: Callable[[str, str | None], Plan | None],
        source: Iterator[Batch | None],
        memory_bytes_max: int,
    ) -> None:
        """`plan` tells what columns can do, by the names of the time and of the shared field."""
        self._plan_of = plan
        self._source = source
        self._memory_bytes_max = memory_bytes_max
        self._ahead: list[Batch] = []
        self.plan: Plan | None = None
        self.held: list[ColumnBatch] = []

    def gather(self) -> Iterator[None]:
        """Take the batches, up to the first that cannot be held; breathes between them."""
        size = 0
        for batch in self._source:
            if batch is None or not len(batch):
                yield None
                continue
            if isinstance(batch, ColumnBatch) and not self.held:
                self.plan = self._plan_of(batch.time_field, batch.shared.name)
            if not isinstance(batch, ColumnBatch) or self.plan is None:
                break
            self.held.append(batch)
            size += _ROW_BYTES * len(batch)
            if size > self._memory_bytes_max:
                self.plan = None
                return
            yield None
        else:
            return
        self.plan = None
        self._ahead.append(batch)

    def through(
        self,
        compute: Callable[[Plan, list[ColumnBatch]], Generator[None, None, Arranged]],
        stats: NodeStats,
        *,
        gives_columns: bool,
    ) -> Generator[Batch | None, None, bool]:
        """Take the batches and hand on what columns make of them; false, and nothing handed on, where rows have to.

        Args:
            gives_columns: whether who comes next looks at columns.
        """
        yield from self.gather()
        if self.plan is None:
            return False
        try:
            made = yield from compute(self.plan, self.held)
        except Unfit:
            return False
        for part in made.parts(PART_ROWS):
            stats.advanced += len(part)
            yield part if gives_columns else part.as_rows()
            yield None
        stats.eof = True
        return True

    def batches(self) -> Iterator[Batch | None]:
        """All that was held, and all that is left of the source."""
        held: list[Batch] = [*self.held, *self._ahead][::-1]
        self.held, self._ahead = [], []
        while held:
            # What was looked at is kept by nobody.
            yield held.pop()
        yield from self._source
