"""Documents, their index entries and their counts agree, whatever was done to them."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.catalog import documents
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.collections import Collection
from bucketd.catalog.index_entries import keys_of, record_of_entry, types_of_entry
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.common.errors import CannotIndexParallelArrays, DuplicateKey
from bucketd.common.values import Document, decode, encode
from bucketd.kernels import IndexEntryReader
from bucketd.storage.checked_engine import CheckedEngine
from bucketd.storage.engine import Engine, Snapshot, Transaction
from bucketd.storage.lmdb_engine import LmdbEngine
from support.bson_values import values
from support.memory_engine import MemoryEngine

NAMESPACE = Namespace("test", "things")


def spec(**key: Any) -> IndexSpec:
    options = key.pop("options", {})
    paths = {path.replace("__", "."): value for path, value in key.items()}
    name = "_".join(f"{path}_{value}" for path, value in paths.items())
    return IndexSpec.parse({"key": paths, "name": name, **options})


@pytest.fixture(params=["lmdb", "memory"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    inner: Engine = MemoryEngine() if request.param == "memory" else LmdbEngine(tmp_path, sync=False)
    yield (checked := CheckedEngine(inner))
    checked.close()


@pytest.fixture
async def catalog(engine: Engine) -> AsyncIterator[Catalog]:
    made = Catalog(engine)
    made.load()
    yield made
    await made.close()


async def insert(engine: Engine, catalog: Catalog, *rows: Document) -> list[bytes]:
    def work(transaction: Transaction) -> list[bytes]:
        return documents.insert_many(transaction, here(catalog, transaction), [encode(row) for row in rows])

    return await engine.write(work)


def here(catalog: Catalog, transaction: Transaction) -> Collection:
    collection = catalog.collection_in(transaction, NAMESPACE)
    assert collection is not None
    return collection


def check_told(snapshot: Snapshot, index: IndexSpec, records: dict[bytes, bytes]) -> None:
    """What an entry tells of its values are the values of the document, types included."""
    if index.kind != "btree" or index.collation is not None:
        return
    reader = IndexEntryReader(index.paths, index.descending, [True] * len(index.paths))
    for key, value in documents.entry_scan(snapshot, index):
        (told,) = reader.documents([(key, types_of_entry(value))])
        if told is not None:
            document = decode(records[record_of_entry(value)])
            assert told == encode(as_indexed(document, index.paths))


def as_indexed(document: Document, paths: Sequence[str]) -> Document:
    """The indexed paths of a document that has all of the dotted ones, in their order."""
    shown: Document = {}
    for path in paths:
        first, _, below = path.partition(".")
        if below:
            shown.setdefault(first, {})[below] = document[first][below]
        elif first in document:
            shown[first] = document[first]
    return shown


def check(engine: Engine, catalog: Catalog) -> None:
    """Entries are those of the records, no more and no less; counts are the records'."""
    collection = catalog.get(NAMESPACE)
    assert collection is not None

    with engine.snapshot() as snapshot:
        records = list(documents.scan(snapshot, collection))
        for index in collection.indexes:
            wanted = []
            for record_key, raw in records:
                keys = keys_of(index, raw)
                wanted += [(key if index.unique else key + record_key, record_key) for key in keys]
            assert list(documents.index_scan(snapshot, index)) == sorted(wanted)
            check_told(snapshot, index, dict(records))
        assert catalog.counts(collection, snapshot) == (len(records), sum(len(raw) for _, raw in records))


