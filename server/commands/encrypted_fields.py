"""`encryptedFields` of `create`: read and checked; a standalone server then refuses what is right, too."""

from typing import Any, Final

from bson import Binary, Decimal128

from ...common.errors import BadValue, FailedToParse, InvalidUUID, Location, TypeMismatch
from ...common.ordering import order_key
from ...common.values import Document, type_name
from .arguments import Fields

_UUID_BYTES: Final = 16
_TYPES: Final = frozenset(
    {
        "array", "binData", "bool", "date", "dbPointer", "decimal", "double", "int", "javascript", "javascriptWithScope",
        "long", "object", "objectId", "regex", "string", "symbol", "timestamp",
    }
)  # fmt: skip
_OTHER_TYPES: Final = frozenset({"null", "undefined", "minKey", "maxKey", "number"})
_RANGE_TYPES: Final = frozenset({"date", "decimal", "double", "int", "long"})
_STRING_QUERIES: Final = ("substringPreview", "suffixPreview", "prefixPreview")
_QUERIES: Final = ("equality", "range", "rangePreview", *_STRING_QUERIES)
_QUERY_FIELDS: Final = (
    "queryType", "contention", "sparsity", "min", "max", "trimFactor", "precision", "strMinQueryLength",
    "strMaxQueryLength", "strMaxLength", "caseSensitive", "diacriticSensitive",
)  # fmt: skip
_QUERIES_MAX: Final = 2


def check_encrypted_fields(fields: Fields, document: Document) -> None:
    """Refuse what describes no encrypted fields.

    Raises:
        MongoError
    """
    inner = Fields(
        document,
        fields.path("encryptedFields"),
        known=("fields", "escCollection", "ecocCollection", "eccCollection", "strEncodeVersion"),
    )
    paths: list[str] = []
    for position, row in enumerate(inner.take_list("fields")):
        if not isinstance(row, dict):
            raise inner.wrong_type(f"fields.{position}", row, "type 'object'")
        paths.append(_check_field(Fields(row, inner.path("fields"), known=("path", "keyId", "bsonType", "queries"))))
    for path in paths:
        if paths.count(path) > 1:
            raise Location(6338402, f"Duplicate paths are not allowed: {path}")


def _check_field(field: Fields) -> str:
    path = field.take_string("path")
    key = field.take_any("keyId")
    if not isinstance(key, Binary) or key.subtype != 4:
        raise field.wrong_type("keyId", key, "type 'binData'")
    if len(key) != _UUID_BYTES:
        raise InvalidUUID("uuid must be a 16-byte binary field with UUID (4) subtype")
    if path == "":
        raise Location(6316402, "Encrypted field must have a non-empty path")
    if "\0" in path:
        raise Location(9867600, "the path of an encrypted field must not contain null bytes")
    if path == "_id" or path.startswith("_id."):
        raise Location(6316403, "Cannot encrypt _id or its subfields")
    kind = field.take_string("bsonType", default=None)
    if kind is not None and kind not in _TYPES:
        if kind in _OTHER_TYPES:
            raise Location(6338406, f"Type '{kind}' is not a supported encrypted type")
        raise BadValue(f"Unknown type name alias: {kind}")
    queries = field.take_any("queries", default=())
    if queries == ():
        return path
    if isinstance(queries, dict):
        queries = [queries]
    elif not isinstance(queries, list):
        raise field.wrong_type("queries", queries, "types '[array, object]'")
    elif not queries:
        raise Location(9783412, "At least one query type must be present")
    asked = [_check_query(field, row, kind) for row in queries]
    if len(asked) > _QUERIES_MAX:
        raise Location(9783413, f"The number of query types for an encrypted field cannot exceed {_QUERIES_MAX}")
    if len(asked) > 1 and any(name not in ("suffixPreview", "prefixPreview") for name in asked):
        raise Location(9783414, "Multiple query types may only include the suffixPreview and prefixPreview query types")
    return path


def _check_query(field: Fields, row: Any, kind: str | None) -> str:
    if not isinstance(row, dict):
        raise TypeMismatch(f"an element of '{field.path('queries')}' must be an object, found {type_name(row)}")
    query = Fields(row, field.path("queries"), known=_QUERY_FIELDS)
    name = str(query.take_enum("queryType", _QUERIES))
    _whole(query, "contention", 0)
    _whole(query, "sparsity", 1)
    _whole(query, "trimFactor", 0)
    if name.startswith("range"):
        _check_range(row, kind)
    if name in _STRING_QUERIES:
        _check_strings(query, kind)
    return name


def _whole(query: Fields, name: str, low: int) -> int | None:
    value = query.take_any(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
        raise query.wrong_type(name, value, "types '[long, int, decimal, double]'")
    number = float(value.to_decimal()) if isinstance(value, Decimal128) else value
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        raise FailedToParse(f"Expected an integer: {name}: {number}")
    if number < low:
        raise BadValue(f"BSON field '{name}' value must be >= {low}, actual value '{int(number)}'")
    return int(number)


def _check_range(row: Document, kind: str | None) -> None:
    if kind not in _RANGE_TYPES:
        raise Location(6775201, f"Type '{kind}' is not a supported range indexed type")
    low, high = row.get("min"), row.get("max")
    for bound in (low, high):
        if bound is not None and type_name(bound) != kind:
            raise Location(7018200, f"Range indexed field and its bounds must have the same type: {kind}")
    if low is not None and high is not None and not order_key(low) < order_key(high):
        raise Location(6720005, "Range min must be less than the range max")


def _check_strings(query: Fields, kind: str | None) -> None:
    if kind != "string":
        raise Location(9783400, f"Type '{kind}' is not a supported string indexed type")
    if query.has("caseSensitive"):
        query.take_bool("caseSensitive", exact=True)
    if query.has("diacriticSensitive"):
        query.take_bool("diacriticSensitive", exact=True)
    low, high = _whole(query, "strMinQueryLength", 1), _whole(query, "strMaxQueryLength", 1)
    if low is None:
        raise Location(9783402, "strMinQueryLength parameter is required for string query types")
    if high is None:
        raise Location(9783403, "strMaxQueryLength parameter is required for string query types")
    if not query.has("caseSensitive"):
        raise Location(9783404, "caseSensitive parameter is required for string query types")
    if not query.has("diacriticSensitive"):
        raise Location(9783405, "diacriticSensitive parameter is required for string query types")
    if low > high:
        raise Location(9783406, "strMinQueryLength must be less than or equal to strMaxQueryLength")
