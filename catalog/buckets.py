"""The bucket catalog: which buckets are open, which one takes a measurement, and when it is full.

A bucket holds measurements of one series (equal meta values) within a span of time. Measurements are placed in memory, run
by run, and stored by `BucketCommits`. The rules by which a bucket closes are the kernel's (`BucketBuilder.append_run`);
this module decides which bucket is asked, opens and reopens them, and counts.
"""

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bson import DatetimeMS, Int64, ObjectId

from ..common.errors import NamespaceNotFound
from ..common.values import Document, encode
from ..kernels import BucketBuilder, BucketError, Run, bucket_summary, key_string
from ..storage.engine import Engine, Snapshot
from ..storage.keys import after
from . import documents
from .bucket_commits import BucketCommits, BucketsChanged, CommitReport, OpenBucket, digest
from .catalog import Catalog
from .collections import Collection
from .index_specs import IndexSpec
from .namespaces import Namespace
from .timeseries_options import EXTENDED_RANGE, TimeseriesOptions, is_extended

_OPEN_PER_SERIES: Final = 8
_REOPEN_CANDIDATES: Final = 4
_CLOSED: Final = {
    "count": "numBucketsClosedDueToCount",
    "size": "numBucketsClosedDueToSize",
    "cache_pressure": "numBucketsClosedDueToCachePressure",
    "schema": "numBucketsClosedDueToSchemaChange",
}
COUNTERS: Final = (
    "numBucketInserts", "numBucketUpdates", "numBucketsOpenedDueToMetadata", "numBucketsClosedDueToCount",
    "numBucketsClosedDueToSchemaChange", "numBucketsClosedDueToSize", "numBucketsClosedDueToTimeForward",
    "numBucketsClosedDueToMemoryThreshold", "numCommits", "numWaits", "numMeasurementsCommitted",
    "avgNumMeasurementsPerCommit", "numBucketsClosedDueToReopening", "numBucketsArchivedDueToMemoryThreshold",
    "numBucketsArchivedDueToTimeBackward", "numBucketsReopened", "numBucketsKeptOpenDueToLargeMeasurements",
    "numBucketsClosedDueToCachePressure", "numBucketsFrozen", "numCompressedBucketsConvertedToUnsorted",
    "numBucketsFetched", "numBucketsQueried", "numBucketFetchesFailed", "numBucketQueriesFailed",
    "numBucketReopeningsFailed", "numDuplicateBucketsReopened",
)  # fmt: skip

SeriesKey = tuple[int, bytes | None]


@dataclass(frozen=True, slots=True)
class BucketLimits:
    """When a bucket is full; sizes in bytes."""

    count_max: int = 1000
    count_min: int = 10
    size_max: int = 128_000
    size_absolute_max: int = 12 * 1024 * 1024
    size_min: int = 5120
    large_measurement: int = 512
    memory_max: int = 256 * 1024 * 1024
    cache_bytes: int = 1024 * 1024 * 1024
    version: int = 2


