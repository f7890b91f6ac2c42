"""Stages that reshape documents one by one: `$match $project $set $unset $replaceRoot $unwind $redact` and `$documents`."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from bson import Int64

from ...common.errors import Location, MongoError
from ...common.field_paths import parse_field_path
from ...common.paths import get_path
from ...common.values import MISSING, Document, is_string, type_name
from ..columns.batch import ColumnBatch
from ..columns.compute import filter_mask
from ..expression.base import DESCEND, KEEP, PRUNE, Expression, FieldPath
from ..expression.metadata import METADATA_VARIABLE, metadata_read
from ..match.base import MatchNode
from ..match.parse import parse_filter
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from ..projection import Projection
from ..update.pipeline import AddFields, PipelineParser, Project, ReplaceRoot, Step
from .base import Fields, MapNode, PipelineContext, Rename, Stage, StageNode, StageParser, joined


class Match(Stage):
    """`$match`."""

    name = "$match"

    def __init__(self, matcher: MatchNode, spec: Document) -> None:
        self.matcher = matcher
        self.spec = spec

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Match":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise Location(15959, "the match filter must be an expression in an object")
        matcher = parse_filter(
            spec, collator=context.collation, defined_variables=context.expressions.variables, allow_near=False
        )
        return cls(matcher, spec)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.matcher.serialize()}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        matches = None

        def keep(batch: Batch, run: Run) -> Batch:
            nonlocal matches
            mask = filter_mask(self.matcher, batch) if isinstance(batch, ColumnBatch) else None
            if mask is not None:
                return batch if mask.all() else batch.select(np.flatnonzero(mask).tolist())
            if matches is None:
                matches = self.matcher.compile(run.variables)
            kept = [position for position, document in enumerate(batch.documents()) if matches(document)]
            return batch if len(kept) == len(batch) else batch.select(kept)

        return MapNode(self, source, keep)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return joined(wanted, self.matcher.fields())


class Reshape(Stage):
    """`$project $set $addFields $unset $replaceRoot $replaceWith`: each document by itself."""

    name = "$project"

    def __init__(self, name: str, step: Step, spec: Any) -> None:
        self.name = name  # type: ignore[misc]  # one class for the family, each with the name it was called by
        self.step = step
        self.spec = spec

    @property
    def projection(self) -> Projection | None:
        """The projection of `$project` and `$unset`."""
        return self.step._projection if isinstance(self.step, Project) else None

    def renames(self) -> Rename:
        """What a path at the top of a row was called before, as far as that is all that happened to it."""
        root = self.step._root if isinstance(self.step, AddFields) else None
        projection = self.projection
        if projection is not None:
            root = projection._root
        if root is None or (projection is not None and (projection._metas or projection._rewrites)):
            return lambda path: None
        copies = {
            name: one.path[0]
            for name, one in root.computed.items()
            if isinstance(one, FieldPath) and one.variable in ("CURRENT", "ROOT") and len(one.path) == 1
        }
        changed = set(root.order)
        kept = root.named if root.inclusion else None
        dropped = set() if root.inclusion else root.named

        def rename(path: str) -> str | None:
            first, dot, rest = path.partition(".")
            if first in copies:
                return copies[first] + dot + rest
            if first in changed or first in dropped or (kept is not None and first not in kept):
                return None
            return path

        return rename

    def metadata_read(self) -> frozenset[str]:
        """The kinds of metadata that its expressions read."""
        if isinstance(self.step, ReplaceRoot):
            return metadata_read(self.step._expression)
        root = self.step._root if isinstance(self.step, AddFields) else None
        if self.projection is not None:
            root = self.projection._root
        kinds = frozenset(kind for one in (() if root is None else root.expressions()) for kind in metadata_read(one))
        return kinds if self.projection is None else kinds | self.projection.needs_metadata

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        projection = self.projection
        if projection is not None:
            return {"$project": projection.serialize()}
        if isinstance(self.step, AddFields):
            return {"$addFields": self.step._root.serialize()}
        assert isinstance(self.step, ReplaceRoot)
        return {"$replaceRoot": {"newRoot": self.step._expression.serialize()}}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        projection = self.projection
        applied = self.step.applied

        reads_metadata = bool(self.metadata_read())

        def reshape(batch: Batch, run: Run) -> Batch:
            variables = run.variables
            if reads_metadata and batch.metadata is not None:
                return RowBatch(
                    documents=[
                        applied(document, {**variables, METADATA_VARIABLE: beside})
                        if projection is None
                        else projection.apply(document, {**variables, METADATA_VARIABLE: beside}, None, beside)
                        for document, beside in zip(batch.documents(), batch.metadata, strict=True)
                    ],
                    metadata=batch.metadata,
                )
            if projection is not None and batch.metadata is not None:
                rows = [
                    projection.apply(document, variables, None, beside)
                    for document, beside in zip(batch.documents(), batch.metadata, strict=True)
                ]
            else:
                rows = [applied(document, variables) for document in batch.documents()]
            return RowBatch(documents=rows, metadata=batch.metadata)

        return MapNode(self, source, reshape)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        projection = self.projection
        if projection is not None:
            return projection.required_fields() if projection.is_inclusion else wanted
        if isinstance(self.step, AddFields):
            found = wanted
            for computed in self.step._root.expressions():
                fields = computed.fields()
                found = joined(found, None if fields is None else frozenset(fields))
            return found
        assert isinstance(self.step, ReplaceRoot)
        return self.step._expression.fields()


def _reshape(name: str) -> StageParser:
    def parse(spec: Any, context: PipelineContext) -> Stage:
        if name == "$project" and isinstance(spec, dict) and not spec:
            raise Location(
                51272, "Invalid $project :: caused by :: projection specification must have at least one field"
            )
        if name == "$project" and not isinstance(spec, dict):
            raise Location(15969, "$project specification must be an object")
        parser = PipelineParser(collator=context.collation, variables=context.variables)
        try:
            return Reshape(name, parser.step(name, spec), spec)
        except MongoError as error:
            if name in ("$project", "$addFields", "$set") and not error.message.startswith("Invalid $"):
                raise error.with_context(f"Invalid {name}") from None
            raise

    return parse


class Unwind(Stage):
    """`$unwind`: a row for each element of an array."""

    name = "$unwind"

    def __init__(self, path: tuple[str, ...], index: str | None, keep_empty: bool) -> None:
        self.path = path
        self.index = index
        self.keep_empty = keep_empty

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Unwind":
        """Parse the operand."""
        index, keep_empty = None, False
        if isinstance(spec, dict):
            for name, value in spec.items():
                match name:
                    case "path":
                        if not is_string(value):
                            raise Location(
                                28808, f"expected a string as the path for $unwind stage, got {type_name(value)}"
                            )
                    case "includeArrayIndex":
                        if not is_string(value) or not value:
                            raise Location(
                                28810, "expected a non-empty string for the includeArrayIndex option to $unwind stage"
                            )
                        if value.startswith("$"):
                            raise Location(
                                28822,
                                f"includeArrayIndex option to $unwind stage should not be prefixed with a '$': {value}",
                            )
                        index = value
                    case "preserveNullAndEmptyArrays":
                        if not isinstance(value, bool):
                            raise Location(
                                28809, "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage"
                            )
                        keep_empty = value
                    case _:
                        raise Location(28811, f"unrecognized option to $unwind stage: {name}")
            path = spec.get("path")
            if path is None:
                raise Location(28812, "no path specified to $unwind stage")
        elif is_string(spec):
            path = spec
        else:
            raise Location(
                15981,
                f"expected either a string or an object as specification for $unwind stage, got {type_name(spec)}",
            )
        if not path:
            raise Location(28812, "no path specified to $unwind stage")
        if "\0" in path:
            raise Location(16419, "field path must not contain embedded null bytes")
        if not path.startswith("$"):
            raise Location(28818, f"path option to $unwind stage should be prefixed with a '$': {path}")
        return cls(parse_field_path(path[1:]), index, keep_empty)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        shown: Document = {"path": "$" + ".".join(self.path)}
        if self.keep_empty:
            shown["preserveNullAndEmptyArrays"] = True
        if self.index is not None:
            shown["includeArrayIndex"] = self.index
        return {self.name: shown}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""

        def unwind(batch: Batch, run: Run) -> Batch:
            if batch.metadata is None:
                return RowBatch(documents=[row for document in batch.documents() for row in self._rows(document)])
            pairs = [
                (row, beside)
                for document, beside in zip(batch.documents(), batch.metadata, strict=True)
                for row in self._rows(document)
            ]
            return RowBatch(documents=[row for row, _ in pairs], metadata=[beside for _, beside in pairs])

        return MapNode(self, source, unwind)

    def _rows(self, document: Document) -> Iterator[Document]:
        value = get_path(document, self.path)
        if isinstance(value, list) and value:
            for position, item in enumerate(value):
                yield self.with_item(document, item, Int64(position))
        elif isinstance(value, list) or value is None or value is MISSING:
            if self.keep_empty:
                yield self.with_item(document, MISSING, None) if isinstance(value, list) else self._kept(document)
        else:
            yield self.with_item(document, value, None)

    def _kept(self, document: Document) -> Document:
        return document if self.index is None else replaced(document, parse_field_path(self.index), None)

    def with_item(self, document: Document, value: Any, position: Int64 | None) -> Document:
        """The row for one element of the array; MISSING where there is none."""
        row = replaced(document, self.path, value)
        return row if self.index is None else replaced(row, parse_field_path(self.index), position)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return joined(wanted, frozenset({".".join(self.path)}))


def replaced(document: Document, path: tuple[str, ...], value: Any) -> Document:
    """The document with another value at a path of objects; MISSING takes it out."""
    first, *rest = path
    if rest:
        inner = document.get(first)
        value = replaced(inner if isinstance(inner, dict) else {}, tuple(rest), value)
    if value is MISSING:
        return {name: item for name, item in document.items() if name != first}
    return {**document, first: value}


class Redact(Stage):
    """`$redact`: keeps, prunes or descends into each level of a document."""

    name = "$redact"

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Redact":
        """Parse the operand."""
        return cls(context.expressions.parse(spec))

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.expression.serialize()}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""

        def redact(batch: Batch, run: Run) -> Batch:
            rows = [self._level(document, {**run.variables, "ROOT": document}) for document in batch.documents()]
            return RowBatch(documents=[row for row in rows if row is not MISSING])

        return MapNode(self, source, redact)

    def _level(self, document: Document, variables: dict[str, Any]) -> Any:
        verdict = self.expression.evaluate(document, variables)
        if verdict is KEEP:
            return document
        if verdict is PRUNE:
            return MISSING
        if verdict is not DESCEND:
            raise Location(
                17053,
                "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE",
            )
        made = {name: self._value(value, variables) for name, value in document.items()}
        return {name: value for name, value in made.items() if value is not MISSING}

    def _value(self, value: Any, variables: dict[str, Any]) -> Any:
        if isinstance(value, dict):
            return self._level(value, variables)
        if isinstance(value, list):
            return [kept for item in value if (kept := self._value(item, variables)) is not MISSING]
        return value


class Documents(Stage):
    """`$documents`: rows that the pipeline itself gives."""

    name = "$documents"
    is_source = True
    collectionless = True

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Documents":
        """Parse the operand."""
        return cls(context.expressions.parse(spec))

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.expression.serialize()}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _DocumentsNode(self)


class _DocumentsNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        assert isinstance(self.of, Documents)
        rows = self.of.expression.evaluate({}, run.variables)
        if not isinstance(rows, list):
            raise Location(5858203, "an array is expected")
        for row in rows:
            if not isinstance(row, dict):
                raise Location(
                    40228, f"'newRoot' expression must evaluate to an object, but resulting value was: {type_name(row)}"
                )
        yield RowBatch(documents=rows)


STAGES: Final[dict[str, StageParser]] = {
    "$addFields": _reshape("$addFields"),
    "$documents": Documents.parse,
    "$match": Match.parse,
    "$project": _reshape("$project"),
    "$redact": Redact.parse,
    "$replaceRoot": _reshape("$replaceRoot"),
    "$replaceWith": _reshape("$replaceWith"),
    "$set": _reshape("$set"),
    "$unset": _reshape("$unset"),
    "$unwind": Unwind.parse,
}
