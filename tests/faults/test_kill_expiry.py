"""kill -9 in the middle of a pass of the TTL monitor: nothing else is lost, and the next pass goes on."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

from support.server_process import ServerProcess

OLD = datetime(2020, 1, 1, tzinfo=UTC)
DOCUMENTS = 30_000
BUCKETS = 2_000
KEPT = 500

Document = dict[str, Any]


def fill(database: Database[Document]) -> None:
    """Documents and measurements that have expired, and beside them some that have not."""
    database.events.create_index("at", expireAfterSeconds=3600)
    database.events.create_index("number", unique=True)
    for start in range(0, DOCUMENTS, 5000):
        database.events.insert_many(
            [{"at": OLD, "number": number} for number in range(start, start + 5000)], ordered=False
        )
    fresh = datetime(2037, 1, 1, tzinfo=UTC)
    database.events.insert_many(
        [{"_id": f"kept {number}", "at": fresh, "number": -number - 1} for number in range(KEPT)]
    )
    database.create_collection("series", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=3600)
    database.series.insert_many(
        [{"_id": ObjectId(), "t": OLD, "m": number} for number in range(BUCKETS)], ordered=False
    )
    database.series.insert_many([{"_id": number, "t": fresh, "m": number} for number in range(KEPT)], ordered=False)


def kept(database: Database[Document]) -> tuple[int, int]:
    return (
        database.events.count_documents({"number": {"$lt": 0}}),
        database.series.count_documents({"t": {"$gt": datetime(2030, 1, 1, tzinfo=UTC)}}),
    )


@pytest.mark.timeout(300)
def test_a_pass_that_was_cut_short_is_resumed(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--test-clock")
    server.start()
    with MongoClient[Document](server.uri) as client:
        fill(client.lab)
        total = client.lab.events.estimated_document_count()

        def run_pass() -> None:
            with MongoClient[Document](server.uri) as other:
                try:
                    other.admin.command("ttlPass")
                except PyMongoError:
                    return

        passing = threading.Thread(target=run_pass)
        passing.start()
        # In the middle: some documents have gone, and most are there.
        while client.lab.events.estimated_document_count() == total:
            pass
        server.kill()
        passing.join()
    server.start()
    with MongoClient[Document](server.uri) as client:
        left = client.lab.events.estimated_document_count()
        assert KEPT < left < total
        assert kept(client.lab) == (KEPT, KEPT)
        for name in ("events", "series"):
            report = client.lab.command("validate", name, full=True)
            assert report["valid"], report
        reply = client.admin.command("ttlPass")
        assert reply["deletedDocuments"] == left - KEPT
        assert kept(client.lab) == (KEPT, KEPT)
        assert client.lab.events.estimated_document_count() == KEPT
        assert client.lab.series.count_documents({}) == KEPT
        # The bucket catalog of the new process takes measurements of any time.
        client.lab.series.insert_one({"t": OLD, "m": 1})
        assert client.lab.series.count_documents({}) == KEPT + 1
    server.stop()
