"""Replies put together from raw documents equal those that are encoded whole."""

from typing import Any

import bson
import pytest
from bson import Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.kernels import RowArray
from bucketd.protocol.replies import array_of, cursor_reply, success, with_elements

DOCUMENTS = st.lists(st.dictionaries(st.text("abc", min_size=1), st.integers(-5, 5), max_size=3), max_size=30)


@given(documents=DOCUMENTS, cursor_id=st.integers(0, 2**63 - 1), first=st.booleans())
def test_a_cursor_reply_reads_as_the_document_it_stands_for(
    documents: list[dict[str, Any]], cursor_id: int, first: bool
) -> None:
    reply = cursor_reply(first, cursor_id, "db.name", array_of([bson.encode(document) for document in documents]))
    batch = "firstBatch" if first else "nextBatch"
    whole = {"cursor": {batch: documents, "id": Int64(cursor_id), "ns": "db.name"}, "ok": 1.0}
    assert reply == bson.encode(whole)


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 5000])
def test_positions_are_numbered_however_many(count: int) -> None:
    reply = bson.decode(cursor_reply(True, 0, "a.b", array_of([bson.encode({"n": n}) for n in range(count)])))
    assert reply["cursor"]["firstBatch"] == [{"n": n} for n in range(count)]


def test_extras_stand_in_the_cursor_and_in_the_reply() -> None:
    reply = cursor_reply(True, 0, "a.b", RowArray(), {"x": 1}, cursor_extra={"partial": True})
    assert list(bson.decode(reply)) == ["cursor", "x", "ok"]
    assert list(bson.decode(reply)["cursor"]) == ["firstBatch", "partial", "id", "ns"]


def test_success_adds_ok() -> None:
    assert bson.decode(success({"n": 1})) == {"n": 1, "ok": 1.0}
    assert bson.decode(success({})) == {"ok": 1.0}


def test_fields_can_be_added_to_a_raw_reply() -> None:
    assert bson.decode(with_elements(success({"n": 1}), {"more": 2})) == {"n": 1, "ok": 1.0, "more": 2}
