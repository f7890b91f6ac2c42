"""Which names and options time-series collections can have, and what stands in their way."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

Document = dict[str, Any]
START = datetime(2024, 3, 1, tzinfo=UTC)
SERIES: Document = {"timeField": "t", "metaField": "m"}


def code_of(database: Database[Document], command: Document) -> int:
    """The error of a command; 0 where it succeeds."""
    try:
        database.command(command)
    except OperationFailure as error:
        return error.code or -1
    return 0


@pytest.mark.parametrize(
    ("timeseries", "code"),
    [
        (5, 14),
        ({}, 40414),
        ({"timeField": 5}, 14),
        ({"timeField": "t", "metaField": 5}, 14),
        ({"timeField": "t", "unknown": 1}, 40415),
        ({"timeField": "a\0b"}, 2),
        ({"timeField": "t", "granularity": "days"}, 2),
        ({"timeField": "t", "bucketMaxSpanSeconds": 0}, 2),
        ({"timeField": "t", "bucketMaxSpanSeconds": 31536001, "bucketRoundingSeconds": 31536001}, 2),
        ({"timeField": "a.b"}, 72),
        ({"timeField": "t", "metaField": "a.b"}, 72),
        ({"timeField": "t", "metaField": "_id"}, 72),
        ({"timeField": "t", "metaField": "t"}, 72),
        ({"timeField": "t", "granularity": "hours", "bucketMaxSpanSeconds": 3600}, 72),
        ({"timeField": "t", "granularity": "hours", "bucketRoundingSeconds": 3600}, 72),
        ({"timeField": "t", "bucketMaxSpanSeconds": 60}, 72),
        ({"timeField": "t", "bucketMaxSpanSeconds": 60, "bucketRoundingSeconds": 61}, 72),
        ({"timeField": "t", "granularity": "minutes", "bucketMaxSpanSeconds": 86400}, 0),
    ],
)
def test_options_of_the_time_series(database: Database[Document], timeseries: Any, code: int) -> None:
    assert code_of(database, {"create": "series", "timeseries": timeseries}) == code
    assert ("series" in database.list_collection_names()) == (code == 0)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"capped": True, "size": 4096}, 72),
        ({"capped": False}, 0),
        ({"size": 4096}, 72),
        ({"idIndex": {"key": {"_id": 1}, "name": "_id_"}}, 72),
        ({"validator": {"a": 1}}, 72),
        ({"validationLevel": "off"}, 72),
        ({"viewOn": "other"}, 72),
        ({"clusteredIndex": True}, 72),
        ({"clusteredIndex": False}, 72),
        ({"expireAfterSeconds": "x"}, 14),
        ({"expireAfterSeconds": -1}, 72),
        ({"expireAfterSeconds": 2**62}, 72),
        ({"expireAfterSeconds": 3600, "collation": {"locale": "simple"}}, 0),
        ({"storageEngine": {}}, 0),
    ],
)
def test_options_beside_the_time_series(database: Database[Document], options: Document, code: int) -> None:
    assert code_of(database, {"create": "series", "timeseries": SERIES, **options}) == code


def test_the_two_names_of_a_time_series_collection(database: Database[Document]) -> None:
    create = {"create": "series", "timeseries": SERIES}
    buckets = {**create, "create": "system.buckets.series"}
    assert code_of(database, {"create": "system.buckets.series"}) == 20
    assert code_of(database, create) == 0
    assert code_of(database, create) == 0
    assert code_of(database, buckets) == 0
    assert code_of(database, {"create": "series"}) == 48
    assert code_of(database, {**buckets, "timeseries": {"timeField": "other"}}) == 48
    database.drop_collection("series")
    assert code_of(database, buckets) == 0
    assert code_of(database, {**create, "timeseries": {"timeField": "other"}}) == 48
    assert code_of(database, create) == 0
    database["series"].insert_one({"t": START, "m": 1})
    assert database["series"].count_documents({}) == 1


def test_names_that_are_taken(database: Database[Document]) -> None:
    database.create_collection("plain")
    database.create_collection("view", viewOn="plain", pipeline=[])
    for name in ("plain", "view"):
        assert code_of(database, {"create": name, "timeseries": SERIES}) == 48


def test_what_a_dump_restores(database: Database[Document]) -> None:
    database.create_collection("series", timeseries=SERIES, expireAfterSeconds=10**8)
    database["series"].insert_many([{"t": START, "m": number % 2, "x": number} for number in range(10)])
    (row,) = database.list_collections(filter={"name": "system.buckets.series"})
    dumped = list(database["system.buckets.series"].find())
    database.drop_collection("series")
    database.command({"create": "system.buckets.series", **row["options"]})
    database.command({"create": "series", "timeseries": row["options"]["timeseries"], "expireAfterSeconds": 10**8})
    database["system.buckets.series"].insert_many(dumped)
    assert sorted(found["x"] for found in database["series"].find()) == list(range(10))


@pytest.mark.parametrize("name", ["admin", "config", "local"])
def test_in_databases_of_the_server(client: MongoClient[Document], name: str) -> None:
    database = client[name]
    database.drop_collection("own_series")
    database.create_collection("own_series", timeseries=SERIES)
    database["own_series"].insert_one({"t": START, "m": 1})
    assert database["own_series"].count_documents({}) == 1
    database.drop_collection("own_series")


@pytest.mark.parametrize("time_field", ["time with blanks", "été", "0", "_id"])
def test_odd_names_of_fields(database: Database[Document], time_field: str) -> None:
    database.create_collection("series", timeseries={"timeField": time_field, "metaField": "m\u00e9ta"})
    series = database["series"]
    series.insert_many([{time_field: START, "m\u00e9ta": {"a": 1}, "x": number} for number in range(3)])
    assert series.count_documents({"m\u00e9ta.a": 1}) == 3
    assert [row["x"] for row in series.find().sort("x", -1)] == [2, 1, 0]


def test_an_empty_name_of_the_meta_field(database: Database[Document]) -> None:
    database.create_collection("series", timeseries={"timeField": "t", "metaField": ""})
    database["series"].insert_one({"t": START, "": 5, "x": 1})
    assert database["series"].find_one({}, {"_id": 0}) == {"t": START.replace(tzinfo=None), "": 5, "x": 1}


def test_the_uuid_is_that_of_the_buckets(database: Database[Document]) -> None:
    database.create_collection("series", timeseries=SERIES)
    rows = {row["name"]: row["info"] for row in database.list_collections()}
    assert "uuid" not in rows["series"]
    uuid = rows["system.buckets.series"]["uuid"]
    assert list(database["system.buckets.series"].aggregate([], comment="none")) == []
    with pytest.raises(OperationFailure) as error:
        database.command(
            {"aggregate": "system.buckets.series", "pipeline": [], "cursor": {}, "collectionUUID": Binary(bytes(16), 4)}
        )
    assert error.value.code == 361
    database.command(
        {
            "aggregate": "system.buckets.series",
            "pipeline": [],
            "cursor": {},
            "collectionUUID": Binary.from_uuid(uuid) if not isinstance(uuid, Binary) else uuid,
        }
    )


def test_lists_of_collections(database: Database[Document]) -> None:
    for name in ("one", "two"):
        database.create_collection(name, timeseries={"timeField": "t"})
    assert sorted(row["name"] for row in database.list_collections(filter={"type": "timeseries"})) == ["one", "two"]
    assert len(list(database.list_collections())) == 5
    assert [row["name"] for row in database.list_collections(filter={"name": {"$regex": "^system.buckets"}})] == [
        "system.buckets.one", "system.buckets.two",
    ]  # fmt: skip
    assert list(database["one"].list_indexes()) == []


def test_commands_on_the_buckets(database: Database[Document]) -> None:
    database.create_collection("series", timeseries=SERIES)
    database["series"].insert_one({"t": START, "m": 1, "x": 1})
    raw = database["system.buckets.series"]
    raw.create_index({"control.min.x": 1})
    assert [index["name"] for index in database["series"].list_indexes()] == ["m_1_t_1"]
    assert database.command("collStats", "system.buckets.series")["count"] == 1
    assert raw.count_documents({"control.min.x": 1}) == 1
    assert raw.update_many({}, {"$set": {"meta": 2}}).modified_count == 1
    assert database["series"].distinct("m") == [2]
    assert raw.find_one({}, {"_id": 0, "control.count": 1}) == {"control": {"count": 1}}
    for name in ("series", "system.buckets.series"):
        assert database.command("compact", name)["ok"] == 1
        assert database.command("validate", name)["nrecords"] == 1


def test_texts_and_near_points_are_refused_where_no_index_can_be(database: Database[Document]) -> None:
    database.create_collection("series", timeseries=SERIES)
    database["series"].insert_one({"t": START, "m": 1})
    with pytest.raises(OperationFailure):
        list(database["series"].find({"$text": {"$search": "x"}}))
    with pytest.raises(OperationFailure):
        list(database["series"].find({"x": {"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}}}))
