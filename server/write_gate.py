"""The lock of fsync: while it is held, writes wait."""

import asyncio
from collections.abc import Callable

from ..storage.engine import Engine
from .operations import Operation


class WriteGate:
    """Closed as often as somebody locks, open again when each of them has unlocked."""

    def __init__(self) -> None:
        self.lock_count = 0
        self._opened: asyncio.Future[None] | None = None
        self._locking = asyncio.Lock()
        self._release: Callable[[], None] | None = None

    @property
    def closed(self) -> bool:
        """Whether writes have to wait."""
        return self.lock_count > 0

    async def lock(self, engine: Engine) -> int:
        """Close the gate once more; returns how often it is closed.

        On return nothing is being written, by commands that had begun or by what runs in the background.
        """
        async with self._locking:
            if self._release is None:
                self._release = await engine.hold()
            self.lock_count += 1
            return self.lock_count

    def unlock(self) -> int:
        """Take one lock away; returns how many are left."""
        self.lock_count -= 1
        if self.lock_count == 0:
            self.give_up()
        return self.lock_count

    def give_up(self) -> None:
        """Open the gate, however often it is closed."""
        self.lock_count = 0
        if self._release is not None:
            self._release()
            self._release = None
        if self._opened is not None:
            self._opened.set_result(None)
            self._opened = None

    async def pass_through(self, operation: Operation) -> None:
        """Wait until the gate is open.

        Raises:
            MongoError: the operation's time is up, or somebody killed it.
        """
        while self.closed:
            if self._opened is None:
                self._opened = asyncio.get_running_loop().create_future()
            await operation.wait(self._opened)
