"""OP_MSG: what is well formed comes apart as it was put together, and nothing else gets through."""

import struct
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.kernels import crc32c
from bucketd.protocol.documents import array_documents, elements, split_documents
from bucketd.protocol.messages import (
    Message,
    build_message,
    closes_connection,
    parse_message,
)
from support.wire_client import (
    CHECKSUM_PRESENT,
    EXHAUST_ALLOWED,
    MORE_TO_COME,
    body_section,
    message,
    sequence_section,
)

PING = {"ping": 1, "$db": "admin"}


def code_of(content: bytes) -> int:
    with pytest.raises(MongoError) as caught:
        parse_message(content)
    return caught.value.number


def with_checksum(content: bytes) -> bytes:
    return content + struct.pack("<I", crc32c(content))


def longer(content: bytes, by: int) -> bytes:
    """The message with a length that says so many bytes more."""
    return struct.pack("<i", len(content) + by) + content[4:]


def test_body_and_sequences_come_apart() -> None:
    documents: list[dict[str, Any]] = [{"_id": 1}, {"_id": 2, "text": "x" * 300}]
    found = parse_message(
        message(
            sequence_section("documents", documents),
            body_section({"insert": "c", "$db": "d"}),
            sequence_section("other", []),
            flags=EXHAUST_ALLOWED,
            request_id=9,
        )
    )
    assert bson.decode(found.body) == {"insert": "c", "$db": "d"}
    assert [bson.decode(raw) for raw in split_documents(found.sequences["documents"])] == documents
    assert found.sequences["other"] == b""
    assert (found.request_id, found.exhaust_allowed, found.wants_reply) == (9, True, True)


def test_more_to_come_wants_no_reply() -> None:
    assert not parse_message(message(body_section(PING), flags=MORE_TO_COME)).wants_reply


def test_optional_bits_that_nobody_knows_are_ignored() -> None:
    assert parse_message(message(body_section(PING), flags=0xFFFE_0000)).body == bson.encode(PING)


@pytest.mark.parametrize(
    ("content", "number"),
    [
        pytest.param(message(body_section(PING), body_section(PING)), 40430, id="two bodies"),
        pytest.param(
            message(body_section(PING), sequence_section("a", []), sequence_section("a", [])),
            40431,
            id="two sequences of one name",
        ),
        pytest.param(message(body_section(PING), b"\x03" + bson.encode({})), 40432, id="unknown kind of section"),
        pytest.param(message(body_section(PING), b"\x02" + bson.encode({})), 13, id="security token"),
        pytest.param(message(), 40587, id="no section"),
        pytest.param(message(sequence_section("a", [])), 40587, id="no body"),
        pytest.param(message(body_section(PING), flags=1 << 2), 223, id="unknown required flag"),
        pytest.param(message(body_section(PING), flags=1 << 15), 223, id="another unknown required flag"),
        pytest.param(
            message(body_section(PING), *(sequence_section(name, []) for name in "abc")),
            233,
            id="too many sequences",
        ),
        pytest.param(message(flags=CHECKSUM_PRESENT, tail=b"ab"), 51251, id="no room for the checksum"),
        pytest.param(message(body_section(PING), flags=CHECKSUM_PRESENT, tail=b"\0\0\0\0"), 288, id="wrong checksum"),
        pytest.param(message(b"\0" + bson.encode(PING)[:-1]), 22, id="body without an end"),
        pytest.param(message(b"\0" + b"\xff\xff\xff\x7f\0\0"), 22, id="body of two gigabytes"),
        pytest.param(message(b"\0" + b"\xff\xff\xff\xff\0\0"), 22, id="body of negative length"),
        pytest.param(message(b"\0"), 22, id="empty body section"),
        pytest.param(message(body_section(PING), b"\1\xff\0\0\0a\0"), 22, id="sequence beyond the message"),
        pytest.param(message(body_section(PING), b"\1\4\0\0\0"), 22, id="sequence too short for a name"),
        pytest.param(message(body_section(PING), b"\1\6\0\0\0ab"), 22, id="sequence whose name has no end"),
        pytest.param(message(body_section(PING), b"\1\7\0\0\0\xff\xfe\0"), 22, id="sequence whose name is no text"),
        pytest.param(message(body_section(PING), b"\1\4"), 22, id="sequence without a size"),
        pytest.param(struct.pack("<iiii", 18, 1, 0, 2013) + b"\0\0", 22, id="no room for the flags"),
    ],
)
def test_malformed_messages_have_their_codes(content: bytes, number: int) -> None:
    assert code_of(content) == number


