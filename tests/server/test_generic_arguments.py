"""The arguments that every command accepts: what they mean, and what they may not be."""

from typing import Any

import pytest
from bson import Binary, Code, Decimal128, Int64, Timestamp

from bucketd.common.errors import MongoError
from bucketd.server.generic_arguments import (
    NO_ARGUMENTS,
    ReadConcern,
    check_read_concern,
    parse_generic_arguments,
)

LSID = {"id": Binary(b"x" * 16, 4)}


def parsed(**fields: Any) -> Any:
    return parse_generic_arguments("find", {"find": "c", **fields, "$db": "d"})


def test_a_plain_request_has_none() -> None:
    assert parsed() is NO_ARGUMENTS


def test_what_they_mean() -> None:
    found = parsed(
        lsid=LSID,
        maxTimeMS=5,
        comment=["any"],
        readConcern={"level": "majority", "provenance": "clientSupplied"},
        writeConcern={"w": "majority", "j": True, "wtimeout": "anything"},
        apiVersion="1",
        apiStrict=True,
        **{"$readPreference": {"mode": "nearest"}, "$clusterTime": {"clusterTime": Timestamp(1, 1)}},
    )
    assert found.lsid == b"x" * 16
    assert (found.max_time_ms, found.comment, found.read_preference) == (5, ["any"], "nearest")
    assert found.read_concern.level == "majority"
    assert (found.write_concern.w, found.write_concern.journal) == ("majority", True)
    assert (found.api_version, found.api_strict, found.api_deprecation_errors) == ("1", True, False)


@pytest.mark.parametrize("value", [0, 5.0, Int64(7), Decimal128("9"), 2**31 - 1])
def test_time_limits(value: Any) -> None:
    assert parsed(maxTimeMS=value).max_time_ms == float(str(value))


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"maxTimeMS": "5"}, 14),
        ({"maxTimeMS": True}, 14),
        ({"maxTimeMS": 5.5}, 9),
        ({"maxTimeMS": float("nan")}, 9),
        ({"maxTimeMS": float("inf")}, 9),
        ({"maxTimeMS": Decimal128("1.5")}, 9),
        ({"maxTimeMS": -1}, 2),
        ({"maxTimeMS": 2**31}, 2),
        ({"lsid": 5}, 14),
        ({"lsid": {}}, 40414),
        ({"lsid": {"id": "x"}}, 14),
        ({"lsid": {"id": b"x" * 16}}, 14),
        ({"lsid": {"id": Binary(b"x", 4)}}, 207),
        ({"lsid": {**LSID, "other": 1}}, 40415),
        ({"readConcern": "local"}, 14),
        ({"readConcern": {"level": "strong"}}, 2),
        ({"readConcern": {"level": 5}}, 14),
        ({"readConcern": {"levle": "local"}}, 40415),
        ({"readConcern": {"afterClusterTime": 5}}, 14),
        ({"readConcern": {"provenance": "mine"}}, 2),
        ({"writeConcern": "majority"}, 14),
        ({"writeConcern": {"x": 1}}, 40415),
        ({"writeConcern": {"w": -1}}, 9),
        ({"writeConcern": {"w": 51}}, 9),
        ({"writeConcern": {"w": True}}, 9),
        ({"writeConcern": {"w": float("nan")}}, 9),
        ({"writeConcern": {"w": []}}, 9),
        ({"writeConcern": {"w": None}}, 2),
        ({"writeConcern": {"w": 2}}, 2),
        ({"writeConcern": {"w": "tag"}}, 2),
        ({"writeConcern": {"j": "x"}}, 14),
        ({"apiVersion": "2"}, 322),
        ({"apiVersion": 1}, 14),
        ({"apiStrict": True}, 4886600),
        ({"apiDeprecationErrors": True}, 4886600),
        ({"$readPreference": {"mode": "closest"}}, 9),
        ({"$readPreference": {"mode": 5}}, 14),
        ({"$readPreference": 5}, 14),
        ({"$readPreference": Code("nearest")}, 14),
        ({"$clusterTime": 5}, 14),
        ({"$clusterTime": {}}, 40414),
        ({"$clusterTime": {"clusterTime": 5}}, 14),
        ({"txnNumber": Int64(1), "lsid": LSID}, 20),
        ({"txnNumber": Int64(1), "lsid": LSID, "startTransaction": True, "autocommit": False}, 20),
        ({"txnNumber": 1, "lsid": LSID}, 14),
        ({"txnNumber": Int64(-1), "lsid": LSID}, 72),
        ({"txnNumber": Int64(1)}, 72),
        ({"txnNumber": Int64(1), "lsid": LSID, "autocommit": True}, 72),
        ({"txnNumber": Int64(1), "lsid": LSID, "startTransaction": False, "autocommit": False}, 72),
        ({"txnNumber": Int64(1), "lsid": LSID, "startTransaction": True}, 72),
        ({"autocommit": False}, 72),
        ({"autocommit": 5}, 14),
        ({"startTransaction": True}, 72),
    ],
)
def test_what_they_may_not_be(fields: dict[str, Any], number: int) -> None:
    with pytest.raises(MongoError) as caught:
        parsed(**fields)
    assert caught.value.number == number


def test_retryable_writes_are_refused_in_the_words_that_drivers_know() -> None:
    with pytest.raises(MongoError, match=r"^Transaction numbers are only allowed on a replica set member or mongos$"):
        parsed(txnNumber=Int64(1), lsid=LSID)


@pytest.mark.parametrize(
    ("w", "journal", "acknowledged"),
    [(0, None, False), (0, True, True), (1, None, True), ("majority", None, True)],
)
def test_who_is_told(w: Any, journal: bool | None, acknowledged: bool) -> None:
    concern = {"w": w} if journal is None else {"w": w, "j": journal}
    assert parsed(writeConcern=concern).write_concern.acknowledged is acknowledged


@pytest.mark.parametrize("level", [None, "local"])
def test_every_command_reads_locally(level: str | None) -> None:
    check_read_concern("drop", ReadConcern(level, None, {}), supported=False)


@pytest.mark.parametrize("level", ["available", "majority"])
def test_readers_take_what_one_server_can_give(level: str) -> None:
    check_read_concern("find", ReadConcern(level, None, {}), supported=True)


@pytest.mark.parametrize(
    ("level", "document", "supported", "number"),
    [
        ("majority", {}, False, 72),
        ("snapshot", {}, True, 123),
        ("linearizable", {}, True, 123),
        ("local", {"afterClusterTime": Timestamp(1, 1)}, True, 20),
        ("local", {"atClusterTime": Timestamp(1, 1)}, True, 72),
    ],
)
def test_what_one_server_cannot_give(level: str, document: dict[str, Any], supported: bool, number: int) -> None:
    with pytest.raises(MongoError) as caught:
        check_read_concern("find", ReadConcern(level, None, document), supported=supported)
    assert caught.value.number == number
