"""Projections of find and of `$project`."""

from typing import Any

import pytest
from bson import Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.values import Document
from bucketd.query.match.parse import parse_filter
from bucketd.query.projection import parse_projection


def projected(spec: Document, document: Document, *, filter: Document | None = None, find: bool = True) -> Document:
    node = None if filter is None else parse_filter(filter)
    return parse_projection(spec, filter=node, find=find).apply(document, {})


@pytest.mark.parametrize(
    ("spec", "document", "expected"),
    [
        ({}, {"_id": 1, "a": 2}, {"_id": 1, "a": 2}),
        ({"a": 1}, {"_id": 1, "b": 3, "a": 2}, {"_id": 1, "a": 2}),
        ({"b": 1, "a": 1}, {"_id": 1, "a": 2, "b": 3}, {"_id": 1, "a": 2, "b": 3}),
        ({"a": 1, "_id": 0}, {"_id": 1, "a": 2}, {"a": 2}),
        ({"_id": 0}, {"_id": 1, "a": 2}, {"a": 2}),
        ({"_id": 1}, {"_id": 1, "a": 2}, {"_id": 1}),
        ({"a": 0}, {"_id": 1, "a": 2, "b": 3}, {"_id": 1, "b": 3}),
        ({"_id": 1, "a": 0}, {"_id": 1, "a": 2, "b": 3}, {"_id": 1, "b": 3}),
        ({"a.b": 1}, {"_id": 1, "a": {"b": 1, "c": 2}}, {"_id": 1, "a": {"b": 1}}),
        ({"a.b": 1}, {"_id": 1, "a": 5}, {"_id": 1}),
        ({"a.b": 1}, {"_id": 1, "a": [1, {"b": 2, "c": 3}, [{"b": 4}]]}, {"_id": 1, "a": [{"b": 2}, [{"b": 4}]]}),
        ({"a": {"b": 1}}, {"_id": 1, "a": {"b": 1, "c": 2}}, {"_id": 1, "a": {"b": 1}}),
        ({"a.b": 0}, {"_id": 1, "a": [1, {"b": 2, "c": 3}]}, {"_id": 1, "a": [1, {"c": 3}]}),
        ({"_id.x": 1}, {"_id": {"x": 1, "y": 2}, "a": 1}, {"_id": {"x": 1}}),
        ({"x": "$a", "a": 1}, {"_id": 1, "a": 2}, {"_id": 1, "a": 2, "x": 2}),
        ({"x.y": "$a"}, {"_id": 1, "a": 2}, {"_id": 1, "x": {"y": 2}}),
        ({"x": "$missing"}, {"_id": 1}, {"_id": 1}),
        ({"a": {"$slice": 1}}, {"_id": 1, "a": [1, 2], "b": 3}, {"_id": 1, "a": [1], "b": 3}),
        ({"a": {"$slice": [-2, 1]}, "b": 1}, {"_id": 1, "a": [1, 2, 3], "b": 3, "c": 4}, {"_id": 1, "a": [2], "b": 3}),
        ({"a": {"$elemMatch": {"$gt": 1}}}, {"_id": 1, "a": [1, 2, 3], "b": 3}, {"_id": 1, "a": [2]}),
        ({"a": {"$elemMatch": {"$gt": 9}}}, {"_id": 1, "a": [1, 2, 3]}, {"_id": 1}),
        (
            {"a": {"$elemMatch": {"x": 1}}, "b": 0},
            {"_id": 1, "a": [{"x": 1}, {"x": 1}], "b": 1},
            {"_id": 1, "a": [{"x": 1}]},
        ),
    ],
)
def test_find(spec: Document, document: Document, expected: Document) -> None:
    shown = projected(spec, document)
    assert shown == expected
    assert list(shown) == list(expected)


@pytest.mark.parametrize(
    ("spec", "filter", "document", "expected"),
    [
        ({"a.$": 1}, {"a": {"$gt": 1}}, {"_id": 1, "a": [1, 2, 3]}, {"_id": 1, "a": [2]}),
        ({"a.$": 1}, {"a.b": 2}, {"_id": 1, "a": [{"b": 1}, {"b": 2}]}, {"_id": 1, "a": [{"b": 2}]}),
        ({"x.y.$": 1}, {"x.y": 2}, {"_id": 1, "x": {"y": [1, 2]}}, {"_id": 1, "x": {"y": [2]}}),
        ({"x.$": 1}, {"_id": 1}, {"_id": 1, "x": 5}, {"_id": 1, "x": 5}),
    ],
)
def test_positional(spec: Document, filter: Document, document: Document, expected: Document) -> None:
    assert projected(spec, document, filter=filter) == expected


