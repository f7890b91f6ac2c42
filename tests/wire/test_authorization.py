"""Who may do what: every command and every stage, for somebody without roles and for those whose roles end somewhere."""

from collections.abc import Callable, Iterator
from typing import Any

import bson
import pytest
from bson import Int64
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from bucketd.query.pipeline.parse import STAGES
from bucketd.server.authorization import NEEDS
from bucketd.server.commands.table import COMMANDS
from bucketd.server.pipeline_needs import SOURCES
from support.server_process import ServerProcess
from support.wire_client import WireClient

Client = MongoClient[dict[str, Any]]

OPEN = {
    "authenticate",
    "buildInfo",
    "connectionStatus",
    "endSessions",
    "features",
    "hello",
    "listCommands",
    "logout",
    "ping",
    "saslContinue",
    "saslStart",
    "whatsmyuri",
}
"""What MongoDB answers to whoever asks."""

OWN = {
    "abortTransaction",
    "commitTransaction",
    "getMore",
    "killCursors",
    "killOp",
    "killSessions",
    "listDatabases",
    "reapLogicalSessionCacheNow",
    "refreshLogicalSessionCacheNow",
    "refreshSessions",
    "startSession",
}
"""What everybody who has logged in may do with what is theirs."""

ARGUMENTS: dict[str, dict[str, Any]] = {
    "aggregate": {"pipeline": [], "cursor": {}},
    "bulkWrite": {"ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "empty.t"}]},
    "createRole": {"createRole": "r", "privileges": [], "roles": []},
    "createUser": {"createUser": "u", "pwd": "x", "roles": []},
    "dataSize": {"dataSize": "db.t"},
    "delete": {"deletes": [{"q": {}, "limit": 1}]},
    "distinct": {"key": "a"},
    "explain": {"explain": {"find": "t"}},
    "filemd5": {"filemd5": 1, "root": "fs"},
    "grantPrivilegesToRole": {
        "privileges": [{"resource": {"db": "db", "collection": ""}, "actions": ["find"]}],
    },
    "grantRolesToRole": {"roles": ["read"]},
    "grantRolesToUser": {"roles": ["read"]},
    "insert": {"documents": [{}]},
    "killOp": {"op": 1},
    "renameCollection": {"renameCollection": "db.a", "to": "db.b"},
    "revokePrivilegesFromRole": {
        "privileges": [{"resource": {"db": "db", "collection": ""}, "actions": ["find"]}],
    },
    "revokeRolesFromRole": {"roles": ["read"]},
    "revokeRolesFromUser": {"roles": ["read"]},
    "rolesInfo": {"rolesInfo": 1},
    "update": {"updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
    "updateUser": {"updateUser": "u", "pwd": "x"},
    "usersInfo": {"usersInfo": 1},
}
NAMES = sorted({command.name for command in COMMANDS.values()})


def request(name: str) -> dict[str, Any]:
    body = {name: "t", **ARGUMENTS.get(name, {})}
    return {**body, "$db": "admin" if COMMANDS[name].admin_only or name == "renameCollection" else "db"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("guarded"), "--auth")
    server.start()
    with Client(server.uri) as client:
        client.admin.command("createUser", "boss", pwd="x", roles=["root"])
    yield server
    server.stop()


@pytest.fixture(scope="module")
def boss(guarded: ServerProcess) -> Iterator[Client]:
    with Client(guarded.uri, username="boss", password="x") as client:
        client["db"]["t"].insert_many([{"_id": number, "secret": number} for number in range(10)])
        client["db"]["hidden"].insert_one({"_id": 1})
        client["other"]["t"].insert_one({"_id": 1})
        client["db"].create_collection("series", timeseries={"timeField": "t"})
        yield client


User = Callable[..., Client]


@pytest.fixture
def user(guarded: ServerProcess, boss: Client, request: pytest.FixtureRequest) -> Iterator[User]:
    """Makes a user with these roles, or with these privileges, and logs in."""
    made: list[Client] = []

    def make(*roles: Any, privileges: Any = (), database: str = "admin") -> Client:
        name = f"{request.node.name}{len(made)}"
        if privileges:
            boss[database].command("createRole", name, privileges=list(privileges), roles=[])
            roles = (*roles, name)
        boss[database].command("createUser", name, pwd="x", roles=list(roles))
        made.append(Client(guarded.uri, username=name, password="x", authSource=database))
        return made[-1]

    yield make
    for client in made:
        client.close()


def on(database: str, collection: str, *actions: str) -> dict[str, Any]:
    return {"resource": {"db": database, "collection": collection}, "actions": list(actions)}


def refusal(work: Callable[[], Any]) -> int | None:
    """The code of the error, None where there is none."""
    try:
        work()
    except OperationFailure as error:
        return error.code
    return None


def run(client: Client, name: str) -> int | None:
    body = request(name)
    database = body.pop("$db")
    return refusal(lambda: client[database].command(body))


def test_every_command_has_its_needs() -> None:
    assert {name for name in NAMES if not COMMANDS[name].needs_login} == OPEN
    assert set(NAMES) - OPEN == set(NEEDS)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OPEN])
