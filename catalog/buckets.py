"""The bucket catalog: which bucket takes a measurement, and when a bucket is full.

A bucket holds measurements of one series (equal meta values) within a span of time. Measurements are placed in memory, run
by run, and stored by `BucketCommits`. The rules by which a bucket closes are the kernel's (`OpenSeries.place`); this module
decides which bucket is asked, opens, archives and reopens them, and counts.
"""

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bson import Int64, ObjectId

from ..common.errors import NamespaceNotFound
from ..common.values import Document
from ..kernels import BucketBuilder, BucketError, Partition, Run
from ..storage.engine import Engine, Failure
from .bucket_commits import BucketCommits, BucketsChanged, CommitReport, Told
from .bucket_counters import CLOSED_DUE_TO, BucketCounters
from .bucket_reopening import fetch_bucket, find_buckets, has_room, reopened, series_index
from .catalog import Catalog
from .collections import Collection
from .namespaces import Namespace
from .open_buckets import Meta, OpenBucket, OpenBuckets
from .timeseries_options import EXTENDED_RANGE, TimeseriesOptions

_INT32_MAX: Final = 2**31 - 1

Fresh = tuple[int, bytes]
"""A number of buckets, and the lowest of their ids."""


@dataclass(frozen=True, slots=True)
class BucketLimits:
    """When a bucket is full, and how much all of them may take; sizes in bytes.

    Attributes:
        count_max: measurements of one bucket.
        count_min: below so many, a bucket of large measurements may grow beyond `size_max`.
        size_max, size_absolute_max: of one bucket, and of one of large measurements.
        size_min: what the share of a bucket in the cache never falls below.
        large_measurement: a longer value counts as it is, a shorter one as it was compressed.
        memory_max: what open and archived buckets may take in memory.
        expired_max: beyond it, an attempt to make room ends.
        cache_bytes: what active buckets share, each getting half of an even part.
        version: schema version that new buckets are written in.
        retries_on_duplicates: how often new ids are tried where those of new buckets are taken.
    """

    count_max: int = 1000
    count_min: int = 10
    size_max: int = 128_000
    size_absolute_max: int = 12 * 1024 * 1024
    size_min: int = 5120
    large_measurement: int = 512
    memory_max: int = 256 * 1024 * 1024
    expired_max: int = 3
    cache_bytes: int = 1024 * 1024 * 1024
    version: int = 2
    retries_on_duplicates: int = 5


@dataclass(slots=True, eq=False)
class _Insert:
    """A batch for which nobody waits, whom to tell, and why it could not be placed, if it could not."""

    buckets: Collection
    batch: Partition
    told: Told
    failed: Exception | None = None

    def first_ms(self) -> int:
        """Its earliest time."""
        return self.batch.first_ms


