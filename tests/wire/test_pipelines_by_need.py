"""Pipelines that read a part of each document, or an index alone, give what they make of whole documents."""

from typing import Any

import pytest
from bson import Decimal128, Int64
from pymongo.database import Database

from support.pipelines import ran

Document = dict[str, Any]
ROWS: list[Document] = [
    {
        "_id": number,
        "a": [1, 1.0, Int64(2), Decimal128("2.0"), None, "x"][number % 6],
        **({"b": number % 4} if number % 5 else {}),
        "n": {"x": number % 3, "y": str(number)} if number % 7 else number,
        "l": [number % 2, {"z": number % 3}],
        "pad": "p" * 50,
    }
    for number in range(60)
]
PIPELINES: list[list[Document]] = [
    [{"$group": {"_id": "$a", "n": {"$sum": "$b"}}}],
    [{"$group": {"_id": {"a": "$a", "b": "$b"}, "x": {"$max": "$n.x"}}}],
    [{"$match": {"b": {"$gte": 1}}}, {"$group": {"_id": "$b", "all": {"$addToSet": "$n.x"}}}],
    [{"$match": {"b": 2}}, {"$group": {"_id": "$n.x", "n": {"$sum": 1}}}],
    [{"$match": {"b": {"$in": [1, 3]}}}, {"$count": "n"}],
    [{"$match": {"b": {"$exists": False}}}, {"$group": {"_id": "$b", "n": {"$sum": 1}}}],
    [{"$unwind": "$l"}, {"$group": {"_id": "$l.z", "n": {"$sum": "$b"}}}],
    [{"$set": {"c": {"$type": "$b"}}}, {"$group": {"_id": "$c", "n": {"$sum": 1}}}],
    [{"$set": {"n.x": "$b"}}, {"$group": {"_id": "$n.x", "n": {"$first": "$n.y"}}}],
    [{"$project": {"n.x": 1, "b": 1}}, {"$sort": {"_id": -1}}, {"$limit": 7}],
    [{"$project": {"l.z": {"$add": ["$b", 1]}, "n.k": "$b"}}],
    [{"$project": {"n.k.j": {"$literal": 1}, "l.q": "$_id"}}, {"$match": {"_id": {"$gt": 5}}}],
    [{"$set": {"l.z": "$b"}}, {"$project": {"l": 1}}],
    [{"$match": {"b": 1}}, {"$project": {"b": 1, "n.x": 1, "_id": 0}}],
    [{"$project": {"pad": 0, "l": 0}}, {"$group": {"_id": "$b", "n": {"$push": "$$ROOT"}}}],
    [{"$sort": {"b": 1, "_id": 1}}, {"$group": {"_id": "$b", "first": {"$first": "$_id"}}}],
    [{"$sort": {"b": -1, "_id": -1}}, {"$group": {"_id": "$b", "last": {"$last": "$n.x"}}}],
    [{"$group": {"_id": "$b"}}],
    [{"$group": {"_id": "$n.x"}}],
    [{"$match": {"b": {"$gt": 0}}}, {"$group": {"_id": "$b", "q": {"$first": "$b"}}}],
    [{"$replaceRoot": {"newRoot": {"m": "$n", "b": "$b"}}}, {"$match": {"b": 3}}],
    [{"$facet": {"one": [{"$group": {"_id": "$b"}}, {"$sort": {"_id": 1}}], "two": [{"$count": "n"}]}}],
    [{"$bucket": {"groupBy": "$_id", "boundaries": [0, 30, 60], "output": {"n": {"$avg": "$b"}}}}],
    [
        {"$setWindowFields": {"partitionBy": "$b", "sortBy": {"_id": 1}, "output": {"s": {"$sum": "$_id"}}}},
        {"$count": "n"},
    ],
]
"""None of them groups documents that are apart in MongoDB by what comes first."""


def normal(value: Any) -> Any:
    """The same for values that differ in the order of fields, rows or elements alone, types included."""
    if isinstance(value, dict):
        return tuple((name, normal(value[name])) for name in sorted(value))
    if isinstance(value, list):
        return tuple(sorted((normal(item) for item in value), key=repr))
    return (
        type(value).__name__ if type(value) is not Int64 else "int",
        repr(value).removeprefix("Int64(").removesuffix(")"),
    )


@pytest.mark.parametrize("indexes", [[], [[("b", 1)]], [[("b", 1), ("_id", 1), ("n.x", 1)], [("n.x", -1)], [("a", 1)]]])
def test_what_is_not_read_is_not_missed(database: Database[Document], indexes: list[list[tuple[str, int]]]) -> None:
    database.c.insert_many(ROWS)
    for keys in indexes:
        database.c.create_index(keys)
    for pipeline in PIPELINES:
        assert normal(list(database.c.aggregate(pipeline))) == normal(ran(pipeline, ROWS)), pipeline
