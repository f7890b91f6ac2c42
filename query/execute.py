"""Runs plans: pulls batches, lets other clients run in between, and watches time and kills.

A plan is stepped on the event loop in slices of a few milliseconds. Each slice has a snapshot of its own, which is closed
before anybody else gets a turn; an execution that waits for its next `getMore` holds nothing but its place.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..common.limits import BATCH_BYTES_MAX
from ..kernels import RowArray, RowBlock
from ..storage.engine import Engine, Snapshot
from ..storage.readers import Reader
from .plan.batches import Batch
from .plan.nodes import PlanNode, Run

SLICE_SECONDS: Final = 0.005


class Watch(Protocol):
    """Who may end an execution: raises what ends it."""

    def check(self) -> None:
        """Raise MaxTimeMSExpired or Interrupted where the operation has to end."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """How much sorts, groups and the input of facets may hold before they go to disk."""

    sort_bytes: int
    group_bytes: int
    facet_bytes: int


class Execution:
    """A plan on its way, from its first batch to its last."""

    def __init__(
        self,
        plan: PlanNode,
        engine: Engine,
        *,
        variables: Mapping[str, Any] | None = None,
        allow_disk_use: bool = True,
        spill_folder: str | None = None,
        guard: Callable[[], None] | None = None,
        limits: MemoryLimits | None = None,
    ) -> None:
        """`guard` is asked before each slice, and raises where the plan may not go on (its collection is gone)."""
        self.plan = plan
        self._guard = guard
        self._engine = engine
        self._run = Run(
            snapshot=_NO_SNAPSHOT,
            variables=dict(variables or {}),
            allow_disk_use=allow_disk_use,
            spill_folder=spill_folder,
        )
        if limits is not None:
            self._run.sort_bytes, self._run.group_bytes = limits.sort_bytes, limits.group_bytes
            self._run.facet_bytes = limits.facet_bytes
        self._batches: Iterator[Batch | None] | None = None
        self._batch: Batch | None = None
        self._left: RowBlock | list[bytes] = []
        self._at = 0
        self._stop = 0
        self._ended = False
        self._reader: Reader | None = None
        self._turn_began = time.monotonic()

    @property
    def exhausted(self) -> bool:
        """Whether everything has been handed out, as far as is known without another step."""
        return self._ended and self._at >= self._stop

    async def next_batch(
        self, rows_max: int | None = None, bytes_max: int = BATCH_BYTES_MAX, *, watch: Watch | None = None
    ) -> RowArray:
        """The next rows: at most `rows_max`, and `bytes_max` unless the first alone is larger.

        Raises:
            MongoError: what the plan, or `watch`, raises. The execution is closed then.
        """
        rows = RowArray(bytes_max)
        self._run.turn += 1
        self._run.rows_wanted = self._run.batch_rows if rows_max is None else min(rows_max, self._run.batch_rows)
        try:
            while rows_max is None or len(rows) < rows_max:
                if self._at >= self._stop:
                    if self._ended:
                        break
                    await self._refill(watch)
                    if self._batch is None:
                        # The end, or the end of what a tailable cursor finds for now.
                        break
                    self._left, self._at, self._stop = self._batch.packed()
                    self._batch = None
                    continue
                stop = self._stop if rows_max is None else min(self._stop, self._at + rows_max - len(rows))
                self._at += rows.take(self._left, self._at, stop)
                if self._at < stop:
                    break
        except BaseException:
            self.close()
            raise
        return rows

    async def next_rows(self, *, watch: Watch | None = None) -> Batch | None:
        """The next rows as the plan gives them, with their record keys; None at the end. Not beside `next_batch`.

        Raises:
            MongoError: as `next_batch`.
        """
        if self._ended:
            return None
        try:
            await self._refill(watch)
        except BaseException:
            self.close()
            raise
        batch, self._batch = self._batch, None
        return batch

    def close(self) -> None:
        """Let go of whatever the plan holds."""
        self._end()
        self._batch = None
        self._left = []
        self._at = self._stop = 0
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()  # type: ignore[attr-defined]

    def _end(self) -> None:
        """Nothing more is read."""
        self._ended = True
        reader, self._reader = self._reader, None
        if reader is not None:
            self._engine.readers.leave(reader)

    async def _refill(self, watch: Watch | None) -> None:
        """Step the plan until it has rows or ends, giving others their turn every few milliseconds."""
        if time.monotonic() - self._turn_began >= SLICE_SECONDS:
            # Rows that come without end are no reason to let nobody else run.
            await self._give_way()
        readers = self._engine.readers
        reader = self._reader
        if reader is None:
            reader = self._reader = readers.enter()
        while True:
            if readers.shut:
                await readers.opened()
            if watch is not None:
                watch.check()
            if self._guard is not None:
                self._guard()
            until = time.monotonic() + SLICE_SECONDS
            with self._engine.snapshot() as snapshot:
                snapshot.reads = reader.reads
                self._run.snapshot = snapshot
                try:
                    found = self._slice(until)
                finally:
                    self._run.snapshot = _NO_SNAPSHOT
            if found:
                return
            await self._give_way()

    async def _give_way(self) -> None:
        """Let other clients run."""
        await asyncio.sleep(0)
        self._turn_began = time.monotonic()

    def _slice(self, until: float) -> bool:
        """Step until there are rows or the plan has ended (True), or the time is over (False)."""
        self._run.caught_up = False
        if self._batches is None:
            self._batches = iter(self.plan.batches(self._run))
        while True:
            try:
                batch = next(self._batches)
            except StopIteration:
                self._end()
                self._batch = None
                return True
            if batch is not None and len(batch):
                self._batch = batch
                return True
            if self._run.caught_up:
                return True
            if time.monotonic() >= until:
                return False


class _NoSnapshot(Snapshot):
    """Stands where no snapshot is open, and says so to whoever asks."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """Refused."""
        raise AssertionError("a plan reads only while it is stepped")

    def scan(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Refused."""
        raise AssertionError("a plan reads only while it is stepped")

    def keys(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """Refused."""
        raise AssertionError("a plan reads only while it is stepped")


_NO_SNAPSHOT: Final = _NoSnapshot()


def run_all(
    plan: PlanNode, snapshot: Snapshot, *, variables: Mapping[str, Any] | None = None, batch_rows: int = 512
) -> Iterator[Batch]:
    """All batches of a plan under one snapshot or transaction, without a pause (inside write closures)."""
    run = Run(snapshot=snapshot, variables=dict(variables or {}), batch_rows=batch_rows)
    for batch in plan.batches(run):
        if batch is not None and len(batch):
            yield batch


async def run_to_end(execution: Execution, *, watch: Watch | None = None) -> list[bytes]:
    """Every row of an execution, however many."""
    rows: list[bytes] = []
    while not execution.exhausted:
        rows += (await execution.next_batch(bytes_max=1 << 62, watch=watch)).raws()
    return rows
