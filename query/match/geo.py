"""Conditions on places: `$geoWithin`, `$geoIntersects`, and `$near` and `$nearSphere`, which also order."""

import math
from typing import Any, Final

from bson import Decimal128

from ...common.display import element_text, value_text
from ...common.errors import BadValue, Location, NoQueryExecutionPlans
from ...common.paths import path_values
from ...common.values import Document, encode
from ...kernels import SphereRegion
from .base import MatchContext, MatchNode, PathNode, Predicate, ValueTest, Variables
from .geometries import (
    Box,
    Circle,
    FlatPolygon,
    FlatShape,
    Geometry,
    flat_pair,
    geojson,
    legacy_point,
    numbers,
    stored,
)
from .sphere import EARTH_RADIUS_M, Cap, vector

WITHIN_OPERATORS: Final = ("$geoWithin", "$within")
NEAR_OPERATORS: Final = ("$near", "$nearSphere", "$geoNear")
GEO_OPERATORS: Final = frozenset((*WITHIN_OPERATORS, "$geoIntersects", *NEAR_OPERATORS))
_DISTANCES: Final = ("$maxDistance", "$minDistance")


class GeoMatch(PathNode):
    """A geometry lies within a region, or meets one."""

    rank = 21

    def __init__(self, path: str, operator: str, operand: Document, region: Geometry | Cap | FlatShape) -> None:
        super().__init__(path)
        self.operator = operator
        self.operand = operand
        self.region = region

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {self.operator: self.operand}

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        region = self.region
        if isinstance(region, (Box, Circle, FlatPolygon)):

            def flat(value: Any) -> bool:
                geometry = stored(value) if isinstance(value, (dict, list)) else None
                return geometry is not None and geometry.pair is not None and region.contains(geometry.pair)

            return flat
        native = _sphere_region(region, self.operand)
        test = native.holds if self.operator == "$geoWithin" else native.meets
        return lambda value: isinstance(value, (dict, list)) and test(encode({"": value}))


def _sphere_region(region: Geometry | Cap, operand: Document) -> SphereRegion:
    if isinstance(region, Cap):
        return SphereRegion.of_cap(region.centre, region.radius)
    geometry = operand["$geometry"]
    if isinstance(geometry, dict) and "type" not in geometry and "coordinates" in geometry:
        geometry = {"type": "Point", **geometry}
    return SphereRegion.of_geometry(encode({"": geometry}))


