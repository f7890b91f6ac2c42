"""`createIndexes`, `listIndexes`, `dropIndexes`: the indexes of a collection."""

from typing import Any

from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec, is_id_key
from ...catalog.namespaces import Namespace
from ...common.display import value_text
from ...common.errors import (
    AmbiguousIndexKeyPattern,
    BadValue,
    CommandNotSupportedOnView,
    IndexNotFound,
    InvalidOptions,
    Location,
    NamespaceNotFound,
    TypeMismatch,
)
from ...common.ordering import equal
from ...common.values import Document, encode, type_name
from ...kernels import RowArray
from ...protocol.replies import Reply, array_of
from ...query.execute import Execution
from ...query.match.parse import parse_filter
from ...query.plan.shaping import Rows
from ..context import Context, Request
from .answering import answer_rows
from .arguments import Fields
from .base import Command
from .reading import check_collection_uuid, take_batch_size
from .timeseries_writes import index_for_buckets, index_for_view
from .writing import ensure_collection


class CreateIndexes(Command):
    """`createIndexes`."""

    name = "createIndexes"
    summary = "Creates indexes on a collection."
    writes = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how many indexes there were and are."""
        services = context.services
        catalog: Catalog = services.catalog
        fields = Fields(
            request,
            known=("indexes", "commitQuorum", "ignoreUnknownIndexOptions", "collectionUUID", "isTimeseriesNamespace"),
        )
        namespace = fields.take_namespace()
        rows = fields.take_list("indexes")
        ignore_unknown = fields.take_bool("ignoreUnknownIndexOptions", default=False)
        if fields.has("commitQuorum"):
            raise BadValue("standalones can't specify commitQuorum")
        for position, row in enumerate(rows):
            if not isinstance(row, dict):
                raise TypeMismatch(
                    f"BSON field 'createIndexes.indexes.{position}' is the wrong type '{type_name(row)}', "
                    "expected type 'object'"
                )
        if not rows:
            raise BadValue("Must specify at least one index to create")
        if namespace.is_system and not namespace.is_buckets and any(row.get("hidden") for row in rows):
            raise BadValue(f"Can't hide an index on a system collection: {namespace}")
        check_collection_uuid(fields, catalog, namespace)
        existing = catalog.get(namespace)
        if existing is not None and existing.kind == "view":
            raise CommandNotSupportedOnView(f"Cannot create indexes on a view: {namespace}")
        timeseries = existing if existing is not None and existing.kind == "timeseries" else None
        specs = [_spec(row, existing, ignore_unknown=ignore_unknown) for row in rows]
        if timeseries is not None:
            specs = [index_for_buckets(timeseries, spec) for spec in specs]
            namespace = namespace.buckets
        created = existing is None
        collection = await ensure_collection(services, namespace) if timeseries is None else catalog.get(namespace)
        before = 0 if collection is None else len(collection.indexes)
        new = [spec for spec in specs if not _is_clustering_key(collection, spec)]
        after = before
        if new:
            before, after = await catalog.create_indexes(namespace, new)
        reply: Document = {"numIndexesBefore": before, "numIndexesAfter": after}
        if timeseries is None:
            reply["createdCollectionAutomatically"] = created
        if before == after:
            reply["note"] = "all indexes already exist"
        return reply


def _spec(row: Document, collection: Collection | None, *, ignore_unknown: bool) -> IndexSpec:
    default = None if collection is None else collection.options.get("collation")
    spec = IndexSpec.parse(row, default_collation=default, ignore_unknown=ignore_unknown)
    if spec.partial_filter is not None:
        parse_filter(spec.partial_filter, collator=spec.collation)
    if spec.is_id and collection is not None and "collation" in row:
        wanted = None if spec.collation is None else spec.collation.to_document()
        if wanted != default:
            raise BadValue(
                f"The _id index must have the same collation as the collection. Index collation: {value_text(wanted)}, "
                f"collection collation: {value_text(default)}"
            )
    if spec.document.get("clustered") is True:
        _check_clustered(spec, collection)
    return spec


def _check_clustered(spec: IndexSpec, collection: Collection | None) -> None:
    if collection is None or not collection.clustered:
        raise Location(6100904 if collection is None else 6243700, "Cannot create index with option 'clustered'")


def _is_clustering_key(collection: Collection | None, spec: IndexSpec) -> bool:
    """Whether the order of storage is the index that is asked for."""
    return collection is not None and collection.clustered and is_id_key(spec.key)


class ListIndexes(Command):
    """`listIndexes`."""

    name = "listIndexes"
    summary = "Lists the indexes of a collection."
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Reply:
        """Answer a cursor over the specifications."""
        services = context.services
        fields = Fields(
            request, known=("cursor", "includeBuildUUIDs", "includeIndexBuildInfo", "collectionUUID",
                            "isTimeseriesNamespace")
        )  # fmt: skip
        namespace = fields.take_namespace()
        batch_size = take_batch_size(fields, fields.take_any("cursor"))
        build_uuids = fields.take_bool("includeBuildUUIDs", default=False)
        build_info = fields.take_bool("includeIndexBuildInfo", default=False)
        if build_uuids and build_info:
            raise InvalidOptions("Cannot use both includeBuildUUIDs and includeIndexBuildInfo")
        check_collection_uuid(fields, services.catalog, namespace)
        listed = listed_indexes(services.catalog, namespace)
        rows = [encode({"spec": row} if build_info else row) for row in listed]
        return await rows_reply(context, request, rows, str(namespace), batch_size)


def listed_indexes(catalog: Catalog, namespace: Namespace) -> list[Document]:
    """The indexes of a collection as `listIndexes` shows them.

    Raises:
        NamespaceNotFound: there is no such collection.
        CommandNotSupportedOnView: it is a view.
    """
    collection = catalog.get(namespace)
    if collection is None:
        raise NamespaceNotFound(f"ns does not exist: {namespace}")
    if collection.kind == "view":
        raise CommandNotSupportedOnView(f"Namespace {namespace} is a view, not a collection")
    if collection.kind == "timeseries":
        buckets = catalog.get(namespace.buckets)
        shown = (index_for_view(collection, index) for index in (() if buckets is None else buckets.indexes))
        return [_with_doubles(row) for row in shown if row is not None]
    rows = [_with_doubles(index.to_document()) for index in collection.indexes]
    if collection.clustered:
        clustered = collection.options.get("clusteredIndex")
        if isinstance(clustered, dict):
            rows.insert(0, {**clustered, "clustered": True})
    return rows


def _with_doubles(row: Document) -> Document:
    """The row with the bounds of a 2d index as doubles, whatever numbers they were given as."""
    return {name: float(str(value)) if name in ("min", "max") else value for name, value in row.items()}


async def rows_reply(
    context: Context, request: Request, rows: list[bytes], namespace: str, batch_size: int | None
) -> Reply:
    """A first batch of rows that are there already, with a cursor for the rest."""
    services = context.services
    if batch_size is None or len(rows) <= batch_size:
        return await answer_rows(True, 0, namespace, array_of(rows))
    execution = Execution(Rows(rows), services.engine)
    first = await execution.next_batch(batch_size) if batch_size else RowArray()
    cursor_id = services.cursors.open(
        execution,
        namespace,
        lsid=request.generic.lsid,
        command=request.body,
        user=context.client.user,
        extra={"left": None},
    )
    return await answer_rows(True, cursor_id, namespace, first)


class DropIndexes(Command):
    """`dropIndexes`."""

    name = "dropIndexes"
    aliases = ("deleteIndexes",)
    summary = "Drops indexes of a collection."
    writes = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how many indexes there were."""
        services = context.services
        catalog: Catalog = services.catalog
        fields = Fields(request, "dropIndexes", known=("index", "collectionUUID", "isTimeseriesNamespace"))
        namespace = fields.take_namespace(request.name)
        wanted = fields.take_any("index")
        if type(wanted) not in (str, dict, list) and "index" not in request.body:
            raise fields.missing("index")
        if type(wanted) not in (str, dict, list) or not isinstance(wanted, str | dict | list):
            raise fields.wrong_type("index", wanted, "types '[string, object, array]'")
        check_collection_uuid(fields, catalog, namespace)
        collection = catalog.get(namespace)
        if collection is None:
            raise NamespaceNotFound(f"ns not found {namespace}")
        if collection.kind == "view":
            raise CommandNotSupportedOnView(f"Cannot drop indexes on view {namespace}")
        timeseries = None
        if collection.kind == "timeseries":
            timeseries = collection
            buckets = catalog.get(namespace.buckets)
            if buckets is None:
                raise NamespaceNotFound(f"ns not found {namespace}")
            collection = buckets
        before = len(collection.indexes)
        names = _names_to_drop(collection, wanted, timeseries)
        if names:
            await catalog.drop_indexes(collection.namespace, names)
        reply: Document = {"nIndexesWas": before}
        if wanted == "*":
            reply["msg"] = "non-_id indexes dropped for collection"
        return reply


