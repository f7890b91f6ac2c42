"""The door from the writing commands to time-series collections; what lies behind is loaded with the first that is used."""

from typing import TYPE_CHECKING, Any

from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...common.collation import Collation
from ...common.errors import InvalidOptions
from ...common.values import Document, encode
from ...query.execute import Execution
from ...query.plan.nodes import PlanNode
from ...query.plan.planner import Wanted
from ...query.update.parse import parse_update
from ...storage.engine import Transaction
from ..context import Request, Services
from ..operations import Operation
from .changing import Selection, change_at, change_many, plan_selection
from .reading import let_variables, parse_query
from .writing import WriteErrors, now_of

if TYPE_CHECKING:
    from ...timeseries.edits import EditTarget, Remover
    from .delete import DeleteStatement
    from .find_and_modify import FindAndModifyRequest
    from .update import UpdateResult, UpdateStatement, WriteOptions


async def insert_measurements_into(
    services: Services, collection: Collection, request: Request, raws: bytes | list[bytes], *, ordered: bool
) -> tuple[int, WriteErrors]:
    """Insert measurements; returns how many went in, and the failures."""
    from ...timeseries.insert import insert_measurements

    asked, count, rows = await insert_measurements(services, collection, raws, ordered)
    services.counters.insert += asked
    services.counters.documents_inserted += count
    return count, WriteErrors(list(rows))


async def update_measurements_in(
    services: Services,
    collection: Collection,
    statement: "UpdateStatement",
    options: "WriteOptions",
    operation: Operation,
) -> "UpdateResult":
    """Run one update on measurements: it changes the meta field of whole buckets."""
    from ...kernels import bucket_summary
    from ...timeseries.edits import meta_update, with_normal_meta
    from .update import UpdateResult

    filter, spec = meta_update(
        collection, statement.filter, statement.update, multi=statement.multi, upsert=statement.upsert
    )
    collation = _collation(statement.collation, collection)
    variables = let_variables(services, options.let)
    matcher = parse_query(filter, collation, variables)
    update = parse_update(spec, array_filters=statement.array_filters, collator=collation, variables=variables)
    selection = Selection(
        wanted=Wanted(matcher=matcher, collation=collation, hint=_bucket_hint(collection, statement.hint)),
        variables=variables,
    )
    timeseries = collection.timeseries
    assert timeseries is not None, collection.namespace
    result = UpdateResult()

    def change(
        transaction: Transaction, buckets: Collection, record_key: bytes, raw: bytes, document: Document
    ) -> tuple[int, bool]:
        from ...catalog import documents

        count = bucket_summary(raw, timeseries.time_field)[0]
        new, changed = update.apply(document, matched_filter=matcher, now=now_of(services))
        if changed:
            new = with_normal_meta(new)
            documents.replace(transaction, buckets, record_key, raw, encode(new))
        return count, changed

    def note(done: tuple[int, bool]) -> None:
        count, changed = done
        result.matched += count
        result.modified += count if changed else 0

    await change_many(services, collection.namespace.buckets, selection, change, operation, note=note)
    services.counters.documents_updated += result.modified
    return result


def _collation(asked: Document | None, collection: Collection) -> Collation | None:
    return collection.collation if asked is None else Collation.parse(asked)


def _bucket_hint(collection: Collection, hint: str | Document | None) -> str | Document | None:
    from ...timeseries.indexes import to_bucket_key

    if not isinstance(hint, dict) or "$natural" in hint:
        return hint
    return to_bucket_key(collection, hint) or hint


def _removal(
    services: Services,
    collection: Collection,
    filter: Document,
    asked_collation: Document | None,
    hint: str | Document | None,
    let: Document | None,
) -> "tuple[Selection, EditTarget, Remover] | None":
    """How to find the buckets, and how to remove from them; None where there are none."""
    from ...timeseries.edits import Remover, edit_target

    buckets = services.catalog.get(collection.namespace.buckets)
    if buckets is None:
        return None
    collation = _collation(asked_collation, collection)
    variables = let_variables(services, let)
    target = edit_target(collection, buckets, parse_query(filter, collation, variables), collation)
    wanted = Wanted(matcher=target.bucket, collation=collation, hint=_bucket_hint(collection, hint))
    return Selection(wanted=wanted, variables=variables), target, Remover(collection, target, variables)


