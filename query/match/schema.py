"""`$jsonSchema`: draft 4 of JSON Schema in MongoDB's dialect.

Each keyword becomes a test on one value. A keyword about numbers, strings, arrays or objects says nothing of other
values.
"""

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

from bson import Binary, Decimal128

from ...common.errors import BadValue, FailedToParse, Location, TypeMismatch
from ...common.numbers import INT64_MAX, INT64_MIN, is_number, whole_number
from ...common.ordering import order_key
from ...common.paths import as_object
from ...common.pcre import PatternError, searcher
from ...common.values import BsonType, Document, type_of
from .base import MatchContext, MatchNode, Predicate, ValueTest, Variables
from .comparison import comparison_test
from .elements import parse_types
from .logical import all_of

_NUMBERS: Final = frozenset((BsonType.DOUBLE, BsonType.INT32, BsonType.INT64, BsonType.DECIMAL128))
_JSON_TYPES: Final[dict[str, frozenset[BsonType]]] = {
    "object": frozenset((BsonType.OBJECT,)),
    "array": frozenset((BsonType.ARRAY,)),
    "number": _NUMBERS,
    "boolean": frozenset((BsonType.BOOL,)),
    "string": frozenset((BsonType.STRING,)),
    "null": frozenset((BsonType.NULL,)),
}
_UNSUPPORTED: Final = frozenset(("$ref", "$schema", "default", "definitions", "format", "id"))
_REMAINDERS: Final = Context(prec=6200)


class JsonSchema(MatchNode):
    """The document satisfies a schema."""

    def __init__(self, schema: Document) -> None:
        self.schema = schema
        self._test = schema_test(schema)

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        return self._test

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {"$jsonSchema": self.schema}

    def fields(self) -> None:
        """See `MatchNode.fields`."""
        return None


def parse_json_schema(operand: Any, _: MatchContext) -> MatchNode:
    """`$jsonSchema: schema`."""
    if not isinstance(operand, dict):
        raise TypeMismatch("$jsonSchema must be an object")
    return JsonSchema(operand)


def schema_test(schema: Document) -> ValueTest:
    """A function that tells whether a value satisfies the schema."""
    if "type" in schema and "bsonType" in schema:
        raise FailedToParse("Cannot specify both $jsonSchema keywords 'type' and 'bsonType'")
    tests: list[ValueTest] = []
    for keyword, operand in schema.items():
        parse = _KEYWORDS.get(keyword)
        if parse is None:
            if keyword in _UNSUPPORTED:
                raise FailedToParse(f"$jsonSchema keyword '{keyword}' is not currently supported")
            raise FailedToParse(f"Unknown $jsonSchema keyword: {keyword}")
        test = parse(keyword, operand, schema)
        if test is not None:
            tests.append(test)
    return all_of(tests)


KeywordParser = Callable[[str, Any, Document], ValueTest | None]


def _wrong(keyword: str, wanted: str) -> TypeMismatch:
    return TypeMismatch(f"$jsonSchema keyword '{keyword}' must be {wanted}")


def _object(keyword: str, operand: Any) -> Document:
    if not isinstance(operand, dict):
        raise _wrong(keyword, "an object")
    return operand


def _array(keyword: str, operand: Any) -> list[Any]:
    if not isinstance(operand, list):
        raise _wrong(keyword, "an array")
    return operand


def _count(keyword: str, operand: Any) -> int:
    if not is_number(operand):
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' must be a number")
    number = whole_number(operand)
    if number is None or not INT64_MIN <= number <= INT64_MAX:
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' must be representable as a 64-bit integer")
    if number < 0:
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' must be a non-negative integer")
    return number


def _schemas(keyword: str, operand: Any) -> list[ValueTest]:
    items = _array(keyword, operand)
    if not items:
        raise BadValue(f"$jsonSchema keyword '{keyword}' must be a non-empty array")
    tests: list[ValueTest] = []
    for item in items:
        if not isinstance(item, dict):
            raise TypeMismatch(
                f"$jsonSchema keyword '{keyword}' must be an array of objects, but found an element of another type"
            )
        tests.append(schema_test(item))
    return tests


