"""`validate` and `reIndex`: whether a collection is whole, and its indexes made anew."""

import asyncio
from typing import Any

from bson import Binary, Decimal128

from ...catalog.catalog import Catalog
from ...catalog.checking import CollectionCheck
from ...catalog.collections import Collection
from ...common.errors import (
    CommandNotSupported,
    CommandNotSupportedOnView,
    InvalidOptions,
    NamespaceNotFound,
)
from ...common.values import Document
from ...storage.engine import Engine
from ...storage.keys import number_key
from ..context import Context, Request, Services
from ..repairs import rebuild_indexes, repair_collection
from .arguments import Fields
from .base import Command


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
        if metadata:
            return {**_metadata_reply(collection), "ns": str(namespace)}
        found = await _look(services, request, collection)
        repaired = False
        if repair and (found.broken_indexes or found.counts_are_wrong):
            await repair_collection(catalog, found)
            repaired = True
            found = await _look(services, request, catalog.get(collection.namespace) or collection)
        mode = "FixErrors" if repair else "AdjustMultikey" if multikey else "None"
        return {**_reply(found), "ns": str(namespace), "repaired": repaired, "repairMode": mode}


def _is_true(value: Any) -> bool:
    """Whether an option is set: by anything but false, null and a number that is nothing."""
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        return number.is_nan() or number != 0
    if isinstance(value, bool | int | float) or value is None:
        return bool(value)
    return True


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


def _metadata_reply(collection: Collection) -> Document:
    """The answer where nothing was read."""
    return {
        "ns": str(collection.namespace),
        "uuid": Binary(collection.uuid.bytes, 4),
        "nIndexes": len(collection.indexes),
        "indexDetails": {index.name: {"valid": True, "spec": index.to_document()} for index in collection.indexes},
        "valid": True,
        "repaired": False,
        "repairMode": "None",
        "warnings": [],
        "errors": [],
    }


async def _look(services: Services, request: Request, collection: Collection) -> CollectionCheck:
    """Read every document, and every entry of every index, in slices; from the start where indexes change meanwhile.

    Raises:
        NamespaceNotFound: the collection was dropped meanwhile.
    """
    engine: Engine = services.engine
    catalog: Catalog = services.catalog
    check = CollectionCheck(collection)
    more = True
    async with engine.readers.reading(number_key(collection.id)):
        while more:
            current = catalog.get(collection.namespace)
            if current is None or current.id != collection.id:
                raise NamespaceNotFound(f"Collection '{collection.namespace}' was dropped while it was validated.")
            if current.indexes != check.collection.indexes:
                check = CollectionCheck(current)
            with engine.snapshot() as snapshot:
                more = check.step(snapshot)
            await asyncio.sleep(0)
            request.operation.check()
    return check


def _reply(check: CollectionCheck) -> Document:
    """The answer."""
    collection = check.collection
    return {
        "ns": str(collection.namespace),
        "uuid": Binary(collection.uuid.bytes, 4),
        "nInvalidDocuments": check.invalid,
        "nNonCompliantDocuments": 0,
        "nrecords": check.records,
        "nIndexes": len(collection.indexes),
        "keysPerIndex": check.entries,
        "indexDetails": {
            index.name: {"valid": index.name not in check.broken_indexes, "spec": index.to_document()}
            for index in collection.indexes
        },
        "valid": check.valid,
        "warnings": check.warnings,
        "errors": check.errors,
        "extraIndexEntries": check.extra,
        "missingIndexEntries": check.missing,
        "corruptRecords": [],
    }
