"""What has outlived its lifetime: which documents of a collection expire, and where they lie in the store.

A lifetime is counted from a date: from the one in the field of a TTL index, from the `_id` of a clustered collection, or
from the start of a bucket. A bucket goes when everything that it could hold is too old, so its span is added. Only dates
expire; of an array, the earliest one counts. The range of keys between the first date and the cut says all of that,
because an index keeps values of one type together, one entry for each element, and only documents that its filter takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bson import DatetimeMS, Decimal128, ObjectId

from ..catalog import documents
from ..catalog.collections import Collection
from ..catalog.index_options import TTL_SECONDS_MAX
from ..catalog.index_specs import IndexSpec
from ..catalog.timeseries_options import EXTENDED_RANGE
from ..common.numbers import is_number
from ..common.values import Document, encode
from ..kernels import key_of_id
from ..storage.engine import Snapshot
from ..storage.keys import after

_DATE_MS_MIN: Final = -(2**63)
_SHOWN_MS_MIN: Final = -62_135_596_800_000
"""The year 1: no driver shows an earlier one."""
_OBJECT_ID_SECONDS_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Documents of a collection live this long after a date.

    Attributes:
        collection: as the catalog had it when this was made.
        index: the TTL index; None where the date is in the `_id`.
        seconds: how long they live.
    """

    collection: Collection
    index: IndexSpec | None
    seconds: int

    @property
    def span_ms(self) -> int:
        """How much later than its own date the youngest thing in a document can be: buckets cover a span."""
        options = self.collection.timeseries
        return 0 if options is None else options.span_ms

    def cut_ms(self, now_ms: int) -> int:
        """What bears this date, or an earlier one, has expired."""
        return now_ms - self.seconds * 1000 - self.span_ms

    def query(self, now_ms: int) -> Document:
        """The filter of what has expired, for people to read."""
        cut: Any = DatetimeMS(max(self.cut_ms(now_ms), _SHOWN_MS_MIN))
        if self.index is not None:
            return {self.index.paths[0]: {"$lte": cut}}
        if self.collection.is_buckets:
            cut = ObjectId(min(max(int(cut) // 1000, 0), _OBJECT_ID_SECONDS_MAX).to_bytes(4, "big") + b"\xff" * 8)
        return {"_id": {"$lte": cut}}

    def expired(self, snapshot: Snapshot, cut_ms: int) -> Iterator[bytes]:
        """Record keys of what has expired, the oldest first; one of several dates may name a record again."""
        if cut_ms < _DATE_MS_MIN:
            return iter(())
        if self.index is None:
            return self._expired_by_id(snapshot, cut_ms)
        return self._expired_by_index(snapshot, self.index, cut_ms)

    def in_current(self, collection: Collection) -> "Lifetime | None":
        """The same lifetime as the collection, changed meanwhile, has it; None where it has none such any more."""
        if collection.id != self.collection.id:
            return None
        number = None if self.index is None else self.index.id
        for lifetime in lifetimes_of(collection).valid:
            if (None if lifetime.index is None else lifetime.index.id) == number:
                return lifetime
        return None

    def _expired_by_id(self, snapshot: Snapshot, cut_ms: int) -> Iterator[bytes]:
        first: Any
        last: Any
        if self.collection.is_buckets:
            # The time in an ObjectId is a whole second from 1970 on.
            seconds = min(cut_ms // 1000, _OBJECT_ID_SECONDS_MAX)
            if seconds < 0:
                return
            first = ObjectId(bytes(12))
            last = ObjectId(seconds.to_bytes(4, "big") + b"\xff" * 8)
        else:
            first, last = DatetimeMS(_DATE_MS_MIN), DatetimeMS(cut_ms)
        low = key_of_id(encode({"_id": first}))
        high = after(key_of_id(encode({"_id": last})))
        for record_key, _ in documents.scan(snapshot, self.collection, low=low, high=high):
            yield record_key

    def _expired_by_index(self, snapshot: Snapshot, index: IndexSpec, cut_ms: int) -> Iterator[bytes]:
        descending = list(index.descending)
        low, high = (
            documents.collated_key_string(index, {"": DatetimeMS(moment)}, descending)
            for moment in (_DATE_MS_MIN, cut_ms)
        )
        reverse = descending[0]
        if reverse:
            low, high = high, low
        for _, record_key in documents.index_scan(snapshot, index, low, after(high), reverse=reverse):
            yield record_key


@dataclass(slots=True)
class Lifetimes:
    """The lifetimes of a collection; and its TTL indexes by which nothing can expire."""

    valid: list[Lifetime] = field(default_factory=list)
    invalid: list[IndexSpec] = field(default_factory=list)


def lifetimes_of(collection: Collection) -> Lifetimes:
    """Every lifetime that a collection's options and indexes give.

    Hidden indexes count. Buckets whose `_id` does not tell their time are left alone, together with their indexes.
    """
    found = Lifetimes()
    if collection.kind != "collection" or (collection.is_buckets and collection.flags.get(EXTENDED_RANGE)):
        return found
    if collection.clustered and "expireAfterSeconds" in collection.options:
        found.valid.append(Lifetime(collection, None, whole_seconds(collection.options["expireAfterSeconds"])))
    for index in collection.indexes:
        if "expireAfterSeconds" not in index.document or index.building:
            continue
        if index.kind != "btree" or len(index.paths) != 1 or index.is_id:
            found.invalid.append(index)
        else:
            seconds = min(whole_seconds(index.document["expireAfterSeconds"]), TTL_SECONDS_MAX)
            found.valid.append(Lifetime(collection, index, seconds))
    return found


def bucket_id_of(collection: Collection, raw: bytes) -> ObjectId | None:
    """The id of a removed document where it was a bucket that may be open in memory."""
    if not collection.is_buckets:
        return None
    # `_id` is the first field of every stored document: length, type 7, "_id\0", twelve bytes.
    return ObjectId(raw[9:21]) if raw[4] == 7 else None


def whole_seconds(value: Any) -> int:
    """A stored lifetime; one that is no number stands for the longest there is, so that nothing is lost by it."""
    if is_number(value):
        number = value.to_decimal() if isinstance(value, Decimal128) else value
        if number == number and abs(number) != float("inf"):
            return max(int(number), 0)
    return TTL_SECONDS_MAX
