"""An optimised pipeline answers as the pipeline that was written."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.common.values import Document, encode
from support.pipelines import parsed, ran

scalars = st.one_of(st.integers(0, 3), st.sampled_from(["x", "y", None, 1.5]))
shallow = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(st.sampled_from("ab"), scalars, max_size=2))
values = st.one_of(shallow, st.lists(shallow, max_size=2), st.dictionaries(st.sampled_from("ab"), shallow, max_size=2))
rows = st.lists(st.dictionaries(st.sampled_from(["_id", "a", "b", "c"]), values, max_size=4), max_size=12)

paths = st.sampled_from(["_id", "a", "b", "c", "a.a", "a.b", "b.a", "c.b", "n"])
conditions = st.one_of(
    st.builds(lambda path, value: {path: value}, paths, scalars),
    st.builds(lambda path, value: {path: {"$gt": value}}, paths, st.integers(0, 3)),
    st.builds(lambda path, value: {path: {"$ne": value}}, paths, scalars),
    st.builds(lambda path, found: {path: {"$exists": found}}, paths, st.booleans()),
    st.builds(lambda path: {path: {"$elemMatch": {"$gt": 0}}}, paths),
    st.builds(lambda path, value: {path: {"$not": {"$in": [value]}}}, paths, scalars),
    st.builds(lambda left, right: {"$expr": {"$eq": [f"${left}", f"${right}"]}}, paths, paths),
    st.just({}),
)
filters = st.one_of(
    conditions,
    st.builds(lambda left, right: {"$and": [left, right]}, conditions, conditions),
    st.builds(lambda left, right: {"$or": [left, right]}, conditions, conditions),
)
computed = st.one_of(
    st.builds(lambda path: f"${path}", paths), st.integers(5, 6), st.just({"$ifNull": ["$a", 7]}), st.just("$$REMOVE")
)
tops = st.sampled_from(["_id", "a", "b", "c", "n"])
stages = st.one_of(
    st.builds(lambda one: {"$match": one}, filters),
    st.builds(lambda path: {"$project": {path: 1}}, paths),
    st.builds(lambda path: {"$project": {path: 0}}, paths),
    st.builds(lambda path, one: {"$project": {"b": 1, path: one}}, st.sampled_from(["a", "c", "n.x"]), computed),
    st.builds(lambda path, one: {"$set": {path: one}}, paths, computed),
    st.builds(lambda path: {"$unset": path}, paths),
    st.builds(lambda path, direction: {"$sort": {path: direction}}, paths, st.sampled_from([1, -1])),
    st.builds(lambda amount: {"$limit": amount}, st.integers(1, 5)),
    st.builds(lambda amount: {"$skip": amount}, st.integers(0, 3)),
    st.builds(
        lambda path, keep, index: {
            "$unwind": {
                "path": f"${path}",
                "preserveNullAndEmptyArrays": keep,
                **({"includeArrayIndex": index} if index else {}),
            }
        },
        paths,
        st.booleans(),
        st.sampled_from(["", "n", "a"]),
    ),
    st.builds(lambda path: {"$group": {"_id": f"${path}", "n": {"$sum": 1}}}, paths),
    st.just({"$replaceRoot": {"newRoot": {"a": "$b", "b": "$a"}}}),
)


@settings(max_examples=400, deadline=None)
@given(rows, st.lists(stages, max_size=6))
def test_the_same_rows(documents: list[Document], pipeline: list[Document]) -> None:
    plain: Any = ran(pipeline, documents, optimized=False)
    found: Any = ran(pipeline, documents)
    assert [encode(row) for row in found] == [encode(row) for row in plain]


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        (
            [{"$set": {"n": 1}}, {"$match": {"a": 1, "n": 1}}],
            [{"$match": {"a": {"$eq": 1}}}, {"$addFields": {"n": {"$const": 1}}}, {"$match": {"n": {"$eq": 1}}}],
        ),
        (
            [{"$sort": {"a": 1}}, {"$match": {"b": 2}}],
            [{"$match": {"b": {"$eq": 2}}}, {"$sort": {"sortKey": {"a": 1}}}],
        ),
        (
            [{"$match": {"a": 1}}, {"$match": {"b": 2}}],
            [{"$match": {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 2}}]}}],
        ),
        (
            [{"$unwind": "$a"}, {"$match": {"a": 1, "b": 1}}],
            [{"$match": {"b": {"$eq": 1}}}, {"$unwind": {"path": "$a"}}, {"$match": {"a": {"$eq": 1}}}],
        ),
        (
            [{"$sort": {"a": 1}}, {"$project": {"a": 1}}, {"$limit": 3}],
            [{"$sort": {"sortKey": {"a": 1}, "limit": 3}}, {"$project": {"_id": True, "a": True}}],
        ),
        (
            [{"$group": {"_id": "$a"}}, {"$sort": {"_id": 1}}, {"$skip": 2}, {"$limit": 3}],
            [{"$group": {"_id": "$a"}}, {"$sort": {"sortKey": {"_id": 1}, "limit": 5}}, {"$skip": 2}],
        ),
        ([{"$limit": 5}, {"$limit": 3}, {"$skip": 1}, {"$skip": 1}], [{"$limit": 3}, {"$skip": 2}]),
        ([{"$limit": 5}, {"$match": {"a": 1}}], [{"$limit": 5}, {"$match": {"a": {"$eq": 1}}}]),
        (
            [{"$project": {"a": "$b"}}, {"$match": {"a": 1}}],
            [{"$project": {"_id": True, "a": "$b"}}, {"$match": {"a": {"$eq": 1}}}],
        ),
    ],
)
def test_where_stages_go(pipeline: list[Document], expected: list[Document]) -> None:
    assert parsed(pipeline).optimized().serialize() == expected
