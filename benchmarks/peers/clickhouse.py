"""ClickHouse over HTTP: RowBinary in, SQL as TSBS asks it."""

import struct
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..answers import Answer
from ..contender import host_number
from ..harness import disk_bytes
from ..loading import Load, send_timed
from ..queries import Ask, Query
from ..tsbs import METRICS, Scale, host_tags, row_batches
from .http import CONNECTIONS, HttpPeer, free_port

_METRICS = ", ".join(METRICS)

# Its parts are merged in the background and it refuses to be far behind, so it is sent fewer and larger batches.
_BATCH = 10_000

_CONFIG = """<yandex>
 <logger><level>warning</level><console>1</console></logger>
 <listen_host>127.0.0.1</listen_host> <http_port>{http}</http_port> <tcp_port>{tcp}</tcp_port>
 <interserver_http_port>{inter}</interserver_http_port>
 <path>{folder}/data/</path> <tmp_path>{folder}/tmp/</tmp_path> <users_config>{folder}/users.xml</users_config>
 <user_files_path>{folder}/files/</user_files_path> <format_schema_path>{folder}/schemas/</format_schema_path>
 <default_profile>default</default_profile> <default_database>default</default_database> <timezone>UTC</timezone>
 <mark_cache_size>268435456</mark_cache_size> <max_concurrent_queries>50</max_concurrent_queries>
 <keep_alive_timeout>600</keep_alive_timeout>
</yandex>
"""
_USERS = """<yandex>
 <profiles><default/></profiles> <quotas><default/></quotas>
 <users><default><password></password><networks><ip>127.0.0.1</ip></networks>
 <profile>default</profile><quota>default</quota></default></users>
</yandex>
"""


class ClickHouse(HttpPeer):
    """A MergeTree ordered by host and time, and a table with the tags of each host."""

    name = "ClickHouse"
    binary = "clickhouse-server"

    def start(self) -> None:
        """See `Contender.start`."""
        ports = {"http": self.port, "tcp": free_port(), "inter": free_port()}
        (self.folder / "config.xml").write_text(_CONFIG.format(folder=self.folder, **ports))
        (self.folder / "users.xml").write_text(_USERS)
        self.begin(["clickhouse-server", f"--config-file={self.folder}/config.xml"], "/ping", cwd=self.folder)
        metrics = ", ".join(f"{name} Int32" for name in METRICS)
        tags = ", ".join(f"{name} String" for name in host_tags(Scale(1, 1))[0])
        order = "ENGINE = MergeTree() PARTITION BY toYYYYMM(time) ORDER BY (hostname, time)"
        self._do(f"CREATE TABLE cpu (time DateTime, hostname String, tags_id UInt32, {metrics}) {order}")
        self._do(f"CREATE TABLE tags (id UInt32, {tags}) ENGINE = MergeTree() ORDER BY id")

    def _do(self, statement: str) -> bytes:
        return self.ask("POST", "/", statement.encode())

    def load(self, scale: Scale, values: NDArray[np.uint8]) -> Load:
        """See `Contender.load`."""
        rows = ", ".join(
            f"({number}, {', '.join(map(repr, tags.values()))})" for number, tags in enumerate(host_tags(scale))
        )
        self._do(f"INSERT INTO tags VALUES {rows}")
        into = "/?query=INSERT%20INTO%20cpu%20FORMAT%20RowBinary"

        def sender() -> Callable[[bytes], object]:
            connection = self.connect()
            return lambda payload: self.ask("POST", into, payload, connection)

        senders = [sender() for _ in range(CONNECTIONS)]
        done = send_timed(_rows(scale, values), senders, self.server.cpu_seconds)
        self._do("OPTIMIZE TABLE cpu FINAL")
        return done

    def fetch(self, query: Query, ask: Ask) -> list[bytes]:
        """See `Contender.fetch`."""
        return [self._do(_sql(query, ask) + " FORMAT TabSeparated")]

    def read(self, query: Query, fetched: list[bytes]) -> Answer:
        """See `Contender.read`."""
        to_number: dict[str, Callable[[bytes], float]] = {
            "time": lambda raw: int(raw) * 1000,
            "host": lambda raw: host_number(raw.decode()),
        }
        convert = [to_number.get(name, float) for name in query.columns]
        lines = fetched[0].splitlines()
        return np.array([[to(raw) for to, raw in zip(convert, line.split(b"\t"), strict=True)] for line in lines])

    def stored_bytes(self) -> int:
        """See `Contender.stored_bytes`: the parts that are not merged away."""
        size = "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'default'"
        return int(self._do(size)) or disk_bytes(self.folder / "data")


def _rows(scale: Scale, values: NDArray[np.uint8]) -> Iterator[tuple[bytes, int]]:
    numbers = struct.Struct(f"<I{len(METRICS)}i")
    heads = [_head(f"host_{host}") for host in range(scale.hosts)]
    for times, hosts, metrics in row_batches(scale, values, _BATCH):
        rows = [
            (at // 1000).to_bytes(4, "little") + heads[host] + numbers.pack(host, *row)
            for at, host, row in zip(times, hosts, metrics, strict=True)
        ]
        yield b"".join(rows), len(rows)


def _head(name: str) -> bytes:
    return bytes([len(name)]) + name.encode()


def _sql(query: Query, ask: Ask) -> str:
    window = f"time >= toDateTime({_seconds(ask.start_ms)}) AND time < toDateTime({_seconds(ask.end_ms)})"
    if ask.hosts:
        names = ", ".join(f"'host_{host}'" for host in ask.hosts)
        window = f"hostname IN ({names}) AND {window}"
    greatest = ", ".join(f"max({name})" for name in query.names)
    seconds = partial("toUInt32({}) AS t".format)
    match query.kind:
        case "by minute" | "by hour":
            of = "toStartOfMinute(time)" if query.kind == "by minute" else "toStartOfHour(time)"
            return f"SELECT {seconds(of)}, {greatest} FROM cpu WHERE {window} GROUP BY t ORDER BY t"
        case "by hour and host":
            means = ", ".join(f"avg({name})" for name in query.names)
            of = seconds("toStartOfHour(time)")
            return f"SELECT {of}, hostname, {means} FROM cpu WHERE {window} GROUP BY t, hostname ORDER BY t, hostname"
        case "high":
            return f"SELECT {seconds('time')}, hostname, {_METRICS} FROM cpu WHERE usage_user > 90.0 AND {window}"
        case "last minutes":
            of = seconds("toStartOfMinute(time)")
            before = f"time < toDateTime({_seconds(ask.end_ms)})"
            return f"SELECT {of}, {greatest} FROM cpu WHERE {before} GROUP BY t ORDER BY t DESC LIMIT 5"
        case "last point":
            newest = ", ".join(f"argMax({name}, time)" for name in METRICS)
            return f"SELECT toUInt32(max(time)), hostname, {newest} FROM cpu GROUP BY hostname"
        case "count":
            return "SELECT count() FROM cpu"
        case "all":
            return f"SELECT {seconds('time')}, hostname, {_METRICS} FROM cpu"
    raise AssertionError(query.kind)


def _seconds(at_ms: int) -> int:
    """Up to the next whole second: its times have no parts of a second, and the data lie on whole ones."""
    return -(-at_ms // 1000)
