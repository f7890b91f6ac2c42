"""Updates written as a pipeline: `[{$set: {…}}, {$unset: …}, {$replaceWith: …}]`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from bson import DatetimeMS, Timestamp

from ...common.errors import FailedToParse, InvalidOptions, Location
from ...common.field_paths import parse_field_path
from ...common.ordering import Collator
from ...common.paths import as_object
from ...common.values import MISSING, Document, is_string, type_name
from ..expression.base import Expression
from ..expression.parse import ParseContext, parse_expression
from ..match.base import MatchNode
from ..projection import Projection, parse_projection
from ..projection_nodes import ProjectionNode
from .base import Update, identical
from .replacement import with_id_of
from .upsert import equality_document


class Step(ABC):
    """One stage: a new document of a document."""

    @abstractmethod
    def applied(self, document: Document, variables: Mapping[str, Any]) -> Document:
        """The new document."""


class AddFields(Step):
    """`$set` and `$addFields`."""

    def __init__(self, root: ProjectionNode) -> None:
        root.finish()
        self._root = root

    @property
    def names(self) -> frozenset[str]:
        """The fields of the top level that get another value."""
        return frozenset(self._root.order) | self._root.named

    def applied(self, document: Document, variables: Mapping[str, Any]) -> Document:
        """See `Step.applied`."""
        return self._root.apply(document, document, variables)


class Project(Step):
    """`$project` and `$unset`."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection

    def applied(self, document: Document, variables: Mapping[str, Any]) -> Document:
        """See `Step.applied`."""
        return self._projection.apply(document, variables)


class ReplaceRoot(Step):
    """`$replaceRoot` and `$replaceWith`."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def applied(self, document: Document, variables: Mapping[str, Any]) -> Document:
        """See `Step.applied`."""
        value = self._expression.evaluate(document, variables)
        replaced = as_object(value)
        if replaced is None:
            raise Location(
                40228,
                "'newRoot' expression must evaluate to an object, but resulting value was: "
                f"{'MISSING' if value is MISSING else type_name(value)}",
            )
        return replaced


class PipelineUpdate(Update):
    """The document goes through the stages; its `_id` stays."""

    is_pipeline = True

    def __init__(self, steps: list[Step], variables: Mapping[str, Any]) -> None:
        super().__init__()
        self._steps = steps
        self._variables = dict(variables)

    def upsert_base(self, filter: MatchNode) -> Document:
        """See `Update.upsert_base`."""
        return equality_document(filter)

    def apply(
        self,
        document: Document,
        *,
        is_insert: bool = False,
        matched_filter: MatchNode | None = None,
        matched_position: int | None = None,
        now: DatetimeMS,
    ) -> tuple[Document, bool]:
        """See `Update.apply`."""
        variables = {"NOW": now, "CLUSTER_TIME": Timestamp(int(now) // 1000, 1), **self._variables}
        result = document
        for step in self._steps:
            result = step.applied(result, variables)
        result = with_id_of(document, result)
        return (document, False) if identical(document, result) else (result, True)


class PipelineParser:
    """Builds the steps of one pipeline."""

    def __init__(
        self, *, collator: Collator | None, variables: Mapping[str, Any], provided: frozenset[str] = frozenset()
    ) -> None:
        """`provided` are variables that get their values when the steps are taken."""
        self._collator = collator
        self._variables = variables
        self._names = frozenset(variables) | provided | {"NOW"}

    def parse(self, pipeline: list[Any]) -> PipelineUpdate:
        """The update of an array of stages."""
        steps: list[Step] = []
        for stage in pipeline:
            if not isinstance(stage, dict):
                raise FailedToParse("Each element of the 'pipeline' array must be an object")
            if len(stage) != 1:
                raise Location(40323, "A pipeline stage specification object must contain exactly one field.")
            name, spec = next(iter(stage.items()))
            steps.append(self.step(name, spec))
        return PipelineUpdate(steps, self._variables)

    def step(self, name: str, spec: Any) -> Step:
        """One stage of those that updates may use."""
        match name:
            case "$set" | "$addFields":
                return self._add_fields(name, spec)
            case "$project":
                return Project(
                    parse_projection(spec, collator=self._collator, find=False, defined_variables=self._names)
                )
            case "$unset":
                return self._unset(spec)
            case "$replaceWith":
                return ReplaceRoot(self._expression(spec))
            case "$replaceRoot":
                return self._replace_root(spec)
            case _:
                raise InvalidOptions(f"{name} is not allowed to be used within an update")

    def _expression(self, spec: Any) -> Expression:
        return parse_expression(spec, ParseContext(collator=self._collator, variables=self._names))

    def _add_fields(self, name: str, spec: Any) -> Step:
        if not isinstance(spec, dict):
            raise Location(40272, f"{name} specification stage must be an object, got {type_name(spec)}")
        root = ProjectionNode(inclusion=False)
        taken: set[tuple[str, ...]] = set()
        for path, value in spec.items():
            self._add_field(root, taken, parse_field_path(path), value)
        return AddFields(root)

    def _add_field(self, root: ProjectionNode, taken: set[tuple[str, ...]], path: tuple[str, ...], value: Any) -> None:
        if isinstance(value, dict) and len(value) > 1 and next(iter(value)).startswith("$"):
            raise Location(40181, "an expression specification must contain exactly one field")
        if isinstance(value, dict) and value and not next(iter(value)).startswith("$"):
            for name, item in value.items():
                self._add_field(root, taken, (*path, *parse_field_path(name)), item)
            return
        if any(other[: len(path)] == path or path[: len(other)] == other for other in taken):
            raise Location(
                40176,
                f"Invalid $set :: caused by :: specification contains two conflicting paths at '{'.'.join(path)}'",
            )
        taken.add(path)
        node = root
        for part in path[:-1]:
            node = node.child(part)
        node.compute(path[-1], self._expression(value))

    def _unset(self, spec: Any) -> Step:
        names = [spec] if is_string(spec) else spec
        if not isinstance(names, list):
            raise Location(31002, f"$unset specification must be a string or an array, but found {type_name(spec)}")
        if not names:
            raise Location(31119, "$unset specification must be a string or an array with at least one field")
        for item in names:
            if not is_string(item):
                raise Location(31120, "$unset specification must be a string or an array containing only string values")
            if "\0" in item:
                raise Location(9527900, "$unset: field paths cannot contain null bytes")
        if len(set(names)) < len(names):
            raise Location(31250, "Invalid $unset :: caused by :: Path collision")
        return Project(parse_projection(dict.fromkeys(names, 0), find=False))

    def _replace_root(self, spec: Any) -> Step:
        if not isinstance(spec, dict):
            raise Location(40229, f"expected an object as specification for $replaceRoot stage, got {type_name(spec)}")
        for name in spec:
            if name != "newRoot":
                raise Location(40415, f"BSON field '$replaceRoot.{name}' is an unknown field.")
        if "newRoot" not in spec:
            raise Location(40414, "BSON field '$replaceRoot.newRoot' is missing but a required field")
        return ReplaceRoot(self._expression(spec["newRoot"]))
