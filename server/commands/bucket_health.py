"""`bucketHealth`: how well the buckets of a time-series collection are used. A command of this server's own."""

import asyncio
from itertools import islice
from typing import Final

from bson import Int64

from ...catalog import packs
from ...catalog.catalog import Catalog
from ...common.errors import InvalidOptions, NamespaceNotFound
from ...common.values import Document
from ...storage.engine import Engine
from ...storage.keys import number_key
from ...timeseries.health import BucketHealth
from ..context import Context, Request
from .arguments import Fields
from .base import Command

_SLICE_RECORDS: Final = 100


class BucketHealthReport(Command):
    """`bucketHealth`."""

    name = "bucketHealth"
    summary = "How full the buckets of a time-series collection are, what a value takes, and advice."
    reads = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the report.

        Raises:
            NamespaceNotFound: there is no such collection.
            InvalidOptions: it is no time-series collection.
        """
        services = context.services
        catalog: Catalog = services.catalog
        engine: Engine = services.engine
        namespace = Fields(request).take_namespace(request.name)
        collection = catalog.get(namespace)
        if collection is None:
            raise NamespaceNotFound(f"ns not found: {namespace}")
        buckets = collection if collection.is_buckets else catalog.get(namespace.buckets)
        if collection.timeseries is None or buckets is None:
            raise InvalidOptions(f"{namespace} is not a time-series collection")
        health = BucketHealth(collection.timeseries, int(services.parameters["timeseriesBucketMaxCount"]))
        prefix = number_key(buckets.id)
        position = prefix
        async with engine.readers.reading(prefix):
            while True:
                with engine.snapshot() as snapshot:
                    records = list(islice(packs.records(snapshot, prefix, position), _SLICE_RECORDS))
                for key, value in records:
                    packed = packs.is_pack(value)
                    raws = [raw for _, raw in packs.members(key, value).rows] if packed else [value]
                    health.see(raws, packs.stored_size(len(value)), packed=packed)
                if len(records) < _SLICE_RECORDS:
                    break
                position = records[-1][0] + b"\0"
                # Others get their turn between two slices.
                await asyncio.sleep(0)
                request.operation.check()
        counted = {} if services.buckets is None else services.buckets.statistics(buckets)
        return {"ns": str(namespace), **health.report(), "mergedBuckets": counted.get("numBucketsMerged", Int64(0))}
