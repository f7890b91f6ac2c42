"""An optimised pipeline answers as the pipeline that was written."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
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
    st.builds(
        lambda left, right: {"$group": {"_id": {"a": f"${left}", "b": f"${right}"}, "n": {"$sum": 1}}}, paths, paths
    ),
    st.just({"$replaceRoot": {"newRoot": {"a": "$b", "b": "$a"}}}),
    st.builds(lambda left, right: {"$project": {"a": f"${left}", "b": f"${right}", "c": 1}}, tops, tops),
    st.builds(lambda left, right: {"$set": {"a": f"${left}", "b": f"${right}"}}, tops, tops),
    st.builds(
        lambda one: {"$redact": {"$cond": [one, "$$PRUNE", "$$DESCEND"]}},
        st.sampled_from([{"$eq": ["$a", 1]}, {"$gt": ["$b", 1]}, {"$eq": [{"$type": "$a"}, "missing"]}]),
    ),
)
joining = st.one_of(
    stages,
    st.builds(
        lambda local, foreign, output, unwound: [
            {"$lookup": {"from": "others", "localField": local, "foreignField": foreign, "as": output}},
            *unwound(output),
        ],
        paths,
        paths,
        st.sampled_from(["f", "a", "a.b"]),
        st.sampled_from(
            [
                lambda output: [],
                lambda output: [{"$unwind": f"${output}"}, {"$match": {f"{output}.a": {"$gt": 0}, "b": {"$ne": 3}}}],
                lambda output: [{"$unwind": {"path": f"${output}", "preserveNullAndEmptyArrays": True}}],
                lambda output: [{"$unwind": {"path": f"${output}", "includeArrayIndex": "n"}}, {"$match": {"n": 0}}],
            ]
        ),
    ),
    st.builds(
        lambda local, pipeline: {
            "$lookup": {
                "from": "others", "localField": local, "foreignField": "a", "let": {"x": "$b"}, "pipeline": pipeline, "as": "f",
            }
        },
        tops,
        st.sampled_from(
            [
                [],
                [{"$match": {"b": {"$ne": 1}}}, {"$project": {"b": 1}}],
                [{"$match": {"$expr": {"$gte": ["$b", "$$x"]}}}],
                [{"$set": {"x": "$$x"}}, {"$match": {"x": 1}}],
                [{"$sort": {"b": -1}}, {"$limit": 1}],
            ]
        ),
    ),
    st.just({"$lookup": {"from": "others", "pipeline": [{"$match": {"a": 1}}], "as": "f"}}),
    st.just({"$unionWith": {"coll": "others", "pipeline": [{"$set": {"b": "$a"}}]}}),
    st.just(
        {
            "$graphLookup": {
                "from": "others", "startWith": "$a", "connectFromField": "b", "connectToField": "a", "as": "g",
            }
        }
    ),
)  # fmt: skip


gathering = st.one_of(
    joining,
    st.builds(
        lambda by, order, operand: {
            "$setWindowFields": {
                "partitionBy": by,
                "sortBy": {order: 1},
                "output": {
                    "w": {"$sum": operand, "window": {"documents": [-1, 0]}},
                    "s": {"$shift": {"output": "$c", "by": 1}},
                },
            }
        },
        st.sampled_from(["$a", None, {"$type": "$b"}]),
        tops,
        st.sampled_from(["$b", "$a.b", 1]),
    ),
    st.builds(lambda path: {"$bucketAuto": {"groupBy": f"${path}", "buckets": 2}}, paths),
    st.builds(lambda path: {"$sortByCount": f"${path}"}, paths),
    st.just({"$fill": {"sortBy": {"a": 1}, "output": {"b": {"method": "locf"}, "c": {"value": "$a"}}}}),
    st.just({"$facet": {"x": [{"$match": {"a": 1}}, {"$project": {"b": 1}}], "y": [{"$count": "n"}]}}),
    st.just({"$count": "n"}),
)


def _flat(parts: list[Any]) -> list[Document]:
    return [stage for part in parts for stage in (part if isinstance(part, list) else [part])]


def _answers(pipeline: list[Document], documents: list[Document], others: list[Document], *, optimized: bool) -> Any:
    try:
        found: Any = ran(pipeline, documents, optimized=optimized, others={"others": others})
    except MongoError as error:
        return error.number
    return [encode(row) for row in found]


@settings(max_examples=400, deadline=None)
@given(rows, st.lists(stages, max_size=6))
def test_the_same_rows(documents: list[Document], pipeline: list[Document]) -> None:
    plain = _answers(pipeline, documents, [], optimized=False)
    assume(isinstance(plain, list))
    assert _answers(pipeline, documents, [], optimized=True) == plain


@settings(max_examples=400, deadline=None)
@given(rows, rows, st.lists(joining, max_size=6))
def test_the_same_rows_with_other_collections(
    documents: list[Document], others: list[Document], parts: list[Any]
) -> None:
    pipeline = _flat(parts)
    plain = _answers(pipeline, documents, others, optimized=False)
    assume(isinstance(plain, list))
    assert _answers(pipeline, documents, others, optimized=True) == plain


@settings(max_examples=400, deadline=None)
@given(rows, rows, st.lists(gathering, max_size=5))
def test_fields_that_nobody_reads_do_not_count(
    documents: list[Document], others: list[Document], parts: list[Any]
) -> None:
    pipeline = _flat(parts)
    needed = parsed(pipeline, {"others": others}).optimized().required_fields()
    assume(needed is not None)
    tops_needed = {path.partition(".")[0] for path in needed or ()}
    whole = _answers(pipeline, documents, others, optimized=True)
    assume(isinstance(whole, list))
    parts_of_rows = [{name: value for name, value in row.items() if name in tops_needed} for row in documents]
    assert _answers(pipeline, parts_of_rows, others, optimized=True) == whole


LOOKUP = {"from": "others", "as": "f", "localField": "a", "foreignField": "b"}


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
            [{"$match": {"b": {"$eq": 1}}}, {"$project": {"_id": True, "a": "$b"}}],
        ),
        (
            [{"$project": {"a": "$b.c"}}, {"$match": {"a": 1}}],
            [{"$project": {"_id": True, "a": "$b.c"}}, {"$match": {"a": {"$eq": 1}}}],
        ),
        (
            [{"$set": {"a": "$b"}}, {"$match": {"$expr": {"$gt": ["$a", "$c"]}}}],
            [{"$match": {"$expr": {"$gt": ["$b", "$c"]}}}, {"$addFields": {"a": "$b"}}],
        ),
        (
            [{"$group": {"_id": "$a"}}, {"$match": {"_id": {"$gt": 2}}}],
            [{"$match": {"a": {"$gt": 2}}}, {"$group": {"_id": "$a"}}],
        ),
        (
            [{"$group": {"_id": {"x": "$a"}, "n": {"$sum": 1}}}, {"$match": {"_id.x": 2, "n": 1}}],
            [
                {"$match": {"a": {"$eq": 2}}},
                {"$group": {"_id": {"x": "$a"}, "n": {"$sum": {"$const": 1}}}},
                {"$match": {"n": {"$eq": 1}}},
            ],
        ),
        # Every group has an _id, and shows one of several equal values.
        (
            [{"$group": {"_id": "$a"}}, {"$match": {"_id": {"$exists": True}}}],
            [{"$group": {"_id": "$a"}}, {"$match": {"_id": {"$exists": True}}}],
        ),
        (
            [{"$group": {"_id": "$a"}}, {"$match": {"_id": {"$type": "int"}}}],
            [{"$group": {"_id": "$a"}}, {"$match": {"_id": {"$type": [16]}}}],
        ),
        (
            [{"$redact": "$$DESCEND"}, {"$match": {"a": 1, "b": None}}],
            [
                {"$match": {"a": {"$eq": 1}}},
                {"$redact": "$$DESCEND"},
                {"$match": {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": None}}]}},
            ],
        ),
        ([{"$skip": 0}, {"$match": {}}], []),
        ([{"$sort": {"a": 1}}, {"$sort": {"a": 1}}], [{"$sort": {"sortKey": {"a": 1}}}]),
        (
            [{"$unwind": "$b"}, {"$sort": {"a": 1}}],
            [{"$sort": {"sortKey": {"a": 1}}}, {"$unwind": {"path": "$b"}}],
        ),
        (
            [{"$sort": {"a": 1}}, {"$unwind": {"path": "$b", "preserveNullAndEmptyArrays": True}}, {"$limit": 3}],
            [
                {"$sort": {"sortKey": {"a": 1}, "limit": 3}},
                {"$unwind": {"path": "$b", "preserveNullAndEmptyArrays": True}},
                {"$limit": 3},
            ],
        ),
        (
            [{"$unionWith": "others"}, {"$match": {"a": 1}}],
            [
                {"$match": {"a": {"$eq": 1}}},
                {"$unionWith": {"coll": "others", "pipeline": [{"$match": {"a": {"$eq": 1}}}]}},
            ],
        ),
        ([{"$lookup": LOOKUP}, {"$sort": {"a": 1}}], [{"$sort": {"sortKey": {"a": 1}}}, {"$lookup": LOOKUP}]),
        ([{"$lookup": LOOKUP}, {"$limit": 3}], [{"$limit": 3}, {"$lookup": LOOKUP}]),
        (
            [{"$lookup": LOOKUP}, {"$unwind": "$f"}, {"$match": {"f.x": {"$gt": 1}, "a": 1}}, {"$limit": 3}],
            [
                {"$match": {"a": {"$eq": 1}}},
                {
                    "$lookup": {
                        **LOOKUP,
                        "let": {},
                        "pipeline": [{"$match": {"x": {"$gt": 1}}}],
                        "unwinding": {"preserveNullAndEmptyArrays": False},
                    }
                },
                {"$limit": 3},
            ],
        ),
        (
            [{"$lookup": LOOKUP}, {"$unwind": {"path": "$f", "includeArrayIndex": "n"}}, {"$match": {"f.x": 1}}],
            [
                {"$lookup": {**LOOKUP, "unwinding": {"preserveNullAndEmptyArrays": False, "includeArrayIndex": "n"}}},
                {"$match": {"f.x": {"$eq": 1}}},
            ],
        ),
        (
            [{"$lookup": LOOKUP}, {"$unwind": "$f"}, {"$match": {"f.x": {"$elemMatch": {"$gt": 1}}}}],
            [
                {"$lookup": {**LOOKUP, "unwinding": {"preserveNullAndEmptyArrays": False}}},
                {"$match": {"f.x": {"$elemMatch": {"$gt": 1}}}},
            ],
        ),
    ],
)
def test_where_stages_go(pipeline: list[Document], expected: list[Document]) -> None:
    assert parsed(pipeline).optimized().serialize() == expected
