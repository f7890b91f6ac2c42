"""The entries of indexes: which keys a document has, keeping them, and the words for a key that is taken.

An entry lies under the index's number and the KeyString of the indexed values, with the record key as its value and,
unless the index is unique, at the end of its key. Behind a record id stand the types of the values, where they can be told
back from the key: a plan that needs nothing else then reads no document. Keys longer than the store allows are cut and end
in a hash: an index that has such keys says so in its state (`long_keys`), because they are not in order among themselves.
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
from ..storage.keys import RECORD_ID_BYTES, after, number_key
from .collections import Collection
from .index_makers import key_maker
from .index_specs import IndexSpec, TypedKeys

_LEARNED_PREFIX: Final = b"multikey"
_RECORD_KEY_BYTES_MAX: Final = 128
EntryKeys = tuple[list[bytes], bytes]
"""The keys under which an index keeps a document, different and in order, and the types of the key where there is one."""


def entry_keys(transaction: Transaction, index: IndexSpec, raw: bytes) -> EntryKeys:
    """The keys under which an index keeps a document; what is new of them is remembered.

    Raises:
        CannotIndexParallelArrays: two fields of the index are arrays.
        Location: 16746, a number in a path is both a position and a field; other codes for what the kind of index refuses.
    """
    keys, arrays, types = _keys(index, raw)
    long = any(len(key) == LONG_KEY_BYTES for key in keys)
    if arrays is not None or long:
        _learn(transaction, index, arrays, long)
    return keys, types


def entry_keys_many(transaction: Transaction, index: IndexSpec, raws: list[bytes]) -> list[EntryKeys]:
    """The same of several documents."""
    state = index.state
    if state.accepts is not None:
        return [entry_keys(transaction, index, raw) for raw in raws]
    make_keys = state.make_keys or prepare(index)
    found: list[EntryKeys] = []
    for raw in raws:
        try:
            keys, arrays, types = make_keys(raw)
        except (ParallelArrays, AmbiguousPath, IndexRefused):
            keys, arrays, types = [], [], b""
        if arrays is None and len(keys) == 1 and len(keys[0]) != LONG_KEY_BYTES:
            found.append((keys, types))
        else:
            # There is something to learn, or to refuse.
            found.append(entry_keys(transaction, index, raw))
    return found


def keys_of(index: IndexSpec, raw: bytes) -> list[bytes]:
    """The same keys of a document that is stored already: nothing is learned."""
    return _keys(index, raw)[0]


def typed_keys_of(index: IndexSpec, raw: bytes) -> TypedKeys:
    """The same with the array components of the index's paths, where there are any, and the types of a single key."""
    return _keys(index, raw)


def _keys(index: IndexSpec, raw: bytes) -> TypedKeys:
    state = index.state
    if state.accepts is not None and not state.accepts(raw):
        return [], None, b""
    try:
        return (state.make_keys or prepare(index))(raw)
    except ParallelArrays as error:
        raise CannotIndexParallelArrays(str(error)) from None
    except AmbiguousPath as error:
        raise Location(16746, str(error)) from None
    except IndexRefused as error:
        code, why = error.args
        raise Location(code, why) from None


def prepare(index: IndexSpec) -> Callable[[bytes], TypedKeys]:
    """Make the function that makes the index's keys, and keep it with the index."""
    maker = key_maker(index)
    collation = index.collation
    if collation is None and isinstance(maker, IndexKeyMaker):
        index.state.make_keys = maker.typed_keys
        return maker.typed_keys
    collate = None if collation is None else collation.key

    def keys_without_types(raw: bytes) -> TypedKeys:
        keys, arrays = maker.keys(raw) if collate is None else maker.keys(raw, collate)
        return keys, arrays, b""

    index.state.make_keys = keys_without_types
    return keys_without_types


def add_entry(
    transaction: Transaction,
    collection: Collection,
    index: IndexSpec,
    key: bytes,
    types: bytes,
    record_key: bytes,
    raw: bytes,
) -> None:
    """Keep a record under a key.

    Raises:
        DuplicateKey: the index is unique, and another record has the key.
    """
    entry = number_key(index.id) + key
    value = entry_value(record_key, types)
    if not index.unique:
        transaction.put("indexes", entry + _suffix(record_key), value)
        return
    try:
        transaction.insert("indexes", entry, value)
    except KeyTaken:
        stored = transaction.get("indexes", entry)
        if stored is None or record_of_entry(stored) != record_key:
            raise duplicate(collection, index, key, raw) from None
        transaction.put("indexes", entry, value)


def entry_value(record_key: bytes, types: bytes) -> bytes:
    """What an entry holds: the record key and, behind a record id, the types of the values."""
    return record_key if record_key[0] else record_key + types


def record_of_entry(value: bytes) -> bytes:
    """The record key that an entry holds. Record ids begin with a zero, as no KeyString does."""
    return value if value[0] else value[:RECORD_ID_BYTES]


def types_of_entry(value: bytes) -> bytes:
    """The types that an entry holds; empty where it has none."""
    return b"" if value[0] else value[RECORD_ID_BYTES:]


def entry_under(index: IndexSpec, key: bytes, record_key: bytes) -> bytes:
    """Under what an index keeps a record that has a key, without the index's number."""
    return key if index.unique else key + _suffix(record_key)


def remove_entry(transaction: Transaction, index: IndexSpec, key: bytes, record_key: bytes) -> None:
    """Forget a record under a key; nothing happens where it is not there."""
    entry = number_key(index.id) + key
    if not index.unique:
        transaction.delete("indexes", entry + _suffix(record_key))
    else:
        stored = transaction.get("indexes", entry)
        if stored is not None and record_of_entry(stored) == record_key:
            transaction.delete("indexes", entry)


def move_entry(
    transaction: Transaction, prefix: bytes, key: bytes, new_key: bytes, types: bytes, record_key: bytes
) -> tuple[bytes, bytes]:
    """Forget a record under a key of an index that is not unique; returns the entry to put for it under another key.

    Args:
        prefix: key of the index's number.
        types: those of the new key.
    """
    suffix = _suffix(record_key)
    if key != new_key:
        transaction.delete("indexes", prefix + key + suffix)
    return prefix + new_key + suffix, entry_value(record_key, types)


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
