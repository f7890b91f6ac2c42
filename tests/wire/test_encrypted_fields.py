"""Encrypted fields: what is wrong is told, and what is right is refused all the same."""

from typing import Any

import pytest
from bson import Binary
from pymongo.database import Database
from pymongo.errors import OperationFailure

KEY = Binary(b"k" * 16, 4)
STRINGS: dict[str, Any] = {
    "queryType": "suffixPreview",
    "strMinQueryLength": 1,
    "strMaxQueryLength": 10,
    "caseSensitive": True,
    "diacriticSensitive": True,
}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"path": "a", "keyId": KEY, "bsonType": "string"}, 6346402),
        ({"path": "a", "keyId": KEY, "bsonType": "string", "queries": [STRINGS]}, 6346402),
        ({"path": "", "keyId": KEY}, 6316402),
        ({"path": "_id.x", "keyId": KEY}, 6316403),
        ({"path": "a", "keyId": Binary(b"short", 4)}, 207),
        ({"path": "a", "keyId": Binary(b"k" * 16, 0)}, 14),
        ({"path": "a", "keyId": KEY, "bsonType": "null"}, 6338406),
        ({"path": "a", "keyId": KEY, "bsonType": "string", "queries": {"queryType": "range"}}, 6775201),
        (
            {"path": "a", "keyId": KEY, "bsonType": "int", "queries": {"queryType": "range", "min": 5, "max": 5}},
            6720005,
        ),
        ({"path": "a", "keyId": KEY, "bsonType": "string", "queries": {**STRINGS, "strMinQueryLength": 11}}, 9783406),
        ({"path": "a", "keyId": KEY, "bsonType": "string", "queries": []}, 9783412),
    ],
)
def test_encrypted_fields(database: Database[dict[str, Any]], row: dict[str, Any], code: int) -> None:
    with pytest.raises(OperationFailure) as caught:
        database.command("create", "c", encryptedFields={"fields": [row]})
    assert caught.value.code == code


def test_what_is_right_needs_a_replica_set(database: Database[dict[str, Any]]) -> None:
    with pytest.raises(OperationFailure) as caught:
        database.command("create", "c", encryptedFields={"fields": [{"path": "a", "keyId": KEY}]})
    assert caught.value.code == 6346402
    assert "c" not in database.list_collection_names()


def test_paths_are_different(database: Database[dict[str, Any]]) -> None:
    row = {"path": "a", "keyId": KEY}
    with pytest.raises(OperationFailure) as caught:
        database.command("create", "c", encryptedFields={"fields": [row, row]})
    assert caught.value.code == 6338402
