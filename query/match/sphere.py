"""Points, lines and rings on the unit sphere, with arcs of great circles between their vertices."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from ...kernels import ring_crosses_itself

Vector = tuple[float, float, float]
Arc = tuple[Vector, Vector]

EARTH_RADIUS_M: Final = 6378100.0
_TOUCH: Final = 1e-13
"""How near a point must be to an arc to lie on it: below a micrometre on Earth."""

_HALF_SLACK: Final = 1e-9
"""By how much the left side of a ring must exceed a hemisphere to be the larger one, so that rounding does not decide."""


def vector(longitude: float, latitude: float) -> Vector:
    """The point of the unit sphere at a longitude and latitude in degrees."""
    # Where many names mean one place, they have to give one point.
    if abs(latitude) == 90:
        return (0.0, 0.0, math.copysign(1.0, latitude))
    lon, lat = math.radians(longitude), math.radians(latitude)
    if abs(longitude) == 180:
        return (-math.cos(lat), 0.0, math.sin(lat))
    return (math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat))


def dot(a: Vector, b: Vector) -> float:
    """The scalar product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vector, b: Vector) -> Vector:
    """The vector product."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def angle(a: Vector, b: Vector) -> float:
    """The angle between two points, in radians; exact for small ones too."""
    across = cross(a, b)
    return math.atan2(math.sqrt(dot(across, across)), dot(a, b))


def place(longitude: float, latitude: float) -> Vector:
    """The point at a longitude and latitude as distances are measured from: without the care that `vector` takes."""
    lon, lat = math.radians(longitude), math.radians(latitude)
    return (math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat))


def angle_to_arc(point: Vector, arc: Arc) -> float:
    """The angle between a point and the nearest point of an arc."""
    a, b = arc
    ends = min(angle(point, a), angle(point, b))
    normal = cross(a, b)
    size = dot(normal, normal)
    if size == 0 or dot(cross(normal, a), point) <= 0 or dot(cross(b, normal), point) <= 0:
        return ends
    across = dot(point, normal) / size
    below = (point[0] - across * normal[0], point[1] - across * normal[1], point[2] - across * normal[2])
    length = math.sqrt(dot(below, below))
    if length == 0:
        return ends
    return min(ends, angle(point, (below[0] / length, below[1] / length, below[2] / length)))


def on_arc(point: Vector, arc: Arc) -> bool:
    """Whether a point lies on an arc, ends included."""
    a, b = arc
    if angle(point, a) < _TOUCH or angle(point, b) < _TOUCH:
        return True
    normal = cross(a, b)
    length = math.sqrt(dot(normal, normal))
    if length == 0 or abs(dot(point, normal)) > _TOUCH * length:
        return False
    return dot(cross(normal, a), point) > 0 and dot(cross(b, normal), point) > 0


def cross_properly(first: Arc, second: Arc) -> bool:
    """Whether two arcs cross at a point inside both."""
    (a, b), (c, d) = first, second
    ab, cd = cross(a, b), cross(c, d)
    acb, bda = -dot(ab, c), dot(ab, d)
    cbd, dac = -dot(cd, b), dot(cd, a)
    if min(abs(acb), abs(bda), abs(cbd), abs(dac)) < 1e-15:
        return False
    return acb * bda > 0 and acb * cbd > 0 and acb * dac > 0


def _normalized(vector: Vector) -> Vector:
    length = math.sqrt(dot(vector, vector)) or 1.0
    return (vector[0] / length, vector[1] / length, vector[2] / length)


class Ring:
    """A closed line and the region on one side of it: the smaller one, or the one to its left."""

    def __init__(self, vertices: Sequence[Vector], *, left: bool = False) -> None:
        points = list(vertices)
        if not left and _area_to_the_left(points) > 2 * math.pi + _HALF_SLACK:
            points.reverse()
        self.vertices = points
        self._inner = self._point_inside()

    def _point_inside(self) -> Vector:
        """A point to the left of the longest side, nearer to it than to any other."""
        arcs = list(self.arcs())
        longest = max(range(len(arcs)), key=lambda at: angle(*arcs[at]))
        a, b = arcs[longest]
        middle = _normalized((a[0] + b[0], a[1] + b[1], a[2] + b[2]))
        room = min(angle_to_arc(middle, arc) for at, arc in enumerate(arcs) if at != longest)
        step, to_left = math.tan(min(room / 2, 0.1)), _normalized(cross(a, b))
        return _normalized(
            (middle[0] + step * to_left[0], middle[1] + step * to_left[1], middle[2] + step * to_left[2])
        )

    def arcs(self) -> Iterator[Arc]:
        """The sides."""
        yield from pairwise([*self.vertices, self.vertices[0]])

    def on_edge(self, point: Vector) -> bool:
        """Whether a point lies on a side."""
        return any(on_arc(point, arc) for arc in self.arcs())

    def contains(self, point: Vector) -> bool:
        """Whether a point that lies on no side is inside: the way to one that is, crosses an even number of sides."""
        if dot(point, self._inner) > -0.9:
            return self._crossings(point, self._inner) % 2 == 0
        # There is no one way between points that lie opposite to each other.
        least = min(range(3), key=lambda axis: abs(point[axis]))
        axis = (float(least == 0), float(least == 1), float(least == 2))
        between = _normalized(cross(point, axis))
        return (self._crossings(point, between) + self._crossings(between, self._inner)) % 2 == 0

    def _crossings(self, start: Vector, stop: Vector) -> int:
        """How many sides cross an arc; a corner on it counts for one of its sides."""
        normal = cross(start, stop)
        count = 0
        for a, b in self.arcs():
            if (dot(normal, a) >= 0) == (dot(normal, b) >= 0):
                continue
            meeting = cross(normal, cross(a, b))
            if meeting[0] * (a[0] + b[0]) + meeting[1] * (a[1] + b[1]) + meeting[2] * (a[2] + b[2]) < 0:
                meeting = (-meeting[0], -meeting[1], -meeting[2])
            count += dot(cross(start, meeting), normal) > 0 and dot(cross(meeting, stop), normal) > 0
        return count

    def crosses_itself(self) -> bool:
        """Whether sides that are no neighbours meet."""
        return ring_crosses_itself(self.vertices)


def _area_to_the_left(vertices: Sequence[Vector]) -> float:
    """What the turns at the corners leave of a full turn."""
    count = len(vertices)
    turns = 0.0
    for at, corner in enumerate(vertices):
        come = cross(vertices[at - 1], corner)
        go = cross(corner, vertices[(at + 1) % count])
        turns += math.atan2(dot(cross(come, go), corner), dot(come, go))
    return 2 * math.pi - turns


class Polygon:
    """A ring without its holes."""

    def __init__(self, outer: Ring, holes: Sequence[Ring] = ()) -> None:
        self.outer = outer
        self.holes = tuple(holes)

    def arcs(self) -> Iterator[Arc]:
        """The sides of all rings."""
        yield from self.outer.arcs()
        for hole in self.holes:
            yield from hole.arcs()

    def on_edge(self, point: Vector) -> bool:
        """Whether a point lies on a side."""
        return self.outer.on_edge(point) or any(hole.on_edge(point) for hole in self.holes)

    def contains(self, point: Vector) -> bool:
        """Whether a point is inside or on a side."""
        if self.on_edge(point):
            return True
        return self.outer.contains(point) and not any(hole.contains(point) for hole in self.holes)

    def contains_arcs(self, arcs: Sequence[Arc]) -> bool:
        """Whether all of some arcs are inside."""
        if not all(self.contains(end) for arc in arcs for end in arc):
            return False
        return not any(cross_properly(arc, side) for side in self.arcs() for arc in arcs)


class Cap:
    """All points within an angle of a centre."""

    def __init__(self, centre: Vector, radius: float) -> None:
        self.centre = centre
        self.radius = radius
