"""Strings, arrays, sets, objects, conditions, variables and literals."""

from contextlib import suppress
from typing import Any

import pytest
from bson import Code, DatetimeMS, Decimal128, Int64, ObjectId, Regex, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.ordering import compare, order_key
from bucketd.common.values import MISSING
from bucketd.query.expression.base import Constant
from bucketd.query.expression.parse import OPERATORS, ParseContext, parse_expression
from support.bson_values import values
from support.pipelines import evaluated

DOCUMENT = {"a": 1, "b": {"c": 2, "d": [{"e": 3}, {"e": 4}, {"f": 5}]}, "n": None, "l": [3, 1, 2], "s": "Hällo"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("$a", 1),
        ("text", "text"),
        ("$b.c", 2),
        ("$b.d.e", [3, 4]),
        ("$l.0", []),
        ("$missing", MISSING),
        ("$$ROOT.a", 1),
        ("$$CURRENT.b.c", 2),
        ("$$REMOVE", MISSING),
        ({"x": "$a", "y": "$missing"}, {"x": 1}),
        (["$a", "$missing"], [1, None]),
        ({"$literal": {"$add": [1, 2]}}, {"$add": [1, 2]}),
        ({"$type": "$missing"}, "missing"),
        ({"$type": [["x"]]}, "array"),
        ({"$type": {"$literal": Int64(1)}}, "long"),
        ({"$cond": [True, 1, {"$divide": [1, 0]}]}, 1),
        ({"$cond": {"if": "$n", "then": 1, "else": 2}}, 2),
        ({"$ifNull": ["$n", "$missing", 3]}, 3),
        ({"$switch": {"branches": [{"case": False, "then": 1}, {"case": 1, "then": 2}]}}, 2),
        ({"$switch": {"branches": [{"case": "$n", "then": 1}], "default": 0}}, 0),
        ({"$and": []}, True),
        ({"$or": []}, False),
        ({"$and": ["$a", "$s"]}, True),
        ({"$or": ["$n", 0]}, False),
        ({"$not": ["$n"]}, True),
        ({"$cmp": ["$a", "$s"]}, -1),
        ({"$eq": [1, 1.0]}, True),
        ({"$lt": ["$missing", None]}, True),
        ({"$let": {"vars": {"x": "$a"}, "in": {"$add": ["$$x", 1]}}}, 2),
        ({"$map": {"input": "$l", "as": "i", "in": {"$multiply": ["$$i", 2]}}}, [6, 2, 4]),
        ({"$filter": {"input": "$l", "cond": {"$gt": ["$$this", 1]}}}, [3, 2]),
        ({"$filter": {"input": "$l", "cond": True, "limit": 1}}, [3]),
        ({"$reduce": {"input": "$l", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}, 6),
        ({"$arrayElemAt": ["$l", -1]}, 2),
        ({"$arrayElemAt": ["$l", 9]}, MISSING),
        ({"$first": "$l"}, 3),
        ({"$size": "$l"}, 3),
        ({"$slice": ["$l", -2]}, [1, 2]),
        ({"$slice": ["$l", 1, 1]}, [1]),
        ({"$range": [0, 10, 3]}, [0, 3, 6, 9]),
        ({"$range": [3, 0, -1]}, [3, 2, 1]),
        ({"$reverseArray": "$l"}, [2, 1, 3]),
        ({"$concatArrays": ["$l", [4]]}, [3, 1, 2, 4]),
        ({"$in": [2, "$l"]}, True),
        ({"$indexOfArray": ["$l", 2]}, 2),
        ({"$isArray": "$l"}, True),
        ({"$sum": "$l"}, 6),
        ({"$max": ["$a", 7, None]}, 7),
        ({"$avg": ["a", 2, 4]}, 3.0),
        ({"$arrayToObject": [[["k", 1]]]}, {"k": 1}),
        ({"$objectToArray": {"x": 1}}, [{"k": "x", "v": 1}]),
        ({"$mergeObjects": [{"x": 1}, None, {"y": 2}]}, {"x": 1, "y": 2}),
        ({"$setUnion": [[2, 1], [1.0, 3]]}, [1, 2, 3]),
        ({"$setIntersection": [[1, 2], [2, 3]]}, [2]),
        ({"$setDifference": [[1, 2], [2, 3]]}, [1]),
        ({"$setEquals": [[1, 2], [2, 1, 1]]}, True),
        ({"$setIsSubset": [[1], [2, 1]]}, True),
        ({"$allElementsTrue": [[1, True]]}, True),
        ({"$anyElementTrue": [[0, None]]}, False),
        ({"$concat": ["$s", "!"]}, "Hällo!"),
        ({"$concat": ["$s", None]}, None),
        ({"$toUpper": "$s"}, "HäLLO"),
        ({"$strLenBytes": "$s"}, 6),
        ({"$strLenCP": "$s"}, 5),
        ({"$substrCP": ["$s", 1, 2]}, "äl"),
        ({"$substrBytes": ["$s", 1, 2]}, "ä"),
        ({"$split": ["a,b,", ","]}, ["a", "b", ""]),
        ({"$trim": {"input": " \t x "}}, "x"),
        ({"$ltrim": {"input": "xxy", "chars": "x"}}, "y"),
        ({"$strcasecmp": ["a", "B"]}, -1),
        ({"$indexOfCP": ["$s", "l"]}, 2),
        ({"$indexOfCP": ["$s", "llo", 0, 3]}, 2),
        ({"$indexOfCP": ["$s", "", 5]}, -1),
        ({"$regexMatch": {"input": "$s", "regex": "^h", "options": "i"}}, True),
        ({"$regexFind": {"input": "$s", "regex": Regex("l(l)")}}, {"match": "ll", "idx": 2, "captures": ["l"]}),
        ({"$replaceAll": {"input": "a.a", "find": "a", "replacement": "b"}}, "b.b"),
        ({"$toInt": "12"}, 12),
        ({"$toString": 1.5}, "1.5"),
        ({"$toDate": Int64(5)}, DatetimeMS(5)),
        ({"$toObjectId": "0" * 24}, ObjectId("0" * 24)),
        ({"$convert": {"input": "x", "to": "int", "onError": "no"}}, "no"),
        ({"$convert": {"input": None, "to": "int", "onNull": 0}}, 0),
    ],
)
def test_value(spec: Any, expected: Any) -> None:
    value = evaluated(spec, DOCUMENT)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("spec", "number"),
    [
        ({"$nothing": 1}, 168),
        ({"$add": [1], "$subtract": [1, 2]}, 15983),
        ("$", 16872),
        ("$a.", 40353),
        ("$a..b", 15998),
        ("$$unknown", 17276),
        ({"$cond": [1, 2]}, 16020),
        ({"$cond": {"if": 1, "then": 2}}, 17082),
        ({"$ifNull": [1]}, 1257300),
        ({"$switch": {"branches": []}}, 40068),
        ({"$let": {"vars": {}}}, 16877),
        ({"$map": {"input": []}}, 16882),
        ({"$map": {"input": 1, "in": 1}}, 16883),
        ({"$filter": {"input": 1, "cond": 1}}, 28651),
        ({"$reduce": {"input": 1, "initialValue": 1, "in": 1}}, 40080),
        ({"$size": 1}, 17124),
        ({"$arrayElemAt": [1, 1]}, 28689),
        ({"$concatArrays": [1]}, 28664),
        ({"$in": [1, 1]}, 40081),
        ({"$range": [0, 5, 0]}, 34449),
        ({"$slice": [[1], 1, 0]}, 28729),
        ({"$concat": [1]}, 16702),
        ({"$toLower": [[]]}, 16007),
        ({"$strLenCP": 1}, 34471),
        ({"$split": ["a", ""]}, 40087),
        ({"$split": ["a", 1]}, 10503900),
        ({"$concat": ["x" * 2**23, "y" * 2**23]}, 16493),
        ({"$ltrim": {"input": 1, "chars": None}}, 50699),
        ({"$toInt": "x"}, 241),
        ({"$setEquals": [[1]]}, 17045),
        ({"$mergeObjects": [1]}, 40400),
        ({"$getField": 1}, 3041704),
    ],
)
def test_complaint(spec: Any, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        evaluated(spec, DOCUMENT)
    assert caught.value.number == number


def test_constants_are_worked_out_once() -> None:
    folded = parse_expression({"$multiply": [{"$add": [1, 2]}, 2]}, ParseContext())
    assert isinstance(folded, Constant)
    assert folded.value == 6
    assert folded.serialize() == {"$const": 6}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"$add": ["$a.b", "$c"]}, {"a.b", "c"}),
        ({"$let": {"vars": {"x": "$a"}, "in": "$$x.y"}}, {"a"}),
        ("$$ROOT", None),
        ("$$ROOT.a", {"a"}),
        ({"$literal": "$a"}, set()),
    ],
)
def test_fields_that_are_read(spec: Any, fields: set[str] | None) -> None:
    assert parse_expression(spec, ParseContext()).fields() == fields


