"""Rewrites of a pipeline that unpacks buckets, so that fewer buckets are read, and less of each is unpacked.

`$match` behind the unpacking is taken apart: what a bucket tells goes before it, the rest is tested while unpacking. An
order by meta and time is kept by reading buckets in that order (`BoundedSort`), counts come from what a bucket says of
itself, the newest or oldest measurement of each series from the buckets that can hold it (`SeriesEnds`). None of them
changes what a pipeline returns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..catalog.collections import Collection
from ..common.collation import Collation
from ..query.match.base import AlwaysTrue, MatchNode
from ..query.match.comparison import Comparison
from ..query.match.logical import And, Or
from ..query.pipeline.base import Fields, PipelineContext, Stage, joined
from ..query.pipeline.computed_fields import ComputedFields, computed_fields
from ..query.pipeline.densify import Densify
from ..query.pipeline.group import Count, Group, SortByCount
from ..query.pipeline.order import Limit, Skip, Sort
from ..query.pipeline.parse import Pipeline
from ..query.pipeline.reshape import Match, Reshape
from ..query.pipeline.windows import Fill, SetWindowFields
from ..query.sort import parse_sort
from .bounded_sort import BoundedSort
from .counts import counted_stages, totals_of
from .inlining import inlined
from .last_point import SeriesEnds, end_wanted, is_steady, usable_index
from .latest_groups import latest_groups
from .predicates import Target, all_of, widen
from .top_rows import top_rows
from .unpack_stage import UnpackSpec, UnpackStage


@dataclass(frozen=True, slots=True)
class Source:
    """Where the buckets come from.

    Attributes:
        buckets: their collection.
        collation: what the query compares strings by.
        default_collation: what the smallest and greatest of a bucket were found by.
    """

    buckets: Collection
    collation: Collation | None
    default_collation: Collation | None


def rewritten(stages: Sequence[Stage], source: Source, context: PipelineContext) -> list[Stage]:
    """The stages with the same result, less work; the first that unpacks is the one that is helped."""
    position = next((at for at, stage in enumerate(stages) if isinstance(stage, UnpackStage)), None)
    if position is None:
        return list(stages)
    unpack = stages[position]
    assert isinstance(unpack, UnpackStage)
    before = list(stages[:position])
    behind = list(stages[position + 1 :])
    if unpack.spec.computed_meta or unpack.spec.event_filter is not None or unpack.spec.span_seconds is None:
        return list(stages)
    unpack, behind, filters = _match(unpack, behind, source)
    # A `$fill` is a `$setWindowFields`, a `$set`, or both.
    behind = [inner for stage in behind for inner in (stage.stages if isinstance(stage, Fill) else [stage])]
    behind = inlined(behind, unpack.spec, context)
    before += filters
    counted = counted_stages(unpack.spec, behind, context)
    if counted is not None:
        return [*before, *counted]
    ends = _series_ends(unpack.spec, before, behind, source)
    if ends is not None:
        return [ends, _with_fields(unpack, behind).changed(edge=ends.end), *behind]
    ordered = _ordered(unpack, before, behind, source)
    if ordered is not None:
        return [*before, *ordered]
    latest = latest_groups(unpack.spec, behind)
    if latest is not None:
        by_time = Sort(parse_sort({"_id": -1 if latest.descending else 1}), None)
        behind = [latest, *behind[1:]]
        return [*before, by_time, _with_fields(unpack.changed(columnar=True), behind), *behind]
    top = top_rows(unpack.spec, behind)
    if top is not None:
        narrow = unpack.changed(columnar=True, columns=top.columns(unpack.spec.event_filter))
        return [*before, _with_fields(narrow, behind), top, *behind]
    limit = _limit(behind)
    if limit is not None:
        if unpack.spec.event_filter is None:
            before.append(Limit(limit))
        unpack = unpack.changed(limit=limit)
    elif behind and _wants_columns(unpack.spec, behind[0]):
        totals = totals_of(behind[0], unpack.spec)
        behind = _with_columns_between(unpack.spec, behind)
        columns = _columns_beside_rows(unpack.spec, behind)
        gradual = isinstance(behind[0], ComputedFields)
        unpack = unpack.changed(columnar=True, gradual=gradual, columns=columns, totals=totals)
    return [*before, _with_fields(unpack, behind), *behind]


def _wants_columns(spec: UnpackSpec, stage: Stage) -> bool:
    """Whether the stage can work on columns."""
    match stage:
        case Count():
            return True
        case SortByCount():
            return stage.group.over_columns(spec.time_field, spec.meta_field) is not None
        case Group() | SetWindowFields() | Densify():
            return stage.over_columns(spec.time_field, spec.meta_field) is not None
        case Reshape():
            return computed_fields(stage, spec.time_field, spec.meta_field) is not None
    return False


def _tests_columns(spec: UnpackSpec, stage: Stage) -> bool:
    """Whether the stage is a filter on columns, which passes them on."""
    fields = stage.matcher.fields() if isinstance(stage, Match) else None
    return fields is not None and not any("." in path or path == spec.meta_field for path in fields)


def _columns_beside_rows(spec: UnpackSpec, behind: Sequence[Stage]) -> tuple[str, ...] | None:
    """The columns that stages look at, where whole rows are wanted beside; None where all that is wanted are columns."""
    if Pipeline(list(behind)).required_fields() is not None:
        return None
    wanted: Fields = frozenset() if spec.event_filter is None else spec.event_filter.fields()
    for stage in behind:
        match stage:
            case Group() | SetWindowFields() | Densify() | ComputedFields():
                wanted = joined(wanted, stage.columns())
            case Match():
                wanted = joined(wanted, stage.matcher.fields())
            case _:
                break
        if isinstance(stage, Group):
            break
    return None if wanted is None else tuple(sorted({path.partition(".")[0] for path in wanted}))


def _with_columns_between(spec: UnpackSpec, behind: Sequence[Stage]) -> list[Stage]:
    """The stages with the same result, those that pass on rows giving columns to the next that wants them."""
    made = list(behind)
    for at, stage in enumerate(behind):
        if isinstance(stage, Reshape):
            computing = computed_fields(stage, spec.time_field, spec.meta_field)
            if computing is None:
                break
            made[at] = stage = computing
        follower = behind[at + 1] if at + 1 < len(behind) else None
        taken = follower is not None and (_wants_columns(spec, follower) or _tests_columns(spec, follower))
        if isinstance(stage, ComputedFields) and stage.kept is not None:
            # What it leaves out is not to be found by others.
            break
        if isinstance(stage, SetWindowFields | Densify | ComputedFields):
            made[at] = stage.giving_columns() if taken else stage
        elif not isinstance(stage, Match):
            break
        if not taken:
            break
    return made


def _match(unpack: UnpackStage, behind: list[Stage], source: Source) -> tuple[UnpackStage, list[Stage], list[Stage]]:
    """The filters behind the unpacking taken apart; returns it, what is left behind it, and what goes before it."""
    leading = 0
    while leading < len(behind) and isinstance(behind[leading], Match):
        leading += 1
    if not leading:
        return unpack, behind, []
    spec = unpack.spec
    assert spec.span_seconds is not None
    widened = widen(
        [stage.matcher for stage in behind[:leading] if isinstance(stage, Match)],
        Target(spec.time_field, spec.meta_field, spec.span_seconds * 1000),
        collation=source.collation,
        default_collation=source.default_collation,
        extended=spec.extended,
    )
    rest = all_of(widened.rest).simplified()
    if not isinstance(rest, AlwaysTrue):
        unpack = unpack.changed(event_filter=rest, whole_filter=_tight(rest, spec.time_field))
    bucket = all_of(widened.bucket).simplified()
    filters: list[Stage] = [] if isinstance(bucket, AlwaysTrue) else [Match(bucket, bucket.serialize())]
    return unpack, behind[leading:], filters


def _tight(node: MatchNode, time_field: str) -> MatchNode | None:
    """What a bucket satisfies only if all of its measurements satisfy the predicate; None where it is not on time alone."""
    low, high = f"control.min.{time_field}", f"control.max.{time_field}"
    match node:
        case And() | Or():
            parts = [_tight(child, time_field) for child in node.children()]
            known = [part for part in parts if part is not None]
            if not known or len(known) != len(parts):
                return None
            return And(known) if isinstance(node, And) else Or(known)
        case Comparison() if node.path == time_field:
            match node.operator:
                case "$gt" | "$gte":
                    return Comparison(low, node.operator, node.value)
                case "$lt" | "$lte":
                    return Comparison(high, node.operator, node.value)
                case "$eq":
                    return And([Comparison(low, "$eq", node.value), Comparison(high, "$eq", node.value)])
    return None


def _with_fields(unpack: UnpackStage, behind: Sequence[Stage]) -> UnpackStage:
    """Only the fields that somebody reads."""
    if unpack.spec.include is not None or unpack.spec.exclude:
        return unpack
    wanted = Pipeline(list(behind)).required_fields()
    if wanted is None:
        return unpack
    filter = unpack.spec.event_filter
    if filter is not None:
        tested = filter.fields()
        if tested is None:
            return unpack
        wanted = wanted | tested
    return unpack.changed(include=tuple(sorted({path.partition(".")[0] for path in wanted})), exclude=None)


def _limit(behind: Sequence[Stage]) -> int | None:
    """How many measurements the stages can use at most, where they begin by counting them."""
    skipped = 0
    for stage in behind:
        if isinstance(stage, Skip):
            skipped += stage.amount
        elif isinstance(stage, Limit):
            return skipped + stage.amount
        else:
            return None
    return None


def _meta_paths(paths: Sequence[str], meta_field: str | None) -> list[str] | None:
    """Paths within the meta field as they are in buckets; None where one is elsewhere."""
    made = []
    for path in paths:
        if meta_field is None or not (path == meta_field or path.startswith(meta_field + ".")):
            return None
        made.append("meta" + path[len(meta_field) :])
    return made


def _ordered(
    unpack: UnpackStage, before: Sequence[Stage], behind: Sequence[Stage], source: Source
) -> list[Stage] | None:
    """Stages that read buckets in the order that measurements are wanted in, by meta, by time, or by both."""
    if not behind or not isinstance(behind[0], Sort) or behind[0].pattern.metadata:
        return None
    sort, *others = behind
    assert isinstance(sort, Sort)
    spec = unpack.spec
    fields = sort.pattern.fields
    meta = _meta_paths(fields, spec.meta_field)
    directions = list(sort.pattern.serialize().values())
    if meta is not None:
        order = dict(zip(meta, directions, strict=True))
        limited = [] if sort.limit is None else [Limit(sort.limit)]
        bucket_limit = sort.limit if spec.event_filter is None else None
        made = Sort(parse_sort(order), sort.collation, bucket_limit)
        return [made, _with_fields(unpack.changed(limit=sort.limit), others), *limited, *others]
    if fields[-1] != spec.time_field:
        return None
    meta = _meta_paths(fields[:-1], spec.meta_field)
    if meta is None:
        return None
    start = f"control.min.{spec.time_field}"
    if not meta and not spec.extended and not _by_index(before, start, source.buckets):
        # The order of storage.
        start = "_id"
    order = {**dict(zip(meta, directions[:-1], strict=True)), start: directions[-1]}
    assert spec.span_seconds is not None
    bounded = BoundedSort(
        sort.pattern, source.collation, spec.time_field, spec.meta_field, spec.span_seconds * 1000, sort.limit
    )
    first = None if sort.limit is None else (sort.limit, directions[-1] == -1)
    inner = _with_fields(unpack, [sort, *others]).changed(in_order=True, first=first)
    return [Sort(parse_sort(order), sort.collation), inner, bounded, *others]


def _by_index(before: Sequence[Stage], start: str, buckets: Collection) -> bool:
    """Whether an index holds the buckets, or those of the series that is asked for, in the order of their first times."""
    fixed = {
        node.path
        for stage in before
        if isinstance(stage, Match)
        for node in (stage.matcher.children() if isinstance(stage.matcher, And) else [stage.matcher])
        if isinstance(node, Comparison) and node.operator == "$eq"
    }
    usable = [index for index in buckets.indexes if not index.building and not index.hidden and index.kind == "btree"]
    return any(
        index.paths[0] == start or (len(index.paths) > 1 and index.paths[0] in fixed and index.paths[1] == start)
        for index in usable
    )


def _series_ends(
    spec: UnpackSpec, before: Sequence[Stage], behind: Sequence[Stage], source: Source
) -> SeriesEnds | None:
    """A scan of the newest or oldest buckets of each series, where nothing else decides the result."""
    if spec.meta_field is None or spec.extended or spec.event_filter is not None:
        return None
    if len(before) > 1 or not all(isinstance(stage, Match) for stage in before):
        return None
    end = end_wanted(behind, spec.time_field, spec.meta_field)
    options = source.buckets.timeseries
    if end is None or options is None:
        return None
    matcher = all_of([stage.matcher for stage in before if isinstance(stage, Match)])
    index = usable_index(source.buckets, options)
    return (
        SeriesEnds(source.buckets.with_heads, options, index, end, matcher)
        if index is not None and is_steady(matcher)
        else None
    )
