"""`validate` and `reIndex`: whether a collection is whole, and its indexes made anew."""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from bson import Binary, Decimal128

from ...catalog import documents
from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.index_entries import keys_of, record_under
from ...catalog.index_specs import IndexSpec
from ...common.errors import (
    CommandNotSupported,
    CommandNotSupportedOnView,
    InvalidOptions,
    MongoError,
    NamespaceNotFound,
)
from ...common.values import Document, decode
from ...kernels import validate_bucket
from ...storage.engine import Engine, Snapshot
from ..context import Context, Request, Services
from .arguments import Fields
from .base import Command

_SLICE_DOCUMENTS: Final = 500
_TOLD_MAX: Final = 20


class Validate(Command):
    """`validate`."""

    name = "validate"
    summary = "Checks the documents and indexes of a collection against each other."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer what is wrong; with `repair`, indexes that are not whole are made anew."""
        services = context.services
        catalog: Catalog = services.catalog
        namespace = Fields(request).take_namespace()
        full, background, repair, metadata, conformance, multikey = (
            _is_true(request.body.get(name))
            for name in ("full", "background", "repair", "metadata", "checkBSONConformance", "fixMultikey")
        )
        if background and (full or repair):
            raise InvalidOptions(
                "Running the validate command with { background: true } and full or repair is not supported"
            )
        if metadata and (full or repair or background or conformance or multikey):
            raise InvalidOptions(
                "Running the validate command with { metadata: true } is not supported with other options"
            )
        if conformance and repair:
            raise InvalidOptions(
                "Running the validate command with { checkBSONConformance: true } and { repair: true } is not supported"
            )
        if background:
            raise CommandNotSupported("Running the validate command with { background: true } is not supported here")
        collection = catalog.get(namespace)
        if collection is not None and collection.kind == "view":
            raise CommandNotSupportedOnView(f"Cannot validate a view: {namespace}")
        if collection is not None and collection.kind == "timeseries":
            collection = catalog.get(namespace.buckets)
        if collection is None:
            raise NamespaceNotFound(f"Collection '{namespace}' does not exist to validate.")
        found = _Findings(collection)
        if metadata:
            return found.metadata_reply(str(namespace))
        await found.look(services, request)
        repaired = False
        if repair and found.broken_indexes:
            await rebuild_indexes(catalog, collection, found.broken_indexes)
            repaired = True
            found = _Findings(catalog.get(collection.namespace) or collection)
            await found.look(services, request)
        mode = "FixErrors" if repair else "AdjustMultikey" if multikey else "None"
        return {**found.reply(str(namespace)), "repaired": repaired, "repairMode": mode}


def _is_true(value: Any) -> bool:
    """Whether an option is set: by anything but false, null and a number that is nothing."""
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        return number.is_nan() or number != 0
    if isinstance(value, bool | int | float) or value is None:
        return bool(value)
    return True


async def rebuild_indexes(catalog: Catalog, collection: Collection, names: Iterable[str]) -> None:
    """Make indexes anew from the documents; one after another, so that most of them can be used meanwhile."""
    for name in names:
        index = collection.index(name)
        if index is not None:
            await catalog.drop_indexes(collection.namespace, [name])
            await catalog.create_indexes(collection.namespace, [index.with_changes(id=0)])


class ReIndex(Command):
    """`reIndex`."""

    name = "reIndex"
    summary = "Makes the indexes of a collection anew."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the indexes."""
        catalog: Catalog = context.services.catalog
        namespace = Fields(request, known=()).take_namespace()
        collection = catalog.get(namespace)
        if collection is None:
            raise NamespaceNotFound(f"collection does not exist: {namespace}")
        if collection.is_view:
            raise CommandNotSupportedOnView(f"can't re-index a view: {namespace}")
        indexes = [index.to_document() for index in collection.indexes]
        # Whatever has no index on `_id` meanwhile could not be written to: that one is only looked after by `validate`.
        await rebuild_indexes(catalog, collection, [index.name for index in collection.indexes if not index.is_id])
        return {"nIndexesWas": len(indexes), "nIndexes": len(indexes), "indexes": indexes}


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
        self.broken_indexes: set[str] = set()
        """Names of indexes with an entry too many or too few."""

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

    def metadata_reply(self, namespace: str) -> Document:
        """The answer where nothing was read."""
        return {
            "ns": namespace,
            "uuid": Binary(self._collection.uuid.bytes, 4),
            "nIndexes": len(self._collection.indexes),
            "indexDetails": {
                index.name: {"valid": True, "spec": index.to_document()} for index in self._collection.indexes
            },
            "valid": True,
            "repaired": False,
            "repairMode": "None",
            "warnings": [],
            "errors": [],
        }

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
            "indexDetails": {
                index.name: {"valid": index.name not in self.broken_indexes, "spec": index.to_document()}
                for index in self._collection.indexes
            },
            "valid": valid,
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
                self.broken_indexes.add(index.name)
                self._tell(f"an entry is missing in the index {index.name}")

    def _compare(self, catalog: Catalog, snapshot: Snapshot) -> None:
        for index in self._collection.indexes:
            count = sum(1 for _ in documents.index_scan(snapshot, index))
            self._entries[index.name] = count
            # Others may have written while this was read: what counts are entries without a document, not a difference.
            if count > self._expected[index.name] and catalog.counts(self._collection, snapshot)[0] == self._records:
                self.broken_indexes.add(index.name)
                self._tell(f"the index {index.name} has {count - self._expected[index.name]} entries too many")
        stored, _ = catalog.counts(self._collection, snapshot)
        if stored != self._records:
            self._warnings.append(f"the count that is kept is {stored}, and {self._records} documents were read")

    def _tell(self, text: str) -> None:
        if len(self._errors) < _TOLD_MAX and text not in self._errors:
            self._errors.append(text)
