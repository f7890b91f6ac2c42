"""The documents of one collection with their indexes: insert, fetch, replace, remove, scan.

Everything happens within the transaction that is handed in, so documents, index entries and counts agree at every
moment that anybody can see. A record lies under the collection's number and its record key: an eight-byte record id in
the order of insertion, or the KeyString of `_id` where the collection is clustered. An index entry lies under the
index's number and the KeyString of the indexed values, with the record key as its value (and, unless the index is
unique, at the end of its key); see `index_entries`.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..common.errors import BSONObjectTooLarge
from ..common.limits import DOCUMENT_BYTES_MAX_INTERNAL
from ..common.values import Document, encode
from ..kernels import key_of_id
from ..storage.engine import Snapshot, Transaction
from ..storage.errors import DuplicateKey as KeyTaken
from ..storage.keys import after, number_key, number_of
from . import packs
from .clustering import RECORD_ID_BYTES_MAX, check_record_id, refuse_number_twice
from .collections import Collection
from .index_entries import (
    EntryKeys,
    add_entry,
    bound_string,
    cut_high,
    cut_low,
    duplicate,
    entry_keys,
    entry_keys_many,
    move_entry,
    record_of_entry,
    remove_entry,
)
from .index_specs import IndexSpec

Entries = tuple[tuple[int, ...], list[EntryKeys]]
"""Numbers of the indexes of a collection, and the keys under which each of them keeps a document."""
Rewrite = tuple[bytes, bytes, bytes, Entries | None]
"""Record key, document as it is stored, document as it will be, and the entries of the first where they are known."""

_STATS: Final = struct.Struct(">QQQ")
STATS_PREFIX: Final = b"stats"


@dataclass(slots=True)
class Stats:
    """Count and bytes of a collection's documents, and the next record id."""

    count: int = 0
    data_bytes: int = 0
    next_record: int = 1


def read_stats(snapshot: Snapshot, collection: Collection) -> Stats:
    """The counts of a collection as of the snapshot."""
    stored = snapshot.get("meta", stats_key(collection))
    return Stats() if stored is None else Stats(*_STATS.unpack(stored))


def write_stats(transaction: Transaction, collection: Collection, stats: Stats) -> None:
    """Keep the counts."""
    packed = _STATS.pack(max(stats.count, 0), max(stats.data_bytes, 0), stats.next_record)
    transaction.put("meta", stats_key(collection), packed)


def stored_bytes(snapshot: Snapshot, collection: Collection) -> int:
    """Bytes of the documents of a collection as they are stored: those in packs are smaller."""
    size = read_stats(snapshot, collection).data_bytes
    return max(size - packs.saved_bytes(snapshot, number_key(collection.id)), 0) if collection.packed else size


def note_rewritten(transaction: Transaction, collection: Collection, more_bytes: int) -> None:
    """Documents were written in another form, by so many bytes longer (or shorter, if negative)."""
    if more_bytes:
        stats = read_stats(transaction, collection)
        stats.data_bytes += more_bytes
        write_stats(transaction, collection, stats)


def recount(transaction: Transaction, collection: Collection) -> None:
    """Make the counts of a collection anew from its records."""
    stats = Stats(next_record=read_stats(transaction, collection).next_record)
    for record_key, raw in scan(transaction, collection):
        stats.count += 1
        stats.data_bytes += len(raw)
        if not collection.clustered:
            stats.next_record = max(stats.next_record, number_of(record_key) + 1)
    write_stats(transaction, collection, stats)


def stats_key(collection: Collection) -> bytes:
    """Where the counts are kept."""
    return STATS_PREFIX + number_key(collection.id)


def insert(transaction: Transaction, collection: Collection, raw: bytes) -> bytes:
    """Store a new document (with its `_id`) and its index entries; returns its record key.

    Raises:
        DuplicateKey: a unique index holds one of its keys; `keyPattern` and `keyValue` are in `extra`.
        CannotIndexParallelArrays: two fields of an index are arrays.
        BSONObjectTooLarge: larger than a document may be.
    """
    return insert_many(transaction, collection, (raw,))[0]


