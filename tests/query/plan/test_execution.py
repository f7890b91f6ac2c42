"""Executions hand out batches as asked, stop when told, and go on from where they were in another snapshot."""

import pytest

from bucketd.catalog import documents
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.collections import Collection
from bucketd.catalog.namespaces import Namespace
from bucketd.common.errors import Interrupted, QueryPlanKilled
from bucketd.common.values import decode, encode
from bucketd.kernels import RowArray
from bucketd.query.execute import Execution
from bucketd.query.plan.scans import CollectionScan
from bucketd.query.plan.shaping import CountRows, Limit, Skip
from bucketd.storage.engine import Transaction
from support.memory_engine import MemoryEngine

SPACE = Namespace("db", "c")


async def filled(count: int) -> tuple[MemoryEngine, Collection]:
    engine = MemoryEngine()
    catalog = Catalog(engine)
    catalog.load()
    collection = await catalog.create(SPACE, {})
    await put(engine, collection, range(count))
    return engine, collection


async def put(engine: MemoryEngine, collection: Collection, numbers: range) -> None:
    def work(transaction: Transaction) -> None:
        documents.insert_many(transaction, collection, [encode({"_id": number}) for number in numbers])

    await engine.write(work)


def ids(rows: RowArray) -> list[int]:
    return [decode(raw)["_id"] for raw in rows.raws()]


async def test_batches_are_as_large_as_asked() -> None:
    engine, collection = await filled(10)
    execution = Execution(CollectionScan(collection), engine)
    assert ids(await execution.next_batch(4)) == [0, 1, 2, 3]
    assert not execution.exhausted
    assert ids(await execution.next_batch(None)) == [4, 5, 6, 7, 8, 9]
    assert execution.exhausted


async def test_bytes_end_a_batch_but_one_document_always_fits() -> None:
    engine, collection = await filled(5)
    execution = Execution(CollectionScan(collection), engine)
    assert ids(await execution.next_batch(None, 1)) == [0]
    assert ids(await execution.next_batch(None, 60)) == [1, 2]


async def test_what_comes_in_between_two_batches_is_seen() -> None:
    engine, collection = await filled(3)
    execution = Execution(CollectionScan(collection), engine)
    assert ids(await execution.next_batch(3)) == [0, 1, 2]
    await put(engine, collection, range(3, 5))
    assert ids(await execution.next_batch(None)) == [3, 4]


async def test_a_tailable_scan_waits_at_the_end() -> None:
    engine, collection = await filled(2)
    execution = Execution(CollectionScan(collection, tailable=True), engine)
    assert ids(await execution.next_batch(None)) == [0, 1]
    assert not execution.exhausted
    assert ids(await execution.next_batch(None)) == []
    await put(engine, collection, range(2, 3))
    assert ids(await execution.next_batch(None)) == [2]
    execution.close()


class Killed:
    def check(self) -> None:
        raise Interrupted("operation was interrupted")


async def test_a_killed_operation_ends_its_execution() -> None:
    engine, collection = await filled(3)
    execution = Execution(CollectionScan(collection), engine)
    with pytest.raises(Interrupted):
        await execution.next_batch(None, watch=Killed())
    assert execution.exhausted


async def test_a_guard_is_asked_before_each_slice() -> None:
    engine, collection = await filled(3)

    def gone() -> None:
        raise QueryPlanKilled("dropped")

    with pytest.raises(QueryPlanKilled):
        await Execution(CollectionScan(collection), engine, guard=gone).next_batch(1)


async def test_skip_limit_and_count() -> None:
    engine, collection = await filled(10)
    execution = Execution(Limit(Skip(CollectionScan(collection), 3), 4), engine)
    assert ids(await execution.next_batch(None)) == [3, 4, 5, 6]
    counted = Execution(CountRows(CollectionScan(collection), skip=2, limit=5), engine)
    assert decode((await counted.next_batch(None)).raws()[0]) == {"n": 5}
