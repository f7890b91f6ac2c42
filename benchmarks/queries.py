"""The queries of TSBS on `cpu-only` data, as pipelines: a function builds each, so that one can be run alone.

    python -m benchmarks --only queries --query double-groupby-5

A query is asked with random hosts and a random window of time, drawn from a seed. Its answer is a table of whole numbers or
doubles (see `Query.columns`), which `answers.py` computes a second time from the generated data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from bson import DatetimeMS

from .tsbs import METRICS, START_MS, Scale

Document = dict[str, Any]
Pipeline = list[Document]
Kind = Literal["by minute", "by hour", "by hour and host", "high", "last minutes", "last point", "count", "all"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What one run of a query asks for: numbers of hosts (none: all) and a window of time, in milliseconds."""

    hosts: tuple[int, ...]
    start_ms: int
    end_ms: int

    @property
    def window(self) -> Document:
        """A predicate on the time."""
        return {"$gte": DatetimeMS(self.start_ms), "$lt": DatetimeMS(self.end_ms)}

    @property
    def match(self) -> Document:
        """A `$match` for hosts and window."""
        names = [f"host_{host}" for host in self.hosts]
        if not names:
            return {"$match": {"time": self.window}}
        return {"$match": {"tags.hostname": names[0] if len(names) == 1 else {"$in": names}, "time": self.window}}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of the set.

    Attributes:
        kind: what is computed; peers build their own text of it from kind, metrics and what is asked.
        hosts: how many hosts are drawn; 0 for all.
        hours: length of the window; 0 where there is none.
        metrics: how many of the metrics, from the first, it is about.
        goal_ms: the time that it should take with 100 hosts and twelve hours.
        build: the pipeline.
        runs: how often it is asked.
    """

    name: str
    kind: Kind
    hosts: int
    hours: float
    metrics: int
    goal_ms: float
    build: Callable[["Query", Ask], Pipeline]
    runs: int = 25

    def asks(self, scale: Scale) -> list[Ask]:
        """What the runs ask for: the same for everybody who answers."""
        random = np.random.default_rng([scale.seed, *self.name.encode()])
        drawn = []
        length_ms = int(min(self.hours, scale.hours) * 3_600_000)
        for _ in range(self.runs):
            count = min(self.hosts, scale.hosts)
            hosts = tuple(sorted(int(host) for host in random.choice(scale.hosts, count, replace=False)))
            start_ms = START_MS + int(random.integers(scale.span_ms - length_ms + 1))
            drawn.append(Ask(hosts, start_ms, start_ms + length_ms))
        return drawn

    def pipeline(self, ask: Ask) -> Pipeline:
        """The pipeline of one run."""
        return self.build(self, ask)

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that it is about."""
        return METRICS[: self.metrics]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its answer; times in milliseconds, hosts as their numbers."""
        match self.kind:
            case "by minute" | "by hour" | "last minutes":
                return ("time", *self.names)
            case "by hour and host":
                return ("time", "host", *self.names)
            case "count":
                return ("n",)
        return ("time", "host", *METRICS)


def max_by_minute(query: Query, ask: Ask) -> Pipeline:
    """The greatest of each metric, minute by minute."""
    return [ask.match, _group(_truncated("minute"), "$max", query.names), {"$sort": {"_id": 1}}]


def max_by_hour(query: Query, ask: Ask) -> Pipeline:
    """The greatest of each metric, hour by hour."""
    return [ask.match, _group(_truncated("hour"), "$max", query.names), {"$sort": {"_id": 1}}]


def mean_by_hour_and_host(query: Query, ask: Ask) -> Pipeline:
    """The mean of each metric, by hour and host."""
    key = {"time": _truncated("hour"), "host": "$tags.hostname"}
    return [ask.match, _group(key, "$avg", query.names), {"$sort": {"_id": 1}}]


def high_cpu(query: Query, ask: Ask) -> Pipeline:
    """All measurements of a window whose `usage_user` is above 90."""
    return [{"$match": {**ask.match["$match"], "usage_user": {"$gt": 90.0}}}]


def last_minutes(query: Query, ask: Ask) -> Pipeline:
    """The greatest `usage_user` in each of the last five minutes before a moment."""
    return [
        {"$match": {"time": {"$lt": DatetimeMS(ask.end_ms)}}},
        _group(_truncated("minute"), "$max", query.names),
        {"$sort": {"_id": -1}},
        {"$limit": 5},
    ]


def last_point(query: Query, ask: Ask) -> Pipeline:
    """The newest measurement of each host."""
    fields = {name: {"$first": f"${name}"} for name in ("time", *METRICS)}
    return [{"$sort": {"tags.hostname": 1, "time": -1}}, {"$group": {"_id": "$tags.hostname", **fields}}]


def count_all(query: Query, ask: Ask) -> Pipeline:
    """How many measurements there are."""
    return [{"$count": "n"}]


def export_all(query: Query, ask: Ask) -> Pipeline:
    """Every measurement, whole."""
    return []


QUERIES: dict[str, Query] = {
    query.name: query
    for query in (
        Query("single-groupby-1-1-1", "by minute", 1, 1, 1, 3, max_by_minute, 101),
        Query("single-groupby-5-8-1", "by minute", 8, 1, 5, 8, max_by_minute, 51),
        Query("cpu-max-all-8", "by hour", 8, 8, 10, 15, max_by_hour, 51),
        Query("double-groupby-1", "by hour and host", 0, 12, 1, 15, mean_by_hour_and_host),
        Query("double-groupby-5", "by hour and host", 0, 12, 5, 35, mean_by_hour_and_host),
        Query("double-groupby-all", "by hour and host", 0, 12, 10, 60, mean_by_hour_and_host),
        Query("high-cpu-1", "high", 1, 12, 10, 8, high_cpu, 51),
        Query("high-cpu-all", "high", 0, 12, 10, 200, high_cpu, 7),
        Query("groupby-orderby-limit", "last minutes", 0, 1, 1, 8, last_minutes, 51),
        Query("lastpoint", "last point", 0, 0, 10, 4, last_point, 51),
        Query("full count", "count", 0, 0, 0, 3, count_all, 51),
        Query("full export", "all", 0, 0, 10, 1500, export_all, 3),
    )
}


def _truncated(unit: str) -> Document:
    return {"$dateTrunc": {"date": "$time", "unit": unit}}


def _group(key: Any, accumulator: str, names: tuple[str, ...]) -> Document:
    return {"$group": {"_id": key, **{name: {accumulator: f"${name}"} for name in names}}}
