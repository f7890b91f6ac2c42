"""Arithmetic: result types, overflow, rounding and complaints."""

import math
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pytest
from bson import DatetimeMS, Decimal128, Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.values import type_name
from support.pipelines import evaluated

INT32_MAX, INT64_MAX, INT64_MIN = 2**31 - 1, 2**63 - 1, -(2**63)
DAY = DatetimeMS(86_400_000)


def is_same(left: Any, right: Any) -> bool:
    """Same type, value and sign of zero; cohorts of decimals apart."""
    if type_name(left) != type_name(right):
        return False
    if isinstance(left, float):
        return (left != left and right != right) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    return bool(left.bid == right.bid) if isinstance(left, Decimal128) else bool(left == right)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"$add": [1, 2]}, 3),
        ({"$add": []}, 0),
        ({"$add": [INT32_MAX, 1]}, Int64(2**31)),
        ({"$add": [1, Int64(2)]}, Int64(3)),
        ({"$add": [Int64(INT64_MAX), 1]}, float(2**63)),
        ({"$add": [1, 0.5]}, 1.5),
        ({"$add": [1, None]}, None),
        ({"$add": [1, "$missing"]}, None),
        ({"$add": [1.5, Decimal128("1")]}, Decimal128("2.50000000000000")),
        ({"$add": [DAY, 1]}, DatetimeMS(86_400_001)),
        ({"$add": [DAY, -0.5]}, DatetimeMS(86_399_999)),
        ({"$add": [DAY, Decimal128("2.5")]}, DatetimeMS(86_400_002)),
        ({"$subtract": [5, 7]}, -2),
        ({"$subtract": [DAY, DatetimeMS(1)]}, Int64(86_399_999)),
        ({"$subtract": [DAY, -2.5]}, DatetimeMS(86_400_003)),
        ({"$multiply": [INT32_MAX, 2]}, Int64(INT32_MAX * 2)),
        ({"$multiply": [Int64(INT64_MAX), 2]}, float(INT64_MAX) * 2),
        ({"$multiply": [Decimal128("-0"), 5]}, Decimal128("-0")),
        ({"$divide": [6, 3]}, 2.0),
        ({"$divide": [1, Decimal128("3")]}, Decimal128("0." + "3" * 34)),
        ({"$mod": [-7, 3]}, -1),
        ({"$mod": [7, -3]}, 1),
        ({"$mod": [7.5, 2]}, 1.5),
        ({"$mod": [Decimal128("1E+6144"), 3]}, Decimal128("1")),
        ({"$abs": -5}, 5),
        ({"$abs": -(2**31)}, Int64(2**31)),
        ({"$ceil": -0.5}, -0.0),
        ({"$ceil": 7}, 7),
        ({"$floor": -0.0}, -0.0),
        ({"$floor": Decimal128("Infinity")}, Decimal128("NaN")),
        ({"$floor": Decimal128("-1.5")}, Decimal128("-2")),
        ({"$round": [2.5]}, 2.0),
        ({"$round": [3.5]}, 4.0),
        ({"$round": [-0.5, 0]}, -0.0),
        ({"$round": [1234, -2]}, 1200),
        ({"$round": [19.254, 2]}, 19.25),
        ({"$trunc": [0.29, 2]}, 0.28),
        ({"$trunc": [-7.9]}, -7.0),
        ({"$trunc": [Decimal128("1.1"), 3]}, Decimal128("1.100")),
        ({"$sqrt": 16}, 4.0),
        ({"$sqrt": Decimal128("-0")}, Decimal128("-0")),
        ({"$pow": [2, 10]}, 1024),
        ({"$pow": [2, 31]}, Int64(2**31)),
        ({"$pow": [2, 63]}, float(2**63)),
        ({"$pow": [-1, -1]}, -1),
        ({"$pow": [2, -1]}, 0.5),
        ({"$pow": [Decimal128("2"), 3]}, Decimal128("8." + "0" * 33)),
        ({"$exp": 0}, 1.0),
        ({"$ln": 1}, 0.0),
        ({"$ln": Decimal128("NaN")}, math.nan),
        ({"$log10": 1000}, 3.0),
        ({"$log": [8, 2]}, 3.0),
        ({"$log": [math.nan, 2]}, math.nan),
        ({"$sin": 0}, 0.0),
        ({"$atan2": [0, -1]}, math.pi),
        ({"$degreesToRadians": 180}, math.pi),
    ],
)
def test_value(spec: Any, expected: Any) -> None:
    value = evaluated(spec)
    assert is_same(value, expected), f"{value!r} instead of {expected!r}"


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"$add": ["a", 1]}, 14),
        ({"$add": [DAY, DAY]}, 16612),
        ({"$add": [DAY, math.nan]}, 15),
        ({"$add": [DAY, Decimal128("Infinity")]}, 15),
        ({"$add": [DAY, Int64(INT64_MAX)]}, 15),
        ({"$subtract": [1, DAY]}, 14),
        ({"$subtract": [1, 2, 3]}, 16020),
        ({"$multiply": [True, 1]}, 14),
        ({"$divide": [1, 0]}, 2),
        ({"$divide": [Decimal128("1"), 0]}, 2),
        ({"$mod": [1, 0]}, 16610),
        ({"$mod": [1, Decimal128("0")]}, 5733415),
        ({"$mod": ["a", 1]}, 16611),
        ({"$abs": "a"}, 28765),
        ({"$abs": Int64(INT64_MIN)}, 28680),
        ({"$sqrt": -1}, 28714),
        ({"$ln": 0}, 28766),
        ({"$log10": -1}, 28761),
        ({"$log": [0, 2]}, 28758),
        ({"$log": [2, 1]}, 28759),
        ({"$pow": ["a", 1]}, 28762),
        ({"$pow": [1, "a"]}, 28763),
        ({"$pow": [0, -1]}, 28764),
        ({"$round": ["a"]}, 51081),
        ({"$round": [1, "a"]}, 16004),
        ({"$round": [1, math.nan]}, 31109),
        ({"$round": [1, 0.5]}, 51082),
        ({"$trunc": [1, 101]}, 51083),
        ({"$acos": 2}, 50989),
        ({"$cos": math.inf}, 50989),
        ({"$round": [1, 2, 3]}, 28667),
    ],
)
def test_complaint(spec: Any, code: int) -> None:
    with pytest.raises(MongoError) as caught:
        evaluated(spec)
    assert caught.value.number == code


