"""What predicates match, how they print, and what is refused."""

import math
from typing import Any

import pytest
from bson import Binary, DBRef, Decimal128, Int64, MaxKey, MinKey, Regex
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.values import Document, decode, encode
from bucketd.query.match.comparison import Comparison
from bucketd.query.match.logical import And, Not
from bucketd.query.match.parse import parse_condition, parse_filter


def matches(filter: Document, document: Document) -> bool:
    return parse_filter(filter).compile()(document)


@pytest.mark.parametrize(
    ("filter", "document", "expected"),
    [
        ({}, {"a": 1}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": [2, 1]}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": [[1, 2], 3]}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, False),
        ({"a": None}, {}, True),
        ({"a": None}, {"a": None}, True),
        ({"a.b": None}, {"a": 5}, True),
        ({"a.b": None}, {"a": []}, False),
        ({"a.b": None}, {"a": [1]}, False),
        ({"a.b": None}, {"a": [{"c": 1}]}, True),
        ({"a": {"$ne": None}}, {}, False),
        ({"a": {"$gt": None}}, {"a": None}, False),
        ({"a": {"$gte": None}}, {}, True),
        ({"a": {"$gt": 5, "$lt": 3}}, {"a": [2, 6]}, True),
        ({"a": {"$gt": 5}}, {"a": "x"}, False),
        ({"a": {"$gt": 5}}, {"a": math.nan}, False),
        ({"a": {"$gte": math.nan}}, {"a": math.nan}, True),
        ({"a": {"$gte": math.nan}}, {"a": 1}, False),
        ({"a": {"$lt": 5}}, {"a": Decimal128("NaN")}, False),
        ({"a": {"$lt": Decimal128("0.1")}}, {"a": 0.1}, False),
        ({"a": {"$gt": MinKey()}}, {}, True),
        ({"a": {"$lt": MaxKey()}}, {"a": {"x": 1}}, True),
        ({"a": {"$gt": [1]}}, {"a": [1, 2]}, True),
        ({"a": {"$gt": 5}}, {"a": [[6]]}, False),
        ({"a": {"$in": [1, None]}}, {}, True),
        ({"a": {"$in": [Regex("^x"), 3]}}, {"a": "xy"}, True),
        ({"a": {"$nin": [1]}}, {"a": [1, 2]}, False),
        ({"a": {"$in": [[1]]}}, {"a": [1]}, True),
        ({"a": {"$in": [Decimal128("1.0")]}}, {"a": Int64(1)}, True),
        ({"a": {"$exists": 1}}, {"a": None}, True),
        ({"a.b": {"$exists": False}}, {"a": [{"b": 1}, {}]}, False),
        ({"a": {"$type": "array"}}, {"a": []}, True),
        ({"a": {"$type": "number"}}, {"a": [Decimal128("1")]}, True),
        ({"a": {"$type": [2, "null"]}}, {}, False),
        ({"a": {"$size": 0}}, {"a": []}, True),
        ({"a": {"$mod": [4, -1]}}, {"a": -5}, True),
        ({"a": {"$mod": [4, 1]}}, {"a": 5.9}, True),
        ({"a": {"$mod": [4, 0]}}, {"a": math.inf}, False),
        ({"a": {"$all": []}}, {"a": []}, False),
        ({"a": {"$all": [1, 2]}}, {"a": [2, 1, 3]}, True),
        ({"a": {"$all": [1]}}, {"a": 1}, True),
        ({"a": {"$all": [{"$elemMatch": {"$gt": 1}}, {"$elemMatch": {"$lt": 1}}]}}, {"a": [0, 2]}, True),
        ({"a": {"$elemMatch": {"$gt": 1, "$lt": 5}}}, {"a": [0, 6]}, False),
        ({"a": {"$elemMatch": {"$gt": 1}}}, {"a": 5}, False),
        ({"a": {"$elemMatch": {"$gt": 1}}}, {"a": [[5]]}, False),
        ({"a": {"$elemMatch": {"b": 1, "c": 2}}}, {"a": [{"b": 1}, {"c": 2}]}, False),
        ({"a": {"$elemMatch": {"$or": [{"b": 1}, {"c": 2}]}}}, {"a": [{"c": 2}]}, True),
        ({"a": {"$elemMatch": {"0": 1}}}, {"a": [[1]]}, True),
        ({"a": {"$elemMatch": {}}}, {"a": [1]}, False),
        ({"a": {"$not": {"$gt": 5}}}, {}, True),
        ({"a": {"$not": Regex("x")}}, {"a": "abc"}, True),
        ({"$nor": [{"a": 1}, {"b": 1}]}, {"a": 2}, True),
        ({"$or": [{"a": 1}, {"b": 1}]}, {"b": 1}, True),
        ({"a": Regex("^ab", "i")}, {"a": "ABC"}, True),
        ({"a": Regex("x")}, {"a": Regex("x")}, True),
        ({"a": {"$regex": "B", "$options": "i"}}, {"a": ["abc"]}, True),
        ({"a": {"$bitsAllSet": [0, 2]}}, {"a": 5}, True),
        ({"a": {"$bitsAllSet": [63, 200]}}, {"a": -1}, True),
        ({"a": {"$bitsAnyClear": [200]}}, {"a": b"\xff"}, True),
        ({"a": {"$bitsAllClear": 2}}, {"a": 2.5}, False),
        ({"a": {"$bitsAnySet": Binary(b"\x02")}}, {"a": 3}, True),
        ({"a": DBRef("c", 1)}, {"a": DBRef("c", 1)}, True),
        ({"a.0": 1}, {"a": [1, 2]}, True),
        ({"a.1.b": 2}, {"a": [{"b": 1}, {"b": 2}]}, True),
        ({"$alwaysFalse": 1}, {}, False),
        ({"a": {"$comment": "x", "$gt": 1}}, {"a": 2}, True),
        ({"$sampleRate": 0}, {}, False),
    ],
)
def test_matching(filter: Document, document: Document, expected: bool) -> None:
    assert matches(filter, document) is expected
    assert matches(decode(encode(filter)), decode(encode(document))) is expected


