"""The buckets that measurements can go to without a look at the store: open ones in memory, archived ones by their names.

Of each series one bucket is current. One that had to make way for an earlier time is archived: only its first time and its
id are remembered. One that made way for a later time is forgotten. Either lingers while something of it waits to be stored,
and can become the current one again.

Measurements of several clients come interleaved, so that buckets of one series take turns for a while. What made way is
therefore kept a little longer as it was stored, so that it need not be looked for and decoded. Whether it still lies there
like that is for its next commit to see, as of every open bucket.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bson import ObjectId

from ..kernels import BucketBuilder, OpenSeries, fingerprint, key_string
from .documents import Entries
from .namespaces import Namespace

Meta = bytes | None
"""Type byte and value of a normalised meta value; None where measurements have none."""

_OBJECT_ID_ELEMENT: Final = b"\x16\x00\x00\x00\x07_id\x00"
_OPEN_OVERHEAD_BYTES: Final = 700
"""About what Python keeps of an open bucket beside its columns."""
_ARCHIVED_BYTES: Final = 250
_KEPT_MIN: Final = 16
_KEPT_MAX: Final = 2_000


@dataclass(slots=True, eq=False)
class OpenBucket:
    """A bucket in memory.

    Attributes:
        namespace, collection_id: where it is stored.
        min_ms, span_ms: the times that it takes begin here, and this long after they end.
        bucket_id, record_key: twelve bytes of its `_id`, and where it is stored within its collection.
        stored: fingerprint of its bytes in the store; None before its first commit.
        entries: its index entries as they are stored, where they are known.
        version: schema version as it was last stored.
        memory_bytes: what it took when that was last looked at.
        staged: something of it waits for a commit.
        writing: a commit that holds something of it is under way.
        lingering: it made way for another one, and goes once nothing of it waits.
        to_archive: when it goes, it is archived.
    """

    namespace: Namespace
    collection_id: int
    builder: BucketBuilder
    meta: Meta
    min_ms: int
    span_ms: int
    bucket_id: bytes
    record_key: bytes = field(init=False)
    stored: bytes | None = None
    entries: Entries | None = None
    version: int = 2
    memory_bytes: int = 0
    staged: bool = False
    writing: bool = False
    lingering: bool = False
    to_archive: bool = False

    def __post_init__(self) -> None:
        self.record_key = key_string(_OBJECT_ID_ELEMENT + self.bucket_id + b"\0")

    @property
    def waits(self) -> bool:
        """Whether something of it is not stored yet."""
        return self.staged or self.writing

    def takes(self, time_ms: int) -> bool:
        """Whether the time lies in what it covers."""
        return 0 <= time_ms - self.min_ms < self.span_ms


class OpenBuckets:
    """All open and archived buckets of a server."""

    def __init__(self) -> None:
        self._current: dict[int, OpenSeries] = {}
        self._lingering: dict[tuple[int, Meta], list[OpenBucket]] = {}
        self._used: OrderedDict[OpenBucket, None] = OrderedDict()
        """Open buckets, the one that was used longest ago first."""
        self._archived: OrderedDict[tuple[int, bytes], dict[int, bytes]] = OrderedDict()
        self.archived_count = 0
        self._kept: dict[OpenBucket, None] = {}
        """Buckets that made way, the one that did so first in front."""
        self._kept_of: dict[tuple[int, Meta], list[OpenBucket]] = {}
        self._open_bytes = 0

    @property
    def open_count(self) -> int:
        """Buckets in memory."""
        return len(self._used)

    @property
    def active_count(self) -> int:
        """Open and archived buckets."""
        return len(self._used) + self.archived_count

    @property
    def idle_count(self) -> int:
        """Open buckets that wait for nothing."""
        return sum(not bucket.waits for bucket in self._used)

    @property
    def memory_bytes(self) -> int:
        """About what all of them take."""
        return self._open_bytes + self.archived_count * _ARCHIVED_BYTES

    def __iter__(self) -> Iterator[OpenBucket]:
        return iter(list(self._used))

    def __contains__(self, bucket: OpenBucket) -> bool:
        return bucket in self._used

    def series(self, collection_id: int) -> OpenSeries:
        """The current bucket of each series of a collection; to be read only."""
        series = self._current.get(collection_id)
        if series is None:
            series = self._current[collection_id] = OpenSeries()
        return series

    def of_series(self, collection_id: int, meta: Meta) -> list[OpenBucket]:
        """All open buckets of a series."""
        current = self.series(collection_id).get(meta)
        return [*self._lingering.get((collection_id, meta), ()), *([] if current is None else [current])]

    def lingering_for(self, collection_id: int, meta: Meta, time_ms: int) -> OpenBucket | None:
        """A bucket that made way for another one and covers the time."""
        waiting = self._lingering.get((collection_id, meta), ())
        return next((bucket for bucket in waiting if bucket.takes(time_ms)), None)

    def make_current(self, bucket: OpenBucket) -> None:
        """Open a bucket, or let one that lingers be the current one of its series again."""
        if bucket.lingering:
            bucket.lingering = False
            self._drop_lingering(bucket)
        self.series(bucket.collection_id).set(bucket.meta, bucket, bucket.builder, bucket.min_ms, bucket.span_ms)
        self.used(bucket)

    def used(self, bucket: OpenBucket) -> None:
        """The bucket was used just now."""
        self._used[bucket] = None
        self._used.move_to_end(bucket)

    def used_many(self, buckets: Iterable[OpenBucket]) -> None:
        """The same of several that are open."""
        move = self._used.move_to_end
        for bucket in buckets:
            move(bucket)

    def measured(self, bucket: OpenBucket, memory_bytes: int) -> None:
        """What the bucket takes in memory, the overhead of Python not counted."""
        if bucket in self._used:
            size = memory_bytes + _OPEN_OVERHEAD_BYTES
            self._open_bytes += size - bucket.memory_bytes
            bucket.memory_bytes = size

    def close(self, bucket: OpenBucket) -> None:
        """Forget an open bucket; what waits of it is stored all the same."""
        if bucket in self._used:
            del self._used[bucket]
            self._open_bytes -= bucket.memory_bytes
            bucket.memory_bytes = 0
        series = self._current.get(bucket.collection_id)
        if series is not None and series.get(bucket.meta) is bucket:
            series.remove(bucket.meta)
        if bucket.lingering:
            bucket.lingering = False
            self._drop_lingering(bucket)

    def make_way(self, bucket: OpenBucket, *, archive: bool, keep: bool = True) -> None:
        """Let an open bucket linger until all of it is stored; then keep it for a while, archived or not.

        Args:
            archive: remember where it is, also when it is kept no more.
            keep: False where its memory is wanted.
        """
        if bucket.waits:
            memory_bytes = bucket.memory_bytes
            self.close(bucket)
            bucket.lingering, bucket.to_archive = True, archive
            self._lingering.setdefault((bucket.collection_id, bucket.meta), []).append(bucket)
            self._used[bucket] = None
            bucket.memory_bytes = memory_bytes
            self._open_bytes += memory_bytes
            return
        self.close(bucket)
        if bucket.stored is None:
            return
        if archive:
            self._archive(bucket)
        if not keep:
            return
        self._kept[bucket] = None
        self._kept_of.setdefault((bucket.collection_id, bucket.meta), []).append(bucket)
        while len(self._kept) > min(4 * len(self._used) + _KEPT_MIN, _KEPT_MAX):
            self._let_go(next(iter(self._kept)))

    def kept_for(self, collection_id: int, meta: Meta, time_ms: int) -> OpenBucket | None:
        """A bucket that made way lately and covers the time."""
        kept = self._kept_of.get((collection_id, meta), ())
        return next((bucket for bucket in kept if bucket.takes(time_ms)), None)

    def let_go_of_kept(self, *namespaces: Namespace) -> None:
        """Keep nothing more of what made way, everywhere or in some collections."""
        for bucket in list(self._kept):
            if not namespaces or bucket.namespace in namespaces:
                self._let_go(bucket)

    def is_archived(self, bucket: OpenBucket) -> bool:
        """Whether the bucket is one of those that are archived."""
        by_start = self._archived.get(_archive_key(bucket.collection_id, bucket.meta), {})
        return by_start.get(bucket.min_ms) == bucket.bucket_id

    def take_kept(self, bucket: OpenBucket) -> bool:
        """Let a kept bucket go, archived or not, because it is going to be open; returns whether it was archived."""
        self._let_go(bucket)
        archived = self.is_archived(bucket)
        if archived:
            key = _archive_key(bucket.collection_id, bucket.meta)
            self._unarchive(key, self._archived[key], bucket.min_ms)
        return archived

    def _let_go(self, bucket: OpenBucket) -> None:
        del self._kept[bucket]
        key = (bucket.collection_id, bucket.meta)
        kept = self._kept_of[key]
        kept.remove(bucket)
        if not kept:
            del self._kept_of[key]

    def _archive(self, bucket: OpenBucket) -> None:
        by_start = self._archived.setdefault(_archive_key(bucket.collection_id, bucket.meta), {})
        # Of two with one start, the one that is known already stays.
        if bucket.min_ms not in by_start:
            by_start[bucket.min_ms] = bucket.bucket_id
            self.archived_count += 1

    def take_archived(self, collection_id: int, meta: Meta, time_ms: int, span_ms: int) -> bytes | None:
        """Id of the archived bucket that begins latest and covers the time; it is archived no more."""
        if not self._archived:
            return None
        key = _archive_key(collection_id, meta)
        by_start = self._archived.get(key)
        if by_start is None:
            return None
        start = max((start for start in by_start if 0 <= time_ms - start < span_ms), default=None)
        return None if start is None else self._unarchive(key, by_start, start)

    def forget_archived(self, collection_id: int, bucket_ids: set[bytes] | None = None) -> None:
        """Forget the archived buckets of a collection, or some of them, and what is kept of those that made way."""
        for kept in [kept for kept in self._kept if kept.collection_id == collection_id]:
            if bucket_ids is None or kept.bucket_id in bucket_ids:
                self._let_go(kept)
        for key in [key for key in self._archived if key[0] == collection_id]:
            by_start = self._archived[key]
            for start, bucket_id in list(by_start.items()):
                if bucket_ids is None or bucket_id in bucket_ids:
                    self._unarchive(key, by_start, start)

    def ids(self, collection_id: int) -> set[bytes]:
        """Ids of the open and archived buckets of a collection."""
        found = {bucket.bucket_id for bucket in self._used if bucket.collection_id == collection_id}
        for key, by_start in self._archived.items():
            if key[0] == collection_id:
                found.update(by_start.values())
        return found

    def oldest_idle(self) -> OpenBucket | None:
        """The bucket that was used longest ago and waits for nothing."""
        return next((bucket for bucket in self._used if not bucket.waits), None)

    def drop_oldest_archived(self) -> int | None:
        """Forget one archived bucket; returns the collection's number, None where there is none."""
        for key, by_start in self._archived.items():
            self._unarchive(key, by_start, next(iter(by_start)))
            return key[0]
        return None

    def forget_ids(self, collection_id: int, bucket_ids: Iterable[ObjectId]) -> None:
        """Somebody else wrote to these buckets: they are neither open nor archived any more."""
        gone = {bucket_id.binary for bucket_id in bucket_ids}
        for bucket in self:
            if bucket.collection_id == collection_id and bucket.bucket_id in gone:
                self.close(bucket)
        self.forget_archived(collection_id, gone)

    def _unarchive(self, key: tuple[int, bytes], by_start: dict[int, bytes], start: int) -> bytes:
        bucket_id = by_start.pop(start)
        self.archived_count -= 1
        if not by_start:
            del self._archived[key]
        return bucket_id

    def _drop_lingering(self, bucket: OpenBucket) -> None:
        key = (bucket.collection_id, bucket.meta)
        waiting = self._lingering.get(key, [])
        if bucket in waiting:
            waiting.remove(bucket)
        if not waiting:
            self._lingering.pop(key, None)


def _archive_key(collection_id: int, meta: Meta) -> tuple[int, bytes]:
    return collection_id, b"" if meta is None else fingerprint(meta)