class BucketCatalog:
    """Open buckets of every time-series collection. Used on the event loop only."""

    def __init__(self, engine: Engine, catalog: Catalog, limits: Callable[[], BucketLimits]) -> None:
        self._engine = engine
        self._catalog = catalog
        self._limits = limits
        self._open: dict[SeriesKey, list[OpenBucket]] = {}
        self._idle: OrderedDict[OpenBucket, None] = OrderedDict()
        """Open buckets, the one that was used longest ago first."""
        self._memory_bytes = 0
        self._serial = secrets.randbits(63)
        self._counters: dict[int, Counter[str]] = {}
        self.commits = BucketCommits(engine, catalog, self._stored, self._lost)

    async def insert(self, namespace: Namespace, runs: Sequence[Run]) -> None:
        """Place the runs in buckets of the collection and wait until all of them are durable, together.

        Args:
            namespace: where the buckets are.
            runs: as `kernels.partition` makes them.

        Raises:
            NamespaceNotFound: the collection has gone.
            MongoError, StorageError: nothing was stored.
        """
        while True:
            buckets = self._catalog.get(namespace)
            if buckets is None or buckets.timeseries is None:
                raise NamespaceNotFound(f"ns not found: {namespace.view_of_buckets}")
            extended = False
            limits = self._limits()
            for run in runs:
                extended |= self._place(buckets, buckets.timeseries, run, limits)
            self._make_room()
            if extended and not buckets.flags.get(EXTENDED_RANGE):
                await self._catalog.modify(namespace, _flagged_extended)
            try:
                await self.commits.commit()
            except BucketsChanged:
                continue
            self._count(buckets)["numMeasurementsCommitted"] += sum(len(run) for run in runs)
            return

    def forget(self, namespace: Namespace) -> None:
        """The collection was dropped: let go of its buckets."""
        self._lost([bucket for bucket in self._idle if bucket.namespace in (namespace, namespace.buckets)])

    def forget_buckets(self, collection: Collection, bucket_ids: Iterable[ObjectId]) -> None:
        """Somebody removed these buckets from the store: let go of those that are open."""
        gone = {bucket_id.binary for bucket_id in bucket_ids}
        for bucket in list(self._idle):
            if bucket.collection_id == collection.id and bucket.builder.bucket_id in gone:
                self._close(bucket)

    def statistics(self, collection: Collection) -> Document:
        """The counters of a collection, as `collStats` shows them."""
        return _shown(self._count(collection), self.commits.waits)

    def status(self) -> Document:
        """The section `bucketCatalog` of `serverStatus`; empty until there was a time-series collection."""
        if not self._counters:
            return {}
        total: Counter[str] = Counter()
        for counters in self._counters.values():
            total.update(counters)
        return {
            "numBuckets": Int64(len(self._idle)),
            "numOpenBuckets": Int64(len(self._idle)),
            "numIdleBuckets": Int64(sum(not bucket.staged for bucket in self._idle)),
            "numArchivedBuckets": Int64(0),
            "memoryUsage": Int64(self._memory_bytes),
            **_shown(total, self.commits.waits),
        }

    def _count(self, collection: Collection) -> Counter[str]:
        return self._counters.setdefault(collection.id, Counter())

    def _place(self, buckets: Collection, options: TimeseriesOptions, run: Run, limits: BucketLimits) -> bool:
        """Put every measurement of a run into a bucket, opening and closing buckets on the way.

        True where a date lies outside of those that the `_id` of a bucket can tell.
        """
        key = (buckets.id, run.meta)
        counters = self._count(buckets)
        derived = max(min(limits.cache_bytes // (2 * max(len(self._idle), 1)), 2**31 - 1), limits.size_min)
        effective = min(limits.size_max, derived)
        absolute = min(limits.size_absolute_max, derived)
        position = 0
        extended = full = False
        while position < len(run):
            bucket = self._bucket_for(buckets, options, key, run.time_ms(position), reopen=not full)
            full = False
            taken, reason, kept_open = bucket.builder.append_run(
                run,
                position,
                span_ms=options.span_ms,
                max_count=limits.count_max,
                effective_max=effective,
                absolute_max=absolute,
                min_count=limits.count_min,
                large_threshold=limits.large_measurement,
            )
            if taken:
                position += taken
                self.commits.stage(bucket)
                self._idle.move_to_end(bucket)
                extended |= is_extended(bucket.builder.min_ms) or is_extended(bucket.builder.max_ms)
            counters["numBucketsKeptOpenDueToLargeMeasurements"] += kept_open
            assert taken or reason is not None, "a run that is neither taken nor refused"
            # Where it is a matter of time, the search for the next bucket closes and counts.
            if reason is not None and reason not in ("time_forward", "time_backward"):
                if reason == "size" and effective < limits.size_max:
                    reason = "cache_pressure"
                counters[_CLOSED[reason]] += 1
                self._close(bucket)
                # What is stored may be the very bucket that refused: the next one is a new one.
                full = True
        return extended

    def _bucket_for(
        self, buckets: Collection, options: TimeseriesOptions, key: SeriesKey, time_ms: int, *, reopen: bool
    ) -> OpenBucket:
        """The bucket to ask for a measurement of this time: an open one, a stored one that has room, or a new one."""
        series = self._open.get(key)
        if series is None:
            series = self._open[key] = []
            self._count(buckets)["numBucketsOpenedDueToMetadata"] += 1
        for bucket in reversed(series):
            if bucket.takes(time_ms):
                return bucket
        if series and time_ms >= series[-1].builder.min_ms:
            # The one in use is told, so that it is counted why it closes.
            latest = series[-1]
            self._count(buckets)["numBucketsClosedDueToTimeForward"] += 1
            self._close(latest)
            series = self._open.setdefault(key, [])
        elif series:
            self._count(buckets)["numBucketsArchivedDueToTimeBackward"] += 1
        found = self._reopened(buckets, options, key, time_ms) if reopen else None
        bucket = found or self._new(buckets, options, key, time_ms)
        series.append(bucket)
        self._idle[bucket] = None
        while len(series) > _OPEN_PER_SERIES and not series[0].staged:
            self._close(series[0])
        return bucket

    def _new(self, buckets: Collection, options: TimeseriesOptions, key: SeriesKey, time_ms: int) -> OpenBucket:
        min_ms = options.round_down(time_ms)
        self._serial = (self._serial + 1) & (2**64 - 1)
        seconds = (min_ms // 1000) & 0xFFFF_FFFF
        bucket_id = seconds.to_bytes(4, "big") + self._serial.to_bytes(8, "big")
        builder = BucketBuilder(
            options.time_field, options.meta_field, key[1], bucket_id, min_ms, self._limits().version, buckets.collate
        )
        return OpenBucket(buckets.namespace, buckets.id, builder, options.span_ms)

    def _reopened(
        self, buckets: Collection, options: TimeseriesOptions, key: SeriesKey, time_ms: int
    ) -> OpenBucket | None:
        """A stored bucket of the series that covers the time and has room, found by an index on meta and time."""
        index = _series_index(buckets, options)
        if index is None:
            return None
        counters = self._count(buckets)
        limits = self._limits()
        # A closed bucket may be on its way to the store: what is there is not what it holds.
        taken = self.commits.unstored(buckets.id) | {bucket.builder.bucket_id for bucket in self._open.get(key, ())}
        with self._engine.snapshot() as snapshot:
            for raw in _candidates(snapshot, buckets, index, options, key[1], time_ms):
                try:
                    count, _, closed, _, _ = bucket_summary(raw, options.time_field)
                    if closed or count >= limits.count_max or len(raw) >= limits.size_max:
                        continue
                    builder = BucketBuilder.from_document(raw, options.time_field, options.meta_field, buckets.collate)
                except BucketError:
                    counters["numBucketReopeningsFailed"] += 1
                    continue
                if builder.bucket_id in taken or builder.meta != key[1]:
                    continue
                counters["numBucketsQueried"] += 1
                counters["numBucketsReopened"] += 1
                return OpenBucket(
                    buckets.namespace, buckets.id, builder, options.span_ms, stored=digest(raw), version=builder.version
                )
        counters["numBucketQueriesFailed"] += 1
        return None

    def _close(self, bucket: OpenBucket) -> None:
        """Take no more into the bucket; what is staged of it is still stored."""
        if bucket in self._idle:
            del self._idle[bucket]
            self._memory_bytes -= bucket.memory_bytes
            bucket.memory_bytes = 0
        key = (bucket.collection_id, bucket.builder.meta)
        series = self._open.get(key)
        if series is not None and bucket in series:
            series.remove(bucket)
            if not series:
                del self._open[key]

    def _make_room(self) -> None:
        """Close the buckets that were used longest ago while all of them take too much memory."""
        limit = self._limits().memory_max
        while self._memory_bytes > limit:
            oldest = next((bucket for bucket in self._idle if not bucket.staged), None)
            if oldest is None:
                return
            counters = self._counters.setdefault(oldest.collection_id, Counter())
            counters["numBucketsArchivedDueToMemoryThreshold"] += 1
            self._close(oldest)

    def _stored(self, report: CommitReport) -> None:
        for name, stored in (("numBucketInserts", report.inserted), ("numBucketUpdates", report.updated)):
            for bucket in stored:
                counters = self._counters.setdefault(bucket.collection_id, Counter())
                counters[name] += 1
                counters["numCommits"] += 1
                if bucket.version == 2 and bucket.builder.version == 3:
                    counters["numCompressedBucketsConvertedToUnsorted"] += 1
                bucket.version = bucket.builder.version
                if bucket in self._idle:
                    size = bucket.builder.memory_bytes
                    self._memory_bytes += size - bucket.memory_bytes
                    bucket.memory_bytes = size

    def _lost(self, buckets: Iterable[OpenBucket]) -> None:
        # Another serial number, should one that was given collide with a bucket that is stored.
        self._serial = secrets.randbits(63)
        for bucket in list(buckets):
            self._close(bucket)


def _flagged_extended(collection: Collection) -> Collection:
    return collection.with_changes(flags={**collection.flags, EXTENDED_RANGE: True})


def _series_index(buckets: Collection, options: TimeseriesOptions) -> IndexSpec | None:
    """An index that begins with meta and the start of the bucket."""
    wanted = (
        ["meta", f"control.min.{options.time_field}"]
        if options.meta_field is not None
        else [f"control.min.{options.time_field}"]
    )
    for index in buckets.indexes:
        usable = not index.building and index.kind == "btree" and index.partial_filter is None and not index.sparse
        if usable and list(index.paths)[: len(wanted)] == wanted and index.collation is None:
            return index
    return None


def _candidates(
    snapshot: Snapshot,
    buckets: Collection,
    index: IndexSpec,
    options: TimeseriesOptions,
    meta: bytes | None,
    time_ms: int,
) -> Iterable[bytes]:
    """Stored buckets of the series that begin at most a span before the time, the latest first."""
    descending = list(index.descending)
    prefix = b""
    if options.meta_field is not None:
        prefix = key_string(_one_value(meta), descending[:1])
        descending = descending[1:]
    bounds = [
        prefix + key_string(encode({"": DatetimeMS(moment)}), descending[:1])
        for moment in (max(time_ms - options.span_ms + 1, -(2**63)), time_ms)
    ]
    low, high = min(bounds), after(max(bounds))
    found = documents.index_scan(snapshot, index, low, high, reverse=not descending[0])
    for _, record_key in islice(found, _REOPEN_CANDIDATES):
        raw = documents.fetch(snapshot, buckets, record_key)
        if raw is not None:
            yield raw


def _one_value(meta: bytes | None) -> bytes:
    """A document of one value, null where there is none."""
    element = b"\x0a\0" if meta is None else meta[:1] + b"\0" + meta[1:]
    return (len(element) + 5).to_bytes(4, "little") + element + b"\0"


def _shown(counters: Counter[str], waits: int) -> Document:
    shown: Document = {}
    for name in COUNTERS:
        if name == "avgNumMeasurementsPerCommit":
            if counters["numCommits"]:
                shown[name] = Int64(counters["numMeasurementsCommitted"] // counters["numCommits"])
        else:
            shown[name] = Int64(waits if name == "numWaits" else counters[name])
    return shown
