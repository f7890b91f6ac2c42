"""Writes changed buckets to the store, one commit at a time: whoever commits, commits for all who wait.

While a commit is under way, measurements gather in the buckets of the next one. A bucket that is not stored as it was left
(somebody wrote to it directly, or dropped it) is given up together with everything that waits, and whoever waits places
his measurements anew: a measurement is acknowledged after exactly one commit that holds it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ..common.errors import DuplicateKey
from ..kernels import bucket_documents, fingerprint
from ..storage.engine import Engine, Failure, Transaction
from . import documents
from .catalog import Catalog
from .documents import Entries
from .namespaces import Namespace
from .open_buckets import OpenBucket

logger = logging.getLogger(__name__)

Told = Callable[[Failure], object]
"""Hears that a commit is durable, or why it is not."""
Written = tuple[bytes, bytes, int, int]
"""Of a bucket: its document, the fingerprint of that, what it takes in memory, its schema version."""


class BucketsChanged(Exception):
    """What was placed has to be placed again: a bucket is no longer what it was.

    Attributes:
        duplicate: the id of a new bucket was taken.
    """

    def __init__(self, duplicate: DuplicateKey | None = None) -> None:
        super().__init__()
        self.duplicate = duplicate


@dataclass(slots=True)
class CommitReport:
    """What one commit wrote: buckets, each with what it takes in memory and its schema version as it was stored."""

    inserted: list[tuple[OpenBucket, int, int]]
    updated: list[tuple[OpenBucket, int, int]]


class BucketCommits:
    """The commits of one bucket catalog."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        on_begin: Callable[[], None],
        on_stored: Callable[[CommitReport], None],
        on_lost: Callable[[Iterable[OpenBucket]], None],
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._on_begin = on_begin
        self._on_stored = on_stored
        self._on_lost = on_lost
        self._staged: dict[OpenBucket, None] = {}
        self._writing: list[OpenBucket] = []
        self._unstored: set[tuple[int, bytes]] = set()
        """Collection and id of the buckets that are staged or being written."""
        self._waiting: list[Told] = []
        self.under_way = False
        """Whether whoever commits now has to wait for a commit that has begun, or is about to."""

    def stage(self, bucket: OpenBucket) -> None:
        """The bucket holds something that the next commit has to store."""
        if not bucket.staged:
            bucket.staged = True
            self._staged[bucket] = None
            self._unstored.add((bucket.collection_id, bucket.bucket_id))

    def stage_many(self, buckets: Iterable[OpenBucket]) -> None:
        """The same for several."""
        staged, unstored = self._staged, self._unstored
        for bucket in buckets:
            if not bucket.staged:
                bucket.staged = True
                staged[bucket] = None
                unstored.add((bucket.collection_id, bucket.bucket_id))

    def waits_for(self, collection_id: int, bucket_id: bytes) -> bool:
        """Whether this bucket of the collection is not stored as it is in memory."""
        return (collection_id, bucket_id) in self._unstored

    async def commit(self) -> None:
        """Wait until everything staged so far is durable.

        Raises:
            BucketsChanged: place the measurements again.
            MongoError, StorageError: they were not stored, and will not be.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(error: Failure) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.commit_then(tell)
        await done

    def commit_then(self, told: Told) -> None:
        """Have `told` called when everything staged until the commit begins is durable, or with what `commit` would raise."""
        self._waiting.append(told)
        if not self.under_way:
            self.under_way = True
            # Whoever comes in the same turn of the loop goes with it.
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin the next commit, for all who wait."""
        self._on_begin()
        buckets, waiting = list(self._staged), self._waiting
        self._staged, self._waiting = {}, []
        self._writing = buckets
        for bucket in buckets:
            bucket.staged, bucket.writing = False, True
        try:
            # The builders belong to the event loop: the writer's thread gets bytes.
            written = bucket_documents([bucket.builder for bucket in buckets])
            self._store(buckets, written, waiting)
        except Exception as error:
            self._ended(buckets, [], waiting, None, error)

    def _store(self, buckets: list[OpenBucket], written: list[Written], waiting: list[Told]) -> None:
        by_namespace: dict[Namespace, list[tuple[OpenBucket, bytes]]] = {}
        for bucket, (raw, _, _, _) in zip(buckets, written, strict=True):
            by_namespace.setdefault(bucket.namespace, []).append((bucket, raw))

        def work(transaction: Transaction) -> list[tuple[OpenBucket, Entries]]:
            return [
                known
                for namespace, rows in by_namespace.items()
                for known in _write(self._catalog, transaction, namespace, rows)
            ]

        self._engine.write_then(work, partial(self._ended, buckets, written, waiting))

    def _ended(
        self,
        buckets: list[OpenBucket],
        written: list[Written],
        waiting: list[Told],
        known: list[tuple[OpenBucket, Entries]] | None,
        error: Failure,
    ) -> None:
        """A commit has ended: tell who waited for it, and begin the next where somebody waits."""
        later: list[Told] = []
        if error is None:
            report = _report(buckets, written, known or [])
            self._written()
            self._on_stored(report)
        else:
            # Whatever it is, nobody may be left waiting for it; those who wait raise it to their clients.
            later, self._waiting = self._waiting, []
            self._give_up(buckets)
        self.under_way = bool(self._waiting)
        if self.under_way:
            asyncio.get_running_loop().call_soon(self._begin)
        _tell_all(waiting, BucketsChanged(error) if isinstance(error, DuplicateKey) else error)
        _tell_all(later, BucketsChanged())

    def _written(self) -> None:
        """What was being written is stored, or given up."""
        for bucket in self._writing:
            bucket.writing = False
            if not bucket.staged:
                self._unstored.discard((bucket.collection_id, bucket.bucket_id))
        self._writing = []

    def _give_up(self, buckets: list[OpenBucket]) -> None:
        """Forget the buckets, and those that were staged meanwhile."""
        lost = [*buckets, *self._staged]
        for bucket in self._staged:
            bucket.staged = False
        self._staged = {}
        self._unstored.clear()
        self._written()
        self._on_lost(lost)


