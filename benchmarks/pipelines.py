"""What the stages of pipelines cost over ordinary documents: rows per second of server CPU, and memory where they spill."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .documents import load
from .harness import Table, running_server

Document = dict[str, Any]

PIPELINES: dict[str, list[Document]] = {
    "$match": [{"$match": {"b": {"$lt": 10}, "c": {"$ne": "text 5"}}}],
    "$project with expressions": [
        {"$project": {"x": {"$add": ["$a", {"$multiply": ["$b", 2]}]}, "y": {"$toUpper": "$c"}}},
        {"$match": {"x": -1}},
    ],
    "$group, 1 group": [{"$group": {"_id": None, "n": {"$sum": "$a"}, "m": {"$avg": "$b"}}}],
    "$group, 1,000 groups": [{"$group": {"_id": "$b", "n": {"$sum": "$a"}}}, {"$match": {"n": -1}}],
    "$group, as many groups as rows": [{"$group": {"_id": "$a", "n": {"$sum": 1}}}, {"$match": {"n": -1}}],
    "$sort": [{"$sort": {"c": 1}}, {"$skip": 10_000_000}],
    "$sort and $limit": [{"$sort": {"c": 1}}, {"$limit": 10}],
    "$lookup by _id": [
        {"$limit": 20_000},
        {"$lookup": {"from": "documents", "localField": "a", "foreignField": "_id", "as": "found"}},
        {"$match": {"found.b": -1}},
    ],
}


def pipelines(table: Table, count: int = 200_000, spilled: int = 5_000_000) -> None:
    """Rows per second of server CPU for each pipeline; then a sort and a group that do not fit into memory."""
    with running_server() as server, server.client() as client:
        collection = client["bench"]["documents"]
        load(collection, count)
        for name, pipeline in PIPELINES.items():
            rows = min(count, next((stage["$limit"] for stage in pipeline[:1] if "$limit" in stage), count))
            before = server.cpu_seconds()
            list(collection.aggregate(pipeline))
            cpu = server.cpu_seconds() - before
            table.add(f"{name}, {rows:,} rows", f"{rows / cpu:,.0f}/s", f"{cpu / rows * 1e6:.2f} us each")
    if not spilled:
        return
    with running_server() as server, server.client() as client:
        collection = client["bench"]["documents"]
        load(collection, spilled)
        for name in ("$sort", "$group, as many groups as rows"):
            idle = server.resident_bytes()
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(lambda stages: list(collection.aggregate(stages)), PIPELINES[name])
                pings: list[float] = []
                greatest = idle
                while not running.done():
                    started = time.perf_counter()
                    client.admin.command("ping")
                    pings.append(time.perf_counter() - started)
                    greatest = max(greatest, server.resident_bytes())
                    time.sleep(0.01)
                running.result()
            table.add(
                f"{name} of {spilled:,} rows, with spill",
                f"{(greatest - idle) / 1e6:,.0f} MB",
                "resident memory it added at most",
            )
            slowest = sorted(pings)[-max(1, len(pings) // 100)]
            table.add(
                "  ping meanwhile, p50",
                f"{statistics.median(pings) * 1e3:.1f} ms",
                f"p99 {slowest * 1e3:.1f} ms, greatest {max(pings) * 1e3:.1f} ms of {len(pings):,}",
            )
