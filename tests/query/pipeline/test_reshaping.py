"""Stages that take documents one by one."""

from typing import Any

import pytest
from bson import Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.ordering import equal
from bucketd.common.values import Document
from support.bson_values import documents, values
from support.pipelines import ran


@pytest.mark.parametrize(
    ("stages", "document", "expected"),
    [
        ([{"$match": {"a": {"$gt": 1}}}], {"a": 2}, [{"a": 2}]),
        ([{"$match": {"$expr": {"$lt": ["$a", "$b"]}}}], {"a": 2, "b": 1}, []),
        ([{"$project": {"a": 1}}], {"_id": 1, "b": 2, "a": 3}, [{"_id": 1, "a": 3}]),
        ([{"$project": {"_id": 0, "s": {"$add": ["$a", 1]}}}], {"_id": 1, "a": 3}, [{"s": 4}]),
        ([{"$project": {"a.b": 0}}], {"a": [{"b": 1, "c": 2}, 3]}, [{"a": [{"c": 2}, 3]}]),
        ([{"$set": {"a.b": 1}}], {"a": [{}, {"c": 2}]}, [{"a": [{"b": 1}, {"c": 2, "b": 1}]}]),
        ([{"$addFields": {"a": {"b": 1}}}], {"a": {"c": 2}}, [{"a": {"c": 2, "b": 1}}]),
        ([{"$set": {"a": "$$REMOVE", "b": "$x"}}], {"a": 1, "c": 2}, [{"c": 2}]),
        ([{"$unset": ["a", "b.c"]}], {"a": 1, "b": {"c": 2, "d": 3}}, [{"b": {"d": 3}}]),
        ([{"$replaceRoot": {"newRoot": "$a"}}], {"a": {"b": 1}}, [{"b": 1}]),
        ([{"$replaceWith": {"x": "$$ROOT.a"}}], {"a": 1}, [{"x": 1}]),
        ([{"$unwind": "$a"}], {"a": [1, 2]}, [{"a": 1}, {"a": 2}]),
        ([{"$unwind": "$a"}], {"a": []}, []),
        ([{"$unwind": "$a"}], {"a": 5}, [{"a": 5}]),
        ([{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": True}}], {"a": [], "b": 1}, [{"b": 1}]),
        ([{"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": True}}], {"a": None}, [{"a": None}]),
        (
            [{"$unwind": {"path": "$a.b", "includeArrayIndex": "i"}}],
            {"a": {"b": ["x"], "c": 1}},
            [{"a": {"b": "x", "c": 1}, "i": Int64(0)}],
        ),
        ([{"$unwind": {"path": "$a", "includeArrayIndex": "i"}}], {"a": 5}, [{"a": 5, "i": None}]),
        (
            [{"$redact": {"$cond": [{"$eq": ["$level", 5]}, "$$PRUNE", "$$DESCEND"]}}],
            {"level": 1, "a": {"level": 5}, "b": [{"level": 5}, {"level": 2}, 7]},
            [{"level": 1, "b": [{"level": 2}, 7]}],
        ),
    ],
)
def test_one_document(stages: Any, document: Document, expected: list[Document]) -> None:
    rows = ran(stages, [document])
    assert rows == expected
    assert [list(row) for row in rows] == [list(row) for row in expected]


def test_rows_of_the_pipeline_itself() -> None:
    assert ran([{"$documents": [{"a": 1}, {"a": {"$add": [1, 1]}}]}, {"$match": {"a": 2}}], []) == [{"a": 2}]


@given(st.lists(documents, max_size=6))
def test_setting_and_unsetting_leaves_the_rest(rows: list[Document]) -> None:
    given_rows = [{name: value for name, value in row.items() if name != "fresh"} for row in rows]
    made = ran([{"$set": {"fresh": 1}}, {"$unset": "fresh"}], given_rows)
    assert all(equal(left, right) for left, right in zip(made, given_rows, strict=True))


@given(st.lists(values, max_size=5))
def test_unwinding_and_pushing_gives_the_array_back(items: list[Any]) -> None:
    stages = [{"$unwind": "$a"}, {"$group": {"_id": None, "a": {"$push": "$a"}}}]
    rows = ran(stages, [{"a": items}])
    assert [row["a"] for row in rows] == ([items] if items else []) or equal(rows[0]["a"], items)


@given(st.lists(documents, max_size=6))
def test_documents_that_come_in_stay_as_they_are(rows: list[Document]) -> None:
    before = repr(rows)
    ran([{"$set": {"a.b": 1, "b": [1]}}, {"$unset": "A"}, {"$sort": {"a": 1}}], rows)
    assert repr(rows) == before
