"""`create`, `drop`, `listCollections`, `renameCollection`: collections come, are named, and go."""

from typing import Any, Final

from bson import Binary

from ...catalog.catalog import VIEWS, Catalog
from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...catalog.namespaces import NAMESPACE_BYTES_MAX, Namespace, validate_collection_name
from ...common.display import value_text
from ...common.errors import (
    CollectionUUIDMismatch,
    CommandNotSupportedOnView,
    IllegalOperation,
    InvalidNamespace,
    InvalidOptions,
    InvalidUUID,
    NamespaceExists,
    NamespaceNotFound,
)
from ...common.ordering import equal
from ...common.values import Document, encode, is_string, type_name
from ...protocol.replies import Reply
from ...query.match.parse import parse_filter
from ..authorization import visible_collections
from ..context import Context, Request, Services
from .arguments import Fields
from .base import Command
from .create_options import CreateOptions, read_create_options
from .indexes import rows_reply
from .reading import check_collection_uuid, refuse_variables_of_server, take_batch_size
from .view_definitions import check_view

SYSTEM_ALLOWED: Final = frozenset(
    {"system.js", "system.views", "system.profile", "system.users", "system.roles", "system.version"}
)
_UUID_BYTES: Final = 16


class Create(Command):
    """`create`."""

    name = "create"
    summary = "Creates a collection, a view or a time-series collection."
    writes = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`; creating what is there already with the same options does nothing."""
        services = context.services
        wanted = read_create_options(request, services.clock.now_ms())
        namespace = wanted.namespace
        validate_collection_name(namespace)
        if namespace.is_system and namespace.collection not in SYSTEM_ALLOWED:
            if namespace.is_buckets and wanted.timeseries is None:
                raise IllegalOperation(
                    "Creating a new buckets namespace is not allowed without the 'timeseries' option"
                )
            if not namespace.is_buckets:
                raise InvalidNamespace(f"Invalid system namespace: {namespace}")
        if wanted.timeseries is not None:
            await create_timeseries(services, wanted)
        else:
            await _create_ordinary(services, wanted)
        return {}


async def _create_ordinary(services: Services, wanted: CreateOptions) -> None:
    catalog: Catalog = services.catalog
    existing = catalog.get(wanted.namespace)
    kind = "view" if wanted.is_view else "collection"
    if existing is not None:
        _check_same(existing, kind, wanted.options)
        return
    if wanted.is_view:
        check_view(catalog, wanted.namespace, wanted.options)
        await catalog.create(wanted.namespace, wanted.options, kind="view")
        return
    made = await catalog.create(wanted.namespace, wanted.options, exist_ok=True)
    _check_same(made, kind, wanted.options)


def _check_same(existing: Collection, kind: str, options: Document) -> None:
    """Refuse a name that is taken by something else.

    Raises:
        NamespaceExists
    """
    if existing.kind == "timeseries":
        raise NamespaceExists(f"A timeseries collection already exists. NS: {existing.namespace}")
    if existing.kind == "view" and kind != "view":
        raise NamespaceExists(f"A view already exists. NS: {existing.namespace}")
    if existing.kind != kind:
        raise NamespaceExists(f"Collection already exists. NS: {existing.namespace}")
    if not equal(_sorted(existing.options), _sorted(options)):
        raise NamespaceExists(
            f"namespace {existing.namespace} already exists, but with different options: {value_text(existing.options)}"
        )


def _sorted(options: Document) -> Document:
    return {name: options[name] for name in sorted(options)}


async def create_timeseries(services: Services, wanted: CreateOptions) -> None:
    """Make the view and the buckets of a time-series collection, or whichever of the two is missing.

    Raises:
        NamespaceExists: either name is taken by something else.
    """
    options = wanted.timeseries
    assert options is not None
    catalog: Catalog = services.catalog
    on_buckets = wanted.namespace.is_buckets
    view_name = wanted.namespace.view_of_buckets if on_buckets else wanted.namespace
    buckets_name = view_name.buckets
    common: Document = {
        name: wanted.options[name]
        for name in ("expireAfterSeconds", "collation", "storageEngine", "indexOptionDefaults")
        if name in wanted.options
    }
    view_options: Document = {"timeseries": options.to_document(), **common}
    bucket_options: Document = {
        "validator": wanted.options.get("validator") or buckets_validator(options.time_field),
        "clusteredIndex": True,
        "timeseries": options.to_document(),
        **common,
    }
    view, buckets = catalog.get(view_name), catalog.get(buckets_name)
    if not on_buckets and view is not None:
        if view.kind == "timeseries" and equal(_sorted(view.options), _sorted(view_options)):
            return
        what = {"collection": "Collection", "view": "A view", "timeseries": "A timeseries collection"}[view.kind]
        raise NamespaceExists(f"{what} already exists. NS: {view_name}")
    entries: list[tuple[Namespace, Document, Any, Any, Any]] = []
    if buckets is None:
        entries.append((buckets_name, bucket_options, "collection", _default_indexes(options, common), None))
    elif not equal(_comparable(buckets.options), _comparable(bucket_options)):
        raise NamespaceExists(f"A timeseries collection already exists. NS: {buckets_name}")
    if not on_buckets:
        entries.append((view_name, view_options, "timeseries", None, None))
    await catalog.create_many(entries)


def _comparable(options: Document) -> Document:
    return _sorted({name: value for name, value in options.items() if name != "validator"})


def _default_indexes(options: Any, common: Document) -> list[IndexSpec]:
    """The index on meta and time that a time-series collection with a meta field begins with."""
    if options.meta_field is None:
        return []
    time = options.time_field
    document: Document = {
        "v": 2,
        "key": {"meta": 1, f"control.min.{time}": 1, f"control.max.{time}": 1},
        "name": f"{options.meta_field}_1_{time}_1",
    }
    if "collation" in common:
        document["collation"] = common["collation"]
    return [IndexSpec(document)]


def buckets_validator(time_field: str) -> Document:
    """What every bucket looks like."""
    times: Document = {"bsonType": "object", "required": [time_field], "properties": {time_field: {"bsonType": "date"}}}
    return {
        "$jsonSchema": {
            "bsonType": "object",
            "required": ["_id", "control", "data"],
            "properties": {
                "_id": {"bsonType": "objectId"},
                "control": {
                    "bsonType": "object",
                    "required": ["version", "min", "max"],
                    "properties": {
                        "version": {"bsonType": "number"},
                        "min": times,
                        "max": times,
                        "closed": {"bsonType": "bool"},
                        "count": {"bsonType": "number", "minimum": 1},
                    },
                    "additionalProperties": False,
                },
                "data": {"bsonType": "object"},
                "meta": {},
            },
            "additionalProperties": False,
        }
    }


class Drop(Command):
    """`drop`."""

    name = "drop"
    summary = "Drops a collection or view."
    writes = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how many indexes it had; nothing where there was none."""
        services = context.services
        catalog: Catalog = services.catalog
        fields = Fields(request, known=("collectionUUID", "isTimeseriesNamespace"))
        namespace = fields.take_namespace()
        check_collection_uuid(fields, catalog, namespace)
        if namespace.is_system and not namespace.is_buckets and namespace.collection not in SYSTEM_ALLOWED:
            raise IllegalOperation(f"can't drop system collection {namespace}")
        if namespace.database == "admin" and namespace.collection in ("system.version", "system.users"):
            raise IllegalOperation(f"can't drop system collection {namespace}")
        collection = catalog.get(namespace)
        if collection is None:
            return {}
        gone = [namespace]
        if collection.kind == "timeseries":
            gone.append(namespace.buckets)
        elif namespace.is_buckets and catalog.get(namespace.view_of_buckets) is not None:
            gone.append(namespace.view_of_buckets)
        elif namespace.collection == VIEWS:
            gone += [view.namespace for view in catalog.list_collections(namespace.database) if view.is_view]
        reply: Document = {} if collection.is_view else {"nIndexesWas": _index_count(collection)}
        if collection.kind == "timeseries":
            buckets = catalog.get(namespace.buckets)
            if buckets is not None:
                reply["nIndexesWas"] = _index_count(buckets)
        await catalog.drop(*gone)
        for name in gone:
            for told in services.on_drop:
                told(name)
        return {**reply, "ns": str(namespace)}


def _index_count(collection: Collection) -> int:
    return len(collection.indexes) + (collection.clustered and not collection.is_buckets)


class ListCollections(Command):
    """`listCollections`."""

    name = "listCollections"
    summary = "Lists the collections and views of a database."
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Reply:
        """Answer a cursor over the rows."""
        services = context.services
        catalog: Catalog = services.catalog
        fields = Fields(request, known=("filter", "cursor", "nameOnly", "authorizedCollections"))
        wanted = fields.take_document("filter", default=None)
        batch_size = take_batch_size(fields, fields.take_any("cursor"))
        name_only = fields.take_bool("nameOnly", exact=True)
        only_own = fields.take_bool("authorizedCollections", exact=True)
        refuse_variables_of_server(wanted)
        matches = None if not wanted else parse_filter(wanted).compile({})
        rows = []
        visible = visible_collections(services, context.client) if only_own else None
        for collection in catalog.list_collections(request.database):
            row = collection.listing()
            if visible is not None and not visible(request.database, row["name"]):
                continue
            if name_only:
                row = {"name": row["name"], "type": row["type"]}
            if matches is None or matches(row):
                rows.append(encode(row))
        return await rows_reply(context, request, rows, f"{request.database}.$cmd.listCollections", batch_size)


class RenameCollection(Command):
    """`renameCollection`."""

    name = "renameCollection"
    summary = "Renames a collection."
    writes = True
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        services = context.services
        catalog: Catalog = services.catalog
        fields = Fields(request, known=("to", "dropTarget", "stayTemp", "collectionUUID"))
        source = _full_name(fields, "renameCollection")
        target = _full_name(fields, "to")
        drop_target = fields.take_any("dropTarget")
        if "dropTarget" in request.body and not isinstance(drop_target, bool | Binary | bytes):
            raise fields.wrong_type("dropTarget", drop_target, "types '[bool, binData]'")
        fields.take_bool("stayTemp", exact=True)
        if isinstance(drop_target, bytes) and not isinstance(drop_target, bool):
            _check_target_uuid(catalog, source, target, drop_target)
        check_collection_uuid(fields, catalog, source)
        for namespace in (source, target):
            _check_name(namespace)
        for namespace in (source, target):
            _refuse_system(namespace)
        collection = catalog.get(source)
        if collection is not None and collection.is_view:
            raise CommandNotSupportedOnView(f"cannot rename view: {source}")
        if source == target:
            raise IllegalOperation("Can't rename a collection to itself")
        if collection is None:
            raise NamespaceNotFound(f"Source collection {source} does not exist")
        taken = catalog.get(target)
        if taken is not None and taken.is_view:
            raise NamespaceExists(f"a view already exists with that name: {target}")
        await catalog.rename(source, target, drop_target=bool(drop_target))
        for told in services.on_drop:
            told(source)
            told(target)
        return {}


def _full_name(fields: Fields, name: str) -> Namespace:
    value = fields.take_any(name)
    if value is None:
        raise fields.missing(name)
    if not is_string(value):
        raise fields.wrong_type(name, value, "type 'string'")
    namespace = Namespace.parse(value)
    if not namespace.database or not namespace.collection:
        raise InvalidNamespace(f"Invalid namespace specified '{value}'")
    return namespace


def _check_name(namespace: Namespace) -> None:
    """Refuse what no collection can be called; signs that are reserved are another error here.

    Raises:
        InvalidNamespace, IllegalOperation
    """
    name = str(namespace)
    if "$" in name or len(name.encode()) > NAMESPACE_BYTES_MAX:
        plain = Namespace(namespace.database.replace("$", "_"), "x")
        validate_collection_name(plain)
        raise IllegalOperation(f"Invalid namespace: {name}")
    validate_collection_name(namespace)


def _refuse_system(namespace: Namespace) -> None:
    if namespace.is_system or (namespace.database == "local" and namespace.collection.startswith("oplog.")):
        raise IllegalOperation(f"renaming system collections is not allowed: {namespace}")


def _check_target_uuid(catalog: Catalog, source: Namespace, target: Namespace, uuid: bytes) -> None:
    """`dropTarget` may be the UUID of the collection that is to go."""
    if getattr(uuid, "subtype", 0) != 4 or len(uuid) != _UUID_BYTES:
        raise InvalidUUID(f"'dropTarget' must be a UUID, but is {type_name(uuid)} of another kind")
    if source.database != target.database:
        raise InvalidOptions("a UUID as 'dropTarget' is not allowed for renames across databases")
    taken = catalog.get(target)
    if taken is None or taken.uuid.bytes != bytes(uuid):
        raise CollectionUUIDMismatch(
            "Collection UUID does not match that specified",
            extra={
                "db": target.database,
                "collectionUUID": uuid,
                "expectedCollection": target.collection,
                "actualCollection": None,
            },
        )