# About any value.


def _bson_type(keyword: str, operand: Any, _: Document) -> ValueTest:
    _check_type_names(keyword, operand)
    types, _all = parse_types(operand, name=keyword)
    return lambda value: type_of(value) in types


def _json_type(keyword: str, operand: Any, _: Document) -> ValueTest:
    types: set[BsonType] = set()
    for name in _check_type_names(keyword, operand):
        if name not in _JSON_TYPES:
            raise BadValue(f"Unknown type name alias: {name}")
        types |= _JSON_TYPES[name]
    return lambda value: type_of(value) in types


def _check_type_names(keyword: str, operand: Any) -> list[str]:
    names = operand if isinstance(operand, list) else [operand]
    for name in names:
        if type(name) is not str:
            raise _wrong(keyword, "either a string or an array of strings")
        if name == "integer":
            raise FailedToParse("$jsonSchema type 'integer' is not currently supported.")
    if not names:
        raise FailedToParse(f"{keyword} must name at least one type")
    if len(set(names)) != len(names):
        raise FailedToParse(f"{keyword} has duplicate types")
    return names


def _enum(keyword: str, operand: Any, _: Document) -> ValueTest:
    items = _array(keyword, operand)
    if not items:
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' cannot be an empty array")
    keys = frozenset(order_key(item) for item in items)
    if len(keys) != len(items):
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' array cannot contain duplicate values.")
    return lambda value: order_key(value) in keys


def _all_schemas(keyword: str, operand: Any, _: Document) -> ValueTest:
    return all_of(_schemas(keyword, operand))


def _any_schema(keyword: str, operand: Any, _: Document) -> ValueTest:
    tests = _schemas(keyword, operand)
    return lambda value: any(test(value) for test in tests)


def _one_schema(keyword: str, operand: Any, _: Document) -> ValueTest:
    tests = _schemas(keyword, operand)
    return lambda value: sum(test(value) for test in tests) == 1


def _not_schema(keyword: str, operand: Any, _: Document) -> ValueTest:
    test = schema_test(_object(keyword, operand))
    return lambda value: not test(value)


def _text_only(keyword: str, operand: Any, _: Document) -> None:
    if type(operand) is not str:
        raise TypeMismatch(f"$jsonSchema keyword '{keyword}' must be of type string")


def _encrypt(keyword: str, operand: Any, schema: Document) -> ValueTest:
    _object(keyword, operand)
    if "type" in schema or "bsonType" in schema:
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' cannot be used in conjunction with 'type' or 'bsonType'")
    return lambda value: isinstance(value, Binary) and value.subtype == 6


def _encrypt_metadata(keyword: str, operand: Any, _: Document) -> None:
    _object(keyword, operand)


# About numbers.


def _limit(operator: str, exclusive_operator: str, exclusive: str) -> KeywordParser:
    def parse(keyword: str, operand: Any, schema: Document) -> ValueTest:
        if not is_number(operand):
            raise TypeMismatch(f"$jsonSchema keyword '{keyword}' must be a number")
        test = comparison_test(exclusive_operator if schema.get(exclusive) is True else operator, operand)
        return lambda value: not is_number(value) or test(value)

    return parse


def _exclusive(limit: str) -> KeywordParser:
    def parse(keyword: str, operand: Any, schema: Document) -> None:
        if not isinstance(operand, bool):
            raise _wrong(keyword, "a boolean")
        if limit not in schema:
            raise FailedToParse(f"$jsonSchema keyword '{limit}' must be a present if {keyword} is present")

    return parse


