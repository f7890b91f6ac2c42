"""What updates do to documents."""

import copy
from typing import Any

import pytest
from bson import DatetimeMS, DBRef, Decimal128, Int64, Regex, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.values import Document
from bucketd.query.match.parse import parse_filter
from bucketd.query.update.base import identical
from bucketd.query.update.parse import parse_update

NOW = DatetimeMS(1_700_000_000_123)


def updated(
    update: Any, document: Document, *, filter: Document | None = None, array_filters: list[Any] | None = None
) -> Document:
    before = copy.deepcopy(document)
    parsed = parse_update(update, array_filters=array_filters)
    node = None if filter is None else parse_filter(filter)
    after, changed = parsed.apply(document, matched_filter=node, now=NOW)
    assert identical(document, before), "the given document stays as it is"
    if not parsed.is_replacement:
        assert changed is not identical(document, after)
    return after


@pytest.mark.parametrize(
    ("update", "document", "expected"),
    [
        ({"$set": {"a": 1}}, {"_id": 1}, {"_id": 1, "a": 1}),
        ({"$set": {"a.b.c": 1}}, {"_id": 1}, {"_id": 1, "a": {"b": {"c": 1}}}),
        ({"$set": {"a.0": 1}}, {"_id": 1}, {"_id": 1, "a": {"0": 1}}),
        ({"$set": {"a.3": 1}}, {"_id": 1, "a": [5]}, {"_id": 1, "a": [5, None, None, 1]}),
        ({"$set": {"b": 1, "a": 2, "10": 0, "9": 0}}, {"_id": 1}, {"_id": 1, "9": 0, "10": 0, "a": 2, "b": 1}),
        ({"$set": {"a": 1.0}}, {"_id": 1, "a": 1}, {"_id": 1, "a": 1.0}),
        ({"$set": {"a": 1}}, {"_id": 1, "a": 1}, {"_id": 1, "a": 1}),
        ({"$set": {}}, {"_id": 1}, {"_id": 1}),
        ({"$setOnInsert": {"a": 1}}, {"_id": 1}, {"_id": 1}),
        ({"$unset": {"a.b": ""}}, {"_id": 1, "a": {"b": 1}}, {"_id": 1, "a": {}}),
        ({"$unset": {"a.b.c": ""}}, {"_id": 1, "a": 5}, {"_id": 1, "a": 5}),
        ({"$unset": {"a.0": ""}}, {"_id": 1, "a": [1, 2]}, {"_id": 1, "a": [None, 2]}),
        ({"$inc": {"a": 1}}, {"_id": 1, "a": 2**31 - 1}, {"_id": 1, "a": Int64(2**31)}),
        ({"$inc": {"a": Int64(1)}}, {"_id": 1}, {"_id": 1, "a": Int64(1)}),
        ({"$inc": {"a": 0.5}}, {"_id": 1, "a": 1}, {"_id": 1, "a": 1.5}),
        ({"$inc": {"a": Decimal128("0.10")}}, {"_id": 1, "a": 1}, {"_id": 1, "a": Decimal128("1.10")}),
        ({"$mul": {"a": 3}}, {"_id": 1}, {"_id": 1, "a": 0}),
        ({"$mul": {"a": 2}}, {"_id": 1, "a": 2.5}, {"_id": 1, "a": 5.0}),
        ({"$min": {"a": "x"}}, {"_id": 1, "a": "y"}, {"_id": 1, "a": "x"}),
        ({"$max": {"a": "x"}}, {"_id": 1, "a": 5}, {"_id": 1, "a": "x"}),
        ({"$min": {"a": 5}}, {"_id": 1}, {"_id": 1, "a": 5}),
        ({"$rename": {"a": "b.c"}}, {"_id": 1, "a": 5, "z": 1}, {"_id": 1, "z": 1, "b": {"c": 5}}),
        ({"$rename": {"x": "b"}}, {"_id": 1, "b": 1}, {"_id": 1, "b": 1}),
        ({"$bit": {"a": {"or": 5, "and": 4}}}, {"_id": 1, "a": 2}, {"_id": 1, "a": 4}),
        ({"$currentDate": {"a": True}}, {"_id": 1}, {"_id": 1, "a": NOW}),
        ({"$push": {"a": 1}}, {"_id": 1}, {"_id": 1, "a": [1]}),
        ({"$push": {"a": {"$each": [3, 1], "$sort": 1, "$slice": 2}}}, {"_id": 1, "a": [2]}, {"_id": 1, "a": [1, 2]}),
        ({"$push": {"a": {"$each": [9], "$position": -1}}}, {"_id": 1, "a": [1, 2]}, {"_id": 1, "a": [1, 9, 2]}),
        (
            {"$push": {"a": {"$each": [{"x": 1}], "$sort": {"x": -1}}}},
            {"_id": 1, "a": [{"x": 0}, {"x": 2}]},
            {"_id": 1, "a": [{"x": 2}, {"x": 1}, {"x": 0}]},
        ),
        ({"$addToSet": {"a": 1.0}}, {"_id": 1, "a": [1]}, {"_id": 1, "a": [1]}),
        ({"$addToSet": {"a": {"$each": [2, 2, 1]}}}, {"_id": 1, "a": [1]}, {"_id": 1, "a": [1, 2]}),
        ({"$pop": {"a": -1}}, {"_id": 1, "a": [1, 2]}, {"_id": 1, "a": [2]}),
        ({"$pull": {"a": {"$gt": 1}}}, {"_id": 1, "a": [1, 2, 3]}, {"_id": 1, "a": [1]}),
        ({"$pull": {"a": {"b": 1}}}, {"_id": 1, "a": [{"b": 1, "c": 2}, {"b": 2}, 1]}, {"_id": 1, "a": [{"b": 2}, 1]}),
        ({"$pull": {"a": 1}}, {"_id": 1, "a": [1, [1], 1.0]}, {"_id": 1, "a": [[1]]}),
        ({"$pull": {"a": Regex("^x")}}, {"_id": 1, "a": ["xy", "y"]}, {"_id": 1, "a": ["y"]}),
        (
            {"$pullAll": {"a": [1, {"b": 1}]}},
            {"_id": 1, "a": [1, {"b": 1}, {"b": 1, "c": 1}]},
            {"_id": 1, "a": [{"b": 1, "c": 1}]},
        ),
        ({"$set": {"a.$[]": 0}}, {"_id": 1, "a": [1, 2]}, {"_id": 1, "a": [0, 0]}),
        ({"$inc": {"a.$[].b": 1}}, {"_id": 1, "a": [{"b": 1}, {}]}, {"_id": 1, "a": [{"b": 2}, {"b": 1}]}),
        ({"x": 1}, {"_id": 1, "a": 2}, {"_id": 1, "x": 1}),
        ({"x": Timestamp(0, 0)}, {"_id": 1}, {"_id": 1, "x": Timestamp(1_700_000_000, 1)}),
        ([{"$set": {"b": "$a"}}, {"$unset": "a"}], {"_id": 1, "a": 5}, {"_id": 1, "b": 5}),
        ([{"$replaceWith": "$a"}], {"_id": 1, "a": {"x": 1}}, {"_id": 1, "x": 1}),
        ([], {"_id": 1}, {"_id": 1}),
    ],
)
def test_update(update: Any, document: Document, expected: Document) -> None:
    after = updated(update, document)
    assert identical(after, expected), after


