"""kill -9 at random moments: what was acknowledged is there once, and every collection is whole.

Twenty kills for every change; `make test-nightly` (or `pytest -m nightly`) has more, with a report for docs/durability.md.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from support.crash_changes import Definer
from support.crash_load import Changer, Deleter, Document, Expirer, Indexer, Inserter, Ledger, Worker
from support.server_process import ServerProcess, server_environment

KILLS = 20
KILLS_NIGHTLY = int(os.environ.get("BUCKETD_TEST_KILLS", "120"))
CLEARED_AT = 20_000
"""Documents at which everything is dropped, so that a check stays short."""
DURING_START = 0.15
"""Share of kills after which the server is killed once more while it starts."""


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    run_kills(tmp_path, KILLS, seed=7)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_nothing_is_lost_in_a_long_night(tmp_path: Path) -> None:
    run_kills(tmp_path, KILLS_NIGHTLY, seed=int(time.time()))


def run_kills(folder: Path, kills: int, seed: int) -> None:
    print(f"\nseed {seed}")
    moments = random.Random(seed)
    ledger = Ledger()
    server = ServerProcess(folder, "--test-clock")
    try:
        kill_often(server, ledger, kills, moments)
    finally:
        server.kill()
    report = checked_offline(server.dbpath)
    assert report["valid"], report
    print(ledger, f"; pages: {report['pages']}")


def kill_often(server: ServerProcess, ledger: Ledger, kills: int, moments: random.Random) -> None:
    server.start()
    workers: list[Worker] = [
        *(Inserter(f"inserter{number}", ledger) for number in range(3)),
        Changer("changer", ledger),
        Deleter("deleter", ledger),
        Indexer("indexer", ledger),
        Expirer("expirer", ledger),
        Definer("definer", ledger),
    ]
    with MongoClient[Document](server.uri) as client:
        clear(client["crash"], workers)
    while ledger.kills < kills:
        for worker in workers:
            worker.begin(server.uri)
        for worker in workers:
            assert worker.first.wait(60), f"{worker.name}: nothing was acknowledged"
        # The moment of the kill is what is drawn here, not something to wait for.
        time.sleep(moments.uniform(0.0, 0.4))
        server.kill()
        ledger.kills += 1
        for worker in workers:
            worker.end()
        if moments.random() < DURING_START:
            server.start_and_kill(moments.uniform(0.05, 0.8))
            ledger.kills += 1
        server.start()
        with MongoClient[Document](server.uri) as client:
            database = client["crash"]
            for worker in workers:
                worker.check(database)
            look_at_all(database, ledger)
            assert ledger.clean(), (ledger.lost[:5], ledger.doubled[:5], ledger.strange[:5])
            if database["plain"].estimated_document_count() * 3 > CLEARED_AT:
                clear(database, workers)
    assert server.stop() == 0


def clear(database: Database[Document], workers: list[Worker]) -> None:
    database.client.drop_database(database)
    for worker in workers:
        worker.prepare(database)


def look_at_all(database: Database[Document], ledger: Ledger) -> None:
    """Every collection is whole, and tells the same count in every way."""
    for row in database.list_collections(filter={"type": {"$ne": "view"}}):
        name = row["name"]
        if name.startswith("system.buckets."):
            continue
        told = database.command("validate", name)
        if not told["valid"] or told["errors"] or told["warnings"]:
            ledger.strange.append(f"{name}: {told['errors']} {told['warnings']}")
        found = sum(1 for _ in database[name].find({}, {"_id": 1}))
        counted = database[name].count_documents({})
        if found != counted:
            ledger.strange.append(f"{name}: {found} found, {counted} counted")
        if row["type"] == "collection" and database[name].estimated_document_count() != found:
            ledger.strange.append(f"{name}: {found} found, and another count kept")


def checked_offline(dbpath: Path) -> Document:
    """What `bucketd check` says."""
    ended = subprocess.run(
        [sys.executable, "-m", "bucketd.server", "check", "--dbpath", str(dbpath), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=server_environment(),
    )
    found: Document = json.loads(ended.stdout)
    assert (ended.returncode == 0) == found["valid"], ended
    return found
