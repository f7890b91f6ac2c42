"""What taking measurements in costs: by pymongo, pre-encoded from a raw socket, one by one, and by many writers."""

import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import bson
from bson import ObjectId

from bucketd.common.zstd import zstd

from .harness import RawClient, Server, Table, disk_bytes, insert_message, running_server, used_bytes
from .loading import create, load, send_all
from .tsbs import METRICS, Scale, batches


def pymongo_batches(table: Table, scale: Scale) -> None:
    """`insert_many` of a thousand: CPU of server and client per measurement."""
    prepared = list(batches(scale))
    with running_server() as server:
        create(server, "cpu")
        with server.client() as client:
            collection = client["bench"]["cpu"]
            collection.insert_many(prepared[0], ordered=False)
            server_before, client_before, started = server.cpu_seconds(), time.process_time(), time.perf_counter()
            for batch in prepared[1:]:
                collection.insert_many(batch, ordered=False)
            seconds = time.perf_counter() - started
            server_cpu = server.cpu_seconds() - server_before
            client_cpu = time.process_time() - client_before
            count = sum(len(batch) for batch in prepared[1:])
            assert collection.count_documents({}) == scale.measurements
    table.add("pymongo insert_many(1000), measurements/s", f"{count / seconds:,.0f}")
    table.add("  client CPU per measurement", f"{client_cpu / count * 1e6:.2f} us")
    table.add(
        "  server CPU per measurement",
        f"{server_cpu / count * 1e6:.2f} us",
        "goal and ratio: of the client's CPU",
        value=server_cpu / client_cpu,
        goal=0.5,
    )


def raw_load(table: Table, scale: Scale, connections: int = 1) -> None:
    """Messages encoded beforehand and sent as fast as the server answers; bytes on disk at the end."""
    with running_server() as server:
        create(server, "cpu")
        empty, empty_used = disk_bytes(server.dbpath), used_bytes(server.dbpath)
        taken = load(server, "cpu", scale, connections=connections)
        with server.client() as client:
            size = client["bench"].command("collStats", "cpu")["size"]
            assert client["bench"]["cpu"].count_documents({}) == scale.measurements
        on_disk = disk_bytes(server.dbpath) - empty
        with server.client() as client:
            client["bench"].command("compact", "cpu")
        used, identities = used_bytes(server.dbpath) - empty_used, _identity_bytes(server)
    values = scale.measurements * len(METRICS)
    per_second, per_million = taken.measurements / taken.seconds, taken.cpu / taken.measurements * 1e6
    table.add(
        f"raw socket x{connections}, measurements/s",
        f"{per_second:,.0f}",
        "wall clock",
        value=per_second,
        goal=400_000 if connections == 4 else None,
        at_least=True,
    )
    table.add(
        "  server CPU per million measurements",
        f"{per_million:.2f} s",
        f"{taken.measurements / taken.cpu:,.0f} per second of CPU",
        value=per_million,
        goal=2.5,
    )
    table.add("  bucket documents, bytes per value", f"{size / values:.3f}", "with _id, before the pages of the store")
    table.add(
        "  pages in use, bytes per value",
        f"{used / values:.3f}",
        "packed, with _id and index",
        value=used / values,
        goal=0.65,
    )
    apart = (used - identities) / values
    table.add("  _id apart", f"{apart:.3f}", "less what the packs are smaller without it", value=apart, goal=0.45)
    table.add("  files on disk, bytes per value", f"{on_disk / values:.3f}", "with _id, index and pages that are free")


def _identity_bytes(server: Server) -> int:
    """What the `_id`s of the measurements take: of each 16 buckets, packed with them and without."""
    taken = 0
    with server.client() as client:
        rows = list(client["bench"]["system.buckets.cpu"].find())
    for start in range(0, len(rows), 16):
        part = rows[start : start + 16]
        without = [{**row, "data": {name: raw for name, raw in row["data"].items() if name != "_id"}} for row in part]
        with_id, without_id = (len(zstd().compress(b"".join(map(bson.encode, each)), 3)) for each in (part, without))
        taken += with_id - without_id
    return taken


