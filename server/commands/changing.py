"""Statements that change documents: finding what they are about, and changing it.

Finding happens on snapshots, beside everybody else, and changing in short transactions on the writer's thread, which look
again at each document that changed in between. What is found quickly (by `_id`, or by few entries of an index) is found
and changed in one transaction.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from ...catalog import documents
from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.namespaces import Namespace
from ...common.errors import MongoError, WriteConflict
from ...common.values import Document, decode
from ...query.execute import Execution, run_all
from ...query.match.base import MatchNode
from ...query.plan.planner import Planned, Wanted, id_equality, plan_find, quick_index
from ...query.plan.recheck import still_matches
from ...storage.engine import Engine, Transaction
from ..context import Services
from ..operations import Operation
from .reading import cached_plans
from .writing import RETRIES_MAX, Stopped, write_in

Result = TypeVar("Result")
Change = Callable[[Transaction, Collection, bytes, bytes, Document], Result]
"""Changes one document: transaction, collection, record key, raw document, the same decoded."""

_TOGETHER_MAX: Final = 500


@dataclass(slots=True, kw_only=True)
class Selection:
    """Which documents a statement is about."""

    wanted: Wanted
    variables: Mapping[str, Any]

    @property
    def matcher(self) -> MatchNode:
        """The filter."""
        return self.wanted.matcher


def plan_selection(services: Services, collection: Collection | None, selection: Selection) -> Planned:
    """The plan that finds the documents.

    Raises:
        BadValue: the hint names no index.
    """
    services.index_filters.apply(collection, selection.wanted)
    with services.engine.snapshot() as snapshot:
        cache = None if services.explaining else cached_plans(services)
        return plan_find(collection, selection.wanted, snapshot, cache)


async def change_one(
    services: Services,
    namespace: Namespace,
    selection: Selection,
    change: Change[Result],
    operation: Operation,
    *,
    otherwise: Callable[[Transaction, Collection], Result] | None = None,
) -> Result | None:
    """Change the first document that matches; None where none does.

    `otherwise` runs where none matches (an upsert), in the same transaction where that can be.
    """
    catalog: Catalog = services.catalog
    engine: Engine = services.engine
    for _ in range(RETRIES_MAX):
        direct = direct_change(services, namespace, selection, change, otherwise)
        if direct is not None:
            done, result = await engine.write(direct)
            if done:
                return result
            continue
        collection = catalog.get(namespace)
        if collection is None:
            plan_selection(services, None, selection)
            return None if otherwise is None else await write_in(services, namespace, otherwise)
        found = await _first(services, collection, selection, operation)
        if found is None:
            return None if otherwise is None else await write_in(services, namespace, otherwise)
        done, result = await change_at(services, collection, *found, selection, change)
        if done:
            return result
        operation.check()
    raise WriteConflict("the document is changed again and again")


Direct = Callable[[Transaction], tuple[bool, Result | None]]
"""Finds and changes in one transaction; false where the collection is not the one that was meant."""


def direct_change(
    services: Services,
    namespace: Namespace,
    selection: Selection,
    change: Change[Result],
    otherwise: Callable[[Transaction, Collection], Result] | None = None,
) -> Direct[Result] | None:
    """The change of the first document that matches, where finding it takes no time to speak of; else None."""
    catalog: Catalog = services.catalog
    collection: Collection | None = catalog.get(namespace)
    if collection is None or collection.kind != "collection":
        return None
    identity = id_equality(collection, selection.wanted)
    wanted = replace(selection.wanted, limit=1)
    services.index_filters.apply(collection, wanted)
    if identity is None:
        with services.engine.snapshot() as snapshot:
            if not quick_index(collection, wanted, snapshot):
                return None
    uuid = collection.uuid
    matches = still_matches(selection.matcher, selection.variables)

    def work(transaction: Transaction) -> tuple[bool, Result | None]:
        current = catalog.collection_in(transaction, namespace)
        if current is None or current.uuid != uuid:
            return False, None
        if identity is not None:
            found = documents.fetch_by_id(transaction, current, identity.value)
            if found is not None:
                document = decode(found[1])
                if matches(document):
                    return True, change(transaction, current, *found, document)
        else:
            planned = plan_find(current, replace(wanted), transaction)
            for batch in run_all(planned.root, transaction, variables=selection.variables):
                if batch.record_keys is not None:
                    raw = batch.raws()[0]
                    return True, change(transaction, current, batch.record_keys[0], raw, decode(raw))
        return True, None if otherwise is None else otherwise(transaction, current)

    return work


@dataclass(slots=True)
class Outcome(Generic[Result]):
    """What became of one of several changes: its result, its failure, or neither where it was not tried."""

    tried: bool = False
    result: Result | None = None
    error: MongoError | None = None


async def change_together(
    services: Services, changes: Sequence[Direct[Result]], *, ordered: bool
) -> list[Outcome[Result]]:
    """Run changes in their order, many to a commit; each by itself, so that one that fails takes nothing with it.

    Ordered ones stop at the first failure, and where the collection is no longer what it was.
    """
    engine: Engine = services.engine
    outcomes: list[Outcome[Result]] = [Outcome() for _ in changes]

    def one(position: int, change: Direct[Result]) -> Callable[[Transaction], None]:
        def work(transaction: Transaction) -> None:
            outcome = outcomes[position] = Outcome()
            if ordered and any(not before.tried or before.error is not None for before in outcomes[:position][-1:]):
                return
            try:
                done, outcome.result = change(transaction)
            except MongoError as error:
                outcome.tried, outcome.error = True, error
                raise
            outcome.tried = done

        return work

    for start in range(0, len(changes), _TOGETHER_MAX):
        part = range(start, min(start + _TOGETHER_MAX, len(changes)))
        results = await asyncio.gather(
            *(engine.write(one(position, changes[position])) for position in part), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, MongoError):
                raise result
    return outcomes


async def _first(
    services: Services, collection: Collection, selection: Selection, operation: Operation
) -> tuple[bytes, bytes] | None:
    """Record key and document of the first that matches."""
    selection.wanted.limit = 1
    planned = plan_selection(services, collection, selection)
    execution = Execution(planned.root, services.engine, variables=selection.variables)
    try:
        batch = await execution.next_rows(watch=operation)
        if batch is None:
            return None
        if batch.record_keys is not None:
            return batch.record_keys[0], batch.raws()[0]
        identity = batch.documents()[0]["_id"]
        with services.engine.snapshot() as snapshot:
            return documents.fetch_by_id(snapshot, collection, identity)
    finally:
        execution.close()


async def change_at(
    services: Services,
    collection: Collection,
    record_key: bytes,
    seen: bytes,
    selection: Selection,
    change: Change[Result],
) -> tuple[bool, Result | None]:
    """Change the document at the key, unless it no longer matches."""
    catalog: Catalog = services.catalog
    engine: Engine = services.engine
    matches = still_matches(selection.matcher, selection.variables)

    def work(transaction: Transaction) -> tuple[bool, Result | None]:
        current = catalog.collection_in(transaction, collection.namespace)
        if current is None or current.uuid != collection.uuid:
            return False, None
        raw = documents.fetch(transaction, current, record_key)
        if raw is None:
            return False, None
        document = decode(raw)
        if raw != seen and not matches(document):
            return False, None
        return True, change(transaction, current, record_key, raw, document)

    return await engine.write(work)


async def change_many(
    services: Services,
    namespace: Namespace,
    selection: Selection,
    change: Change[Result],
    operation: Operation,
    *,
    note: Callable[[Result], None],
) -> None:
    """Change every document that matches, in slices; `note` hears of each one, once it is durable.

    Raises:
        MongoError: a document could not be changed; those before it were.
    """
    collection = services.catalog.get(namespace)
    planned = plan_selection(services, collection, selection)
    if collection is None:
        return
    execution = Execution(planned.root, services.engine, variables=selection.variables)
    matches = still_matches(selection.matcher, selection.variables)
    seen: set[bytes] = set()
    try:
        while (batch := await execution.next_rows(watch=operation)) is not None:
            assert batch.record_keys is not None
            rows = [
                (key, raw)
                for key, raw in zip(batch.record_keys, batch.raws(), strict=True)
                # An index that is read while it changes may lead to the same document twice.
                if key not in seen
            ]
            seen.update(key for key, _ in rows)
            try:
                results = await _change_slice(services, collection, rows, matches, change)
            except Stopped as stop:
                for result in await _change_slice(services, collection, rows[: stop.position], matches, change):
                    note(result)
                raise stop.error from None
            for result in results:
                note(result)
    finally:
        execution.close()


async def _change_slice(
    services: Services,
    collection: Collection,
    rows: Sequence[tuple[bytes, bytes]],
    matches: Callable[[Document], bool],
    change: Change[Result],
) -> list[Result]:
    catalog: Catalog = services.catalog
    engine: Engine = services.engine

    def work(transaction: Transaction) -> list[Result]:
        current = catalog.collection_in(transaction, collection.namespace)
        if current is None or current.uuid != collection.uuid:
            return []
        results = []
        for position, (record_key, seen) in enumerate(rows):
            raw = documents.fetch(transaction, current, record_key)
            if raw is None:
                continue
            document = decode(raw)
            if raw != seen and not matches(document):
                continue
            try:
                results.append(change(transaction, current, record_key, raw, document))
            except MongoError as error:
                raise Stopped(position, error) from None
        return results

    return await engine.write(work) if rows else []
