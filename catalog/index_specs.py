"""Index specifications: what a client may ask for, checked, and what the catalog keeps.

Rules and codes are those of the `createIndexes` command: 67 (CannotCreateIndex) for what no index can be, 197 for
options that do not exist or do not belong, 9 for a missing `key` or `name`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from bson import Decimal128, Int64

from ..common.collation import Collation
from ..common.display import value_text
from ..common.errors import (
    BadValue,
    CannotCreateIndex,
    FailedToParse,
    InvalidIndexSpecificationOption,
    Location,
    MongoError,
    TypeMismatch,
)
from ..common.ordering import equal
from ..common.values import Document, type_name

IndexKind = Literal["btree", "hashed", "text", "2d", "2dsphere", "2dsphere_bucket", "wildcard"]

FIELDS_MAX: Final = 32
INDEXES_MAX: Final = 64
ID_INDEX_NAME: Final = "_id_"
TTL_SECONDS_MAX: Final = 2**31 - 1
_SPECIAL: Final = frozenset({"text", "hashed", "2d", "2dsphere", "2dsphere_bucket"})
_OPTIONS: Final = frozenset(
    {
        "2dsphereIndexVersion", "background", "bits", "bucketSize", "clustered", "collation", "default_language",
        "dropDups", "expireAfterSeconds", "hidden", "key", "language_override", "max", "min", "name", "ns",
        "originalSpec", "partialFilterExpression", "prepareUnique", "sparse", "storageEngine", "textIndexVersion",
        "unique", "v", "weights", "wildcardProjection",
    }
)  # fmt: skip
_ID_OPTIONS: Final = frozenset(
    {"key", "name", "ns", "v", "collation", "clustered", "unique", "background", "storageEngine"}
)
_NOT_SHOWN: Final = frozenset({"ns", "background", "dropDups"})


@dataclass(slots=True)
class IndexState:
    """What the server learns of an index while it serves; shared by all copies of the index's specification.

    Attributes:
        multikey_paths: for each key field, the number of path components (from 1) that were arrays in some document.
        long_keys: some key was cut to fit; such keys are in no order among themselves, so the index gives no sort.
        make_keys: the keys of a raw document and the path components that were arrays in it.
        accepts: for a partial index, whether a raw document matches its filter.
        accesses: plans that used it since `since_ms`.
    """

    multikey_paths: tuple[tuple[int, ...], ...] = ()
    long_keys: bool = False
    make_keys: Callable[[bytes], tuple[list[bytes], list[list[int]] | None]] | None = None
    accepts: Callable[[bytes], bool] | None = None
    accesses: int = 0
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """One index.

    Attributes:
        id: number under which its entries are kept; 0 until the catalog has given one.
        document: the specification as `listIndexes` shows it (`v`, `key`, `name`, then the options in their order).
        building: entries are still being made; writers keep it up, and no plan uses it.
        state: what the server learns of it.
    """

    document: Document
    id: int = 0
    building: bool = False
    state: IndexState = field(default_factory=IndexState, compare=False)

    @property
    def name(self) -> str:
        """Its name, unique in its collection."""
        return str(self.document["name"])

    @property
    def key(self) -> Document:
        """Paths and their directions or kinds, in order."""
        return dict(self.document["key"])

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the key."""
        return tuple(self.document["key"])

    @property
    def descending(self) -> tuple[bool, ...]:
        """For each path, whether its values are kept from the highest."""
        return tuple(is_number(value) and float(str(value)) < 0 for value in self.document["key"].values())

    @property
    def kind(self) -> IndexKind:
        """What kind of index it is, by its first special field."""
        return kind_of(self.document["key"])

    @property
    def unique(self) -> bool:
        """Whether two documents may not share a key."""
        return bool(self.document.get("unique")) or self.is_id

    @property
    def sparse(self) -> bool:
        """Whether documents without any of the fields are left out."""
        return bool(self.document.get("sparse"))

    @property
    def hidden(self) -> bool:
        """Whether plans may not use it."""
        return bool(self.document.get("hidden"))

    @property
    def is_id(self) -> bool:
        """Whether it is the index on `_id`."""
        return bool(self.document["name"] == ID_INDEX_NAME)

    @property
    def multikey(self) -> bool:
        """Whether some document has more than one entry."""
        return any(self.state.multikey_paths)

    @property
    def multikey_paths(self) -> tuple[tuple[int, ...], ...]:
        """See `IndexState.multikey_paths`."""
        return self.state.multikey_paths

    @property
    def partial_filter(self) -> Document | None:
        """The filter that a document must match to be indexed."""
        return self.document.get("partialFilterExpression")

    @property
    def expire_after_seconds(self) -> int | None:
        """Lifetime of documents after the date in the field; None where they stay."""
        value = self.document.get("expireAfterSeconds")
        return None if value is None else int(value)

    @property
    def collation(self) -> Collation | None:
        """The collation of its strings."""
        stored = self.document.get("collation")
        return None if stored is None else Collation.parse(stored)

    def to_document(self) -> Document:
        """The row of `listIndexes`."""
        return {name: value for name, value in self.document.items() if name != "originalSpec"}

    def to_stored(self) -> Document:
        """As the catalog stores it."""
        return {
            "id": Int64(self.id),
            "spec": self.document,
            "building": self.building,
        }

    @classmethod
    def from_stored(cls, stored: Document) -> Self:
        """From the stored form."""
        return cls(
            document=stored["spec"],
            id=int(stored["id"]),
            building=stored["building"],
        )

    def with_changes(self, **changes: Any) -> Self:
        """A copy with other attributes."""
        return replace(self, **changes)

    def with_options(self, **options: Any) -> Self:
        """A copy whose specification has other options; None takes one out."""
        document = {**self.document, **options}
        return replace(self, document={name: value for name, value in document.items() if value is not None})

    def same_key(self, other: "IndexSpec") -> bool:
        """Whether key, collation and partial filter, which make an index what it is, are equal."""
        return (
            list(self.document["key"]) == list(other.document["key"])
            and equal(_plain_key(self.key), _plain_key(other.key))
            and equal(self.document.get("collation"), other.document.get("collation"))
            and equal(self.partial_filter, other.partial_filter)
        )

    def same_options(self, other: "IndexSpec") -> bool:
        """Whether every option that matters is equal too."""
        ignored = {"key", "name", "v", "ns", "background", "storageEngine", "hidden", "originalSpec"}

        def relevant(spec: IndexSpec) -> Document:
            return {
                name: (bool(value) if name in ("unique", "sparse", "prepareUnique") else value)
                for name, value in sorted(spec.document.items())
                if name not in ignored and value is not False
            }

        return equal(relevant(self), relevant(other))

    @classmethod
    def for_id(cls, collation: Document | None = None) -> Self:
        """The index on `_id` that every ordinary collection has."""
        document: Document = {"v": 2, "key": {"_id": 1}, "name": ID_INDEX_NAME}
        if collation is not None:
            document["collation"] = collation
        return cls(document)

    @classmethod
    def parse(cls, spec: Document, *, default_collation: Document | None = None, ignore_unknown: bool = False) -> Self:
        """Check a specification as `createIndexes` takes it.

        Raises:
            CannotCreateIndex, InvalidIndexSpecificationOption, FailedToParse, BadValue, TypeMismatch, Location
        """
        unknown = [name for name in spec if name not in _OPTIONS]
        if unknown and not ignore_unknown:
            raise InvalidIndexSpecificationOption(
                f"The field '{unknown[0]}' is not valid for an index specification. Specification: {spec}"
            )
        if "key" not in spec:
            raise FailedToParse("The 'key' field is a required property of an index specification")
        if not isinstance(spec["key"], dict):
            raise TypeMismatch(f"The field 'key' must be an object, but got {type_name(spec['key'])}")
        if "name" not in spec:
            raise FailedToParse("The 'name' field is a required property of an index specification")
        if not isinstance(spec["name"], str):
            raise TypeMismatch(f"The field 'name' must be a string, but got {type_name(spec['name'])}")
        check_key(spec["key"])
        _check_name(spec)
        kept = {name: value for name, value in spec.items() if name in _OPTIONS and name not in _NOT_SHOWN}
        document: Document = {"v": _version(spec), "key": spec["key"], "name": spec["name"]}
        for name, value in kept.items():
            if name not in document:
                document[name] = _option(name, value, spec)
        if is_id_key(spec["key"]):
            wrong = [name for name in kept if name not in _ID_OPTIONS and spec[name] not in (None, False)]
            if wrong:
                raise InvalidIndexSpecificationOption(
                    f"The field '{wrong[0]}' is not valid for an _id index specification. Specification: {spec}"
                )
            document.pop("unique", None)
            document["name"] = ID_INDEX_NAME
            document["key"] = {"_id": 1}
        if "collation" in document:
            collation = Collation.parse(document["collation"])
            if collation is None:
                del document["collation"]
            else:
                document["collation"] = collation.to_document()
        elif default_collation is not None:
            document["collation"] = default_collation
        _check_combination(document)
        return cls({name: value for name, value in document.items() if value is not None})


