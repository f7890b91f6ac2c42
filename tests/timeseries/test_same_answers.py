"""Measurements in buckets answer every question as documents in a list do."""

import math
from itertools import pairwise
from typing import Any

from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.catalog import documents
from bucketd.catalog.buckets import BucketLimits
from bucketd.common.ordering import order_key
from bucketd.common.values import Document, decode, encode
from bucketd.kernels import validate_bucket
from bucketd.query.sort import parse_sort
from support.measurements import NAMESPACE, Measurements
from support.memory_engine import MemoryEngine
from support.rows import in_a_list

START = 1_700_000_000_000 // 3_600_000 * 3_600_000
TIMES = st.one_of(
    st.integers(0, 4 * 3600).map(lambda second: DatetimeMS(START + second * 1000)),
    st.sampled_from([0, 59_999, 3_600_000, 7_199_999]).map(lambda ms: DatetimeMS(START + ms)),
)
FAR_TIMES = st.one_of(TIMES, st.sampled_from([-86_400_000, -1, 2**31 * 1000, 4_200_000_000_000]).map(DatetimeMS))
METAS = st.sampled_from(["a", "b", 1, 1.0, None, {"s": 1, "k": [1, 2]}, {"k": "x", "s": 2}, {"s": {"u": 1}}, [1, 2]])
NUMBERS = st.one_of(
    st.integers(-5, 5), st.sampled_from([0.5, -2.5, math.nan, math.inf, Int64(3), Decimal128("1.5"), Decimal128("NaN")])
)
SCALARS = st.one_of(
    NUMBERS, st.sampled_from(["", "p", "q", None, True, False, DatetimeMS(5), ObjectId(b"twelve bytes"), b"\1"])
)
OTHERS = st.sampled_from(
    [
        MinKey(),
        MaxKey(),
        Timestamp(1, 2),
        Regex("a", "i"),
        Code("f()"),
        Code("g()", {"v": 1}),
        Binary(b"x", 5),
        DBRef("c", 1),
    ]
)
VALUES = st.one_of(
    NUMBERS, SCALARS, OTHERS, st.lists(SCALARS, max_size=3), st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2)
)
OPERANDS = st.one_of(SCALARS, st.lists(NUMBERS, max_size=2))
OPERATORS = st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"])


@st.composite
def measurements(draw: st.DrawFn, times: st.SearchStrategy[DatetimeMS] = TIMES) -> list[Document]:
    rows = []
    for number in range(draw(st.integers(1, 40))):
        row: Document = {"_id": number, "t": draw(times)}
        if draw(st.integers(0, 7)):
            row["m"] = draw(METAS)
        for name in "xyz":
            if draw(st.booleans()):
                row[name] = draw(VALUES if name != "z" else NUMBERS)
        rows.append(row)
    return rows


@st.composite
def conditions(draw: st.DrawFn) -> Document:
    path = draw(st.sampled_from(["t", "t", "m", "m.s", "m.k", "x", "x.a", "y", "y.b", "z", "_id"]))
    operand = draw(TIMES) if path == "t" and draw(st.integers(0, 3)) else draw(OPERANDS)
    match draw(st.integers(0, 5)):
        case 0 | 1 | 2:
            return {path: {draw(OPERATORS): operand}}
        case 3:
            return {path: {"$in": [operand, draw(SCALARS)]}}
        case 4:
            return {path: {"$exists": draw(st.booleans())}}
        case _:
            return {"$expr": {draw(OPERATORS): [f"${path}", {"$literal": operand}]}}


@st.composite
def filters(draw: st.DrawFn) -> Document:
    parts = draw(st.lists(conditions(), min_size=1, max_size=3))
    return parts[0] if len(parts) == 1 else {draw(st.sampled_from(["$and", "$or", "$nor"])): parts}


def canonical(value: Any) -> Any:
    """Comparable whatever the order of fields; types count."""
    if isinstance(value, dict):
        return sorted((name, canonical(item)) for name, item in value.items())
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return encode({"": value})


def as_set(rows: list[Document]) -> list[Any]:
    return sorted((canonical(row) for row in rows), key=repr)


async def stored(rows: list[Document], cuts: list[int]) -> Measurements:
    lab = Measurements(MemoryEngine(), BucketLimits(count_max=7))
    await lab.create()
    borders = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    for start, stop in pairwise(borders):
        await lab.insert(*rows[start:stop])
    if len(rows) % 2:
        await lab.pack()
    return lab


def check_buckets(lab: Measurements) -> None:
    options = lab.collection(NAMESPACE).timeseries
    assert options is not None
    collection = lab.collection(NAMESPACE.buckets)
    with lab.engine.snapshot() as snapshot:
        for _, raw in documents.scan(snapshot, collection):
            assert validate_bucket(raw, "t", "m", options.span_ms, options.rounding_seconds * 1000) == []


