"""Malformed messages to a running server: each has its answer, and nobody else notices."""

import socket
import struct
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Int64

from bucketd.common.limits import MESSAGE_BYTES_MAX
from bucketd.kernels import crc32c
from bucketd.protocol.compression import COMPRESSORS, compress, decompress
from support.server_process import ServerProcess
from support.wire_client import (
    CHECKSUM_PRESENT,
    MORE_TO_COME,
    OP_COMPRESSED,
    OP_MSG,
    OP_REPLY,
    Closed,
    WireClient,
    body_section,
    message,
    query,
    sequence_section,
    with_header,
)

PING = {"ping": 1, "$db": "admin"}


def answers_ping(wire: WireClient) -> bool:
    return bool(wire.ask({"ping": 1})["ok"] == 1.0)


@pytest.mark.parametrize(
    ("content", "number"),
    [
        pytest.param(message(body_section(PING), body_section(PING)), 40430, id="two bodies"),
        pytest.param(
            message(body_section(PING), sequence_section("a", []), sequence_section("a", [])),
            40431,
            id="two sequences of one name",
        ),
        pytest.param(message(body_section(PING), b"\x05"), 40432, id="unknown kind of section"),
        pytest.param(
            message(body_section({"insert": "c", "documents": [], "$db": "d"}), sequence_section("documents", [])),
            40433,
            id="a field in body and sequence",
        ),
        pytest.param(message(), 40587, id="no body"),
        pytest.param(message(flags=CHECKSUM_PRESENT, tail=b"ab"), 51251, id="no room for the checksum"),
        pytest.param(message(b"\0" + b"\xff\0\0\0\0"), 22, id="body beyond the message"),
        pytest.param(message(b"\0\x0c\0\0\0\x10a\0\x01\0\0\0"), 22, id="body without an end"),
        pytest.param(message(body_section({"ping": 1})), 40571, id="no $db"),
        pytest.param(message(body_section({})), 40571, id="nothing at all"),
        pytest.param(message(body_section({"ping": 1, "$db": 5})), 14, id="$db is a number"),
        pytest.param(message(body_section({"ping": 1, "$db": ""})), 73, id="$db is empty"),
        pytest.param(message(body_section({"ping": 1, "$db": "a.b"})), 73, id="$db has a dot"),
        pytest.param(message(body_section({"ping": 1, "$db": "a b"})), 73, id="$db has a space"),
        pytest.param(message(body_section({"ping": 1, "$db": "a$b"})), 73, id="$db has a dollar"),
        pytest.param(message(body_section({"ping": 1, "$db": "x" * 64})), 73, id="$db is too long"),
        pytest.param(message(body_section({"$db": "admin", "ping": 1})), 59, id="$db stands first"),
        pytest.param(message(body_section({"Ping": 1, "$db": "admin"})), 59, id="unknown command"),
        pytest.param(message(b"\0" + bson.encode(PING)[:4] + b"\xfe" + bson.encode(PING)[5:]), 22, id="unknown type"),
    ],
)
def test_error_and_the_connection_goes_on(wire: WireClient, content: bytes, number: int) -> None:
    reply = wire.ask_raw(content)
    assert (reply.document["ok"], reply.document["code"]) == (0.0, number)
    assert reply.response_to == 1
    assert answers_ping(wire)