async def test_a_document_is_found_by_its_id_of_any_numeric_type(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(NAMESPACE, {})
    (key,) = await insert(engine, catalog, {"_id": 1, "x": 2})
    collection = catalog.get(NAMESPACE)
    assert collection is not None
    with engine.snapshot() as snapshot:
        assert documents.fetch_by_id(snapshot, collection, 1.0) == (key, encode({"_id": 1, "x": 2}))
        assert documents.fetch_by_id(snapshot, collection, 2) is None


async def test_a_duplicate_is_told_with_its_key_and_leaves_nothing(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(NAMESPACE, {})
    await catalog.create_indexes(NAMESPACE, [spec(a__b=1, options={"unique": True})])
    await insert(engine, catalog, {"_id": 1, "a": [{"b": 1}, {"b": 2}]})
    with pytest.raises(DuplicateKey) as caught:
        await insert(engine, catalog, {"_id": 2, "a": {"b": 5}}, {"_id": 3, "a": {"b": 2.0}})
    assert caught.value.message == (
        "E11000 duplicate key error collection: test.things index: a.b_1 dup key: { a.b: 2.0 }"
    )
    assert caught.value.extra == {"keyPattern": {"a.b": 1}, "keyValue": {"a.b": 2.0}}
    check(engine, catalog)
    with pytest.raises(DuplicateKey) as caught:
        await insert(engine, catalog, {"_id": 1})
    assert "index: _id_ dup key: { _id: 1 }" in caught.value.message


async def test_a_unique_index_over_long_values_tells_them_apart(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(NAMESPACE, {})
    await catalog.create_indexes(NAMESPACE, [spec(a=1, options={"unique": True})])
    await insert(engine, catalog, {"_id": 1, "a": "x" * 5000 + "1"}, {"_id": 2, "a": "x" * 5000 + "2"})
    with pytest.raises(DuplicateKey):
        await insert(engine, catalog, {"_id": 3, "a": "x" * 5000 + "1"})
    check(engine, catalog)
    collection = catalog.get(NAMESPACE)
    assert collection is not None
    assert collection.indexes[1].state.long_keys


async def test_parallel_arrays_are_refused(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(NAMESPACE, {})
    await catalog.create_indexes(NAMESPACE, [spec(a=1, b=1)])
    with pytest.raises(CannotIndexParallelArrays, match=r"cannot index parallel arrays \[b\] \[a\]"):
        await insert(engine, catalog, {"_id": 1, "a": [1], "b": [2]})
    check(engine, catalog)


async def test_a_clustered_collection_lies_in_the_order_of_its_ids(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(NAMESPACE, {"clusteredIndex": True})
    await catalog.create_indexes(NAMESPACE, [spec(x=1)])
    await insert(engine, catalog, *({"_id": number, "x": number % 2} for number in (3, 1, 2)))
    with pytest.raises(DuplicateKey, match=r"_id_ dup key: \{ _id: 1 \}"):
        await insert(engine, catalog, {"_id": 1})
    collection = catalog.get(NAMESPACE)
    assert collection is not None
    with engine.snapshot() as snapshot:
        assert [decode(raw)["_id"] for _, raw in documents.scan(snapshot, collection)] == [1, 2, 3]
    check(engine, catalog)


async def test_a_capped_collection_gives_up_its_oldest(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(NAMESPACE, {"capped": True, "size": 4096, "max": 3})
    for number in range(6):
        await insert(engine, catalog, {"_id": number})
    collection = catalog.get(NAMESPACE)
    assert collection is not None
    with engine.snapshot() as snapshot:
        assert [decode(raw)["_id"] for _, raw in documents.scan(snapshot, collection)] == [3, 4, 5]
    check(engine, catalog)


async def test_scans_go_on_behind_a_key_in_both_directions(engine: Engine, catalog: Catalog) -> None:
    await catalog.create(NAMESPACE, {})
    await catalog.create_indexes(NAMESPACE, [spec(x=-1)])
    await insert(engine, catalog, *({"_id": number, "x": number // 2} for number in range(10)))
    collection = catalog.get(NAMESPACE)
    assert collection is not None
    with engine.snapshot() as snapshot:
        for reverse in (False, True):
            whole = list(documents.scan(snapshot, collection, reverse=reverse))
            rest = documents.scan(snapshot, collection, after_key=whole[3][0], reverse=reverse)
            assert list(rest) == whole[4:]
            entries = list(documents.index_scan(snapshot, collection.indexes[1], reverse=reverse))
            behind = documents.index_scan(snapshot, collection.indexes[1], after_key=entries[3][0], reverse=reverse)
            assert list(behind) == entries[4:]


FIELDS = st.dictionaries(st.sampled_from(["a", "b", "u", "s"]), values | st.integers(0, 3), max_size=4)
STEPS = st.lists(st.tuples(st.sampled_from(["insert", "replace", "remove"]), FIELDS), max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 100), clustered=st.booleans())
async def test_entries_are_those_of_the_records(steps: list[tuple[str, Document]], seed: int, clustered: bool) -> None:
    engine: Engine = CheckedEngine(MemoryEngine())
    catalog = Catalog(engine)
    catalog.load()
    await catalog.create(NAMESPACE, {"clusteredIndex": True} if clustered else {})
    wanted = [spec(a=1, b=-1), spec(a__b=1), spec(u=1, options={"unique": True, "sparse": True}), spec(s=-1)]
    await catalog.create_indexes(NAMESPACE, wanted[:2])
    chance = random.Random(seed)
    for number, (name, fields) in enumerate(steps):
        if number == 6:
            with suppress(DuplicateKey, CannotIndexParallelArrays):
                await catalog.create_indexes(NAMESPACE, wanted)
        pick = chance.randrange(100)

        def work(
            transaction: Transaction,
            number: int = number,
            name: str = name,
            fields: Document = fields,
            pick: int = pick,
        ) -> None:
            collection = here(catalog, transaction)
            stored = list(documents.scan(transaction, collection))
            if name == "insert" or not stored:
                documents.insert(transaction, collection, encode({"_id": number, **fields}))
                return
            record_key, old = stored[pick % len(stored)]
            if name == "replace":
                new = encode({"_id": decode(old)["_id"], **fields})
                documents.replace(transaction, collection, record_key, old, new)
            else:
                documents.remove(transaction, collection, record_key, old)

        with suppress(DuplicateKey, CannotIndexParallelArrays):
            await engine.write(work)
        check(engine, catalog)
    await catalog.close()
