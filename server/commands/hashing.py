"""`dbHash` and `filemd5`: sums over documents, to compare data by."""

import asyncio
import hashlib
import socket
from itertools import islice
from typing import Any, Final

from bson import Binary

from ...catalog import documents
from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.namespaces import Namespace
from ...common.errors import BadValue, InvalidNamespace, Location
from ...common.values import Document, decode, is_string, type_name
from ...query.execute import Execution
from ...query.plan.planner import Wanted
from ...query.sort import parse_sort
from ...storage.engine import Engine, Snapshot
from ...storage.keys import number_key
from ..context import Context, Request, Services
from .arguments import Fields, collection_namespace
from .base import Command
from .reading import parse_query, plan_collection, resolve

_SLICE_DOCUMENTS: Final = 1000
_CHUNKS_BATCH: Final = 100


class DbHash(Command):
    """`dbHash`: MD5 sums of collections; equal documents have equal sums, whatever order they were inserted in."""

    name = "dbHash"
    aliases = ("dbhash",)
    summary = "Sums over the data of a database."
    reads = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer a sum for each collection and one over all of them."""
        services = context.services
        catalog: Catalog = services.catalog
        asked = request.body.get("collections")
        names: set[str] = set()
        for name in asked if isinstance(asked, list) else ():
            if not is_string(name):
                raise BadValue(f"collections entries have to be strings, found {type_name(name)}")
            names.add(name)
        sums: dict[str, str] = {}
        capped: list[str] = []
        uuids: Document = {}
        whole = hashlib.md5(usedforsecurity=False)
        for collection in catalog.list_collections(request.database):
            name = collection.namespace.collection
            if collection.is_view or (names and name not in names):
                continue
            if collection.namespace.is_system and not (collection.is_buckets or name == "system.views"):
                continue
            uuids[name] = Binary(collection.uuid.bytes, 4)
            if collection.capped:
                capped.append(name)
            sums[name] = await _sum(services.engine, collection, request)
            whole.update(sums[name].encode())
        port = services.parameters["port"]
        return {
            "host": f"{socket.gethostname()}:{port}",
            "collections": sums,
            "capped": capped,
            "uuids": uuids,
            "md5": whole.hexdigest(),
            "timeMillis": request.operation.elapsed_us() // 1000,
        }


async def _sum(engine: Engine, collection: Collection, request: Request) -> str:
    """The sum of the documents in the order of `_id`, of a capped collection in the order of storage."""
    by_id = not collection.clustered and not collection.capped and bool(collection.indexes)
    total = hashlib.md5(usedforsecurity=False)
    position: bytes | None = None
    async with engine.readers.reading(number_key(collection.id)):
        while True:
            with engine.snapshot() as snapshot:
                rows = _by_id(snapshot, collection, position) if by_id else _stored(snapshot, collection, position)
            for _, raw in rows:
                total.update(raw)
            if len(rows) < _SLICE_DOCUMENTS:
                return total.hexdigest()
            position = rows[-1][0]
            # Others get their turn between two slices.
            await asyncio.sleep(0)
            request.operation.check()


def _stored(snapshot: Snapshot, collection: Collection, position: bytes | None) -> list[tuple[bytes, bytes]]:
    return list(islice(documents.scan(snapshot, collection, after_key=position), _SLICE_DOCUMENTS))


def _by_id(snapshot: Snapshot, collection: Collection, position: bytes | None) -> list[tuple[bytes, bytes]]:
    """Entries of the index on `_id` with their documents."""
    rows = []
    for entry, record_key in documents.index_scan(snapshot, collection.indexes[0], after_key=position):
        raw = documents.fetch(snapshot, collection, record_key)
        if raw is not None:
            rows.append((entry, raw))
        if len(rows) == _SLICE_DOCUMENTS:
            break
    return rows


class FileMd5(Command):
    """`filemd5`: the sum of a file of GridFS."""

    name = "filemd5"
    summary = "Sum of a file that was stored in chunks."
    reads = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{numChunks, md5}`."""
        fields = Fields(request)
        root = fields.take_string("root", default="fs")
        if root == "":
            raise InvalidNamespace("the root of a file has to have a name")
        namespace = collection_namespace(request.database, f"{root}.chunks")
        total = hashlib.md5(usedforsecurity=False)
        count = 0
        execution = _chunks(context.services, namespace, request.value)
        try:
            while not execution.exhausted:
                for raw in (await execution.next_batch(_CHUNKS_BATCH, watch=request.operation)).raws():
                    chunk = decode(raw)
                    if chunk.get("n") != count:
                        raise Location(10040, f"chunks out of order: expected {count}, found {chunk.get('n')}")
                    data = chunk.get("data")
                    if not isinstance(data, bytes):
                        raise Location(50849, f"The element that calls binData() must be type of BinData, but type of "
                                              f"{type_name(data)} found.")  # fmt: skip
                    total.update(data)
                    count += 1
        finally:
            execution.close()
        return {"numChunks": count, "md5": total.hexdigest()}


def _chunks(services: Services, namespace: Namespace, identity: Any) -> Execution:
    source = resolve(services.catalog, namespace)
    wanted = Wanted(matcher=parse_query({"files_id": {"$eq": identity}}, None, {}), sort=parse_sort({"n": 1}))
    return Execution(plan_collection(services, source, wanted).root, services.engine)