def as_read(row: Document) -> Document:
    """The measurement as it comes back: the fields of its meta value sorted by name."""
    return {name: sorted_meta(value) if name == "m" else value for name, value in decode(encode(row)).items()}


def sorted_meta(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: sorted_meta(value[name]) for name in sorted(value)}
    return [sorted_meta(item) for item in value] if isinstance(value, list) else value


COMMON = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@COMMON
@given(measurements(), st.lists(st.integers(0, 40), max_size=3), filters())
async def test_filters(rows: list[Document], cuts: list[int], filter: Document) -> None:
    lab = await stored(rows, cuts)
    check_buckets(lab)
    rows = [as_read(row) for row in rows]
    assert as_set(lab.aggregate()) == as_set(rows)
    assert as_set(lab.aggregate({"$match": filter})) == as_set(in_a_list(rows, [{"$match": filter}]))


@COMMON
@given(measurements(FAR_TIMES), st.lists(st.integers(0, 40), max_size=3), filters())
async def test_filters_on_times_that_ids_cannot_tell(rows: list[Document], cuts: list[int], filter: Document) -> None:
    lab = await stored(rows, cuts)
    check_buckets(lab)
    rows = [as_read(row) for row in rows]
    assert as_set(lab.aggregate({"$match": filter})) == as_set(in_a_list(rows, [{"$match": filter}]))


ORDERS = st.sampled_from(
    [
        {"t": 1},
        {"t": -1},
        {"m": 1},
        {"m": -1, "t": -1},
        {"m": 1, "t": -1},
        {"m.s": 1, "t": 1},
        {"m.s": -1},
        {"x": 1, "t": 1},
    ]
)


@COMMON
@given(
    measurements(FAR_TIMES),
    st.lists(st.integers(0, 40), max_size=3),
    ORDERS,
    st.integers(0, 12),
    st.booleans(),
    filters(),
)
async def test_orders(
    rows: list[Document], cuts: list[int], order: Document, limit: int, filtered: bool, filter: Document
) -> None:
    lab = await stored(rows, cuts)
    rows = [as_read(row) for row in rows]
    pipeline: list[Document] = [{"$match": filter}] if filtered else []
    pipeline += [{"$sort": order}] + ([{"$limit": limit}] if limit else [])
    found, expected = lab.aggregate(*pipeline), in_a_list(rows, pipeline)
    key = parse_sort(order).key
    assert [key(row) for row in found] == [key(row) for row in expected]
    if not limit:
        assert as_set(found) == as_set(expected)


GROUPS = st.sampled_from(
    [
        [{"$count": "n"}],
        [{"$group": {"_id": None, "n": {"$sum": 1}}}],
        [{"$group": {"_id": "$m.s", "n": {"$count": {}}}}],
        [{"$group": {"_id": {"a": "$m.s", "b": "$m.k"}, "n": {"$sum": 1}}}],
        [{"$sort": {"m": 1, "t": -1}}, {"$group": {"_id": "$m", "t": {"$first": "$t"}}}],
        [{"$sort": {"t": 1}}, {"$group": {"_id": "$m", "t": {"$first": "$t"}}}],
        [{"$sort": {"t": 1}}, {"$group": {"_id": "$m.s", "t": {"$last": "$t"}}}],
        [{"$group": {"_id": "$m", "t": {"$top": {"sortBy": {"t": -1}, "output": "$t"}}}}],
        [{"$group": {"_id": "$m.k", "t": {"$bottom": {"sortBy": {"t": -1}, "output": "$t"}}}}],
        [{"$group": {"_id": "$m", "low": {"$min": "$z"}, "high": {"$max": "$t"}}}],
        [{"$group": {"_id": {"$dateTrunc": {"date": "$t", "unit": "hour"}}, "n": {"$sum": "$z"}}}],
        [{"$sortByCount": "$m"}, {"$project": {"count": 1}}],
        [{"$skip": 2}, {"$count": "n"}],
    ]
)


@COMMON
@given(measurements(), st.lists(st.integers(0, 40), max_size=3), GROUPS, st.booleans(), filters())
async def test_groups(
    rows: list[Document], cuts: list[int], group: list[Document], filtered: bool, filter: Document
) -> None:
    lab = await stored(rows, cuts)
    rows = [as_read(row) for row in rows]
    pipeline = [{"$match": filter}, *group] if filtered else group
    found, expected = lab.aggregate(*pipeline), in_a_list(rows, pipeline)
    assert as_groups(found) == as_groups(expected)


def as_groups(rows: list[Document]) -> list[Any]:
    """By value alone: which of several equal numbers names a group depends on the order of rows."""
    return sorted(
        (order_key([row.get("_id"), *[row[name] for name in row if name != "_id"]]) for row in rows), key=repr
    )
