"""`$geoNear`: the documents nearest to a point, with their distances."""

import math
from collections.abc import Mapping
from typing import Any, Final

from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...common.errors import BadValue, IndexNotFound, Location, NamespaceNotFound, TypeMismatch
from ...common.field_paths import parse_field_path
from ...common.numbers import is_number
from ...common.paths import Path
from ...common.values import Document, type_name
from ..expression.base import Expression
from ..expression.parse import parse_expression
from ..match.base import MatchNode
from ..match.elements import truthy
from ..match.geo import GeoNear as NearCondition
from ..match.logical import And
from ..match.parse import parse_filter
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import Fields, MapNode, PipelineContext, Stage, StageParser

_OPTIONS: Final = frozenset(
    {
        "near", "distanceField", "spherical", "maxDistance", "minDistance", "query", "distanceMultiplier", "includeLocs",
        "key", "uniqueDocs",
    }
)  # fmt: skip
_GONE: Final = {
    "limit": (50858, "$geoNear no longer supports the 'limit' parameter. Use a $limit stage instead."),
    "num": (50857, "$geoNear no longer supports the 'num' parameter. Use a $limit stage instead."),
}
_KEY_DEPTH_MAX: Final = 180
_FIELD_DEPTH_MAX: Final = 199
_PAIR_OR_TRIPLE: Final = (2, 3)


