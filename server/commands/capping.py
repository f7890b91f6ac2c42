"""`convertToCapped` and `cloneCollectionAsCapped`: capped copies of collections."""

from typing import Any

from bson import Decimal128

from ...catalog.capping import copy_capped
from ...catalog.catalog import Catalog
from ...catalog.namespaces import Namespace, validate_collection_name
from ...common.errors import (
    BadValue,
    CommandNotSupportedOnView,
    IllegalOperation,
    InvalidNamespace,
    InvalidOptions,
    NamespaceExists,
    NamespaceNotFound,
    TypeMismatch,
)
from ...common.values import Document, is_string, type_name
from ..context import Context, Request
from .arguments import Fields, collection_namespace, whole_number
from .base import Command
from .collections import SYSTEM_ALLOWED
from .create_options import SIZE_MAX


class ConvertToCapped(Command):
    """`convertToCapped`."""

    name = "convertToCapped"
    summary = "Makes a collection a capped one."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`. The collection has a new UUID and of its indexes only the one on `_id`."""
        services = context.services
        catalog: Catalog = services.catalog
        namespace = Fields(request).take_namespace()
        size = _size(request.body.get("size"))
        if namespace.collection == "system.views":
            raise BadValue(f"{namespace} cannot be converted to a capped collection")
        _check_source(catalog, namespace)
        await copy_capped(catalog, namespace, namespace, size)
        return {}


class CloneCollectionAsCapped(Command):
    """`cloneCollectionAsCapped`."""

    name = "cloneCollectionAsCapped"
    summary = "Copies a collection into a new capped one."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        catalog: Catalog = context.services.catalog
        source = Namespace(request.database, _name(request, self.name))
        target = Namespace(request.database, _name(request, "toCollection"))
        for namespace in (source, target):
            if "$" in namespace.collection:
                raise InvalidNamespace(f"Invalid collection name: {namespace.collection}")
        if source.collection == "" or source.collection.startswith(".") or "\0" in source.collection:
            raise InvalidNamespace(f"invalid source collection name: {source.collection}")
        collection_namespace(target.database, target.collection)
        size = _size(request.body.get("size"))
        _check_source(catalog, source)
        taken = catalog.get(target)
        if taken is not None and taken.is_view:
            raise CommandNotSupportedOnView(f"cloneCollectionAsCapped not supported for views: {target}")
        if taken is not None:
            raise NamespaceExists(f"cloneCollectionAsCapped failed - destination collection {target} already exists")
        if target.is_buckets:
            raise IllegalOperation("Creating a new buckets namespace is not allowed without the 'timeseries' option")
        if target.is_system and target.collection not in SYSTEM_ALLOWED:
            raise InvalidNamespace(f"Invalid system namespace: {target}")
        validate_collection_name(target)
        await copy_capped(catalog, source, target, size)
        return {}


def _name(request: Request, field: str) -> str:
    value = request.body.get(field)
    if not is_string(value):
        found = "missing" if field not in request.body else type_name(value)
        raise TypeMismatch(f"'{field}' must be of type String, but is {found}")
    return str(value)


def _size(value: Any) -> int:
    number = 0
    if isinstance(value, int | float | Decimal128) and not isinstance(value, bool):
        number = whole_number(value)
    if number <= 0:
        raise InvalidOptions("Capped collection size must be greater than zero")
    if number > SIZE_MAX:
        raise BadValue(f"Capped collection maximum size exceeds {SIZE_MAX} bytes: {number}")
    return number


def _check_source(catalog: Catalog, namespace: Namespace) -> None:
    collection = catalog.get(namespace)
    if collection is None:
        raise NamespaceNotFound(f"source collection {namespace} does not exist")
    if collection.is_view:
        raise CommandNotSupportedOnView(f"{namespace} is a view, not a collection")
    if collection.is_buckets:
        raise IllegalOperation(f"{namespace} holds the buckets of a time-series collection and cannot be capped")