def insert_many(transaction: Transaction, collection: Collection, raws: Iterable[bytes]) -> list[bytes]:
    """Store several; the first failure leaves the transaction to be given up."""
    stats = read_stats(transaction, collection)
    prefix = number_key(collection.id)
    keys = []
    for raw in raws:
        if len(raw) > DOCUMENT_BYTES_MAX_INTERNAL:
            raise BSONObjectTooLarge(
                f"BSONObj size: {len(raw)} (0x{len(raw):X}) is invalid. Size must be between 0 and "
                f"{DOCUMENT_BYTES_MAX_INTERNAL}(16MB)"
            )
        if collection.clustered:
            record_key = clustered_key(collection, raw)
            if len(raw) > RECORD_ID_BYTES_MAX:
                check_record_id(raw)
            if collection.packed:
                packs.loosen(transaction, prefix, record_key)
            try:
                transaction.insert("records", prefix + record_key, raw)
            except KeyTaken:
                refuse_number_twice(raw)
                raise duplicate(
                    collection, IndexSpec.for_id(collection.options.get("collation")), record_key, raw
                ) from None
        else:
            record_key = number_key(stats.next_record)
            stats.next_record += 1
            transaction.put("records", prefix + record_key, raw)
        for index in collection.indexes:
            made, types = entry_keys(transaction, index, raw)
            for key in made:
                add_entry(transaction, collection, index, key, types, record_key, raw)
        stats.count += 1
        stats.data_bytes += len(raw)
        keys.append(record_key)
    write_stats(transaction, collection, stats)
    if collection.capped:
        _make_room(transaction, collection)
    return keys


def replace(transaction: Transaction, collection: Collection, record_key: bytes, old: bytes, new: bytes) -> None:
    """Put a document in the place of another with the same `_id`; entries that do not change are left alone.

    Raises:
        DuplicateKey, CannotIndexParallelArrays, BSONObjectTooLarge: as `insert`.
    """
    replace_many(transaction, collection, ((record_key, old, new),))


def replace_many(
    transaction: Transaction, collection: Collection, changes: Iterable[tuple[bytes, bytes, bytes]]
) -> None:
    """The same for several, each as record key, document, and new document."""
    if collection.packed:
        changes = list(changes)
        for record_key, _, _ in changes:
            packs.loosen(transaction, number_key(collection.id), record_key)
    rewrite_many(transaction, collection, ((*change, None) for change in changes))


def rewrite_many(transaction: Transaction, collection: Collection, changes: Iterable[Rewrite]) -> list[Entries]:
    """The same where the index entries may be known from the last time; returns those that each document has now.

    Documents that may be packed were fetched by `fetch_loose`.
    """
    grown = 0
    prefix = number_key(collection.id)
    indexes = collection.indexes
    ids = tuple(index.id for index in indexes)
    shared = [None if index.unique else number_key(index.id) for index in indexes]
    rewritten: list[Entries] = []
    records: list[tuple[bytes, bytes]] = []
    entries: list[tuple[bytes, bytes]] = []
    changes = list(changes)
    made = [entry_keys_many(transaction, index, [change[2] for change in changes]) for index in indexes]
    for position, (record_key, old, new, known) in enumerate(changes):
        if len(new) > DOCUMENT_BYTES_MAX_INTERNAL:
            raise BSONObjectTooLarge(f"Resulting document after update is larger than {DOCUMENT_BYTES_MAX_INTERNAL}")
        records.append((prefix + record_key, new))
        now = [keys[position] for keys in made]
        before = known[1] if known is not None and known[0] == ids else None
        if before is None:
            before = [entry_keys(transaction, index, old) for index in indexes]
        for index, own, had, has in zip(indexes, shared, before, now, strict=True):
            if had == has:
                continue
            old_keys, (new_keys, types) = had[0], has
            if own is not None and len(old_keys) == 1 == len(new_keys):
                entries.append(move_entry(transaction, own, old_keys[0], new_keys[0], types, record_key))
            else:
                for key in set(old_keys).difference(new_keys):
                    remove_entry(transaction, index, key, record_key)
                # The same key is kept anew where its types changed.
                for key in set(new_keys).difference(old_keys) if had[1] == types else new_keys:
                    add_entry(transaction, collection, index, key, types, record_key, new)
        grown += len(new) - len(old)
        rewritten.append((ids, now))
    # Neighbours lie in one page.
    transaction.put_many("records", sorted(records))
    transaction.put_many("indexes", sorted(entries))
    if grown:
        stats = read_stats(transaction, collection)
        stats.data_bytes += grown
        write_stats(transaction, collection, stats)
    return rewritten


