"""Merges buckets of one series that lie beside each other in time and are partly filled, before they are packed.

Measurements that come late, lack fields or change their types leave buckets behind that hold a few of the measurements that
they could hold. Once nobody fills them any more, those that one bucket would have taken become one: the first keeps its id
and takes the measurements of the others, which go.

A pass reads and merges on a thread of its own, under snapshots. Its write closure puts a merged bucket in the place of the
others only if all of them still lie there as they were read, in one commit. Readers that look at the store slice by slice
must not see a part of that: it is done while none of them has begun to read the collection (`Engine.readers`), and put off
where some always has.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ..kernels import BucketError, bucket_summary, find_field, merge_buckets
from ..storage.engine import Engine, Transaction
from ..storage.keys import after, number_key
from . import documents, packs
from .catalog import Catalog
from .collections import Collection
from .packs import Rows
from .timeseries_options import TimeseriesOptions

_STEP_BYTES: Final = 4 * 1024 * 1024
_WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""So many bytes of buckets wait for neighbours of their series; those that have waited longest go without."""
_TOGETHER_MAX: Final = 64
"""So many buckets become one at most, and are changed in one commit, about."""
_TOGETHER_IN_PACKS_MAX: Final = 8
"""The same where packs may have to be taken apart."""
_APART_MAX: Final = 4
"""Buckets that others did not fit to are tried again with what follows, the last few of them."""
_TRIES: Final = 50
_BETWEEN_TRIES_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 0.05
"""So long readers wait for a commit to begin; then it is given up, and they go first."""


class Limits(Protocol):
    """When a bucket is full; see `BucketLimits`."""

    count_max: int
    count_min: int
    size_max: int
    size_absolute_max: int
    large_measurement: int
    version: int


class Active(Protocol):
    """What the merger needs of the bucket catalog."""

    limits: Any

    def active_ids(self, collection: Collection) -> set[bytes]:
        """Ids of the buckets that may still grow."""

    def note_merged(self, collection: Collection, count: int) -> None:
        """So many buckets have become part of others."""


@dataclass(slots=True)
class Merge:
    """Some buckets, by their record keys, and what is to lie in the place of the first; the others go."""

    members: Rows
    merged: bytes


@dataclass(slots=True)
class _Group:
    """Buckets of one series that one bucket would hold, as far as their counts and times tell."""

    first_ms: int
    members: Rows = field(default_factory=list)
    count: int = 0
    bytes: int = 0


