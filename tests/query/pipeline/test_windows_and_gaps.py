"""Windows, gaps that are filled, and facets, beside plain Python."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from bson import DatetimeMS, Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.values import Document
from support.pipelines import ran

ROWS: list[Document] = [{"_id": number, "k": "ab"[number % 2], "v": number * number} for number in range(6)]


def windowed(output: Document, rows: list[Document] | None = None, **options: Any) -> list[Any]:
    stage = {"sortBy": {"_id": 1}, "output": {"out": output}, **options}
    return [row.get("out") for row in ran([{"$setWindowFields": stage}], ROWS if rows is None else rows)]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"$sum": "$v"}, [55] * 6),
        ({"$sum": "$v", "window": {"documents": ["unbounded", "current"]}}, [0, 1, 5, 14, 30, 55]),
        ({"$sum": "$v", "window": {"documents": [-1, 0]}}, [0, 1, 5, 13, 25, 41]),
        ({"$push": "$v", "window": {"documents": [1, 2]}}, [[1, 4], [4, 9], [9, 16], [16, 25], [25], []]),
        ({"$count": {}, "window": {"range": [-1, 1]}}, [2, 3, 3, 3, 3, 2]),
        ({"$documentNumber": {}}, [1, 2, 3, 4, 5, 6]),
        ({"$shift": {"output": "$v", "by": 1, "default": "none"}}, [1, 4, 9, 16, 25, "none"]),
        ({"$derivative": {"input": "$v"}, "window": {"documents": [-1, 0]}}, [None, 1.0, 3.0, 5.0, 7.0, 9.0]),
        ({"$integral": {"input": "$_id"}, "window": {"documents": ["unbounded", 0]}}, [0.0, 0.5, 2.0, 4.5, 8.0, 12.5]),
        ({"$covariancePop": ["$_id", "$_id"]}, [35 / 12] * 6),
    ],
)
def test_window(output: Document, expected: list[Any]) -> None:
    found = windowed(output)
    assert found == pytest.approx(expected) if isinstance(expected[1], float) else found == expected


def test_ranks_share_places() -> None:
    rows = [{"_id": place, "s": score} for place, score in enumerate([1, 1, 2, 3, 3])]
    fields = {"rank": {"$rank": {}}, "dense": {"$denseRank": {}}}
    made = ran([{"$setWindowFields": {"sortBy": {"s": 1}, "output": fields}}], rows)
    assert [(row["rank"], row["dense"]) for row in made] == [(1, 1), (1, 1), (3, 2), (4, 3), (4, 3)]


def test_window_over_time() -> None:
    rows = [{"_id": place, "t": DatetimeMS(place * 60_000)} for place in range(4)]
    stage = {
        "sortBy": {"t": 1},
        "output": {"n": {"$count": {}, "window": {"range": [-1, 0], "unit": "minute"}}},
    }
    assert [row["n"] for row in ran([{"$setWindowFields": stage}], rows)] == [1, 2, 2, 2]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-100, 100)), max_size=30), st.integers(-4, 4), st.integers(0, 5)
)
def test_sliding_sums_are_those_of_slices(pairs: list[tuple[int, int]], low: int, width: int) -> None:
    rows = [{"_id": place, "k": key, "v": value} for place, (key, value) in enumerate(pairs)]
    stage = {
        "partitionBy": "$k",
        "sortBy": {"_id": 1},
        "output": {"s": {"$sum": "$v", "window": {"documents": [low, low + width]}}},
    }
    parts: dict[int, list[Document]] = defaultdict(list)
    for row in rows:
        parts[row["k"]].append(row)
    for row in ran([{"$setWindowFields": stage}], rows):
        part = parts[row["k"]]
        place = next(at for at, one in enumerate(part) if one["_id"] == row["_id"])
        inside = part[max(place + low, 0) : max(place + low + width + 1, 0)]
        assert row["s"] == sum(one["v"] for one in inside)


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ({"output": 1}, 14),
        ({}, 40414),
        ({"output": {}, "x": 1}, 40415),
        ({"sortBy": 1, "output": {}}, 14),
        ({"output": {"a": {"$nothing": 1}}}, 9),
        ({"output": {"a": {"$sum": 1, "window": {"documents": [-1, 0]}}}}, 5339901),
        ({"sortBy": {"a": 1}, "output": {"a": {"$sum": 1, "window": {"documents": [1, 0]}}}}, 5339900),
        ({"output": {"a": {"$sum": 1, "window": {"range": [0, 1]}}}}, 5339902),
        ({"output": {"a": {"$rank": {}}}}, 5371602),
        ({"sortBy": {"a": 1}, "output": {"a": {"$rank": 1}}}, 5371603),
    ],
)
def test_window_complaint(stage: Document, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        ran([{"$setWindowFields": stage}], [])
    assert caught.value.number == number


def test_fill_by_line_and_by_last_value() -> None:
    rows = [{"_id": 0, "a": 1, "b": 5}, {"_id": 1}, {"_id": 2, "a": None}, {"_id": 3, "a": 4}]
    stage = {"sortBy": {"_id": 1}, "output": {"a": {"method": "linear"}, "b": {"method": "locf"}, "c": {"value": 0}}}
    made = ran([{"$fill": stage}], rows)
    assert [(row["a"], row["b"], row["c"]) for row in made] == [(1, 5, 0), (2.0, 5, 0), (3.0, 5, 0), (4, 5, 0)]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [("full", [1, 2, 3, 4, 5]), ([0, 4], [0, 1, 2, 3, 5]), ([4, 8], [1, 4, 5, 6, 7])],
)
def test_densify(bounds: Any, expected: list[int]) -> None:
    made = ran([{"$densify": {"field": "t", "range": {"step": 1, "bounds": bounds}}}], [{"t": 1}, {"t": 5}])
    assert [row["t"] for row in made] == expected


@given(st.lists(st.integers(-30, 30), min_size=1, max_size=12), st.integers(1, 7))
def test_densify_leaves_no_gap_and_loses_nothing(times: list[int], step: int) -> None:
    made = ran(
        [{"$densify": {"field": "t", "range": {"step": step, "bounds": "full"}}}],
        [{"_id": place, "t": time} for place, time in enumerate(times)],
    )
    found = [row["t"] for row in made]
    assert found == sorted([*times, *(set(range(min(times), max(times) + 1, step)) - set(times))])


def test_densify_by_partitions_and_dates() -> None:
    rows = [{"k": "a", "t": DatetimeMS(0)}, {"k": "a", "t": DatetimeMS(7_200_000)}, {"k": "b", "t": DatetimeMS(0)}]
    spec = {"field": "t", "partitionByFields": ["k"], "range": {"step": 1, "unit": "hour", "bounds": "partition"}}
    made = ran([{"$densify": spec}], rows)
    assert [(row["k"], int(row["t"])) for row in made] == [("a", 0), ("a", 3_600_000), ("a", 7_200_000), ("b", 0)]


def test_facets_see_the_same_rows() -> None:
    spec = {"n": [{"$count": "n"}], "top": [{"$sort": {"v": -1}}, {"$limit": 1}], "all": []}
    (made,) = ran([{"$facet": spec}], ROWS)
    assert made == {"n": [{"n": 6}], "top": [ROWS[-1]], "all": ROWS}


@pytest.mark.parametrize(
    ("spec", "number"),
    [
        ({}, 40169),
        (1, 40169),
        ({"a": 1}, 40170),
        ({"a": [1]}, 40171),
        ({"a": [{"$facet": {}}]}, 40600),
        ({"a.b": []}, 16412),
    ],
)
def test_facet_complaint(spec: Any, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        ran([{"$facet": spec}], [])
    assert caught.value.number == number


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.integers(1, 8))
def test_automatic_buckets_hold_every_row_once(numbers: list[int], count: int) -> None:
    made = ran([{"$bucketAuto": {"groupBy": "$v", "buckets": count}}], [{"v": number} for number in numbers])
    assert sum(row["count"] for row in made) == len(numbers)
    assert len(made) <= count
    edges = [row["_id"] for row in made]
    assert all(left["max"] == right["min"] for left, right in pairwise(edges))
    assert (edges[0]["min"], edges[-1]["max"]) == (min(numbers), max(numbers))


@pytest.mark.parametrize(
    ("granularity", "edges"),
    [
        ("POWERSOF2", [0.5, 4.0, 16.0]),
        ("1-2-5", [0.5, 5.0, 20.0]),
        ("R5", [0.63, 4.0, 16.0]),
        ("E6", [0.68, 3.3, 15.0]),
    ],
)
def test_preferred_numbers(granularity: str, edges: list[float]) -> None:
    rows = [{"v": number} for number in (1, 2, 3, 10, 11, 12)]
    made = ran([{"$bucketAuto": {"groupBy": "$v", "buckets": 2, "granularity": granularity}}], rows)
    assert [row["_id"]["min"] for row in made] + [made[-1]["_id"]["max"]] == edges


def test_counts_of_windows_are_numbers_of_their_own_type() -> None:
    assert windowed({"$sum": "$v"}, [{"_id": 1, "v": Int64(2)}]) == [Int64(2)]
