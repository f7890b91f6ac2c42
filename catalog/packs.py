"""Packs: buckets that lie beside each other, kept as one compressed value.

A bucket is small beside the pages of a store, and much of it (names of fields, meta, extremes, the form of its columns) says
what its neighbours say as well. So buckets that nobody is filling any more are put together: the value under the key of the
last of them holds all of them, compressed, and their own keys go. Nobody above `catalog/documents.py` sees any of it, but for
those who ask for the heads of buckets: documents without `data`, which know where their columns are.

Between the first and the last key of a pack lies no other record. Whoever writes one there, or changes or removes one of
the pack, takes the pack apart first (`loosen`); a later pass packs again. So what a pack tells of its buckets beyond their
documents (sums and counts of columns) cannot become untrue.

A pack begins with a number that no document begins with (its length would be negative), the ObjectId of its first bucket, the
number of buckets and eight random bytes. What follows is of one of two kinds:

* by columns (`PK\x02\xff`): the length of a zstd frame, the frame, and streams of the columns' numbers. The kernel knows what
  is in them (`kernels/src/pack/`);
* by documents (`PK\x01\xff`): a zstd frame of the buckets' documents one behind the other. So are packed those that the
  kernel does not take: of version 1, or of another form than ours.
"""

import os
import struct
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ..common.zstd import zstd
from ..kernels import BucketPack, key_string, make_pack
from ..storage.engine import Snapshot, Transaction
from ..storage.errors import Corrupted
from ..storage.keys import after

RAW_BYTES_MAX: Final = 256 * 1024
"""So many bytes of documents make a pack, since one bucket of it cannot be read without the others."""
COUNT_MAX: Final = 256

_SAVED_PREFIX: Final = b"packed"
_BY_DOCUMENTS: Final = b"PK\x01\xff"
_BY_COLUMNS: Final = b"PK\x02\xff"
_MARKS: Final = (_BY_DOCUMENTS, _BY_COLUMNS)
_HEAD: Final = struct.Struct("<4s12sH8s")
_STAMP: Final = slice(18, 26)
_ID_AT: Final = slice(9, 21)
_ID_NAME: Final = b"\x07_id\0"
_LEVEL: Final = 3
_OBJECT_ID_ELEMENT: Final = b"\x16\x00\x00\x00\x07_id\x00"
_LENGTH: Final = struct.Struct("<i")
_FRAME_LENGTH: Final = struct.Struct("<I")
_LATELY_BYTES: Final = 64 * 1024 * 1024
"""Packs that were read lately are kept as they are read, up to about so many bytes of them."""

_KEPT_MAX: Final = 8

_PAGE_BYTES: Final = 4096
_PAGE_HEAD_BYTES: Final = 16
_NODE_BYTES_MAX: Final = 2000
"""About what LMDB keeps among others in a page; what is longer gets pages of its own."""
_NODE_OVERHEAD_BYTES: Final = 32
_MUST_SAVE: Final = 0.85

Rows = list[tuple[bytes, bytes]]
"""Record keys and documents, in the order of the keys."""


class Head(bytes):
    """The document of a bucket in a pack, without `data`.

    Attributes:
        pack: where the columns are.
        number: its place there.
    """

    pack: BucketPack
    number: int


def whole(head: Head) -> bytes:
    """The document that a head belongs to.

    Raises:
        Corrupted: it cannot be read.
    """
    return _document(head.pack, head.number)


def tells_true(head: Head) -> bool:
    """Whether the counts, sums and extremes that a pack tells of a bucket are those of its columns.

    Raises:
        Corrupted: they cannot be read.
    """
    try:
        return head.pack.tells_true(head.number)
    except ValueError as error:
        raise Corrupted(f"a pack of buckets cannot be read: {error}") from error


def _document(pack: BucketPack, number: int) -> bytes:
    try:
        return pack.document(number)
    except ValueError as error:
        raise Corrupted(f"a pack of buckets cannot be read: {error}") from error


class Members(Protocol):
    """The buckets of a pack."""

    @property
    def keys(self) -> list[bytes]:
        """Keys of their records."""

    @property
    def heads(self) -> Rows:
        """Record keys and heads, or documents where there are none."""

    @property
    def size(self) -> int:
        """About the bytes of memory that it takes."""

    @property
    def rows(self) -> Rows:
        """Record keys and documents."""

    def document(self, place: int) -> bytes:
        """One of the documents."""


class _ByDocuments:
    """Buckets that are there as documents."""

    def __init__(self, rows: Rows, size: int) -> None:
        self.rows = self.heads = rows
        self.keys = [key for key, _ in rows]
        self.size = size

    def document(self, place: int) -> bytes:
        """See `Members.document`."""
        return self.rows[place][1]


