"""`$bucket`: a `$group` by the boundary below the value."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from ...common.errors import Location
from ...common.ordering import compare, order_key
from ...common.values import MISSING, Document, type_name
from ..expression.base import Constant, Expression
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import Fields, PipelineContext, Stage, StageNode, StageParser
from .group import Group, GroupNode, parse_field


def parse_bucket(spec: Any, context: PipelineContext) -> Stage:
    """`$bucket`, which is a `$group` by the boundary below the value, in the order of boundaries."""
    if not isinstance(spec, dict):
        raise Location(40201, f"Argument to $bucket stage must be an object, but found type: {type_name(spec)}.")
    by = spec.get("groupBy", "$")
    if not (isinstance(by, str) and by.startswith("$")) and not (
        isinstance(by, dict) and next(iter(by), "").startswith("$")
    ):
        raise Location(
            40202,
            "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression object, but "
            f"found: {by}.",
        )
    for name, value in spec.items():
        if name == "boundaries" and not isinstance(value, list):
            raise Location(
                40200, f"The $bucket 'boundaries' field must be an array, but found type: {type_name(value)}."
            )
        if name == "output" and not isinstance(value, dict):
            raise Location(40196, f"The $bucket 'output' field must be an object, but found type: {type_name(value)}.")
        if name not in ("groupBy", "boundaries", "default", "output"):
            raise Location(40197, f"Unrecognized option to $bucket: {name}.")
    if "groupBy" not in spec or "boundaries" not in spec:
        raise Location(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.")
    if "_id" in (spec.get("output") or ()):
        raise Location(15948, "$bucket: a field named _id cannot be given in 'output'")
    boundaries = _boundaries(spec["boundaries"], context)
    default: Any = MISSING
    if "default" in spec:
        expression = context.expressions.parse(spec["default"])
        if not isinstance(expression, Constant):
            raise Location(40195, "The $bucket 'default' field must be a constant expression")
        default = expression.value
        below, above = (compare(default, boundaries[place], context.collation) for place in (0, -1))
        if below >= 0 and above < 0:
            raise Location(
                40199,
                "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest "
                "boundary.",
            )
    output = spec.get("output", {"count": {"$sum": 1}})
    accumulators = {name: parse_field(name, value, context) for name, value in output.items()}
    key = _BucketKey(context.expressions.parse(by), boundaries, default, context.collation)
    return Bucket(Group(key, accumulators, context.collation), spec)


def _boundaries(given: Any, context: PipelineContext) -> list[Any]:
    values = []
    for item in given:
        expression = context.expressions.parse(item)
        if not isinstance(expression, Constant):
            raise Location(40191, "The $bucket 'boundaries' field must be an array of constant expressions")
        values.append(expression.value)
    if len(values) < 2:
        raise Location(
            40192, f"The $bucket 'boundaries' field must have at least 2 values, but found {len(values)} value(s)."
        )
    for low, high in pairwise(values):
        if order_key(low)[0] != order_key(high)[0]:
            raise Location(40193, "All values in the the 'boundaries' option to $bucket must have the same type")
        if compare(low, high, context.collation) >= 0:
            raise Location(
                40194, "The 'boundaries' option to $bucket must be sorted, but elements are not in ascending order"
            )
    return values


class _BucketKey(Expression):
    """The boundary below a value."""

    def __init__(self, by: Expression, boundaries: list[Any], default: Any, collation: Any) -> None:
        self._by = by
        self._boundaries = boundaries
        self._default = default
        keys = [order_key(boundary, collation) for boundary in boundaries]

        def evaluate(document: Document, variables: Any) -> Any:
            value = by.evaluate(document, variables)
            key = order_key(value, collation)
            for position in range(len(keys) - 2, -1, -1):
                if keys[position] <= key:
                    if key < keys[position + 1]:
                        return boundaries[position]
                    break
            if default is MISSING:
                raise Location(
                    40066, "$switch could not find a matching branch for an input, and no default was specified."
                )
            return default

        self.evaluate = evaluate

    def children(self) -> list[Expression]:
        """See `Expression.children`."""
        return [self._by]

    def serialize(self) -> Any:
        """See `Expression.serialize`: the `$switch` that it stands for."""
        by = self._by.serialize()
        branches = [
            {
                "case": {"$and": [{"$gte": [by, {"$const": low}]}, {"$lt": [by, {"$const": high}]}]},
                "then": {"$const": low},
            }
            for low, high in pairwise(self._boundaries)
        ]
        default = {} if self._default is MISSING else {"default": {"$const": self._default}}
        return {"$switch": {"branches": branches, **default}}


class Bucket(Stage):
    """`$bucket`."""

    name = "$bucket"

    def __init__(self, group: Group, spec: Document) -> None:
        self.group = group
        self.spec = spec

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.spec}

    def explained(self) -> list[Document]:
        """See `Stage.explained`."""
        return [*self.group.explained(), {"$sort": {"sortKey": {"_id": 1}}}]

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _BucketNode(self, GroupNode(self.group, source))

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return self.group.needs(wanted)


class _BucketNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        rows: list[Document] = []
        for batch in self.inputs[0].batches(run):
            rows += [] if batch is None else batch.documents()
            yield None
        assert isinstance(self.of, Bucket)
        collation = self.of.group.collation
        rows.sort(key=lambda row: order_key(row["_id"], collation))
        self.stats.advanced = len(rows)
        if rows:
            yield RowBatch(documents=rows)


STAGES: Final[dict[str, StageParser]] = {"$bucket": parse_bucket}
