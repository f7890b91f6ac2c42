"""What a plan is asked for, and the parts of its filter."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...common.collation import Collation
from ...common.values import Document
from ..match.base import AlwaysTrue, MatchNode
from ..match.logical import And
from ..projection import Projection
from ..sort import SortPattern


@dataclass(frozen=True, slots=True)
class DistinctBy:
    """One row for each value of a path will do.

    Attributes:
        path: the path.
        last: the last row of each value counts, in place of the first.
        missing_counts: documents without the path count too.
    """

    path: str
    last: bool = False
    missing_counts: bool = True


@dataclass(slots=True, kw_only=True)
class Wanted:
    """What a plan is asked for, parsed."""

    matcher: MatchNode = field(default_factory=AlwaysTrue)
    sort: SortPattern | None = None
    natural: int = 0
    """1 or -1 where the order of storage was asked for."""
    skip: int = 0
    limit: int = 0
    projection: Projection | None = None
    projection_spec: Document | None = None
    """The projection as it was asked for; part of the shape of a query."""
    reads: frozenset[str] | None = None
    """Without a projection: the paths of documents that matter; None where all do."""
    distinct: DistinctBy | None = None
    """Whether few rows for each value of a path will do."""
    later: tuple[str, ...] = ()
    """Names of the stages of the pipeline behind this; part of the shape of a query."""
    at_most: int = 0
    """How many rows are read where that is not what `skip` and `limit` say."""
    allowed: tuple[str | Document, ...] | None = None
    """Names and key patterns of the only indexes that may be used, where an index filter says so."""
    hint: str | Document | None = None
    collation: Collation | None = None
    min: Document | None = None
    max: Document | None = None
    show_record_id: bool = False
    return_key: bool = False
    tailable: bool = False

    @property
    def enough(self) -> int | None:
        """How many rows in their order will do."""
        return self.at_most or (self.skip + self.limit if self.limit else None)


def conjuncts(matcher: MatchNode) -> Sequence[MatchNode]:
    """The predicates of which all have to hold."""
    if isinstance(matcher, And):
        return [conjunct for child in matcher.children() for conjunct in conjuncts(child)]
    return () if isinstance(matcher, AlwaysTrue) else (matcher,)


def all_of(nodes: Sequence[MatchNode]) -> MatchNode:
    """The conjunction of some predicates."""
    if not nodes:
        return AlwaysTrue()
    return nodes[0] if len(nodes) == 1 else And(nodes)


def collation_document(wanted: Wanted) -> Document | None:
    """The collation as indexes keep theirs."""
    return None if wanted.collation is None else wanted.collation.to_document()