def test_operators_with_null() -> None:
    """What is null or missing gives null, or a complaint of MongoDB's, and never a failure of ours."""
    for name in OPERATORS:
        for operand in (None, "$missing", [None, None], [None] * 3, {"input": None}, [], {}, Code("x")):
            with suppress(MongoError):
                evaluated({name: operand})


@given(st.sampled_from(sorted(OPERATORS)), st.lists(values, max_size=4) | values)
def test_every_operator_copes_with_every_value(name: str, operands: Any) -> None:
    literals = [{"$literal": operand} for operand in operands] if isinstance(operands, list) else {"$literal": operands}
    with suppress(MongoError):
        evaluated({name: literals})


@given(values, values)
def test_comparisons_agree_with_the_order(left: Any, right: Any) -> None:
    order = compare(left, right)
    operands = [{"$literal": left}, {"$literal": right}]
    assert evaluated({"$cmp": operands}) == order
    assert evaluated({"$eq": operands}) is (order == 0)
    assert evaluated({"$lt": operands}) is (order < 0)
    assert evaluated({"$gte": operands}) is (order >= 0)


@given(st.lists(values, max_size=6), st.lists(values, max_size=6))
def test_sets_as_in_python(left: list[Any], right: list[Any]) -> None:
    operands = [{"$literal": left}, {"$literal": right}]
    one, other = {order_key(item) for item in left}, {order_key(item) for item in right}
    for name, expected in (
        ("$setUnion", one | other),
        ("$setIntersection", one & other),
        ("$setDifference", one - other),
    ):
        found = [order_key(item) for item in evaluated({name: operands})]
        assert set(found) == expected
        assert len(found) == len(expected)
    assert evaluated({"$setEquals": operands}) is (one == other)
    assert evaluated({"$setIsSubset": operands}) is (one <= other)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_splitting_and_joining(text: str, separator: str) -> None:
    parts = evaluated({"$split": [{"$literal": text}, {"$literal": separator}]})
    assert separator.join(parts) == text
    assert evaluated({"$strLenCP": {"$literal": text}}) == len(text)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"$toLower": 1e6}, "1e+06"),
        ({"$toLower": {"$literal": Timestamp(0, 42)}}, "jan  1 00:00:00:42"),
        ({"$substrBytes": ["hello", Decimal128("1.5"), 2]}, "ll"),
        ({"$mergeObjects": [{"$literal": [{"a": 1}, {"b": 2}]}]}, {"a": 1, "b": 2}),
    ],
)
def test_what_operands_become(spec: Any, expected: Any) -> None:
    assert evaluated(spec) == expected


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"$substrCP": ["hello", 1.5, 2]}, 34451),
        ({"$substrCP": ["hello", 1, 2**40]}, 34453),
        ({"$substrBytes": ["hello", float("inf"), 1]}, 31109),
        ({"$substrBytes": ["hello", Decimal128("NaN"), 1]}, 50752),
        ({"$setEquals": [None, [1]]}, 5887502),
        ({"$setIsSubset": [[1], None]}, 17042),
        ("$$CLUSTER_TIME", 10071200),
        ("$$Unknown", 17276),
        ("x" * (16 * 1024 * 1024), 16493),
        ({"$regexMatch": {"input": "a", "regex": "a" * 16385}}, 51111),
        ({"$setField": {"field": "a\0", "input": {}, "value": 1}}, 9534700),
        ({"$meta": "none"}, 17308),
    ],
)
def test_what_operands_may_not_be(spec: Any, code: int) -> None:
    with pytest.raises(MongoError) as failure:
        evaluated(spec)
    assert failure.value.number == code
