"""Stages and operators compare strings under the collation of the aggregate."""

from typing import Any

import pytest

from bucketd.catalog.namespaces import Namespace
from bucketd.common.collation import Collation
from bucketd.common.errors import MongoError
from bucketd.common.values import Document
from bucketd.query.pipeline.base import PipelineContext
from bucketd.query.pipeline.parse import parse_pipeline
from support.pipelines import Collections, Rows, run_of

BASE = Collation.parse({"locale": "en", "strength": 1})
ROWS = [{"_id": 1, "x": "apple", "v": 0}, {"_id": 2, "x": "Apple", "v": 10}, {"_id": 3, "x": "banana", "v": 0}]


def ran(pipeline: list[Document], collation: Collation | None = BASE) -> list[Any]:
    sources = Collections({"others": ROWS}, optimized=True)
    context = PipelineContext(namespace=Namespace("db", "rows"), collation=collation, sources=sources)
    node = parse_pipeline(pipeline, context).optimized().node(Rows(ROWS))
    return [row for batch in node.batches(run_of()) if batch is not None for row in batch.documents()]


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        ([{"$group": {"_id": "$x", "n": {"$sum": 1}}}, {"$sort": {"n": -1}}], [("apple", 2), ("banana", 1)]),
        (
            [{"$bucket": {"groupBy": "$x", "boundaries": ["APPLE", "banana", "cherry"]}}, {"$set": {"n": "$count"}}],
            [("APPLE", 2), ("banana", 1)],
        ),
        ([{"$project": {"n": {"$indexOfArray": [["pear", "APPLE"], "$x"]}}}], [(1, 1), (2, 1), (3, -1)]),
        ([{"$project": {"n": {"$in": ["$x", ["APPLE"]]}}}], [(1, True), (2, True), (3, False)]),
        ([{"$project": {"n": {"$size": {"$setUnion": [["$x"], ["APPLE"]]}}}}], [(1, 1), (2, 1), (3, 2)]),
        # The one place where MongoDB does not.
        ([{"$match": {"$expr": {"$in": ["$x", ["Apple"]]}}}, {"$set": {"n": 1}}], [(2, 1)]),
        (
            [
                {"$lookup": {"from": "others", "localField": "x", "foreignField": "x", "as": "f"}},
                {"$project": {"n": {"$size": "$f"}}},
            ],
            [(1, 2), (2, 2), (3, 1)],
        ),
        (
            [
                {
                    "$setWindowFields": {
                        "partitionBy": "$x",
                        "sortBy": {"_id": 1},
                        "output": {"n": {"$documentNumber": {}}},
                    }
                },
                {"$sort": {"_id": 1}},
            ],
            [(1, 1), (2, 2), (3, 1)],
        ),
    ],
)
def test_strings_that_are_equal_by_language(pipeline: list[Document], expected: list[Any]) -> None:
    assert [(row["_id"], row["n"]) for row in ran(pipeline)] == expected


def test_gaps_are_filled_in_partitions_by_language() -> None:
    stage = {"$densify": {"field": "v", "partitionByFields": ["x"], "range": {"step": 5, "bounds": "partition"}}}
    filled = [row for row in ran([stage]) if "_id" not in row]
    assert filled == [{"x": "Apple", "v": 5}]
    assert [row for row in ran([stage], None) if "_id" not in row] == []


def test_boundaries_that_are_equal_by_language() -> None:
    with pytest.raises(MongoError) as failure:
        ran([{"$bucket": {"groupBy": "$x", "boundaries": ["a", "A"]}}])
    assert failure.value.number == 40194


def test_the_no_break_space_is_punctuation() -> None:
    shifted = {"locale": "en", "alternate": "shifted"}
    space = Collation.parse({**shifted, "maxVariable": "space"})
    punctuation = Collation.parse({**shifted, "maxVariable": "punct"})
    assert space is not None
    assert punctuation is not None
    assert space.key("a b") == space.key("ab") != space.key("a\u00a0b")
    assert punctuation.key("a\u00a0b") == punctuation.key("ab")


def test_a_collation_is_not_equal_to_none() -> None:
    other = Collation.parse({"locale": "en", "strength": 2})
    assert (BASE == None) is False  # noqa: E711 (the comparison itself)
    assert (BASE != None) is True  # noqa: E711
    assert other != BASE
    assert Collation.parse({"locale": "en", "strength": 1}) == BASE
