"""The catalog: what exists, stored in one table, held in memory, changed by one change at a time.

Readers (the event loop) see `published` collections: those whose change is durable. Write closures (on the writer's
thread) read the table itself, through `collection_in`, and so see what the closures before them made: a write that was
queued before a drop and runs after it finds nothing, and one that runs again after its transaction was given up finds
what it found before. Dropping takes the entry away at once; the records and index entries behind it are removed in
slices afterwards, also after a restart.
"""

import asyncio
import uuid as uuids
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ..common.collation import Collation
from ..common.display import value_text
from ..common.errors import (
    CannotCreateIndex,
    DatabaseDifferCase,
    IllegalOperation,
    IndexNotFound,
    NamespaceExists,
    NamespaceNotFound,
)
from ..common.values import Document, decode, encode
from ..storage.engine import Engine, Snapshot, Transaction
from ..storage.keys import after, number_key
from . import documents, packs
from .collections import Collection, Kind
from .garbage import next_id, note_garbage, sweep_slice
from .index_conflicts import is_new_index
from .index_entries import learned_key, load_learned
from .index_specs import INDEXES_MAX, IndexSpec, IndexState
from .namespaces import Namespace

PartialCompiler = Callable[[Document, Collation | None], Callable[[bytes], bool]]

VIEWS: Final = "system.views"
_BUILD_DOCUMENTS: Final = 1000
_DECODED_SPARE: Final = 1000