class BucketGeoMatch(MatchNode):
    """A bucket may hold a measurement with a geometry in a region: what only an index tells."""

    rank = 22

    def __init__(self, field: str, operand: Document, region: Geometry | Cap, place: str | None = None) -> None:
        """`place` is the path in a bucket; that of the column where it is not given."""
        self.path = place or f"data.{field}"
        self.field = field
        self.operand = operand
        self.region = region

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`: the measurements are tested by themselves."""
        return lambda _: True

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {"$_internalBucketGeoWithin": {"withinRegion": self.operand, "field": self.field}}

    def fields(self) -> None:
        """See `MatchNode.fields`."""
        return None


class GeoNear(PathNode):
    """A geometry lies within distances of a point, and the results are ordered by their distance.

    It runs on a geospatial index alone; a plan that has one asks `distance`.
    """

    rank = 26

    def __init__(
        self,
        path: str,
        operator: str,
        operand: Document,
        point: Geometry,
        *,
        spherical: bool,
        metres: bool,
        minimum: float,
        maximum: float,
    ) -> None:
        super().__init__(path)
        self.operator = operator
        self.operand = operand
        self.point = point
        self.spherical = spherical
        self.metres = metres
        self.minimum = minimum
        self.maximum = maximum

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return dict(self.operand)

    def distance(self, value: Any) -> float | None:
        """How far a stored geometry is, in metres, radians or units of the plane; None for what is out of reach."""
        geometry = stored(value)
        if geometry is None or self.point.pair is None:
            return None
        if self.spherical:
            if not geometry.on_sphere:
                return None
            # Measured in metres first, as the distances that others compare with.
            found = geometry.angle_to(*self.point.pair) * EARTH_RADIUS_M
            found = found if self.metres else found / EARTH_RADIUS_M
        elif geometry.pair is None:
            return None
        else:
            found = math.dist(geometry.pair, self.point.pair)
        return found if self.minimum <= found <= self.maximum else None

    def nearest(self, document: Document) -> tuple[float, Any] | None:
        """The distance of the document's nearest geometry within reach, and that geometry."""
        found: tuple[float, Any] | None = None
        for value in path_values(document, self.parts):
            distance = self.distance(value)
            if distance is not None and (found is None or distance < found[0]):
                found = (distance, value)
        return found

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        return lambda value: self.distance(value) is not None

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`: refuses to run without an index.

        Raises:
            NoQueryExecutionPlans: always.
        """
        raise NoQueryExecutionPlans(
            "error processing query: planner returned error :: caused by :: unable to find index for $geoNear query"
        )


def parse_geo(path: str, document: Document, context: MatchContext) -> MatchNode:
    """The condition of a document of operators with a geospatial one among them, which stands for all of it."""
    operator = next(name for name in document if name in GEO_OPERATORS)
    if operator in NEAR_OPERATORS:
        return _parse_near(path, operator, document)
    for name in document:
        if name != operator:
            raise BadValue(f"can't parse extra field: {element_text(name, document[name])}")
    operand = document[operator]
    if not isinstance(operand, dict):
        raise BadValue(f"{operator} must be an object: {value_text(operand)}")
    shape, argument = _only_shape(operator, operand)
    if operator == "$geoIntersects":
        if shape != "$geometry":
            raise BadValue(f"$geoIntersects not supported with provided geometry: {value_text(operand)}")
        return GeoMatch(path, operator, operand, _geometry(argument))
    return GeoMatch(path, "$geoWithin", operand, _region(shape, argument))


def _only_shape(operator: str, operand: Document) -> tuple[str, Any]:
    shapes = [name for name in operand if name != "$uniqueDocs"]
    if len(shapes) != 1 or shapes[0] not in _SHAPES:
        raise BadValue(f"{operator} needs exactly one shape: {value_text(operand)}")
    return shapes[0], operand[shapes[0]]


_SHAPES: Final = ("$geometry", "$box", "$center", "$centerSphere", "$polygon")


def _geometry(argument: Any, **restrictions: Any) -> Geometry:
    if isinstance(argument, list):
        return _on_sphere(legacy_point(argument, exact=True))
    if not isinstance(argument, dict):
        raise BadValue("$geometry must be an object")
    if "type" in argument or "coordinates" in argument:
        return geojson(argument, **restrictions)
    return _on_sphere(legacy_point(argument, exact=True))


def _on_sphere(geometry: Geometry) -> Geometry:
    if not geometry.on_sphere:
        raise BadValue("longitude/latitude is out of bounds")
    return geometry


def _region(shape: str, argument: Any) -> Geometry | Cap | FlatShape:
    if shape == "$geometry":
        if not isinstance(argument, dict) or "type" not in argument:
            raise BadValue("$geometry must be an object with a type")
        return geojson(argument, kinds=("Polygon", "MultiPolygon"))
    if isinstance(argument, dict):
        argument = list(argument.values())
    if not isinstance(argument, list):
        raise BadValue(f"{shape} must be an array or object")
    if shape == "$box":
        if len(argument) < 2:
            raise BadValue("$box needs two corners")
        return Box(flat_pair(argument[0]), flat_pair(argument[1]))
    if shape == "$polygon":
        if len(argument) < 3:
            raise BadValue("Polygon must have at least 3 points")
        return FlatPolygon([flat_pair(item) for item in argument])
    if len(argument) != 2:
        raise BadValue(f"{shape} needs a centre and a radius")
    centre, radius = flat_pair(argument[0]), _radius(argument[1])
    if shape == "$center":
        return Circle(centre, radius)
    if not (-180 <= centre[0] <= 180 and -90 <= centre[1] <= 90):
        raise BadValue(f"longitude/latitude is out of bounds, lng: {centre[0]:g} lat: {centre[1]:g}")
    return Cap(vector(*centre), radius)


def _radius(value: Any) -> float:
    number = _number(value)
    if number is None or not number >= 0:
        raise BadValue("radius must be a non-negative number")
    return number


def _number(value: Any) -> float | None:
    found = numbers([value])
    return None if found is None else found[0]


def _parse_near(path: str, operator: str, document: Document) -> MatchNode:
    for name in document:
        if name in GEO_OPERATORS and name != operator:
            raise BadValue(f"can't parse extra field: {element_text(name, document[name])}")
        if name != operator and name not in _DISTANCES:
            raise Location(34413, f"invalid argument in geo near query: {name}")
    operand = document[operator]
    spherical = operator == "$nearSphere"
    if isinstance(operand, dict) and any(name.startswith("$") for name in operand):
        for name in operand:
            if name not in ("$geometry", *_DISTANCES):
                raise BadValue(f"invalid argument in geo near query: {name}")
        if "$geometry" not in operand:
            raise BadValue("$near requires a point, given " + value_text(operand))
        geometry = operand["$geometry"]
        if isinstance(geometry, dict):
            point = _geometry(geometry, kinds=("Point",)) if "coordinates" in geometry or "type" in geometry else None
            if point is not None:
                return _near(path, operator, document, point, {**document, **operand}, spherical=True, metres=True)
        point = _geometry(geometry)
        return _near(path, operator, document, point, {**document, **operand}, spherical=spherical, metres=False)
    if isinstance(operand, dict) and "coordinates" in operand:
        point = geojson(operand, kinds=("Point",))
        return _near(path, operator, document, point, document, spherical=True, metres=True)
    if not isinstance(operand, (list, dict)):
        raise BadValue("geo near accepts just one argument when querying for a GeoJSON point. Extra field found")
    values = operand
    distances = dict(document)
    if isinstance(operand, list) and len(operand) == 3 and "$maxDistance" not in document:
        values, distances["$maxDistance"] = operand[:2], operand[2]
    point = legacy_point(values, exact=False)
    if spherical:
        point = _on_sphere(point)
    return _near(path, operator, document, point, distances, spherical=spherical, metres=False)


def _near(
    path: str,
    operator: str,
    document: Document,
    point: Geometry,
    distances: Document,
    *,
    spherical: bool,
    metres: bool,
) -> GeoNear:
    bounds = {"$minDistance": 0.0, "$maxDistance": math.inf}
    for name in _DISTANCES:
        if name in distances:
            bounds[name] = _distance(name, distances[name], legacy=not metres)
    return GeoNear(
        path,
        operator,
        document,
        point,
        spherical=spherical,
        metres=metres,
        minimum=bounds["$minDistance"],
        maximum=bounds["$maxDistance"],
    )


def _distance(name: str, value: Any, *, legacy: bool) -> float:
    number = _number(value)
    minimum = name == "$minDistance"
    if number is None:
        message = f"{name} must be a number"
        if legacy:
            raise Location(16893 if minimum else 16895, message)
        raise BadValue(message)
    infinite = math.isinf(number) and (not legacy or number < 0)
    if not number >= 0 or infinite or (isinstance(value, Decimal128) and number > 1e308):
        message = f"{name} must be non-negative"
        if legacy:
            raise Location(16894 if minimum else 16896, message)
        raise BadValue(message)
    return number


def is_geo_document(document: Document) -> bool:
    """Whether an object of operators is a geospatial condition."""
    return any(name in GEO_OPERATORS for name in document)
