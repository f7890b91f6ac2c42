"""Buckets are merged beside everybody else, and nobody sees it but by their number."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bson import DatetimeMS, Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketd.catalog.merging as merging
import bucketd.catalog.packing as packing
import bucketd.query.execute as execute
from bucketd.catalog import documents
from bucketd.catalog.buckets import BucketLimits
from bucketd.catalog.merging import Merger
from bucketd.catalog.packing import Packer
from bucketd.common.clock import TestClock
from bucketd.common.values import Document, decode, encode
from bucketd.kernels import validate_bucket
from bucketd.query.execute import Execution
from bucketd.query.match.parse import parse_filter
from bucketd.storage.engine import Engine, Transaction
from bucketd.storage.keys import number_key
from bucketd.storage.lmdb_engine import LmdbEngine
from bucketd.timeseries.edits import Remover, edit_target
from support.measurements import NAMESPACE, Measurements
from support.memory_engine import MemoryEngine

START = 1_700_000_000_000 // 3_600_000 * 3_600_000
LIMITS = BucketLimits(count_max=8, memory_max=1)

Row = tuple[int, str, int | str | None]

ROWS = st.lists(
    st.tuples(st.integers(0, 9000), st.sampled_from(["a", "b"]), st.sampled_from([1, 2, "x", None])),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), ROWS),
        st.tuples(st.just("forget"), st.none()),
        st.tuples(st.just("merge"), st.none()),
        st.tuples(st.just("open"), st.sampled_from([(), ({"$match": {"m": "a"}},), ({"$sort": {"m": 1, "t": 1}},)])),
        st.tuples(st.just("read"), st.integers(1, 5)),
        st.tuples(st.just("delete"), st.sampled_from([{"m": "b", "v": 1}, {"v": "x"}])),
    ),
    min_size=3,
    max_size=25,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge that cannot be done is put off at once."""
    monkeypatch.setattr(merging, "_TRIES", 1)
    monkeypatch.setattr(merging, "_BETWEEN_TRIES_SECONDS", 0)


def document(number: int, row: Row) -> Document:
    second, series, value = row
    made: Document = {"_id": number, "t": DatetimeMS(START + second * 1000), "m": series}
    return made if value is None else {**made, "v": value}


def merger(lab: Measurements) -> Merger:
    return Merger(lab.engine, lab.catalog, lambda: lab.buckets, lambda: True)


async def merge(lab: Measurements) -> int:
    return (await merger(lab).merge(lab.collection(NAMESPACE.buckets), b"")).gone


def check(lab: Measurements, expected: dict[int, Document]) -> None:
    """The collection holds these measurements, and is sound."""
    options, collection = lab.collection(NAMESPACE).timeseries, lab.collection(NAMESPACE.buckets)
    assert options is not None
    assert {row["_id"]: row for row in lab.aggregate()} == expected
    with lab.engine.snapshot() as snapshot:
        rows = list(documents.scan(snapshot, collection))
        for _, raw in rows:
            assert validate_bucket(raw, "t", "m", options.span_ms, options.rounding_seconds * 1000) == []
        stats = documents.read_stats(snapshot, collection)
        assert (stats.count, stats.data_bytes) == (len(rows), sum(len(raw) for _, raw in rows))
        for index in collection.indexes:
            assert len(list(documents.index_scan(snapshot, index))) == len(rows)
            assert {key for _, key in documents.index_scan(snapshot, index)} == {key for key, _ in rows}


class Reader:
    """A cursor, and what it must see: what was there when it was opened and stays, once."""

    def __init__(self, lab: Measurements, expected: dict[int, Document], stages: tuple[Document, ...]) -> None:
        with lab.engine.snapshot() as snapshot:
            self.execution = Execution(lab.plan(snapshot, *stages), lab.engine)
        self.wanted = {number for number, row in expected.items() if "$match" not in str(stages) or row["m"] == "a"}
        self.seen: Counter[int] = Counter()
        self.by_index = bool(stages)

    async def read(self, rows_max: int | None) -> bool:
        """Read on; True at the end."""
        found = await self.execution.next_batch(rows_max)
        self.seen.update(decode(raw)["_id"] for raw in found.raws())
        return self.execution.exhausted

    def check(self) -> None:
        assert self.wanted <= self.seen.keys()
        assert max(self.seen.values(), default=1) == 1


async def delete(lab: Measurements, filter: Document) -> None:
    view, buckets = lab.collection(NAMESPACE), lab.collection(NAMESPACE.buckets)
    target = edit_target(view, buckets, parse_filter(filter), None)
    remover = Remover(view, target, {})
    matches = target.bucket.compile({})

    def run(transaction: Transaction) -> None:
        for record_key, raw in list(documents.scan(transaction, buckets)):
            if matches(bucket := decode(raw)):
                remover.remove_all(transaction, buckets, record_key, raw, bucket)

    await lab.engine.write(run)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(STEPS)