class Catalog:
    """Every database and collection."""

    def __init__(self, engine: Engine, *, partial_compiler: PartialCompiler | None = None) -> None:
        self._engine = engine
        self._partial_compiler = partial_compiler
        self._published: dict[Namespace, Collection] = {}
        self._decoded: dict[bytes, Collection] = {}
        """Entries of the table as last seen or written, by their bytes."""
        self._states: dict[int, IndexState] = {}
        """What is learned of indexes, by their numbers."""
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[dict[Namespace, Collection | None]]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self.generation = 0
        """Moves with every change, for whoever remembers plans."""

    def load(self, on_damage: Callable[[bytes, Exception], None] | None = None) -> None:
        """Read what is stored; once, before anything else.

        Args:
            on_damage: is told of an entry that cannot be read, by its key, which is then left out; without it that is raised.
        """
        with self._engine.snapshot() as snapshot:
            for key, raw in snapshot.scan("catalog", b"", after(b"\xff")):
                try:
                    collection = self._decode(raw)
                    for index in collection.indexes:
                        load_learned(snapshot, index)
                except Exception as error:  # whatever reading damaged bytes comes to
                    if on_damage is None:
                        raise
                    on_damage(key, error)
                    continue
                self._published[collection.namespace] = collection

    async def resume(self) -> None:
        """Finish what a stop interrupted: index builds are given up, dropped data is removed."""
        for collection in list(self._published.values()):
            broken = [index for index in collection.indexes if index.building]
            if broken:
                await self.drop_indexes(collection.namespace, [index.name for index in broken])
        self.sweep()

    def get(self, namespace: Namespace) -> Collection | None:
        """The collection or view of this name."""
        return self._published.get(namespace)

    def collection_in(self, transaction: Transaction, namespace: Namespace) -> Collection | None:
        """The same as a write closure has to see it: with every change that ran before."""
        raw = transaction.get("catalog", entry_key(namespace))
        return None if raw is None else self._decode(raw)

    def list_databases(self) -> list[str]:
        """Databases that hold something, sorted."""
        return sorted({namespace.database for namespace in self._published})

    def list_collections(self, database: str) -> list[Collection]:
        """Everything in a database, sorted by name."""
        return sorted(
            (collection for namespace, collection in self._published.items() if namespace.database == database),
            key=lambda collection: collection.namespace,
        )

    def all_collections(self) -> list[Collection]:
        """Everything there is."""
        return list(self._published.values())

    def counts(self, collection: Collection, snapshot: Snapshot) -> tuple[int, int]:
        """Count and bytes of the documents."""
        stats = documents.read_stats(snapshot, collection)
        return stats.count, stats.data_bytes

    async def create(
        self,
        namespace: Namespace,
        options: Document,
        *,
        kind: Kind = "collection",
        indexes: Iterable[IndexSpec] | None = None,
        exist_ok: bool = False,
        uuid: uuids.UUID | None = None,
    ) -> Collection:
        """Make a collection or view; the options are taken as checked.

        Args:
            indexes: those it begins with; by default the one on `_id`, and none where it is clustered or a view.
            exist_ok: return the existing one instead of raising.

        Raises:
            NamespaceExists: the name is taken.
        """
        (made,) = await self.create_many([(namespace, options, kind, indexes, uuid)], exist_ok=exist_ok)
        return made

    async def create_many(
        self,
        entries: Iterable[tuple[Namespace, Document, Kind, Iterable[IndexSpec] | None, uuids.UUID | None]],
        *,
        exist_ok: bool = False,
    ) -> list[Collection]:
        """Make several at once, all or none (a time-series view and its buckets)."""
        wanted = list(entries)

        def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
            made: dict[Namespace, Collection | None] = {}
            for namespace, options, kind, indexes, uuid in wanted:
                existing = self.collection_in(transaction, namespace)
                if existing is not None:
                    if not exist_ok:
                        raise NamespaceExists(f"Collection {namespace} already exists.")
                    made[namespace] = existing
                    continue
                self._check_case(namespace.database)
                made[namespace] = self.make(transaction, namespace, options, kind, indexes, uuid)
                if kind != "collection":
                    made.update(self._tell_views(transaction, namespace, made[namespace]))
            return made

        changes = await self.change(work)
        return [made for namespace, *_ in wanted if (made := changes[namespace]) is not None]

    async def drop(self, *namespaces: Namespace) -> None:
        """Take collections and views away, together; names that do not exist are passed over."""

        def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
            changes: dict[Namespace, Collection | None] = {}
            for namespace in namespaces:
                collection = self.collection_in(transaction, namespace)
                if collection is not None:
                    self.forget(transaction, collection)
                    if collection.is_view:
                        self._tell_views(transaction, namespace, None)
                    changes[namespace] = None
            return changes

        await self.change(work)
        self.sweep()

    async def drop_database(self, database: str) -> bool:
        """Take away everything in a database; True where there was something."""
        gone = [collection.namespace for collection in self.list_collections(database)]
        await self.drop(*gone)
        return bool(gone)

    async def rename(self, source: Namespace, target: Namespace, *, drop_target: bool = False) -> None:
        """Give a collection another name, in another database where asked; it stays the same collection.

        Raises:
            NamespaceNotFound, NamespaceExists
        """
        await self.rename_many([(source, target)], drop_target=drop_target)

    async def rename_many(self, moves: Sequence[tuple[Namespace, Namespace]], *, drop_target: bool = False) -> None:
        """The same for several at once, all or none.

        Raises:
            NamespaceNotFound, NamespaceExists
        """

        def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
            changes: dict[Namespace, Collection | None] = {}
            for source, target in moves:
                collection = self.collection_in(transaction, source)
                if collection is None:
                    raise NamespaceNotFound(f"Source collection {source} does not exist")
                self._check_case(target.database)
                taken = self.collection_in(transaction, target)
                if taken is not None:
                    if not drop_target:
                        raise NamespaceExists("target namespace exists")
                    self.forget(transaction, taken)
                transaction.delete("catalog", entry_key(source))
                moved = collection.with_changes(namespace=target)
                self._store(transaction, moved)
                changes |= {source: None, target: moved}
            return changes

        await self.change(work)
        self.sweep()

    async def modify(self, namespace: Namespace, change: Callable[[Collection], Collection]) -> Collection:
        """Put `change(collection)` in the collection's place.

        Raises:
            NamespaceNotFound, and whatever `change` raises
        """
        changed = await self.modify_many({namespace: change})
        return changed[0]

    async def modify_many(self, wanted: dict[Namespace, Callable[[Collection], Collection]]) -> list[Collection]:
        """The same for several at once, all or none."""

        def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
            changes: dict[Namespace, Collection | None] = {}
            for namespace, change in wanted.items():
                changed = change(self._existing(transaction, namespace))
                self._store(transaction, changed)
                changes[namespace] = changed
                if changed.is_view:
                    self._tell_views(transaction, namespace, changed)
            return changes

        changes = await self.change(work)
        return [collection for collection in changes.values() if collection is not None]

    async def create_indexes(self, namespace: Namespace, specs: Iterable[IndexSpec]) -> tuple[int, int]:
        """Make indexes and fill them while others read and write; returns how many there were before and after.

        Raises:
            NamespaceNotFound: no such collection.
            IndexOptionsConflict, IndexKeySpecsConflict, CannotCreateIndex: it collides with one that exists.
            DuplicateKey: a unique index over data that is not; nothing is left of the new indexes.
        """
        collection = self._published.get(namespace)
        if collection is None:
            raise NamespaceNotFound(f"ns does not exist: {namespace}")
        before = len(collection.indexes)
        wanted = list(specs)
        slow: list[str] = []

        def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
            slow.clear()
            current = self._existing(transaction, namespace)
            small = documents.read_stats(transaction, current).count < _BUILD_DOCUMENTS
            made = []
            for spec in wanted:
                if not is_new_index(current, spec):
                    continue
                if len(current.indexes) >= INDEXES_MAX:
                    raise CannotCreateIndex(
                        f"add index fails, too many indexes for {namespace} key:{value_text(spec.key)}"
                    )
                index = self._number_index(transaction, spec, building=not small)
                current = current.with_changes(indexes=(*current.indexes, index))
                made.append(index)
            if made:
                self._store(transaction, current)
            for index in made:
                if small:
                    documents.fill_index(transaction, current, index, None, _BUILD_DOCUMENTS)
                else:
                    slow.append(index.name)
            return {namespace: current}

        (changed,) = (await self.change(work)).values()
        assert changed is not None
        if slow:
            changed = await self._build_all(namespace, list(slow))
        return before, len(changed.indexes)

    async def _build_all(self, namespace: Namespace, names: list[str]) -> Collection:
        """Fill new indexes and put them to use; where one cannot be, all of them go."""
        try:
            for name in names:
                await self._build(namespace, name)
        except BaseException:
            collection = self._published.get(namespace)
            if collection is not None:
                await self.drop_indexes(namespace, [name for name in names if collection.index(name) is not None])
            raise

        def finish(current: Collection) -> Collection:
            return current.with_changes(
                indexes=tuple(
                    index.with_changes(building=False) if index.name in names else index for index in current.indexes
                )
            )

        return await self.modify(namespace, finish)

    async def rebuild_index(self, namespace: Namespace, name: str) -> None:
        """Make an index anew in its place, in one transaction: for the one on `_id`, which nothing can do without.

        Raises:
            NamespaceNotFound, IndexNotFound
            DuplicateKey: two documents have a key that a unique index takes once; the index stays as it was.
        """

        def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
            collection = self._existing(transaction, namespace)
            old = collection.index(name)
            if old is None:
                raise IndexNotFound(f"index not found with name [{name}]")
            new = self._number_index(transaction, old)
            changed = collection.with_changes(
                indexes=tuple(new if index.name == name else index for index in collection.indexes)
            )
            self._forget_index(transaction, old)
            self._store(transaction, changed)
            position: bytes | None = None
            while True:
                position = documents.fill_index(transaction, changed, new, position, _BUILD_DOCUMENTS)
                if position is None:
                    return {namespace: changed}

        await self.change(work)
        self.sweep()

    async def correct_counts(self, namespace: Namespace) -> None:
        """Count a collection's documents and their bytes anew.

        Raises:
            NamespaceNotFound
        """

        def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
            collection = self._existing(transaction, namespace)
            documents.recount(transaction, collection)
            return {namespace: collection}

        await self.change(work)

    async def drop_indexes(self, namespace: Namespace, names: Iterable[str]) -> None:
        """Take indexes away.

        Raises:
            NamespaceNotFound, IndexNotFound
        """
        wanted = list(names)

        def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
            collection = self._existing(transaction, namespace)
            for name in wanted:
                index = collection.index(name)
                if index is None:
                    raise IndexNotFound(f"index not found with name [{name}]")
                self._forget_index(transaction, index)
                collection = collection.with_changes(
                    indexes=tuple(other for other in collection.indexes if other.name != name)
                )
            self._store(transaction, collection)
            return {namespace: collection}

        await self.change(work)
        self.sweep()

    def sweep(self) -> None:
        """See that what was dropped is removed, in the background."""
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    async def swept(self) -> None:
        """Wait until what was dropped is removed."""
        self.sweep()
        if self._sweeping is not None:
            await asyncio.shield(self._sweeping)

    async def close(self) -> None:
        """Wait for the background work's current slice and leave the rest to the next start."""
        if self._sweeping is not None and not self._sweeping.done():
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await asyncio.gather(*self._changes, return_exceptions=True)

    async def change(
        self, work: Callable[[Transaction], dict[Namespace, Collection | None]]
    ) -> dict[Namespace, Collection | None]:
        """Run a change on the writer's thread, and show it to readers when it is durable.

        Once begun it is seen through, whether or not the caller waits for it: what is stored is also published.
        """
        change = asyncio.get_running_loop().create_task(self._run_change(work))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return await asyncio.shield(change)

    async def _run_change(
        self, work: Callable[[Transaction], dict[Namespace, Collection | None]]
    ) -> dict[Namespace, Collection | None]:
        async with self._changing:
            changes = await self._engine.write(work)
            for namespace, collection in changes.items():
                if collection is None:
                    self._published.pop(namespace, None)
                else:
                    self._published[namespace] = collection
            self.generation += 1
            return changes

    def _check_case(self, database: str) -> None:
        """Refuse a new database whose name another one has but for the case of its letters.

        Raises:
            DatabaseDifferCase
        """
        databases = {namespace.database for namespace in self._published}
        if database in databases:
            return
        folded = database.casefold()
        for other in databases:
            if other.casefold() == folded:
                raise DatabaseDifferCase(
                    f"db already exists with different case already have: [{other}] trying to create [{database}]"
                )

    def _existing(self, transaction: Transaction, namespace: Namespace) -> Collection:
        collection = self.collection_in(transaction, namespace)
        if collection is None:
            raise NamespaceNotFound(f"ns does not exist: {namespace}")
        return collection

    def _decode(self, raw: bytes) -> Collection:
        """The collection of an entry; one object for the same bytes, and one state for the same index."""
        known = self._decoded.get(raw)
        if known is None:
            stored = Collection.from_document(decode(raw))
            known = stored.with_changes(indexes=tuple(self._with_state(index) for index in stored.indexes))
            self._remember(raw, known)
        return known

    def _remember(self, raw: bytes, collection: Collection) -> None:
        if len(self._decoded) > 2 * len(self._published) + _DECODED_SPARE:
            self._decoded = {}
        self._decoded[raw] = collection

    def _with_state(self, index: IndexSpec) -> IndexSpec:
        state = self._states.get(index.id)
        if state is None:
            state = self._states[index.id] = IndexState()
            if index.partial_filter is not None:
                if self._partial_compiler is None:
                    raise IllegalOperation("nobody is there to read partial filters")
                state.accepts = self._partial_compiler(index.partial_filter, index.collation)
        return index.with_changes(state=state)

    def make(
        self,
        transaction: Transaction,
        namespace: Namespace,
        options: Document,
        kind: Kind,
        indexes: Iterable[IndexSpec] | None,
        uuid: uuids.UUID | None,
    ) -> Collection:
        """Within a change: make a collection, the name of which is free."""
        if indexes is None:
            plain = kind == "collection" and not options.get("clusteredIndex")
            indexes = [IndexSpec.for_id(options.get("collation"))] if plain else []
        collection = Collection(
            namespace=namespace,
            kind=kind,
            id=next_id(transaction) if kind == "collection" else 0,
            uuid=uuid or uuids.uuid4(),
            options=options,
            indexes=tuple(self._number_index(transaction, index) for index in indexes),
        )
        self._store(transaction, collection)
        return collection

    def _tell_views(
        self, transaction: Transaction, namespace: Namespace, view: Collection | None
    ) -> dict[Namespace, Collection | None]:
        """Keep the row of a view in the database's `system.views`, which is made where it is missing (and returned)."""
        home = Namespace(namespace.database, VIEWS)
        views = self.collection_in(transaction, home)
        made: dict[Namespace, Collection | None] = {}
        if views is None:
            if view is None:
                return {}
            views = made[home] = self.make(transaction, home, {}, "collection", None, None)
        found = documents.fetch_by_id(transaction, views, str(namespace))
        if view is None:
            if found is not None:
                documents.remove(transaction, views, *found)
            return {}
        raw = encode(view.view_row())
        if found is None:
            documents.insert(transaction, views, raw)
        else:
            documents.replace(transaction, views, *found, raw)
        return made

    def _number_index(self, transaction: Transaction, spec: IndexSpec, *, building: bool = False) -> IndexSpec:
        number = next_id(transaction)
        # A number that was given in a transaction that failed is given again: what was learned then is not of this index.
        self._states.pop(number, None)
        return self._with_state(spec.with_changes(id=number, building=building))

    def _store(self, transaction: Transaction, collection: Collection) -> None:
        raw = encode(collection.to_document())
        transaction.put("catalog", entry_key(collection.namespace), raw)
        self._remember(raw, collection)

    def forget(self, transaction: Transaction, collection: Collection) -> None:
        """Within a change: take a collection away; what lies behind it is garbage for `sweep`."""
        transaction.delete("catalog", entry_key(collection.namespace))
        if collection.kind == "collection":
            note_garbage(transaction, collection.id, "records")
            transaction.delete("meta", documents.stats_key(collection))
            if collection.packed:
                transaction.delete("meta", packs.saved_key(number_key(collection.id)))
        for index in collection.indexes:
            self._forget_index(transaction, index)

    def _forget_index(self, transaction: Transaction, index: IndexSpec) -> None:
        note_garbage(transaction, index.id, "indexes")
        transaction.delete("meta", learned_key(index))

    async def _build(self, namespace: Namespace, name: str) -> None:
        """Fill an index in slices; writers keep up what was filled."""
        position: bytes | None = None

        def slice_of(transaction: Transaction) -> bytes | None:
            collection = self._existing(transaction, namespace)
            index = collection.index(name)
            if index is None:
                raise IndexNotFound(f"index not found with name [{name}]")
            return documents.fill_index(transaction, collection, index, position, _BUILD_DOCUMENTS)

        while True:
            position = await self._engine.write(slice_of)
            if position is None:
                return

    async def _sweep(self) -> None:
        """Remove what lies under the numbers of dropped collections and indexes."""
        more = True
        while more:
            more = await self._engine.write(sweep_slice)


def entry_key(namespace: Namespace) -> bytes:
    """Under what the catalog keeps a collection."""
    return f"{namespace.database}\0{namespace.collection}".encode()
