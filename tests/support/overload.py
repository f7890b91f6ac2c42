"""Many clients at one time, each writing as fast as it is answered, in processes of their own."""

import multiprocessing
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from queue import Queue
from typing import Any

from .wire_client import WireClient

BATCH = 10
DATABASE = "overload"
SHED = 462
_PROCESSES = 4
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Outcome:
    """What one client was told."""

    client: int
    acknowledged: dict[str, int] = field(default_factory=lambda: {"plain": 0, "series": 0})
    """Batches by collection."""
    shed: int = 0
    """Requests that were to be tried again."""
    errors: list[str] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)


def documents(client: int, collection: str, number: int) -> list[dict[str, Any]]:
    """The batch of a client with this number."""
    first = number * BATCH
    if collection == "plain":
        return [{"_id": f"{client}-{first + i}", "client": client, "text": "x" * 200} for i in range(BATCH)]
    return [
        {"t": _START + timedelta(seconds=first + i), "client": client, "n": first + i, "value": i / 7}
        for i in range(BATCH)
    ]


def run_clients(port: int, clients: int, seconds: float) -> list[Outcome]:
    """Let them write for a while; returns what each was told."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(_PROCESSES) as pool:
        shares = [list(range(share, clients, _PROCESSES)) for share in range(_PROCESSES)]
        results = pool.starmap(_run_share, [(port, share, seconds) for share in shares])
    return [outcome for share in results for outcome in share]


def _run_share(port: int, clients: list[int], seconds: float) -> list[Outcome]:
    outcomes: Queue[Outcome] = Queue()
    threads = [threading.Thread(target=lambda k=client: outcomes.put(_run(port, k, seconds))) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcomes.get() for _ in clients]


def _run(port: int, client: int, seconds: float) -> Outcome:
    outcome = Outcome(client)
    until = time.monotonic() + seconds
    with WireClient(port, DATABASE) as wire:
        turn = 0
        while time.monotonic() < until:
            turn += 1
            collection = "plain" if turn % 2 else "series"
            number = outcome.acknowledged[collection]
            reply = _timed(outcome, wire, {"insert": collection, "documents": documents(client, collection, number)})
            if reply["ok"] and "writeErrors" not in reply:
                outcome.acknowledged[collection] += 1
            elif reply.get("code") == SHED:
                outcome.shed += 1
                time.sleep(0.05)
            else:
                outcome.errors.append(str(reply))
                return outcome
            if turn % 5 == 0:
                _timed(outcome, wire, {"find": "plain", "filter": {"_id": f"{client}-0"}})
    return outcome


def _timed(outcome: Outcome, wire: WireClient, request: dict[str, Any]) -> dict[str, Any]:
    begun = time.perf_counter()
    reply = wire.ask(request)
    outcome.milliseconds.append((time.perf_counter() - begun) * 1000)
    return reply