async def test_histories_with_merges_beside_open_cursors(steps: list[tuple[str, Any]]) -> None:
    engine = MemoryEngine()
    lab = Measurements(engine, LIMITS)
    await lab.create()
    expected: dict[int, Document] = {}
    readers: list[Reader] = []

    def changed() -> None:
        """What is read by an index may be met twice, or not at all, where a write has moved its entries meanwhile."""
        readers[:] = [reader for reader in readers if not reader.by_index]

    number = 0
    for step, operand in steps:
        match step:
            case "insert":
                rows = [document(number + at, row) for at, row in enumerate(operand)]
                number += len(rows)
                await lab.insert(*rows)
                expected |= {row["_id"]: row for row in rows}
                changed()
            case "forget":
                lab = Measurements(engine, LIMITS)
            case "merge":
                count = len(lab.stored())
                gone = await merge(lab)
                assert len(lab.stored()) == count - gone
            case "open":
                readers.append(Reader(lab, expected, operand))
            case "read":
                for reader in readers:
                    await reader.read(operand)
            case "delete":
                await delete(lab, operand)
                matches = parse_filter(operand).compile({})
                expected = {own: row for own, row in expected.items() if not matches(row)}
                for reader in readers:
                    reader.wanted &= expected.keys()
                changed()
        check(lab, expected)
    for reader in readers:
        while not await reader.read(None):
            pass
        reader.check()
    # Now nobody reads, and all that can be one is.
    lab = Measurements(engine, LIMITS)
    lab.buckets.forget(NAMESPACE)
    await merge(lab)
    check(lab, expected)
    assert await merge(lab) == 0


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Measurements]:
    engine: Engine = LmdbEngine(tmp_path, sync=False)
    made = Measurements(engine, BucketLimits(count_max=100))
    await made.create()
    yield made
    await made.catalog.close()
    engine.close()


