"""`validateDBMetadata`: what of the catalog does not fit a version of the stable API."""

from typing import Final

from ...catalog.catalog import Catalog
from ...catalog.index_specs import IndexSpec
from ...common.errors import APIStrictError, InvalidNamespace, Location
from ...common.values import Document, encode
from ..context import Context, Request
from .arguments import Fields
from .base import Command

_DATABASE_BYTES_MAX: Final = 63
_REPLY_BYTES_MAX: Final = 12 * 1024 * 1024


class ValidateDbMetadata(Command):
    """`validateDBMetadata`."""

    name = "validateDBMetadata"
    summary = "Tells which collections and indexes are not part of an API version."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer one row for each index that a strict client could not have made."""
        fields = Fields(request, known=("db", "collection", "apiParameters"))
        database = fields.take_string("db", default=None)
        collection = fields.take_string("collection", default=None)
        asked = Fields(
            fields.take_document("apiParameters"),
            fields.path("APIParamsForCmd"),
            known=("version", "strict", "deprecationErrors"),
        )
        version = asked.take_string("version")
        for name in ("strict", "deprecationErrors"):
            if asked.take_any(name, default=False) is None:
                raise asked.wrong_type(name, None, "type 'bool'")
        strict = asked.take_bool("strict", exact=True)
        asked.take_bool("deprecationErrors", exact=True)
        if database is not None:
            _check_database(database)
        if collection is not None and (collection == "" or collection.startswith(".") or "\0" in collection):
            raise InvalidNamespace(f"Invalid collection name: '{collection}'")
        reply: Document = {"apiVersionErrors": []}
        if not (strict and version == "1"):
            return reply
        catalog: Catalog = context.services.catalog
        size = 0
        for held in sorted(catalog.all_collections(), key=lambda held: held.namespace):
            if database not in (None, held.namespace.database) or collection not in (None, held.namespace.collection):
                continue
            for index in held.indexes:
                if _in_version_1(index):
                    continue
                row: Document = {
                    "ns": str(held.namespace),
                    "code": APIStrictError.number,
                    "codeName": "APIStrictError",
                    "errmsg": f"The index with name {index.name} is not allowed in API version 1.",
                }
                size += len(encode(row)) + 10
                if size > _REPLY_BYTES_MAX:
                    reply["hasMoreErrors"] = True
                    return reply
                reply["apiVersionErrors"].append(row)
        return reply


def _in_version_1(index: IndexSpec) -> bool:
    return index.kind != "text" and not index.document.get("sparse")


def _check_database(name: str) -> None:
    if name == "":
        raise Location(28539, "invalid db name: the name is empty")
    if "." in name or "\0" in name or len(name.encode()) > _DATABASE_BYTES_MAX:
        raise InvalidNamespace(f"Invalid database name: '{name}'")
    if not set('/\\ "').isdisjoint(name):
        raise Location(13280, f"invalid db name: {name}")