def test_nobody_is_let_in_without_a_login(guarded: ServerProcess, boss: Client, name: str) -> None:
    with WireClient(guarded.port) as wire:
        reply = wire.ask(request(name))
    assert (reply["ok"], reply["code"]) == (0.0, 13)
    assert reply["errmsg"] == f"Command {name} requires authentication"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OPEN | OWN])
def test_who_has_no_role_is_refused(guarded: ServerProcess, nobody: Client, name: str) -> None:
    body = request(name)
    database = body.pop("$db")
    with pytest.raises(OperationFailure) as refused:
        nobody[database].command(body)
    assert refused.value.code == 13
    assert "not authorized on" in str(refused.value)


@pytest.fixture(scope="module")
def nobody(guarded: ServerProcess, boss: Client) -> Iterator[Client]:
    boss.admin.command("createUser", "nobody", pwd="x", roles=[])
    with Client(guarded.uri, username="nobody", password="x") as client:
        yield client


def test_root_is_refused_nothing(guarded: ServerProcess, boss: Client) -> None:
    internal = {"replSetGetRBID", "replSetHeartbeat", "replSetRequestVotes", "replSetUpdatePosition"}
    dangerous = {"shutdown", "fsync", "dropDatabase", "dropAllUsersFromDatabase", "logout", "setParameter"}
    refused = []
    # Each against an empty collection, so that what succeeds changes nothing.
    for name in set(NAMES) - OPEN - internal - dangerous:
        body = {**request(name)}
        if body.get(name) == "t":
            body[name] = "nothing here"
        database = body.pop("$db")
        database = "empty" if database == "db" else database
        if refusal(lambda body=body, database=database: boss[database].command(body)) == 13:
            refused.append(name)
    assert refused == []


READ_DOCUMENTS = {
    "$_internalUnpackBucket",
    "$_unpackBucket",
    "$addFields",
    "$bucket",
    "$bucketAuto",
    "$count",
    "$densify",
    "$facet",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$group",
    "$limit",
    "$lookup",
    "$match",
    "$project",
    "$rankFusion",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$sample",
    "$set",
    "$setWindowFields",
    "$skip",
    "$sort",
    "$sortByCount",
    "$unionWith",
    "$unset",
    "$unwind",
}
"""Stages that begin with the documents of the collection, take what comes in, or have their own line in the needs."""


def test_every_stage_has_its_needs() -> None:
    # A new one has to be thought about: what does it read or write besides what comes in?
    assert set(STAGES) - SOURCES == READ_DOCUMENTS


READER = [on("db", "t", "find")]

ELSEWHERE: list[list[dict[str, Any]]] = [
    [{"$lookup": {"from": "hidden", "localField": "a", "foreignField": "b", "as": "x"}}],
    [{"$lookup": {"from": "hidden", "pipeline": [], "as": "x"}}],
    [{"$lookup": {"from": "t", "pipeline": [{"$lookup": {"from": "hidden", "pipeline": [], "as": "y"}}], "as": "x"}}],
    [
        {
            "$graphLookup": {
                "from": "hidden",
                "startWith": "$a",
                "connectFromField": "a",
                "connectToField": "b",
                "as": "x",
            }
        }
    ],
    [{"$unionWith": "hidden"}],
    [{"$unionWith": {"coll": "hidden"}}],
    [{"$unionWith": {"coll": "t", "pipeline": [{"$unionWith": "hidden"}]}}],
    [{"$facet": {"a": [{"$lookup": {"from": "hidden", "pipeline": [], "as": "x"}}]}}],
    [{"$facet": {"a": [{"$unionWith": "hidden"}]}}],
    [{"$out": "made"}],
    [{"$out": {"db": "other", "coll": "made"}}],
    [{"$merge": "made"}],
    [{"$merge": {"into": {"db": "other", "coll": "made"}}}],
    [{"$collStats": {"count": {}}}],
    [{"$indexStats": {}}],
    [{"$planCacheStats": {}}],
]


@pytest.mark.parametrize("pipeline", ELSEWHERE, ids=str)
def test_stages_that_reach_elsewhere(user: User, pipeline: list[dict[str, Any]]) -> None:
    reader = user(privileges=READER)
    table = reader["db"]["t"]
    assert refusal(lambda: list(table.aggregate(pipeline))) == 13
    assert (
        refusal(lambda: reader["db"].command("explain", {"aggregate": "t", "pipeline": pipeline, "cursor": {}})) == 13
    )