@pytest.mark.parametrize(
    ("content", "number"),
    [
        pytest.param(message(body_section(PING), flags=1 << 5), 223, id="unknown flag"),
        pytest.param(message(body_section(PING), *(sequence_section(n, []) for n in "abc")), 233, id="three sequences"),
        pytest.param(message(body_section(PING), flags=CHECKSUM_PRESENT, tail=b"\0\0\0\0"), 288, id="wrong checksum"),
    ],
)
def test_error_and_the_connection_ends(wire: WireClient, content: bytes, number: int) -> None:
    assert wire.ask_raw(content).document["code"] == number
    assert wire.is_closed()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(struct.pack("<iiii", 15, 1, 0, OP_MSG), id="length below 16"),
        pytest.param(struct.pack("<iiii", -1, 1, 0, OP_MSG), id="negative length"),
        pytest.param(struct.pack("<iiii", MESSAGE_BYTES_MAX + 1, 1, 0, OP_MSG), id="length above the limit"),
        *(
            pytest.param(with_header(op_code, b"\0" * 30), id=f"operation {op_code}")
            for op_code in (0, 1, 1000, 2001, 2002, 2005, 2006, 2007, 2010, 2011, 2014, -5)
        ),
        pytest.param(with_header(OP_COMPRESSED, struct.pack("<iiB", OP_COMPRESSED, 0, 0)), id="nested compression"),
        pytest.param(with_header(OP_COMPRESSED, struct.pack("<iiB", OP_MSG, 5, 0) + b"abcde"), id="not negotiated"),
        pytest.param(with_header(2004, b"\0\0\0\0no end"), id="cut off OP_QUERY"),
    ],
)
def test_connection_ends_without_a_word(wire: WireClient, content: bytes) -> None:
    wire.send(content)
    assert wire.is_closed()


def test_others_do_not_notice(server: ServerProcess, wire: WireClient) -> None:
    for _ in range(20):
        with WireClient(server.port) as other:
            other.send(b"\xff" * 100)
            assert other.is_closed()
        assert answers_ping(wire)


def test_a_message_in_single_bytes_is_a_message(wire: WireClient) -> None:
    for byte in message(body_section(PING), request_id=5):
        wire.send(bytes([byte]))
    assert wire.receive().response_to == 5


def test_requests_that_come_together_are_answered_in_order(wire: WireClient) -> None:
    wire.send(b"".join(message(body_section(PING), request_id=number) for number in range(1, 101)))
    assert [wire.receive().response_to for _ in range(100)] == list(range(1, 101))


def test_what_was_sent_before_the_end_is_answered(wire: WireClient) -> None:
    wire.send(message(body_section(PING), request_id=3))
    wire.end_input()
    assert wire.receive().response_to == 3
    assert wire.is_closed()


def test_request_without_reply_gets_none_not_even_an_error(wire: WireClient) -> None:
    wire.tell({"ping": 1})
    wire.tell({"nonsense": 1})
    wire.send(message(body_section(PING), body_section(PING), flags=MORE_TO_COME))
    assert answers_ping(wire)


def test_body_may_come_last(wire: WireClient) -> None:
    reply = wire.ask_raw(message(sequence_section("x", []), body_section({"nonsense": 1, "$db": "a"})))
    assert reply.document["code"] == 59


def test_checksum_is_answered_with_a_checksum(wire: WireClient) -> None:
    content = message(body_section(PING), flags=CHECKSUM_PRESENT)
    content = struct.pack("<i", len(content) + 4) + content[4:]
    reply = wire.ask_raw(content + struct.pack("<I", crc32c(content)))
    assert reply.document["ok"] == 1.0
    assert reply.flags & CHECKSUM_PRESENT
    assert struct.unpack("<I", reply.raw[-4:])[0] == crc32c(reply.raw[:-4])


