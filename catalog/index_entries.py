"""The entries of indexes: which keys a document has, keeping them, and the words for a key that is taken.

An entry lies under the index's number and the KeyString of the indexed values, with the record key as its value and,
unless the index is unique, at the end of its key. Keys longer than the store allows are cut and end in a hash: an index
that has such keys says so in its state (`long_keys`), because they are not in order among themselves.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from ..common.display import value_text
from ..common.errors import CannotIndexParallelArrays, DuplicateKey, Location
from ..common.values import Document, decode, encode
from ..kernels import (
    LONG_KEY_BYTES,
    LONG_KEY_PREFIX,
    AmbiguousPath,
    IndexKeyMaker,
    IndexRefused,
    ParallelArrays,
    cap_key,
    key_string,
)
from ..storage.engine import Snapshot, Transaction
from ..storage.errors import DuplicateKey as KeyTaken
from ..storage.keys import after, number_key
from .collections import Collection
from .index_makers import key_maker
from .index_specs import IndexSpec

_LEARNED_PREFIX: Final = b"multikey"
_RECORD_KEY_BYTES_MAX: Final = 128


def entry_keys(transaction: Transaction, index: IndexSpec, raw: bytes) -> list[bytes]:
    """The keys under which an index keeps a document, different and in order; what is new of them is remembered.

    Raises:
        CannotIndexParallelArrays: two fields of the index are arrays.
        Location: 16746, a number in a path is both a position and a field; other codes for what the kind of index refuses.
    """
    keys, arrays = _keys(index, raw)
    long = any(len(key) == LONG_KEY_BYTES for key in keys)
    if arrays is not None or long:
        _learn(transaction, index, arrays, long)
    return keys


def keys_of(index: IndexSpec, raw: bytes) -> list[bytes]:
    """The same of a document that is stored already: nothing is learned."""
    return _keys(index, raw)[0]


def _keys(index: IndexSpec, raw: bytes) -> tuple[list[bytes], list[list[int]] | None]:
    state = index.state
    if state.accepts is not None and not state.accepts(raw):
        return [], None
    try:
        return (state.make_keys or prepare(index))(raw)
    except ParallelArrays as error:
        raise CannotIndexParallelArrays(str(error)) from None
    except AmbiguousPath as error:
        raise Location(16746, str(error)) from None
    except IndexRefused as error:
        code, why = error.args
        raise Location(code, why) from None


def prepare(index: IndexSpec) -> Callable[[bytes], tuple[list[bytes], list[list[int]] | None]]:
    """Make the function that makes the index's keys, and keep it with the index."""
    maker = key_maker(index)
    collation = index.collation
    if collation is None:
        index.state.make_keys = maker.keys
        return maker.keys
    collate = collation.key

    def keys_under_collation(raw: bytes) -> tuple[list[bytes], list[list[int]] | None]:
        return maker.keys(raw, collate)

    index.state.make_keys = keys_under_collation
    return keys_under_collation


def add_entry(
    transaction: Transaction, collection: Collection, index: IndexSpec, key: bytes, record_key: bytes, raw: bytes
) -> None:
    """Keep a record under a key.

    Raises:
        DuplicateKey: the index is unique, and another record has the key.
    """
    entry = number_key(index.id) + key
    if not index.unique:
        transaction.put("indexes", entry + _suffix(record_key), record_key)
        return
    try:
        transaction.insert("indexes", entry, record_key)
    except KeyTaken:
        if transaction.get("indexes", entry) != record_key:
            raise duplicate(collection, index, key, raw) from None


def record_under(snapshot: Snapshot, index: IndexSpec, key: bytes, record_key: bytes) -> bytes | None:
    """The record that an index keeps under a key, or under this key for this record where it may keep several."""
    entry = number_key(index.id) + key
    return snapshot.get("indexes", entry if index.unique else entry + _suffix(record_key))


