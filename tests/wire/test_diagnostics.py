"""The commands around the data: what they answer, where they may run, what they refuse."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, Timestamp
from pymongo import MongoClient

from bucketd.server.commands.base import Command
from bucketd.server.commands.table import COMMANDS
from support.server_process import ServerProcess
from support.wire_client import WireClient

Document = dict[str, Any]


@pytest.fixture
def admin(server: ServerProcess) -> Any:
    with WireClient(server.port, "admin") as connected:
        yield connected


@pytest.mark.parametrize(
    "command", {command.name: command for command in COMMANDS.values()}.values(), ids=lambda command: command.name
)
def test_admin_commands_are_for_admin_alone(wire: WireClient, command: Command) -> None:
    if command.admin_only:
        reply = wire.ask({command.name: 1})
        assert reply["code"] == 13
        assert reply["errmsg"] == f"{command.name} may only be run against the admin database."


@pytest.mark.parametrize(
    "command", {command.name: command for command in COMMANDS.values()}.values(), ids=lambda command: command.name
)
def test_strict_api_has_only_its_commands(admin: WireClient, command: Command) -> None:
    reply = admin.ask({command.name: 1, "apiVersion": "1", "apiStrict": True, "help": True})
    if command.in_api_version_1:
        assert reply["ok"] == 1.0
    else:
        assert reply["code"] == 323
        assert "is not in API Version 1" in reply["errmsg"]


def test_help_describes_a_command(wire: WireClient) -> None:
    assert wire.ask({"ping": 1, "help": True})["help"].startswith("help for: ping ")


def test_unknown_command(wire: WireClient) -> None:
    reply = wire.ask({"nonsense": 1})
    assert reply == {
        "ok": 0.0,
        "errmsg": "no such command: 'nonsense'",
        "code": 59,
        "codeName": "CommandNotFound",
    }


def test_write_concern_is_for_writes(wire: WireClient) -> None:
    assert wire.ask({"ping": 1, "writeConcern": {"w": 1}})["code"] == 72


def test_build_info_says_what_it_is(admin: WireClient) -> None:
    reply = admin.ask({"buildinfo": 1})
    assert (reply["version"], reply["versionArray"]) == ("8.2.4", [8, 2, 4, 0])
    assert reply["bucketd"]["version"]
    assert admin.ask({"buildInfo": 1}) == reply
    assert admin.ask({"buildInfo": 1, "x": 1})["code"] == 40415


def test_server_status_has_its_sections(admin: WireClient) -> None:
    reply = admin.ask({"serverStatus": 1})
    assert reply["process"] == "mongod"
    assert reply["connections"]["current"] >= 1
    assert reply["mem"]["resident"] > 0
    assert reply["storageEngine"]["name"] == "lmdb"
    assert "mirroredReads" not in reply


@pytest.mark.parametrize(
    ("value", "there"), [(0, False), (None, False), (False, False), (1, True), ("x", True), ({}, True), ([], True)]
)
def test_sections_of_server_status_can_be_chosen(admin: WireClient, value: Any, there: bool) -> None:
    for section in ("metrics", "mirroredReads"):
        assert (section in admin.ask({"serverStatus": 1, section: value})) is there


def test_counters_count(start_server: Callable[..., ServerProcess]) -> None:
    # A server of its own: the monitors of drivers talk to the shared one at any moment.
    own = start_server()
    with WireClient(own.port, "admin") as alone:
        before = alone.ask({"serverStatus": 1})
        alone.ask({"ping": 1})
        alone.ask({"nonsense": 1})
        after = alone.ask({"serverStatus": 1})
    assert after["opcounters"]["command"] == before["opcounters"]["command"] + 3
    assert after["network"]["numRequests"] == before["network"]["numRequests"] + 3
    assert after["asserts"]["user"] == before["asserts"]["user"] + 1
    assert after["metrics"]["commands"]["ping"] == {"failed": 0, "total": 1}
    assert after["metrics"]["commands"]["<UNKNOWN>"] == 1


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ({"getParameter": 1}, 72),
        ({"getParameter": "foo"}, 72),
        ({"getParameter": 1, "LOGLEVEL": 1}, 72),
        ({"getParameter": {"showDetails": "x"}}, 14),
        ({"getParameter": {"allParameters": True, "setAt": "never"}}, 2),
        ({"getParameter": {"x": 1}, "logLevel": 1}, 40415),
        ({"setParameter": 1}, 72),
        ({"setParameter": 1, "featureCompatibilityVersion": "8.0"}, 20),
        ({"setParameter": 1, "port": 5}, 72),
        ({"getLog": "nothing"}, 96),
        ({"getLog": 5}, 14),
        ({"logRotate": "audit"}, 4),
        ({"logRotate": {}}, 14),
        ({"killOp": 1}, 4),
        ({"killOp": 1, "op": "x"}, 14),
        ({"killOp": 1, "op": 1.5}, 2),
        ({"killOp": 1, "op": Int64(2**31)}, 26823),
        ({"killOp": 1, "op": Decimal128("1E10")}, 26823),
        ({"profile": "x"}, 14),
        ({"profile": 0, "sampleRate": 2}, 2),
        ({"profile": 0, "filter": 5}, 2),
        ({"fsync": 1, "lock": "x"}, 14),
        ({"fsyncUnlock": 1}, 20),
        ({"replSetGetStatus": 1}, 76),
        ({"replSetGetConfig": 1}, 76),
        ({"replSetInitiate": {}}, 76),
        ({"getDefaultRWConcern": 1}, 51300),
        ({"setFeatureCompatibilityVersion": "9.9", "confirm": True}, 4926900),
        ({"setFeatureCompatibilityVersion": "8.2"}, 7369100),
        ({"mapReduce": "c"}, 115),
        ({"configureQueryAnalyzer": 1}, 238),
        ({"commitTransaction": 1}, 125),
        ({"testClock": 1, "advanceMillis": 1}, 59),
        ({"dropDatabase": 1}, 20),
        ({"dropDatabase": 2}, 5255100),
        ({"dbStats": 1, "scale": 0}, 2),
        ({"dbStats": 1, "scale": "x"}, 14),
        ({"dataSize": "nodot"}, 73),
        ({"dataSize": 5}, 14),
        ({"dropConnections": 1}, 40414),
        ({"dropConnections": 1, "hostAndPort": ["a:0"]}, 9),
        ({"killSessions": 5}, 14),
        ({"endSessions": [{"id": 5}]}, 14),
        ({"killAllSessions": [{"user": "x"}]}, 40414),
        ({"startSession": 1, "txnNumber": Int64(1), "lsid": {"id": Binary(b"x" * 16, 4)}}, 20),
        ({"ping": 1, "readConcern": {"level": "majority"}}, 72),
        ({"count": "c", "readConcern": {"level": "snapshot"}}, 72),
        ({"find": "c", "readConcern": {"level": "snapshot", "atClusterTime": Timestamp(0, 1)}}, 72),
        ({"ping": 1, "maxTimeMS": 1e300}, 9),
        ({"drop": "c", "writeConcern": {"w": Decimal128("1.5")}}, 2),
        ({"drop": "c", "writeConcern": {"w": {}}}, 9),
        ({"drop": "c", "writeConcern": {"w": {"dc": "x"}}}, 9),
        ({"drop": "c", "writeConcern": {"wtimeout": 2**31}}, 9),
    ],
    ids=str,
)
def test_refusals(admin: WireClient, command: Document, number: int) -> None:
    reply = admin.ask(command)
    assert (reply["ok"], reply["code"]) == (0.0, number), reply["errmsg"]


def test_parameters_are_told_with_details(admin: WireClient) -> None:
    reply = admin.ask({"getParameter": {"showDetails": True}, "logLevel": 1, "authSchemaVersion": 1})
    assert reply["logLevel"] == {"value": 0, "settableAtRuntime": True, "settableAtStartup": True}
    assert reply["authSchemaVersion"] == {"value": 5, "settableAtRuntime": False, "settableAtStartup": False}
    assert set(admin.ask({"getParameter": "*"})) == set(admin.ask({"getParameter": {"allParameters": True}}))


def test_log_is_told(admin: WireClient) -> None:
    assert admin.ask({"getLog": "*"})["names"] == ["global", "startupWarnings"]
    assert any("Connection accepted" in line for line in admin.ask({"getLog": "global"})["log"])
    assert admin.ask({"getLog": "startupWarnings"})["log"] == []


def test_profile_remembers(wire: WireClient) -> None:
    assert wire.ask({"profile": 1, "slowms": 50, "sampleRate": 0.5})["was"] == 0
    reply = wire.ask({"profile": 0, "slowms": 100, "sampleRate": 1.0})
    assert (reply["was"], reply["slowms"], reply["sampleRate"]) == (1, 50, 0.5)


def test_sessions_begin_and_end(admin: WireClient) -> None:
    session = admin.ask({"startSession": 1})
    assert session["timeoutMinutes"] == 30
    assert admin.ask({"refreshSessions": [session["id"]]})["ok"] == 1.0
    assert admin.ask({"endSessions": [session["id"], session["id"]]})["ok"] == 1.0
    before = admin.ask({"serverStatus": 1})["logicalSessionRecordCache"]["activeSessionsCount"]
    admin.ask({"refreshLogicalSessionCacheNow": 1})
    after = admin.ask({"serverStatus": 1})["logicalSessionRecordCache"]["activeSessionsCount"]
    assert after < before


def test_sessions_expire_with_time(start_server: Callable[..., ServerProcess]) -> None:
    own = start_server("--test-clock")
    with WireClient(own.port, "admin") as wire:
        wire.ask({"startSession": 1})
        before = wire.ask({"testClock": 1})["now"]
        after = wire.ask({"testClock": 1, "advanceMillis": 31 * 60_000})["now"]
        assert (after - before).total_seconds() == 31 * 60
        wire.ask({"refreshLogicalSessionCacheNow": 1})
        assert wire.ask({"serverStatus": 1})["logicalSessionRecordCache"]["activeSessionsCount"] == 0


def test_running_operation_is_seen_and_killed(server: ServerProcess, admin: WireClient) -> None:
    with WireClient(server.port, "admin") as locker, WireClient(server.port, "test_gate") as writer:
        assert locker.ask({"fsync": 1, "lock": True})["lockCount"] == 1
        try:
            writer.tell({"dropDatabase": 1, "comment": "held back"}, flags=0, request_id=7)
            found: list[Document] = []
            while not found:
                found = admin.ask({"currentOp": 1, "command.comment": "held back"})["inprog"]
            assert found[0]["active"] is True
            assert found[0]["ns"] == "test_gate.$cmd"
            assert admin.ask({"killOp": 1, "op": found[0]["opid"]})["ok"] == 1.0
            assert writer.receive().document["code"] == 11601
            writer.tell({"dropDatabase": 1, "maxTimeMS": 1}, flags=0, request_id=8)
            assert writer.receive().document["code"] == 50
        finally:
            assert locker.ask({"fsyncUnlock": 1})["lockCount"] == 0
        assert writer.ask({"dropDatabase": 1})["ok"] == 1.0


def test_list_commands_has_a_row_for_each(admin: WireClient) -> None:
    rows = admin.ask({"listCommands": 1})["commands"]
    assert set(rows) == {command.name for command in COMMANDS.values()}
    assert rows["ping"] == {
        "help": rows["ping"]["help"],
        "requiresAuth": False,
        "secondaryOk": True,
        "adminOnly": False,
        "apiVersions": ["1"],
        "deprecatedApiVersions": [],
    }


def test_top_counts_time(admin: WireClient) -> None:
    assert admin.ask({"top": 1})["totals"]["note"] == "all times in microseconds"


def test_empty_database_has_no_size(wire: WireClient) -> None:
    reply = wire.ask({"dbStats": 1, "freeStorage": 1, "$db": "nothing_here"})
    assert (reply["collections"], reply["dataSize"], reply["totalFreeStorageSize"]) == (0, 0.0, 0.0)
    assert "fsUsedSize" not in reply


def test_driver_sees_the_server(client: MongoClient[Document]) -> None:
    assert client.server_info()["version"] == "8.2.4"
    assert client.admin.command("hello")["maxWireVersion"] == 27
    with client.start_session() as session:
        assert client.admin.command("ping", session=session)["ok"] == 1.0


async def test_many_clients_at_once(server: ServerProcess) -> None:
    def talk() -> int:
        with WireClient(server.port) as wire:
            return sum(wire.ask({"ping": 1})["ok"] == 1.0 for _ in range(50))

    assert await asyncio.gather(*(asyncio.to_thread(talk) for _ in range(20))) == [50] * 20
