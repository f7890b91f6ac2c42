"""`collStats`: what a collection takes."""

from typing import Final

from ...catalog.catalog import Catalog
from ...common.errors import BadValue, CommandNotSupportedOnView, NamespaceNotFound
from ...common.values import Document
from ...storage.engine import Engine
from ..context import Context, Request
from .arguments import Fields
from .base import Command
from .system_stages import storage_stats, timeseries_stats

_SLICE_DOCUMENTS: Final = 500
_TOLD_MAX: Final = 20


class CollStats(Command):
    """`collStats`."""

    name = "collStats"
    aliases = ("collstats",)
    summary = "Sizes and counts of a collection."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the sizes; zeros where there is no collection."""
        services = context.services
        catalog: Catalog = services.catalog
        fields = Fields(request, known=("scale",))
        namespace = fields.take_namespace(request.name)
        scale = int(fields.take_whole_number("scale", default=1))
        if scale < 1:
            raise BadValue(f"BSON field 'scale' value must be >= 1, actual value '{scale}'")
        collection = catalog.get(namespace)
        reply: Document = {"ns": str(namespace)}
        if collection is None:
            return {
                **reply, "size": 0, "count": 0, "numOrphanDocs": 0, "storageSize": 0, "totalSize": 0, "nindexes": 0,
                "totalIndexSize": 0, "indexDetails": {}, "indexSizes": {}, "scaleFactor": scale,
            }  # fmt: skip
        if collection.kind == "view":
            raise CommandNotSupportedOnView(f"Namespace {namespace} is a view, not a collection")
        engine: Engine = services.engine
        with engine.snapshot() as snapshot:
            if collection.kind != "timeseries":
                return {**reply, **storage_stats(services, collection, snapshot, scale=scale)}
            buckets = catalog.get(namespace.buckets)
            if buckets is None:
                raise NamespaceNotFound(f"ns does not exist: {namespace.buckets}")
            return {**reply, **timeseries_stats(services, buckets, snapshot, scale=scale)}
