"""What an index answers alone is what the documents say, to the bit; limits read no more than they must."""

import asyncio
from typing import Any

import pytest
from bson import Decimal128, Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.catalog import documents
from bucketd.catalog.collections import Collection
from bucketd.catalog.index_entries import record_of_entry
from bucketd.common.collation import Collation
from bucketd.common.errors import MongoError
from bucketd.common.ordering import order_key
from bucketd.common.paths import get_path
from bucketd.common.values import MISSING, Document, encode
from bucketd.query.execute import run_all
from bucketd.query.match.parse import parse_filter
from bucketd.query.plan.nodes import PlanNode
from bucketd.query.plan.planner import Wanted, plan_find
from bucketd.query.plan.wanted import DistinctBy
from bucketd.query.projection import parse_projection
from bucketd.query.sort import parse_sort
from bucketd.storage.engine import Transaction
from bucketd.storage.keys import number_key
from support.memory_engine import MemoryEngine
from support.query_laws import conditions, filters, indexed_collection, scalars, sorts

values = st.one_of(
    scalars,
    st.sampled_from(
        [0.0, -0.0, Int64(0), Decimal128("0"), Decimal128("-0"), 2.0, Decimal128("2.50"), "A", "B", float("-inf")]
    ),
    st.fixed_dictionaries({}, optional={"b": scalars, "c": scalars}),
    # Now and then the index becomes one of arrays.
    st.lists(scalars, max_size=2),
)
plain_values = values.filter(lambda value: not isinstance(value, list))
rows = st.lists(
    st.one_of(
        st.fixed_dictionaries({}, optional={"a": plain_values, "d": plain_values}),
        st.fixed_dictionaries({}, optional={"a": values, "d": values}),
    ),
    max_size=12,
)
plain_rows = st.lists(st.fixed_dictionaries({}, optional={"a": plain_values, "d": plain_values}), max_size=12)
paths = st.sampled_from(["a", "d", "a.b", "a.c", "_id"])
index_keys = st.lists(
    st.tuples(paths, st.sampled_from([1, -1])), min_size=1, max_size=3, unique_by=lambda part: part[0]
)
collations = st.sampled_from([None, None, {"locale": "en", "strength": 2}])


def normal(value: Any) -> Any:
    """The same for documents that differ in the order of their fields alone."""
    if isinstance(value, dict):
        return {name: normal(value[name]) for name in sorted(value)}
    return value


def nodes(node: PlanNode) -> list[PlanNode]:
    return [node, *(inner for below in node.inputs for inner in nodes(below))]


def answers(engine: MemoryEngine, collection: Collection, wanted: Wanted) -> tuple[list[Document], PlanNode]:
    with engine.snapshot() as snapshot:
        planned = plan_find(collection, wanted, snapshot)
        found = [row for batch in run_all(planned.root, snapshot, batch_rows=3) for row in batch.documents()]
    return found, planned.root


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], max_examples=400)
@given(
    st.one_of(rows, plain_rows), index_keys.map(dict), filters, sorts, st.sets(paths, min_size=1, max_size=3), collations,
    collations,
)  # fmt: skip
def test_an_index_tells_what_the_documents_say(
    given_rows: list[Document],
    key: Document,
    filter: Document,
    sort: Document | None,
    shown: set[str],
    collation: Document | None,
    asked: Document | None,
) -> None:
    engine, collection = indexed_collection(
        given_rows, [(key, False, None)], {"collation": collation} if collation else None
    )
    collator = None if asked is None else Collation.parse(asked)
    spec: Document = dict.fromkeys(sorted(shown), 1)
    spec.setdefault("_id", 0)

    def wanted(**more: Any) -> Wanted:
        matcher = parse_filter(filter, collator=collator)
        return Wanted(
            matcher=matcher,
            sort=None if sort is None else parse_sort(sort),
            projection=parse_projection(spec, filter=matcher, collator=collator),
            collation=collator,
            **more,
        )

    try:
        expected, _ = answers(engine, collection, wanted(natural=1))
    except MongoError:
        return
    for hint in (None, key):
        if hint is not None and collection.index("i0") is None:
            continue
        found, _ = answers(engine, collection, wanted(hint=hint))
        assert sorted(encode(normal(row)) for row in found) == sorted(encode(normal(row)) for row in expected)
        limited, _ = answers(engine, collection, wanted(hint=hint, skip=1, limit=2))
        assert len(limited) == min(max(len(expected) - 1, 0), 2)
        assert len([row for row in limited if encode(normal(row)) in {encode(normal(one)) for one in expected}]) == len(
            limited
        )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], max_examples=300)
