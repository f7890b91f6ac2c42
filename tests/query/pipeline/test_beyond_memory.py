"""Stages whose rows do not fit into memory answer as those whose rows do, or say that they may not."""

from typing import Any

import pytest

from bucketd.common.errors import MongoError
from bucketd.common.values import Document, encode
from support.pipelines import ran

ROWS: list[Document] = [
    {"_id": number, "s": number % 7, "t": (number * 37) % 101, "pad": "x" * 50} for number in range(600)
]
WINDOWS: Document = {
    "$setWindowFields": {
        "partitionBy": "$s",
        "sortBy": {"t": 1},
        "output": {
            "n": {"$sum": 1, "window": {"documents": ["unbounded", "current"]}},
            "m": {"$avg": "$t", "window": {"range": [-5, 5]}},
            "r": {"$rank": {}},
        },
    }
}
FACETS: Document = {
    "$facet": {
        "few": [{"$sort": {"t": -1, "_id": 1}}, {"$limit": 3}],
        "first": [{"$limit": 2}],
        "by": [{"$group": {"_id": "$s", "n": {"$sum": "$t"}}}, {"$sort": {"_id": 1}}],
    }
}
DENSE: Document = {"$densify": {"field": "t", "partitionByFields": ["s"], "range": {"step": 1, "bounds": "full"}}}
BUCKETS: Document = {"$bucketAuto": {"groupBy": "$t", "buckets": 7, "output": {"all": {"$push": "$_id"}}}}
ROUNDED: Document = {"$bucketAuto": {"groupBy": "$t", "buckets": 5, "granularity": "R5"}}
GROUPS: list[Document] = [
    {"$group": {"_id": "$_id", "all": {"$push": "$$ROOT"}, "last": {"$last": "$t"}}},
    {"$sort": {"_id": 1}},
]


@pytest.mark.parametrize("stages", [[WINDOWS], [FACETS], GROUPS, [{"$sort": {"t": 1}}], [DENSE], [BUCKETS], [ROUNDED]])
def test_on_disk_as_in_memory(stages: list[Document]) -> None:
    plain: Any = ran(stages, ROWS)
    spilled: Any = ran(stages, ROWS, memory_bytes_max=30_000)
    assert [encode(row) for row in spilled] == [encode(row) for row in plain]


@pytest.mark.parametrize(
    ("stages", "code"),
    [
        ([WINDOWS], 5414201),
        ([FACETS], 292),
        (GROUPS, 292),
        ([{"$sort": {"t": 1}}], 292),
        ([DENSE], 6007200),
        ([BUCKETS], 292),
    ],
)
def test_refused_without_disk(stages: list[Document], code: int) -> None:
    with pytest.raises(MongoError) as failure:
        ran(stages, ROWS, memory_bytes_max=20_000, allow_disk_use=False)
    assert failure.value.number == code


def test_one_partition_has_a_bound_even_on_disk() -> None:
    stage = {"$setWindowFields": {"sortBy": {"t": 1}, "output": {"r": {"$rank": {}}}}}
    with pytest.raises(MongoError) as failure:
        ran([stage], ROWS, memory_bytes_max=3_000)
    assert failure.value.number == 5414201
