"""Expiry as a client sees it: the clock of the test moves, and what is too old has gone."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from support.server_process import ServerProcess

Document = dict[str, Any]
Client = MongoClient[Document]


@pytest.fixture
def own(start_server: Callable[..., ServerProcess]) -> Iterator[Client]:
    server = start_server("--test-clock")
    with MongoClient[Document](server.uri) as client:
        yield client
    assert server.errors() == []


@pytest.fixture
def lab(own: Client) -> Database[Document]:
    return own.lab


def now(client: Client) -> datetime:
    moment: datetime = client.admin.command("serverStatus")["localTime"]
    return moment.replace(tzinfo=UTC)


def advance(client: Client, seconds: float) -> None:
    client.admin.command("testClock", advanceMillis=int(seconds * 1000))


def metrics(client: Client) -> Document:
    found: Document = client.admin.command("serverStatus")["metrics"]["ttl"]
    return found


def test_a_document_is_there_a_second_before_and_gone_a_second_after(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=100)
    lab.c.insert_one({"_id": 1, "at": now(own)})
    advance(own, 99)
    assert own.admin.command("ttlPass")["deletedDocuments"] == 0
    assert lab.c.count_documents({}) == 1
    advance(own, 2)
    reply = own.admin.command("ttlPass")
    assert (reply["deletedDocuments"], reply["deletedBuckets"], reply["subPasses"]) == (1, 0, 1)
    assert lab.c.count_documents({}) == 0


def test_the_monitor_wakes_every_minute(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=0)
    lab.c.insert_one({"at": now(own)})
    advance(own, 59)
    assert lab.c.count_documents({}) == 1
    advance(own, 1)
    assert lab.c.count_documents({}) == 0
    assert metrics(own) == {
        "collSubpassesIncreasedPriority": 0,
        "deletedDocuments": 1,
        "invalidTTLIndexSkips": 0,
        "passes": 1,
        "subPasses": 1,
    }


def test_parameters_count_while_the_server_runs(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=0)
    lab.c.insert_one({"at": now(own)})
    own.admin.command("setParameter", 1, ttlMonitorEnabled=False)
    advance(own, 60)
    assert lab.c.count_documents({}) == 1
    own.admin.command("setParameter", 1, ttlMonitorEnabled=True)
    own.admin.command("setParameter", 1, ttlMonitorSleepSecs=5)
    advance(own, 5)
    assert lab.c.count_documents({}) == 0
    # On demand it works also where it is switched off.
    own.admin.command("setParameter", 1, ttlMonitorEnabled=False)
    lab.c.insert_one({"at": now(own)})
    assert own.admin.command("ttlPass")["deletedDocuments"] == 1


def test_a_lifetime_is_changed_and_given_by_collmod(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", name="by_date")
    lab.c.insert_one({"_id": 1, "at": now(own)})
    reply = lab.command("collMod", "c", index={"name": "by_date", "expireAfterSeconds": 1000})
    assert reply["expireAfterSeconds_new"] == 1000
    assert "expireAfterSeconds_old" not in reply
    advance(own, 60)
    assert lab.c.count_documents({}) == 1
    reply = lab.command("collMod", "c", index={"keyPattern": {"at": 1}, "expireAfterSeconds": 60})
    assert (reply["expireAfterSeconds_old"], reply["expireAfterSeconds_new"]) == (1000, 60)
    assert lab.c.index_information()["by_date"]["expireAfterSeconds"] == 60
    own.admin.command("ttlPass")
    assert lab.c.count_documents({}) == 0


@pytest.mark.parametrize(
    ("key", "seconds", "code"),
    [
        ({"a": 1, "b": 1}, 5, 67),
        ({"a": 1}, -1, 67),
        ({"a": 1}, 2**31, 67),
        ({"a": 1}, float("nan"), 67),
        ({"a": 1}, "5", 67),
        ({"_id": 1}, 5, 197),
    ],
    ids=str,
)
def test_what_cannot_be_a_lifetime(database: Database[Document], key: Document, seconds: Any, code: int) -> None:
    with pytest.raises(OperationFailure) as error:
        database.command("createIndexes", "c", indexes=[{"key": key, "name": "x", "expireAfterSeconds": seconds}])
    assert error.value.code == code


def test_an_index_with_another_lifetime_is_another_index(database: Database[Document]) -> None:
    database.c.create_index("at", expireAfterSeconds=10)
    database.c.create_index("at", expireAfterSeconds=10)
    with pytest.raises(OperationFailure) as error:
        database.c.create_index("at", expireAfterSeconds=11)
    assert error.value.code == 85


def test_buckets_go_when_their_whole_span_is_too_old(own: Client, lab: Database[Document]) -> None:
    lab.create_collection("s", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=100)
    # The minute of the server's time is where the bucket begins; its span is an hour.
    start = now(own).replace(second=0, microsecond=0)
    lab.s.insert_many([{"t": start + timedelta(seconds=1), "m": 1, "v": 1}, {"t": start, "m": 2, "v": 2}])
    before = start + timedelta(seconds=3600 + 100 - 1)
    advance(own, (before - now(own)).total_seconds())
    assert own.admin.command("ttlPass")["deletedBuckets"] == 0
    assert lab.s.count_documents({}) == 2
    advance(own, 2)
    own.admin.command("ttlPass")
    assert lab.s.count_documents({}) == 0
    assert metrics(own)["deletedDocuments"] == 2
    lab.s.insert_one({"t": start + timedelta(seconds=1), "m": 1, "v": 3})
    assert [row["v"] for row in lab.s.find()] == [3]


def test_the_lifetime_of_measurements_changes_and_ends(own: Client, lab: Database[Document]) -> None:
    lab.create_collection("s", timeseries={"timeField": "t"}, expireAfterSeconds=10)
    lab.s.insert_one({"t": now(own)})
    lab.command("collMod", "s", expireAfterSeconds="off")
    advance(own, 100_000)
    assert lab.s.count_documents({}) == 1
    lab.command("collMod", "s", expireAfterSeconds=200_000)
    advance(own, 60)
    assert lab.s.count_documents({}) == 1
    lab.command("collMod", "s", expireAfterSeconds=0)
    advance(own, 60)
    assert lab.s.count_documents({}) == 0


def test_some_series_expire_sooner(own: Client, lab: Database[Document]) -> None:
    lab.create_collection("s", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=1_000_000)
    lab.s.create_index("t", name="soon", expireAfterSeconds=10, partialFilterExpression={"m": "debug"})
    lab.s.insert_many([{"t": now(own), "m": "debug"}, {"t": now(own), "m": "audit"}])
    advance(own, 3600 - 60)
    assert lab.s.count_documents({}) == 2
    advance(own, 60 + 10 + 60)
    assert [row["m"] for row in lab.s.find()] == ["audit"]
    reply = lab.command("collMod", "s", index={"name": "soon", "expireAfterSeconds": 20})
    assert (reply["expireAfterSeconds_old"], reply["expireAfterSeconds_new"]) == (10, 20)


@pytest.mark.parametrize("year", [1969, 2039])
def test_dates_outside_of_1970_to_2038_exempt_a_collection(own: Client, lab: Database[Document], year: int) -> None:
    lab.create_collection("s", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=0)
    lab.s.create_index("t", expireAfterSeconds=0, partialFilterExpression={"m": None})
    lab.s.insert_many([{"t": datetime(year, 1, 1, tzinfo=UTC)}, {"t": now(own)}])
    advance(own, 1_000_000)
    assert lab.s.count_documents({}) == 2


def test_clustered_collections_expire_by_id(own: Client, lab: Database[Document]) -> None:
    lab.create_collection("k", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=50)
    lab.k.insert_many([{"_id": now(own)}, {"_id": "never"}])
    advance(own, 49)
    own.admin.command("ttlPass")
    assert lab.k.count_documents({}) == 2
    advance(own, 1)
    own.admin.command("ttlPass")
    assert [row["_id"] for row in lab.k.find()] == ["never"]


def test_a_locked_server_deletes_nothing(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=0)
    lab.c.insert_one({"at": now(own)})
    own.admin.command("fsync", lock=True)
    advance(own, 60)
    assert lab.c.find_one() is not None
    own.admin.command("fsyncUnlock")
    advance(own, 60)
    assert lab.c.count_documents({}) == 0


def test_a_pass_that_deleted_something_is_logged(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--test-clock")
    with MongoClient[Document](server.uri) as client:
        client.lab.c.create_index("at", expireAfterSeconds=0)
        client.lab.c.insert_one({"at": now(client)})
        advance(client, 60)
        advance(client, 60)
        lines = client.admin.command("getLog", "global")["log"]
    assert sum('"Deleted expired documents"' in line for line in lines) == 1


def test_a_pass_on_demand_is_for_tests_only(client: Client) -> None:
    with pytest.raises(OperationFailure) as error:
        client.admin.command("ttlPass")
    assert error.value.code == 59
