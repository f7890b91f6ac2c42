"""Transactions of LMDB as the contract of `storage/engine.py` has them."""

from collections.abc import Iterator
from typing import cast

import lmdb

from .engine import KEY_BYTES_MAX, Snapshot, Transaction
from .errors import DuplicateKey

# Without `buffers=True` LMDB hands out copies.
Pairs = Iterator[tuple[bytes, bytes]]
Keys = Iterator[bytes]


class LmdbSnapshot(Snapshot):
    """A read transaction of LMDB."""

    def __init__(self, transaction: "lmdb.Transaction", tables: dict[str, "lmdb._Database"]) -> None:
        self._transaction = transaction
        self._tables = tables

    def get(self, table: str, key: bytes) -> bytes | None:
        """See `Snapshot.get`."""
        return cast("bytes | None", self._transaction.get(key, db=self._tables[table]))

    def get_many(self, table: str, keys: list[bytes]) -> list[bytes | None]:
        """See `Snapshot.get_many`."""
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            found = dict(cast("list[tuple[bytes, bytes]]", cursor.getmulti(keys)))
        return [found.get(key) for key in keys]

    def scan(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See `Snapshot.scan`."""
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            if reverse:
                if not _seek_below(cursor, high):
                    return
                for key, value in cast(Pairs, cursor.iterprev(keys=True, values=True)):
                    if key < low:
                        return
                    yield key, value
            elif cursor.set_range(low):
                for key, value in cast(Pairs, cursor.iternext(keys=True, values=True)):
                    if key >= high:
                        return
                    yield key, value

    def keys(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """See `Snapshot.keys`."""
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            if reverse:
                if not _seek_below(cursor, high):
                    return
                for key in cast(Keys, cursor.iterprev(keys=True, values=False)):
                    if key < low:
                        return
                    yield key
            elif cursor.set_range(low):
                for key in cast(Keys, cursor.iternext(keys=True, values=False)):
                    if key >= high:
                        return
                    yield key


def _seek_below(cursor: "lmdb.Cursor", high: bytes) -> bool:
    """Stand on the last key below `high`; False where there is none."""
    return bool(cursor.prev() if cursor.set_range(high) else cursor.last())


class LmdbTransaction(LmdbSnapshot, Transaction):
    """A write transaction of LMDB, nested or not."""

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """See `Transaction.put`."""
        assert 0 < len(key) <= KEY_BYTES_MAX, len(key)
        self._transaction.put(key, value, db=self._tables[table])

    def put_many(self, table: str, pairs: list[tuple[bytes, bytes]]) -> None:
        """See `Transaction.put_many`."""
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            cursor.putmulti(pairs)

    def insert(self, table: str, key: bytes, value: bytes) -> None:
        """See `Transaction.insert`."""
        assert 0 < len(key) <= KEY_BYTES_MAX, len(key)
        if not self._transaction.put(key, value, db=self._tables[table], overwrite=False):
            raise DuplicateKey(f"{table}: {key.hex()}")

    def delete(self, table: str, key: bytes) -> bool:
        """See `Transaction.delete`."""
        return bool(self._transaction.delete(key, db=self._tables[table]))

    def delete_range(self, table: str, low: bytes, high: bytes, limit: int) -> int:
        """See `Transaction.delete_range`."""
        removed = 0
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            found = cursor.set_range(low)
            while found and removed < limit and bytes(cursor.key()) < high:
                # Deleting moves the cursor to the next key, and says whether there is one.
                cursor.delete()
                removed += 1
                found = bool(cursor.key())
        return removed
