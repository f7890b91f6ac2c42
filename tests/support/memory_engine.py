"""The contract of the store in the simplest form that is right: dictionaries, copied for each transaction."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from bucketd.storage.engine import KEY_BYTES_MAX, TABLES, Engine, Snapshot, Transaction
from bucketd.storage.errors import DuplicateKey, StorageError

Result = TypeVar("Result")
Tables = dict[str, dict[bytes, bytes]]


class MemorySnapshot(Snapshot):
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._tables[table].get(key)

    def scan(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for key in self.keys(table, low, high, reverse=reverse):
            yield key, self._tables[table][key]

    def keys(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        yield from sorted((key for key in self._tables[table] if low <= key < high), reverse=reverse)


class MemoryTransaction(MemorySnapshot, Transaction):
    def put(self, table: str, key: bytes, value: bytes) -> None:
        assert 0 < len(key) <= KEY_BYTES_MAX, len(key)
        self._tables[table][key] = value

    def insert(self, table: str, key: bytes, value: bytes) -> None:
        if key in self._tables[table]:
            raise DuplicateKey(f"{table}: {key.hex()}")
        self.put(table, key, value)

    def delete(self, table: str, key: bytes) -> bool:
        return self._tables[table].pop(key, None) is not None

    def delete_range(self, table: str, low: bytes, high: bytes, limit: int) -> int:
        gone = list(self.keys(table, low, high))[:limit]
        for key in gone:
            del self._tables[table][key]
        return len(gone)


class MemoryEngine(Engine):
    """Runs each work twice, and keeps the second run: work may run again, and tests should notice what that breaks."""

    def __init__(self) -> None:
        self._tables: Tables = {table: {} for table in TABLES}
        self._closed = False
        self.held = 0

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        yield MemorySnapshot(self._tables)

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        await asyncio.sleep(0)
        if self._closed:
            raise StorageError("the store is closed")
        for _ in range(2):
            copy = {table: dict(pairs) for table, pairs in self._tables.items()}
            result = work(MemoryTransaction(copy))
        self._tables = copy
        return result

    async def hold(self) -> Callable[[], None]:
        # Nothing is ever queued here; whether writes would wait is only noted.
        self.held += 1

        def release() -> None:
            self.held -= 1

        return release

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for pairs in self._tables.values() for key, value in pairs.items())

    def finish_writes(self) -> None:
        self._closed = True

    def close(self) -> None:
        self._closed = True
