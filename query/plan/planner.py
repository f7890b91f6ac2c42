"""Chooses how to read a collection: which index, in which direction, with what left to test and to sort.

Candidates are the indexes whose bounds the filter narrows, or whose order the sort asks for. They are tried on the data: the
one with the fewest entries within its bounds wins (counted up to a limit), a sort that it saves counting in its favour.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from bson import Regex

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.documents import collated_key_string
from ...catalog.index_specs import IndexSpec
from ...common.errors import BadValue, Location, NoQueryExecutionPlans
from ...common.values import Document
from ...storage.engine import Snapshot
from ...storage.keys import after
from ..match.base import AlwaysFalse, AlwaysTrue, MatchNode
from ..match.comparison import Comparison
from ..match.geo import GeoNear
from ..match.logical import Or
from ..match.text import TextMatch
from .access import index_source
from .bounds import BoundsMaker, same_value
from .candidates import alternatives, candidate_of, candidates, chosen, possible, scan_of, sort_by, usable
from .distinct import distinct_source
from .geo_bounds import can_be_near
from .implication import implies
from .index_scans import IndexScan
from .near import NearScan
from .nodes import PlanNode
from .plan_cache import PlanCache
from .recheck import needs_index
from .scans import CollectionScan, Eof, Fetch, IdHack
from .shaping import Limit, Narrow, Project, ReturnKey, ShowRecordId, Skip, Sort, Subplan
from .special_bounds import usable_without_bounds
from .text import text_index, text_plan
from .union import Union
from .wanted import Wanted as Wanted
from .wanted import all_of, collation_document, conjuncts


@dataclass(slots=True)
class Planned:
    """The chosen plan and those that were not."""

    root: PlanNode
    rejected: list[PlanNode]
    wanted: Wanted | None = None
    """What the plan was made for."""
    collection: Collection | None = None
    """Of which collection the shape of the query was planned."""
    index: str | None = None
    """Name of the index that was chosen among those that could be read."""
    is_distinct: bool = False
    """Whether it gives few rows for each value of `Wanted.distinct`."""


def plan_find(
    collection: Collection | None, wanted: Wanted, snapshot: Snapshot, cache: PlanCache | None = None
) -> Planned:
    """The plan of a query on one collection; `cache` remembers which one to choose.

    Raises:
        BadValue: the hint names no index that can be used.
        IndexNotFound: a search of texts in a collection without a text index.
        NoQueryExecutionPlans: no index can do what only an index can.
        Location: 51173, 51174: `min` and `max` without a hint, or not of its key.
    """
    text = _text_of(wanted.matcher)
    if text is not None:
        index = text_index(collection)
        assert collection is not None
        source = _text(collection, index, text, wanted, snapshot)
        return Planned(_shaped(source, wanted, sorted_already=wanted.sort is None), [])
    if collection is None or isinstance(wanted.matcher, AlwaysFalse):
        return Planned(_shaped(Eof(), wanted, sorted_already=True), [])
    near = next((one for one in conjuncts(wanted.matcher) if isinstance(one, GeoNear)), None)
    if near is not None:
        return Planned(_shaped(_near(collection, near, wanted), wanted, sorted_already=wanted.sort is None), [])
    hinted = _hinted(collection, wanted)
    if wanted.tailable:
        # Only the order of storage goes on where it ended.
        hinted = None
    if wanted.min is not None or wanted.max is not None:
        return Planned(_min_max(collection, wanted, hinted), [])
    if hinted is None and wanted.hint is None and not wanted.natural and not wanted.tailable:
        identity = id_equality(collection, wanted)
        if identity is not None:
            rest = _without_id(wanted.matcher)
            return Planned(_shaped(IdHack(collection, identity.value, rest), wanted, sorted_already=True), [])
        indexes = _allowed(collection, wanted)
        if (values := distinct_source(collection, wanted, indexes)) is not None:
            return Planned(_shaped(values, wanted, sorted_already=True), [], is_distinct=True)
        plans = chosen(collection, wanted, snapshot, possible(collection, wanted, indexes), cache)
        if plans:
            roots = [_shaped(scan_of(collection, one, wanted), wanted, sorted_already=one.sorts) for one in plans]
            for one, root in zip(plans[1:], roots[1:], strict=True):
                _note_trial(root, one.entries)
            return Planned(_whole(roots[0], wanted), roots[1:], index=plans[0].index.name)
        either = alternatives(collection, wanted, snapshot, indexes, cache)
        if either is not None:
            return Planned(_whole(_shaped(either.source, wanted, sorted_already=either.sorts), wanted), [])
    elif hinted is not None:
        if (values := distinct_source(collection, wanted, [hinted])) is not None:
            return Planned(_shaped(values, wanted, sorted_already=True), [], is_distinct=True)
        return Planned(_by_hint(collection, hinted, wanted, snapshot), [])
    return Planned(_whole(_collection_scan(collection, wanted), wanted), [])


def _note_trial(root: PlanNode, entries: int) -> None:
    """Tell the scan of a plan that lost how many entries were counted for it."""
    while len(root.inputs) == 1:
        root = root.inputs[0]
    if isinstance(root, IndexScan):
        root.stats.keys_examined = root.stats.works = entries


def _whole(root: PlanNode, wanted: Wanted) -> PlanNode:
    """The plan, named as MongoDB names those whose branches were planned one by one."""
    planned_apart = (
        isinstance(wanted.matcher, Or) and wanted.hint is None and not wanted.natural and not wanted.tailable
    )
    return Subplan(root) if planned_apart else root


def _text_of(matcher: MatchNode) -> TextMatch | None:
    """The search of texts among some predicates, on every branch of a disjunction too."""
    if isinstance(matcher, TextMatch):
        return matcher
    return next((found for child in matcher.children() if (found := _text_of(child)) is not None), None)


def _text(collection: Collection, index: IndexSpec, text: TextMatch, wanted: Wanted, snapshot: Snapshot) -> PlanNode:
    """The plan of a search of texts.

    Raises:
        BadValue: with a hint or in the order of storage.
        NoQueryExecutionPlans: beside something that no index leads to.
    """
    if wanted.hint is not None and wanted.hint != {}:
        raise BadValue("text and hint not allowed in same query")
    if wanted.natural:
        raise BadValue("text expression not allowed in same query with $natural sort order")
    predicates = conjuncts(wanted.matcher)
    partial = index.partial_filter
    if partial is not None and not implies(predicates, partial, index.collation):
        raise NoQueryExecutionPlans(
            f"error processing query: ns={collection.namespace} :: caused by :: failed to use text index to satisfy $text "
            "query (the index is partial, and the query may match more)"
        )
    if any(one is text for one in predicates):
        rest = [one for one in predicates if one is not text]
        return text_plan(collection, index, text, rest, all_of(rest))
    either = next((one for one in predicates if isinstance(one, Or) and _text_of(one) is not None), None)
    sources: list[PlanNode] = []
    for branch in () if either is None else either.children():
        of_branch = Wanted(matcher=branch, collation=wanted.collation)
        if _text_of(branch) is not None:
            sources.append(_text(collection, index, text, of_branch, snapshot))
            continue
        found = candidates(collection, of_branch, snapshot, collection.indexes)
        if not found:
            break
        sources.append(scan_of(collection, found[0], of_branch))
    else:
        if sources:
            rest = [one for one in predicates if one is not either]
            return Union(sources, all_of(rest))
    raise NoQueryExecutionPlans(
        f"error processing query: ns={collection.namespace} :: caused by :: failed to use text index to satisfy $text query"
    )


def _near(collection: Collection, near: GeoNear, wanted: Wanted) -> PlanNode:
    """The plan that reads from a point on.

    Raises:
        BadValue: in the order of storage.
        NoQueryExecutionPlans: no index can be searched so.
    """
    hinted = _hinted(collection, wanted)
    if wanted.natural:
        raise BadValue("geoNear expression not allowed in same query with $natural sort order or hint")
    predicates = conjuncts(wanted.matcher)
    rest = [one for one in predicates if one is not near]
    for index in collection.indexes if hinted is None else (hinted,):
        if can_be_near(index, near) and usable(index, rest, wanted):
            scan = NearScan(collection, index, near, all_of(rest), collation_document(wanted), rest)
            if scan.usable():
                scan.check_point()
                return scan
    raise NoQueryExecutionPlans(
        f"error processing query: ns={collection.namespace} planner returned error :: caused by :: unable to find index "
        "for $geoNear query"
    )


def _by_hint(collection: Collection, index: IndexSpec, wanted: Wanted, snapshot: Snapshot) -> PlanNode:
    """The plan with the index that was asked for.

    Raises:
        NoQueryExecutionPlans: an index of its kind says nothing about the filter.
    """
    if index.kind == "btree":
        found = [candidate_of(index, BoundsMaker(index, collation_document(wanted)), wanted)]
    else:
        found = candidates(collection, wanted, snapshot, [index])
    if not found:
        either = alternatives(collection, wanted, snapshot, [index])
        if either is not None:
            return _shaped(either.source, wanted, sorted_already=either.sorts)
        if not usable_without_bounds(index):
            raise NoQueryExecutionPlans(
                f"error processing query: ns={collection.namespace} :: caused by :: planner returned error: "
                "hinted index cannot be used for this query"
            )
        found = [candidate_of(index, BoundsMaker(index, None), Wanted(matcher=AlwaysTrue(), sort=wanted.sort))]
    best = found[0]
    return _shaped(scan_of(collection, best, wanted), wanted, sorted_already=best.sorts)


def _allowed(collection: Collection, wanted: Wanted) -> Sequence[IndexSpec]:
    """The indexes that may be considered."""
    allowed = wanted.allowed
    if allowed is None:
        return collection.indexes
    return [
        index
        for index in collection.indexes
        if any(
            index.name == one if isinstance(one, str) else list(index.key) == list(one) and index.key == one
            for one in allowed
        )
    ]


@dataclass(frozen=True, slots=True)
class Identity:
    """The one `_id` that a filter asks for."""

    value: Any


def id_equality(collection: Collection, wanted: Wanted) -> Identity | None:
    """The `_id` that the filter asks for; None where it asks for no single one, or another way of reading is wanted."""
    if wanted.hint is not None or wanted.natural or wanted.min is not None or wanted.max is not None:
        return None
    if needs_index(wanted.matcher):
        return None
    if not collection.clustered and not (collection.indexes and collection.indexes[0].is_id):
        return None
    for predicate in conjuncts(wanted.matcher):
        if isinstance(predicate, Comparison) and predicate.path == "_id" and predicate.operator == "$eq":
            value = predicate.value
            if isinstance(value, list | Regex) or value is None:
                return None
            stored = collection.collation
            same = (None if stored is None else stored.to_document()) == collation_document(wanted)
            return None if isinstance(value, str | dict) and not same else Identity(value)
    return None


QUICK_ENTRIES: Final = 64


def quick_index(collection: Collection, wanted: Wanted, snapshot: Snapshot) -> bool:
    """Whether an index leads to what is wanted over a few entries, so that finding it takes no time to speak of."""
    if wanted.hint is not None or wanted.natural or wanted.min is not None or wanted.max is not None:
        return False
    if needs_index(wanted.matcher):
        return False
    for index in _allowed(collection, wanted):
        if index.kind != "btree" or not usable(index, conjuncts(wanted.matcher), wanted):
            continue
        bounds = BoundsMaker(index, collation_document(wanted)).make(conjuncts(wanted.matcher))
        if bounds.fields[0].unbounded or len(bounds.ranges) > QUICK_ENTRIES:
            continue
        left = QUICK_ENTRIES
        for low, high in bounds.ranges:
            left -= sum(1 for _ in islice(documents.index_scan(snapshot, index, low, high), left + 1))
            if left < 0:
                break
        if left >= 0:
            return True
    return False


def _without_id(matcher: MatchNode) -> MatchNode:
    rest = [
        predicate
        for predicate in conjuncts(matcher)
        if not (isinstance(predicate, Comparison) and predicate.path == "_id" and predicate.operator == "$eq")
    ]
    ids = len(conjuncts(matcher)) - len(rest)
    return matcher if ids > 1 else all_of(rest)


def _collection_scan(collection: Collection, wanted: Wanted) -> PlanNode:
    """Everything, in the order of storage; of a clustered collection the range that the filter allows."""
    reverse = wanted.natural < 0
    sorted_already = wanted.sort is None
    low = high = None
    shown = None
    if collection.clustered:
        low, high, shown = clustered_bounds(collection, wanted)
        parts = wanted.sort.parts if wanted.sort is not None else ()
        stored = collection.collation
        same = (None if stored is None else stored.to_document()) == collation_document(wanted)
        if same and len(parts) == 1 and parts[0].path == "_id":
            sorted_already = True
            reverse = not parts[0].ascending
    scan = CollectionScan(
        collection,
        wanted.matcher,
        reverse=reverse,
        low=low,
        high=high,
        bounds_shown=shown,
        enough=wanted.enough if sorted_already else None,
        tailable=wanted.tailable,
    )
    return _shaped(scan, wanted, sorted_already=sorted_already)


def clustered_bounds(collection: Collection, wanted: Wanted) -> tuple[bytes | None, bytes | None, Document | None]:
    """Range of record keys in which all matches lie, where `_id` is the order of storage; and how explain shows it."""
    predicates = [predicate for predicate in conjuncts(wanted.matcher) if predicate.fields() == frozenset({"_id"})]
    index = IndexSpec.for_id(collection.options.get("collation"))
    bounds = BoundsMaker(index, collation_document(wanted)).make(predicates)
    if bounds.fields[0].unbounded or not bounds.ranges:
        return None, None, None
    low, high = bounds.ranges[0][0], bounds.ranges[-1][1]
    shown: Document = {}
    for predicate in predicates:
        if isinstance(predicate, Comparison) and predicate.operator in ("$gt", "$gte", "$eq"):
            shown["minRecord"] = predicate.value
        if isinstance(predicate, Comparison) and predicate.operator in ("$lt", "$lte", "$eq"):
            shown["maxRecord"] = predicate.value
    return low, high, shown


def find_index(collection: Collection, hint: str | Document) -> IndexSpec | None:
    """The index that a hint names, by its name or its key."""
    if isinstance(hint, str):
        return collection.index(hint)
    for index in collection.indexes:
        if list(index.key) == list(hint) and all(same_value(index.key[path], hint[path]) for path in hint):
            return index
    return None


def _hinted(collection: Collection, wanted: Wanted) -> IndexSpec | None:
    """The index that was asked for; None where nobody asked, or for the order of storage."""
    hint = wanted.hint
    if hint is None or hint == {}:
        return None
    if isinstance(hint, dict) and list(hint) == ["$natural"]:
        wanted.natural = -1 if float(str(hint["$natural"])) < 0 else 1
        return None
    index = find_index(collection, hint)
    if index is None or index.hidden or index.building:
        raise BadValue(
            f"error processing query: ns={collection.namespace} :: caused by :: hint provided does not correspond to an "
            "existing index"
        )
    return index


def _min_max(collection: Collection, wanted: Wanted, index: IndexSpec | None) -> PlanNode:
    """The entries from `min` up to and without `max`."""
    if index is None:
        raise Location(51173, "When using min()/max() a hint of which index to use must be provided")
    for bound in (wanted.min, wanted.max):
        if bound is not None and (index.kind != "btree" or list(bound) != list(index.key)):
            raise Location(51174, f"The index chosen is not compatible with min/max: {index.key}")
    low = b"" if wanted.min is None else collated_key_string(index, wanted.min, list(index.descending))
    high = b"\xff" * 8 if wanted.max is None else collated_key_string(index, wanted.max, list(index.descending))
    if wanted.min is not None and wanted.max is not None and low >= high:
        raise Location(51175, "The value provided for min() does not come before the value provided for max()")
    bounds = BoundsMaker(index, None).make([])
    bounds.ranges = [(low, high)] if low < high else []
    sorts, reverse = sort_by(index, bounds, wanted)
    sorts = sorts or wanted.sort is None
    enough = wanted.enough if sorts else None
    source = index_source(collection, index, bounds, wanted, sorts=sorts, reverse=reverse, enough=enough)
    return _shaped(source, wanted, sorted_already=sorts)


def _shaped(source: PlanNode, wanted: Wanted, *, sorted_already: bool) -> PlanNode:
    """Sort, skip, limit and project what a source gives."""
    node = source
    if isinstance(source, IndexScan) and wanted.reads == frozenset() and wanted.sort is None and not _limited(wanted):
        source.count_alone()
    limit = wanted.skip + wanted.limit if wanted.limit else 0
    if wanted.sort is not None and not sorted_already:
        node = Sort(node, wanted.sort, limit=limit or None, collator=wanted.collation)
    if wanted.skip:
        node = Skip(node, wanted.skip)
    if wanted.limit and not (isinstance(node, Sort) and not wanted.skip):
        node = Limit(node, wanted.limit)
    if wanted.return_key:
        node = ReturnKey(node, _key_paths(source))
    if wanted.show_record_id:
        node = ShowRecordId(node)
    if wanted.projection is None and wanted.reads:
        if isinstance(source, IndexScan) and source.covers:
            node = Narrow(node, wanted.reads, covered=True)
        elif wanted.later:
            node = Narrow(node, wanted.reads)
    if wanted.projection is not None and not wanted.projection.is_identity:
        paths = _key_paths(source) if isinstance(source, Fetch) else ()
        told = source.told if isinstance(source, IndexScan) and source.covers else None
        node = Project(
            node,
            wanted.projection,
            wanted.matcher,
            index_paths=paths,
            sort=wanted.sort,
            covered=told is not None,
            ready=told is not None and told.paths == wanted.projection.named_only,
        )
    return node


def _limited(wanted: Wanted) -> bool:
    """Whether some rows are passed over or left out."""
    return bool(wanted.skip or wanted.limit)


def _key_paths(source: PlanNode) -> tuple[str, ...]:
    """The paths of the index that is read; none without one."""
    if isinstance(source, IndexScan):
        return source.index.paths
    if isinstance(source, IdHack):
        return ("_id",)
    return _key_paths(source.inputs[0]) if len(source.inputs) == 1 else ()


def prefix_range(prefix: bytes) -> tuple[bytes, bytes]:
    """Keys that begin with the prefix."""
    return prefix, after(prefix)
