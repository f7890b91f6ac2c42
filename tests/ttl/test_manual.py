"""What MongoDB's manual says of TTL indexes, of expiring data, and of automatic removal from time series.

Each test says what the manual does, in words of our own; the clock of the server is set and advanced.
"""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Int64
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError

from support.server_process import ServerProcess

Document = dict[str, Any]
Client = MongoClient[Document]
SECOND = timedelta(seconds=1)
START = datetime(2023, 3, 27, 17, 30, tzinfo=UTC)

_names = itertools.count(1)


@pytest.fixture(scope="module")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("manual"), "--test-clock")
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture
def own(lab_server: ServerProcess) -> Iterator[Client]:
    with MongoClient[Document](lab_server.uri, tz_aware=True) as client:
        client.admin.command("testClock", set=START)
        yield client


@pytest.fixture
def lab(own: Client) -> Iterator[Database[Document]]:
    name = f"manual_{next(_names)}"
    yield own[name]
    own.drop_database(name)


def set_clock(client: Client, now: datetime) -> None:
    """Make it this time, without any time passing."""
    client.admin.command("setParameter", 1, ttlMonitorEnabled=False)
    client.admin.command("testClock", set=now)
    client.admin.command("setParameter", 1, ttlMonitorEnabled=True)


def expire(client: Client, now: datetime) -> Document:
    """A pass at this time."""
    set_clock(client, now)
    reply: Document = client.admin.command("ttlPass")
    return reply


def ids(collection: Collection[Document]) -> list[Any]:
    return [row["_id"] for row in collection.find(sort=[("_id", 1)])]


def code_of(caught: pytest.ExceptionInfo[OperationFailure]) -> int | None:
    return caught.value.code


# Boundaries: there one second before, gone one second after, and at the second itself.


def by_index(database: Database[Document], **options: Any) -> None:
    database.c.create_index([("at", 1)], expireAfterSeconds=300, **options)
    database.c.insert_one({"_id": 1, "at": START, "kind": "click"})


def by_descending_index(database: Database[Document]) -> None:
    database.c.create_index([("at", -1)], expireAfterSeconds=300)
    database.c.insert_one({"_id": 1, "at": START})


def by_array(database: Database[Document]) -> None:
    database.c.create_index("at", expireAfterSeconds=300)
    database.c.insert_one({"_id": 1, "at": [START + timedelta(days=9), START, "text"]})


def by_partial_index(database: Database[Document]) -> None:
    by_index(database, partialFilterExpression={"kind": "click"})


def by_hidden_index(database: Database[Document]) -> None:
    by_index(database, hidden=True)


def by_converted_index(database: Database[Document]) -> None:
    database.c.create_index("at", name="plain")
    database.c.insert_one({"_id": 1, "at": START})
    database.command("collMod", "c", index={"name": "plain", "expireAfterSeconds": 300})


def by_nested_index(database: Database[Document]) -> None:
    database.c.create_index("a.at", expireAfterSeconds=300)
    database.c.insert_one({"_id": 1, "a": [{"at": START + timedelta(days=1)}, {"at": START}]})


def clustered(database: Database[Document]) -> None:
    database.create_collection("c", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=300)
    database.c.insert_one({"_id": START})


def capped(database: Database[Document]) -> None:
    database.create_collection("c", capped=True, size=100_000)
    by_index(database)


@pytest.mark.parametrize(
    "make",
    [
        by_index,
        by_descending_index,
        by_array,
        by_partial_index,
        by_hidden_index,
        by_converted_index,
        by_nested_index,
        clustered,
        capped,
    ],
)
def test_documents_go_the_given_seconds_after_the_date(
    own: Client, lab: Database[Document], make: Callable[[Database[Document]], None]
) -> None:
    make(lab)
    moment = START + timedelta(seconds=300)
    assert expire(own, moment - SECOND)["deletedDocuments"] == 0
    assert lab.c.count_documents({}) == 1
    reply = expire(own, moment + SECOND)
    assert (reply["deletedDocuments"], reply["deletedBuckets"], reply["ok"]) == (1, 0, 1.0)
    assert lab.c.count_documents({}) == 0


def test_the_second_of_expiry_itself_counts(own: Client, lab: Database[Document]) -> None:
    by_index(lab)
    expire(own, START + timedelta(seconds=300, milliseconds=-1))
    assert ids(lab.c) == [1]
    expire(own, START + timedelta(seconds=300))
    assert ids(lab.c) == []


SPANS = [
    ({"granularity": "seconds"}, timedelta(hours=1)),
    ({"granularity": "minutes"}, timedelta(hours=24)),
    ({"granularity": "hours"}, timedelta(days=30)),
    ({}, timedelta(hours=1)),
    ({"bucketMaxSpanSeconds": 900, "bucketRoundingSeconds": 900}, timedelta(seconds=900)),
]


