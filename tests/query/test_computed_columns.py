"""What is computed on arrays has the bits and types that the row engine's expressions give."""

import math
from typing import Any

import numpy as np
import pytest
from bson import DatetimeMS, Int64
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.common.collation import Collation
from bucketd.common.errors import MongoError
from bucketd.common.values import MISSING, BsonType, Document, encode
from bucketd.query.columns.batch import ABSENT, Column, ColumnBatch, Shared
from bucketd.query.columns.computed import can_compute, computed
from bucketd.query.columns.operands import Unfit
from bucketd.query.expression.base import Expression, ParseContext
from support.columns_as_rows import DATE_UNITS, PARTS, ZONES

KINDS: dict[type, tuple[int, Any]] = {
    float: (BsonType.DOUBLE, np.float64),
    int: (BsonType.INT32, np.int64),
    Int64: (BsonType.INT64, np.int64),
    DatetimeMS: (BsonType.DATE, np.int64),
    bool: (BsonType.BOOL, np.bool_),
}


def batch_of(fields: dict[str, list[Any]]) -> ColumnBatch:
    """A batch of columns, with None where a row has no value."""
    rows = len(next(iter(fields.values())))

    def column(name: str) -> Column:
        values = fields.get(name, [None] * rows)
        here = [value for value in values if value is not None]
        if not here:
            return Column(ABSENT, np.zeros(rows, dtype=np.int64))
        if type(here[0]) is str:
            texts = sorted(set(here), reverse=True)
            codes = [2**32 - 1 if value is None else texts.index(value) for value in values]
            gaps = None if len(here) == rows else np.array([value is not None for value in values])
            return Column(BsonType.STRING, np.array(codes, dtype=np.uint32), gaps, texts)
        kind, dtype = KINDS[type(here[0])]
        array = np.array(
            [0 if value is None else float(value) if kind == 1 else int(value) for value in values], dtype=dtype
        )
        present = None if len(here) == rows else np.array([value is not None for value in values])
        return Column(kind, array, present)

    bounds = (np.array([0], dtype=np.int64), np.array([0], dtype=np.int64))
    return ColumnBatch(
        column,
        np.array([0, rows], dtype=np.int64),
        Shared(None, [None], lambda key: MISSING),
        lambda positions: [],
        time_field="t",
        time_bounds=bounds,
    )


def parsed(spec: Any) -> Expression:
    return ParseContext().parse(spec)


def by_rows(expression: Expression, fields: dict[str, list[Any]]) -> list[Any]:
    rows = len(next(iter(fields.values())))
    documents: list[Document] = [
        {name: values[row] for name, values in fields.items() if values[row] is not None} for row in range(rows)
    ]
    found = [expression.evaluate(document, {}) for document in documents]
    return [None if value is MISSING else value for value in found]


def by_columns(expression: Expression, fields: dict[str, list[Any]]) -> list[Any]:
    column = computed(expression, batch_of(fields))
    rows = len(next(iter(fields.values())))
    found = [column.value(row) for row in range(rows)]
    return [None if value is MISSING else value for value in found]


def check(spec: Any, fields: dict[str, list[Any]], *, fits: bool = True) -> None:
    """Columns give what rows give; where rows fail, or `fits` is false, columns may leave it to them."""
    expression = parsed(spec)
    assert can_compute(expression, None)
    try:
        expected = encode({"": by_rows(expression, fields)})
    except MongoError:
        with pytest.raises(Unfit):
            by_columns(expression, fields)
        return
    try:
        assert encode({"": by_columns(expression, fields)}) == expected
    except Unfit:
        assert not fits


DATES = st.one_of(
    st.integers(-(2**42), 2**42),
    # Around the changes of clocks in Europe, Newfoundland and on Lord Howe Island.
    st.sampled_from([1_711_846_800_000, 1_729_990_800_000, 1_299_994_260_000, 1_712_415_600_000]).flatmap(
        lambda change: st.integers(change - 7_200_000, change + 7_200_000)
    ),
).map(DatetimeMS)
SOME_DATES = st.lists(st.one_of(st.none(), DATES), min_size=1, max_size=30)


@settings(max_examples=200, deadline=None)
@given(SOME_DATES, st.sampled_from(PARTS), ZONES)
def test_parts_of_dates(dates: list[Any], part: str, zone: str) -> None:
    check({part: {"date": "$w", "timezone": zone}}, {"w": dates})


@settings(max_examples=300, deadline=None)
@given(SOME_DATES, DATE_UNITS, st.integers(1, 400), ZONES, st.sampled_from(["sunday", "MON", "fri"]))
def test_truncated_dates(dates: list[Any], unit: str, size: int, zone: str, first: str) -> None:
    spec = {"date": "$w", "unit": unit, "binSize": size, "timezone": zone, "startOfWeek": first}
    check({"$dateTrunc": spec}, {"w": dates})


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(DATES, st.integers(-1000, 1000)), min_size=1, max_size=30),
    st.sampled_from(["$dateAdd", "$dateSubtract"]),
    DATE_UNITS,
    ZONES,
)
def test_dates_some_units_later(rows: list[tuple[Any, int]], name: str, unit: str, zone: str) -> None:
    spec = {"startDate": "$w", "unit": unit, "amount": "$i", "timezone": zone}
    check({name: spec}, {"w": [date for date, _ in rows], "i": [amount for _, amount in rows]})


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(DATES, DATES), min_size=1, max_size=30), DATE_UNITS, ZONES, st.sampled_from(["sunday", "tue"])
)
def test_units_between_dates(rows: list[tuple[Any, Any]], unit: str, zone: str, first: str) -> None:
    spec = {"startDate": "$w", "endDate": "$v", "unit": unit, "timezone": zone, "startOfWeek": first}
    check({"$dateDiff": spec}, {"w": [one for one, _ in rows], "v": [other for _, other in rows]})