def test_collectionless_sources(user: User, boss: Client) -> None:
    plain = user()

    def rows(client: Client, database: str, stage: dict[str, Any]) -> Any:
        return list(client[database].aggregate([stage]))

    for stage in ({"$currentOp": {"allUsers": True}}, {"$listLocalSessions": {"allUsers": True}}):
        assert refusal(lambda stage=stage: rows(plain, "admin", stage)) == 13
        assert rows(boss, "admin", stage)
    others = {"users": [{"user": "boss", "db": "admin"}]}
    assert refusal(lambda: rows(plain, "admin", {"$listLocalSessions": others})) == 13
    for row in rows(plain, "admin", {"$currentOp": {"idleConnections": True, "idleCursors": True}}):
        assert row["effectiveUsers"][0]["user"] != "boss"
    assert {row["user"] for row in rows(plain, "admin", {"$listLocalSessions": {}})} == {f"{name_of(plain)}@admin"}
    assert rows(plain, "admin", {"$listClusterCatalog": {}}) == []
    assert refusal(lambda: rows(plain, "admin", {"$querySettings": {}})) == 13
    assert rows(plain, "db", {"$documents": [{"a": 1}]}) == [{"a": 1}]
    assert refusal(lambda: plain.admin.command("currentOp")) == 13
    assert plain.admin.command({"currentOp": 1, "$ownOps": True})["inprog"]


def name_of(client: Client) -> str:
    (who,) = client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
    return str(who["user"])


def test_a_view_shows_what_its_reader_could_not_read(user: User, boss: Client) -> None:
    boss["db"].command("create", "shown", viewOn="hidden", pipeline=[])
    viewer = user(privileges=[on("db", "shown", "find")])
    assert viewer["db"]["shown"].find_one() == {"_id": 1}
    assert refusal(lambda: viewer["db"]["hidden"].find_one()) == 13


def test_who_defines_a_view_must_be_able_to_read_behind_it(user: User, boss: Client) -> None:
    maker = user(privileges=[on("db", "mine", "createCollection", "find", "collMod"), on("db", "t", "find")])
    join = [{"$lookup": {"from": "hidden", "pipeline": [], "as": "x"}}]
    assert refusal(lambda: maker["db"].command("create", "mine", viewOn="hidden", pipeline=[])) == 13
    assert refusal(lambda: maker["db"].command("create", "mine", viewOn="t", pipeline=join)) == 13
    maker["db"].command("create", "mine", viewOn="t", pipeline=[])
    assert refusal(lambda: maker["db"].command("collMod", "mine", viewOn="hidden", pipeline=[])) == 13


def test_system_collections_are_not_part_of_a_database(user: User) -> None:
    writer = user({"role": "readWrite", "db": "db"})
    writer["db"]["series"].find_one()
    for name in ("system.buckets.series", "system.views", "system.profile"):
        assert refusal(lambda name=name: writer["db"][name].find_one()) == 13
        assert refusal(lambda name=name: writer["db"][name].insert_one({})) == 13
    with_buckets = user(privileges=[on("db", "system.buckets.series", "find")])
    assert with_buckets["db"]["system.buckets.series"].find_one() is None


def test_lists_show_what_one_may_see(user: User) -> None:
    reader = user(privileges=READER)
    assert reader["db"].list_collection_names(authorizedCollections=True) == ["t"]
    assert refusal(lambda: list(reader["db"].list_collections())) == 13
    assert reader.list_database_names() == ["db"]
    assert [row["name"] for row in reader.admin.command("listDatabases")["databases"]] == ["db"]
    assert refusal(lambda: reader.admin.command("listDatabases", authorizedDatabases=False)) == 13
    assert user().list_database_names() == []


def test_cursors_and_operations_of_others(user: User, boss: Client) -> None:
    first, second = user(privileges=READER), user(privileges=READER)
    opened = first["db"].command("find", "t", batchSize=2)["cursor"]
    assert refusal(lambda: second["db"].command("getMore", Int64(opened["id"]), collection="t")) == 13
    assert refusal(lambda: second["db"].command("killCursors", "t", cursors=[Int64(opened["id"])])) == 13
    assert refusal(lambda: second.admin.command("killOp", op=1)) == 13
    assert first["db"].command("killCursors", "t", cursors=[Int64(opened["id"])])["cursorsKilled"] == [opened["id"]]
    opened = first["db"].command("find", "t", batchSize=2)["cursor"]
    assert boss["db"].command("killCursors", "t", cursors=[Int64(opened["id"])])["cursorsKilled"] == [opened["id"]]


def test_sessions_of_others_live_on(user: User) -> None:
    first, second = user(privileges=READER), user()
    lsid = {"id": bson.Binary(b"0123456789abcdef", 4)}
    opened = first["db"].command({"find": "t", "batchSize": 2, "lsid": lsid})["cursor"]
    for name in ("killSessions", "endSessions"):
        second.admin.command({name: [lsid]})
        second.admin.command({name: []})
    rest = first["db"].command({"getMore": Int64(opened["id"]), "collection": "t", "lsid": lsid})
    assert len(rest["cursor"]["nextBatch"]) == 8