def _multiple_of(keyword: str, operand: Any, _: Document) -> ValueTest:
    if not is_number(operand):
        raise TypeMismatch(f"$jsonSchema keyword '{keyword}' must be a number")
    divisor = _decimal(operand)
    if divisor is None or divisor <= 0:
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' must have a positive value")

    def test(value: Any) -> bool:
        if not is_number(value):
            return True
        number = _decimal(value)
        return number is not None and _REMAINDERS.remainder(number, divisor) == 0

    return test


def _decimal(value: Any) -> Decimal | None:
    """The number as it would be written down, None when it is not finite."""
    number: Decimal
    if isinstance(value, Decimal128):
        number = value.to_decimal()
    elif isinstance(value, float):
        number = Decimal(repr(value))
    else:
        number = Decimal(int(value))
    return number if number.is_finite() else None


# About strings.


def _length(enough: Callable[[int, int], bool]) -> KeywordParser:
    def parse(keyword: str, operand: Any, _: Document) -> ValueTest:
        bound = _count(keyword, operand)
        return lambda value: type(value) is not str or enough(len(value), bound)

    return parse


def _pattern(keyword: str, operand: Any, _: Document) -> ValueTest:
    if type(operand) is not str:
        raise _wrong(keyword, "a string")
    try:
        search = searcher(operand)
    except PatternError as error:
        raise Location(51091, f"Regular expression is invalid: {error}") from error
    return lambda value: type(value) is not str or search(value)


# About arrays.


def _item_count(enough: Callable[[int, int], bool]) -> KeywordParser:
    def parse(keyword: str, operand: Any, _: Document) -> ValueTest:
        bound = _count(keyword, operand)
        return lambda value: type(value) is not list or enough(len(value), bound)

    return parse


def _unique_items(keyword: str, operand: Any, _: Document) -> ValueTest | None:
    if not isinstance(operand, bool):
        raise _wrong(keyword, "a boolean")
    if not operand:
        return None
    return lambda value: type(value) is not list or len({order_key(item) for item in value}) == len(value)


def _items(keyword: str, operand: Any, _: Document) -> ValueTest:
    if isinstance(operand, dict):
        each = schema_test(operand)
        return lambda value: type(value) is not list or all(map(each, value))
    if not isinstance(operand, list):
        raise _wrong(keyword, "an array or an object")
    tests: list[ValueTest] = []
    for item in operand:
        if not isinstance(item, dict):
            raise TypeMismatch(f"$jsonSchema keyword '{keyword}' requires that each element of the array is an object")
        tests.append(schema_test(item))
    return lambda value: type(value) is not list or all(test(item) for test, item in zip(tests, value, strict=False))


def _additional_items(keyword: str, operand: Any, schema: Document) -> ValueTest | None:
    test = _bool_or_schema(keyword, operand)
    items = schema.get("items")
    if not isinstance(items, list):
        return None
    first = len(items)
    return lambda value: type(value) is not list or all(map(test, value[first:]))


def _bool_or_schema(keyword: str, operand: Any) -> ValueTest:
    if isinstance(operand, bool):
        return lambda _: operand
    if not isinstance(operand, dict):
        raise _wrong(keyword, "either an object or a boolean")
    return schema_test(operand)


# About objects.


def _on_object(test: Callable[[Document], bool]) -> ValueTest:
    def on_value(value: Any) -> bool:
        document = as_object(value)
        return document is None or test(document)

    return on_value


def _required(keyword: str, operand: Any, _: Document) -> ValueTest:
    names = _names(keyword, operand)
    return _on_object(lambda document: all(name in document for name in names))


def _names(keyword: str, operand: Any) -> list[str]:
    names = _array(keyword, operand)
    if not names:
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' cannot be an empty array")
    for name in names:
        if type(name) is not str:
            raise TypeMismatch(f"$jsonSchema keyword '{keyword}' must be an array of strings")
    if len(set(names)) != len(names):
        raise FailedToParse(f"$jsonSchema keyword '{keyword}' array cannot contain duplicate values")
    return names


