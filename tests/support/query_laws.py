"""Documents, queries and orders at random, and a way to run them: for laws that hold whatever indexes there are."""

import asyncio
from typing import Any

from bson import DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from hypothesis import strategies as st

from bucketd.catalog import documents
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.collections import Collection
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.common.errors import MongoError
from bucketd.common.values import Document, decode, encode
from bucketd.query.execute import run_all
from bucketd.query.match.parse import parse_filter
from bucketd.query.plan.planner import Wanted, plan_find
from bucketd.storage.engine import Transaction
from support.memory_engine import MemoryEngine

SPACE = Namespace("db", "c")
scalars = st.sampled_from(
    [
        None, True, False, 0, 1, 2, 3, -1, 1.5, float("nan"), float("inf"), Int64(2), Decimal128("2.5"), "", "a", "ab",
        "b", DatetimeMS(0), DatetimeMS(5), ObjectId(b"a" * 12), b"x", MinKey(), MaxKey(), Timestamp(1, 1),
        Regex("a"), "x" * 400 + "1", "x" * 400 + "2",
    ]
)  # fmt: skip
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.fixed_dictionaries({}, optional={"b": scalars, "c": scalars}),
    st.lists(st.fixed_dictionaries({}, optional={"b": scalars, "c": scalars}), max_size=3),
    st.lists(st.lists(scalars, max_size=2), max_size=2),
)
rows = st.lists(st.fixed_dictionaries({}, optional={"a": values, "d": values}), max_size=12)
paths = st.sampled_from(["a", "d", "a.b", "a.c"])
operands = st.one_of(scalars.filter(lambda value: not isinstance(value, Regex)), st.lists(scalars, max_size=2))
ranges = st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"])


@st.composite
def conditions(draw: Any) -> Document:
    path = draw(paths)
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return {path: draw(operands)}
    if kind == 1:
        return {path: {draw(ranges): draw(operands)}}
    if kind == 2:
        return {path: {draw(st.sampled_from(["$in", "$nin"])): draw(st.lists(operands, max_size=3))}}
    if kind == 3:
        return {path: {"$exists": draw(st.booleans())}}
    if kind == 4:
        return {path: {"$elemMatch": {draw(ranges): draw(operands), "$lt": draw(operands)}}}
    if kind == 5:
        return {path: {"$regex": draw(st.sampled_from(["^a", "^ab", "a", "^x"]))}}
    return {path: {"$gte": draw(operands), "$lte": draw(operands)}}


filters = st.one_of(
    conditions(),
    st.lists(conditions(), min_size=1, max_size=3).map(lambda parts: {"$and": parts}),
    st.lists(conditions(), min_size=1, max_size=3).map(lambda parts: {"$or": parts}),
    st.tuples(conditions(), st.lists(conditions(), min_size=2, max_size=2)).map(
        lambda pair: {"$and": [pair[0], {"$or": pair[1]}]}
    ),
)
directions = st.sampled_from([1, -1])
keys = st.lists(st.tuples(paths, directions), min_size=1, max_size=3, unique_by=lambda part: part[0]).map(dict)
sorts = st.one_of(st.none(), keys)


def run(engine: MemoryEngine, collection: Collection, wanted: Wanted) -> list[Document]:
    with engine.snapshot() as snapshot:
        planned = plan_find(collection, wanted, snapshot)
        found = [row for batch in run_all(planned.root, snapshot, batch_rows=3) for row in batch.documents()]
    return found


def indexed_collection(
    given_rows: list[Document], specs: list[Any], options: Document | None = None
) -> tuple[MemoryEngine, Collection]:
    """A collection of rows with `_id` by position, and with indexes given as key, sparse, partial filter."""
    engine = MemoryEngine()

    async def fill() -> Collection:
        catalog = Catalog(engine, partial_compiler=lambda rule, collation: _matcher(rule))
        catalog.load()
        await catalog.create(SPACE, options or {})
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
    matches = parse_filter(rule).compile({})
    return lambda raw: matches(decode(raw))
