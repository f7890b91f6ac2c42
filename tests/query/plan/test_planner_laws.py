"""A query means the same whatever indexes there are, and a sort through an index sorts."""

import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from bucketd.common.values import Document
from bucketd.query.match.parse import parse_filter
from bucketd.query.plan.planner import Wanted
from bucketd.query.sort import parse_sort
from support.query_laws import conditions, filters, indexed_collection, keys, rows, run, sorts

indexes = st.lists(
    st.tuples(keys, st.booleans(), st.one_of(st.none(), conditions())), min_size=1, max_size=3,
    unique_by=lambda spec: str(spec[0]),
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)
@given(rows, indexes, filters, sorts)
def test_indexes_change_nothing(
    given_rows: list[Document], specs: list[Any], filter: Document, sort: Document | None
) -> None:
    engine, collection = indexed_collection(given_rows, specs)
    try:
        pattern = None if sort is None else parse_sort(sort)
        matcher = parse_filter(filter)
        expected = run(engine, collection, Wanted(matcher=matcher, sort=pattern, natural=1))
    except MongoError:
        return
    found = run(engine, collection, Wanted(matcher=parse_filter(filter), sort=pattern))
    assert sorted(row["_id"] for row in found) == sorted(row["_id"] for row in expected)
    if pattern is not None:
        found_keys = [pattern.key(row) for row in found]
        assert all(not right < left for left, right in itertools.pairwise(found_keys))
        limited = run(engine, collection, Wanted(matcher=parse_filter(filter), sort=pattern, skip=1, limit=2))
        assert [pattern.key(row) for row in limited] == found_keys[1:3]
