"""kill -9 at random moments under load: what was acknowledged is there once, and buckets agree with their data."""

import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import BulkWriteError, PyMongoError

from support.server_process import ServerProcess

KILLS = 20
WRITERS = 4
START = datetime(2024, 1, 1, tzinfo=UTC)


class Writer(threading.Thread):
    """Inserts measurements and plain documents until its server dies; remembers what was tried and acknowledged."""

    def __init__(self, uri: str, number: int, round_number: int) -> None:
        super().__init__()
        self.uri = uri
        self.number = number
        self.random = random.Random(f"{round_number}/{number}")
        self.prefix = f"{round_number}/{number}"
        self.tried: set[str] = set()
        self.acknowledged: set[str] = set()
        self.first = threading.Event()

    def run(self) -> None:
        with MongoClient[dict[str, Any]](self.uri, retryWrites=False, serverSelectionTimeoutMS=2000) as client:
            count = 0
            while True:
                ids = [f"{self.prefix}/{count + i}" for i in range(self.random.choice([1, 3, 50]))]
                count += len(ids)
                self.tried.update(ids)
                collection = client["crash"]["measured" if self.random.random() < 0.7 else "plain"]
                try:
                    collection.insert_many([self.document(name) for name in ids], ordered=False)
                except BulkWriteError:
                    raise
                except PyMongoError:
                    return
                self.acknowledged.update(ids)
                self.first.set()

    def document(self, name: str) -> dict[str, Any]:
        return {
            "_id": name,
            "time": START + timedelta(milliseconds=self.random.randrange(7_200_000)),
            "sensor": self.random.choice(["a", "b", {"rack": 1}]),
            "value": self.random.gauss(0, 1),
            "note": self.random.choice(["", "text", None, 5]),
        }


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    with MongoClient(server.uri) as client:
        client["crash"].create_collection("measured", timeseries={"timeField": "time", "metaField": "sensor"})
    tried: set[str] = set()
    acknowledged: set[str] = set()
    moments = random.Random(7)
    for round_number in range(KILLS):
        writers = [Writer(server.uri, number, round_number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            assert writer.first.wait(30), "no write was acknowledged"
        # The moment of the kill is what is drawn here, not something to wait for.
        time.sleep(moments.uniform(0.0, 0.25))
        server.kill()
        for writer in writers:
            writer.join()
            tried |= writer.tried
            acknowledged |= writer.acknowledged
        server.start()
        check(server, acknowledged, tried)
    server.stop()


def check(server: ServerProcess, acknowledged: set[str], tried: set[str]) -> None:
    """What must hold after every restart."""
    with MongoClient(server.uri) as client:
        database = client["crash"]
        stored = Counter(row["_id"] for name in ("measured", "plain") for row in database[name].find({}, {"_id": 1}))
        assert [name for name, times in stored.items() if times > 1] == []
        assert acknowledged - stored.keys() == set()
        assert stored.keys() - tried == set()
        for name in ("measured", "plain"):
            report = database.command("validate", name)
            assert report["valid"], report
            assert report["errors"] == report["warnings"] == [], report
            assert report.get("nNonCompliantDocuments", 0) == 0, report
