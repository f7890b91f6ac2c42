"""Sort documents, sort keys, and the sorter that spills."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError, QueryExceededMemoryLimitNoDiskUseAllowed
from bucketd.common.values import Document, decode, encode
from bucketd.query.sort import Sorter, parse_sort


def ordered(spec: Document, documents: list[Document]) -> list[Any]:
    pattern = parse_sort(spec)
    return [document["_id"] for document in sorted(documents, key=pattern.key)]


@pytest.mark.parametrize(
    ("spec", "documents", "ids"),
    [
        ({"a": 1}, [{"_id": 1, "a": 5}, {"_id": 2}, {"_id": 3, "a": []}, {"_id": 4, "a": None}], [3, 2, 4, 1]),
        ({"a": 1}, [{"_id": 1, "a": [3, 9]}, {"_id": 2, "a": 4}], [1, 2]),
        ({"a": -1}, [{"_id": 1, "a": 4}, {"_id": 2, "a": [3, 9]}], [2, 1]),
        (
            {"a.b": 1},
            [{"_id": 1, "a": [{"b": 5}, {"b": 2}]}, {"_id": 2, "a": {"b": 3}}, {"_id": 3, "a": []}],
            [3, 1, 2],
        ),
        ({"a.0": 1}, [{"_id": 1, "a": [5, 1]}, {"_id": 2, "a": [3, 9]}], [2, 1]),
        ({"a": 1, "b": -1}, [{"_id": 1, "a": 1, "b": 1}, {"_id": 2, "a": 1, "b": 2}], [2, 1]),
        (
            {"a.b": 1, "a.c": 1},
            [{"_id": 1, "a": [{"b": 1, "c": 9}, {"b": 2, "c": 0}]}, {"_id": 2, "a": {"b": 1, "c": 5}}],
            [2, 1],
        ),
    ],
)
def test_order(spec: Document, documents: list[Document], ids: list[int]) -> None:
    assert ordered(spec, documents) == ids


def test_parallel_arrays_are_refused() -> None:
    with pytest.raises(MongoError) as caught:
        parse_sort({"a": 1, "b": 1}).key({"a": [1], "b": [2]})
    assert caught.value.number == 2


@pytest.mark.parametrize(
    ("spec", "number"),
    [
        ("x", 15973),
        ({"a": "x"}, 15974),
        ({"a": True}, 15974),
        ({"a": 0}, 15975),
        ({"a": 2}, 15975),
        ({"$a": 1}, 16410),
        ({"": 1}, 40352),
        ({"a.": 1}, 40353),
        ({"a": {"$x": 1}}, 17312),
        ({"a": {"$meta": "nope"}}, 31138),
        ({"a": {"$meta": "randVal", "b": 1}}, 9),
        ({f"f{at}": 1 for at in range(33)}, 13103),
    ],
)
def test_refused(spec: Any, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parse_sort(spec)
    assert caught.value.number == number


def test_metadata_sorts_downwards() -> None:
    pattern = parse_sort({"score": {"$meta": "textScore"}})
    assert pattern.metadata == {"textScore"}
    assert pattern.key({}, {"textScore": 2.0}) < pattern.key({}, {"textScore": 1.0})
    assert parse_sort({"r": {"$meta": "randVal"}}).key({}) != parse_sort({"r": {"$meta": "randVal"}}).key({})
    with pytest.raises(MongoError) as caught:
        pattern.key({}, None)
    assert caught.value.number == 40218


def test_serialize_and_values() -> None:
    pattern = parse_sort({"a.b": 1.0, "c": -1})
    assert pattern.serialize() == {"a.b": 1, "c": -1}
    assert pattern.fields == ("a.b", "c")
    assert pattern.values({"a": [{"b": 3}, {"b": 1}]}) == [1, None]


rows = st.lists(
    st.fixed_dictionaries(
        {"a": st.one_of(st.none(), st.integers(0, 4), st.lists(st.integers(0, 4), max_size=2)), "b": st.integers(0, 2)}
    ),
    max_size=40,
)


@given(rows, st.sampled_from([{"a": 1}, {"a": -1}, {"b": 1, "a": -1}]), st.sampled_from([None, 1, 5]), st.booleans())
def test_sorter_is_a_stable_sort(documents: list[Document], spec: Document, limit: int | None, spills: bool) -> None:
    pattern = parse_sort(spec)
    for at, document in enumerate(documents):
        document["_id"] = at
    sorter = Sorter(pattern, limit=limit, memory_bytes_max=700 if spills else 1 << 20)
    for document in documents:
        sorter.add(document, raw=encode(document), metadata={"m": document["_id"]})
    expected = sorted(documents, key=pattern.key)[:limit]
    results = [(decode(row) if isinstance(row, bytes) else row, metadata) for row, metadata in sorter.results()]
    assert [row for row, _ in results] == expected
    assert [metadata for _, metadata in results] == [{"m": row["_id"]} for row in expected]


def test_sorter_spills_to_the_folder(tmp_path: Path) -> None:
    sorter = Sorter(parse_sort({"a": 1}), memory_bytes_max=10_000, spill_folder=str(tmp_path))
    numbers = list(range(1000))
    random.Random(1).shuffle(numbers)
    for number in numbers:
        sorter.add({"a": number})
    assert sorter.used_disk
    assert sorter.spills > 3
    found = [decode(row) if isinstance(row, bytes) else row for row, _ in sorter.results()]
    assert [row["a"] for row in found] == list(range(1000))


def test_sorter_refuses_when_disk_is_not_allowed() -> None:
    sorter = Sorter(parse_sort({"a": 1}), memory_bytes_max=1000, allow_disk_use=False)
    sorter.add({"a": 0}, raw=bytes(800))
    with pytest.raises(QueryExceededMemoryLimitNoDiskUseAllowed):
        sorter.add({"a": 1}, raw=bytes(800))


def test_limit_needs_little_memory() -> None:
    sorter = Sorter(parse_sort({"a": 1}), limit=3, memory_bytes_max=60_000, allow_disk_use=False)
    for number in range(5000, 0, -1):
        sorter.add({"a": number})
    found = [row if not isinstance(row, bytes) else decode(row) for row, _ in sorter.results()]
    assert found == [{"a": 1}, {"a": 2}, {"a": 3}]
