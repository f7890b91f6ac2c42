"""Listens, caps connections and the bytes that they have in flight, and drains on stop."""

import asyncio
import contextlib
import socket
import stat
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .connection import Connection
from .context import Client, Services
from .dispatch import Dispatcher
from .machine import raise_open_files
from .patience import Patience
from .rates import Admission, PerAddress

if TYPE_CHECKING:
    from .door import Door

_BACKLOG: Final = 4096
_DRAIN_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 1.0
_UNACKNOWLEDGED_MS: Final = 180_000
_STRANGERS_BURST_SECONDS: Final = 10.0
_ESTABLISHMENT: Final = (
    "ingressConnectionEstablishmentRateLimiterEnabled",
    "ingressConnectionEstablishmentRatePerSec",
    "ingressConnectionEstablishmentBurstCapacitySecs",
    "ingressConnectionEstablishmentMaxQueueDepth",
)
_SHARE_OF_OPEN_FILES: Final = 0.8
"""The store and the log need some too."""


class Connections:
    """Every connection, and what all of them together may hold."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._open: dict[int, Connection] = {}
        self._last_id = 0
        services.connections_max = min(
            services.config.max_connections, max(1, int(raise_open_files() * _SHARE_OF_OPEN_FILES))
        )
        self._without_room: deque[Connection] = deque()
        self._unreserved: dict[Connection, int] = {}
        self._reserved_bytes = 0
        self._unpacked_bytes = 0
        self._packed: list[asyncio.Future[None]] = []
        self.in_flight_bytes = 0
        self.patience = Patience(services)
        loop = asyncio.get_running_loop()
        self._strangers = PerAddress(loop.time)
        self.establishment = Admission(loop.time)
        services.establishment = self.establishment
        for name in _ESTABLISHMENT:
            services.parameters.on_change(name, lambda _: self._set_establishment())
        self._set_establishment()
        self.stopping = False

    def _set_establishment(self) -> None:
        enabled, rate, burst, depth = (self._services.parameters[name] for name in _ESTABLISHMENT)
        self.establishment.enabled = enabled
        self.establishment.set(rate, burst)
        self.establishment.queue_max = depth

    def admit(self, connection: Connection, transport: asyncio.Transport) -> Client | None:
        """The client of a new connection; None where there are too many, or they come too fast."""
        services = self._services
        counters = services.counters
        peer, local = _address(transport, "peername"), _address(transport, "sockname")
        if self.stopping or len(self._open) >= services.connections_max:
            counters.connections_rejected += 1
            services.logger.info(
                "Connection refused because there are too many open connections",
                component="NETWORK",
                id=22942,
                ctx="listener",
                remote=peer,
                connectionCount=len(self._open),
            )
            return None
        if (connected := transport.get_extra_info("socket")) is not None and connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_death(connected)
        wait = self.establishment.enqueue() if self.establishment.enabled else 0.0
        if wait is None:
            counters.connections_rejected += 1
            return None
        self._last_id += 1
        client = Client(id=self._last_id, peer=peer, local=local, connected_ms=services.clock.now_ms())
        if wait:
            client.entry = self._let_in_later(transport, wait)
        if (encrypted := transport.get_extra_info("ssl_object")) is not None:
            from .tls import peer_of

            client.tls = peer_of(encrypted)
            counters.tls_versions[client.tls.version] += 1
        self._open[client.id] = connection
        services.clients[client.id] = client
        counters.connections_created += 1
        counters.connections_current = len(self._open)
        if not services.parameters["quiet"]:
            services.logger.info(
                "Connection accepted",
                component="NETWORK",
                id=22943,
                ctx="listener",
                remote=peer,
                connectionId=client.id,
                connectionCount=len(self._open),
            )
        return client

    def _let_in_later(self, transport: asyncio.Transport, wait: float) -> "asyncio.Future[None]":
        """Done when the connection's turn has come; nothing that it sends is looked at before."""
        loop = asyncio.get_running_loop()
        entry = loop.create_future()

        def go_on() -> None:
            self.establishment.leave_queue(interrupted=transport.is_closing())
            if not entry.done():
                entry.set_result(None)

        loop.call_later(wait, go_on)
        return entry

    async def slow_down(self, client: Client) -> None:
        """Let who has not logged in wait where their address asks too often."""
        rate = self._services.parameters["bucketdUnauthenticatedRequestsPerSecond"]
        wait = self._strangers.wait_seconds(client.peer.rpartition(":")[0], rate, _STRANGERS_BURST_SECONDS)
        if wait:
            self._services.counters.strangers_delayed += 1
            await asyncio.sleep(wait)

    def reserve(self, connection: Connection, size: int) -> bool:
        """Set room aside for a message that has begun to come in; False where it has to wait for `grant`."""
        if self._unreserved or not self._has_room(size):
            self._unreserved[connection] = size
            return False
        self._reserved_bytes += size
        return True

    def release(self, size: int) -> None:
        """What was set aside is not needed any more."""
        self._reserved_bytes -= size
        self._grant()

    async def unpacking(self, size: int) -> None:
        """Wait until a compressed message of this size, unpacked, has room."""
        limit = self._services.config.in_flight_bytes_max
        while self._unpacked_bytes and self._unpacked_bytes + size > limit:
            turn = asyncio.get_running_loop().create_future()
            self._packed.append(turn)
            await turn
        self._unpacked_bytes += size

    def unpacked(self, size: int) -> None:
        """It is done with."""
        self._unpacked_bytes -= size
        if self._packed:
            waiting, self._packed = self._packed, []
            for turn in waiting:
                turn.set_result(None)

    def _has_room(self, size: int) -> bool:
        held = self.in_flight_bytes + self._reserved_bytes
        return held == 0 or held + size <= self._services.config.in_flight_bytes_max

    def _grant(self) -> None:
        while self._unreserved:
            connection, size = next(iter(self._unreserved.items()))
            if not self._has_room(size):
                return
            del self._unreserved[connection]
            self._reserved_bytes += size
            connection.grant(size)

    def dismiss(self, connection: Connection, client: Client) -> None:
        """The connection is over."""
        services = self._services
        self._open.pop(client.id, None)
        services.clients.pop(client.id, None)
        services.counters.connections_current = len(self._open)
        self.patience.gone(connection)
        self._unreserved.pop(connection, None)
        with contextlib.suppress(ValueError):
            self._without_room.remove(connection)
        if not services.parameters["quiet"]:
            services.logger.info(
                "Connection ended",
                component="NETWORK",
                id=22944,
                ctx=f"conn{client.id}",
                remote=client.peer,
                connectionId=client.id,
                connectionCount=len(self._open),
            )

    def in_flight_is_full(self) -> bool:
        """Whether no more requests should be read for now."""
        return self.in_flight_bytes > self._services.config.in_flight_bytes_max

    def wait_for_room(self, connection: Connection) -> None:
        """Let the connection read again once there is room."""
        self._without_room.append(connection)

    def finished(self, size: int) -> None:
        """A request of this many bytes has its answer."""
        self.in_flight_bytes -= size
        while self._without_room and not self.in_flight_is_full():
            self._without_room.popleft().resume_reading()
        if self._unreserved:
            self._grant()

    def __len__(self) -> int:
        return len(self._open)

    async def drain(self) -> None:
        """Let requests at hand end, for a while; then interrupt them; then cut what is left."""
        self.stopping = True
        self.patience.stop()
        connections = list(self._open.values())
        for connection in connections:
            connection.close_when_idle()
        if not await self._all_closed(_DRAIN_SECONDS):
            self._services.operations.kill_all_for_shutdown()
            if not await self._all_closed(_GRACE_SECONDS):
                for connection in list(self._open.values()):
                    connection.abort()
                await self._all_closed(_GRACE_SECONDS)

    async def _all_closed(self, seconds: float) -> bool:
        waits = [asyncio.ensure_future(connection.closed()) for connection in self._open.values()]
        if not waits:
            return True
        _, late = await asyncio.wait(waits, timeout=seconds)
        for wait in late:
            wait.cancel()
        return not late


