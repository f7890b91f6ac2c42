"""Counts of measurements, by meta or in all: from what buckets say of themselves, without unpacking any."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..common.values import Document
from ..query.columns.told import TotalsWanted
from ..query.pipeline.base import PipelineContext, Stage
from ..query.pipeline.group import Count, Group
from ..query.pipeline.parse import parse_pipeline
from ..query.plan.nodes import PlanNode
from .predicates import renamed_expression
from .unpack_stage import UnpackSpec, UnpackStage


class CountedBuckets(Stage):
    """A count of measurements by what buckets say of themselves; explain shows the stages on buckets that it stands for."""

    name = "$group"

    def __init__(self, counting: Stage, shown: Sequence[Stage], unpack: UnpackStage) -> None:
        self._counting = counting
        self._shown = shown
        self._unpack = unpack
        self.spec = unpack.spec

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return self._shown[0].serialize()

    def explained(self) -> list[Document]:
        """See `Stage.explained`."""
        return [document for stage in self._shown for document in stage.explained()]

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return self._counting.node(self._unpack.node(source))


def counted_stages(spec: UnpackSpec, behind: Sequence[Stage], context: PipelineContext) -> list[Stage] | None:
    """Stages on buckets in the place of a count of measurements, by meta or in all."""
    if spec.event_filter is not None or not behind:
        return None
    first, *others = behind
    size: Document = {
        "$cond": [
            {"$gte": ["$control.version", 2]},
            "$control.count",
            {"$size": {"$objectToArray": f"$data.{spec.time_field}"}},
        ]
    }
    if isinstance(first, Count):
        made = [{"$group": {"_id": None, first.field: {"$sum": size}}}, {"$project": {"_id": 0}}]
    elif (
        isinstance(first, Group) and first.accumulators and all(_counts_one(one) for one in first.accumulators.values())
    ):
        key = renamed_expression(first.key, spec.meta_field)
        if key is None:
            return None
        made = [{"$group": {"_id": key.value, **{name: {"$sum": size} for name in first.accumulators}}}]
    else:
        return None
    shown = parse_pipeline(made, context).stages
    meta = () if spec.meta_field is None else (spec.meta_field,)
    totals = TotalsWanted() if isinstance(first, Count) else totals_of(first, spec)
    counting = replace(spec, include=meta, exclude=None, columnar=True, totals=totals)
    return [
        CountedBuckets(first, shown, UnpackStage(counting)),
        *others,
    ]


def totals_of(stage: Stage, spec: UnpackSpec) -> TotalsWanted | None:
    """What buckets would have to tell for a stage; None where it needs measurements."""
    if not isinstance(stage, Group):
        return None
    group = stage.over_columns(spec.time_field, spec.meta_field)
    return None if group is None else group.totals()


def _counts_one(accumulator: Any) -> bool:
    if accumulator.name == "$count":
        return True
    shown = accumulator.serialize().get("$sum")
    return (
        accumulator.name == "$sum"
        and isinstance(shown, dict)
        and shown == {"$const": 1}
        and type(shown["$const"]) is int
    )
