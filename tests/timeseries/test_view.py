"""A view gives what its measurements give: whatever goes to the buckets loses no match."""

import re
from typing import Any

import pytest
from bson import DatetimeMS, Decimal128, Int64, Regex
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.catalog.buckets import BucketLimits
from bucketd.common.values import Document
from bucketd.query.match.parse import parse_filter
from support.measurements import Measurements
from support.memory_engine import MemoryEngine

START = 1_700_000_000_000

times = st.one_of(
    st.integers(0, 4 * 3_600_000).map(lambda offset: START + offset), st.sampled_from([START, -1, 2**33 * 1000])
)
numbers: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, float("nan"), float("inf"), -1.5, Int64(2), Decimal128("1.5"), Decimal128("NaN")]),
)
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(numbers, st.none(), st.booleans(), st.sampled_from(["", "a", "b"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["p", "q"]), inner, max_size=2),
    max_leaves=4,
)
metas = st.one_of(st.none(), st.sampled_from(["a", "b", 1]), st.fixed_dictionaries({"k": st.integers(0, 2)}))


@st.composite
def measurements(draw: st.DrawFn) -> list[Document]:
    rows = []
    for number in range(draw(st.integers(1, 8))):
        row: Document = {"t": DatetimeMS(draw(times)), "_id": number}
        if draw(st.booleans()):
            row["m"] = draw(metas)
        for name in ("x", "y"):
            if draw(st.booleans()):
                row[name] = draw(values)
        rows.append(row)
    return rows


operators = st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"])
conditions: st.SearchStrategy[Document] = st.one_of(
    st.tuples(operators, times.map(DatetimeMS)).map(lambda pair: {"t": {pair[0]: pair[1]}}),
    st.tuples(st.sampled_from(["x", "y", "x.p", "m", "m.k", "t.z"]), operators, values).map(
        lambda triple: {triple[0]: {triple[1]: triple[2]}}
    ),
    st.tuples(st.sampled_from(["x", "m", "m.k"]), st.lists(values, max_size=3)).map(
        lambda pair: {pair[0]: {"$in": pair[1]}}
    ),
    st.tuples(st.sampled_from(["x", "m"]), st.booleans()).map(lambda pair: {pair[0]: {"$exists": pair[1]}}),
    st.just({"x": Regex("a")}),
)
filters: st.SearchStrategy[Document] = st.recursive(
    conditions,
    lambda inner: st.tuples(st.sampled_from(["$and", "$or", "$nor"]), st.lists(inner, min_size=1, max_size=3)).map(
        lambda pair: {pair[0]: pair[1]}
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(rows=measurements(), filter=filters)
async def test_a_filter_on_the_view_finds_what_it_finds_among_the_measurements(
    rows: list[Document], filter: Document
) -> None:
    lab = Measurements(MemoryEngine(), BucketLimits(count_max=3))
    await lab.create()
    await lab.insert(*rows)
    try:
        matches = parse_filter(filter).compile({})
    except Exception as refused:
        with pytest.raises(type(refused), match=re.escape(str(refused))):
            lab.aggregate({"$match": filter})
        return
    assert sorted(row["_id"] for row in lab.aggregate({"$match": filter})) == [
        row["_id"] for row in rows if matches(row)
    ]


async def test_only_the_fields_that_are_read_are_unpacked() -> None:
    lab = Measurements(MemoryEngine())
    await lab.create()
    await lab.insert({"_id": 1, "t": DatetimeMS(START), "m": 1, "x": 1, "y": 2})
    assert lab.aggregate({"$project": {"x": 1, "_id": 0}}) == [{"x": 1}]
    assert lab.aggregate({"$group": {"_id": "$m", "n": {"$sum": 1}}}) == [{"_id": 1, "n": 1}]
    assert lab.aggregate({"$limit": 1}) == [{"t": DatetimeMS(START), "m": 1, "_id": 1, "x": 1, "y": 2}]
