"""What an index entry tells of the values that it was made from."""

from typing import Any

import pytest
from bson import Code, Decimal128, Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.values import encode
from bucketd.kernels import IndexEntryReader, IndexKeyMaker
from support.bson_values import values

alike = st.sampled_from(
    [
        0, 0.0, -0.0, Int64(0), Decimal128("0"), Decimal128("-0E+3"), 1, 1.0, Int64(1), Decimal128("1.00"), Decimal128("1"),
        Int64(2**53 + 1), -(2**63), float(2**53), Decimal128("9007199254740993"), float("nan"), Decimal128("NaN"),
        Decimal128("-Infinity"), float("-inf"), 0.1, Decimal128("0.1"), None, "", "a\0b", {"x": [1.0, {"y": Int64(2)}]},
    ]
)  # fmt: skip


def told(document: dict[str, Any], paths: list[str], descending: list[bool], wanted: list[bool]) -> bytes | None:
    keys, arrays, types = IndexKeyMaker(paths, descending).typed_keys(encode(document))
    assert arrays is None
    assert len(keys) == 1
    # Whatever stands behind the key does not matter.
    return IndexEntryReader(paths, descending, wanted).documents([(keys[0] + b"\xff\0", types)])[0]


@given(st.tuples(alike, alike), st.tuples(st.booleans(), st.booleans()), st.tuples(st.booleans(), st.booleans()))
def test_values_come_back_to_the_bit(
    pair: tuple[Any, Any], descending: tuple[bool, bool], wanted: tuple[bool, bool]
) -> None:
    document = dict(zip(("a", "b"), pair, strict=True))
    shown = {path: document[path] for path, is_wanted in zip(("a", "b"), wanted, strict=True) if is_wanted}
    assert told(document, ["a", "b"], list(descending), list(wanted)) == encode(shown)


@given(values.filter(lambda value: not isinstance(value, list)), st.booleans())
def test_any_value_comes_back_or_is_not_told(value: Any, descending: bool) -> None:
    found = told({"a": value}, ["a"], [descending], [True])
    assert found is None or found == encode({"a": value})


def test_missing_is_not_null() -> None:
    both = ["a", "b"]
    assert told({"b": 1}, both, [False, True], [True, True]) == encode({"b": 1})
    assert told({"a": None}, both, [False, True], [True, True]) == encode({"a": None})
    assert told({}, both, [False, True], [True, True]) == encode({})


def test_dotted_paths_stand_in_one_object() -> None:
    paths = ["a.b", "c", "a.d"]
    document = {"a": {"b": 1, "d": "x"}, "c": True}
    assert told(document, paths, [False] * 3, [True] * 3) == encode(document)
    assert told(document, paths, [False] * 3, [True, False, False]) == encode({"a": {"b": 1}})
    # Whether `a` is there, and is an object, is not in the key.
    assert told({"a": 5, "c": True}, paths, [False] * 3, [True] * 3) is None
    assert told({"a": 5, "c": True}, paths, [False] * 3, [False, True, False]) == encode({"c": True})


@pytest.mark.parametrize("value", ["x" * 400, Code("f", {"x": 1})])
def test_not_told(value: Any) -> None:
    assert told({"a": value}, ["a"], [False], [True]) is None


def test_entries_without_types_and_broken_ones_are_not_told() -> None:
    (key,), _, types = IndexKeyMaker(["a"], [False]).typed_keys(encode({"a": Decimal128("1.0")}))
    reader = IndexEntryReader(["a"], [False], [True])
    assert reader.documents([(key, b""), (key[:-1], types), (key, types[:-1]), (b"", types)]) == [None] * 4


def test_wanted_paths_lie_apart() -> None:
    IndexEntryReader(["a", "a.b"], [False, False], [True, False])
    with pytest.raises(ValueError, match="below another"):
        IndexEntryReader(["a", "a.b"], [False, False], [True, True])
    with pytest.raises(ValueError, match="each path"):
        IndexEntryReader(["a"], [False], [])
