"""Stages that choose and order rows: `$sort $limit $skip $sample`."""

import random
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN
from typing import Any, Final

from bson import Decimal128, Int64

from ...common.errors import Location
from ...common.numbers import is_number, truncated, whole_number
from ...common.values import Document, decode, type_name
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from ..sort import Sorter, SortPattern, parse_sort
from .base import Fields, PipelineContext, Stage, StageNode, StageParser, joined


class Sort(Stage):
    """`$sort`, with the limit of a `$limit` behind it."""

    name = "$sort"

    def __init__(self, pattern: SortPattern, collation: object, limit: int | None = None) -> None:
        self.pattern = pattern
        self.collation = collation
        self.limit = limit

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Sort":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise Location(15973, "the $sort key specification must be an object")
        if not spec:
            raise Location(15976, "$sort stage must have at least one sort key")
        return cls(parse_sort(spec), context.collation)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        shown: Document = {"sortKey": self.pattern.serialize()}
        if self.limit is not None:
            shown["limit"] = Int64(self.limit)
        return {self.name: shown}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _SortNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return joined(wanted, frozenset(self.pattern.fields))


class _SortNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, Sort)
        sorter = Sorter(
            stage.pattern,
            stage.collation,  # type: ignore[arg-type]
            limit=stage.limit,
            memory_bytes_max=run.sort_bytes_max,
            spill_folder=run.spill_folder,
            allow_disk_use=run.allow_disk_use,
            patient=True,
        )
        try:
            for batch in self.inputs[0].batches(run):
                if batch is not None:
                    metadata = batch.metadata
                    for position, document in enumerate(batch.documents()):
                        sorter.add(document, metadata=None if metadata is None else metadata[position])
                    yield from sorter.relieve()
                yield None
            chunk: list[Any] = []
            beside: list[dict[str, Any]] = []
            for row, metadata_of_row in sorter.results():
                chunk.append(row)
                beside.append(metadata_of_row or {})
                if len(chunk) >= run.batch_rows:
                    yield self._batch(chunk, beside)
                    chunk, beside = [], []
            if chunk:
                yield self._batch(chunk, beside)
            self.stats.eof = True
            self.stats.extra = {
                "totalDataSizeSortedBytesEstimate": Int64(sorter.bytes_sorted),
                "usedDisk": sorter.used_disk,
                "spills": Int64(sorter.spills),
            }
        finally:
            sorter.close()

    def _batch(self, rows: list[Any], beside: list[dict[str, Any]]) -> RowBatch:
        self.stats.advanced += len(rows)
        metadata = beside if any(beside) else None
        if isinstance(rows[0], bytes) and all(isinstance(row, bytes) for row in rows):
            return RowBatch(raws=rows, metadata=metadata)
        return RowBatch(documents=[decode(row) if isinstance(row, bytes) else row for row in rows], metadata=metadata)


def _amount(spec: Any, name: str, code: int, low: int) -> int:
    whole = whole_number(spec) if is_number(spec) else None
    if whole is None or whole < low or whole > 2**63 - 1:
        if not is_number(spec):
            raise Location(code, f"invalid argument to {name} stage: Expected a number in: {name}: {type_name(spec)}")
        if whole is None:
            raise Location(code, f"invalid argument to {name} stage: Expected an integer: {name}: {spec}")
        if low == 1 and whole == 0:
            raise Location(15958, "the limit must be positive")
        raise Location(code, f"invalid argument to {name} stage: Expected a non-negative number in: {name}: {spec}")
    return whole


class Limit(Stage):
    """`$limit`."""

    name = "$limit"

    def __init__(self, amount: int) -> None:
        self.amount = amount

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Limit":
        """Parse the operand."""
        return cls(_amount(spec, "$limit", 5107201, 1))

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: Int64(self.amount)}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _LimitNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return wanted


class _LimitNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        assert isinstance(self.of, Limit)
        left = self.of.amount
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            part = batch if len(batch) <= left else batch.slice(0, left)
            left -= len(part)
            self.stats.advanced += len(part)
            yield part
            if not left:
                break
        self.stats.eof = True


class Skip(Stage):
    """`$skip`."""

    name = "$skip"

    def __init__(self, amount: int) -> None:
        self.amount = amount

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Skip":
        """Parse the operand."""
        return cls(_amount(spec, "$skip", 5107200, 0))

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: Int64(self.amount)}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _SkipNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return wanted


class _SkipNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        assert isinstance(self.of, Skip)
        left = self.of.amount
        for batch in self.inputs[0].batches(run):
            if batch is None or len(batch) <= left:
                left -= 0 if batch is None else len(batch)
                yield None
                continue
            rest = batch.slice(left, len(batch)) if left else batch
            left = 0
            self.stats.advanced += len(rest)
            yield rest
        self.stats.eof = True


class Sample(Stage):
    """`$sample`: some rows at random, each at most once."""

    name = "$sample"

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Sample":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise Location(28745, "the $sample stage specification must be an object")
        for name, value in spec.items():
            if name != "size":
                raise Location(28748, f"unrecognized option to $sample: {name}")
            if not is_number(value):
                raise Location(28746, "size argument to $sample must be a number")
        if "size" not in spec:
            raise Location(28749, "$sample stage must specify a size")
        size = spec["size"]
        if isinstance(size, Decimal128) and size.to_decimal().is_finite():
            # A decimal is rounded where a double is cut.
            size = Decimal128(size.to_decimal().to_integral_value(ROUND_HALF_EVEN))
        whole = truncated(size)
        if whole is None or whole <= 0:
            raise Location(28747, "size argument to $sample must be a positive integer")
        return cls(whole)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: {"size": Int64(self.size)}}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _SampleNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return wanted


class _SampleNode(StageNode):
    """A reservoir: after any number of rows, each of them is in it with the same probability."""

    def batches(self, run: Run) -> Iterator[Batch | None]:
        assert isinstance(self.of, Sample)
        size = self.of.size
        kept: list[bytes] = []
        seen = 0
        for batch in self.inputs[0].batches(run):
            for raw in () if batch is None else batch.raws():
                seen += 1
                if len(kept) < size:
                    kept.append(raw)
                elif (place := random.randrange(seen)) < size:
                    kept[place] = raw
            yield None
        random.shuffle(kept)
        self.stats.advanced = len(kept)
        if kept:
            yield RowBatch(raws=kept)


STAGES: Final[dict[str, StageParser]] = {
    "$limit": Limit.parse,
    "$sample": Sample.parse,
    "$skip": Skip.parse,
    "$sort": Sort.parse,
}
