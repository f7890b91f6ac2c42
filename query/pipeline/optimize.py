"""Pipelines with the same result and less work.

Filters go as far forward as they can, condition by condition, under the names that fields have there; a limit or a skip goes
before what changes each row by itself, an order before what leaves its fields alone; neighbours that do the same become one;
an order is told how many of its rows are wanted; an `$unwind` of what a `$lookup` found, and a filter on it, become part of
the `$lookup`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..match.base import AlwaysTrue, MatchNode, PathNode, holds
from ..match.elements import ElemMatchObject, ElemMatchValue
from ..match.logical import And
from ..match.text import TextMatch
from ..update.pipeline import AddFields
from .base import Stage
from .group import Group
from .join import GraphLookup, UnionWith
from .lookup import Lookup
from .order import Limit, Skip, Sort
from .renaming import from_names, is_same_for_equals, key_names, renamed, safe_before_redaction
from .reshape import Match, Redact, Reshape, Unwind


def optimized(stages: Sequence[Stage]) -> list[Stage]:
    """The stages with the same result, in their best order as far as that is known without looking at data."""
    placed: list[Stage] = []
    for stage in stages:
        if isinstance(stage, Match):
            conditions = _conditions(stage.matcher)
            if not all(isinstance(one, AlwaysTrue) for one in conditions):
                _place_match(placed, conditions, stage)
        elif isinstance(stage, (Limit, Skip)):
            _place_amount(placed, stage)
        elif isinstance(stage, Sort):
            _place_sort(placed, stage)
        elif isinstance(stage, Unwind) and placed and _takes_unwind(placed[-1], stage):
            lookup = placed[-1]
            assert isinstance(lookup, Lookup)
            placed[-1] = lookup.with_unwinding(stage)
        else:
            placed.append(stage)
    return _with_limited_orders(placed)


def _conditions(matcher: MatchNode) -> list[MatchNode]:
    simple = matcher.simplified()
    return list(simple.children()) if isinstance(simple, And) else [simple]


@dataclass(frozen=True, slots=True)
class _Moved:
    """What becomes of a condition at a stage: what goes before the stage, and whether it stays behind it too."""

    before: MatchNode | None = None
    stays: bool = True


def _place_match(placed: list[Stage], conditions: list[MatchNode], original: Match | None = None) -> None:
    """Put conditions at the end of the stages, or as far before it as each of them may go."""
    last = placed[-1] if placed else None
    moves = [_Moved() if last is None else _move(one, last) for one in conditions]
    moving = [move.before for move in moves if move.before is not None]
    staying = [one for one, move in zip(conditions, moves, strict=True) if move.stays]
    if moving and last is not None:
        placed.pop()
        unchanged = not staying and all(one is move.before for one, move in zip(conditions, moves, strict=True))
        _place_match(placed, moving, original if unchanged else None)
        placed.append(last)
    if isinstance(last, Lookup) and last.unwinding is not None:
        absorbed = [made for one in staying if (made := _absorbed(one, last)) is not None]
        if absorbed and len(absorbed) == len(staying):
            placed[-1] = last.with_filter(_match(absorbed).matcher)
            return
    if isinstance(last, UnionWith) and staying and not any(holds(one, TextMatch) for one in staying):
        behind = _match(staying)
        placed.pop()
        _place_match(placed, staying, original if len(staying) == len(conditions) else None)
        placed.append(last.followed_by(behind.serialize()))
        return
    if not staying:
        return
    if isinstance(last, Match) and not moving:
        placed[-1] = _match([*_conditions(last.matcher), *staying])
    elif original is not None and not moving:
        placed.append(original)
    else:
        placed.append(_match(staying))


def _match(conditions: list[MatchNode]) -> Match:
    kept = [one for one in conditions if not isinstance(one, AlwaysTrue)]
    matcher: MatchNode = AlwaysTrue() if not kept else kept[0] if len(kept) == 1 else And(kept)
    return Match(matcher, matcher.serialize())


def _move(condition: MatchNode, stage: Stage) -> _Moved:
    """What becomes of a condition behind a stage."""
    fields = condition.fields()
    if not fields:
        # Nothing is known of what it reads, or it reads nothing and is decided anew for each row.
        return _Moved()
    if _passes(fields, stage):
        return _Moved(condition, stays=False)
    before: MatchNode | None = None
    match stage:
        case Reshape():
            before = renamed(condition, stage.renames())
        case Group():
            names = key_names(stage.key)
            null_at = "_id" if "_id" in names else None
            if names and is_same_for_equals(condition, null_for_missing=null_at):
                before = renamed(condition, from_names(names))
        case Redact():
            return _Moved(safe_before_redaction(condition))
    return _Moved() if before is None else _Moved(before, stays=False)


def _passes(fields: frozenset[str], stage: Stage) -> bool:
    """Whether a condition on these fields means the same before the stage, and leaves the stage's other rows alone."""
    names = {path.partition(".")[0] for path in fields}
    if isinstance(stage, Sort):
        return stage.limit is None
    if isinstance(stage, Reshape):
        return _untouched(names, stage)
    if isinstance(stage, Unwind):
        return names.isdisjoint(_written_by(stage))
    if isinstance(stage, Lookup):
        return names.isdisjoint(_written_by(stage))
    return isinstance(stage, GraphLookup) and stage.output[0] not in names


