"""Plans as documents: what was chosen, what it did, what was not chosen."""

from collections.abc import Sequence
from typing import Final

from bson import Int64

from ...common.values import Document
from ..match.base import MatchNode
from .nodes import PlanNode, plan_document, with_inputs
from .plan_cache import PlanCache, cache_key, is_cached, key_of_shape
from .planner import Planned, Wanted

_COMMON: Final = frozenset({"filter"})


def stats_document(node: PlanNode) -> Document:
    """A plan that was run as `executionStages` shows it."""
    stats = node.stats
    described = node.describe()
    works = max(stats.works, stats.advanced) + 1
    shown: Document = {"stage": node.stage}
    if "filter" in described:
        shown["filter"] = described["filter"]
    shown |= {
        "nReturned": stats.advanced,
        "executionTimeMillisEstimate": Int64(stats.time_ns // 1_000_000),
        "works": works,
        "advanced": stats.advanced,
        "needTime": works - stats.advanced - 1,
        "needYield": 0,
        "saveState": 0,
        "restoreState": 0,
        "isEOF": int(stats.eof),
    }
    shown |= {name: value for name, value in described.items() if name not in _COMMON}
    shown |= node.describe_stats()
    return with_inputs(shown, [stats_document(below) for below in node.inputs])


def query_planner(namespace: str, matcher: MatchNode, planned: Planned, cache: PlanCache) -> Document:
    """The section `queryPlanner`; `cache` tells whether the plan is the one that others are answered with."""
    wanted = planned.wanted or Wanted(matcher=matcher)
    shape, key = key_of_shape(wanted), cache_key(planned.collection, wanted)
    root, rejected = planned.root, planned.rejected
    entry = None if planned.collection is None or not is_cached(wanted) else cache.find(planned.collection, key)
    cached = entry is not None and entry.is_active and entry.trial.index == planned.index
    return {
        "namespace": namespace,
        "parsedQuery": matcher.serialize(),
        "indexFilterSet": planned.wanted is not None and planned.wanted.allowed is not None,
        "queryHash": shape,
        "planCacheShapeHash": shape,
        "planCacheKey": key,
        "optimizationTimeMillis": 0,
        "maxIndexedOrSolutionsReached": False,
        "maxIndexedAndSolutionsReached": False,
        "maxScansToExplodeReached": False,
        "prunedSimilarIndexes": False,
        "winningPlan": {"isCached": cached, **plan_document(root)},
        "rejectedPlans": [{"isCached": False, **plan_document(node)} for node in rejected],
    }


def execution_stats(
    root: PlanNode, rejected: Sequence[PlanNode] = (), *, returned: int | None = None, all_plans: bool = False
) -> Document:
    """The section `executionStats` of a plan that was run; the rejected ones were tried on their index entries alone."""
    nodes = _all(root)
    shown: Document = {
        "executionSuccess": True,
        "nReturned": root.stats.advanced if returned is None else returned,
        "executionTimeMillis": root.stats.time_ns // 1_000_000,
        "totalKeysExamined": sum(node.stats.keys_examined for node in nodes),
        "totalDocsExamined": sum(node.stats.docs_examined for node in nodes),
        "executionStages": {"isCached": False, **stats_document(root)},
    }
    if all_plans:
        shown["allPlansExecution"] = [_trial(node) for node in ((root, *rejected) if rejected else ())]
    return shown


def _trial(root: PlanNode) -> Document:
    """One of several plans, as far as it was run."""
    nodes = _all(root)
    return {
        "nReturned": root.stats.advanced,
        "executionTimeMillisEstimate": Int64(root.stats.time_ns // 1_000_000),
        "totalKeysExamined": sum(node.stats.keys_examined for node in nodes),
        "totalDocsExamined": sum(node.stats.docs_examined for node in nodes),
        "executionStages": stats_document(root),
    }


def _all(node: PlanNode) -> list[PlanNode]:
    return [node, *(inner for below in node.inputs for inner in _all(below))]