class BucketCatalog:
    """Open buckets of every time-series collection. Used on the event loop only."""

    def __init__(self, engine: Engine, catalog: Catalog, limits: BucketLimits) -> None:
        self._engine = engine
        self._catalog = catalog
        self.limits = limits
        """Can be changed at any time."""
        self._buckets = OpenBuckets()
        self._serial = secrets.randbits(63)
        self._counters = BucketCounters()
        self._fresh: dict[int, Fresh] = {}
        self._again: set[asyncio.Task[None]] = set()
        """Inserts whose buckets changed and for which nobody waits: a task that nobody holds may be lost."""
        self._unplaced: list[_Insert] = []
        """What will be placed when the next commit begins."""
        self.commits = BucketCommits(engine, catalog, self._place_waiting, self._stored, self._lost)

    async def insert(self, namespace: Namespace, batch: Partition, *, duplicates: int = 0) -> None:
        """Place the measurements in buckets of the collection and wait until all of them are durable, together.

        Args:
            namespace: where the buckets are.
            batch: as `kernels.partition` makes it; what it refused is left out.
            duplicates: how often new buckets of it have met ids that are taken.

        Raises:
            NamespaceNotFound: the collection has gone.
            DuplicateKey: new buckets met ids that are taken, again and again.
            MongoError, StorageError: nothing was stored.
        """
        while True:
            buckets = self._catalog.get(namespace)
            if buckets is None or buckets.timeseries is None:
                raise NamespaceNotFound(f"ns not found: {namespace.view_of_buckets}")
            self._place_all(buckets, buckets.timeseries, batch)
            if batch.extended and not buckets.flags.get(EXTENDED_RANGE):
                await self._catalog.modify(namespace, _flagged_extended)
            counters = self._counters.of(buckets.id)
            counters["numWaits"] += self.commits.under_way
            try:
                await self.commits.commit()
            except BucketsChanged as changed:
                duplicates += changed.duplicate is not None
                if changed.duplicate is not None and duplicates > self.limits.retries_on_duplicates:
                    raise changed.duplicate from None
                continue
            counters["numMeasurementsCommitted"] += batch.measurements
            return

    def begin(self, buckets: Collection, batch: Partition, told: Told) -> bool:
        """The same for who does not wait: `told` hears how it ended. False, and nothing done, where more than a commit is needed.

        The measurements are placed when the next commit begins.
        """
        if buckets.timeseries is None or (batch.extended and not buckets.flags.get(EXTENDED_RANGE)):
            return False
        self._counters.of(buckets.id)["numWaits"] += self.commits.under_way
        insert = _Insert(buckets, batch, told)
        self._unplaced.append(insert)
        self.commits.commit_then(partial(self._ended, insert))
        return True

    def _place_waiting(self) -> None:
        """Place what waits for the commit that is about to begin, the earliest first.

        Clients that send side by side do not arrive in the order of time, and a series changes its bucket each time that
        it goes back and forth.
        """
        waiting, self._unplaced = self._unplaced, []
        if len(waiting) > 1:
            waiting.sort(key=_Insert.first_ms)
        for insert in waiting:
            buckets = insert.buckets
            if self._catalog.get(buckets.namespace) is not buckets or buckets.timeseries is None:
                insert.failed = BucketsChanged()
                continue
            try:
                self._place_all(buckets, buckets.timeseries, insert.batch)
            except Exception as error:
                # It is told with the commit, and keeps nobody else from it.
                insert.failed = error

    def _ended(self, insert: "_Insert", error: Failure) -> None:
        """The commit of an insert for which nobody waits has ended."""
        error = insert.failed or error
        if insert in self._unplaced:
            # The commit before its own has failed, and so nothing of it was placed: it begins anew, once.
            self._unplaced.remove(insert)
        if isinstance(error, BucketsChanged):
            if error.duplicate is None or self.limits.retries_on_duplicates > 0:
                self._insert_again(insert, duplicates=int(error.duplicate is not None))
                return
            error = error.duplicate
        if error is None:
            self._counters.of(insert.buckets.id)["numMeasurementsCommitted"] += insert.batch.measurements
        insert.told(error)

    def _insert_again(self, again: "_Insert", duplicates: int) -> None:
        """Place a batch anew of which nothing was stored."""

        async def insert() -> None:
            try:
                await self.insert(again.buckets.namespace, again.batch, duplicates=duplicates)
            except Exception as error:
                # Whatever it is, it is told.
                again.told(error)
            else:
                again.told(None)

        task = asyncio.get_running_loop().create_task(insert())
        self._again.add(task)
        task.add_done_callback(self._again.discard)

    def forget(self, namespace: Namespace) -> None:
        """The collection was dropped, renamed or changed: let go of its buckets."""
        gone = [bucket for bucket in self._buckets if bucket.namespace in (namespace, namespace.buckets)]
        self._lost(gone)
        self._buckets.let_go_of_kept(namespace, namespace.buckets)
        for collection_id in {bucket.collection_id for bucket in gone}:
            self._buckets.forget_archived(collection_id)
        buckets = self._catalog.get(namespace.buckets if not namespace.is_buckets else namespace)
        if buckets is not None:
            self._buckets.forget_archived(buckets.id)

    def forget_buckets(self, collection: Collection, bucket_ids: Iterable[ObjectId]) -> None:
        """Somebody else removed or changed these buckets: let go of those that are open or archived."""
        self._buckets.forget_ids(collection.id, bucket_ids)

    def active_ids(self, collection: Collection) -> set[bytes]:
        """Ids of the buckets of a collection that measurements may still go to."""
        return self._buckets.ids(collection.id)

    def fresh(self, collection: Collection) -> Fresh | None:
        """The buckets of a collection that were stored for the first time since this was last asked."""
        return self._fresh.pop(collection.id, None)

    def note_merged(self, collection: Collection, count: int) -> None:
        """So many buckets of a collection have become part of others."""
        self._counters.of(collection.id)["numBucketsMerged"] += count

    def statistics(self, collection: Collection) -> Document:
        """The counters of a collection, as `collStats` shows them."""
        return self._counters.shown(collection.id)

    def status(self) -> Document:
        """The section `bucketCatalog` of `serverStatus`; empty until there was a time-series collection."""
        total = self._counters.total()
        if total is None:
            return {}
        return {
            "numBuckets": Int64(self._buckets.active_count),
            "numOpenBuckets": Int64(self._buckets.open_count),
            "numIdleBuckets": Int64(self._buckets.idle_count),
            "numArchivedBuckets": Int64(self._buckets.archived_count),
            "memoryUsage": Int64(self._buckets.memory_bytes),
            **total,
        }

    def _place_all(self, buckets: Collection, options: TimeseriesOptions, batch: Partition) -> None:
        """Put every measurement of a batch into a bucket."""
        placing = _Placing(buckets, options, self.limits, self._buckets.active_count)
        # Nearly every run goes to the current bucket of its series: one call of the kernel does these.
        waiting, others, kept_open = self._buckets.series(buckets.id).place(batch, **placing.limits)
        self.commits.stage_many(waiting)
        self._buckets.used_many(waiting)
        if kept_open:
            self._counters.of(buckets.id)["numBucketsKeptOpenDueToLargeMeasurements"] += kept_open
        for run, meta, position, refusal in others:
            self._place(placing, run, meta, position, refusal)

    def _place(self, placing: "_Placing", run: Run, meta: Meta, position: int, refusal: str | None) -> None:
        """Put the measurements of a run from `position` on into buckets, the current one having refused it or not."""
        series = self._buckets.series(placing.buckets.id)
        while True:
            bucket = series.get(meta)
            if refusal is not None and bucket is not None:
                self._roll_over(placing, bucket, refusal)
                bucket = None
            if bucket is None:
                bucket = self._open(placing, meta, run.time_ms(position), refusal)
            taken, refusal, kept_open = bucket.builder.append_run(run, position, **placing.limits)
            self._took(bucket, taken, kept_open=kept_open)
            position += taken
            if refusal is None:
                return

    def _took(self, bucket: OpenBucket, taken: int = 1, *, kept_open: bool = False) -> None:
        if taken:
            self.commits.stage(bucket)
            self._buckets.used(bucket)
        if kept_open:
            self._counters.of(bucket.collection_id)["numBucketsKeptOpenDueToLargeMeasurements"] += 1

    def _roll_over(self, placing: "_Placing", bucket: OpenBucket, refusal: str) -> None:
        """The current bucket of a series cannot take a measurement: it makes way."""
        counters = self._counters.of(bucket.collection_id)
        if refusal == "time_backward":
            counters["numBucketsArchivedDueToTimeBackward"] += 1
            self._buckets.make_way(bucket, archive=True)
        elif refusal == "time_forward":
            counters["numBucketsClosedDueToTimeForward"] += 1
            self._buckets.make_way(bucket, archive=False)
        else:
            if refusal == "size" and placing.presses(bucket.builder.count):
                refusal = "cache_pressure"
            counters[CLOSED_DUE_TO[refusal]] += 1
            self._buckets.close(bucket)

    def _open(self, placing: "_Placing", meta: Meta, time_ms: int, refusal: str | None) -> OpenBucket:
        """Make a bucket current that covers the time: one that lingers, an archived one, a stored one, or a new one.

        A bucket that was full is followed by a new one, and so is one whose time had passed, unless the next is archived or kept.
        """
        counters = self._counters.of(placing.buckets.id)
        bucket = None
        if refusal is None:
            counters["numBucketsOpenedDueToMetadata"] += 1
        if refusal in (None, "time_forward", "time_backward"):
            bucket = self._buckets.lingering_for(placing.buckets.id, meta, time_ms)
            bucket = bucket or self._kept(placing, meta, time_ms)
            bucket = bucket or self._fetched(placing, meta, time_ms)
            if bucket is None and refusal != "time_forward":
                bucket = self._queried(placing, meta, time_ms)
        bucket = bucket or self._new(placing, meta, time_ms)
        self._buckets.make_current(bucket)
        self._buckets.measured(bucket, bucket.builder.memory_bytes)
        self._make_room(placing)
        return bucket

    def _new(self, placing: "_Placing", meta: Meta, time_ms: int) -> OpenBucket:
        options, buckets = placing.options, placing.buckets
        min_ms = options.round_down(time_ms)
        self._serial = (self._serial + 1) & (2**64 - 1)
        bucket_id = (min_ms // 1000 & 0xFFFF_FFFF).to_bytes(4, "big") + self._serial.to_bytes(8, "big")
        version = placing.bucket_limits.version
        builder = BucketBuilder(options.time_field, meta, bucket_id, min_ms, version, buckets.collate)
        return OpenBucket(
            buckets.namespace, buckets.id, builder, meta, min_ms, options.span_ms, bucket_id, version=version
        )

    def _kept(self, placing: "_Placing", meta: Meta, time_ms: int) -> OpenBucket | None:
        """A bucket that made way lately, in the place of what would be fetched or found."""
        buckets, limits = placing.buckets, placing.bucket_limits
        found = self._buckets.kept_for(buckets.id, meta, time_ms)
        if found is None:
            return None
        builder = found.builder
        if builder.count >= limits.count_max or builder.size_bytes >= placing.limits["effective_max"]:
            return None
        archived = self._buckets.take_kept(found)
        counters = self._counters.of(buckets.id)
        counters["numBucketsFetched" if archived else "numBucketsQueried"] += 1
        counters["numBucketsReopened"] += 1
        return found

    def _fetched(self, placing: "_Placing", meta: Meta, time_ms: int) -> OpenBucket | None:
        """The archived bucket that covers the time, if it still has room."""
        buckets = placing.buckets
        bucket_id = self._buckets.take_archived(buckets.id, meta, time_ms, placing.options.span_ms)
        if bucket_id is None:
            return None
        counters = self._counters.of(buckets.id)
        with self._engine.snapshot() as snapshot:
            raw = fetch_bucket(snapshot, buckets, bucket_id)
        found = None if raw is None else self._reopen(placing, raw, meta)
        counters["numBucketsFetched" if found is not None else "numBucketFetchesFailed"] += 1
        return found

    def _queried(self, placing: "_Placing", meta: Meta, time_ms: int) -> OpenBucket | None:
        """A stored bucket of the series that covers the time and has room."""
        buckets, options = placing.buckets, placing.options
        index = series_index(buckets, options)
        if index is None:
            return None
        counters = self._counters.of(buckets.id)
        with self._engine.snapshot() as snapshot:
            for raw in find_buckets(snapshot, buckets, options, index, meta, time_ms):
                found = self._reopen(placing, raw, meta)
                if found is not None:
                    counters["numBucketsQueried"] += 1
                    return found
        counters["numBucketQueriesFailed"] += 1
        return None

    def _reopen(self, placing: "_Placing", raw: bytes, meta: Meta) -> OpenBucket | None:
        """The stored bucket as an open one, where it may go on growing."""
        buckets, limits = placing.buckets, placing.bucket_limits
        counters = self._counters.of(buckets.id)
        try:
            if not has_room(raw, placing.options, limits.count_max, placing.limits["effective_max"]):
                return None
            found = reopened(raw, buckets, placing.options)
        except BucketError:
            counters["numBucketReopeningsFailed"] += 1
            return None
        # What is open, or on its way to the store, is not what is stored.
        if any(bucket.bucket_id == found.bucket_id for bucket in self._buckets.of_series(buckets.id, meta)):
            counters["numDuplicateBucketsReopened"] += 1
            return None
        if self.commits.waits_for(buckets.id, found.bucket_id) or found.meta != meta:
            return None
        counters["numBucketsReopened"] += 1
        return found

    def _make_room(self, placing: "_Placing") -> None:
        """Archive buckets that were used longest ago, and then forget archived ones, while all take too much memory."""
        limits = placing.bucket_limits
        for _ in range(limits.expired_max + 1):
            if self._buckets.memory_bytes <= limits.memory_max:
                return
            self._buckets.let_go_of_kept()
            oldest = self._buckets.oldest_idle()
            if oldest is not None:
                self._counters.of(oldest.collection_id)["numBucketsArchivedDueToMemoryThreshold"] += 1
                self._buckets.make_way(oldest, archive=True, keep=False)
                continue
            collection_id = self._buckets.drop_oldest_archived()
            if collection_id is None:
                return
            self._counters.of(collection_id)["numBucketsClosedDueToMemoryThreshold"] += 1

    def _stored(self, report: CommitReport) -> None:
        for stored, name in ((report.inserted, "numBucketInserts"), (report.updated, "numBucketUpdates")):
            for bucket, memory_bytes, version in stored:
                counters = self._counters.of(bucket.collection_id)
                counters[name] += 1
                counters["numCommits"] += 1
                if version != bucket.version:
                    counters["numCompressedBucketsConvertedToUnsorted"] += bucket.version == 2
                    bucket.version = version
                self._buckets.measured(bucket, memory_bytes)
                if bucket.lingering and not bucket.staged:
                    self._buckets.make_way(bucket, archive=bucket.to_archive)
        for bucket, _, _ in report.inserted:
            count, lowest = self._fresh.get(bucket.collection_id, (0, bucket.bucket_id))
            self._fresh[bucket.collection_id] = (count + 1, min(lowest, bucket.bucket_id))

    def _lost(self, buckets: Iterable[OpenBucket]) -> None:
        # Another serial number, should one that was given collide with a bucket that is stored.
        self._serial = secrets.randbits(63)
        for bucket in list(buckets):
            self._buckets.close(bucket)


class _Placing:
    """What stays the same while a batch is placed."""

    def __init__(
        self, buckets: Collection, options: TimeseriesOptions, bucket_limits: BucketLimits, active_count: int
    ) -> None:
        self.buckets = buckets
        self.options = options
        self.bucket_limits = bucket_limits
        share = _INT32_MAX
        if active_count:
            share = max(min(bucket_limits.cache_bytes // (2 * active_count), _INT32_MAX), bucket_limits.size_min)
        effective = min(bucket_limits.size_max, share)
        self.limits: dict[str, Any] = {
            "span_ms": options.span_ms,
            "max_count": bucket_limits.count_max,
            "effective_max": effective,
            "absolute_max": min(bucket_limits.size_absolute_max, share),
            "min_count": bucket_limits.count_min,
            "large_threshold": bucket_limits.large_measurement,
        }

    def presses(self, count: int) -> bool:
        """Whether a bucket of so many measurements had to close because active buckets are many."""
        if count < self.bucket_limits.count_min:
            return bool(self.limits["absolute_max"] < self.bucket_limits.size_absolute_max)
        return bool(self.limits["effective_max"] < self.bucket_limits.size_max)


def _flagged_extended(collection: Collection) -> Collection:
    return collection.with_changes(flags={**collection.flags, EXTENDED_RANGE: True})
