"""How long the server waits for a client: to say something, to finish a message, to log in, to read what it is told.

A connection enters a table when the waiting begins and leaves it when it ends; the tables are in the order in which the
waiting began, so that a look at them costs what is late and not what is connected.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from .context import Services

if TYPE_CHECKING:
    from .connection import Connection

_LOOK_SECONDS: Final = 1.0
_BYTES_PER_SECOND_MIN: Final = 10_000
"""A message may take as much longer as it needs at this rate: large ones come over slow lines."""


class Patience:
    """Who is waited for."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._silent: dict[Connection, float] = {}
        self._unfinished: dict[Connection, float] = {}
        self._strangers: dict[Connection, float] = {}
        self._deaf: dict[Connection, float] = {}
        self._next: asyncio.TimerHandle | None = None

    # What connections tell. Each is a moment on the scale of the loop.

    def connected(self, connection: "Connection") -> None:
        """It has said nothing yet."""
        self._silent[connection] = self._loop.time()
        self._start()

    def spoke(self, connection: "Connection", *, stranger: bool) -> None:
        """A whole message has come in; of a `stranger` where a login is needed and has not happened."""
        self._silent.pop(connection, None)
        self._strangers.pop(connection, None)
        if stranger:
            self._strangers[connection] = self._loop.time()

    def began(self, connection: "Connection") -> None:
        """A part of a message has come in."""
        if connection not in self._unfinished:
            self._unfinished[connection] = self._loop.time()
            self._start()

    def finished(self, connection: "Connection") -> None:
        """No message is in parts, or it is the server that does not read."""
        self._unfinished.pop(connection, None)

    def deaf(self, connection: "Connection") -> None:
        """It does not read what it is sent."""
        self._deaf[connection] = self._loop.time()
        self._start()

    def heard(self, connection: "Connection") -> None:
        """It reads again."""
        self._deaf.pop(connection, None)

    def gone(self, connection: "Connection") -> None:
        """The connection is over."""
        for table in (self._silent, self._unfinished, self._strangers, self._deaf):
            table.pop(connection, None)

    def stop(self) -> None:
        """The server stops."""
        if self._next is not None:
            self._next.cancel()

    def _start(self) -> None:
        if self._next is None:
            self._next = self._loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._next = None
        parameters, counters = self._services.parameters, self._services.counters
        now = self._loop.time()
        for connection in _late(self._silent, now - parameters["bucketdHandshakeTimeoutMillis"] / 1000):
            counters.dropped_handshake += 1
            connection.drop("nothing came in before the timeout of the handshake")
        for connection in _late(self._unfinished, now - parameters["bucketdMessageTimeoutMillis"] / 1000):
            more = connection.held_bytes / _BYTES_PER_SECOND_MIN
            if now - self._unfinished[connection] > parameters["bucketdMessageTimeoutMillis"] / 1000 + more:
                counters.dropped_unfinished += 1
                connection.drop("a message did not come to its end in time")
        for connection in _late(self._strangers, now - parameters["bucketdUnauthenticatedIdleMillis"] / 1000):
            if connection.busy:
                self._strangers[connection] = now
            else:
                counters.dropped_strangers += 1
                connection.drop("nobody has logged in, and nothing was said for too long")
        for connection in _late(self._deaf, now - parameters["bucketdWriteTimeoutMillis"] / 1000):
            counters.dropped_deaf += 1
            connection.drop("the replies were not read in time")
        if self._silent or self._unfinished or self._strangers or self._deaf:
            self._start()


def _late(table: "dict[Connection, float]", before: float) -> "list[Connection]":
    late = []
    for connection, since in table.items():
        if since > before:
            break
        late.append(connection)
    return late
