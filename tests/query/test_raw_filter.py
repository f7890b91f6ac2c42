"""Predicates on raw bytes judge as those on documents do."""

from typing import Any

import pytest
from bson import DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketd.common.values import decode, encode
from bucketd.query.match.parse import parse_filter
from bucketd.query.match.raw import raw_filter
from bucketd.query.plan.batches import RowBatch
from bucketd.query.plan.sieve import Sieve

_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**31 - 1, -(2**31)]),
    st.sampled_from([Int64(1), Int64(2**53 + 1), Int64(-1)]),
    st.sampled_from([0.0, -0.0, 1.0, 1.5, 2.0**53, float("nan"), float("inf")]),
    st.sampled_from(["", "a", "b", "ab"]),
    st.sampled_from([DatetimeMS(0), DatetimeMS(1)]),
    st.booleans(),
    st.none(),
    st.sampled_from([Decimal128("1"), Decimal128("NaN"), MinKey(), MaxKey(), ObjectId(b"\0" * 12), b"a"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
_DOCUMENTS = st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3)
_PATHS = st.sampled_from(["a", "b", "a.b", "a.a.b", "c"])
_TESTS = st.one_of(
    st.builds(
        lambda operator, value: {operator: value}, st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte"]), _SCALARS
    ),
    st.builds(
        lambda operator, value: {"$_internalExpr" + operator: value},
        st.sampled_from(["Eq", "Gt", "Gte", "Lt", "Lte"]),
        _SCALARS,
    ),
    st.builds(lambda values: {"$in": values}, st.lists(_SCALARS, min_size=1, max_size=3)),
    st.builds(lambda wanted: {"$exists": wanted}, st.booleans()),
    st.builds(lambda value: {"$ne": value}, _SCALARS),
)
_LEAVES = st.builds(lambda path, test: {path: test}, _PATHS, _TESTS)
_FILTERS = st.recursive(
    _LEAVES,
    lambda inner: st.builds(
        lambda operator, parts: {operator: parts},
        st.sampled_from(["$and", "$or"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(filter=_FILTERS, documents=st.lists(_DOCUMENTS, min_size=1, max_size=6))
def test_bytes_are_judged_as_documents(filter: Any, documents: list[dict[str, Any]]) -> None:
    node = parse_filter(filter).simplified()
    raws = [encode(document) for document in documents]
    matches = node.compile({})
    expected = [raw for raw in raws if matches(decode(raw))]
    sieve = Sieve(node)
    if sieve.useful:
        assert sieve.keep(RowBatch(raws=raws), node.compile, {}).raws() == expected


@pytest.mark.parametrize(
    ("filter", "whole"),
    [({"a": 1}, True), ({"a": 1, "b": {"$regex": "x"}}, False), ({"$or": [{"a": 1}, {"b.c": {"$in": ["x"]}}]}, True)],
)
def test_says_whether_it_says_everything(filter: Any, whole: bool) -> None:
    found = raw_filter(parse_filter(filter).simplified())
    assert found is not None
    assert found[1] is whole


@pytest.mark.parametrize("filter", [{"a": None}, {"a": {"$regex": "x"}}, {"a": {"$size": 1}}, {"a": [1]}])
def test_gives_up_where_bytes_tell_nothing(filter: Any) -> None:
    assert raw_filter(parse_filter(filter).simplified()) is None


def test_what_is_judged_is_not_decoded() -> None:
    rows = RowBatch(raws=[encode({"a": number}) for number in range(4)])
    kept = Sieve(parse_filter({"a": {"$gte": 2}})).keep(rows, lambda _: pytest.fail("decoded"), {})
    assert [decode(raw)["a"] for raw in kept.raws()] == [2, 3]
    assert not rows.decoded