@pytest.mark.parametrize("filtered", [False, True], ids=["collection", "partial index"])
@pytest.mark.parametrize(("options", "span"), SPANS, ids=str)
def test_a_bucket_goes_when_all_it_may_hold_is_too_old(
    own: Client, lab: Database[Document], options: Document, span: timedelta, filtered: bool
) -> None:
    series = {"timeField": "t", "metaField": "m", **options}
    if filtered:
        lab.create_collection("s", timeseries=series)
        lab.s.create_index("t", expireAfterSeconds=300, partialFilterExpression={"m": "a"})
    else:
        lab.create_collection("s", timeseries=series, expireAfterSeconds=300)
    # A bucket begins here whatever the granularity.
    begin = datetime(2023, 3, 28, tzinfo=UTC)
    lab.s.insert_many([{"t": begin, "m": "a"}, {"t": begin + min(span, timedelta(hours=1)) - SECOND, "m": "a"}])
    moment = begin + span + timedelta(seconds=300)
    assert expire(own, moment - SECOND)["deletedBuckets"] == 0
    assert lab.s.count_documents({}) == 2
    assert expire(own, moment + SECOND)["deletedBuckets"] == 1
    assert lab.s.count_documents({}) == 0


# TTL indexes.


@pytest.mark.parametrize("seconds", [0, 1, 2**31 - 1])
def test_lifetimes_that_can_be(lab: Database[Document], seconds: int) -> None:
    lab.c.create_index("at", name="ttl", expireAfterSeconds=seconds)
    assert lab.c.index_information()["ttl"]["expireAfterSeconds"] == seconds


@pytest.mark.parametrize("seconds", [-1, 2**31, float("nan")])
def test_lifetimes_that_cannot_be(lab: Database[Document], seconds: Any) -> None:
    with pytest.raises(OperationFailure) as caught:
        lab.c.create_index("at", expireAfterSeconds=seconds)
    assert code_of(caught) == 67


def test_documents_without_a_date_stay(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=0)
    lab.c.insert_many([{"_id": 1}, {"_id": 2, "at": "2001-01-01"}, {"_id": 3, "at": 5}, {"_id": 4, "at": [1, "x"]}])
    assert expire(own, START + timedelta(days=10_000))["deletedDocuments"] == 0
    assert ids(lab.c) == [1, 2, 3, 4]


def test_of_several_dates_the_earliest_counts(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=10)
    lab.c.insert_one({"_id": 1, "at": [START + timedelta(days=3), START, START + timedelta(days=1)]})
    lab.c.insert_one({"_id": 2, "at": [START + timedelta(days=3)]})
    expire(own, START + timedelta(seconds=11))
    assert ids(lab.c) == [2]


