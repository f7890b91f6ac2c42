"""A pipeline on measurements → a plan on the buckets, and the stages that are left for the measurements.

Filters at the beginning go to the buckets as far as they can (`predicates.widen`), and with them the choice of an index or
of a range of `_id`; only the fields that the pipeline reads are unpacked; a limit that nothing stands before ends the
unpacking early.
"""

from ..catalog.collections import Collection
from ..catalog.timeseries_options import EXTENDED_RANGE
from ..common.values import Document
from ..query.match.base import AlwaysTrue, MatchNode
from ..query.pipeline.base import PipelineContext
from ..query.pipeline.order import Limit, Skip
from ..query.pipeline.parse import Pipeline
from ..query.pipeline.reshape import Match
from ..query.plan.nodes import PlanNode
from ..query.plan.planner import Wanted, plan_find
from ..storage.engine import Snapshot
from .indexes import to_bucket_key
from .predicates import Widened, all_of, widen
from .unpack import UnpackBuckets


def plan_view(
    view: Collection,
    buckets: Collection,
    pipeline: Pipeline,
    context: PipelineContext,
    snapshot: Snapshot,
    *,
    hint: str | Document | None = None,
) -> tuple[PlanNode, Pipeline]:
    """Plan a pipeline on a time-series collection.

    Args:
        view, buckets: its two entries of the catalog.
        pipeline: the stages, views above it included.
        hint: an index, in terms of measurements.

    Returns:
        The node that yields measurements, and the stages that have to run on them.

    Raises:
        BadValue: the hint names no index.
    """
    options = view.timeseries
    assert options is not None, view.namespace
    leading = 0
    while leading < len(pipeline.stages) and isinstance(pipeline.stages[leading], Match):
        leading += 1
    filters = [stage.matcher for stage in pipeline.stages[:leading] if isinstance(stage, Match)]
    widened = widen(
        filters,
        options,
        collation=context.collation,
        default_collation=view.collation,
        extended=bool(buckets.flags.get(EXTENDED_RANGE)),
    )
    rest = _rest(pipeline, leading, widened)
    bucket_filter = all_of(widened.bucket).simplified()
    wanted = Wanted(
        matcher=bucket_filter,
        collation=context.collation,
        hint=_bucket_hint(view, hint),
    )
    if isinstance(hint, dict) and "$natural" in hint:
        wanted.natural = -1 if float(str(hint["$natural"])) < 0 else 1
    source = plan_find(buckets, wanted, snapshot).root
    include = _fields(rest)
    return UnpackBuckets(source, options, include=include, limit=_limit(rest), bucket_filter=bucket_filter), rest


def _rest(pipeline: Pipeline, leading: int, widened: Widened) -> Pipeline:
    """The stages for the measurements: what is left of the filters, then everything behind them."""
    node: MatchNode = all_of(widened.rest)
    stages = list(pipeline.stages[leading:])
    if not isinstance(node, AlwaysTrue):
        stages.insert(0, Match(node, node.serialize()))
    return Pipeline(stages)


def _fields(rest: Pipeline) -> list[str] | None:
    """The top-level fields that the stages read; None where they read whole measurements."""
    paths = rest.required_fields()
    if paths is None:
        return None
    return sorted({path.partition(".")[0] for path in paths})


def _limit(rest: Pipeline) -> int | None:
    """How many measurements the stages can use at most, where they begin by counting them."""
    skipped = 0
    for stage in rest.stages:
        if isinstance(stage, Skip):
            skipped += stage.amount
        elif isinstance(stage, Limit):
            return skipped + stage.amount
        else:
            return None
    return None


def _bucket_hint(view: Collection, hint: str | Document | None) -> str | Document | None:
    """The hint in terms of buckets; what has no counterpart is left for the planner to refuse."""
    if not isinstance(hint, dict) or "$natural" in hint:
        return None if isinstance(hint, dict) else hint
    return to_bucket_key(view, hint) or hint
