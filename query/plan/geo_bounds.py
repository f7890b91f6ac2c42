"""Bounds in geospatial indexes: the cells that a region can have a part in.

A covering may hold too much, never too little, so what is found is always tested again.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from ...catalog.index_makers import flat_key_maker
from ...catalog.index_specs import IndexSpec
from ...common.values import Document, encode
from ...kernels import cover_cap, cover_geometry
from ..match.base import MatchNode
from ..match.geo import BucketGeoMatch, GeoMatch, GeoNear
from ..match.geometries import Box, Circle, FlatPolygon, Geometry
from ..match.sphere import Cap, Vector
from .bounds import ALL, BoundsMaker, FieldBounds, Interval
from .cells import cell_interval

CELLS_MAX: Final = 32
Ranges = list[tuple[int, int]]
Corner = tuple[float, float]


def has_region(index: IndexSpec, predicate: MatchNode) -> bool:
    """Whether the index can be searched for the region of a predicate."""
    if not isinstance(predicate, GeoMatch | BucketGeoMatch) or index.key.get(predicate.path) != index.kind:
        return False
    if isinstance(predicate, BucketGeoMatch):
        return index.kind in ("2dsphere_bucket", "2dsphere")
    flat = isinstance(predicate.region, Box | Circle | FlatPolygon)
    if index.kind == "2d":
        return predicate.operator == "$geoWithin" and (flat or isinstance(predicate.region, Cap))
    return not flat


def can_be_near(index: IndexSpec, near: GeoNear) -> bool:
    """Whether the index can be searched from a point on."""
    kind = index.key.get(near.path)
    if kind == "2dsphere":
        return near.spherical
    return kind == "2d" and not near.metres


class GeoBounds(BoundsMaker):
    """Bounds of a geospatial index; of one that is searched from a point on, for the cells that are told."""

    def __init__(self, index: IndexSpec, collation: Document | None, near: tuple[str, Ranges] | None = None) -> None:
        super().__init__(index, collation)
        self._near = near

    def field_bounds(self, position: int, path: str, predicates: Sequence[MatchNode], *, multikey: bool) -> FieldBounds:
        """See `BoundsMaker.field_bounds`."""
        if self.index.key[path] != self.index.kind:
            if self.index.kind == "2d":
                # Only the place is kept in such an index.
                return FieldBounds([ALL])
            return super().field_bounds(position, path, predicates, multikey=multikey)
        if self._near is not None and path == self._near[0]:
            return FieldBounds(_intervals(self._near[1]))
        found = [
            region_ranges(self.index, predicate.region, predicate.operand)
            for predicate in predicates
            if isinstance(predicate, GeoMatch | BucketGeoMatch)
            and predicate.path == path
            and has_region(self.index, predicate)
        ]
        return FieldBounds(_intervals(min(found, key=_extent)) if found else [ALL])


def _intervals(ranges: Ranges) -> list[Interval]:
    return [cell_interval(low, high) for low, high in ranges]


def _extent(ranges: Ranges) -> int:
    return sum(high - low + 1 for low, high in ranges)


def region_ranges(index: IndexSpec, region: Any, operand: Document) -> Ranges:
    """The cells of an index that can have a part in a region."""
    if index.kind == "2d":
        return [one for low, high in _boxes(region) for one in flat_ranges(index, low, high)]
    if isinstance(region, Cap):
        return cap_ranges(region.centre, region.radius)
    assert isinstance(region, Geometry)
    return cover_geometry(encode({"": operand["$geometry"]}), CELLS_MAX)


def cap_ranges(centre: Vector, radius: float) -> Ranges:
    """The cells of the sphere that can have a part in a circle."""
    return cover_cap(*_place(centre), min(radius, math.pi), CELLS_MAX)


def flat_ranges(index: IndexSpec, low: Corner, high: Corner) -> Ranges:
    """The cells of the plane that can have a part in a rectangle."""
    return flat_key_maker(index).covering(low, high, CELLS_MAX)


def _place(point: Vector) -> Corner:
    """Longitude and latitude of a point of the sphere, in degrees."""
    x, y, z = point
    return math.degrees(math.atan2(y, x)), math.degrees(math.atan2(z, math.hypot(x, y)))


def cap_boxes(centre: Vector, radius: float) -> list[tuple[Corner, Corner]]:
    """Rectangles of longitude and latitude that together hold a circle of the sphere."""
    longitude, latitude = _place(centre)
    reach = math.degrees(radius) + 1e-6
    low, high = latitude - reach, latitude + reach
    if low <= -90 or high >= 90:
        return [((-180.0, max(low, -90.0)), (180.0, min(high, 90.0)))]
    wide = math.degrees(math.asin(min(math.sin(math.radians(reach)) / math.cos(math.radians(latitude)), 1.0))) + 1e-6
    west, east = longitude - wide, longitude + wide
    boxes = [((max(west, -180.0), low), (min(east, 180.0), high))]
    if west < -180:
        boxes.append(((west + 360, low), (180.0, high)))
    if east > 180:
        boxes.append(((-180.0, low), (east - 360, high)))
    return boxes


def _boxes(region: Any) -> list[tuple[Corner, Corner]]:
    if isinstance(region, Cap):
        return cap_boxes(region.centre, region.radius)
    bounds: tuple[Corner, Corner] = region.bounds()
    return [bounds]
