"""The nodes that read documents: collection scans, fetches, and the point look-up of an `_id`.

Each remembers the last key that it handed on and goes on behind it under whatever snapshot the run has by then.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ...catalog import documents
from ...catalog.collections import Collection
from ...common.errors import CappedPositionLost
from ...common.values import Document
from ..match.base import AlwaysTrue, MatchNode, Variables
from .batches import Batch, RowBatch
from .nodes import PlanNode, Run
from .sieve import Sieve


class Pace:
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


class Filtering(PlanNode):
    """A node that may test what it reads."""

    def __init__(self, *inputs: PlanNode, matcher: MatchNode | None, shown: MatchNode | None = None) -> None:
        """`shown` is what explain shows of the filter; all of it unless the node says otherwise."""
        super().__init__(*inputs)
        self.matcher = None if isinstance(matcher, AlwaysTrue) else matcher
        self.shown = self.matcher if shown is None else None if isinstance(shown, AlwaysTrue) else shown
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

    def keep_enough(self, batch: RowBatch, variables: Variables, enough: int | None) -> tuple[RowBatch, int]:
        """The first rows that match, and how many were looked at to find them; all where nobody says what is enough."""
        if enough is None:
            return self.keep(batch, variables), len(batch)
        at, kept = 0, []
        while enough > 0 and at < len(batch):
            found = self.keep(batch.select(range(at, min(at + enough, len(batch)))), variables)
            at = min(at + enough, len(batch))
            enough -= len(found)
            kept.append(found)
        return (kept[0] if len(kept) == 1 else RowBatch.joined(kept)), at

    def _compiled(self, variables: Variables) -> Callable[[Document], bool]:
        if not hasattr(self, "_predicate"):
            assert self.matcher is not None
            self._predicate = self.matcher.compile(variables)
        return self._predicate

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {} if self.shown is None else {"filter": self.shown.serialize()}


class CollectionScan(Filtering):
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
        enough: int | None = None,
        tailable: bool = False,
    ) -> None:
        """`tailable`: at the end it waits for what comes in later, instead of ending. `enough`: see `Fetch`."""
        super().__init__(matcher=matcher)
        self.collection = collection
        self.tailable = tailable
        self.reverse = reverse
        self.low = low
        self.high = high
        self.bounds_shown = bounds_shown
        self.enough = enough
        if bounds_shown is not None:
            self.stage = "CLUSTERED_IXSCAN"

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        last: bytes | None = None
        left = self.enough
        pace = Pace(left)
        while left is None or left > 0:
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
            if rows:
                last = rows[-1][0]
                batch, looked_at = self.keep_enough(
                    RowBatch(raws=[raw for _, raw in rows], record_keys=[key for key, _ in rows]), run.variables, left
                )
                if left is not None:
                    left -= len(batch)
                self.stats.docs_examined += looked_at
                self.stats.works += looked_at
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


class IdHack(Filtering):
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


class Fetch(Filtering):
    """The documents of record keys, tested again where the bounds of the index do not say everything."""

    stage = "FETCH"

    def __init__(
        self,
        source: PlanNode,
        collection: Collection,
        matcher: MatchNode | None = None,
        *,
        shown: MatchNode | None = None,
        enough: int | None = None,
    ) -> None:
        """`enough` says after how many rows nobody reads on."""
        super().__init__(source, matcher=matcher, shown=shown)
        self.collection = collection
        self.enough = enough

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        left = self.enough
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            keys = batch.record_keys or []
            rows, looked_at = self._rows(keys, run, left)
            batch.unused = len(keys) - looked_at
            self.stats.works += looked_at
            self.stats.advanced += len(rows)
            if left is not None:
                left -= len(rows)
            yield rows if len(rows) else None
        self.stats.eof = True

    def _rows(self, keys: list[bytes], run: Run, enough: int | None) -> tuple[RowBatch, int]:
        """The documents that match, and how many of the keys were looked at: no more than it takes."""
        if enough is None or enough >= len(keys):
            return self._fetched(keys, run), len(keys)
        at, kept = 0, []
        while enough > 0 and at < len(keys):
            found = self._fetched(keys[at : at + enough], run)
            at = min(at + enough, len(keys))
            enough -= len(found)
            kept.append(found)
        return (kept[0] if len(kept) == 1 else RowBatch.joined(kept)), at

    def _fetched(self, keys: list[bytes], run: Run) -> RowBatch:
        found = [(key, raw) for key in keys if (raw := documents.fetch(run.snapshot, self.collection, key)) is not None]
        self.stats.docs_examined += len(found)
        return self.keep(RowBatch(raws=[raw for _, raw in found], record_keys=[key for key, _ in found]), run.variables)

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"docsExamined": self.stats.docs_examined, "alreadyHasObj": 0}
