"""Partly filled buckets become one by `compact`, unless somebody reads them, and the measurements stay what they were."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

START = datetime(2024, 1, 1, tzinfo=UTC)
Document = dict[str, Any]


@pytest.fixture
def buckets(database: Database[Document]) -> Database[Document]:
    """A collection whose field changes its type with every measurement: each has a bucket of its own."""
    database.create_collection("cpu", timeseries={"timeField": "time", "metaField": "host"})
    for number in range(20):
        value: Any = number if number % 2 else str(number)
        time = START + timedelta(seconds=number)
        database["cpu"].insert_one({"_id": number, "time": time, "host": "x", "value": value})
    assert database["system.buckets.cpu"].count_documents({}) == 20
    return database


def measurements(database: Database[Document]) -> list[Document]:
    return list(database["cpu"].find().sort("_id", 1))


def compacted(database: Database[Document]) -> int:
    database.command("compact", "cpu")
    return database["system.buckets.cpu"].count_documents({})


def test_buckets_of_equal_types_become_one(buckets: Database[Document]) -> None:
    before = measurements(buckets)
    assert buckets.command("bucketHealth", "cpu")["mergedBuckets"] == 0
    # One of each type, and the one that measurements still go to.
    assert compacted(buckets) == 3
    assert measurements(buckets) == before
    assert list(
        buckets["cpu"].find({"host": "x", "time": {"$lt": START + timedelta(seconds=5)}}, {"_id": 1}).sort("time", 1)
    ) == [{"_id": number} for number in range(5)]
    assert buckets["cpu"].count_documents({"value": {"$type": "string"}}) == 10
    health = buckets.command("bucketHealth", "cpu")
    assert (health["mergedBuckets"], health["measurements"], health["damagedBuckets"]) == (17, 20, 0)
    (stats,) = buckets["cpu"].aggregate([{"$collStats": {"storageStats": {}}}])
    assert stats["storageStats"]["timeseries"]["numBucketsMerged"] == 17
    assert buckets.command("validate", "cpu", full=True)["valid"]
    # What was merged can be filled, changed and removed like any bucket.
    buckets["cpu"].insert_one({"_id": 20, "time": START, "host": "x", "value": 20})
    assert buckets["cpu"].delete_many({"value": {"$type": "string"}}).deleted_count == 10
    assert [row["_id"] for row in measurements(buckets)] == [*range(1, 20, 2), 20]


def test_nothing_is_merged_where_that_is_switched_off(buckets: Database[Document]) -> None:
    admin = buckets.client.admin
    try:
        assert admin.command("setParameter", 1, timeseriesMergeBuckets=False)["was"] is True
        assert compacted(buckets) == 20
    finally:
        admin.command("setParameter", 1, timeseriesMergeBuckets=True)
    # Packs are taken apart for it.
    before = measurements(buckets)
    assert compacted(buckets) == 3
    assert measurements(buckets) == before
    assert buckets.command("validate", "cpu", full=True)["valid"]


@pytest.mark.parametrize("stages", [[], [{"$match": {"host": "x"}}], [{"$sort": {"time": -1}}]])
def test_an_open_cursor_sees_what_was_there(buckets: Database[Document], stages: list[Document]) -> None:
    cursor = buckets["cpu"].aggregate(stages, batchSize=2)
    seen = [next(cursor)["_id"] for _ in range(3)]
    packs = {row["_id"] for row in buckets["system.buckets.cpu"].find({}, {"_id": 1})}
    assert compacted(buckets) == 20
    assert {row["_id"] for row in buckets["system.buckets.cpu"].find({}, {"_id": 1})} == packs
    seen += [row["_id"] for row in cursor]
    assert sorted(seen) == list(range(20))
