"""Fields that are computed of columns, and filters on them, give what the row engine gives, to the last bit, type and order."""

from typing import Any

import pytest
from bson import DatetimeMS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.common.values import Document, encode
from bucketd.query.columns.batch import ColumnBatch
from bucketd.timeseries import unpack
from bucketd.timeseries.columns import column_batches
from support.columns_as_rows import (
    CALM,
    EXPRESSIONS,
    FIELDS,
    START,
    answer,
    bucket_order,
    by_group,
    id_first,
    stored,
    typed,
)
from support.measurements import Measurements
from support.rows import in_a_list

COMMON = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = st.sampled_from(["p", "q", "i", "d", "s", "_id"])
ADDED = st.dictionaries(
    NAMES, st.one_of(EXPRESSIONS, st.sampled_from(["$d", "$m.x", "$none", 5, None, True, "$t"])), min_size=1, max_size=3
)
TESTS = st.one_of(
    st.tuples(
        st.sampled_from("pqid"), st.sampled_from(["$gt", "$lte", "$eq", "$ne"]), st.sampled_from([0, 1.5, None, True])
    ).map(lambda parts: {parts[0]: {parts[1]: parts[2]}}),
    st.sampled_from(
        [{"p": {"$exists": True}}, {"p": None, "d": {"$gt": 0}}, {"$expr": {"$gt": ["$p", "$i"]}}, {"p": "a"}]
    ),
)
WINDOW: Document = {
    "partitionBy": "$m",
    "sortBy": {"t": 1},
    "output": {"p": {"$shift": {"output": "$i", "by": 1}}, "q": {"$avg": "$d", "window": {"documents": [-1, 0]}}},
}


def encoded(rows: list[Document]) -> list[bytes]:
    return [encode(id_first(row)) for row in rows]


def same(lab: Measurements, pipeline: list[Document]) -> None:
    """The measurements answer as rows do, in the same order."""
    found = answer(lambda: encoded(lab.aggregate(*pipeline)))
    assert found == answer(lambda: encoded(in_a_list(bucket_order(lab), pipeline)))


@COMMON
@given(typed(CALM), ADDED)
async def test_added_fields(rows: list[Document], fields: Document) -> None:
    same(await stored(rows), [{"$addFields": fields}])


@COMMON
@given(typed(FIELDS), ADDED, ADDED, TESTS)
async def test_filters_on_added_fields(
    rows: list[Document], fields: Document, others: Document, test: Document
) -> None:
    lab = await stored(rows)
    same(lab, [{"$set": fields}, {"$match": test}])
    same(lab, [{"$set": fields}, {"$set": others}, {"$match": test}, {"$project": {"p": 1, "d": 1}}])


@COMMON
@given(typed(CALM), ADDED, TESTS)
async def test_fields_and_filters_behind_windows(rows: list[Document], fields: Document, test: Document) -> None:
    lab = await stored(rows)
    windows: Document = {"$setWindowFields": WINDOW}
    same(lab, [windows, {"$match": test}])
    same(lab, [windows, {"$addFields": fields}, {"$match": test}])
    pipeline: list[Document] = [
        windows,
        {"$match": test},
        {"$addFields": fields},
        {"$group": {"_id": "$p", "n": {"$sum": 1}, "all": {"$push": "$q"}, "last": {"$last": "$l"}}},
    ]
    found = answer(lambda: by_group(lab.aggregate(*pipeline)))
    assert found == answer(lambda: by_group(in_a_list(bucket_order(lab), pipeline)))


PROJECTED = st.builds(
    lambda kept, fields, hidden: {
        **({"_id": 0} if hidden else {}),
        **kept,
        **{f"new_{name}": one for name, one in fields.items()},
    },
    st.dictionaries(st.sampled_from(["t", "d", "i", "s", "none", "m.x", "d.x", "m.y.z"]), st.just(1), min_size=1),
    st.dictionaries(
        st.sampled_from("pq"), st.one_of(EXPRESSIONS, st.sampled_from(["$d", "$m.x", "$m", "$none"])), max_size=2
    ),
    st.booleans(),
)


@COMMON
@given(typed(FIELDS), PROJECTED, st.one_of(st.none(), TESTS))
async def test_projected_fields(rows: list[Document], fields: Document, test: Document | None) -> None:
    filter: list[Document] = [] if test is None else [{"$match": test}]
    same(await stored(rows), [*filter, {"$project": fields}])


@COMMON
@given(typed(CALM), PROJECTED, ADDED)
async def test_projected_fields_behind_others(rows: list[Document], fields: Document, added: Document) -> None:
    lab = await stored(rows)
    windows: Document = {"$setWindowFields": WINDOW}
    same(lab, [windows, {"$project": fields}])
    same(lab, [{"$addFields": added}, {"$project": {**fields, "p": 1}}, {"$match": {"i": {"$gte": 0}}}])
    pipeline: list[Document] = [
        {"$project": fields},
        {"$group": {"_id": "$t", "n": {"$sum": "$d"}, "l": {"$sum": "$l"}}},
    ]
    found = answer(lambda: by_group(lab.aggregate(*pipeline)))
    expected = answer(lambda: by_group(in_a_list(bucket_order(lab), pipeline)))
    assert found == expected


async def lab_of(count: int) -> Measurements:
    return await stored(
        [
            {"_id": at, "t": DatetimeMS(START + at * 60_000), "m": "ab"[at % 2], "i": at % 97, "d": at / 4}
            for at in range(count)
        ]
    )


async def test_only_rows_that_pass_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await lab_of(600)
    built: list[int] = []
    packed = ColumnBatch.packed

    def noted(batch: ColumnBatch) -> Any:
        built.append(len(batch))
        return packed(batch)

    monkeypatch.setattr(ColumnBatch, "packed", noted)
    found = lab.aggregate({"$addFields": {"p": {"$multiply": ["$i", 2]}}}, {"$match": {"p": 0}})
    assert [row["_id"] for row in found] == [0, 97, 194, 291, 388, 485, 582]
    assert 0 < sum(built) < 30


async def test_few_rows_of_computed_fields_are_few_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await lab_of(5000)
    read: list[bytes] = []

    def noted(buckets: Any, *others: Any, **named: Any) -> list[ColumnBatch]:
        read.extend(buckets)
        return column_batches(buckets, *others, **named)

    monkeypatch.setattr(unpack, "column_batches", noted)
    pipeline: list[Document] = [
        {"$addFields": {"p": {"$multiply": ["$i", 2]}}},
        {"$match": {"p": {"$gte": 4}}},
        {"$limit": 3},
    ]
    assert [row["p"] for row in lab.aggregate(*pipeline)] == [4, 8, 12]
    assert 0 < len(read) < len(lab.stored()) // 4