whole = st.integers(-(2**31), INT32_MAX) | st.integers(INT64_MIN, INT64_MAX).map(Int64)
real = st.floats(allow_nan=False, allow_infinity=False)
decimal = st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9).map(
    Decimal128
)
RANK = {"int": 0, "long": 1, "double": 2, "decimal": 3}


@given(st.sampled_from(["$add", "$multiply", "$subtract"]), whole | real | decimal, whole | real | decimal)
def test_widest_operand_decides(name: str, left: Any, right: Any) -> None:
    widest = max(RANK[type_name(left)], RANK[type_name(right)])
    result = RANK[type_name(evaluated({name: [left, right]}))]
    # A whole result grows as far as it must; others have exactly the widest type.
    assert widest <= result <= 2 if widest < 2 else result == widest


@given(st.sampled_from(["$add", "$multiply", "$subtract"]), whole, whole)
def test_whole_results_are_exact(name: str, left: Any, right: Any) -> None:
    exact = {"$add": int(left) + int(right), "$multiply": int(left) * int(right), "$subtract": int(left) - int(right)}
    value = evaluated({name: [left, right]})
    if INT64_MIN <= exact[name] <= INT64_MAX:
        assert value == exact[name]
        assert type_name(value) in ("int", "long")
    else:
        assert value == float(exact[name])
        assert type_name(value) == "double"


@given(st.lists(real | whole, min_size=1, max_size=5), st.randoms())
def test_sum_of_doubles_does_not_depend_on_order(values: list[Any], random: Any) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    first, second = evaluated({"$add": [*values, 0.0, 0.0]}), evaluated({"$add": [*shuffled, 0.0, 0.0]})
    exact = sum((Fraction(value) for value in values), Fraction(0))
    if abs(exact) < Fraction(10) ** 300:
        assert first == second == pytest.approx(float(exact), rel=1e-14)


@given(whole, whole.filter(bool))
def test_remainder_has_the_sign_of_the_dividend(left: Any, right: Any) -> None:
    remainder = evaluated({"$mod": [left, right]})
    assert abs(remainder) < abs(int(right))
    assert remainder == 0 or (remainder < 0) == (left < 0)
    assert (int(left) - int(remainder)) % int(right) == 0


@given(decimal, st.integers(0, 3))
def test_rounded_decimals_are_the_nearest(value: Decimal128, places: int) -> None:
    exact: Decimal = value.to_decimal()
    rounded = evaluated({"$round": [value, places]}).to_decimal()
    truncated = evaluated({"$trunc": [value, places]}).to_decimal()
    step = Decimal(1).scaleb(-places)
    wide = Context(prec=60)
    assert wide.abs(wide.subtract(exact, rounded)) * 2 <= step
    assert abs(truncated) <= abs(exact)
    assert wide.abs(wide.subtract(exact, truncated)) < step
