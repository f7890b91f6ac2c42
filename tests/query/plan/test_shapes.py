"""Shapes of queries: which are the same, and which are not."""

from typing import Any

import pytest

from bucketd.query.match.parse import parse_filter
from bucketd.query.plan.planner import Wanted
from bucketd.query.plan.shapes import command_shape, shape_of
from bucketd.query.sort import parse_sort

Document = dict[str, Any]


def of_filter(filter: Document) -> str:
    return command_shape({"find": "c", "filter": filter})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "x"}),
        ({"a": 1}, {"a": {"$eq": 2}}),
        ({"a": 1, "b": 2}, {"$and": [{"a": 3}, {"b": 4}]}),
        ({"a": {"$in": [1]}}, {"a": {"$in": [1, 2, 3]}}),
        ({"a": {"$type": "int"}}, {"a": {"$type": ["int"]}}),
    ],
)
def test_the_same_question(one: Document, other: Document) -> None:
    assert of_filter(one) == of_filter(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 1}, {"b": 1, "a": 1}),
        ({"a": {"$gt": 1}}, {"a": {"$lt": 1}}),
        ({"a": {"$exists": True}}, {"a": {"$exists": False}}),
        ({"a": {"$type": "int"}}, {"a": {"$type": "string"}}),
    ],
)
def test_another_question(one: Document, other: Document) -> None:
    assert of_filter(one) != of_filter(other)


def test_what_counts_for_the_planner() -> None:
    def shape(sort: Document | None = None, projection: Document | None = None, *stages: str) -> str:
        matcher = parse_filter({"a": {"$gt": 1}})
        order = parse_sort(sort) if sort else None
        return shape_of(Wanted(matcher=matcher, sort=order, projection_spec=projection), stages)

    shapes = [
        shape(),
        shape({"a": 1}),
        shape({"a": -1}),
        shape(None, {"a": 1}),
        shape(None, {"a": 0}),
        shape(None, None, "$group"),
    ]
    assert len(set(shapes)) == len(shapes)
    assert shape(None, None, "$limit") == shape()
