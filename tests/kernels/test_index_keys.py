"""Which keys an index has for a document."""

from typing import Any

import pytest
from bson import Binary
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.values import decode, encode
from bucketd.kernels import AmbiguousPath, IndexKeyMaker, ParallelArrays, index_keys, key_string
from support.bson_values import values

UNDEFINED = object()


def raw_values(*items: Any) -> bytes:
    """Values as raw BSON, `UNDEFINED` as the type that cannot be encoded any more."""
    parts = []
    for item in items:
        element = encode({"": None if item is UNDEFINED else item})[4:-1]
        parts.append(b"\x06\0" if item is UNDEFINED else element)
    body = b"".join(parts)
    return (len(body) + 5).to_bytes(4, "little") + body + b"\0"


def keys_of(*rows: Any) -> list[bytes]:
    return sorted({key_string(raw_values(*(row if isinstance(row, tuple) else (row,)))) for row in rows})


CASES: list[tuple[list[str], dict[str, Any], list[Any]]] = [
    (["a"], {"a": 1}, [1]),
    (["a"], {}, [None]),
    (["a"], {"a": {"b": 1}}, [{"b": 1}]),
    (["a.b"], {"a": {"b": 1}}, [1]),
    (["a.b"], {"a": 5}, [None]),
    (["a"], {"a": [1, 2, 1]}, [1, 2]),
    (["a"], {"a": []}, [UNDEFINED]),
    (["a"], {"a": [[1, 2], 3]}, [[1, 2], 3]),
    (["a"], {"a": [[]]}, [[]]),
    (["a.b"], {"a": [{"b": 1}, {"b": 2}, {"c": 3}, 4]}, [1, 2, None]),
    (["a.b"], {"a": []}, [None]),
    (["a.b"], {"a": [{"b": [1, 2]}, {"b": [3]}]}, [1, 2, 3]),
    (["a.b"], {"a": [[{"b": 1}]]}, [None]),
    (["a", "b"], {"a": [1, 2], "b": 5}, [(1, 5), (2, 5)]),
    (["a.b", "a.c"], {"a": [{"b": 1, "c": 2}, {"b": 3}]}, [(1, 2), (3, None)]),
    (["a", "a.b"], {"a": [{"b": 1}]}, [({"b": 1}, 1)]),
    (["a", "a.b"], {"a": []}, [(UNDEFINED, None)]),
    (["a.0"], {"a": [7, 8]}, [7]),
    (["a.1"], {"a": [7, 8]}, [8]),
    (["a.5"], {"a": [7, 8]}, [None]),
    (["a.0"], {"a": {"0": 3}}, [3]),
    (["a.0"], {"a": [[1, 2], 3]}, [[1, 2]]),
    (["a.0.b"], {"a": [{"b": 4}, {"b": 5}]}, [4]),
    (["a.0"], {"a": [{"b": 1}]}, [{"b": 1}]),
    (["a.b.c"], {"a": [{"b": [{"c": 1}, {"c": 2}]}, {"b": {"c": 3}}]}, [1, 2, 3]),
]


@pytest.mark.parametrize(("paths", "document", "rows"), CASES)
def test_keys(paths: list[str], document: dict[str, Any], rows: list[Any]) -> None:
    keys, _ = index_keys(encode(document), paths, [False] * len(paths))
    assert keys == keys_of(*rows)


@pytest.mark.parametrize(
    ("paths", "document", "wanted"),
    [
        (["a"], {"a": 1}, None),
        (["a"], {"a": [1]}, [[1]]),
        (["a"], {"a": []}, [[1]]),
        (["a.b"], {"a": [{"b": [1]}]}, [[1, 2]]),
        (["a.b"], {"a": {"b": [1]}}, [[2]]),
        (["b", "a"], {"a": [1], "b": 2}, [[], [1]]),
    ],
)
def test_components_that_are_arrays(paths: list[str], document: dict[str, Any], wanted: object) -> None:
    assert index_keys(encode(document), paths, [False] * len(paths))[1] == wanted


def test_parallel_arrays_are_refused_in_mongodbs_words() -> None:
    with pytest.raises(ParallelArrays, match=r"^cannot index parallel arrays \[b\] \[a\]$"):
        index_keys(encode({"a": [1], "b": [2]}), ["a", "b"], [False, False])


def test_a_number_that_is_position_and_field_is_refused() -> None:
    with pytest.raises(AmbiguousPath, match="field: '0'"):
        index_keys(encode({"a": [{"0": 1}]}), ["a.0"], [False])


@pytest.mark.parametrize(
    ("document", "count"),
    [({}, 0), ({"a": None}, 1), ({"b": 1}, 1), ({"a": 1, "b": 1}, 1), ({"c": 1}, 0), ({"a": []}, 1)],
)
def test_a_sparse_index_has_documents_with_any_of_its_fields(document: dict[str, Any], count: int) -> None:
    assert len(index_keys(encode(document), ["a", "b"], [False, False], sparse=True)[0]) == count


def test_rows_tell_the_values_of_each_key() -> None:
    maker = IndexKeyMaker(["a.b", "c"], [False, True])
    rows = maker.rows(encode({"a": [{"b": 1}, {"b": 2}], "c": "x" * 1000}))
    assert [decode(row) for _, row in rows] == [{"a.b": 1, "c": "x" * 1000}, {"a.b": 2, "c": "x" * 1000}]
    assert all(len(key) > 1000 for key, _ in rows)


def test_a_maker_wants_a_direction_for_each_path() -> None:
    with pytest.raises(ValueError, match="one direction"):
        IndexKeyMaker(["a"], [True, False])


@given(value=values, descending=st.booleans())
def test_a_field_without_arrays_has_the_key_of_its_value(value: Any, descending: bool) -> None:
    keys, _ = index_keys(encode({"x": 0, "a": {"b": value}}), ["a.b"], [descending])
    if isinstance(value, list):
        assert len(keys) <= max(len(value), 1)
    else:
        assert keys == [key_string(encode({"": value}), [descending])] or len(keys[0]) > 300


@given(raw=st.binary(max_size=80), path=st.sampled_from(["a", "a.b", "a.0"]))
def test_no_bytes_do_harm(raw: bytes, path: str) -> None:
    for document in (raw, encode({"a": Binary(raw)}).replace(b"\x05a", b"\x04a")):
        try:
            index_keys(document, [path], [False])
        except ValueError:
            continue
