"""`collStats` and `validate`: what a collection takes, and whether it is whole."""

import asyncio
from itertools import islice
from typing import Final

from bson import Binary

from ...catalog import documents
from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.index_entries import keys_of, record_under
from ...catalog.index_specs import IndexSpec
from ...common.errors import BadValue, CommandNotSupportedOnView, InvalidOptions, MongoError, NamespaceNotFound
from ...common.values import Document, decode
from ...kernels import validate_bucket
from ...storage.engine import Engine, Snapshot
from ..context import Context, Request, Services
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


class Validate(Command):
    """`validate`."""

    name = "validate"
    summary = "Checks the documents and indexes of a collection against each other."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer what is wrong; nothing is repaired."""
        services = context.services
        catalog: Catalog = services.catalog
        fields = Fields(
            request,
            known=("background", "checkBSONConformance", "collHash", "enforceFastCount", "fixMultikey", "full", "hashPrefixes",
                   "logDiagnostics", "metadata", "repair", "revealHashedIds", "unrevealHashedIds", "scandata"),
        )  # fmt: skip
        namespace = fields.take_namespace()
        full = fields.take_bool("full")
        background, repair = fields.take_bool("background"), fields.take_bool("repair")
        metadata = fields.take_bool("metadata")
        fields.take_bool("checkBSONConformance")
        if background and (full or repair):
            raise InvalidOptions(
                "Running the validate command with { background: true } and full or repair is not supported"
            )
        if metadata and (full or repair or background):
            raise InvalidOptions(
                "Running the validate command with { metadata: true } is not supported with other options"
            )
        collection = catalog.get(namespace)
        if collection is not None and collection.kind == "view":
            raise CommandNotSupportedOnView(f"Cannot validate a view: {namespace}")
        if collection is not None and collection.kind == "timeseries":
            collection = catalog.get(namespace.buckets)
        if collection is None:
            raise NamespaceNotFound(f"Collection '{namespace}' does not exist to validate.")
        found = _Findings(collection)
        await found.look(services, request)
        return found.reply(str(namespace))


class _Findings:
    """What was seen of a collection."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._records = 0
        self._entries = {index.name: 0 for index in collection.indexes}
        self._expected = dict(self._entries)
        self._invalid = 0
        self._errors: list[str] = []
        self._warnings: list[str] = []
        self._missing: list[Document] = []

    async def look(self, services: Services, request: Request) -> None:
        """Read every document, and every entry of every index, in slices."""
        engine: Engine = services.engine
        last: bytes | None = None
        more = True
        while more:
            with engine.snapshot() as snapshot:
                rows = list(islice(documents.scan(snapshot, self._collection, after_key=last), _SLICE_DOCUMENTS))
                for record_key, raw in rows:
                    last = record_key
                    self._see(snapshot, record_key, raw)
                more = len(rows) == _SLICE_DOCUMENTS
                if not more:
                    self._compare(services.catalog, snapshot)
            await asyncio.sleep(0)
            request.operation.check()

    def reply(self, namespace: str) -> Document:
        """The answer."""
        valid = not self._errors and not self._invalid
        return {
            "ns": namespace,
            "uuid": Binary(self._collection.uuid.bytes, 4),
            "nInvalidDocuments": self._invalid,
            "nNonCompliantDocuments": 0,
            "nrecords": self._records,
            "nIndexes": len(self._collection.indexes),
            "keysPerIndex": self._entries,
            "indexDetails": {index.name: {"valid": valid} for index in self._collection.indexes},
            "valid": valid,
            "repaired": False,
            "warnings": self._warnings,
            "errors": self._errors,
            "extraIndexEntries": [],
            "missingIndexEntries": self._missing,
            "corruptRecords": [],
        }

    def _see(self, snapshot: Snapshot, record_key: bytes, raw: bytes) -> None:
        self._records += 1
        try:
            decode(raw)
        except MongoError as error:
            self._invalid += 1
            self._tell(f"a record cannot be read: {error.message}")
            return
        options = self._collection.timeseries
        if options is not None:
            problems = validate_bucket(
                raw,
                options.time_field,
                options.meta_field,
                options.span_ms,
                options.rounding_seconds * 1000,
                self._collection.collate,
            )
            for problem in problems:
                self._tell(f"Detected a time-series bucket that is not as it should be: {problem}")
        for index in self._collection.indexes:
            self._see_keys(snapshot, index, record_key, raw)

    def _see_keys(self, snapshot: Snapshot, index: IndexSpec, record_key: bytes, raw: bytes) -> None:
        for key in keys_of(index, raw):
            self._expected[index.name] += 1
            if record_under(snapshot, index, key, record_key) != record_key and len(self._missing) < _TOLD_MAX:
                self._missing.append({"indexName": index.name, "recordKey": record_key.hex()})
                self._tell(f"an entry is missing in the index {index.name}")

    def _compare(self, catalog: Catalog, snapshot: Snapshot) -> None:
        for index in self._collection.indexes:
            count = sum(1 for _ in documents.index_scan(snapshot, index))
            self._entries[index.name] = count
            # Others may have written while this was read: what counts are entries without a document, not a difference.
            if count > self._expected[index.name] and catalog.counts(self._collection, snapshot)[0] == self._records:
                self._tell(f"the index {index.name} has {count - self._expected[index.name]} entries too many")
        stored, _ = catalog.counts(self._collection, snapshot)
        if stored != self._records:
            self._warnings.append(f"the count that is kept is {stored}, and {self._records} documents were read")

    def _tell(self, text: str) -> None:
        if len(self._errors) < _TOLD_MAX and text not in self._errors:
            self._errors.append(text)
