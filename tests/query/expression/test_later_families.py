"""Conversions, patterns, dates from strings, bits and ranking."""

import base64
from typing import Any

import pytest
from bson import Binary, DatetimeMS, Decimal128, Int64, Regex, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.ordering import order_key
from support.pipelines import evaluated


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"$convert": {"input": "12", "to": "int"}}, 12),
        ({"$convert": {"input": "x", "to": "int", "onError": -1}}, -1),
        ({"$convert": {"input": None, "to": "int", "onNull": 0}}, 0),
        ({"$convert": {"input": 42, "to": {"type": "binData", "subtype": 5}}}, Binary(b"\x2a\0\0\0", 5)),
        ({"$convert": {"input": b"hello", "to": "string", "format": "hex"}}, "68656C6C6F"),
        ({"$toDouble": "0x1p-1"}, 0.5),
        ({"$toDecimal": "1.50"}, Decimal128("1.50")),
        ({"$dateFromString": {"dateString": "1970-01-01T00:00:01.5Z"}}, DatetimeMS(1500)),
        ({"$dateFromString": {"dateString": "02/01/1970", "format": "%d/%m/%Y"}}, DatetimeMS(86_400_000)),
        ({"$dateFromString": {"dateString": "oct 20 2020"}}, DatetimeMS(1_603_152_000_000)),
        ({"$dateFromString": {"dateString": "nonsense", "onError": "bad"}}, "bad"),
        ({"$regexFind": {"input": "xaab", "regex": "(a+)(c)?"}}, {"match": "aa", "idx": 1, "captures": ["aa", None]}),
        ({"$regexMatch": {"input": "ABC", "regex": Regex("b", "i")}}, True),
        ({"$regexFindAll": {"input": None, "regex": "a"}}, []),
        ({"$replaceOne": {"input": "a.a", "find": "a", "replacement": "b"}}, "b.a"),
        ({"$replaceAll": {"input": "a.a", "find": "a", "replacement": "b"}}, "b.b"),
        ({"$indexOfBytes": ["éa", "a"]}, 2),
        ({"$indexOfCP": ["éa", "a"]}, 1),
        ({"$bitAnd": [12, 10]}, 8),
        ({"$bitXor": [12, Int64(10)]}, Int64(6)),
        ({"$bitNot": 5}, -6),
        ({"$bsonSize": {"name": "test"}}, 20),
        ({"$tsSecond": Timestamp(7, 2)}, Int64(7)),
        ({"$setField": {"field": "a.b", "input": {"x": 1}, "value": 2}}, {"x": 1, "a.b": 2}),
        ({"$unsetField": {"field": "x", "input": {"x": 1, "y": 2}}}, {"y": 2}),
        ({"$zip": {"inputs": [[1], [2, 3]], "useLongestLength": True, "defaults": [0, 0]}}, [[1, 2], [0, 3]]),
        ({"$firstN": {"n": 2, "input": [3, 1, 2]}}, [3, 1]),
        ({"$maxN": {"n": 2, "input": [3, 1, None, 2]}}, [3, 2]),
        ({"$median": {"input": [3, 1, 2], "method": "approximate"}}, 2.0),
        ({"$stdDevPop": [1, 3]}, 1.0),
    ],
)
def test_value(spec: Any, expected: Any) -> None:
    found = evaluated(spec)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("spec", "number"),
    [
        ({"$convert": 1}, 9),
        ({"$convert": {"input": 1, "to": "nothing"}}, 2),
        ({"$convert": {"input": "x", "to": "binData"}}, 4341115),
        ({"$dateFromString": {"dateString": "2017-02-30"}}, 241),
        ({"$dateFromString": {"dateString": "2017", "format": "%Q"}}, 18536),
        ({"$regexFind": {"input": "a", "regex": "["}}, 51111),
        ({"$regexFind": {"input": 1, "regex": "a"}}, 51104),
        ({"$replaceOne": {"input": "a", "find": "b"}}, 51747),
        ({"$bitAnd": [1.5]}, 14),
        ({"$setField": {"field": "$a", "input": {}, "value": 1}}, 4161108),
        ({"$zip": {"inputs": []}}, 34465),
        ({"$sortArray": {"input": 1, "sortBy": 1}}, 2942504),
        ({"$percentile": {"input": [1], "p": [2], "method": "approximate"}}, 7750303),
    ],
)
def test_complaint(spec: Any, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        evaluated(spec)
    assert caught.value.number == number


@given(st.lists(st.one_of(st.integers(-9, 9), st.text(max_size=2), st.none(), st.booleans()), max_size=12))
def test_sorted_arrays_are_in_the_order_of_values(items: list[Any]) -> None:
    found = evaluated({"$sortArray": {"input": "$a", "sortBy": 1}}, {"a": items})
    assert found == sorted(items, key=order_key)


@given(st.binary(max_size=40))
def test_binary_survives_its_text(raw: bytes) -> None:
    text = evaluated({"$convert": {"input": "$a", "to": "string", "format": "base64"}}, {"a": raw})
    assert text == base64.b64encode(raw).decode()
    assert evaluated({"$convert": {"input": text, "to": "binData", "format": "base64"}}) == raw


@given(st.integers(-60_000_000_000_000, 250_000_000_000_000))
def test_dates_survive_their_text(moment: int) -> None:
    text = evaluated({"$dateToString": {"date": "$a"}}, {"a": DatetimeMS(moment)})
    assert evaluated({"$dateFromString": {"dateString": text}}) == DatetimeMS(moment)