def is_number(value: Any) -> bool:
    """Whether the value is of a numeric type (a bool is none)."""
    return isinstance(value, int | float | Decimal128) and not isinstance(value, bool)


def is_id_key(key: Document) -> bool:
    """Whether the key is that of the index on `_id`."""
    return list(key) == ["_id"] and is_number(key["_id"]) and float(str(key["_id"])) > 0


def default_name(key: Document) -> str:
    """The name that drivers give an index of this key: `a_1_b_-1`."""
    return "_".join(f"{path}_{value}" for path, value in key.items())


def kind_of(key: Document) -> IndexKind:
    """What kind of index a checked key makes."""
    for path, value in key.items():
        if isinstance(value, str):
            return value  # type: ignore[return-value]  # checked by `check_key`
        if path == "$**" or path.endswith(".$**"):
            return "wildcard"
    return "btree"


def _plain_key(key: Document) -> Document:
    return {path: (-1 if float(str(value)) < 0 else 1) if is_number(value) else value for path, value in key.items()}


def check_key(key: Document) -> None:
    """Refuse a key that no index can have.

    Raises:
        CannotCreateIndex: empty, with a value that is neither a number but 0 nor the name of a kind, or a bad path.
        Location: 13103 for more than 32 fields, 16763 and 31303 for hashed fields that cannot be.
    """
    if not key:
        raise CannotCreateIndex("Index keys cannot be an empty object")
    if len(key) > FIELDS_MAX:
        raise Location(13103, f"too many compound keys, the maximum is {FIELDS_MAX}")
    hashed = 0
    for path, value in key.items():
        if isinstance(value, str):
            if value not in _SPECIAL:
                raise CannotCreateIndex(f"Unknown index plugin '{value}'")
            hashed += value == "hashed"
        elif is_number(value):
            number = float(str(value))
            if number == 0 or math.isnan(number):
                raise CannotCreateIndex(f"Values in the index key pattern cannot be 0 or NaN: {path}")
        else:
            raise CannotCreateIndex(
                f"Values in v:2 index key pattern cannot be of type {type_name(value)}. "
                "Only numbers > 0, numbers < 0, and strings are allowed."
            )
        _check_path(path, value)
    if hashed > 1:
        raise Location(31303, "A maximum of one index field is allowed to be hashed but found more")
    wildcards = [path for path in key if path == "$**" or path.endswith(".$**")]
    if len(wildcards) > 1:
        raise CannotCreateIndex("wildcard indexes do not allow more than one wildcard field")
    if (
        wildcards
        and not (is_number(key[wildcards[0]]) and float(str(key[wildcards[0]])) > 0)
        and key[wildcards[0]] != "text"
    ):
        raise CannotCreateIndex("A numeric value in a $** index key pattern must be positive.")


