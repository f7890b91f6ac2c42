"""What happens to a collection while a pass is at work on it, and how a pass gives way."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bucketd.catalog.collections import Collection
from bucketd.catalog.namespaces import Namespace
from bucketd.common.values import Document
from bucketd.storage.engine import Transaction
from bucketd.storage.lmdb_engine import LmdbEngine
from bucketd.ttl.monitor import SLICE_DOCUMENTS_MAX, TtlSettings
from bucketd.ttl.rules import Lifetime, lifetimes_of
from support.expiry_lab import MANY, NOW_MS, OTHERS, THINGS, Lab, date, ttl_index

RENAMED = Namespace("test", "renamed")


async def fill(lab: Lab, seconds: int = 0) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", seconds)])
    await lab.insert(*({"_id": number, "at": date(NOW_MS - 10_000)} for number in range(MANY)))


async def changed_in_mid_pass(lab: Lab, change: Any) -> None:
    """Run a pass, and the change behind its first slice."""
    running = asyncio.create_task(lab.monitor.run_pass())
    await asyncio.sleep(0)
    await change()
    report = await running
    assert report.errors == 0


def with_seconds(seconds: int) -> Any:
    def change(current: Collection) -> Collection:
        return current.with_changes(
            indexes=tuple(
                index if index.is_id else index.with_options(expireAfterSeconds=seconds) for index in current.indexes
            )
        )

    return change


async def test_an_index_dropped_in_mid_pass_expires_nothing_more(lab: Lab) -> None:
    await fill(lab)
    collection = lab.catalog.get(THINGS)
    assert collection is not None
    name = collection.indexes[-1].name
    await changed_in_mid_pass(lab, lambda: lab.catalog.drop_indexes(THINGS, [name]))
    assert 0 < len(lab.left()) < MANY


async def test_a_longer_lifetime_in_mid_pass_counts_at_once(lab: Lab) -> None:
    await fill(lab)
    await changed_in_mid_pass(lab, lambda: lab.catalog.modify(THINGS, with_seconds(3600)))
    assert 0 < len(lab.left()) < MANY


async def test_an_index_hidden_in_mid_pass_goes_on(lab: Lab) -> None:
    await fill(lab)

    def hide(current: Collection) -> Collection:
        indexes = (current.indexes[0], current.indexes[-1].with_options(hidden=True))
        return current.with_changes(indexes=indexes)

    await changed_in_mid_pass(lab, lambda: lab.catalog.modify(THINGS, hide))
    assert lab.left() == []


async def test_a_collection_renamed_in_mid_pass_is_followed(lab: Lab) -> None:
    await fill(lab)
    await changed_in_mid_pass(lab, lambda: lab.catalog.rename(THINGS, RENAMED))
    assert lab.left(RENAMED) == []


async def test_a_collection_dropped_and_made_again_in_mid_pass_keeps_its_documents(lab: Lab) -> None:
    await fill(lab)

    async def again() -> None:
        await lab.catalog.drop(THINGS)
        await lab.catalog.create(THINGS, {})
        await lab.insert({"_id": "new", "at": date(NOW_MS - 10_000)})

    await changed_in_mid_pass(lab, again)
    assert lab.left() == ["new"]


async def test_a_clock_set_back_in_mid_pass_spares_what_is_not_old_by_it(lab: Lab) -> None:
    await fill(lab)

    async def back() -> None:
        lab.clock.set(NOW_MS - 20_000)

    await changed_in_mid_pass(lab, back)
    assert 0 < len(lab.left()) < MANY


async def test_a_document_changed_in_mid_pass_is_looked_at_again(lab: Lab) -> None:
    await fill(lab)
    survivors = MANY // 2

    async def renew() -> None:
        def work(transaction: Transaction) -> None:
            collection = lab.catalog.collection_in(transaction, THINGS)
            assert collection is not None
            from bucketd.catalog import documents
            from bucketd.common.values import decode, encode

            for record_key, raw in list(documents.scan(transaction, collection))[-survivors:]:
                row: Document = decode(raw)
                documents.replace(transaction, collection, record_key, raw, encode({**row, "at": date(NOW_MS + 1)}))

        await lab.engine.write(work)

    await changed_in_mid_pass(lab, renew)
    assert len(lab.left()) == survivors


async def test_an_index_in_the_making_expires_nothing(lab: Lab) -> None:
    index = ttl_index("at", 0)
    collection = Collection(THINGS, "collection", indexes=(index.with_changes(building=True),))
    assert lifetimes_of(collection).valid == []
    assert len(lifetimes_of(collection.with_changes(indexes=(index,))).valid) == 1


async def test_there_is_one_deletion_at_a_time(lab: Lab) -> None:
    await lab.catalog.create(OTHERS, {})
    for namespace in (THINGS, OTHERS):
        await lab.catalog.create_indexes(namespace, [ttl_index("at", 0)])
        await lab.insert(*({"_id": number, "at": date(0)} for number in range(MANY)), into=namespace)
    running = 0

    @contextmanager
    def watch(lifetime: Lifetime) -> Iterator[Any]:
        nonlocal running
        running += 1
        assert running == 1
        yield lambda: True
        running -= 1

    lab.monitor._watch = watch
    reports = await asyncio.gather(lab.monitor.run_pass(), lab.monitor.run_pass())
    assert sorted(report.deleted_documents for report in reports) == [0, 2 * MANY]


async def test_a_collection_that_falls_behind_is_cleaned_with_priority(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.catalog.create_indexes(THINGS, [ttl_index("at", 0)])
    await lab.insert(*({"_id": number, "at": date(0)} for number in range(4 * SLICE_DOCUMENTS_MAX)))
    lab.settings = TtlSettings(target_documents=1, sub_pass_seconds=0, low_priority_sub_passes=2)
    low = 0
    write_beside = lab.engine.write_beside

    async def counted(work: Any) -> Any:
        nonlocal low
        low += 1
        return await write_beside(work)

    monkeypatch.setattr(lab.engine, "write_beside", counted)
    report = await lab.monitor.run_pass()
    assert lab.left() == []
    # The first two sub-passes give way, those behind them do not.
    assert low == 2
    assert lab.monitor.metrics()["collSubpassesIncreasedPriority"] == report.sub_passes - 2


async def test_work_that_can_wait_shares_a_commit(tmp_path: Any) -> None:
    engine = LmdbEngine(tmp_path, sync=False)
    put = [lambda transaction, key=key: transaction.put("meta", key, b"") for key in (b"x", b"y", b"z")]
    # Nobody writes: it need not wait.
    await engine.write_beside(put[0])
    await engine.write(put[1])
    before = engine.writer.commits
    patient = asyncio.create_task(engine.write_beside(put[2]))
    await asyncio.sleep(0)
    assert engine.writer.commits == before
    await engine.write(put[0])
    await patient
    assert engine.writer.commits <= before + 2
    # Nobody comes: after a moment it goes by itself.
    await engine.write_beside(put[0])
    engine.close()