class GeoNear(Stage):
    """`$geoNear`."""

    name = "$geoNear"

    def __init__(self, spec: Document, context: PipelineContext) -> None:
        self._spec = spec
        self._near = _constant(spec["near"], context, 5860402, "near")
        self._variables = context.variables
        self._limits = {
            name: _constant(spec[name], context, code, name)
            for name, code in (("minDistance", 7555701), ("maxDistance", 7555702))
            if name in spec
        }
        self.distance_field = _path(spec, "distanceField", 16606)
        self.places_field = _path(spec, "includeLocs", 16607)
        self.spherical = truthy(spec.get("spherical", False))
        self.multiplier = _multiplier(spec)
        self.key = _key(spec)
        filter = spec.get("query", {})
        if not isinstance(filter, dict):
            raise TypeMismatch(f"$geoNear parameter 'query' must be an object, found {type_name(filter)}")
        self.filter = parse_filter(
            filter,
            collator=context.collation,
            defined_variables=context.expressions.variables,
            allow_near=False,
            allow_text=False,
        )
        # What is wrong with the point is told before anybody looks for an index.
        self.condition("")

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "GeoNear":
        """Parse the operand."""
        if isinstance(spec, list):
            spec = {str(position): item for position, item in enumerate(spec)}
        if not isinstance(spec, dict):
            raise Location(10065, f"invalid parameter: expected an object ($geoNear), found {type_name(spec)}")
        for name, (code, message) in _GONE.items():
            if name in spec:
                raise Location(code, message)
        if "near" not in spec:
            raise Location(5860400, "$geoNear requires a 'near' argument")
        for name in spec:
            if name not in _OPTIONS:
                raise BadValue(f"Unknown argument to $geoNear: {name}")
        return cls(spec, context)

    def matcher(self, collection: Collection | None) -> MatchNode:
        """The predicates that the stage stands for on a collection.

        Raises:
            NamespaceNotFound: there is no collection.
            IndexNotFound: no geospatial index tells the field, or several do.
        """
        if collection is None:
            raise NamespaceNotFound("$geoNear is not supported on a collection that does not exist")
        near = self.condition(self.key or _only_key(collection))
        return And([near, self.filter]).simplified()

    @property
    def has_query(self) -> bool:
        """Whether it asks for anything else than the place."""
        return bool(self._spec.get("query"))

    def condition(self, key: str) -> NearCondition:
        """Its condition on a field."""
        point = self._near.evaluate({}, self._variables)
        if not isinstance(point, (dict, list)):
            raise Location(5860401, f"$geoNear requires near argument to be a GeoJSON object or a legacy point(array), "
                                    f"found {type_name(point)}")  # fmt: skip
        if isinstance(point, list) and len(point) not in _PAIR_OR_TRIPLE:
            raise BadValue("a legacy point must be an array of two numbers")
        condition: Document = {"$nearSphere" if self.spherical else "$near": point}
        beyond = False
        for name, expression in self._limits.items():
            limit = _distance(name, expression.evaluate({}, self._variables))
            if not math.isinf(limit):
                condition[f"${name}"] = limit
            beyond = beyond or (name == "minDistance" and math.isinf(limit))
        near = parse_filter({key: condition})
        assert isinstance(near, NearCondition)
        if beyond:
            # No condition of a query can say so, but a stage can.
            near.minimum = math.inf
        return near

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self._spec}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`: writes the distances of what a geospatial index gave."""
        distance, places, multiplier = self.distance_field, self.places_field, self.multiplier

        def write(batch: Batch, run: Run) -> Batch:
            metadata = batch.metadata or [{} for _ in range(len(batch))]
            if distance is None and places is None and multiplier == 1:
                return batch
            rows: list[Document] = []
            for document, beside in zip(batch.documents(), metadata, strict=True):
                row = document
                if "geoNearDistance" in beside:
                    beside["geoNearDistance"] *= multiplier
                    if distance is not None:
                        row = _with(row, distance, beside["geoNearDistance"])
                    if places is not None:
                        row = _with(row, places, beside["geoNearPoint"])
                rows.append(row)
            return RowBatch(documents=rows, metadata=metadata, record_keys=batch.record_keys)

        return MapNode(self, source, write)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return None


def _with(document: Document, path: Path, value: Any) -> Document:
    """A copy of the document with a value at a path; what is no object on the way gives way to one."""
    copy = dict(document)
    within = copy
    for part in path[:-1]:
        inner = within.get(part)
        within[part] = dict(inner) if isinstance(inner, dict) else {}
        within = within[part]
    within[path[-1]] = value
    return copy


def _constant(spec: Any, context: PipelineContext, code: int, name: str) -> Expression:
    expression = parse_expression(spec, context.expressions)
    fields = expression.fields()
    if fields is None or fields:
        raise Location(code, f"$geoNear requires {name} to be a constant expression")
    return expression


def _distance(name: str, value: Any) -> float:
    if not is_number(value):
        raise TypeMismatch(f"$geoNear parameter '{name}' must be numeric, found {type_name(value)}")
    number = float(str(value))
    if not number >= 0:
        raise BadValue(f"$geoNear parameter '{name}' must be nonnegative")
    return number


def _path(spec: Mapping[str, Any], name: str, code: int) -> Path | None:
    if name not in spec:
        return None
    value = spec[name]
    if type_name(value) != "string":
        raise Location(code, f"$geoNear requires that the '{name}' option is a String")
    path = parse_field_path(value)
    if len(path) > _FIELD_DEPTH_MAX:
        raise Location(5984700, f"$geoNear parameter '{name}' is nested too deeply")
    return path


def _multiplier(spec: Mapping[str, Any]) -> float:
    value = spec.get("distanceMultiplier", 1.0)
    if not is_number(value):
        raise TypeMismatch(f"$geoNear parameter 'distanceMultiplier' must be numeric, found {type_name(value)}")
    number = float(str(value))
    if not number >= 0:
        raise BadValue("$geoNear parameter 'distanceMultiplier' must be nonnegative")
    return number


def _key(spec: Mapping[str, Any]) -> str | None:
    if "key" not in spec:
        return None
    key = spec["key"]
    if type_name(key) != "string":
        raise TypeMismatch(f"$geoNear parameter 'key' must be of type string but found type: {type_name(key)}")
    if not key:
        raise BadValue("$geoNear parameter 'key' cannot be the empty string")
    if len(parse_field_path(key)) > _KEY_DEPTH_MAX:
        raise Location(5729100, "$geoNear parameter 'key' is nested too deeply")
    return str(key)


def _only_key(collection: Collection) -> str:
    """The field of the only 2d index, or where there is none of the only 2dsphere index."""
    for kind in ("2d", "2dsphere"):
        found = [_field(index, kind) for index in collection.indexes if index.kind == kind and not index.hidden]
        if len(found) > 1:
            raise IndexNotFound(
                f"There is more than one {kind} index on {collection.namespace}; unsure which to use for $geoNear"
            )
        if found:
            return found[0]
    raise IndexNotFound("$geoNear requires a 2d or 2dsphere index, but none were found")


def _field(index: IndexSpec, kind: str) -> str:
    return next(path for path, value in index.key.items() if value == kind)


STAGES: Final[dict[str, StageParser]] = {"$geoNear": GeoNear.parse}
