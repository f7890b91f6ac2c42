"""What a view can be: its name, its pipeline, and what lies below it."""

from collections.abc import Iterator
from typing import Any, Final

from ...catalog.catalog import Catalog
from ...catalog.namespaces import Namespace
from ...common.collation import Collation
from ...common.errors import (
    BadValue,
    GraphContainsCycle,
    InvalidNamespace,
    Location,
    OptionNotSupportedOnView,
    ViewDepthLimitExceeded,
    ViewPipelineMaxSizeExceeded,
)
from ...common.values import Document, encode
from ...query.pipeline.base import PipelineContext
from ...query.pipeline.parse import parse_pipeline
from .pipelines import COLLECTIONLESS_STAGES

VIEW_DEPTH_MAX: Final = 20
VIEW_PIPELINE_BYTES_MAX: Final = 16_000_000


def check_view(catalog: Catalog, namespace: Namespace, options: Document) -> None:
    """Refuse a view that cannot be: a bad pipeline, a circle, too many on top of each other, another collation.

    Raises:
        OptionNotSupportedOnView, InvalidNamespace, GraphContainsCycle, ViewDepthLimitExceeded, and what a pipeline raises
    """
    pipeline = options["pipeline"]
    collation = options.get("collation")
    if sum(len(encode(stage)) for stage in pipeline) > VIEW_PIPELINE_BYTES_MAX:
        raise ViewPipelineMaxSizeExceeded(
            f"View pipeline is too large and exceeds the maximum size of {VIEW_PIPELINE_BYTES_MAX} bytes"
        )
    for stage in pipeline:
        name = next(iter(stage), "")
        if name == "$changeStream":
            raise Location(40573, "The $changeStream stage is only supported on replica sets")
        if name in ("$out", "$merge"):
            raise OptionNotSupportedOnView("The aggregation stage $out/$merge cannot be used in a view definition")
        if name in COLLECTIONLESS_STAGES:
            raise InvalidNamespace(f"{name} cannot be used in a view definition")
    parse_pipeline(
        pipeline,
        PipelineContext(
            namespace=namespace,
            collation=None if collation is None else Collation.parse(collation),
            # Whether the server can give it is seen when the view is read.
            variables={"CLUSTER_TIME": None},
        ),
    )
    for name in _others(pipeline):
        _refuse_circle(catalog, namespace, Namespace(namespace.database, name), set())
    below = Namespace(namespace.database, options["viewOn"])
    for _ in range(VIEW_DEPTH_MAX):
        if below == namespace:
            raise GraphContainsCycle(f"View cycle detected: {namespace} -> {below}")
        found = catalog.get(below)
        if found is None or found.kind == "collection":
            return
        if found.options.get("collation") != collation:
            raise OptionNotSupportedOnView(
                f"View {namespace} has a collation that does not match the collation of {below}"
            )
        if found.kind == "timeseries":
            return
        below = Namespace(namespace.database, found.view_on or "")
    raise ViewDepthLimitExceeded(f"View depth limit exceeded; maximum depth is {VIEW_DEPTH_MAX}")


def _others(pipeline: list[Any]) -> Iterator[str]:
    """The collections that the stages of a pipeline read beside its own."""
    for stage in pipeline:
        for name, spec in stage.items() if isinstance(stage, dict) else ():
            if name == "$facet" and isinstance(spec, dict):
                for inner in spec.values():
                    yield from _others(inner if isinstance(inner, list) else [])
            if name == "$unionWith" and isinstance(spec, str):
                yield spec
            if name in ("$lookup", "$graphLookup", "$unionWith") and isinstance(spec, dict):
                other = spec.get("coll" if name == "$unionWith" else "from")
                if isinstance(other, str):
                    yield other
                inner = spec.get("pipeline")
                yield from _others(inner if isinstance(inner, list) else [])


def _refuse_circle(catalog: Catalog, namespace: Namespace, below: Namespace, seen: set[Namespace]) -> None:
    """Follow what a view reads beside the collection below it.

    Raises:
        GraphContainsCycle: it reads itself.
    """
    found = catalog.get(below)
    if below == namespace and found is not None and found.kind == "view":
        raise GraphContainsCycle(f"View cycle detected: {namespace} reads itself")
    if found is None or found.kind != "view" or below in seen:
        return
    seen.add(below)
    for name in (found.view_on or "", *_others(found.pipeline)):
        _refuse_circle(catalog, namespace, Namespace(namespace.database, name), seen)


def check_view_name(view_on: str, namespace: Namespace) -> None:
    """Refuse what no collection below a view can be called.

    Raises:
        BadValue, InvalidNamespace
    """
    if view_on == "":
        raise BadValue("'viewOn' cannot be empty")
    if view_on.startswith(".") or "\0" in view_on or "$" in view_on:
        raise InvalidNamespace(f"Invalid viewOn: {namespace.database}.{view_on}")
