"""What a collection is: its kind, its options and its indexes, as one value that never changes.

A change of a collection (another option, another index) is another `Collection` that takes its place in the catalog.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self
from uuid import UUID, uuid4

from bson import Binary, Int64

from ..common.collation import Collation
from ..common.values import Document
from .index_specs import IndexSpec
from .namespaces import Namespace
from .timeseries_options import TimeseriesOptions

Kind = Literal["collection", "view", "timeseries"]


@dataclass(frozen=True)
class Collection:
    """A collection, a view, or the view of a time-series collection.

    Attributes:
        namespace: its name.
        kind: `collection` (buckets of time series as well), `view`, or `timeseries`.
        id: number under which its records are kept; 0 for views.
        uuid: its identity for clients; stays through a rename.
        options: as `listCollections` shows them.
        indexes: oldest first; the index on `_id`, where there is one, is the first.
        flags: what the server has learned of the data (`mayHaveExtendedRange`, `bucketingChanged` …).
        heads: whether of buckets in packs those who read want no columns, since they take them from the pack; see `packs`.
    """

    namespace: Namespace
    kind: Kind
    id: int = 0
    uuid: UUID = field(default_factory=uuid4)
    options: Document = field(default_factory=dict)
    indexes: tuple[IndexSpec, ...] = ()
    flags: Document = field(default_factory=dict)
    heads: bool = False

    @property
    def is_view(self) -> bool:
        """Whether reads are rewritten onto another collection (time series included)."""
        return self.kind != "collection"

    @cached_property
    def timeseries(self) -> TimeseriesOptions | None:
        """The time-series options, on the view and on its buckets."""
        stored = self.options.get("timeseries")
        return None if stored is None else TimeseriesOptions.from_document(stored)

    @property
    def is_buckets(self) -> bool:
        """Whether its documents are buckets."""
        return self.kind == "collection" and "timeseries" in self.options

    @property
    def view_on(self) -> str | None:
        """The collection in the same database that a view reads."""
        return self.options.get("viewOn")

    @property
    def pipeline(self) -> list[Document]:
        """The pipeline of a view."""
        return list(self.options.get("pipeline", ()))

    @cached_property
    def collation(self) -> Collation | None:
        """The default collation; None compares strings byte by byte."""
        stored = self.options.get("collation")
        return None if stored is None else Collation.parse(stored)

    @property
    def collate(self) -> Callable[[str], bytes] | None:
        """What strings sort by under the default collation, as the kernels take it."""
        collation = self.collation
        return None if collation is None else collation.key

    @property
    def clustered(self) -> bool:
        """Whether records lie in the order of `_id`."""
        return bool(self.options.get("clusteredIndex"))

    @cached_property
    def packed(self) -> bool:
        """Whether records may lie together in packs."""
        return self.is_buckets and self.clustered

    @cached_property
    def with_heads(self) -> Self:
        """The same for those who want heads of what is packed."""
        return self.with_changes(heads=True) if self.packed else self

    @property
    def capped(self) -> bool:
        """Whether the oldest records make room for new ones."""
        return bool(self.options.get("capped"))

    @property
    def capped_bytes_max(self) -> int:
        """Size of a capped collection."""
        return int(self.options.get("size", 0))

    @property
    def capped_documents_max(self) -> int:
        """Count of a capped collection; 0 where only the size is limited."""
        return int(self.options.get("max", 0))

    @property
    def validator(self) -> Document | None:
        """The filter that documents have to match."""
        return self.options.get("validator")

    @property
    def expire_after_seconds(self) -> int | None:
        """The lifetime of clustered data, time series or not."""
        stored = self.options.get("expireAfterSeconds")
        return None if stored is None else int(stored)

    def index(self, name: str) -> IndexSpec | None:
        """The index of this name."""
        return next((index for index in self.indexes if index.name == name), None)

    def with_changes(self, **changes: Any) -> Self:
        """A copy with other attributes."""
        return replace(self, **changes)

    def listing(self) -> Document:
        """The row of `listCollections`."""
        row: Document = {"name": self.namespace.collection, "type": self.kind, "options": self._shown_options()}
        if self.kind == "collection":
            row["info"] = {"readOnly": False, "uuid": Binary(self.uuid.bytes, 4)}
            if self.indexes and not self.clustered and self.indexes[0].name == "_id_":
                row["idIndex"] = self.indexes[0].to_document()
        else:
            row["info"] = {"readOnly": self.kind == "view"}
        return row

    def view_row(self) -> Document:
        """The row of a view in `system.views`."""
        options = self.timeseries
        row: Document = {"_id": str(self.namespace)}
        if options is None:
            row["viewOn"] = self.view_on
            row["pipeline"] = self.pipeline
        else:
            row["viewOn"] = self.namespace.buckets.collection
            row["pipeline"] = [{"$_internalUnpackBucket": options.unpack_spec()}]
        if "collation" in self.options:
            row["collation"] = self.options["collation"]
        return row

    def _shown_options(self) -> Document:
        shown = dict(self.options)
        if "expireAfterSeconds" in shown:
            shown["expireAfterSeconds"] = Int64(shown["expireAfterSeconds"])
        return shown

    def to_document(self) -> Document:
        """As the catalog stores it."""
        return {
            "ns": str(self.namespace),
            "kind": self.kind,
            "id": Int64(self.id),
            "uuid": Binary(self.uuid.bytes, 4),
            "options": self.options,
            "indexes": [index.to_stored() for index in self.indexes],
            "flags": self.flags,
        }

    @classmethod
    def from_document(cls, stored: Document) -> Self:
        """From the stored form."""
        return cls(
            namespace=Namespace.parse(stored["ns"]),
            kind=stored["kind"],
            id=int(stored["id"]),
            uuid=UUID(bytes=bytes(stored["uuid"])),
            options=stored["options"],
            indexes=tuple(IndexSpec.from_stored(row) for row in stored["indexes"]),
            flags=stored["flags"],
        )