class Groups:
    """Buckets as a walk comes by them, in the order of their ids, put together by series."""

    def __init__(self, options: TimeseriesOptions, limits: Limits, active: Set[bytes]) -> None:
        self._options = options
        self._limits = limits
        self._active = active
        self._waiting: OrderedDict[bytes, _Group] = OrderedDict()
        self._bytes = 0

    def see(self, record_key: bytes, raw: bytes) -> Iterator[Rows]:
        """Take note of the next loose bucket; yields those that nothing more is put to."""
        meta = _meta(raw)
        try:
            count, _, closed, min_ms, max_ms = bucket_summary(raw, self._options.time_field)
        except BucketError:
            return
        taken = not closed and packs.may_be_packed(record_key, raw) and record_key[1:] not in self._active
        full = count >= self._limits.count_max or len(raw) >= self._limits.size_max
        group = self._waiting.get(meta)
        if group is not None and not (taken and not full and self._fits(group, count, min_ms, max_ms, len(raw))):
            # What lies between two buckets keeps them apart.
            yield from self._done(meta)
            group = None
        if not taken or full:
            return
        if group is None:
            group = self._waiting[meta] = _Group(min_ms)
        group.members.append((record_key, raw))
        group.count += count
        group.bytes += len(raw)
        self._bytes += len(raw)
        while self._bytes > _WAITING_BYTES_MAX:
            yield from self._done(next(iter(self._waiting)))

    def finish(self) -> Iterator[Rows]:
        """Those that are left at the end."""
        while self._waiting:
            yield from self._done(next(iter(self._waiting)))

    def _fits(self, group: _Group, count: int, min_ms: int, max_ms: int, size: int) -> bool:
        return (
            len(group.members) < _TOGETHER_MAX
            and group.count + count <= self._limits.count_max
            and group.bytes + size <= self._limits.size_absolute_max
            and group.first_ms <= min_ms
            and max_ms - group.first_ms < self._options.span_ms
        )

    def _done(self, meta: bytes) -> Iterator[Rows]:
        group = self._waiting.pop(meta)
        self._bytes -= group.bytes
        if len(group.members) > 1:
            yield group.members


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a pass.

    Attributes:
        gone: so many buckets have become part of others.
        put_off: the rest waits, as somebody always reads.
    """

    gone: int
    put_off: bool


class Merger:
    """Merges the loose buckets of collections. Used on the event loop."""

    def __init__(
        self, engine: Engine, catalog: Catalog, buckets: Callable[[], Active | None], enabled: Callable[[], bool]
    ) -> None:
        """Make one.

        Args:
            buckets: the bucket catalog, once there is one.
            enabled: whether buckets are to be merged.
        """
        self._engine = engine
        self._catalog = catalog
        self._buckets = buckets
        self._enabled = enabled

    async def merge(self, collection: Collection, low: bytes, *, packed: bool = False) -> Outcome:
        """Merge what can be merged from a record key on.

        Args:
            packed: also what lies in packs, which are taken apart then.
        """
        buckets, options = self._buckets(), collection.timeseries
        if buckets is None or options is None or not self._enabled():
            return Outcome(0, put_off=False)
        # One that becomes active meanwhile is told by its bytes, or tells by itself that it was changed.
        groups = Groups(options, buckets.limits, buckets.active_ids(collection))
        resume: bytes | None = low
        gone = 0
        while resume is not None:
            read = self._read_all if packed else self._read_loose
            found, resume = await asyncio.to_thread(read, collection, groups, resume)
            merges = await asyncio.to_thread(_all_merged, collection, options, buckets.limits, found)
            for some in _portions(merges, _TOGETHER_IN_PACKS_MAX if packed else _TOGETHER_MAX):
                done = await self._commit(collection, some)
                if done is None:
                    return Outcome(gone, put_off=True)
                gone += done
                buckets.note_merged(collection, done)
        return Outcome(gone, put_off=False)

    def _read_loose(self, collection: Collection, groups: Groups, low: bytes) -> tuple[list[Rows], bytes | None]:
        """Read loose buckets from a record key on; returns those to be merged, and where to go on. On a thread of its own."""
        prefix = number_key(collection.id)
        found: list[Rows] = []
        seen = 0
        with self._engine.snapshot() as snapshot:
            for key, raw in snapshot.scan("records", prefix + low, after(prefix)):
                seen += len(raw)
                if not packs.is_pack(raw):
                    found += groups.see(key[8:], raw)
                if seen >= _STEP_BYTES:
                    return found, key[8:] + b"\0"
        found += groups.finish()
        return found, None

    def _read_all(self, collection: Collection, groups: Groups, low: bytes) -> tuple[list[Rows], bytes | None]:
        """The same of all buckets, of which those in packs are looked at by their heads."""
        found: list[Rows] = []
        resume: bytes | None = None
        seen = 0
        with self._engine.snapshot() as snapshot:
            for key, head in documents.scan(snapshot, collection.with_heads, low=low):
                seen += len(head)
                found += groups.see(key, head)
                if seen >= _STEP_BYTES:
                    resume = key + b"\0"
                    break
            else:
                found += groups.finish()
            whole: list[Rows] = []
            for group in found:
                rows = [(key, documents.fetch(snapshot, collection, key)) for key, _ in group]
                whole.append([(key, raw) for key, raw in rows if raw is not None])
        return whole, resume

    async def _commit(self, collection: Collection, merges: Sequence[Merge]) -> int | None:
        """Put merged buckets in the place of others; returns how many have gone, None where it cannot be done now."""
        prefixes = [number_key(collection.id), *(number_key(index.id) for index in collection.indexes)]
        readers = self._engine.readers
        for _ in range(_TRIES):
            if not readers.shut and not readers.any_of(prefixes):
                break
            await asyncio.sleep(_BETWEEN_TRIES_SECONDS)
        else:
            return None
        attempt = _Attempt(lambda transaction: self._put(transaction, collection, merges))
        with readers.shut_out():
            task = asyncio.ensure_future(self._engine.write(attempt))
            try:
                await asyncio.wait({task}, timeout=_PATIENCE_SECONDS)
            finally:
                if not task.done() and not attempt.give_up():
                    # It has begun, so nobody may look before it is done.
                    await asyncio.wait({task})
        if not task.done():
            task.add_done_callback(_forget)
            return None
        return task.result()

    def _put(self, transaction: Transaction, collection: Collection, merges: Sequence[Merge]) -> int:
        """Do it, where the buckets lie as they were read; on the writer's thread."""
        current = self._catalog.collection_in(transaction, collection.namespace)
        if current is None or current.id != collection.id:
            return 0
        gone = 0
        for merge in merges:
            if any(documents.fetch(transaction, current, key) != raw for key, raw in merge.members):
                continue
            (first, old), *others = merge.members
            for key, raw in others:
                documents.remove(transaction, current, key, raw)
            documents.replace(transaction, current, first, old, merge.merged)
            gone += len(others)
        return gone


