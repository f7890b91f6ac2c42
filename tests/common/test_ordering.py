"""Laws of the order of BSON values."""

import math
from typing import Any

import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.ordering import canonical_class, compare, equal, order_key
from bucketd.common.values import MISSING, decode, encode

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.floats(),
    st.decimals(-(10**20), 10**20, places=4).map(Decimal128),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.binary(max_size=6),
    st.binary(max_size=6).map(lambda raw: Binary(raw, 5)),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.integers(-(2**62), 2**62).map(DatetimeMS),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.sampled_from([MinKey(), MaxKey(), Regex("a", "i"), Regex("a"), Code("x"), Code("x", {"a": 1})]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(values, values)
def test_keys_agree_with_compare(a: Any, b: Any) -> None:
    sign = compare(a, b)
    assert sign == -compare(b, a)
    assert (sign < 0) == (order_key(a) < order_key(b))
    assert (sign == 0) == equal(a, b) == (order_key(a) == order_key(b))
    if sign == 0:
        assert hash(order_key(a)) == hash(order_key(b))


@given(values, values, values)
def test_order_is_transitive(a: Any, b: Any, c: Any) -> None:
    low, middle, high = sorted([a, b, c], key=order_key)
    assert compare(low, middle) <= 0
    assert compare(middle, high) <= 0
    assert compare(low, high) <= 0


@given(values)
def test_key_survives_encoding(value: Any) -> None:
    assert order_key(decode(encode({"v": value}))["v"]) == order_key(value)


@given(values)
def test_class_leads_the_key(value: Any) -> None:
    assert order_key(value)[0] == canonical_class(value)


def test_classes_in_order() -> None:
    ladder = [
        MinKey(),
        MISSING,
        None,
        math.nan,
        -math.inf,
        0,
        "",
        {},
        [],
        b"",
        ObjectId(b"\0" * 12),
        False,
        True,
        DatetimeMS(0),
        Timestamp(0, 0),
        Regex("a"),
        Code("x"),
        Code("x", {}),
        MaxKey(),
    ]
    keys = [order_key(value) for value in ladder]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (1, Decimal128("1.00")),
        (0.0, -0.0),
        (math.nan, Decimal128("NaN")),
        (math.inf, Decimal128("Infinity")),
        (Int64(5), 5),
    ],
)
def test_numbers_equal_by_value(a: Any, b: Any) -> None:
    assert equal(a, b)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (2**53, Int64(2**53 + 1)),
        (Int64(2**63 - 1), 2.0**63),
        (Decimal128("0.1"), 0.1),
        (math.nan, -math.inf),
        ("B", "a"),
        ([1], [1, 1]),
        ([], [None]),
        ({"b": 1}, {"a": "x"}),
        ({"a": 1}, {"b": 0}),
        (b"zz", b"aaa"),
        (Binary(b"aa", 0), Binary(b"aa", 5)),
        (Binary(b"aa", 128), Binary(b"aa", 2)),
        (Regex("a", ""), Regex("a", "i")),
    ],
)
def test_less(less: Any, more: Any) -> None:
    assert compare(less, more) == -1


def test_collator_is_used_inside_containers() -> None:
    class Folding:
        def key(self, string: str) -> bytes:
            return string.lower().encode()

    assert equal({"a": ["X"]}, {"a": ["x"]}, Folding())
    assert not equal({"A": 1}, {"a": 1}, Folding())
