"""hello in all its forms, and the small commands of a first contact."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Int64, ObjectId

from support.server_process import ServerProcess
from support.wire_client import EXHAUST_ALLOWED, MORE_TO_COME, WireClient

METADATA = {
    "driver": {"name": "test", "version": "1"},
    "os": {"type": "Linux"},
    "application": {"name": "a test"},
    "more": {"anything": 1},
}


def without(path: str) -> dict[str, Any]:
    document: dict[str, Any] = {name: dict(value) for name, value in METADATA.items()}
    name, _, field = path.partition(".")
    if field:
        del document[name][field]
    else:
        del document[name]
    return document


def test_hello_tells_what_a_standalone_server_is(wire: WireClient) -> None:
    reply = wire.ask({"hello": 1})
    assert list(reply) == [
        "isWritablePrimary",
        "topologyVersion",
        "maxBsonObjectSize",
        "maxMessageSizeBytes",
        "maxWriteBatchSize",
        "localTime",
        "logicalSessionTimeoutMinutes",
        "connectionId",
        "minWireVersion",
        "maxWireVersion",
        "readOnly",
        "ok",
    ]
    assert (reply["minWireVersion"], reply["maxWireVersion"]) == (0, 27)
    assert (reply["maxBsonObjectSize"], reply["maxMessageSizeBytes"]) == (16777216, 48000000)
    assert (reply["isWritablePrimary"], reply["readOnly"], reply["ok"]) == (True, False, 1.0)


@pytest.mark.parametrize("name", ["isMaster", "ismaster"])
def test_the_older_names_answer_the_older_way(wire: WireClient, name: str) -> None:
    reply = wire.ask({name: 1})
    assert reply["ismaster"] is True
    assert "isWritablePrimary" not in reply
    assert "helloOk" not in reply
    assert wire.ask({name: 1, "helloOk": True})["helloOk"] is True


@pytest.mark.parametrize("name", ["Hello", "ISMASTER", "isWritablePrimary"])
def test_names_are_case_sensitive(wire: WireClient, name: str) -> None:
    assert wire.ask({name: 1})["errmsg"] == f"no such command: '{name}'"


def test_fields_that_hello_does_not_know_are_ignored(wire: WireClient) -> None:
    assert wire.ask({"hello": 1, "backpressure": "2", "loadBalanced": True, "hostInfo": "x"})["ok"] == 1.0


def test_each_connection_has_a_number(server: ServerProcess, wire: WireClient) -> None:
    with WireClient(server.port) as other:
        assert other.ask({"hello": 1})["connectionId"] > wire.ask({"hello": 1})["connectionId"]


def test_metadata_is_taken_once(wire: WireClient) -> None:
    assert wire.ask({"hello": 1, "client": METADATA})["ok"] == 1.0
    assert wire.ask({"hello": 1})["ok"] == 1.0
    assert wire.ask({"hello": 1, "client": METADATA})["code"] == 186


@pytest.mark.parametrize(
    ("metadata", "number"),
    [
        pytest.param(METADATA | {"more": "x" * 512}, 185, id="too large"),
        pytest.param(METADATA | {"application": {"name": "x" * 129}}, 184, id="long name of the application"),
        pytest.param(without("driver"), 183, id="no driver"),
        pytest.param(without("driver.name"), 183, id="no name of the driver"),
        pytest.param(without("driver.version"), 183, id="no version of the driver"),
        pytest.param(without("os"), 183, id="no os"),
        pytest.param(without("os.type"), 183, id="no type of the os"),
        pytest.param("text", 14, id="a string"),
        pytest.param(METADATA | {"driver": 5}, 14, id="driver is a number"),
        pytest.param(METADATA | {"application": {"name": 5}}, 14, id="name of the application is a number"),
    ],
)
def test_metadata_that_cannot_be(wire: WireClient, metadata: Any, number: int) -> None:
    assert wire.ask({"hello": 1, "client": metadata})["code"] == number
    assert wire.ask({"hello": 1, "client": METADATA})["ok"] == 1.0


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (["zlib", "snappy"], ["zlib", "snappy"]),
        (["none"], None),
        ([], None),
        (["lz4", "zstd"], ["zstd"]),
    ],
)
def test_compressors_are_agreed_upon(wire: WireClient, offered: list[str], agreed: list[str] | None) -> None:
    assert wire.ask({"hello": 1, "compression": offered}).get("compression") == agreed


def version_of(wire: WireClient) -> dict[str, Any]:
    version: dict[str, Any] = wire.ask({"hello": 1})["topologyVersion"]
    return version


def test_hello_answers_at_once_where_the_topology_is_another(wire: WireClient) -> None:
    version = {"processId": ObjectId(), "counter": Int64(0)}
    assert wire.ask({"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000})["ok"] == 1.0


def test_hello_waits_as_long_as_it_is_allowed(wire: WireClient) -> None:
    reply = wire.ask({"hello": 1, "topologyVersion": version_of(wire), "maxAwaitTimeMS": 20})
    assert reply["ok"] == 1.0


def test_hello_streams_to_who_allows_it(wire: WireClient) -> None:
    version = version_of(wire)
    wire.tell(
        {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 5},
        flags=EXHAUST_ALLOWED,
        request_id=1000,
    )
    previous = 1000
    for _ in range(5):
        reply = wire.receive()
        assert reply.response_to == previous
        assert reply.flags & MORE_TO_COME
        assert reply.document["ok"] == 1.0
        previous = reply.request_id


def test_who_disconnects_ends_the_stream(start_server: Callable[..., ServerProcess]) -> None:
    own = start_server()
    with WireClient(own.port) as wire:
        version = version_of(wire)
        with WireClient(own.port) as watcher:
            watcher.tell({"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000}, flags=EXHAUST_ALLOWED)
            while awaiting(wire) == 0:
                pass
        while awaiting(wire) > 0:
            pass


def awaiting(wire: WireClient) -> int:
    count: int = wire.ask({"serverStatus": 1})["connections"]["awaitingTopologyChanges"]
    return count


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"topologyVersion": {"processId": ObjectId(), "counter": Int64(0)}}, 31368),
        ({"maxAwaitTimeMS": 5}, 51759),
        ({"topologyVersion": {"processId": ObjectId(), "counter": Int64(-1)}, "maxAwaitTimeMS": 5}, 31372),
        ({"topologyVersion": {"processId": ObjectId(), "counter": Int64(0)}, "maxAwaitTimeMS": -1}, 31373),
        ({"topologyVersion": {"processId": ObjectId(), "counter": 0}, "maxAwaitTimeMS": 5}, 14),
        ({"topologyVersion": {"processId": 5, "counter": Int64(0)}, "maxAwaitTimeMS": 5}, 14),
        ({"topologyVersion": {"counter": Int64(0)}, "maxAwaitTimeMS": 5}, 40414),
        ({"topologyVersion": {"processId": ObjectId()}, "maxAwaitTimeMS": 5}, 40414),
        ({"topologyVersion": 5, "maxAwaitTimeMS": 5}, 14),
        (
            {"topologyVersion": {"processId": ObjectId(), "counter": Int64(0), "x": 1}, "maxAwaitTimeMS": 5},
            40415,
        ),
        ({"topologyVersion": {"processId": ObjectId(), "counter": Int64(0)}, "maxAwaitTimeMS": "x"}, 14),
    ],
)
def test_awaiting_wrongly(wire: WireClient, fields: dict[str, Any], number: int) -> None:
    assert wire.ask({"hello": 1, **fields})["code"] == number


def test_a_counter_from_the_future_is_refused(wire: WireClient) -> None:
    version = version_of(wire) | {"counter": Int64(99)}
    assert wire.ask({"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 5})["code"] == 31382


def test_ping_knows_no_fields(wire: WireClient) -> None:
    assert wire.ask({"ping": 1})["ok"] == 1.0
    assert wire.ask({"ping": {"any": "value"}, "comment": 5})["ok"] == 1.0
    assert wire.ask({"ping": 1, "unknown": 1})["code"] == 40415


def test_whatsmyuri_tells_the_address(wire: WireClient) -> None:
    assert wire.ask({"whatsmyuri": 1})["you"].startswith("127.0.0.1:")


def test_connection_status_of_nobody(wire: WireClient) -> None:
    reply = wire.ask({"connectionStatus": 1, "showPrivileges": True})
    assert reply["authInfo"] == {
        "authenticatedUsers": [],
        "authenticatedUserRoles": [],
        "authenticatedUserPrivileges": [],
    }
