"""Rows on their way into a reply: whatever they are held as, they read as the documents that they stand for."""

from bisect import bisect_right
from itertools import accumulate
from typing import Any

import bson
import numpy as np
import pytest
from bson import DatetimeMS, Decimal128, Int64, ObjectId, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.values import encode
from bucketd.kernels import (
    BucketBuilder,
    RowArray,
    RowBlock,
    merge_buckets,
    partition,
    unpack_many,
    validate_bucket,
)
from support.bson_values import values

_LIMITS = {"span_ms": 10**9, "max_count": 1000, "effective_max": 10**6, "absolute_max": 10**6, "min_count": 1}

ids = st.builds(
    lambda seconds, fixed, count: ObjectId(seconds.to_bytes(4, "big") + fixed + count.to_bytes(3, "big")),
    st.integers(0, 2**32 - 1),
    st.sampled_from([b"12345", b"abcde"]),
    st.integers(0, 2**24 - 1),
)
uniform = st.sampled_from(
    [
        st.floats(allow_nan=False),
        st.integers(-9, 9),
        st.integers(-(2**63), 2**63 - 1).map(Int64),
        st.booleans(),
        st.integers(-(2**40), 2**40).map(DatetimeMS),
        st.integers(0, 2**32 - 1).map(lambda seconds: Timestamp(seconds, 1)),
        st.text("ab", max_size=20),
        ids,
        st.integers(0, 99).map(lambda number: Decimal128(str(number))),
        values,
    ]
)