class _Attempt:
    """A write that can be given up until it has begun."""

    def __init__(self, work: Callable[[Transaction], int]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._begun = False
        self._given_up = False

    def __call__(self, transaction: Transaction) -> int:
        """Run it, unless it was given up."""
        with self._lock:
            if self._given_up:
                return 0
            self._begun = True
        return self._work(transaction)

    def give_up(self) -> bool:
        """Let it do nothing when its turn comes; False where it has begun."""
        with self._lock:
            self._given_up = not self._begun
            return self._given_up


def _forget(task: "asyncio.Future[int]") -> None:
    """What was given up may fail as it likes."""
    if not task.cancelled():
        task.exception()


def _meta(raw: bytes) -> bytes:
    found = find_field(raw, "meta")
    return b"" if found is None else bytes([found[0]]) + found[1]


def _portions(merges: Sequence[Merge], buckets_max: int) -> Iterator[list[Merge]]:
    """As many merges at a time as a short commit does."""
    some: list[Merge] = []
    for merge in merges:
        some.append(merge)
        if sum(len(one.members) for one in some) >= buckets_max:
            yield some
            some = []
    if some:
        yield some


def _all_merged(
    collection: Collection, options: TimeseriesOptions, limits: Limits, found: Sequence[Rows]
) -> list[Merge]:
    """The merges of several groups; on a thread of its own."""
    return [merge for members in found for merge in _merged(collection, options, limits, members)]


def _merged(collection: Collection, options: TimeseriesOptions, limits: Limits, members: Rows) -> list[Merge]:
    """The merges of some buckets: all in one or, where types keep some apart, each with the first that it fits to."""
    whole = _one(collection, options, limits, [raw for _, raw in members])
    if whole is not None:
        return [Merge(members, whole)]
    merges: list[Merge] = []
    for key, raw in members:
        for merge in merges[-_APART_MAX:]:
            made = _one(collection, options, limits, [merge.merged, raw])
            if made is not None:
                merge.members.append((key, raw))
                merge.merged = made
                break
        else:
            merges.append(Merge([(key, raw)], raw))
    return [merge for merge in merges if len(merge.members) > 1]


def _one(collection: Collection, options: TimeseriesOptions, limits: Limits, raws: list[bytes]) -> bytes | None:
    try:
        return merge_buckets(
            raws,
            options.time_field,
            options.meta_field,
            rounding_ms=options.rounding_seconds * 1000,
            version=limits.version,
            span_ms=options.span_ms,
            max_count=limits.count_max,
            effective_max=limits.size_max,
            absolute_max=limits.size_absolute_max,
            min_count=limits.count_min,
            large_threshold=limits.large_measurement,
            collate=collection.collate,
        )
    except (BucketError, ValueError):
        # A bucket that somebody wrote by himself stays as it is.
        return None
