"""Raw documents: checked, cut apart, put together, given an `_id`; raw values compared."""

from typing import Any

import pytest
from bson import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.ordering import compare
from bucketd.common.values import decode, encode
from bucketd.kernels import (
    array_to_documents,
    compare_values,
    concat_array,
    find_field,
    new_object_id,
    split_documents,
    validate_document,
    with_id,
)
from support.bson_values import documents, values


def raw(value: Any) -> bytes:
    """Type byte and value."""
    document = encode({"": value})
    return document[4:5] + document[6:-1]


@given(document=documents)
def test_what_the_driver_writes_is_valid(document: dict[str, Any]) -> None:
    validate_document(encode(document))


@given(document=documents, position=st.integers(0, 500), byte=st.integers(0, 255))
def test_what_is_valid_can_be_decoded(document: dict[str, Any], position: int, byte: int) -> None:
    changed = bytearray(encode(document))
    changed[position % len(changed)] = byte
    try:
        validate_document(bytes(changed))
    except ValueError:
        return
    decode(bytes(changed))


def test_nesting_is_bounded() -> None:
    document: dict[str, Any] = {}
    for _ in range(199):
        document = {"a": document}
    validate_document(encode(document))
    with pytest.raises(ValueError, match="deep"):
        validate_document(encode({"a": document}))
    validate_document(encode({"a": document}), depth_max=201)


@given(many=st.lists(documents, max_size=12))
def test_documents_back_to_back_and_in_arrays(many: list[dict[str, Any]]) -> None:
    raws = [encode(document) for document in many]
    assert split_documents(b"".join(raws)) == raws
    array = concat_array(raws)
    assert b"\x04a\0" + array in encode({"a": many})
    assert array_to_documents(array) == raws


def test_what_is_no_list_of_documents() -> None:
    with pytest.raises(ValueError, match="no document"):
        array_to_documents(raw([1])[1:])
    with pytest.raises(ValueError, match="length"):
        split_documents(encode({})[:-1])


def test_an_id_comes_first() -> None:
    there = encode({"_id": 1, "a": 2})
    assert with_id(there) is there
    assert with_id(encode({"a": 2, "_id": 1, "b": 3})) == encode({"_id": 1, "a": 2, "b": 3})
    made = decode(with_id(encode({"a": 2})))
    assert list(made) == ["_id", "a"]
    assert isinstance(made["_id"], ObjectId)
    assert len({new_object_id() for _ in range(100)}) == 100


@given(document=documents, name=st.text("abA0é", max_size=2))
def test_fields_are_found(document: dict[str, Any], name: str) -> None:
    found = find_field(encode(document), name)
    if name not in document:
        assert found is None
        return
    assert found is not None
    assert bytes([found[0]]) + found[1] == raw(document[name])


@given(a=values, b=values)
def test_values_are_ordered_as_everywhere(a: Any, b: Any) -> None:
    assert compare_values(raw(a), raw(b)) == compare(a, b)