def remove(transaction: Transaction, collection: Collection, record_key: bytes, old: bytes) -> None:
    """Take a document and its index entries away."""
    if collection.packed:
        packs.loosen(transaction, number_key(collection.id), record_key)
    transaction.delete("records", number_key(collection.id) + record_key)
    for index in collection.indexes:
        for key in entry_keys(transaction, index, old)[0]:
            remove_entry(transaction, index, key, record_key)
    stats = read_stats(transaction, collection)
    stats.count -= 1
    stats.data_bytes -= len(old)
    write_stats(transaction, collection, stats)


def fetch(snapshot: Snapshot, collection: Collection, record_key: bytes) -> bytes | None:
    """The document of a record key."""
    if collection.packed:
        return packs.fetch(snapshot, number_key(collection.id), record_key, heads=collection.heads)
    return snapshot.get("records", number_key(collection.id) + record_key)


def fetch_loose(transaction: Transaction, collection: Collection, record_key: bytes) -> bytes | None:
    """The same for somebody who is about to rewrite the document: it lies by itself from now on."""
    key = number_key(collection.id) + record_key
    raw = transaction.get("records", key)
    if collection.packed and (raw is None or packs.is_pack(raw)):
        packs.loosen(transaction, key[:8], record_key)
        raw = transaction.get("records", key)
    return raw


def fetch_loose_many(transaction: Transaction, collection: Collection, record_keys: list[bytes]) -> list[bytes | None]:
    """The same of several."""
    prefix = number_key(collection.id)
    raws = transaction.get_many("records", [prefix + key for key in record_keys])
    if collection.packed and any(raw is None or packs.is_pack(raw) for raw in raws):
        return [fetch_loose(transaction, collection, key) for key in record_keys]
    return raws


def record_key_of_id(snapshot: Snapshot, collection: Collection, identity: Any) -> bytes | None:
    """The record key of the document whose `_id` equals `identity`."""
    wanted = encode({"_id": identity})
    key = clustered_key(collection, wanted)
    if collection.clustered:
        return key
    if not collection.indexes:
        return None
    entry = snapshot.get("indexes", number_key(collection.indexes[0].id) + key)
    return None if entry is None else record_of_entry(entry)


def fetch_by_id(snapshot: Snapshot, collection: Collection, identity: Any) -> tuple[bytes, bytes] | None:
    """Record key and document of the `_id`."""
    record_key = record_key_of_id(snapshot, collection, identity)
    raw = None if record_key is None else fetch(snapshot, collection, record_key)
    return None if record_key is None or raw is None else (record_key, raw)


def scan(
    snapshot: Snapshot,
    collection: Collection,
    *,
    after_key: bytes | None = None,
    low: bytes | None = None,
    high: bytes | None = None,
    reverse: bool = False,
) -> Iterator[tuple[bytes, bytes]]:
    """Record keys and documents in the order of their record keys.

    Args:
        after_key: go on behind this record key (before it, when `reverse`).
        low, high: record keys with `low <= key < high`.
    """
    prefix = number_key(collection.id)
    start = prefix + (low or b"")
    stop = prefix + high if high is not None else after(prefix)
    if after_key is not None:
        if reverse:
            stop = min(stop, prefix + after_key)
        else:
            start = max(start, prefix + after_key + b"\0")
    if start >= stop:
        return
    if snapshot.reads is not None:
        snapshot.reads.add(prefix)
    if collection.packed:
        yield from packs.scan(snapshot, prefix, start, stop, reverse=reverse, heads=collection.heads)
        return
    skip = len(prefix)
    for key, raw in snapshot.scan("records", start, stop, reverse=reverse):
        yield key[skip:], raw


