"""`insert`: new documents, as they came in."""

from ...common.errors import InvalidLength
from ...common.limits import WRITE_BATCH_MAX
from ...common.values import Document
from ..context import Context, Request
from .arguments import Fields
from .base import Command
from .reading import check_collection_uuid
from .timeseries_writes import insert_measurements_into
from .writing import WriteErrors, insert_documents, refuse_view

_FIELDS = frozenset(
    {
        "bypassDocumentValidation", "bypassEmptyTsReplacement", "collectionUUID", "documents", "encryptionInformation",
        "isTimeseriesNamespace", "ordered", "stmtId", "stmtIds",
    }
)  # fmt: skip


class Insert(Command):
    """`insert`."""

    name = "insert"
    summary = "Inserts documents into a collection."
    writes = True
    reads = True
    in_api_version_1 = True
    op = "insert"

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how many went in, and which did not."""
        services = context.services
        fields = Fields(request, known=_FIELDS)
        namespace = fields.take_namespace()
        ordered = fields.take_bool("ordered", default=True, exact=True)
        bypass = fields.take_bool("bypassDocumentValidation", default=False)
        keep_timestamps = fields.take_bool("bypassEmptyTsReplacement", default=False, exact=True)
        if not fields.has("documents"):
            raise fields.missing("documents")
        target = services.catalog.get(namespace)
        sequence = request.raw_sequence("documents")
        if sequence is not None and target is not None and target.kind == "timeseries":
            # Measurements go to the kernel as they came in, uncut.
            check_collection_uuid(fields, services.catalog, namespace)
            count, errors = await insert_measurements_into(services, target, request, sequence, ordered=ordered)
            return _reply(count, errors)
        raws = request.raw_documents("documents")
        if not 0 < len(raws) <= WRITE_BATCH_MAX:
            raise InvalidLength(
                f"Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {len(raws)} operations."
            )
        check_collection_uuid(fields, services.catalog, namespace)
        collection = refuse_view(services.catalog, namespace)
        if collection is not None and collection.kind == "timeseries":
            count, errors = await insert_measurements_into(services, collection, request, raws, ordered=ordered)
        else:
            count, errors = await insert_documents(
                services,
                namespace,
                raws,
                ordered=ordered,
                bypass_validation=bypass,
                fill_timestamps=not keep_timestamps,
                operation=request.operation,
            )
        return _reply(count, errors)


def _reply(count: int, errors: WriteErrors) -> Document:
    reply: Document = {"n": count}
    if errors.rows:
        reply["writeErrors"] = errors.in_order()
    return reply
