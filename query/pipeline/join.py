"""Stages that read other collections: `$lookup $graphLookup $unionWith`."""

from collections.abc import Iterator
from typing import Any, Final

from bson import Int64

from ...catalog.namespaces import Namespace
from ...common.errors import FailedToParse, IDLFailedToParse, IDLUnknownField, InvalidNamespace, Location, TypeMismatch
from ...common.field_paths import parse_field_path
from ...common.ordering import OrderKey, order_key
from ...common.paths import path_values
from ...common.values import MISSING, Document, encode, is_string, type_name
from ..expression.base import Expression, check_variable_name
from ..match.parse import parse_filter
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import PipelineContext, Stage, StageNode, StageParser
from .inner import check_stages, equal_to_any, inner_documents, parsed, run_inner, sources_of, target
from .reshape import replaced

_LOOKUP_KEYS: Final = ("from", "as", "localField", "foreignField", "let", "pipeline")
_NEVER_INSIDE: Final = ("$changeStreamSplitLargeEvent",)


def local_values(document: Document, path: tuple[str, ...]) -> list[Any]:
    """What a document joins by: the elements of an array, each value on the way through arrays, null where there is none."""
    found: list[Any] = []
    for value in path_values(document, path, expand=False):
        if isinstance(value, list):
            found += value
        else:
            found.append(None if value is MISSING else value)
    return found or [None]


class Lookup(Stage):
    """`$lookup`."""

    name = "$lookup"

    def __init__(self, spec: Document, source: Namespace, context: PipelineContext) -> None:
        self.spec = spec
        self.source = source
        self.context = context
        self.output = parse_field_path(spec["as"])
        self.local = parse_field_path(spec["localField"]) if "localField" in spec else None
        self.foreign = parse_field_path(spec["foreignField"]) if "foreignField" in spec else None
        self.pipeline: list[Document] | None = spec.get("pipeline")
        self.let: dict[str, Expression] = {
            name: context.expressions.parse(value) for name, value in spec.get("let", {}).items()
        }

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Lookup":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise FailedToParse(f"the $lookup stage specification must be an object, but found {type_name(spec)}")
        for name, value in spec.items():
            cls._check_option(name, value)
        # Null counts as left out, and so does an empty name of a field to join by.
        spec = {
            name: value
            for name, value in spec.items()
            if (value is not None or name == "from") and not (name in ("localField", "foreignField") and value == "")
        }
        if "from" not in spec and "pipeline" not in spec:
            raise FailedToParse("must specify 'pipeline' when 'from' is empty")
        if "as" not in spec:
            raise IDLFailedToParse("BSON field '$lookup.as' is missing but a required field")
        if ("localField" in spec) != ("foreignField" in spec):
            raise FailedToParse("$lookup requires both or neither of 'localField' and 'foreignField' to be specified")
        if "pipeline" not in spec:
            if "localField" not in spec:
                raise FailedToParse("$lookup requires either 'pipeline' or both 'localField' and 'foreignField'")
            if "let" in spec:
                raise FailedToParse("$lookup with a 'let' argument must also specify 'pipeline'")
        source = _source(spec, context)
        stage = cls(spec, source, context)
        if stage.pipeline is not None:
            check_stages(stage.pipeline, _NEVER_INSIDE, 51047, "$lookup")
            for variable in stage.let:
                check_variable_name(variable)
            parsed(stage.pipeline, context.inside(cls.name, source, dict.fromkeys(stage.let)))
        return stage

    @staticmethod
    def _check_option(name: str, value: Any) -> None:
        if name not in _LOOKUP_KEYS:
            raise IDLUnknownField(f"BSON field '$lookup.{name}' is an unknown field.")
        if name == "from":
            if not is_string(value) and not isinstance(value, dict):
                raise FailedToParse(f"$lookup argument 'from' must be a string or object, is type {type_name(value)}")
            return
        if value is None and name != "pipeline":
            return
        wanted = {"pipeline": "array", "let": "object"}.get(name, "string")
        fits = {"array": isinstance(value, list), "object": isinstance(value, dict), "string": is_string(value)}[wanted]
        if not fits:
            raise TypeMismatch(
                f"BSON field '$lookup.{name}' is the wrong type '{type_name(value)}', expected type '{wanted}'"
            )

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.spec}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _LookupNode(self, source)

    def with_rows(self, document: Document, rows: list[Document]) -> Document:
        """The document with what was found for it."""
        return replaced(document, self.output, rows)


