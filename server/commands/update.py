"""`update`: documents changed by operators, replacements or pipelines, and made where none is found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bson import DatetimeMS, ObjectId

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.namespaces import Namespace
from ...common.collation import Collation
from ...common.errors import DuplicateKey, FailedToParse, InvalidLength, Location, MongoError, TypeMismatch
from ...common.limits import WRITE_BATCH_MAX
from ...common.ordering import equal
from ...common.values import Document, encode, type_name
from ...kernels import new_object_id
from ...query.match.base import MatchNode
from ...query.plan.planner import Wanted
from ...query.sort import parse_sort
from ...query.update.base import Update
from ...query.update.parse import parse_update
from ...storage.engine import Transaction
from ..context import Context, Request, Services
from ..operations import Operation
from .arguments import REQUIRED, Fields
from .base import Command
from .changing import Change, Direct, Outcome, Selection, change_many, change_one, change_together, direct_change
from .reading import check_collection_uuid, let_variables, parse_query, take_hint
from .timeseries_writes import update_measurements_in
from .writing import Validator, WriteErrors, check_id, check_writable, now_of, refuse_view

_FIELDS: Final = frozenset(
    {
        "bypassDocumentValidation", "bypassEmptyTsReplacement", "collectionUUID", "encryptionInformation",
        "isTimeseriesNamespace", "let", "ordered", "stmtId", "stmtIds", "updates",
    }
)  # fmt: skip
_STATEMENT_FIELDS: Final = frozenset(
    {
        "allowShardKeyUpdatesWithoutFullShardKeyInQuery", "arrayFilters", "c", "collation", "hint", "multi", "q",
        "sampleId", "sort", "u", "upsert", "upsertSupplied",
    }
)  # fmt: skip
_UPSERT_TRIES: Final = 3
_TOGETHER_MAX: Final = 500


@dataclass(slots=True, kw_only=True)
class UpdateStatement:
    """One update, read but not yet parsed: what is wrong within it is the statement's own failure."""

    filter: Document
    update: Document | list[Any]
    multi: bool = False
    upsert: bool = False
    collation: Document | None = None
    array_filters: list[Any] | None = None
    hint: str | Document | None = None
    constants: Document | None = None
    sort: Document | None = None
    upsert_supplied: bool = False


@dataclass(slots=True)
class UpdateResult:
    """What became of one statement."""

    matched: int = 0
    modified: int = 0
    upserted: tuple[Any] | None = None


@dataclass(slots=True, kw_only=True)
class WriteOptions:
    """What holds for all statements of a request."""

    let: Document | None = None
    bypass_validation: bool = False
    keep_timestamps: bool = False
    now: DatetimeMS | None = None
    """The present for all of them; None: each asks for it."""


