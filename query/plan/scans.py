"""The leaves of a plan: scans of records and of index entries, fetching, and the union of scans.

Each remembers the last key it came to, so that it goes on in another snapshot from where it was.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from bson import Int64

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...common.values import Document, decode
from ...kernels import LONG_KEY_BYTES
from ..match.base import AlwaysTrue, MatchNode
from .batches import Batch, RowBatch
from .bounds import IndexBounds
from .nodes import PlanNode, Run

Entry = tuple[bytes, bytes]
"""Entry key and record key."""

_WHOLE_RANGE: Final = ((b"", None),)


class Eof(PlanNode):
    """Nothing at all: the collection does not exist, or no document can match."""

    stage = "EOF"

    def __init__(self, kind: str = "nonExistentNamespace") -> None:
        super().__init__()
        self._kind = kind

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.stats.works += 1
        yield from ()

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {"type": self._kind}


class CollectionScan(PlanNode):
    """Records in their order, those that match; over a range of record keys where the collection is clustered."""

    stage = "COLLSCAN"

    def __init__(
        self,
        collection: Collection,
        filter: MatchNode | None = None,
        *,
        low: bytes | None = None,
        high: bytes | None = None,
        reverse: bool = False,
        shown_bounds: Document | None = None,
        tailable: bool = False,
    ) -> None:
        """`low` and `high` are record keys with `low <= key < high`; `shown_bounds` are what explain calls them."""
        super().__init__()
        self.collection = collection
        self.filter = None if isinstance(filter, AlwaysTrue) else filter
        self.low = low
        self.high = high
        self.reverse = reverse
        self.tailable = tailable
        self.rows_hint: int | None = None
        """More rows than these are not likely to be asked for."""
        self._shown_bounds = shown_bounds
        if shown_bounds is not None:
            self.stage = "CLUSTERED_IXSCAN"  # type: ignore[misc]  # explain tells a bounded scan apart

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        stats = self.stats
        matches = None if self.filter is None else self.filter.compile(run.variables)
        position: bytes | None = None
        while True:
            snapshot = run.snapshot
            rows = documents.scan(
                snapshot, self.collection, after_key=position, low=self.low, high=self.high, reverse=self.reverse
            )
            while run.snapshot is snapshot:
                chunk = list(islice(rows, self._chunk_rows(run)))
                if not chunk:
                    if not self.tailable:
                        stats.works += 1
                        return
                    # Whoever reads on later finds what came in since.
                    yield None
                    continue
                position = chunk[-1][0]
                stats.docs_examined += len(chunk)
                stats.works += len(chunk)
                yield _matching(chunk, matches)

    def _chunk_rows(self, run: Run) -> int:
        if self.rows_hint is not None and self.filter is None:
            return max(1, min(run.batch_rows, self.rows_hint))
        return run.batch_rows

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        shown: Document = {}
        if self.filter is not None:
            shown["filter"] = self.filter.serialize()
        shown["direction"] = "backward" if self.reverse else "forward"
        return {**shown, **(self._shown_bounds or {})}

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"docsExamined": self.stats.docs_examined}


def _matching(chunk: list[tuple[bytes, bytes]], matches: Callable[[Document], bool] | None) -> Batch | None:
    """The rows that match, as a batch; None where none does."""
    if matches is None:
        return RowBatch(raws=[raw for _, raw in chunk], record_keys=[key for key, _ in chunk])
    keys, raws, decoded = [], [], []
    for key, raw in chunk:
        document = decode(raw)
        if matches(document):
            keys.append(key)
            raws.append(raw)
            decoded.append(document)
    return RowBatch(raws=raws, documents=decoded, record_keys=keys) if raws else None


class IdLookup(PlanNode):
    """The one document with an `_id`."""

    stage = "EXPRESS_IXSCAN"

    def __init__(self, collection: Collection, identity: Any) -> None:
        super().__init__()
        self.collection = collection
        self.identity = identity
        if collection.clustered:
            self.stage = "EXPRESS_CLUSTERED_IXSCAN"  # type: ignore[misc]  # explain tells the two apart

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.stats.works += 1
        found = documents.fetch_by_id(run.snapshot, self.collection, self.identity)
        self.stats.keys_examined += found is not None and not self.collection.clustered
        self.stats.docs_examined += found is not None
        if found is not None:
            record_key, raw = found
            yield RowBatch(raws=[raw], record_keys=[record_key])

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        if self.collection.clustered:
            return {"keyPattern": "{ _id: 1 }"}
        return {"keyPattern": "{ _id: 1 }", "indexName": "_id_"}

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"keysExamined": self.stats.keys_examined, "docsExamined": self.stats.docs_examined}


class EntryScan(PlanNode):
    """A node that finds records without reading them."""

    @abstractmethod
    def entries(self, run: Run) -> Iterator[list[Entry]]:
        """Entries of each record once, chunk after chunk; what was fetched lies in the same snapshot until the next."""

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`: entries become rows through `Fetch` and `CountEntries` alone."""
        raise TypeError(f"{self.stage} has no rows of its own")

    @abstractmethod
    def index_names(self) -> list[str]:
        """The indexes that it reads."""


