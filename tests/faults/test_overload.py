"""More clients than there are processors for, beside others that want to bring the server down: nothing is lost.

The short form runs with every change; the long one (`make test-nightly`) prints its figures. BUCKETD_TEST_OVERLOAD_SECONDS
says how long either takes.
"""

import os
import socket
import statistics
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pymongo import MongoClient

from support.overload import BATCH, DATABASE, run_clients
from support.server_process import ServerProcess
from support.wire_client import body_section, message

CLIENTS = 64
SHORT_SECONDS, LONG_SECONDS = 8.0, 600.0
MEMORY_MIB_MAX = 700
"""64 clients, their batches, what abusers may hold (48 MB of messages), caches and buffers of the store."""

Start = Callable[..., ServerProcess]


@pytest.mark.timeout(600)
def test_overload(start_server: Start) -> None:
    _overload(start_server, _seconds(SHORT_SECONDS))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_long_overload(start_server: Start) -> None:
    _overload(start_server, _seconds(LONG_SECONDS))


def _seconds(usual: float) -> float:
    return float(os.environ.get("BUCKETD_TEST_OVERLOAD_SECONDS", usual))


def _overload(start_server: Start, seconds: float) -> None:
    own = start_server(
        *("--maxInFlightBytes", "48000000"),
        *("--setParameter", "bucketdMessageTimeoutMillis=500", "--setParameter", "bucketdHandshakeTimeoutMillis=500"),
    )
    with MongoClient(own.uri) as client:
        client[DATABASE].create_collection("series", timeseries={"timeField": "t", "metaField": "client"})
        ended = threading.Event()
        memory = Watch(own.pid, ended)
        abusers = [threading.Thread(target=_abuse, args=(own.port, kind, ended)) for kind in range(8)]
        for thread in (memory, *abusers):
            thread.start()
        outcomes = run_clients(own.port, CLIENTS, seconds)
        ended.set()
        for thread in (memory, *abusers):
            thread.join()
        assert [outcome.errors for outcome in outcomes if outcome.errors] == []
        lost = doubled = 0
        for collection in ("plain", "series"):
            rows = client[DATABASE][collection].aggregate(
                [{"$group": {"_id": {"client": "$client", "n": {"$ifNull": ["$n", "$_id"]}}, "times": {"$sum": 1}}}]
            )
            seen: dict[int, int] = {}
            for row in rows:
                seen[row["_id"]["client"]] = seen.get(row["_id"]["client"], 0) + 1
                doubled += row["times"] > 1
            for outcome in outcomes:
                lost += max(0, outcome.acknowledged[collection] * BATCH - seen.get(outcome.client, 0))
        counted = client.admin.command("serverStatus")["bucketd"]["limits"]
    milliseconds = sorted(value for outcome in outcomes for value in outcome.milliseconds)
    acknowledged = sum(sum(outcome.acknowledged.values()) for outcome in outcomes) * BATCH
    print(
        f"\noverload: {CLIENTS} clients, {seconds:g} s: {acknowledged} documents acknowledged, {lost} lost, "
        f"{doubled} doubled, {len(milliseconds) / seconds:.0f} requests/s, "
        f"median {statistics.median(milliseconds):.1f} ms, p99 {milliseconds[int(len(milliseconds) * 0.99)]:.1f} ms, "
        f"{sum(outcome.shed for outcome in outcomes)} shed, at most {memory.most_mib} MiB, "
        f"{counted['messagesTimedOut']} unfinished messages and {counted['handshakesTimedOut']} silent connections cut"
    )
    assert (lost, doubled) == (0, 0)
    assert acknowledged > 0
    assert memory.most_mib < MEMORY_MIB_MAX
    assert own.errors() == []
    assert own.stop() == 0


class Watch(threading.Thread):
    """The most memory that a process held for itself while the test ran."""

    def __init__(self, pid: int, ended: threading.Event) -> None:
        super().__init__()
        self._status = Path(f"/proc/{pid}/status")
        self._ended = ended
        self.most_mib = 0

    def run(self) -> None:
        while not self._ended.wait(0.2):
            for line in self._status.read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.most_mib = max(self.most_mib, int(line.split()[1]) // 1024)


def _abuse(port: int, kind: int, ended: threading.Event) -> None:
    """Connect and say nothing, begin messages that never end, or send large ones, until it is over."""
    large = message(body_section({"ping": 1, "comment": "x" * 12_000_000, "$db": "admin"}))
    while not ended.is_set():
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connected:
                match kind % 4:
                    case 0:
                        connected.recv(1)
                    case 1:
                        connected.sendall(struct.pack("<iiii", 40_000_000, 1, 0, 2013) + b"x" * 1000)
                        connected.recv(1)
                    case 2:
                        connected.sendall(large[: len(large) // 2])
                        ended.wait(0.5)
                    case _:
                        connected.sendall(large)
                        connected.recv(100)
                        ended.wait(0.2)
        except OSError:
            continue
