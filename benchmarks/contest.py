"""Every contender takes the same data and answers the same queries; answers are checked, medians put beside each other."""

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .answers import answer, check
from .contender import Contender
from .harness import Table
from .loading import Load
from .queries import Query
from .tsbs import METRICS, Scale, metric_values

EXPORT_CHECKED = 1_000_000
"""Exports of more rows than this are checked by their number of bytes alone."""


@dataclass(slots=True)
class Result:
    """What one contender needed: medians in milliseconds by query, its ingest and its bytes."""

    medians: dict[str, float] = field(default_factory=dict)
    load: Load | None = None
    stored: int = 0


def queries(
    table: Table, scale: Scale, contenders: list[type[Contender]], asked: list[Query], smoke: bool
) -> dict[str, Result]:
    """Run all who are installed, one after another, and add a row for each query.

    Raises:
        WrongAnswer: an answer is not the one computed from the data.
    """
    values = metric_values(scale)
    results: dict[str, Result] = {}
    for contender in contenders:
        lacks = contender.missing()
        if lacks is not None:
            table.add(contender.name, "not installed", lacks)
            continue
        refusal = contender.refuses(scale)
        if refusal is not None:
            table.add(contender.name, "not asked", refusal)
            continue
        try:
            results[contender.name] = _run(contender(), scale, values, asked, smoke)
        except (OSError, RuntimeError) as error:
            if contender.name == "bucketd":
                raise
            # Of a peer that fails there is nothing to compare; a wrong answer ends the run all the same.
            table.add(contender.name, "failed", str(error)[:200])
    _add_rows(table, scale, results, asked)
    return results


def _run(contender: Contender, scale: Scale, values: NDArray[np.uint8], asked: list[Query], smoke: bool) -> Result:
    result = Result()
    try:
        contender.start()
        result.load = contender.load(scale, values)
        for query in asked:
            if contender.answers(query):
                result.medians[query.name] = _median_ms(contender, query, scale, values, smoke)
        result.stored = contender.stored_bytes()
    finally:
        contender.stop()
    return result


def _median_ms(contender: Contender, query: Query, scale: Scale, values: NDArray[np.uint8], smoke: bool) -> float:
    """The median over what is asked; every different answer is checked, outside of the time."""
    taken = []
    checked: Any = None
    for ask in query.asks(scale)[: 3 if smoke else None]:
        started = time.perf_counter()
        fetched = contender.fetch(query, ask)
        taken.append(time.perf_counter() - started)
        if query.kind == "all" and (checked is not None or scale.measurements > EXPORT_CHECKED):
            size = _size(fetched)
            if checked is not None and checked != size:
                raise RuntimeError(f"{contender.name}: two exports differ: {size:,} bytes and {checked:,}")
            checked = size
            continue
        check(
            contender.name,
            query,
            contender.read(query, fetched),
            answer(query, contender.asked(query, ask), scale, values),
        )
        checked = _size(fetched) if query.kind == "all" else None
    return statistics.median(taken) * 1e3


def _size(fetched: list[Any]) -> int:
    return sum(len(part) for part in fetched)


def _add_rows(table: Table, scale: Scale, results: dict[str, Result], asked: list[Query]) -> None:
    own = results["bucketd"]
    others = {name: result for name, result in results.items() if name != "bucketd"}
    assert own.load is not None
    loads = {name: result.load for name, result in others.items() if result.load is not None}
    per_second = {name: load.measurements / load.seconds for name, load in loads.items()}
    ingest = own.load.measurements / own.load.seconds
    table.add("ingest, measurements/s", f"{ingest:,.0f}", _beside(ingest, per_second), value=ingest, peers=per_second)
    per_million = {name: load.cpu / load.measurements * 1e6 for name, load in loads.items()}
    cpu = own.load.cpu / own.load.measurements * 1e6
    name = "  server CPU per million measurements"
    table.add(name, f"{cpu:.2f} s", _beside(cpu, per_million), value=cpu, peers=per_million)
    values = scale.measurements * len(METRICS)
    stored = {name: result.stored / values for name, result in others.items() if result.stored}
    size = own.stored / values
    table.add("  stored, bytes per value", f"{size:.3f}", _beside(size, stored), value=size, peers=stored)
    for query in asked:
        median = own.medians[query.name]
        medians = {name: result.medians[query.name] for name, result in others.items() if query.name in result.medians}
        table.add(
            query.name,
            f"{median:.2f} ms",
            _beside(median, medians),
            value=median,
            goal=query.goal_ms if (scale.hosts, scale.hours) == (100, 12) else None,
            peers=medians,
        )


def _beside(own: float, others: dict[str, float]) -> str:
    """The others' figures, and how many times theirs this server's is."""
    return "  ".join(f"{name} {other:,.4g} (x{own / other:.2f})" for name, other in others.items() if other)
