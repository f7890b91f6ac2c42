"""convertToCapped, cloneCollectionAsCapped, compact, reIndex, validate, dbHash, filemd5 through a driver."""

from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

Document = dict[str, Any]


def code_of(database: Database[Document], command: Document) -> int | None:
    with pytest.raises(OperationFailure) as caught:
        database.command(command)
    return caught.value.code


def test_a_capped_copy_keeps_the_newest_that_fit(database: Database[Document]) -> None:
    database["c"].insert_many([{"_id": n, "x": "y" * 100} for n in range(20)])
    database["c"].create_index("x")
    before = database["c"].find_one({"_id": 19})
    database.command("convertToCapped", "c", size=500)
    held = list(database["c"].find())
    assert held[-1] == before
    assert [row["_id"] for row in held] == list(range(20 - len(held), 20))
    assert 0 < len(held) < 5
    (row,) = database.command("listCollections", filter={"name": "c"})["cursor"]["firstBatch"]
    assert (row["options"]["capped"], row["options"]["size"]) == (True, 500)
    assert [index["name"] for index in database["c"].list_indexes()] == ["_id_"]


def test_a_clone_leaves_the_source_alone(database: Database[Document]) -> None:
    database["c"].insert_many([{"_id": 2}, {"_id": 1}])
    database.command("cloneCollectionAsCapped", "c", toCollection="d", size=4096)
    assert [row["_id"] for row in database["d"].find()] == [2, 1]
    assert database["c"].count_documents({}) == 2
    assert code_of(database, {"cloneCollectionAsCapped": "c", "toCollection": "d", "size": 4096}) == 48


@pytest.mark.parametrize(
    ("size", "code"), [(0, 72), (True, 72), ("4096", 72), (0.9, 72), (1 << 51, 2), (float("inf"), 2), (None, 72)]
)
def test_sizes_of_capped_collections(database: Database[Document], size: Any, code: int) -> None:
    database["c"].insert_one({})
    assert code_of(database, {"convertToCapped": "c", "size": size}) == code


def test_views_and_missing_collections_have_no_capped_copy(database: Database[Document]) -> None:
    assert code_of(database, {"convertToCapped": "none", "size": 100}) == 26
    database.create_collection("v", viewOn="c")
    assert code_of(database, {"convertToCapped": "v", "size": 100}) == 166
    assert code_of(database, {"cloneCollectionAsCapped": "v", "toCollection": "w", "size": 100}) == 166


def test_compact_tells_what_it_freed(database: Database[Document]) -> None:
    database["c"].insert_one({})
    assert database.command("compact", "c")["bytesFreed"] == 0
    assert database.command("compact", "c", dryRun=True)["estimatedBytesFreed"] == 0
    assert code_of(database, {"compact": "none"}) == 26
    assert code_of(database, {"compact": "c", "freeSpaceTargetMB": 0}) == 2


def test_an_index_made_anew_still_leads_to_its_documents(database: Database[Document]) -> None:
    database["c"].insert_many([{"a": n % 3} for n in range(9)])
    database["c"].create_index("a")
    reply = database.command("reIndex", "c")
    assert (reply["nIndexesWas"], reply["nIndexes"]) == (2, 2)
    assert database["c"].count_documents({"a": 1}, hint="a_1") == 3
    told = database.command("validate", "c", repair=True)
    assert (told["valid"], told["repaired"], told["repairMode"]) == (True, False, "FixErrors")
    assert told["indexDetails"]["a_1"]["spec"]["key"] == {"a": 1}


def test_sums_of_data_follow_the_data(database: Database[Document]) -> None:
    def sums() -> Document:
        return dict(database.command("dbHash")["collections"])

    database["c"].insert_many([{"_id": 2}, {"_id": 1}])
    database["d"].insert_many([{"_id": 1}, {"_id": 2}])
    first = sums()
    assert first["c"] == first["d"]
    database["c"].insert_one({"_id": 3})
    assert sums()["c"] != first["c"]
    database["c"].delete_one({"_id": 3})
    assert sums() == first
    assert list(database.command("dbHash", collections=["d"])["collections"]) == ["d"]


def test_the_sum_of_a_file(database: Database[Document]) -> None:
    chunks = database["fs.chunks"]
    chunks.insert_many([{"files_id": 1, "n": 1, "data": b"def"}, {"files_id": 1, "n": 0, "data": b"abc"}])
    reply = database.command("filemd5", 1, root="fs")
    assert (reply["numChunks"], reply["md5"]) == (2, "e80b5017098950fc58aad83c8c14978e")
    chunks.insert_one({"files_id": 1, "n": 7, "data": b""})
    assert code_of(database, {"filemd5": 1, "root": "fs"}) == 10040


def test_indexes_outside_the_stable_api(client: MongoClient[Document], database: Database[Document]) -> None:
    database["c"].create_index("a", sparse=True, name="sparse_one")
    command = {"validateDBMetadata": 1, "db": database.name, "apiParameters": {"version": "1", "strict": True}}
    (row,) = client.admin.command(command)["apiVersionErrors"]
    assert (row["ns"], row["code"]) == (f"{database.name}.c", 323)
    command["apiParameters"] = {"version": "1", "strict": False}
    assert client.admin.command(command)["apiVersionErrors"] == []


def test_what_stands_in_the_way_of_unique(database: Database[Document]) -> None:
    database["c"].insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 1}, {"_id": 3, "a": 2}])
    database["c"].create_index("a")
    database.command("collMod", "c", index={"name": "a_1", "prepareUnique": True})
    for dry_run in (True, False):
        with pytest.raises(OperationFailure) as caught:
            database.command("collMod", "c", index={"name": "a_1", "unique": True}, dryRun=dry_run)
        assert caught.value.code == 359
        assert (caught.value.details or {})["violations"] == [{"ids": [1, 2]}]
    database["c"].delete_one({"_id": 2})
    assert "unique_new" not in database.command("collMod", "c", index={"name": "a_1", "unique": True}, dryRun=True)
    assert database.command("collMod", "c", index={"name": "a_1", "unique": True})["unique_new"] is True


def test_databases_differ_by_more_than_case(client: MongoClient[Document], database: Database[Document]) -> None:
    database["c"].insert_one({})
    with pytest.raises(OperationFailure) as caught:
        client[database.name.upper()]["c"].insert_one({})
    assert caught.value.code == 13297


def test_the_order_of_storage_helps_only_who_asks_in_it(database: Database[Document]) -> None:
    rows = [{"_id": "apple"}, {"_id": "Banana"}, {"_id": "cherry"}]
    plain = database.create_collection("plain", clusteredIndex={"key": {"_id": 1}, "unique": True})
    plain.insert_many([*rows, {"_id": "Apple"}])
    english = {"locale": "en", "strength": 2}
    assert {row["_id"] for row in plain.find({"_id": "apple"}).collation(english)} == {"apple", "Apple"}
    collated = database.create_collection(
        "collated", clusteredIndex={"key": {"_id": 1}, "unique": True}, collation=english
    )
    collated.insert_many(rows)
    assert [row["_id"] for row in collated.find({"_id": {"$gte": "b"}})] == ["Banana", "cherry"]
    assert [row["_id"] for row in collated.find().sort("_id", -1)] == ["cherry", "Banana", "apple"]
    in_bytes = collated.find({"_id": {"$gte": "b"}}).collation({"locale": "simple"})
    assert [row["_id"] for row in in_bytes] == ["cherry"]
