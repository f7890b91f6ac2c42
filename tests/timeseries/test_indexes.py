"""Keys on measurements ↔ keys on buckets."""

from typing import Any

import pytest
from bson import DatetimeMS

from bucketd.catalog.collections import Collection
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.common.errors import CannotCreateIndex, IndexOptionsConflict, InvalidOptions, Location, MongoError
from bucketd.timeseries.indexes import to_bucket_index, to_bucket_key, to_view_index

VIEW = Collection(
    Namespace("lab", "readings"),
    "timeseries",
    options={
        "timeseries": {"timeField": "t", "metaField": "m", "granularity": "seconds", "bucketMaxSpanSeconds": 3600}
    },
)

KEYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"t": 1}, {"control.min.t": 1, "control.max.t": 1}),
    ({"t": -1}, {"control.max.t": -1, "control.min.t": -1}),
    ({"m": 1}, {"meta": 1}),
    ({"m.a.b": -1, "t": 1}, {"meta.a.b": -1, "control.min.t": 1, "control.max.t": 1}),
    ({"x": 1}, {"control.min.x": 1, "control.max.x": 1}),
    ({"t.x": -1}, {"control.max.t.x": -1, "control.min.t.x": -1}),
    ({"m.h": "hashed"}, {"meta.h": "hashed"}),
]


def test_a_place_in_measurements_is_listed_without_the_words_of_the_client() -> None:
    bucket_index = IndexSpec({"v": 2, "key": {"meta": 1, "data.p.q": "2dsphere_bucket"}, "name": "n"})
    assert to_view_index(VIEW, bucket_index) == {"v": 2, "key": {"m": 1, "p.q": "2dsphere"}, "name": "n"}
    assert to_bucket_key(VIEW, {"m": 1, "p.q": "2dsphere"}) == bucket_index.key


def test_a_partial_filter_on_measurements_becomes_one_on_buckets() -> None:
    day = DatetimeMS(86_400_000)
    spec = {
        "key": {"x": 1}, "name": "n",
        "partialFilterExpression": {"$and": [{"t": {"$gt": day}}, {"m.b": {"$gte": "B"}}, {"x": {"$gte": 0}}]},
    }  # fmt: skip
    index = to_bucket_index(VIEW, IndexSpec.parse(spec))
    before = DatetimeMS(int(day) - 3_600_000)
    assert index.partial_filter == {
        "meta.b": {"$gte": "B"},
        "$and": [
            {"$and": [{"control.max.t": {"$_internalExprGt": day}}, {"control.min.t": {"$_internalExprGt": before}}]},
            {"control.max.x": {"$_internalExprGte": 0}},
        ],
    }
    assert to_view_index(VIEW, index) == {"v": 2, **spec}


@pytest.mark.parametrize(("asked", "wanted"), KEYS)
def test_a_key_is_mapped_and_listed_as_it_was_asked_for(asked: dict[str, Any], wanted: dict[str, Any]) -> None:
    index = to_bucket_index(VIEW, IndexSpec.parse({"key": asked, "name": "n"}))
    assert list(index.key.items()) == list(wanted.items())
    assert to_view_index(VIEW, index) == {"v": 2, "key": asked, "name": "n"}
    assert to_bucket_key(VIEW, asked) == wanted


@pytest.mark.parametrize(
    "key",
    [
        {"control.min.x": 1},
        {"control.max.x": 1, "control.min.x": 1},
        {"_id": 1},
        {"control.min.x": 1, "control.max.x": -1},
    ],
)
def test_other_indexes_of_the_buckets_are_not_listed(key: dict[str, Any]) -> None:
    assert to_view_index(VIEW, IndexSpec({"v": 2, "key": key, "name": "n"})) is None


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"key": {"x": 1}, "unique": True}, InvalidOptions),
        ({"key": {"x": 1}, "sparse": True}, InvalidOptions),
        ({"key": {"t": 1}, "expireAfterSeconds": 5}, InvalidOptions),
        ({"key": {"m": 1}, "expireAfterSeconds": 5, "partialFilterExpression": {"m": 1}}, InvalidOptions),
        ({"key": {"x": "text"}}, InvalidOptions),
        ({"key": {"x": "hashed"}}, CannotCreateIndex),
        ({"key": {"t": "hashed"}}, CannotCreateIndex),
        ({"key": {"$**": 1}}, Location),
        ({"key": {"x": 1}, "partialFilterExpression": {"m": 1}, "collation": {"locale": "en"}}, IndexOptionsConflict),
    ],
)
def test_what_measurements_cannot_have(spec: dict[str, Any], error: type[MongoError]) -> None:
    with pytest.raises(error):
        to_bucket_index(VIEW, IndexSpec.parse({"name": "n", **spec}))


def test_a_lifetime_needs_a_filter_on_meta() -> None:
    spec = {"key": {"t": 1}, "name": "n", "expireAfterSeconds": 5, "partialFilterExpression": {"m.a": {"$gt": 1}}}
    index = to_bucket_index(VIEW, IndexSpec.parse(spec))
    assert index.key == {"control.min.t": 1}
    assert index.partial_filter == {"meta.a": {"$gt": 1}}
    assert to_view_index(VIEW, index) == {"v": 2, **spec}
