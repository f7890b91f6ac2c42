"""The door of a server that speaks TLS: who knocks with a handshake is let in encrypted, who does not, plain or not at all.

The first bytes tell: a TLS client begins with a record of the handshake, 22 3. A message of the wire protocol may have a
length that begins so too, but then it answers nobody, and where it says so (its third number is 0 or -1) a record of TLS has
part of the client's version. The bytes are looked at without being taken off the socket, so that whoever reads the
connection afterwards, plain or encrypted, reads all of it. A server without TLS does not have this door.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final

from .connection import Connection
from .context import Services
from .tls import Tls

_HANDSHAKE: Final = b"\x16\x03"
_ENOUGH_BYTES: Final = 12
_NOT_ANSWERING: Final = (b"\0\0\0\0", b"\xff\xff\xff\xff")
_AGAIN_SECONDS: Final = 0.01
_ACCEPTED_AT_ONCE: Final = 256
_BREATH_SECONDS: Final = 0.5
"""How long no connection is taken when the process has no file left for one."""


class Door:
    """One listening socket."""

    def __init__(self, services: Services, tls: Tls, listening: socket.socket, new: Callable[[], Connection]) -> None:
        """`new` makes the protocol of a connection; the door owns the socket from here on."""
        self._services = services
        self._tls = tls
        self._listening = listening
        self._new = new
        self._loop = asyncio.get_running_loop()
        self._knocking: set[asyncio.Task[None]] = set()
        self._open = False

    def open(self) -> None:
        """Take connections."""
        self._listening.setblocking(False)
        self._open = True
        self._watch()

    def close(self) -> None:
        """Take no more; those who have not yet shown what they speak are turned away."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._listening)
            self._listening.close()
            for task in self._knocking:
                task.cancel()

    def _watch(self) -> None:
        if self._open:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    continue
                self._services.logger.error("Cannot accept a connection", component="NETWORK", reason=str(error))
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_BREATH_SECONDS, self._watch)
                return
            connected.setblocking(False)
            if len(self._knocking) + len(self._services.clients) >= self._services.connections_max:
                self._services.counters.connections_rejected += 1
                connected.close()
                continue
            task = self._loop.create_task(self._admit(connected))
            self._knocking.add(task)
            task.add_done_callback(self._knocking.discard)

    async def _admit(self, connected: socket.socket) -> None:
        handed_over = False
        counters = self._services.counters
        limit_seconds = self._services.parameters["bucketdHandshakeTimeoutMillis"] / 1000
        peer = _name(connected)
        try:
            async with asyncio.timeout(limit_seconds):
                first = await self._first_bytes(connected)
            if not first:
                return
            if not _is_handshake(first):
                if self._tls.required:
                    self._refuse(peer, "The server is configured to only allow SSL connections")
                    return
                handed_over = True
                await self._loop.connect_accepted_socket(self._new, connected)
                return
            begun = self._loop.time()
            handed_over = True
            await self._loop.connect_accepted_socket(
                self._new, connected, ssl=self._tls.context, ssl_handshake_timeout=limit_seconds
            )
            counters.tls_handshake_ms += (self._loop.time() - begun) * 1000
        except TimeoutError:
            counters.dropped_handshake += 1
            self._refuse(peer, "nothing came in before the timeout of the handshake")
        except (ssl.SSLError, ConnectionError, OSError) as error:
            counters.tls_failed += 1
            self._refuse(peer, f"{getattr(error, 'reason', None) or error}")
        finally:
            if not handed_over:
                connected.close()

    async def _first_bytes(self, connected: socket.socket) -> bytes:
        """Enough of what the client sends to know what it speaks, left where it is; nothing where it sends nothing."""
        while True:
            try:
                first = connected.recv(_ENOUGH_BYTES, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                readable = self._loop.create_future()
                self._loop.add_reader(connected, _settle, readable)
                try:
                    await readable
                finally:
                    self._loop.remove_reader(connected)
                continue
            if (
                not first
                or len(first) == _ENOUGH_BYTES
                or not (first + _HANDSHAKE[len(first) :]).startswith(_HANDSHAKE)
            ):
                return first
            # The socket stays readable for the bytes that are there; those that are not come soon or never.
            await asyncio.sleep(_AGAIN_SECONDS)

    def _refuse(self, peer: str, reason: str) -> None:
        self._services.logger.info(
            "Error receiving request from client. Ending connection from remote",
            component="NETWORK",
            id=22988,
            ctx="listener",
            error={"code": 141, "codeName": "SSLHandshakeFailed", "errmsg": reason},
            remote=peer,
        )


def _is_handshake(first: bytes) -> bool:
    return first.startswith(_HANDSHAKE) and first[8:12] not in _NOT_ANSWERING


def _settle(moment: "asyncio.Future[None]") -> None:
    if not moment.done():
        moment.set_result(None)


def _name(connected: socket.socket) -> str:
    try:
        host, port = connected.getpeername()[:2]
    except OSError:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
