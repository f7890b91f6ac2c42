"""Windows over columns give what the row engine gives, to the last bit, type and order."""

from typing import Any

import pytest
from bson import DatetimeMS, Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.common.values import Document, encode
from bucketd.query.pipeline import column_stages
from bucketd.query.pipeline.base import PipelineContext
from bucketd.query.pipeline.windows import SetWindowFields, _WindowNode
from bucketd.timeseries import unpack
from support.columns_as_rows import CALM, FIELDS, START, answer, bucket_order, by_group, id_first, stored, trunc, typed
from support.measurements import NAMESPACE, Measurements
from support.rows import in_a_list

COMMON = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EDGES = st.one_of(st.integers(-4, 4), st.sampled_from(["unbounded", "current"]))


def ordered(low: Any, high: Any) -> list[Any]:
    """Bounds that do not cross each other."""
    first, last = (0 if edge == "current" else edge for edge in (low, high))
    if isinstance(first, int | float) and isinstance(last, int | float) and first > last:
        return [high, low]
    return [low, high]


DOCUMENTS = st.builds(lambda low, high: {"documents": ordered(low, high)}, EDGES, EDGES)
UNITS = st.sampled_from(["second", "minute", "hour", "day", "month"])
RANGES = st.one_of(
    st.builds(lambda low, high, unit: {"range": ordered(low, high), "unit": unit}, EDGES, EDGES, UNITS),
    st.builds(lambda low, high, unit: {"range": ordered(low, high), "unit": unit}, EDGES, EDGES, st.just("minute")),
)
PLAIN_RANGES = st.builds(
    lambda low, high: {"range": ordered(low, high)},
    st.one_of(EDGES, st.floats(-3, 3)),
    st.one_of(EDGES, st.floats(-3, 3)),
)
SOURCES = st.sampled_from(
    ["$d", "$i", "$l", "$s", "$w", "$b", "$t", "$m.x", "$none", {"$multiply": ["$d", 2]}, {"$add": ["$i", 1]}, 1, 2.5]
)
ACCUMULATED = st.sampled_from(["$sum", "$avg", "$min", "$max", "$first", "$last", "$stdDevPop", "$stdDevSamp"])
NUMBERS = st.sampled_from(["$d", "$i", "$l", "$none", {"$subtract": ["$d", 1]}])


def gathered(windows: st.SearchStrategy[Document]) -> st.SearchStrategy[Document]:
    """Functions that look at a window."""
    return st.one_of(
        st.builds(lambda name, source, window: {name: source, "window": window}, ACCUMULATED, SOURCES, windows),
        st.builds(lambda name, source: {name: source}, ACCUMULATED, SOURCES),
        st.builds(lambda window: {"$count": {}, "window": window}, windows),
        st.builds(
            lambda name, left, right, window: {name: [left, right], "window": window},
            st.sampled_from(["$covariancePop", "$covarianceSamp"]),
            NUMBERS,
            NUMBERS,
            windows,
        ),
    )


