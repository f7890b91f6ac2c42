"""OP_COMPRESSED: every compressor gives back what it was given, and no message claims what it is not."""

import struct

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.protocol.compression import (
    COMPRESSORS,
    Compressor,
    compress,
    decompress,
    negotiate,
)
from bucketd.protocol.framing import BrokenStream
from bucketd.protocol.messages import with_header
from support.wire_client import OP_COMPRESSED, body_section, message

NAMES = [compressor.name for compressor in COMPRESSORS]


def envelope(op_code: int, size: int, number: int, content: bytes) -> bytes:
    return with_header(OP_COMPRESSED, struct.pack("<iiB", op_code, size, number) + content, request_id=5, response_to=3)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=NAMES)
@given(content=st.binary(max_size=3000))
def test_messages_come_back(compressor: Compressor, content: bytes) -> None:
    whole = message(body_section({"insert": "c", "x": content}), request_id=77)
    assert decompress(compress(whole, compressor), NAMES) == (whole, compressor)


@pytest.mark.parametrize("compressor", COMPRESSORS[1:], ids=NAMES[1:])
def test_large_messages_shrink(compressor: Compressor) -> None:
    whole = message(body_section({"insert": "c", "x": "abcdefgh" * 100_000}))
    smaller = compress(whole, compressor)
    assert len(smaller) < len(whole) / 10
    assert decompress(smaller, NAMES)[0] == whole


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=NAMES)
@pytest.mark.parametrize("lie", [-1, 1, 1000])
def test_a_wrong_length_breaks_the_stream(compressor: Compressor, lie: int) -> None:
    content = body_section({"ping": 1}) * 10
    with pytest.raises(BrokenStream):
        decompress(envelope(2013, len(content) + lie, compressor.number, compressor.compress(content)), NAMES)


@pytest.mark.parametrize("compressor", COMPRESSORS[1:], ids=NAMES[1:])
@given(content=st.binary(max_size=60), size=st.integers(min_value=0, max_value=100))
def test_any_bytes_are_read_or_break_the_stream(compressor: Compressor, content: bytes, size: int) -> None:
    try:
        found, _ = decompress(envelope(2013, size, compressor.number, content), NAMES)
    except BrokenStream:
        return
    assert len(found) == 16 + size


@pytest.mark.parametrize("compressor", COMPRESSORS[1:], ids=NAMES[1:])
def test_a_cut_off_stream_breaks(compressor: Compressor) -> None:
    content = bson.encode({"text": "some text that is long enough" * 9})
    squeezed = compressor.compress(content)
    with pytest.raises(BrokenStream):
        decompress(envelope(2013, len(content), compressor.number, squeezed[:-3]), NAMES)


@pytest.mark.parametrize("compressor", COMPRESSORS[2:], ids=NAMES[2:])
def test_a_bomb_is_not_unfolded(compressor: Compressor) -> None:
    bomb = compressor.compress(bytes(200_000_000))
    with pytest.raises(BrokenStream):
        decompress(envelope(2013, 100, compressor.number, bomb), NAMES)


def test_a_snappy_block_that_claims_gigabytes_is_not_unfolded() -> None:
    with pytest.raises(BrokenStream):
        decompress(envelope(2013, 100, 1, b"\xff\xff\xff\xff\x0f" + b"x" * 20), NAMES)


@pytest.mark.parametrize(
    ("op_code", "size", "number"),
    [
        pytest.param(OP_COMPRESSED, 5, 0, id="compressed within compressed"),
        pytest.param(2013, -1, 0, id="negative size"),
        pytest.param(2013, 48_000_000, 0, id="too large a size"),
        pytest.param(2013, 5, 4, id="unknown compressor"),
        pytest.param(2013, 5, 255, id="unknown compressor of the largest number"),
    ],
)
def test_impossible_envelopes_break_the_stream(op_code: int, size: int, number: int) -> None:
    with pytest.raises(BrokenStream):
        decompress(envelope(op_code, size, number, b"abcde"), NAMES)


def test_a_compressor_that_was_not_agreed_upon_breaks_the_stream() -> None:
    whole = message(body_section({"ping": 1}))
    with pytest.raises(BrokenStream):
        decompress(compress(whole, COMPRESSORS[2]), ("snappy",))


def test_an_envelope_that_is_cut_off_breaks_the_stream() -> None:
    with pytest.raises(BrokenStream):
        decompress(with_header(OP_COMPRESSED, b"\0" * 8, request_id=1, response_to=0), NAMES)


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (["zstd", "snappy"], ("zstd", "snappy")),
        (["none", "zlib", "lz4", 5, "zlib"], ("zlib",)),
        ([], ()),
        (["noop"], ()),
    ],
)
def test_the_client_chooses_the_order(offered: list[object], agreed: tuple[str, ...]) -> None:
    assert negotiate(offered) == agreed
