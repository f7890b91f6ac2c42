"""Plans as documents: what was chosen, what it did, what was not chosen."""

from collections.abc import Sequence
from typing import Final

from bson import Int64

from ...common.values import Document
from ..match.base import MatchNode
from .nodes import PlanNode
from .planner import Planned, Wanted
from .shapes import shape_of

_COMMON: Final = frozenset({"filter"})


def plan_document(node: PlanNode) -> Document:
    """A plan as `winningPlan` shows it: stage, its fields, the plans it reads from."""
    shown: Document = {"stage": node.stage, **node.describe()}
    return _with_inputs(shown, [plan_document(below) for below in node.inputs])


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
    return _with_inputs(shown, [stats_document(below) for below in node.inputs])


def _with_inputs(shown: Document, inputs: list[Document]) -> Document:
    if len(inputs) == 1:
        return {**shown, "inputStage": inputs[0]}
    return {**shown, "inputStages": inputs} if inputs else shown


def query_planner(namespace: str, matcher: MatchNode, planned: Planned, stages: Sequence[str] = ()) -> Document:
    """The section `queryPlanner`; `stages` names what follows in a pipeline."""
    shape = shape_of(planned.wanted or Wanted(matcher=matcher), stages)
    root, rejected = planned.root, planned.rejected
    return {
        "namespace": namespace,
        "parsedQuery": matcher.serialize(),
        "indexFilterSet": planned.wanted is not None and planned.wanted.allowed is not None,
        "queryHash": shape[:8].upper(),
        "planCacheShapeHash": shape[:8].upper(),
        "planCacheKey": shape[8:16].upper(),
        "optimizationTimeMillis": 0,
        "maxIndexedOrSolutionsReached": False,
        "maxIndexedAndSolutionsReached": False,
        "maxScansToExplodeReached": False,
        "prunedSimilarIndexes": False,
        "winningPlan": {"isCached": False, **plan_document(root)},
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
