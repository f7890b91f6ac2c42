"""`bucketHealth`: what it counts, and what it advises."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

START = datetime(2024, 1, 1, tzinfo=UTC)
Document = dict[str, Any]


def fill(database: Database[Document], rows: list[Document], **options: Any) -> Document:
    series = {"timeField": "time", "metaField": "host", **options}
    database.create_collection("cpu", timeseries=series)
    database["cpu"].insert_many(rows, ordered=True)
    return database.command("bucketHealth", "cpu")


def codes(report: Document) -> set[str]:
    return {row["code"] for row in report["advice"]}


def test_an_empty_collection_has_nothing_to_tell(database: Database[Document]) -> None:
    database.create_collection("cpu", timeseries={"timeField": "time"})
    report = database.command("bucketHealth", "cpu")
    assert (report["buckets"], report["advice"]) == (0, [])


def test_what_is_counted(database: Database[Document]) -> None:
    rows = [
        {"time": START + timedelta(seconds=10 * step), "host": host, "a": step, "b": step % 7}
        for host in ("x", "y")
        for step in range(720)
    ]
    report = fill(database, rows)
    assert (report["buckets"], report["series"], report["measurements"], report["values"]) == (4, 2, 1440, 2880)
    assert report["measurementsPerBucket"] == {"mean": 360.0, "least": 360, "median": 360, "most": 360}
    assert report["fillRatio"] == 0.36
    assert 0.99 < report["spanRatio"] < 1
    assert report["bucketsPerSeries"] == 2
    assert report["documentBytesPerValue"] > 0.5
    assert report["packedBuckets"] == 0
    stored = report["storedBytesPerValue"]
    sizes = database.command("collStats", "cpu")
    assert sizes["storageSize"] == sizes["size"]
    database.command("compact", "cpu")
    sizes = database.command("collStats", "cpu")
    assert sizes["storageSize"] < sizes["size"]
    assert database.command("dbStats")["storageSize"] < database.command("dbStats")["dataSize"]
    report = database.command("bucketHealth", "cpu")
    assert report["packedBuckets"] == 4
    assert report["storedBytesPerValue"] < stored
    assert database["cpu"].count_documents({"a": {"$gte": 700}}) == 40
    assert database.command("bucketHealth", "system.buckets.cpu")["buckets"] == 4


def test_a_meta_field_of_many_values(database: Database[Document]) -> None:
    rows = [{"time": START + timedelta(seconds=step), "host": step, "a": 1} for step in range(40)]
    assert "meta" in codes(fill(database, rows))


def test_a_granularity_too_fine(database: Database[Document]) -> None:
    rows = [
        {"time": START + timedelta(minutes=20 * step), "host": host, "a": step}
        for host in range(4)
        for step in range(60)
    ]
    report = fill(database, rows)
    assert "granularity" in codes(report)
    assert "'minutes'" in next(row["text"] for row in report["advice"] if row["code"] == "granularity")


def test_a_granularity_too_coarse(database: Database[Document]) -> None:
    rows = [{"time": START + timedelta(seconds=step), "host": 1, "a": 1} for step in range(33_000)]
    report = fill(database, rows, granularity="hours")
    assert "granularity" in codes(report)
    assert "'minutes'" in next(row["text"] for row in report["advice"] if row["code"] == "granularity")


def test_measurements_that_come_late_and_buckets_that_are_loose(database: Database[Document]) -> None:
    database.create_collection("cpu", timeseries={"timeField": "time", "metaField": "host"})
    for hour in range(40):
        for minute in (10, 30, 20):
            database["cpu"].insert_one({"time": START + timedelta(hours=hour, minutes=minute), "host": 1, "a": 1})
    report = database.command("bucketHealth", "cpu")
    assert report["unsortedBuckets"] == 40
    assert {"order", "pack"} <= codes(report)


def test_other_collections_have_no_buckets(database: Database[Document]) -> None:
    with pytest.raises(OperationFailure) as failed:
        database.command("bucketHealth", "nothing")
    assert failed.value.code == 26
    database.create_collection("plain")
    with pytest.raises(OperationFailure) as failed:
        database.command("bucketHealth", "plain")
    assert failed.value.code == 72