SLOPES = st.builds(
    lambda name, source, unit, window: {name: {"input": source, **unit}, "window": window},
    st.sampled_from(["$derivative", "$integral"]),
    st.one_of(NUMBERS, st.just("$w")),
    st.sampled_from([{}, {"unit": "second"}, {"unit": "hour"}]),
    DOCUMENTS,
)
IN_ORDER = st.one_of(
    st.sampled_from(["$rank", "$denseRank", "$documentNumber"]).map(lambda name: {name: {}}),
    st.builds(
        lambda source, by, default: {"$shift": {"output": source, "by": by, "default": default}},
        SOURCES,
        st.integers(-3, 3),
        st.sampled_from([None, 0, 1.5, "none", Int64(7), DatetimeMS(9), True, [1]]),
    ),
    st.builds(lambda source, count: {"$expMovingAvg": {"input": source, "N": count}}, NUMBERS, st.integers(1, 9)),
    st.builds(
        lambda source, alpha: {"$expMovingAvg": {"input": source, "alpha": alpha}}, SOURCES, st.floats(0.01, 0.99)
    ),
    SOURCES.map(lambda source: {"$locf": source}),
    NUMBERS.map(lambda source: {"$linearFill": source}),
)
BY = st.sampled_from([None, "$m", "$m.x", "$i", "$s", {"m": "$m", "h": trunc("hour")}, {"$mod": ["$i", 3]}])
NAMES = st.sampled_from(["p", "q", "i", "d", "s", "_id"])
BY_TIME = st.dictionaries(
    NAMES, st.one_of(gathered(st.one_of(DOCUMENTS, RANGES)), SLOPES, IN_ORDER), min_size=1, max_size=3
)
BY_VALUE = st.dictionaries(
    NAMES, st.one_of(gathered(st.one_of(DOCUMENTS, PLAIN_RANGES)), SLOPES, IN_ORDER), min_size=1, max_size=3
)
WINDOWS = st.one_of(
    st.builds(lambda by, output: {"partitionBy": by, "sortBy": {"t": 1}, "output": output}, BY, BY_TIME),
    st.builds(
        lambda by, name, output: {"partitionBy": by, "sortBy": {name: 1}, "output": output},
        BY,
        st.sampled_from(["i", "l", "d", "s", "w"]),
        BY_VALUE,
    ),
    st.builds(
        lambda by, order, output: {"partitionBy": by, "sortBy": order, "output": output},
        BY,
        st.sampled_from([{"t": -1}, {"m.x": 1, "t": 1}, {"i": -1, "t": 1}, {"b": 1, "d": -1, "s": 1}]),
        st.dictionaries(NAMES, st.one_of(gathered(DOCUMENTS), IN_ORDER), min_size=1, max_size=2),
    ),
    st.builds(
        lambda by, output: {"partitionBy": by, "output": output},
        BY,
        st.dictionaries(NAMES, st.tuples(ACCUMULATED, SOURCES).map(lambda pair: dict([pair])), min_size=1),
    ),
)


def same(lab: Measurements, pipeline: list[Document]) -> None:
    """The measurements answer as rows do, in the same order."""

    def encoded(rows: list[Document]) -> list[bytes]:
        return [encode(id_first(row)) for row in rows]

    found = answer(lambda: encoded(lab.aggregate(*pipeline)))
    assert found == answer(lambda: encoded(in_a_list(bucket_order(lab), pipeline)))


@COMMON
@given(typed(CALM), WINDOWS)
async def test_windows(rows: list[Document], spec: Document) -> None:
    same(await stored(rows), [{"$setWindowFields": spec}])


@COMMON
@given(typed(FIELDS), WINDOWS, st.booleans())
async def test_windows_over_values_that_only_rows_can_tell(
    rows: list[Document], spec: Document, filtered: bool
) -> None:
    filter: list[Document] = [{"$match": {"i": {"$gte": 0}}}] if filtered else []
    same(await stored(rows), [*filter, {"$setWindowFields": spec}])


@COMMON
@given(typed(CALM), WINDOWS, st.sampled_from([None, "$m", "$p", {"p": "$p", "m": "$m.x"}, trunc("hour")]))
async def test_groups_of_what_windows_add(rows: list[Document], spec: Document, key: Any) -> None:
    lab = await stored(rows)
    gathers: Document = {
        "n": {"$sum": 1},
        "most": {"$max": "$p"},
        "all": {"$push": "$q"},
        "set": {"$addToSet": "$p"},
        "top": {"$top": {"sortBy": {"p": -1}, "output": ["$p", "$i"]}},
    }
    pipeline: list[Document] = [{"$setWindowFields": spec}, {"$group": {"_id": key, **gathers}}]
    assert answer(lambda: by_group(lab.aggregate(*pipeline))) == answer(
        lambda: by_group(in_a_list(bucket_order(lab), pipeline))
    )


@COMMON
@given(typed(CALM), WINDOWS, WINDOWS)
async def test_windows_behind_windows(rows: list[Document], first: Document, second: Document) -> None:
    pipeline: list[Document] = [{"$setWindowFields": first}, {"$setWindowFields": second}]
    same(await stored(rows), pipeline)
    same(await stored(rows), [*pipeline, {"$match": {"p": None}}, {"$sortByCount": "$p"}, {"$sort": {"_id": 1}}])


