"""The lock of fsync: while it is held, writes wait."""

import asyncio

from .operations import Operation


class WriteGate:
    """Closed as often as somebody locks, open again when each of them has unlocked."""

    def __init__(self) -> None:
        self.lock_count = 0
        self._opened: asyncio.Future[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether writes have to wait."""
        return self.lock_count > 0

    def lock(self) -> int:
        """Close the gate once more; returns how often it is closed."""
        self.lock_count += 1
        return self.lock_count

    def unlock(self) -> int:
        """Take one lock away; returns how many are left."""
        self.lock_count -= 1
        if self.lock_count == 0 and self._opened is not None:
            self._opened.set_result(None)
            self._opened = None
        return self.lock_count

    async def pass_through(self, operation: Operation) -> None:
        """Wait until the gate is open.

        Raises:
            MongoError: the operation's time is up, or somebody killed it.
        """
        while self.closed:
            if self._opened is None:
                self._opened = asyncio.get_running_loop().create_future()
            await operation.wait(self._opened)
