"""OP_QUERY: hello gets through, everything else is told why not."""

import struct

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.protocol.framing import BrokenStream
from bucketd.protocol.legacy import NotACommand, build_query_failure, build_reply, parse_query
from support.wire_client import OP_QUERY, query, with_header


@pytest.mark.parametrize("name", ["hello", "isMaster", "ismaster"])
@pytest.mark.parametrize("wanted", [1, -1])
def test_hello_gets_through(name: str, wanted: int) -> None:
    found = parse_query(query("admin.$cmd", {name: 1, "helloOk": True}, wanted=wanted, request_id=8))
    assert (found.name, found.database, found.request_id) == (name, "admin", 8)
    assert bson.decode(found.body) == {name: 1, "helloOk": True}


@pytest.mark.parametrize("wrapper", ["$query", "query"])
def test_a_wrapped_command_is_unwrapped(wrapper: str) -> None:
    found = parse_query(query("admin.$cmd", {wrapper: {"ismaster": 1}, "$readPreference": {"mode": "nearest"}}))
    assert bson.decode(found.body) == {"ismaster": 1}


@pytest.mark.parametrize(
    ("document", "wanted", "number"),
    [
        ({"hello": 1}, 0, 16979),
        ({"hello": 1}, 2, 16979),
        ({"ping": 1}, -1, 352),
        ({}, -1, 352),
        ({"find": "x"}, 1, 352),
        ({"hello": 1, "$db": "admin"}, -1, 40621),
    ],
)
def test_other_commands_are_refused(document: dict[str, object], wanted: int, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parse_query(query("admin.$cmd", document, wanted=wanted))
    assert caught.value.number == number


def test_a_query_is_no_command() -> None:
    with pytest.raises(NotACommand):
        parse_query(query("db.collection", {}))


def test_replies_have_the_old_form() -> None:
    reply = build_reply(bson.encode({"ok": 1.0}), request_id=4, response_to=3)
    assert struct.unpack_from("<iiiiiqii", reply) == (len(reply), 4, 3, 1, 8, 0, 0, 1)
    failure = build_query_failure(request_id=4, response_to=3)
    assert struct.unpack_from("<i", failure, 16) == (2,)
    assert bson.decode(failure[36:])["code"] == 5739101


@given(st.binary(max_size=120))
def test_any_bytes_parse_or_are_refused(content: bytes) -> None:
    try:
        parse_query(with_header(OP_QUERY, content))
    except (MongoError, BrokenStream, NotACommand):
        return


@given(st.binary(max_size=60), st.integers(min_value=-(2**31), max_value=2**31 - 1))
def test_any_document_parses_or_is_refused(content: bytes, wanted: int) -> None:
    head = struct.pack("<i", 0) + b"admin.$cmd\0" + struct.pack("<ii", 0, wanted)
    raw = struct.pack("<i", len(content) + 5) + content + b"\0"
    try:
        parse_query(with_header(OP_QUERY, head + raw))
    except (MongoError, BrokenStream, NotACommand):
        return
