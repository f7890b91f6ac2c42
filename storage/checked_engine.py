"""Holds another engine to the contract of `storage/engine.py`: each call is passed on, what goes in and out is checked.

For tests and for whoever writes an engine. A breach of contract is an AssertionError, whoever committed it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from .engine import KEY_BYTES_MAX, TABLES, Engine, Snapshot, Transaction
from .errors import DuplicateKey

Result = TypeVar("Result")


class CheckedSnapshot(Snapshot):
    """Passes reads on, and checks order and bounds of what comes back."""

    def __init__(self, inner: Snapshot) -> None:
        self._inner = inner
        self._open = True

    def get(self, table: str, key: bytes) -> bytes | None:
        """See `Snapshot.get`."""
        self._check(table)
        value = self._inner.get(table, key)
        assert value is None or type(value) is bytes, type(value)
        return value

    def scan(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See `Snapshot.scan`."""
        self._check(table)
        last: bytes | None = None
        for key, value in self._inner.scan(table, low, high, reverse=reverse):
            assert self._open, "the iterator outlived its snapshot"
            assert type(key) is type(value) is bytes, (type(key), type(value))
            _check_step(last, key, low, high, reverse)
            last = key
            yield key, value

    def keys(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """See `Snapshot.keys`."""
        self._check(table)
        last: bytes | None = None
        for key in self._inner.keys(table, low, high, reverse=reverse):
            assert self._open, "the iterator outlived its snapshot"
            assert type(key) is bytes, type(key)
            _check_step(last, key, low, high, reverse)
            last = key
            yield key

    def end(self) -> None:
        """The block of the snapshot was left."""
        self._open = False

    def _check(self, table: str) -> None:
        assert self._open, "used after its block was left"
        assert table in TABLES, table


class CheckedTransaction(CheckedSnapshot, Transaction):
    """Passes writes on, and checks that they took effect."""

    def __init__(self, inner: Transaction) -> None:
        super().__init__(inner)
        self._transaction = inner

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """See `Transaction.put`."""
        self._check_pair(table, key, value)
        self._transaction.put(table, key, value)
        assert self._transaction.get(table, key) == value, key

    def insert(self, table: str, key: bytes, value: bytes) -> None:
        """See `Transaction.insert`."""
        self._check_pair(table, key, value)
        before = self._transaction.get(table, key)
        try:
            self._transaction.insert(table, key, value)
        except DuplicateKey:
            assert before is not None, key
            assert self._transaction.get(table, key) == before, key
            raise
        assert before is None, key
        assert self._transaction.get(table, key) == value, key

    def delete(self, table: str, key: bytes) -> bool:
        """See `Transaction.delete`."""
        self._check(table)
        before = self._transaction.get(table, key)
        existed = self._transaction.delete(table, key)
        assert existed == (before is not None), key
        assert self._transaction.get(table, key) is None, key
        return existed

    def delete_range(self, table: str, low: bytes, high: bytes, limit: int) -> int:
        """See `Transaction.delete_range`."""
        self._check(table)
        assert limit > 0, limit
        removed = self._transaction.delete_range(table, low, high, limit)
        assert 0 <= removed <= limit, removed
        if removed < limit:
            assert next(self._transaction.keys(table, low, high), None) is None, (low, high)
        return removed

    def _check_pair(self, table: str, key: bytes, value: bytes) -> None:
        self._check(table)
        assert type(key) is type(value) is bytes, (type(key), type(value))
        assert 0 < len(key) <= KEY_BYTES_MAX, len(key)


class CheckedEngine(Engine):
    """Another engine, watched."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """See `Engine.snapshot`."""
        with self._inner.snapshot() as inner:
            checked = CheckedSnapshot(inner)
            try:
                yield checked
            finally:
                checked.end()

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        """See `Engine.write`."""

        def watched(transaction: Transaction) -> Result:
            checked = CheckedTransaction(transaction)
            try:
                return work(checked)
            finally:
                checked.end()

        return await self._inner.write(watched)

    async def hold(self) -> Callable[[], None]:
        """See `Engine.hold`."""
        return await self._inner.hold()

    def size_bytes(self) -> int:
        """See `Engine.size_bytes`."""
        size = self._inner.size_bytes()
        assert size >= 0, size
        return size

    def finish_writes(self) -> None:
        """See `Engine.finish_writes`."""
        self._inner.finish_writes()

    def close(self) -> None:
        """See `Engine.close`."""
        self._inner.close()


def _check_step(last: bytes | None, key: bytes, low: bytes, high: bytes, reverse: bool) -> None:
    assert low <= key < high, (low, key, high)
    if last is not None:
        assert (key < last) if reverse else (last < key), (last, key)
