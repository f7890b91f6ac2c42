"""Writes changed buckets to the store, one commit at a time: whoever commits, commits for all who wait.

While a commit is under way, measurements gather in the buckets of the next one. A bucket that is not stored as it was left
(somebody wrote to it directly, or dropped it) is given up together with everything that waits, and whoever waits places
his measurements anew: a measurement is acknowledged after exactly one commit that holds it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from ..common.errors import DuplicateKey
from ..kernels import BucketBuilder, key_string
from ..storage.engine import Engine, Transaction
from . import documents
from .catalog import Catalog
from .namespaces import Namespace

_OBJECT_ID_ELEMENT: Final = b"\x16\x00\x00\x00\x07_id\x00"


class BucketsChanged(Exception):
    """What was placed has to be placed again: a bucket is no longer what it was."""


@dataclass(slots=True, eq=False)
class OpenBucket:
    """A bucket in memory.

    Attributes:
        namespace, collection_id: where it is stored.
        stored: digest of its bytes in the store; None before its first commit.
        span_ms: how much time it may cover.
        version: schema version as it was last stored.
        memory_bytes: what it took when that was last looked at.
    """

    namespace: Namespace
    collection_id: int
    builder: BucketBuilder
    span_ms: int
    stored: bytes | None = None
    version: int = 2
    memory_bytes: int = 0
    staged: bool = False

    @property
    def record_key(self) -> bytes:
        """Where it is stored within its collection."""
        return key_string(_OBJECT_ID_ELEMENT + self.builder.bucket_id + b"\0")

    def takes(self, time_ms: int) -> bool:
        """Whether the time lies in what it covers."""
        return bool(0 <= time_ms - self.builder.min_ms < self.span_ms)


@dataclass(slots=True)
class CommitReport:
    """What one commit wrote, for the counters."""

    inserted: list[OpenBucket]
    updated: list[OpenBucket]


class BucketCommits:
    """The commits of one bucket catalog."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        on_stored: Callable[[CommitReport], None],
        on_lost: Callable[[Iterable[OpenBucket]], None],
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._on_stored = on_stored
        self._on_lost = on_lost
        self._staged: dict[OpenBucket, None] = {}
        self._writing: list[OpenBucket] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._running: asyncio.Task[None] | None = None
        self.waits = 0
        """How often somebody waited for a commit that was under way."""

    def stage(self, bucket: OpenBucket) -> None:
        """The bucket holds something that the next commit has to store."""
        bucket.staged = True
        self._staged[bucket] = None

    def unstored(self, collection_id: int) -> set[bytes]:
        """Ids of the collection's buckets that are not stored as they are in memory."""
        return {
            bucket.builder.bucket_id
            for bucket in (*self._staged, *self._writing)
            if bucket.collection_id == collection_id
        }

    async def commit(self) -> None:
        """Wait until everything staged so far is durable.

        Raises:
            BucketsChanged: place the measurements again.
            MongoError, StorageError: they were not stored, and will not be.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())
        else:
            self.waits += 1
        await done

    async def _run(self) -> None:
        while self._waiting:
            buckets, waiting = list(self._staged), self._waiting
            self._staged, self._waiting = {}, []
            self._writing = buckets
            try:
                await self._store(buckets)
            except (BucketsChanged, DuplicateKey):
                self._give_up(buckets, waiting, BucketsChanged())
            except Exception as error:
                # Whatever it is, nobody may be left waiting for it; those who wait raise it to their clients.
                self._give_up(buckets, waiting, error)
            else:
                _settle(waiting, None)
            finally:
                self._writing = []

    async def _store(self, buckets: list[OpenBucket]) -> None:
        for bucket in buckets:
            bucket.staged = False
        writes = [(bucket, bucket.builder.document()) for bucket in buckets]
        by_namespace: dict[Namespace, list[tuple[OpenBucket, bytes]]] = {}
        for bucket, raw in writes:
            by_namespace.setdefault(bucket.namespace, []).append((bucket, raw))

        def work(transaction: Transaction) -> None:
            for namespace, rows in by_namespace.items():
                _write(self._catalog, transaction, namespace, rows)

        await self._engine.write(work)
        report = CommitReport([], [])
        for bucket, raw in writes:
            (report.inserted if bucket.stored is None else report.updated).append(bucket)
            bucket.stored = digest(raw)
        self._on_stored(report)

    def _give_up(self, buckets: list[OpenBucket], waiting: list["asyncio.Future[None]"], error: Exception) -> None:
        """Forget the buckets, and those that were staged meanwhile; tell everybody."""
        self._on_lost([*buckets, *self._staged])
        later, self._waiting = self._waiting, []
        self._staged = {}
        _settle(waiting, error)
        _settle(later, BucketsChanged())


def _write(
    catalog: Catalog, transaction: Transaction, namespace: Namespace, rows: list[tuple[OpenBucket, bytes]]
) -> None:
    """Store the buckets of one collection, each of which must lie there as it was left."""
    collection = catalog.collection_in(transaction, namespace)
    new: list[bytes] = []
    changes: list[tuple[bytes, bytes, bytes]] = []
    for bucket, raw in rows:
        if collection is None or collection.id != bucket.collection_id:
            raise BucketsChanged
        if bucket.stored is None:
            new.append(raw)
            continue
        old = documents.fetch(transaction, collection, bucket.record_key)
        if old is None or digest(old) != bucket.stored:
            raise BucketsChanged
        changes.append((bucket.record_key, old, raw))
    if collection is not None:
        if new:
            documents.insert_many(transaction, collection, new)
        documents.replace_many(transaction, collection, changes)


def digest(raw: bytes) -> bytes:
    """What is remembered of stored bytes, to know them again."""
    return blake2b(raw, digest_size=16).digest()


def _settle(waiting: list["asyncio.Future[None]"], error: Exception | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