class IndexScan(EntryScan):
    """Entries of an index within bounds, in the order of the index or against it."""

    stage = "IXSCAN"

    def __init__(self, index: IndexSpec, bounds: IndexBounds, *, reverse: bool = False) -> None:
        super().__init__()
        self.index = index
        self.bounds = bounds
        self.reverse = reverse

    def entries(self, run: Run) -> Iterator[list[Entry]]:
        """See `EntryScan.entries`."""
        stats = self.stats
        seen: set[bytes] | None = set() if self.index.multikey else None
        ranges = self.bounds.ranges or _WHOLE_RANGE
        for low, high in reversed(ranges) if self.reverse else ranges:
            stats.seeks += 1
            position: bytes | None = None
            done = False
            while not done:
                snapshot = run.snapshot
                found = documents.index_scan(
                    snapshot, self.index, low, high, after_key=position, reverse=self.reverse
                )
                while run.snapshot is snapshot:
                    chunk = list(islice(found, run.batch_rows))
                    if not chunk:
                        done = True
                        break
                    position = chunk[-1][0]
                    stats.keys_examined += len(chunk)
                    stats.works += len(chunk)
                    if seen is None and self.index.multikey:
                        # An array came in since the scan began.
                        seen = set()
                    if seen is not None:
                        chunk = _unseen(chunk, seen, stats.extra)
                    stats.advanced += len(chunk)
                    yield chunk
        stats.works += 1
        stats.eof = True

    def index_names(self) -> list[str]:
        """See `EntryScan.index_names`."""
        return [self.index.name]

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {**describe_index(self.index), **describe_scan(self.index, self.bounds, reverse=self.reverse)}

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {
            "keysExamined": self.stats.keys_examined,
            "seeks": self.stats.seeks,
            "dupsTested": self.stats.extra.get("dupsTested", 0),
            "dupsDropped": self.stats.extra.get("dupsDropped", 0),
        }


def describe_index(index: IndexSpec) -> Document:
    """What explain tells of an index."""
    shown: Document = {"keyPattern": index.key, "indexName": index.name}
    if index.collation is not None:
        shown["collation"] = index.collation.to_document()
    multikey_paths = index.multikey_paths or ((),) * len(index.paths)
    shown |= {
        "isMultiKey": index.multikey,
        "multiKeyPaths": {
            path: [".".join(path.split(".")[:component]) for component in components]
            for path, components in zip(index.paths, multikey_paths, strict=True)
        },
        "isUnique": index.unique,
        "isSparse": index.sparse,
        "isPartial": index.partial_filter is not None,
        "indexVersion": 2,
    }
    return shown


def describe_scan(index: IndexSpec, bounds: IndexBounds, *, reverse: bool) -> Document:
    """What explain tells of a scan of an index."""
    return {"direction": "backward" if reverse else "forward", "indexBounds": bounds.shown(reverse=reverse)}


