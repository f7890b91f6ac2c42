"""The indexes that a query could read, tried on the data, and the plans that read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bson import Int64

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...storage.engine import Snapshot
from ..match.base import MatchNode
from ..match.elements import Exists
from ..match.logical import Or
from .access import SCANS_MAX, explode, index_source, is_covered, left_over, merged_source, of_branch
from .bounds import BoundsMaker, IndexBounds
from .implication import implies, wants_field
from .index_scans import IndexScan
from .index_scans import Or as OrNode
from .nodes import PlanNode, plan_document
from .plan_cache import REPLAN_RATIO, PlanCache, Trial, cache_key, is_cached
from .scans import Fetch
from .special_bounds import makers
from .wanted import Wanted, collation_document, conjuncts

TRIAL_ENTRIES: Final = 1000


@dataclass(slots=True)
class Candidate:
    """An index that could be read."""

    index: IndexSpec
    bounds: IndexBounds
    sorts: bool
    reverse: bool
    entries: int = 0
    exploded: list[tuple[IndexBounds, int]] | None = None
    """Where several scans merged give the order: their bounds, and the bytes that all keys of each begin with."""
    covers: bool = False

    def cost(self) -> tuple[int, int, int, int, int]:
        """Fewer is better."""
        return (
            self.entries + (0 if self.sorts else self.entries // 2 + 1),
            int(not self.covers),
            int(self.index.kind == "wildcard"),
            -self.bounds.prefix_points,
            self.index.id,
        )


def usable(index: IndexSpec, predicates: Sequence[MatchNode], wanted: Wanted) -> bool:
    """Whether the index holds everything that the filter can match."""
    if index.hidden or index.building:
        return False
    if (
        index.sparse
        and index.kind in ("btree", "hashed")
        and not any(wants_field(predicate, index.paths) for predicate in predicates)
    ):
        return False
    partial = index.partial_filter
    return partial is None or implies(predicates, partial, index.collation)


def candidate_of(index: IndexSpec, maker: BoundsMaker, wanted: Wanted) -> Candidate:
    """An index with its bounds for the filter, and whether it gives the order."""
    bounds = maker.make(conjuncts(wanted.matcher))
    sorts, reverse = sort_by(index, bounds, wanted)
    exploded = None if sorts else explode(bounds, index, wanted)
    sorts = sorts or exploded is not None or wanted.sort is None
    covers = exploded is None and is_covered(index, bounds, wanted, sorts=sorts)
    return Candidate(index, bounds, sorts, reverse, exploded=exploded, covers=covers)


def candidates(
    collection: Collection, wanted: Wanted, snapshot: Snapshot, indexes: Sequence[IndexSpec]
) -> list[Candidate]:
    """The indexes worth reading, best first."""
    found = possible(collection, wanted, indexes)
    return ranked(found, snapshot) if len(found) > 1 else found


def possible(collection: Collection, wanted: Wanted, indexes: Sequence[IndexSpec]) -> list[Candidate]:
    """The indexes worth reading, untried."""
    predicates = conjuncts(wanted.matcher)
    found = []
    named = _first_names(predicates, wanted)
    for index in indexes:
        if named is not None and index.kind == "btree" and index.paths[0].partition(".")[0] not in named:
            continue
        if not usable(index, predicates, wanted):
            continue
        for maker in makers(index, collation_document(wanted), predicates):
            candidate = candidate_of(index, maker, wanted)
            narrowed = not candidate.bounds.fields[0].unbounded
            whole = index.kind in ("btree", "hashed") and not index.sparse
            sorts = candidate.sorts and wanted.sort is not None and whole
            # A sparse index has fewer documents, all of which have a field.
            fewer = index.kind == "btree" and index.sparse and _asks_for(predicates, index.paths[0])
            if narrowed or sorts or fewer:
                found.append(candidate)
    return found


def _first_names(predicates: Sequence[MatchNode], wanted: Wanted) -> set[str] | None:
    """The fields of the top level that filter and order speak of: other ones lead to nothing. None where any may."""
    paths: set[str] = set() if wanted.sort is None else set(wanted.sort.fields)
    for predicate in predicates:
        fields = predicate.fields()
        if fields is None:
            return None
        paths |= fields
    return {path.partition(".")[0] for path in paths}


def ranked(found: Sequence[Candidate], snapshot: Snapshot) -> list[Candidate]:
    """The candidates with their entries counted, best first."""
    for candidate in found:
        candidate.entries = count_entries(snapshot, candidate)
    return sorted(found, key=Candidate.cost)


def chosen(
    collection: Collection,
    wanted: Wanted,
    snapshot: Snapshot,
    found: list[Candidate],
    cache: PlanCache | None,
) -> list[Candidate]:
    """The candidates, best first: the one alone that is remembered for such queries, else as a trial tells."""
    if len(found) < 2:
        return found
    if cache is None or not is_cached(wanted):
        return ranked(found, snapshot)
    key = cache_key(collection, wanted)
    entry = cache.find(collection, key)
    if entry is not None and entry.is_active:
        known = next((one for one in found if one.index.name == entry.trial.index), None)
        if known is not None:
            allowed = max(entry.works, 1) * REPLAN_RATIO
            known.entries = count_entries(snapshot, known, allowed + 1)
            if known.entries <= allowed:
                return [known]
    best = ranked(found, snapshot)
    cache.note(collection, wanted, key, _trial(collection, wanted, best))
    return best


def _trial(collection: Collection, wanted: Wanted, plans: Sequence[Candidate]) -> Trial:
    """What a trial told of plans, the best first. No plan gives more rows than the least of them has entries."""
    fewest = min(plan.entries for plan in plans)
    shown, runs, scores = [], [], []
    for plan in plans:
        source = scan_of(collection, plan, wanted)
        document = plan_document(source)
        shown.append(document)
        works = plan.entries + 1
        bonus = 0.0001 * (plan.covers + plan.sorts + 1)
        scores.append(1 + fewest / works + bonus)
        runs.append(
            {
                "nReturned": 0,
                "executionTimeMillisEstimate": Int64(0),
                "totalKeysExamined": plan.entries,
                "totalDocsExamined": 0,
                "executionStages": {**document, "works": works, "keysExamined": plan.entries},
            }
        )
    return Trial(plans[0].index.name, plans[0].entries + 1, shown[0], runs, scores)


def _asks_for(predicates: Sequence[MatchNode], path: str) -> bool:
    return any(isinstance(predicate, Exists) and predicate.path == path for predicate in predicates)


def count_entries(snapshot: Snapshot, candidate: Candidate, most: int = TRIAL_ENTRIES) -> int:
    """How many entries lie within the bounds, counted up to a limit."""
    total = 0
    most = min(most, TRIAL_ENTRIES)
    for low, high in candidate.bounds.ranges:
        entries = documents.entry_scan(snapshot, candidate.index, low, high)
        total += sum(1 for _ in islice(entries, most - total))
        if total >= most:
            break
    return total


def sort_by(index: IndexSpec, bounds: IndexBounds, wanted: Wanted) -> tuple[bool, bool]:
    """Whether the index gives the order that was asked for, and whether backwards."""
    pattern = wanted.sort
    if pattern is None or index.state.long_keys:
        return False, False
    stored = index.collation
    if (None if stored is None else stored.to_document()) != collation_document(wanted) or pattern.metadata:
        return False, False
    shape = bounds.shape
    paths, multikey = shape.paths, shape.multikey
    directions: set[bool] = set()
    position = 0
    for part in pattern.parts:
        # Fields bound to one value do not matter to the order.
        while position < len(paths) and paths[position] != part.path and position < bounds.prefix_points:
            position += 1
        if position < len(paths) and paths[position] == part.path:
            if multikey[position] or not shape.ordered[position]:
                return False, False
            directions.add(shape.descending[position] == part.ascending)
            position += 1
        elif any(paths[at] == part.path and not multikey[at] for at in range(bounds.prefix_points)):
            continue
        else:
            return False, False
    return len(directions) <= 1, directions == {True}


def scan_of(collection: Collection, candidate: Candidate, wanted: Wanted) -> PlanNode:
    """The scan of an index, or several merged, and the fetch above where there is need of one."""
    enough = wanted.enough if candidate.sorts else None
    index, bounds = candidate.index, candidate.bounds
    if candidate.exploded is not None:
        shown = left_over(index, bounds, wanted)
        return merged_source(collection, [(index, candidate.exploded)], wanted, shown, enough=enough)
    return index_source(
        collection, index, bounds, wanted, sorts=candidate.sorts, reverse=candidate.reverse, enough=enough
    )


@dataclass(slots=True)
class Alternatives:
    """The plan of a disjunction, and whether it gives the order that was asked for."""

    source: PlanNode
    sorts: bool


def alternatives(
    collection: Collection,
    wanted: Wanted,
    snapshot: Snapshot,
    indexes: Sequence[IndexSpec],
    cache: PlanCache | None = None,
) -> Alternatives | None:
    """A disjunction, each branch read by an index of its own; None where some branch has none."""
    for predicate in conjuncts(wanted.matcher):
        if not isinstance(predicate, Or):
            continue
        # A branch beside other conditions is no query of its own.
        kept = cache if predicate is wanted.matcher else None
        found = [
            _best(collection, of_branch(branch, wanted), snapshot, indexes, kept) for branch in predicate.children()
        ]
        best = [candidate for candidate in found if candidate is not None]
        if len(best) < len(found):
            continue
        if wanted.sort is not None:
            merged = [(one.index, one.exploded or explode(one.bounds, one.index, wanted)) for one in best]
            whole = [(index, scans) for index, scans in merged if scans is not None]
            if len(whole) == len(merged) and sum(len(scans) for _, scans in whole) <= SCANS_MAX:
                source = merged_source(collection, whole, wanted, wanted.matcher, enough=wanted.enough)
                return Alternatives(source, sorts=True)
        scans = [IndexScan(collection, one.index, one.bounds) for one in best]
        enough = wanted.enough if wanted.sort is None else None
        for scan in scans:
            scan.rows_hint = enough
        return Alternatives(Fetch(OrNode(*scans), collection, wanted.matcher, enough=enough), sorts=wanted.sort is None)
    return None


def _best(
    collection: Collection,
    wanted: Wanted,
    snapshot: Snapshot,
    indexes: Sequence[IndexSpec],
    cache: PlanCache | None,
) -> Candidate | None:
    """The best index that a branch is narrowed by; one that gives the order before others."""
    found = [one for one in possible(collection, wanted, indexes) if not one.bounds.fields[0].unbounded]
    found = [one for one in found if one.sorts] or found
    return next(iter(chosen(collection, wanted, snapshot, found, cache)), None)
