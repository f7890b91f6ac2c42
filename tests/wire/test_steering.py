"""Index filters, cluster parameters, fail points, the profiler, the lock of fsync."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect, OperationFailure, WriteConcernError

from support.server_process import ServerProcess

Document = dict[str, Any]


def index_of(plan: Document) -> str | None:
    while plan.get("stage") != "IXSCAN":
        if "inputStage" not in plan:
            return None
        plan = plan["inputStage"]
    return str(plan["indexName"])


def test_an_index_filter_decides(database: Database[Document]) -> None:
    collection = database["c"]
    collection.insert_many([{"a": n, "b": n} for n in range(20)])
    collection.create_index("a")
    collection.create_index([("a", 1), ("b", 1)], name="both")
    database.command("planCacheSetFilter", "c", query={"a": 1}, indexes=["both"])

    def explained(filter: Document) -> Document:
        return dict(database.command("explain", {"find": "c", "filter": filter, "hint": "a_1"})["queryPlanner"])

    told = explained({"a": 7})
    assert (told["indexFilterSet"], index_of(told["winningPlan"])) == (True, "both")
    other = explained({"a": {"$gt": 7}})
    assert (other["indexFilterSet"], index_of(other["winningPlan"])) == (False, "a_1")
    assert collection.count_documents({"a": 7}) == 1
    (shown,) = database.command("planCacheListFilters", "c")["filters"]
    assert shown == {"query": {"a": 1}, "sort": {}, "projection": {}, "indexes": ["both"]}
    database.command("planCacheSetFilter", "c", query={"a": 5}, indexes=[{"none": 1}])
    assert explained({"a": 7})["winningPlan"]["stage"] == "COLLSCAN"
    database.command("planCacheClearFilters", "c", query={"a": 9})
    assert database.command("planCacheListFilters", "c")["filters"] == []


@pytest.mark.parametrize(
    "command",
    [{"query": {"a": 1}}, {"query": {"a": 1}, "indexes": []}, {"query": 1, "indexes": ["x"]}, {"indexes": ["x"]}],
)
def test_index_filters_that_cannot_be(database: Database[Document], command: Document) -> None:
    database["c"].insert_one({})
    with pytest.raises(OperationFailure) as caught:
        database.command({"planCacheSetFilter": "c", **command})
    assert caught.value.code == 2


@pytest.fixture
def own(start_server: Callable[..., ServerProcess]) -> Iterator[MongoClient[Document]]:
    server = start_server("--setParameter", "enableTestCommands=1")
    with MongoClient[Document](server.uri, retryWrites=False, retryReads=False) as client:
        yield client


def test_cluster_parameters_are_kept(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    with MongoClient[Document](server.uri) as client:
        client.admin.command("setClusterParameter", {"changeStreams": {"expireAfterSeconds": 7}})
        with pytest.raises(OperationFailure) as caught:
            client.admin.command("setClusterParameter", {"changeStreams": {"expireAfterSeconds": 0}})
        assert caught.value.code == 2
    server.stop()
    server.start()
    with MongoClient[Document](server.uri) as client:
        (told,) = client.admin.command("getClusterParameter", "changeStreams")["clusterParameters"]
        assert told == {"_id": "changeStreams", "expireAfterSeconds": 7}


def test_reads_have_the_default_limit(own: MongoClient[Document]) -> None:
    own["d"]["c"].insert_many([{"a": n} for n in range(2000)])
    own.admin.command("setClusterParameter", {"defaultMaxTimeMS": {"readOperations": 1}})
    slow = [{"$lookup": {"from": "c", "pipeline": [], "as": "all"}}, {"$unwind": "$all"}, {"$count": "n"}]
    with pytest.raises(OperationFailure) as caught:
        own["d"]["c"].aggregate(slow)
    assert caught.value.code == 50


def test_commands_fail_on_demand(own: MongoClient[Document]) -> None:
    def fail(mode: Any, **data: Any) -> Document:
        return dict(own.admin.command("configureFailPoint", "failCommand", mode=mode, data=data))

    fail({"times": 1}, failCommands=["find"], errorCode=2, errorLabels=["Mine"])
    with pytest.raises(OperationFailure) as caught:
        own["d"]["c"].find_one()
    assert caught.value.code == 2
    assert caught.value.has_error_label("Mine")
    assert own["d"]["c"].find_one() is None
    fail({"skip": 1}, failCommands=["ping"], errorCode=8)
    own.admin.command("ping")
    with pytest.raises(OperationFailure):
        own.admin.command("ping")
    fail("alwaysOn", failCommands=["insert"], writeConcernError={"code": 64, "errmsg": "late"})
    with pytest.raises(WriteConcernError):
        own["d"]["c"].insert_one({})
    assert own["d"]["c"].count_documents({}) == 1
    fail({"times": 1}, failCommands=["ping"], closeConnection=True)
    with pytest.raises(AutoReconnect):
        own.admin.command("ping")
    assert fail("off")["count"] == 4
    with pytest.raises(OperationFailure) as unknown:
        own.admin.command("configureFailPoint", "nothing", mode="off")
    assert unknown.value.code == 266


def test_fail_points_are_for_tests_alone(client: MongoClient[Document]) -> None:
    with pytest.raises(OperationFailure) as caught:
        client.admin.command("configureFailPoint", "failCommand", mode="off")
    assert caught.value.code == 59


def test_the_profiler_writes_down_what_is_done(database: Database[Document]) -> None:
    database["c"].insert_one({"_id": 1})
    database.command("profile", 2)
    list(database["c"].find({"_id": 1}))
    database["c"].update_one({"_id": 1}, {"$set": {"a": 1}})
    with pytest.raises(OperationFailure):
        database.command("collMod", "none")
    database.command("profile", 0)
    list(database["c"].find({"_id": 2}))
    rows = list(database["system.profile"].find())
    assert [(row["op"], row["ns"].partition(".")[2]) for row in rows] == [
        ("query", "c"),
        ("update", "c"),
        ("command", "none"),
    ]
    assert rows[0]["command"]["filter"] == {"_id": 1}
    assert rows[2]["errCode"] == 26
    assert database.command("listIndexes", "system.profile")["cursor"]["firstBatch"] == []


def test_counting_goes_on_under_the_lock_of_fsync(own: MongoClient[Document]) -> None:
    own["d"]["c"].insert_one({})
    own.admin.command("fsync", lock=True)
    try:
        assert own["d"]["c"].count_documents({}) == 1
        with pytest.raises(OperationFailure) as caught:
            own["d"].command("aggregate", "c", pipeline=[{"$out": "d"}], cursor={}, maxTimeMS=50)
        assert caught.value.code == 50
    finally:
        own.admin.command("fsyncUnlock")


def test_every_server_has_its_own_collections(own: MongoClient[Document]) -> None:
    assert own.list_database_names() == ["admin", "config", "local"]
    version = own["admin"]["system.version"].find_one({"_id": "featureCompatibilityVersion"})
    assert version == {"_id": "featureCompatibilityVersion", "version": "8.2"}
    assert own["local"]["startup_log"].count_documents({}) == 1


def test_what_sorts_and_groups_may_hold_is_a_parameter(own: MongoClient[Document]) -> None:
    own["test"]["rows"].insert_many([{"_id": number, "text": "x" * 100} for number in range(500)])

    def spills(stage: Document) -> list[bool]:
        command = {"aggregate": "rows", "pipeline": [stage], "cursor": {}}
        shown = own["test"].command("explain", command, verbosity="executionStats")
        return _values_of(shown, "usedDisk")

    sort: Document = {"$sort": {"text": 1}}
    group: Document = {"$group": {"_id": "$_id", "all": {"$push": "$text"}}}
    assert not any(spills(sort) + spills(group))
    limits = {
        "internalQueryMaxBlockingSortMemoryUsageBytes": 10_000,
        "internalDocumentSourceGroupMaxMemoryBytes": 10_000,
    }
    own.admin.command("setParameter", 1, **limits)
    assert any(spills(sort))
    assert any(spills(group))
    shown = own["test"].command("explain", {"find": "rows"})["serverParameters"]
    assert {name: shown[name] for name in limits} == limits


def _values_of(shown: Any, name: str) -> list[Any]:
    if isinstance(shown, list):
        return [value for one in shown for value in _values_of(one, name)]
    if isinstance(shown, dict):
        inner = [value for key, one in shown.items() if key != name for value in _values_of(one, name)]
        return inner + ([shown[name]] if name in shown else [])
    return []
