"""The TTL monitor as an operator sees it: its clock, its operations, its log, and reads that do not wait for it."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from bson import ObjectId
from bson.codec_options import CodecOptions
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from support.server_process import ServerProcess

Document = dict[str, Any]
Client = MongoClient[Document]
START = datetime(2024, 2, 3, 4, tzinfo=UTC)
AWARE: CodecOptions[Document] = CodecOptions(tz_aware=True)


def ask(client: Client, command: str | Document, value: Any = 1, **fields: Any) -> Document:
    """A command on `admin`, dates in the reply with their time zone."""
    return client.admin.command(command, value, codec_options=AWARE, **fields)


@pytest.fixture
def own(start_server: Callable[..., ServerProcess]) -> Iterator[Client]:
    server = start_server("--test-clock")
    with MongoClient[Document](server.uri, tz_aware=True) as client:
        ask(client, "testClock", set=START)
        yield client
    assert server.errors() == []


@pytest.fixture
def lab(own: Client) -> Database[Document]:
    return own.lab


# The clock.


def test_the_clock_is_read_set_advanced_stopped_and_let_run(own: Client) -> None:
    clock = partial(ask, own)
    assert clock("testClock") == {"now": START, "frozen": True, "ok": 1.0}
    assert clock("testClock", advanceMillis=1500)["now"] == START + timedelta(seconds=1.5)
    reply = clock("testClock", set=START - timedelta(days=400), advanceMillis=1000, freeze=True)
    assert reply == {"now": START - timedelta(days=400) + timedelta(seconds=1), "frozen": True, "ok": 1.0}
    running = clock("testClock", freeze=False)
    assert running["frozen"] is False
    while clock("testClock")["now"] == running["now"]:
        pass
    stopped = clock("testClock", freeze=True)
    assert clock("testClock") == stopped
    assert stopped["now"] > running["now"]


def test_everything_follows_the_clock(own: Client, lab: Database[Document]) -> None:
    moment = datetime(2031, 1, 1, tzinfo=UTC)
    ask(own, "testClock", set=moment)
    lab.c.update_one({"k": 1}, {"$currentDate": {"at": True}}, upsert=True)
    row = lab.c.find_one()
    assert row is not None
    assert row["at"] == moment
    assert isinstance(row["_id"], ObjectId)
    assert row["_id"].generation_time == moment
    assert next(lab.c.aggregate([{"$project": {"now": "$$NOW"}}]))["now"] == moment
    # The server makes the ids that no driver made.
    lab.command("insert", "c", documents=[{"k": 2}])
    lab.create_collection("s", timeseries={"timeField": "t"})
    lab.command("insert", "s", documents=[{"t": moment}])
    for collection, filter in ((lab.c, {"k": 2}), (lab.s, {})):
        found = collection.find_one(filter)
        assert found is not None
        assert found["_id"].generation_time == moment
    assert ask(own, "serverStatus")["localTime"] == moment


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"set": 5}, 14),
        ({"set": "2024-01-01"}, 14),
        ({"advanceMillis": -1}, 2),
        ({"advanceMillis": "x"}, 14),
        ({"freeze": 1}, 14),
        ({"advanceMillis": 2**62}, 2),
        ({"milliseconds": 5}, 40415),
    ],
    ids=str,
)
def test_what_no_clock_can_be_told(own: Client, fields: Document, code: int) -> None:
    with pytest.raises(OperationFailure) as error:
        ask(own, {"testClock": 1, **fields})
    assert error.value.code == code
    assert ask(own, "testClock")["now"] == START


@pytest.mark.parametrize("command", ["testClock", "ttlPass"])
def test_other_servers_know_neither(client: Client, command: str) -> None:
    with pytest.raises(OperationFailure) as error:
        ask(client, command)
    assert error.value.code == 59


def test_a_clock_that_is_set_back_keeps_the_monitor_at_work(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=0)
    ask(own, "testClock", set=START - timedelta(days=1000))
    lab.c.insert_many([{"_id": 1, "at": START - timedelta(days=1001)}, {"_id": 2, "at": START}])
    ask(own, "testClock", advanceMillis=60_000)
    assert [row["_id"] for row in lab.c.find()] == [2]


# What is seen of it.


def test_a_pass_is_seen_and_can_be_killed(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=60)
    for _ in range(6):
        lab.c.insert_many([{"at": START - timedelta(days=1)} for _ in range(10_000)], ordered=False)
    passing = threading.Thread(target=lambda: ask(own, "ttlPass"))
    passing.start()
    found: list[Document] = []
    while not found:
        found = ask(own, "currentOp", desc="TTLMonitor")["inprog"]
    ask(own, "killOp", op=found[0]["opid"])
    passing.join()
    (operation,) = found
    assert (operation["op"], operation["ns"], operation["active"]) == ("remove", "lab.c", True)
    assert operation["command"]["q"] == {"at": {"$lte": START - timedelta(seconds=60)}}
    assert operation["planSummary"] == "IXSCAN { at: 1 }"
    left = lab.c.count_documents({})
    assert 0 < left < 60_000
    # The next pass goes on.
    assert ask(own, "ttlPass")["deletedDocuments"] == left


def test_a_pass_on_demand_ends_with_its_time(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=60)
    for _ in range(3):
        lab.c.insert_many([{"at": START - timedelta(days=1)} for _ in range(10_000)], ordered=False)
    with pytest.raises(OperationFailure) as error:
        ask(own, "ttlPass", maxTimeMS=5)
    assert error.value.code == 50
    left = lab.c.count_documents({})
    assert left > 0
    assert ask(own, "ttlPass")["deletedDocuments"] == left


def test_slow_visits_and_all_visits_are_logged(own: Client, lab: Database[Document]) -> None:
    lab.command("profile", 0, slowms=0)
    ask(own, "setParameter", 1, logLevel=1)
    lab.c.create_index("at", name="ttl", expireAfterSeconds=0)
    lab.c.insert_one({"at": START})
    lab.create_collection("k", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=0)
    lab.k.insert_one({"_id": START})
    ask(own, "ttlPass")
    ask(own, "ttlPass")
    lines = ask(own, "getLog", "global")["log"]
    for text in (
        '"id":5479200',
        '"id":5400702',
        '"Deleted expired documents"',
        '"Running TTL job"',
        '"Nothing has expired"',
    ):
        assert any(text in line for line in lines), text
    slow = next(line for line in lines if '"id":5479200' in line)
    for text in ('"ctx":"TTLMonitor"', '"namespace":"lab.c"', '"index":"ttl"', '"numDeleted":1'):
        assert text in slow


def test_indexes_of_special_kinds_expire_nothing(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index([("at", "hashed")], name="hashed")
    lab.command("collMod", "c", index={"name": "hashed", "expireAfterSeconds": 0})
    lab.c.insert_one({"at": START})
    ask(own, "ttlPass")
    assert lab.c.count_documents({}) == 1
    assert ask(own, "serverStatus")["metrics"]["ttl"]["invalidTTLIndexSkips"] == 1


def test_parameters_of_the_start(start_server: Callable[..., ServerProcess]) -> None:
    wanted = {
        "ttlMonitorEnabled": False,
        "ttlMonitorSleepSecs": 7,
        "ttlMonitorSubPassTargetSecs": 8,
        "ttlIndexDeleteTargetDocs": 9,
        "ttlIndexDeleteTargetTimeMS": 10,
        "ttlMonitorBatchDeletes": False,
        "ttlExactReads": True,
    }
    options = [part for name, value in wanted.items() for part in ("--setParameter", f"{name}={str(value).lower()}")]
    server = start_server(*options)
    with MongoClient[Document](server.uri) as client:
        told = ask(client, "getParameter", 1, **dict.fromkeys(wanted, 1))
        assert {name: told[name] for name in wanted} == wanted
        for name, value in wanted.items():
            changed = (not value) if isinstance(value, bool) else value + 1
            assert ask(client, "setParameter", 1, **{name: changed})["was"] == value
            assert ask(client, "getParameter", 1, **{name: 1})[name] == changed


# Reads that do not wait.


@pytest.fixture
def exact(own: Client) -> Client:
    ask(own, "setParameter", 1, ttlExactReads=True)
    return own


def advance(client: Client, seconds: float) -> None:
    ask(client, "testClock", advanceMillis=int(seconds * 1000))


def reads(database: Database[Document], name: str) -> list[list[Any]]:
    """The ids that each way of reading finds."""
    collection = database[name]
    ids = sorted(row["_id"] for row in collection.find())
    joined = next(database.one.aggregate([{"$lookup": {"from": name, "pipeline": [], "as": "found"}}]))
    united = database.one.aggregate([{"$limit": 1}, {"$unionWith": name}, {"$match": {"_id": {"$ne": "one"}}}])
    return [
        ids,
        sorted(row["_id"] for row in collection.aggregate([{"$match": {}}])),
        sorted(collection.distinct("_id")),
        sorted(row["_id"] for row in joined["found"]),
        sorted(row["_id"] for row in united),
        sorted(row["_id"] for row in database[f"{name}_view"].find()),
        *([ids] if collection.estimated_document_count() == collection.count_documents({}) == len(ids) else []),
    ]


def test_documents_are_hidden_at_the_second(exact: Client) -> None:
    lab = exact.lab
    lab.one.insert_one({"_id": "one"})
    lab.create_collection("c_view", viewOn="c", pipeline=[])
    lab.c.create_index("at", expireAfterSeconds=100)
    lab.c.create_index("kept", expireAfterSeconds=10, partialFilterExpression={"kind": "x"})
    lab.c.insert_many(
        [
            {"_id": 1, "at": START},
            {"_id": 2, "at": "text"},
            {"_id": 3, "kept": START, "kind": "x"},
            {"_id": 4, "kept": START, "kind": "y"},
            {"_id": 5, "at": [START + timedelta(days=9), START]},
        ]
    )
    ask(exact, "setParameter", 1, ttlMonitorEnabled=False)
    for seconds, found in ((9, [1, 2, 3, 4, 5]), (1, [1, 2, 4, 5]), (89, [1, 2, 4, 5]), (1, [2, 4])):
        advance(exact, seconds)
        assert reads(lab, "c") == [found] * 7
    assert lab.c.find_one({"_id": 1}) is None
    # What writes sees what is stored.
    assert lab.c.delete_one({"_id": 1}).deleted_count == 1
    ask(exact, "setParameter", 1, ttlExactReads=False)
    assert reads(lab, "c")[0] == [2, 3, 4, 5]


def test_measurements_are_hidden_one_by_one(exact: Client) -> None:
    lab = exact.lab
    lab.one.insert_one({"_id": "one"})
    lab.create_collection("s", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=100)
    lab.create_collection("s_view", viewOn="s", pipeline=[])
    lab.s.create_index("t", expireAfterSeconds=10, partialFilterExpression={"m": "x"})
    later = START + timedelta(seconds=50)
    lab.s.insert_many(
        [
            {"_id": 1, "t": START, "m": "x"},
            {"_id": 2, "t": START, "m": "y"},
            {"_id": 3, "t": later, "m": "y"},
        ]
    )
    for seconds, found in ((9, [1, 2, 3]), (1, [2, 3]), (89, [2, 3]), (1, [3]), (49, [3]), (1, [])):
        advance(exact, seconds)
        assert reads(lab, "s") == [found] * 7
    ask(exact, "setParameter", 1, ttlExactReads=False)
    assert reads(lab, "s")[0] == [1, 2, 3]
    assert next(lab.s.aggregate([{"$collStats": {"storageStats": {}}}]))["ns"] == "lab.s"


def test_exempt_series_hide_nothing(exact: Client) -> None:
    lab = exact.lab
    lab.create_collection("s", timeseries={"timeField": "t"}, expireAfterSeconds=0)
    lab.s.insert_many([{"_id": 1, "t": datetime(1969, 1, 1, tzinfo=UTC)}, {"_id": 2, "t": START}])
    advance(exact, 100)
    assert sorted(row["_id"] for row in lab.s.find()) == [1, 2]


def test_clustered_documents_are_hidden(exact: Client) -> None:
    lab = exact.lab
    lab.create_collection("k", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=50)
    lab.k.insert_many([{"_id": START}, {"_id": "never"}])
    advance(exact, 49)
    assert lab.k.count_documents({}) == 2
    advance(exact, 1)
    assert [row["_id"] for row in lab.k.find()] == ["never"]