def _write(
    catalog: Catalog, transaction: Transaction, namespace: Namespace, rows: list[tuple[OpenBucket, bytes]]
) -> list[tuple[OpenBucket, Entries]]:
    """Store the buckets of one collection, each of which must lie there as it was left; returns their index entries."""
    collection = catalog.collection_in(transaction, namespace)
    if collection is None:
        raise BucketsChanged
    new: list[bytes] = []
    known: list[OpenBucket] = []
    raws: list[bytes] = []
    for bucket, raw in rows:
        if collection.id != bucket.collection_id:
            raise BucketsChanged
        if bucket.stored is None:
            new.append(raw)
        else:
            known.append(bucket)
            raws.append(raw)
    changes: list[documents.Rewrite] = []
    stored = documents.fetch_loose_many(transaction, collection, [bucket.record_key for bucket in known])
    for bucket, raw, old in zip(known, raws, stored, strict=True):
        if old is None or fingerprint(old) != bucket.stored:
            raise BucketsChanged
        changes.append((bucket.record_key, old, raw, bucket.entries))
    if new:
        documents.insert_many(transaction, collection, new)
    return list(zip(known, documents.rewrite_many(transaction, collection, changes), strict=True))


def _report(buckets: list[OpenBucket], written: list[Written], known: list[tuple[OpenBucket, Entries]]) -> CommitReport:
    """Remember in each bucket how it is stored now."""
    for bucket, entries in known:
        bucket.entries = entries
    report = CommitReport([], [])
    for bucket, (_, print_of, memory_bytes, version) in zip(buckets, written, strict=True):
        row = (bucket, memory_bytes, version)
        (report.inserted if bucket.stored is None else report.updated).append(row)
        bucket.stored = print_of
    return report


def _tell_all(waiting: list[Told], error: Failure) -> None:
    for told in waiting:
        try:
            told(error)
        except Exception:
            # Whoever else waits must hear of it all the same.
            logger.exception("what follows a commit has failed")
