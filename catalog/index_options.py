"""What a client may ask of an index: key patterns and options, checked in MongoDB's order and with its codes.

67 (CannotCreateIndex) is for what no index can be, 197 for options that do not exist or do not belong, 14 for values of
the wrong type, 9 for a missing `key` or `name`.
"""

import math
from typing import Any, Final, Literal

from bson import Decimal128

from ..common.collation import Collation
from ..common.display import value_text
from ..common.errors import (
    BadValue,
    CannotCreateIndex,
    FailedToParse,
    InvalidIndexSpecificationOption,
    InvalidOptions,
    Location,
    MongoError,
    QueryFeatureNotAllowed,
    TypeMismatch,
)
from ..common.numbers import is_number
from ..common.values import Document, type_name
from .text_options import set_text_options
from .wildcard_projections import check_wildcard_projection, is_projected

IndexKind = Literal["btree", "hashed", "text", "2d", "2dsphere", "2dsphere_bucket", "wildcard"]

FIELDS_MAX: Final = 32
ID_INDEX_NAME: Final = "_id_"
TTL_SECONDS_MAX: Final = 2**31 - 1
_SPECIAL: Final = frozenset({"text", "hashed", "2d", "2dsphere", "2dsphere_bucket"})
_ID_OPTIONS: Final = frozenset({"key", "name", "ns", "v", "collation", "clustered"})
_NOT_SHOWN: Final = frozenset({"ns", "background", "dropDups", "safe"})
_TRUTHS: Final = frozenset({"unique", "sparse", "prepareUnique", "clustered", "background", "dropDups", "safe"})
_OBJECTS: Final = frozenset({"partialFilterExpression", "collation", "storageEngine", "originalSpec"})
_NUMBERS: Final = frozenset({"bits", "min", "max", "bucketSize", "2dsphereIndexVersion", "textIndexVersion"})
_STRINGS: Final = frozenset({"default_language", "language_override", "name", "ns"})
_OTHERS: Final = frozenset({"key", "v", "hidden", "expireAfterSeconds", "weights", "wildcardProjection"})
OPTIONS: Final = _TRUTHS | _OBJECTS | _NUMBERS | _STRINGS | _OTHERS

_PARTIAL_OPERATORS: Final = frozenset(
    {"$eq", "$gt", "$gte", "$lt", "$lte", "$type", "$in", "$all", "$exists", "$geoWithin", "$geoIntersects", "$within"}
)
_PARTIAL_UNKNOWN: Final = frozenset({"$where", "$text", "$near", "$nearSphere", "$geoNear"})


def parse_specification(
    spec: Document, *, default_collation: Document | None = None, ignore_unknown: bool = False
) -> Document:
    """The specification as the catalog keeps it: `v`, `key`, `name`, then the options in their order.

    Args:
        spec: as `createIndexes` takes it.
        default_collation: what an index without `collation` inherits, fully expanded.
        ignore_unknown: pass over options that do not exist.

    Raises:
        CannotCreateIndex, InvalidIndexSpecificationOption, FailedToParse, BadValue, TypeMismatch, InvalidOptions, Location
    """
    document: Document = {"v": 2, "key": {}, "name": ""}
    for name, value in spec.items():
        if name not in OPTIONS:
            if ignore_unknown:
                continue
            raise InvalidIndexSpecificationOption(
                f"The field '{name}' is not valid for an index specification. Specification: {value_text(spec)}"
            )
        checked = _option(name, value, spec)
        if name not in _NOT_SHOWN:
            document[name] = checked
    for name in ("key", "name"):
        if name not in spec:
            raise FailedToParse(f"The '{name}' field is a required property of an index specification")
    if is_id_pattern(document["key"]):
        return _id_specification(spec, document, default_collation)
    if document["name"] == ID_INDEX_NAME:
        raise BadValue(
            "The index name '_id_' is reserved for the _id index, which must have key pattern {_id: 1}, found key: "
            f"{value_text(spec['key'])}"
        )
    _set_collation(document, default_collation)
    _check_combination(document)
    return {name: value for name, value in document.items() if not _is_default(name, value)}


def is_id_pattern(key: Document) -> bool:
    """Whether the key is `_id` alone, in either direction."""
    return list(key) == ["_id"] and is_number(key["_id"]) and int(_number(key["_id"])) in (1, -1)


def is_id_key(key: Document) -> bool:
    """Whether the key is that of the index on `_id`."""
    return is_id_pattern(key) and _number(key["_id"]) > 0


