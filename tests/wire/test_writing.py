"""insert, update, delete, findAndModify, bulkWrite: what a driver gets to write."""

from typing import Any

import pytest
from bson import Int64, ObjectId, Regex, Timestamp
from pymongo import InsertOne, ReturnDocument, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure

Document = dict[str, Any]


def test_a_document_without_id_gets_one_in_front(database: Database[Document]) -> None:
    database.command({"insert": "c", "documents": [{"a": 1}, {"b": 2, "_id": 5}]})
    first, second = database.c.find()
    assert list(first) == ["_id", "a"]
    assert isinstance(first["_id"], ObjectId)
    assert list(second) == ["_id", "b"]


def test_unordered_inserts_go_on_behind_a_failure(database: Database[Document]) -> None:
    documents = [{"_id": 1}, {"_id": 1}, {"_id": 2}, {"_id": [1]}, {"_id": 3}]
    reply = database.command({"insert": "c", "documents": documents, "ordered": False})
    assert reply["n"] == 3
    assert [(row["index"], row["code"]) for row in reply["writeErrors"]] == [(1, 11000), (3, 53)]
    assert reply["writeErrors"][0]["keyPattern"] == {"_id": 1}
    assert reply["writeErrors"][0]["keyValue"] == {"_id": 1}


def test_ordered_inserts_stop_at_the_first_failure(database: Database[Document]) -> None:
    reply = database.command({"insert": "c", "documents": [{"_id": 1}, {"_id": 1}, {"_id": [2]}, {"_id": 3}]})
    assert reply["n"] == 1
    assert [row["index"] for row in reply["writeErrors"]] == [1]


def test_many_duplicates_among_many_documents(database: Database[Document]) -> None:
    database.c.insert_many({"_id": number} for number in range(0, 2000, 2))
    with pytest.raises(BulkWriteError) as error:
        database.c.insert_many(({"_id": number} for number in range(2000)), ordered=False)
    assert error.value.details["nInserted"] == 1000
    assert [row["index"] for row in error.value.details["writeErrors"]] == list(range(0, 2000, 2))


@pytest.mark.parametrize(("identity", "code"), [([1], 53), (Regex("a"), 53), ({"$a": 1}, 52)])
def test_what_cannot_be_an_id(database: Database[Document], identity: Any, code: int) -> None:
    reply = database.command({"insert": "c", "documents": [{"_id": identity}]})
    assert reply["n"] == 0
    assert reply["writeErrors"][0]["code"] == code


def test_empty_timestamps_are_filled(database: Database[Document]) -> None:
    database.c.insert_one({"_id": Timestamp(0, 0), "a": Timestamp(0, 0), "b": {"c": Timestamp(0, 0)}})
    found = database.c.find_one()
    assert found is not None
    assert found["_id"] == Timestamp(0, 0)
    assert found["a"].time > 0
    assert found["b"] == {"c": Timestamp(0, 0)}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"insert": "c", "documents": []}, 16),
        ({"insert": "c"}, 40414),
        ({"insert": "c", "documents": [{}], "no": 1}, 40415),
        ({"insert": "c", "documents": [{}], "ordered": "x"}, 14),
        ({"insert": "a$b", "documents": [{}]}, 73),
        ({"delete": "c", "deletes": [{"q": {}}]}, 40414),
        ({"delete": "c", "deletes": [{"q": {}, "limit": 2}]}, 9),
        ({"update": "c", "updates": [{"q": {}}]}, 40414),
        ({"update": "c", "updates": [{"q": {}, "u": 1}]}, 9),
        ({"findAndModify": "c"}, 9),
        ({"findAndModify": "c", "remove": True, "update": {}}, 9),
        ({"findAndModify": "c", "remove": True, "new": True}, 9),
    ],
)
def test_bad_requests_are_told_by_code(database: Database[Document], command: Document, code: int) -> None:
    with pytest.raises(OperationFailure) as error:
        database.command(command)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ({"q": {}, "u": {"a": 1}, "multi": True}, 9),
        ({"q": {}, "u": {"$no": 1}}, 9),
        ({"q": {}, "u": {"$set": {"_id": 9}}}, 66),
        ({"q": {}, "u": {"$set": {"a": 1}, "$unset": {"a": 1}}}, 40),
        ({"q": {}, "u": {"$inc": {"s": 1}}}, 14),
        ({"q": {"$no": 1}, "u": {"$set": {"a": 1}}}, 2),
        ({"q": {}, "u": {"$set": {"a": 1}}, "hint": "none"}, 2),
        ({"q": {}, "u": {"$set": {"a": 1}}, "c": {"x": 1}}, 51198),
        ({"q": {}, "u": {"$set": {"a": 1}}, "sort": {"a": 1}, "multi": True}, 9),
    ],
)
def test_bad_statements_fail_by_themselves(database: Database[Document], statement: Document, code: int) -> None:
    database.c.insert_one({"_id": 1, "s": "text"})
    good = {"q": {"_id": 1}, "u": {"$set": {"good": True}}}
    reply = database.command({"update": "c", "updates": [statement, good], "ordered": False})
    assert [(row["index"], row["code"]) for row in reply["writeErrors"]] == [(0, code)]
    assert reply["nModified"] == 1