class UpdateCommand(Command):
    """`update`."""

    name = "update"
    summary = "Updates documents of a collection."
    writes = True
    reads = True
    in_api_version_1 = True
    op = "update"

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how many matched, how many changed, and what failed."""
        services = context.services
        namespace, statements, ordered, options = read_update_request(services, request)
        errors = WriteErrors()
        total = UpdateResult()
        upserted: list[Document] = []
        position = 0
        while position < len(statements) and not (ordered and errors.rows):
            results = await _run_some(
                services, namespace, statements[position:], options, request.operation, ordered=ordered
            )
            for result in results:
                services.counters.update += 1
                if isinstance(result, MongoError):
                    errors.add(position, result)
                else:
                    total.matched += result.matched
                    total.modified += result.modified
                    if result.upserted is not None:
                        upserted.append({"index": position, "_id": result.upserted[0]})
                position += 1
        reply: Document = {"n": total.matched + len(upserted), "nModified": total.modified}
        if upserted:
            reply["upserted"] = upserted
        if errors.rows:
            reply["writeErrors"] = errors.in_order()
        return reply


async def _run_some(
    services: Services,
    namespace: Namespace,
    statements: Sequence[UpdateStatement],
    options: WriteOptions,
    operation: Operation,
    *,
    ordered: bool,
) -> list[UpdateResult | MongoError]:
    """Run the first statement and, where they find their documents as quickly, those behind it in the same commit."""
    directs: list[Direct[tuple[Any] | bool]] = []
    collection = services.catalog.get(namespace)
    if len(statements) > 1 and collection is not None and collection.kind == "collection":
        for statement in statements[:_TOGETHER_MAX]:
            direct = _direct(services, namespace, statement, options)
            if direct is None:
                break
            directs.append(direct)
    if len(directs) > 1:
        operation.check()
        found: list[UpdateResult | MongoError] = []
        outcomes: list[Outcome[tuple[Any] | bool]] = await change_together(services, directs, ordered=ordered)
        for outcome in outcomes:
            if outcome.error is not None:
                found.append(outcome.error)
            elif outcome.tried:
                found.append(_counted(services, outcome.result))
            else:
                break
        if found:
            return found
    try:
        return [await run_update(services, namespace, statements[0], options, operation)]
    except MongoError as error:
        if ends_request(error):
            raise
        return [error]


def _direct(
    services: Services, namespace: Namespace, statement: UpdateStatement, options: WriteOptions
) -> "Direct[tuple[Any] | bool] | None":
    """The statement as one transaction; None where it has to look around first, or cannot be."""
    if statement.multi:
        return None
    try:
        prepared = prepare_update(services, namespace, statement, options)
        change, insert = _single(services, statement, options, prepared)
        return direct_change(services, namespace, prepared.selection, change, insert)
    except MongoError:
        # What is wrong with it is told when its turn comes.
        return None


def _counted(services: Services, found: tuple[Any] | bool | None) -> UpdateResult:
    """The result of a single update: what was inserted, whether the one that matched changed, or nothing."""
    if isinstance(found, tuple):
        services.counters.documents_inserted += 1
        return UpdateResult(upserted=found)
    services.counters.documents_updated += bool(found)
    return UpdateResult(int(found is not None), int(bool(found)))


def _single(
    services: Services, statement: UpdateStatement, options: WriteOptions, prepared: "PreparedUpdate"
) -> tuple[Change[tuple[Any] | bool], Callable[[Transaction, Collection], tuple[Any] | bool] | None]:
    """How to change one document, and what to do where there is none."""
    changer = Changer(services, prepared.update, prepared.selection.matcher, options)

    def change(
        transaction: Transaction, collection: Collection, record_key: bytes, raw: bytes, document: Document
    ) -> tuple[Any] | bool:
        return changer.change(transaction, collection, record_key, raw, document)[1]

    def insert(transaction: Transaction, collection: Collection) -> tuple[Any] | bool:
        return (changer.insert(transaction, collection)["_id"],)

    return change, insert if statement.upsert else None


def ends_request(error: MongoError) -> bool:
    """Whether a failure of a statement is one of the whole request: its time is up, or it was killed."""
    return error.number in (50, 11600, 11601)


def read_update_request(
    services: Services, request: Request
) -> tuple[Namespace, list[UpdateStatement], bool, WriteOptions]:
    """The fields of an update."""
    fields = Fields(request, "update", known=_FIELDS)
    namespace = fields.take_namespace()
    ordered = fields.take_bool("ordered", default=True, exact=True)
    options = WriteOptions(
        now=now_of(services),
        let=fields.take_document("let", default=None),
        bypass_validation=fields.take_bool("bypassDocumentValidation", default=False),
        keep_timestamps=fields.take_bool("bypassEmptyTsReplacement", default=False, exact=True),
    )
    if not fields.has("updates"):
        raise fields.missing("updates")
    rows = request.documents("updates")
    check_batch_size(rows)
    statements = [_statement(row) for row in rows]
    check_collection_uuid(fields, services.catalog, namespace)
    refuse_view(services.catalog, namespace)
    return namespace, statements, ordered, options


def check_batch_size(rows: Sequence[object]) -> None:
    """Refuse a batch that is empty or too large."""
    if not 0 < len(rows) <= WRITE_BATCH_MAX:
        raise InvalidLength(f"Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {len(rows)} operations.")


def _statement(row: Document) -> UpdateStatement:
    fields = Fields(row, "update.updates", known=_STATEMENT_FIELDS)
    filter = fields.take_document("q")
    update = take_update(fields, "u")
    multi = fields.take_bool("multi", default=False, exact=True)
    array_filters = fields.take_list("arrayFilters", default=None)
    if array_filters is not None:
        for position, item in enumerate(array_filters):
            if not isinstance(item, dict):
                raise TypeMismatch(
                    f"BSON field 'update.updates.arrayFilters.{position}' is the wrong type '{type_name(item)}', "
                    "expected type 'object'"
                )
    return UpdateStatement(
        filter=filter,
        update=update,
        multi=multi,
        upsert=fields.take_bool("upsert", default=False, exact=True),
        collation=fields.take_document("collation", default=None) or None,
        array_filters=array_filters,
        hint=take_hint(fields),
        constants=fields.take_document("c", default=None),
        sort=fields.take_document("sort", default=None),
        upsert_supplied=fields.take_bool("upsertSupplied", default=False),
    )


def take_update(fields: Fields, name: str) -> Document | list[Any]:
    """A document, or an array of documents.

    Raises:
        FailedToParse: neither of them.
    """
    update = fields.take_any(name, default=REQUIRED)
    if isinstance(update, dict):
        return update
    if not isinstance(update, list):
        raise FailedToParse("Update argument must be either an object or an array")
    for item in update:
        if not isinstance(item, dict):
            raise TypeMismatch("Each element of the 'pipeline' array must be an object")
    return update


@dataclass(slots=True)
class PreparedUpdate:
    """A statement, parsed."""

    selection: Selection
    update: Update
    collation: Collation | None


def prepare_update(
    services: Services, namespace: Namespace, statement: UpdateStatement, options: WriteOptions
) -> PreparedUpdate:
    """Parse a statement.

    Raises:
        MongoError: what is wrong with it.
    """
    collection: Collection | None = services.catalog.get(namespace)
    collation = statement_collation(statement.collation, collection)
    variables: dict[str, Any] = let_variables(services, options.let)
    if options.now is not None:
        variables["NOW"] = options.now
    if statement.constants is not None:
        if not isinstance(statement.update, list):
            raise Location(51198, "Constant values may only be specified for pipeline updates")
        variables |= statement.constants
    update = parse_update(
        statement.update,
        array_filters=statement.array_filters,
        collator=collation,
        variables=variables,
        upsert=statement.upsert,
        fill_timestamps=not options.keep_timestamps,
    )
    if update.is_replacement and statement.multi:
        raise FailedToParse("multi update is not supported for replacement-style update")
    if statement.sort is not None and statement.multi:
        raise FailedToParse("Cannot specify sort with multi=true")
    matcher = parse_query(statement.filter, collation, variables)
    wanted = Wanted(
        matcher=matcher,
        collation=collation,
        hint=statement.hint,
        sort=parse_sort(statement.sort) if statement.sort else None,
    )
    return PreparedUpdate(Selection(wanted=wanted, variables=variables), update, collation)


def statement_collation(asked: Document | None, collection: Collection | None) -> Collation | None:
    """The collation of a statement: its own, else that of the collection."""
    if asked is not None:
        return Collation.parse(asked)
    return None if collection is None else collection.collation


async def run_update(
    services: Services,
    namespace: Namespace,
    statement: UpdateStatement,
    options: WriteOptions,
    operation: Operation,
) -> UpdateResult:
    """Run one statement.

    Raises:
        MongoError: what it failed of; of a multi-update, some documents may have been changed.
    """
    collection = refuse_view(services.catalog, namespace)
    check_writable(namespace)
    if collection is not None and collection.kind == "timeseries":
        return await update_measurements_in(services, collection, statement, options, operation)
    prepared = prepare_update(services, namespace, statement, options)
    for attempt in range(_UPSERT_TRIES):
        try:
            return await _run(services, namespace, statement, options, prepared, operation)
        except DuplicateKey:
            # Somebody else inserted what this was about to insert: look again, it may match now.
            if not statement.upsert or attempt == _UPSERT_TRIES - 1 or not _may_match_now(prepared):
                raise
    raise AssertionError("an upsert ends by its last try")


def _may_match_now(prepared: PreparedUpdate) -> bool:
    return prepared.selection.matcher.fields() is not None


async def _run(
    services: Services,
    namespace: Namespace,
    statement: UpdateStatement,
    options: WriteOptions,
    prepared: PreparedUpdate,
    operation: Operation,
) -> UpdateResult:
    result = UpdateResult()

    def note(changed: bool) -> None:
        result.matched += 1
        result.modified += changed

    if statement.multi:
        changer = Changer(services, prepared.update, prepared.selection.matcher, options)

        def change_each(
            transaction: Transaction, collection: Collection, record_key: bytes, raw: bytes, document: Document
        ) -> bool:
            return changer.change(transaction, collection, record_key, raw, document)[1]

        await change_many(services, namespace, prepared.selection, change_each, operation, note=note)
        if result.matched or not statement.upsert:
            services.counters.documents_updated += result.modified
            return result
    change, insert = _single(services, statement, options, prepared)
    return _counted(
        services, await change_one(services, namespace, prepared.selection, change, operation, otherwise=insert)
    )


class Changer:
    """Applies an update to documents in a transaction."""

    def __init__(self, services: Services, update: Update, matcher: MatchNode, options: WriteOptions) -> None:
        self._services = services
        self._update = update
        self._matcher = matcher
        self._options = options
        self._now = now_of(services) if options.now is None else options.now
        self._validator: tuple[Mapping[str, Any], Validator] | None = None

    def change(
        self, transaction: Transaction, collection: Collection, record_key: bytes, raw: bytes, document: Document
    ) -> tuple[Document, bool]:
        """Update one document; returns it as it is now, and whether it changed."""
        new, changed = self._update.apply(document, matched_filter=self._matcher, now=self._now)
        if not changed:
            return document, False
        self._check(collection, new, before=document)
        documents.replace(transaction, collection, record_key, raw, encode(new))
        return new, True

    def insert(self, transaction: Transaction, collection: Collection) -> Document:
        """Insert the document that an upsert makes."""
        base = self._update.upsert_base(self._matcher)
        new, _ = self._update.apply(base, is_insert=True, now=self._now)
        if "_id" not in new:
            new = {"_id": base["_id"] if "_id" in base else ObjectId(new_object_id()), **new}
        elif next(iter(new)) != "_id":
            new = {"_id": new["_id"], **new}
        if "_id" in base and not equal(base["_id"], new["_id"]):
            from ...common.errors import ImmutableField

            raise ImmutableField("Performing an update on the path '_id' would modify the immutable field '_id'")
        check_id(new["_id"])
        self._check(collection, new)
        documents.insert(transaction, collection, encode(new))
        return new

    def _check(self, collection: Collection, new: Document, *, before: Document | None = None) -> None:
        if self._options.bypass_validation or collection.validator is None:
            return
        if self._validator is None or self._validator[0] is not collection.options:
            self._validator = (collection.options, Validator(collection, self._now))
        self._validator[1].check(new, before=before)