def _names_to_drop(collection: Collection, wanted: Any, timeseries: Collection | None) -> list[str]:
    if wanted == "*":
        return [index.name for index in collection.indexes if not index.is_id]
    if isinstance(wanted, dict):
        return [_by_key(collection, wanted, timeseries).name]
    if wanted == ["*"]:
        wanted = [index.name for index in collection.indexes if not index.is_id]
    names = wanted if isinstance(wanted, list) else [wanted]
    for name in names:
        if not isinstance(name, str):
            raise TypeMismatch(f"dropIndexes index name array may only contain strings, but found {type_name(name)}")
    for position, name in enumerate(names):
        index = collection.index(name) if name not in names[:position] else None
        if index is None:
            if collection.clustered and timeseries is None and name == clustered_name(collection):
                raise Location(5979800, "It is illegal to drop the clusteredIndex")
            raise IndexNotFound(f"index not found with name [{name}]")
        _refuse_id(index)
    return names


def clustered_name(collection: Collection) -> str:
    """What the order of storage is called among the indexes."""
    clustered = collection.options.get("clusteredIndex")
    return str(clustered.get("name", "_id_")) if isinstance(clustered, dict) else "_id_"


def _by_key(collection: Collection, key: Document, timeseries: Collection | None) -> IndexSpec:
    if timeseries is not None:
        found = [
            index
            for index in collection.indexes
            if (shown := index_for_view(timeseries, index)) is not None and equal(shown["key"], key)
        ]
    else:
        found = [index for index in collection.indexes if equal(index.key, key)]
        if not found and collection.clustered and is_id_key(key):
            raise Location(5979800, "It is illegal to drop the clusteredIndex")
    if not found:
        raise IndexNotFound(f"can't find index with key: {value_text(key)}")
    if len(found) > 1:
        raise AmbiguousIndexKeyPattern(
            f"{len(found)} indexes found for key: {value_text(key)}, identify by name instead. "
            f"Conflicting indexes: {', '.join(value_text(index.document) for index in found)}"
        )
    _refuse_id(found[0])
    return found[0]


def _refuse_id(index: IndexSpec) -> None:
    if index.is_id:
        raise InvalidOptions("cannot drop _id index")
