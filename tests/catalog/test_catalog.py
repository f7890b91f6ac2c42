"""The catalog: changes that are whole, lasting, and seen by those who write at the same time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bucketd.catalog import catalog as catalog_module
from bucketd.catalog import documents, garbage
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.collections import Collection
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.common.errors import (
    DuplicateKey,
    IndexKeySpecsConflict,
    IndexNotFound,
    IndexOptionsConflict,
    NamespaceExists,
    NamespaceNotFound,
)
from bucketd.common.values import Document, encode
from bucketd.storage.engine import Engine, Transaction
from bucketd.storage.errors import StorageError
from bucketd.storage.lmdb_engine import LmdbEngine
from support.memory_engine import MemoryEngine

A, B, OTHER = Namespace("test", "a"), Namespace("test", "b"), Namespace("other", "a")


@pytest.fixture(params=["lmdb", "memory"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    opened: Engine = MemoryEngine() if request.param == "memory" else LmdbEngine(tmp_path, sync=False)
    yield opened
    opened.close()


@pytest.fixture
async def catalog(engine: Engine) -> AsyncIterator[Catalog]:
    made = opened(engine)
    yield made
    await made.close()


def opened(engine: Engine) -> Catalog:
    """The catalog as a server finds it that starts on the engine's data."""
    made = Catalog(engine)
    made.load()
    return made


def index(name: str, key: Document, **options: object) -> IndexSpec:
    return IndexSpec.parse({"key": key, "name": name, **options})


async def insert(engine: Engine, catalog: Catalog, namespace: Namespace, *rows: Document) -> None:
    def work(transaction: Transaction) -> None:
        collection = catalog.collection_in(transaction, namespace)
        if collection is None:
            raise NamespaceNotFound(str(namespace))
        documents.insert_many(transaction, collection, [encode(row) for row in rows])

    await engine.write(work)


def found(catalog: Catalog, namespace: Namespace) -> Collection:
    collection = catalog.get(namespace)
    assert collection is not None
    return collection


def count(engine: Engine, catalog: Catalog, namespace: Namespace) -> int:
    with engine.snapshot() as snapshot:
        return len(list(documents.scan(snapshot, found(catalog, namespace))))


def keys_in(engine: Engine, table: str) -> int:
    with engine.snapshot() as snapshot:
        return len(list(snapshot.keys(table, b"", b"\xff" * 20)))


async def swept(catalog: Catalog) -> None:
    sweeping = catalog._sweeping
    assert sweeping is not None
    await sweeping