class _ByColumns:
    """Buckets whose documents are made where somebody asks for one."""

    def __init__(self, pack: BucketPack, key_type: bytes) -> None:
        self._pack = pack
        self.keys: list[bytes] = []
        self.heads: Rows = []
        for number, raw in enumerate(pack.heads()):
            if raw[4:9] != _ID_NAME:
                raise Corrupted("a pack of buckets holds something else than buckets")
            head = Head(raw)
            head.pack, head.number = pack, number
            key = key_type + raw[_ID_AT]
            self.keys.append(key)
            self.heads.append((key, head))
        self.size = 2 * pack.held_bytes

    @property
    def rows(self) -> Rows:
        """See `Members.rows`."""
        return [(key, self.document(place)) for place, key in enumerate(self.keys)]

    def document(self, place: int) -> bytes:
        """See `Members.document`."""
        return _document(self._pack, place)


def is_pack(value: bytes) -> bool:
    """Whether a record holds several buckets."""
    return value[:4] in _MARKS


def may_be_packed(record_key: bytes, raw: bytes) -> bool:
    """Whether a record is a document whose key can be told from its `_id`, an ObjectId, again."""
    return raw[4:9] == _ID_NAME and len(record_key) == 13 and record_key[1:] == raw[_ID_AT]


def stored_size(length: int) -> int:
    """About the bytes that a record of this length takes in the store's pages."""
    if length <= _NODE_BYTES_MAX:
        return length + _NODE_OVERHEAD_BYTES
    return -(-(length + _PAGE_HEAD_BYTES) // _PAGE_BYTES) * _PAGE_BYTES + _NODE_OVERHEAD_BYTES


def pack(rows: Sequence[tuple[bytes, bytes]]) -> tuple[int, bytes, int] | None:
    """Make a pack of the first so many rows, of so many bytes; None where it would not pay.

    Of some lengths that are about as good, the one is taken that leaves the least of its last page empty.
    """
    raws = [raw for _, raw in rows]
    count, value = len(rows), _made(raws)
    share = _share(raws, value)
    each = len(value) / count
    fuller = min(range(max(count - 4, 1), count + 1), key=lambda fewer: stored_size(int(each * fewer)) / fewer)
    if fuller < count:
        other = _made(raws[:fuller])
        if _share(raws[:fuller], other) < share * 0.99:
            count, value = fuller, other
            share = _share(raws[:fuller], other)
    return None if share > _MUST_SAVE else (count, value, sum(len(raw) for raw in raws[:count]))


def _share(raws: Sequence[bytes], value: bytes) -> float:
    """The space of a pack, of that of its documents."""
    return stored_size(len(value)) / sum(stored_size(len(raw)) for raw in raws)


def _made(raws: Sequence[bytes]) -> bytes:
    parts = make_pack(raws)
    mark = _BY_DOCUMENTS if parts is None else _BY_COLUMNS
    start = _HEAD.pack(mark, raws[0][_ID_AT], len(raws), os.urandom(8))
    if parts is None:
        return start + _compressed(b"".join(raws))
    frame = _compressed(parts[0])
    return start + _FRAME_LENGTH.pack(len(frame)) + frame + parts[1]


def _compressed(raw: bytes) -> bytes:
    module = zstd()
    options = {
        module.CompressionParameter.compression_level: _LEVEL,
        module.CompressionParameter.checksum_flag: 1,
    }
    frame: bytes = module.compress(raw, options=options)
    return frame


class _Lately:
    """The packs that were read last, as documents. A key and the random bytes of a pack tell it from all others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[bytes, bytes], Members] = OrderedDict()
        self._bytes = 0

    def get(self, name: tuple[bytes, bytes]) -> Members | None:
        """The documents of a pack, if they are kept."""
        with self._lock:
            found = self._found.get(name)
            if found is None:
                return None
            self._found.move_to_end(name)
            return found

    def put(self, name: tuple[bytes, bytes], found: Members) -> None:
        """Keep a pack in the place of those that were read longest ago."""
        if found.size > _LATELY_BYTES // 8:
            return
        with self._lock:
            before = self._found.pop(name, None)
            self._bytes += found.size - (0 if before is None else before.size)
            self._found[name] = found
            while self._bytes > _LATELY_BYTES:
                self._bytes -= self._found.popitem(last=False)[1].size


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
        mark, _, count, _ = _HEAD.unpack_from(value)
        if mark == _BY_COLUMNS:
            (length,) = _FRAME_LENGTH.unpack_from(value, _HEAD.size)
            begin = _HEAD.size + _FRAME_LENGTH.size
            heads = module.decompress(value[begin : begin + length])
            found = _ByColumns(BucketPack(heads, value[begin + length :]), key[8:9])
        else:
            found = _by_documents(key[8:9], module.decompress(value[_HEAD.size :]))
    except (module.ZstdError, struct.error, ValueError) as error:
        raise Corrupted(f"a pack of buckets cannot be read: {error}") from error
    if len(found.keys) != count or key[8:] != found.keys[-1]:
        raise Corrupted("a pack of buckets lies under another key than that of its last bucket")
    _lately.put(name, found)
    return found


def _by_documents(key_type: bytes, joined: bytes) -> Members:
    """What documents one behind the other are."""
    found, at = [], 0
    while at < len(joined):
        (length,) = _LENGTH.unpack_from(joined, at) if at + 4 <= len(joined) else (0,)
        raw = joined[at : at + length]
        if len(raw) != length or raw[4:9] != _ID_NAME:
            raise Corrupted("a pack of buckets holds something else than buckets")
        found.append((key_type + raw[_ID_AT], raw))
        at += length
    return _ByDocuments(found, len(joined))


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


def fetch(snapshot: Snapshot, prefix: bytes, record_key: bytes, *, heads: bool = False) -> bytes | None:
    """The document of a record key, packed or not; if `heads`, without `data` where it is in a pack."""
    key = prefix + record_key
    held = _kept(snapshot, key)
    if held is None:
        value = snapshot.get("records", key)
        if value is not None and not is_pack(value):
            return value
        found = (key, value) if value is not None else covering(snapshot, prefix, key)
        if found is None:
            return None
        held = members(*found)
        _keep(snapshot, prefix, held)
    place = bisect_left(held.keys, record_key)
    if place == len(held.keys) or held.keys[place] != record_key:
        return None
    return held.heads[place][1] if heads else held.document(place)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A pack that a snapshot has, and its first and last key, with the collection's number."""

    first: bytes
    last: bytes
    held: Members


def _kept(snapshot: Snapshot, key: bytes) -> Members | None:
    """The pack that a key lies in, if it was read lately under the same snapshot."""
    for one in snapshot.kept or ():
        if isinstance(one, _Kept) and one.first <= key <= one.last:
            return one.held
    return None


def _keep(snapshot: Snapshot, prefix: bytes, held: Members) -> None:
    if isinstance(snapshot, Transaction):
        return
    if snapshot.kept is None:
        snapshot.kept = []
    snapshot.kept.insert(0, _Kept(prefix + held.keys[0], prefix + held.keys[-1], held))
    del snapshot.kept[_KEPT_MAX:]


def scan(
    snapshot: Snapshot, prefix: bytes, start: bytes, stop: bytes, *, reverse: bool, heads: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Record keys and documents with `start <= key < stop`, as if nothing were packed; heads as of `fetch`."""
    skip = len(prefix)
    low, high = start[skip:], stop[skip:] if stop.startswith(prefix) else None
    if not reverse:
        # A pack that begins before `stop` may end behind it.
        for key, value in snapshot.scan("records", start, after(prefix)):
            if is_pack(value):
                yield from _between(members(key, value), low, high, heads=heads, reverse=False)
            elif key < stop:
                yield key[skip:], value
            if key >= stop:
                return
        return
    found = covering(snapshot, prefix, stop) if high is not None else None
    if found is not None:
        yield from _between(members(*found), low, high, heads=heads, reverse=True)
    for key, value in snapshot.scan("records", start, stop, reverse=True):
        if is_pack(value):
            yield from _between(members(key, value), low, None, heads=heads, reverse=True)
        else:
            yield key[skip:], value


def _between(
    held: Members, low: bytes, high: bytes | None, *, heads: bool, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The members with `low <= key < high`."""
    start = bisect_left(held.keys, low)
    stop = len(held.keys) if high is None else bisect_left(held.keys, high)
    places = range(stop - 1, start - 1, -1) if reverse else range(start, stop)
    if heads:
        return (held.heads[place] for place in places)
    return ((held.keys[place], held.document(place)) for place in places)


def loosen(transaction: Transaction, prefix: bytes, record_key: bytes) -> None:
    """Take the pack apart that a record key lies in, if there is one."""
    key = prefix + record_key
    found = covering(transaction, prefix, key)
    if found is not None:
        # The last of them takes the place of the pack.
        rows = members(*found).rows
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
