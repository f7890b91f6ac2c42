"""Databases as a whole: listDatabases, dropDatabase, dbStats, dataSize."""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final

from bson import Int64

from ...catalog import documents
from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.namespaces import Namespace
from ...common.errors import (
    BadValue,
    CommandNotSupportedOnView,
    IllegalOperation,
    InvalidNamespace,
    Location,
    OperationFailed,
)
from ...common.ordering import order_key
from ...common.paths import get_path, split_path
from ...common.values import Document, decode
from ...storage.engine import Engine
from ..authorization import privileges_of
from ..context import Context, Request
from ..sizes import all_index_bytes, bytes_on_disk, disk_bytes
from .arguments import Fields
from .base import Command

_PROTECTED: Final = ("admin", "config", "local")
_SLICE_DOCUMENTS: Final = 1000


class ListDatabases(Command):
    """`listDatabases`: the databases that hold something."""

    name = "listDatabases"
    summary = "Names and sizes of databases."
    admin_only = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer names, sizes and their sum; with `nameOnly` names alone."""
        fields = Fields(request, known=("filter", "nameOnly", "authorizedDatabases"))
        wanted = fields.take_document("filter", default=None)
        name_only = fields.take_bool("nameOnly")
        only_own = fields.take_bool("authorizedDatabases", default=None, exact=True)
        services = context.services
        visible = _visible_databases(context, only_own)
        catalog: Catalog = services.catalog
        engine: Engine = services.engine
        matches = None
        if wanted:
            # The query language is loaded with the first command that needs it.
            from ...query.match.parse import parse_filter
            from .reading import refuse_variables_of_server
            from .validators import refuse_searches

            refuse_variables_of_server(wanted)
            matcher = parse_filter(wanted)
            refuse_searches(matcher)
            matches = matcher.compile()
        rows: list[Document] = []
        with engine.snapshot() as snapshot:
            for name in filter(visible, catalog.list_databases()):
                size = bytes_on_disk(snapshot, catalog, catalog.list_collections(name))
                row: Document = {"name": name, "sizeOnDisk": Int64(size), "empty": False}
                if matches is None or matches({"name": name} if name_only else row):
                    rows.append(row)
        if name_only:
            return {"databases": [{"name": row["name"]} for row in rows]}
        total = sum(row["sizeOnDisk"] for row in rows)
        return {
            "databases": rows,
            "totalSize": Int64(total),
            "totalSizeMb": Int64(total // (1024 * 1024)),
        }


def _visible_databases(context: Context, only_own: bool | None) -> Callable[[str], bool]:
    """Which databases a client is told of; without `--auth`, all."""
    services = context.services
    if not services.config.auth:
        return lambda name: True
    privileges = privileges_of(services, context.client)
    if privileges is None:
        return lambda name: False
    if not only_own and privileges.allow("listDatabases"):
        return lambda name: True
    return privileges.touch_database


class DropDatabase(Command):
    """`dropDatabase`: everything in a database goes."""

    name = "dropDatabase"
    summary = "Drops a database."
    writes = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`, also where there was nothing."""
        fields = Fields(request, known=())
        if fields.take_whole_number(self.name) != 1:
            raise Location(5255100, "Have to pass 1 as db parameter")
        database = request.database
        if database in _PROTECTED:
            raise IllegalOperation(f"Dropping the '{database}' database is prohibited.")
        services = context.services
        catalog: Catalog = services.catalog
        gone = [collection.namespace for collection in catalog.list_collections(database)]
        await catalog.drop_database(database)
        for namespace in gone:
            for heard in services.on_drop:
                heard(namespace)
        return {}