def test_updates_count_what_matched_and_what_changed(database: Database[Document]) -> None:
    database.c.insert_many({"_id": number, "even": number % 2 == 0} for number in range(10))
    done = database.c.update_many({"even": True}, {"$set": {"touched": True}})
    assert (done.matched_count, done.modified_count) == (5, 5)
    again = database.c.update_many({"even": True}, {"$set": {"touched": True}})
    assert (again.matched_count, again.modified_count) == (5, 0)


def test_a_multi_update_meets_each_document_once(database: Database[Document]) -> None:
    database.c.create_index([("a", 1)])
    database.c.insert_many({"a": number} for number in range(2000))
    done = database.c.update_many({"a": {"$gte": 0}}, {"$inc": {"a": 5000}})
    assert done.modified_count == 2000
    assert database.c.count_documents({"a": {"$gte": 10_000}}) == 0


def test_a_failing_multi_update_keeps_what_it_did(database: Database[Document]) -> None:
    database.c.create_index([("a", 1)], unique=True)
    database.c.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 2}, {"_id": 3, "a": 9}])
    with pytest.raises(OperationFailure) as error:
        database.c.update_many({}, {"$set": {"a": 7}})
    assert error.value.code == 11000
    assert [row["a"] for row in database.c.find().sort("_id")] == [7, 2, 9]


def test_upserts(database: Database[Document]) -> None:
    reply = database.command(
        {"update": "c", "updates": [{"q": {"_id": 1, "a": {"$gt": 5}}, "u": {"$set": {"b": 2}}, "upsert": True}]}
    )
    assert reply["upserted"] == [{"index": 0, "_id": 1}]
    assert (reply["n"], reply["nModified"]) == (1, 0)
    assert database.c.find_one() == {"_id": 1, "b": 2}


def test_updates_by_pipeline_and_by_sort(database: Database[Document]) -> None:
    database.c.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 5}])
    database.c.update_one({"_id": 1}, [{"$set": {"b": {"$add": ["$a", 1]}}}])
    assert database.c.find_one({"_id": 1}) == {"_id": 1, "a": 1, "b": 2}
    database.c.update_one({}, {"$set": {"top": True}}, sort={"a": -1})
    assert database.c.find_one({"top": True})["_id"] == 2


def test_deletes(database: Database[Document]) -> None:
    database.c.insert_many({"a": number % 2} for number in range(10))
    assert database.c.delete_one({"a": 1}).deleted_count == 1
    assert database.c.delete_many({"a": 1}).deleted_count == 4
    assert database.c.delete_many({}).deleted_count == 5
    assert database.missing.delete_many({}).deleted_count == 0