async def delete_measurements_in(
    services: Services,
    collection: Collection,
    statement: "DeleteStatement",
    let: Document | None,
    operation: Operation,
) -> int:
    """Run one delete on measurements; returns how many went."""
    made = _removal(services, collection, statement.filter, statement.collation, statement.hint, let)
    if made is None:
        return 0
    selection, _, remover = made
    count = 0
    if statement.multi:

        def note(removed: int) -> None:
            nonlocal count
            count += removed

        await change_many(services, collection.namespace.buckets, selection, remover.remove_all, operation, note=note)
    else:
        count = int(await _remove_first(services, collection, selection, remover, operation) is not None)
    services.counters.documents_deleted += count
    return count


async def _remove_first(
    services: Services, collection: Collection, selection: Selection, remover: "Remover", operation: Operation
) -> Document | None:
    """Remove the first measurement that matches; returns it."""
    buckets = services.catalog.get(collection.namespace.buckets)
    planned = plan_selection(services, buckets, selection)
    execution = Execution(planned.root, services.engine, variables=selection.variables)
    try:
        while (batch := await execution.next_rows(watch=operation)) is not None:
            for record_key, raw in zip(batch.record_keys or (), batch.raws(), strict=True):
                if not remover.has_match(raw):
                    continue
                _done, removed = await change_at(services, buckets, record_key, raw, selection, remover.remove_first)
                if removed is not None:
                    return removed
    finally:
        execution.close()
    return None


async def find_and_modify_measurement(
    services: Services, collection: Collection, asked: "FindAndModifyRequest", operation: Operation
) -> Document:
    """Run findAndModify on measurements; returns its reply."""
    if not asked.remove:
        raise InvalidOptions("Cannot perform a non-multi update on a time-series collection")
    if asked.sort:
        raise InvalidOptions("Cannot perform a findAndModify with sort on a time-series collection")
    services.counters.delete += 1
    made = _removal(services, collection, asked.query, asked.collation, asked.hint, asked.options.let)
    removed = None
    if made is not None:
        selection, _, remover = made
        removed = await _remove_first(services, collection, selection, remover, operation)
    services.counters.documents_deleted += removed is not None
    return {"lastErrorObject": {"n": 0 if removed is None else 1}, "value": _projected(asked, removed, services)}


def _projected(asked: "FindAndModifyRequest", document: Document | None, services: Services) -> Document | None:
    from ...query.projection import parse_projection

    if document is None or not asked.projection:
        return document
    shown: Document = parse_projection(asked.projection).apply(document, let_variables(services, asked.options.let))
    return shown


def explain_edit(services: Services, collection: Collection, statement: Any, let: Document | None) -> PlanNode:
    """The plan that finds what an update or delete of measurements changes."""
    from ...query.plan.scans import Eof
    from ...timeseries.edits import ModifyMeasurements, meta_update

    buckets = services.catalog.get(collection.namespace.buckets)
    update = getattr(statement, "update", None)
    if update is not None:
        filter, _ = meta_update(collection, statement.filter, update, multi=statement.multi, upsert=statement.upsert)
        collation = _collation(statement.collation, collection)
        variables = let_variables(services, let)
        wanted = Wanted(matcher=parse_query(filter, collation, variables), collation=collation)
        from .explain import Modify

        planned = plan_selection(services, buckets, Selection(wanted=wanted, variables=variables))
        return Modify(planned.root, "UPDATE")
    made = _removal(services, collection, statement.filter, statement.collation, statement.hint, let)
    if made is None:
        return Eof()
    selection, target, remover = made
    planned = plan_selection(services, buckets, selection)
    return ModifyMeasurements(planned.root, target, remover, multi=statement.multi)


def index_for_buckets(collection: Collection, spec: IndexSpec) -> IndexSpec:
    """The index on buckets that stands for one on measurements."""
    from ...timeseries.indexes import to_bucket_index

    return to_bucket_index(collection, spec)


def index_for_view(collection: Collection, index: IndexSpec) -> Document | None:
    """The row of `listIndexes` for an index on buckets; None where it has no counterpart on measurements."""
    from ...timeseries.indexes import to_view_index

    return to_view_index(collection, index)