def _check_path(path: str, value: Any) -> None:
    if path in ("$**", "_fts", "_ftsx") or path.endswith(".$**"):
        return
    if path == "":
        raise CannotCreateIndex("Index keys cannot be an empty field.")
    for part in path.split("."):
        if part == "":
            raise CannotCreateIndex("Index keys cannot contain an empty field.")
        if part.startswith("$") and part not in ("$id", "$ref", "$db"):
            raise CannotCreateIndex(f"Index key contains an illegal field name: field name starts with '$': {path}")


def _check_name(spec: Document) -> None:
    name = spec["name"]
    if name == "":
        raise CannotCreateIndex("The index name cannot be empty")
    if name == "*":
        raise BadValue("The index name '*' is not valid.")
    if name == ID_INDEX_NAME and not is_id_key(spec["key"]):
        raise BadValue(
            f"The index name '_id_' is reserved for the _id index, which must have key pattern {{_id: 1}}, found key: "
            f"{value_text(spec['key'])}"
        )
    if "\0" in name:
        raise CannotCreateIndex("The index name cannot contain NUL")


def _version(spec: Document) -> int:
    value = spec.get("v", 2)
    if not is_number(value):
        raise TypeMismatch(f"The field 'v' must be a number, but got {type_name(value)}")
    if float(str(value)) not in (1, 2):
        raise CannotCreateIndex(f"Invalid index specification; cannot create an index with v={value}")
    return int(float(str(value)))


