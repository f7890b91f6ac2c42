"""Which plan won for queries of a shape, so that the next ones need no trial.

An entry is made when several indexes competed, and is inactive at first: it becomes active when a later trial shows that the
plan needs no more work than the entry says; where it needs more, the entry allows for twice as much the next time. A plan of
an active entry that turns out to need ten times the work is put to the trial again. Entries go with the indexes that a
collection had when they were made.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ...catalog.collections import Collection
from ...common.values import Document
from .shapes import shape_of
from .wanted import Wanted

ENTRIES_MAX: Final = 5000
COLLECTIONS_MAX: Final = 1000
GROWTH: Final = 2
REPLAN_RATIO: Final = 10
HASH_DIGITS: Final = 8
_BASE_BYTES: Final = 1024
"""What an entry takes beside its documents, as it is told."""


@dataclass(slots=True)
class Trial:
    """What was learned when plans competed: the winner first."""

    index: str
    works: int
    plan: Document
    runs: list[Document]
    scores: list[float]


@dataclass(slots=True)
class CachedPlan:
    """What is remembered for queries of a shape."""

    shape: str
    key: str
    trial: Trial
    works: int
    created_ms: int
    query: Document
    is_active: bool = False
    filter_set: bool = False

    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return _BASE_BYTES + len(repr(self.trial.plan)) + len(repr(self.trial.runs)) + len(repr(self.query))


@dataclass(slots=True)
class _Held:
    indexes: tuple[object, ...]
    entries: "OrderedDict[str, CachedPlan]" = field(default_factory=OrderedDict)


class PlanCache:
    """The plans of all collections; of each the ones used last."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._held: OrderedDict[UUID, _Held] = OrderedDict()

    def of(self, collection: Collection) -> list[CachedPlan]:
        """The entries of a collection, oldest first."""
        held = self._current(collection)
        return [] if held is None else list(held.entries.values())

    def find(self, collection: Collection, key: str) -> CachedPlan | None:
        """The entry under a key."""
        held = self._current(collection)
        return None if held is None else held.entries.get(key)

    def note(self, collection: Collection, wanted: Wanted, key: str, trial: Trial) -> None:
        """Remember the outcome of a trial."""
        held = self._current(collection)
        if held is None:
            held = self._held[collection.uuid] = _Held(_signature(collection))
            if len(self._held) > COLLECTIONS_MAX:
                self._held.popitem(last=False)
        before = held.entries.get(key)
        if before is not None and not before.is_active and trial.works > before.works:
            before.works = max(before.works * GROWTH, 1)
            return
        held.entries.pop(key, None)
        held.entries[key] = CachedPlan(
            shape=key_of_shape(wanted),
            key=key,
            trial=trial,
            works=trial.works,
            created_ms=self._now_ms(),
            query=_query_of(wanted),
            is_active=before is not None,
            filter_set=wanted.allowed is not None,
        )
        if len(held.entries) > ENTRIES_MAX:
            held.entries.popitem(last=False)

    def clear(self, collection: Collection, shape: str | None = None) -> None:
        """Forget the plans for queries of a shape, or all of a collection."""
        held = self._held.get(collection.uuid)
        if held is None:
            return
        if shape is None:
            del self._held[collection.uuid]
            return
        for key in [key for key, entry in held.entries.items() if entry.shape == shape]:
            del held.entries[key]

    def _current(self, collection: Collection) -> _Held | None:
        """What is held of a collection with the indexes that it has."""
        held = self._held.get(collection.uuid)
        if held is not None and held.indexes != _signature(collection):
            del self._held[collection.uuid]
            return None
        return held


def key_of_shape(wanted: Wanted) -> str:
    """The digits that stand for the shape of a query."""
    return shape_of(wanted, wanted.later)[:HASH_DIGITS].upper()


def cache_key(collection: Collection | None, wanted: Wanted) -> str:
    """The digits that stand for the shape of a query and the indexes that there are."""
    shape = shape_of(wanted, wanted.later)
    indexes = () if collection is None else _signature(collection)
    return hashlib.sha256(f"{shape}{indexes}".encode()).hexdigest()[:HASH_DIGITS].upper()


def is_cached(wanted: Wanted) -> bool:
    """Whether plans of such queries are remembered."""
    return (
        wanted.hint is None and not wanted.natural and wanted.min is None and wanted.max is None and not wanted.tailable
    )


def _signature(collection: Collection) -> tuple[object, ...]:
    return tuple((index.id, index.hidden, index.building, index.multikey) for index in collection.indexes)


def _query_of(wanted: Wanted) -> Document:
    query: Document = {
        "query": wanted.matcher.serialize(),
        "sort": {} if wanted.sort is None else wanted.sort.serialize(),
        "projection": wanted.projection_spec or {},
    }
    if wanted.collation is not None:
        query["collation"] = wanted.collation.to_document()
    return query