@given(
    st.one_of(rows, plain_rows), index_keys.map(dict), st.one_of(st.just({}), conditions()), paths, st.booleans(),
    st.booleans(), st.sampled_from([None, 1, -1]),
)  # fmt: skip
def test_a_row_for_each_value_is_enough(
    given_rows: list[Document],
    key: Document,
    filter: Document,
    path: str,
    last: bool,
    missing_counts: bool,
    direction: int | None,
) -> None:
    engine, collection = indexed_collection(given_rows, [(key, False, None)])
    sort = None if direction is None else parse_sort({path: direction, "d": 1})

    def groups(**more: Any) -> dict[Any, Any]:
        found, _ = answers(engine, collection, Wanted(matcher=parse_filter(filter), sort=sort, **more))
        values: dict[Any, Any] = {}
        for row in found:
            value = get_path(row, tuple(path.split(".")))
            if value is MISSING and not missing_counts:
                continue
            group = order_key(None if value is MISSING else value)
            if last or group not in values:
                values[group] = order_key(row.get("d"))
        return values

    try:
        expected = groups(natural=1)
    except MongoError:
        return
    found = groups(distinct=DistinctBy(path, last=last, missing_counts=missing_counts))
    assert set(found) == set(expected)
    if sort is not None and not collection.indexes[-1].multikey:
        assert found == expected


DOCUMENTS: list[Document] = [{"a": n % 10, "b": n % 7, "c": f"{n:04}", "n": {"x": n}} for n in range(200)]


def plan_of(filter: Document, index: Document, **asked: Any) -> tuple[list[Document], list[PlanNode]]:
    engine, collection = indexed_collection(DOCUMENTS, [(index, False, None)])
    matcher = parse_filter(filter)
    projection = asked.pop("projection", None)
    sort = asked.pop("sort", None)
    wanted = Wanted(
        matcher=matcher,
        sort=None if sort is None else parse_sort(sort),
        projection=None if projection is None else parse_projection(projection, filter=matcher),
        **asked,
    )
    found, root = answers(engine, collection, wanted)
    return found, nodes(root)


def examined(plan: list[PlanNode]) -> tuple[int, int]:
    return sum(node.stats.keys_examined for node in plan), sum(node.stats.docs_examined for node in plan)


@pytest.mark.parametrize(
    ("filter", "index", "asked", "stages", "counts"),
    [
        ({"a": 3}, {"a": 1, "b": 1}, {"projection": {"a": 1, "b": 1, "_id": 0}}, "PROJECTION_COVERED IXSCAN", (20, 0)),
        ({"a": 3}, {"a": 1, "b": 1}, {"projection": {"b": 1}}, "PROJECTION_SIMPLE FETCH IXSCAN", (20, 20)),
        ({"a": 3}, {"a": 1, "n.x": 1}, {"projection": {"n.x": 1, "_id": 0}}, "PROJECTION_DEFAULT IXSCAN", (20, 0)),
        ({"a": 3}, {"a": 1, "n.x": 1}, {"projection": {"n": 1, "_id": 0}}, "PROJECTION_SIMPLE FETCH IXSCAN", (20, 20)),
        (
            {"a": {"$gt": 8}, "b": {"$mod": [3, 1]}}, {"a": 1, "b": 1}, {"projection": {"b": 1, "_id": 0}},
            "PROJECTION_COVERED IXSCAN", (20, 0),
        ),
        ({"a": {"$gt": 8}, "b": 2}, {"a": 1, "b": 1}, {}, "FETCH IXSCAN", (20, 3)),
        (
            {"a": 3}, {"a": 1, "b": 1, "c": 1}, {"sort": {"c": 1}, "projection": {"c": 1, "_id": 0}},
            "PROJECTION_COVERED SORT IXSCAN", (20, 0),
        ),
        ({"a": 3, "b": None}, {"a": 1, "b": 1}, {"projection": {"a": 1, "_id": 0}}, "PROJECTION_SIMPLE FETCH IXSCAN", (0, 0)),
        ({"c": {"$regex": "^01"}}, {"c": 1}, {"sort": {"c": 1}, "skip": 9, "limit": 1}, "LIMIT SKIP FETCH IXSCAN", (10, 10)),
        ({"c": {"$regex": "^01"}, "b": 3}, {"c": 1}, {"sort": {"c": 1}, "limit": 2}, "LIMIT FETCH IXSCAN", (9, 9)),
        ({"c": {"$regex": "^01.7"}}, {"c": 1}, {"sort": {"c": 1}, "limit": 1}, "LIMIT FETCH IXSCAN", (8, 1)),
        ({"b": 3}, {"a": 1}, {"limit": 2}, "LIMIT COLLSCAN", (0, 11)),
        (
            {"a": {"$in": [3, 5]}}, {"a": 1, "c": 1}, {"sort": {"c": 1}, "limit": 3},
            "LIMIT FETCH SORT_MERGE IXSCAN IXSCAN", (4, 3),
        ),
        (
            {"a": {"$in": [3, 5]}, "b": {"$in": [1, 2]}}, {"a": 1, "b": 1, "c": -1}, {"sort": {"c": 1}},
            "FETCH SORT_MERGE IXSCAN IXSCAN IXSCAN IXSCAN", (11, 11),
        ),
    ],
)  # fmt: skip
def test_stages_and_what_they_look_at(
    filter: Document, index: Document, asked: Document, stages: str, counts: tuple[int, int]
) -> None:
    found, plan = plan_of(filter, index, **asked)
    assert " ".join(node.stage for node in plan) == stages
    assert examined(plan) == counts
    same, _ = plan_of(filter, index, **asked, natural=1)
    key = (lambda row: 0) if "sort" in asked else (lambda row: repr(normal(row)))
    if "limit" not in asked or "sort" in asked:
        assert sorted(found, key=key) == sorted(same, key=key)


