"""Updates that replace the whole document but its `_id`."""

from bson import DatetimeMS, Timestamp

from ...common.display import element_text
from ...common.errors import ImmutableField
from ...common.ordering import order_key
from ...common.values import MISSING, Document
from ..match.base import MatchNode
from .base import Update
from .tree import check_top_name
from .upsert import equality_document


class Replacement(Update):
    """A new document for the old one."""

    is_replacement = True

    def __init__(self, replacement: Document, *, fill_timestamps: bool = True) -> None:
        super().__init__()
        for name in replacement:
            check_top_name(name)
        self._replacement = replacement
        self._fill_timestamps = fill_timestamps

    def upsert_base(self, filter: MatchNode) -> Document:
        """See `Update.upsert_base`: of the query only `_id` counts."""
        base = equality_document(filter, only_id=True)
        return {"_id": base["_id"]} if "_id" in base else {}

    def apply(
        self,
        document: Document,
        *,
        is_insert: bool = False,
        matched_filter: MatchNode | None = None,
        matched_position: int | None = None,
        now: DatetimeMS,
    ) -> tuple[Document, bool]:
        """See `Update.apply`. A replacement counts as a change even when it changes nothing."""
        result = with_id_of(document, self._replacement)
        if self._fill_timestamps:
            result = filled_timestamps(result, now)
        return result, True


def with_id_of(document: Document, replacement: Document) -> Document:
    """The replacement with the document's `_id` in front; refuses another `_id`."""
    old, new = document.get("_id", MISSING), replacement.get("_id", MISSING)
    if old is MISSING:
        return dict(replacement) if new is MISSING else {"_id": new, **replacement}
    if new is not MISSING and order_key(old) != order_key(new):
        raise ImmutableField(
            "After applying the update, the (immutable) field '_id' was found to have been altered to "
            f"{element_text('_id', new)}"
        )
    return {"_id": old, **{name: value for name, value in replacement.items() if name != "_id"}}


def filled_timestamps(document: Document, now: DatetimeMS) -> Document:
    """The document with the time in place of empty timestamps at its top level, `_id` left alone."""
    for name, value in document.items():
        if type(value) is Timestamp and name != "_id" and value.time == 0 and value.inc == 0:
            document = {**document, name: Timestamp(int(now) // 1000, 1)}
    return document
