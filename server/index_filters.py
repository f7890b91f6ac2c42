"""Index filters: which indexes the planner may consider for queries of a shape. They last as long as the server runs."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from ..catalog.collections import Collection
from ..common.values import Document

if TYPE_CHECKING:
    from ..query.plan.planner import Wanted


@dataclass(frozen=True, slots=True)
class IndexFilter:
    """One filter; `indexes` holds names and key patterns."""

    shown: Document
    indexes: tuple[str | Document, ...]


@dataclass(slots=True)
class IndexFilters:
    """All filters, by collection and shape."""

    _held: dict[UUID, dict[str, IndexFilter]] = field(default_factory=dict)

    def set(self, collection: Collection, shape: str, index_filter: IndexFilter) -> None:
        """Put a filter in the place of the one for the same shape."""
        self._held.setdefault(collection.uuid, {})[shape] = index_filter

    def clear(self, collection: Collection, shape: str | None = None) -> None:
        """Take the filter of a shape away, or all of the collection."""
        if shape is None:
            self._held.pop(collection.uuid, None)
        else:
            self._held.get(collection.uuid, {}).pop(shape, None)

    def of(self, collection: Collection) -> list[IndexFilter]:
        """The filters of a collection, oldest first."""
        return list(self._held.get(collection.uuid, {}).values())

    def apply(self, collection: Collection | None, wanted: "Wanted") -> None:
        """Limit the planner to the indexes that a filter allows; a hint does not count then."""
        filters = self._held.get(collection.uuid) if collection is not None and self._held else None
        if not filters:
            return
        # The planner is loaded with the first command that reads.
        from ..query.plan.shapes import shape_of

        found = filters.get(shape_of(wanted))
        if found is not None:
            wanted.allowed = found.indexes
            wanted.hint = None
