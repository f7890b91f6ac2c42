"""InfluxDB 1.x over HTTP: line protocol in, InfluxQL as TSBS asks it."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

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


class InfluxDB(HttpPeer):
    """One measurement `cpu` with ten tags and ten fields."""

    name = "InfluxDB"
    binary = "influxd"

    def start(self) -> None:
        """See `Contender.start`."""
        (self.folder / "influxdb.conf").write_text(
            f"""reporting-disabled = true
bind-address = "127.0.0.1:{free_port()}"
[meta]
  dir = "{self.folder}/meta"
[data]
  dir = "{self.folder}/data"
  wal-dir = "{self.folder}/wal"
  index-version = "tsi1"
  query-log-enabled = false
  cache-snapshot-write-cold-duration = "2s"
  compact-full-write-cold-duration = "2s"
[monitor]
  store-enabled = false
[http]
  bind-address = "127.0.0.1:{self.port}"
  log-enabled = false
[ifql]
  enabled = false
"""
        )
        self.begin(["influxd", "-config", f"{self.folder}/influxdb.conf"], "/ping")
        self._ask({"q": "CREATE DATABASE bench"}, "POST")

    def _ask(self, options: dict[str, str], method: str = "GET") -> bytes:
        return self.ask(method, "/query?" + urlencode({"db": "bench", "epoch": "ms", **options}))

    def load(self, scale: Scale, values: NDArray[np.uint8]) -> Load:
        """See `Contender.load`."""

        def sender() -> Callable[[bytes], object]:
            connection = self.connect()
            return lambda payload: self.ask("POST", "/write?db=bench&precision=ms", payload, connection)

        return send_timed(lines(scale, values), [sender() for _ in range(CONNECTIONS)], self.server.cpu_seconds)

    def fetch(self, query: Query, ask: Ask) -> list[bytes]:
        """See `Contender.fetch`."""
        return [self._ask({"q": _influxql(query, ask), **({"chunked": "true"} if query.kind == "all" else {})})]

    def read(self, query: Query, fetched: list[bytes]) -> Answer:
        """See `Contender.read`."""
        rows: list[list[Any]] = []
        for line in fetched[0].splitlines():
            for result in json.loads(line)["results"]:
                if "error" in result:
                    raise RuntimeError(f"InfluxDB: {result['error']}")
                for series in result.get("series", []):
                    rows += _rows(query, series)
        return np.array(rows)

    def stored_bytes(self) -> int:
        """See `Contender.stored_bytes`."""
        return disk_bytes(self.folder / "data") + disk_bytes(self.folder / "wal")


def _rows(query: Query, series: dict[str, Any]) -> list[list[Any]]:
    """The rows of one series of an answer; empty windows of time are left out."""
    of_tags = [host_number(series["tags"]["hostname"])] if "tags" in series else []
    values = series["values"]
    if query.kind == "count":
        return [[row[1]] for row in values]
    if "host" in query.columns and not of_tags:
        return [[row[0], host_number(row[1]), *row[2:]] for row in values]
    return [[row[0], *of_tags, *row[1:]] for row in values if row[1] is not None]


def lines(scale: Scale, values: NDArray[np.uint8], size: int = 1000) -> Iterator[tuple[bytes, int]]:
    """Batches in line protocol, with times in milliseconds."""
    heads = ["cpu," + ",".join(f"{name}={value}" for name, value in tags.items()) for tags in host_tags(scale)]
    form = " " + ",".join(f"{name}=%di" for name in METRICS) + " %d"
    for times, hosts, metrics in row_batches(scale, values, size):
        made = [heads[host] + form % (*row, at) for at, host, row in zip(times, hosts, metrics, strict=True)]
        yield "\n".join(made).encode(), len(made)


def _influxql(query: Query, ask: Ask) -> str:
    window = f"time >= {ask.start_ms}ms AND time < {ask.end_ms}ms"
    if ask.hosts:
        names = " OR ".join(f"hostname = 'host_{host}'" for host in ask.hosts)
        window = f"({names}) AND {window}"
    greatest = ", ".join(f"max({name})" for name in query.names)
    match query.kind:
        case "by minute":
            return f"SELECT {greatest} FROM cpu WHERE {window} GROUP BY time(1m)"
        case "by hour":
            return f"SELECT {greatest} FROM cpu WHERE {window} GROUP BY time(1h)"
        case "by hour and host":
            means = ", ".join(f"mean({name})" for name in query.names)
            return f"SELECT {means} FROM cpu WHERE {window} GROUP BY time(1h), hostname"
        case "high":
            return f"SELECT hostname, {_METRICS} FROM cpu WHERE usage_user > 90.0 AND {window}"
        case "last minutes":
            window = f"time >= {ask.end_ms - 6 * 60_000}ms AND time < {ask.end_ms}ms"
            return f"SELECT {greatest} FROM cpu WHERE {window} GROUP BY time(1m) ORDER BY time DESC LIMIT 5"
        case "last point":
            return f"SELECT {_METRICS} FROM cpu GROUP BY hostname ORDER BY time DESC LIMIT 1"
        case "count":
            return f"SELECT count({METRICS[0]}) FROM cpu"
        case "all":
            return f"SELECT hostname, {_METRICS} FROM cpu"
    raise AssertionError(query.kind)
