"""Stages that read other collections: `$graphLookup` and `$unionWith` (`$lookup` has files of its own)."""

from collections.abc import Iterator
from typing import Any, Final

from bson import Int64

from ...catalog.namespaces import Namespace
from ...common.errors import FailedToParse, IDLUnknownField, Location, TypeMismatch
from ...common.field_paths import parse_field_path
from ...common.ordering import OrderKey, order_key
from ...common.paths import path_values
from ...common.values import MISSING, Document, encode, is_string, type_name
from ..match.parse import parse_filter
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import Fields, PipelineContext, Stage, StageNode, StageParser, joined
from .inner import NEVER_INSIDE, check_stages, equal_to_any, inner_documents, parsed, run_inner, sources_of, target
from .reshape import replaced


class UnionWith(Stage):
    """`$unionWith`: the rows of another pipeline after those of this one."""

    name = "$unionWith"

    def __init__(self, source: Namespace, pipeline: list[Document], spec: Any, context: PipelineContext) -> None:
        self.source = source
        self.pipeline = pipeline
        self.spec = spec
        self.context = context

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "UnionWith":
        """Parse the operand."""
        pipeline: Any = []
        name: Any = spec
        if isinstance(spec, dict):
            for key in spec:
                if key not in ("coll", "pipeline", "db"):
                    raise IDLUnknownField(f"BSON field '$unionWith.{key}' is an unknown field.")
            name, pipeline = spec.get("coll"), spec.get("pipeline", [])
            if "coll" not in spec and "pipeline" not in spec:
                raise FailedToParse("$unionWith must specify 'coll' or a 'pipeline' that begins with $documents")
            if "coll" in spec and not is_string(name):
                raise TypeMismatch(
                    f"BSON field '$unionWith.coll' is the wrong type '{type_name(name)}', expected type 'string'"
                )
        elif not is_string(spec):
            raise FailedToParse(
                f"the $unionWith stage specification must be an object or string, but found {type_name(spec)}"
            )
        check_stages(pipeline, NEVER_INSIDE, 31441, "$unionWith")
        if name is None:
            if next(iter(pipeline[0] if pipeline else {}), "") != "$documents":
                raise FailedToParse("$unionWith must specify 'coll' or a 'pipeline' that begins with $documents")
            source = context.namespace
        else:
            source = target(context, name)
        parsed(pipeline, context.inside(cls.name, source))
        return cls(source, pipeline, spec, context)

    def followed_by(self, stage: Document) -> "UnionWith":
        """The same, the rows of the other pipeline through one more stage."""
        return UnionWith(self.source, [*self.pipeline, stage], self.spec, self.context)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: {"coll": self.source.collection, "pipeline": self.pipeline}}

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return wanted

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _UnionNode(self, source)


class _UnionNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, UnionWith)
        for batch in self.inputs[0].batches(run):
            self.stats.advanced += 0 if batch is None else len(batch)
            yield batch
        node = sources_of(stage.context).plan(stage.source, stage.pipeline, stage.context)
        for batch in run_inner(node, run, run.variables):
            self.stats.advanced += 0 if batch is None else len(batch)
            yield batch
        self.stats.eof = True


_GRAPH_KEYS: Final = (
    "from", "startWith", "connectFromField", "connectToField", "as", "maxDepth", "depthField", "restrictSearchWithMatch",
)  # fmt: skip