class Listener:
    """The sockets that clients connect to."""

    def __init__(self, services: Services, dispatcher: Dispatcher) -> None:
        self._services = services
        self._dispatcher = dispatcher
        self._connections = Connections(services)
        self._servers: list[asyncio.Server] = []
        self._doors: list[Door] = []
        self._unix_path: Path | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen; from here on clients are served."""
        config = self._services.config
        loop = asyncio.get_running_loop()
        self.port = config.port
        for family, address in _addresses(config.bind_ip, everywhere=config.bind_ip_all, ipv6=config.ipv6):
            # With `--port 0` the first address chooses, and the others take the same port.
            listening = socket.create_server((address, self.port), family=family, backlog=_BACKLOG)
            self.port = listening.getsockname()[1]
            if self._services.tls is None:
                self._servers.append(await loop.create_server(self._connection, sock=listening, backlog=_BACKLOG))
                continue
            from .door import Door

            door = Door(self._services, self._services.tls, listening, self._connection)
            self._doors.append(door)
            door.open()
        if config.unix_socket_prefix:
            self._unix_path = Path(config.unix_socket_prefix) / f"mongodb-{self.port}.sock"
            self._remove_stale_socket()
            self._servers.append(
                await loop.create_unix_server(self._connection, str(self._unix_path), backlog=_BACKLOG)
            )
            self._unix_path.chmod(stat.S_IRWXU)
        self._services.parameters.fill("port", self.port)

    async def stop(self) -> None:
        """Take no more clients, tell those who watch, and let requests at hand end."""
        for server in self._servers:
            server.close()
        for door in self._doors:
            door.close()
        self._services.topology.stop()
        await self._connections.drain()
        self._remove_stale_socket()

    def _connection(self) -> Connection:
        return Connection(self._services, self._dispatcher, self._connections)

    def _remove_stale_socket(self) -> None:
        if self._unix_path is not None and self._unix_path.is_socket():
            self._unix_path.unlink()


def _notice_death(connected: socket.socket) -> None:
    """Have the system find out within some minutes that the other end is gone without a word."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in (("TCP_KEEPIDLE", 120), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, seconds)
    if (option := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
        connected.setsockopt(socket.IPPROTO_TCP, option, _UNACKNOWLEDGED_MS)


def _addresses(bind_ip: tuple[str, ...], *, everywhere: bool, ipv6: bool) -> list[tuple[socket.AddressFamily, str]]:
    if everywhere:
        bind_ip = ("0.0.0.0", "::") if ipv6 else ("0.0.0.0",)
    found: list[tuple[socket.AddressFamily, str]] = []
    for name in bind_ip:
        for family, _, _, _, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            wanted = family == socket.AF_INET or (family == socket.AF_INET6 and (ipv6 or ":" in name))
            if wanted and (family, address[0]) not in found:
                found.append((family, str(address[0])))
    return found


def _address(transport: asyncio.Transport, name: str) -> str:
    address = transport.get_extra_info(name)
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address or "anonymous unix socket")
