"""Encoded messages into a server, over several connections at once, timed without the time it takes to make them."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .harness import RawClient, Server, insert_message
from .tsbs import Scale, encoded

SERIES = {"timeField": "time", "metaField": "tags", "granularity": "seconds"}

_MESSAGES_AT_ONCE = 1000


@dataclass(slots=True)
class Load:
    """What taking measurements in has cost: how many, seconds by the clock, CPU seconds of the server."""

    measurements: int
    seconds: float
    cpu: float


def create(server: Server, name: str, *indexes: dict[str, int]) -> None:
    """The time-series collection `bench.<name>`, with indexes beside its own."""
    with server.client() as client:
        collection = client["bench"].create_collection(name, timeseries=dict(SERIES))
        for index in indexes:
            collection.create_index(list(index.items()))


def load(
    server: Server, name: str, scale: Scale, values: NDArray[np.uint8] | None = None, connections: int = 4
) -> Load:
    """Everything of a scale into a collection.

    A thousand messages are made, then sent while the clock runs, and so on, so that data of any size fit into memory.
    """
    clients = [RawClient(server.port) for _ in range(connections)]
    made = _messages(name, scale, values)
    total = Load(0, 0.0, 0.0)
    with ThreadPoolExecutor(connections) as pool:
        while messages := list(islice(made, _MESSAGES_AT_ONCE)):
            cpu, started = server.cpu_seconds(), time.perf_counter()
            parts = [messages[number::connections] for number in range(connections)]
            total.measurements += sum(pool.map(send_all, clients, parts))
            total.seconds += time.perf_counter() - started
            total.cpu += server.cpu_seconds() - cpu
    for client in clients:
        client.close()
    if total.measurements != scale.measurements:
        raise RuntimeError(f"{total.measurements:,} measurements were taken, not {scale.measurements:,}")
    return total


def send_timed(
    payloads: Iterator[tuple[bytes, int]], senders: Sequence[Callable[[bytes], object]], cpu: Callable[[], float]
) -> Load:
    """Payloads (each with its number of measurements) by several senders at once; each waits for its answer."""
    total = Load(0, 0.0, 0.0)

    def send(sender: Callable[[bytes], object], part: list[tuple[bytes, int]]) -> int:
        for payload, _ in part:
            sender(payload)
        return sum(count for _, count in part)

    with ThreadPoolExecutor(len(senders)) as pool:
        while made := list(islice(payloads, _MESSAGES_AT_ONCE)):
            before, started = cpu(), time.perf_counter()
            parts = [made[number :: len(senders)] for number in range(len(senders))]
            total.measurements += sum(pool.map(send, senders, parts))
            total.seconds += time.perf_counter() - started
            total.cpu += cpu() - before
    return total


def _messages(name: str, scale: Scale, values: NDArray[np.uint8] | None) -> Iterator[bytes]:
    for number, raws in enumerate(encoded(scale, values)):
        yield insert_message(number + 1, "bench", name, raws)


def send_all(client: RawClient, messages: list[bytes], window: int = 4) -> int:
    """Keep up to `window` messages under way; returns how many documents were taken."""
    taken = 0
    for position, message in enumerate(messages):
        client.send(message)
        if position >= window:
            taken += _taken(client.receive())
    for _ in range(min(window, len(messages))):
        taken += _taken(client.receive())
    return taken


def _taken(reply: dict[str, Any]) -> int:
    if reply["ok"] != 1 or "writeErrors" in reply:
        raise RuntimeError(f"an insert was refused: {reply}")
    return int(reply["n"])
