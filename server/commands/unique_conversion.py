"""What stands in the way of making an index unique."""

import asyncio
from itertools import islice
from typing import Any, Final

from ...catalog import documents
from ...catalog.catalog import Catalog
from ...catalog.index_entries import keys_of
from ...catalog.index_specs import IndexSpec
from ...catalog.namespaces import Namespace
from ...common.errors import CannotConvertIndexToUnique
from ...common.values import Document, decode
from ...storage.engine import Engine
from ..context import Services
from ..operations import Operation

_SLICE_DOCUMENTS: Final = 500
_TOLD_BYTES_MAX: Final = 8 * 1024 * 1024
_ID_BYTES: Final = 64
"""What one `_id` counts for in the size of the reply, roughly."""


async def violations_of(
    services: Services, namespace: Namespace, index: IndexSpec, operation: Operation
) -> list[Document]:
    """Groups of the `_id`s of documents that have a key of the index in common, as far as a reply can hold them."""
    catalog: Catalog = services.catalog
    engine: Engine = services.engine
    seen: dict[bytes, list[Any]] = {}
    position: bytes | None = None
    more = True
    while more:
        collection = catalog.get(namespace)
        if collection is None:
            break
        with engine.snapshot() as snapshot:
            rows = list(islice(documents.scan(snapshot, collection, after_key=position), _SLICE_DOCUMENTS))
        for record_key, raw in rows:
            position = record_key
            for key in set(keys_of(index, raw)):
                seen.setdefault(key, []).append(decode(raw).get("_id"))
        more = len(rows) == _SLICE_DOCUMENTS
        # Others get their turn between two slices.
        await asyncio.sleep(0)
        operation.check()
    violations: list[Document] = []
    room = _TOLD_BYTES_MAX
    for key in sorted(key for key, ids in seen.items() if len(ids) > 1):
        room -= _ID_BYTES * len(seen[key])
        if room < 0 and violations:
            break
        violations.append({"ids": seen[key]})
    return violations


def cannot_convert(violations: list[Document]) -> CannotConvertIndexToUnique:
    """The error that tells them."""
    return CannotConvertIndexToUnique(
        "Cannot convert the index to unique. Please resolve conflicting documents before running collMod again.",
        extra={"violations": violations},
    )
