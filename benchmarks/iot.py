"""TSBS-shaped data of trucks, with points that are missing and points that come late, and the questions asked of them.

Each truck has eight tags and sends `readings` (where it is, how it moves) and `diagnostics` (fuel, load, status) every ten
seconds. Some points never come, some lack a field, and some come long after those that were measured later.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import bson
import numpy as np
from bson import DatetimeMS, ObjectId
from numpy.typing import NDArray

from .answers import WrongAnswer
from .harness import RawClient, Table, insert_message, running_server
from .loading import create, send_all
from .tsbs import INTERVAL_MS, START_MS

Document = dict[str, Any]

READINGS = ("latitude", "longitude", "elevation", "velocity", "heading", "grade", "fuel_consumption")
DIAGNOSTICS = ("fuel_state", "current_load", "status")
FLEETS = ("East", "West", "North", "South")
MODELS = {"F-150": (2000, 200), "G-2000": (5000, 300), "H-2": (1500, 150)}
"""Load capacity and fuel capacity of each model."""

POINTS_MISSING = 0.02
FIELDS_MISSING = 0.01
LATE = 0.05
LATE_STEPS_MAX = 400

_SPREAD = {
    "latitude": (0.01, -90, 90),
    "longitude": (0.01, -180, 180),
    "elevation": (3, 0, 500),
    "velocity": (4, 0, 100),
    "heading": (5, 0, 360),
    "grade": (1, 0, 100),
    "fuel_consumption": (0.5, 0, 50),
    "fuel_state": (0.01, 0, 1),
    "current_load": (60, 0, 5000),
}


@dataclass(frozen=True, slots=True)
class Fleet:
    """Generated trucks: `values[field]` of shape (steps, trucks), NaN where a field is missing; `sent[table]` alike."""

    trucks: int
    steps: int
    tags: list[Document]
    values: dict[str, NDArray[np.float64]]
    sent: dict[str, NDArray[np.bool_]]
    arrival: dict[str, NDArray[np.int64]]
    """When each point comes, as a step."""

    @classmethod
    def make(cls, trucks: int, hours: float, seed: int = 123) -> "Fleet":
        """The same trucks for the same arguments."""
        random = np.random.default_rng(seed)
        steps = int(hours * 3_600_000 / INTERVAL_MS)
        tags = []
        for truck in range(trucks):
            model = list(MODELS)[int(random.integers(len(MODELS)))]
            load, fuel = MODELS[model]
            tags.append(
                {
                    "name": f"truck_{truck}",
                    "fleet": FLEETS[int(random.integers(len(FLEETS)))],
                    "driver": ["Derek", "Rodney", "Albert", "Andy", "Seth", "Trish"][int(random.integers(6))],
                    "model": model,
                    "device_version": f"v{random.integers(1, 4)}.{random.integers(0, 4)}",
                    "load_capacity": load,
                    "fuel_capacity": fuel,
                    "nominal_fuel_consumption": int(random.integers(12, 20)),
                }
            )
        shape = (steps, trucks)
        values = {}
        for name, (step, low, high) in _SPREAD.items():
            walk = random.uniform(low, high, trucks) + np.cumsum(random.normal(0, step, shape), axis=0)
            # Reflected at the borders.
            span = high - low
            values[name] = np.round(high - np.abs((walk - low) % (2 * span) - span), 5 if span == 180 else 2)
        values["status"] = random.integers(0, 2, shape).astype(np.float64)
        for column in values.values():
            column[random.random(shape) < FIELDS_MISSING] = np.nan
        sent, arrival = {}, {}
        for table in ("readings", "diagnostics"):
            sent[table] = random.random(shape) >= POINTS_MISSING
            late = np.where(random.random(shape) < LATE, random.integers(1, LATE_STEPS_MAX, shape), 0)
            arrival[table] = np.arange(steps)[:, None] + late
        return cls(trucks, steps, tags, values, sent, arrival)

    def messages(self, table: str, fields: tuple[str, ...], size: int = 1000) -> Iterator[tuple[bytes, int]]:
        """Inserts in the order in which the points come, each with its number of documents."""
        steps, trucks = np.nonzero(self.sent[table])
        order = np.argsort(self.arrival[table][steps, trucks], kind="stable")
        steps, trucks = steps[order], trucks[order]
        columns = np.stack([self.values[name][steps, trucks] for name in fields], axis=1).tolist()
        raws = []
        for number, (step, truck, row) in enumerate(zip(steps.tolist(), trucks.tolist(), columns, strict=True)):
            document: Document = {
                "_id": ObjectId(),
                "time": DatetimeMS(START_MS + step * INTERVAL_MS),
                "tags": self.tags[truck],
            }
            for name, value in zip(fields, row, strict=True):
                if value == value:
                    document[name] = int(value) if name == "status" else value
            raws.append(bson.encode(document))
            if len(raws) == size or number == len(steps) - 1:
                yield insert_message(number, "bench", table, raws), len(raws)
                raws = []

    def newest(self, table: str, name: str) -> dict[int, float | None]:
        """Of the newest point of each truck, a field; None where it lacks that."""
        newest = {}
        for truck in range(self.trucks):
            steps = np.flatnonzero(self.sent[table][:, truck])
            if len(steps):
                value = self.values[name][steps[-1], truck]
                newest[truck] = None if np.isnan(value) else float(value)
        return newest


def last_location() -> list[Document]:
    """The newest place of each truck."""
    newest = {name: {"$first": f"${name}"} for name in ("latitude", "longitude")}
    return [{"$sort": {"tags.name": 1, "time": -1}}, {"$group": {"_id": "$tags.name", **newest}}]


def low_fuel() -> list[Document]:
    """The trucks whose newest fuel state is below a tenth."""
    newest = {"_id": "$tags.name", "fuel": {"$first": "$fuel_state"}}
    return [{"$sort": {"tags.name": 1, "time": -1}}, {"$group": newest}, {"$match": {"fuel": {"$lt": 0.1}}}]


def mean_load() -> list[Document]:
    """By fleet and model, the mean share of the capacity that is used."""
    key = {"fleet": "$tags.fleet", "model": "$tags.model"}
    share = {"$avg": {"$divide": ["$current_load", "$tags.load_capacity"]}}
    return [{"$group": {"_id": key, "load": share}}, {"$sort": {"_id": 1}}]


def stationary(start_ms: int, end_ms: int) -> list[Document]:
    """The trucks whose mean velocity in a window is below one."""
    window = {"time": {"$gte": DatetimeMS(start_ms), "$lt": DatetimeMS(end_ms)}}
    mean = {"_id": "$tags.name", "velocity": {"$avg": "$velocity"}}
    return [{"$match": window}, {"$group": mean}, {"$match": {"velocity": {"$lt": 1.0}}}]


def iot(table: Table, trucks: int = 100, hours: float = 6) -> None:
    """Ingest with late and missing points, then the questions, each answer checked.

    Raises:
        WrongAnswer: an answer is not the one computed from the data.
    """
    fleet = Fleet.make(trucks, hours)
    with running_server() as server, server.client() as client:
        for name, fields in (("readings", READINGS), ("diagnostics", DIAGNOSTICS)):
            create(server, name, {"tags.name": 1, "time": 1})
            made = list(fleet.messages(name, fields))
            count = sum(documents for _, documents in made)
            raw = RawClient(server.port)
            cpu, started = server.cpu_seconds(), time.perf_counter()
            assert send_all(raw, [message for message, _ in made]) == count
            seconds, cpu = time.perf_counter() - started, server.cpu_seconds() - cpu
            raw.close()
            note = f"server CPU {cpu / count * 1e6:.2f} s per million, {LATE:.0%} late, {POINTS_MISSING:.0%} missing"
            table.add(f"iot {name}: ingest, points/s", f"{count / seconds:,.0f}", note, value=count / seconds)
        database = client["bench"]
        middle = START_MS + fleet.steps // 2 * INTERVAL_MS
        window = (middle, middle + 600_000)
        for name, source, pipeline, expected in (
            ("last-loc", "readings", last_location(), _expect_locations(fleet)),
            ("low-fuel", "diagnostics", low_fuel(), _expect_low_fuel(fleet)),
            ("avg-load", "diagnostics", mean_load(), _expect_loads(fleet)),
            ("stationary-trucks", "readings", stationary(*window), _expect_stationary(fleet, *window)),
        ):
            taken = []
            for _ in range(5):
                started = time.perf_counter()
                rows = list(database[source].aggregate(pipeline))
                taken.append(time.perf_counter() - started)
            _compare(name, rows, expected)
            median = statistics.median(taken) * 1e3
            table.add(f"iot {name}", f"{median:.2f} ms", f"{len(rows):,} rows", value=median)


def _compare(name: str, rows: list[Document], expected: dict[Any, tuple[float | None, ...]]) -> None:
    got = {_key(row.pop("_id")): tuple(row.values()) for row in rows}
    if set(got) != set(expected):
        raise WrongAnswer(f"iot {name}: groups differ: {sorted(set(got) ^ set(expected))[:5]}")
    for key, values in expected.items():
        for found, wanted in zip(got[key], values, strict=True):
            same = found is None if wanted is None else found is not None and bool(np.isclose(found, wanted, rtol=1e-9))
            if not same:
                raise WrongAnswer(f"iot {name}: {key} has {got[key]} and not {values}")


def _key(identity: Any) -> Any:
    return tuple(identity.values()) if isinstance(identity, dict) else identity


def _expect_locations(fleet: Fleet) -> dict[Any, tuple[float | None, ...]]:
    latitude, longitude = (fleet.newest("readings", name) for name in ("latitude", "longitude"))
    return {f"truck_{truck}": (latitude[truck], longitude[truck]) for truck in latitude}


def _expect_low_fuel(fleet: Fleet) -> dict[Any, tuple[float | None, ...]]:
    newest = fleet.newest("diagnostics", "fuel_state")
    return {f"truck_{truck}": (fuel,) for truck, fuel in newest.items() if fuel is not None and fuel < 0.1}


def _expect_loads(fleet: Fleet) -> dict[Any, tuple[float | None, ...]]:
    shares: dict[Any, list[NDArray[np.float64]]] = {}
    for truck, tags in enumerate(fleet.tags):
        loads = fleet.values["current_load"][fleet.sent["diagnostics"][:, truck], truck] / tags["load_capacity"]
        shares.setdefault((tags["fleet"], tags["model"]), []).append(loads[~np.isnan(loads)])
    return {key: (float(np.concatenate(parts).mean()),) for key, parts in shares.items()}


def _expect_stationary(fleet: Fleet, start_ms: int, end_ms: int) -> dict[Any, tuple[float | None, ...]]:
    rows = slice((start_ms - START_MS) // INTERVAL_MS, (end_ms - START_MS) // INTERVAL_MS)
    found: dict[Any, tuple[float | None, ...]] = {}
    for truck in range(fleet.trucks):
        speeds = fleet.values["velocity"][rows, truck][fleet.sent["readings"][rows, truck]]
        speeds = speeds[~np.isnan(speeds)]
        if len(speeds) and speeds.mean() < 1:
            found[f"truck_{truck}"] = (float(speeds.mean()),)
    return found
