"""What expiry takes: documents and buckets removed in a second, and how much longer inserts wait meanwhile."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import bson
from bson import DatetimeMS, ObjectId

from .harness import RawClient, Server, Table, insert_message, running_server

DOCUMENTS = "events"
MEASUREMENTS = "cpu"
OLD_MS = 1_451_606_400_000
FRESH_MS = 2_100_000_000_000
BATCH = 1000


@dataclass(slots=True)
class Waits:
    """How long inserts took, in seconds: of documents, and of measurements."""

    documents: list[float] = field(default_factory=list)
    measurements: list[float] = field(default_factory=list)


def expiry(table: Table, documents: int = 1_000_000, buckets: int = 10_000, quiet_seconds: float = 20.0) -> None:
    """Rates of a pass that has the server to itself, then a pass beside two clients that insert one at a time."""
    _rates(table, documents // 5, buckets)
    with running_server("--test-clock", "--setParameter", "ttlMonitorEnabled=false") as server:
        _prepare(server)
        _load_documents(server, documents)
        _load_buckets(server, buckets)
        quiet = _insert_until(server, lambda: time.sleep(quiet_seconds))
        started = time.perf_counter()
        busy = _insert_until(server, lambda: _run_pass(server, documents, buckets))
        seconds = time.perf_counter() - started
    note = f"{documents:,} documents and {buckets:,} buckets"
    table.add("backlog removed beside inserts", f"{seconds:.1f} s", note)
    for name, before, during in (
        ("document", quiet.documents, busy.documents),
        ("measurement", quiet.measurements, busy.measurements),
    ):
        idle, loaded = _percentile(before, 0.99), _percentile(during, 0.99)
        table.add(f"  insert of one {name}, p99 without", f"{idle * 1e3:.2f} ms", f"{len(before):,} inserts")
        table.add(
            f"  insert of one {name}, p99 during",
            f"{loaded * 1e3:.2f} ms",
            f"{len(during):,} inserts, longest {max(during) * 1e3:.0f} ms (without: {max(before) * 1e3:.0f} ms)",
        )
        table.add("  ratio of the two", f"{loaded / idle:.2f}", "goal: below 2")


def _rates(table: Table, documents: int, buckets: int) -> None:
    with running_server("--test-clock", "--setParameter", "ttlMonitorEnabled=false") as server:
        _prepare(server)
        for name, count, load in (
            ("documents", documents, _load_documents),
            ("buckets", buckets, _load_buckets),
        ):
            load(server, count)
            started, cpu = time.perf_counter(), server.cpu_seconds()
            _run_pass(server, *((count, 0) if name == "documents" else (0, count)))
            seconds, cpu = time.perf_counter() - started, server.cpu_seconds() - cpu
            table.add(f"expired {name}/s", f"{count / seconds:,.0f}", f"{cpu / count * 1e6:.1f} us of CPU each")


def _prepare(server: Server) -> None:
    with server.client() as client:
        database = client["bench"]
        database[DOCUMENTS].create_index("at", expireAfterSeconds=3600)
        database.create_collection(
            MEASUREMENTS, timeseries={"timeField": "time", "metaField": "host"}, expireAfterSeconds=3600
        )


def _load_documents(server: Server, count: int) -> None:
    client = RawClient(server.port)
    for start in range(0, count, BATCH):
        raws = [_event(OLD_MS + number) for number in range(start, min(start + BATCH, count))]
        client.send(insert_message(start + 1, "bench", DOCUMENTS, raws))
        assert client.receive()["n"] == len(raws)
    client.close()


def _load_buckets(server: Server, count: int) -> None:
    """One bucket a series."""
    client = RawClient(server.port)
    for start in range(0, count, BATCH):
        raws = [_measurement(OLD_MS, f"host_{number}") for number in range(start, min(start + BATCH, count))]
        client.send(insert_message(start + 1, "bench", MEASUREMENTS, raws))
        assert client.receive()["n"] == len(raws)
    client.close()


def _event(at_ms: int) -> bytes:
    return bson.encode({"_id": ObjectId(), "at": DatetimeMS(at_ms), "kind": "click", "path": "/a/path/to/something"})


def _measurement(time_ms: int, host: str) -> bytes:
    return bson.encode(
        {"_id": ObjectId(), "time": DatetimeMS(time_ms), "host": host, "usage_user": 17, "usage_system": 4}
    )


def _run_pass(server: Server, documents: int, buckets: int) -> None:
    with server.client() as client:
        reply = client.admin.command("ttlPass")
    assert (reply["deletedDocuments"], reply["deletedBuckets"]) == (documents, buckets), reply


def _insert_until(server: Server, done: Callable[[], object]) -> Waits:
    """Latencies of two clients that insert into the collections that expire, while `done` runs."""
    waits = Waits()
    ended = threading.Event()

    def work(collection: str, mine: list[float]) -> None:
        client = RawClient(server.port)
        number = 0
        while not ended.is_set():
            number += 1
            at_ms = FRESH_MS + number * 100
            raw = _event(at_ms) if collection == DOCUMENTS else _measurement(at_ms, "host_fresh")
            message = insert_message(number, "bench", collection, [raw])
            started = time.perf_counter()
            client.send(message)
            assert client.receive()["n"] == 1
            mine.append(time.perf_counter() - started)
        client.close()

    threads = [
        threading.Thread(target=work, args=(DOCUMENTS, waits.documents)),
        threading.Thread(target=work, args=(MEASUREMENTS, waits.measurements)),
    ]
    for thread in threads:
        thread.start()
    try:
        done()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    return waits


def _percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