class DbStats(Command):
    """`dbStats`: counts and sizes of a database."""

    name = "dbStats"
    aliases = ("dbstats",)
    summary = "Counts and sizes of a database."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the sums over the collections."""
        fields = Fields(request, known=("scale", "freeStorage"))
        scale = fields.take_whole_number("scale", default=1)
        if scale <= 0:
            raise BadValue(f"BSON field 'scale' value must be > 0, actual value '{scale}'")
        free = fields.take_bool("freeStorage")
        services = context.services
        catalog: Catalog = services.catalog
        engine: Engine = services.engine
        found = catalog.list_collections(request.database)
        stored = [collection for collection in found if not collection.is_view]
        objects = data_bytes = stored_bytes = index_size = 0
        with engine.snapshot() as snapshot:
            for collection in stored:
                count, size = catalog.counts(collection, snapshot)
                objects += count
                data_bytes += size
                stored_bytes += documents.stored_bytes(snapshot, collection)
                index_size += all_index_bytes(snapshot, collection, count)
        answer: Document = {
            "db": request.database,
            "collections": Int64(len(stored)),
            "views": Int64(len(found) - len(stored)),
            "objects": Int64(objects),
            "avgObjSize": data_bytes / objects if objects else 0.0,
            "dataSize": data_bytes / scale,
            "storageSize": stored_bytes / scale,
        }
        if free:
            answer["freeStorageSize"] = 0.0
        answer["indexes"] = Int64(sum(len(collection.indexes) for collection in stored))
        answer["indexSize"] = index_size / scale
        if free:
            answer["indexFreeStorageSize"] = 0.0
        answer["totalSize"] = (stored_bytes + index_size) / scale
        if free:
            answer["totalFreeStorageSize"] = 0.0
        answer["scaleFactor"] = Int64(scale)
        if stored:
            used, total = disk_bytes(services.data_path)
            answer["fsUsedSize"] = used / scale
            answer["fsTotalSize"] = total / scale
        return answer


class DataSize(Command):
    """`dataSize`: bytes and number of the documents of a collection."""

    name = "dataSize"
    aliases = ("datasize",)
    summary = "Size of the documents of a collection."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{size, numObjects, millis}`."""
        fields = Fields(request, known=("keyPattern", "min", "max", "estimate"))
        namespace = Namespace.parse(fields.take_string(self.name))
        if not namespace.database or not namespace.collection:
            raise InvalidNamespace(f"Invalid namespace specified '{request.value}'")
        pattern = fields.take_document("keyPattern", default=None)
        low, high = fields.take_document("min", default=None), fields.take_document("max", default=None)
        estimate = fields.take_bool("estimate")
        if (low is None) != (high is None):
            raise BadValue("either both or neither of min or max have to be given")
        services = context.services
        catalog: Catalog = services.catalog
        engine: Engine = services.engine
        collection = catalog.get(namespace)
        if collection is not None and collection.is_view:
            raise CommandNotSupportedOnView(f"Namespace {namespace} is a view, not a collection")
        count = size = 0
        if collection is not None and low is None:
            with engine.snapshot() as snapshot:
                count, size = catalog.counts(collection, snapshot)
        elif collection is not None:
            if pattern is None:
                raise OperationFailed("couldn't find valid index containing key pattern")
            count, size = await _measure_range(context, request, collection, pattern, low or {}, high or {})
        return {
            "estimate": estimate,
            "size": Int64(size),
            "numObjects": Int64(count),
            "millis": request.operation.elapsed_us() // 1000,
        }


async def _measure_range(
    context: Context, request: Request, collection: Collection, pattern: Document, low: Document, high: Document
) -> tuple[int, int]:
    """Count and bytes of the documents whose values of the pattern's fields lie in `low <= values < high`."""
    paths = [split_path(path) for path in pattern]
    least, most = ([order_key(value) for value in bound.values()] for bound in (low, high))
    engine: Engine = context.services.engine
    count = size = 0
    last: bytes | None = None
    while True:
        seen = 0
        with engine.snapshot() as snapshot:
            for record_key, raw in islice(documents.scan(snapshot, collection, after_key=last), _SLICE_DOCUMENTS):
                last = record_key
                seen += 1
                document = decode(raw)
                values = [order_key(get_path(document, path)) for path in paths]
                if least <= values < most:
                    count += 1
                    size += len(raw)
        if seen < _SLICE_DOCUMENTS:
            return count, size
        # Others get their turn between two slices.
        await asyncio.sleep(0)
        request.operation.check()
