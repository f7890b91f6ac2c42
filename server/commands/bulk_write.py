"""`bulkWrite`: inserts, updates and deletes on several collections in one request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ...catalog.namespaces import Namespace
from ...common.errors import (
    BadValue,
    CollectionUUIDMismatch,
    IDLUnknownField,
    InvalidLength,
    InvalidNamespace,
    MongoError,
    TypeMismatch,
)
from ...common.limits import WRITE_BATCH_MAX
from ...common.values import Document, decode, encode, type_name
from ...kernels import RowArray
from ...protocol.documents import elements
from ...protocol.replies import Reply, array_of
from ...query.execute import Execution
from ...query.plan.shaping import Rows
from ..context import Context, Request, Services
from ..operations import Operation
from .answering import answer_rows
from .arguments import Fields, collection_namespace
from .base import Command
from .delete import DeleteStatement, run_delete
from .reading import check_collection_uuid, take_batch_size, take_hint
from .timeseries_writes import insert_measurements_into
from .update import UpdateStatement, WriteOptions, ends_request, run_update, take_update
from .writing import insert_documents, refuse_view

_FIELDS: Final = (
    "ops", "nsInfo", "ordered", "errorsOnly", "bypassDocumentValidation", "bypassEmptyTsReplacement", "let", "cursor",
    "stmtId", "stmtIds",
)  # fmt: skip
_INSERT_FIELDS: Final = ("insert", "document")
_UPDATE_FIELDS: Final = (
    "update", "filter", "updateMods", "multi", "upsert", "arrayFilters", "hint", "constants", "collation", "sort",
    "sampleId", "upsertSupplied",
)  # fmt: skip
_DELETE_FIELDS: Final = ("delete", "filter", "multi", "hint", "collation", "sampleId")
_NAMESPACE: Final = "admin.$cmd.bulkWrite"


@dataclass(slots=True)
class Insert:
    """One document to insert."""

    target: int
    raw: bytes


@dataclass(slots=True)
class Update:
    """One update."""

    target: int
    statement: UpdateStatement


@dataclass(slots=True)
class Delete:
    """One delete."""

    target: int
    statement: DeleteStatement


Op = Insert | Update | Delete


@dataclass(slots=True)
class Totals:
    """What came of all operations."""

    rows: list[Document] = field(default_factory=list)
    errors: int = 0
    inserted: int = 0
    matched: int = 0
    modified: int = 0
    upserted: int = 0
    deleted: int = 0

    def add_error(self, position: int, error: MongoError, *, update: bool = False) -> None:
        """One operation failed."""
        self.errors += 1
        row: Document = {"ok": 0.0, "idx": position, "code": error.number, "errmsg": error.message, **error.extra}
        row["n"] = 0
        if update:
            row["nModified"] = 0
        self.rows.append(row)


class BulkWrite(Command):
    """`bulkWrite`."""

    name = "bulkWrite"
    summary = "Writes to several collections."
    writes = True
    reads = True
    admin_only = True
    in_api_version_1 = True
    op = "command"

    async def run(self, context: Context, request: Request) -> Reply:
        """Answer a cursor over what came of each operation, and the totals."""
        services = context.services
        fields = Fields(request, known=_FIELDS)
        fields.take_any("bulkWrite")
        ordered = fields.take_bool("ordered", default=True, exact=True)
        errors_only = fields.take_bool("errorsOnly", default=False, exact=True)
        options = WriteOptions(
            let=fields.take_document("let", default=None),
            bypass_validation=fields.take_bool("bypassDocumentValidation", default=False),
            keep_timestamps=fields.take_bool("bypassEmptyTsReplacement", default=False, exact=True),
        )
        for name in ("ops", "nsInfo"):
            if not fields.has(name):
                raise fields.missing(name)
        batch_size = take_batch_size(fields, fields.take_any("cursor"))
        namespaces, mismatches = _namespaces(services, request.documents("nsInfo"))
        ops = [_op(position, raw) for position, raw in enumerate(request.raw_documents("ops"))]
        if not 0 < len(ops) <= WRITE_BATCH_MAX:
            raise InvalidLength(
                f"Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {len(ops)} operations."
            )
        for op in ops:
            if not 0 <= op.target < len(namespaces):
                raise BadValue(f"BulkWrite ops entry {ops.index(op)} has an invalid nsInfo index.")
        totals = Totals()
        await Runner(services, request, namespaces, mismatches, options, ordered=ordered).run(ops, totals)
        rows = [encode(row) for row in totals.rows if not errors_only or not row["ok"]]
        return await _reply(context, request, rows, totals, batch_size)


async def _reply(
    context: Context, request: Request, rows: list[bytes], totals: Totals, batch_size: int | None
) -> Reply:
    services = context.services
    extra: Document = {
        "nErrors": totals.errors,
        "nInserted": totals.inserted,
        "nMatched": totals.matched,
        "nModified": totals.modified,
        "nUpserted": totals.upserted,
        "nDeleted": totals.deleted,
    }
    if batch_size is None or len(rows) <= batch_size:
        return await answer_rows(True, 0, _NAMESPACE, array_of(rows), extra)
    execution = Execution(Rows(rows), services.engine)
    first = await execution.next_batch(batch_size) if batch_size else RowArray()
    cursor_id = services.cursors.open(
        execution,
        _NAMESPACE,
        lsid=request.generic.lsid,
        command=request.body,
        user=context.client.user,
        extra={"left": None},
    )
    return await answer_rows(True, cursor_id, _NAMESPACE, first, extra)


def _namespaces(
    services: Services, rows: list[Document]
) -> tuple[list[Namespace], dict[Namespace, CollectionUUIDMismatch]]:
    """The collections, and what fails each operation on those that are not the ones that the client means."""
    found: list[Namespace] = []
    mismatches: dict[Namespace, CollectionUUIDMismatch] = {}
    for row in rows:
        fields = Fields(
            row, "bulkWrite.nsInfo", known=("ns", "collectionUUID", "encryptionInformation", "isTimeseriesNamespace")
        )
        database, _, collection = fields.take_string("ns").partition(".")
        if not database or not collection:
            raise InvalidNamespace(f"Invalid namespace specified '{row['ns']}'")
        namespace = collection_namespace(database, collection)
        if namespace in found:
            raise BadValue(f"BulkWrite nsInfo must not contain duplicates: {namespace}")
        found.append(namespace)
        try:
            check_collection_uuid(fields, services.catalog, namespace)
        except CollectionUUIDMismatch as error:
            mismatches[namespace] = error
    return found, mismatches


def _op(position: int, raw: bytes) -> Op:

    document = decode(raw)
    kind = next(iter(document), "")
    match kind:
        case "insert":
            fields = Fields(document, "bulkWrite.ops.insert", known=_INSERT_FIELDS)
            fields.take_document("document")
            target = _target(fields, "insert")
            start, end = next((start, end) for _, name, start, end in elements(raw) if name == "document")
            return Insert(target, raw[start:end])
        case "update":
            fields = Fields(document, "bulkWrite.ops.update", known=_UPDATE_FIELDS)
            return Update(_target(fields, "update"), _update(fields))
        case "delete":
            fields = Fields(document, "bulkWrite.ops.delete", known=_DELETE_FIELDS)
            statement = DeleteStatement(
                filter=fields.take_document("filter"),
                multi=fields.take_bool("multi", default=False, exact=True),
                collation=fields.take_document("collation", default=None) or None,
                hint=take_hint(fields),
            )
            return Delete(_target(fields, "delete"), statement)
    raise IDLUnknownField(f"BSON field 'bulkWrite.ops.{kind}' is an unknown field.")


def _target(fields: Fields, name: str) -> int:
    return int(fields.take_whole_number(name))


def _update(fields: Fields) -> UpdateStatement:
    array_filters = fields.take_list("arrayFilters", default=None)
    for position, item in enumerate(array_filters or ()):
        if not isinstance(item, dict):
            raise TypeMismatch(
                f"BSON field '{fields.path('arrayFilters')}.{position}' is the wrong type '{type_name(item)}', "
                "expected type 'object'"
            )
    return UpdateStatement(
        filter=fields.take_document("filter"),
        update=take_update(fields, "updateMods"),
        multi=fields.take_bool("multi", default=False, exact=True),
        upsert=fields.take_bool("upsert", default=False, exact=True),
        collation=fields.take_document("collation", default=None) or None,
        array_filters=array_filters,
        hint=take_hint(fields),
        constants=fields.take_document("constants", default=None),
        sort=fields.take_document("sort", default=None),
    )


class Runner:
    """Runs the operations in order; inserts that stand together go in together."""

    def __init__(
        self,
        services: Services,
        request: Request,
        namespaces: list[Namespace],
        mismatches: Mapping[Namespace, MongoError],
        options: WriteOptions,
        *,
        ordered: bool,
    ) -> None:
        self._services = services
        self._request = request
        self._operation: Operation = request.operation
        self._namespaces = namespaces
        self._mismatches = mismatches
        self._options = options
        self._ordered = ordered

    async def run(self, ops: list[Op], totals: Totals) -> None:
        """Run them, as far as the first failure where they are ordered."""
        at = 0
        while at < len(ops):
            op = ops[at]
            if isinstance(op, Insert):
                end = at
                raws = []
                while end < len(ops) and isinstance(following := ops[end], Insert) and following.target == op.target:
                    raws.append(following.raw)
                    end += 1
                failed = await self._insert(at, self._namespaces[op.target], raws, totals)
                at = end
            else:
                failed = await self._change(at, op, totals)
                at += 1
            if failed and self._ordered:
                return

    async def _insert(self, at: int, namespace: Namespace, raws: list[bytes], totals: Totals) -> bool:
        services = self._services
        try:
            if namespace in self._mismatches:
                raise self._mismatches[namespace]
            collection = refuse_view(services.catalog, namespace)
            if collection is not None and collection.kind == "timeseries":
                count, errors = await insert_measurements_into(
                    services, collection, self._request, raws, ordered=self._ordered
                )
            else:
                count, errors = await insert_documents(
                    services,
                    namespace,
                    raws,
                    ordered=self._ordered,
                    bypass_validation=self._options.bypass_validation,
                    fill_timestamps=not self._options.keep_timestamps,
                    operation=self._operation,
                )
        except MongoError as error:
            if ends_request(error):
                raise
            for position in range(1 if self._ordered else len(raws)):
                totals.add_error(at + position, error)
            return True
        totals.inserted += count
        failures = {int(row["index"]): row for row in errors.in_order()}
        stop = min(failures, default=len(raws)) if self._ordered else len(raws)
        for position in range(len(raws)):
            if position in failures:
                row = dict(failures[position])
                del row["index"]
                totals.rows.append({"ok": 0.0, "idx": at + position, **row, "n": 0})
                totals.errors += 1
            elif position < stop:
                totals.rows.append({"ok": 1.0, "idx": at + position, "n": 1})
        return bool(failures)

    async def _change(self, at: int, op: Update | Delete, totals: Totals) -> bool:
        namespace = self._namespaces[op.target]
        try:
            if namespace in self._mismatches:
                raise self._mismatches[namespace]
            if isinstance(op, Delete):
                self._services.counters.delete += 1
                count = await run_delete(self._services, namespace, op.statement, self._options.let, self._operation)
                totals.deleted += count
                totals.rows.append({"ok": 1.0, "idx": at, "n": count})
                return False
            self._services.counters.update += 1
            result = await run_update(self._services, namespace, op.statement, self._options, self._operation)
        except MongoError as error:
            if ends_request(error):
                raise
            totals.add_error(at, error, update=isinstance(op, Update))
            return True
        totals.matched += result.matched
        totals.modified += result.modified
        row: Document = {"ok": 1.0, "idx": at, "n": result.matched, "nModified": result.modified}
        if result.upserted is not None:
            totals.upserted += 1
            row["n"] = 1
            row["upserted"] = {"_id": result.upserted[0]}
        totals.rows.append(row)
        return False
