"""How the time of a query grows with the data: a scan of everything, and one hour of one host."""

import statistics
import time
from typing import Any

import numpy as np
from bson import DatetimeMS

from .answers import WrongAnswer
from .contender import Bucketd
from .harness import Table
from .tsbs import START_MS, Scale, metric_values

TIMES = 10


def growth(table: Table, scale: Scale) -> None:
    """The same two questions of a tenth of the hosts and of all of them.

    Raises:
        WrongAnswer: an answer is not the one computed from the data.
    """
    small = Scale(max(1, scale.hosts // TIMES), scale.hours, scale.seed)
    scans, fixed = zip(*(_measure(size) for size in (small, scale)), strict=True)
    more = scale.hosts / small.hosts
    for name, (before, after), goal in (("full scan", scans, 1.1 * more), ("one hour of one host", fixed, 1.5)):
        table.add(
            f"growth: {name}, {more:g} times the data",
            f"x{after / before:.2f}",
            f"{before:.2f} ms and {after:.2f} ms",
            value=after / before,
            goal=goal,
        )


def _measure(scale: Scale) -> tuple[float, float]:
    """Medians in milliseconds of the scan and of the fixed question."""
    values = metric_values(scale)
    contender = Bucketd()
    try:
        contender.start()
        contender.load(scale, values)
        collection = contender.collection
        # No bucket can tell this without its measurements.
        scan: list[dict[str, Any]] = [
            {"$match": {"usage_user": {"$gt": 50}, "usage_nice": {"$lt": 50}}},
            {"$count": "n"},
        ]
        end_ms = START_MS + min(3_600_000, scale.span_ms)
        window = {"$gte": DatetimeMS(START_MS), "$lt": DatetimeMS(end_ms)}
        mean = {"$group": {"_id": None, "mean": {"$avg": "$usage_user"}}}
        fixed: list[dict[str, Any]] = [{"$match": {"tags.hostname": "host_0", "time": window}}, mean]
        scan_ms, rows = _median(collection, scan, 5)
        expected = int(((values[..., 0] > 50) & (values[..., 3] < 50)).sum())
        if (rows[0]["n"] if rows else 0) != expected:
            raise WrongAnswer(f"growth: the scan counts {rows} and not {expected}")
        fixed_ms, rows = _median(collection, fixed, 51)
        first = values[: min(360, scale.steps), 0, 0]
        if not np.isclose(rows[0]["mean"], first.mean()):
            raise WrongAnswer(f"growth: the mean of an hour is {rows} and not {first.mean()}")
        return scan_ms, fixed_ms
    finally:
        contender.stop()


def _median(collection: Any, pipeline: list[dict[str, Any]], runs: int) -> tuple[float, list[dict[str, Any]]]:
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        rows = list(collection.aggregate(pipeline))
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e3, rows
