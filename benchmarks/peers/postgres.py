"""PostgreSQL: a private cluster, COPY over four connections, SQL as TSBS asks it. Needs psycopg beside the binaries."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..answers import Answer
from ..contender import Contender, ServerProcess, host_number
from ..loading import Load, send_timed
from ..queries import Ask, Query
from ..tsbs import METRICS, START_MS, Scale, host_tags, row_batches
from .http import CONNECTIONS, free_port

_METRICS = ", ".join(METRICS)
_COPY = f"COPY cpu (time, hostname, tags_id, {_METRICS}) FROM STDIN"


class Postgres(Contender):
    """One table with a row for each measurement and one with the tags of each host; the indexes that TSBS makes."""

    name = "PostgreSQL"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bucketd-bench-postgres-"))
        self._port = free_port()
        self._server: ServerProcess | None = None
        self._connection: Any = None

    @classmethod
    def missing(cls) -> str | None:
        """See `Contender.missing`."""
        for binary in ("postgres", "initdb"):
            if shutil.which(binary) is None:
                return f"no {binary} on PATH"
        if importlib.util.find_spec("psycopg") is None:
            return "psycopg is not installed"
        return None

    def start(self) -> None:
        """See `Contender.start`."""
        user = _unprivileged()
        if user is not None:
            shutil.chown(self._folder, user)
        data = self._folder / "data"
        made = ["initdb", "-D", str(data), "-U", "bench", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, user=user, cwd=self._folder)
        options = [f"-cport={self._port}", "-clisten_addresses=127.0.0.1", f"-cunix_socket_directories={self._folder}"]
        self._server = ServerProcess(["postgres", "-D", str(data), *options], self._folder, user=user)
        self._server.wait_for(self._try)
        self._connection = self._connect()
        tags = ", ".join(f"{name} text" for name in host_tags(Scale(1, 1))[0])
        metrics = ", ".join(f"{name} integer" for name in METRICS)
        for statement in (
            f"CREATE TABLE tags (id integer PRIMARY KEY, {tags})",
            f"CREATE TABLE cpu (time timestamptz NOT NULL, hostname text, tags_id integer, {metrics})",
            "CREATE INDEX ON cpu (hostname, time DESC)",
            "CREATE INDEX ON cpu (time DESC)",
        ):
            self._connection.execute(statement)

    def _connect(self) -> Any:
        import psycopg

        address = f"host=127.0.0.1 port={self._port} user=bench dbname=postgres options='-c timezone=UTC'"
        return psycopg.connect(address, autocommit=True)

    def _try(self) -> None:
        import psycopg

        try:
            self._connect().close()
        except psycopg.OperationalError as error:
            raise OSError(str(error)) from None

    def stop(self) -> None:
        """See `Contender.stop`."""
        if self._connection is not None:
            self._connection.close()
        if self._server is not None:
            self._server.stop()
        shutil.rmtree(self._folder)

    def load(self, scale: Scale, values: NDArray[np.uint8]) -> Load:
        """See `Contender.load`."""
        assert self._server is not None
        for number, tags in enumerate(host_tags(scale)):
            self._connection.execute(f"INSERT INTO tags VALUES ({number}{', %s' * len(tags)})", list(tags.values()))
        connections = [self._connect() for _ in range(CONNECTIONS)]

        def sender(connection: Any) -> Any:
            def send(payload: bytes) -> None:
                with connection.cursor().copy(_COPY) as copy:
                    copy.write(payload)

            return send

        done = send_timed(_rows(scale, values), [sender(each) for each in connections], self._server.cpu_seconds)
        for connection in connections:
            connection.close()
        self._connection.execute("VACUUM ANALYZE")
        return done

    def fetch(self, query: Query, ask: Ask) -> list[Any]:
        """See `Contender.fetch`."""
        if query.kind == "all":
            with self._connection.cursor().copy(f"COPY cpu (time, hostname, {_METRICS}) TO STDOUT") as copy:
                return [bytes(part) for part in copy]
        result = self._connection.pgconn.exec_(_sql(query, ask).encode())
        if result.error_message:
            raise RuntimeError(f"PostgreSQL: {result.error_message!r}")
        return [result]

    def read(self, query: Query, fetched: list[Any]) -> Answer:
        """See `Contender.read`."""
        if query.kind == "all":
            rows = [line.split(b"\t") for line in b"".join(fetched).splitlines()]
        else:
            (result,) = fetched
            rows = [
                [result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)
            ]
        return np.array([[_number(name, raw) for name, raw in zip(query.columns, row, strict=True)] for row in rows])

    def stored_bytes(self) -> int:
        """See `Contender.stored_bytes`."""
        size = "SELECT pg_total_relation_size('cpu') + pg_total_relation_size('tags')"
        return int(self._connection.execute(size).fetchone()[0])


def _unprivileged() -> str | None:
    """Whom to run as, since PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _rows(scale: Scale, values: NDArray[np.uint8]) -> Iterator[tuple[bytes, int]]:
    for times, hosts, metrics in row_batches(scale, values, 1000):
        stamps = {at: datetime.fromtimestamp(at / 1000).astimezone().isoformat() for at in set(times)}
        lines = [
            "\t".join(map(str, (stamps[at], f"host_{host}", host, *row)))
            for at, host, row in zip(times, hosts, metrics, strict=True)
        ]
        yield ("\n".join(lines) + "\n").encode(), len(lines)


def _sql(query: Query, ask: Ask) -> str:
    window = f"time >= {_at(ask.start_ms)} AND time < {_at(ask.end_ms)}"
    if ask.hosts:
        names = ", ".join(f"'host_{host}'" for host in ask.hosts)
        window = f"hostname IN ({names}) AND {window}"
    greatest = ", ".join(f"max({name})" for name in query.names)
    means = ", ".join(f"avg({name})" for name in query.names)
    match query.kind:
        case "by minute" | "by hour":
            unit = query.kind.removeprefix("by ")
            return f"SELECT date_trunc('{unit}', time) AS t, {greatest} FROM cpu WHERE {window} GROUP BY t ORDER BY t"
        case "by hour and host":
            inner = (
                f"SELECT date_trunc('hour', time) AS t, hostname, {means} FROM cpu WHERE {window} GROUP BY t, hostname"
            )
            return f"{inner} ORDER BY t, hostname"
        case "high":
            return f"SELECT time, hostname, {_METRICS} FROM cpu WHERE usage_user > 90.0 AND {window}"
        case "last minutes":
            before = f"time < {_at(ask.end_ms)}"
            return (
                f"SELECT date_trunc('minute', time) AS t, {greatest} FROM cpu WHERE {before} "
                "GROUP BY t ORDER BY t DESC LIMIT 5"
            )
        case "last point":
            return (
                f"SELECT b.time, b.hostname, {_METRICS} FROM tags t JOIN LATERAL (SELECT * FROM cpu c "
                "WHERE c.hostname = t.hostname ORDER BY time DESC LIMIT 1) b ON true"
            )
        case "count":
            return "SELECT count(*) FROM cpu"
    raise AssertionError(query.kind)


def _at(at_ms: int) -> str:
    return f"to_timestamp({at_ms / 1000:.3f})"


def _number(name: str, raw: bytes) -> float:
    match name:
        case "time":
            at = datetime.fromisoformat(raw.decode())
            return (at - _EPOCH).total_seconds() * 1000
        case "host":
            return host_number(raw.decode())
    return float(raw)


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
assert START_MS % 1000 == 0