def test_who_has_not_logged_in_makes_no_sessions(guarded: ServerProcess, boss: Client) -> None:
    def count() -> int:
        return int(boss.admin.command("serverStatus")["logicalSessionRecordCache"]["activeSessionsCount"])

    count()
    before = count()
    with WireClient(guarded.port) as wire:
        for number in range(20):
            wire.ask({"ping": 1, "lsid": {"id": bson.Binary(number.to_bytes(16, "big"), 4)}})
    assert count() == before


@pytest.mark.parametrize(
    "command",
    [
        {"createUser": "made", "pwd": "x", "roles": [{"role": "root", "db": "admin"}]},
        {"createUser": "made", "pwd": "x", "roles": [{"role": "read", "db": "other"}]},
        {"grantRolesToUser": "me", "roles": [{"role": "root", "db": "admin"}]},
        {"updateUser": "me", "roles": [{"role": "dbOwner", "db": "db"}]},
        {"createRole": "made", "roles": [{"role": "read", "db": "other"}], "privileges": []},
        {"createRole": "made", "roles": [], "privileges": [on("other", "", "find")]},
        {"createRole": "made", "roles": [], "privileges": [{"resource": {"cluster": True}, "actions": ["shutdown"]}]},
        {"createRole": "made", "roles": [], "privileges": [on("", "", "find")]},
        {"createRole": "made", "roles": [], "privileges": [{"resource": {"anyResource": True}, "actions": ["find"]}]},
        {"usersInfo": {"user": "boss", "db": "admin"}},
        {"usersInfo": {"forAllDBs": True}},
        {"usersInfo": ["me", {"user": "boss", "db": "admin"}]},
        {"rolesInfo": {"role": "r", "db": "other"}},
    ],
    ids=str,
)
def test_an_owner_of_one_database_hands_out_nothing_of_others(user: User, command: dict[str, Any]) -> None:
    owner = user("dbOwner", database="db")
    assert refusal(lambda: owner["db"].command(command)) == 13


def test_an_owner_of_one_database_hands_out_what_is_in_it(user: User) -> None:
    owner = user("dbOwner", database="db")
    owner["db"].command("createRole", "inner", roles=["read"], privileges=[on("db", "t", "insert")])
    owner["db"].command("createUser", "inner", pwd="x", roles=["inner"])
    assert owner["db"].command("usersInfo", "inner")["users"][0]["roles"] == [{"role": "inner", "db": "db"}]


def test_ones_own_password(user: User) -> None:
    bound = user()
    assert refusal(lambda: bound.admin.command("updateUser", name_of(bound), pwd="y")) == 13
    assert bound.admin.command("usersInfo", name_of(bound))["users"]
    free = user(privileges=[on("admin", "", "changeOwnPassword")])
    free.admin.command("updateUser", name_of(free), pwd="x")
    assert refusal(lambda: free.admin.command("updateUser", "boss", pwd="y")) == 13
    assert refusal(lambda: free.admin.command("updateUser", name_of(free), customData={})) == 13


def test_writing_past_a_validator(user: User) -> None:
    writer = user({"role": "readWrite", "db": "db"})
    table = writer["db"]["checked"]
    for work in (
        lambda: table.insert_one({}, bypass_document_validation=True),
        lambda: table.update_one({}, {"$set": {"a": 1}}, bypass_document_validation=True),
        lambda: table.aggregate([{"$out": "copy"}], bypassDocumentValidation=True),
        lambda: writer["db"].command(
            "findAndModify", "checked", update={"$set": {"a": 1}}, bypassDocumentValidation=True
        ),
    ):
        assert refusal(work) == 13
    table.insert_one({})


def test_secrets_are_not_told(guarded: ServerProcess, boss: Client, nobody: Client) -> None:
    secret = "a very secret word"
    for client in (boss, nobody):
        refusal(lambda client=client: client["secrets"].command("createUser", "s", pwd=secret, roles=["nonsense"]))
        refusal(lambda client=client: client["secrets"].command("updateUser", "nobody else", pwd=secret))
    with pytest.raises(OperationFailure) as refused:
        nobody["secrets"].command("createUser", "s", pwd=secret, roles=[])
    assert secret not in str(refused.value.details)
    boss["secrets"].command("profile", 2)
    boss["secrets"].command("createUser", "s", pwd=secret, roles=[])
    boss["secrets"].command("profile", 0)
    seen = [
        *guarded.lines,
        *boss.admin.command("getLog", "global")["log"],
        str(list(boss["secrets"]["system.profile"].find())),
    ]
    assert not any(secret in text for text in seen)