def single_inserts(table: Table, seconds: float = 3.0, writers: int = 16) -> None:
    """Durable inserts of one measurement: latency of one client, and throughput of many beside it.

    Each client is a process of its own, since threads of one Python would wait for each other.
    """
    with running_server() as server:
        create(server, "cpu")
        before = server.cpu_seconds()
        alone = _insert_for(server, 1, seconds)
        cpu = server.cpu_seconds() - before
        p50_ms = statistics.median(alone) * 1e3
        table.add(
            "single durable insert, one client, p50",
            f"{p50_ms:.2f} ms",
            f"{len(alone) / seconds:,.0f}/s, server CPU {cpu / len(alone) * 1e6:.0f} us each",
            value=p50_ms,
            goal=0.6,
        )
        before = server.cpu_seconds()
        together = _insert_for(server, writers, seconds)
        cpu = server.cpu_seconds() - before
        per_second = len(together) / seconds
        table.add(
            f"single durable inserts, {writers} client processes",
            f"{per_second:,.0f}/s",
            f"{len(together) / len(alone):.1f} x one client, server CPU {cpu / len(together) * 1e6:.0f} us each",
            value=per_second,
            goal=6000,
            at_least=True,
        )


def _insert_for(server: Server, writers: int, seconds: float) -> list[float]:
    """Latencies in seconds of all inserts that `writers` clients finish in the time."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(writers)
    with ProcessPoolExecutor(writers, context, initializer=_share, initargs=(ready,)) as pool:
        parts = pool.map(_insert_alone, [server.port] * writers, range(writers), [seconds] * writers)
        return [latency for part in parts for latency in part]


_ready: Any = None


def _share(ready: Any) -> None:
    global _ready
    _ready = ready


def _insert_alone(port: int, writer: int, seconds: float) -> list[float]:
    """One client: its messages are encoded beforehand, and it begins together with the others."""
    latencies: list[float] = []
    messages = _single_messages(writer, int(seconds * 4000))
    client = RawClient(port)
    _ready.wait()
    deadline = time.perf_counter() + seconds
    for message in messages:
        started = time.perf_counter()
        if started > deadline:
            break
        client.send(message)
        assert client.receive()["n"] == 1
        latencies.append(time.perf_counter() - started)
    client.close()
    return latencies


def _single_messages(writer: int, count: int) -> list[bytes]:
    """Inserts of one measurement each."""
    messages = []
    for number in range(count):
        document: dict[str, Any] = {
            "_id": ObjectId(),
            "time": bson.DatetimeMS(1_451_606_400_000 + number),
            "tags": {"hostname": f"host_{writer}"},
            "usage_user": number,
        }
        messages.append(insert_message(number + 1, "bench", "cpu", [bson.encode(document)]))
    return messages


def start_up(table: Table, rounds: int = 5) -> None:
    """From exec to ready, and memory of an idle server."""
    ready, resident = [], []
    for _ in range(rounds):
        with running_server() as server:
            ready.append(server.ready_seconds)
            with server.client() as client:
                client.admin.command("ping")
            resident.append(server.resident_bytes())
    seconds, megabytes = statistics.median(ready), statistics.median(resident) / 1e6
    table.add("ready to serve after exec", f"{seconds:.3f} s", f"median of {rounds}", value=seconds, goal=0.5)
    table.add("idle memory", f"{megabytes:.0f} MB", "resident", value=megabytes, goal=80)


def cardinality(table: Table, counts: tuple[int, ...] = (1, 1_000, 100_000)) -> None:
    """Cost of a measurement as the number of series grows, ten measurements of a series in a batch."""
    first = None
    for series in counts:
        batch_series = min(series, 100)
        rounds = max(1, 100_000 // (10 * batch_series))
        with running_server() as server:
            create(server, "cpu")
            client = RawClient(server.port)
            messages = []
            for number in range(rounds):
                raws = []
                for host in range(batch_series):
                    meta = {"hostname": f"host_{(number * batch_series + host) % series}"}
                    for step in range(10):
                        time_ms = 1_451_606_400_000 + (number * 10 + step) * 10
                        raws.append(
                            bson.encode(
                                {"_id": ObjectId(), "time": bson.DatetimeMS(time_ms), "tags": meta, "value": step}
                            )
                        )
                messages.append(insert_message(number + 1, "bench", "cpu", raws))
            before = server.cpu_seconds()
            taken = send_all(client, messages)
            cost = (server.cpu_seconds() - before) / taken
            memory = server.resident_bytes()
            client.close()
        first = first or cost
        table.add(
            f"cardinality {series:,}: server CPU per measurement",
            f"{cost * 1e6:.2f} us",
            f"{cost / first:.2f} x, {memory / 1e6:.0f} MB",
        )
