"""Hypothesis strategies for BSON values, weighted towards the edges where types and sizes meet."""

import math
from typing import Any

from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from hypothesis import strategies as st

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_EDGES = [
    number + step
    for base in (0, 2**31, 2**53, 2**60, 2**63)
    for sign in (1, -1)
    for number in (sign * base,)
    for step in (-2, -1, 0, 1, 2)
    if INT64_MIN <= number + step <= INT64_MAX
]


def _decimal(parts: tuple[bool, int, int]) -> Decimal128:
    negative, coefficient, exponent = parts
    return Decimal128(f"{'-' if negative else ''}{coefficient}E{exponent}")


_decimals = st.one_of(
    st.tuples(st.booleans(), st.integers(0, 10**34 - 1), st.integers(-6176, 6111)).map(_decimal),
    st.tuples(st.booleans(), st.integers(0, 1000), st.integers(-3, 3)).map(_decimal),
    st.sampled_from(_EDGES).map(lambda number: Decimal128(str(number))),
    st.sampled_from(["NaN", "-NaN", "Infinity", "-Infinity", "-0", "0.1", "1E+400", "1E-400", "5E-324"]).map(
        Decimal128
    ),
)
_doubles = st.one_of(
    st.floats(),
    st.sampled_from(_EDGES).map(float),
    st.sampled_from([0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan]),
)
_integers = st.one_of(st.sampled_from(_EDGES), st.integers(INT64_MIN, INT64_MAX), st.integers(-3, 3))

numbers: st.SearchStrategy[Any] = st.one_of(_integers, _integers.map(Int64), _doubles, _decimals)
strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text("ab\0\x01\uffff", max_size=4)
names = st.text("abA0é", max_size=2)
_binaries = st.tuples(st.binary(max_size=6), st.sampled_from([0, 1, 2, 3, 4, 5, 6, 128])).map(
    lambda parts: Binary(*parts)
)
_codes = st.builds(Code, strings) | st.builds(Code, strings, st.dictionaries(names, st.integers(-2, 2), max_size=2))
scalars: st.SearchStrategy[Any] = st.one_of(
    numbers,
    strings,
    st.none(),
    st.booleans(),
    st.sampled_from([MinKey(), MaxKey()]),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.integers(INT64_MIN, INT64_MAX).map(DatetimeMS),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.builds(Regex, st.text("ab.", max_size=3), st.integers(0, 127).map(lambda bits: bits & (2 | 8 | 16 | 64))),
    _binaries,
    _codes,
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
documents: st.SearchStrategy[dict[str, Any]] = st.dictionaries(names, values, max_size=4)