def _written_by(stage: Unwind | Lookup) -> set[str]:
    """The fields of the top level that an `$unwind` changes, or a `$lookup` with the `$unwind` that it took in."""
    if isinstance(stage, Lookup):
        return {stage.output[0]} | (set() if stage.unwinding is None else _written_by(stage.unwinding))
    return {stage.path[0]} | (set() if stage.index is None else {stage.index.partition(".")[0]})


def _untouched(names: set[str], stage: Reshape) -> bool:
    """Whether these fields at the top of a document come through as they were."""
    projection = stage.projection
    if projection is not None:
        kept = projection.kept_whole(names)
        return kept is not None and kept
    if isinstance(stage.step, AddFields):
        return names.isdisjoint(stage.step.names)
    return False


def _takes_unwind(stage: Stage, unwind: Unwind) -> bool:
    return isinstance(stage, Lookup) and stage.unwinding is None and stage.output == unwind.path


def _absorbed(condition: MatchNode, lookup: Lookup) -> MatchNode | None:
    """A condition on what a `$lookup` found as one on the other collection; None where it is none."""
    unwinding = lookup.unwinding
    if unwinding is None or unwinding.keep_empty or unwinding.index is not None or lookup.begins_with_documents:
        return None
    if not _is_on_paths(condition):
        return None
    prefix = ".".join(lookup.output) + "."
    return renamed(condition, lambda path: path[len(prefix) :] if path.startswith(prefix) else None)


def _is_on_paths(condition: MatchNode) -> bool:
    if isinstance(condition, (ElemMatchObject, ElemMatchValue)):
        return False
    children = condition.children()
    return all(_is_on_paths(child) for child in children) if children else isinstance(condition, PathNode)


def _keeps_rows(stage: Stage) -> bool:
    """Whether a stage makes one row of each row, in their order."""
    return isinstance(stage, (Reshape, GraphLookup)) or (isinstance(stage, Lookup) and stage.unwinding is None)


def _place_amount(placed: list[Stage], stage: Limit | Skip) -> None:
    """Put a limit or skip at the end, or before what makes one row of each row; join it with one of its kind."""
    if isinstance(stage, Skip) and not stage.amount:
        return
    at = len(placed)
    while at and _keeps_rows(placed[at - 1]):
        at -= 1
    before = placed[at - 1] if at else None
    if isinstance(stage, Limit) and isinstance(before, Skip) and at > 1 and isinstance(placed[at - 2], Limit):
        # The limit that stands before the skip is the only one, made smaller.
        first = placed[at - 2]
        assert isinstance(first, Limit)
        placed[at - 2] = Limit(min(first.amount, before.amount + stage.amount))
    elif isinstance(stage, Limit) and isinstance(before, Limit):
        placed[at - 1] = Limit(min(stage.amount, before.amount))
    elif isinstance(stage, Skip) and isinstance(before, Skip):
        placed[at - 1] = Skip(stage.amount + before.amount)
    else:
        placed.insert(at, stage)
        if isinstance(stage, Limit) and isinstance(before, Unwind) and before.keep_empty:
            # Each row gives at least one, so that no more of them are needed.
            behind = placed[at - 1 :]
            del placed[at - 1 :]
            _place_amount(placed, Limit(stage.amount))
            placed += behind


def _place_sort(placed: list[Stage], stage: Sort) -> None:
    """Put an order at the end, or before stages that leave its fields alone and its rows in their order."""
    at = len(placed)
    while at and _lets_order_pass(placed[at - 1], stage):
        at -= 1
    before = placed[at - 1] if at else None
    same = isinstance(before, Sort) and before.pattern.parts == stage.pattern.parts and not stage.pattern.metadata
    if not same:
        placed.insert(at, stage)


def _lets_order_pass(stage: Stage, sort: Sort) -> bool:
    if sort.pattern.metadata or sort.limit is not None:
        return False
    names = {path.partition(".")[0] for path in sort.pattern.fields}
    if isinstance(stage, Lookup):
        return stage.unwinding is None and names.isdisjoint(_written_by(stage))
    if isinstance(stage, GraphLookup):
        return stage.output[0] not in names
    return isinstance(stage, Unwind) and names.isdisjoint(_written_by(stage))


def _with_limited_orders(stages: list[Stage]) -> list[Stage]:
    made: list[Stage] = []
    for stage in stages:
        before = made[-1] if made else None
        if isinstance(stage, Limit) and isinstance(before, Sort):
            made[-1] = _limited(before, stage.amount)
        elif (
            isinstance(stage, Limit)
            and isinstance(before, Skip)
            and len(made) > 1
            and isinstance(made[-2], Sort)
            and not all(isinstance(one, Match) for one in made[:-2])
        ):
            # Behind the collection itself, the planner does the same with the three of them.
            made[-2] = _limited(made[-2], before.amount + stage.amount)
        else:
            made.append(stage)
    return made


def _limited(sort: Sort, amount: int) -> Sort:
    return Sort(sort.pattern, sort.collation, amount if sort.limit is None else min(amount, sort.limit))