async def in_pieces(lab: Measurements, numbers: range) -> dict[int, Document]:
    """Measurements of ten series, each in a bucket of its own though one bucket could hold those of a series."""
    rows = {number: document(number, (number // 10, f"s{number % 10}", number)) for number in numbers}
    for row in rows.values():
        await lab.insert(row)
    return rows


def split(lab: Measurements) -> Any:
    """Nobody reopens a bucket, and each is forgotten as soon as it is stored."""
    lab.buckets._queried = lambda *_: None  # type: ignore[method-assign]
    insert = lab.insert

    async def forgetting(*rows: Document) -> None:
        await insert(*rows)
        lab.buckets.forget(NAMESPACE)

    lab.insert = forgetting  # type: ignore[method-assign]


async def test_many_small_buckets_become_few(lab: Measurements) -> None:
    split(lab)
    rows = await in_pieces(lab, range(300))
    assert len(lab.stored()) == 300
    assert await merge(lab) == 290
    assert lab.counters()["numBucketsMerged"] == 290
    check(lab, rows)
    stored = lab.stored()
    assert [bucket["control"]["count"] for bucket in stored] == [30] * 10
    assert {bucket["control"]["version"] for bucket in stored} == {2}
    assert all(bucket["_id"].generation_time.timestamp() * 1000 == START for bucket in stored)


async def test_readers_and_merges_take_turns(lab: Measurements, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of no length: readers stop wherever they can, and merges begin wherever they may."""
    monkeypatch.setattr(execute, "SLICE_SECONDS", 0)
    monkeypatch.setattr(merging, "_TRIES", 100)
    monkeypatch.setattr(merging, "_BETWEEN_TRIES_SECONDS", 0.001)
    split(lab)
    rows: dict[int, Document] = {}
    rng = random.Random(7)
    merges, gone, reads = merger(lab), 0, 0
    writing = True

    async def pause(seconds: float) -> None:
        await asyncio.sleep(rng.random() * seconds)

    async def read() -> None:
        nonlocal reads
        while writing:
            reader = Reader(lab, dict(rows), rng.choice([(), ({"$match": {"t": {"$gte": DatetimeMS(START)}}},)]))
            while not await reader.read(rng.randrange(1, 60)):
                await pause(0.002)
            reader.check()
            reads += 1
            await pause(0.01)

    async def keep_merging() -> None:
        nonlocal gone
        while writing:
            gone += (await merges.merge(lab.collection(NAMESPACE.buckets), b"")).gone
            await asyncio.sleep(0)

    async def write() -> None:
        nonlocal writing
        try:
            for start in range(0, 900, 30):
                rows.update(await in_pieces(lab, range(start, start + 30)))
                await asyncio.sleep(0.002)
        finally:
            writing = False

    await asyncio.gather(write(), read(), read(), keep_merging())
    check(lab, rows)
    assert gone > 0
    assert reads > 0


async def test_a_reader_that_has_begun_puts_a_merge_off(lab: Measurements) -> None:
    split(lab)
    rows = await in_pieces(lab, range(40))
    for stages in ((), ({"$match": {"m": "s1"}},), ({"$sort": {"m": 1, "t": 1}},)):
        reader = Reader(lab, rows, ())
        with lab.engine.snapshot() as snapshot:
            reader.execution = Execution(lab.plan(snapshot, *stages), lab.engine)
        await reader.read(1)
        assert await merge(lab) == 0, stages
        reader.execution.close()
    forgotten = Reader(lab, rows, ())
    await forgotten.read(1)
    del forgotten
    assert await merge(lab) == 30
    check(lab, rows)


async def test_packing_waits_a_while_for_merging_and_compact_merges_packs(
    lab: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_LEFT_LOOSE", 0)
    split(lab)
    rows = await in_pieces(lab, range(300))
    collection = lab.collection(NAMESPACE.buckets)
    packer = Packer(lab.engine, lab.catalog, TestClock(0), lambda: lab.buckets, None, lambda: True, merger(lab))
    reader = Reader(lab, rows, ())
    await reader.read(1)
    for _ in range(packing._PUT_OFF_MAX):
        assert await packer.pack(collection) == 0
    assert await packer.pack(collection) == 300
    check(lab, rows)
    reader.execution.close()
    assert await merge(lab) == 0, "nothing is loose"
    await packer.pack(collection, everything=True)
    assert [bucket["control"]["count"] for bucket in lab.stored()] == [30] * 10
    check(lab, rows)


async def test_what_others_wrote_meanwhile_stays(lab: Measurements) -> None:
    split(lab)
    rows = await in_pieces(lab, range(20))
    collection = lab.collection(NAMESPACE.buckets)
    merges = merger(lab)
    put = merges._put
    series = lab.stored()[0]["meta"]

    def late(transaction: Transaction, *rest: Any) -> int:
        record_key, raw = next(documents.scan(transaction, collection))
        documents.replace(transaction, collection, record_key, raw, encode({**decode(raw), "meta": "else"}))
        return put(transaction, *rest)

    merges._put = late  # type: ignore[method-assign]
    assert (await merges.merge(collection, b"")).gone == 9
    found = {row["_id"]: row for row in lab.aggregate()}
    changed = [number for number in rows if found[number] != rows[number]]
    assert [{**rows[number], "m": "else"} for number in changed] == [found[number] for number in changed]
    assert [rows[number]["m"] for number in changed] == [series]


async def test_a_commit_that_does_not_begin_is_given_up(lab: Measurements, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_PATIENCE_SECONDS", 0.01)
    split(lab)
    rows = await in_pieces(lab, range(20))
    release = await lab.engine.hold()
    try:
        assert await merge(lab) == 0
        # Readers go on while writers wait.
        assert not lab.engine.readers.shut
        reader = Reader(lab, rows, ())
        assert await reader.read(5) is False
    finally:
        release()
    while not await reader.read(None):
        pass
    reader.check()
    assert len(lab.stored()) == 20
    assert await merge(lab) == 10


async def test_types_full_buckets_and_spans_keep_buckets_apart(lab: Measurements) -> None:
    split(lab)
    values: list[Any] = [1, "x", 2, "y", 3.5, Int64(4)]
    rows = {number: document(number, (number, "a", value)) for number, value in enumerate(values)}
    far = document(10, (3600, "a", 1))
    for row in [*rows.values(), far]:
        await lab.insert(row)
    await lab.insert(*(document(number, (20, "full", 1)) for number in range(100, 200)))
    await lab.insert(document(200, (21, "full", 1)))
    rows |= {number: document(number, (20, "full", 1)) for number in range(100, 200)}
    rows |= {10: far, 200: document(200, (21, "full", 1))}
    assert await merge(lab) == 4
    check(lab, rows)
    kinds = [
        {type(row.get("v")) for row in lab.aggregate({"$match": {"m": "a", "_id": {"$in": ids}}})}
        for ids in ([0, 2, 4, 5], [1, 3])
    ]
    assert kinds == [{int, float, Int64}, {str}]
    counts = sorted(bucket["control"]["count"] for bucket in lab.stored())
    assert counts == [1, 1, 2, 4, 100]


async def test_active_and_closed_buckets_are_left_alone(lab: Measurements) -> None:
    rows = {number: document(number, (60 * number, "a", 1)) for number in range(3)}
    lab.buckets._queried = lambda *_: None  # type: ignore[method-assign]
    for number, row in rows.items():
        await lab.insert(row)
        if number < 2:
            lab.buckets.forget(NAMESPACE)
    collection = lab.collection(NAMESPACE.buckets)

    def close(transaction: Transaction) -> None:
        record_key, raw = next(documents.scan(transaction, collection))
        bucket = decode(raw)
        closed = {**bucket, "control": {**bucket["control"], "closed": True}}
        documents.replace(transaction, collection, record_key, raw, encode(closed))

    await lab.engine.write(close)
    assert await merge(lab) == 0
    lab.buckets.forget(NAMESPACE)
    assert await merge(lab) == 1
    assert lab.engine.readers.any_of([number_key(collection.id)]) is False
    check(lab, rows)
