"""The nodes that read: collection scans, index scans, fetches, and the point look-up of an `_id`.

Each remembers the last key that it handed on and goes on behind it under whatever snapshot the run has by then.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...common.errors import CappedPositionLost
from ...common.values import Document
from ..match.base import AlwaysTrue, MatchNode, Variables
from .batches import Batch, RecordKeyBatch, RowBatch
from .bounds import IndexBounds
from .nodes import PlanNode, Run
from .sieve import Sieve


class _Pace:
    """How many rows a scan reads at a time: as many as are wanted, then more and more while nobody is content."""

    def __init__(self, rows_hint: int | None) -> None:
        self._hint = rows_hint
        self._turn = -1
        self._size = 0

    def next(self, run: Run) -> int:
        """Rows of the next piece."""
        if run.turn != self._turn:
            self._turn = run.turn
            self._size = min(run.rows_wanted, run.batch_rows)
            if self._hint is not None:
                self._size = min(self._size, self._hint)
                self._hint = None
        else:
            self._size = min(self._size * 2, run.batch_rows)
        self._size = max(self._size, 1)
        return self._size


class Eof(PlanNode):
    """Nothing: the collection does not exist, or the filter cannot hold."""

    stage = "EOF"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.stats.eof = True
        yield from ()


class _Filtering(PlanNode):
    """A node that may test what it reads."""

    def __init__(self, *inputs: PlanNode, matcher: MatchNode | None) -> None:
        super().__init__(*inputs)
        self.matcher = None if isinstance(matcher, AlwaysTrue) else matcher
        self._sieve: Sieve | None = None

    def keep(self, batch: RowBatch, variables: Variables) -> RowBatch:
        """The rows of the batch that match."""
        if self.matcher is None:
            return batch
        if self._sieve is None and not batch.decoded:
            self._sieve = Sieve(self.matcher)
        if self._sieve is not None and self._sieve.useful and not batch.decoded:
            return self._sieve.keep(batch, self._compiled, variables)
        matches = self._compiled(variables)
        kept = [position for position, document in enumerate(batch.documents()) if matches(document)]
        return batch if len(kept) == len(batch) else batch.select(kept)

    def _compiled(self, variables: Variables) -> Callable[[Document], bool]:
        if not hasattr(self, "_predicate"):
            assert self.matcher is not None
            self._predicate = self.matcher.compile(variables)
        return self._predicate

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {} if self.matcher is None else {"filter": self.matcher.serialize()}


class CollectionScan(_Filtering):
    """Every document in the order of record keys, or those of a range of record keys where `_id` is the order."""

    stage = "COLLSCAN"

    def __init__(
        self,
        collection: Collection,
        matcher: MatchNode | None = None,
        *,
        reverse: bool = False,
        low: bytes | None = None,
        high: bytes | None = None,
        bounds_shown: Document | None = None,
        rows_hint: int | None = None,
        tailable: bool = False,
    ) -> None:
        """`tailable`: at the end it waits for what comes in later, instead of ending."""
        super().__init__(matcher=matcher)
        self.collection = collection
        self.tailable = tailable
        self.reverse = reverse
        self.low = low
        self.high = high
        self.bounds_shown = bounds_shown
        self.rows_hint = rows_hint
        if bounds_shown is not None:
            self.stage = "CLUSTERED_IXSCAN"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        last: bytes | None = None
        pace = _Pace(self.rows_hint)
        while True:
            size = pace.next(run)
            rows = list(
                islice(
                    documents.scan(
                        run.snapshot,
                        self.collection,
                        after_key=last,
                        low=self.low,
                        high=self.high,
                        reverse=self.reverse,
                    ),
                    size,
                )
            )
            self.stats.docs_examined += len(rows)
            self.stats.works += len(rows)
            if rows:
                last = rows[-1][0]
                batch = self.keep(
                    RowBatch(raws=[raw for _, raw in rows], record_keys=[key for key, _ in rows]), run.variables
                )
                self.stats.advanced += len(batch)
                yield batch if len(batch) else None
            if len(rows) < size:
                if not self.tailable:
                    self.stats.eof = True
                    return
                run.caught_up = True
                yield None
                self._check_position(run, last)

    def _check_position(self, run: Run, last: bytes | None) -> None:
        """A capped collection may have dropped the record behind which the next ones are to come."""
        if last is not None and documents.fetch(run.snapshot, self.collection, last) is None:
            raise CappedPositionLost(
                "CollectionScan died due to position in capped collection being deleted. "
                f"Last seen record id: RecordId({documents.record_id_of(last)})"
            )

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {
            **super().describe(),
            **(self.bounds_shown or {}),
            "direction": "backward" if self.reverse else "forward",
        }

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"docsExamined": self.stats.docs_examined}


class IdHack(_Filtering):
    """The document of one `_id`."""

    stage = "EXPRESS_IXSCAN"

    def __init__(self, collection: Collection, identity: Any, matcher: MatchNode | None = None) -> None:
        super().__init__(matcher=matcher)
        self.collection = collection
        self.identity = identity
        if collection.clustered:
            self.stage = "EXPRESS_CLUSTERED_IXSCAN"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.stats.works += 1
        self.stats.eof = True
        self.stats.keys_examined += not self.collection.clustered
        found = documents.fetch_by_id(run.snapshot, self.collection, self.identity)
        if found is not None:
            self.stats.docs_examined += 1
            batch = self.keep(RowBatch(raws=[found[1]], record_keys=[found[0]]), run.variables)
            self.stats.advanced += len(batch)
            if len(batch):
                yield batch

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        shown: Document = {"keyPattern": "{ _id: 1 }", "indexName": "_id_"}
        return {**super().describe(), **({} if self.collection.clustered else shown)}

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"keysExamined": self.stats.keys_examined, "docsExamined": self.stats.docs_examined}


class IndexScan(PlanNode):
    """Record keys of the entries within the bounds, in the order of the index; each record once."""

    stage = "IXSCAN"

    def __init__(
        self,
        collection: Collection,
        index: IndexSpec,
        bounds: IndexBounds,
        *,
        reverse: bool = False,
        rows_hint: int | None = None,
    ) -> None:
        super().__init__()
        self.collection = collection
        self.index = index
        self.bounds = bounds
        self.reverse = reverse
        self.rows_hint = rows_hint
        self._repeats = index.multikey or index.kind not in ("btree", "hashed")

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        seen: set[bytes] | None = set() if self._repeats else None
        self.index.state.accesses += 1
        pace = _Pace(self.rows_hint)
        for low, high in reversed(self.bounds.ranges) if self.reverse else self.bounds.ranges:
            self.stats.seeks += 1
            last: bytes | None = None
            while True:
                size = pace.next(run)
                entries = list(
                    islice(
                        documents.index_scan(run.snapshot, self.index, low, high, after_key=last, reverse=self.reverse),
                        size,
                    )
                )
                self.stats.keys_examined += len(entries)
                self.stats.works += len(entries)
                if entries:
                    last = entries[-1][0]
                    batch = RecordKeyBatch(_unseen(entries, seen))
                    self.stats.advanced += len(batch)
                    yield batch if len(batch) else None
                if len(entries) < size:
                    break
        self.stats.eof = True

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        index = self.index
        shape = self.bounds.shape
        return {
            "keyPattern": shape.pattern,
            "indexName": index.name,
            **({"collation": index.collation.to_document()} if index.collation is not None else {}),
            "isMultiKey": index.multikey,
            "multiKeyPaths": {
                path: [".".join(path.split(".")[:count]) for count in counts]
                for path, counts in zip(shape.paths, shape.multikey, strict=True)
            },
            "isUnique": index.unique,
            "isSparse": index.sparse,
            "isPartial": index.partial_filter is not None,
            "indexVersion": 2,
            "direction": "backward" if self.reverse else "forward",
            "indexBounds": self.bounds.shown(reverse=self.reverse),
        }

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {
            "keysExamined": self.stats.keys_examined,
            "seeks": self.stats.seeks,
            "dupsTested": self.stats.keys_examined if self._repeats else 0,
            "dupsDropped": self.stats.keys_examined - self.stats.advanced,
        }


def _unseen(entries: Sequence[tuple[bytes, bytes]], seen: set[bytes] | None) -> list[bytes]:
    """The record keys that have not come before; all where nobody keeps count."""
    keys = [record_key for _, record_key in entries]
    if seen is None:
        return keys
    fresh = [key for key in dict.fromkeys(keys) if key not in seen]
    seen.update(fresh)
    return fresh


class Or(PlanNode):
    """The records of several index scans, each once."""

    stage = "OR"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        seen: set[bytes] = set()
        for source in self.inputs:
            for batch in source.batches(run):
                if batch is None:
                    yield None
                    continue
                self.stats.works += len(batch)
                fresh = [key for key in batch.record_keys or () if key not in seen]
                seen.update(fresh)
                self.stats.advanced += len(fresh)
                yield RecordKeyBatch(fresh) if fresh else None
        self.stats.eof = True


class Fetch(_Filtering):
    """The documents of record keys, tested again where the bounds of the index do not say everything."""

    stage = "FETCH"

    def __init__(
        self,
        source: PlanNode,
        collection: Collection,
        matcher: MatchNode | None = None,
        *,
        recheck: MatchNode | None = None,
    ) -> None:
        """`matcher` is what explain shows; `recheck`, where given, is tested instead (long keys, a moving snapshot)."""
        super().__init__(source, matcher=matcher)
        self.collection = collection
        self.recheck = recheck

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        shown, self.matcher = self.matcher, self.recheck if self.recheck is not None else self.matcher
        try:
            for batch in self.inputs[0].batches(run):
                if batch is None:
                    yield None
                    continue
                found = [
                    (key, raw)
                    for key in batch.record_keys or ()
                    if (raw := documents.fetch(run.snapshot, self.collection, key)) is not None
                ]
                self.stats.docs_examined += len(found)
                self.stats.works += len(batch)
                rows = self.keep(
                    RowBatch(raws=[raw for _, raw in found], record_keys=[key for key, _ in found]), run.variables
                )
                self.stats.advanced += len(rows)
                yield rows if len(rows) else None
            self.stats.eof = True
        finally:
            self.matcher = shown

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"docsExamined": self.stats.docs_examined, "alreadyHasObj": 0}
