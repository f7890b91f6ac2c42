"""Hides what has expired from reads, at once and not when the monitor comes; only where the parameter asks for it."""

from typing import Any

from bson import DatetimeMS

from ..catalog.collections import Collection
from ..common.values import Document
from ..query.match.base import MatchNode
from ..query.match.logical import And
from ..query.match.parse import parse_filter
from ..query.plan.planner import Wanted
from ..ttl.rules import Lifetime, lifetimes_of
from .context import Services

PARAMETER = "ttlExactReads"


def hide_expired(services: Services, collection: Collection | None, wanted: Wanted) -> None:
    """Make a query of a collection leave out the documents that have expired."""
    if collection is None or not services.parameters[PARAMETER]:
        return
    found: list[MatchNode] = []
    for lifetime in lifetimes_of(collection).valid:
        collator = None if lifetime.index is None else lifetime.index.collation
        expired = lifetime.query(services.clock.now_ms())
        found.append(parse_filter({"$nor": [_of_index(lifetime, expired)]}, collator=collator))
    if found:
        wanted.matcher = And([wanted.matcher, *found]).simplified()


def living_measurements(services: Services, view: Collection) -> list[Document]:
    """Stages that let pass the measurements of a time-series collection that have not expired."""
    options = view.timeseries
    if options is None or not services.parameters[PARAMETER]:
        return []
    buckets = services.catalog.get(view.namespace.buckets)
    if buckets is None:
        return []
    stages: list[Document] = []
    for lifetime in lifetimes_of(buckets).valid:
        # Of a measurement the very time is known, so there is no span to wait for.
        cut = DatetimeMS(services.clock.now_ms() - lifetime.seconds * 1000)
        if lifetime.index is None:
            stages.append({"$match": {options.time_field: {"$gt": cut}}})
        else:
            original: Any = lifetime.index.document.get("originalSpec", {})
            expired = {options.time_field: {"$lte": cut}}
            stages.append({"$match": {"$nor": [{"$and": [expired, original.get("partialFilterExpression", {})]}]}})
    return stages


def _of_index(lifetime: Lifetime, expired: Document) -> Document:
    """What has expired, among the documents that the index holds."""
    kept = None if lifetime.index is None else lifetime.index.partial_filter
    return expired if kept is None else {"$and": [expired, kept]}
