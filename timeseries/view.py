"""A pipeline on measurements → a pipeline on the buckets that hold them, rewritten so that little is read of them."""

from collections.abc import Iterable

from ..catalog.collections import Collection
from ..catalog.timeseries_options import EXTENDED_RANGE
from ..common.values import Document
from ..query.match.base import MatchNode
from ..query.pipeline.base import PipelineContext
from ..query.pipeline.parse import Pipeline
from ..query.sort import SortPattern
from .counts import CountedBuckets
from .indexes import to_bucket_key
from .near import near_on_buckets
from .rewrites import Source, rewritten
from .unpack_stage import UnpackSpec, UnpackStage, needs_heads_only


def bucket_pipeline(view: Collection, buckets: Collection, pipeline: Pipeline) -> Pipeline:
    """The pipeline on buckets that a pipeline on measurements stands for, not rewritten yet.

    Args:
        view, buckets: the two entries of the time-series collection in the catalog.
        pipeline: the stages, views above it included.
    """
    options = view.timeseries
    assert options is not None, view.namespace
    unpack = UnpackStage(
        UnpackSpec(
            options.time_field,
            options.meta_field,
            options.span,
            extended=bool(buckets.flags.get(EXTENDED_RANGE)),
        )
    )
    before, behind = near_on_buckets(pipeline.stages, buckets, options.meta_field)
    return Pipeline([*before, unpack, *behind])


def on_buckets(buckets: Collection, pipeline: Pipeline, context: PipelineContext) -> Pipeline:
    """A pipeline on buckets, rewritten where it unpacks them."""
    source = Source(buckets, context.collation, buckets.collation)
    return Pipeline(rewritten(pipeline.stages, source, context))


def needs_heads(rest: Pipeline, filters: Iterable[MatchNode], sort: SortPattern | None) -> bool:
    """Whether the stages that are left want no more of buckets than their heads and some columns."""
    first = rest.stages[0] if rest.stages else None
    if not isinstance(first, UnpackStage | CountedBuckets):
        return False
    before = set() if sort is None else set(sort.fields)
    for matcher in filters:
        fields = matcher.fields()
        if fields is None:
            return False
        before |= fields
    return (sort is None or not sort.metadata) and needs_heads_only(first.spec, before)


def bucket_hint(view: Collection, hint: str | Document | None) -> str | Document | None:
    """The hint in terms of buckets; what has no counterpart is left for the planner to refuse."""
    if not isinstance(hint, dict) or "$natural" in hint:
        return hint
    return to_bucket_key(view, hint) or hint