def test_documents_expire_at_a_clock_time(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("expireAt", expireAfterSeconds=0)
    moment = datetime(2023, 7, 22, 14, tzinfo=UTC)
    lab.c.insert_many([{"_id": 1, "expireAt": moment}, {"_id": 2, "expireAt": moment + timedelta(hours=1)}])
    lab.c.insert_one({"_id": 3, "expireAt": START - timedelta(days=1)})
    expire(own, moment - SECOND)
    assert ids(lab.c) == [1, 2]
    expire(own, moment + SECOND)
    assert ids(lab.c) == [2]


def test_only_what_the_filter_of_the_index_takes_expires(own: Client, lab: Database[Document]) -> None:
    lab.events.create_index("at", expireAfterSeconds=60, partialFilterExpression={"type": "click"})
    lab.events.insert_many(
        [{"_id": "click", "type": "click", "at": START}, {"_id": "view", "type": "view", "at": START}]
    )
    expire(own, START + timedelta(seconds=61))
    assert ids(lab.events) == ["view"]


def test_an_index_becomes_a_ttl_index(own: Client, lab: Database[Document]) -> None:
    lab.tickets.create_index("lastModifiedDate")
    lab.tickets.insert_one({"_id": 1, "lastModifiedDate": START})
    expire(own, START + timedelta(days=365))
    assert ids(lab.tickets) == [1]
    reply = lab.command("collMod", "tickets", index={"keyPattern": {"lastModifiedDate": 1}, "expireAfterSeconds": 100})
    assert (reply["expireAfterSeconds_new"], "expireAfterSeconds_old" in reply) == (100, False)
    own.admin.command("ttlPass")
    assert ids(lab.tickets) == []


def test_a_shorter_lifetime_counts_for_what_is_there(own: Client, lab: Database[Document]) -> None:
    lab.c.create_index("at", name="ttl", expireAfterSeconds=1000)
    lab.c.insert_one({"_id": 1, "at": START})
    expire(own, START + timedelta(seconds=500))
    assert ids(lab.c) == [1]
    reply = lab.command("collMod", "c", index={"keyPattern": {"at": 1}, "expireAfterSeconds": 100})
    assert (reply["expireAfterSeconds_old"], reply["expireAfterSeconds_new"]) == (1000, 100)
    own.admin.command("ttlPass")
    assert ids(lab.c) == []


def test_what_cannot_be_a_ttl_index(lab: Database[Document]) -> None:
    with pytest.raises(OperationFailure) as compound:
        lab.c.create_index([("a", 1), ("b", 1)], expireAfterSeconds=10)
    with pytest.raises(OperationFailure) as identity:
        lab.c.create_index("_id", expireAfterSeconds=10)
    assert (code_of(compound), code_of(identity)) == (67, 197)
    lab.c.create_index([("a", 1), ("b", 1)], name="two")
    for name in ("two", "_id_"):
        with pytest.raises(OperationFailure) as changed:
            lab.command("collMod", "c", index={"name": name, "expireAfterSeconds": 10})
        assert code_of(changed) == 72


def test_create_index_changes_no_lifetime(lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=10)
    lab.c.create_index("other")
    for path, seconds in (("at", 11), ("other", 10)):
        with pytest.raises(OperationFailure) as caught:
            lab.c.create_index(path, expireAfterSeconds=seconds)
        assert code_of(caught) == 85


def test_a_ttl_index_serves_queries(lab: Database[Document]) -> None:
    lab.c.create_index("at", expireAfterSeconds=10)
    plan = lab.c.find({"at": {"$gt": START}}).sort("at", 1).explain()["queryPlanner"]["winningPlan"]
    assert (plan["stage"], plan["inputStage"]["stage"], plan["inputStage"]["indexName"]) == ("FETCH", "IXSCAN", "at_1")


def test_validation_keeps_dates_dates(lab: Database[Document]) -> None:
    schema = {
        "bsonType": "object",
        "required": ["lastModifiedDate"],
        "properties": {"lastModifiedDate": {"bsonType": "date"}},
    }
    lab.create_collection("eventlog", validator={"$jsonSchema": schema})
    lab.eventlog.create_index("lastModifiedDate", expireAfterSeconds=3600)
    lab.eventlog.insert_one({"lastModifiedDate": START})
    for wrong in ({}, {"lastModifiedDate": "2023-01-01"}):
        with pytest.raises(WriteError) as caught:
            lab.eventlog.insert_one(dict(wrong))
        assert caught.value.code == 121


def test_a_lifetime_of_a_collection_is_for_series_and_clusters(lab: Database[Document]) -> None:
    with pytest.raises(OperationFailure) as caught:
        lab.create_collection("c", expireAfterSeconds=10)
    assert code_of(caught) == 72


# The monitor.


def test_the_monitor_runs_every_minute(own: Client, lab: Database[Document]) -> None:
    own.admin.command("testClock", advanceMillis=60_000)
    moment = own.admin.command("testClock")["now"]
    lab.c.create_index("at", expireAfterSeconds=0)
    lab.c.insert_one({"_id": 1, "at": moment})
    own.admin.command("testClock", advanceMillis=59_000)
    assert ids(lab.c) == [1]
    before = own.admin.command("serverStatus")["metrics"]["ttl"]
    own.admin.command("testClock", advanceMillis=1_000)
    assert ids(lab.c) == []
    after = own.admin.command("serverStatus")["metrics"]["ttl"]
    counted = ("deletedDocuments", "passes", "subPasses")
    assert [after[name] - before[name] for name in counted] == [1, 1, 1]


def test_an_index_on_old_documents_expires_them_with_the_next_pass(own: Client, lab: Database[Document]) -> None:
    lab.c.insert_many({"_id": number, "at": START} for number in range(1000))
    set_clock(own, START + timedelta(days=1))
    lab.c.create_index("at", expireAfterSeconds=60)
    assert lab.c.count_documents({}) == 1000
    own.admin.command("testClock", advanceMillis=60_000)
    assert lab.c.count_documents({}) == 0


def test_deletes_of_many_are_batched(lab: Database[Document]) -> None:
    lab.c.insert_many([{"a": 1}, {"a": 1}, {"a": 2}])

    def explained(limit: int) -> Document:
        delete = {"delete": "c", "deletes": [{"q": {"a": 1}, "limit": limit}]}
        reply: Document = lab.command("explain", delete, verbosity="executionStats")
        return reply

    many, one = explained(0), explained(1)
    assert many["queryPlanner"]["winningPlan"]["stage"] == "BATCHED_DELETE"
    assert many["executionStats"]["executionStages"]["nWouldDelete"] == 2
    assert one["queryPlanner"]["winningPlan"]["stage"] == "DELETE"
    assert lab.c.count_documents({}) == 3


def test_this_server_is_no_former_member_of_a_replica_set(own: Client) -> None:
    # Data there would keep the monitor from its work.
    with pytest.raises(OperationFailure):
        own["local"]["system.replset"].insert_one({"_id": "rs"})
    assert own["local"]["system.replset"].count_documents({}) == 0


# Time series.


def test_measurements_expire_with_their_bucket(own: Client, lab: Database[Document]) -> None:
    series = {"timeField": "timestamp", "metaField": "metadata", "granularity": "hours"}
    lab.create_collection("weather24h", timeseries=series, expireAfterSeconds=86400)
    measured = datetime(2023, 5, 18, 10, tzinfo=UTC)
    lab.weather24h.insert_one({"metadata": {"sensorId": 5578}, "timestamp": measured, "temp": 12})
    # It has expired, but its bucket could still take younger ones.
    expire(own, measured + timedelta(days=1) + SECOND)
    assert lab.weather24h.count_documents({}) == 1
    expire(own, measured + timedelta(days=32))
    assert lab.weather24h.count_documents({}) == 0


def test_a_bucket_up_to_half_past_six(own: Client, lab: Database[Document]) -> None:
    lab.create_collection("s", timeseries={"timeField": "t"}, expireAfterSeconds=300)
    lab.s.insert_one({"t": START})
    lab.s.insert_one({"t": datetime(2023, 3, 27, 18, 29, 59, tzinfo=UTC)})
    expire(own, datetime(2023, 3, 27, 18, 34, 59, tzinfo=UTC))
    assert lab.s.count_documents({}) == 2
    expire(own, datetime(2023, 3, 27, 18, 35, tzinfo=UTC))
    assert lab.s.count_documents({}) == 0


def test_automatic_removal_is_begun_changed_told_and_ended(own: Client, lab: Database[Document]) -> None:
    lab.create_collection("s", timeseries={"timeField": "t"})
    lab.s.insert_one({"t": START})

    def told() -> Any:
        (row,) = lab.command("listCollections", filter={"name": "s"})["cursor"]["firstBatch"]
        assert row["type"] == "timeseries"
        return row["options"].get("expireAfterSeconds")

    assert told() is None
    expire(own, START + timedelta(days=100))
    lab.command("collMod", "s", expireAfterSeconds=604_801_000)
    assert told() == Int64(604_801_000)
    lab.command("collMod", "s", expireAfterSeconds="off")
    assert told() is None
    own.admin.command("ttlPass")
    assert lab.s.count_documents({}) == 1
    lab.command("collMod", "s", expireAfterSeconds=604_801)
    assert told() == 604_801
    own.admin.command("ttlPass")
    assert lab.s.count_documents({}) == 0


@pytest.mark.parametrize(
    ("of_collection", "of_index", "left"),
    [(86_400, 3600, ["other"]), (None, 3600, ["other"]), (3600, 86_400, [])],
    ids=["the index is shorter", "the index alone", "the collection is shorter"],
)
def test_the_shorter_lifetime_wins(
    own: Client, lab: Database[Document], of_collection: int | None, of_index: int, left: list[str]
) -> None:
    options = {} if of_collection is None else {"expireAfterSeconds": of_collection}
    lab.create_collection("weather", timeseries={"timeField": "t", "metaField": "sensor"}, **options)
    lab.weather.create_index("t", expireAfterSeconds=of_index, partialFilterExpression={"sensor": {"$eq": "nyc"}})
    lab.weather.insert_many([{"t": START, "sensor": "nyc"}, {"t": START, "sensor": "other"}])
    expire(own, START + timedelta(hours=2) + SECOND)
    assert [row["sensor"] for row in lab.weather.find()] == left


@pytest.mark.parametrize(
    ("key", "options", "code"),
    [
        ({"t": 1}, {}, 72),
        ({"t": 1}, {"partialFilterExpression": {"v": 1}}, 72),
        ({"t": 1}, {"partialFilterExpression": {"t": {"$gt": START}}}, 72),
        ({"m": 1}, {"partialFilterExpression": {"m": 1}}, 72),
        ({"v": 1}, {"partialFilterExpression": {"m": 1}}, 72),
        ({"t": 1, "m": 1}, {"partialFilterExpression": {"m": 1}}, 67),
    ],
    ids=str,
)
def test_what_cannot_be_a_ttl_index_of_measurements(
    lab: Database[Document], key: Document, options: Document, code: int
) -> None:
    lab.create_collection("s", timeseries={"timeField": "t", "metaField": "m"})
    with pytest.raises(OperationFailure) as caught:
        lab.command("createIndexes", "s", indexes=[{"key": key, "name": "x", "expireAfterSeconds": 10, **options}])
    assert code_of(caught) == code
