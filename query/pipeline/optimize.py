"""Pipelines with the same result and less work.

Filters go as far forward as they can, condition by condition; a limit or a skip goes before what changes each row by itself;
neighbours that do the same become one; an order is told how many of its rows are wanted.
"""

from collections.abc import Sequence

from ..match.base import AlwaysTrue, MatchNode
from ..match.logical import And
from ..update.pipeline import AddFields
from .base import Stage
from .join import GraphLookup, Lookup
from .order import Limit, Skip, Sort
from .reshape import Match, Reshape, Unwind


def optimized(stages: Sequence[Stage]) -> list[Stage]:
    """The stages with the same result, in their best order as far as that is known without looking at data."""
    placed: list[Stage] = []
    for stage in stages:
        if isinstance(stage, Match):
            _place_match(placed, _conditions(stage.matcher), stage)
        elif isinstance(stage, (Limit, Skip)):
            _place_amount(placed, stage)
        else:
            placed.append(stage)
    return _with_limited_orders(placed)


def _conditions(matcher: MatchNode) -> list[MatchNode]:
    simple = matcher.simplified()
    return list(simple.children()) if isinstance(simple, And) else [simple]


def _place_match(placed: list[Stage], conditions: list[MatchNode], original: Match | None = None) -> None:
    """Put conditions at the end of the stages, or as far before it as each of them may go."""
    last = placed[-1] if placed else None
    moving = [] if last is None else [one for one in conditions if _passes(one, last)]
    if moving and last is not None:
        placed.pop()
        _place_match(placed, moving, original if len(moving) == len(conditions) else None)
        placed.append(last)
    staying = [one for one in conditions if not any(one is moved for moved in moving)]
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


def _passes(condition: MatchNode, stage: Stage) -> bool:
    """Whether a condition means the same before the stage as behind it, and leaves the stage's other rows alone."""
    fields = condition.fields()
    if not fields:
        # Nothing is known of what it reads, or it reads nothing and is decided anew for each row.
        return False
    names = {path.partition(".")[0] for path in fields}
    if isinstance(stage, Sort):
        return stage.limit is None
    if isinstance(stage, Reshape):
        return _untouched(names, stage)
    if isinstance(stage, Unwind):
        return stage.path[0] not in names and (stage.index is None or stage.index.partition(".")[0] not in names)
    if isinstance(stage, (Lookup, GraphLookup)):
        return stage.output[0] not in names
    return False


def _untouched(names: set[str], stage: Reshape) -> bool:
    """Whether these fields at the top of a document come through as they were."""
    projection = stage.projection
    if projection is not None:
        kept = projection.kept_whole(names)
        return kept is not None and kept
    if isinstance(stage.step, AddFields):
        return names.isdisjoint(stage.step.names)
    return False


def _place_amount(placed: list[Stage], stage: Limit | Skip) -> None:
    """Put a limit or skip at the end, or before what makes one row of each row; join it with one of its kind."""
    at = len(placed)
    while at and isinstance(placed[at - 1], Reshape):
        at -= 1
    before = placed[at - 1] if at else None
    if isinstance(stage, Limit) and isinstance(before, Limit):
        placed[at - 1] = Limit(min(stage.amount, before.amount))
    elif isinstance(stage, Skip) and isinstance(before, Skip):
        placed[at - 1] = Skip(stage.amount + before.amount)
    else:
        placed.insert(at, stage)


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