def index_scan(
    snapshot: Snapshot,
    index: IndexSpec,
    low: bytes = b"",
    high: bytes | None = None,
    *,
    after_key: bytes | None = None,
    reverse: bool = False,
) -> Iterator[tuple[bytes, bytes]]:
    """Entries of an index as (entry key, record key), in the order of the index.

    Arguments as of `entry_scan`.
    """
    found = entry_scan(snapshot, index, low, high, after_key=after_key, reverse=reverse)
    return ((key, record_of_entry(value)) for key, value in found)


def entry_scan(
    snapshot: Snapshot,
    index: IndexSpec,
    low: bytes = b"",
    high: bytes | None = None,
    *,
    after_key: bytes | None = None,
    reverse: bool = False,
) -> Iterator[tuple[bytes, bytes]]:
    """Entries of an index as (entry key, what the entry holds), in the order of the index.

    Args:
        low, high: entry keys with `low <= key < high`, as `key_string` makes them. Where one is long, entries from
            outside may be among those found.
        after_key: go on behind this entry key (before it, when `reverse`).
    """
    prefix = number_key(index.id)
    start = prefix + cut_low(low)
    stop = prefix + cut_high(high) if high is not None else after(prefix)
    if after_key is not None:
        if reverse:
            stop = min(stop, prefix + after_key)
        else:
            start = max(start, prefix + after_key + b"\0")
    if start >= stop:
        return
    if snapshot.reads is not None:
        snapshot.reads.add(prefix)
    skip = len(prefix)
    for key, value in snapshot.scan("indexes", start, stop, reverse=reverse):
        yield key[skip:], value


def fill_index(
    transaction: Transaction, collection: Collection, index: IndexSpec, after_key: bytes | None, limit: int
) -> bytes | None:
    """Make the entries of up to `limit` documents behind `after_key`; returns where to go on, None at the end.

    Raises:
        DuplicateKey, CannotIndexParallelArrays: as `insert`.
    """
    last = None
    slice_of = scan(transaction, collection, after_key=after_key)
    rows = [row for _, row in zip(range(limit), slice_of, strict=False)]
    for record_key, raw in rows:
        made, types = entry_keys(transaction, index, raw)
        for key in made:
            add_entry(transaction, collection, index, key, types, record_key, raw)
        last = record_key
    return last if len(rows) == limit else None


def collated_key_string(index: IndexSpec, values: Document, descending: list[bool]) -> bytes:
    """KeyString of the values (in order) as the index compares them; for the bounds of a scan."""
    return bound_string(index, values, descending)


def clustered_key(collection: Collection, raw: bytes) -> bytes:
    """Where a clustered collection keeps the document."""
    return key_of_id(raw) if collection.collation is None else key_of_id(raw, collection.collation.key)


def _make_room(transaction: Transaction, collection: Collection) -> None:
    """Remove the oldest documents of a capped collection until it is within its limits."""
    while True:
        stats = read_stats(transaction, collection)
        over_count = collection.capped_documents_max and stats.count > collection.capped_documents_max
        if stats.count <= 1 or not (over_count or stats.data_bytes > collection.capped_bytes_max):
            return
        record_key, raw = next(scan(transaction, collection))
        remove(transaction, collection, record_key, raw)


def record_id_of(record_key: bytes) -> int:
    """The record id as clients see it (`$recordId`)."""
    return number_of(record_key.ljust(8, b"\0")[:8])
