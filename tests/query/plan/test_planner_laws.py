"""A query means the same whatever indexes there are, and a sort through an index sorts."""

import asyncio
import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.catalog import documents
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.collections import Collection
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.common.errors import MongoError
from bucketd.common.values import Document, encode
from bucketd.query.match.parse import parse_filter
from bucketd.query.plan.planner import Wanted
from bucketd.query.sort import parse_sort
from bucketd.storage.engine import Transaction
from support.memory_engine import MemoryEngine
from support.query_laws import conditions, filters, keys, rows, run, sorts

SPACE = Namespace("db", "c")

indexes = st.lists(
    st.tuples(keys, st.booleans(), st.one_of(st.none(), conditions())), min_size=1, max_size=3,
    unique_by=lambda spec: str(spec[0]),
)  # fmt: skip


def _collection(given_rows: list[Document], specs: list[Any]) -> tuple[MemoryEngine, Collection]:
    engine = MemoryEngine()

    async def fill() -> Collection:
        catalog = Catalog(engine, partial_compiler=lambda rule, collation: _matcher(rule))
        catalog.load()
        await catalog.create(SPACE, {})
        wanted = []
        for position, (key, sparse, partial) in enumerate(specs):
            spec: Document = {"key": key, "name": f"i{position}"}
            if sparse:
                spec["sparse"] = True
            elif partial is not None:
                spec["partialFilterExpression"] = partial
            try:
                wanted.append(IndexSpec.parse(spec))
            except MongoError:
                continue
        if wanted:
            await catalog.create_indexes(SPACE, wanted)
        for position, row in enumerate(given_rows):
            raw = encode({"_id": position, **row})

            def insert(transaction: Transaction, raw: bytes = raw) -> None:
                collection = catalog.collection_in(transaction, SPACE)
                assert collection is not None
                documents.insert(transaction, collection, raw)

            try:
                await engine.write(insert)
            except MongoError:
                # Parallel arrays cannot be indexed: the document stays away from both sides.
                continue
        collection = catalog.get(SPACE)
        assert collection is not None
        return collection

    return engine, asyncio.run(fill())


def _matcher(rule: Document) -> Any:
    from bucketd.common.values import decode

    matches = parse_filter(rule).compile({})
    return lambda raw: matches(decode(raw))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)
@given(rows, indexes, filters, sorts)
def test_indexes_change_nothing(
    given_rows: list[Document], specs: list[Any], filter: Document, sort: Document | None
) -> None:
    engine, collection = _collection(given_rows, specs)
    try:
        pattern = None if sort is None else parse_sort(sort)
        matcher = parse_filter(filter)
        expected = run(engine, collection, Wanted(matcher=matcher, sort=pattern, natural=1))
    except MongoError:
        return
    found = run(engine, collection, Wanted(matcher=parse_filter(filter), sort=pattern))
    assert sorted(row["_id"] for row in found) == sorted(row["_id"] for row in expected)
    if pattern is not None:
        found_keys = [pattern.key(row) for row in found]
        assert all(not right < left for left, right in itertools.pairwise(found_keys))
        limited = run(engine, collection, Wanted(matcher=parse_filter(filter), sort=pattern, skip=1, limit=2))
        assert [pattern.key(row) for row in limited] == found_keys[1:3]
