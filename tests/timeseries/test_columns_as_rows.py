"""Groups and filters over columns give what the row engine gives, to the last bit and type."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from bson import DatetimeMS, Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.common.values import Document, encode
from bucketd.query.columns.batch import ColumnBatch
from bucketd.query.pipeline.base import PipelineContext
from bucketd.query.pipeline.group import Group
from bucketd.timeseries import unpack
from bucketd.timeseries.columns import column_batches
from support.columns_as_rows import (
    ERROR,
    EXPRESSIONS,
    START,
    answer,
    bucket_order,
    by_group,
    id_first,
    stored,
    trunc,
    typed,
)
from support.measurements import NAMESPACE
from support.rows import in_a_list

KEYS = st.sampled_from(
    [
        None,
        "$m",
        "$m.x",
        "$i",
        "$s",
        "$b",
        "$w",
        "$d",
        {"v": "$d"},
        trunc("hour"),
        trunc("minute", binSize=20),
        trunc("day", timezone="Asia/Kathmandu"),
        trunc("week", startOfWeek="wed", timezone="-03:30"),
        {"h": {"$hour": "$t"}, "q": {"$minute": {"date": "$t", "timezone": "Europe/Berlin"}}},
        {"m": "$m", "t": trunc("hour"), "s": "$s"},
        {"$concat": [{"$ifNull": ["$s", "?"]}, "!"]},
        {"$cond": [{"$gt": ["$i", 0]}, {"$year": "$t"}, "$m"]},
        "$t",
        {"x": "$t", "y": {"$ifNull": ["$i", "$d"]}},
        {"$floor": {"$divide": ["$d", 10]}},
        {"r": {"$round": ["$d", 1]}, "i": {"$abs": "$i"}, "h": trunc("hour")},
        {"$toDate": {"$subtract": [{"$toLong": "$t"}, {"$mod": [{"$toLong": "$t"}, 900_000]}]}},
        {"$dateAdd": {"startDate": "$t", "unit": "month", "amount": "$i"}},
    ]
)
VALUES = st.sampled_from(["$d", "$i", "$l", "$s", "$w", "$b", "$t", "$m", "$m.x", "$none"])
OUTPUTS = st.one_of(
    VALUES, st.sampled_from(["$$ROOT", ["$t", "$d", "$none"], {"m": "$m.x", "v": ["$s"], "n": "$none"}, 1, "$d.x"])
)
SORTS = st.lists(
    st.tuples(st.sampled_from(["d", "i", "l", "s", "b", "w", "t", "m", "m.x"]), st.sampled_from([1, -1])),
    min_size=1,
    max_size=2,
    unique_by=lambda part: part[0],
).map(dict)
ACCUMULATORS = st.dictionaries(
    st.sampled_from(["p", "q", "r"]),
    st.one_of(
        st.just({"$sum": 1}),
        st.just({"$count": {}}),
        st.just({"$median": {"input": "$i", "method": "approximate"}}),
        st.just({"$percentile": {"input": "$d", "p": [0.1, 0.9, 1.0], "method": "approximate"}}),
        st.tuples(
            st.sampled_from(["$sum", "$avg", "$min", "$max", "$first", "$last", "$stdDevPop", "$stdDevSamp"]),
            st.sampled_from(["d", "i", "l", "s", "w", "t", "m.x", "m"]),
        ).map(lambda pair: {pair[0]: f"${pair[1]}"}),
        st.tuples(
            st.sampled_from(["$sum", "$avg", "$min", "$max", "$first", "$last", "$stdDevPop", "$stdDevSamp"]),
            EXPRESSIONS,
        ).map(lambda pair: dict([pair])),
        st.tuples(st.sampled_from(["$push", "$addToSet"]), st.one_of(VALUES, EXPRESSIONS)).map(
            lambda pair: dict([pair])
        ),
        st.builds(
            lambda name, count, value: {name: {"n": count, "input": value}},
            st.sampled_from(["$firstN", "$lastN"]),
            st.integers(1, 4),
            st.one_of(OUTPUTS, EXPRESSIONS),
        ),
        # Whole rows are not compared: the driver's encoding moves their `_id`s to the front.
        st.builds(
            lambda name, count, value: {name: {"n": count, "input": value}},
            st.sampled_from(["$minN", "$maxN"]),
            st.integers(1, 4),
            st.one_of(VALUES, EXPRESSIONS),
        ),
        st.builds(
            lambda name, count, order, value: {name: {"n": count, "sortBy": order, "output": value}},
            st.sampled_from(["$topN", "$bottomN"]),
            st.integers(1, 4),
            SORTS,
            st.one_of(OUTPUTS, EXPRESSIONS),
        ),
        st.builds(
            lambda name, order, value: {name: {"sortBy": order, "output": value}},
            st.sampled_from(["$top", "$bottom"]),
            SORTS,
            OUTPUTS,
        ),
        st.tuples(st.sampled_from(["$first", "$last"]), OUTPUTS).map(lambda pair: dict([pair])),
    ),
    min_size=1,
)
BOUNDS = st.one_of(
    st.integers(-4, 4),
    st.floats(-5, 5),
    st.sampled_from([Int64(2**62), 1e17, math.nan, "a", None, DatetimeMS(0), True]),
)
CONDITIONS = st.one_of(
    st.tuples(st.sampled_from("diltws"), st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte"]), BOUNDS).map(
        lambda parts: {parts[0]: {parts[1]: parts[2]}}
    ),
    st.tuples(st.sampled_from(["$gt", "$lte"]), st.integers(0, 3 * 3600)).map(
        lambda pair: {"t": {pair[0]: DatetimeMS(START + pair[1] * 1000)}}
    ),
    st.sampled_from("dis").map(lambda name: {name: {"$exists": True}}),
    st.tuples(st.sampled_from("diltws"), st.lists(BOUNDS, min_size=1, max_size=3)).map(
        lambda parts: {parts[0]: {"$in": parts[1]}}
    ),
    st.tuples(st.sampled_from("diltws"), BOUNDS).map(lambda parts: {parts[0]: {"$ne": parts[1]}}),
    EXPRESSIONS.map(lambda one: {"$expr": one}),
)
FILTERS = st.one_of(
    CONDITIONS,
    st.tuples(st.sampled_from(["$and", "$or"]), st.lists(CONDITIONS, min_size=1, max_size=3)).map(
        lambda pair: dict([pair])
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(typed(), KEYS, ACCUMULATORS, st.one_of(st.none(), FILTERS))
async def test_groups(rows: list[Document], key: Any, accumulators: Document, filter: Document | None) -> None:
    lab = await stored(rows)
    pipeline: list[Document] = [] if filter is None else [{"$match": filter}]
    pipeline.append({"$group": {"_id": key, **accumulators}})
    assert answer(lambda: by_group(lab.aggregate(*pipeline))) == answer(
        lambda: by_group(in_a_list(bucket_order(lab), pipeline))
    )


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    typed(),
    st.sampled_from([trunc("minute"), trunc("hour"), trunc("minute", binSize=7), trunc("hour", timezone="+05:45")]),
    ACCUMULATORS,
    st.sampled_from([1, -1]),
    st.integers(1, 5),
    st.one_of(st.none(), FILTERS),
)
async def test_the_first_few_groups_by_time(
    rows: list[Document], key: Any, accumulators: Document, order: int, limit: int, filter: Document | None
) -> None:
    # Buckets are read from the other end than rows are listed: which of two zeros comes first is left out.
    rows = [row | {"d": row["d"] + 0.0} if "d" in row else row for row in rows]
    lab = await stored(rows)
    pipeline: list[Document] = [] if filter is None else [{"$match": filter}]
    pipeline += [{"$group": {"_id": key, **accumulators}}, {"$sort": {"_id": order}}, {"$limit": limit}]
    expected = answer(lambda: in_a_list(bucket_order(lab), pipeline))
    if expected is not ERROR:
        # What is not read cannot fail.
        assert [encode(id_first(row)) for row in lab.aggregate(*pipeline)] == [
            encode(id_first(row)) for row in expected
        ]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    typed(),
    st.dictionaries(st.sampled_from(["x", "y", "i", "d"]), st.one_of(EXPRESSIONS, st.just("$l")), min_size=1),
    st.sampled_from([None, "$m", "$x", {"h": trunc("hour"), "y": "$y"}]),
    st.dictionaries(
        st.sampled_from(["p", "q"]),
        st.tuples(st.sampled_from(["$sum", "$avg", "$max", "$first"]), st.sampled_from(["$x", "$y", "$i", "$d"])).map(
            lambda pair: dict([pair])
        ),
        min_size=1,
    ),
)
async def test_groups_of_what_was_computed_before(
    rows: list[Document], computed: Document, key: Any, accumulators: Document
) -> None:
    lab = await stored(rows)
    pipeline: list[Document] = [{"$addFields": computed}, {"$group": {"_id": key, **accumulators}}]
    expected = answer(lambda: by_group(in_a_list(bucket_order(lab), pipeline)))
    if expected is not ERROR:
        # What nobody reads is not computed, and cannot fail.
        assert by_group(lab.aggregate(*pipeline)) == expected


ORDERS = st.lists(
    st.tuples(st.sampled_from(["d", "i", "l", "s", "b", "w", "t"]), st.sampled_from([1, -1])),
    min_size=1,
    max_size=3,
    unique_by=lambda part: part[0],
).map(dict)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(typed(), ORDERS, st.integers(1, 12), st.one_of(st.none(), FILTERS))
async def test_the_first_few_in_an_order(
    rows: list[Document], order: Document, limit: int, filter: Document | None
) -> None:
    lab = await stored(rows)
    pipeline: list[Document] = [] if filter is None else [{"$match": filter}]
    pipeline += [{"$sort": order}, {"$limit": limit}]
    found = answer(lambda: lab.aggregate(*pipeline))
    expected = answer(lambda: in_a_list(bucket_order(lab), pipeline))
    if list(order) == ["t"] and expected is not ERROR and found is not ERROR:
        # Buckets are read in the order of time: of equal times others may come first.
        assert [row["t"] for row in found] == [row["t"] for row in expected]
    elif found is not ERROR or expected is not ERROR:
        assert [encode(row) for row in found] == [encode(row) for row in expected]


async def test_sums_of_packed_buckets_need_no_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = START // 86_400_000 * 86_400_000 + 43_200_000
    lab = await stored(
        [{"_id": at, "t": DatetimeMS(noon + at * 60_000), "m": at % 2, "d": at / 4, "i": at} for at in range(240)]
    )
    totals = {"s": {"$sum": "$d"}, "a": {"$avg": "$i"}, "l": {"$min": "$d"}, "g": {"$max": "$i"}, "n": {"$sum": 2}}
    pipelines: list[list[Document]] = [
        [{"$group": {"_id": {"m": "$m", "h": trunc("day")}, **totals}}],
        [{"$match": {"t": {"$lt": DatetimeMS(START + 86_400_000)}}}, {"$group": {"_id": None, **totals}}],
        [{"$group": {"_id": "$m", "n": {"$count": {}}}}],
        [{"$count": "n"}],
    ]
    expected = [by_group(lab.aggregate(*pipeline)) for pipeline in pipelines]
    whole_hours = [{"$group": {"_id": trunc("hour"), **totals}}]
    by_hour = by_group(lab.aggregate(*whole_hours))
    assert await lab.pack() == 10
    # Buckets of which some lie within one hour and some do not.
    assert by_group(lab.aggregate(*whole_hours)) == by_hour

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("buckets were unpacked")

    monkeypatch.setattr(unpack, "column_batches", refused)
    monkeypatch.setattr(unpack, "unpack_many", refused)
    assert [by_group(lab.aggregate(*pipeline)) for pipeline in pipelines] == expected
    with pytest.raises(AssertionError, match="unpacked"):
        lab.aggregate({"$group": {"_id": None, "x": {"$first": "$d"}}})


async def test_what_is_computed_before_a_group_is_computed_on_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await stored(
        [{"_id": number, "t": DatetimeMS(START + number), "m": "a", "i": number} for number in range(50)]
    )

    def refuse(batch: ColumnBatch) -> Any:
        raise AssertionError("rows were built")

    monkeypatch.setattr(ColumnBatch, "raws", refuse)
    twice = {"$addFields": {"x": {"$multiply": ["$i", 2]}}}
    assert lab.aggregate(twice, {"$group": {"_id": None, "n": {"$max": "$x"}}}) == [{"_id": None, "n": 98}]
    odd = {"$cond": [{"$gt": ["$i", 24]}, 1, 0]}
    assert lab.aggregate({"$group": {"_id": "$m", "n": {"$sum": odd}}}) == [{"_id": "a", "n": 25}]
    assert lab.aggregate({"$match": {"$expr": {"$lt": ["$i", 5]}}}, {"$count": "n"}) == [{"n": 5}]


async def test_the_first_few_are_all_that_rows_are_built_of(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await stored(
        [{"_id": number, "t": DatetimeMS(START + number), "m": "a", "i": number % 97} for number in range(600)]
    )
    built: list[int] = []
    raws = ColumnBatch.raws

    def noted(batch: ColumnBatch) -> list[bytes]:
        found = raws(batch)
        built.append(len(found))
        return found

    monkeypatch.setattr(ColumnBatch, "raws", noted)
    top = lab.aggregate({"$sort": {"i": -1}}, {"$limit": 3})
    assert [(row["_id"], row["i"]) for row in top] == [(96, 96), (193, 96), (290, 96)]
    newest = lab.aggregate({"$sort": {"t": -1}}, {"$limit": 3})
    assert [row["_id"] for row in newest] == [599, 598, 597]
    assert built
    assert max(built) <= 3


async def test_the_newest_groups_leave_older_buckets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await stored(
        [{"_id": number, "t": DatetimeMS(START + number * 60_000), "m": "a", "i": number} for number in range(72 * 60)]
    )
    pipeline: list[Document] = [
        {"$group": {"_id": trunc("hour"), "n": {"$sum": 1}, "most": {"$max": "$i"}}},
        {"$sort": {"_id": -1}},
        {"$limit": 2},
    ]
    assert [row["most"] for row in lab.aggregate(*pipeline)] == [72 * 60 - 1, 71 * 60 - 1]
    read: list[bytes] = []

    def noted(buckets: Sequence[bytes], *others: Any, **named: Any) -> list[ColumnBatch]:
        read.extend(buckets)
        return column_batches(buckets, *others, **named)

    monkeypatch.setattr(unpack, "column_batches", noted)
    monkeypatch.setattr(unpack, "_BUCKETS_OF_COLUMNS", 4)
    lab.aggregate(*pipeline)
    assert 0 < len(read) < len(lab.stored()) // 2


async def test_a_meta_that_is_null_is_in_the_group_of_those_without_one() -> None:
    lab = await stored(
        [{"_id": 1, "t": DatetimeMS(START), "m": None, "i": 1}, {"_id": 2, "t": DatetimeMS(START + 1), "i": 2}]
    )
    assert lab.aggregate({"$group": {"_id": "$m", "n": {"$sum": "$i"}}}) == [{"_id": None, "n": 3}]


async def test_groups_choose_rows_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await stored(
        [{"_id": number, "t": DatetimeMS(START + number), "m": "a", "i": number % 97} for number in range(600)]
    )
    built: list[int] = []
    raws = ColumnBatch.raws

    def noted(batch: ColumnBatch) -> list[bytes]:
        found = raws(batch)
        built.append(len(found))
        return found

    monkeypatch.setattr(ColumnBatch, "raws", noted)
    best = {"$topN": {"n": 2, "sortBy": {"i": -1, "t": 1}, "output": "$$ROOT"}}
    (group,) = lab.aggregate({"$group": {"_id": "$m", "n": best}})
    assert [row["_id"] for row in group["n"]] == [96, 193]
    assert built
    assert max(built) <= 2
    built.clear()
    times = {"$lastN": {"n": 2, "input": ["$i", {"$millisecond": "$t"}]}}
    assert lab.aggregate({"$group": {"_id": "$m", "n": times}}) == [{"_id": "a", "n": [[16, 598], [17, 599]]}]
    assert lab.aggregate({"$sortByCount": "$i"})[0] == {"_id": 0, "count": 7}
    assert not built


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(typed(), FILTERS)
async def test_counts(rows: list[Document], filter: Document) -> None:
    lab = await stored(rows)
    pipeline: list[Document] = [{"$match": filter}, {"$count": "n"}]
    assert answer(lambda: lab.aggregate(*pipeline)) == answer(lambda: in_a_list(bucket_order(lab), pipeline))


@pytest.mark.parametrize(
    ("spec", "can"),
    [
        ({"_id": None, "n": {"$sum": "$d"}}, True),
        ({"_id": trunc("month"), "n": {"$avg": "$d"}}, True),
        ({"_id": {"$dateTrunc": {"date": "$t", "unit": "$s"}}, "n": {"$avg": "$d"}}, False),
        ({"_id": "$t", "n": {"$avg": "$d"}}, True),
        ({"_id": trunc("millisecond"), "n": {"$avg": "$d"}}, True),
        ({"_id": {"$dateToString": {"date": "$t", "format": "%L"}}, "n": {"$avg": "$d"}}, False),
        ({"_id": None, "n": {"$first": "$m.x"}}, True),
        ({"_id": None, "n": {"$sum": {"$hour": {"date": "$t", "timezone": "Europe/Oslo"}}}}, True),
        ({"_id": None, "n": {"$sum": {"$hour": {"date": "$t", "timezone": "Nowhere/Else"}}}}, False),
        ({"_id": None, "n": {"$sum": {"$hour": {"date": "$t", "timezone": "$s"}}}}, False),
        ({"_id": None, "n": {"$sum": {"$round": ["$d", "$i"]}}}, False),
        ({"_id": {"$rand": {}}, "n": {"$avg": "$d"}}, False),
        ({"_id": None, "n": {"$push": "$d"}}, True),
        ({"_id": None, "n": {"$push": "$$ROOT"}}, False),
        ({"_id": None, "n": {"$addToSet": "$m.x"}}, True),
        ({"_id": None, "n": {"$mergeObjects": "$m"}}, False),
        ({"_id": None, "n": {"$maxN": {"n": 3, "input": "$d"}}}, True),
        ({"_id": "$i", "n": {"$maxN": {"n": "$i", "input": "$d"}}}, False),
        ({"_id": None, "n": {"$top": {"sortBy": {"m.x": 1, "t": -1}, "output": "$$ROOT"}}}, True),
        ({"_id": None, "n": {"$top": {"sortBy": {"d.x": 1}, "output": "$d"}}}, False),
        ({"_id": None, "n": {"$firstN": {"n": 2, "input": {"$strLenCP": "$s"}}}}, False),
        ({"_id": None, "n": {"$sum": {"$add": ["$d", 1]}}}, True),
        ({"_id": None, "n": {"$sum": {"$add": ["$d", {"$strLenCP": "$s"}]}}}, False),
        ({"_id": "$$ROOT", "n": {"$sum": 1}}, False),
    ],
)
def test_which_groups_columns_can_do(spec: Document, can: bool) -> None:
    stage = Group.parse(spec, PipelineContext(namespace=NAMESPACE))
    assert (stage.over_columns("t", "m") is not None) == can


async def test_groups_do_run_on_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await stored(
        [{"_id": number, "t": DatetimeMS(START + number), "m": "a", "i": number} for number in range(50)]
    )

    def refuse(batch: ColumnBatch) -> Any:
        raise AssertionError("rows were built")

    monkeypatch.setattr(ColumnBatch, "raws", refuse)
    pipeline = [{"$match": {"i": {"$gte": 10}}}, {"$group": {"_id": "$m", "n": {"$sum": "$i"}, "t": {"$max": "$t"}}}]
    assert lab.aggregate(*pipeline) == [{"_id": "a", "n": sum(range(10, 50)), "t": DatetimeMS(START + 49)}]