def is_wildcard_path(path: str) -> bool:
    """Whether the path stands for every path (below another)."""
    return path == "$**" or path.endswith(".$**")


def kind_of(key: Document) -> IndexKind:
    """What kind of index a checked key makes, by its first special field."""
    for path, value in key.items():
        if isinstance(value, str):
            return value  # type: ignore[return-value]  # checked by `check_key`
        if is_wildcard_path(path):
            return "wildcard"
    return "btree"


def ttl_seconds(value: Any, spec: Document) -> int:
    """`expireAfterSeconds` of an index, checked; fractions are cut.

    Raises:
        CannotCreateIndex: no number, NaN, negative, or beyond 2147483647.
    """

    def refuse(text: str) -> MongoError:
        return CannotCreateIndex(f"{text}. Index spec: {value_text(spec)}")

    if not is_number(value):
        raise refuse(
            f"TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{type_name(value)}'"
        )
    number = _number(value)
    if math.isnan(number):
        raise refuse("TTL index 'expireAfterSeconds' option must not be NaN")
    if abs(number) > TTL_SECONDS_MAX:
        raise refuse("TTL index 'expireAfterSeconds' option must be within an acceptable range, try a different number")
    if number < 0:
        raise refuse("TTL index 'expireAfterSeconds' option cannot be less than 0")
    return int(number)


def check_key(key: Document) -> None:
    """Refuse a key that no index can have.

    Raises:
        CannotCreateIndex: empty, with a value that is neither a number but 0 nor the name of a kind, or a bad path.
        Location: 13103 for more than 32 fields, 31303 for several hashed ones, 7246201 for several wildcards.
    """
    if not key:
        raise CannotCreateIndex("Index keys cannot be an empty object")
    if len(key) > FIELDS_MAX:
        raise Location(13103, f"too many compound keys, the maximum is {FIELDS_MAX}")
    for path, value in key.items():
        _check_key_value(key, path, value)
        _check_path(key, path, value)
    if sum(value == "hashed" for value in key.values()) > 1:
        raise Location(31303, "A maximum of one index field is allowed to be hashed but found more")
    wildcards = [path for path in key if is_wildcard_path(path)]
    if len(wildcards) > 1:
        raise Location(7246201, "compound wildcard indexes only allow one wildcard field")
    kinds = {value for value in key.values() if isinstance(value, str)}
    if len(kinds) > 1 or (wildcards and kinds and kinds != {"text"}):
        raise CannotCreateIndex(f"Can't use more than one index plugin for a single index: {value_text(key)}")
    texts = [position for position, value in enumerate(key.values()) if value == "text"]
    if texts and texts[-1] - texts[0] + 1 != len(texts):
        raise CannotCreateIndex("'text' fields in index must all be adjacent")


def _number(value: Any) -> float:
    return float(value.to_decimal()) if isinstance(value, Decimal128) else float(value)


def _check_key_value(key: Document, path: str, value: Any) -> None:
    if type_name(value) == "string":
        if value == "wildcard" and not is_wildcard_path(path):
            raise Location(7246202, "The key pattern for a wildcard index must have a wildcard field")
        if value not in _SPECIAL:
            raise CannotCreateIndex(f"Unknown index plugin '{value}'")
    elif not is_number(value):
        raise CannotCreateIndex(
            f"Values in v:2 index key pattern cannot be of type {type_name(value)}. Only numbers > 0, numbers < 0, and "
            "strings are allowed."
        )
    elif math.isnan(_number(value)):
        raise CannotCreateIndex("Values in the index key pattern cannot be NaN.")
    elif _number(value) == 0:
        raise CannotCreateIndex("Values in the index key pattern cannot be 0.")


def _check_path(key: Document, path: str, value: Any) -> None:
    if path == "":
        raise CannotCreateIndex("Index keys cannot be an empty field.")
    if value == "text" and path == "_fts":
        return
    checked = path
    if is_wildcard_path(path):
        checked = path.removesuffix("$**").removesuffix(".")
        if checked == "":
            return
    for part in checked.split("."):
        if part == "":
            raise CannotCreateIndex("Index keys cannot contain an empty field.")
        if part.startswith("$") and part not in ("$id", "$ref", "$db"):
            raise CannotCreateIndex(
                f"Index key contains an illegal field name: field name starts with '$': {value_text(key)}"
            )


