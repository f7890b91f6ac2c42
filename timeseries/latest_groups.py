"""Groups by a stretch of time of which the newest (or oldest) few are wanted: buckets are read from that end, and no further
than until those groups are whole."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..common.values import Document
from ..query.columns.batch import ColumnBatch
from ..query.columns.group import ColumnGrouping
from ..query.pipeline.base import Fields, Stage
from ..query.pipeline.group import Group, GroupNode
from ..query.pipeline.order import Limit, Sort
from ..query.plan.nodes import PlanNode
from .unpack_stage import UnpackSpec

_LIMIT_MAX: Final = 1000
_UNKNOWN: Final = -(2**63)
_ORDERLY: Final = frozenset(
    {
        "$addToSet", "$bottom", "$bottomN", "$first", "$firstN", "$last", "$lastN", "$maxN", "$minN", "$push", "$top", "$topN",
    }
)  # fmt: skip
"""Accumulators that tell in which order the rows came."""


class LatestGroups(Stage):
    """A `$group` by truncated time that ends when enough groups are whole; explain shows the `$group`."""

    name = "$group"

    def __init__(self, group: Group, *, descending: bool, limit: int, span_ms: int) -> None:
        self._group = group
        self.descending = descending
        self._limit = limit
        self._span_ms = span_ms

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return self._group.serialize()

    def explained(self) -> list[Document]:
        """See `Stage.explained`."""
        return self._group.explained()

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return GroupNode(self._group, source, enough=self._enough)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return self._group.needs(wanted)

    def _enough(self, groups: ColumnGrouping, batch: ColumnBatch) -> bool:
        """Whether no bucket that comes after the batch can change the groups that are wanted, or begin one of them."""
        if len(groups) < self._limit:
            return False
        starts = np.fromiter((int(value) for value in groups.keys), dtype=np.int64, count=len(groups))
        edge = int(batch.time_bounds[0][-1])
        if edge == _UNKNOWN:
            return False
        if self.descending:
            return int((starts >= edge + self._span_ms).sum()) >= self._limit
        # A group is whole where a later one begins before all that is to come.
        return int((starts <= edge).sum()) > self._limit


def latest_groups(spec: UnpackSpec, behind: Sequence[Stage]) -> LatestGroups | None:
    """The first stage as one that ends early; None where the stages want all groups, or in another order."""
    if len(behind) < 2 or not isinstance(behind[0], Group) or not isinstance(behind[1], Sort):
        return None
    group, sort, *others = behind
    assert isinstance(group, Group)
    assert isinstance(sort, Sort)
    limit = sort.limit
    if limit is None and others and isinstance(others[0], Limit):
        limit = others[0].amount
    shown = group.key.serialize()
    if limit is None or limit > _LIMIT_MAX or spec.span_seconds is None or spec.extended:
        return None
    if not isinstance(shown, dict) or set(shown) != {"$dateTrunc"}:
        return None
    if sort.pattern.metadata or list(sort.pattern.fields) != ["_id"]:
        return None
    if any(one.name in _ORDERLY for one in group.accumulators.values()):
        # Read from the other end, groups would have their rows in another order.
        return None
    grouped = group.over_columns(spec.time_field, spec.meta_field)
    if grouped is None or grouped.parts[0].shares or grouped.parts[0].columns or grouped.parts[0].grain_ms is None:
        return None
    return LatestGroups(
        group, descending=not sort.pattern.parts[0].ascending, limit=limit, span_ms=spec.span_seconds * 1000
    )
