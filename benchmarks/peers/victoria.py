"""VictoriaMetrics over HTTP: line protocol in, MetricsQL out. Its windows are whole minutes and hours."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import numpy as np
from numpy.typing import NDArray

from ..answers import Answer
from ..contender import host_number
from ..harness import disk_bytes
from ..loading import Load, send_timed
from ..queries import Ask, Query
from ..tsbs import INTERVAL_MS, METRICS, START_MS, Scale
from .http import CONNECTIONS, HttpPeer
from .influxdb import lines

_MINUTE = 60_000
_HOUR = 3_600_000


class VictoriaMetrics(HttpPeer):
    """One series for each metric of each host. It has no rows, so it is not asked for rows by a condition."""

    name = "VictoriaMetrics"
    binary = "victoria-metrics"

    def start(self) -> None:
        """See `Contender.start`."""
        self.begin(
            [
                "victoria-metrics",
                f"-storageDataPath={self.folder}/data",
                f"-httpListenAddr=127.0.0.1:{self.port}",
                "-retentionPeriod=100y",
                "-search.disableCache",
                "-search.latencyOffset=0",
                "-search.maxUniqueTimeseries=10000000",
                "-search.maxSamplesPerQuery=10000000000",
            ],
            "/health",
        )

    def load(self, scale: Scale, values: NDArray[np.uint8]) -> Load:
        """See `Contender.load`."""
        self._last_ms = START_MS + (scale.steps - 1) * INTERVAL_MS

        def sender() -> Callable[[bytes], object]:
            connection = self.connect()
            return lambda payload: self.ask("POST", "/write?precision=ms", payload, connection)

        done = send_timed(lines(scale, values), [sender() for _ in range(CONNECTIONS)], self.server.cpu_seconds)
        self.ask("GET", "/internal/force_flush")
        self.ask("GET", "/internal/force_merge")
        return done

    def answers(self, query: Query) -> bool:
        """See `Contender.answers`."""
        return query.kind != "high"

    def asked(self, query: Query, ask: Ask) -> Ask:
        """See `Contender.asked`."""
        unit = {"by minute": _MINUTE, "by hour": _HOUR, "by hour and host": _HOUR, "last minutes": _MINUTE}.get(
            query.kind
        )
        if unit is None:
            return ask
        return replace(ask, start_ms=ask.start_ms // unit * unit, end_ms=-(-ask.end_ms // unit) * unit)

    def fetch(self, query: Query, ask: Ask) -> list[bytes]:
        """See `Contender.fetch`."""
        whole = self.asked(query, ask)
        names = "|".join(f"cpu_{name}" for name in query.names)
        hosts = "|".join(f"host_{host}" for host in ask.hosts) or ".*"
        series = f'{{__name__=~"{names}",hostname=~"{hosts}"}}'
        match query.kind:
            case "by minute":
                asked = f"max(max_over_time({series}[1m])) by (__name__)"
                return [self._range(asked, whole.start_ms, whole.end_ms, _MINUTE)]
            case "by hour":
                asked = f"max(max_over_time({series}[1h])) by (__name__)"
                return [self._range(asked, whole.start_ms, whole.end_ms, _HOUR)]
            case "by hour and host":
                asked = f"avg(avg_over_time({series}[1h]) keep_metric_names) by (__name__, hostname)"
                return [self._range(asked, whole.start_ms, whole.end_ms, _HOUR)]
            case "last minutes":
                asked = f"max(max_over_time({series}[1m])) by (__name__)"
                start_ms = max(START_MS, whole.end_ms - 5 * _MINUTE)
                return [self._range(asked, start_ms, whole.end_ms, _MINUTE)]
            case "last point":
                asked = f"max(last_over_time({series}[1h])) by (__name__, hostname)"
                return [self._instant(asked, self._last_ms)]
            case "count":
                span = self._last_ms - START_MS + 1000
                return [self._instant(f"sum(count_over_time(cpu_usage_user[{span // 1000}s]))", self._last_ms)]
            case "all":
                return [self.ask("GET", "/api/v1/export?" + urlencode({"match[]": '{__name__=~"cpu_.*"}'}))]
        raise AssertionError(query.kind)

    def _range(self, asked: str, start_ms: int, end_ms: int, step_ms: int) -> bytes:
        """Windows from whole steps on: each is asked for at its last millisecond, since windows reach backwards."""
        first = start_ms + step_ms - 1
        span = {"start": f"{first / 1000:.3f}", "end": f"{(end_ms - 1) / 1000:.3f}", "step": f"{step_ms // 1000}s"}
        return self.ask("GET", "/api/v1/query_range?" + urlencode({"query": asked, "nocache": "1", **span}))

    def _instant(self, asked: str, at_ms: int) -> bytes:
        return self.ask(
            "GET", "/api/v1/query?" + urlencode({"query": asked, "time": f"{at_ms / 1000:.3f}", "nocache": "1"})
        )

    def read(self, query: Query, fetched: list[bytes]) -> Answer:
        """See `Contender.read`: its series, put together to rows."""
        rows: dict[tuple[int, ...], dict[str, float]] = {}
        if query.kind == "all":
            for line in fetched[0].splitlines():
                series = json.loads(line)
                host, name = host_number(series["metric"]["hostname"]), _metric(series["metric"], query)
                for at_ms, value in zip(series["timestamps"], series["values"], strict=True):
                    rows.setdefault((at_ms, host), {})[name] = value
            return _table(rows, METRICS)
        result = json.loads(fetched[0])["data"]["result"]
        if query.kind == "count":
            return np.array([[float(result[0]["value"][1])]])
        step_ms = _HOUR if query.kind.startswith("by hour") else _MINUTE
        for series in result:
            name = _metric(series["metric"], query)
            host = (host_number(series["metric"]["hostname"]),) if "host" in query.columns else ()
            for at, value in series.get("values") or [series["value"]]:
                at_ms = round(at * 1000)
                start_ms = at_ms if query.kind == "last point" else at_ms + 1 - step_ms
                rows.setdefault((start_ms, *host), {})[name] = float(value)
        return _table(rows, query.names)

    def stored_bytes(self) -> int:
        """See `Contender.stored_bytes`."""
        return disk_bytes(self.folder / "data")


def _metric(labels: dict[str, Any], query: Query) -> str:
    return str(labels.get("__name__", f"cpu_{query.names[0]}")).removeprefix("cpu_")


def _table(rows: dict[tuple[int, ...], dict[str, float]], names: tuple[str, ...]) -> Answer:
    return np.array([[*key, *(row[name] for name in names)] for key, row in rows.items()])