async def lab_of(count: int) -> Measurements:
    return await stored(
        [
            {
                "_id": number,
                "t": DatetimeMS(START + number * 1000),
                "m": {"x": "ab"[number % 2]},
                "i": number % 7,
                "d": number / 8,
                **({} if number % 3 else {"g": number}),
            }
            for number in range(count)
        ]
    )


WINDOW: Document = {"window": {"documents": [-2, 0]}}
ON_COLUMNS: list[Document] = [
    {"$sum": "$i", **WINDOW},
    {"$avg": "$d", "window": {"range": [-1, 0], "unit": "minute"}},
    {"$min": "$i", **WINDOW},
    {"$max": "$m.x", **WINDOW},
    {"$count": {}, **WINDOW},
    {"$first": "$t", **WINDOW},
    {"$last": "$m.x"},
    {"$stdDevPop": "$d", **WINDOW},
    {"$stdDevSamp": "$d"},
    {"$covarianceSamp": ["$d", "$i"], **WINDOW},
    {"$derivative": {"input": "$d", "unit": "second"}, **WINDOW},
    {"$integral": {"input": "$g", "unit": "hour"}, **WINDOW},
    {"$expMovingAvg": {"input": "$d", "N": 3}},
    {"$linearFill": "$g"},
    {"$locf": "$g"},
    {"$shift": {"output": "$m.x", "by": -1, "default": "none"}},
    {"$rank": {}},
    {"$denseRank": {}},
    {"$documentNumber": {}},
]


@pytest.mark.parametrize("function", ON_COLUMNS)
async def test_windows_do_run_on_columns(function: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await lab_of(60)
    pipeline: list[Document] = [
        {"$setWindowFields": {"partitionBy": "$m.x", "sortBy": {"t": 1}, "output": {"o": function}}}
    ]
    expected = in_a_list(bucket_order(lab), pipeline)

    def refuse(*anything: Any) -> Any:
        raise AssertionError("rows were looked at")

    monkeypatch.setattr(_WindowNode, "_by_rows", refuse)
    assert [encode(row) for row in lab.aggregate(*pipeline)] == [encode(row) for row in expected]


async def test_batches_are_put_together_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "_COLUMNS_AT_ONCE", 1)
    lab = await lab_of(3000)
    for by in ("$m.x", None):
        same(
            lab,
            [{"$setWindowFields": {"partitionBy": by, "sortBy": {"t": 1}, "output": {"o": {"$avg": "$i", **WINDOW}}}}],
        )
        same(lab, [{"$setWindowFields": {"partitionBy": by, "sortBy": {"i": 1}, "output": {"i": {"$rank": {}}}}}])


async def test_what_is_too_much_to_hold_goes_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "_COLUMNS_AT_ONCE", 1)
    monkeypatch.setattr(column_stages, "_ROW_BYTES", 1 << 26)
    lab = await lab_of(3000)
    same(
        lab,
        [{"$setWindowFields": {"partitionBy": "$m", "sortBy": {"t": 1}, "output": {"o": {"$avg": "$i", **WINDOW}}}}],
    )


@pytest.mark.parametrize(
    ("output", "can"),
    [
        ({"o": {"$sum": "$d"}}, True),
        ({"o": {"$push": "$d"}}, False),
        ({"o.p": {"$sum": "$d"}}, False),
        ({"t": {"$sum": "$d"}}, False),
        ({"m": {"$sum": "$d"}}, False),
        ({"o": {"$sum": {"$strLenCP": "$s"}}}, False),
        ({"o": {"$shift": {"output": "$d", "by": 1, "default": [1]}}}, False),
        ({"o": {"$minMaxScaler": {"input": "$d"}}}, False),
    ],
)
def test_which_windows_columns_can_do(output: Document, can: bool) -> None:
    stage = SetWindowFields.parse({"sortBy": {"t": 1}, "output": output}, PipelineContext(namespace=NAMESPACE))
    assert (stage.over_columns("t", "m") is not None) == can
