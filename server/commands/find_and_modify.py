"""`findAndModify`: one document changed or removed, and shown as it was or is."""

from typing import Any, Final

from bson import Regex

from ...catalog.collections import Collection
from ...common.errors import FailedToParse, TypeMismatch
from ...common.values import Document, type_name
from ...query.projection import parse_projection
from ...storage.engine import Transaction
from ..context import Context, Request, Services
from .arguments import Fields
from .base import Command
from .changing import Selection, change_one
from .delete import remove_document
from .find import find_sort
from .reading import check_collection_uuid, take_hint
from .timeseries_writes import find_and_modify_measurement
from .update import Changer, PreparedUpdate, UpdateStatement, WriteOptions, prepare_update, take_update
from .writing import check_writable, refuse_view

_FIELDS: Final = frozenset(
    {
        "arrayFilters", "bypassDocumentValidation", "bypassEmptyTsReplacement", "collation", "collectionUUID",
        "encryptionInformation", "fields", "hint", "isTimeseriesNamespace", "let", "new", "query", "remove", "sampleId",
        "sort", "stmtId", "update", "upsert",
    }
)  # fmt: skip


class FindAndModifyRequest:
    """The fields of a findAndModify, read and checked."""

    def __init__(self, services: Services, request: Request) -> None:
        fields = Fields(request, "findAndModify", known=_FIELDS)
        self.namespace = fields.take_namespace(request.name)
        self.query = fields.take_document("query", default={})
        self.sort = fields.take_document("sort", default={})
        self.projection = fields.take_document("fields", default={})
        self.remove = fields.take_bool("remove", default=False)
        self.new = fields.take_bool("new", default=False)
        self.upsert = fields.take_bool("upsert", default=False)
        self.update = take_update(fields, "update") if request.body.get("update") is not None else None
        self.array_filters = fields.take_list("arrayFilters", default=None)
        for position, item in enumerate(self.array_filters or ()):
            if not isinstance(item, dict):
                raise TypeMismatch(
                    f"BSON field 'findAndModify.arrayFilters.{position}' is the wrong type '{type_name(item)}', "
                    "expected type 'object'"
                )
        self.collation = fields.take_document("collation", default=None) or None
        self.hint = take_hint(fields)
        self.options = WriteOptions(
            let=fields.take_document("let", default=None),
            bypass_validation=fields.take_bool("bypassDocumentValidation", default=False),
            keep_timestamps=fields.take_bool("bypassEmptyTsReplacement", default=False, exact=True),
        )
        self._check()
        check_collection_uuid(fields, services.catalog, self.namespace)

    def _check(self) -> None:
        if self.remove:
            if self.update is not None:
                raise FailedToParse("Cannot specify both an update and remove=true")
            if self.upsert:
                raise FailedToParse("Cannot specify both upsert=true and remove=true ")
            if self.new:
                raise FailedToParse(
                    "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document"
                )
            if self.array_filters is not None:
                raise FailedToParse("Cannot specify arrayFilters and remove=true")
        elif self.update is None:
            raise FailedToParse("Either an update or remove=true must be specified")
        if isinstance(self.update, list) and self.array_filters is not None:
            raise FailedToParse("Cannot specify arrayFilters and a pipeline update")

    def statement(self) -> UpdateStatement:
        """The same as a statement of `update`."""
        return UpdateStatement(
            filter=self.query,
            update=self.update if self.update is not None else {"$set": {}},
            upsert=self.upsert,
            collation=self.collation,
            array_filters=self.array_filters,
            hint=self.hint,
        )


class FindAndModify(Command):
    """`findAndModify`."""

    name = "findAndModify"
    aliases = ("findandmodify",)
    summary = "Changes one document and returns it."
    writes = True
    reads = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the document as it was, or with `new` as it is."""
        services = context.services
        asked = FindAndModifyRequest(services, request)
        collection = refuse_view(services.catalog, asked.namespace)
        check_writable(asked.namespace)
        if collection is not None and collection.kind == "timeseries":
            return await find_and_modify_measurement(services, collection, asked, request.operation)
        prepared = prepare_find_and_modify(services, asked)
        if asked.remove:
            services.counters.delete += 1
            removed = await change_one(
                services, asked.namespace, prepared.selection, remove_document, request.operation
            )
            services.counters.documents_deleted += removed is not None
            return {
                "lastErrorObject": {"n": 0 if removed is None else 1},
                "value": _shown(asked, prepared.selection, removed),
            }
        return await self._update(services, asked, prepared, request)

    async def _update(
        self, services: Services, asked: FindAndModifyRequest, prepared: PreparedUpdate, request: Request
    ) -> Document:
        services.counters.update += 1
        changer = Changer(services, prepared.update, prepared.selection.matcher, asked.options)

        def change(
            transaction: Transaction, collection: Collection, record_key: bytes, raw: bytes, document: Document
        ) -> tuple[Document, Document, bool]:
            new, changed = changer.change(transaction, collection, record_key, raw, document)
            return document, new, changed

        def insert(transaction: Transaction, collection: Collection) -> tuple[Document, Document, bool]:
            return {}, changer.insert(transaction, collection), True

        found = await change_one(
            services,
            asked.namespace,
            prepared.selection,
            change,
            request.operation,
            otherwise=insert if asked.upsert else None,
        )
        if found is None:
            return {"lastErrorObject": {"n": 0, "updatedExisting": False}, "value": None}
        before, after, changed = found
        if not before:
            services.counters.documents_inserted += 1
            return {
                "lastErrorObject": {"n": 1, "updatedExisting": False, "upserted": after["_id"]},
                "value": _shown(asked, prepared.selection, after) if asked.new else None,
            }
        services.counters.documents_updated += changed
        return {
            "lastErrorObject": {"n": 1, "updatedExisting": True},
            "value": _shown(asked, prepared.selection, after if asked.new else before),
        }


def prepare_find_and_modify(services: Services, asked: FindAndModifyRequest) -> PreparedUpdate:
    """Parse what it asks for.

    Raises:
        MongoError: what is wrong with it.
    """
    prepared = prepare_update(services, asked.namespace, asked.statement(), asked.options)
    wanted = prepared.selection.wanted
    # A query for one `_id` has no order to speak of, and MongoDB does not look at what was asked for.
    wanted.sort = None if asked.hint is None and names_one_id(asked.query) else find_sort(asked.sort)
    natural = asked.sort.get("$natural")
    wanted.natural = 0 if natural is None else int(natural)
    # A projection that cannot be is refused before anything is changed.
    _projection(asked, prepared.selection)
    return prepared


def names_one_id(query: Document) -> bool:
    """Whether a query is that for one `_id` and nothing else."""
    if list(query) != ["_id"]:
        return False
    value = query["_id"]
    if isinstance(value, dict):
        return not next(iter(value), "").startswith("$")
    return not isinstance(value, list | Regex) and value is not None


def _projection(asked: FindAndModifyRequest, selection: Selection) -> Any:
    return parse_projection(
        asked.projection,
        filter=selection.matcher,
        collator=selection.wanted.collation,
        defined_variables=frozenset(selection.variables),
    )


def _shown(asked: FindAndModifyRequest, selection: Selection, document: Document | None) -> Document | None:
    """The document as `fields` shows it."""
    if document is None or not asked.projection:
        return document
    shown: Document = _projection(asked, selection).apply(document, selection.variables)
    return shown
