"""Regions of the plane and of the sphere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.values import Document
from bucketd.query.match.geo import GeoNear
from bucketd.query.match.geometries import stored
from bucketd.query.match.parse import parse_filter

SQUARE = [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]]
HOLED = [*SQUARE, [[4, 4], [4, 6], [6, 6], [6, 4], [4, 4]]]


def found(operator: str, operand: Document, place: Any) -> bool:
    return parse_filter({"p": {operator: operand}}).compile()({"p": place})


def point(*pair: float) -> Document:
    return {"type": "Point", "coordinates": list(pair)}


@pytest.mark.parametrize(
    ("operand", "place", "expected"),
    [
        ({"$box": [[0, 0], [10, 10]]}, [10, 10], True),
        ({"$box": [[10, 10], [0, 0]]}, {"x": 5, "y": 5}, True),
        ({"$box": [[0, 0], [10, 10]]}, [[50, 50], [5, 5]], True),
        ({"$box": [[0, 0], [10, 10]]}, point(5, 5), True),
        ({"$box": [[0, 0], [10, 10]]}, {"type": "LineString", "coordinates": [[1, 1], [2, 2]]}, False),
        ({"$center": [[0, 0], 5]}, [3, 4], True),
        ({"$center": [[0, 0], 5]}, [3, 4.1], False),
        ({"$polygon": [[0, 0], [10, 0], [5, 10]]}, [5, 5], True),
        ({"$polygon": [[0, 0], [10, 0], [5, 10]]}, [0, 10], False),
        ({"$centerSphere": [[0, 0], 0.1]}, [5, 0], True),
        ({"$centerSphere": [[0, 0], 0.1]}, [6, 0], False),
        ({"$geometry": {"type": "Polygon", "coordinates": SQUARE}}, point(5, 5), True),
        ({"$geometry": {"type": "Polygon", "coordinates": SQUARE}}, point(15, 5), False),
        ({"$geometry": {"type": "Polygon", "coordinates": HOLED}}, point(5, 5), False),
        ({"$geometry": {"type": "Polygon", "coordinates": HOLED}}, point(1, 1), True),
        (
            {"$geometry": {"type": "Polygon", "coordinates": SQUARE}},
            {"type": "LineString", "coordinates": [[1, 1], [20, 1]]},
            False,
        ),
        ({"$geometry": {"type": "Polygon", "coordinates": SQUARE}}, "x", False),
        ({"$geometry": {"type": "Polygon", "coordinates": SQUARE}}, None, False),
    ],
)
def test_within(operand: Document, place: Any, expected: bool) -> None:
    assert found("$geoWithin", operand, place) is expected


@pytest.mark.parametrize(
    ("geometry", "place", "expected"),
    [
        (point(1, 1), point(1, 1), True),
        (point(1, 1), point(1, 2), False),
        (
            {"type": "LineString", "coordinates": [[0, 0], [10, 0]]},
            {"type": "LineString", "coordinates": [[5, -5], [5, 5]]},
            True,
        ),
        ({"type": "Polygon", "coordinates": SQUARE}, {"type": "LineString", "coordinates": [[-5, 5], [15, 5]]}, True),
        (
            {"type": "Polygon", "coordinates": SQUARE},
            {"type": "Polygon", "coordinates": [[[5, 5], [15, 5], [15, 15], [5, 15], [5, 5]]]},
            True,
        ),
        ({"type": "Polygon", "coordinates": SQUARE}, {"type": "Polygon", "coordinates": SQUARE}, True),
        (
            {"type": "Polygon", "coordinates": [[[170, -5], [-170, -5], [-170, 5], [170, 5], [170, -5]]]},
            point(180, 0),
            True,
        ),
        (
            {
                "type": "GeometryCollection",
                "geometries": [point(3, 3), {"type": "LineString", "coordinates": [[0, 0], [0, 1]]}],
            },
            point(3, 3),
            True,
        ),
    ],
)
def test_intersects(geometry: Document, place: Any, expected: bool) -> None:
    assert found("$geoIntersects", {"$geometry": geometry}, place) is expected
    if place.get("type") != "GeometryCollection":
        assert found("$geoIntersects", {"$geometry": place}, geometry) is expected


@pytest.mark.parametrize(
    ("filter", "number"),
    [
        ({"p": {"$geoWithin": {}}}, 2),
        ({"p": {"$geoWithin": {"$geometry": point(1, 1)}}}, 2),
        ({"p": {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0]]]}}}}, 2),
        ({"p": {"$geoIntersects": {"$box": [[0, 0], [1, 1]]}}}, 2),
        ({"p": {"$geoIntersects": {"$geometry": point(181, 0)}}}, 2),
        ({"p": {"$geoIntersects": {"$geometry": point(0, 0)}, "$eq": 1}}, 2),
        ({"p": {"$near": [0, 0], "$minDistance": -1}}, 16894),
        ({"$or": [{"p": {"$near": [0, 0]}}]}, 2),
        ({"p": {"$near": [0, 0]}, "q": {"$near": [0, 0]}}, 2),
        ({"p": {"$near": [0, 0]}, "$text": {"$search": "x"}}, 2),
        ({"$text": {}}, 4),
        ({"$nor": [{"$text": {"$search": "x"}}]}, 2),
    ],
)
def test_refused(filter: Document, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parse_filter(filter)
    assert caught.value.number == number


def test_near_needs_an_index_and_knows_distances() -> None:
    node = parse_filter({"p": {"$near": {"$geometry": point(0, 0), "$maxDistance": 200_000}}})
    assert isinstance(node, GeoNear)
    assert node.distance(point(1, 0)) == pytest.approx(111_318.8, abs=1)
    assert node.nearest({"p": point(2, 0)}) is None
    with pytest.raises(MongoError) as caught:
        node.compile()
    assert caught.value.number == 291
    with pytest.raises(MongoError) as caught:
        parse_filter({"p": {"$near": [0, 0]}}, allow_near=False)
    assert caught.value.number == 5626500


longitudes = st.floats(-179, 179)
latitudes = st.floats(-80, 80)


@given(longitudes, latitudes, longitudes, latitudes, st.floats(0, 3))
def test_caps_hold_what_is_near(lon: float, lat: float, other_lon: float, other_lat: float, radius: float) -> None:
    node = parse_filter({"p": {"$nearSphere": [lon, lat]}})
    assert isinstance(node, GeoNear)
    distance = node.distance([other_lon, other_lat])
    assert distance is not None
    if abs(distance - radius) > 1e-9:
        assert found("$geoWithin", {"$centerSphere": [[lon, lat], radius]}, [other_lon, other_lat]) is (
            distance < radius
        )


@given(st.floats(-60, 60), st.floats(-60, 60), st.floats(0.5, 20), st.booleans())
def test_rings_mean_the_same_in_either_direction(lon: float, lat: float, size: float, reverse: bool) -> None:
    ring = [[lon, lat], [lon + size, lat], [lon + size, lat + size], [lon, lat + size], [lon, lat]]
    region = {"$geometry": {"type": "Polygon", "coordinates": [ring[::-1] if reverse else ring]}}
    assert found("$geoWithin", region, [lon + size / 2, lat + size / 2])
    assert not found("$geoWithin", region, [lon - size, lat])
    assert found("$geoIntersects", region, point(lon, lat))


@given(st.recursive(st.one_of(st.none(), st.floats(), st.text(max_size=3)), lambda inner: st.lists(inner, max_size=4)))
def test_anything_may_be_stored(value: Any) -> None:
    stored(value)
    stored({"type": "Polygon", "coordinates": value})


def test_a_band_around_the_sphere_holds_points_opposite_to_each_other() -> None:
    band = [[lon, -5] for lon in range(-160, 161, 20)] + [[lon, 5] for lon in range(160, -161, -20)]
    region = {"$geometry": {"type": "Polygon", "coordinates": [[*band, band[0]]]}}
    for place, inside in (((100, 0), True), ((-80, 0), True), ((179, 0), False), ((0, 20), False)):
        assert found("$geoWithin", region, point(*place)) is inside
