"""What a pipeline may be: shapes, places of stages, and what explain shows of it."""

from typing import Any

import pytest
from bson import Int64

from bucketd.common.errors import MongoError
from bucketd.query.pipeline.order import Limit, Skip, Sort
from support.pipelines import parsed, ran


@pytest.mark.parametrize(
    ("stages", "number"),
    [
        ([{}], 40323),
        ([{"$match": {}, "$limit": 1}], 40323),
        ([{"$nothing": 1}], 40324),
        ([{"$match": {}}] * 1001, 7749501),
        (["a"], 14),
        ({}, 14),
        ([{"$match": 1}], 15959),
        ([{"$project": {}}], 51272),
        ([{"$project": 1}], 15969),
        ([{"$project": {"a": 1, "b": 0}}], 31254),
        ([{"$set": 1}], 40272),
        ([{"$unset": 1}], 31002),
        ([{"$unset": []}], 31119),
        ([{"$unset": [1]}], 31120),
        ([{"$sort": 1}], 15973),
        ([{"$sort": {}}], 15976),
        ([{"$sort": {"a": "x"}}], 15974),
        ([{"$sort": {"a": 2}}], 15975),
        ([{"$limit": 0}], 15958),
        ([{"$limit": "a"}], 5107201),
        ([{"$limit": -1}], 5107201),
        ([{"$skip": -1}], 5107200),
        ([{"$group": 1}], 15947),
        ([{"$group": {}}], 15955),
        ([{"$group": {"_id": 1, "a": 1}}], 40234),
        ([{"$group": {"_id": 1, "a": {"$sum": 1, "$avg": 1}}}], 40238),
        ([{"$group": {"_id": 1, "a.b": {"$sum": 1}}}], 40235),
        ([{"$group": {"_id": 1, "$a": {"$sum": 1}}}], 40236),
        ([{"$group": {"_id": 1, "a": {"$nothing": 1}}}], 15952),
        ([{"$group": {"_id": 1, "a": {"$sum": [1, 2]}}}], 40237),
        ([{"$count": ""}], 40157),
        ([{"$count": 1}], 40156),
        ([{"$count": "$a"}], 40158),
        ([{"$count": "a.b"}], 40160),
        ([{"$unwind": 1}], 15981),
        ([{"$unwind": "a"}], 28818),
        ([{"$unwind": {}}], 28812),
        ([{"$unwind": {"path": "$a", "x": 1}}], 28811),
        ([{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": 1}}], 28809),
        ([{"$unwind": {"path": "$a", "includeArrayIndex": "$x"}}], 28822),
        ([{"$sample": {}}], 28749),
        ([{"$sample": 1}], 28745),
        ([{"$sample": {"size": -1}}], 28747),
        ([{"$replaceRoot": 1}], 40229),
        ([{"$sortByCount": "a"}], 40148),
        ([{"$sortByCount": 1}], 40149),
        ([{"$bucket": {"groupBy": "$a"}}], 40198),
        ([{"$bucket": {"groupBy": "$a", "boundaries": [1]}}], 40192),
        ([{"$bucket": {"groupBy": "$a", "boundaries": [1, "a"]}}], 40193),
        ([{"$bucket": {"groupBy": "$a", "boundaries": [2, 1]}}], 40194),
        ([{"$bucket": {"groupBy": "$a", "boundaries": [1, 5], "default": 3}}], 40199),
        ([{"$changeStream": {}}], 40573),
        ([{"$match": {}}, {"$documents": []}], 40602),
    ],
)
def test_refused(stages: Any, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parsed(stages)
    assert caught.value.number == number


@pytest.mark.parametrize(
    ("stages", "number"),
    [
        ([{"$replaceWith": "$a"}], 40228),
        ([{"$redact": "x"}], 17053),
        ([{"$bucket": {"groupBy": "$a", "boundaries": [5, 9]}}], 40066),
    ],
)
def test_fails_when_it_runs(stages: Any, number: int) -> None:
    parsed(stages)
    with pytest.raises(MongoError) as caught:
        ran(stages, [{"a": 1}])
    assert caught.value.number == number


def test_limits_and_skips_are_joined() -> None:
    stages = parsed([{"$limit": 5}, {"$limit": 3}, {"$skip": 1}, {"$skip": 2}]).optimized().stages
    assert [type(stage) for stage in stages] == [Limit, Skip]
    assert [stage.serialize() for stage in stages] == [{"$limit": Int64(3)}, {"$skip": Int64(3)}]


def test_a_sort_knows_its_limit() -> None:
    (stage,) = parsed([{"$sort": {"a": -1}}, {"$limit": 7}, {"$limit": 9}]).optimized().stages
    assert isinstance(stage, Sort)
    assert stage.limit == 7
    assert stage.serialize() == {"$sort": {"sortKey": {"a": -1}, "limit": Int64(7)}}


def test_what_the_planner_takes() -> None:
    leading, rest = (
        parsed([{"$match": {"a": 1}}, {"$sort": {"b": 1}}, {"$skip": 2}, {"$limit": 3}, {"$project": {"a": 1}}])
        .optimized()
        .split_leading()
    )
    assert len(leading.filters) == 1
    assert leading.sort is not None
    assert (leading.skip, leading.limit) == (2, 3)
    assert [stage.name for stage in rest.stages] == ["$project"]


@pytest.mark.parametrize(
    ("stages", "fields"),
    [
        ([{"$group": {"_id": "$a", "n": {"$sum": "$b.c"}}}], {"a", "b.c"}),
        ([{"$match": {"x": 1}}, {"$group": {"_id": {"$year": "$t"}}}], {"x", "t"}),
        ([{"$count": "n"}], set()),
        ([{"$sort": {"s": 1}}, {"$count": "n"}], {"s"}),
        ([{"$group": {"_id": "$$ROOT"}}], None),
        ([{"$match": {"x": 1}}], None),
        ([{"$set": {"y": "$a"}}, {"$group": {"_id": "$y"}}], {"a", "y"}),
        ([{"$project": {"a": 1, "_id": 0}}], {"a"}),
    ],
)
def test_fields_that_are_read(stages: Any, fields: set[str] | None) -> None:
    assert parsed(stages).required_fields() == fields
