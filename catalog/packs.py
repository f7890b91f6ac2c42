"""Packs: buckets that lie beside each other, kept as one compressed value.

A bucket is small beside the pages of a store, and much of it (names of fields, meta, extremes, the form of its columns) says
what its neighbours say as well. So buckets that nobody is filling any more are put together: the value under the key of the
last of them holds all of them, compressed, and their own keys go. Nobody above `catalog/documents.py` sees any of it.

Between the first and the last key of a pack lies no other record. Whoever writes one there, or changes or removes one of
the pack, takes the pack apart first (`loosen`); a later pass packs again.

A pack begins with a number that no document begins with (its length would be negative), the ObjectId of its first bucket, the
number of buckets and eight random bytes; what follows is a zstd frame with a checksum, of the buckets' documents one behind
the other.
"""

import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from ..common.zstd import zstd
from ..kernels import key_string
from ..storage.engine import Snapshot, Transaction
from ..storage.errors import Corrupted
from ..storage.keys import after

RAW_BYTES_MAX: Final = 64 * 1024
"""So many bytes of documents make a pack, since one bucket of it cannot be read without the others."""
COUNT_MAX: Final = 256

_SAVED_PREFIX: Final = b"packed"
_MARK: Final = b"PK\x01\xff"
_HEAD: Final = struct.Struct("<4s12sH8s")
_STAMP: Final = slice(18, 26)
_ID_AT: Final = slice(9, 21)
_ID_NAME: Final = b"\x07_id\0"
_LEVEL: Final = 3
_OBJECT_ID_ELEMENT: Final = b"\x16\x00\x00\x00\x07_id\x00"
_LENGTH: Final = struct.Struct("<i")
_LATELY_BYTES: Final = 64 * 1024 * 1024
"""Packs that were read lately are kept as documents, up to so many bytes of them."""

_PAGE_BYTES: Final = 4096
_PAGE_HEAD_BYTES: Final = 16
_NODE_BYTES_MAX: Final = 2000
"""About what LMDB keeps among others in a page; what is longer gets pages of its own."""
_NODE_OVERHEAD_BYTES: Final = 32
_MUST_SAVE: Final = 0.85

Members = list[tuple[bytes, bytes]]
"""Record keys and documents, in the order of the keys."""


def is_pack(value: bytes) -> bool:
    """Whether a record holds several buckets."""
    return value[:4] == _MARK


def may_be_packed(record_key: bytes, raw: bytes) -> bool:
    """Whether a record is a document whose key can be told from its `_id`, an ObjectId, again."""
    return raw[4:9] == _ID_NAME and len(record_key) == 13 and record_key[1:] == raw[_ID_AT]


