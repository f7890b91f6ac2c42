"""Buckets from measurements and back: what went in comes out, and control says what is in the columns."""

from contextlib import suppress
from typing import Any

import pytest
from bson import DatetimeMS, Int64, ObjectId
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.values import decode, encode
from bucketd.kernels import (
    BucketBuilder,
    BucketError,
    Run,
    bucket_summary,
    column_decode,
    keep_rows,
    partition,
    unpack_rows,
    validate_bucket,
)
from support.bson_values import values
from support.twins import control_bound, normalised, same_schema

START = 1_700_000_000_000 // 60_000 * 60_000
SPAN = 3_600_000
BUCKET_ID = (START // 1000).to_bytes(4, "big") + bytes(8)
LIMITS: dict[str, int] = {
    "span_ms": SPAN,
    "max_count": 1000,
    "effective_max": 128_000,
    "absolute_max": 12_582_912,
    "min_count": 10,
}

fields = st.dictionaries(st.sampled_from(["a", "b", "c", "é", ""]), values, max_size=3)


@st.composite
def measurements(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Measurements that differ in fields, order of fields, and time."""
    found = []
    for _ in range(draw(st.integers(1, 12))):
        time = {"t": DatetimeMS(START + draw(st.integers(0, SPAN - 1)))}
        rest = draw(fields)
        first = draw(st.booleans())
        found.append({"_id": draw(st.integers(-5, 5)), **(time | rest if first else rest | time)})
    return found


def run_of(documents: list[dict[str, Any]], meta_field: str | None = "m") -> Run:
    parts = partition(b"".join(encode(document) for document in documents), "t", meta_field)
    assert parts.errors == []
    (run,) = parts.runs
    return run


def builder(meta: bytes | None = None, version: int = 2) -> BucketBuilder:
    return BucketBuilder("t", meta, BUCKET_ID, START, version)


def fill(bucket: BucketBuilder, run: Run, **limits: int) -> int:
    """How many measurements the bucket takes."""
    taken, _, _ = bucket.append_run(run, 0, **(LIMITS | limits))
    return taken


def by_name(documents: list[bytes]) -> list[dict[str, bytes]]:
    """Each field's bytes, without regard to the order of fields."""
    return [{name: encode({"": value}) for name, value in decode(raw).items()} for raw in documents]


def accepted(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those before the first whose types do not fit the earlier ones."""
    bound: dict[str, Any] = {"t": DatetimeMS(START)}
    for count, document in enumerate(documents):
        if count and not same_schema(bound, document):
            return documents[:count]
        bound = control_bound(documents[: count + 1], "t", "m", START, -1)
    return documents


@given(documents=measurements())
def test_what_went_in_comes_out_sorted_by_time(documents: list[dict[str, Any]]) -> None:
    bucket = builder()
    taken = fill(bucket, run_of(documents))
    assert taken == len(accepted(documents))
    expected = sorted(documents[:taken], key=lambda document: int(document["t"]))
    stored = bucket.document()
    assert by_name(unpack_rows(stored, "t", "m")) == by_name([encode(document) for document in expected])
    assert validate_bucket(stored, "t", "m", SPAN, 60_000) == []


@given(documents=measurements())
def test_control_is_that_of_the_twin(documents: list[dict[str, Any]]) -> None:
    bucket = builder()
    taken = fill(bucket, run_of(documents))
    control = decode(bucket.document())["control"]
    for name, sign in (("min", -1), ("max", 1)):
        assert encode(control[name]) == encode(control_bound(documents[:taken], "t", "m", START, sign))


@given(documents=measurements(), data=st.data())
def test_a_bucket_written_in_between_is_the_same(documents: list[dict[str, Any]], data: st.DataObject) -> None:
    documents = sorted(accepted(documents), key=lambda document: int(document["t"]))
    documents = accepted(documents)
    at_once, bit_by_bit = builder(), builder()
    run = run_of(documents)
    fill(at_once, run)
    for position in range(len(documents)):
        copy = bit_by_bit.clone()
        bit_by_bit.append_run(run, position, **(LIMITS | {"max_count": position + 1}))
        if data.draw(st.booleans()):
            stored = bit_by_bit.document()
            reopened = BucketBuilder.from_document(stored, "t")
            assert reopened.document() == stored
            if data.draw(st.booleans()):
                bit_by_bit = reopened
        assert copy.count == position
    assert bit_by_bit.document() == at_once.document()
    assert bit_by_bit.version == 2
    assert (bit_by_bit.count, bit_by_bit.max_ms) == (at_once.count, at_once.max_ms)


@given(documents=measurements())
def test_plain_buckets_keep_the_order_of_arrival_and_become_columns(documents: list[dict[str, Any]]) -> None:
    bucket = builder(version=1)
    taken = fill(bucket, run_of(documents))
    stored = bucket.document()
    assert decode(stored)["control"]["version"] == 1
    assert by_name(unpack_rows(stored, "t", "m")) == by_name([encode(document) for document in documents[:taken]])
    assert validate_bucket(stored, "t", "m", SPAN, 60_000) == []
    expected = sorted(documents[:taken], key=lambda document: int(document["t"]))
    reopened = BucketBuilder.from_document(stored, "t").document()
    assert decode(reopened)["control"]["version"] == 2
    assert by_name(unpack_rows(reopened, "t", "m")) == by_name([encode(document) for document in expected])


@given(documents=measurements(), version=st.sampled_from([1, 2]), data=st.data())
def test_rows_that_are_kept(documents: list[dict[str, Any]], version: int, data: st.DataObject) -> None:
    bucket = builder(version=version)
    fill(bucket, run_of(documents))
    stored = bucket.document()
    rows = unpack_rows(stored, "t", "m")
    keep = data.draw(st.binary(min_size=len(rows), max_size=len(rows)).map(lambda some: bytes(b & 1 for b in some)))
    kept = keep_rows(stored, "t", keep)
    if kept is None:
        assert not any(keep)
        return
    expected = [row for row, wanted in zip(rows, keep, strict=True) if wanted]
    assert by_name(unpack_rows(kept, "t", "m")) == by_name(expected)
    assert decode(kept)["_id"] == decode(stored)["_id"]
    assert decode(kept)["control"]["min"]["t"] == DatetimeMS(START)
    assert validate_bucket(kept, "t", "m", SPAN, 60_000) == []


@given(documents=measurements(), position=st.integers(0, 4000), byte=st.integers(0, 255))
def test_a_changed_byte_is_an_error_or_another_bucket(
    documents: list[dict[str, Any]], position: int, byte: int
) -> None:
    bucket = builder()
    fill(bucket, run_of(documents))
    stored = bytearray(bucket.document())
    stored[position % len(stored)] = byte
    changed = bytes(stored)
    validate_bucket(changed, "t", "m", SPAN, 60_000)
    for use in (
        lambda: unpack_rows(changed, "t", "m"),
        lambda: BucketBuilder.from_document(changed, "t").document(),
        lambda: keep_rows(changed, "t", bytes([1]) * len(documents)),
        lambda: bucket_summary(changed, "t"),
    ):
        with suppress(BucketError):
            use()


@given(metas=st.lists(values, min_size=1, max_size=6))
def test_series_are_told_apart_by_normalised_bytes(metas: list[Any]) -> None:
    documents = [encode({"t": DatetimeMS(START + i), "m": meta, "_id": i}) for i, meta in enumerate(metas)]
    expected: dict[bytes, list[int]] = {}
    for position, meta in enumerate(metas):
        expected.setdefault(encode({"": normalised(meta)}), []).append(position)
    parts = partition(documents, "t", "m")
    assert parts.count == len(metas)
    assert [run.indices() for run in parts.runs] == list(expected.values())
    for run, raw in zip(parts.runs, expected, strict=True):
        assert run.meta == raw[4:5] + raw[6:-1]
        stored = BucketBuilder("t", run.meta, BUCKET_ID, START)
        stored.append_run(run, 0, **LIMITS)
        assert encode({"": decode(stored.document())["meta"]}) == raw


def test_missing_meta_is_not_null() -> None:
    parts = partition([encode({"t": DatetimeMS(0)}), encode({"t": DatetimeMS(0), "m": None})], "t", "m")
    assert [run.meta for run in parts.runs] == [None, b"\x0a"]


def test_measurements_without_a_date_are_refused_by_themselves() -> None:
    documents: list[dict[str, Any]] = [{"t": 1}, {"t": DatetimeMS(5)}, {}, {"t": "x"}]
    parts = partition([encode(document) for document in documents], "t", None)
    message = "'t' must be present and contain a valid BSON UTC datetime value"
    assert parts.errors == [(0, 2, message), (2, 2, message), (3, 2, message)]
    assert [run.indices() for run in parts.runs] == [[1]]


def test_a_new_id_comes_first() -> None:
    run = run_of([{"t": DatetimeMS(START), "a": 1}, {"t": DatetimeMS(START), "a": 1}])
    first, second = decode(run.document(0)), decode(run.document(1))
    assert list(first) == ["_id", "t", "a"]
    assert isinstance(first["_id"], ObjectId)
    assert first["_id"] != second["_id"]
    bucket = builder()
    fill(bucket, run)
    assert [decode(row)["_id"] for row in unpack_rows(bucket.document(), "t", "m")] == [first["_id"], second["_id"]]


def test_a_buffer_that_ends_within_a_document_is_refused() -> None:
    with pytest.raises(ValueError, match="length"):
        partition(encode({"t": DatetimeMS(0)})[:-1], "t", None)
    with pytest.raises(ValueError, match="length"):
        partition([encode({"t": DatetimeMS(0)})[:-1]], "t", None)


def at(*seconds: int, **more: Any) -> list[dict[str, Any]]:
    return [{"_id": 0, "t": DatetimeMS(START + 1000 * second), **more} for second in seconds]


@pytest.mark.parametrize(
    ("documents", "limits", "taken", "reason"),
    [
        (at(0, 1, 3600), {}, 2, "time_forward"),
        (at(5, 3599, -1), {}, 2, "time_backward"),
        (at(5, 4, 3), {"max_count": 2}, 2, "count"),
        (at(1, 2, x=1) + at(3, x="no"), {}, 2, "schema"),
        (at(1, x={"y": [1]}) + at(3, x={"y": [1.5, 1]}) + at(4, x={"y": [1, "s"]}), {}, 2, "schema"),
        (at(1, x=None) + at(3, x=1), {}, 1, "schema"),
        (at(1, x=1) + at(2) + at(3, x=Int64(2), y="new"), {}, 3, None),
        (at(1, 2, 3, x="y" * 1000), {"effective_max": 4000, "min_count": 2}, 2, "size"),
        (at(1, 2, 3, x="y" * 1000), {"effective_max": 1000, "absolute_max": 4000}, 1, "size"),
    ],
)
def test_why_the_next_measurement_does_not_fit(
    documents: list[dict[str, Any]], limits: dict[str, int], taken: int, reason: str | None
) -> None:
    assert builder().append_run(run_of(documents), 0, **(LIMITS | limits))[:2] == (taken, reason)


def test_kept_open_is_told_once() -> None:
    bucket = builder()
    run = run_of(at(1, 2, 3, 4, x="y" * 1000))
    told = [
        bucket.append_run(run, position, **(LIMITS | {"effective_max": 3500, "max_count": position + 1}))[2]
        for position in range(4)
    ]
    assert told == [False, True, False, False]


def test_what_comes_late_makes_version_3() -> None:
    bucket = builder()
    fill(bucket, run_of(at(10, 5, 7)))
    assert decode(bucket.document())["control"]["version"] == 2
    assert bucket.uncommitted == 0
    fill(bucket, run_of(at(9)))
    assert (bucket.uncommitted, bucket.version) == (1, 2)
    stored = bucket.document()
    assert decode(stored)["control"]["version"] == 3
    assert [int(decode(row)["t"]) - START for row in unpack_rows(stored, "t", "m")] == [5000, 7000, 10_000, 9000]
    assert BucketBuilder.from_document(stored, "t").document() == stored
    assert validate_bucket(stored, "t", "m", SPAN, 60_000) == []
    kept = keep_rows(stored, "t", b"\1\1\0\1")
    assert kept is not None
    assert decode(kept)["control"]["version"] == 2


def test_the_shape_of_a_stored_bucket() -> None:
    bucket = builder(meta=b"\x10\1\0\0\0")
    fill(bucket, run_of(at(1, m=1, x=2.5) + at(2, m=1)))
    stored = decode(bucket.document())
    assert list(stored) == ["_id", "control", "meta", "data"]
    assert list(stored["control"]) == ["version", "min", "max", "count"]
    assert list(stored["control"]["min"]) == ["_id", "t", "x"]
    assert list(stored["data"]) == ["t", "_id", "x"]
    assert column_decode(bytes(stored["data"]["x"]), 10) == [b"\x01" + bytes(6) + b"\x04\x40", None]
    assert bucket_summary(bucket.document(), "t") == (2, 2, False, START, START + 2000)


def test_what_is_wrong_with_a_bucket() -> None:
    bucket = builder()
    fill(bucket, run_of(at(1, 2, x=2)))
    stored = decode(bucket.document())

    def problems(**control: Any) -> list[str]:
        changed = {**stored, "control": stored["control"] | control}
        return validate_bucket(encode(changed), "t", "m", SPAN, 60_000)

    assert problems() == []
    assert problems(version=4) == ["Invalid value for 'control.version'. Expected 1, 2, or 3, but got 4."]
    assert len(problems(count=3)) == 3
    assert problems(min=stored["control"]["min"] | {"x": 1}) == [
        "'control.min' of column 'x' is not that of its values."
    ]
    assert problems(version=3) == ["The bucket has version 3, but its measurements are in the order of time."]
    assert validate_bucket(b"\x05\0\0\0\0", "t", "m", SPAN, 60_000) != []


def test_a_bucket_of_mixed_types_is_not_reopened() -> None:
    bucket = builder()
    fill(bucket, run_of(at(1, x=2)))
    stored = decode(bucket.document())
    stored["control"]["max"]["x"] = "text"
    with pytest.raises(BucketError) as raised:
        BucketBuilder.from_document(encode(stored), "t")
    assert raised.value.args[0] == 408


def test_strings_are_compared_by_the_collation_of_the_collection() -> None:
    def upper(text: str) -> bytes:
        return text.upper().encode()

    documents = at(1, x="b", y=["b"]) + at(2, x="C", y=["C"]) + at(3, x="A", y=["B"])
    bucket = BucketBuilder("t", None, BUCKET_ID, START, collate=upper)
    fill(bucket, run_of(documents))
    control = decode(bucket.document())["control"]
    assert [control["min"][name] for name in "xy"] == ["A", ["b"]]
    assert [control["max"][name] for name in "xy"] == ["C", ["C"]]
    stored = bucket.document()
    assert validate_bucket(stored, "t", "m", SPAN, 60_000, upper) == []
    assert validate_bucket(stored, "t", "m", SPAN, 60_000) != []
    kept = keep_rows(stored, "t", b"\1\1\0", upper)
    assert kept is not None
    assert decode(kept)["control"]["min"]["x"] == "b"
    again = BucketBuilder.from_document(kept, "t", upper)
    fill(again, run_of(at(4, x="a")))
    assert decode(again.document())["control"]["min"]["x"] == "a"


@st.composite
def raw_measurements(draw: st.DrawFn) -> list[bytes]:
    """Raw documents of which neighbours are often alike: names come twice or are long, types change, some are malformed."""
    names = st.lists(st.sampled_from(["_id", "m", "t", "a", "b", "x" * 15, "x" * 16, "y" * 40]), max_size=6)
    layouts = draw(st.lists(names, min_size=1, max_size=3))
    found = []
    for _ in range(draw(st.integers(1, 10))):
        layout = draw(st.sampled_from(layouts))
        elements = []
        for name in ["t", *layout] if draw(st.booleans()) else [*layout, "t"]:
            value: Any = draw(st.sampled_from([1, 2.5, "text", Int64(7), True, None, {"a": 1}, [1, 2], "é"]))
            if name == "t" and draw(st.integers(0, 9)):
                value = DatetimeMS(START + draw(st.integers(0, SPAN - 1)))
            elements.append(encode({name: value})[4:-1])
        raw = b"".join(elements)
        raw = (len(raw) + 5).to_bytes(4, "little") + raw + b"\0"
        if not draw(st.integers(0, 9)):
            at = draw(st.integers(4, len(raw) - 2))
            raw = raw[:at] + bytes([raw[at] ^ 0x81]) + raw[at + 1 :]
        found.append(raw)
    return found


def taken_apart(raws: list[bytes]) -> tuple[dict[int, tuple[bytes | None, int, bytes]], list[tuple[int, int, str]]]:
    """Of each measurement its series, its time and its document; and what is refused."""
    parts = partition(b"".join(raws), "t", "m")
    found = {}
    for run in parts.runs:
        for position, index in enumerate(run.indices()):
            document = run.document(position)
            if not raws[index].count(b"_id\0"):
                # A new one was made.
                assert document[4:9] == b"\x07_id\0"
                document = document[21:]
            found[index] = (run.meta, run.time_ms(position), document)
    return found, parts.errors


@given(raws=raw_measurements())
def test_what_stands_beside_a_measurement_changes_nothing(raws: list[bytes]) -> None:
    found, errors = taken_apart(raws)
    for index, raw in enumerate(raws):
        alone, refused = taken_apart([raw])
        assert alone.get(0) == found.get(index)
        assert [row[1:] for row in refused] == [row[1:] for row in errors if row[0] == index]


@given(documents=measurements(), data=st.data())
def test_how_measurements_are_batched_changes_nothing(documents: list[dict[str, Any]], data: st.DataObject) -> None:
    documents = accepted(documents)
    at_once, bit_by_bit = builder(), builder()
    assert fill(at_once, run_of(documents)) == len(documents)
    start = 0
    while start < len(documents):
        stop = data.draw(st.integers(start + 1, len(documents)))
        assert fill(bit_by_bit, run_of(documents[start:stop])) == stop - start
        start = stop
    assert bit_by_bit.document() == at_once.document()
    assert (bit_by_bit.count, bit_by_bit.size_bytes) == (at_once.count, at_once.size_bytes)


def test_a_batch_may_begin_within_a_buffer() -> None:
    raws = [encode({"t": DatetimeMS(START + number), "m": "a"}) for number in range(3)]
    parts = partition(b"head" + b"".join(raws), "t", "m", start=4)
    assert (parts.count, parts.measurements, parts.errors) == (3, 3, [])
    with pytest.raises(ValueError, match="length"):
        partition(b"head" + b"".join(raws), "t", "m", start=5)
    assert partition(b"".join(raws), "t", "m", start=1000).count == 0
