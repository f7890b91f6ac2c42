"""The indexes that a query could read, tried on the data, and the plans that read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...storage.engine import Snapshot
from ..match.base import AlwaysTrue, MatchNode
from ..match.elements import Exists
from ..match.logical import Or
from ..sort import SortPattern
from .bounds import BoundsMaker, IndexBounds
from .implication import implies, wants_field
from .nodes import PlanNode
from .scans import Fetch, IndexScan
from .scans import Or as OrNode
from .special_bounds import makers
from .wanted import Wanted, all_of, collation_document, conjuncts

TRIAL_ENTRIES: Final = 1000


@dataclass(slots=True)
class Candidate:
    """An index that could be read."""

    index: IndexSpec
    bounds: IndexBounds
    sorts: bool
    reverse: bool
    entries: int = 0

    def cost(self) -> tuple[int, int, int, int]:
        """Fewer is better."""
        return (
            self.entries + (0 if self.sorts else self.entries // 2 + 1),
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
    return Candidate(index, bounds, sorts or wanted.sort is None, reverse)


def candidates(
    collection: Collection, wanted: Wanted, snapshot: Snapshot, indexes: Sequence[IndexSpec]
) -> list[Candidate]:
    """The indexes worth reading, best first."""
    predicates = conjuncts(wanted.matcher)
    found = []
    for index in indexes:
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
    if len(found) > 1:
        for candidate in found:
            candidate.entries = _count_entries(snapshot, candidate)
        found.sort(key=Candidate.cost)
    return found


def _asks_for(predicates: Sequence[MatchNode], path: str) -> bool:
    return any(isinstance(predicate, Exists) and predicate.path == path for predicate in predicates)


def _count_entries(snapshot: Snapshot, candidate: Candidate) -> int:
    """How many entries lie within the bounds, counted up to a limit."""
    total = 0
    for low, high in candidate.bounds.ranges:
        entries = documents.index_scan(snapshot, candidate.index, low, high)
        total += sum(1 for _ in islice(entries, TRIAL_ENTRIES - total))
        if total >= TRIAL_ENTRIES:
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
    if len(directions) > 1:
        return False, False
    if len(bounds.ranges) > 1 and not _ordered_ranges(bounds, pattern):
        return False, False
    return True, directions == {True}


def _ordered_ranges(bounds: IndexBounds, pattern: SortPattern) -> bool:
    """Whether reading range after range keeps the order: only where the sort begins with the field they differ in."""
    paths = bounds.shape.paths
    return bool(pattern.parts) and pattern.parts[0].path == paths[min(bounds.prefix_points, len(paths) - 1)]


def scan_of(collection: Collection, candidate: Candidate, wanted: Wanted, rows_hint: int | None) -> PlanNode:
    """Index scan and fetch."""
    scan = IndexScan(collection, candidate.index, candidate.bounds, reverse=candidate.reverse, rows_hint=rows_hint)
    covered = candidate.bounds.covered if candidate.bounds.exact else []
    rest = [predicate for predicate in conjuncts(wanted.matcher) if not any(predicate is one for one in covered)]
    residual = all_of(rest)
    return Fetch(scan, collection, None if isinstance(residual, AlwaysTrue) else residual)


def alternatives(
    collection: Collection, wanted: Wanted, snapshot: Snapshot, indexes: Sequence[IndexSpec]
) -> PlanNode | None:
    """A disjunction, each branch read by an index of its own; None where some branch has none."""
    for predicate in conjuncts(wanted.matcher):
        if not isinstance(predicate, Or):
            continue
        scans: list[PlanNode] = []
        for branch in predicate.children():
            of_branch = Wanted(matcher=branch, collation=wanted.collation)
            found = candidates(collection, of_branch, snapshot, indexes)
            if not found:
                break
            scans.append(IndexScan(collection, found[0].index, found[0].bounds))
        else:
            return Fetch(OrNode(*scans), collection, wanted.matcher)
    return None
