"""The laws of KeyStrings: the order of the bytes is the order of the values, and equal values have equal bytes."""

from itertools import pairwise
from typing import Any

import pytest
from bson import Decimal128, Int64
from hypothesis import example, given
from hypothesis import strategies as st

from bucketd.common.ordering import compare
from bucketd.common.values import encode
from bucketd.kernels import LONG_KEY_BYTES, LONG_KEY_PREFIX, cap_key, key_of_id, key_string
from support.bson_values import numbers, values


def key(*items: Any, descending: tuple[bool, ...] = ()) -> bytes:
    return key_string(encode({str(position): item for position, item in enumerate(items)}), descending)


def sign(a: bytes, b: bytes) -> int:
    return (a > b) - (a < b)


@given(a=numbers, b=numbers)
@example(a=2**53 + 1, b=float(2**53))
@example(a=Decimal128("0.1"), b=0.1)
@example(a=Int64(2**63 - 1), b=float(2**63))
@example(a=Decimal128("1.00"), b=1)
@example(a=Decimal128("9223372036854775807"), b=Int64(2**63 - 1))
def test_numbers_are_ordered_as_numbers(a: Any, b: Any) -> None:
    assert sign(key(a), key(b)) == compare(a, b)


@given(a=values, b=values)
def test_keys_are_ordered_as_values(a: Any, b: Any) -> None:
    assert sign(key(a), key(b)) == compare(a, b)


@given(a=values, b=values)
def test_a_descending_key_is_ordered_the_other_way(a: Any, b: Any) -> None:
    assert sign(key(a, descending=(True,)), key(b, descending=(True,))) == -compare(a, b)


@given(
    rows=st.lists(st.tuples(values, values), min_size=2, max_size=2), directions=st.tuples(st.booleans(), st.booleans())
)
def test_compound_keys_compare_component_by_component(
    rows: list[tuple[Any, Any]], directions: tuple[bool, bool]
) -> None:
    (a, b), (c, d) = rows
    first, second = compare(a, c), compare(b, d)
    wanted = (-first if directions[0] else first) or (-second if directions[1] else second)
    assert sign(key(a, b, descending=directions), key(c, d, descending=directions)) == wanted


@given(a=values, b=values, descending=st.booleans())
def test_no_key_begins_another(a: Any, b: Any, descending: bool) -> None:
    one, other = key(a, descending=(descending,)), key(b, descending=(descending,))
    assert one == other or not one.startswith(other)
    assert one[0] not in (0x00, 0xFF)


def test_types_are_ordered_as_documented() -> None:
    row = [None, Decimal128("NaN"), -1, 0, 1e300, "", "a", {}, {"a": 1}, [], [1], b"", b"\0", False, True]
    assert all(key(low) < key(high) for low, high in pairwise(row))


@given(raw=st.binary(max_size=60))
def test_bytes_that_are_no_bson_are_refused(raw: bytes) -> None:
    for read in (key_string, key_of_id):
        try:
            read(raw)
        except ValueError:
            continue


def test_deep_nesting_is_refused() -> None:
    raw = encode({"a": 1})
    for _ in range(300):
        raw = (len(raw) + 8).to_bytes(4, "little") + b"\x03a\0" + raw + b"\0"
    with pytest.raises(ValueError, match="too deep"):
        key_string(raw)


def test_a_collation_decides_on_strings_inside_values_but_not_on_names() -> None:
    def folded(*items: Any) -> bytes:
        return key_string(encode({"": list(items)}), [], lambda text: text.lower().encode())

    assert folded("A", {"x": "B"}) == folded("a", {"x": "b"})
    assert folded({"X": 1}) != folded({"x": 1})


def test_a_failing_collation_is_told() -> None:
    def fail(text: str) -> bytes:
        raise RuntimeError(f"no key for {text}")

    with pytest.raises(ValueError, match="no key for a"):
        key_string(encode({"": "a"}), [], fail)


@pytest.mark.parametrize("length", [0, 10, LONG_KEY_BYTES - 1])
def test_keys_that_fit_are_kept_whole(length: int) -> None:
    assert cap_key(b"x" * length) == b"x" * length


@given(a=st.binary(min_size=1, max_size=3), b=st.binary(min_size=1, max_size=3))
def test_long_keys_are_cut_and_differ_where_the_whole_differs(a: bytes, b: bytes) -> None:
    one, other = cap_key(b"x" * 600 + a), cap_key(b"x" * 600 + b)
    assert len(one) == LONG_KEY_BYTES
    assert one[:LONG_KEY_PREFIX] == b"x" * LONG_KEY_PREFIX
    assert (one == other) == (a == b)
