"""`$addFields` and `$project` over columns: what is computed is put into rows as they are built, what is not kept left out."""

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from ...common.values import MISSING, Document
from ..columns.arranged import Arranged, added
from ..columns.batch import ABSENT, ColumnBatch
from ..columns.computed import absent_value, can_compute, computed
from ..columns.operands import Unfit
from ..expression.base import Expression
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from ..projection_nodes import ProjectionNode
from ..update.pipeline import AddFields, Project
from .base import Fields, Stage, StageNode, joined
from .column_stages import PART_ROWS
from .reshape import Reshape


class ComputedFields(Stage):
    """A `$set`, `$addFields` or `$project` whose fields columns can compute."""

    def __init__(self, stage: Reshape, fields: list[tuple[str, Expression]], kept: dict[str, Any] | None) -> None:
        self.name = stage.name  # type: ignore[misc]  # it goes by any of the names
        self.stage = stage
        self.fields = fields
        self.kept = kept
        """What stays of rows; None where all of it does."""
        self.gives_columns = False
        """Whether who takes its rows looks at columns."""

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return self.stage.serialize()

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _ComputedNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return self.stage.needs(wanted)

    def columns(self) -> Fields:
        """The paths that it reads itself."""
        found: Fields = frozenset()
        for _, expression in self.fields:
            found = joined(found, expression.fields())
        return found

    def giving_columns(self) -> "ComputedFields":
        """The same for a stage behind it that looks at columns."""
        made = copy(self)
        made.gives_columns = True
        return made


class _ComputedNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, ComputedFields)
        for batch in self.inputs[0].batches(run):
            if batch is None or not len(batch):
                yield None
                continue
            made = self._with_fields(stage, batch) if isinstance(batch, ColumnBatch) else None
            if made is None:
                for start in range(0, len(batch), run.batch_rows):
                    rows = batch.slice(start, start + run.batch_rows)
                    self.stats.advanced += len(rows)
                    applied = stage.stage.step.applied
                    yield RowBatch(documents=[applied(document, run.variables) for document in rows.documents()])
                continue
            for part in made.parts(PART_ROWS):
                self.stats.advanced += len(part)
                yield part if stage.gives_columns else part.as_rows()
                yield None
        self.stats.eof = True

    @staticmethod
    def _with_fields(stage: ComputedFields, batch: ColumnBatch) -> Arranged | None:
        """The rows with their fields; None where rows have to tell."""
        rows = len(batch)
        try:
            fields = []
            for name, expression in stage.fields:
                column = computed(expression, batch)
                gaps = column.kind == ABSENT or column.present is not None
                if gaps and absent_value(expression, column) is MISSING:
                    # What is missing is left out.
                    return None
                fields.append((name, added(column, rows)))
        except Unfit:
            return None
        one = np.zeros(1, dtype=np.int64)
        made = Arranged(batch.as_segments(), np.arange(rows), one, np.zeros(rows, dtype=np.bool_))
        for name, field in fields:
            made.add(name, field)
        if stage.kept is not None:
            made.keep(stage.kept)
        return made


def computed_fields(stage: Reshape, time_field: str, shared_field: str | None) -> ComputedFields | None:
    """The stage over columns; None where these cannot compute its fields."""
    step = stage.step
    if stage.metadata_read():
        return None
    kept = None
    if isinstance(step, AddFields):
        root = step._root
        if root.named or root.children:
            return None
    elif isinstance(step, Project) and step._projection.is_plain_inclusion:
        root = step._projection._root
        kept = _kept(root)
        if kept is None:
            return None
    else:
        return None
    fields: list[tuple[str, Expression]] = []
    for name in root.order:
        expression = root.computed.get(name)
        if expression is None:
            continue
        if not isinstance(expression, Expression) or not can_compute(expression, shared_field):
            return None
        if kept is None and name in (time_field, shared_field):
            return None
        fields.append((name, expression))
    return ComputedFields(stage, fields, kept)


def _kept(root: ProjectionNode) -> dict[str, Any] | None:
    """What an inclusion keeps; None where it computes anything below the top."""
    kept: dict[str, Any] = dict.fromkeys(root.named)
    for name, child in root.children.items():
        below = None if child.has_computed else _kept(child)
        if below is None:
            return None
        kept[name] = below
    return kept
