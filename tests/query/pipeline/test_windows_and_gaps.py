"""Windows, gaps, several pipelines at once and other collections."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from bson import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from bucketd.catalog.namespaces import Namespace
from bucketd.common.errors import MongoError
from bucketd.common.values import Document
from bucketd.query.pipeline.base import PipelineContext
from bucketd.query.pipeline.parse import parse_pipeline
from bucketd.query.plan.nodes import PlanNode, Run
from bucketd.storage.engine import Snapshot
from support.pipelines import Rows, ran

ROWS: list[Document] = [{"k": key, "t": t, "v": t * t} for t in range(5) for key in "ab"]


def window(output: Document, rows: Sequence[Document] = ROWS) -> list[Any]:
    spec = {"partitionBy": "$k", "sortBy": {"t": 1}, "output": {"out": output}}
    return [row["out"] for row in ran([{"$setWindowFields": spec}], rows) if row["k"] == "a"]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"$sum": "$v"}, [30] * 5),
        ({"$sum": "$v", "window": {"documents": ["unbounded", "current"]}}, [0, 1, 5, 14, 30]),
        ({"$max": "$v", "window": {"documents": [-1, 1]}}, [1, 4, 9, 16, 16]),
        ({"$sum": 1, "window": {"range": [-1, 0]}}, [1, 2, 2, 2, 2]),
        ({"$documentNumber": {}}, [1, 2, 3, 4, 5]),
        ({"$rank": {}}, [1, 2, 3, 4, 5]),
        ({"$shift": {"output": "$v", "by": -1, "default": "none"}}, ["none", 0, 1, 4, 9]),
        ({"$first": "$v", "window": {"documents": [1, 2]}}, [1, 4, 9, 16, None]),
    ],
)
def test_window(output: Document, expected: list[Any]) -> None:
    assert window(output) == expected


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=12), st.integers(-4, 2), st.integers(0, 4))
def test_sums_over_windows_as_slices(amounts: list[int], low: int, width: int) -> None:
    rows = [{"k": "a", "t": place, "v": amount} for place, amount in enumerate(amounts)]
    found = window({"$sum": "$v", "window": {"documents": [low, low + width]}}, rows)
    high = low + width + 1
    assert found == [sum(amounts[max(0, at + low) : max(0, at + high)]) for at in range(len(amounts))]


def test_densify_numbers_and_dates() -> None:
    numbers = ran([{"$densify": {"field": "n", "range": {"step": 2, "bounds": "full"}}}], [{"n": 1}, {"n": 6}])
    assert [row["n"] for row in numbers] == [1, 3, 5, 6]
    hour = 3_600_000
    spec = {"field": "t", "range": {"step": 1, "unit": "hour", "bounds": "full"}}
    dates = ran([{"$densify": spec}], [{"t": DatetimeMS(0)}, {"t": DatetimeMS(3 * hour)}])
    assert [int(row["t"]) for row in dates] == [0, hour, 2 * hour, 3 * hour]


@pytest.mark.parametrize(
    ("method", "expected"),
    [({"value": 0}, [1, 0, 0, 7]), ({"method": "locf"}, [1, 1, 1, 7]), ({"method": "linear"}, [1, 3, 5, 7])],
)
def test_fill(method: Document, expected: list[Any]) -> None:
    rows = [{"t": 0, "v": 1}, {"t": 1, "v": None}, {"t": 2}, {"t": 3, "v": 7}]
    made = ran([{"$fill": {"sortBy": {"t": 1}, "output": {"v": method}}}], rows)
    assert [row["v"] for row in made] == expected


def test_facets_see_the_same_rows() -> None:
    spec = {"low": [{"$sort": {"v": 1}}, {"$limit": 1}], "n": [{"$count": "n"}], "none": [{"$match": {"v": -1}}]}
    (row,) = ran([{"$facet": spec}], ROWS)
    assert row == {"low": [{"k": "a", "t": 0, "v": 0}], "n": [{"n": 10}], "none": []}


def test_automatic_buckets_hold_all_rows() -> None:
    rows = ran([{"$bucketAuto": {"groupBy": "$v", "buckets": 3}}], [{"v": number} for number in range(9)])
    assert [(row["_id"]["min"], row["_id"]["max"], row["count"]) for row in rows] == [(0, 3, 3), (3, 6, 3), (6, 8, 3)]


@dataclass
class Collections:
    """Other collections, held in memory."""

    rows: dict[str, list[Document]] = field(default_factory=dict)

    def plan(self, namespace: Namespace, pipeline: list[Document], context: PipelineContext) -> PlanNode:
        return parse_pipeline(pipeline, context).node(Rows(self.rows.get(namespace.collection, [])))

    def system(self, stage: str, spec: Any, context: PipelineContext) -> PlanNode:
        raise AssertionError(stage)


def over(stages: list[Document], rows: list[Document], **others: list[Document]) -> list[Document]:
    context = PipelineContext(namespace=Namespace("db", "rows"), sources=Collections(others))
    node = parse_pipeline(stages, context).node(Rows(rows))
    run = Run(snapshot=cast(Snapshot, None))
    return [row for batch in node.batches(run) if batch is not None for row in batch.documents()]


def test_lookup_by_fields() -> None:
    spec = {"from": "other", "localField": "x", "foreignField": "y", "as": "found"}
    rows: list[Document] = [{"x": 1}, {"x": [1, 2]}, {}, {"x": 9}]
    made = over([{"$lookup": spec}], rows, other=[{"y": 1}, {"y": 2}, {"y": None}])
    assert [row["found"] for row in made] == [[{"y": 1}], [{"y": 1}, {"y": 2}], [{"y": None}], []]


def test_lookup_by_pipeline() -> None:
    spec = {
        "from": "other",
        "let": {"x": "$x"},
        "pipeline": [{"$match": {"$expr": {"$gt": ["$y", "$$x"]}}}, {"$project": {"_id": 0, "y": 1}}],
        "as": "found",
    }
    made = over([{"$lookup": spec}], [{"x": 1}, {"x": 2}], other=[{"y": 2}, {"y": 3}])
    assert [row["found"] for row in made] == [[{"y": 2}, {"y": 3}], [{"y": 3}]]


def test_union() -> None:
    spec = {"coll": "other", "pipeline": [{"$match": {"y": 2}}]}
    assert over([{"$unionWith": spec}], [{"x": 1}], other=[{"y": 1}, {"y": 2}]) == [{"x": 1}, {"y": 2}]


def test_graph() -> None:
    spec = {
        "from": "people",
        "startWith": "$boss",
        "connectFromField": "boss",
        "connectToField": "_id",
        "as": "above",
        "depthField": "depth",
    }
    people = [{"_id": "a"}, {"_id": "b", "boss": "a"}, {"_id": "c", "boss": "b"}]
    made = over([{"$graphLookup": spec}], [people[2]], people=people)
    assert sorted((row["_id"], int(row["depth"])) for row in made[0]["above"]) == [("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("spec", "window", "expected"),
    [
        ("$a", None, [0.0, 0.2, 0.6, 1.0]),
        ({"input": "$a", "min": 0, "max": 100}, None, [0.0, 20.0, 60.0, 100.0]),
        ({"input": {"$multiply": ["$a", 2]}, "min": -1}, None, [-1.0, -0.6, 0.19999999999999996, 1.0]),
        ("$a", {"documents": [-1, "current"]}, [0, 1.0, 1.0, 1.0]),
        ("$a", {"documents": ["unbounded", "current"]}, [0, 1.0, 1.0, 1.0]),
    ],
)
def test_scaling(spec: Any, window: Any, expected: list[float]) -> None:
    rows = [{"_id": place, "a": value} for place, value in enumerate([1, 5, 13, 21])]
    output = {"s": {"$minMaxScaler": spec, **({} if window is None else {"window": window})}}
    found = ran([{"$setWindowFields": {"sortBy": {"a": 1}, "output": output}}], rows)
    assert [row["s"] for row in found] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("spec", "code"),
    [("$missing", 10487000), ({"input": "$a", "min": 2}, 9), ({"min": 0, "max": 1}, 9), ({"input": 1, "min": "$a"}, 9)],
)
def test_what_cannot_be_scaled(spec: Any, code: int) -> None:
    with pytest.raises(MongoError) as failure:
        ran([{"$setWindowFields": {"output": {"s": {"$minMaxScaler": spec}}}}], [{"a": 1}])
    assert failure.value.number == code
