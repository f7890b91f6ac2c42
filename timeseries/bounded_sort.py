"""The stage `$_internalBoundedSort`: measurements in the order of (meta and) time, without gathering all of them first.

The buckets come in the order of their first times. A measurement can go out once no bucket that is still to come can hold
one that belongs before it: ascending, none holds a time before its own first time; descending, none a time later than its
first time and a span.
"""

import heapq
from collections.abc import Iterator
from typing import Any

from bson import DatetimeMS, Int64

from ..common.collation import Collation
from ..common.values import MISSING, Document, decode
from ..query.pipeline.base import Fields, Stage, StageNode, joined
from ..query.plan.batches import Batch, RowBatch
from ..query.plan.nodes import PlanNode, Run
from ..query.sort import Sorter, SortPattern
from .unpack import BucketBatch


class BoundedSort(Stage):
    """`$_internalBoundedSort`."""

    name = "$_internalBoundedSort"

    def __init__(
        self,
        pattern: SortPattern,
        collation: Collation | None,
        time_field: str,
        meta_field: str | None,
        span_ms: int,
        limit: int | None,
    ) -> None:
        """Prepare to sort.

        Args:
            pattern: paths within the meta field, then the time.
            span_ms: how much time a bucket covers at most.
            limit: how many rows are wanted; None for all.
        """
        self.pattern = pattern
        self.collation = collation
        self.time_field = time_field
        self.meta_field = meta_field
        self.offset_ms = 0 if pattern.parts[-1].ascending else span_ms
        self.limit = limit

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        bound = {"base": "min"}
        shown: Document = {"sortKey": self.pattern.serialize(), "bound": bound}
        if self.offset_ms:
            shown["bound"] = {**bound, "offsetSeconds": Int64(self.offset_ms // 1000)}
        return {self.name: {**shown, "limit": Int64(self.limit or 0)}}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _BoundedSortNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return joined(wanted, frozenset(self.pattern.fields))


class _BoundedSortNode(StageNode):
    """Holds the rows that others may still come before, in a heap; where these are too many, in a sorter that spills."""

    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, BoundedSort)
        pattern, collation = stage.pattern, stage.collation
        left = stage.limit
        heap: list[tuple[Any, int, bytes]] = []
        held = number = 0
        source = self.inputs[0].batches(run)
        for batch in source:
            if batch is None:
                yield None
                continue
            assert isinstance(batch, BucketBatch)
            bound = pattern.key(self._bound(stage, batch), None, collation)
            ready: list[bytes] = []
            while heap and heap[0][0] < bound:
                row = heapq.heappop(heap)[2]
                held -= len(row)
                ready.append(row)
            for document, raw in zip(batch.documents(), batch.raws(), strict=True):
                heapq.heappush(heap, (pattern.key(document, None, collation), number, raw))
                number += 1
                held += len(raw)
            if left is not None:
                ready = ready[:left]
                left -= len(ready)
            yield self._out(ready)
            if left == 0:
                return
            if held > run.memory_bytes_max:
                yield from self._spilled(heap, source, run, left)
                return
        rows = [row for _, _, row in sorted(heap, key=lambda entry: entry[:2])]
        rows = rows if left is None else rows[:left]
        for start in range(0, len(rows), run.batch_rows):
            yield self._out(rows[start : start + run.batch_rows])
        self.stats.eof = True

    def _spilled(
        self, heap: list[tuple[Any, int, bytes]], source: Iterator[Batch | None], run: Run, left: int | None
    ) -> Iterator[Batch | None]:
        """The rest in order, after all of it was read: too much of it overlaps to be kept in memory."""
        stage = self.of
        assert isinstance(stage, BoundedSort)
        sorter = Sorter(
            stage.pattern,
            stage.collation,
            limit=left,
            memory_bytes_max=run.memory_bytes_max,
            spill_folder=run.spill_folder,
            allow_disk_use=run.allow_disk_use,
        )
        try:
            while heap:
                sorter.add(decode(heap.pop()[2]))
                if len(heap) % 4096 == 0:
                    yield None
            for batch in source:
                for document in () if batch is None else batch.documents():
                    sorter.add(document)
                yield None
            rows: list[Any] = []
            for row, _ in sorter.results():
                rows.append(row)
                if len(rows) >= run.batch_rows:
                    yield self._out(rows)
                    rows = []
            yield self._out(rows)
            self.stats.eof = True
            self.stats.extra = {"usedDisk": sorter.used_disk, "spills": Int64(sorter.spills)}
        finally:
            sorter.close()

    def _out(self, rows: list[Any]) -> Batch | None:
        if not rows:
            return None
        self.stats.advanced += len(rows)
        if all(isinstance(row, bytes) for row in rows):
            return RowBatch(raws=rows)
        return RowBatch(documents=[decode(row) if isinstance(row, bytes) else row for row in rows])

    @staticmethod
    def _bound(stage: BoundedSort, bucket: BucketBatch) -> Document:
        """A measurement at the earliest place in the order that this bucket and those after it can fill."""
        time_ms = min(int(bucket.start) + stage.offset_ms, 2**63 - 1)
        made: Document = {stage.time_field: DatetimeMS(time_ms)}
        if stage.meta_field is not None and bucket.meta is not MISSING:
            made[stage.meta_field] = bucket.meta
        return made
