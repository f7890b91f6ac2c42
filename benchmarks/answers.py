"""The answers to the queries a second time, by NumPy on the generated data, without any database."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .queries import Ask, Query
from .tsbs import INTERVAL_MS, METRICS, START_MS, Scale

Answer = NDArray[Any]

_UNITS = {"by minute": 60_000, "by hour": 3_600_000, "by hour and host": 3_600_000, "last minutes": 60_000}


def answer(query: Query, ask: Ask, scale: Scale, values: NDArray[np.uint8]) -> Answer:
    """The table that the query gives, in order of its first columns.

    Args:
        values: all metrics, as `tsbs.metric_values` gives them.
    """
    if query.kind == "count":
        return np.array([[values.shape[0] * values.shape[1]]], dtype=np.int64)
    if query.kind == "last point":
        return _rows(values[-1:], scale.steps - 1, np.arange(scale.hosts))
    if query.kind == "all":
        return _rows(values, 0, np.arange(scale.hosts))
    first = -(-(ask.start_ms - START_MS) // INTERVAL_MS)
    last = -(-(ask.end_ms - START_MS) // INTERVAL_MS)
    if query.kind == "last minutes":
        first = max(0, last - 5 * 60_000 // INTERVAL_MS - 1)
    hosts = np.array(ask.hosts or range(scale.hosts))
    part = values[first:last, hosts]
    if query.kind == "high":
        rows = _rows(part, first, hosts)
        return rows[rows[:, 2] > 90]
    times = START_MS + np.arange(first, last) * INTERVAL_MS
    starts = times // _UNITS[query.kind] * _UNITS[query.kind]
    units, borders = np.unique(starts, return_index=True)
    chosen = part[:, :, : query.metrics]
    if query.kind == "by hour and host":
        sums = np.add.reduceat(chosen.astype(np.int64), borders, axis=0)
        lengths = np.diff(np.append(borders, len(times)))
        means = sums / lengths[:, None, None]
        keys = np.stack(np.meshgrid(units, hosts, indexing="ij"), axis=-1)
        return np.concatenate([keys, means], axis=-1).reshape(-1, 2 + query.metrics)
    greatest = np.maximum.reduceat(chosen.max(axis=1), borders, axis=0)
    table = np.concatenate([units[:, None], greatest.astype(np.int64)], axis=1)
    return table[-5:] if query.kind == "last minutes" else table


def _rows(part: NDArray[np.uint8], first: int, hosts: NDArray[Any]) -> Answer:
    """Measurements with all metrics, by time and host."""
    times = START_MS + np.arange(first, first + len(part)) * INTERVAL_MS
    keys = np.stack(np.meshgrid(times, hosts, indexing="ij"), axis=-1)
    return np.concatenate([keys, part.astype(np.int64)], axis=-1).reshape(-1, 2 + len(METRICS))


def ordered(table: Answer, query: Query) -> Answer:
    """The rows by time and then host, as `answer` gives them."""
    if len(table) == 0:
        return table.reshape(0, len(query.columns))
    keys = [table[:, 0]] if query.columns[1:2] != ("host",) else [table[:, 1], table[:, 0]]
    return table[np.lexsort(keys)]


def check(who: str, query: Query, got: Answer, expected: Answer) -> None:
    """Hold an answer against the computed one.

    Raises:
        WrongAnswer: they differ.
    """
    found = ordered(got, query)
    if found.shape != expected.shape:
        raise WrongAnswer(f"{who}: {query.name} gives {found.shape[0]:,} rows and not {expected.shape[0]:,}")
    differing = np.flatnonzero(~np.isclose(found, expected, rtol=1e-12, atol=0).all(axis=1))
    if len(differing):
        row = differing[0]
        raise WrongAnswer(f"{who}: {query.name}, row {row}: {found[row].tolist()} and not {expected[row].tolist()}")


class WrongAnswer(Exception):
    """An answer that is not the one computed from the data; the benchmark ends with it."""