@pytest.mark.parametrize(
    ("filter", "number"),
    [
        ({"$foo": 1}, 2),
        ({"a": {"$foo": 1}}, 2),
        ({"a": {"$gt": 1, "b": 2}}, 2),
        ({"a": {"$ne": Regex("x")}}, 2),
        ({"a": {"$in": 1}}, 2),
        ({"a": {"$in": [{"$gt": 1}]}}, 2),
        ({"$and": []}, 2),
        ({"$or": [1]}, 2),
        ({"$nor": {}}, 2),
        ({"a": {"$not": 1}}, 2),
        ({"a": {"$not": {}}}, 2),
        ({"a": {"$type": "nope"}}, 2),
        ({"a": {"$type": []}}, 9),
        ({"a": {"$type": True}}, 14),
        ({"a": {"$size": -1}}, 2),
        ({"a": {"$mod": [0, 1]}}, 2),
        ({"a": {"$mod": [1]}}, 2),
        ({"a": {"$all": 1}}, 2),
        ({"a": {"$elemMatch": 1}}, 2),
        ({"a": {"$elemMatch": {"$expr": True}}}, 2),
        ({"a": {"$regex": "[x"}}, 51091),
        ({"a": {"$regex": "x", "$options": "g"}}, 51108),
        ({"a": {"$regex": Regex("x", "i"), "$options": "m"}}, 51075),
        ({"a": {"$options": "m", "$regex": Regex("x", "i")}}, 51074),
        ({"a": {"$options": "i"}}, 2),
        ({"a": {"$bitsAllSet": -1}}, 9),
        ({"a": {"$bitsAllSet": "x"}}, 2),
        ({"$where": "1"}, 2),
        ({"$jsonSchema": 1}, 14),
        ({"$jsonSchema": {"nope": 1}}, 9),
        ({"$sampleRate": 2}, 2),
    ],
)
def test_refused(filter: Document, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parse_filter(filter)
    assert caught.value.number == number


@pytest.mark.parametrize(
    ("filter", "shown"),
    [
        ({}, {}),
        ({"a": 1}, {"a": {"$eq": 1}}),
        ({"b": 1, "a": {"$gt": 2}}, {"$and": [{"b": {"$eq": 1}}, {"a": {"$gt": 2}}]}),
        ({"a": {"$ne": 1}}, {"a": {"$not": {"$eq": 1}}}),
        ({"a": {"$nin": [2, 1]}}, {"a": {"$not": {"$in": [1, 2]}}}),
        ({"a": {"$in": [1]}}, {"a": {"$eq": 1}}),
        ({"a": {"$exists": False}}, {"a": {"$not": {"$exists": True}}}),
        ({"$and": [{"$and": [{"a": 1}]}]}, {"a": {"$eq": 1}}),
        ({"$or": [{"a": 2}, {"a": 1}]}, {"a": {"$in": [1, 2]}}),
        ({"a": Regex("x", "i")}, {"a": {"$regex": "x", "$options": "i"}}),
        ({"a": {"$elemMatch": {"$gt": 1}}}, {"a": {"$elemMatch": {"$gt": 1}}}),
        ({"a": {"$all": [1, 2]}}, {"$and": [{"a": {"$eq": 1}}, {"a": {"$eq": 2}}]}),
    ],
)
def test_normal_form(filter: Document, shown: Document) -> None:
    assert parse_filter(filter).serialize() == shown


def test_fields() -> None:
    assert parse_filter({"a.b": 1, "$or": [{"c": 1}, {"d": {"$gt": 2}}]}).fields() == {"a.b", "c", "d"}
    assert parse_filter({"$jsonSchema": {"required": ["a"]}}).fields() is None


def test_condition_on_values() -> None:
    test = parse_condition({"$gt": 1, "$lt": 5}).value_test()
    assert [value for value in (0, 3, 9, "x") if test(value)] == [3]


def test_collation_decides_equality() -> None:
    class Folding:
        def key(self, string: str) -> bytes:
            return string.lower().encode()

    for filter in ({"a": "X"}, {"a": {"$in": ["X", "Y"]}}, {"a": {"$lte": "X"}}):
        assert parse_filter(filter, collator=Folding()).compile()({"a": "x"})
    assert not parse_filter({"a": Regex("X")}, collator=Folding()).compile()({"a": "x"})


@pytest.mark.parametrize(
    ("filter", "document", "position"),
    [
        ({"a": 2}, {"a": [1, 2]}, 1),
        ({"a.b": 2}, {"a": [{"b": 1}, {"b": 2}]}, 1),
        ({"a": {"$elemMatch": {"b": 2}}}, {"a": [{"b": 1}, {"b": 2}]}, 1),
        ({"a": {"$all": [1, 3]}}, {"a": [1, 2, 3]}, 2),
        ({"a": {"$ne": 5}}, {"a": [1]}, None),
        ({"a": {"$size": 1}}, {"a": [1]}, None),
        ({"a": 2}, {"a": 2}, None),
    ],
)
def test_position(filter: Document, document: Document, position: int | None) -> None:
    finder = parse_filter(filter).position()
    assert (None if finder is None else finder(document)) == position


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(width=16), st.sampled_from(["", "a", "b"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=5,
)
documents = st.dictionaries(st.sampled_from("ab"), values, max_size=2)
paths = st.sampled_from(["a", "b", "a.b", "a.0", "a.b.a"])
comparisons = st.tuples(st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte"]), values)
conditions = comparisons.map(lambda pair: {pair[0]: pair[1]})


@given(documents, paths, conditions)
def test_not_is_the_complement(document: Document, path: str, condition: Document) -> None:
    assert matches({path: condition}, document) is not matches({path: {"$not": condition}}, document)


@given(documents, paths, st.lists(values, max_size=3))
def test_in_is_a_disjunction(document: Document, path: str, items: list[Any]) -> None:
    expected = any(matches({path: {"$eq": item}}, document) for item in items)
    assert matches({path: {"$in": items}}, document) is expected
    assert matches({path: {"$nin": items}}, document) is not expected


@given(documents, paths, values)
def test_ranges_and_equality(document: Document, path: str, operand: Any) -> None:
    wide = matches({path: {"$gte": operand}}, document)
    assert wide is (matches({path: {"$gt": operand}}, document) or matches({path: {"$eq": operand}}, document))


@given(documents, paths, conditions, paths, conditions)
def test_simplifying_keeps_the_meaning(
    document: Document, path: str, condition: Document, other: str, other_condition: Document
) -> None:
    first, second = {path: condition}, {other: other_condition}
    a, b = matches(first, document), matches(second, document)
    assert matches({"$and": [first, {"$and": [second]}]}, document) is (a and b)
    assert matches({"$or": [first, {"$or": [second, {"$alwaysFalse": 1}]}]}, document) is (a or b)
    assert matches({"$nor": [first, second]}, document) is not (a or b)


@given(documents, paths, conditions)
def test_decoded_again_it_matches_alike(document: Document, path: str, condition: Document) -> None:
    filter = {path: condition}
    assert matches(filter, document) is matches(decode(encode(filter)), decode(encode(document)))


@given(documents, paths, conditions)
def test_normal_form_means_the_same(document: Document, path: str, condition: Document) -> None:
    shown = parse_filter({path: condition}).serialize()
    assert matches(shown, document) is matches({path: condition}, document)


def test_nodes_are_open_to_planners() -> None:
    node = parse_filter({"a": {"$gte": 1, "$lt": 5}, "b": {"$ne": 2}})
    assert isinstance(node, And)
    low_high = [child for child in node.children() if isinstance(child, Comparison)]
    assert [(child.path, child.operator, child.value) for child in low_high] == [("a", "$lt", 5), ("a", "$gte", 1)]
    assert any(isinstance(child, Not) for child in node.children())