def stored_size(length: int) -> int:
    """About the bytes that a record of this length takes in the store's pages."""
    if length <= _NODE_BYTES_MAX:
        return length + _NODE_OVERHEAD_BYTES
    return -(-(length + _PAGE_HEAD_BYTES) // _PAGE_BYTES) * _PAGE_BYTES + _NODE_OVERHEAD_BYTES


def pack(rows: Sequence[tuple[bytes, bytes]]) -> tuple[int, bytes] | None:
    """Make a pack of the first so many rows; None where it would not pay.

    Of some lengths that are about as good, the one is taken that leaves the least of its last page empty.
    """
    best: tuple[float, int, bytes] | None = None
    for count in range(len(rows), max(len(rows) - 4, 0), -1):
        made = _made([raw for _, raw in rows[:count]])
        share = stored_size(len(made)) / sum(stored_size(len(raw)) for _, raw in rows[:count])
        if best is None or share < best[0] * 0.99:
            best = (share, count, made)
    if best is None or best[0] > _MUST_SAVE:
        return None
    return best[1], best[2]


def _made(raws: Sequence[bytes]) -> bytes:
    module = zstd()
    options = {
        module.CompressionParameter.compression_level: _LEVEL,
        module.CompressionParameter.checksum_flag: 1,
    }
    frame: bytes = module.compress(b"".join(raws), options=options)
    return _HEAD.pack(_MARK, raws[0][_ID_AT], len(raws), os.urandom(8)) + frame


class _Lately:
    """The packs that were read last, as documents. A key and the random bytes of a pack tell it from all others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[bytes, bytes], tuple[int, Members]] = OrderedDict()
        self._bytes = 0

    def get(self, name: tuple[bytes, bytes]) -> Members | None:
        """The documents of a pack, if they are kept."""
        with self._lock:
            found = self._found.get(name)
            if found is None:
                return None
            self._found.move_to_end(name)
            return found[1]

    def put(self, name: tuple[bytes, bytes], size: int, members: Members) -> None:
        """Keep the documents of a pack, `size` bytes of them, in the place of those that were read longest ago."""
        if size > _LATELY_BYTES // 8:
            return
        with self._lock:
            before = self._found.pop(name, None)
            self._bytes += size - (0 if before is None else before[0])
            self._found[name] = (size, members)
            while self._bytes > _LATELY_BYTES:
                self._bytes -= self._found.popitem(last=False)[1][0]


_lately = _Lately()


def members(key: bytes, value: bytes) -> Members:
    """The buckets of a pack.

    Args:
        key: of the pack, with the number of the collection.

    Raises:
        Corrupted: it is not what was written.
    """
    name = (key, value[_STAMP])
    found = _lately.get(name)
    if found is not None:
        return found
    module = zstd()
    try:
        _, _, count, _ = _HEAD.unpack_from(value)
        joined: bytes = module.decompress(value[_HEAD.size :])
    except (module.ZstdError, struct.error) as error:
        raise Corrupted(f"a pack of buckets cannot be read: {error}") from error
    found, at = [], 0
    while at < len(joined):
        (length,) = _LENGTH.unpack_from(joined, at) if at + 4 <= len(joined) else (0,)
        raw = joined[at : at + length]
        if len(raw) != length or raw[4:9] != _ID_NAME:
            raise Corrupted("a pack of buckets holds something else than buckets")
        found.append((key[8:9] + raw[_ID_AT], raw))
        at += length
    if len(found) != count or key[8:] != found[-1][0]:
        raise Corrupted("a pack of buckets lies under another key than that of its last bucket")
    _lately.put(name, len(joined), found)
    return found


def begins_by(prefix: bytes, value: bytes, key: bytes) -> bool:
    """Whether the first bucket of a pack lies at a key (with the collection's number) or before it."""
    return prefix + key[8:9] + value[4:16] <= key


def covering(snapshot: Snapshot, prefix: bytes, key: bytes) -> tuple[bytes, bytes] | None:
    """Key and value of the pack within whose first and last key a key lies; all with the collection's number."""
    for found, value in snapshot.scan("records", key, after(prefix)):
        if is_pack(value) and begins_by(prefix, value, key):
            return found, value
        return None
    return None


def fetch(snapshot: Snapshot, prefix: bytes, record_key: bytes) -> bytes | None:
    """The document of a record key, packed or not."""
    key = prefix + record_key
    value = snapshot.get("records", key)
    if value is not None and not is_pack(value):
        return value
    found = (key, value) if value is not None else covering(snapshot, prefix, key)
    if found is None:
        return None
    return next((raw for own, raw in members(*found) if own == record_key), None)


def scan(
    snapshot: Snapshot, prefix: bytes, start: bytes, stop: bytes, *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Record keys and documents with `start <= key < stop`, as if nothing were packed."""
    skip = len(prefix)
    low, high = start[skip:], stop[skip:] if stop.startswith(prefix) else None
    if not reverse:
        # A pack that begins before `stop` may end behind it.
        for key, value in snapshot.scan("records", start, after(prefix)):
            if is_pack(value):
                for own, raw in members(key, value):
                    if own >= low and (high is None or own < high):
                        yield own, raw
            elif key < stop:
                yield key[skip:], value
            if key >= stop:
                return
        return
    found = covering(snapshot, prefix, stop) if high is not None else None
    if found is not None:
        for own, raw in reversed(members(*found)):
            if low <= own and (high is None or own < high):
                yield own, raw
    for key, value in snapshot.scan("records", start, stop, reverse=True):
        if is_pack(value):
            for own, raw in reversed(members(key, value)):
                if own >= low:
                    yield own, raw
        else:
            yield key[skip:], value


def loosen(transaction: Transaction, prefix: bytes, record_key: bytes) -> None:
    """Take the pack apart that a record key lies in, if there is one."""
    key = prefix + record_key
    found = covering(transaction, prefix, key)
    if found is not None:
        # The last of them takes the place of the pack.
        rows = members(*found)
        transaction.put_many("records", [(prefix + own, raw) for own, raw in rows])
        note_saved(transaction, prefix, len(found[1]) - sum(len(raw) for _, raw in rows))


def saved_key(prefix: bytes) -> bytes:
    """Where is kept how many bytes the packs of a collection are smaller than their documents."""
    return _SAVED_PREFIX + prefix


def saved_bytes(snapshot: Snapshot, prefix: bytes) -> int:
    """How many bytes the packs of a collection are smaller than their documents."""
    stored = snapshot.get("meta", saved_key(prefix))
    return 0 if stored is None else int.from_bytes(stored, "big")


def note_saved(transaction: Transaction, prefix: bytes, more: int) -> None:
    """Packs were made, or taken apart (`more` is negative then)."""
    saved = max(saved_bytes(transaction, prefix) + more, 0)
    transaction.put("meta", saved_key(prefix), saved.to_bytes(8, "big"))


def record_key(bucket_id: bytes) -> bytes:
    """Where a bucket with this id is stored within its collection."""
    return key_string(_OBJECT_ID_ELEMENT + bucket_id + b"\0")


def records(snapshot: Snapshot, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What is really stored from a key on: keys with the collection's number, documents and packs."""
    return snapshot.scan("records", start, after(prefix))
