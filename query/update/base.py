"""What an update is, and what each of its operators is: a modifier of one value."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, ObjectId, Regex, Timestamp

from ...common.display import element_text
from ...common.ordering import regex_options
from ...common.values import MISSING, Document, type_of
from ..match.base import MatchNode, PositionFinder


@dataclass(slots=True)
class Change:
    """One application of an update to one document."""

    document: Document
    now: DatetimeMS
    is_insert: bool
    position: int | None = None
    renamed: dict[str, Any] = field(default_factory=dict)

    def id_text(self) -> str:
        """The document's `_id`, as error messages name documents."""
        return "{" + (element_text("_id", self.document["_id"]) if "_id" in self.document else "no id") + "}"


class Modifier(ABC):
    """An operator with its operand: makes a new value of the value at a path.

    `creates`: the path is made where it is missing. `skips_blocked`: a path that leads through a scalar is passed over
    rather than refused.
    """

    creates: bool = True
    skips_blocked: bool = False
    insert_only: bool = False

    @abstractmethod
    def modified(self, value: Any, path: str, change: Change) -> Any:
        """The new value for an existing one, or for MISSING; the same object where nothing changes; MISSING removes."""


class Update(ABC):
    """A parsed update."""

    is_replacement: bool = False
    is_pipeline: bool = False
    needs_position: bool = False

    def __init__(self) -> None:
        self._finder_of: tuple[MatchNode, PositionFinder | None] | None = None

    @abstractmethod
    def apply(
        self,
        document: Document,
        *,
        is_insert: bool = False,
        matched_filter: MatchNode | None = None,
        matched_position: int | None = None,
        now: DatetimeMS,
    ) -> tuple[Document, bool]:
        """The updated document, and whether it differs from the one given, which stays as it is.

        `matched_filter` is the query that found the document: it tells what `$` stands for, unless `matched_position`
        does. A document made with `is_insert` has its `_id`, if any, in front.
        """

    @abstractmethod
    def upsert_base(self, filter: MatchNode) -> Document:
        """The document to which the update is applied when an upsert finds none."""

    def changed_paths(self) -> frozenset[str] | None:
        """The paths that may change; None when it may be any."""
        return None

    def _position(self, filter: MatchNode | None, document: Document) -> int | None:
        if filter is None:
            return None
        if self._finder_of is None or self._finder_of[0] is not filter:
            self._finder_of = (filter, filter.position())
        finder = self._finder_of[1]
        return None if finder is None else finder(document)


def identical(a: Any, b: Any) -> bool:
    """Whether two values are the same in BSON: type, bits and order of fields."""
    if a is b:
        return True
    if a is MISSING or b is MISSING or type_of(a) is not type_of(b):
        return False
    if isinstance(a, DBRef) or isinstance(b, DBRef):
        return identical(_fields_of(a), _fields_of(b))
    if isinstance(a, dict):
        return (
            len(a) == len(b)
            and list(a) == list(b)
            and all(identical(x, y) for x, y in zip(a.values(), b.values(), strict=True))
        )
    if isinstance(a, list):
        return len(a) == len(b) and all(identical(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float):
        return bool(a.hex() == b.hex())
    if isinstance(a, Decimal128):
        return bool(a.bid == b.bid)
    if isinstance(a, (ObjectId, DatetimeMS, Timestamp, Code)):
        return bool(a == b)
    if isinstance(a, Regex):
        return bool(a.pattern == b.pattern and regex_options(a) == regex_options(b))
    if isinstance(a, bytes):
        return _subtype(a) == _subtype(b) and bytes(a) == bytes(b)
    return bool(a == b)


def _fields_of(value: Any) -> Any:
    return dict(value.as_doc()) if isinstance(value, DBRef) else value


def _subtype(value: bytes) -> int:
    return value.subtype if isinstance(value, Binary) else 0
