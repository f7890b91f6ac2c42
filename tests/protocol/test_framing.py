"""Frames: whatever places a stream is cut at, the same messages come out."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.limits import MESSAGE_BYTES_MAX
from bucketd.protocol.framing import HEADER_BYTES, BrokenStream, FrameReader, Header, next_request_id


def frame(content: bytes, request_id: int = 1) -> bytes:
    return struct.pack("<iiii", HEADER_BYTES + len(content), request_id, 0, 2013) + content


@given(
    contents=st.lists(st.binary(max_size=60), max_size=6),
    cuts=st.lists(st.integers(min_value=1, max_value=40), min_size=1),
)
def test_messages_survive_any_cuts(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, contents))
    reader = FrameReader()
    found: list[bytes] = []
    at = turn = 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        found += reader.feed(stream[at : at + size])
        at += size
        turn += 1
    assert found == [frame(content) for content in contents]
    assert reader.held_bytes == 0


@pytest.mark.parametrize("length", [-1, 0, 15, MESSAGE_BYTES_MAX + 1, 2**31 - 1])
def test_impossible_length_breaks_the_stream(length: int) -> None:
    with pytest.raises(BrokenStream):
        FrameReader().feed(struct.pack("<iiii", length, 1, 0, 2013))


def test_impossible_length_is_found_behind_a_good_message() -> None:
    reader = FrameReader()
    with pytest.raises(BrokenStream):
        reader.feed(frame(b"abc") + struct.pack("<iiii", 3, 1, 0, 2013))


def test_largest_message_is_waited_for() -> None:
    reader = FrameReader()
    assert reader.feed(struct.pack("<iiii", MESSAGE_BYTES_MAX, 1, 0, 2013)) == []
    assert reader.feed(b"x" * 1000) == []
    assert reader.held_bytes == HEADER_BYTES + 1000


def test_header_is_read_as_it_stands() -> None:
    assert Header.of(frame(b"", request_id=-7)) == Header(16, -7, 0, 2013)


def test_request_ids_are_never_the_same_twice_in_a_row() -> None:
    assert next_request_id() != next_request_id()