class GraphLookup(Stage):
    """`$graphLookup`: what can be reached from a document, breadth first."""

    name = "$graphLookup"

    def __init__(self, spec: Document, source: Namespace, context: PipelineContext) -> None:
        self.spec = spec
        self.source = source
        self.context = context
        self.start = context.expressions.parse(spec["startWith"])
        self.connect_from = parse_field_path(spec["connectFromField"])
        self.connect_to = parse_field_path(spec["connectToField"])
        self.output = parse_field_path(spec["as"])
        self.depth_max: int | None = None if "maxDepth" not in spec else int(spec["maxDepth"])
        self.depth_field = parse_field_path(spec["depthField"]) if "depthField" in spec else None
        self.restriction: Document = spec.get("restrictSearchWithMatch", {})

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "GraphLookup":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise FailedToParse(f"the $graphLookup stage specification must be an object, but found {type_name(spec)}")
        for name, value in spec.items():
            if name not in _GRAPH_KEYS:
                raise Location(40104, f"unknown argument to $graphLookup: {name}")
            if name == "maxDepth":
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise Location(40100, f"maxDepth must be numeric, found type: {type_name(value)}")
                if value < 0:
                    raise Location(40101, f"maxDepth requires a nonnegative argument, found: {value}")
                if isinstance(value, float) and not (value.is_integer() and value < 2**63):
                    raise Location(40102, f"maxDepth could not be represented as a long long: {value}")
            elif name == "restrictSearchWithMatch":
                if not isinstance(value, dict):
                    raise Location(40185, f"restrictSearchWithMatch must be an object, found {type_name(value)}")
                parse_filter(value, collator=context.collation, defined_variables=context.expressions.variables)
            elif name == "from" and isinstance(value, dict):
                raise FailedToParse("$graphLookup argument 'from' must be a string")
            elif name != "startWith" and not is_string(value):
                raise Location(40103, f"expected string as argument for {name}, found: {type_name(value)}")
            elif name in ("connectFromField", "connectToField", "as", "depthField") and value.startswith("$"):
                raise Location(
                    16410, f"FieldPath field names may not start with '$'. Consider using $getField: {value}"
                )
        for name in _GRAPH_KEYS[:5]:
            if name not in spec:
                if name == "from":
                    raise FailedToParse("missing 'from' option to $graphLookup stage specification")
                raise Location(
                    40105, "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField'"
                )
        return cls(spec, target(context, spec["from"]), context)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.spec}

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return joined(wanted, self.start.fields())

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _GraphNode(self, source)


class _GraphNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, GraphLookup)
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            made = []
            for document in batch.documents():
                rows: list[Document] = []
                for row in self._reached(stage, document, run):
                    if row is None:
                        yield None
                    else:
                        rows.append(row)
                made.append(replaced(document, stage.output, rows))
            self.stats.advanced += len(made)
            yield RowBatch(documents=made, metadata=batch.metadata)
        self.stats.eof = True

    def _reached(self, stage: GraphLookup, document: Document, run: Run) -> Iterator[Document | None]:
        collation = stage.context.collation
        start = stage.start.evaluate(document, run.variables)
        frontier = start if isinstance(start, list) else [None if start is MISSING else start]
        seen_values: set[OrderKey] = set()
        seen_rows: set[OrderKey] = set()
        path = ".".join(stage.connect_to)
        depth = 0
        size = 0
        while frontier and (stage.depth_max is None or depth <= stage.depth_max):
            fresh = []
            for value in frontier:
                key = order_key(value, collation)
                if key not in seen_values:
                    seen_values.add(key)
                    fresh.append(value)
            if not fresh:
                return
            condition: Document = equal_to_any(path, fresh)
            if stage.restriction:
                condition = {"$and": [condition, stage.restriction]}
            frontier = []
            for row in inner_documents(stage.context, stage.source, [{"$match": condition}], run, {}):
                if row is None:
                    yield None
                    continue
                identity = order_key(row.get("_id", MISSING))
                if identity in seen_rows:
                    continue
                seen_rows.add(identity)
                size += 3 * len(encode(row))
                if size > run.memory_bytes_max:
                    raise Location(40099, "$graphLookup reached maximum memory consumption")
                for value in path_values(row, stage.connect_from):
                    if value is not MISSING and not isinstance(value, list):
                        frontier.append(value)
                yield row if stage.depth_field is None else replaced(row, stage.depth_field, Int64(depth))
            depth += 1


STAGES: Final[dict[str, StageParser]] = {
    "$graphLookup": GraphLookup.parse,
    "$unionWith": UnionWith.parse,
}
