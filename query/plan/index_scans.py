"""The nodes that read indexes: a scan within bounds, and what puts several of them together.

Each scan remembers the last key that it handed on and goes on behind it under whatever snapshot the run has by then.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.index_entries import record_of_entry
from ...catalog.index_specs import IndexSpec
from ...common.values import Document
from ..match.base import MatchNode
from ..sort import SortPattern
from .batches import Batch, RecordKeyBatch, RowBatch
from .bounds import IndexBounds
from .key_documents import KeyDocuments
from .nodes import PlanNode, Run
from .scans import Filtering, Pace

Entry = tuple[bytes, bytes]
"""Key of an entry, and what the entry holds."""


_SILENT_RANGES_MAX: Final = 512
"""After how many ranges others get their turn, whatever was found."""


class IndexScan(Filtering):
    """The entries within the bounds, in the order of the index; each record once.

    Rows are record keys, for a `Fetch`, or documents that the entries tell.
    """

    stage = "IXSCAN"

    def __init__(
        self,
        collection: Collection,
        index: IndexSpec,
        bounds: IndexBounds,
        *,
        reverse: bool = False,
        rows_hint: int | None = None,
        enough: int | None = None,
        told: KeyDocuments | None = None,
        covers: bool = False,
        matcher: MatchNode | None = None,
        shown: MatchNode | None = None,
    ) -> None:
        """Prepare a scan.

        Args:
            rows_hint: how many entries will do if all of them are taken.
            enough: after how many rows nobody reads on.
            told: what makes documents of the entries.
            covers: these documents are the rows.
            matcher: what they have to match.
            shown: what of that explain shows.
        """
        super().__init__(matcher=matcher, shown=shown)
        self.collection = collection
        self.index = index
        self.bounds = bounds
        self.reverse = reverse
        self.rows_hint = rows_hint if enough is None else enough
        self.enough = enough
        self.told = told
        self.covers = covers
        self.keeps_keys = False
        """Whether batches tell the keys of their entries."""
        self._seen: set[bytes] | None = None
        self._left: int | None = None
        self._passed_over = 0

    def count_alone(self) -> None:
        """Take the name that MongoDB has for scans of one range whose entries are counted, where it is one."""
        if self.matcher is None and len(self.bounds.ranges) == 1 and self.stage == IndexScan.stage:
            self.stage = "COUNT_SCAN"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.index.state.accesses += 1
        self._left = self.enough
        pace = Pace(self.rows_hint)
        entries: list[Entry] = []
        size = silent = 0
        for low, high in reversed(self.bounds.ranges) if self.reverse else self.bounds.ranges:
            self.stats.seeks += 1
            silent += 1
            last: bytes | None = None
            while self._left is None or self._left > 0:
                if not entries:
                    size = pace.next(run)
                room = size - len(entries)
                found = list(
                    islice(
                        documents.entry_scan(run.snapshot, self.index, low, high, after_key=last, reverse=self.reverse),
                        room,
                    )
                )
                entries += found
                if len(found) < room and silent < _SILENT_RANGES_MAX:
                    # What the next ranges have comes in the same piece: a list of points is a piece, not many.
                    break
                silent = 0
                yield from self._handed_on(entries, run)
                entries = []
                if len(found) < room:
                    break
                last = found[-1][0]
        if entries:
            yield from self._handed_on(entries, run)
        self.stats.eof = True

    def _handed_on(self, entries: list[Entry], run: Run) -> Iterator[Batch | None]:
        if not entries:
            yield None
            return
        batch = self._taken(entries, run)
        try:
            yield batch if len(batch) else None
        finally:
            self._count(-batch.unused, -batch.unused)

    def _taken(self, entries: list[Entry], run: Run) -> Batch:
        """The rows of some entries, counted."""
        if self._seen is None and (self.index.kind not in ("btree", "hashed") or self.index.multikey):
            self._seen = set()
        if self.told is None:
            batch: Batch = self._record_keys(entries)
            looked_at = len(entries)
        else:
            batch, looked_at = self._told_rows(self.told, entries, run)
        if self._left is not None:
            self._left -= len(batch)
        self._count(looked_at, len(batch))
        return batch

    def _count(self, entries: int, rows: int) -> None:
        self.stats.keys_examined += entries
        self.stats.works += entries
        self.stats.advanced += rows

    def _record_keys(self, entries: Sequence[Entry]) -> RecordKeyBatch:
        seen = self._seen
        if seen is not None:
            fresh = []
            for key, value in entries:
                record_key = record_of_entry(value)
                if record_key not in seen:
                    seen.add(record_key)
                    fresh.append((key, value))
            self._passed_over += len(entries) - len(fresh)
            entries = fresh
        keys = [key for key, _ in entries] if self.keeps_keys else None
        return RecordKeyBatch([record_of_entry(value) for _, value in entries], keys)

    def _told_rows(self, told: KeyDocuments, entries: list[Entry], run: Run) -> tuple[Batch, int]:
        """The rows that match, and how many entries were looked at."""
        read = told.documents_read
        record_keys, raws = told.raws(run.snapshot, entries)
        rows = RowBatch(raws=raws, record_keys=record_keys)
        if self._seen is not None:
            seen = self._seen
            rows = rows.select([at for at, key in enumerate(record_keys) if key not in seen])
            seen.update(record_keys)
        whole = len(rows) == len(entries)
        kept, looked_at = self.keep_enough(rows, run.variables, self._left if whole else None)
        self.stats.docs_examined += told.documents_read - read
        if self.covers:
            return kept, looked_at if whole else len(entries)
        found = kept.record_keys or []
        if not self.keeps_keys:
            return RecordKeyBatch(found), looked_at if whole else len(entries)
        wanted = set(found)
        pairs = [(key, record) for key, value in entries if (record := record_of_entry(value)) in wanted]
        return RecordKeyBatch([record for _, record in pairs], [key for key, _ in pairs]), len(entries)

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        index = self.index
        shape = self.bounds.shape
        return {
            **super().describe(),
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
        read = self.stats.docs_examined
        return {
            "keysExamined": self.stats.keys_examined,
            **({"docsExamined": read} if read else {}),
            "seeks": self.stats.seeks,
            "dupsTested": self.stats.keys_examined if self._seen is not None else 0,
            "dupsDropped": self._passed_over,
        }


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
                made = RecordKeyBatch(fresh)
                try:
                    yield made if fresh else None
                finally:
                    batch.unused = made.unused
                    self.stats.advanced -= made.unused
        self.stats.eof = True

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"dupsTested": self.stats.works, "dupsDropped": self.stats.works - self.stats.advanced}


class SortMerge(PlanNode):
    """The records of several scans that are each in order, in that order, each once.

    What comes behind the first values of a key is in the order of the scan, so entries are compared by these bytes.
    """

    stage = "SORT_MERGE"

    def __init__(
        self, scans: Sequence[tuple[IndexScan, int]], pattern: SortPattern, *, rows_hint: int | None = None
    ) -> None:
        """`scans`: each with the bytes that all its keys begin with, which do not count."""
        super().__init__(*(scan for scan, _ in scans))
        self._scans = scans
        self._pattern = pattern
        self._rows_hint = rows_hint
        for scan, _ in scans:
            scan.keeps_keys = True

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        sources = [_Source(scan, skip, run) for scan, skip in self._scans]
        seen: set[bytes] = set()
        pace = Pace(self._rows_hint)
        last: _Source | None = None
        try:
            while True:
                size = pace.next(run)
                taken: list[bytes] = []
                origins: list[_Source] = []
                while len(taken) < size:
                    for source in sources:
                        while source.needs_more():
                            source.read()
                            yield None
                    ready = [source for source in sources if source.rows]
                    if not ready:
                        break
                    first = min(ready, key=lambda source: source.rows[0])
                    _, record_key = first.rows.popleft()
                    last = first
                    self.stats.works += 1
                    if record_key not in seen:
                        seen.add(record_key)
                        taken.append(record_key)
                        origins.append(first)
                if not taken:
                    break
                self.stats.advanced += len(taken)
                made = RecordKeyBatch(taken)
                try:
                    yield made
                finally:
                    for source in origins[len(origins) - made.unused :]:
                        source.scan.stats.keys_examined -= 1
                        self.stats.advanced -= 1
            self.stats.eof = True
        finally:
            for source in sources:
                source.close(looked_at=int(source is not last))

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {"sortPattern": self._pattern.serialize()}

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"dupsTested": self.stats.works, "dupsDropped": self.stats.works - self.stats.advanced}


class _Source:
    """One scan of a merge, and what was read of it ahead."""

    def __init__(self, scan: IndexScan, skip: int, run: Run) -> None:
        self.scan = scan
        self._skip = skip
        self.rows: deque[tuple[bytes, bytes]] = deque()
        self._batches = iter(scan.batches(run))
        self._ended = False

    def needs_more(self) -> bool:
        """Whether its next row is not known."""
        return not self.rows and not self._ended

    def read(self) -> None:
        """Take a step."""
        try:
            batch = next(self._batches)
        except StopIteration:
            self._ended = True
            return
        if not isinstance(batch, RecordKeyBatch):
            return
        flip = 255 if self._inverted else 0
        for key, record_key in zip(batch.entry_keys or (), batch.record_keys, strict=True):
            order = key[self._skip :]
            self.rows.append((bytes(byte ^ flip for byte in order) if flip else order, record_key))

    @property
    def _inverted(self) -> bool:
        return self.scan.reverse

    def close(self, *, looked_at: int) -> None:
        """Let go of the scan; of the rows that nobody took, so many count as looked at."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
        ahead = max(len(self.rows) - looked_at, 0)
        self.scan.stats.keys_examined -= ahead
        self.scan.stats.works -= ahead
        self.scan.stats.advanced -= ahead
