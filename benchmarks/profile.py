"""Where the server's time goes: the functions that take most of it, of the event loop and of the writer's thread.

The server runs under cProfile (`profiled.py`). What it costs to look makes small functions look larger than they are; what
runs in the kernel's own threads is not seen.
"""

import os
import pstats
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import bson
from bson import ObjectId

from .contender import Bucketd
from .harness import RawClient, insert_message
from .queries import Query
from .tsbs import START_MS, Scale, metric_values

ROWS = 45
SINGLE_SECONDS = 3.0


def profile(scale: Scale, asked: list[Query]) -> None:
    """Profile ingest, then each query, then single inserts, and print a table by function for each of the two threads."""
    values = metric_values(scale)
    server = Bucketd(module="benchmarks.profiled")
    phases: dict[str, Callable[[], object]] = {"ingest": lambda: server.load(scale, values)}
    for query in asked:
        phases[query.name] = partial(_ask, server, query, scale)
    phases["single inserts"] = lambda: _single_inserts(server)
    with tempfile.TemporaryDirectory(prefix="bucketd-profile-") as folder:
        os.environ["BENCHMARKS_PROFILE"] = folder
        server.start()
        try:
            for number, (name, work) in enumerate(phases.items()):
                _toggle(server, Path(folder, f"{number}-begun"))
                started, cpu = time.perf_counter(), server.server.cpu_seconds()
                work()
                seconds, cpu = time.perf_counter() - started, server.server.cpu_seconds() - cpu
                _toggle(server, Path(folder, f"{number}-ended"))
                print(f"\n==== {name}: {seconds:.2f} s, {cpu:.2f} s of server CPU, under the profiler")
                for path in sorted(Path(folder).glob(f"{number}-*.prof")):
                    print(f"== {path.stem.partition('-')[2]}")
                    pstats.Stats(str(path)).strip_dirs().sort_stats("tottime").print_stats(ROWS)
        finally:
            server.stop()


def _toggle(server: Bucketd, sign: Path) -> None:
    """Tell the server to begin or to end, and wait until it has."""
    server.server.process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 30
    while not sign.exists():
        server.collection.database.client.admin.command("ping")
        if time.monotonic() > deadline:
            raise RuntimeError(f"no sign of {sign.name}")


def _ask(server: Bucketd, query: Query, scale: Scale) -> None:
    for ask in query.asks(scale):
        server.fetch(query, ask)


def _single_inserts(server: Bucketd) -> None:
    client = RawClient(server.server.port)
    deadline = time.monotonic() + SINGLE_SECONDS
    number = 0
    while time.monotonic() < deadline:
        at = bson.DatetimeMS(START_MS + number)
        document = {"_id": ObjectId(), "time": at, "tags": {"hostname": "alone"}, "usage_user": number}
        client.send(insert_message(number, "bench", "cpu", [bson.encode(document)]))
        assert client.receive()["n"] == 1
        number += 1
    client.close()
    print(f"\n{number:,} single inserts")
