"""What peers that speak HTTP share: a process in a folder of its own, connections that stay open, timed batches."""

import shutil
import socket
import tempfile
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from ..contender import Contender, ServerProcess

CONNECTIONS = 4


def free_port() -> int:
    """A port that nobody listens at, at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class HttpPeer(Contender):
    """A peer with one binary and one port for HTTP."""

    binary: str

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"bucketd-bench-{self.name}-"))
        self.port = free_port()
        self._server: ServerProcess | None = None
        self._connection: HTTPConnection | None = None

    @classmethod
    def missing(cls) -> str | None:
        """See `Contender.missing`."""
        return None if shutil.which(cls.binary) else f"no {cls.binary} on PATH"

    def begin(self, command: Sequence[str], ready: str, **options: Any) -> None:
        """Start the process and wait until it answers at a path."""
        self._server = ServerProcess(list(command), self.folder, **options)
        self._server.wait_for(lambda: self.ask("GET", ready))

    @property
    def server(self) -> ServerProcess:
        """The process."""
        assert self._server is not None
        return self._server

    def stop(self) -> None:
        """See `Contender.stop`."""
        if self._connection is not None:
            self._connection.close()
        if self._server is not None:
            self._server.stop()
        shutil.rmtree(self.folder)

    def connect(self) -> HTTPConnection:
        """One more connection."""
        return HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(self, method: str, path: str, body: bytes | None = None, connection: HTTPConnection | None = None) -> bytes:
        """The body of an answer.

        Raises:
            RuntimeError: it is an error.
        """
        if connection is None:
            connection = self._connection = self._connection or self.connect()
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            said = response.read()
        except OSError:
            connection.close()
            raise
        if response.status >= 300:
            raise RuntimeError(f"{self.name}: {response.status} for {path[:200]}: {said[:500]!r}")
        return said
