"""Which rules of a `$jsonSchema` a value breaks, in the form of `schemaRulesNotSatisfied`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ...common.ordering import equal
from ...common.values import Document, type_name
from .schema import schema_test

_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bsonType": "type did not match",
        "enum": "value was not found in enum",
        "maxItems": "array did not match specified length",
        "maxLength": "specified string length was not satisfied",
        "maximum": "comparison failed",
        "minItems": "array did not match specified length",
        "minLength": "specified string length was not satisfied",
        "minimum": "comparison failed",
        "multipleOf": "considered value is not a multiple of the specified value",
        "pattern": "regular expression did not match",
        "type": "type did not match",
    }
)
_TOGETHER: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "additionalItems": ("items",),
        "additionalProperties": ("properties", "patternProperties"),
        "maximum": ("exclusiveMaximum",),
        "minimum": ("exclusiveMinimum",),
    }
)
"""Keywords that mean nothing without others."""
_WORDS: Final = frozenset({"title", "description", "exclusiveMaximum", "exclusiveMinimum"})


def schema_failures(schema: Document, value: Any) -> list[Document]:
    """A document for each keyword of the schema that the value breaks."""
    failures = []
    for keyword, operand in schema.items():
        if keyword in _WORDS:
            continue
        part = {keyword: operand, **{name: schema[name] for name in _TOGETHER.get(keyword, ()) if name in schema}}
        if keyword in _TOGETHER and keyword.startswith("additional"):
            # What these two keywords say of named members is another rule's matter.
            part = {name: _without_rules(name, inner) for name, inner in part.items()}
        if not schema_test(part)(value):
            failures.append(_failure(keyword, operand, schema, value))
    return failures


def _without_rules(name: str, operand: Any) -> Any:
    if name in ("properties", "patternProperties") and isinstance(operand, dict):
        return {key: {} for key in operand}
    if name == "items" and isinstance(operand, list):
        return [{} for _ in operand]
    return operand


def _failure(keyword: str, operand: Any, schema: Document, value: Any) -> Document:
    specified = {keyword: operand}
    for name in ("exclusiveMaximum", "exclusiveMinimum"):
        if name in schema and name.lower().endswith(keyword):
            specified[name] = schema[name]
    told: Document = {"operatorName": keyword}
    match keyword:
        case "required":
            return {
                **told,
                "specifiedAs": specified,
                "missingProperties": [name for name in operand if name not in value],
            }
        case "properties":
            rows = []
            for name, inner in operand.items():
                if name in value and not schema_test(inner)(value[name]):
                    words = {word: inner[word] for word in ("title", "description") if word in inner}
                    rows.append({"propertyName": name, **words, "details": schema_failures(inner, value[name])})
            return {**told, "propertiesNotSatisfied": rows}
        case "additionalProperties" if operand is False:
            known = schema.get("properties", {})
            return {
                **told,
                "specifiedAs": specified,
                "additionalProperties": [name for name in value if name not in known],
            }
        case "minProperties" | "maxProperties":
            return {
                **told,
                "specifiedAs": specified,
                "reason": "specified number of properties was not satisfied",
                "numberOfProperties": len(value),
            }
        case "items" if isinstance(operand, dict):
            at = next((at for at, item in enumerate(value) if not schema_test(operand)(item)), 0)
            return {
                **told,
                "reason": "At least one item did not match the sub-schema",
                "itemIndex": at,
                "details": schema_failures(operand, value[at]),
            }
        case "uniqueItems":
            twice = next((item for at, item in enumerate(value) if any(equal(item, one) for one in value[:at])), None)
            return {
                **told,
                "specifiedAs": specified,
                "reason": "found a duplicate item",
                "consideredValue": value,
                "duplicatedValue": twice,
            }
        case "allOf" | "anyOf" | "oneOf":
            return {**told, **_alternatives(keyword, operand, value)}
        case "not":
            return {**told, "reason": "child expression matched"}
    told |= {"specifiedAs": specified, "reason": _REASONS.get(keyword, "expression did not match")}
    told["consideredValue"] = value
    if keyword in ("bsonType", "type"):
        told["consideredType"] = type_name(value)
    return told


def _alternatives(keyword: str, schemas: list[Document], value: Any) -> Document:
    kept = [at for at, schema in enumerate(schemas) if schema_test(schema)(value)]
    if keyword == "oneOf" and kept:
        return {"reason": "more than one subschema matched", "matchingSchemaIndexes": kept}
    return {
        "schemasNotSatisfied": [
            {"index": at, "details": schema_failures(schema, value)}
            for at, schema in enumerate(schemas)
            if at not in kept
        ]
    }