def _source(spec: Document, context: PipelineContext) -> Namespace:
    name = spec.get("from")
    pipeline = spec.get("pipeline", [])
    first = pipeline[0] if pipeline and isinstance(pipeline[0], dict) else {}
    begins = next(iter(first), "") == "$documents"
    if name is None:
        if not begins:
            raise FailedToParse("must specify 'from' unless the pipeline begins with $documents")
        return context.namespace
    if begins:
        raise InvalidNamespace("$documents is not allowed in a $lookup that names a collection")
    if isinstance(name, dict):
        for key in name:
            if key not in ("db", "coll"):
                raise IDLUnknownField(f"BSON field '$lookup.from.{key}' is an unknown field.")
        for key in ("db", "coll"):
            if key in name and not is_string(name[key]):
                raise TypeMismatch(
                    f"BSON field '$lookup.from.{key}' is the wrong type '{type_name(name[key])}', expected type 'string'"
                )
        raise FailedToParse("$lookup with syntax {from: {db:<>, coll:<>},..} is not supported for this database")
    return target(context, name)


class _LookupNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, Lookup)
        kept: list[Document] | None = None
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            documents = batch.documents()
            made: list[Document] = []
            if stage.pipeline is None:
                found: list[list[Document]] = []
                for joined_rows in self._joined(stage, documents, run):
                    if joined_rows is None:
                        yield None
                    else:
                        found = joined_rows
                made = [stage.with_rows(one, belonging) for one, belonging in zip(documents, found, strict=True)]
            else:
                for document in documents:
                    rows = kept
                    if rows is None:
                        rows = []
                        for row in self._piped(stage, document, run):
                            if row is None:
                                yield None
                            else:
                                rows.append(row)
                        if not stage.let and stage.local is None and not stage.context.variables:
                            # Nothing of the outer document goes in, so that every one of them gets the same.
                            kept = rows
                    made.append(stage.with_rows(document, rows))
            self.stats.advanced += len(made)
            yield RowBatch(documents=made, metadata=batch.metadata)
        self.stats.eof = True

    def _joined(self, stage: Lookup, documents: list[Document], run: Run) -> Iterator[list[list[Document]] | None]:
        """What belongs to each of the documents, by one reading of the other collection for all of them."""
        assert stage.local is not None
        assert stage.foreign is not None
        collation = stage.context.collation
        wanted: dict[OrderKey, tuple[Any, list[int]]] = {}
        for position, document in enumerate(documents):
            for value in local_values(document, stage.local):
                places = wanted.setdefault(order_key(value, collation), (value, []))[1]
                if not places or places[-1] != position:
                    places.append(position)
        found: list[list[Document]] = [[] for _ in documents]
        condition = {"$match": equal_to_any(".".join(stage.foreign), [value for value, _ in wanted.values()])}
        variables = dict(stage.context.variables)
        for row in inner_documents(stage.context, stage.source, [condition], run, variables) if wanted else ():
            if row is None:
                yield None
                continue
            keys = {
                order_key(None if value is MISSING else value, collation) for value in path_values(row, stage.foreign)
            }
            places_of_row = sorted({place for key in keys if key in wanted for place in wanted[key][1]})
            for place in places_of_row:
                found[place].append(row)
        yield found

    def _piped(self, stage: Lookup, document: Document, run: Run) -> Iterator[Document | None]:
        """The rows of the pipeline for one document."""
        assert stage.pipeline is not None
        pipeline = stage.pipeline
        variables = {name: one.evaluate(document, run.variables) for name, one in stage.let.items()}
        if stage.local is not None and stage.foreign is not None:
            condition = equal_to_any(".".join(stage.foreign), local_values(document, stage.local))
            # Rows that the pipeline gives itself come before they are chosen from.
            begun = 1 if pipeline and "$documents" in pipeline[0] else 0
            pipeline = [*pipeline[:begun], {"$match": condition}, *pipeline[begun:]]
        yield from inner_documents(stage.context, stage.source, pipeline, run, variables)


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
        check_stages(pipeline, _NEVER_INSIDE, 31441, "$unionWith")
        if name is None:
            if next(iter(pipeline[0] if pipeline else {}), "") != "$documents":
                raise FailedToParse("$unionWith must specify 'coll' or a 'pipeline' that begins with $documents")
            source = context.namespace
        else:
            source = target(context, name)
        parsed(pipeline, context.inside(cls.name, source))
        return cls(source, pipeline, spec, context)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: {"coll": self.source.collection, "pipeline": self.pipeline}}

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
                if value != int(value):
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
            variables = dict(stage.context.variables)
            for row in inner_documents(stage.context, stage.source, [{"$match": condition}], run, variables):
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
    "$lookup": Lookup.parse,
    "$unionWith": UnionWith.parse,
}