def remove_entry(transaction: Transaction, index: IndexSpec, key: bytes, record_key: bytes) -> None:
    """Forget a record under a key; nothing happens where it is not there."""
    entry = number_key(index.id) + key
    if not index.unique:
        transaction.delete("indexes", entry + _suffix(record_key))
    elif transaction.get("indexes", entry) == record_key:
        transaction.delete("indexes", entry)


def move_entry(
    transaction: Transaction, prefix: bytes, key: bytes, new_key: bytes, record_key: bytes
) -> tuple[bytes, bytes]:
    """Forget a record under a key of an index that is not unique; returns the entry to put for it under another key.

    Args:
        prefix: key of the index's number.
    """
    suffix = _suffix(record_key)
    transaction.delete("indexes", prefix + key + suffix)
    return prefix + new_key + suffix, record_key


def duplicate(collection: Collection, index: IndexSpec, key: bytes, raw: bytes) -> DuplicateKey:
    """MongoDB's words for a key that a unique index holds already."""
    collation = index.collation
    values: Document = {}
    if index.kind == "btree":
        maker = IndexKeyMaker(list(index.paths), list(index.descending), index.sparse)
        rows = maker.rows(raw) if collation is None else maker.rows(raw, collation.key)
        values = next((decode(row) for full, row in rows if cap_key(full) == key), {})
    told = "" if collation is None else f" collation: {value_text(collation.to_document())}"
    return DuplicateKey(
        f"E11000 duplicate key error collection: {collection.namespace} index: {index.name}{told} "
        f"dup key: {value_text(values)}",
        extra={"keyPattern": index.key, "keyValue": values},
    )


def bound_string(index: IndexSpec, values: Document, descending: list[bool]) -> bytes:
    """KeyString of the values (in order) as the index compares them."""
    collation = index.collation
    raw = encode(values)
    return key_string(raw, descending) if collation is None else key_string(raw, descending, collation.key)


def cut_low(low: bytes) -> bytes:
    """A lower bound (inclusive) that leaves out no entry whose key was cut."""
    return low[:LONG_KEY_PREFIX]


def cut_high(high: bytes) -> bytes:
    """An upper bound (exclusive) that leaves out no entry whose key was cut."""
    return high if len(high) <= LONG_KEY_PREFIX else after(high[:LONG_KEY_PREFIX])


def learned_key(index: IndexSpec) -> bytes:
    """Where the catalog keeps what was learned of an index."""
    return _LEARNED_PREFIX + number_key(index.id)


def load_learned(snapshot: Snapshot, index: IndexSpec) -> None:
    """Remember what was learned of an index before the last stop."""
    stored = snapshot.get("meta", learned_key(index))
    if stored is not None:
        learned = decode(stored)
        index.state.multikey_paths = tuple(tuple(one) for one in learned["paths"])
        index.state.long_keys = learned["long"]


def _learn(transaction: Transaction, index: IndexSpec, arrays: list[list[int]] | None, long: bool) -> None:
    """Remember that a path holds arrays, or that a key was cut.

    Readers are told before it is durable: a plan that expects arrays is right without them too. Whether it is stored is
    looked up each time, since a transaction that stored it may have been given up.
    """
    state = index.state
    found = arrays or [[]] * len(index.paths)
    known = state.multikey_paths or ((),) * len(found)
    merged = tuple(tuple(sorted({*had, *new})) for had, new in zip(known, found, strict=True))
    state.long_keys = state.long_keys or long
    state.multikey_paths = merged
    learned = encode({"paths": [list(one) for one in merged], "long": state.long_keys})
    if transaction.get("meta", learned_key(index)) != learned:
        transaction.put("meta", learned_key(index), learned)


def _suffix(record_key: bytes) -> bytes:
    """What tells records with the same key apart; the keys of clustered collections can be long."""
    return record_key if len(record_key) <= _RECORD_KEY_BYTES_MAX else hashlib.sha256(record_key).digest()
