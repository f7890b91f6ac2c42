"""What ordinary collections cost: look-ups, ranges, updates and scans, beside mongomock where it is installed."""

import importlib.util
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .harness import Server, Table, running_server

Document = dict[str, Any]


def load(collection: Any, count: int) -> None:
    """Documents `{_id, a, b, c}`: `a` has an index, `b` has none, `c` is a text."""
    collection.create_index("a")
    for start in range(0, count, 10_000):
        collection.insert_many(
            [
                {"_id": number, "a": number * 7919 % count, "b": number % 1000, "c": f"text {number}"}
                for number in range(start, min(start + 10_000, count))
            ]
        )


def _operations(collection: Any, count: int) -> dict[str, Callable[[int], object]]:
    spread = [number * 104_729 % count for number in range(100_000)]
    return {
        "find by _id": lambda n: collection.find_one({"_id": spread[n]}),
        "find by secondary index": lambda n: collection.find_one({"a": spread[n]}),
        "range of 100 by index": lambda n: list(collection.find({"a": {"$gte": spread[n], "$lt": spread[n] + 100}})),
        "update by _id": lambda n: collection.update_one({"_id": spread[n]}, {"$inc": {"b": 1}}),
    }


def _median_seconds(operation: Callable[[int], object], rounds: int) -> float:
    taken = []
    for number in range(rounds):
        started = time.perf_counter()
        operation(number)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def documents(table: Table, counts: tuple[int, ...] = (10_000, 1_000_000), peer_count: int = 10_000) -> None:
    """Each operation at several sizes, and its ratio to mongomock on the same documents at the peer's size."""
    peer = _peer_medians(peer_count)
    smallest: dict[str, float] = {}
    for count in counts:
        with running_server() as server, server.client() as client:
            collection = client["bench"]["documents"]
            started = time.perf_counter()
            load(collection, count)
            table.add(f"load {count:,} documents with an index", f"{count / (time.perf_counter() - started):,.0f}/s")
            for name, operation in _operations(collection, count).items():
                seconds = _median_seconds(operation, 300)
                first = smallest.setdefault(name, seconds)
                note = f"{seconds / first:.2f} x at {counts[0]:,}"
                if count == peer_count and name in peer:
                    note = f"{peer[name] / seconds:.1f} x as fast as mongomock"
                table.add(f"  {name}, {count:,} documents, p50", f"{seconds * 1e3:.3f} ms", note)
            _scan(table, server, count)


def _scan(table: Table, server: Server, count: int) -> None:
    """A predicate without an index over everything, and how long a ping takes meanwhile."""
    with server.client() as client:
        collection = client["bench"]["documents"]
        before, started = server.cpu_seconds(), time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            scan = pool.submit(collection.count_documents, {"b": {"$lt": 10}, "c": {"$gte": "text 5"}})
            pings = []
            while not scan.done():
                pinged = time.perf_counter()
                client.admin.command("ping")
                pings.append(time.perf_counter() - pinged)
            scan.result()
        seconds, cpu = time.perf_counter() - started, server.cpu_seconds() - before
        table.add(
            f"  COLLSCAN with a predicate, {count:,} documents",
            f"{cpu / count * 1e6:.2f} us each",
            f"{count / seconds:,.0f}/s",
        )
        if len(pings) > 20:
            table.add(
                "  ping during the scan, greatest",
                f"{max(pings) * 1e3:.1f} ms",
                f"p50 {statistics.median(pings) * 1e3:.2f} ms",
            )


def _peer_medians(count: int) -> dict[str, float]:
    if importlib.util.find_spec("mongomock") is None:
        return {}
    import mongomock

    collection = mongomock.MongoClient()["bench"]["documents"]
    load(collection, count)
    return {name: _median_seconds(operation, 30) for name, operation in _operations(collection, count).items()}
