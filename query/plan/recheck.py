"""Whether a document that a plan found still matches, once it was changed in between."""

from ..match.base import AlwaysTrue, MatchNode, Predicate, Variables
from ..match.geo import GeoNear
from ..match.logical import And, Or
from ..match.text import TextMatch


def still_matches(matcher: MatchNode, variables: Variables | None = None) -> Predicate:
    """The filter for a document alone: what only an index can tell is taken as told, a distance is measured again."""
    return _alone(matcher).compile(variables)


def needs_index(matcher: MatchNode) -> bool:
    """Whether the filter holds something that only a plan with an index of its kind can answer."""
    return isinstance(matcher, GeoNear | TextMatch) or any(needs_index(child) for child in matcher.children())


def _alone(node: MatchNode) -> MatchNode:
    if not needs_index(node):
        return node
    match node:
        case GeoNear():
            return _WithinReach(node)
        case And():
            return And([_alone(child) for child in node.children()])
        case Or():
            return Or([_alone(child) for child in node.children()])
    return AlwaysTrue()


class _WithinReach(AlwaysTrue):
    """A place within the distances of a `$near`."""

    def __init__(self, near: GeoNear) -> None:
        self._near = near

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        return lambda document: self._near.nearest(document) is not None
