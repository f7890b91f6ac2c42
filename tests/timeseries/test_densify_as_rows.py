"""`$densify` and `$fill` over columns give what the row engine gives, to the last bit, type and order."""

from typing import Any

import pytest
from bson import DatetimeMS, Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.common.values import Document, encode
from bucketd.query.pipeline import column_stages
from bucketd.query.pipeline.base import PipelineContext
from bucketd.query.pipeline.densify import Densify, _DensifyNode
from bucketd.query.pipeline.windows import _WindowNode
from bucketd.timeseries import unpack
from support.columns_as_rows import CALM, START, answer, bucket_order, by_group, id_first, stored, trunc, typed
from support.measurements import NAMESPACE, Measurements
from support.rows import in_a_list

COMMON = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STEPS = st.sampled_from(
    [(7, "minute"), (1, "hour"), (90, "second"), (1, "day"), (1, "month"), (Int64(2), "week"), (3.0, "quarter")]
)
OFFSETS = st.integers(-2 * 3600, 5 * 3600).map(lambda second: DatetimeMS(START + second * 1000))
BOUNDS = st.one_of(
    st.sampled_from(["full", "partition"]), st.tuples(OFFSETS, OFFSETS).map(lambda pair: sorted(pair, key=int))
)
DENSIFIED = st.builds(
    lambda step, bounds, by: {
        "field": "t",
        "range": {"step": step[0], "unit": step[1], "bounds": bounds},
        **({"partitionByFields": by} if by is not None else {}),
    },
    STEPS,
    BOUNDS,
    st.sampled_from([None, ["m"], ["m.x"], ["m", "m.x"], ["m.x", "m.y"], ["i"]]),
)
FILLED = st.builds(
    lambda by, output: {**by, "sortBy": {"t": 1}, "output": output},
    st.sampled_from([{}, {"partitionBy": "$m"}, {"partitionBy": {"x": "$m.x"}}, {"partitionByFields": ["m.x"]}]),
    st.dictionaries(
        st.sampled_from(["d", "i", "l", "s", "p"]),
        st.one_of(
            st.sampled_from(
                [{"method": "locf"}, {"method": "linear"}, {"value": 0}, {"value": 2.5}, {"value": "none"}]
            ),
            st.sampled_from([{"value": "$i"}, {"value": {"$multiply": ["$d", 2]}}, {"value": None}]),
        ),
        min_size=1,
    ),
)


def encoded(rows: list[Document]) -> list[bytes]:
    return [encode(id_first(row)) for row in rows]


def same(lab: Measurements, pipeline: list[Document]) -> None:
    """The measurements answer as rows do, in the same order."""
    found = answer(lambda: encoded(lab.aggregate(*pipeline)))
    assert found == answer(lambda: encoded(in_a_list(bucket_order(lab), pipeline)))


def same_groups(lab: Measurements, pipeline: list[Document]) -> None:
    """The same in whatever order."""
    found = answer(lambda: by_group(lab.aggregate(*pipeline)))
    assert found == answer(lambda: by_group(in_a_list(bucket_order(lab), pipeline)))


@COMMON
@given(typed(CALM), DENSIFIED, st.booleans())
async def test_densify(rows: list[Document], spec: Document, filtered: bool) -> None:
    filter: list[Document] = [{"$match": {"i": {"$gte": 0}}}] if filtered else []
    same(await stored(rows), [*filter, {"$densify": spec}])


@COMMON
@given(typed(CALM), FILLED)
async def test_fill(rows: list[Document], spec: Document) -> None:
    same(await stored(rows), [{"$fill": spec}])


@COMMON
@given(typed(CALM), DENSIFIED, FILLED, st.sampled_from([None, "$m", "$m.x", {"m": "$m", "d": "$d"}, trunc("hour")]))
async def test_stages_behind_a_densify(rows: list[Document], densify: Document, fill: Document, key: Any) -> None:
    lab = await stored(rows)
    same(lab, [{"$densify": densify}, {"$fill": fill}])
    gathers: Document = {
        "n": {"$sum": 1},
        "most": {"$max": "$d"},
        "all": {"$push": "$i"},
        "metas": {"$addToSet": "$m.x"},
        "first": {"$first": "$m"},
        "top": {"$topN": {"n": 2, "sortBy": {"t": -1}, "output": "$$ROOT"}},
    }
    for pipeline in (
        [{"$densify": densify}, {"$group": {"_id": key, **gathers}}],
        [{"$densify": densify}, {"$fill": fill}, {"$group": {"_id": key, **gathers}}],
        [{"$densify": densify}, {"$match": {"d": None}}, {"$count": "n"}],
    ):
        same_groups(lab, pipeline)


async def lab_of(count: int, apart: int = 1) -> Measurements:
    return await stored(
        [
            {
                "_id": number,
                "t": DatetimeMS(START + number * 1000 * apart),
                "m": {"x": "ab"[number % 2], "y": 1},
                **({} if number % 3 else {"g": number}),
            }
            for number in range(count)
        ]
    )


async def test_densify_and_fill_do_run_on_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = await lab_of(50, apart=60)
    for bounds in ("full", "partition", [DatetimeMS(START), DatetimeMS(START + 9_000_000)]):
        pipeline: list[Document] = [
            {
                "$densify": {
                    "field": "t",
                    "partitionByFields": ["m.x"],
                    "range": {"step": 20, "unit": "second", "bounds": bounds},
                }
            },
            {"$fill": {"partitionBy": "$m.x", "sortBy": {"t": 1}, "output": {"g": {"method": "linear"}}}},
        ]
        expected = in_a_list(bucket_order(lab), pipeline)

        def refuse(*anything: Any) -> Any:
            raise AssertionError("rows were looked at")

        with monkeypatch.context() as patched:
            patched.setattr(_WindowNode, "_by_rows", refuse)
            patched.setattr(_DensifyNode, "_by_rows", refuse)
            assert encoded(lab.aggregate(*pipeline)) == encoded(expected)


async def test_batches_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "_COLUMNS_AT_ONCE", 1)
    lab = await lab_of(3000)
    spec = {"field": "t", "partitionByFields": ["m"], "range": {"step": 1, "unit": "second", "bounds": "full"}}
    same(lab, [{"$densify": spec}])
    monkeypatch.setattr(column_stages, "_ROW_BYTES", 1 << 26)
    same(lab, [{"$densify": spec}])


async def test_too_many_rows_are_refused_as_ever() -> None:
    lab = await lab_of(2, apart=3600)
    spec = {"field": "t", "range": {"step": 5, "unit": "millisecond", "bounds": "full"}}
    same(lab, [{"$densify": spec}, {"$count": "n"}])


@pytest.mark.parametrize(
    ("spec", "can"),
    [
        ({"field": "t", "range": {"step": 1, "unit": "hour", "bounds": "full"}}, True),
        ({"field": "t", "partitionByFields": ["m.x"], "range": {"step": 1, "unit": "hour", "bounds": "full"}}, True),
        ({"field": "t", "partitionByFields": ["i"], "range": {"step": 1, "unit": "hour", "bounds": "full"}}, False),
        ({"field": "w", "range": {"step": 1, "unit": "hour", "bounds": "full"}}, False),
        ({"field": "i", "range": {"step": 1, "bounds": "full"}}, False),
    ],
)
def test_which_densify_columns_can_do(spec: Document, can: bool) -> None:
    stage = Densify.parse(spec, PipelineContext(namespace=NAMESPACE))
    assert (stage.over_columns("t", "m") is not None) == can
