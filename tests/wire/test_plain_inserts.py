"""Inserts that are like ones before go a shorter way: what they answer, count and wait for is the same."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson import Binary, DatetimeMS, Int64, ObjectId
from pymongo import MongoClient
from pymongo.database import Database

from support.server_process import ServerProcess
from support.wire_client import WireClient, body_section, message, sequence_section

Document = dict[str, Any]
START = 1_700_000_000_000
_comments = itertools.count()


def at(seconds: int, meta: Any = "a", **fields: Any) -> Document:
    return {"t": DatetimeMS(START + seconds * 1000), "m": meta, **fields}


@pytest.fixture
def series(database: Database[Document]) -> Database[Document]:
    database.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    return database


class Inserter:
    """A connection that inserts, always by the same command."""

    def __init__(self, port: int, database: str, **fields: Any) -> None:
        self.wire = WireClient(port, database)
        self.body: Document = {"insert": "series", "ordered": True, **fields, "$db": database}
        self._ids = itertools.count(1)

    def message(self, *rows: Document, request_id: int = 0) -> bytes:
        sections = (body_section(self.body), sequence_section("documents", list(rows)))
        return message(*sections, request_id=request_id or next(self._ids))

    def insert(self, *rows: Document) -> Document:
        return self.wire.ask_raw(self.message(*rows)).document


@pytest.fixture
def inserter(server: ServerProcess, series: Database[Document]) -> Iterator[Inserter]:
    made = Inserter(server.port, series.name)
    # A connection's first message goes the long way, and so does a command's first.
    assert made.insert(at(0)) == {"n": 1, "ok": 1.0}
    yield made
    made.wire.close()


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([at(1)], id="one"),
        pytest.param([at(number) for number in range(70)], id="many"),
        pytest.param([at(1), {"m": 1}, at(2)], id="one without a time"),
        pytest.param([{"t": "never"}], id="none with a time"),
        pytest.param([], id="nothing"),
        pytest.param([at(1, {"b": [1, {"d": 1, "c": 2}], "a": 2})], id="a nested meta value"),
        pytest.param([{"t": DatetimeMS(-5_000_000_000_000), "m": 1}], id="a time that no id can tell"),
        pytest.param([{"_id": 5, **at(1)}, {"_id": 5, **at(1)}], id="an id twice"),
        pytest.param([at(1, x=1), at(1, x="text")], id="types that no bucket takes together"),
    ],
)
@pytest.mark.parametrize("ordered", [True, False])
def test_the_short_way_answers_as_the_long_one(
    server: ServerProcess, series: Database[Document], rows: list[Document], ordered: bool
) -> None:
    inserter = Inserter(server.port, series.name, ordered=ordered)
    assert inserter.insert(at(0)) == {"n": 1, "ok": 1.0}
    short = inserter.insert(*rows)
    count = series["series"].count_documents({})
    inserter.body["comment"] = next(_comments)
    assert inserter.insert(*rows) == short
    assert count - 1 == short.get("n", 0)
    assert series["series"].count_documents({}) == 1 + 2 * (count - 1)
    inserter.wire.close()


def test_replies_come_in_the_order_of_the_requests(inserter: Inserter, series: Database[Document]) -> None:
    content, expected = [], {}
    for number in range(1, 60):
        if number % 7:
            content.append(inserter.message(at(number), request_id=1000 + number))
            expected[1000 + number] = {"n": 1, "ok": 1.0}
        else:
            # Whatever else is asked sees what was inserted before it, and nothing of what comes behind.
            body = {"count": "series", "$db": series.name}
            content.append(message(body_section(body), request_id=1000 + number))
            expected[1000 + number] = {"n": 1 + number - number // 7, "ok": 1.0}
    inserter.wire.send(b"".join(content))
    replies = [inserter.wire.receive() for _ in content]
    assert [(reply.response_to, reply.document) for reply in replies] == list(expected.items())


def test_what_was_sent_before_the_end_is_answered(inserter: Inserter, series: Database[Document]) -> None:
    inserter.wire.send(b"".join(inserter.message(at(number)) for number in range(40)))
    inserter.wire.end_input()
    assert [inserter.wire.receive().document["n"] for _ in range(40)] == [1] * 40
    assert inserter.wire.is_closed()
    assert series["series"].count_documents({}) == 41


def test_new_ids_are_given(inserter: Inserter, series: Database[Document]) -> None:
    inserter.insert(at(1, x=1), at(2, x=1))
    rows = list(series["series"].find({"x": 1}))
    assert all(isinstance(row["_id"], ObjectId) for row in rows)
    assert len({row["_id"] for row in rows}) == 2


def test_it_counts_as_any_other(inserter: Inserter, series: Database[Document]) -> None:
    admin = series.client.admin

    def counted() -> list[int]:
        status = admin.command("serverStatus")
        top = admin.command("top")["totals"][f"{series.name}.series"]
        network = status["network"]
        return [
            status["opcounters"]["insert"],
            status["metrics"]["document"]["inserted"],
            status["metrics"]["commands"]["insert"]["total"],
            top["insert"]["count"],
            top["writeLock"]["count"],
            network["numRequests"],
            network["bytesIn"],
        ]

    rows = [at(number) for number in range(5)]
    inserter.body["comment"] = 100_000
    before = counted()
    inserter.insert(*rows)
    between = counted()
    inserter.insert(*rows)
    after = counted()
    inserter.body["comment"] = 100_001
    inserter.insert(*rows)
    last = counted()
    long, short, long_again = (
        [now - then for now, then in zip(new, old, strict=True)]
        for new, old in ((between, before), (after, between), (last, after))
    )
    assert short == long == long_again
    assert short[0] == short[1] == 5


def test_a_collection_that_has_become_another(inserter: Inserter, series: Database[Document]) -> None:
    series.drop_collection("series")
    assert inserter.insert(at(1)) == {"n": 1, "ok": 1.0}
    assert series["series"].options() == {}
    series.drop_collection("series")
    series.create_collection("series", timeseries={"timeField": "time"})
    assert inserter.insert(at(1))["writeErrors"][0]["code"] == 2
    assert inserter.insert({"time": DatetimeMS(START)}) == {"n": 1, "ok": 1.0}
    series.drop_collection("series")
    series.create_collection("series", viewOn="other", pipeline=[])
    assert inserter.insert(at(1))["code"] == 166


def test_what_an_index_refuses_is_refused(inserter: Inserter, series: Database[Document]) -> None:
    series["series"].create_index([("place", "2dsphere")])
    reply = inserter.insert(at(1), at(2, place="nowhere"))
    assert reply["n"] == 1
    assert [row["index"] for row in reply["writeErrors"]] == [1]


def test_sessions_are_used(server: ServerProcess, series: Database[Document]) -> None:
    lsid = {"id": Binary(b"\x07" * 16, 4)}
    inserter = Inserter(server.port, series.name, lsid=lsid)
    for number in range(3):
        assert inserter.insert(at(number))["n"] == 1
    series.client.admin.command("killSessions", [lsid])
    assert inserter.insert(at(4))["n"] == 1
    listed = series.aggregate([{"$listLocalSessions": {"allUsers": True}}])
    assert [row["_id"]["id"] for row in listed if row["_id"]["id"] == lsid["id"]] == [lsid["id"]]
    inserter.wire.close()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"writeConcern": {"w": 0}}, None, id="nobody wants to know"),
        pytest.param({"maxTimeMS": Int64(100_000)}, None, id="a limit of time"),
        pytest.param({"txnNumber": Int64(1), "lsid": {"id": Binary(b"\1" * 16, 4)}}, 20, id="a transaction"),
        pytest.param({"readConcern": {"level": "snapshot"}}, 123, id="a read concern"),
        pytest.param({"unknown": 1}, 40415, id="an unknown field"),
        pytest.param({"apiVersion": "1", "apiStrict": True}, None, id="a version of the API"),
    ],
)
def test_a_command_that_is_told_more(
    server: ServerProcess, series: Database[Document], fields: Document, code: int | None
) -> None:
    inserter = Inserter(server.port, series.name, **fields)
    replies = [inserter.insert(at(number)) for number in range(3)]
    assert [reply.get("code") for reply in replies] == [code] * 3
    assert [reply.get("n") for reply in replies] == [1 if code is None and "writeConcern" not in fields else None] * 3
    assert series["series"].count_documents({}) == (3 if code is None else 0)
    inserter.wire.close()


Start = Callable[..., ServerProcess]


def test_the_lock_of_fsync_holds_it_back(start_server: Start) -> None:
    own = start_server()
    with MongoClient[Document](own.uri) as client:
        client["db"].create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
        inserter = Inserter(own.port, "db")
        inserter.insert(at(0))
        inserter.insert(at(1))
        client.admin.command("fsync", lock=True)
        inserter.wire.send(inserter.message(at(2)))
        while not any(row.get("op") == "insert" for row in client.admin.aggregate([{"$currentOp": {}}])):
            pass
        assert client["db"]["series"].count_documents({}) == 2
        client.admin.command("fsyncUnlock")
        assert inserter.wire.receive().document == {"n": 1, "ok": 1.0}
        assert client["db"]["series"].count_documents({}) == 3
        inserter.wire.close()


def test_what_is_set_later_holds(start_server: Start) -> None:
    own = start_server("--setParameter", "enableTestCommands=1")
    with MongoClient[Document](own.uri) as client:
        client["db"].create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
        inserter = Inserter(own.port, "db")
        assert [inserter.insert(at(number))["ok"] for number in range(2)] == [1.0, 1.0]
        data = {"failCommands": ["insert"], "errorCode": 91}
        client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)
        assert [inserter.insert(at(number)).get("code") for number in range(2)] == [91, None]
        client["db"].command("profile", 2)
        inserter.insert(at(5))
        assert client["db"]["system.profile"].count_documents({"op": "insert"}) == 1
        client["db"].command("profile", 0)
        client.admin.command("setParameter", 1, requireApiVersion=True)
        assert inserter.insert(at(6))["code"] == 498870
        inserter.body["apiVersion"] = "1"
        assert [inserter.insert(at(number))["ok"] for number in range(2)] == [1.0, 1.0]
        inserter.wire.close()


def test_rights_are_looked_at_each_time(start_server: Start) -> None:
    own = start_server("--auth")
    with MongoClient[Document](own.uri) as client:
        client.admin.command("createUser", "boss", pwd="x", roles=["root"])
    with MongoClient[Document](own.uri, username="boss", password="x") as boss:
        boss["db"].create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
        boss.admin.command("createUser", "ann", pwd="x", roles=[{"role": "readWrite", "db": "db"}])
        with MongoClient[Document](own.uri, username="ann", password="x") as ann, ann.start_session() as session:
            for number in range(3):
                ann["db"]["series"].insert_many([at(number), at(number)], session=session)
            boss.admin.command("revokeRolesFromUser", "ann", roles=[{"role": "readWrite", "db": "db"}])
            with pytest.raises(Exception, match="not authorized on db"):
                ann["db"]["series"].insert_many([at(9)], session=session)
        inserter = Inserter(own.port, "db")
        assert [inserter.insert(at(number))["code"] for number in range(2)] == [13, 13]
        inserter.wire.close()
        assert boss["db"]["series"].count_documents({}) == 6