def test_find_and_modify(database: Database[Document]) -> None:
    database.c.insert_many([{"_id": 1, "a": 1}, {"_id": 2, "a": 2}])
    before = database.c.find_one_and_update({}, {"$inc": {"a": 10}}, sort=[("a", -1)])
    assert before == {"_id": 2, "a": 2}
    after = database.c.find_one_and_update({"_id": 2}, {"$inc": {"a": 1}}, return_document=ReturnDocument.AFTER)
    assert after == {"_id": 2, "a": 13}
    assert database.c.find_one_and_delete({"a": 1}, projection={"_id": 0}) == {"a": 1}
    assert database.c.find_one_and_delete({"a": 1}) is None
    reply = database.command(
        {"findAndModify": "c", "query": {"_id": 9}, "update": {"$set": {"a": 1}}, "upsert": True, "new": True}
    )
    assert reply["lastErrorObject"] == {"n": 1, "updatedExisting": False, "upserted": 9}
    assert reply["value"] == {"_id": 9, "a": 1}


def test_a_validator_refuses(database: Database[Document]) -> None:
    database.create_collection("c", validator={"a": {"$type": "int"}})
    reply = database.command({"insert": "c", "documents": [{"_id": 1, "a": "x"}, {"_id": 2, "a": 1}], "ordered": False})
    assert reply["n"] == 1
    assert reply["writeErrors"][0]["code"] == 121
    assert reply["writeErrors"][0]["errInfo"]["failingDocumentId"] == 1
    with pytest.raises(OperationFailure) as error:
        database.c.update_one({"_id": 2}, {"$set": {"a": "x"}})
    assert error.value.code == 121
    database.command({"insert": "c", "documents": [{"_id": 3, "a": "x"}], "bypassDocumentValidation": True})
    assert database.c.count_documents({}) == 2


def test_bulk_write_over_two_collections(database: Database[Document]) -> None:
    reply = database.client.admin.command(
        {
            "bulkWrite": 1,
            "ordered": False,
            "nsInfo": [{"ns": f"{database.name}.a"}, {"ns": f"{database.name}.b"}],
            "ops": [
                {"insert": 0, "document": {"_id": 1}},
                {"insert": 0, "document": {"_id": 1}},
                {"insert": 1, "document": {"_id": 2, "x": 1}},
                {"update": 1, "filter": {"_id": 2}, "updateMods": {"$inc": {"x": 1}}},
                {"delete": 0, "filter": {"_id": 1}},
            ],
        }
    )
    rows = reply["cursor"]["firstBatch"]
    assert [(row["idx"], row["ok"]) for row in rows] == [(0, 1.0), (1, 0.0), (2, 1.0), (3, 1.0), (4, 1.0)]
    assert rows[1]["code"] == 11000
    totals = ("nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted")
    assert [reply[name] for name in totals] == [1, 2, 1, 1, 0, 1]
    assert database.b.find_one() == {"_id": 2, "x": 2}


def test_the_drivers_bulk_write(database: Database[Document]) -> None:
    done = database.c.bulk_write([InsertOne({"_id": 1}), UpdateOne({"_id": 1}, {"$set": {"a": Int64(5)}})])
    assert (done.inserted_count, done.modified_count) == (1, 1)


def test_concurrent_increments_lose_nothing(database: Database[Document]) -> None:
    import threading

    database.c.insert_one({"_id": 1, "n": 0, "tag": "x"})

    def work() -> None:
        for _ in range(40):
            database.c.update_one({"tag": "x"}, {"$inc": {"n": 1}})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = database.c.find_one()
    assert found is not None
    assert found["n"] == 160


def test_the_order_of_one_id_is_not_looked_at(database: Database[Document]) -> None:
    database.c.insert_many([{"_id": 1}, {"_id": 2}])
    asked = {"findAndModify": "c", "sort": {"key": "value"}, "update": {"$set": {"x": 1}}}
    assert database.command({**asked, "query": {"_id": 1}})["value"] == {"_id": 1}
    for query in ({"_id": {"$gt": 0}}, {"x": 1}, {"_id": 1, "x": 1}):
        with pytest.raises(OperationFailure) as caught:
            database.command({**asked, "query": query})
        assert caught.value.code == 15974