@pytest.mark.parametrize("number", [223, 233, 288])
def test_these_errors_end_the_connection(number: int) -> None:
    assert closes_connection(MongoError.by_number[number]("…"))


@pytest.mark.parametrize("number", [13, 22])
def test_other_errors_do_not(number: int) -> None:
    assert not closes_connection(MongoError.by_number[number]("…"))


def test_checksum_is_verified_over_everything_before_it() -> None:
    content = longer(message(body_section(PING), flags=CHECKSUM_PRESENT), 4)
    assert parse_message(with_checksum(content)).body == bson.encode(PING)
    for position in range(16, len(content)):
        broken = bytearray(with_checksum(content))
        broken[position] ^= 0x40
        with pytest.raises(MongoError):
            parse_message(bytes(broken))


def test_replies_carry_a_checksum_on_demand() -> None:
    body = bson.encode({"ok": 1.0})
    reply = build_message(body, request_id=2, response_to=1, checksum=True)
    assert len(reply) == struct.unpack_from("<i", reply)[0]
    assert parse_message(reply) == Message(2, CHECKSUM_PRESENT, body, {})


def test_replies_say_that_more_come() -> None:
    reply = build_message(bson.encode({}), request_id=2, response_to=1, more_to_come=True)
    assert not parse_message(reply).wants_reply


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused(content: bytes) -> None:
    try:
        found = parse_message(struct.pack("<iiii", 16 + len(content), 1, 0, 2013) + content)
    except MongoError:
        return
    assert isinstance(found, Message)


@given(
    sections=st.lists(
        st.one_of(
            st.builds(lambda raw: b"\0" + raw, st.binary(max_size=40)),
            st.builds(lambda raw: b"\1" + struct.pack("<i", len(raw) + 4) + raw, st.binary(max_size=40)),
            st.just(body_section(PING)),
            st.just(sequence_section("documents", [{"a": 1}])),
        ),
        max_size=4,
    ),
    flags=st.sampled_from([0, CHECKSUM_PRESENT, MORE_TO_COME, EXHAUST_ALLOWED, 4]),
)
def test_sections_of_any_kind_parse_or_are_refused(sections: list[bytes], flags: int) -> None:
    try:
        found = parse_message(message(*sections, flags=flags))
    except MongoError:
        return
    for sequence in found.sequences.values():
        try:
            split_documents(sequence)
        except MongoError:
            continue


@given(st.binary(max_size=120))
def test_any_bytes_are_walked_or_refused(content: bytes) -> None:
    raw = struct.pack("<i", len(content) + 5) + content + b"\0"
    try:
        for _, _, start, end in elements(raw):
            assert 4 < start <= end < len(raw)
    except MongoError:
        return


def test_elements_tell_where_values_lie() -> None:
    document = {"a": 1, "b": "text", "c": [1, 2], "d": bson.Regex("x", "i"), "e": None, "f": {"g": 1}}
    raw = bson.encode(document)
    assert [name for _, name, _, _ in elements(raw)] == list(document)
    (start, end) = next((start, end) for _, name, start, end in elements(raw) if name == "f")
    assert bson.decode(raw[start:end]) == {"g": 1}


def test_documents_of_an_array_come_out_raw() -> None:
    raw = bson.encode({"insert": "c", "documents": [{"a": 1}, {}]})
    assert array_documents(raw, "documents", "insert.documents") == [bson.encode({"a": 1}), bson.encode({})]
    assert array_documents(raw, "absent", "insert.absent") == []


@pytest.mark.parametrize("value", [5, [5], [{}, "x"], {}])
def test_what_is_no_array_of_documents_is_refused(value: Any) -> None:
    with pytest.raises(MongoError) as caught:
        array_documents(bson.encode({"documents": value}), "documents", "insert.documents")
    assert caught.value.number == 14


@pytest.mark.parametrize("sequence", [b"\5", b"\5\0\0\0\1", b"\6\0\0\0\0", bson.encode({}) + b"\xff\xff\xff\xff\0"])
def test_broken_sequences_are_refused(sequence: bytes) -> None:
    with pytest.raises(MongoError) as caught:
        split_documents(sequence)
    assert caught.value.number == 22
