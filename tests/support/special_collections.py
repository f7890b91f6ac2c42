"""Collections in memory with indexes of any kind, for laws about queries."""

import asyncio
from typing import Any

from bucketd.catalog import documents
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.collections import Collection
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.common.errors import MongoError
from bucketd.common.values import Document, encode
from bucketd.storage.engine import Transaction
from support.memory_engine import MemoryEngine

SPACE = Namespace("db", "c")


def collection_with(rows: list[Document], specs: list[Document]) -> tuple[MemoryEngine, Collection]:
    """A collection of the rows, numbered by `_id`, with indexes; rows that an index refuses are left out."""
    engine = MemoryEngine()

    async def fill() -> Collection:
        catalog = Catalog(engine)
        catalog.load()
        await catalog.create(SPACE, {})
        wanted: list[IndexSpec] = []
        for position, spec in enumerate(specs):
            try:
                parsed = IndexSpec.parse({"name": f"i{position}", **spec})
            except MongoError:
                continue
            if not any(parsed.same_key(other) for other in wanted):
                wanted.append(parsed)
        if wanted:
            await catalog.create_indexes(SPACE, wanted)
        for position, row in enumerate(rows):

            def insert(transaction: Transaction, raw: bytes = encode({"_id": position, **row})) -> None:
                collection: Any = catalog.collection_in(transaction, SPACE)
                documents.insert(transaction, collection, raw)

            try:
                await engine.write(insert)
            except MongoError:
                continue
        collection = catalog.get(SPACE)
        assert collection is not None
        return collection

    return engine, asyncio.run(fill())