NEAR_TIES = st.builds(
    lambda whole, places, ulps: math.nextafter(whole / 10**places, math.inf * ulps) if ulps else whole / 10**places,
    st.integers(-(10**7), 10**7),
    st.integers(0, 6),
    st.sampled_from([-1, 0, 1]),
)
DOUBLES = st.one_of(NEAR_TIES, st.floats(-1e9, 1e9), st.floats(), st.sampled_from([0.0, -0.0, 0.5, -0.5, 2.5, 1e-320]))


@settings(max_examples=400, deadline=None)
@given(st.lists(DOUBLES, min_size=1, max_size=20), st.sampled_from(["$round", "$trunc"]), st.integers(-8, 8))
def test_doubles_rounded(values: list[float], name: str, places: int) -> None:
    large = any(math.isfinite(value) and abs(value) * 10.0 ** max(places, 0) >= 2**50 for value in values)
    check({name: ["$d", places]}, {"d": values}, fits=not large)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20),
    st.sampled_from(["$round", "$trunc"]),
    st.integers(-8, 3),
)
def test_whole_numbers_rounded(values: list[int], name: str, places: int) -> None:
    check({name: ["$i", places]}, {"i": [Int64(value) for value in values]})
    check({name: ["$i", places]}, {"i": values}, fits=abs(max(values, key=abs)) < 2**30)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(
        ["$ceil", "$floor", "$round", "$trunc", "$exp", "$ln", "$sqrt", "$sin", "$log10", "$toBool", "$abs"]
    ),
    st.lists(st.one_of(st.none(), DOUBLES), min_size=1, max_size=20),
)
def test_functions_of_one_double(name: str, values: list[Any]) -> None:
    check({name: "$d"}, {"d": values}, fits=False)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["$mod", "$pow"]),
    st.lists(
        st.tuples(st.one_of(st.none(), st.floats(-1e6, 1e6)), st.sampled_from([0.5, 2.0, -3.0, 7.25])),
        min_size=1,
        max_size=20,
    ),
)
def test_functions_of_two_doubles(name: str, rows: list[tuple[Any, float]]) -> None:
    check({name: ["$d", "$e"]}, {"d": [one for one, _ in rows], "e": [other for _, other in rows]})


TEXTS = st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "B", "b", "é", "aa"])), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), st.sampled_from(["", "a", "b", "ü"]))
def test_strings_compared_with_one(texts: list[Any], name: str, text: str) -> None:
    check({name: ["$s", text]}, {"s": texts})
    check({"$cond": [{name: ["$s", text]}, {"$ifNull": ["$s", "none"]}, text]}, {"s": texts})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abé"), st.sampled_from("abü")), min_size=1), st.sampled_from(["$eq", "$lt"]))
def test_strings_compared_with_each_other(rows: list[tuple[str, str]], name: str) -> None:
    check({name: ["$s", "$u"]}, {"s": [one for one, _ in rows], "u": [other for _, other in rows]})


def test_strings_under_a_collation_are_left_to_rows() -> None:
    context = ParseContext(collator=Collation(locale="en", strength=2))
    batch = batch_of({"s": ["a", "A"], "i": [1, 2]})
    assert list(computed(context.parse({"$eq": ["$i", 1]}), batch).values) == [True, False]
    with pytest.raises(Unfit):
        computed(context.parse({"$eq": ["$s", "a"]}), batch)


@pytest.mark.parametrize(
    "spec",
    [
        {"$ceil": "$d"},
        {"$floor": "$d"},
        {"$round": "$d"},
        {"$trunc": ["$d", 1]},
        {"$exp": "$d"},
        {"$sin": "$d"},
        {"$pow": ["$d", 2]},
        {"$pow": ["$i", 2]},
        {"$mod": ["$i", 4]},
        {"$mod": ["$l", "$i"]},
        {"$sqrt": {"$abs": "$d"}},
        {"$toInt": "$d"},
        {"$toLong": "$w"},
        {"$toDouble": "$w"},
        {"$toDate": "$l"},
        {"$toBool": "$i"},
        {"$add": ["$w", 5, "$i"]},
        {"$subtract": ["$w", "$l"]},
        {"$toDate": {"$subtract": [{"$toLong": "$w"}, {"$mod": [{"$toLong": "$w"}, 1000]}]}},
    ],
)
def test_what_arrays_can_do(spec: Document) -> None:
    fields: dict[str, list[Any]] = {
        "d": [0.1, -2.5, None, 7.0],
        "i": [1, -7, 3, 40],
        "l": [Int64(5), Int64(-9), None, Int64(2**40)],
        "w": [DatetimeMS(5), DatetimeMS(-1), DatetimeMS(2**40), None],
    }
    check(spec, fields)
