"""Clients that say nothing, never finish, never listen, come too often or want too much: dropped, delayed or refused."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from bucketd.protocol.compression import COMPRESSORS, compress
from support.server_process import ServerProcess
from support.wire_client import Closed, WireClient, body_section, message

Start = Callable[..., ServerProcess]
Client = MongoClient[dict[str, Any]]
LABELS = {"SystemOverloadedError", "RetryableError", "NoWritesPerformed"}


def parameters(**values: Any) -> list[str]:
    return [word for name, value in values.items() for word in ("--setParameter", f"{name}={value}")]


def limits(server: ServerProcess) -> dict[str, int]:
    with WireClient(server.port, "admin") as wire:
        told: dict[str, int] = wire.ask({"serverStatus": 1})["bucketd"]["limits"]
    return told


def ends(connected: socket.socket) -> bool:
    """Whether the server closes the connection; waits for it to do so."""
    try:
        while connected.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return True


def test_who_says_nothing_or_does_not_finish_is_dropped(start_server: Start) -> None:
    own = start_server(*parameters(bucketdHandshakeTimeoutMillis=100, bucketdMessageTimeoutMillis=100))
    address = ("127.0.0.1", own.port)
    with socket.create_connection(address, timeout=30) as silent:
        assert ends(silent)
    with socket.create_connection(address, timeout=30) as slow:
        slow.send(message(body_section({"ping": 1, "$db": "admin"})) + struct.pack("<iiii", 1000, 1, 0, 2013))
        assert ends(slow)
    counted = limits(own)
    assert counted["handshakesTimedOut"] == 1
    assert counted["messagesTimedOut"] == 1


def test_who_never_reads_is_dropped_and_others_are_served(start_server: Start) -> None:
    own = start_server(*parameters(bucketdWriteTimeoutMillis=100))
    with WireClient(own.port) as wire:
        wire.ask({"insert": "t", "documents": [{"text": "x" * 1_000_000} for _ in range(10)]})
    with socket.create_connection(("127.0.0.1", own.port), timeout=30) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for number in range(4):
            deaf.sendall(message(body_section({"find": "t", "$db": "test"}), request_id=number + 1))
        while not limits(own)["writesTimedOut"]:
            pass
    assert own.errors() == []


def test_idle_strangers_are_dropped_and_who_has_logged_in_stays(start_server: Start) -> None:
    own = start_server("--auth", *parameters(bucketdUnauthenticatedIdleMillis=100))
    with Client(own.uri) as first:
        first.admin.command("createUser", "boss", pwd="x", roles=["root"])
    with Client(own.uri, username="boss", password="x", maxPoolSize=1) as boss:
        created = boss.admin.command("serverStatus")["connections"]["totalCreated"]
        with WireClient(own.port) as stranger:
            assert stranger.ask({"ping": 1})["ok"] == 1.0
            assert stranger.is_closed()
        status = boss.admin.command("serverStatus")
        assert status["bucketd"]["limits"]["unauthenticatedIdleClosed"] >= 1
        who = boss.admin.command("whatsmyuri")["you"]
        assert who == boss.admin.command("whatsmyuri")["you"]
        assert status["connections"]["totalCreated"] > created


def test_strangers_send_small_messages_only(start_server: Start) -> None:
    own = start_server("--auth")
    with Client(own.uri) as first:
        first.admin.command("createUser", "boss", pwd="x", roles=["root"])
    large = {"ping": 1, "comment": "x" * 20_000, "$db": "admin"}
    with WireClient(own.port) as wire, pytest.raises(Closed):
        wire.ask(large)
    with WireClient(own.port) as wire:
        wire.ask({"hello": 1, "compression": ["zlib"]})
        zlib = next(compressor for compressor in COMPRESSORS if compressor.name == "zlib")
        wire.send(compress(message(body_section(large)), zlib))
        assert wire.is_closed()
    with Client(own.uri, username="boss", password="x") as boss:
        assert boss.admin.command(large)["ok"] == 1.0
        assert boss.admin.command("serverStatus")["bucketd"]["limits"]["unauthenticatedOversized"] == 2


def test_strangers_are_slowed_down(start_server: Start) -> None:
    own = start_server("--auth", *parameters(bucketdUnauthenticatedRequestsPerSecond=10))
    with WireClient(own.port) as wire:
        # The burst of ten seconds, and a little more.
        assert all(wire.ask({"ping": 1})["ok"] == 1.0 for _ in range(102))
    with Client(own.uri) as first:
        first.admin.command("createUser", "boss", pwd="x", roles=["root"])
    with Client(own.uri, username="boss", password="x") as boss:
        assert boss.admin.command("serverStatus")["bucketd"]["limits"]["unauthenticatedDelayed"] >= 2


def test_a_rate_of_requests_is_kept_with_an_error_to_try_again_on(start_server: Start) -> None:
    own = start_server()
    with WireClient(own.port, "admin") as wire:
        wire.ask(
            {
                "setParameter": 1,
                "ingressRequestAdmissionRatePerSec": 1,
                "ingressRequestAdmissionBurstCapacitySecs": 3.0,
                "ingressRequestRateLimiterEnabled": True,
            }
        )
        replies = [wire.ask({"ping": 1}) for _ in range(5)]
        refused = next(reply for reply in replies if not reply["ok"])
        assert (refused["code"], refused["codeName"]) == (462, "IngressRequestRateLimitExceeded")
        assert set(refused["errorLabels"]) == LABELS
        while not (status := wire.ask({"serverStatus": 1}))["ok"]:
            pass
    counted = status["network"]["ingressRequestRateLimiter"]
    assert counted["rejectedAdmissions"] >= 1
    assert counted["attemptedAdmissions"] == counted["rejectedAdmissions"] + counted["successfulAdmissions"]


class Started(CommandListener):
    """How often the driver sent a find."""

    count = 0

    def started(self, event: CommandStartedEvent) -> None:
        self.count += event.command_name == "find"

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


def test_a_driver_tries_again_what_was_shed(start_server: Start) -> None:
    own = start_server()
    seen = Started()
    with Client(own.uri, event_listeners=[seen]) as client:
        client["db"]["t"].insert_one({"_id": 0})
        with WireClient(own.port, "admin") as wire:
            wire.ask(
                {
                    "setParameter": 1,
                    "ingressRequestAdmissionRatePerSec": 20,
                    "ingressRequestAdmissionBurstCapacitySecs": 0.1,
                    "ingressRequestRateLimiterEnabled": True,
                }
            )
        finds = 0
        while seen.count == finds:
            finds += 1
            # The driver gives up after a few times; that it tries again at all is told by the labels.
            with suppress(OperationFailure):
                assert client["db"]["t"].find_one() == {"_id": 0}
    assert seen.count > finds


def test_short_of_memory_only_the_indispensable_is_answered(start_server: Start) -> None:
    own = start_server()
    with WireClient(own.port) as wire:
        wire.ask({"insert": "t", "documents": [{"_id": number} for number in range(10)]})
        opened = wire.ask({"find": "t", "batchSize": 2})["cursor"]
        wire.ask({"setParameter": 1, "bucketdMemoryLimitMiB": 1, "$db": "admin"})
        while (shed := wire.ask({"insert": "t", "documents": [{}]}))["ok"]:
            pass
        assert (shed["code"], set(shed["errorLabels"])) == (462, LABELS)
        # What has begun is brought to its end, and who wants to help is let in.
        rest = wire.ask({"getMore": opened["id"], "collection": "t"})
        assert rest["cursor"]["nextBatch"][0] == {"_id": 2}
        assert limits(own)["requestsShedForMemory"] >= 1
        wire.ask({"setParameter": 1, "bucketdMemoryLimitMiB": 0, "$db": "admin"})
        while not wire.ask({"insert": "t", "documents": [{}]})["ok"]:
            pass
    assert own.errors() == []


def test_cursors_and_sessions_have_an_end(start_server: Start) -> None:
    own = start_server(*parameters(bucketdMaxOpenCursors=2, maxSessions=3))
    with WireClient(own.port) as wire:
        wire.ask({"insert": "t", "documents": [{} for _ in range(10)]})
        replies = [wire.ask({"find": "t", "batchSize": 2}) for _ in range(3)]
        assert [reply["ok"] for reply in replies] == [1.0, 1.0, 0.0]
        assert replies[-1]["code"] == 462
        wire.ask({"killCursors": "t", "cursors": [replies[0]["cursor"]["id"]]})
        assert wire.ask({"find": "t", "batchSize": 2})["ok"] == 1.0

        def use(number: int) -> Any:
            return wire.ask({"ping": 1, "lsid": {"id": bson.Binary(number.to_bytes(16, "big"), 4)}}).get("code")

        assert [use(number) for number in range(4)] == [None, None, None, 261]
    counted = limits(own)
    assert (counted["cursorsRefused"], counted["sessionsRefused"]) == (1, 1)


def test_connections_that_come_too_fast(start_server: Start) -> None:
    own = start_server(
        *parameters(
            ingressConnectionEstablishmentRateLimiterEnabled="true",
            ingressConnectionEstablishmentRatePerSec=5,
            ingressConnectionEstablishmentBurstCapacitySecs=0.4,
            ingressConnectionEstablishmentMaxQueueDepth=2,
        )
    )
    connected = [WireClient(own.port) for _ in range(8)]
    answered = 0
    for wire in connected:
        with suppress(Closed, OSError):
            answered += wire.ask({"ping": 1})["ok"] == 1.0
    status = next(wire for wire in connected).ask({"serverStatus": 1, "$db": "admin"})
    rejected = status["connections"]["establishmentRateLimit"]["rejected"]
    assert answered == 8 - rejected
    assert rejected >= 1
    assert status["connections"]["rejected"] == rejected
    queue = status["queues"]["ingressSessionEstablishment"]
    assert queue["addedToQueue"] == queue["removedFromQueue"] >= 1
    for wire in connected:
        wire.close()


def test_connections_have_an_end(start_server: Start) -> None:
    own = start_server("--maxConns", "2")
    with WireClient(own.port) as first, WireClient(own.port) as second:
        assert first.ask({"ping": 1})["ok"] == second.ask({"ping": 1})["ok"] == 1.0
        with WireClient(own.port) as third:
            assert third.is_closed()
        status = first.ask({"serverStatus": 1, "$db": "admin"})["connections"]
        assert (status["current"], status["available"], status["rejected"]) == (2, 0, 1)


def test_unfinished_messages_wait_for_room_and_all_come_to_their_end(start_server: Start) -> None:
    # Twelve messages of twelve million bytes each, begun at one time, where four have room.
    own = start_server("--maxInFlightBytes", "48000000")
    whole = message(body_section({"ping": 1, "comment": "x" * 12_000_000, "$db": "admin"}))
    connected = [WireClient(own.port) for _ in range(12)]
    for wire in connected:
        wire.send(whole[:100_000])
    for wire in reversed(connected):
        # Whoever has no room yet is not read: what does not fit into the buffers of the system waits in a thread.
        _send_later(wire, whole[100_000:])
    assert all(wire.receive().document["ok"] == 1.0 for wire in connected)
    for wire in connected:
        wire.close()
    assert limits(own)["readsPaused"] >= 1


def _send_later(wire: WireClient, rest: bytes) -> None:
    threading.Thread(target=wire.send, args=(rest,), daemon=True).start()