@pytest.mark.parametrize(
    ("filter", "document", "number"),
    [({"_id": 1}, {"_id": 1, "a": [1]}, 51246), ({"b": 2}, {"_id": 1, "a": [1], "b": [1, 2]}, 51247)],
)
def test_positional_without_a_place(filter: Document, document: Document, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        projected({"a.$": 1}, document, filter=filter)
    assert caught.value.number == number


@pytest.mark.parametrize(
    ("spec", "find", "number"),
    [
        ("x", True, 2),
        ("x", False, 15969),
        ({}, False, 51272),
        ({"a": 1, "b": 0}, True, 31254),
        ({"a": 0, "b": 1}, True, 31253),
        ({"a": 0, "b": "$x"}, True, 31310),
        ({"a": 0, "b": {"$literal": 1}}, True, 31252),
        ({"a": 1, "a.b": 1}, True, 31249),
        ({"a.b": 1, "a": 1}, True, 31250),
        ({"a": {}}, True, 51270),
        ({"a": {"$bogus": 1}}, True, 31325),
        ({"a.$": 1}, False, 31324),
        ({"a.$": 1, "b.$": 1}, True, 31276),
        ({"a.$.b": 1}, True, 31394),
        ({"a.$": "x"}, True, 31308),
        ({"a.$": {"$slice": 1}}, True, 31271),
        ({"a.$": 1, "b": {"$elemMatch": {}}}, True, 31255),
        ({"b": {"$elemMatch": {}}, "a.$": 1}, True, 31256),
        ({"b": {"$elemMatch": 1}}, True, 31274),
        ({"b.c": {"$elemMatch": {}}}, True, 31275),
        ({"a": {"$elemMatch": {}}}, False, 168),
        ({"a": {"$slice": [1, 0]}}, True, 28724),
        ({"a": {"$meta": "nope"}}, True, 17308),
        ({"a": {"$meta": 1}}, True, 17307),
        ({"$a": 1}, True, 16410),
        ({"": 1}, True, 40352),
    ],
)
def test_refused(spec: Any, find: bool, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parse_projection(spec, find=find)
    assert caught.value.number == number


def test_metadata() -> None:
    projection = parse_projection({"score": {"$meta": "textScore"}, "a": 1})
    assert projection.needs_metadata == {"textScore"}
    assert projection.apply({"_id": 1, "a": 2}, {}, metadata={"textScore": 1.5}) == {"_id": 1, "a": 2, "score": 1.5}
    assert projection.apply({"_id": 1, "a": 2}, {}) == {"_id": 1, "a": 2}


def test_required_fields() -> None:
    assert parse_projection({"a.b": 1, "x": "$c.d"}).required_fields() == {"_id", "a.b", "c.d"}
    assert parse_projection({"a": 0}).required_fields() is None
    assert parse_projection({"a": Int64(1), "_id": 0}).required_fields() == {"a"}


def test_shapes() -> None:
    assert parse_projection({}).is_identity
    assert parse_projection({"a": 1}).named_only == {"_id", "a"}
    assert parse_projection({"a.b": 1}).named_only is None
    assert parse_projection({"a": 1, "_id": 0}).serialize() == {"a": True, "_id": False}
    assert parse_projection({"a": {"b": 0}}).serialize() == {"a": {"b": False}}


leaves = st.one_of(st.integers(), st.none(), st.lists(st.integers(), max_size=2))
levels = st.dictionaries(st.sampled_from("abc"), st.one_of(leaves, st.dictionaries(st.sampled_from("abc"), leaves)))
chosen = st.sets(st.sampled_from(["a", "b.c", "c.a", "b.b"]), min_size=1)


@given(levels, chosen)
def test_what_is_kept_and_what_is_dropped_is_everything(document: Document, paths: set[str]) -> None:
    kept = projected(dict.fromkeys(paths, 1), document)
    dropped = projected(dict.fromkeys(paths, 0), document)
    for name, value in document.items():
        if isinstance(value, dict):
            below = {**kept.get(name, {}), **dropped.get(name, {})}
            assert below == value
        else:
            assert name in kept or name in dropped
    assert projected(dict.fromkeys(paths, 1), kept) == kept