def _unseen(chunk: list[Entry], seen: set[bytes], counts: Document) -> list[Entry]:
    """Those of records that were not met before."""
    kept = []
    for entry in chunk:
        if entry[1] not in seen:
            seen.add(entry[1])
            kept.append(entry)
    counts["dupsTested"] = counts.get("dupsTested", 0) + len(chunk)
    counts["dupsDropped"] = counts.get("dupsDropped", 0) + len(chunk) - len(kept)
    return kept


class OrScan(EntryScan):
    """Records that any of several scans finds, each once."""

    stage = "OR"

    def __init__(self, *inputs: EntryScan) -> None:
        super().__init__(*inputs)
        self._scans = inputs

    def entries(self, run: Run) -> Iterator[list[Entry]]:
        """See `EntryScan.entries`."""
        seen: set[bytes] = set()
        for scan in self._scans:
            for chunk in scan.entries(run):
                kept = _unseen(chunk, seen, self.stats.extra)
                self.stats.works += len(chunk)
                self.stats.advanced += len(kept)
                yield kept
        self.stats.works += 1
        self.stats.eof = True

    def index_names(self) -> list[str]:
        """See `EntryScan.index_names`."""
        return [name for scan in self._scans for name in scan.index_names()]

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {
            "dupsTested": self.stats.extra.get("dupsTested", 0),
            "dupsDropped": self.stats.extra.get("dupsDropped", 0),
        }


class Fetch(PlanNode):
    """The documents of entries, those that match.

    `filter` is what the bounds do not decide; `recheck` is the whole predicate, for entries whose key was cut.
    """

    stage = "FETCH"

    def __init__(
        self, collection: Collection, source: EntryScan, filter: MatchNode | None, recheck: MatchNode | None = None
    ) -> None:
        super().__init__(source)
        self.collection = collection
        self.source = source
        self.filter = None if isinstance(filter, AlwaysTrue) else filter
        self.recheck = None if isinstance(recheck, AlwaysTrue) else recheck

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        stats = self.stats
        matches = None if self.filter is None else self.filter.compile(run.variables)
        whole = None if self.recheck is None else self.recheck.compile(run.variables)
        for chunk in self.source.entries(run):
            snapshot = run.snapshot
            found = []
            for entry_key, record_key in chunk:
                raw = documents.fetch(snapshot, self.collection, record_key)
                if raw is None:
                    continue
                if whole is not None and len(entry_key) >= LONG_KEY_BYTES and not whole(decode(raw)):
                    continue
                found.append((record_key, raw))
            stats.docs_examined += len(found)
            stats.works += len(chunk)
            yield _matching(found, matches) if found else None
        stats.works += 1

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {} if self.filter is None else {"filter": self.filter.serialize()}

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"docsExamined": self.stats.docs_examined, "alreadyHasObj": 0}


class CountEntries(PlanNode):
    """How many records a scan finds, without reading one; a single row `{count: n}`."""

    stage = "COUNT_SCAN"

    def __init__(self, scan: IndexScan) -> None:
        super().__init__()
        self.scan = scan

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        count = 0
        for chunk in self.scan.entries(run):
            count += len(chunk)
            yield None
        self.stats.keys_examined = self.scan.stats.keys_examined
        self.stats.works = self.scan.stats.works
        yield RowBatch(documents=[{"count": Int64(count)}])

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {
            **describe_index(self.scan.index),
            "indexBounds": self.scan.bounds.shown_range(),
        }

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"keysExamined": self.stats.keys_examined}


class CountRecords(PlanNode):
    """The count that is kept of a collection; a single row `{count: n}`."""

    stage = "RECORD_STORE_FAST_COUNT"

    def __init__(self, collection: Collection) -> None:
        super().__init__()
        self.collection = collection

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.stats.works += 1
        count = documents.read_stats(run.snapshot, self.collection).count
        yield RowBatch(documents=[{"count": Int64(count)}])