def _option(name: str, value: Any, spec: Document) -> Any:
    """The value of an option, of the right type."""
    if name == "key":
        if not isinstance(value, dict):
            raise _wrong_type(name, value, "object")
        check_key(value)
        return value
    if name in _STRINGS:
        if type_name(value) != "string":
            raise _wrong_type(name, value, "string")
        if name == "name":
            _check_name(value)
        return value
    if name == "v":
        return _version(value, spec)
    if name == "hidden":
        if not isinstance(value, bool):
            raise _wrong_type(name, value, "bool")
        return value
    if name in _TRUTHS:
        if not isinstance(value, bool) and not is_number(value):
            raise TypeMismatch(
                f"The field '{name}' has value {name}: {value_text(value)}, which is not convertible to bool"
            )
        return _number(value) != 0
    if name in _OBJECTS:
        if not isinstance(value, dict):
            raise _wrong_type(name, value, "object")
        if name == "partialFilterExpression":
            _check_partial_filter(value)
        return value
    if name in _NUMBERS:
        if not is_number(value):
            raise _wrong_type(name, value, "number")
        return value
    if name == "expireAfterSeconds":
        return ttl_seconds(value, spec)
    if name == "wildcardProjection":
        return check_wildcard_projection(value, spec.get("key"))
    if name == "weights" and not isinstance(value, dict):
        if type_name(value) in ("string", "array"):
            raise CannotCreateIndex("weights must be an object")
        raise _wrong_type(name, value, "object")
    return value


def _wrong_type(name: str, value: Any, expected: str) -> TypeMismatch:
    article = "an" if expected[0] in "aeiou" else "a"
    return TypeMismatch(f"The field '{name}' must be {article} {expected}, but got {type_name(value)}")


def _check_name(name: str) -> None:
    if name == "":
        raise CannotCreateIndex("index name cannot be empty")
    if name == "*":
        raise BadValue("The index name '*' is not valid.")
    if "\0" in name:
        raise CannotCreateIndex("index name cannot contain NUL bytes")


def _version(value: Any, spec: Document) -> int:
    if not is_number(value):
        raise _wrong_type("v", value, "number")
    if not _number(value).is_integer():
        raise BadValue(f"Index version must be representable as a 32-bit integer, but got {value_text(value)}")
    if _number(value) not in (1, 2):
        raise CannotCreateIndex(
            f"Invalid index specification {value_text(spec)}; cannot create an index with v={value_text(value)}"
        )
    return int(_number(value))


def _id_specification(spec: Document, document: Document, default_collation: Document | None) -> Document:
    """The specification of the index on `_id`, which is given its name and may have next to no options."""
    if not is_id_key(document["key"]):
        raise BadValue(f"The field 'key' for an _id index must be {{_id: 1}}, but got {value_text(document['key'])}")
    for name in spec:
        allowed = name in _ID_OPTIONS or (name == "unique" and document.get("clustered"))
        if not allowed and name in OPTIONS:
            raise InvalidIndexSpecificationOption(
                f"The field '{name}' is not valid for an _id index specification. Specification: {value_text(spec)}"
            )
    _set_collation(document, default_collation)
    kept: Document = {"v": document["v"], "key": {"_id": 1}, "name": ID_INDEX_NAME}
    if "collation" in document:
        kept["collation"] = document["collation"]
    return kept


def _set_collation(document: Document, default: Document | None) -> None:
    if "collation" in document:
        if not document["collation"]:
            raise BadValue("The field 'collation' cannot be an empty object.")
        collation = Collation.parse(document["collation"])
        if collation is None:
            del document["collation"]
        else:
            document["collation"] = collation.to_document()
    elif default is not None:
        document["collation"] = default


def _is_default(name: str, value: Any) -> bool:
    """Whether `listIndexes` leaves the option out."""
    return value is False and name in ("unique", "sparse", "hidden", "prepareUnique", "clustered")