@st.composite
def measurements(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Measurements of one series: fields of one type each that all have, or that some lack."""
    fields = {name: draw(uniform) for name in draw(st.sets(st.sampled_from("xyz")))}
    lacking = {name for name in fields if draw(st.booleans())}
    return [
        {name: draw(of) for name, of in fields.items() if name not in lacking or draw(st.booleans())}
        for _ in range(draw(st.integers(1, 12)))
    ]


def stored(documents: list[dict[str, Any]], version: int) -> tuple[bytes, list[bytes]]:
    """A bucket, and the measurements that it took: not all, where types change."""
    beside = [{"_id": at, "t": DatetimeMS(at), "m": {"host": 1}, **document} for at, document in enumerate(documents)]
    (run,) = partition([encode(document) for document in beside], "t", "m").runs
    builder = BucketBuilder("t", run.meta, bytes(12), 0, version)
    taken, _, _ = builder.append_run(run, 0, **_LIMITS)
    return builder.document(), [encode(document) for document in beside[:taken]]


def by_name(raw: bytes) -> list[tuple[str, bytes]]:
    return sorted((name, encode({"": value})) for name, value in bson.decode(raw, _OPTIONS).items())


_OPTIONS: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(
    datetime_conversion=bson.codec_options.DatetimeConversion.DATETIME_MS
)

batches = st.lists(st.tuples(measurements(), st.sampled_from([1, 2])), max_size=4)


@given(batches=batches, data=st.data())
def test_measurements_come_back_from_columns(
    batches: list[tuple[list[dict[str, Any]], int]], data: st.DataObject
) -> None:
    made = [stored(documents, version) for documents, version in batches]
    block = unpack_many([bucket for bucket, _ in made], "t", "m")
    expected = [raw for _, raws in made for raw in raws]
    found = block.raws()
    assert len(block) == len(expected)
    assert list(map(by_name, found)) == list(map(by_name, expected))
    start, stop = (data.draw(st.integers(0, len(found))) for _ in range(2))
    assert block.raws(start, stop) == found[start:stop]
    chosen = data.draw(st.lists(st.sampled_from(range(len(found))), max_size=5)) if found else []
    assert block.select(np.array(chosen, dtype=np.int64)).raws() == [found[at] for at in chosen]


def fit(sizes: list[int], bytes_max: int) -> int:
    """How many rows fit: those before a row leave room for it, and the first always does."""
    totals = list(accumulate((size + 12 for size in sizes), initial=0))
    return max(bisect_right(totals, bytes_max + 12) - 1, min(1, len(sizes)))


@given(batches=batches, bytes_max=st.integers(0, 3000), data=st.data())
def test_rows_of_any_kind_become_one_array(
    batches: list[tuple[list[dict[str, Any]], int]], bytes_max: int, data: st.DataObject
) -> None:
    pieces: list[RowBlock | list[bytes]] = []
    for documents, version in batches:
        block = unpack_many([stored(documents, version)[0]], "t", "m")
        kinds: list[RowBlock | list[bytes]] = [block, block.raws(), block.select(np.arange(len(block)))]
        pieces.append(data.draw(st.sampled_from(kinds)))
    rows, offered = RowArray(bytes_max), []
    for piece in pieces:
        start = data.draw(st.integers(0, len(piece)))
        raws = piece if isinstance(piece, list) else piece.raws()
        offered += raws[start:]
        if rows.take(piece, start, len(piece)) < len(piece) - start:
            break
    taken = offered[: fit([len(raw) for raw in offered], bytes_max)]
    assert rows.raws() == taken
    assert len(rows) == len(taken)
    array = encode({str(at): bson.decode(raw, _OPTIONS) for at, raw in enumerate(taken)})
    assert rows.elements_bytes == len(array) - 5
    assert bytes(rows.write(b"before", b"after")) == b"before" + array[4:-1] + b"after"


@given(batches=batches, max_count=st.integers(1, 40))
def test_merged_buckets_hold_the_measurements_of_all_or_there_is_none(
    batches: list[tuple[list[dict[str, Any]], int]], max_count: int
) -> None:
    buckets = [stored(documents, version)[0] for documents, version in batches]
    expected = [raw for bucket in buckets for raw in unpack_many([bucket], "t", "m").raws()]
    limits = {**_LIMITS, "max_count": max_count}
    merged = merge_buckets(buckets, "t", "m", rounding_ms=60_000, version=2, **limits)
    # An insert of all of them, one after the other, into one bucket takes all, or it does not.
    runs = partition(expected, "t", "m").runs if expected else []
    builder = BucketBuilder("t", runs[0].meta, bytes(12), 0) if runs else None
    fits = builder is not None and builder.append_run(runs[0], 0, **limits)[1] is None
    assert (merged is not None) == fits
    if merged is not None:
        assert sorted(map(by_name, unpack_many([merged], "t", "m").raws())) == sorted(map(by_name, expected))
        assert validate_bucket(merged, "t", "m", _LIMITS["span_ms"], 60_000) == []
        assert bson.decode(merged, _OPTIONS)["_id"] == ObjectId(bytes(12))
        assert bson.decode(merged, _OPTIONS)["control"]["version"] == 2


@pytest.mark.parametrize("count", [0, 1, 10, 11, 1000, 1001, 20_000])
def test_a_large_array_is_handed_over_as_it_was_written(count: int) -> None:
    raws = [encode({"n": number}) for number in range(count)]
    rows = RowArray()
    assert rows.take(raws, 0, count) == count
    written = rows.write(b"", b"")
    assert isinstance(written, memoryview) == (len(written) >= 64 * 1024)
    assert bytes(written) == encode({str(number): {"n": number} for number in range(count)})[4:-1]


def test_rows_that_are_not_there_are_refused() -> None:
    block = unpack_many([stored([{}, {}], 2)[0]], "t", "m")
    rows = RowArray()
    for given_rows in (block, block.raws()):
        for start, stop in ((0, 3), (2, 1)):
            with pytest.raises(IndexError):
                rows.take(given_rows, start, stop)
    for position in (2, -1):
        with pytest.raises(IndexError):
            block.select(np.array([position]))
    assert len(rows) == 0
    assert block.raws(1, 9) == block.raws()[1:]
    assert block.raws(5) == []
