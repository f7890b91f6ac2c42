"""Stages that gather or order rows, beside plain Python."""

import math
from collections import Counter, defaultdict
from typing import Any

import pytest
from bson import Decimal128, Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.ordering import order_key
from bucketd.common.values import MISSING, Document
from support.bson_values import values
from support.pipelines import ran

ROWS: list[Document] = [
    {"k": "a", "v": 1, "w": {"x": 1}},
    {"k": "b", "v": 2.5, "w": {"y": 2}},
    {"k": "a", "v": None, "w": None},
    {"k": "a", "w": {"x": 3}},
    {"k": None, "v": "text"},
    {"v": Int64(7)},
]


@pytest.mark.parametrize(
    ("accumulator", "expected"),
    [
        ({"$sum": "$v"}, {"a": 1, "b": 2.5, None: Int64(7)}),
        ({"$sum": 1}, {"a": 3, "b": 1, None: 2}),
        ({"$count": {}}, {"a": 3, "b": 1, None: 2}),
        ({"$avg": "$v"}, {"a": 1.0, "b": 2.5, None: 7.0}),
        ({"$min": "$v"}, {"a": 1, "b": 2.5, None: Int64(7)}),
        ({"$max": "$v"}, {"a": 1, "b": 2.5, None: "text"}),
        ({"$first": "$v"}, {"a": 1, "b": 2.5, None: "text"}),
        ({"$last": "$v"}, {"a": None, "b": 2.5, None: Int64(7)}),
        ({"$push": "$v"}, {"a": [1, None], "b": [2.5], None: ["text", Int64(7)]}),
        ({"$mergeObjects": "$w"}, {"a": {"x": 3}, "b": {"y": 2}, None: {}}),
        ({"$firstN": {"n": 2, "input": "$v"}}, {"a": [1, None], "b": [2.5], None: ["text", Int64(7)]}),
        ({"$lastN": {"n": 1, "input": "$v"}}, {"a": [None], "b": [2.5], None: [Int64(7)]}),
        ({"$maxN": {"n": 1, "input": "$v"}}, {"a": [1], "b": [2.5], None: ["text"]}),
        ({"$top": {"sortBy": {"v": -1}, "output": "$v"}}, {"a": 1, "b": 2.5, None: "text"}),
        ({"$bottomN": {"n": 1, "sortBy": {"v": -1}, "output": "$w"}}, {"a": [{"x": 3}], "b": [{"y": 2}], None: [None]}),
        ({"$stdDevPop": "$v"}, {"a": 0.0, "b": 0.0, None: 0.0}),
        ({"$stdDevSamp": "$v"}, {"a": None, "b": None, None: None}),
    ],
)
def test_accumulator(accumulator: Any, expected: dict[Any, Any]) -> None:
    rows = ran([{"$group": {"_id": "$k", "out": accumulator}}], ROWS)
    found = {row["_id"]: row["out"] for row in rows}
    assert found == expected
    assert {key: type(value) for key, value in found.items()} == {key: type(value) for key, value in expected.items()}


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ([2**31 - 1, 1], Int64(2**31)),
        ([Int64(2**63 - 1), 1], float(2**63)),
        ([1, Decimal128("0.5")], Decimal128("1.5")),
        ([math.inf, -math.inf], math.nan),
        ([0.1] * 10, 1.0),
        ([], None),
    ],
)
def test_sums(amounts: list[Any], expected: Any) -> None:
    rows = ran([{"$group": {"_id": None, "n": {"$sum": "$a"}}}], [{"a": amount} for amount in amounts])
    value = rows[0]["n"] if rows else None
    assert type(value) is type(expected)
    assert value == expected or (value != value and expected != expected)


numbers = st.integers(-(10**6), 10**6)
keyed = st.lists(st.tuples(st.sampled_from([1, 1.0, Int64(1), "a", None, True, [1], {"x": 1}]), numbers), max_size=30)


