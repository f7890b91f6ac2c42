"""Packs by columns: what was put in comes out again, by documents, by columns and by totals."""

import math
import random
from typing import Any

import numpy as np
import pytest
from bson import DatetimeMS, Int64, ObjectId, Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.catalog.packs import Head
from bucketd.common.values import decode, encode
from bucketd.kernels import (
    BucketBuilder,
    BucketPack,
    BucketTotals,
    GroupExtremes,
    GroupRuns,
    GroupSums,
    bucket_in_order,
    make_pack,
    partition,
    unpack_columns,
    unpack_edges,
    unpack_many,
    validate_bucket,
)
from support.bson_values import values

typed_values = st.one_of(st.floats(allow_nan=False), st.integers(-9, 9), st.text("ab", max_size=3), st.booleans())
META = b"\x10\1\0\0\0"
TYPES = {
    "double": st.floats(),
    "whole": st.integers(-300, 300).map(float),
    "cents": st.integers(-(10**7), 10**7).map(lambda cents: cents / 100),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1).map(Int64),
    "date": st.integers(-(10**12), 10**13).map(DatetimeMS),
    "bool": st.booleans(),
    "stamp": st.integers(0, 2**40).map(lambda number: Timestamp(number >> 10, number & 1023)),
    "text": st.text("abc", max_size=5),
    "id": st.integers(0, 2**50).map(
        lambda number: ObjectId((number >> 24).to_bytes(4, "big") + b"proce" + (number & 0xFFFFFF).to_bytes(3, "big"))
    ),
    "other": values,
}


@st.composite
def buckets(draw: st.DrawFn) -> list[bytes]:
    made = []
    kinds = {name: draw(st.sampled_from(sorted(TYPES))) for name in "xyz"}
    for number in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from("xyz"), unique=True))
        gaps = draw(st.booleans())
        rows: list[dict[str, Any]] = []
        for row in range(draw(st.integers(1, 12))):
            document = {"_id": row, "t": DatetimeMS(1000 * row)}
            document |= {name: draw(TYPES[kinds[name]]) for name in names if not gaps or draw(st.booleans())}
            rows.append(document)
        made.append(bucket_of(rows, number))
    return made


def bucket_of(rows: list[dict[str, Any]], number: int = 0, cut: int = 0) -> bytes:
    """A bucket that was stored once before the rows from `cut` on came."""
    bucket = BucketBuilder("t", META, number.to_bytes(12, "big"), 0, 2)
    limits = {"span_ms": 10**9, "max_count": 1000, "effective_max": 10**6, "absolute_max": 10**6, "min_count": 1}
    for some in (rows[:cut], rows[cut:]):
        for run in partition([encode(row) for row in some], "t", None).runs:
            bucket.append_run(run, 0, **limits)
            bucket.document()
    return bucket.document()


def packed(documents: list[bytes]) -> BucketPack:
    parts = make_pack(documents)
    assert parts is not None
    return BucketPack(*parts)


def heads_of(pack: BucketPack) -> list[bytes]:
    made: list[bytes] = []
    for number, raw in enumerate(pack.heads()):
        head = Head(raw)
        head.pack, head.number = pack, number
        made.append(head)
    return made


def rows_of(given: list[bytes]) -> list[bytes]:
    return unpack_many(given, "t", "m").raws()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(buckets())
def test_documents_and_columns_come_back(documents: list[bytes]) -> None:
    pack = packed(documents)
    assert len(pack) == len(documents)
    assert [pack.document(number) for number in range(len(pack))] == documents
    assert all(pack.tells_true(number) for number in range(len(pack)))
    heads = heads_of(pack)
    for document, head in zip(documents, heads, strict=True):
        whole = decode(document)
        del whole["data"]
        assert head == encode(whole)
    assert rows_of(heads) == rows_of(documents)
    mixed = [one for pair in zip(documents, heads, strict=True) for one in pair]
    twice = [document for document in documents for _ in range(2)]
    for fields in (None, ["y", "t"]):
        one, other = unpack_columns(mixed, "t", fields), unpack_columns(twice, "t", fields)
        rows = np.arange(len(one))
        assert one.build_rows(rows, "m").raws() == other.build_rows(rows, "m").raws()
        assert one.metas == other.metas
        for field in one.fields:
            (kind, array, present), (other_kind, other_array, other_present) = one.column(field), other.column(field)
            assert (kind, array.tobytes()) == (other_kind, other_array.tobytes())
            assert (present is None) == (other_present is None)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(buckets())
