"""Where paths lead."""

from typing import Any

import pytest
from bson import DBRef

from bucketd.common.paths import (
    expression_getter,
    expression_path,
    get_path,
    is_index,
    path_values,
    positioned_values,
    split_path,
)
from bucketd.common.values import MISSING


@pytest.mark.parametrize(
    ("document", "path", "found"),
    [
        ({"a": 1}, "a", [1]),
        ({}, "a", [MISSING]),
        ({"a": 5}, "a.b", [MISSING]),
        ({"a": {"b": 1}}, "a.b", [1]),
        ({"a": [1, 2]}, "a", [1, 2, [1, 2]]),
        ({"a": []}, "a", [[]]),
        ({"a": []}, "a.b", []),
        ({"a": [1, 2]}, "a.b", []),
        ({"a": [{"b": 1}, {"c": 2}, 3]}, "a.b", [1, MISSING]),
        ({"a": [{"b": [1, 2]}]}, "a.b", [1, 2, [1, 2]]),
        ({"a": [[{"b": 1}]]}, "a.b", []),
        ({"a": [[{"b": 1}]]}, "a.0.b", [1]),
        ({"a": [{"b": 1}, {"b": 2}]}, "a.1.b", [MISSING, MISSING, 2]),
        ({"a": [{"0": 7}, 8]}, "a.0", [7, {"0": 7}]),
        ({"a": [8, 9]}, "a.2", []),
        ({"a": DBRef("c", 1)}, "a.$id", [1]),
    ],
)
def test_path_values(document: dict[str, Any], path: str, found: list[Any]) -> None:
    assert list(path_values(document, split_path(path))) == found
    assert [value for value, _ in positioned_values(document, split_path(path))] == found


def test_positions_are_of_the_outer_array() -> None:
    document = {"a": [{"b": [1]}, {"b": [2, 3]}]}
    found = [pair for pair in positioned_values(document, ("a", "b")) if not isinstance(pair[0], list)]
    assert found == [(1, 0), (2, 1), (3, 1)]


def test_leaf_arrays_whole() -> None:
    assert list(path_values({"a": [1]}, ("a",), expand=False)) == [[1]]


@pytest.mark.parametrize(
    ("document", "path", "found"),
    [
        ({"a": {"b": 1}}, "a.b", 1),
        ({"a": 5}, "a.b", MISSING),
        ({"a": [{"b": 1}, {"c": 2}, 3, [{"b": 4}]]}, "a.b", [1]),
        ({"a": [1, 2]}, "a.0", []),
        ({"a": []}, "a.b", []),
        ({"a": {"b": {"c": 3}}}, "a.b.c", 3),
    ],
)
def test_expression_path(document: dict[str, Any], path: str, found: Any) -> None:
    assert expression_path(document, split_path(path)) == found
    assert expression_getter(split_path(path))(document) == found


def test_get_path_enters_no_arrays() -> None:
    assert get_path({"a": [{"b": 1}]}, ("a", "b")) is MISSING
    assert get_path({"a": {"b": 1}}, ("a", "b")) == 1


@pytest.mark.parametrize(("part", "expected"), [("0", True), ("10", True), ("01", False), ("a", False), ("-1", False)])
def test_is_index(part: str, expected: bool) -> None:
    assert is_index(part) is expected