few = st.sampled_from([1, 2, 2.0, Int64(3), "a", None])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200)
@given(
    st.lists(st.fixed_dictionaries({"a": few, "b": few, "d": scalars}), max_size=25),
    st.sampled_from([1, -1]),
    st.sampled_from([1, -1]),
    st.lists(few, min_size=2, max_size=3, unique_by=order_key),
    st.booleans(),
    st.integers(0, 5),
)
def test_merged_scans_are_in_order(
    given_rows: list[Document], kept: int, asked: int, choices: list[Any], either: bool, limit: int
) -> None:
    specs = [({"a": 1, "d": kept}, False, None), ({"b": -1, "d": -kept}, False, None)]
    engine, collection = indexed_collection(given_rows, specs)
    filter: Document = {"$or": [{"a": choices[0]}, {"b": {"$in": choices}}]} if either else {"a": {"$in": choices}}
    pattern = parse_sort({"d": asked})
    expected, _ = answers(engine, collection, Wanted(matcher=parse_filter(filter), sort=pattern, natural=1))
    found, root = answers(engine, collection, Wanted(matcher=parse_filter(filter), sort=pattern, limit=limit))
    # Long keys are in no order, so nothing is merged then.
    if not any(index.state.long_keys for index in collection.indexes):
        assert "SORT_MERGE" in {node.stage for node in nodes(root)}
    in_order = [pattern.key(row) for row in expected]
    assert [pattern.key(row) for row in found] == (in_order[:limit] if limit else in_order)
    if not limit:
        assert {row["_id"] for row in found} == {row["_id"] for row in expected}
    assert len({row["_id"] for row in found}) == len(found)


def test_entries_without_types_cost_a_look_at_the_document() -> None:
    engine, collection = indexed_collection(DOCUMENTS, [({"a": 1, "b": 1}, False, None)])
    index = collection.indexes[1]
    prefix = number_key(index.id)

    def forget(transaction: Transaction) -> None:
        for key, value in list(documents.entry_scan(transaction, index)):
            transaction.put("indexes", prefix + key, record_of_entry(value))

    asyncio.run(engine.write(forget))
    matcher = parse_filter({"a": 3})
    projection = parse_projection({"b": 1, "_id": 0}, filter=matcher)
    found, root = answers(engine, collection, Wanted(matcher=matcher, projection=projection))
    assert [row["b"] for row in found] == sorted(n % 7 for n in range(3, 200, 10))
    assert root.stage == "PROJECTION_COVERED"
    assert examined(nodes(root)) == (20, 20)
