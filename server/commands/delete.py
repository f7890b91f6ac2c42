"""`delete`: documents removed."""

from dataclasses import dataclass
from typing import Any, Final

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.namespaces import Namespace
from ...common.errors import FailedToParse, MongoError
from ...common.values import Document
from ...query.plan.planner import Wanted
from ...storage.engine import Transaction
from ..context import Context, Request, Services
from ..operations import Operation
from .arguments import Fields, whole_number
from .base import Command
from .changing import Direct, Selection, change_many, change_one, change_together, direct_change
from .reading import check_collection_uuid, let_variables, parse_query, take_hint
from .timeseries_writes import delete_measurements_in
from .update import check_batch_size, ends_request, statement_collation
from .writing import WriteErrors, check_writable, refuse_view

_FIELDS: Final = frozenset(
    {
        "bypassDocumentValidation", "collectionUUID", "deletes", "encryptionInformation", "isTimeseriesNamespace",
        "let", "ordered", "stmtId", "stmtIds",
    }
)  # fmt: skip
_TOGETHER_MAX: Final = 500
_STATEMENT_FIELDS: Final = frozenset({"collation", "hint", "limit", "q", "sampleId"})


@dataclass(slots=True, kw_only=True)
class DeleteStatement:
    """One delete, read but not yet parsed."""

    filter: Document
    multi: bool
    collation: Document | None = None
    hint: str | Document | None = None


class Delete(Command):
    """`delete`."""

    name = "delete"
    summary = "Deletes documents of a collection."
    writes = True
    reads = True
    in_api_version_1 = True
    op = "remove"

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how many went, and what failed."""
        services = context.services
        namespace, statements, ordered, let = read_delete_request(services, request)
        errors = WriteErrors()
        count = 0
        position = 0
        while position < len(statements) and not (ordered and errors.rows):
            results = await _run_some(
                services, namespace, statements[position:], let, request.operation, ordered=ordered
            )
            for result in results:
                services.counters.delete += 1
                if isinstance(result, MongoError):
                    errors.add(position, result)
                else:
                    count += result
                position += 1
        reply: Document = {"n": count}
        if errors.rows:
            reply["writeErrors"] = errors.in_order()
        return reply


async def _run_some(
    services: Services,
    namespace: Namespace,
    statements: list[DeleteStatement],
    let: Document | None,
    operation: Operation,
    *,
    ordered: bool,
) -> list[int | MongoError]:
    """Run the first statement and, where they find their documents as quickly, those behind it in the same commit."""
    directs: list[Direct[Document]] = []
    collection = services.catalog.get(namespace)
    if len(statements) > 1 and collection is not None and collection.kind == "collection":
        for statement in statements[:_TOGETHER_MAX]:
            direct = _direct(services, namespace, statement, let)
            if direct is None:
                break
            directs.append(direct)
    if len(directs) > 1:
        operation.check()
        found: list[int | MongoError] = []
        for outcome in await change_together(services, directs, ordered=ordered):
            if outcome.error is not None:
                found.append(outcome.error)
            elif outcome.tried:
                services.counters.documents_deleted += outcome.result is not None
                found.append(int(outcome.result is not None))
            else:
                break
        if found:
            return found
    try:
        return [await run_delete(services, namespace, statements[0], let, operation)]
    except MongoError as error:
        if ends_request(error):
            raise
        return [error]


def _direct(
    services: Services, namespace: Namespace, statement: DeleteStatement, let: Document | None
) -> Direct[Document] | None:
    """The statement as one transaction; None where it has to look around first, or cannot be."""
    if statement.multi:
        return None
    try:
        return direct_change(services, namespace, prepare_delete(services, namespace, statement, let), remove_document)
    except MongoError:
        # What is wrong with it is told when its turn comes.
        return None


def read_delete_request(
    services: Services, request: Request
) -> tuple[Namespace, list[DeleteStatement], bool, Document | None]:
    """The fields of a delete."""
    fields = Fields(request, "delete", known=_FIELDS)
    namespace = fields.take_namespace()
    ordered = fields.take_bool("ordered", default=True, exact=True)
    let = fields.take_document("let", default=None)
    if not fields.has("deletes"):
        raise fields.missing("deletes")
    rows = request.documents("deletes")
    check_batch_size(rows)
    statements = [_statement(row) for row in rows]
    check_collection_uuid(fields, services.catalog, namespace)
    refuse_view(services.catalog, namespace)
    return namespace, statements, ordered, let


def _statement(row: Document) -> DeleteStatement:
    fields = Fields(row, "delete.deletes", known=_STATEMENT_FIELDS)
    filter = fields.take_document("q")
    limit = fields.take_any("limit")
    if limit is None:
        raise fields.missing("limit")
    return DeleteStatement(
        filter=filter,
        multi=_limit(limit) == 0,
        collation=fields.take_document("collation", default=None) or None,
        hint=take_hint(fields),
    )


def _limit(value: Any) -> int:
    number: int | None = None
    if not isinstance(value, bool):
        try:
            number = whole_number(value)
        except (TypeError, ValueError):
            number = None
    if number not in (0, 1) or number is None:
        raise FailedToParse(f"The limit field in delete objects must be 0 or 1. Got {value}")
    return number


def prepare_delete(
    services: Services, namespace: Namespace, statement: DeleteStatement, let: Document | None
) -> Selection:
    """Parse a statement.

    Raises:
        MongoError: what is wrong with it.
    """
    collation = statement_collation(statement.collation, services.catalog.get(namespace))
    variables = let_variables(services, let)
    matcher = parse_query(statement.filter, collation, variables)
    return Selection(wanted=Wanted(matcher=matcher, collation=collation, hint=statement.hint), variables=variables)


async def run_delete(
    services: Services, namespace: Namespace, statement: DeleteStatement, let: Document | None, operation: Operation
) -> int:
    """Run one statement; returns how many documents went.

    Raises:
        MongoError: what it failed of.
    """
    collection = refuse_view(services.catalog, namespace)
    check_writable(namespace)
    if collection is not None and collection.kind == "timeseries":
        return await delete_measurements_in(services, collection, statement, let, operation)
    selection = prepare_delete(services, namespace, statement, let)
    count = 0

    def note(_: Document) -> None:
        nonlocal count
        count += 1

    if statement.multi:
        await change_many(services, namespace, selection, remove_document, operation, note=note)
    elif await change_one(services, namespace, selection, remove_document, operation) is not None:
        count = 1
    services.counters.documents_deleted += count
    return count


def remove_document(
    transaction: Transaction, collection: Collection, record_key: bytes, raw: bytes, document: Document
) -> Document:
    """Remove one document; returns it."""
    documents.remove(transaction, collection, record_key, raw)
    return document
