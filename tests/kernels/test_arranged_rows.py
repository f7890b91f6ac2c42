"""Rows that are put together in the kernel: their order, the fields that they get, and what is left out of them."""

from typing import Any

import numpy as np
import pytest
from bson import DatetimeMS, Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.values import Document, decode, encode
from bucketd.kernels import arrange_rows
from bucketd.query.projection import parse_projection

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.sampled_from([1, 2.5, None, "x", True, Int64(7), DatetimeMS(3)]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=3)
TREES = st.recursive(
    st.none(), lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=2), max_leaves=5
).filter(lambda tree: tree is not None)


def inclusion(tree: Document) -> Document:
    """The projection that keeps what a tree names."""
    return {name: 1 if below is None else inclusion(below) for name, below in tree.items()}


@given(st.lists(DOCUMENTS, max_size=5), TREES)
def test_what_is_kept_is_what_a_projection_keeps(documents: list[Document], tree: Document) -> None:
    block = arrange_rows([[encode(document) for document in documents]], np.arange(len(documents)), [], tree)
    projection = parse_projection({"_id": 0, **inclusion(tree)})
    assert [decode(raw) for raw in block.raws()] == [projection.apply(document, {}) for document in documents]
    assert [list(decode(raw)) for raw in block.raws()] == [list(projection.apply(one, {})) for one in documents]


@given(st.lists(st.lists(DOCUMENTS, max_size=4), min_size=1, max_size=3), st.data())
def test_rows_of_several_blocks(parts: list[list[Document]], data: st.DataObject) -> None:
    rows = [document for part in parts for document in part]
    positions = data.draw(st.lists(st.integers(0, max(len(rows) - 1, 0)), max_size=8 if rows else 0))
    blocks = [[encode(document) for document in part] for part in parts]
    as_blocks = [arrange_rows([block], np.arange(len(block))) for block in blocks]
    for given_blocks in (blocks, as_blocks):
        found = arrange_rows(given_blocks, np.array(positions, dtype=np.int64))
        assert [decode(raw) for raw in found.raws()] == [rows[position] for position in positions]
    with pytest.raises(IndexError):
        arrange_rows(blocks, np.array([len(rows)]))


KINDS: dict[type, int] = {float: 1, str: 2, bool: 8, DatetimeMS: 9, type(None): 10, int: 16, Int64: 18}


@given(
    st.lists(
        st.tuples(DOCUMENTS, st.sampled_from([1, 2.5, None, "x", "yy", True, Int64(7), DatetimeMS(3)])), max_size=5
    )
)
def test_fields_take_the_places_of_their_names(rows: list[tuple[Document, Any]]) -> None:
    texts = ["x", "yy"]
    values = [value for _, value in rows]
    bits = [
        texts.index(value)
        if isinstance(value, str)
        else int(np.float64(value).view(np.int64))
        if isinstance(value, float)
        else int(value or 0)
        for value in values
    ]
    kinds = np.array([KINDS[type(value)] for value in values], dtype=np.uint8)
    field = ("b", kinds, np.array(bits, dtype=np.int64), texts)
    block = arrange_rows([[encode(document) for document, _ in rows]], np.arange(len(rows)), [field])
    expected = [encode({**document, "b": value}) for document, value in rows]
    assert block.raws() == expected
    kept = arrange_rows([[encode(document) for document, _ in rows]], np.arange(len(rows)), [field], {"a": None})
    behind = [{**({"a": document["a"]} if "a" in document else {}), "b": value} for document, value in rows]
    assert kept.raws() == [encode(document) for document in behind]


def test_fields_of_another_number_are_refused() -> None:
    field = ("a", np.zeros(2, dtype=np.uint8), np.zeros(2, dtype=np.int64), None)
    with pytest.raises(ValueError, match="number of rows"):
        arrange_rows([[encode({})]], np.arange(1), [field])