_TRUTHS: Final = frozenset({"unique", "sparse", "hidden", "prepareUnique", "clustered"})
_OBJECTS: Final = frozenset({"partialFilterExpression", "collation", "storageEngine", "wildcardProjection"})
_NUMBERS: Final = frozenset({"bits", "min", "max", "2dsphereIndexVersion", "textIndexVersion"})


def _option(name: str, value: Any, spec: Document) -> Any:
    """The value of an option, of the right type."""
    if name in _TRUTHS:
        if not isinstance(value, bool) and not is_number(value):
            raise TypeMismatch(f"The field '{name}' has value {name}: {value}, which is not convertible to bool")
        return bool(value) if isinstance(value, bool) else float(str(value)) != 0
    if name in _OBJECTS and not isinstance(value, dict):
        raise TypeMismatch(f"The field '{name}' must be an object, but got {type_name(value)}")
    if name in _NUMBERS and not is_number(value):
        raise TypeMismatch(f"The field '{name}' must be a number, but got {type_name(value)}")
    if name == "expireAfterSeconds":
        return ttl_seconds(value, spec)
    return value


def ttl_seconds(value: Any, spec: Document) -> int:
    """`expireAfterSeconds` of an index, checked; fractions are cut.

    Raises:
        CannotCreateIndex: no number, NaN, negative, or beyond 2147483647.
    """

    def refuse(text: str) -> MongoError:
        return CannotCreateIndex(f". Index spec: {spec} :: caused by :: {text}")

    if not is_number(value):
        raise refuse(
            f"TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{type_name(value)}"
        )
    number = float(str(value))
    if math.isnan(number):
        raise refuse("TTL index 'expireAfterSeconds' option must not be NaN")
    if abs(number) > TTL_SECONDS_MAX:
        raise refuse("TTL index 'expireAfterSeconds' must be within the range of a 32-bit integer")
    if number < 0:
        raise refuse("TTL index 'expireAfterSeconds' option cannot be less than 0")
    return int(number)


def _check_combination(document: Document) -> None:
    """Refuse options that do not go together or not with this key."""
    key, kind = document["key"], kind_of(document["key"])
    if document.get("sparse") and "partialFilterExpression" in document:
        raise CannotCreateIndex("cannot mix 'partialFilterExpression' and 'sparse' options")
    if "expireAfterSeconds" in document:
        if len(key) > 1:
            raise CannotCreateIndex(
                f"TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: {document}"
            )
        if kind == "wildcard":
            raise CannotCreateIndex("Index type 'wildcard' does not support the expireAfterSeconds option")
    if kind == "hashed" and document.get("unique"):
        raise Location(16764, "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.")
    if kind == "wildcard":
        for option in ("unique", "sparse"):
            if document.get(option):
                raise CannotCreateIndex(f"Index type 'wildcard' does not support the {option} option")
    elif "wildcardProjection" in document:
        raise BadValue("The field 'wildcardProjection' is only allowed in a wildcard index")
    if document.get("clustered") and not document.get("unique"):
        raise CannotCreateIndex("The 'clustered' option requires 'unique' to be true")
