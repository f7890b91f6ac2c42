"""Packed or not, buckets are found, walked through, changed and removed as if each lay by itself."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bson import Binary, ObjectId

from bucketd.catalog import documents, packs
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.collections import Collection
from bucketd.catalog.namespaces import Namespace
from bucketd.catalog.packing import Packer
from bucketd.common.clock import TestClock
from bucketd.common.errors import DuplicateKey
from bucketd.common.values import decode, encode
from bucketd.storage.engine import Engine, Snapshot, Transaction
from bucketd.storage.errors import Corrupted
from bucketd.storage.keys import after, number_key
from bucketd.storage.lmdb_engine import LmdbEngine
from support.memory_engine import MemoryEngine

NAMESPACE = Namespace("test", "system.buckets.readings")


@pytest.fixture(params=["lmdb", "memory"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    made: Engine = MemoryEngine() if request.param == "memory" else LmdbEngine(tmp_path, sync=False)
    yield made
    made.close()


@pytest.fixture
async def buckets(engine: Engine) -> AsyncIterator[tuple[Catalog, Collection]]:
    catalog = Catalog(engine)
    catalog.load()
    options = {"timeseries": {"timeField": "time"}, "clusteredIndex": True}
    yield catalog, await catalog.create(NAMESPACE, options=options)
    await catalog.close()


def packer(engine: Engine, catalog: Catalog) -> Packer:
    return Packer(engine, catalog, TestClock(0), lambda: None, None, lambda: True)


def bucket(number: int, content: str = "", size: int = packs.RAW_BYTES_MAX // 21) -> bytes:
    identity = ObjectId(number.to_bytes(4, "big") + b"eightbyt")
    data = Binary((f"{number} {content} ".encode() * size)[:size])
    return encode({"_id": identity, "control": {"version": 2}, "data": data})


def stored(snapshot: Snapshot, collection: Collection) -> list[bytes]:
    prefix = number_key(collection.id)
    return [value for _, value in snapshot.scan("records", prefix, after(prefix))]


def check(snapshot: Snapshot, collection: Collection, model: dict[bytes, bytes], rng: random.Random) -> None:
    """Everything that can be asked is answered from the model."""
    rows = sorted(model.items())
    assert list(documents.scan(snapshot, collection)) == rows
    assert list(documents.scan(snapshot, collection, reverse=True)) == rows[::-1]
    stats = documents.read_stats(snapshot, collection)
    assert (stats.count, stats.data_bytes) == (len(rows), sum(len(raw) for _, raw in rows))
    assert documents.stored_bytes(snapshot, collection) == sum(map(len, stored(snapshot, collection)))
    for number in range(60):
        key = documents.clustered_key(collection, bucket(number))
        assert documents.fetch(snapshot, collection, key) == model.get(key)
    for _ in range(10):
        low, high, last = (documents.clustered_key(collection, bucket(rng.randrange(60))) for _ in range(3))
        for reverse in (False, True):
            bounds: dict[str, Any] = {"low": low, "high": high, "reverse": reverse}
            expected = [row for row in rows if low <= row[0] < high]
            if rng.random() < 0.5:
                bounds["after_key"] = last
                expected = [row for row in expected if (row[0] < last if reverse else row[0] > last)]
            found = list(documents.scan(snapshot, collection, **bounds))
            assert found == (expected[::-1] if reverse else expected)


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_is_done_to_packed_buckets_is_as_if_they_were_not(
    engine: Engine, buckets: tuple[Catalog, Collection], seed: int
) -> None:
    catalog, collection = buckets
    rng = random.Random(seed)
    model: dict[bytes, bytes] = {}
    seen_packs = 0
    for step in range(60):
        number = rng.randrange(60)
        raw = bucket(number, f"step {step}", rng.choice((50, 900, 3000, 9000)))
        key = documents.clustered_key(collection, raw)

        def work(transaction: Transaction, key: bytes = key, raw: bytes = raw, step: int = step) -> None:
            old = documents.fetch(transaction, collection, key)
            assert old == model.get(key)
            if old is None:
                documents.insert(transaction, collection, raw)
            elif step % 3 == 0:
                documents.remove(transaction, collection, key, old)
            elif step % 3 == 1:
                documents.replace(transaction, collection, key, old, raw)
            else:
                assert documents.fetch_loose(transaction, collection, key) == old
                documents.rewrite_many(transaction, collection, [(key, old, raw, None)])

        await engine.write(work)
        if key in model and step % 3 == 0:
            del model[key]
        else:
            model[key] = raw
        if rng.random() < 0.3:
            active = {own[1:] for own in model if rng.random() < 0.2}
            await packer(engine, catalog).pack(collection, active, everything=rng.random() < 0.7)
        with engine.snapshot() as snapshot:
            seen_packs += any(map(packs.is_pack, stored(snapshot, collection)))
            check(snapshot, collection, model, rng)
    assert seen_packs > 10


async def test_many_buckets_take_few_pages(engine: Engine, buckets: tuple[Catalog, Collection]) -> None:
    catalog, collection = buckets
    raws = [bucket(number) for number in range(200)]
    await engine.write(lambda transaction: documents.insert_many(transaction, collection, raws))
    with engine.snapshot() as snapshot:
        before = sum(packs.stored_size(len(value)) for value in stored(snapshot, collection))
    assert await packer(engine, catalog).pack(collection, everything=True) == 200
    with engine.snapshot() as snapshot:
        values = stored(snapshot, collection)
        assert [raw for _, raw in documents.scan(snapshot, collection)] == raws
    assert all(map(packs.is_pack, values))
    assert sum(packs.stored_size(len(value)) for value in values) < before / 4
    assert await packer(engine, catalog).pack(collection, everything=True) == 0


async def test_active_buckets_and_small_remainders_stay_loose(
    engine: Engine, buckets: tuple[Catalog, Collection]
) -> None:
    catalog, collection = buckets
    raws = [bucket(number) for number in range(60)]
    keys = await engine.write(lambda transaction: documents.insert_many(transaction, collection, raws))
    made = packer(engine, catalog)
    assert 20 <= await made.pack(collection, {key[1:] for key in keys[40:]}) <= 40
    with engine.snapshot() as snapshot:
        values = stored(snapshot, collection)
    assert values[-20:] == raws[40:]
    # Once they have been left, the next pass goes on from the first that was left.
    assert await made.pack(collection) > 0


async def test_passes_come_with_enough_closed_buckets(engine: Engine, buckets: tuple[Catalog, Collection]) -> None:
    catalog, collection = buckets

    class Active:
        ids: set[bytes]
        news: tuple[int, bytes] | None

        def active_ids(self, collection: Collection) -> set[bytes]:
            return self.ids

        def fresh(self, collection: Collection) -> tuple[int, bytes] | None:
            return self.news

    active = Active()
    wanted = [True]
    made = Packer(engine, catalog, TestClock(0), lambda: active, None, lambda: wanted[0])
    raws = [bucket(number) for number in range(40)]
    keys = await engine.write(lambda transaction: documents.insert_many(transaction, collection, raws))
    active.ids, active.news = {key[1:] for key in keys[15:]}, (40, keys[0][1:])
    await made._look_around()
    assert made.packed == 0
    active.ids, active.news = {key[1:] for key in keys[30:]}, None
    await made._look_around()
    assert made.packed == 0
    # None is new, and no more than these were closed.
    active.news = (0, keys[0][1:])
    wanted[0] = False
    await made._look_around()
    assert made.packed == 0
    wanted[0] = True
    await made._look_around()
    assert 20 < made.packed <= 30
    before = made.packed
    await made._look_around()
    assert made.packed == before


async def test_what_was_changed_while_it_was_compressed_is_not_packed(
    engine: Engine, buckets: tuple[Catalog, Collection]
) -> None:
    catalog, collection = buckets
    raws = [bucket(number) for number in range(0, 60, 2)]
    keys = await engine.write(lambda transaction: documents.insert_many(transaction, collection, raws))
    made = packer(engine, catalog)
    step = made._read(collection, b"", set(), True)
    assert len(step.made) == 2
    between = bucket(1)
    await engine.write(lambda transaction: documents.insert(transaction, collection, between))
    assert await engine.write(lambda transaction: made._put(transaction, collection, step)) == len(step.made[1].rows)
    with engine.snapshot() as snapshot:
        assert [raw for _, raw in documents.scan(snapshot, collection)] == [raws[0], between, *raws[1:]]
        assert documents.fetch(snapshot, collection, keys[3]) == raws[3]
    await catalog.drop(NAMESPACE)
    step = made._read(collection, b"", set(), True)
    assert await engine.write(lambda transaction: made._put(transaction, collection, step)) == 0


async def test_an_id_within_a_pack_is_taken(engine: Engine, buckets: tuple[Catalog, Collection]) -> None:
    catalog, collection = buckets
    raws = [bucket(number) for number in range(20)]
    await engine.write(lambda transaction: documents.insert_many(transaction, collection, raws))
    await packer(engine, catalog).pack(collection, everything=True)
    with pytest.raises(DuplicateKey):
        await engine.write(lambda transaction: documents.insert(transaction, collection, bucket(7, "again")))
    with engine.snapshot() as snapshot:
        assert [raw for _, raw in documents.scan(snapshot, collection)] == raws


async def test_a_damaged_pack_is_told(engine: Engine, buckets: tuple[Catalog, Collection]) -> None:
    catalog, collection = buckets
    raws = [bucket(number) for number in range(20)]
    await engine.write(lambda transaction: documents.insert_many(transaction, collection, raws))
    await packer(engine, catalog).pack(collection, everything=True)
    prefix = number_key(collection.id)

    def damage(transaction: Transaction) -> None:
        ((key, value),) = transaction.scan("records", prefix, after(prefix))
        transaction.put("records", key, value[:18] + b"notthese" + value[26:-9] + bytes(9))

    await engine.write(damage)
    with engine.snapshot() as snapshot, pytest.raises(Corrupted):
        list(documents.scan(snapshot, collection))


def test_documents_are_no_packs() -> None:
    assert not packs.is_pack(encode({}))
    assert not packs.is_pack(bucket(1))
    assert decode(bucket(1))["control"] == {"version": 2}