def _properties(keyword: str, operand: Any, _: Document) -> ValueTest:
    tests: dict[str, ValueTest] = {}
    for name, item in _object(keyword, operand).items():
        if not isinstance(item, dict):
            raise TypeMismatch(f"Nested schema for $jsonSchema property '{name}' must be an object")
        tests[name] = schema_test(item)
    return _on_object(lambda document: all(test(document[name]) for name, test in tests.items() if name in document))


def _pattern_tests(operand: Document) -> list[tuple[Callable[[str], bool], ValueTest]]:
    rows = []
    for pattern, item in operand.items():
        if not isinstance(item, dict):
            raise TypeMismatch(
                f"$jsonSchema keyword 'patternProperties' has property '{pattern}' which is not an object"
            )
        try:
            rows.append((searcher(pattern), schema_test(item)))
        except PatternError as error:
            raise BadValue(
                f"$jsonSchema keyword 'patternProperties' has an invalid regular expression '{pattern}': {error}"
            ) from error
    return rows


def _pattern_properties(keyword: str, operand: Any, _: Document) -> ValueTest:
    rows = _pattern_tests(_object(keyword, operand))
    return _on_object(
        lambda document: all(test(value) for name, value in document.items() for matches, test in rows if matches(name))
    )


def _additional_properties(keyword: str, operand: Any, schema: Document) -> ValueTest:
    test = _bool_or_schema(keyword, operand)
    named = frozenset(schema.get("properties") or ())
    patterns = schema.get("patternProperties")
    rows = _pattern_tests(patterns) if isinstance(patterns, dict) else []
    return _on_object(
        lambda document: all(
            test(value)
            for name, value in document.items()
            if name not in named and not any(matches(name) for matches, _ in rows)
        )
    )


def _property_count(enough: Callable[[int, int], bool]) -> KeywordParser:
    def parse(keyword: str, operand: Any, _: Document) -> ValueTest:
        bound = _count(keyword, operand)
        return _on_object(lambda document: enough(len(document), bound))

    return parse


def _dependencies(keyword: str, operand: Any, _: Document) -> ValueTest:
    rows: list[tuple[str, ValueTest]] = []
    for name, item in _object(keyword, operand).items():
        if isinstance(item, dict):
            rows.append((name, schema_test(item)))
        elif isinstance(item, list):
            rows.append((name, _required(f"{keyword}.{name}", item, {})))
        else:
            raise TypeMismatch(f"$jsonSchema keyword '{keyword}' property '{name}' must be an object or an array")
    return _on_object(lambda document: all(test(document) for name, test in rows if name in document))


def _at_least(found: int, bound: int) -> bool:
    return found >= bound


def _at_most(found: int, bound: int) -> bool:
    return found <= bound


_KEYWORDS: Final[dict[str, KeywordParser]] = {
    "additionalItems": _additional_items,
    "additionalProperties": _additional_properties,
    "allOf": _all_schemas,
    "anyOf": _any_schema,
    "bsonType": _bson_type,
    "dependencies": _dependencies,
    "description": _text_only,
    "encrypt": _encrypt,
    "encryptMetadata": _encrypt_metadata,
    "enum": _enum,
    "exclusiveMaximum": _exclusive("maximum"),
    "exclusiveMinimum": _exclusive("minimum"),
    "items": _items,
    "maxItems": _item_count(_at_most),
    "maxLength": _length(_at_most),
    "maxProperties": _property_count(_at_most),
    "maximum": _limit("$lte", "$lt", "exclusiveMaximum"),
    "minItems": _item_count(_at_least),
    "minLength": _length(_at_least),
    "minProperties": _property_count(_at_least),
    "minimum": _limit("$gte", "$gt", "exclusiveMinimum"),
    "multipleOf": _multiple_of,
    "not": _not_schema,
    "oneOf": _one_schema,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "properties": _properties,
    "required": _required,
    "title": _text_only,
    "type": _json_type,
    "uniqueItems": _unique_items,
}