def _check_combination(document: Document) -> None:
    """Refuse options that do not go together or not with this key."""
    key, kind = document["key"], kind_of(document["key"])
    if document.get("sparse") and "partialFilterExpression" in document:
        raise CannotCreateIndex('cannot mix "partialFilterExpression" and "sparse" options')
    if "expireAfterSeconds" in document and len(key) > 1:
        raise CannotCreateIndex(
            "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: "
            f"{value_text(document)}"
        )
    if kind == "hashed" and document.get("unique"):
        raise Location(16764, "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.")
    if kind == "wildcard":
        _check_wildcard(document)
    if kind == "text":
        set_text_options(document)
    elif "weights" in document:
        raise CannotCreateIndex("weights are only allowed in a text index")
    if kind == "2d":
        _check_2d(document)
    places = kind in ("2dsphere", "2dsphere_bucket")
    if places and "2dsphereIndexVersion" in document:
        version = document["2dsphereIndexVersion"]
        if isinstance(version, Decimal128) or _number(version) not in (1, 2, 3):
            raise CannotCreateIndex(f"unsupported geo index version {{ 2dsphereIndexVersion: {value_text(version)} }}")
        document["2dsphereIndexVersion"] = int(_number(version))
    elif places:
        document["2dsphereIndexVersion"] = 3
    if document.get("clustered") and not document.get("unique"):
        raise CannotCreateIndex("The 'clustered' option requires 'unique' to be true")


def _check_wildcard(document: Document) -> None:
    key = document["key"]
    for option in ("unique", "sparse", "expireAfterSeconds"):
        if document.get(option) or (option == "expireAfterSeconds" and option in document):
            raise CannotCreateIndex(f"Index type 'wildcard' does not support the {option} option")
    if document["v"] != 2:
        raise CannotCreateIndex("Index type 'wildcard' requires index version v:2")
    projection = document.get("wildcardProjection")
    others = [path for path in key if not is_wildcard_path(path)]
    if not others:
        return
    scope = next(path for path in key if is_wildcard_path(path)).removesuffix("$**").removesuffix(".")
    if scope == "" and projection is None:
        raise CannotCreateIndex(
            "wildcardProjection is required for a compound wildcard index on all fields: it must exclude the other fields"
        )
    for path in others:
        inside = scope != "" and (path == scope or path.startswith(scope + "."))
        if inside or (projection is not None and is_projected(projection, path)):
            raise Location(
                7246209, f"wildcardProjection must exclude all regular index fields, but does not exclude '{path}'"
            )


def _check_2d(document: Document) -> None:
    bits = document.get("bits", 26)
    if isinstance(bits, Decimal128) or not 1 <= int(_number(bits)) <= 32:
        raise InvalidOptions(f"bits in geo index must be between 1 and 32 but got {value_text(bits)}")
    low, high = _number(document.get("min", -180)), _number(document.get("max", 180))
    if not low < high:
        raise InvalidOptions(f"region for hash must be valid and have positive area, but [{low}, {high}] was specified")
    if document.get("collation") is not None:
        raise CannotCreateIndex("Index type '2d' does not support collation")
    if "bits" in document:
        document["bits"] = int(_number(bits))


def _check_partial_filter(filter: Document) -> None:
    """Refuse operators that a partial index cannot have; what is malformed is left to whoever compiles the filter."""
    for name, value in filter.items():
        if name == "$expr":
            raise QueryFeatureNotAllowed("$expr is not allowed in this context")
        if name in _PARTIAL_UNKNOWN:
            raise BadValue(f"{name} is not allowed in this context")
        if name in ("$and", "$or"):
            for branch in value if isinstance(value, list) else ():
                if isinstance(branch, dict):
                    _check_partial_filter(branch)
        elif name.startswith("$") and name != "$comment":
            raise _not_in_partial(name, filter)
        elif type_name(value) == "regex":
            raise _not_in_partial("$regex", filter)
        elif isinstance(value, dict) and next(iter(value), "").startswith("$"):
            _check_partial_operators(name, value)


def _check_partial_operators(path: str, operators: Document) -> None:
    for operator, operand in operators.items():
        if operator in _PARTIAL_UNKNOWN:
            raise BadValue(f"{operator} is not allowed in this context")
        if operator in ("$ref", "$id", "$db"):
            return
        truth = operand if isinstance(operand, bool) else not is_number(operand) or _number(operand) != 0
        if operator not in _PARTIAL_OPERATORS or (operator == "$exists" and not truth):
            raise _not_in_partial(operator, {path: operators})
        if (
            operator in ("$in", "$all")
            and isinstance(operand, list)
            and any(type_name(item) == "regex" for item in operand)
        ):
            raise _not_in_partial("$regex", {path: operators})


def _not_in_partial(operator: str, where: Document) -> CannotCreateIndex:
    return CannotCreateIndex(f"Expression not supported in partial index: {operator} in {value_text(where)}")
