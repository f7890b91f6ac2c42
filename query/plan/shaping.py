"""The nodes that shape what was read: sort, skip, limit, project, count."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice

from bson import Int64

from ...catalog.collections import Collection
from ...catalog.documents import read_stats
from ...common.paths import get_path, split_path
from ...common.values import MISSING, Document
from ...kernels import narrow_documents
from ..match.base import MatchNode
from ..projection import Projection
from ..sort import Sorter, SortPattern
from .batches import Batch, Metadata, RowBatch
from .nodes import PlanNode, Run


class Sort(PlanNode):
    """All rows, in order; with a limit, the first of them."""

    stage = "SORT"

    def __init__(
        self, source: PlanNode, pattern: SortPattern, *, limit: int | None = None, collator: object = None
    ) -> None:
        super().__init__(source)
        self.pattern = pattern
        self.limit = limit
        self.collator = collator
        self._sorter: Sorter | None = None

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        sorter = self._sorter = Sorter(
            self.pattern,
            self.collator,  # type: ignore[arg-type]
            limit=self.limit,
            memory_bytes_max=run.sort_bytes_max,
            spill_folder=run.spill_folder,
            allow_disk_use=run.allow_disk_use,
            patient=True,
        )
        try:
            for batch in self.inputs[0].batches(run):
                if batch is not None:
                    self.stats.works += len(batch)
                    metadata, keys = batch.metadata, batch.record_keys
                    for position, (document, raw) in enumerate(zip(batch.documents(), batch.raws(), strict=True)):
                        beside = None if metadata is None else metadata[position]
                        if keys is not None:
                            beside = {**(beside or {}), "$recordKey": keys[position]}
                        sorter.add(document, raw=raw, metadata=beside)
                yield None
                yield from sorter.relieve()
            rows = sorter.results()
            while chunk := list(islice(rows, run.batch_rows)):
                self.stats.advanced += len(chunk)
                yield _batch_of(chunk)
            self.stats.eof = True
        finally:
            sorter.close()

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {
            "sortPattern": self.pattern.serialize(),
            "memLimit": 100 * 1024 * 1024,
            **({"limitAmount": self.limit} if self.limit else {}),
            "type": "simple",
        }

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        sorter = self._sorter
        return {
            "totalDataSizeSorted": 0 if sorter is None else sorter.bytes_sorted,
            "usedDisk": sorter is not None and sorter.used_disk,
            "spills": 0 if sorter is None else sorter.spills,
        }


def _batch_of(rows: list[tuple[bytes | Document, dict[str, object] | None]]) -> RowBatch:
    metadata = [dict(beside or {}) for _, beside in rows]
    keys = [beside.pop("$recordKey", None) for beside in metadata]
    record_keys = [bytes(key) for key in keys if isinstance(key, bytes)]
    return RowBatch(
        raws=[row for row, _ in rows if isinstance(row, bytes)],
        metadata=metadata if any(metadata) else None,
        record_keys=record_keys if len(record_keys) == len(rows) else None,
    )


class Skip(PlanNode):
    """All rows but the first."""

    stage = "SKIP"

    def __init__(self, source: PlanNode, amount: int) -> None:
        super().__init__(source)
        self.amount = amount

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        left = self.amount
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

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {"skipAmount": self.amount}


class Limit(PlanNode):
    """The first rows."""

    stage = "LIMIT"

    def __init__(self, source: PlanNode, amount: int) -> None:
        super().__init__(source)
        self.amount = amount

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        left = self.amount
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

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {"limitAmount": self.amount}


class Project(PlanNode):
    """Rows as a projection shows them."""

    def __init__(
        self,
        source: PlanNode,
        projection: Projection,
        matcher: MatchNode | None = None,
        *,
        index_paths: Sequence[str] = (),
        sort: SortPattern | None = None,
        covered: bool = False,
        ready: bool = False,
    ) -> None:
        """`index_paths` and `sort` are for projections that show the index key or the sort key.

        `covered`: rows are told by an index; `ready`: they have no field too many.
        """
        super().__init__(source)
        self._index_parts = [(path, split_path(path)) for path in index_paths]
        self._sort = sort
        self.projection = projection
        self.matcher = matcher
        self._ready = ready
        self.stage = "PROJECTION_DEFAULT"
        if projection.named_only is not None:
            self.stage = "PROJECTION_COVERED" if covered else "PROJECTION_SIMPLE"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        apply = self.projection.apply
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            if self._ready:
                self.stats.advanced += len(batch)
                yield batch
                continue
            metadata = self._metadata(batch)
            rows = [
                apply(document, run.variables, None, beside)
                for document, beside in zip(batch.documents(), metadata, strict=True)
            ]
            self.stats.advanced += len(rows)
            yield RowBatch(documents=rows, metadata=batch.metadata)
        self.stats.eof = True

    def _metadata(self, batch: Batch) -> Sequence[Metadata | None]:
        """What the projection shows beside the documents, row by row."""
        wanted = self.projection.needs_metadata
        if not wanted:
            return batch.metadata or [None] * len(batch)
        rows: list[Metadata] = []
        keys = batch.record_keys
        for position, document in enumerate(batch.documents()):
            beside: Metadata = dict(batch.metadata[position]) if batch.metadata else {}
            if "recordId" in wanted and keys is not None:
                beside["recordId"] = _record_id(keys[position])
            if "sortKey" in wanted and self._sort is not None:
                beside["sortKey"] = self._sort.values(document, beside)
            if "indexKey" in wanted and self._index_parts:
                values = {path: get_path(document, parts) for path, parts in self._index_parts}
                beside["indexKey"] = {path: None if value is MISSING else value for path, value in values.items()}
            rows.append(beside)
        return rows

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {"transformBy": self.projection.serialize()}


class Narrow(PlanNode):
    """Rows without the fields of the top level that nobody reads behind it; a row that is decoded stays as it is."""

    def __init__(self, source: PlanNode, paths: frozenset[str], *, covered: bool = False) -> None:
        """`covered`: rows are told by an index, and have no other fields."""
        super().__init__(source)
        self._paths = sorted(paths)
        self._names = sorted({path.partition(".")[0] for path in paths})
        self._covered = covered
        self.stage = "PROJECTION_DEFAULT"
        if not any("." in path for path in paths):
            self.stage = "PROJECTION_COVERED" if covered else "PROJECTION_SIMPLE"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for batch in self.inputs[0].batches(run):
            self.stats.advanced += 0 if batch is None else len(batch)
            if self._covered or not isinstance(batch, RowBatch) or batch.decoded:
                yield batch
                continue
            yield RowBatch(
                raws=narrow_documents(batch.raws(), self._names), metadata=batch.metadata, record_keys=batch.record_keys
            )
        self.stats.eof = True

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        shown: Document = dict.fromkeys(self._paths, True)
        return {"transformBy": shown if "_id" in shown else {**shown, "_id": False}}


class ShowRecordId(PlanNode):
    """Rows with `$recordId`, where they are stored."""

    stage = "SHOW_RECORD_ID"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for batch in self.inputs[0].batches(run):
            if batch is None or batch.record_keys is None:
                yield batch
                continue
            yield RowBatch(
                documents=[
                    {**document, "$recordId": _record_id(key)}
                    for document, key in zip(batch.documents(), batch.record_keys, strict=True)
                ]
            )


class ReturnKey(PlanNode):
    """In place of each row, the values under which the index keeps it."""

    stage = "RETURN_KEY"

    def __init__(self, source: PlanNode, paths: tuple[str, ...]) -> None:
        super().__init__(source)
        self._parts = [(path, split_path(path)) for path in paths]

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            rows: list[Document] = []
            for document in batch.documents():
                values = {path: get_path(document, parts) for path, parts in self._parts}
                rows.append({path: None if value is MISSING else value for path, value in values.items()})
            self.stats.advanced += len(rows)
            yield RowBatch(documents=rows, record_keys=batch.record_keys)


def _record_id(key: bytes) -> object:
    return Int64(int.from_bytes(key, "big")) if len(key) == 8 else key


class CountRows(PlanNode):
    """How many rows there are, as one row `{n}`."""

    stage = "COUNT"

    def __init__(self, source: PlanNode, *, skip: int = 0, limit: int = 0) -> None:
        super().__init__(source)
        self.skip = skip
        self.limit = limit
        self.counted = 0

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        total = 0
        kept = isinstance(self.inputs[0], CountRecords)
        for batch in self.inputs[0].batches(run):
            if batch is not None:
                total += int(batch.documents()[0]["n"]) if kept else len(batch)
            if self.limit and total >= self.skip + self.limit:
                break
            yield None
        self.counted = max(total - self.skip, 0)
        if self.limit:
            self.counted = min(self.counted, self.limit)
        self.stats.advanced = 1
        self.stats.eof = True
        yield RowBatch(documents=[{"n": Int64(self.counted)}])

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"nCounted": self.counted, "nSkipped": self.skip}


class Rows(PlanNode):
    """Rows that are there already."""

    stage = "QUEUED_DATA"

    def __init__(self, raws: list[bytes]) -> None:
        super().__init__()
        self._raws = raws

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.stats.advanced = len(self._raws)
        self.stats.eof = True
        if self._raws:
            yield RowBatch(raws=self._raws)


class CountRecords(PlanNode):
    """The count that is kept of a collection, as one row `{n}`."""

    stage = "RECORD_STORE_FAST_COUNT"

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        self.collection = collection

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.stats.eof = True
        yield RowBatch(documents=[{"n": read_stats(run.snapshot, self.collection).count}])


class Subplan(PlanNode):
    """A disjunction, each branch of which was planned by itself."""

    stage = "SUBPLAN"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for batch in self.inputs[0].batches(run):
            self.stats.advanced += 0 if batch is None else len(batch)
            yield batch
        self.stats.eof = True


class PassThrough(PlanNode):
    """Rows as they come, looked at on their way."""

    @abstractmethod
    def see(self, batch: Batch) -> None:
        """Look at some rows."""

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for batch in self.inputs[0].batches(run):
            if batch is not None:
                self.see(batch)
            yield batch
