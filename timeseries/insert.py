"""Inserts measurements: a batch → runs by series → buckets → one commit."""

from typing import Any, Final, Protocol

from ..catalog.bucket_commits import Told
from ..catalog.buckets import BucketCatalog, BucketLimits
from ..catalog.catalog import Catalog
from ..catalog.collections import Collection
from ..catalog.namespaces import Namespace
from ..catalog.timeseries_options import TimeseriesOptions
from ..common.errors import InvalidBSON, InvalidLength
from ..common.limits import WRITE_BATCH_MAX
from ..common.values import Document
from ..kernels import Partition, partition, split_documents
from ..storage.engine import Engine
from .insert_checks import Refusals, doubtful_indexes, refusals

MEASUREMENT_BYTES_MAX: Final = 5_300_000
"""A larger one would stand three times in its bucket (smallest, greatest, data), which may have 16 MiB."""
_IDLE_SHARE_PER_MILLE: Final = 25
"""Open buckets may take 2.5 % of the machine's memory."""
_CACHE_LEFT_BYTES: Final = 1 << 30
_CACHE_BYTES_MIN: Final = 256 << 20
"""The share of a bucket is reckoned from the cache that MongoDB would have: half of what is beyond 1 GiB, at least 256 MiB."""
_AT_RUN_TIME: Final = (
    "timeseriesBucketMinSize",
    "timeseriesIdleBucketExpiryMemoryUsageThreshold",
    "timeseriesInsertMaxRetriesOnDuplicates",
    "timeseriesLargeMeasurementThreshold",
)


class Services(Protocol):
    """What inserting needs of the server."""

    engine: Engine
    catalog: Catalog
    buckets: Any
    parameters: Any
    memory_bytes: int
    on_drop: list[Any]
    status_sections: dict[str, Any]


async def insert_measurements(
    services: Services, collection: Collection, raws: bytes | list[bytes], ordered: bool
) -> tuple[int, int, list[Document]]:
    """Insert measurements into a time-series collection; they are durable together when this returns.

    Args:
        collection: the time-series collection (its view).
        raws: raw documents, back to back or one by one.
        ordered: stop at the first that is refused.

    Returns:
        How many there were, how many went in, and a row of `writeErrors` for each that did not.

    Raises:
        InvalidLength: there is none, or too many.
        MongoError, StorageError: nothing was stored.
    """
    options = collection.timeseries
    assert options is not None, collection.namespace
    batch = _partition(raws, options)
    if not 0 < batch.count <= WRITE_BATCH_MAX:
        raise InvalidLength(f"Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {batch.count} operations.")
    doubtful = doubtful_indexes(collection, services.catalog.get(collection.namespace.buckets))
    if doubtful:
        every = raws if isinstance(raws, list) else split_documents(raws)
        refused = refusals(doubtful, every)
        if refused:
            return await _insert_others(services, collection, every, refused, ordered)
    errors = batch.errors
    if ordered and errors:
        errors = [min(errors)]
        batch = _partition(raws, options, stop=errors[0][0])
    if batch.measurements:
        await bucket_catalog(services).insert(collection.namespace.buckets, batch)
    rows: list[Document] = [{"index": index, "code": code, "errmsg": text} for index, code, text in errors]
    return batch.count, batch.measurements, rows


def begin_measurements(services: Services, namespace: Namespace, message: bytes, start: int, told: Told) -> int:
    """Insert measurements that need nothing to be waited for but their commit.

    Args:
        namespace: of the time-series collection.
        message: raw documents back to back, from `start` to the end.
        told: hears of the commit what `insert_measurements` would raise.

    Returns:
        How many there are. Where this is 0 nothing was done, and `told` hears nothing: `insert_measurements` has to see to them.
    """
    catalog = services.catalog
    collection = catalog.get(namespace)
    if services.buckets is None or collection is None or collection.kind != "timeseries":
        return 0
    options = collection.timeseries
    buckets = catalog.get(collection.namespace.buckets)
    if options is None or buckets is None or doubtful_indexes(collection, buckets):
        return 0
    try:
        batch = _partition(message, options, start=start)
    except InvalidBSON:
        return 0
    if batch.errors or not 0 < batch.count <= WRITE_BATCH_MAX:
        return 0
    return batch.count if bucket_catalog(services).begin(buckets, batch, told) else 0


async def _insert_others(
    services: Services, collection: Collection, raws: list[bytes], refused: Refusals, ordered: bool
) -> tuple[int, int, list[Document]]:
    """Insert what no index refuses: all of it, or what stands before the first that is refused."""
    positions = {position for position, _, _ in refused}
    stop = min(positions) if ordered else len(raws)
    kept = [position for position in range(stop) if position not in positions]
    rows: list[Document] = [{"index": index, "code": code, "errmsg": text} for index, code, text in refused]
    inserted = 0
    if kept:
        _, inserted, others = await insert_measurements(services, collection, [raws[at] for at in kept], ordered)
        rows += [{**row, "index": kept[row["index"]]} for row in others]
    rows.sort(key=lambda row: int(row["index"]))
    return len(raws), inserted, rows[:1] if ordered else rows


def bucket_catalog(services: Services) -> BucketCatalog:
    """The server's bucket catalog, made with the first insert."""
    if services.buckets is None:
        made = BucketCatalog(services.engine, services.catalog, _limits(services))

        def changed(_: Any) -> None:
            made.limits = _limits(services)

        for name in _AT_RUN_TIME:
            services.parameters.on_change(name, changed)
        services.buckets = made
        services.on_drop.append(made.forget)
        services.status_sections["bucketCatalog"] = made.status
    found: BucketCatalog = services.buckets
    return found


def _limits(services: Services) -> BucketLimits:
    """The numbers of the bucket catalog, from the server's parameters and its memory."""
    parameters = services.parameters
    threshold = int(parameters["timeseriesIdleBucketExpiryMemoryUsageThreshold"])
    memory_bytes = services.memory_bytes
    return BucketLimits(
        count_max=int(parameters["timeseriesBucketMaxCount"]),
        count_min=int(parameters["timeseriesBucketMinCount"]),
        size_max=int(parameters["timeseriesBucketMaxSize"]),
        size_min=int(parameters["timeseriesBucketMinSize"]),
        large_measurement=int(parameters["timeseriesLargeMeasurementThreshold"]),
        version=int(parameters["timeseriesBucketVersion"]),
        retries_on_duplicates=int(parameters["timeseriesInsertMaxRetriesOnDuplicates"]),
        memory_max=threshold if threshold > 0 else memory_bytes * _IDLE_SHARE_PER_MILLE // 1000,
        expired_max=int(parameters["timeseriesIdleBucketExpiryMaxCountPerAttempt"]),
        cache_bytes=max((memory_bytes - _CACHE_LEFT_BYTES) // 2, _CACHE_BYTES_MIN),
    )


def _partition(raws: bytes | list[bytes], options: TimeseriesOptions, **limits: int) -> Partition:
    """The runs of a batch up to a position, and what is refused of it.

    Raises:
        InvalidBSON: the bytes are no documents.
    """
    try:
        return partition(raws, options.time_field, options.meta_field, bytes_max=MEASUREMENT_BYTES_MAX, **limits)
    except ValueError as error:
        raise InvalidBSON(str(error)) from error
