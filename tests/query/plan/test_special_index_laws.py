"""A query means the same with and without a hashed, wildcard or geospatial index; the nearest come first."""

import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.values import Document, encode
from bucketd.kernels import TextKeyMaker, TextSearch
from bucketd.query.match.geo import GeoNear
from bucketd.query.match.parse import parse_filter
from bucketd.query.plan.planner import Wanted
from bucketd.query.sort import parse_sort
from support.query_laws import directions, filters, paths, rows, run, sorts
from support.special_collections import collection_with

slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200)


@st.composite
def keys_with_a_kind(draw: Any) -> Document:
    """A key with a hash, or with a wildcard at some path."""
    if draw(st.booleans()):
        path, other = draw(paths), draw(paths)
        key: Document = {path: "hashed"}
        if other != path and draw(st.booleans()):
            key = {other: draw(directions), **key} if draw(st.booleans()) else {**key, other: draw(directions)}
        return {"key": key}
    scope = draw(st.sampled_from(["", "a.", "d."]))
    spec: Document = {"key": {f"{scope}$**": draw(directions)}}
    if not scope:
        projection = draw(st.sampled_from([None, {"a": 1}, {"a": 0}, {"a.b": 1}, {"a.b": 0}, {"_id": 1}]))
        if projection is not None:
            spec["wildcardProjection"] = projection
        if draw(st.booleans()) and projection in ({"a": 0}, None):
            spec = {"key": {"a": 1, "$**": 1}, "wildcardProjection": {"a": 0}}
    return spec


@slow
@given(rows, st.lists(keys_with_a_kind(), min_size=1, max_size=2, unique_by=str), filters, sorts)
def test_hashes_and_wildcards_change_nothing(
    given_rows: list[Document], specs: list[Document], filter: Document, sort: Document | None
) -> None:
    engine, collection = collection_with(given_rows, specs)
    try:
        pattern = None if sort is None else parse_sort(sort)
        expected = run(engine, collection, Wanted(matcher=parse_filter(filter), sort=pattern, natural=1))
    except MongoError:
        return
    wanted = Wanted(matcher=parse_filter(filter), sort=pattern)
    found = run(engine, collection, wanted)
    assert sorted(row["_id"] for row in found) == sorted(row["_id"] for row in expected)
    if wanted.sort is not None:
        found_keys = [wanted.sort.key(row) for row in found]
        assert found_keys == sorted(found_keys)


longitudes = st.one_of(st.floats(-180, 180), st.sampled_from([-180.0, 180.0, 0.0, 90.0]))
latitudes = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 0.0]))
pairs = st.tuples(longitudes, latitudes).map(list)


@st.composite
def squares(draw: Any) -> list[list[float]]:
    x, y = draw(st.floats(-170, 150)), draw(st.floats(-80, 60))
    size = draw(st.floats(0.01, 20))
    return [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]]


places = st.one_of(
    pairs.map(lambda pair: {"type": "Point", "coordinates": pair}),
    pairs,
    squares().map(lambda ring: {"type": "Polygon", "coordinates": [ring]}),
    squares().map(lambda ring: {"type": "LineString", "coordinates": ring[:3]}),
    squares().map(lambda ring: {"type": "MultiPoint", "coordinates": ring[:3]}),
)
placed_rows = st.lists(
    st.fixed_dictionaries({}, optional={"p": places, "kind": st.sampled_from(["x", "y", ["x", "y"]])}), max_size=15
)
regions = st.one_of(
    squares().map(lambda ring: {"$geometry": {"type": "Polygon", "coordinates": [ring]}}),
    st.tuples(pairs, st.floats(0, 3.2)).map(lambda cap: {"$centerSphere": list(cap)}),
)


@slow
@given(placed_rows, st.booleans(), regions, st.booleans(), st.sampled_from([None, "x"]))
def test_places_on_the_sphere_are_found_by_an_index(
    given_rows: list[Document], compound: bool, region: Document, crossing: bool, kind: str | None
) -> None:
    operator = "$geoIntersects" if crossing and "$geometry" in region else "$geoWithin"
    filter: Document = {"p": {operator: region}}
    if kind is not None:
        filter["kind"] = kind
    key = {"kind": 1, "p": "2dsphere"} if compound else {"p": "2dsphere"}
    engine, collection = collection_with(given_rows, [{"key": key}])
    found = run(engine, collection, Wanted(matcher=parse_filter(filter)))
    expected = run(engine, collection, Wanted(matcher=parse_filter(filter), hint={"$natural": 1}))
    assert sorted(row["_id"] for row in found) == sorted(row["_id"] for row in expected)


@slow
@given(
    st.lists(pairs, max_size=20), pairs, st.one_of(st.none(), st.floats(0, 2e7)), st.sampled_from(["2dsphere", "2d"])
)
def test_the_nearest_come_first_and_all_of_them(
    points: list[list[float]], centre: list[float], limit: float | None, kind: str
) -> None:
    condition: Document = {"$nearSphere": centre}
    if limit is not None:
        condition["$maxDistance"] = limit / 6378100
    near = parse_filter({"p": condition})
    assert isinstance(near, GeoNear)
    engine, collection = collection_with([{"p": point} for point in points], [{"key": {"p": kind}}])
    found = [near.distance(row["p"]) for row in run(engine, collection, Wanted(matcher=near))]
    expected = sorted(distance for point in points if (distance := near.distance(point)) is not None)
    assert found == expected


@slow
@given(st.lists(pairs, max_size=20), pairs, st.floats(0, 400), st.integers(1, 32))
def test_points_of_the_plane_are_found_by_an_index(
    points: list[list[float]], centre: list[float], radius: float, bits: int
) -> None:
    engine, collection = collection_with([{"p": point} for point in points], [{"key": {"p": "2d"}, "bits": bits}])
    for filter in (
        {"p": {"$geoWithin": {"$center": [centre, radius]}}},
        {"p": {"$geoWithin": {"$box": [centre, [centre[0] + radius, centre[1] + 10]]}}},
    ):
        found = run(engine, collection, Wanted(matcher=parse_filter(filter)))
        expected = run(engine, collection, Wanted(matcher=parse_filter(filter), hint={"$natural": 1}))
        assert sorted(row["_id"] for row in found) == sorted(row["_id"] for row in expected)
    near = [row["p"] for row in run(engine, collection, Wanted(matcher=parse_filter({"p": {"$near": centre}})))]
    distances = [math.dist(point, centre) for point in near]
    assert distances == sorted(distances)
    assert len(near) == len(points)


words = st.sampled_from(["fox", "Foxes", "dog", "dogs", "the", "running", "run", "café", "cafe", "blue-green", "don't"])
texts = st.lists(words, max_size=6).map(" ".join)


@slow
@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional={"t": st.one_of(texts, st.lists(texts, max_size=2)), "n": st.integers(0, 9)}
        ),
        max_size=10,
    ),
    texts,
)
def test_a_search_finds_what_scores(given_rows: list[Document], search: str) -> None:
    engine, collection = collection_with(given_rows, [{"key": {"t": "text"}}])
    found = run(engine, collection, Wanted(matcher=parse_filter({"$text": {"$search": search}})))
    asked = TextSearch(TextKeyMaker([], [], [("t", 1.0)], None, "english", "language"), search, "english", False, False)
    everything = run(engine, collection, Wanted(hint={"$natural": 1}))
    scores = asked.scores([encode(row) for row in everything])
    expected = [row["_id"] for row, score in zip(everything, scores, strict=True) if score is not None]
    assert sorted(row["_id"] for row in found) == expected
