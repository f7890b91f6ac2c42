"""Time-series collections: how they are made, which bucket a measurement goes to, and what is counted."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import DatetimeMS, ObjectId
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import CollectionInvalid, OperationFailure, WriteError

from support.server_process import ServerProcess

Document = dict[str, Any]
START = datetime(2024, 3, 1, 20, 10, 14, 134000, tzinfo=UTC)


def create(database: Database[Document], **options: Any) -> Any:
    timeseries = {"timeField": "t", "metaField": "m", **options.pop("timeseries", {})}
    database.create_collection("series", timeseries=timeseries, **options)
    return database["series"]


def buckets(database: Database[Document]) -> list[Document]:
    return list(database["system.buckets.series"].find())


def spans(database: Database[Document]) -> list[tuple[datetime, int]]:
    return [(bucket["control"]["min"]["t"], bucket["control"]["count"]) for bucket in buckets(database)]


def statistics(database: Database[Document]) -> Document:
    found: Document = database.command("collStats", "series")["timeseries"]
    return found


def insert(collection: Any, *times: datetime, **fields: Any) -> None:
    collection.insert_many([{"t": time, "m": "a", **fields} for time in times])


@pytest.mark.parametrize(
    ("granularity", "first", "same", "other"),
    [
        ("seconds", datetime(2024, 3, 1, 20, 10), timedelta(seconds=3599), timedelta(hours=1)),
        ("minutes", datetime(2024, 3, 1, 20), timedelta(hours=23, minutes=59), timedelta(hours=24)),
        ("hours", datetime(2024, 3, 1), timedelta(days=29, hours=23), timedelta(days=30)),
    ],
)
def test_a_bucket_begins_at_a_rounded_time_and_ends_a_span_later(
    database: Database[Document], granularity: str, first: datetime, same: timedelta, other: timedelta
) -> None:
    series = create(database, timeseries={"granularity": granularity})
    insert(series, START, first + same, first + other)
    assert spans(database) == [(first, 2), (first + other, 1)]


def test_own_spans(database: Database[Document]) -> None:
    series = create(database, timeseries={"bucketMaxSpanSeconds": 100, "bucketRoundingSeconds": 100})
    insert(series, datetime(2024, 1, 1, 0, 0, 50), datetime(2024, 1, 1, 0, 1, 39), datetime(2024, 1, 1, 0, 1, 40))
    assert spans(database) == [(datetime(2024, 1, 1), 2), (datetime(2024, 1, 1, 0, 1, 40), 1)]
    (row,) = database.list_collections(filter={"name": "series"})
    assert row["options"]["timeseries"] == {
        "timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 100, "bucketRoundingSeconds": 100,
    }  # fmt: skip


def test_what_create_makes(database: Database[Document]) -> None:
    create(database)
    rows = {row["name"]: row for row in database.list_collections()}
    assert set(rows) == {"series", "system.buckets.series", "system.views"}
    assert rows["series"]["type"] == "timeseries"
    assert rows["system.buckets.series"]["options"]["clusteredIndex"] is True
    assert rows["system.buckets.series"]["options"]["validator"]["$jsonSchema"]["required"] == [
        "_id",
        "control",
        "data",
    ]
    (view,) = database["system.views"].find({"_id": f"{database.name}.series"})
    assert view["viewOn"] == "system.buckets.series"
    assert view["pipeline"] == [
        {"$_internalUnpackBucket": {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}}
    ]
    assert [(index["name"], dict(index["key"])) for index in database["series"].list_indexes()] == [
        ("m_1_t_1", {"m": 1, "t": 1})
    ]


def test_creating_it_again(database: Database[Document]) -> None:
    create(database)
    database.command({"create": "series", "timeseries": {"timeField": "t", "metaField": "m"}})
    with pytest.raises(OperationFailure) as error:
        database.command({"create": "series", "timeseries": {"timeField": "t", "metaField": "other"}})
    assert error.value.code == 48
    with pytest.raises(CollectionInvalid):
        database.create_collection("series")


def test_the_shape_of_a_bucket(database: Database[Document]) -> None:
    series = create(database)
    series.insert_many(
        [{"_id": 1, "t": START, "m": {"b": 1, "a": 2}, "x": 5, "y": "u"}, {"_id": 2, "t": START, "m": {"a": 2, "b": 1}}]
    )
    (bucket,) = buckets(database)
    assert list(bucket) == ["_id", "control", "meta", "data"]
    assert list(bucket["meta"]) == ["a", "b"]
    assert bucket["_id"].generation_time == datetime(2024, 3, 1, 20, 10, tzinfo=UTC)
    control = bucket["control"]
    assert (control["version"], control["count"]) == (2, 2)
    assert control["min"] == {"_id": 1, "t": datetime(2024, 3, 1, 20, 10), "x": 5, "y": "u"}
    assert control["max"] == {"_id": 2, "t": START.replace(tzinfo=None), "x": 5, "y": "u"}
    assert {column.subtype for column in bucket["data"].values()} == {7}


@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        ([{"x": 1, "y": 2}, {"x": 2, "y": 1}], {"x": 1, "y": 1}, {"x": 2, "y": 2}),
        ([[1, 2], [2, 1]], [1, 1], [2, 2]),
        ([[{"x": 3, "y": 4}], [{"x": 4, "y": 3}, 3, 1]], [{"x": 3, "y": 3}, 3, 1], [{"x": 4, "y": 4}, 3, 1]),
        ([{}, {"x": 1}], {"x": 1}, {"x": 1}),
        ([3, 1.5], 1.5, 3),
        (["b", "a"], "a", "b"),
    ],
)
def test_control_is_merged_part_by_part(
    database: Database[Document], values: list[Any], least: Any, greatest: Any
) -> None:
    create(database).insert_many([{"t": START, "m": 1, "v": value} for value in values])
    (bucket,) = buckets(database)
    assert bucket["control"]["min"]["v"] == least
    assert bucket["control"]["max"]["v"] == greatest


def test_which_metas_share_a_bucket(database: Database[Document]) -> None:
    series = create(database)
    series.insert_many(
        [{"t": START, "m": meta} for meta in (1, 1.0, None, [1, {"b": 1, "a": 2}], [1, {"a": 2, "b": 1}])]
    )
    series.insert_one({"t": START})
    assert sorted(count for _, count in spans(database)) == [1, 1, 1, 1, 2]
    assert sum("m" not in row for row in series.find()) == 1
    assert series.count_documents({"m": None}) == 2
    assert series.count_documents({"m": {"$exists": True, "$eq": None}}) == 1


def test_every_reason_to_close_is_counted(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--setParameter", "timeseriesBucketMinCount=1")
    with MongoClient[Document](server.uri) as client:
        database = client["counters"]
        series = create(database)
        assert statistics(database)["bucketCount"] == 0
        assert "avgBucketSize" not in statistics(database)
        insert(series, START, START, START)
        found = statistics(database)
        assert (found["numBucketInserts"], found["numBucketUpdates"], found["numCommits"]) == (1, 0, 1)
        assert (found["numMeasurementsCommitted"], found["avgNumMeasurementsPerCommit"]) == (3, 3)
        assert (found["numBucketsOpenedDueToMetadata"], found["numBucketQueriesFailed"]) == (1, 1)
        insert(series, START)
        assert statistics(database)["numBucketUpdates"] == 1
        insert(series, START + timedelta(hours=2))
        assert statistics(database)["numBucketsClosedDueToTimeForward"] == 1
        insert(series, START)
        found = statistics(database)
        assert found["numBucketsArchivedDueToTimeBackward"] == 1
        assert (found["numBucketsReopened"], found["numBucketsQueried"]) == (1, 1)
        insert(series, START + timedelta(hours=2))
        found = statistics(database)
        # The archived one is known by its id.
        assert (found["numBucketsReopened"], found["numBucketsFetched"], found["numBucketInserts"]) == (2, 1, 2)
        series.insert_many([{"t": START, "m": "many"} for _ in range(1100)])
        assert statistics(database)["numBucketsClosedDueToCount"] == 1
        series.insert_many([{"t": START, "m": "typed", "x": value} for value in (1, "text", "more")])
        assert statistics(database)["numBucketsClosedDueToSchemaChange"] == 1
        series.insert_many([{"t": START, "m": "large", "x": "x" * 124_000} for _ in range(2)])
        assert statistics(database)["numBucketsClosedDueToSize"] == 1
        series.insert_one({"t": START - timedelta(minutes=0, seconds=14), "m": "a"})
        assert statistics(database)["numCompressedBucketsConvertedToUnsorted"] == 1
        status = client.admin.command("serverStatus")["bucketCatalog"]
        assert status["numBuckets"] == status["numOpenBuckets"] + status["numArchivedBuckets"]
        assert status["numMeasurementsCommitted"] == statistics(database)["numMeasurementsCommitted"]
        assert "timeseries" not in database.command("collStats", "other")


def test_large_measurements_may_share_a_bucket(database: Database[Document]) -> None:
    series = create(database)
    series.insert_many([{"t": START, "m": "a", "x": "x" * 60_000} for _ in range(4)])
    assert [count for _, count in spans(database)] == [4]
    assert statistics(database)["numBucketsKeptOpenDueToLargeMeasurements"] == 1


def test_a_measurement_that_no_bucket_can_hold(database: Database[Document]) -> None:
    series = create(database)
    with pytest.raises(WriteError) as error:
        series.insert_one({"t": START, "m": "a", "x": "x" * 6_000_000})
    assert error.value.code == 10334
    assert series.count_documents({}) == 0


def test_late_measurements(database: Database[Document]) -> None:
    series = create(database)
    insert(series, START, START + timedelta(minutes=5))
    insert(series, START + timedelta(minutes=1))
    (bucket,) = buckets(database)
    assert bucket["control"]["version"] == 3
    assert [row["t"] for row in series.find().sort("t")] == [
        (START + timedelta(minutes=minutes)).replace(tzinfo=None) for minutes in (0, 1, 5)
    ]
    assert database.command("validate", "series")["valid"]


def test_times_before_1970_and_after_2038(database: Database[Document]) -> None:
    series = create(database)
    times = [DatetimeMS(-5_000_000), DatetimeMS(0), DatetimeMS(2**31 * 1000), DatetimeMS(4_200_000_000_000)]
    series.insert_many([{"_id": number, "t": time} for number, time in enumerate(times)])
    assert [row["_id"] for row in series.find({"t": {"$lt": DatetimeMS(0)}})] == [0]
    assert [row["_id"] for row in series.find({"t": {"$gte": DatetimeMS(2**31 * 1000)}}).sort("t")] == [2, 3]
    assert [row["_id"] for row in series.find().sort("t", -1)] == [3, 2, 1, 0]
    assert database.command("validate", "series")["valid"]


def test_buckets_that_are_inserted_as_they_are(database: Database[Document]) -> None:
    series = create(database)
    insert(series, START, START + timedelta(minutes=1), x=1)
    raw = database["system.buckets.series"]
    (bucket,) = buckets(database)
    bucket["_id"] = ObjectId(bucket["_id"].binary[:4] + b"restored")
    raw.insert_one(bucket)
    assert series.count_documents({"x": 1}) == 4
    for broken in ({"_id": ObjectId(), "x": 1}, {**bucket, "_id": 5}, {**bucket, "_id": ObjectId(), "more": 1}):
        with pytest.raises(WriteError) as error:
            raw.insert_one(broken)
        assert error.value.code == 121
    mixed = {**bucket, "_id": ObjectId(bucket["_id"].binary[:4] + b"of types")}
    mixed["control"] = {**bucket["control"], "max": {**bucket["control"]["max"], "x": "text"}}
    with pytest.raises(WriteError) as error:
        raw.insert_one(mixed)
    assert error.value.code == 408
    raw.delete_many({})
    insert(series, START)
    assert series.count_documents({}) == 1


def test_a_bucket_of_version_1_is_read_and_goes_on_as_version_2(database: Database[Document]) -> None:
    series = create(database)
    plain = {
        "_id": ObjectId(int(datetime(2024, 3, 1, 20, 10, tzinfo=UTC).timestamp()).to_bytes(4, "big") + b"12345678"),
        "control": {
            "version": 1,
            "min": {"_id": 1, "t": datetime(2024, 3, 1, 20, 10), "x": 3},
            "max": {"_id": 2, "t": datetime(2024, 3, 1, 20, 12), "x": 3},
        },
        "meta": "a",
        "data": {
            "t": {"0": datetime(2024, 3, 1, 20, 12), "1": datetime(2024, 3, 1, 20, 11)},
            "_id": {"0": 1, "1": 2},
            "x": {"1": 3},
        },
    }
    database["system.buckets.series"].insert_one(plain)
    assert [(row["_id"], row.get("x")) for row in series.find()] == [(1, None), (2, 3)]
    assert series.count_documents({}) == 2
    series.insert_one({"_id": 3, "t": datetime(2024, 3, 1, 20, 30), "m": "a"})
    (bucket,) = buckets(database)
    assert (bucket["control"]["version"], bucket["control"]["count"]) == (2, 3)
    assert [row["_id"] for row in series.find()] == [2, 1, 3]


def test_version_1_on_request(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--setParameter", "timeseriesBucketVersion=1")
    with MongoClient[Document](server.uri) as client:
        series = create(client["plain"])
        insert(series, START, START, x=1)
        (bucket,) = buckets(client["plain"])
        assert bucket["control"]["version"] == 1
        assert bucket["data"]["x"] == {"0": 1, "1": 1}
        assert series.count_documents({"x": 1}) == 2


def test_closed_buckets_get_no_more_measurements(database: Database[Document]) -> None:
    series = create(database)
    insert(series, START)
    database["system.buckets.series"].update_one({}, {"$set": {"control.closed": True}})
    insert(series, START)
    assert sorted(bucket["control"].get("closed", False) for bucket in buckets(database)) == [False, True]
    assert series.delete_many({"m": "a"}).deleted_count == 1
    assert series.count_documents({}) == 1


def test_coarser_and_not_finer(database: Database[Document]) -> None:
    series = create(database)
    insert(series, START)
    database.command("collMod", "series", timeseries={"granularity": "minutes"})
    insert(series, START + timedelta(hours=5))
    assert series.count_documents({"t": {"$gte": START + timedelta(hours=4)}}) == 1
    assert series.count_documents({"t": START}) == 1
    for finer in ({"granularity": "seconds"}, {"bucketMaxSpanSeconds": 60, "bucketRoundingSeconds": 60}):
        with pytest.raises(OperationFailure) as error:
            database.command("collMod", "series", timeseries=finer)
        assert error.value.code == 72
    (row,) = database.list_collections(filter={"name": "series"})
    assert row["options"]["timeseries"]["bucketMaxSpanSeconds"] == 86400


def test_least_and_greatest_by_the_collation_of_the_collection(database: Database[Document]) -> None:
    create(database, collation={"locale": "en", "strength": 2}).insert_many(
        [{"t": START, "m": 1, "s": text} for text in ("B", "a", "C")]
    )
    (bucket,) = buckets(database)
    assert (bucket["control"]["min"]["s"], bucket["control"]["max"]["s"]) == ("a", "C")
    assert database["series"].count_documents({"s": "A"}) == 1


def test_memory_of_open_buckets_is_bounded(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--setParameter", "timeseriesIdleBucketExpiryMemoryUsageThreshold=20000")
    with MongoClient[Document](server.uri) as client:
        database = client["bounded"]
        series = create(database)
        for number in range(40):
            series.insert_many([{"t": START, "m": number * 10 + step} for step in range(10)])
        found = client.admin.command("serverStatus")["bucketCatalog"]
        assert found["numBucketsArchivedDueToMemoryThreshold"] > 0
        assert found["numBucketsClosedDueToMemoryThreshold"] > 0
        assert found["numBuckets"] < 400
        assert series.count_documents({}) == 400


@pytest.mark.parametrize("target", ["series", "system.buckets.series"])
def test_drop_takes_both(database: Database[Document], target: str) -> None:
    insert(create(database), START)
    database.drop_collection(target)
    assert [name for name in database.list_collection_names() if "series" in name] == []
    database.drop_collection("series")
    create(database)
    assert database["series"].count_documents({}) == 0


def test_many_writers_at_one_series(client: MongoClient[Document], database: Database[Document]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    series = create(database)

    def write(writer: int) -> None:
        for batch in range(12):
            series.insert_many(
                [
                    {
                        "t": START + timedelta(seconds=batch * 20 + step),
                        "m": step % 3,
                        "w": writer,
                        "n": batch * 20 + step,
                    }
                    for step in range(20)
                ]
            )

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert series.count_documents({}) == 6 * 240
    rows = list(series.aggregate([{"$group": {"_id": "$w", "n": {"$sum": "$n"}}}]))
    assert {row["n"] for row in rows} == {sum(range(240))}
    assert database.command("validate", "series")["valid"]
    found = statistics(database)
    assert found["numMeasurementsCommitted"] == 6 * 240
