"""`$lookup`: to each document, what another collection has for it."""

from typing import Any, Final

from ...catalog.namespaces import Namespace
from ...common.errors import FailedToParse, IDLFailedToParse, IDLUnknownField, InvalidNamespace, TypeMismatch
from ...common.field_paths import parse_field_path
from ...common.values import Document, is_string, type_name
from ..expression.base import Expression, check_variable_name
from ..match.base import MatchNode
from ..match.logical import And
from ..plan.nodes import PlanNode
from .base import Fields, PipelineContext, Stage, StageParser, joined
from .inner import NEVER_INSIDE, check_stages, parsed, target
from .lookup_node import LookupNode
from .reshape import Unwind, replaced

_LOOKUP_KEYS: Final = ("from", "as", "localField", "foreignField", "let", "pipeline")


class Lookup(Stage):
    """`$lookup`."""

    name = "$lookup"

    def __init__(
        self,
        spec: Document,
        source: Namespace,
        context: PipelineContext,
        *,
        unwinding: Unwind | None = None,
        filter: MatchNode | None = None,
    ) -> None:
        """`unwinding` makes a row of each that is found; only what the `filter` lets through is found."""
        self.unwinding = unwinding
        self.filter = filter
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
        if "from" not in spec and "pipeline" not in spec:
            raise FailedToParse("must specify 'pipeline' when 'from' is empty")
        for name, value in spec.items():
            cls._check_option(name, value)
        # Null counts as left out, and so does an empty name of a field to join by.
        spec = {
            name: value
            for name, value in spec.items()
            if (value is not None or name == "from") and not (name in ("localField", "foreignField") and value == "")
        }
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
            check_stages(stage.pipeline, NEVER_INSIDE, 51047, "$lookup")
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

    @property
    def begins_with_documents(self) -> bool:
        """Whether its pipeline gives the rows itself that are chosen from."""
        return bool(self.pipeline) and "$documents" in (self.pipeline or [{}])[0]

    def with_unwinding(self, unwind: Unwind) -> "Lookup":
        """The same with the `$unwind` of what was found, which stood behind it."""
        return Lookup(self.spec, self.source, self.context, unwinding=unwind, filter=self.filter)

    def with_filter(self, filter: MatchNode) -> "Lookup":
        """The same for those alone of the other collection that match as well."""
        both = filter if self.filter is None else And([self.filter, filter]).simplified()
        return Lookup(self.spec, self.source, self.context, unwinding=self.unwinding, filter=both)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        shown: Document = {"from": self.spec["from"]} if "from" in self.spec else {}
        shown["as"] = self.spec["as"]
        if self.local is not None:
            shown |= {name: self.spec[name] for name in ("localField", "foreignField")}
        pipeline = list(self.pipeline or ())
        if self.filter is not None:
            pipeline.append({"$match": self.filter.serialize()})
        if pipeline or self.pipeline is not None:
            shown["let"] = {name: one.serialize() for name, one in self.let.items()}
            shown["pipeline"] = pipeline
        if self.unwinding is not None:
            shown["unwinding"] = {"preserveNullAndEmptyArrays": self.unwinding.keep_empty}
            if self.unwinding.index is not None:
                shown["unwinding"]["includeArrayIndex"] = self.unwinding.index
        return {self.name: shown}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return LookupNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        found = wanted if self.unwinding is None else self.unwinding.needs(wanted)
        if self.local is not None:
            found = joined(found, frozenset({".".join(self.local)}))
        for expression in self.let.values():
            found = joined(found, expression.fields())
        return found

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


STAGES: Final[dict[str, StageParser]] = {"$lookup": Lookup.parse}
