"""What the rest of the server may ask of a store: ordered, transactional bytes.

The contract is small enough for a distributed key-value store to stand behind it as well as LMDB. Keys are compared as
unsigned bytes. A table is one of `TABLES`. Nothing here has heard of documents, namespaces or clients.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Final, TypeVar

from .readers import Readers

TABLES: Final = ("meta", "catalog", "records", "indexes")
KEY_BYTES_MAX: Final = 511

Result = TypeVar("Result")
Failure = Exception | None
"""Why a write came to nothing; None where it is durable."""

_under_way: set["asyncio.Task[None]"] = set()
"""Writes that somebody will be told of: a task that nobody holds may be lost."""


class Snapshot(ABC):
    """The store as it stood at one moment. Used by one thread; not after its block was left."""

    reads: set[bytes] | None = None
    """Takes down what is scanned, by the first eight bytes of its keys, where the slice is one of several of a reader."""

    kept: list[object] | None = None
    """What a reader makes of values that it may ask for again, while nothing changes. Of no use in a transaction."""

    @abstractmethod
    def get(self, table: str, key: bytes) -> bytes | None:
        """Value of the key, or None where there is none."""

    def get_many(self, table: str, keys: list[bytes]) -> list[bytes | None]:
        """The same of several keys."""
        return [self.get(table, key) for key in keys]

    @abstractmethod
    def scan(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with `low <= key < high`; keys ascending, descending when `reverse`.

        The iterator lives no longer than the snapshot, and in a transaction no longer than the next write to it.
        """

    @abstractmethod
    def keys(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """The same without the values."""


class Transaction(Snapshot):
    """Sees what it wrote; all of it becomes visible together, or none of it."""

    @abstractmethod
    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Set the key's value, replacing what was there."""

    def put_many(self, table: str, pairs: list[tuple[bytes, bytes]]) -> None:
        """Set several keys."""
        for key, value in pairs:
            self.put(table, key, value)

    @abstractmethod
    def insert(self, table: str, key: bytes, value: bytes) -> None:
        """Set the value of a key that must be new.

        Raises:
            DuplicateKey: the key exists; the transaction goes on.
        """

    @abstractmethod
    def delete(self, table: str, key: bytes) -> bool:
        """Remove the key; True where it existed."""

    @abstractmethod
    def delete_range(self, table: str, low: bytes, high: bytes, limit: int) -> int:
        """Remove up to `limit` keys of `low <= key < high`, lowest first; returns how many."""


class Engine(ABC):
    """Ordered bytes that survive a crash. Raises StorageError and nothing else."""

    @cached_property
    def readers(self) -> Readers:
        """Who reads it slice by slice."""
        return Readers()

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """The store as of now; leaving the block lets go of it. Any thread."""

    @abstractmethod
    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        """Run `work` in a transaction on the writer's thread; on return its effect is durable.

        `work` may run a second time after a conflict (or after the store grew), so it changes nothing but the
        transaction. If it raises, nothing of it was written and the exception is raised here. Works queued at the same
        time share one commit.
        """

    def write_then(
        self, work: Callable[[Transaction], Result], then: Callable[[Result | None, Failure], object]
    ) -> None:
        """The same for who does not wait: on the event loop, `then` gets what came of it, or why nothing did."""

        async def write() -> None:
            try:
                result = await self.write(work)
            except Exception as error:
                then(None, error)
            else:
                then(result, None)

        task = asyncio.get_running_loop().create_task(write())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)

    async def write_beside(self, work: Callable[[Transaction], Result]) -> Result:
        """The same for work that can wait: it joins the commit of others, as long as there are any, and asks for none."""
        return await self.write(work)

    @abstractmethod
    async def hold(self) -> Callable[[], None]:
        """Wait until all that was queued is durable; from then on writes wait until the returned function is called.

        `close` ends it too. Held twice, it takes two releases.
        """

    def quiet(self) -> bool:
        """Whether nobody has written lately but who can wait."""
        return True

    @abstractmethod
    def size_bytes(self) -> int:
        """Bytes that the store takes on disk."""

    @abstractmethod
    def finish_writes(self) -> None:
        """Make durable what is queued, held or not, and take no more; any thread."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is queued, and let go of the folder."""
