"""What createIndexes takes, and the code for what it does not."""

from typing import Any

import pytest
from bson import Code, Decimal128, Int64, Regex

from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.wildcard_projections import is_projected
from bucketd.common.errors import MongoError

NAMED = {"name": "n"}

REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"key": {}, **NAMED}, 67),
    ({"key": {"a": 0}, **NAMED}, 67),
    ({"key": {"a": float("nan")}, **NAMED}, 67),
    ({"key": {"a": True}, **NAMED}, 67),
    ({"key": {"a": "abc"}, **NAMED}, 67),
    ({"key": {"a": "wildcard"}, **NAMED}, 7246202),
    ({"key": {"": 1}, **NAMED}, 67),
    ({"key": {"a..b": 1}, **NAMED}, 67),
    ({"key": {"$a": 1}, **NAMED}, 67),
    ({"key": {f"f{number}": 1 for number in range(33)}, **NAMED}, 13103),
    ({"key": {"a": "hashed", "b": "hashed"}, **NAMED}, 31303),
    ({"key": {"a": "hashed"}, "unique": True, **NAMED}, 16764),
    ({"key": {"$**": 1, "a.$**": 1}, **NAMED}, 7246201),
    ({"key": {"$**": 1, "a": 1}, **NAMED}, 67),
    ({"key": {"$**.a": 1}, **NAMED}, 67),
    ({"key": {"$**": 1}, "unique": True, **NAMED}, 67),
    ({"key": {"$**": 1}, "v": 1, **NAMED}, 67),
    ({"key": {"$**": 1}, "wildcardProjection": {}, **NAMED}, 9),
    ({"key": {"a.$**": 1}, "wildcardProjection": {"a": 1}, **NAMED}, 9),
    ({"key": {"a": 1}, "wildcardProjection": {"a": 1}, **NAMED}, 2),
    ({"key": {"$**": 1}, "wildcardProjection": {"a": 1, "b": 0}, **NAMED}, 31254),
    ({"key": {"$**": 1}, "wildcardProjection": {"a": 1, "a.b": 1}, **NAMED}, 31249),
    ({"key": {"$**": 1}, "wildcardProjection": {"a": "x"}, **NAMED}, 51271),
    ({"key": {"a": 1, "$**": 1}, "wildcardProjection": {"b": 0}, **NAMED}, 7246209),
    ({"key": [], **NAMED}, 14),
    ({"key": {"a": 1}, "name": 5}, 14),
    ({"key": {"a": 1}, "name": Code("x")}, 14),
    ({"key": {"a": 1}, "name": ""}, 67),
    ({"key": {"a": 1}, "name": "*"}, 2),
    ({"key": {"a": 1}, "name": "_id_"}, 2),
    ({"key": {"_id": -1}, **NAMED}, 2),
    ({"key": {"_id": 1}, "hidden": True, **NAMED}, 197),
    ({"key": {"_id": 1}, "expireAfterSeconds": 1, **NAMED}, 197),
    ({"key": {"a": 1}}, 9),
    (NAMED, 9),
    ({"key": {"a": 1}, "other": 1, **NAMED}, 197),
    ({"key": {"a": 1}, "hidden": 1, **NAMED}, 14),
    ({"key": {"a": 1}, "sparse": "x", **NAMED}, 14),
    ({"key": {"a": 1}, "collation": "en", **NAMED}, 14),
    ({"key": {"a": 1}, "collation": {}, **NAMED}, 2),
    ({"key": {"a": 1}, "v": 0, **NAMED}, 67),
    ({"key": {"a": 1}, "weights": {"a": 1}, **NAMED}, 67),
    ({"key": {"a": "2d"}, "bits": 33, **NAMED}, 72),
    ({"key": {"a": "2d"}, "min": 10, "max": 10, **NAMED}, 72),
    ({"key": {"a": "2dsphere"}, "2dsphereIndexVersion": 0, **NAMED}, 67),
    ({"key": {"a": 1, "b": 1}, "expireAfterSeconds": 1, **NAMED}, 67),
    ({"key": {"a": 1}, "expireAfterSeconds": -1, **NAMED}, 67),
    ({"key": {"a": 1}, "expireAfterSeconds": 2**31, **NAMED}, 67),
    ({"key": {"a": 1}, "expireAfterSeconds": None, **NAMED}, 67),
    ({"key": {"a": 1}, "expireAfterSeconds": Decimal128("NaN"), **NAMED}, 67),
    ({"key": {"a": 1}, "sparse": True, "partialFilterExpression": {"a": 1}, **NAMED}, 67),
    ({"key": {"a": 1}, "partialFilterExpression": {"a": {"$ne": 1}}, **NAMED}, 67),
    ({"key": {"a": 1}, "partialFilterExpression": {"$nor": [{"a": 1}]}, **NAMED}, 67),
    ({"key": {"a": 1}, "partialFilterExpression": {"a": {"$exists": False}}, **NAMED}, 67),
    ({"key": {"a": 1}, "partialFilterExpression": {"a": Regex("x")}, **NAMED}, 67),
    ({"key": {"a": 1}, "partialFilterExpression": {"$expr": True}, **NAMED}, 224),
    ({"key": {"a": 1}, "partialFilterExpression": {"$where": "1"}, **NAMED}, 2),
]


