"""Geometries as documents and queries write them: GeoJSON, pairs of numbers, and the flat shapes of old."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from bson import Decimal128

from ...common.errors import BadValue
from ...common.numbers import is_number
from ...common.values import Document
from .sphere import Polygon, Ring, Vector, angle, angle_to_arc, place, vector

STRICT_WINDING: Final = "urn:x-mongodb:crs:strictwinding:EPSG:4326"
_CRS_NAMES: Final = ("urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326", STRICT_WINDING)
_TYPES: Final = (
    "Point",
    "LineString",
    "Polygon",
    "MultiPoint",
    "MultiLineString",
    "MultiPolygon",
    "GeometryCollection",
)

Pair = tuple[float, float]


class Geometry:
    """Points, lines and polygons together; `pair` is set for a single point."""

    def __init__(
        self,
        *,
        points: Sequence[Vector] = (),
        lines: Sequence[Sequence[Vector]] = (),
        polygons: Sequence[Polygon] = (),
        pair: Pair | None = None,
        on_sphere: bool = True,
        kind: str = "Point",
    ) -> None:
        self.points = tuple(points)
        self.lines = tuple(list(pairwise(line)) for line in lines)
        self.polygons = tuple(polygons)
        self.pair = pair
        self.on_sphere = on_sphere
        self.kind = kind

    def angle_to(self, longitude: float, latitude: float) -> float:
        """The angle between a place on the sphere and the nearest point of the geometry."""
        if self.pair is not None:
            return angle(place(longitude, latitude), place(*self.pair))
        point = vector(longitude, latitude)
        if any(polygon.contains(point) for polygon in self.polygons):
            return 0.0
        arcs = [arc for line in self.lines for arc in line]
        arcs += [arc for polygon in self.polygons for arc in polygon.arcs()]
        angles = [angle(point, own) for own in self.points]
        return min(*angles, *(angle_to_arc(point, arc) for arc in arcs), math.pi, math.pi)


# Reading.


def numbers(value: Any, count: int | None = None) -> list[float] | None:
    """The numbers of an array, or of an object's fields; None when something else is among them."""
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list) or (count is not None and len(items) != count):
        return None
    found = []
    for item in items:
        if not is_number(item):
            return None
        found.append(float(str(item)) if isinstance(item, Decimal128) else float(item))
    return found


def flat_pair(value: Any, *, exact: bool = True) -> Pair:
    """A point of the plane: two finite numbers.

    Raises:
        BadValue: it is none.
    """
    if not isinstance(value, (list, dict)):
        raise BadValue("Point must be an array or object")
    if exact and len(value) > 2:
        raise BadValue("Point must only contain two numeric elements")
    items = list(value.values())[:2] if isinstance(value, dict) else value[:2]
    found = numbers(items, 2)
    if found is None:
        raise BadValue("Point must only contain numeric elements")
    if not all(math.isfinite(number) for number in found):
        raise BadValue("Point coordinates must be finite numbers")
    return (found[0], found[1])


def _position(value: Any) -> Pair:
    """A position of GeoJSON: longitude and latitude, and perhaps an altitude, which counts for nothing."""
    if not isinstance(value, (list, dict)):
        raise BadValue("Point must be an array or object")
    items = list(value.values()) if isinstance(value, dict) else value
    found = numbers(items[:2], 2)
    if found is None:
        raise BadValue("Point must only contain numeric elements")
    longitude, latitude = found
    if not (math.isfinite(longitude) and math.isfinite(latitude)):
        raise BadValue("Point coordinates must be finite numbers")
    if not (-180 <= longitude <= 180 and -90 <= latitude <= 90):
        raise BadValue(f"longitude/latitude is out of bounds, lng: {longitude:g} lat: {latitude:g}")
    return (longitude, latitude)


