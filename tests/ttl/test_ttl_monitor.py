"""What a pass deletes, what it leaves, and how it goes about it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from bson import DatetimeMS, Decimal128, Int64, ObjectId, Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.catalog import documents
from bucketd.catalog.collections import Collection
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.common.clock import TestClock
from bucketd.common.values import Document
from bucketd.storage.engine import Engine, Transaction
from bucketd.storage.errors import StorageError
from bucketd.storage.lmdb_engine import LmdbEngine
from bucketd.ttl.monitor import SLICE_DOCUMENTS_MAX, TtlSettings
from bucketd.ttl.repair import repair_lifetimes
from bucketd.ttl.rules import Lifetime, lifetimes_of
from support.expiry_lab import MANY, NOW_MS, OTHERS, THINGS, Lab, catalog_on, date, ttl_index
from support.measurements import Measurements
from support.memory_engine import MemoryEngine


@pytest.mark.parametrize("direction", [1, -1])
async def test_the_second_of_expiry_is_included(lab: Lab, direction: int) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", 60, direction)])
    await lab.insert(
        {"_id": "over", "at": date(NOW_MS - 60_001)},
        {"_id": "now", "at": date(NOW_MS - 60_000)},
        {"_id": "soon", "at": date(NOW_MS - 59_999)},
    )
    report = await lab.monitor.run_pass()
    assert lab.left() == ["soon"]
    assert (report.deleted_documents, report.deleted_buckets, report.sub_passes) == (2, 0, 1)
    lab.clock.advance(1)
    await lab.monitor.run_pass()
    assert lab.left() == []
    assert lab.monitor.metrics()["deletedDocuments"] == 3
    assert lab.monitor.metrics()["passes"] == 2


@pytest.mark.parametrize(
    ("value", "goes"),
    [
        (DatetimeMS(-(2**63)), True),
        (DatetimeMS(0), True),
        (DatetimeMS(NOW_MS + 1), False),
        (DatetimeMS(2**63 - 1), False),
        ([DatetimeMS(NOW_MS + 9), DatetimeMS(NOW_MS)], True),
        ([DatetimeMS(NOW_MS + 9), "text"], False),
        (["text", 5, DatetimeMS(NOW_MS)], True),
        ([], False),
        (None, False),
        (0, False),
        (NOW_MS - 1, False),
        (float("-inf"), False),
        (Decimal128("1"), False),
        (Timestamp(1, 1), False),
        ("2001-01-01", False),
        (ObjectId(bytes(12)), False),
        (False, False),
        ({"at": DatetimeMS(0)}, False),
        ([[DatetimeMS(0)]], False),
    ],
    ids=str,
)
async def test_only_dates_expire(lab: Lab, value: Any, goes: bool) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", 0)])
    await lab.insert({"_id": 1, "at": value}, {"_id": 2})
    await lab.monitor.run_pass()
    assert lab.left() == ([2] if goes else [1, 2])


async def test_partial_hidden_sparse_and_nested_indexes(lab: Lab) -> None:
    await lab.catalog.create_indexes(
        THINGS,
        [
            ttl_index("a", 0, partialFilterExpression={"old": True}),
            ttl_index("b", 0, hidden=True),
            ttl_index("c.at", 0, sparse=True),
        ],
    )
    past = date(NOW_MS - 1)
    await lab.insert(
        {"_id": 1, "a": past, "old": True},
        {"_id": 2, "a": past, "old": False},
        {"_id": 3, "b": past},
        {"_id": 4, "c": [{"at": date(NOW_MS + 5)}, {"at": past}]},
    )
    await lab.monitor.run_pass()
    assert lab.left() == [2]


async def test_two_lifetimes_of_one_collection_the_shorter_wins(lab: Lab) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("a", 100), ttl_index("b", 10)])
    moment = date(NOW_MS - 50_000)
    await lab.insert({"_id": 1, "a": moment}, {"_id": 2, "b": moment}, {"_id": 3, "a": moment, "b": moment})
    await lab.monitor.run_pass()
    assert lab.left() == [1]


async def test_clustered_collections_expire_by_id(lab: Lab) -> None:
    await lab.catalog.create(OTHERS, {"clusteredIndex": True, "expireAfterSeconds": Int64(10)})
    rows = [date(NOW_MS - 10_001), date(NOW_MS - 10_000), date(NOW_MS - 9_999), 5, "text", ObjectId(bytes(12))]
    await lab.insert(*({"_id": row} for row in rows), into=OTHERS)
    await lab.monitor.run_pass()
    assert set(map(str, lab.left(OTHERS))) == set(map(str, rows[2:]))


async def test_targets_end_visits_and_sub_passes_until_nothing_is_left(lab: Lab) -> None:
    await lab.catalog.create(OTHERS, {})
    for namespace in (THINGS, OTHERS):
        await lab.catalog.create_indexes(namespace, [ttl_index("at", 0)])
        await lab.insert(*({"_id": number, "at": date(number)} for number in range(MANY)), into=namespace)
    lab.settings = TtlSettings(target_documents=SLICE_DOCUMENTS_MAX, sub_pass_seconds=0)
    report = await lab.monitor.run_pass()
    assert (lab.left(), lab.left(OTHERS)) == ([], [])
    assert report.deleted_documents == 2 * MANY
    assert report.sub_passes >= 2
    # Every collection has its turn before one of them has a second.
    assert {visit.collection.namespace for visit in lab.visits[:2]} == {THINGS, OTHERS}


async def test_the_oldest_go_first(lab: Lab) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", 0, -1)])
    await lab.insert(*({"_id": number, "at": date(MANY - number)} for number in range(MANY)))
    lab.settings = TtlSettings(target_documents=1)
    seen: list[int] = []

    def locked() -> bool:
        seen.append(len(lab.left()))
        return len(lab.left()) < MANY

    lab.monitor._locked = locked
    await lab.monitor.run_pass()
    left = lab.left()
    assert 0 < len(left) < MANY
    assert left == list(range(len(left)))


async def test_without_batches_one_visit_takes_all(lab: Lab) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", 0)])
    await lab.insert(*({"_id": number, "at": date(number)} for number in range(350)))
    lab.settings = TtlSettings(target_documents=1, target_ms=1, batch_deletes=False)
    await lab.monitor.run_pass()
    assert (lab.left(), len(lab.visits)) == ([], 1)


async def test_disabled_locked_or_killed_nothing_goes(lab: Lab) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", 0)])
    await lab.insert({"_id": 1, "at": date(0)})
    lab.settings = TtlSettings(enabled=False)
    await lab.monitor.run_pass()
    lab.settings, lab.locked = TtlSettings(), True
    await lab.monitor.run_pass()
    assert lab.monitor.counters.passes == 0
    lab.locked, lab.wanted = False, False
    await lab.monitor.run_pass()
    assert lab.left() == [1]
    lab.wanted, lab.locked = True, True
    await lab.monitor.run_pass(on_demand=lambda: True)
    assert lab.left() == [1]
    lab.settings, lab.locked = TtlSettings(enabled=False), False
    await lab.monitor.run_pass(on_demand=lambda: True)
    assert lab.left() == []


async def test_a_visit_ends_with_the_very_document_of_its_target(lab: Lab) -> None:
    await lab.catalog.create(OTHERS, {})
    for namespace in (THINGS, OTHERS):
        await lab.catalog.create_indexes(namespace, [ttl_index("at", 0)])
        await lab.insert(*({"_id": number, "at": date(number)} for number in range(9)), into=namespace)
    lab.settings = TtlSettings(target_documents=4)
    seen = []

    @contextmanager
    def watch(lifetime: Lifetime) -> Iterator[Any]:
        yield lambda: True
        seen.append((lifetime.collection.namespace.collection, len(lab.left(lifetime.collection.namespace))))

    lab.monitor._watch = watch
    await lab.monitor.run_pass()
    assert sorted(seen[:2]) == [("others", 5), ("things", 5)]
    assert sorted(seen[2:4]) == [("others", 1), ("things", 1)]
    assert sorted(seen[4:]) == [("others", 0), ("things", 0)]


async def test_an_error_of_one_collection_keeps_no_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    await lab.catalog.create(OTHERS, {})
    for namespace in (THINGS, OTHERS):
        await lab.catalog.create_indexes(namespace, [ttl_index("at", 0)])
        await lab.insert({"_id": 1, "at": date(0)}, into=namespace)
    remove = documents.remove

    def broken(transaction: Transaction, collection: Collection, record_key: bytes, old: bytes) -> None:
        if collection.namespace == THINGS:
            raise StorageError("a bad block")
        remove(transaction, collection, record_key, old)

    monkeypatch.setattr(documents, "remove", broken)
    with structlog.testing.capture_logs() as lines:
        report = await lab.monitor.run_pass()
    assert (lab.left(), lab.left(OTHERS), report.errors) == ([1], [], 1)
    assert [line["namespace"] for line in lines if line["log_level"] == "error"] == [str(THINGS)]


async def test_a_lifetime_that_changes_during_a_pass_counts_at_once(lab: Lab) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", 0)])
    await lab.insert({"_id": 1, "at": date(NOW_MS - 5000)})
    collection = lab.catalog.get(THINGS)
    assert collection is not None
    (lifetime,) = lifetimes_of(collection).valid
    longer = collection.with_changes(
        indexes=tuple(
            index if index.is_id else index.with_options(expireAfterSeconds=3600) for index in collection.indexes
        )
    )
    changed = lifetime.in_current(longer)
    assert changed is not None
    assert changed.seconds == 3600
    assert lifetime.in_current(collection.with_changes(indexes=collection.indexes[:1])) is None
    assert lifetime.in_current(collection.with_changes(id=99)) is None


@pytest.mark.parametrize("stored", [float("nan"), "text", None, 2**40, float("inf")])
async def test_a_stored_lifetime_that_is_none_deletes_nothing(lab: Lab, stored: Any) -> None:
    index = IndexSpec({"v": 2, "key": {"at": 1}, "name": "at_1", "expireAfterSeconds": stored})
    (lifetime,) = lifetimes_of(Collection(THINGS, "collection", indexes=(index,))).valid
    assert lifetime.seconds == 2**31 - 1


@pytest.mark.parametrize(
    ("stored", "seconds"),
    [
        (float("nan"), 2**31 - 1),
        (Decimal128("NaN"), 2**31 - 1),
        (float("inf"), 2**31 - 1),
        (2**31, 2**31 - 1),
        (-5, 2**31 - 1),
        ("text", 2**31 - 1),
        (None, 2**31 - 1),
        (True, 2**31 - 1),
        (10.75, 10),
        (Decimal128("10.75"), 10),
        (0.0, 0),
        (10, None),
        (Int64(10), None),
    ],
    ids=str,
)
async def test_a_stored_lifetime_that_is_none_is_put_right(lab: Lab, stored: Any, seconds: int | None) -> None:
    def change(current: Collection) -> Collection:
        index = IndexSpec({"v": 2, "key": {"at": 1}, "name": "at_1", "expireAfterSeconds": stored}, id=999)
        return current.with_changes(indexes=(*current.indexes, index))

    await lab.catalog.modify(THINGS, change)
    assert await repair_lifetimes(lab.catalog, structlog.get_logger()) == (seconds is not None)
    collection = lab.catalog.get(THINGS)
    assert collection is not None
    assert collection.indexes[-1].document["expireAfterSeconds"] == (10 if seconds is None else seconds)
    assert await repair_lifetimes(lab.catalog, structlog.get_logger()) == 0


async def test_indexes_that_cannot_expire_are_skipped_and_counted(lab: Lab) -> None:
    collection = lab.catalog.get(THINGS)
    assert collection is not None
    index = IndexSpec({"v": 2, "key": {"a": 1, "b": 1}, "name": "two", "expireAfterSeconds": 0})

    def change(current: Collection) -> Collection:
        return current.with_changes(indexes=(*current.indexes, index.with_changes(id=999)))

    await lab.catalog.modify(THINGS, change)
    await lab.monitor.run_pass()
    await lab.monitor.run_pass()
    assert lab.monitor.metrics()["invalidTTLIndexSkips"] == 2


async def test_passes_come_by_the_clock(lab: Lab) -> None:
    lab.monitor.start()
    await lab.monitor.settled()
    lab.clock.advance(59_999)
    await lab.monitor.settled()
    assert lab.monitor.counters.passes == 0
    lab.clock.advance(1)
    await lab.monitor.settled()
    assert lab.monitor.counters.passes == 1
    lab.clock.advance(10_000)
    lab.settings = TtlSettings(sleep_seconds=10)
    lab.monitor.wake()
    await lab.monitor.settled()
    assert lab.monitor.counters.passes == 2
    lab.settings = TtlSettings(sleep_seconds=3600)
    lab.monitor.wake()
    lab.clock.advance(3_599_999)
    await lab.monitor.settled()
    assert lab.monitor.counters.passes == 2
    await lab.monitor.stop()
    lab.clock.advance(3_600_000)
    await lab.monitor.settled()
    assert lab.monitor.counters.passes == 2


async def test_a_writer_meanwhile_waits_for_one_slice_at_most(lab: Lab) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", 0)])
    await lab.insert(*({"_id": number, "at": date(number)} for number in range(5 * SLICE_DOCUMENTS_MAX)))
    running = asyncio.create_task(lab.monitor.run_pass())
    await lab.insert({"_id": "fresh", "at": date(NOW_MS + 1)})
    assert len(lab.left()) > 1
    await running
    assert lab.left() == ["fresh"]


class SeriesLab(Lab):
    def __init__(self, engine: Engine, clock: TestClock, series: Measurements) -> None:
        super().__init__(engine, series.catalog, clock)
        self.series = series


@pytest.fixture
async def series(tmp_path: Path) -> AsyncIterator[SeriesLab]:
    engine = LmdbEngine(tmp_path, sync=False)
    made = Measurements(engine)
    yield SeriesLab(engine, TestClock(NOW_MS), made)
    await made.catalog.close()
    engine.close()


async def expire_after(lab: SeriesLab, seconds: int) -> None:
    def change(current: Collection) -> Collection:
        return current.with_changes(options={**current.options, "expireAfterSeconds": Int64(seconds)})

    namespace = Namespace("lab", "readings")
    await lab.catalog.modify_many({namespace: change, namespace.buckets: change})


async def test_a_bucket_goes_a_lifetime_after_its_span(series: SeriesLab) -> None:
    await series.series.create()
    await expire_after(series, 100)
    start = NOW_MS // 60_000 * 60_000
    await series.series.insert({"_id": 1, "t": date(start + 5000), "m": "a"}, {"_id": 2, "t": date(start), "m": "b"})
    series.clock.advance(start + 3_600_000 + 100_000 - 1000 - NOW_MS)
    await series.monitor.run_pass()
    assert len(series.series.stored()) == 2
    series.clock.advance(1000)
    report = await series.monitor.run_pass()
    assert series.series.stored() == []
    assert (report.deleted_buckets, report.deleted_documents) == (2, 0)
    assert len(series.removed) == 2


async def test_the_bucket_catalog_forgets_what_is_gone(series: SeriesLab) -> None:
    await series.series.create()
    await expire_after(series, 0)
    await series.series.insert({"_id": 1, "t": date(NOW_MS - 8_000_000), "m": "a"})
    buckets = series.series.buckets
    series.monitor._on_buckets_removed = buckets.forget_buckets
    assert buckets.status()["numBuckets"] == 1
    await series.monitor.run_pass()
    assert buckets.status()["numBuckets"] == 0
    await series.series.insert({"_id": 2, "t": date(NOW_MS - 8_000_000), "m": "a"})
    assert [row["_id"] for row in series.series.aggregate()] == [2]


async def test_dates_out_of_order_exempt_a_collection(series: SeriesLab) -> None:
    await series.series.create()
    await expire_after(series, 0)
    await series.series.insert({"_id": 1, "t": date(NOW_MS - 8_000_000), "m": "a"}, {"_id": 2, "t": date(-5), "m": "b"})
    await series.monitor.run_pass()
    assert len(series.series.stored()) == 2


moments = st.one_of(
    st.none(),
    st.integers(-3, 3).map(lambda offset: DatetimeMS(NOW_MS - 5000 + offset)),
    st.datetimes().map(lambda moment: DatetimeMS(int(moment.timestamp()) * 1000)),
    st.integers(),
)


def has_expired(row: Document, lifetimes: list[tuple[str, int]]) -> bool:
    for path, seconds in lifetimes:
        value = row.get(path)
        dates = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, DatetimeMS)]
        if any(int(one) <= NOW_MS - seconds * 1000 for one in dates):
            return True
    return False


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {}, optional={name: st.one_of(moments, st.lists(moments, max_size=3)) for name in ("a", "b")}
        ),
        max_size=30,
    ),
    lifetimes=st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([0, 5, 2**31 - 1])), max_size=2, unique_by=lambda row: row[0]
    ),
    direction=st.sampled_from([1, -1]),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_has_expired_goes_and_nothing_else(
    rows: list[Document], lifetimes: list[tuple[str, int]], direction: int
) -> None:
    async def story() -> None:
        engine = MemoryEngine()
        catalog = catalog_on(engine)
        await catalog.create(THINGS, {})
        lab = Lab(engine, catalog, TestClock(NOW_MS))
        specs = [ttl_index(path, seconds, direction) for path, seconds in lifetimes]
        if specs:
            await catalog.create_indexes(THINGS, specs)
        kept = [
            {"_id": number, **{name: value for name, value in row.items() if not _too_large(value)}}
            for number, row in enumerate(rows)
        ]
        await lab.insert(*kept)
        await lab.monitor.run_pass()
        assert lab.left() == [row["_id"] for row in kept if not has_expired(row, lifetimes)]
        await catalog.close()

    asyncio.run(story())


def _too_large(value: Any) -> bool:
    """Whether BSON has no number for it."""
    if isinstance(value, list):
        return any(_too_large(one) for one in value)
    return isinstance(value, int) and not isinstance(value, DatetimeMS) and not -(2**63) <= value < 2**63
