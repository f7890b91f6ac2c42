"""Inserts measurements: a batch → runs by series → buckets → one commit."""

from typing import Any, Final, Protocol

from ..catalog.buckets import BucketCatalog, BucketLimits
from ..catalog.catalog import Catalog
from ..catalog.collections import Collection
from ..common.errors import BSONObjectTooLarge
from ..common.values import Document
from ..kernels import Partition, partition
from ..storage.engine import Engine

MEASUREMENT_BYTES_MAX: Final = 5_300_000
"""A larger one would stand three times in its bucket (smallest, greatest, data), which may have 16 MiB."""


class Services(Protocol):
    """What inserting needs of the server."""

    engine: Engine
    catalog: Catalog
    buckets: Any
    parameters: Any
    on_drop: list[Any]
    status_sections: dict[str, Any]


async def insert_measurements(
    services: Services, collection: Collection, raws: list[bytes], ordered: bool
) -> tuple[int, list[Document]]:
    """Insert measurements into a time-series collection; they are durable together when this returns.

    Args:
        collection: the time-series collection (its view).
        raws: raw documents.
        ordered: stop at the first that is refused.

    Returns:
        How many went in, and a row of `writeErrors` for each that did not.

    Raises:
        MongoError, StorageError: nothing was stored.
    """
    options = collection.timeseries
    assert options is not None, collection.namespace
    batch, errors = _partition(raws, options.time_field, options.meta_field)
    if ordered and errors:
        first = min(errors, key=lambda row: int(row["index"]))
        batch, _ = _partition(raws[: first["index"]], options.time_field, options.meta_field)
        errors = [first]
    count = sum(len(run) for run in batch.runs)
    if count:
        await bucket_catalog(services).insert(collection.namespace.buckets, batch.runs)
    return count, errors


def bucket_catalog(services: Services) -> BucketCatalog:
    """The server's bucket catalog, made with the first insert."""
    if services.buckets is None:
        parameters = services.parameters

        def limits() -> BucketLimits:
            return BucketLimits(
                count_max=int(parameters["timeseriesBucketMaxCount"]),
                count_min=int(parameters["timeseriesBucketMinCount"]),
                size_max=int(parameters["timeseriesBucketMaxSize"]),
                size_min=int(parameters["timeseriesBucketMinSize"]),
                large_measurement=int(parameters["timeseriesLargeMeasurementThreshold"]),
                version=int(parameters["timeseriesBucketVersion"]),
            )

        made = BucketCatalog(services.engine, services.catalog, limits)
        services.buckets = made
        services.on_drop.append(made.forget)
        services.status_sections["bucketCatalog"] = made.status
    found: BucketCatalog = services.buckets
    return found


def _partition(raws: list[bytes], time_field: str, meta_field: str | None) -> tuple[Partition, list[Document]]:
    """The runs of a batch, and what is refused of it."""
    too_large = {index for index, raw in enumerate(raws) if len(raw) > MEASUREMENT_BYTES_MAX}
    errors = [
        BSONObjectTooLarge(f"a measurement of {len(raws[index])} bytes does not fit into a bucket").write_error(index)
        for index in sorted(too_large)
    ]
    kept = [index for index in range(len(raws)) if index not in too_large] if too_large else None
    batch = partition(raws if kept is None else [raws[index] for index in kept], time_field, meta_field)
    for index, code, message in batch.errors:
        errors.append({"index": index if kept is None else kept[index], "code": code, "errmsg": message})
    return batch, errors