def _positions(value: Any, least: int, what: str) -> list[Vector]:
    if not isinstance(value, list):
        raise BadValue(f"{what} coordinates must be an array of coordinates")
    points: list[Vector] = []
    for item in value:
        point = vector(*_position(item))
        if not points or points[-1] != point:
            points.append(point)
    if len(value) < least or len(points) < 2:
        raise BadValue(f"{what} must have at least {least} vertices: {len(value)}")
    return points


def _ring(value: Any, *, left: bool) -> Ring:
    if not isinstance(value, list) or not value:
        raise BadValue("Loop must be a non-empty array of coordinates")
    points = [_position(item) for item in value]
    if points[0] != points[-1]:
        raise BadValue(f"Loop is not closed: {value}")
    distinct: list[Vector] = []
    for pair in points[:-1]:
        point = vector(*pair)
        if not distinct or distinct[-1] != point:
            distinct.append(point)
    if len(distinct) < 3:
        raise BadValue(f"Loop must have at least 3 different vertices: {value}")
    if len(set(distinct)) != len(distinct):
        raise BadValue(f"Loop is not valid: {value} Duplicate vertices")
    ring = Ring(distinct, left=left)
    if ring.crosses_itself():
        raise BadValue(f"Loop is not valid: {value} Edges cross")
    return ring


def _polygon(value: Any, *, strict: bool = False) -> Polygon:
    if not isinstance(value, list) or not value:
        raise BadValue("Polygon coordinates must be an array of rings")
    if strict and len(value) > 1:
        raise BadValue("Only one simple loop is allowed in a big polygon")
    outer, *holes = (_ring(ring, left=strict) for ring in value)
    for at, hole in enumerate(holes, start=1):
        outside = any(not outer.contains(point) or outer.on_edge(point) for point in hole.vertices)
        if outside or not Polygon(outer).contains_arcs(list(hole.arcs())):
            raise BadValue(
                f"Secondary loops not contained by first exterior loop - secondary loops must be holes: {at}"
            )
    return Polygon(outer, holes)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise BadValue(f"{what} coordinates must be a non-empty array")
    return value


def geojson(document: Document, *, kinds: Sequence[str] = _TYPES) -> Geometry:
    """The geometry of a GeoJSON object.

    Raises:
        BadValue: it is none, or of another kind.
    """
    kind = document.get("type", "Point")
    if type(kind) is not str or kind not in _TYPES:
        raise BadValue(f"unknown GeoJSON type: {document}")
    if kind not in kinds:
        raise BadValue(f"geometry of type {kind} is not supported here")
    strict = _crs(document, kind)
    if kind == "GeometryCollection":
        return _collection(document, kind)
    if "coordinates" not in document:
        raise BadValue(f"GeoJSON coordinates must be an array or object: {document}")
    coordinates = document["coordinates"]
    match kind:
        case "Point":
            pair = _position(coordinates)
            return Geometry(points=[vector(*pair)], pair=pair, kind=kind)
        case "MultiPoint":
            return Geometry(points=[vector(*_position(item)) for item in _list(coordinates, kind)], kind=kind)
        case "LineString":
            return Geometry(lines=[_positions(coordinates, 2, kind)], kind=kind)
        case "MultiLineString":
            lines = [_positions(item, 2, kind) for item in _list(coordinates, kind)]
            return Geometry(lines=lines, kind=kind)
        case "Polygon":
            return Geometry(polygons=[_polygon(coordinates, strict=strict)], kind=kind)
        case _:
            return Geometry(polygons=[_polygon(item) for item in _list(coordinates, kind)], kind=kind)


def _collection(document: Document, kind: str) -> Geometry:
    members = document.get("geometries")
    if not isinstance(members, list) or not members:
        raise BadValue("GeometryCollection geometries must be a non-empty array")
    parts: list[Geometry] = []
    for member in members:
        if not isinstance(member, dict) or "type" not in member:
            raise BadValue("Element of GeometryCollection is not an object with a type")
        parts.append(geojson(member, kinds=_TYPES[:-1]))
    whole = Geometry(
        points=[point for part in parts for point in part.points],
        polygons=[polygon for part in parts for polygon in part.polygons],
        kind=kind,
    )
    whole.lines = tuple(line for part in parts for line in part.lines)
    return whole