def test_array_filters() -> None:
    document = {"_id": 1, "a": [{"x": 1, "y": [1, 5]}, {"x": 2, "y": [6]}]}
    after = updated({"$set": {"a.$[e].y.$[n]": 0}}, document, array_filters=[{"e.x": 1}, {"n": {"$gt": 2}}])
    assert after == {"_id": 1, "a": [{"x": 1, "y": [1, 0]}, {"x": 2, "y": [6]}]}


def test_positional() -> None:
    assert updated({"$set": {"a.$.b": 9}}, {"_id": 1, "a": [{"b": 1}, {"b": 2}]}, filter={"a.b": 2}) == {
        "_id": 1,
        "a": [{"b": 1}, {"b": 9}],
    }


@pytest.mark.parametrize(
    ("update", "document", "number"),
    [
        ({"$foo": {"a": 1}}, {}, 9),
        ({"$set": 1}, {}, 9),
        ({"$set": {"a": 1}, "b": 1}, {}, 9),
        ({"b": 1, "$set": {"a": 1}}, {}, 52),
        ({"$set": {"a": 1}, "$inc": {"a": 1}}, {}, 40),
        ({"$set": {"a": 1, "a.b": 1}}, {}, 40),
        ({"$set": {"a.0": 1, "a.$[]": 1}}, {"a": [1]}, 40),
        ({"$set": {"": 1}}, {}, 56),
        ({"$set": {"a..b": 1}}, {}, 56),
        ({"$set": {"$a": 1}}, {}, 52),
        ({"$set": {"$.a": 1}}, {}, 2),
        ({"$set": {"a.$.b.$": 1}}, {}, 2),
        ({"$set": {"a.$": 1}}, {"a": [1]}, 2),
        ({"$set": {"a.$[]": 1}}, {"a": 1}, 2),
        ({"$set": {"a.$[]": 1}}, {}, 2),
        ({"$set": {"a.$[x]": 1}}, {}, 2),
        ({"$set": {"a.b": 1}}, {"a": 5}, 28),
        ({"$set": {"a.b": 1}}, {"a": [1]}, 28),
        ({"$set": {"a.1600000": 1}}, {"a": []}, 34),
        ({"$set": {"_id": 2}}, {"_id": 1}, 66),
        ({"$unset": {"_id": 1}}, {"_id": 1}, 66),
        ({"$inc": {"a": "x"}}, {}, 14),
        ({"$inc": {"a": 1}}, {"a": "x"}, 14),
        ({"$inc": {"a": 1}}, {"a": Int64(2**63 - 1)}, 2),
        ({"$rename": {"a": "a"}}, {}, 2),
        ({"$rename": {"a": "a.b"}}, {}, 2),
        ({"$rename": {"a": 1}}, {}, 2),
        ({"$rename": {"a.0": "b"}}, {"a": [1]}, 2),
        ({"$rename": {"a": "b\0"}}, {"a": 1}, 9867600),
        ({"$bit": {"a": {"nand": 1}}}, {}, 2),
        ({"$bit": {"a": {"and": 1}}}, {"a": 1.0}, 2),
        ({"$currentDate": {"a": {"$type": "x"}}}, {}, 2),
        ({"$push": {"a": 1}}, {"a": 5}, 2),
        ({"$push": {"a": {"$each": 1}}}, {}, 2),
        ({"$push": {"a": {"$each": [], "$foo": 1}}}, {}, 2),
        ({"$addToSet": {"a": 1}}, {"a": 5}, 2),
        ({"$addToSet": {"a": {"$each": 1}}}, {}, 14),
        ({"$pop": {"a": 2}}, {}, 9),
        ({"$pop": {"a": 1}}, {"a": 5}, 14),
        ({"$pull": {"a": 1}}, {"a": 5}, 2),
        ({"$pullAll": {"a": 1}}, {}, 2),
        ({"_id": 2}, {"_id": 1}, 66),
        ([{"$match": {}}], {}, 72),
        ([{"$set": {"_id": 2}}], {"_id": 1}, 66),
        ([{"$replaceWith": 1}], {}, 40228),
    ],
)
def test_refused(update: Any, document: Document, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        updated(update, document)
    assert caught.value.number == number


@pytest.mark.parametrize(
    ("filters", "number"),
    [
        ([{"e": 1}, {"x": 1}], 9),
        ([{"e": 1}, {"e": 2}], 9),
        ([{}], 9),
        ([{"1e": 1}], 2),
        ([{"e": 1, "f": 1}], 9),
        ([1], 14),
    ],
)
def test_array_filters_refused(filters: list[Any], number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parse_update({"$set": {"a.$[e]": 1}}, array_filters=filters)
    assert caught.value.number == number


@pytest.mark.parametrize(
    ("filter", "update", "expected"),
    [
        ({"_id": 1, "a.b": 5, "c": {"$gt": 1}}, {"$set": {"z": 1}}, {"_id": 1, "a": {"b": 5}, "z": 1}),
        ({"a": {"$in": [3]}}, {"$setOnInsert": {"b": 1}}, {"a": 3, "b": 1}),
        ({"a": {"$all": [3]}, "$or": [{"b": 1}]}, {"$set": {}}, {"a": 3, "b": 1}),
        ({"_id": 7, "a": 1}, {"x": 1}, {"_id": 7, "x": 1}),
        ({"a": 1}, [{"$set": {"b": "$a"}}], {"a": 1, "b": 1}),
        ({"z": 1}, {"$set": {"_id": 4}}, {"_id": 4, "z": 1}),
    ],
)
def test_upsert(filter: Document, update: Any, expected: Document) -> None:
    parsed = parse_update(update, upsert=True)
    after, _ = parsed.apply(parsed.upsert_base(parse_filter(filter)), is_insert=True, now=NOW)
    assert after == expected
    assert list(after) == list(expected)


@pytest.mark.parametrize("filter", [{"$and": [{"a": 1}, {"a": 2}]}, {"a": {"x": 1}, "a.x": 1}])
def test_upsert_with_two_values_for_one_path(filter: Document) -> None:
    with pytest.raises(MongoError) as caught:
        parse_update({"$set": {"z": 1}}).upsert_base(parse_filter(filter))
    assert caught.value.number == 54


values = st.recursive(
    st.one_of(st.none(), st.integers(-3, 3), st.sampled_from(["", "a"]), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=5,
)
documents = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@given(documents, st.sampled_from(["a", "b", "c"]), values)
def test_what_was_set_matches(document: Document, path: str, value: Any) -> None:
    after = updated({"$set": {path: value}}, document)
    assert parse_filter({path: {"$eq": value}}).compile()(after)
    assert identical(updated({"$set": {path: value}}, after), after)


@given(documents, st.sampled_from(["a", "b.a", "c.b"]))
def test_what_was_unset_is_gone(document: Document, path: str) -> None:
    after = updated({"$unset": {path: 1}}, document)
    if not any(isinstance(value, list) for value in document.values()):
        assert parse_filter({path: {"$exists": False}}).compile()(after)


@given(st.lists(values, max_size=5), values)
def test_sets_and_pulls(array: list[Any], value: Any) -> None:
    added = updated({"$addToSet": {"a": value}}, {"a": array})
    assert identical(updated({"$addToSet": {"a": value}}, added), added)
    pulled = updated({"$pullAll": {"a": [value]}}, added)
    assert identical(updated({"$pullAll": {"a": [value]}}, pulled), pulled)
    assert len(pulled["a"]) < len(added["a"])


def test_references_are_compared_by_their_fields() -> None:
    first, second = DBRef("c", 1), DBRef("c", Int64(1))
    assert identical(first, DBRef("c", 1))
    assert not identical(first, second)
    assert identical(first, {"$ref": "c", "$id": 1})
    assert not identical({"type": "Point"}, first)
