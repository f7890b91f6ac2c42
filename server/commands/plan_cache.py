"""`planCacheClear` and the commands about index filters: `planCacheSetFilter`, `-ListFilters`, `-ClearFilters`."""

from typing import Any

from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...common.collation import Collation
from ...common.errors import BadValue, CommandNotSupportedOnView
from ...common.values import Document, is_string, type_name
from ...query.plan.plan_cache import key_of_shape
from ...query.plan.planner import Wanted
from ...query.plan.shapes import shape_of
from ...query.projection import parse_projection
from ...query.sort import parse_sort
from ..context import Context, Request
from ..index_filters import IndexFilter, IndexFilters
from .arguments import Fields
from .base import Command
from .reading import cached_plans, parse_query


class PlanCacheClear(Command):
    """`planCacheClear`."""

    name = "planCacheClear"
    summary = "Forgets plans."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        collection = _collection(context, request)
        if collection is not None:
            wanted = _asked(collection, request.body)
            cached_plans(context.services).clear(collection, None if wanted is None else key_of_shape(wanted))
        return {}


class PlanCacheSetFilter(Command):
    """`planCacheSetFilter`."""

    name = "planCacheSetFilter"
    summary = "Sets which indexes may be used for queries of a shape."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        collection = _collection(context, request)
        if collection is None:
            raise BadValue("no such collection")
        shown = _shape_documents(request.body)
        indexes = request.body.get("indexes")
        if not isinstance(indexes, list):
            raise BadValue("required field indexes missing, or no array")
        if not indexes:
            raise BadValue("required field indexes must contain at least one index")
        for index in indexes:
            if is_string(index) and index:
                continue
            if not isinstance(index, dict) or not index:
                raise BadValue(f"each item in indexes must be a key pattern or a name, found {type_name(index)}")
        wanted = _wanted(collection, shown)
        entry: Document = {
            "query": shown["query"],
            "sort": shown.get("sort", {}),
            "projection": shown.get("projection", {}),
            "indexes": indexes,
        }
        if wanted.collation is not None and shown.get("collation"):
            entry["collation"] = wanted.collation.to_document()
        filters: IndexFilters = context.services.index_filters
        filters.set(collection, shape_of(wanted), IndexFilter(entry, tuple(indexes)))
        cached_plans(context.services).clear(collection, key_of_shape(wanted))
        return {}


class PlanCacheListFilters(Command):
    """`planCacheListFilters`."""

    name = "planCacheListFilters"
    summary = "Lists which indexes may be used for queries of which shapes."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the filters of the collection."""
        collection = _collection(context, request)
        filters: IndexFilters = context.services.index_filters
        return {"filters": [] if collection is None else [held.shown for held in filters.of(collection)]}


class PlanCacheClearFilters(Command):
    """`planCacheClearFilters`."""

    name = "planCacheClearFilters"
    summary = "Takes index filters away."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        collection = _collection(context, request)
        if collection is None:
            return {}
        filters: IndexFilters = context.services.index_filters
        filters.clear(collection, _asked_shape(collection, request.body))
        cached_plans(context.services).clear(collection)
        return {}


def _collection(context: Context, request: Request) -> Collection | None:
    """The collection of the command; what it does not know is passed over, as MongoDB does for these commands.

    Raises:
        CommandNotSupportedOnView, InvalidNamespace
    """
    catalog: Catalog = context.services.catalog
    namespace = Fields(request).take_namespace()
    collection = catalog.get(namespace)
    if collection is not None and collection.is_view:
        raise CommandNotSupportedOnView(f"Namespace {namespace} is a view, not a collection")
    return collection


def _asked_shape(collection: Collection, body: Document) -> str | None:
    """The shape that a request is about; None where it is about all of them."""
    wanted = _asked(collection, body)
    return None if wanted is None else shape_of(wanted)


def _asked(collection: Collection, body: Document) -> Wanted | None:
    """The query that a request is about; None where it is about all of them.

    Raises:
        BadValue: an order, a projection or a collation without a query.
    """
    if "query" in body:
        return _wanted(collection, _shape_documents(body))
    for name in ("sort", "projection", "collation"):
        if name in body:
            raise BadValue(f"{name} provided without query")
    return None


def _shape_documents(body: Document) -> Document:
    found: Document = {}
    for name in ("query", "sort", "projection", "collation"):
        if name not in body:
            if name == "query":
                raise BadValue("required field query missing")
            continue
        value: Any = body[name]
        if name != "collation" and isinstance(value, list):
            value = {}
        if not isinstance(value, dict):
            raise BadValue(f"{name} must be an object, found {type_name(body[name])}")
        if name == "collation" and not value:
            raise BadValue("collation cannot be an empty object")
        found[name] = value
    return found


def _wanted(collection: Collection, shown: Document) -> Wanted:
    """The query as the planner would be asked it."""
    asked = shown.get("collation")
    collation = collection.collation if asked is None else Collation.parse(asked)
    matcher = parse_query(shown["query"], collation, {})
    projection = shown.get("projection")
    if projection:
        parse_projection(projection, filter=matcher, collator=collation)
    return Wanted(
        matcher=matcher,
        sort=parse_sort(shown["sort"]) if shown.get("sort") else None,
        projection_spec=projection or None,
        collation=collation,
    )
