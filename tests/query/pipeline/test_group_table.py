"""Groups that outgrow memory answer as groups in memory do."""

from typing import Any

import pytest
from bson import Decimal128, Int64
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.common.errors import QueryExceededMemoryLimitNoDiskUseAllowed
from bucketd.query.accumulators.parse import parse_accumulator
from bucketd.query.expression.base import ParseContext
from bucketd.query.expression.parse import parse_expression  # noqa: F401 (fills the table of operators)
from bucketd.query.pipeline.group_table import GroupTable

ACCUMULATORS: dict[str, Any] = {
    "$sum": "$v",
    "$avg": "$v",
    "$min": "$v",
    "$max": "$v",
    "$first": "$v",
    "$last": "$v",
    "$push": "$v",
    "$addToSet": "$w",
    "$mergeObjects": "$o",
    "$concatArrays": "$l",
    "$setUnion": "$l",
    "$median": {"input": "$v", "method": "approximate"},
    "$firstN": {"input": "$v", "n": 2},
    "$lastN": {"input": "$v", "n": 2},
    "$minN": {"input": "$v", "n": 2},
    "$maxN": {"input": "$v", "n": 2},
    "$top": {"sortBy": {"w": -1}, "output": "$v"},
    "$topN": {"sortBy": {"w": 1}, "output": "$v", "n": 3},
    "$bottom": {"sortBy": {"w": 1}, "output": "$v"},
    "$bottomN": {"sortBy": {"w": 1, "v": -1}, "output": "$missing", "n": 2},
    "$stdDevPop": "$v",
}

values = st.one_of(
    st.none(),
    st.integers(-1000, 1000),
    st.integers(-1000, 1000).map(Int64),
    st.integers(-1000, 1000).map(lambda number: number / 8),
    st.integers(-1000, 1000).map(lambda number: Decimal128(str(number))),
    st.text(max_size=3),
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(0, 40),
            "v": values,
            "w": st.integers(0, 5),
            "l": st.lists(st.integers(0, 5), max_size=3),
            "o": st.dictionaries(st.sampled_from("abc"), st.integers(0, 5), max_size=2),
        }
    ),
    min_size=65,
    max_size=300,
)


def grouped(documents: list[dict[str, Any]], memory_bytes_max: int) -> tuple[dict[Any, list[Any]], int]:
    begin = [parse_accumulator(name, spec, ParseContext()).begin for name, spec in ACCUMULATORS.items()]
    table = GroupTable(begin, memory_bytes_max=memory_bytes_max)
    for document in documents:
        for state in table.states(document["k"], document["k"]):
            state.add(document, {})
    found = [group for group in table.finished() if group is not None]
    table.close()
    assert len({key for key, _ in found}) == len(found)
    return dict(found), table.spilling.spills


def close(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == pytest.approx(right, rel=1e-9, abs=1e-9)
    return bool(left == right) and type(left) is type(right)


@settings(max_examples=40, deadline=None)
@given(rows)
def test_spilled_groups_are_the_same_groups(documents: list[dict[str, Any]]) -> None:
    memory, spills = grouped(documents, 1 << 30)
    assert not spills
    disk, spills = grouped(documents, 12_000)
    assert spills
    assert disk.keys() == memory.keys()
    for key, results in memory.items():
        assert all(close(left, right) for left, right in zip(results, disk[key], strict=True))


def test_without_disk_too_many_groups_are_refused() -> None:
    begin = [parse_accumulator("$sum", 1, ParseContext()).begin]
    table = GroupTable(begin, memory_bytes_max=10_000, allow_disk_use=False)
    with pytest.raises(QueryExceededMemoryLimitNoDiskUseAllowed):
        [table.states(number, number) for number in range(1000)]


def test_sums_come_back_from_beyond_the_doubles() -> None:
    begin = parse_accumulator("$sum", "$v", ParseContext()).begin
    first, second = begin({}), begin({})
    for _ in range(20):
        first.add({"v": 1e308}, {})
        second.add({"v": -1e308}, {})
    first.add({"v": 1.0}, {})
    merged = begin({})
    merged.absorb(first.kept())
    assert merged.result() == float("inf")
    merged.absorb(second.kept())
    assert merged.result() in (1.0, float("inf"))
