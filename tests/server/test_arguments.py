"""Reading the fields of a request: MongoDB's words and codes for whatever cannot be."""

from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64
from hypothesis import given
from hypothesis import strategies as st

from bucketd.catalog.namespaces import Namespace
from bucketd.common.clock import TestClock
from bucketd.common.errors import MongoError
from bucketd.common.values import encode
from bucketd.server.commands.arguments import REQUIRED, Fields, whole_number
from bucketd.server.context import Request
from bucketd.server.generic_arguments import NO_ARGUMENTS
from bucketd.server.operations import OperationRegistry


def request(body: dict[str, Any], sequences: dict[str, bytes] | None = None) -> Request:
    return Request(
        name=next(iter(body)),
        database="db",
        body=body,
        raw=encode(body),
        operation=OperationRegistry(TestClock(0)).begin(),
        generic=NO_ARGUMENTS,
        sequences=sequences or {},
    )


def refused(number: int, message: str) -> Any:
    class Refusal:
        def __enter__(self) -> None:
            return None

        def __exit__(self, kind: Any, error: Any, _: Any) -> bool:
            assert isinstance(error, MongoError), "nothing was refused"
            assert (error.number, error.message) == (number, message)
            return True

    return Refusal()


def test_unknown_fields_are_refused_at_once_or_in_the_end() -> None:
    asked = request({"find": "c", "filter": {}, "odd": 1, "comment": 5, "$db": "db", "lsid": {}})
    with refused(40415, "BSON field 'find.odd' is an unknown field."):
        Fields(asked, known={"filter"})
    fields = Fields(asked)
    fields.take_document("filter")
    with refused(40415, "BSON field 'find.odd' is an unknown field."):
        fields.finish()


def test_unknown_document_sequences_are_refused() -> None:
    with refused(40415, "BSON field 'find.documents' is an unknown field."):
        Fields(request({"find": "c"}, {"documents": b""}), known=())


def test_within_a_document_no_field_is_generic() -> None:
    with refused(40415, "BSON field 'create.timeseries.comment' is an unknown field."):
        Fields({"comment": 1}, "create.timeseries", known=())


@pytest.mark.parametrize("value", [None, ...])
def test_null_and_absence_are_the_same(value: Any) -> None:
    fields = Fields({} if value is ... else dict.fromkeys("abcdef", value), "x")
    with refused(40414, "BSON field 'x.a' is missing but a required field"):
        fields.take_string("a")
    with refused(40414, "BSON field 'x.f' is missing but a required field"):
        fields.take_bool("f", default=REQUIRED)
    assert fields.take_bool("b") is False
    assert fields.take_document("c", default={}) == {}
    assert fields.take_list("d", default=None) is None
    assert fields.take_whole_number("e", default=7) == 7
    assert not fields.has("a")


@pytest.mark.parametrize(
    ("take", "value", "message"),
    [
        ("take_string", 5, "is the wrong type 'int', expected type 'string'"),
        ("take_string", Code("x"), "is the wrong type 'javascript', expected type 'string'"),
        ("take_document", [], "is the wrong type 'array', expected type 'object'"),
        ("take_list", {}, "is the wrong type 'object', expected type 'array'"),
        ("take_bool", "x", "is the wrong type 'string', expected types '[bool, long, int, decimal, double]'"),
        ("take_whole_number", True, "is the wrong type 'bool', expected types '[long, int, decimal, double]'"),
        ("take_long", 5, "is the wrong type 'int', expected type 'long'"),
        ("take_long", 5.0, "is the wrong type 'double', expected type 'long'"),
    ],
)
def test_wrong_types(take: str, value: Any, message: str) -> None:
    with refused(14, f"BSON field 'x.a' {message}"):
        getattr(Fields({"a": value}, "x"), take)("a")