def _crs(document: Document, kind: str) -> bool:
    """Whether the object asks for polygons whose inside is to the left."""
    if "crs" not in document:
        return False
    crs = document["crs"]
    if not isinstance(crs, dict):
        raise BadValue("GeoJSON CRS must be an object")
    if crs.get("type") != "name":
        raise BadValue('GeoJSON CRS must have field "type": "name"')
    properties = crs.get("properties")
    if not isinstance(properties, dict) or type(properties.get("name")) is not str:
        raise BadValue('CRS must have field "properties" which is an object with a string "name"')
    name = properties["name"]
    if name not in _CRS_NAMES:
        raise BadValue(f"Unknown CRS name: {name}")
    if name == STRICT_WINDING and kind != "Polygon":
        raise BadValue("Strict winding order CRS is only supported by polygon")
    return bool(name == STRICT_WINDING)


def legacy_point(value: Any, *, exact: bool) -> Geometry:
    """The geometry of a pair of numbers, as an array or an object; on the sphere when its numbers allow."""
    x, y = flat_pair(value, exact=exact)
    on_sphere = -180 <= x <= 180 and -90 <= y <= 90
    return Geometry(points=[vector(x, y)] if on_sphere else [], pair=(x, y), on_sphere=on_sphere)


def stored(value: Any) -> Geometry | None:
    """The geometry that a document's field holds, None when it holds none."""
    try:
        if isinstance(value, dict):
            if type(value.get("type")) is str and ("coordinates" in value or "geometries" in value):
                return geojson(value)
            return legacy_point(value, exact=False)
        return legacy_point(value, exact=False) if isinstance(value, list) else None
    except BadValue:
        return None


class Box:
    """A rectangle of the plane, edges included."""

    def __init__(self, first: Pair, second: Pair) -> None:
        self._x = sorted((first[0], second[0]))
        self._y = sorted((first[1], second[1]))

    def contains(self, point: Pair) -> bool:
        """Whether a point is inside."""
        return self._x[0] <= point[0] <= self._x[1] and self._y[0] <= point[1] <= self._y[1]

    def bounds(self) -> tuple[Pair, Pair]:
        """Two corners of a rectangle around it."""
        return (self._x[0], self._y[0]), (self._x[1], self._y[1])


class Circle:
    """A circle of the plane, its line included."""

    def __init__(self, centre: Pair, radius: float) -> None:
        self._centre = centre
        self._radius = radius

    def contains(self, point: Pair) -> bool:
        """Whether a point is inside."""
        return math.dist(self._centre, point) <= self._radius

    def bounds(self) -> tuple[Pair, Pair]:
        """Two corners of a rectangle around it."""
        (x, y), radius = self._centre, min(self._radius, 1e300)
        return (x - radius, y - radius), (x + radius, y + radius)


class FlatPolygon:
    """A polygon of the plane, with its corners, its level and upright sides, and of the others those to the right."""

    def __init__(self, corners: Sequence[Pair]) -> None:
        self._sides = list(pairwise([*corners, corners[0]]))

    def bounds(self) -> tuple[Pair, Pair]:
        """Two corners of a rectangle around it."""
        xs, ys = zip(*(corner for corner, _ in self._sides), strict=True)
        return (min(xs), min(ys)), (max(xs), max(ys))

    def contains(self, point: Pair) -> bool:
        """Whether a point is inside."""
        x, y = point
        inside = False
        for (ax, ay), (bx, by) in self._sides:
            if ay == by:
                if y == ay and min(ax, bx) <= x <= max(ax, bx):
                    return True
                continue
            if (x, y) in ((ax, ay), (bx, by)):
                return True
            if not min(ay, by) < y <= max(ay, by):
                continue
            if ax == bx == x:
                return True
            if x <= (y - ay) * (bx - ax) / (by - ay) + ax:
                inside = not inside
        return inside


FlatShape = Box | Circle | FlatPolygon
