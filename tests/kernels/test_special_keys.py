"""Keys of wildcard, geospatial and text indexes: nothing that comes in breaks them, and coverings hold what they are of."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.values import Document, encode
from bucketd.kernels import (
    FlatKeyMaker,
    IndexKeyMaker,
    IndexRefused,
    SphereKeyMaker,
    TextKeyMaker,
    TextSearch,
    WildcardKeyMaker,
    cover_cap,
    cover_geometry,
    key_hash,
    key_string,
)

MAKERS: list[Any] = [
    IndexKeyMaker(["a", "b"], [False, True], False, 1),
    WildcardKeyMaker([("b", False)], [], "", False, [("a.c", False), ("_id", False)], True),
    WildcardKeyMaker([], [], "a.b", True, [], True),
    SphereKeyMaker([("a", "2dsphere", False), ("b", None, True)], True),
    SphereKeyMaker([("data.a", "2dsphere_bucket", False)], True),
    FlatKeyMaker("a", 1, 26, -180.0, 180.0),
    TextKeyMaker([("b", False)], [], [("a", 2.0)], 1.0, "english", "language"),
]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=8), st.binary(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b", "c", "type", "coordinates", "geometries"]), inner, max_size=4),
    ),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(["a", "b", "data", "language", "_id"]), values, max_size=4)


@given(documents, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_no_bytes_break_a_maker(document: Document, changes: list[tuple[int, int]]) -> None:
    raw = bytearray(encode(document))
    for position, byte in changes:
        raw[position % len(raw)] = byte
    for maker in MAKERS:
        try:
            keys, arrays = maker.keys(bytes(raw))
        except (IndexRefused, ValueError):
            continue
        assert keys == sorted(set(keys))
        assert arrays is None or all(isinstance(components, list) for components in arrays)


def cells(document: Document) -> list[int]:
    keys, _ = SphereKeyMaker([("p", "2dsphere", False)], True).keys(encode(document))
    return [int.from_bytes(key[1:], "big") for key in keys]


places = st.tuples(st.floats(-180, 180), st.floats(-90, 90))


@given(places, places, st.floats(0, math.pi))
def test_a_covering_of_a_circle_holds_its_points(
    centre: tuple[float, float], place: tuple[float, float], radius: float
) -> None:
    (lon, lat), (other_lon, other_lat) = (map(math.radians, pair) for pair in (centre, place))
    across = (
        math.sin((other_lat - lat) / 2) ** 2
        + math.cos(lat) * math.cos(other_lat) * math.sin((other_lon - lon) / 2) ** 2
    )
    distance = 2 * math.asin(min(math.sqrt(across), 1.0))
    if distance <= radius:
        (cell,) = cells({"p": list(place)})
        assert any(low <= cell <= high for low, high in cover_cap(*centre, radius, 16))


@given(places, st.floats(0.001, 30), places)
def test_a_covering_meets_that_of_what_it_crosses(
    corner: tuple[float, float], size: float, other: tuple[float, float]
) -> None:
    x, y = max(min(corner[0], 149.0), -179.0), max(min(corner[1], 59.0), -89.0)
    line = {"type": "LineString", "coordinates": [[x, y], [x + size, y + size]]}
    ranges = cover_geometry(encode({"": {"type": "Point", "coordinates": [x, y]}}), 16)
    assert any(low <= cell <= high for cell in cells({"p": line}) for low, high in ranges)
    assert cells({"p": None}) == cells({"q": list(other)}) == []


def test_equal_values_have_one_hash() -> None:
    maker = IndexKeyMaker(["a"], [False], False, 0)
    assert maker.keys(encode({"a": 1})) == maker.keys(encode({"a": 1.0})) != maker.keys(encode({"a": "1"}))
    ((key,), _) = maker.keys(encode({"a": 1}))
    assert key[1:] == key_hash(key_string(encode({"": 1}))).to_bytes(8, "big")


def test_leaves_of_a_wildcard() -> None:
    maker = WildcardKeyMaker([], [], "", False, [("_id", False)], True)
    keys, arrays = maker.keys(encode({"_id": 1, "a": {"b": 1, "c": []}, "d": [{"e": 1}, 2, [3]], "f": {}, "g.h": 1}))
    paths = sorted(key[1 : key.index(b"\0")] for key in keys)
    assert paths == [b"a.b", b"a.c", b"d", b"d", b"d.e", b"f"]
    assert arrays == [[1]]


def test_a_search_tells_what_it_looks_for() -> None:
    maker = TextKeyMaker([], [], [("t", 1.0)], None, "english", "language")
    search = TextSearch(maker, 'Running "brown fox" -dogs -"red cat"', "english", False, False)
    assert (search.terms, search.negated) == (["brown", "fox", "run"], ["dog"])
    assert (search.phrases, search.negated_phrases) == (["brown fox"], ["red cat"])
    texts = ["a brown fox runs", "brown foxes and dogs", "a red cat, a brown fox", "nothing"]
    assert [score is not None for score in search.scores([encode({"t": text}) for text in texts])] == [
        True,
        *[False] * 3,
    ]
    with pytest.raises(ValueError, match="klingon"):
        TextSearch(maker, "x", "klingon", False, False)
