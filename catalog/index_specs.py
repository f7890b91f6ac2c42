"""Index specifications as the catalog keeps them, and what is learned of an index while it serves."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from bson import Int64

from ..common.collation import Collation
from ..common.numbers import is_number
from ..common.ordering import equal
from ..common.values import Document, encode
from .index_options import ID_INDEX_NAME, IndexKind, kind_of, parse_specification
from .index_options import is_id_key as is_id_key

INDEXES_MAX: Final = 64
_IDENTITY: Final = ("collation", "wildcardProjection", "weights")
_NOT_COMPARED: Final = frozenset({"key", "name", "v", "storageEngine", "originalSpec"})
TypedKeys = tuple[list[bytes], list[list[int]] | None, bytes]
"""Keys of a document, the path components that were arrays in it, and the types of its values where the key tells them."""


@dataclass(slots=True)
class IndexState:
    """What the server learns of an index while it serves; shared by all copies of the index's specification.

    Attributes:
        multikey_paths: for each key field, the number of path components (from 1) that were arrays in some document.
        long_keys: some key was cut to fit; such keys are in no order among themselves, so the index gives no sort.
        make_keys: the keys of a raw document.
        accepts: for a partial index, whether a raw document matches its filter.
        accesses: plans that used it since `since_ms`.
    """

    multikey_paths: tuple[tuple[int, ...], ...] = ()
    long_keys: bool = False
    make_keys: Callable[[bytes], TypedKeys] | None = None
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
        """Whether all that makes an index what it is, is equal: two such indexes cannot be in one collection."""
        mine, theirs = self.document, other.document
        return (
            list(mine["key"]) == list(theirs["key"])
            and equal(mine["key"], theirs["key"])
            and all(equal(mine.get(name), theirs.get(name)) for name in _IDENTITY)
            and _filter_signature(self.partial_filter) == _filter_signature(other.partial_filter)
            and all(bool(mine.get(name)) == bool(theirs.get(name)) for name in ("unique", "sparse"))
        )

    def same_options(self, other: "IndexSpec") -> bool:
        """Whether every option is equal too."""

        def relevant(spec: IndexSpec) -> Document:
            shown = {name: spec.document[name] for name in sorted(spec.document) if name not in _NOT_COMPARED}
            if "partialFilterExpression" in shown:
                shown["partialFilterExpression"] = _filter_signature(spec.partial_filter)
            return shown

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
        """Check a specification as `createIndexes` takes it; see `parse_specification`.

        Raises:
            CannotCreateIndex, InvalidIndexSpecificationOption, FailedToParse, BadValue, TypeMismatch, InvalidOptions,
            Location
        """
        return cls(parse_specification(spec, default_collation=default_collation, ignore_unknown=ignore_unknown))


def _filter_signature(filter: Document | None) -> list[bytes] | None:
    """The same for filters whose conditions stand in another order."""
    if filter is None:
        return None
    parts: list[bytes] = []
    for name, value in filter.items():
        if name == "$and" and isinstance(value, list):
            parts += [part for branch in value for part in _filter_signature(branch) or ()]
        elif name == "$or" and isinstance(value, list):
            parts.append(b"$or" + b"".join(sorted(encode({"": _filter_signature(branch)}) for branch in value)))
        else:
            parts.append(encode({name: value}))
    return sorted(parts)


def default_name(key: Document) -> str:
    """The name that drivers give an index of this key: `a_1_b_-1`."""
    return "_".join(f"{path}_{value}" for path, value in key.items())
