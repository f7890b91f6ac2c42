"""Whether a collection is whole: its records against its indexes, its counts and, where they are buckets, their data.

The same eyes look for `validate`, beside clients that write, and for `bucketd check`, where nobody does. A check goes on in
steps, each under a snapshot of its own: what it says of a document or an entry holds within one of them.
"""

from itertools import islice
from typing import Final

from ..common.errors import MongoError
from ..common.values import decode
from ..kernels import validate_bucket
from ..storage.engine import Snapshot
from ..storage.keys import RECORD_ID_BYTES, number_key, number_of
from . import documents, packs
from .collections import Collection
from .index_entries import entry_under, entry_value, record_of_entry, typed_keys_of
from .index_specs import IndexSpec

_SLICE_DOCUMENTS: Final = 500
_SLICE_ENTRIES: Final = 5000
_TOLD_MAX: Final = 20


class CollectionCheck:
    """What was seen of a collection so far."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.records = 0
        self.data_bytes = 0
        self.invalid = 0
        """Records that are no documents."""
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.missing: list[dict[str, str]] = []
        """Entries that an index lacks: name of the index, key of the record in hex."""
        self.extra: list[dict[str, str]] = []
        """Entries that an index should not have."""
        self.broken_indexes: set[str] = set()
        """Names of indexes with an entry too many or too few."""
        self.counts_are_wrong = False
        # Entries of an index that is being built are not there yet.
        self._indexes = [index for index in collection.indexes if not index.building]
        self.entries = {index.name: 0 for index in collection.indexes}
        self._expected = dict(self.entries)
        self._last: bytes | None = None
        self._stats_before: documents.Stats | None = None
        self._queue = list(self._indexes)
        self._doubted: list[IndexSpec] = []
        self._position: bytes | None = None
        self._records_done = False

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong."""
        return not self.errors and not self.invalid

    def step(self, snapshot: Snapshot) -> bool:
        """Look at the next few; True while there is more to look at."""
        if not self._records_done:
            self._look_at_records(snapshot)
            return True
        if self._queue:
            self._count_entries(snapshot, self._queue[0])
            return bool(self._queue or self._doubted)
        if self._doubted:
            self._look_at_entries(snapshot, self._doubted[0])
        return bool(self._doubted)

    def _look_at_records(self, snapshot: Snapshot) -> None:
        if self._stats_before is None:
            self._stats_before = documents.read_stats(snapshot, self.collection)
        of = self.collection.with_heads
        rows = list(islice(documents.scan(snapshot, of, after_key=self._last), _SLICE_DOCUMENTS))
        for record_key, raw in rows:
            self._last = record_key
            if isinstance(raw, packs.Head):
                raw = self._unpacked(raw)
            self._see(snapshot, record_key, raw)
        if len(rows) < _SLICE_DOCUMENTS:
            self._records_done = True
            self._compare_counts(documents.read_stats(snapshot, self.collection))

    def _unpacked(self, head: packs.Head) -> bytes:
        """The document of a bucket in a pack, whose totals are looked at as well."""
        if not packs.tells_true(head):
            self._tell("a pack tells counts, sums or extremes that its bucket does not have")
        return packs.whole(head)

    def _see(self, snapshot: Snapshot, record_key: bytes, raw: bytes) -> None:
        collection = self.collection
        self.records += 1
        self.data_bytes += len(raw)
        try:
            document = decode(raw)
        except MongoError as error:
            self.invalid += 1
            self._tell(f"a record cannot be read: {error.message}")
            return
        if "_id" not in document:
            self._tell("a document has no _id")
        if collection.clustered:
            if documents.clustered_key(collection, raw) != record_key:
                self._tell(f"a document lies under another key than its _id makes: {record_key.hex()}")
        elif len(record_key) != RECORD_ID_BYTES:
            self._tell(f"a record key is no record id: {record_key.hex()}")
        elif self._stats_before is not None and number_of(record_key) == 0:
            self._tell("a record has the number 0, which is never given")
        options = collection.timeseries
        if options is not None and collection.is_buckets:
            problems = validate_bucket(
                raw,
                options.time_field,
                options.meta_field,
                options.span_ms,
                options.rounding_seconds * 1000,
                collection.collate,
            )
            for problem in problems:
                self._tell(f"Detected a time-series bucket that is not as it should be: {problem}")
        for index in self._indexes:
            self._see_keys(snapshot, index, record_key, raw)

    def _see_keys(self, snapshot: Snapshot, index: IndexSpec, record_key: bytes, raw: bytes) -> None:
        try:
            keys, arrays, types = typed_keys_of(index, raw)
        except MongoError as error:
            self._break(index, f"the index {index.name} cannot hold a document that is stored: {error.message}")
            return
        prefix = number_key(index.id)
        for key in keys:
            self._expected[index.name] += 1
            stored = snapshot.get("indexes", prefix + entry_under(index, key, record_key))
            if stored is None or record_of_entry(stored) != record_key:
                if len(self.missing) < _TOLD_MAX:
                    self.missing.append({"indexName": index.name, "recordKey": record_key.hex()})
                self._break(index, f"an entry is missing in the index {index.name}")
            elif stored not in (record_key, entry_value(record_key, types)):
                self._break(index, f"an entry of the index {index.name} tells types that its document does not have")
        if arrays is not None:
            known = index.state.multikey_paths or ((),) * len(arrays)
            if any(not set(new) <= set(had) for had, new in zip(known, arrays, strict=True)):
                self._break(index, f"the index {index.name} does not know of all arrays that it holds")

    def _compare_counts(self, stats: documents.Stats) -> None:
        before = self._stats_before
        # Others may have written while this was read: only counts that stood still can be compared.
        if before is None or (before.count, before.data_bytes, before.next_record) != (
            stats.count,
            stats.data_bytes,
            stats.next_record,
        ):
            return
        if stats.count != self.records:
            self.counts_are_wrong = True
            self.warnings.append(f"the count that is kept is {stats.count}, and {self.records} documents were read")
        elif stats.data_bytes != self.data_bytes:
            self.counts_are_wrong = True
            self.warnings.append(
                f"the documents are said to have {stats.data_bytes} bytes, and {self.data_bytes} were read"
            )
        if not self.collection.clustered and self._last is not None and number_of(self._last) >= stats.next_record:
            self.counts_are_wrong = True
            self._tell("the next record id is one that is taken")

    def _count_entries(self, snapshot: Snapshot, index: IndexSpec) -> None:
        count = 0
        for key, _ in islice(documents.index_scan(snapshot, index, after_key=self._position), _SLICE_ENTRIES):
            self._position = key
            count += 1
        self.entries[index.name] += count
        if count < _SLICE_ENTRIES:
            self._queue.pop(0)
            self._position = None
            if self.entries[index.name] != self._expected[index.name]:
                self._doubted.append(index)

    def _look_at_entries(self, snapshot: Snapshot, index: IndexSpec) -> None:
        """Find entries without a document: their number says that there are some, or that somebody wrote meanwhile."""
        slice_of = islice(documents.index_scan(snapshot, index, after_key=self._position), _SLICE_DOCUMENTS)
        count = 0
        for key, record_key in list(slice_of):
            self._position = key
            count += 1
            raw = documents.fetch(snapshot, self.collection, record_key)
            if raw is None or not _has(index, raw, key, record_key):
                if len(self.extra) < _TOLD_MAX:
                    self.extra.append({"indexName": index.name, "recordKey": record_key.hex()})
                self._break(index, f"the index {index.name} has an entry without a document")
        if count < _SLICE_DOCUMENTS:
            self._doubted.pop(0)
            self._position = None

    def _break(self, index: IndexSpec, text: str) -> None:
        self.broken_indexes.add(index.name)
        self._tell(text)

    def _tell(self, text: str) -> None:
        if len(self.errors) < _TOLD_MAX and text not in self.errors:
            self.errors.append(text)


def _has(index: IndexSpec, raw: bytes, entry: bytes, record_key: bytes) -> bool:
    try:
        keys = typed_keys_of(index, raw)[0]
    except (MongoError, ValueError):
        return False
    return any(entry_under(index, key, record_key) == entry for key in keys)
