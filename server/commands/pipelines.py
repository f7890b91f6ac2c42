"""Pipelines onto collections, views and time-series collections: what the query planner takes, and the stages after it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ...catalog.namespaces import Namespace
from ...common.collation import Collation
from ...common.errors import Location, OptionNotSupportedOnView
from ...common.values import Document
from ...query.match.base import AlwaysTrue, MatchNode
from ...query.match.logical import And
from ...query.pipeline.base import PipelineContext, Stage
from ...query.pipeline.geo_near import GeoNear
from ...query.pipeline.group import Group
from ...query.pipeline.order import Sort
from ...query.pipeline.parse import Pipeline, parse_pipeline, register
from ...query.plan.nodes import PlanNode
from ...query.plan.planner import Planned, Wanted
from ...query.plan.scans import Eof
from ...query.plan.shaping import Sort as SortNode
from ...query.plan.wanted import DistinctBy
from ..context import Services
from ..exact_expiry import living_measurements
from ..operations import Operation
from .reading import Read, Source, collation_for, document_of, let_variables, plan_collection, resolve
from .system_stages import register_system_stages, system_rows

COLLECTIONLESS_STAGES: Final = frozenset(
    {
        "$changeStream",
        "$currentOp",
        "$documents",
        "$listCatalog",
        "$listClusterCatalog",
        "$listLocalSessions",
        "$listMqlEntities",
        "$listSampledQueries",
        "$listSessions",
        "$queryStats",
        "$querySettings",
        "$shardedDataDistribution",
    }
)
_EITHER: Final = frozenset({"$changeStream", "$listCatalog", "$listClusterCatalog", "$listSessions"})
_ABOUT_COLLECTIONS: Final = ("$collStats", "$indexStats", "$planCacheStats", "$listCatalog")
_WRITERS: Final = ("$out", "$merge")


def is_collectionless(stage: Document) -> bool:
    """Whether a pipeline may begin with this stage where it names no collection."""
    return next(iter(stage), "") in COLLECTIONLESS_STAGES


def needs_no_collection(stage: Document) -> bool:
    """Whether a pipeline that begins with this stage must not name a collection."""
    return next(iter(stage), "") in COLLECTIONLESS_STAGES - _EITHER


def plan_pipeline(
    services: Services,
    namespace: Namespace,
    pipeline: Sequence[Document],
    *,
    operation: Operation,
    collation: Document | None = None,
    let: Document | None = None,
    hint: str | Document | None = None,
    allow_disk_use: bool = True,
    bypass_validation: bool = False,
    collectionless: bool = False,
) -> Read:
    """The plan of a pipeline.

    Raises:
        MongoError: what is wrong with the pipeline.
    """
    source = Source(namespace, None) if collectionless else resolve(services.catalog, namespace)
    comparing = collation_for(collation, source)
    variables = let_variables(services, let)
    planner = PipelinePlanner(services, operation, hint=hint)
    context = PipelineContext(namespace=namespace, collation=comparing, variables=variables, sources=planner)
    stages = list(pipeline)
    writer = None
    if stages and next(iter(stages[-1]), "") in _WRITERS and len(stages[-1]) == 1:
        from .outputs import parse_output

        writer = parse_output(services, namespace, stages.pop(), variables, bypass_validation=bypass_validation)
    for stage in stages:
        name = next(iter(stage), "")
        if name in _WRITERS:
            raise Location(40601, f"{name} can only be the final stage in the pipeline")
    read = planner.read(source, stages, context)
    read.allow_disk_use = allow_disk_use
    read.collectionless = collectionless
    read.writer = writer
    return read


class PipelinePlanner:
    """Plans the pipelines of one request, those within `$lookup` and the like included (`SourceProvider`)."""

    def __init__(self, services: Services, operation: Operation, *, hint: str | Document | None = None) -> None:
        self._services = services
        self._operation = operation
        self._hint = hint

    def plan(self, namespace: Namespace, pipeline: list[Document], context: PipelineContext) -> PlanNode:
        """See `SourceProvider.plan`."""
        inner = PipelinePlanner(self._services, self._operation)
        source = resolve(self._services.catalog, namespace)
        if source.is_view and document_of(context.collation) != document_of(source.collation):
            raise OptionNotSupportedOnView(
                f"Cannot override a view's default collation: {namespace} is read under another one"
            )
        return inner.read(source, pipeline, replace(context, namespace=namespace)).root

    def system(self, stage: str, spec: Any, context: PipelineContext) -> PlanNode:
        """See `SourceProvider.system`."""
        return system_rows(self._services, stage, spec, context, self._operation)

    def read(self, source: Source, stages: Sequence[Document], context: PipelineContext) -> Read:
        """The plan of a pipeline on what a name stands for."""
        fuses = bool(stages) and "$rankFusion" in stages[0]
        if fuses and source.is_timeseries:
            raise Location(10557301, "$rankFusion is unsupported on timeseries collections")
        # Rankings are made of what the name stands for, the pipeline of a view included.
        before = [] if fuses else source.pipeline
        pipeline = parse_pipeline(self._living(source, [*before, *stages]), context).optimized()
        read = Read(
            root=Eof(),
            namespace=source.namespace,
            source=source,
            variables=context.variables,
            collation=context.collation,
        )
        if pipeline.stages and pipeline.stages[0].is_source:
            node: PlanNode = Eof()
            rest = pipeline
        elif source.is_timeseries:
            node, rest = self._measurements(source, pipeline, context, read)
        else:
            node, rest = self._documents(source, pipeline, context, read, self._hint)
        made = rest.nodes(node)
        read.stages += [(shown, stage_node) for stage, stage_node in made for shown in stage.explained()]
        if read.leaf is not None and read.leaf.is_distinct:
            group, node_of_group = made[0]
            assert isinstance(group, Group)
            read.stages[0] = ({"$groupByDistinctScan": {"newRoot": group.as_document()}}, node_of_group)
        read.root = made[-1][1] if made else node
        return read

    def _living(self, source: Source, stages: list[Document]) -> list[Document]:
        """The stages, those that hide expired measurements among them where the server does that."""
        if source.collection is None or not source.is_timeseries:
            return stages
        hiding = living_measurements(self._services, source.collection)
        first = next(iter(stages[0]), "") if hiding and stages else ""
        if first in _ABOUT_COLLECTIONS:
            return stages
        # This one must be the first, and takes away nothing but what it does not find.
        place = 1 if first == "$geoNear" else 0
        return [*stages[:place], *hiding, *stages[place:]]

    def _documents(
        self,
        source: Source,
        pipeline: Pipeline,
        context: PipelineContext,
        read: Read,
        hint: str | Document | None = None,
    ) -> tuple[PlanNode, Pipeline]:
        """What the planner makes of the first stages, and the stages that are left."""
        collection = source.collection
        if collection is not None and collection.is_buckets:
            from ...timeseries.view import on_buckets

            pipeline = on_buckets(collection, pipeline, context)
        if pipeline.stages and pipeline.stages[0].name == "$cursor":
            # A scan of its own, which knows better than the planner.
            node = pipeline.stages[0].node(Eof())
            read.leaf = Planned(node, [])
            read.matcher = _filter_of(node)
            return node, Pipeline(pipeline.stages[1:])
        leading, rest = pipeline.split_leading()
        first = pipeline.stages[0] if pipeline.stages else None
        near = first.matcher(source.collection) if isinstance(first, GeoNear) else None
        with_heads = source
        if collection is not None and collection.packed and near is None:
            from ...timeseries.view import needs_heads

            filters = [match.matcher for match in leading.filters]
            if needs_heads(rest, filters, None if leading.sort is None else leading.sort.pattern):
                with_heads = replace(source, collection=collection.with_heads)
        wanted = Wanted(
            matcher=_all_of([match.matcher for match in leading.filters]) if near is None else near,
            sort=None if leading.sort is None else leading.sort.pattern,
            skip=leading.skip,
            limit=leading.limit or 0,
            collation=read.collation,
            hint=hint,
            reads=rest.required_fields()
            if near is None and not (collection is not None and collection.is_buckets)
            else None,
            distinct=_distinct_by(rest, leading.sort, read.collation),
            later=tuple(stage.name for stage in rest.stages),
        )
        planned = plan_collection(self._services, with_heads, wanted)
        if with_heads is not source and _sorts(planned.root):
            # What is sorted may go to disk, where heads do not find their packs again.
            planned = plan_collection(self._services, source, wanted)
        read.leaf = planned
        read.matcher = wanted.matcher
        return planned.root, rest

    def _measurements(
        self, source: Source, pipeline: Pipeline, context: PipelineContext, read: Read
    ) -> tuple[PlanNode, Pipeline]:
        """The measurements of a time-series collection as far as they are needed, and the stages that are left."""
        from ...timeseries.view import bucket_hint, bucket_pipeline

        view = source.collection
        assert view is not None
        buckets = self._services.catalog.get(view.namespace.buckets)
        if buckets is None:
            return Eof(), pipeline
        on_buckets = bucket_pipeline(view, buckets, pipeline)
        hint = bucket_hint(view, self._hint)
        return self._documents(Source(buckets.namespace, buckets), on_buckets, context, read, hint)


def _distinct_by(rest: Pipeline, sort: Sort | None, collation: Collation | None) -> DistinctBy | None:
    """What a group by one path that reads one row of each group asks of the planner."""
    group = rest.stages[0] if rest.stages else None
    if not isinstance(group, Group) or collation is not None:
        return None
    chosen = group.chooses()
    if chosen is None or (chosen[1] and sort is None):
        return None
    return DistinctBy(chosen[0], last=chosen[1])


def _sorts(node: PlanNode) -> bool:
    """Whether a plan holds rows to sort them."""
    return isinstance(node, SortNode) or any(_sorts(below) for below in node.inputs)


def _filter_of(node: PlanNode) -> MatchNode:
    """The filter of a plan that reads buckets, as far as it is tested there."""
    matcher = getattr(node, "matcher", None)
    return matcher if isinstance(matcher, MatchNode) else AlwaysTrue()


def _all_of(matchers: list[MatchNode]) -> MatchNode:
    joined: MatchNode = AlwaysTrue() if not matchers else matchers[0] if len(matchers) == 1 else And(matchers)
    return joined.simplified()


def _parse_internal_unpack(spec: Any, context: PipelineContext) -> Stage:
    from ...timeseries.unpack_stage import parse_internal

    return parse_internal(spec, context)


def _parse_unpack(spec: Any, context: PipelineContext) -> Stage:
    from ...timeseries.unpack_stage import parse_external

    return parse_external(spec, context)


register_system_stages()
# Loaded with the first pipeline that unpacks buckets.
register("$_internalUnpackBucket", _parse_internal_unpack)
register("$_unpackBucket", _parse_unpack)