def test_totals_are_those_of_the_columns(documents: list[bytes]) -> None:
    heads = heads_of(packed(documents))
    totals = BucketTotals(heads, "t", ["x"], ["y"], ["z"])
    assert totals.counts.tolist() == [decode(document)["control"]["count"] for document in documents]
    fits = totals.fits.tolist()
    for number, document in enumerate(documents):
        columns = unpack_columns([document], "t")
        kinds = {name: columns.column(name)[0] if name in columns.fields else 0 for name in "xyz"}
        if not fits[number]:
            # Only for a reason: a type without totals, or doubles that have none.
            assert set(kinds.values()) & {1, 2, 7, 8, 17, 18, 255} or kinds["x"] == 16
            continue
        one = np.array([0]), np.array([1]), np.array([0])
        told = BucketTotals([heads[number]], "t", ["x"], ["y"], ["z"])
        of_totals, of_rows = GroupRuns(1, 1, *one), GroupRuns(len(columns), 1, one[0], np.array([len(columns)]), one[2])
        sums, expected = GroupSums(), GroupSums()
        sums.add_totals(of_totals, told, "x")
        kind, array, present = columns.column("x") if kinds["x"] else (0, np.zeros(0), None)
        if kind == 1:
            expected.add_doubles(of_rows, array, present)
        elif kind in (16, 18):
            expected.add_whole(of_rows, kind == 18, array, present)
        assert [str(part) for part in sums.results(0, 1)] == [str(part) for part in expected.results(0, 1)]
        for field, greatest in (("y", False), ("z", True)):
            found, wanted = GroupExtremes(greatest), GroupExtremes(greatest)
            found.add_totals(of_totals, told, field)
            kind, array, present = columns.column(field) if kinds[field] else (0, np.zeros(0), None)
            if kind == 1:
                wanted.add_doubles(of_rows, array, present)
            elif kind in (9, 16, 18):
                wanted.add_whole(of_rows, kind, array, present)
            assert [str(part) for part in found.results(0, 1)] == [str(part) for part in wanted.results(0, 1)]


def test_usual_numbers_have_totals() -> None:
    rng = random.Random(7)
    rows = [
        {"_id": row, "t": DatetimeMS(row), "d": rng.randrange(100) / 8, "i": rng.randrange(50), "w": DatetimeMS(row)}
        for row in range(200)
    ]
    rows[3].pop("i")
    heads = heads_of(packed([bucket_of(rows)]))
    assert BucketTotals(heads, "t", ["d", "i"], ["d", "i", "w"], ["d", "w", "absent"]).fits.tolist() == [True]
    # The least time of a bucket is rounded down.
    assert BucketTotals(heads, "t", [], ["t"], []).fits.tolist() == [True]
    assert BucketTotals([bucket_of(rows)], "t", ["d"], [], []).fits.tolist() == [False]
    for odd in (math.nan, math.inf, -0.0, 1e300):
        heads = heads_of(packed([bucket_of([*rows, {"_id": 0, "t": DatetimeMS(999), "d": odd}])]))
        assert BucketTotals(heads, "t", ["d"], [], []).fits.tolist() == [False]
        assert BucketTotals(heads, "t", ["i"], [], []).fits.tolist() == [True]


def test_numbers_take_as_many_bits_as_they_differ() -> None:
    rng = random.Random(1)
    documents = []
    for number in range(40):
        level, rows = 50, []
        for row in range(300):
            level += rng.choice((-1, 0, 0, 1))
            rows.append({"t": DatetimeMS(10_000 * row), "a": float(level), "b": 7, "c": Int64(row)})
        documents.append(bucket_of(rows, number))
    parts = make_pack(documents)
    assert parts is not None
    # Three steps of which one is as likely as the two others: one bit and a half.
    assert len(parts[1]) < 40 * 300 * 1.5 / 8 * 1.12