def nested(levels: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for _ in range(levels):
        document = {"a": document}
    return document


def test_nesting_has_a_limit(wire: WireClient) -> None:
    assert wire.ask({"ping": 1, "comment": nested(190)})["ok"] == 1.0
    assert wire.ask({"ping": 1, "comment": nested(250)})["code"] == 15
    assert answers_ping(wire)


def test_a_field_may_stand_but_once(wire: WireClient) -> None:
    first, second = bson.encode({"ping": 1, "comment": 1}), bson.encode({"comment": 2, "$db": "admin"})
    elements = first[4:-1] + second[4:-1]
    raw = struct.pack("<i", len(elements) + 5) + elements + b"\0"
    assert wire.ask_raw(message(b"\0" + raw)).document["code"] == 40413


@pytest.mark.parametrize("compressor", COMPRESSORS[1:], ids=lambda compressor: compressor.name)
def test_compressed_requests_get_compressed_replies(wire: WireClient, compressor: Any) -> None:
    hello = wire.ask({"hello": 1, "compression": ["none", compressor.name]})
    assert hello["compression"] == [compressor.name]
    plain = message(body_section({"buildInfo": 1, "$db": "admin"}), request_id=9)
    reply = wire.ask_raw(compress(plain, compressor))
    assert reply.op_code == OP_COMPRESSED
    opened, used = decompress(reply.raw, [compressor.name])
    assert used is compressor
    assert bson.decode(opened[21:])["version"] == "8.2.4"
    assert struct.unpack_from("<i", opened, 8) == (9,)


def test_hello_is_never_compressed(wire: WireClient) -> None:
    wire.ask({"hello": 1, "compression": ["zlib"]})
    reply = wire.ask_raw(compress(message(body_section({"hello": 1, "$db": "admin"})), COMPRESSORS[2]))
    assert reply.op_code == OP_MSG


def test_compression_bomb_ends_the_connection(wire: WireClient) -> None:
    wire.ask({"hello": 1, "compression": ["zlib"]})
    bomb = COMPRESSORS[2].compress(bytes(100_000_000))
    wire.send(with_header(OP_COMPRESSED, struct.pack("<iiB", OP_MSG, 1000, 2) + bomb))
    assert wire.is_closed()


@pytest.mark.parametrize(
    ("namespace", "document", "wanted", "number"),
    [
        ("admin.$cmd", {"ismaster": 1}, 5, 16979),
        ("admin.$cmd", {"find": "x"}, -1, 352),
        ("admin.$cmd", {"ismaster": 1, "$db": "admin"}, -1, 40621),
        ("db.collection", {}, -1, 5739101),
    ],
)
def test_legacy_query_is_told_why_not(
    wire: WireClient, namespace: str, document: dict[str, Any], wanted: int, number: int
) -> None:
    reply = wire.ask_raw(query(namespace, document, wanted=wanted, request_id=6))
    assert (reply.op_code, reply.response_to, reply.document["code"]) == (OP_REPLY, 6, number)
    assert answers_ping(wire)


@pytest.mark.parametrize("name", ["ismaster", "isMaster", "hello"])
def test_legacy_hello_is_answered(wire: WireClient, name: str) -> None:
    reply = wire.ask_raw(query("admin.$cmd", {name: 1, "helloOk": True}, request_id=6))
    assert (reply.op_code, reply.flags, reply.response_to) == (OP_REPLY, 8, 6)
    assert reply.document["maxWireVersion"] == 27


def test_connections_beyond_the_cap_are_refused(start_server: Callable[..., ServerProcess]) -> None:
    own = start_server("--maxConns", "2")
    with WireClient(own.port) as first, WireClient(own.port) as second:
        assert answers_ping(first)
        assert answers_ping(second)
        with WireClient(own.port) as third:
            assert third.is_closed()
        status = first.ask({"serverStatus": 1})["connections"]
        assert (status["current"], status["available"], status["rejected"]) == (2, 0, Int64(1))


def test_client_that_reads_nothing_stops_only_itself(server: ServerProcess, wire: WireClient) -> None:
    slow = socket.create_connection(("127.0.0.1", server.port), timeout=1)
    request = message(body_section({"listCommands": 1, "comment": "x" * 10_000, "$db": "admin"}))
    try:
        # More than the buffers of both ends hold: the server stops taking requests from this connection.
        for _ in range(20_000):
            slow.send(request)
    except TimeoutError:
        pass
    else:
        pytest.fail("the server kept on reading")
    finally:
        assert answers_ping(wire)
        slow.close()
    assert answers_ping(wire)


def test_stop_tells_whoever_watches(start_server: Callable[..., ServerProcess]) -> None:
    own = start_server()
    with WireClient(own.port) as watcher, WireClient(own.port) as idle:
        version = idle.ask({"hello": 1})["topologyVersion"]
        watcher.tell({"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000}, flags=1 << 16)
        assert idle.ask({"ping": 1})["ok"] == 1.0
        assert own.stop() == 0
        reply = watcher.receive()
        assert reply.document["code"] == 91
        assert reply.document["topologyVersion"]["counter"] == version["counter"] + 1
        with pytest.raises(Closed):
            watcher.receive()
        assert idle.is_closed()
