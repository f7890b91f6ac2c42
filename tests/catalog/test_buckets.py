"""Where measurements go: one bucket for a series and a span of time, and another when it is full."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from bson import DatetimeMS
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.catalog import documents
from bucketd.catalog.buckets import BucketLimits
from bucketd.common.errors import NamespaceNotFound
from bucketd.common.values import encode
from bucketd.kernels import partition, validate_bucket
from bucketd.storage.checked_engine import CheckedEngine
from bucketd.storage.engine import Snapshot, Transaction
from bucketd.storage.errors import StoreFull
from support.measurements import NAMESPACE, Measurements
from support.memory_engine import MemoryEngine

START = 1_700_000_000_000 // 3_600_000 * 3_600_000
MINUTE = 60_000


@pytest.fixture
async def lab() -> Measurements:
    made = Measurements(CheckedEngine(MemoryEngine()))
    await made.create()
    return made


def at(minutes: float, meta: Any = "a", **fields: Any) -> dict[str, Any]:
    return {"_id": minutes, "t": DatetimeMS(int(START + minutes * MINUTE)), "m": meta, **fields}


def counts(lab: Measurements) -> list[int]:
    return [bucket["control"]["count"] for bucket in lab.stored()]


async def test_measurements_of_a_series_share_a_bucket(lab: Measurements) -> None:
    await lab.insert(at(0, x=1), at(1, x=2))
    await lab.insert(at(2, x=3))
    (bucket,) = lab.stored()
    assert bucket["meta"] == "a"
    assert bucket["control"]["count"] == 3
    assert bucket["control"]["min"] == {"_id": 0.0, "t": DatetimeMS(START), "x": 1}
    assert bucket["control"]["max"]["x"] == 3
    assert bucket["_id"].binary[:4] == (START // 1000).to_bytes(4, "big")
    assert lab.aggregate() == [
        {name: row[name] for name in ("t", "m", "_id", "x")}
        for row in (at(0, x=1) | {"_id": 0}, at(1, x=2), at(2, x=3))
    ]


async def test_each_series_has_buckets_of_its_own(lab: Measurements) -> None:
    without = at(0)
    del without["m"]
    await lab.insert(at(0, "a"), at(0, "b"), at(0, None), without, at(0, {"y": 1, "x": 2}), at(0, {"x": 2, "y": 1}))
    assert sorted(counts(lab)) == [1, 1, 1, 1, 2]
    assert lab.counters()["numBucketsOpenedDueToMetadata"] == 5
    assert sum("meta" not in bucket for bucket in lab.stored()) == 1


async def test_time_forward_opens_another(lab: Measurements) -> None:
    await lab.insert(at(0), at(59), at(60), at(180))
    assert counts(lab) == [2, 1, 1]
    assert lab.counters()["numBucketsClosedDueToTimeForward"] == 2


async def test_an_earlier_time_opens_another_and_both_go_on(lab: Measurements) -> None:
    await lab.insert(at(120), at(0), at(121), at(1))
    assert counts(lab) == [2, 2]
    assert lab.counters()["numBucketsArchivedDueToTimeBackward"] == 2
    assert lab.counters()["numBucketsClosedDueToTimeForward"] == 1


async def test_a_full_bucket_is_followed_by_another() -> None:
    lab = Measurements(MemoryEngine(), BucketLimits(count_max=10))
    await lab.create()
    await lab.insert(*(at(number / 10) for number in range(25)))
    assert sorted(counts(lab)) == [5, 10, 10]
    assert lab.counters()["numBucketsClosedDueToCount"] == 2
    assert len(lab.aggregate()) == 25


async def test_a_field_of_another_type_opens_another(lab: Measurements) -> None:
    for number in range(20):
        await lab.insert(at(number, x=("text", 5, None)[number % 3]), at(number + 0.5, x="text"))
    assert lab.counters()["numBucketsClosedDueToSchemaChange"] > 0
    assert len(lab.aggregate()) == 40
    for bucket in lab.stored():
        assert type(bucket["control"]["min"]["x"]) is type(bucket["control"]["max"]["x"])


async def test_late_measurements_make_an_unsorted_bucket(lab: Measurements) -> None:
    await lab.insert(at(0), at(5))
    await lab.insert(at(1))
    (bucket,) = lab.stored()
    assert bucket["control"]["version"] == 3
    assert lab.counters()["numCompressedBucketsConvertedToUnsorted"] == 1
    assert sorted(row["_id"] for row in lab.aggregate()) == [0, 1, 5]


async def test_a_stored_bucket_is_found_again_after_a_restart() -> None:
    engine = MemoryEngine()
    lab = Measurements(engine)
    await lab.create()
    await lab.insert(at(0, x=1))
    again = Measurements(engine)
    await again.insert(at(1, x=2))
    assert counts(again) == [2]
    assert again.counters()["numBucketsReopened"] == 1


async def test_a_direct_write_is_noticed_and_nothing_is_lost(lab: Measurements) -> None:
    await lab.insert(at(0))
    await lab.engine.write(lambda transaction: remove_all(lab, transaction))
    await lab.insert(at(1))
    assert [row["_id"] for row in lab.aggregate()] == [1]


async def test_those_who_wait_share_a_commit(lab: Measurements) -> None:
    await asyncio.gather(*(lab.insert(at(number / 10)) for number in range(30)))
    assert counts(lab) == [30]
    assert lab.counters()["numCommits"] < 30
    assert lab.counters()["numMeasurementsCommitted"] == 30


async def test_a_dropped_collection_is_told(lab: Measurements) -> None:
    await lab.insert(at(0))
    await lab.catalog.drop(NAMESPACE, NAMESPACE.buckets)
    lab.buckets.forget(NAMESPACE)
    with pytest.raises(NamespaceNotFound):
        await lab.insert(at(1))
    await lab.create()
    await lab.insert(at(2))
    assert [row["_id"] for row in lab.aggregate()] == [2]
    await lab.catalog.close()


async def test_what_could_not_be_stored_is_told_and_not_kept() -> None:
    class Failing(MemoryEngine):
        full = False

        async def write(self, work: Any) -> Any:
            if self.full:
                raise StoreFull("no room left")
            return await super().write(work)

    engine = Failing()
    lab = Measurements(engine)
    await lab.create()
    await lab.insert(at(0))
    engine.full = True
    outcomes = await asyncio.gather(*(lab.insert(at(number)) for number in range(1, 4)), return_exceptions=True)
    assert all(isinstance(outcome, StoreFull) for outcome in outcomes)
    engine.full = False
    await lab.insert(at(10))
    assert [row["_id"] for row in lab.aggregate()] == [0, 10]


async def test_dates_out_of_range_are_flagged(lab: Measurements) -> None:
    await lab.insert(at(0))
    assert not lab.collection(NAMESPACE.buckets).flags
    await lab.insert({"_id": "old", "t": DatetimeMS(-5_000_000), "m": "a"})
    assert lab.collection(NAMESPACE.buckets).flags == {"extendedRange": True}
    assert [row["_id"] for row in lab.aggregate({"$match": {"t": {"$lt": DatetimeMS(0)}}})] == ["old"]


async def test_memory_is_bounded() -> None:
    lab = Measurements(MemoryEngine(), BucketLimits(memory_max=1))
    await lab.create()
    for number in range(5):
        await lab.insert(at(0, f"series {number}"))
    assert lab.counters()["numBucketsArchivedDueToMemoryThreshold"] > 0
    assert len(lab.aggregate()) == 5


async def insert_then(lab: Measurements, *rows: dict[str, Any]) -> Exception | None:
    """What `BucketCatalog.begin` tells of these measurements."""
    told: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    batch = partition([encode(row) for row in rows], "t", "m")
    assert lab.buckets.begin(lab.collection(NAMESPACE.buckets), batch, told.set_result)
    return await told


async def test_who_does_not_wait_is_told(lab: Measurements) -> None:
    assert await insert_then(lab, at(0), at(1)) is None
    assert counts(lab) == [2]
    assert lab.counters()["numMeasurementsCommitted"] == 2
    old = partition([encode({"t": DatetimeMS(-1)})], "t", "m")
    assert not lab.buckets.begin(lab.collection(NAMESPACE.buckets), old, lambda _: pytest.fail("nothing was begun"))
    assert counts(lab) == [2]


async def test_a_direct_write_is_noticed_where_nobody_waits(lab: Measurements) -> None:
    await lab.insert(at(0))
    await lab.engine.write(lambda transaction: remove_all(lab, transaction))
    assert await insert_then(lab, at(1)) is None
    assert [row["_id"] for row in lab.aggregate()] == [1]
    await lab.catalog.drop(NAMESPACE, NAMESPACE.buckets)
    await lab.create()
    # The catalog was not told: what it has open is of a collection that is no more.
    assert await insert_then(lab, at(2)) is None
    assert [row["_id"] for row in lab.aggregate()] == [2]


async def test_who_comes_while_buckets_change_is_inserted_once(lab: Measurements) -> None:
    await lab.insert(at(0))
    await lab.engine.write(lambda transaction: remove_all(lab, transaction))
    told: list[asyncio.Future[Exception | None]] = []
    for number in range(1, 8):
        batch = partition([encode(at(number))], "t", "m")
        told.append(asyncio.get_running_loop().create_future())
        assert lab.buckets.begin(lab.collection(NAMESPACE.buckets), batch, told[-1].set_result)
        # Some of them come while the first commit, which finds out, is under way.
        await asyncio.sleep(0)
    assert await asyncio.gather(*told) == [None] * 7
    assert [row["_id"] for row in lab.aggregate()] == [1, 2, 3, 4, 5, 6, 7]
    assert lab.counters()["numMeasurementsCommitted"] == 8


def remove_all(lab: Measurements, transaction: Transaction) -> None:
    collection = lab.catalog.collection_in(transaction, NAMESPACE.buckets)
    assert collection is not None
    for record_key, raw in list(documents.scan(transaction, collection)):
        documents.remove(transaction, collection, record_key, raw)


class CountingEngine(MemoryEngine):
    """Counts how often somebody looks at the store."""

    snapshots = 0

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        self.snapshots += 1
        with super().snapshot() as snapshot:
            yield snapshot


async def test_buckets_that_take_turns_are_not_read_again() -> None:
    engine = CountingEngine()
    lab = Measurements(engine)
    await lab.create()
    await lab.insert(at(0))
    await lab.insert(at(60))
    looked = engine.snapshots
    for number in range(1, 6):
        await lab.insert(at(number))
        await lab.insert(at(60 + number))
    assert engine.snapshots == looked
    assert counts(lab) == [6, 6]
    counters = lab.counters()
    assert counters["numBucketsReopened"] == 10
    # The later bucket is archived each time, the earlier one is not.
    assert (counters["numBucketsFetched"], counters["numBucketsQueried"]) == (5, 5)
    assert counters["numBucketsArchivedDueToTimeBackward"] == 5
    assert len(lab.aggregate()) == 12


async def test_a_bucket_that_made_way_and_was_written_to_is_read_again(lab: Measurements) -> None:
    await lab.insert(at(0))
    await lab.insert(at(60))
    await lab.engine.write(lambda transaction: remove_all(lab, transaction))
    await lab.insert(at(1))
    await lab.insert(at(61))
    assert [row["_id"] for row in lab.aggregate()] == [1, 61]


async def test_what_made_way_is_let_go_with_its_collection() -> None:
    engine = CountingEngine()
    lab = Measurements(engine)
    await lab.create()
    await lab.insert(at(0))
    await lab.insert(at(60))
    lab.buckets.forget(NAMESPACE)
    looked = engine.snapshots
    await lab.insert(at(1))
    assert engine.snapshots > looked
    assert counts(lab) == [2, 1]


async def test_what_made_way_for_want_of_memory_is_let_go() -> None:
    engine = CountingEngine()
    lab = Measurements(engine, BucketLimits(memory_max=1))
    await lab.create()
    await lab.insert(at(0))
    await lab.insert(at(60))
    looked = engine.snapshots
    await lab.insert(at(1))
    assert engine.snapshots > looked
    assert counts(lab) == [2, 1]


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 59), st.sampled_from("ab"), st.sampled_from(["", "", "", "remove"])
        ),
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_order_everything_is_there(steps: list[tuple[int, int, str, str]]) -> None:
    async def run() -> None:
        lab = Measurements(MemoryEngine(), BucketLimits(count_max=4))
        await lab.create()
        expected: list[int] = []
        for number, (hour, minute, meta, also) in enumerate(steps):
            if also:
                await lab.engine.write(lambda transaction: remove_all(lab, transaction))
                expected.clear()
            await lab.insert({**at(60 * hour + minute, meta), "_id": number})
            expected.append(number)
        assert sorted(row["_id"] for row in lab.aggregate()) == expected
        for bucket in lab.stored():
            assert validate_bucket(encode(bucket), "t", "m", 3_600_000, 60_000) == []

    asyncio.run(run())


class Unwilling(MemoryEngine):
    """Writes while it is willing."""

    willing = True

    async def write(self, work: Any) -> Any:
        if not self.willing:
            await asyncio.sleep(0)
            raise StoreFull("no room left")
        return await super().write(work)


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("begin"), st.integers(0, 150)), st.sampled_from(["turn", "turn", "remove", "fail"])
        ),
        max_size=40,
    )
)
@settings(max_examples=100, deadline=None)
def test_what_is_told_to_be_durable_is_there_once(steps: list[Any]) -> None:
    async def run() -> None:
        engine = Unwilling()
        lab = Measurements(engine, BucketLimits(count_max=3))
        await lab.create()
        waiting: list[asyncio.Future[Exception | None]] = []
        durable: set[int] = set()

        def begin(number: int, minute: int) -> None:
            done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
            waiting.append(done)

            def told(error: Exception | None) -> None:
                if error is None:
                    durable.add(number)
                done.set_result(error)

            batch = partition([encode({**at(minute), "_id": number})], "t", "m")
            assert lab.buckets.begin(lab.collection(NAMESPACE.buckets), batch, told)

        for number, step in enumerate(steps):
            if step == "turn":
                await asyncio.sleep(0)
            elif step == "fail":
                engine.willing = False
                await asyncio.gather(*waiting)
                engine.willing = True
            elif step == "remove":
                await engine.write(lambda transaction: remove_all(lab, transaction))
                durable.clear()
            else:
                begin(number, step[1])
        await asyncio.gather(*waiting)
        stored = [row["_id"] for row in lab.aggregate()]
        assert len(stored) == len(set(stored))
        assert durable <= set(stored)

    asyncio.run(run())
