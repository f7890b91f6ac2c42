"""Who reads a store slice by slice, and what of it: for writers that must not come between two of somebody's slices.

A reader's slices see the store at different moments. That is no matter to most writes: what changes beside a reader is seen as
it was or as it is. It is one where contents move from one key to another: a reader that has passed the first and not yet
reached the second would miss them. Whoever moves something shuts the readers out, which wait before their next slice, looks
whether one of them has begun to read there, and lets them in again when the commit is done. Used on the event loop only.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakSet


class Reader:
    """One reader, from its first slice to its last. Who forgets to leave is gone with the object."""

    __slots__ = ("__weakref__", "reads")

    def __init__(self) -> None:
        self.reads: set[bytes] = set()
        """What the keys begin with that it has begun to read: numbers of collections and indexes."""


class Readers:
    """The readers of one store."""

    def __init__(self) -> None:
        self._inside: WeakSet[Reader] = WeakSet()
        self._shut: asyncio.Future[None] | None = None

    @property
    def shut(self) -> bool:
        """Whether readers have to wait before their next slice."""
        return self._shut is not None

    async def opened(self) -> None:
        """Return when no reader has to wait."""
        while self._shut is not None:
            await asyncio.shield(self._shut)

    def enter(self) -> Reader:
        """A reader that has read nothing yet. Before each of its slices it waits while `shut`."""
        reader = Reader()
        self._inside.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        """The reader reads no more."""
        self._inside.discard(reader)

    @asynccontextmanager
    async def reading(self, prefix: bytes) -> AsyncIterator[None]:
        """For a reader of one range that is known beforehand: nothing moves there until the block is left."""
        await self.opened()
        reader = self.enter()
        reader.reads.add(prefix)
        try:
            yield
        finally:
            self.leave(reader)

    def any_of(self, prefixes: Iterable[bytes]) -> bool:
        """Whether somebody has begun to read a key that begins so."""
        wanted = frozenset(prefixes)
        return any(not wanted.isdisjoint(reader.reads) for reader in self._inside)

    @contextmanager
    def shut_out(self) -> Iterator[None]:
        """No reader begins a slice until the block is left. For milliseconds."""
        assert self._shut is None, "one at a time"
        self._shut = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            shut, self._shut = self._shut, None
            shut.set_result(None)
