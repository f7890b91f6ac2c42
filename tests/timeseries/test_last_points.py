"""The newest and oldest measurements of series, by steps through the index, are those of all measurements."""

from typing import Any

import pytest
from bson import DatetimeMS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.catalog.buckets import BucketLimits
from bucketd.catalog.index_specs import IndexSpec
from bucketd.common.values import Document
from support.columns_as_rows import START
from support.measurements import NAMESPACE, Measurements
from support.memory_engine import MemoryEngine

PIPELINES: dict[str, list[Document]] = {
    "newest by $first": [{"$sort": {"m": 1, "t": -1}}, {"$group": {"_id": "$m", "t": {"$first": "$t"}}}],
    "newest by $last": [{"$sort": {"t": 1}}, {"$group": {"_id": "$m", "t": {"$last": "$t"}}}],
    "newest by $top": [{"$group": {"_id": "$m", "t": {"$top": {"sortBy": {"t": -1}, "output": "$t"}}}}],
    "oldest by $first": [{"$sort": {"t": 1}}, {"$group": {"_id": "$m", "t": {"$first": "$t"}}}],
    "oldest by $bottom": [{"$group": {"_id": "$m", "t": {"$bottom": {"sortBy": {"t": -1}, "output": "$t"}}}}],
}


async def lab_of(batches: list[list[tuple[int, Any]]], order: int, packed: int) -> Measurements:
    lab = Measurements(MemoryEngine(), BucketLimits(count_max=4))
    await lab.create()
    if order < 0:
        key = {"meta": 1, "control.min.t": -1, "control.max.t": -1}
        await lab.catalog.drop_indexes(NAMESPACE.buckets, ["m_1_t_1"])
        await lab.catalog.create_indexes(NAMESPACE.buckets, [IndexSpec({"v": 2, "key": key, "name": "m_1_t_-1"})])
    for number, batch in enumerate(batches):
        await lab.insert(*({"t": DatetimeMS(START + 1000 * second), "m": meta, "x": second} for second, meta in batch))
        if number == packed:
            await lab.pack()
    return lab


@pytest.mark.parametrize("name", PIPELINES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(-20_000, 20_000), st.sampled_from(["a", "b", {"x": 1}])), min_size=1, max_size=8
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([1, -1]),
    st.integers(-1, 4),
)
async def test_ends_of_series(name: str, batches: list[list[tuple[int, Any]]], order: int, packed: int) -> None:
    lab = await lab_of(batches, order, packed)
    pick = max if name.startswith("newest") else min
    expected: dict[str, int] = {}
    for second, meta in (row for batch in batches for row in batch):
        expected[str(meta)] = pick(second, expected.get(str(meta), second))
    found = {str(row["_id"]): (int(row["t"]) - START) // 1000 for row in lab.aggregate(*PIPELINES[name])}
    assert found == expected
