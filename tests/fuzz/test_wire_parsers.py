"""The parsers of the wire with bytes of every kind: messages or a refusal, and no more memory than a message may have."""

import struct
import tracemalloc
import zlib

import pytest
from cramjam import snappy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.limits import MESSAGE_BYTES_MAX
from bucketd.protocol.compression import COMPRESSORS, NEGOTIABLE, compress, decompress
from bucketd.protocol.framing import BrokenStream, FrameReader
from bucketd.protocol.legacy import NotACommand, parse_query
from bucketd.protocol.messages import parse_message
from support.wire_client import OP_COMPRESSED, OP_MSG, OP_QUERY, body_section, message, sequence_section, with_header

FUZZ = settings(max_examples=400, deadline=None)
WHOLE = (
    message(body_section({"ping": 1, "$db": "x"})),
    message(body_section({"insert": "c", "$db": "x"}), sequence_section("documents", [{"a": 1}, {"b": 2}])),
    compress(message(body_section({"ping": 1, "$db": "x"})), COMPRESSORS[2]),
)


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """A whole message with some bytes changed."""
    content = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(1, 6))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))])


@FUZZ
@given(st.lists(st.one_of(st.binary(max_size=200), mutants()), max_size=5))
@example([b"\xff\xff\xff\x7f" + bytes(12)])
@example([b"\0\0\0\0" + bytes(12)])
def test_streams_are_cut_into_messages_or_broken(parts: list[bytes]) -> None:
    reader = FrameReader()
    whole = b"".join(parts)
    got = b""
    try:
        for part in parts:
            got += b"".join(reader.feed(part))
    except BrokenStream:
        return
    assert whole.startswith(got)


@FUZZ
@given(st.one_of(st.binary(max_size=300), mutants()))
def test_messages_are_read_or_refused(content: bytes) -> None:
    for op_code, parse in ((OP_MSG, parse_message), (OP_QUERY, parse_query)):
        raw = with_header(op_code, content[16:])
        try:
            parse(raw)
        except (MongoError, BrokenStream, NotACommand):
            continue


@FUZZ
@given(st.integers(-1, 5), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=200))
def test_compressed_messages_are_read_or_refused(number: int, size: int, content: bytes) -> None:
    envelope = struct.pack("<iiB", OP_MSG, size, number & 0xFF)
    try:
        raw, _ = decompress(with_header(OP_COMPRESSED, envelope + content), NEGOTIABLE)
    except BrokenStream:
        return
    assert len(raw) == size + 16


def _bomb(name: str, size: int) -> bytes:
    if name == "zlib":
        packer = zlib.compressobj(9)
        return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)), packer.flush()])
    if name == "snappy":
        return bytes(snappy.compress_raw(bytes(size)))
    return COMPRESSORS[3].compress(bytes(size))


@pytest.mark.parametrize("name", NEGOTIABLE)
@pytest.mark.parametrize("claimed", [100, MESSAGE_BYTES_MAX - 16, MESSAGE_BYTES_MAX, 2**31 - 1])
def test_bombs_are_refused_before_they_are_large(name: str, claimed: int) -> None:
    number = [compressor.name for compressor in COMPRESSORS].index(name)
    bomb = _bomb(name, 256 << 20)
    raw = with_header(OP_COMPRESSED, struct.pack("<iiB", OP_MSG, claimed, number) + bomb)
    tracemalloc.start()
    with pytest.raises(BrokenStream):
        decompress(raw, NEGOTIABLE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(raw) + 3 * MESSAGE_BYTES_MAX
