"""Operators at the edges of what they take, as MongoDB was measured."""

from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64

from bucketd.common.errors import MongoError
from support.pipelines import evaluated

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"$toString": 1e15}, "1000000000000000"),
        ({"$toString": 1e16}, "1e+16"),
        ({"$toString": 5e-324}, "5e-324"),
        ({"$toString": 3.0}, "3"),
        ({"$toString": Binary(b"hello", 2)}, "BQAAAGhlbGxv"),
        ({"$toString": Binary(b"\x01" * 15, 4)}, "AQEBAQEBAQEBAQEBAQEB"),
        ({"$toInt": Binary(b"", 2)}, 0),
        ({"$sum": [3, 0.1, Decimal128("0.04")]}, Decimal128("3.140000000000000005551115123125783")),
        ({"$avg": [{"$literal": [1, "x", 3.0, Decimal128("7")]}]}, Decimal128("3.666666666666666666666666666666667")),
        ({"$avg": [Int64(2**63 - 1), Int64(-(2**63))]}, 0.0),
        ({"$avg": {"$literal": [1, Int64(2), 3.0, Decimal128("7")]}}, Decimal128("3.25")),
        ({"$or": [{"$divide": [1, "$zero"]}, True]}, True),
        ({"$map": {"input": [1, 2], "as": "CURRENT", "in": {"$add": ["$$CURRENT", 1]}}}, [2, 3]),
        ({"$sortArray": {"input": [{"a": [3, 1]}, {"a": [2]}], "sortBy": {"a": 1}}}, [{"a": [2]}, {"a": [3, 1]}]),
        ({"$sortArray": {"input": [{"a": 1}, {"a": 2}], "sortBy": {"a": -1}}}, [{"a": 2}, {"a": 1}]),
        ({"$substrCP": [float("nan"), 0, 3]}, "nan"),
        ({"$toHashedIndexKey": 1}, Int64(5902408780260971510)),
        ({"$toHashedIndexKey": 1.7}, Int64(5902408780260971510)),
        ({"$dateTrunc": {"date": "$date", "unit": "day", "startOfWeek": None}}, None),
    ],
)
def test_values(spec: Any, expected: Any) -> None:
    found = evaluated(spec, {"zero": 0, "date": None})
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"$toString": Code("x")}, 241),
        ({"$toInt": Binary(b"\x01", 2)}, 241),
        ({"$convert": {"input": Binary(b"a" * 8 * MIB), "to": "string", "format": "hex"}}, 241),
        ({"$concat": ["$four", "$four"]}, 16493),
        ({"$replaceAll": {"input": "$long", "find": "a", "replacement": "aa"}}, 16493),
        ({"$switch": {"branches": [{"case": False, "then": 1}]}}, 40069),
        ({"$switch": {"branches": [{"case": "$missing", "then": 1}]}}, 40066),
        ({"$switch": {"branches": [{"case": True, "then": 1}], "default": {"$divide": [1, 0]}}}, 2),
        ({"$ifNull": [1, {"$divide": [1, 0]}]}, 2),
        ({"$let": {"vars": 1, "in": 1}}, 10065),
        ("$$ROOT.", 40353),
        ({"$getField": {}}, 3041702),
        ({"$setField": {"field": {}, "input": {}, "value": 1}}, 4161107),
        ({"$setField": {"field": {"$concat": ["a", "b"]}, "input": {}, "value": 1}}, 4161106),
        ({"$setField": {"field": ["a"], "input": {}, "value": 1}}, 4161106),
        ({"$unsetField": {"field": "$a", "input": {"$a": 1}}}, 168),
        ({"$unsetField": {"field": "$a", "input": {}}}, 4161108),
        ({"$arrayToObject": "$kv_then_pair"}, 40391),
        ({"$arrayToObject": "$pair_then_kv"}, 40396),
        ({"$setUnion": [1, None]}, 17043),
        ({"$sortArray": {"input": [], "sortBy": {"a": 2}}}, 2942505),
        ({"$sigmoid": [1]}, 14),
        ({"$substrCP": ["a", -1, "x"]}, 34452),
    ],
)
def test_refusals(spec: Any, code: int) -> None:
    pair: Any = ["k", 1]
    document = {
        "four": "\U0001f600" * (2 * MIB),
        "long": "a" * (9 * MIB),
        "kv_then_pair": [{"k": "a", "v": 1}, pair],
        "pair_then_kv": [pair, {"k": "a", "v": 1}],
    }
    with pytest.raises(MongoError) as failure:
        evaluated(spec, document)
    assert failure.value.number == code
