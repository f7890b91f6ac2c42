"""Columns of many buckets: the same values as the rows, typed where a column has one type."""

from typing import Any

import numpy as np
import pytest
from bson import DatetimeMS, Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.values import encode
from bucketd.kernels import BucketBuilder, BucketColumns, partition, unpack_columns, unpack_rows
from support.bson_values import values

typed = st.one_of(
    st.floats(),
    st.integers(-9, 9),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.booleans(),
    st.text("ab", max_size=20),
)
batches = st.lists(
    st.lists(st.dictionaries(st.sampled_from("xyz"), typed | values, max_size=3), min_size=1, max_size=6), max_size=4
)


def bucket_of(documents: list[dict[str, Any]], version: int = 2) -> bytes:
    raws = [encode({"_id": i, "t": DatetimeMS(i), **document}) for i, document in enumerate(documents)]
    (run,) = partition(raws, "t", None).runs
    bucket = BucketBuilder("t", b"\x10\1\0\0\0", bytes(12), 0, version)
    limits = {"span_ms": 10**6, "max_count": 1000, "effective_max": 10**6, "absolute_max": 10**6, "min_count": 1}
    bucket.append_run(run, 0, **limits)
    return bucket.document()


def value(columns: BucketColumns, field: str, row: int) -> bytes:
    """Type byte and value of a row, empty where it has none."""
    type_byte, array, present = columns.column(field)
    if present is not None and not present[row]:
        return b""
    if type_byte == 255:
        return columns.raw(field)[array[row] : array[row + 1]]
    item: Any = array[row].item()
    if type_byte == 2:
        item = columns.strings(field)[item]
    elif type_byte == 18:
        item = Int64(item)
    elif type_byte == 9:
        item = DatetimeMS(item)
    raw = encode({"": item})
    return raw[4:5] + raw[6:-1]


@given(batches=batches, versions=st.lists(st.sampled_from([1, 2]), min_size=4, max_size=4))
def test_columns_are_the_rows_again(batches: list[list[dict[str, Any]]], versions: list[int]) -> None:
    buckets = [bucket_of(batch, version) for batch, version in zip(batches, versions, strict=False)]
    rows = [row for bucket in buckets for row in unpack_rows(bucket, "t", "m")]
    columns = unpack_columns(buckets, "t")
    assert len(columns) == len(rows) == columns.offsets[-1]
    assert columns.metas == [b"\x10\1\0\0\0"] * len(buckets)
    assert columns.build_rows(np.arange(len(rows)), "m").raws() == rows
    chosen = unpack_columns(buckets, "t", ["x", "t"])
    assert chosen.fields == ["x", "t"]
    for bucket, start in zip(buckets, chosen.offsets, strict=False):
        found = unpack_rows(bucket, "t", "m", include=["x", "t"])
        assert chosen.build_rows(np.arange(start, start + len(found))).raws() == found
        for row, document in enumerate(found, start):
            (single,) = chosen.build_rows(np.array([row])).raws()
            assert single == document
            expected = value(chosen, "t", row)
            assert b"\x09t\0" + expected[1:] in document
            assert not value(chosen, "x", row) or value(chosen, "x", row)[1:] in document


def test_types_and_presence() -> None:
    documents: list[dict[str, Any]] = [
        {"f": 1.5, "i": 1, "l": Int64(2), "b": True, "s": "one", "n": None},
        {"f": 2.5, "i": 2, "b": False, "s": "two", "n": None},
        {"f": 3.5, "s": "one"},
    ]
    columns = unpack_columns([bucket_of(documents)] * 2, "t", ["t", "f", "i", "l", "b", "s", "n", "none"])
    kinds = {field: columns.column(field)[0] for field in columns.fields}
    assert kinds == {"t": 9, "f": 1, "i": 16, "l": 18, "b": 8, "s": 2, "n": 255, "none": 0}
    assert columns.column("f")[1].tolist() == [1.5, 2.5, 3.5] * 2
    assert columns.column("f")[2] is None
    assert columns.strings("s") == ["one", "two"]
    assert columns.column("s")[1].tolist() == [0, 1, 0] * 2
    present = columns.column("b")[2]
    assert present is not None
    assert present.tolist() == [True, True, False] * 2
    assert columns.column("b")[1].dtype == np.bool_
    assert columns.raw("n") == b"\x0a" * 4
    with pytest.raises(KeyError):
        columns.column("other")
    with pytest.raises(KeyError):
        columns.strings("f")
    with pytest.raises(IndexError):
        columns.build_rows(np.array([6]))
    with pytest.raises(IndexError):
        columns.build_rows(np.array([-1]))


def test_a_type_that_changes_between_buckets_keeps_every_value() -> None:
    columns = unpack_columns([bucket_of([{"x": 1}, {}]), bucket_of([{"x": 1.5}, {"x": "s"}])], "t", ["x"])
    assert columns.column("x")[0] == 255
    assert [value(columns, "x", row)[:1] for row in range(3)] == [b"\x10", b"", b"\x01"]
