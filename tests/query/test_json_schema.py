"""`$jsonSchema`."""

from typing import Any

import pytest
from bson import Decimal128, Int64

from bucketd.common.errors import MongoError
from bucketd.common.values import Document
from bucketd.query.match.parse import parse_filter


def satisfies(schema: Document, document: Document) -> bool:
    return parse_filter({"$jsonSchema": schema}).compile()(document)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"bsonType": "int"}, 1, True),
        ({"bsonType": "int"}, Int64(1), False),
        ({"bsonType": ["string", "null"]}, None, True),
        ({"type": "number"}, Decimal128("1"), True),
        ({"type": "boolean"}, True, True),
        ({"minimum": 5}, 5, True),
        ({"minimum": 5, "exclusiveMinimum": True}, 5, False),
        ({"maximum": 5}, "x", True),
        ({"multipleOf": 0.1}, 0.3, True),
        ({"multipleOf": 3}, Decimal128("9.0"), True),
        ({"multipleOf": 3}, 10, False),
        ({"minLength": 2}, "é", False),
        ({"maxLength": 2}, "日本", True),
        ({"pattern": "^a"}, "ba", False),
        ({"enum": [1, "x", [1]]}, 1.0, True),
        ({"enum": ["x"]}, "y", False),
        ({"items": {"bsonType": "int"}}, [1, "x"], False),
        ({"items": [{"bsonType": "int"}], "additionalItems": False}, [1, 2], False),
        ({"items": [{"bsonType": "int"}], "additionalItems": {"bsonType": "string"}}, [1, "x"], True),
        ({"uniqueItems": True}, [1, 1.0], False),
        ({"minItems": 1, "maxItems": 2}, [1], True),
        ({"required": ["x"]}, {"y": 1}, False),
        ({"required": ["x"]}, 5, True),
        ({"properties": {"x": {"bsonType": "int"}}, "additionalProperties": False}, {"x": 1, "y": 1}, False),
        ({"patternProperties": {"^n": {"type": "number"}}, "additionalProperties": False}, {"n1": 1}, True),
        ({"dependencies": {"x": ["y"]}}, {"x": 1}, False),
        ({"dependencies": {"x": {"required": ["y"]}}}, {"y": 1}, True),
        ({"minProperties": 2}, {"a": 1}, False),
        ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, 2, False),
        ({"oneOf": [{"minimum": 1}, {"minimum": 3}]}, 5, False),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, True),
        ({"not": {"type": "string"}}, "x", False),
        ({"title": "t", "description": "d"}, None, True),
    ],
)
def test_keywords(schema: Document, value: Any, expected: bool) -> None:
    assert satisfies({"properties": {"v": schema}}, {"v": value}) is expected
    assert satisfies({"properties": {"v": schema}}, {})


@pytest.mark.parametrize(
    ("schema", "number"),
    [
        ({"nope": 1}, 9),
        ({"$ref": "x"}, 9),
        ({"type": "integer"}, 9),
        ({"type": "int"}, 2),
        ({"bsonType": "nope"}, 2),
        ({"bsonType": 1}, 14),
        ({"type": "string", "bsonType": "string"}, 9),
        ({"minimum": "x"}, 14),
        ({"exclusiveMinimum": True}, 9),
        ({"multipleOf": 0}, 9),
        ({"minLength": -1}, 9),
        ({"pattern": "[x"}, 51091),
        ({"patternProperties": {"[x": {}}}, 2),
        ({"required": []}, 9),
        ({"required": ["a", "a"]}, 9),
        ({"required": [1]}, 14),
        ({"properties": 1}, 14),
        ({"properties": {"a": 1}}, 14),
        ({"items": 1}, 14),
        ({"allOf": 1}, 14),
        ({"allOf": []}, 2),
        ({"not": 1}, 14),
        ({"enum": []}, 9),
        ({"dependencies": {"a": 1}}, 14),
        ({"title": 1}, 14),
    ],
)
def test_refused(schema: Document, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parse_filter({"$jsonSchema": schema})
    assert caught.value.number == number
