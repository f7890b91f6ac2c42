"""kill -9 while buckets are merged: every measurement is there once, and what is left is merged after the restart."""

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from support.server_process import ServerProcess

START = datetime(2024, 1, 1, tzinfo=UTC)
SERIES = 40
STEPS = 30
Document = dict[str, Any]


def fill(database: Database[Document]) -> set[str]:
    """A field that changes its type with every step: each measurement gets a bucket of its own."""
    database.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    for step in range(STEPS):
        value: Any = step if step % 2 else str(step)
        time_of = START + timedelta(seconds=step)
        database.series.insert_many(
            [{"_id": f"{host}-{step}", "t": time_of, "m": host, "v": value} for host in range(SERIES)], ordered=False
        )
    return {f"{host}-{step}" for host in range(SERIES) for step in range(STEPS)}


@pytest.mark.timeout(300)
def test_merges_that_are_cut_short_lose_nothing(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    rng = random.Random(5)
    with MongoClient[Document](server.uri) as client:
        expected = fill(client.lab)
        counts = [client.lab["system.buckets.series"].count_documents({})]
    assert counts == [SERIES * STEPS]

    def compact() -> None:
        with MongoClient[Document](server.uri) as other:
            try:
                other.lab.command("compact", "series")
            except PyMongoError:
                # The server was killed meanwhile.
                return

    for number in range(3):
        with MongoClient[Document](server.uri) as client:
            # The bucket catalog begins with the first measurement.
            client.lab.series.insert_one({"_id": f"more {number}", "t": START, "m": "more"})
            expected.add(f"more {number}")
            asker = threading.Thread(target=compact)
            asker.start()
            wanted = rng.randrange(50, 400)
            until = time.monotonic() + 5
            while time.monotonic() < until:
                if client.lab.command("collStats", "series")["timeseries"]["numBucketsMerged"] >= wanted:
                    break
            server.kill()
        asker.join()
        server.start()
        with MongoClient[Document](server.uri) as client:
            found = [row["_id"] for row in client.lab.series.find({}, {"_id": 1})]
            assert len(found) == len(set(found))
            assert set(found) == expected
            assert client.lab.command("validate", "series", full=True)["valid"]
            assert client.lab.command("validate", "system.buckets.series", full=True)["valid"]
            counts.append(client.lab["system.buckets.series"].count_documents({}))
    assert counts[-1] < counts[0], "something was merged"
    server.stop()