def test_what_has_another_form_is_not_packed() -> None:
    rows = [{"_id": 0, "t": DatetimeMS(0), "x": 1}]
    document = decode(bucket_of(rows))
    assert make_pack([encode(document)]) is not None
    for wrong in (
        document | {"more": 1},
        {"data": document["data"], **{name: item for name, item in document.items() if name != "data"}},
        document | {"control": document["control"] | {"version": 1}},
        document | {"control": {"version": 2}},
        document | {"data": {"t": {"0": DatetimeMS(0)}}},
        document | {"data": 1},
    ):
        assert make_pack([encode(document), encode(wrong)]) is None


@pytest.mark.parametrize("part", [0, 1])
def test_a_changed_byte_is_noticed_or_does_no_harm(part: int) -> None:
    rng = random.Random(part)
    rows = [{"_id": ObjectId(), "t": DatetimeMS(9 * row), "x": rng.random(), "y": row, "z": "s"} for row in range(30)]
    parts = make_pack([bucket_of(rows, 1), bucket_of(rows[:7], 2)])
    assert parts is not None
    originals = [bucket_of(rows, 1), bucket_of(rows[:7], 2)]
    untrue = 0
    for _ in range(3000):
        torn = [bytearray(one) for one in parts]
        torn[part][rng.randrange(len(torn[part]))] = rng.randrange(256)
        if torn[part] == parts[part]:
            continue
        try:
            pack = BucketPack(*map(bytes, torn))
            found = [pack.document(number) for number in range(len(pack))]
            told = [pack.tells_true(number) for number in range(len(pack))]
            unpack_columns(heads_of(pack), "t")
        except ValueError:
            continue
        assert part == 0
        untrue += found == originals and not all(told)
    assert (untrue > 0) == (part == 0)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.dictionaries(st.sampled_from("xyz"), typed_values, max_size=3)),
        min_size=1,
        max_size=15,
    ),
    st.integers(0, 15),
)
def test_what_came_out_of_order_is_put_in_order(given_rows: list[tuple[int, dict[str, Any]]], cut: int) -> None:
    rows = [{"_id": at, "t": DatetimeMS(1000 * second), **more} for at, (second, more) in enumerate(given_rows)]
    bucket = bucket_of(rows, 0, cut)
    made = bucket_in_order(bucket, "t")
    if decode(bucket)["control"]["version"] == 2:
        assert made is None
        return
    assert made is not None
    before, after = decode(bucket), decode(made)
    assert after["control"] == before["control"] | {"version": 2}
    assert list(after) == list(before)
    assert list(after["data"]) == list(before["data"])
    assert validate_bucket(made, "t", "m", 10**9, 1) == []
    stored = unpack_many([bucket], "t", "m").raws()
    assert unpack_many([made], "t", "m").raws() == sorted(stored, key=lambda raw: int(decode(raw)["t"]))


def test_some_come_out_of_order() -> None:
    rows = [{"_id": at, "t": DatetimeMS(1000 * second), "x": "s"} for at, second in enumerate((5, 3, 9))]
    assert decode(bucket_of(rows, 0, 1))["control"]["version"] == 3
    assert decode(bucket_in_order(bucket_of(rows, 0, 1), "t") or b"")["control"]["version"] == 2
    assert bucket_in_order(bucket_of(rows), "t") is None


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(buckets(), st.booleans(), st.sampled_from([None, ["x", "t"], ["y", "z"]]))
def test_edges_are_the_first_or_last_rows(documents: list[bytes], newest: bool, fields: list[str] | None) -> None:
    heads = heads_of(packed(documents))
    edges = unpack_edges(heads, "t", fields, newest)
    rows = edges.build_rows(np.arange(len(edges)), "m").raws()
    for document, start, stop in zip(documents, edges.offsets, edges.offsets[1:], strict=False):
        whole = unpack_columns([document], "t", fields)
        expected = whole.build_rows(np.arange(len(whole)), "m").raws()
        assert rows[start:stop] in (expected, expected[-1:] if newest else expected[:1])


def test_usual_buckets_tell_their_edges() -> None:
    rows = [{"_id": ObjectId(), "t": DatetimeMS(row * row), "x": row / 4, "y": row} for row in range(50)]
    rows[7].pop("y")
    heads = heads_of(packed([bucket_of(rows), bucket_of([*rows[:9], rows[8]], 1)]))
    # Of two measurements with the newest time, both are wanted.
    assert unpack_edges(heads, "t", None, True).offsets.tolist() == [0, 1, 11]
    assert unpack_edges(heads, "t", ["x"], False).offsets.tolist() == [0, 1, 11]