async def test_what_was_made_is_there_after_a_restart(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(A, {"capped": True, "size": 4096})
    await catalog.create(B, {"viewOn": "a", "pipeline": []}, kind="view")
    await catalog.create_indexes(A, [index("x_1", {"x": 1}, sparse=True)])
    await insert(engine, catalog, A, {"_id": 1, "x": [1, 2]})
    again = opened(engine)
    assert again.list_collections("test") == catalog.list_collections("test")
    assert found(again, A).indexes[1].multikey_paths == ((1,),)
    assert found(again, A).uuid == found(catalog, A).uuid
    assert again.list_databases() == ["test"]
    await insert(engine, again, A, {"_id": 2})
    assert count(engine, again, A) == 2
    await again.close()


async def test_a_name_that_is_taken(catalog: Catalog) -> None:
    first = await catalog.create(A, {})
    with pytest.raises(NamespaceExists):
        await catalog.create(A, {})
    assert await catalog.create(A, {}, exist_ok=True) == first


async def test_several_are_made_together_or_not_at_all(catalog: Catalog) -> None:
    await catalog.create(B, {})
    with pytest.raises(NamespaceExists):
        await catalog.create_many([(A, {}, "collection", None, None), (B, {}, "collection", None, None)])
    assert catalog.get(A) is None


async def test_a_drop_removes_everything_behind_the_entry(engine: Engine, catalog: Catalog) -> None:
    empty = {table: keys_in(engine, table) for table in ("catalog", "records", "indexes")}
    await catalog.create(A, {})
    await catalog.create_indexes(A, [index("x_1", {"x": 1})])
    await insert(engine, catalog, A, *({"_id": number, "x": [number]} for number in range(50)))
    await catalog.drop(A)
    await swept(catalog)
    assert catalog.get(A) is None
    assert {table: keys_in(engine, table) for table in empty} == empty
    with pytest.raises(NamespaceNotFound):
        await insert(engine, catalog, A, {"_id": 1})


async def test_a_removal_that_was_cut_off_is_resumed(
    engine: Engine, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_SWEEP_KEYS", 5)
    await catalog.create(A, {})
    await insert(engine, catalog, A, *({"_id": number} for number in range(50)))
    monkeypatch.setattr(catalog, "sweep", lambda: None)
    await catalog.drop(A)
    assert keys_in(engine, "records") == 50
    again = opened(engine)
    await again.resume()
    await swept(again)
    assert keys_in(engine, "records") == keys_in(engine, "indexes") == 0
    await again.close()


async def test_a_collection_keeps_its_data_under_another_name(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(A, {})
    await insert(engine, catalog, A, {"_id": 1})
    with pytest.raises(NamespaceNotFound):
        await catalog.rename(B, OTHER)
    await catalog.rename(A, OTHER)
    assert catalog.get(A) is None
    assert count(engine, catalog, OTHER) == 1
    await catalog.create(A, {})
    with pytest.raises(NamespaceExists):
        await catalog.rename(OTHER, A)
    await catalog.rename(OTHER, A, drop_target=True)
    assert count(engine, opened(engine), A) == 1


async def test_writes_meet_the_changes_that_ran_before_them(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(A, {})
    outcomes = await asyncio.gather(
        insert(engine, catalog, A, {"_id": 1}),
        catalog.drop(A),
        catalog.create(A, {}),
        *(insert(engine, catalog, A, {"_id": number}) for number in range(2, 30)),
        return_exceptions=True,
    )
    assert all(outcome is None or isinstance(outcome, Collection | NamespaceNotFound) for outcome in outcomes)
    await swept(catalog)
    with engine.snapshot() as snapshot:
        stored = catalog.counts(found(catalog, A), snapshot)[0]
    assert keys_in(engine, "records") == stored == count(engine, catalog, A)


async def test_a_change_is_seen_through_when_nobody_waits_for_it(engine: Engine, catalog: Catalog) -> None:
    impatient = asyncio.create_task(catalog.create(A, {}))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    await catalog.create(A, {}, exist_ok=True)
    assert opened(engine).get(A) == catalog.get(A)


async def test_indexes_that_exist_or_collide(catalog: Catalog) -> None:
    await catalog.create(A, {})
    assert await catalog.create_indexes(A, [index("x_1", {"x": 1})]) == (1, 2)
    assert await catalog.create_indexes(A, [index("x_1", {"x": 1}), index("y_1", {"y": 1})]) == (2, 3)
    with pytest.raises(IndexOptionsConflict):
        await catalog.create_indexes(A, [index("other", {"x": 1})])
    with pytest.raises(IndexKeySpecsConflict):
        await catalog.create_indexes(A, [index("x_1", {"z": 1})])
    with pytest.raises(IndexNotFound):
        await catalog.drop_indexes(A, ["none"])
    await catalog.drop_indexes(A, ["x_1"])
    assert [one.name for one in found(catalog, A).indexes] == ["_id_", "y_1"]


async def test_a_large_index_is_built_while_others_write(
    engine: Engine, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "_BUILD_DOCUMENTS", 7)
    await catalog.create(A, {})
    await insert(engine, catalog, A, *({"_id": number, "x": number} for number in range(100)))
    await asyncio.gather(
        catalog.create_indexes(A, [index("x_1", {"x": 1})]),
        *(insert(engine, catalog, A, {"_id": number, "x": number}) for number in range(100, 140)),
    )
    made = found(catalog, A).indexes[1]
    assert not made.building
    with engine.snapshot() as snapshot:
        assert len(list(documents.index_scan(snapshot, made))) == 140


async def test_a_unique_index_over_duplicates_leaves_nothing(
    engine: Engine, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await catalog.create(A, {})
    await insert(engine, catalog, A, *({"_id": number, "x": number % 50} for number in range(60)))
    for slice_documents in (1000, 7):
        monkeypatch.setattr(catalog_module, "_BUILD_DOCUMENTS", slice_documents)
        with pytest.raises(DuplicateKey):
            await catalog.create_indexes(A, [index("y_1", {"y": 1}), index("x_1", {"x": 1}, unique=True)])
        assert [one.name for one in found(catalog, A).indexes] == ["_id_"]
    await swept(catalog)
    assert keys_in(engine, "indexes") == 60


async def test_an_index_whose_build_was_cut_off_is_gone_after_a_restart(
    engine: Engine, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "_BUILD_DOCUMENTS", 7)
    await catalog.create(A, {})
    await insert(engine, catalog, A, *({"_id": number, "x": number} for number in range(20)))

    async def stop(*_: object) -> None:
        raise StorageError("the store is closed")

    monkeypatch.setattr(catalog, "_build", stop)
    monkeypatch.setattr(catalog, "drop_indexes", stop)
    with pytest.raises(StorageError):
        await catalog.create_indexes(A, [index("x_1", {"x": 1})])
    again = opened(engine)
    assert found(again, A).indexes[1].building
    await again.resume()
    assert [one.name for one in found(again, A).indexes] == ["_id_"]
    await again.close()


async def test_arrays_of_a_write_that_failed_are_learned_again(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(A, {})
    await catalog.create_indexes(A, [index("x_1", {"x": 1})])
    await insert(engine, catalog, A, {"_id": 1})
    with pytest.raises(DuplicateKey):
        await insert(engine, catalog, A, {"_id": 2, "x": [1]}, {"_id": 1})
    await insert(engine, catalog, A, {"_id": 2, "x": [1]})
    assert found(opened(engine), A).indexes[1].multikey


async def test_modify_puts_another_in_its_place(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(A, {})
    before = catalog.generation
    await catalog.modify(A, lambda collection: collection.with_changes(flags={"seen": True}))
    assert found(opened(engine), A).flags == {"seen": True}
    assert catalog.generation > before
    with pytest.raises(NamespaceNotFound):
        await catalog.modify(B, lambda collection: collection)
