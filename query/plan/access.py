"""How an index is read for a query: what its entries answer alone, what is fetched, what merges several scans."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from bson import MaxKey, MinKey, Regex

from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ..match.base import MatchNode
from ..match.bits import BitTest
from ..match.comparison import Comparison, In
from ..match.elements import Mod, TypeIs
from ..match.internal import InternalComparison
from ..match.logical import And, Nor, Not, Or
from ..match.patterns import RegexMatch
from ..sort import SortPattern
from .bounds import FieldBounds, IndexBounds, combined
from .index_scans import IndexScan, SortMerge
from .key_documents import KeyDocuments, lie_apart, tells
from .nodes import PlanNode
from .scans import Fetch
from .wanted import Wanted, all_of, collation_document, conjuncts

SCANS_MAX: Final = 200
"""Scans that one order is merged from."""


def read_paths(wanted: Wanted, *, sorts: bool) -> frozenset[str] | None:
    """The paths of the documents that are read behind the filter; None where all of them are."""
    paths = wanted.reads
    if wanted.projection is not None:
        paths = wanted.projection.required_fields()
        if not wanted.projection.needs_metadata <= {"recordId", "sortKey"}:
            return None
    if paths is None:
        return None
    if wanted.sort is not None and (not sorts or "sortKey" in _shown_metadata(wanted)):
        if wanted.sort.metadata:
            return None
        paths |= {part.path for part in wanted.sort.parts}
    return paths


def _shown_metadata(wanted: Wanted) -> frozenset[str]:
    return frozenset() if wanted.projection is None else wanted.projection.needs_metadata


def is_covered(index: IndexSpec, bounds: IndexBounds, wanted: Wanted, *, sorts: bool) -> bool:
    """Whether the entries within the bounds answer alone."""
    paths = read_paths(wanted, sorts=sorts)
    if paths is None or not tells(index) or not paths <= set(index.paths) or wanted.return_key:
        return False
    said, on_keys, later = _divided(index, bounds, wanted)
    return not later and lie_apart(paths | _fields([*said, *on_keys]))


def has_nothing_left(index: IndexSpec, bounds: IndexBounds, wanted: Wanted) -> bool:
    """Whether the ranges say the whole filter."""
    return not any(_divided(index, bounds, wanted))


def index_source(
    collection: Collection,
    index: IndexSpec,
    bounds: IndexBounds,
    wanted: Wanted,
    *,
    sorts: bool,
    reverse: bool,
    enough: int | None,
) -> PlanNode:
    """The scan of an index, and the fetch above it where the entries do not say everything."""
    said, on_keys, later = _divided(index, bounds, wanted)
    shown, matcher = all_of(on_keys), all_of([*said, *on_keys])
    tested = _fields([*said, *on_keys])
    paths = read_paths(wanted, sorts=sorts)
    if not later and paths is not None and is_covered(index, bounds, wanted, sorts=sorts):
        told = KeyDocuments(collection, index, paths | tested)
        return IndexScan(
            collection,
            index,
            bounds,
            reverse=reverse,
            enough=enough,
            told=told,
            covers=True,
            matcher=matcher,
            shown=shown,
        )
    scan = IndexScan(
        collection,
        index,
        bounds,
        reverse=reverse,
        rows_hint=enough,
        enough=None if later else enough,
        told=KeyDocuments(collection, index, tested) if tested else None,
        matcher=matcher,
        shown=shown,
    )
    return Fetch(scan, collection, all_of(later), enough=enough)


def _divided(
    index: IndexSpec, bounds: IndexBounds, wanted: Wanted
) -> tuple[list[MatchNode], list[MatchNode], list[MatchNode]]:
    """The predicates that the ranges do not say whole: those that bounds of later fields say, those that entries can be
    tested on, and the others."""
    covered = bounds.covered if bounds.exact else []
    rest = [one for one in conjuncts(wanted.matcher) if not any(one is other for other in covered)]
    if not tells(index):
        return [], [], rest
    by_fields = [one for field in bounds.fields for one in field.covered]
    said: list[MatchNode] = []
    on_keys: list[MatchNode] = []
    later: list[MatchNode] = []
    paths = frozenset(index.paths)
    for predicate in rest:
        if not (is_testable(predicate) and _of(predicate) <= paths):
            later.append(predicate)
        elif any(predicate is one for one in by_fields):
            said.append(predicate)
        else:
            on_keys.append(predicate)
    if not lie_apart(_fields([*said, *on_keys])):
        return [], [], rest
    return said, on_keys, later


def _of(predicate: MatchNode) -> frozenset[str]:
    return predicate.fields() or frozenset()


def _fields(predicates: Sequence[MatchNode]) -> frozenset[str]:
    return frozenset().union(*(_of(predicate) for predicate in predicates))


def is_testable(node: MatchNode) -> bool:
    """Whether a predicate is tested on entries; what treats null and missing alike is tested on documents, as MongoDB does."""
    match node:
        case Comparison() | InternalComparison():
            return not (node.value is None or isinstance(node.value, list | Regex | MinKey | MaxKey))
        case In():
            return not any(value is None or isinstance(value, list) for value in node.values)
        case RegexMatch() | Mod() | BitTest():
            return True
        case TypeIs():
            return False
        case And() | Or() | Nor() | Not():
            return all(is_testable(child) for child in node.children())
    return False


def explode(bounds: IndexBounds, index: IndexSpec, wanted: Wanted) -> list[tuple[IndexBounds, int]] | None:
    """The same bounds as several that each have the order wanted behind a beginning of so many bytes; None without such.

    The fields before those of the order are bound to single values, and each choice of these is one scan.
    """
    pattern = wanted.sort
    if pattern is None or not _can_order(index, bounds, pattern, wanted):
        return None
    first = bounds.shape.paths.index(pattern.parts[0].path)
    before, behind = bounds.fields[:first], bounds.fields[first:]
    if not all(field.points and field.intervals for field in before):
        return None
    count = 1
    for field in before:
        count *= len(field.intervals)
    if count > SCANS_MAX:
        return None
    made = []
    for choice in product(*(field.intervals for field in before)):
        fields = [FieldBounds([interval], field.covered) for interval, field in zip(choice, before, strict=True)]
        one = combined(bounds.shape, [*fields, *behind])
        skip = sum(len(interval.low) for interval in choice)
        if len(one.ranges) > 1 and len(pattern.parts) > 0 and not _one_field_apart(one, first):
            return None
        made.append((one, skip))
    return made


def _one_field_apart(bounds: IndexBounds, first: int) -> bool:
    """Whether the ranges differ in the first field of the order."""
    return bounds.prefix_points <= first


def _can_order(index: IndexSpec, bounds: IndexBounds, pattern: SortPattern, wanted: Wanted) -> bool:
    """Whether the fields of the order stand one after the other in the key, all in it or all against it."""
    if index.state.long_keys or index.kind != "btree" or pattern.metadata or not pattern.parts:
        return False
    stored = index.collation
    if (None if stored is None else stored.to_document()) != collation_document(wanted):
        return False
    shape = bounds.shape
    path = pattern.parts[0].path
    if path not in shape.paths:
        return False
    first = shape.paths.index(path)
    fields = range(first, first + len(pattern.parts))
    if fields.stop > len(shape.paths):
        return False
    same = [part.path == shape.paths[at] for at, part in zip(fields, pattern.parts, strict=True)]
    against = {shape.descending[at] == part.ascending for at, part in zip(fields, pattern.parts, strict=True)}
    return all(same) and len(against) == 1 and not any(shape.multikey[at] for at in fields)


def is_against(bounds: IndexBounds, pattern: SortPattern) -> bool:
    """Whether the order wanted is that of the index read backwards."""
    part = pattern.parts[0]
    return bounds.shape.descending[bounds.shape.paths.index(part.path)] == part.ascending


def merged_source(
    collection: Collection,
    scans: Sequence[tuple[IndexSpec, Sequence[tuple[IndexBounds, int]]]],
    wanted: Wanted,
    shown: MatchNode | None,
    *,
    enough: int | None,
) -> PlanNode:
    """Scans merged in the order wanted, and the fetch above them.

    Keys are read ahead, and documents may have changed until they are fetched: all of the filter is tested again.
    """
    assert wanted.sort is not None
    made = []
    for index, exploded in scans:
        for bounds, skip in exploded:
            reverse = is_against(bounds, wanted.sort)
            made.append((IndexScan(collection, index, bounds, reverse=reverse, rows_hint=enough), skip))
    merge = SortMerge(made, wanted.sort, rows_hint=enough)
    return Fetch(merge, collection, wanted.matcher, shown=shown if shown is not None else all_of([]), enough=enough)


def left_over(index: IndexSpec, bounds: IndexBounds, wanted: Wanted) -> MatchNode:
    """What of the filter the ranges do not say."""
    said, on_keys, later = _divided(index, bounds, wanted)
    return all_of([*said, *on_keys, *later])


def of_branch(branch: MatchNode, wanted: Wanted) -> Wanted:
    """What one branch of a disjunction is asked for."""
    return replace(
        wanted, matcher=branch, projection=None, projection_spec=None, reads=None, skip=0, limit=0, hint=None, natural=0
    )
