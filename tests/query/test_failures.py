"""What is told of a document that a validator refuses."""

from typing import Any

import pytest

from bucketd.query.match.failures import failure_details

Document = dict[str, Any]


@pytest.mark.parametrize(
    ("rule", "document", "details"),
    [
        (
            {"a": {"$gt": 5}},
            {"a": 3},
            {
                "operatorName": "$gt",
                "specifiedAs": {"a": {"$gt": 5}},
                "reason": "comparison failed",
                "consideredValue": 3,
            },
        ),
        (
            {"a": {"$exists": True}},
            {},
            {"operatorName": "$exists", "specifiedAs": {"a": {"$exists": True}}, "reason": "path does not exist"},
        ),
        (
            {"a": {"$type": "int"}},
            {"a": "x"},
            {
                "operatorName": "$type",
                "specifiedAs": {"a": {"$type": "int"}},
                "reason": "type did not match",
                "consideredValue": "x",
                "consideredType": "string",
            },
        ),
        (
            {"a": 1, "b": 2},
            {"a": 1},
            {
                "operatorName": "$and",
                "clausesNotSatisfied": [
                    {
                        "index": 1,
                        "details": {"operatorName": "$eq", "specifiedAs": {"b": 2}, "reason": "field was missing"},
                    }
                ],
            },
        ),
    ],
)
def test_operators(rule: Document, document: Document, details: Document) -> None:
    assert failure_details(rule, document) == details


def test_rules_of_a_schema() -> None:
    schema = {
        "required": ["name", "year"],
        "properties": {
            "name": {"bsonType": "string", "description": "a name"},
            "year": {"bsonType": "int", "minimum": 2017},
            "tags": {"items": {"enum": ["x", "y"]}},
        },
        "additionalProperties": False,
    }
    details = failure_details({"$jsonSchema": schema}, {"name": 1, "tags": ["x", "z"], "other": 1})
    required, properties, additional = details["schemaRulesNotSatisfied"]
    assert required["missingProperties"] == ["year"]
    name, tags = properties["propertiesNotSatisfied"]
    assert name == {
        "propertyName": "name",
        "description": "a name",
        "details": [
            {
                "operatorName": "bsonType",
                "specifiedAs": {"bsonType": "string"},
                "reason": "type did not match",
                "consideredValue": 1,
                "consideredType": "int",
            }
        ],
    }
    assert tags["details"][0]["itemIndex"] == 1
    assert additional["additionalProperties"] == ["other"]