@given(keyed)
def test_groups_as_in_python(pairs: list[tuple[Any, int]]) -> None:
    model: dict[Any, list[int]] = defaultdict(list)
    for key, number in pairs:
        model[order_key(key)].append(number)
    accumulators = {"sum": "$sum", "avg": "$avg", "low": "$min", "high": "$max", "all": "$push", "first": "$first"}
    stage = {"$group": {"_id": "$k", **{name: {operator: "$v"} for name, operator in accumulators.items()}}}
    rows = ran([stage], [{"k": key, "v": number} for key, number in pairs])
    assert len(rows) == len(model)
    for row in rows:
        found = model[order_key(row["_id"])]
        assert row["all"] == found
        assert (row["sum"], row["low"], row["high"], row["first"]) == (sum(found), min(found), max(found), found[0])
        assert row["avg"] == pytest.approx(sum(found) / len(found))


@given(st.lists(st.one_of(values, st.just(MISSING)), max_size=20), st.sampled_from([1, -1]), st.integers(1, 25))
def test_sort_orders_and_limits(items: list[Any], direction: int, limit: int) -> None:
    # Arrays stand for one of their elements when they are sorted, which is tested with sort keys.
    plain = [item for item in items if not isinstance(item, list)]
    rows = [{"n": place, **({} if item is MISSING else {"v": item})} for place, item in enumerate(plain)]
    whole = ran([{"$sort": {"v": direction}}], rows)
    keys = [order_key(row.get("v")) for row in whole]
    assert keys == sorted(keys, reverse=direction < 0)
    assert Counter(row["n"] for row in whole) == Counter(range(len(rows)))
    top = ran([{"$sort": {"v": direction}}, {"$limit": limit}], rows)
    assert [row["n"] for row in top] == [row["n"] for row in whole][:limit]


@given(st.integers(0, 20), st.lists(st.tuples(st.sampled_from(["$skip", "$limit"]), st.integers(1, 9)), max_size=5))
def test_skips_and_limits_as_slices(count: int, cuts: list[tuple[str, int]]) -> None:
    rows = [{"n": place} for place in range(count)]
    expected = rows
    for name, amount in cuts:
        expected = expected[amount:] if name == "$skip" else expected[:amount]
    stages = [{name: amount} for name, amount in cuts]
    assert ran(stages, rows) == expected
    assert ran(stages, rows, optimized=False) == expected


def test_counts() -> None:
    assert ran([{"$count": "n"}], ROWS) == [{"n": 6}]
    assert ran([{"$count": "n"}], []) == []
    assert ran([{"$sortByCount": "$k"}], ROWS[:5])[0] == {"_id": "a", "count": 3}


def test_buckets() -> None:
    rows = [{"p": price} for price in (5, 10, 19.5, 20, 100, "none")]
    stage = {"$bucket": {"groupBy": "$p", "boundaries": [0, 10, 20, 50], "default": "other"}}
    assert ran([stage], rows) == [
        {"_id": 0, "count": 1},
        {"_id": 10, "count": 2},
        {"_id": 20, "count": 1},
        {"_id": "other", "count": 2},
    ]


@given(st.integers(0, 30), st.integers(1, 40))
def test_samples_hold_each_row_once(count: int, size: int) -> None:
    rows = [{"n": place} for place in range(count)]
    chosen = [row["n"] for row in ran([{"$sample": {"size": size}}], rows)]
    assert len(chosen) == min(count, size)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(range(count))


@pytest.mark.parametrize("stage", [{"$sort": {"n": 1}}, {"$group": {"_id": "$n", "v": {"$push": "$text"}}}])
def test_memory_is_bounded(stage: Document) -> None:
    rows = [{"n": -place, "text": "x" * 100} for place in range(6000)]
    with pytest.raises(MongoError) as caught:
        ran([stage], rows, memory_bytes_max=100_000, allow_disk_use=False)
    assert caught.value.number == 292


def test_sort_spills(tmp_path: Any) -> None:
    rows = [{"n": -place, "text": "x" * 100} for place in range(6000)]
    sorted_rows = ran([{"$sort": {"n": 1}}], rows, memory_bytes_max=100_000, spill_folder=str(tmp_path))
    assert [row["n"] for row in sorted_rows] == list(range(-5999, 1))
    assert not list(tmp_path.iterdir())