def test_an_exact_truth_is_no_number() -> None:
    with refused(14, "BSON field 'x.a' is the wrong type 'int', expected type 'bool'"):
        Fields({"a": 1}, "x").take_bool("a", exact=True)


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        (True, True),
        (0, False),
        (-0.0, False),
        (0.1, True),
        (float("nan"), True),
        (Decimal128("0E5"), False),
        (Decimal128("NaN"), True),
        (Int64(2), True),
    ],
)
def test_numbers_are_truths(value: Any, truth: bool) -> None:
    assert Fields({"a": value}, "x").take_bool("a") is truth


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5.9, 5),
        (-5.9, -5),
        (float("nan"), 0),
        (float("inf"), 2**63 - 1),
        (float("-inf"), -(2**63)),
        (Decimal128("2.5"), 2),
        (Decimal128("3.5"), 4),
        (Decimal128("1E100"), 2**63 - 1),
        (Decimal128("-Infinity"), -(2**63)),
        (Int64(7), 7),
    ],
)
def test_numbers_are_made_whole(value: Any, number: int) -> None:
    assert whole_number(value) == number


@given(st.one_of(st.floats(), st.integers(-(2**70), 2**70)))
def test_whole_numbers_fit_64_bits(value: float) -> None:
    assert -(2**63) <= whole_number(value) <= 2**63 - 1


def test_ranges() -> None:
    fields = Fields({"a": -1, "b": 11}, "x")
    with refused(2, "BSON field 'a' value must be >= 0, actual value '-1'"):
        fields.take_whole_number("a", low=0)
    with refused(2, "BSON field 'b' value must be <= 10, actual value '11'"):
        fields.take_whole_number("b", high=10)


def test_a_choice() -> None:
    assert Fields({"a": "one"}, "x").take_enum("a", ("one", "two")) == "one"
    with refused(2, "Enumeration value 'ten' for field 'x.a' is not a valid value."):
        Fields({"a": "ten"}, "x").take_enum("a", ("one", "two"))


def test_nested_fields_are_called_by_their_path() -> None:
    inner = Fields({"a": {"b": 5}}, "x").nested("a")
    assert inner is not None
    with refused(14, "BSON field 'x.a.b' is the wrong type 'int', expected type 'string'"):
        inner.take_string("b")
    assert Fields({}, "x").nested("a") is None


def test_a_namespace_is_noted_for_the_operation() -> None:
    asked = request({"find": "some.where"})
    assert Fields(asked).take_namespace() == Namespace("db", "some.where")
    assert asked.operation.namespace == "db.some.where"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "collection name has invalid type int"),
        (None, "collection name has invalid type null"),
        (Code("c"), "collection name has invalid type javascript"),
        ("", "Invalid namespace specified 'db.'"),
        (".x", "Invalid namespace specified 'db..x'"),
        ("a\0b", "Invalid namespace specified 'db.a\0b'"),
        ("x" * 253, f"Fully qualified namespace is too long. Namespace: db.{'x' * 253} Max: 255"),
    ],
)
def test_names_that_no_collection_has(value: Any, message: str) -> None:
    with refused(73, message):
        Fields(request({"find": value})).take_namespace()


def test_documents_come_the_same_from_body_and_sequence() -> None:
    documents = [{"_id": 1}, {"_id": 2}]
    raws = [encode(document) for document in documents]
    inline = request({"insert": "c", "documents": documents})
    apart = request({"insert": "c"}, {"documents": b"".join(raws)})
    for asked in (inline, apart):
        assert asked.raw_documents("documents") == raws
        assert asked.documents("documents") == documents
        assert asked.has("documents")
    assert inline.raw_sequence("documents") is None
    assert apart.raw_sequence("documents") == b"".join(raws)
    assert inline.raw_documents("absent") == []


def test_binary_is_no_name() -> None:
    with pytest.raises(MongoError) as caught:
        Fields(request({"find": Binary(b"x" * 16, 4)})).take_namespace()
    assert caught.value.number == 73
