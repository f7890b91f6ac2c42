"""Writing to time-series collections: what goes in, what may be changed and removed, and what is refused with which code."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo import DeleteMany, InsertOne, UpdateMany
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError

Document = dict[str, Any]
START = datetime(2024, 3, 1, tzinfo=UTC)


@pytest.fixture
def series(database: Database[Document]) -> Any:
    """Ten sensors, twelve measurements each, one every ten minutes; `{"_id", "t", "m": {"s", "tag": {"a"}}, "x"}`."""
    database.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    database["series"].insert_many(
        [
            {
                "_id": sensor * 100 + step,
                "t": START + timedelta(minutes=10 * step),
                "m": {"s": sensor, "tag": {"a": "b"}},
                "x": step,
            }
            for sensor in range(10)
            for step in range(12)
        ]
    )
    return database["series"]


def bucket_count(series: Any) -> int:
    count: int = series.database["system.buckets.series"].count_documents({})
    return count


def is_valid(series: Any) -> bool:
    return bool(series.database.command("validate", "series")["valid"])


@pytest.mark.parametrize("time", [None, 5, "2024-01-01", {"a": 1}])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_measurement_needs_a_date(series: Any, time: Any, ordered: bool) -> None:
    rows = [{"t": START, "x": 1}, {"t": time}, {"x": 2}, {"t": START, "x": 3}]
    reply = series.database.command({"insert": "series", "documents": rows, "ordered": ordered})
    assert reply["n"] == (1 if ordered else 2)
    assert [(row["index"], row["code"]) for row in reply["writeErrors"]] == ([(1, 2)] if ordered else [(1, 2), (2, 2)])
    assert reply["writeErrors"][0]["errmsg"] == "'t' must be present and contain a valid BSON UTC datetime value"


def test_ids_are_no_key(series: Any) -> None:
    series.insert_one({"_id": 1, "t": START, "m": 1})
    assert series.count_documents({"_id": 1}) == 2
    series.database.command({"insert": "series", "documents": [{"t": START, "x": "none"}]})
    (row,) = series.find({"x": "none"})
    assert isinstance(row["_id"], ObjectId)


def test_sparse_fields_come_back_as_they_went_in(series: Any) -> None:
    rows: list[Document] = [
        {"_id": "a", "t": START, "m": "sparse", "p": 1},
        {"_id": "b", "t": START, "m": "sparse", "q": None},
        {"_id": "c", "t": START, "m": "sparse", "p": [1, {"r": 2}], "s": {}},
        {"_id": "d", "t": START, "m": "sparse"},
    ]
    series.insert_many([dict(row) for row in rows])
    found = {row["_id"]: row for row in series.find({"m": "sparse"})}
    for row in rows:
        assert found[row["_id"]] == {**row, "t": START.replace(tzinfo=None)}


@pytest.mark.parametrize(
    ("change", "after"),
    [
        ({"$set": {"m": 7}}, 7),
        ({"$set": {"m.tag.a": "c"}}, {"s": 3, "tag": {"a": "c"}}),
        ({"$unset": {"m.tag": ""}}, {"s": 3}),
        ({"$rename": {"m.tag.a": "m.tag.c"}}, {"s": 3, "tag": {"c": "b"}}),
        ({"$inc": {"m.s": 40}}, {"s": 43, "tag": {"a": "b"}}),
    ],
)
def test_meta_is_updated_in_whole_buckets(series: Any, change: Document, after: Any) -> None:
    result = series.update_many({"m.s": 3}, change)
    assert (result.matched_count, result.modified_count) == (12, 12)
    assert [row["m"] for row in series.find({"_id": {"$gte": 300, "$lt": 400}})] == [after] * 12
    assert series.count_documents({}) == 120
    assert is_valid(series)


def test_a_new_meta_value_is_that_of_later_measurements(series: Any) -> None:
    series.update_many({"m.s": 4}, {"$set": {"m": {"z": 1, "a": [{"d": 1, "c": 2}]}}})
    assert list(series.find_one({"m.z": 1})["m"]) == ["a", "z"]
    before = bucket_count(series)
    series.insert_one({"_id": 0, "t": START, "m": {"a": [{"c": 2, "d": 1}], "z": 1}})
    assert bucket_count(series) == before


def test_updates_by_a_field_within_meta(series: Any) -> None:
    assert series.update_many({"m.tag.a": "b"}, {"$set": {"m.tag.a": "z"}}).modified_count == 120
    assert series.update_many({"m.tag.a": "b"}, {"$set": {"m.tag.a": "y"}}).modified_count == 0
    assert series.distinct("m.tag.a") == ["z"]
    series.insert_one({"_id": "new", "t": START, "m": {"s": 0, "tag": {"a": "z"}}})
    assert series.count_documents({"m": {"s": 0, "tag": {"a": "z"}}}) == 13


@pytest.mark.parametrize(
    ("filter", "change", "options", "words"),
    [
        ({"m.s": 1}, {"$set": {"m.s": 2}}, {}, "non-multi update"),
        ({"m.s": 1}, {"$set": {"m.s": 2}}, {"multi": True, "upsert": True}, "upsert"),
        ({"x": 1}, {"$set": {"m.s": 2}}, {"multi": True}, "not the metaField"),
        ({"m.s": 1}, {"$set": {"x": 2}}, {"multi": True}, "not the metaField"),
        ({"m.s": 1}, [{"$set": {"m.s": 2}}], {"multi": True}, "pipeline update"),
        ({"m.s": 1}, {"m": 2}, {"multi": True}, ""),
    ],
)
def test_other_updates_are_refused(series: Any, filter: Document, change: Any, options: Document, words: str) -> None:
    before = list(series.find())
    reply = series.database.command({"update": "series", "updates": [{"q": filter, "u": change, **options}]})
    (error,) = reply["writeErrors"]
    assert error["code"] in (72, 9)
    assert words in error["errmsg"]
    assert list(series.find()) == before


def test_a_collection_without_meta_field_takes_no_updates(database: Database[Document]) -> None:
    database.create_collection("series", timeseries={"timeField": "t"})
    with pytest.raises(WriteError) as error:
        database["series"].update_many({}, {"$set": {"m": 1}})
    assert error.value.code == 72


def test_deletes_by_meta_take_whole_buckets(series: Any) -> None:
    before = bucket_count(series)
    assert series.delete_many({"m.s": {"$in": [1, 2]}}).deleted_count == 24
    assert bucket_count(series) == before - 4
    assert series.count_documents({}) == 96


@pytest.mark.parametrize(
    ("filter", "count"),
    [
        ({"x": 3}, 10),
        ({"x": {"$gte": 6}, "m.s": 4}, 6),
        ({"t": {"$lt": START + timedelta(minutes=25)}}, 30),
        ({"$or": [{"x": 0, "m.s": 0}, {"x": 11, "m.s": 9}]}, 2),
        ({"_id": 305}, 1),
        ({}, 120),
        ({"x": 99}, 0),
    ],
)
def test_deletes_of_any_measurements(series: Any, filter: Document, count: int) -> None:
    expected = {row["_id"] for row in series.find()} - {row["_id"] for row in series.find(filter)}
    assert series.delete_many(filter).deleted_count == count
    assert {row["_id"] for row in series.find()} == expected
    assert is_valid(series)
    assert series.count_documents(filter) == 0


def test_the_last_measurement_takes_the_bucket_with_it(series: Any) -> None:
    buckets = bucket_count(series)
    for step in range(12):
        assert series.delete_one({"m.s": 5, "x": step}).deleted_count == 1
    assert bucket_count(series) == buckets - 2
    assert series.delete_one({"m.s": 5}).deleted_count == 0


def test_a_delete_keeps_the_first_time_of_a_bucket(series: Any) -> None:
    assert series.delete_many({"m.s": 0, "x": {"$in": [0, 5]}}).deleted_count == 2
    (bucket, _) = series.database["system.buckets.series"].find({"meta.s": 0}).sort("control.min.t", 1)
    assert bucket["control"]["min"]["t"] == datetime(2024, 3, 1)
    assert bucket["control"]["min"]["x"] == 1
    assert bucket["control"]["max"]["x"] == 4
    assert bucket["control"]["count"] == 4


def test_inserts_after_deletes_and_updates(series: Any) -> None:
    series.delete_many({"x": {"$gte": 2}})
    series.update_many({"m.s": 1}, {"$set": {"m.s": 11}})
    series.insert_many(
        [
            {"_id": f"{sensor}", "t": START + timedelta(minutes=30), "m": {"s": sensor, "tag": {"a": "b"}}}
            for sensor in (0, 1, 11)
        ]
    )
    assert series.count_documents({"m.s": 11}) == 3
    assert series.count_documents({"m.s": 1}) == 1
    assert series.count_documents({}) == 23
    assert is_valid(series)


def test_find_and_modify_removes_and_does_not_sort(series: Any) -> None:
    removed = series.find_one_and_delete({"m.s": 2, "x": 4}, projection={"_id": 1})
    assert removed == {"_id": 204}
    assert series.find_one_and_delete({"m.s": 2, "x": 4}) is None
    for command in (
        {"remove": True, "sort": {"t": 1}},
        {"update": {"$set": {"m.s": 1}}},
        {"update": {"$set": {"m.s": 1}}, "upsert": True},
    ):
        with pytest.raises(OperationFailure) as error:
            series.database.command({"findAndModify": "series", "query": {"m.s": 3}, **command})
        assert error.value.code == 72
    assert series.count_documents({}) == 119


def test_deletes_with_a_hint(series: Any) -> None:
    delete = {"q": {"m.s": 1}, "limit": 0}
    assert series.database.command({"delete": "series", "deletes": [{**delete, "hint": {"m": 1, "t": 1}}]})["n"] == 12
    with pytest.raises(OperationFailure) as error:
        series.delete_many({"m.s": 2}, hint={"nothing": 1})
    assert error.value.code == 2


def test_bulk_writes(series: Any) -> None:
    result = series.bulk_write(
        [
            InsertOne({"t": START, "m": {"s": 1}, "x": 1}),
            InsertOne({"t": START, "m": {"s": 1}, "x": 2}),
            UpdateMany({"m.s": 2}, {"$set": {"m.s": 22}}),
            DeleteMany({"x": {"$gt": 10}}),
        ]
    )
    assert (result.inserted_count, result.modified_count, result.deleted_count) == (2, 12, 10)
    assert series.count_documents({}) == 112


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"renameCollection": "{db}.series", "to": "{db}.other"}, 166),
        ({"renameCollection": "{db}.system.buckets.series", "to": "{db}.other"}, 20),
        ({"renameCollection": "{db}.plain", "to": "{db}.system.buckets.other"}, 20),
        ({"convertToCapped": "series", "size": 100000}, 166),
        ({"cloneCollectionAsCapped": "series", "toCollection": "other", "size": 100000}, 166),
        ({"collMod": "series", "validator": {"a": 1}}, 72),
        ({"collMod": "series", "timeseries": {"granularity": "days"}}, 2),
        ({"aggregate": "series", "pipeline": [{"$changeStream": {}}], "cursor": {}}, 40573),
        ({"aggregate": "plain", "pipeline": [{"$merge": "series"}], "cursor": {}}, 166),
        ({"aggregate": "plain", "pipeline": [{"$out": "system.buckets.series"}], "cursor": {}}, 17385),
        ({"create": "capped", "timeseries": {"timeField": "t"}, "capped": True, "size": 4096}, 72),
    ],
)
def test_what_cannot_be_done_to_a_time_series_collection(series: Any, command: Document, code: int) -> None:
    database = series.database
    database.create_collection("plain")
    database["plain"].insert_one({"t": START})
    name = next(iter(command))
    filled = {
        key: value.format(db=database.name) if isinstance(value, str) else value for key, value in command.items()
    }
    target = database.client.admin if name == "renameCollection" else database
    with pytest.raises(OperationFailure) as error:
        target.command(filled)
    assert error.value.code == code
    assert series.count_documents({}) == 120


def test_out_replaces_the_content_and_keeps_options_and_indexes(series: Any) -> None:
    database = series.database
    series.create_index("x")
    database.command("collMod", "series", expireAfterSeconds=10**9)
    list(series.aggregate([{"$match": {"m.s": 1}}, {"$out": {"db": database.name, "coll": "series"}}]))
    assert series.count_documents({}) == 12
    assert {index["name"] for index in series.list_indexes()} == {"m_1_t_1", "x_1"}
    (row,) = database.list_collections(filter={"name": "series"})
    assert row["options"]["expireAfterSeconds"] == 10**9
    list(
        series.aggregate(
            [{"$out": {"db": database.name, "coll": "made", "timeseries": {"timeField": "t", "metaField": "m"}}}]
        )
    )
    assert database["made"].count_documents({}) == 12
    assert database["system.buckets.made"].count_documents({}) == bucket_count(series)
    list(series.aggregate([{"$out": "plain"}]))
    assert "system.buckets.plain" not in database.list_collection_names()
    list(series.aggregate([{"$merge": "merged"}]))
    assert database["merged"].count_documents({}) == 12


@pytest.mark.parametrize(
    ("timeseries", "code"),
    [
        ({"timeField": "other", "metaField": "m"}, 7406103),
        ({"timeField": "t"}, 7406103),
        ({"timeField": "t", "metaField": "m", "granularity": "hours"}, 7406103),
        ({"timeField": "t", "unknown": 1}, 40415),
    ],
)
def test_out_with_other_options_is_refused(series: Any, timeseries: Document, code: int) -> None:
    stage = {"$out": {"db": series.database.name, "coll": "series", "timeseries": timeseries}}
    with pytest.raises(OperationFailure) as error:
        series.aggregate([stage])
    assert error.value.code == code
    assert series.count_documents({}) == 120


def test_out_to_something_else_is_refused(series: Any) -> None:
    database = series.database
    database.create_collection("plain")
    database.create_collection("view", viewOn="series", pipeline=[])
    option = {"timeseries": {"timeField": "t", "metaField": "m"}}
    for target, code in (("plain", 7268700), ("view", 7268700)):
        with pytest.raises(OperationFailure) as error:
            series.aggregate([{"$out": {"db": database.name, "coll": target, **option}}])
        assert error.value.code == code
    database["plain"].insert_one({"x": 1})
    with pytest.raises(OperationFailure) as error:
        database["plain"].aggregate([{"$out": {"db": database.name, "coll": "series"}}])
    assert error.value.code == 2
    assert series.count_documents({}) == 120
