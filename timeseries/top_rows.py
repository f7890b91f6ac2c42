"""The first few measurements in an order of their own fields: columns tell which can be among them, before rows are built."""

from collections.abc import Sequence
from typing import Final

from ..common.values import Document
from ..query.columns.batch import ColumnBatch
from ..query.columns.top import first_rows
from ..query.match.base import MatchNode
from ..query.pipeline.base import Fields, MapNode, Stage
from ..query.pipeline.order import Limit, Sort
from ..query.plan.batches import Batch
from ..query.plan.nodes import PlanNode, Run
from .unpack_stage import UnpackSpec

_LIMIT_MAX: Final = 10_000


class TopRows(Stage):
    """Leaves out of each batch what cannot be among the first rows; the `$sort` behind it does the rest."""

    name = "$sort"

    def __init__(self, sort: Sort, limit: int) -> None:
        self._sort = sort
        self._limit = limit

    def columns(self, filter: MatchNode | None) -> tuple[str, ...]:
        """The columns that it and a filter read."""
        tested = frozenset() if filter is None else filter.fields() or frozenset()
        return tuple(sorted({*self._sort.pattern.fields, *(path.partition(".")[0] for path in tested)}))

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return self._sort.serialize()

    def explained(self) -> list[Document]:
        """See `Stage.explained`: it is part of the `$sort`."""
        return []

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        pattern, collated = self._sort.pattern, self._sort.collation is not None

        def best(batch: Batch, run: Run) -> Batch:
            if not isinstance(batch, ColumnBatch) or len(batch) <= self._limit:
                return batch
            rows = first_rows(batch, pattern, self._limit, collated=collated)
            return batch if rows is None else batch.select(rows)

        return MapNode(self, source, best)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return wanted


def top_rows(spec: UnpackSpec, behind: Sequence[Stage]) -> TopRows | None:
    """The stage that goes before a `$sort` with a limit; None where no few rows in an order of columns are wanted."""
    if not behind or not isinstance(behind[0], Sort) or spec.exclude or spec.computed_meta:
        return None
    sort = behind[0]
    limit = sort.limit
    if limit is None and len(behind) > 1 and isinstance(behind[1], Limit):
        limit = behind[1].amount
    if limit is None or limit > _LIMIT_MAX or sort.pattern.metadata:
        return None
    if any("." in path or path == spec.meta_field for path in sort.pattern.fields):
        return None
    return TopRows(sort, limit)