@pytest.mark.parametrize(("spec", "code"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_no_index_can_be(spec: dict[str, Any], code: int) -> None:
    with pytest.raises(MongoError) as caught:
        IndexSpec.parse(spec)
    assert caught.value.number == code


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ({"key": {"a": 1.5, "b": -2}, **NAMED}, {"v": 2, "key": {"a": 1.5, "b": -2}, "name": "n"}),
        ({"name": "n", "unique": 1, "key": {"a": 1}}, {"v": 2, "key": {"a": 1}, "name": "n", "unique": True}),
        ({"key": {"a": 1}, "sparse": False, "hidden": False, **NAMED}, {"v": 2, "key": {"a": 1}, "name": "n"}),
        ({"key": {"a": 1}, "background": True, "ns": "x.y", **NAMED}, {"v": 2, "key": {"a": 1}, "name": "n"}),
        (
            {"key": {"a": 1}, "expireAfterSeconds": Int64(5), **NAMED},
            {"v": 2, "key": {"a": 1}, "name": "n", "expireAfterSeconds": 5},
        ),
        ({"key": {"_id": 1}, "name": "mine"}, {"v": 2, "key": {"_id": 1}, "name": "_id_"}),
        ({"key": {"$**": -1}, **NAMED}, {"v": 2, "key": {"$**": -1}, "name": "n"}),
    ],
)
def test_what_is_listed(spec: dict[str, Any], shown: dict[str, Any]) -> None:
    assert IndexSpec.parse(spec).to_document() == shown


def test_the_collation_of_the_collection_is_inherited() -> None:
    default = {"locale": "en", "strength": 2}
    assert IndexSpec.parse({"key": {"a": 1}, **NAMED}, default_collation=default).document["collation"] == default
    simple = IndexSpec.parse({"key": {"a": 1}, "collation": {"locale": "simple"}, **NAMED}, default_collation=default)
    assert "collation" not in simple.document


def test_unique_and_sparse_make_another_index_and_hidden_does_not() -> None:
    plain = IndexSpec.parse({"key": {"a": 1}, "name": "a"})
    for option in ("unique", "sparse"):
        assert not plain.same_key(IndexSpec.parse({"key": {"a": 1}, "name": "b", option: True}))
    hidden = IndexSpec.parse({"key": {"a": 1}, "name": "b", "hidden": True})
    assert plain.same_key(hidden)
    assert not plain.same_options(hidden)


@pytest.mark.parametrize(
    ("projection", "path", "inside"),
    [
        ({"a": 1}, "a", True),
        ({"a": 1}, "a.b", True),
        ({"a": 1}, "b", False),
        ({"a.b": 1}, "a", True),
        ({"a": 0}, "a.b", False),
        ({"a": 0}, "b", True),
        ({"a": 0}, "_id", False),
        ({"a": {"b": 1}}, "a.c", False),
        ({"_id": 1, "a": 0}, "_id", True),
    ],
)
def test_wildcard_projections(projection: dict[str, Any], path: str, inside: bool) -> None:
    assert is_projected(projection, path) is inside
