"""Users, logins and what roles allow, through a driver on a server with `--auth`."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from support.server_process import ServerProcess

Client = MongoClient[dict[str, Any]]
PASSWORD = "pass wörd"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("guarded"), "--auth")
    server.start()
    with Client(server.uri) as client:
        client.admin.command("createUser", "boss", pwd=PASSWORD, roles=["root"])
    yield server
    server.stop()


@pytest.fixture(scope="module")
def boss(guarded: ServerProcess) -> Iterator[Client]:
    with Client(guarded.uri, username="boss", password=PASSWORD) as client:
        yield client


def login(server: ServerProcess, name: str, password: str, **options: Any) -> Client:
    return Client(server.uri, username=name, password=password, **options)


def refusal(work: Callable[[], Any]) -> int | None:
    with pytest.raises(OperationFailure) as refused:
        work()
    return refused.value.code


def test_the_localhost_exception_ends_with_the_first_user(guarded: ServerProcess) -> None:
    with Client(guarded.uri) as client:
        assert refusal(lambda: client.admin.command("createUser", "second", pwd="x", roles=[])) == 13
        assert refusal(lambda: client["db"]["t"].find_one()) == 13
        assert client.admin.command("ping")["ok"] == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256"])
def test_both_mechanisms_log_in_and_refuse_wrong_passwords(guarded: ServerProcess, mechanism: str) -> None:
    with login(guarded, "boss", PASSWORD, authMechanism=mechanism) as client:
        client["logins"]["t"].insert_one({})
    for name, password in (("boss", "wrong"), ("nobody", PASSWORD)):
        with login(guarded, name, password, authMechanism=mechanism) as client:
            assert refusal(lambda client=client: client["db"]["t"].find_one()) == 18


def test_a_reader_reads_its_database_and_does_no_more(guarded: ServerProcess, boss: Client) -> None:
    boss["read_here"]["t"].insert_one({"_id": 1})
    boss["read_here"].command("createUser", "reader", pwd="x", roles=["read"])
    with login(guarded, "reader", "x", authSource="read_here") as reader:
        assert reader["read_here"]["t"].find_one() == {"_id": 1}
        assert reader.list_database_names() == ["read_here"]
        for forbidden in (
            lambda: reader["read_here"]["t"].insert_one({}),
            lambda: reader["read_here"]["t"].delete_many({}),
            lambda: reader["other"]["t"].find_one(),
            lambda: reader["read_here"]["t"].drop(),
            lambda: list(reader["read_here"]["t"].aggregate([{"$out": "copy"}])),
            lambda: reader["admin"]["system.users"].find_one(),
            lambda: reader.admin.command("serverStatus"),
            lambda: reader["read_here"].command("createUser", "other", pwd="x", roles=["dbOwner"]),
        ):
            assert refusal(forbidden) == 13


def test_roles_given_and_taken_count_at_once(guarded: ServerProcess, boss: Client) -> None:
    boss["worked"].command("createUser", "worker", pwd="x", roles=[])
    with login(guarded, "worker", "x", authSource="worked") as worker:
        assert refusal(lambda: worker["worked"]["t"].insert_one({})) == 13
        boss["worked"].command("grantRolesToUser", "worker", roles=["readWrite"])
        worker["worked"]["t"].insert_one({"_id": 1})
        boss["worked"].command("revokeRolesFromUser", "worker", roles=["readWrite"])
        assert refusal(lambda: worker["worked"]["t"].find_one()) == 13
        boss["worked"].command("dropUser", "worker")
        assert refusal(lambda: worker["worked"]["t"].find_one()) == 13


def test_a_new_password_replaces_the_old(guarded: ServerProcess, boss: Client) -> None:
    boss.admin.command("createUser", "changing", pwd="old", roles=["readAnyDatabase"])
    boss.admin.command("updateUser", "changing", pwd="new")
    with login(guarded, "changing", "old") as client:
        assert refusal(lambda: client["db"]["t"].find_one()) == 18
    with login(guarded, "changing", "new") as client:
        assert client["db"]["t"].find_one() is None


def test_users_are_shown_without_their_secrets(guarded: ServerProcess, boss: Client) -> None:
    (shown,) = boss.admin.command("usersInfo", "boss")["users"]
    assert shown["_id"] == "admin.boss"
    assert shown["roles"] == [{"role": "root", "db": "admin"}]
    assert shown["mechanisms"] == ["SCRAM-SHA-1", "SCRAM-SHA-256"]
    assert "credentials" not in shown
    assert boss.admin.command("usersInfo", "nobody")["users"] == []
    assert not any(PASSWORD in line for line in guarded.lines)


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ({"createUser": "boss", "pwd": "x", "roles": []}, 51003),
        ({"createUser": "", "pwd": "x", "roles": []}, 2),
        ({"createUser": "a", "roles": []}, 2),
        ({"createUser": "a", "pwd": "", "roles": []}, 50687),
        ({"createUser": "a", "pwd": "\u0007", "roles": []}, 50692),
        ({"createUser": "a", "pwd": "x"}, 40414),
        ({"createUser": "a", "pwd": "x", "roles": ["nonsense"]}, 31),
        ({"createUser": "a", "pwd": "x", "roles": [], "mechanisms": ["BAD"]}, 2),
        ({"createUser": "a", "pwd": "x", "roles": [], "mechanisms": []}, 2),
        ({"createUser": "a", "pwd": "x", "roles": [], "nonsense": 1}, 40415),
        ({"updateUser": "boss"}, 2),
        ({"updateUser": "nobody", "pwd": "x"}, 11),
        ({"dropUser": "nobody"}, 11),
        ({"grantRolesToUser": "nobody", "roles": ["read"]}, 11),
        ({"saslContinue": 1, "conversationId": 1, "payload": b""}, 17),
        ({"saslStart": 1, "mechanism": "PLAIN", "payload": b""}, 334),
    ],
)
def test_refusals(boss: Client, command: dict[str, Any], number: int) -> None:
    assert refusal(lambda: boss.admin.command(command)) == number


def test_users_survive_a_restart(guarded: ServerProcess) -> None:
    guarded.stop()
    guarded.start()
    with login(guarded, "boss", PASSWORD) as client:
        assert client["db"]["t"].find_one() is None


def test_where_a_user_may_come_from(guarded: ServerProcess, boss: Client) -> None:
    here, elsewhere = ["127.0.0.0/8", "::1"], ["192.0.2.1"]
    allowed = [
        [{"clientSource": here}],
        [{"clientSource": elsewhere}, {"clientSource": here, "serverAddress": ["127.0.0.1"]}],
        [{}],
    ]
    refused = [
        [{"clientSource": elsewhere}],
        [{"clientSource": here, "serverAddress": elsewhere}],
        [{"clientSource": []}],
    ]
    boss.admin.command("createUser", "placed", pwd="x", roles=[])
    for restrictions, number in [*((row, None) for row in allowed), *((row, 18) for row in refused)]:
        boss.admin.command("updateUser", "placed", authenticationRestrictions=restrictions)
        with login(guarded, "placed", "x") as client:
            if number is None:
                assert client.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
            else:
                assert refusal(lambda client=client: client.admin.command("ping")) == number
    (shown,) = boss.admin.command("usersInfo", "placed", showAuthenticationRestrictions=True)["users"]
    assert shown["authenticationRestrictions"] == refused[-1]
    boss.admin.command("updateUser", "placed", authenticationRestrictions=[])
    boss.admin.command(
        "createRole", "far", privileges=[], roles=[], authenticationRestrictions=[{"clientSource": elsewhere}]
    )
    boss.admin.command("createRole", "heir", privileges=[], roles=["far"])
    boss.admin.command("grantRolesToUser", "placed", roles=["heir"])
    with login(guarded, "placed", "x") as client:
        assert refusal(lambda: client.admin.command("ping")) == 18
    (role,) = boss.admin.command("rolesInfo", "heir", showAuthenticationRestrictions=True)["roles"]
    assert role["authenticationRestrictions"] == []
    assert role["inheritedAuthenticationRestrictions"] == [[{"clientSource": elsewhere}]]
    for wrong, number in ((5, 12), ("nowhere", 12), ("127.0.0.1/x", 12), ("127.0.0.1/33", 12)):
        row = [{"clientSource": [wrong]}]
        command = {"updateUser": "placed", "authenticationRestrictions": row}
        assert refusal(lambda command=command: boss.admin.command(command)) == number
    assert (
        refusal(lambda: boss.admin.command("updateUser", "placed", authenticationRestrictions=[{"from": 1}])) == 40415
    )


def test_users_are_shown_by_a_filter(boss: Client) -> None:
    boss["shown"].command("createUser", "a", pwd="x", roles=["read"], customData={"team": 1})
    boss["shown"].command("createUser", "b", pwd="x", roles=[], customData={"team": 2})
    shown = boss["shown"].command("usersInfo", 1, filter={"customData.team": 2})["users"]
    assert [row["_id"] for row in shown] == ["shown.b"]
    everywhere = boss.admin.command("usersInfo", {"forAllDBs": True}, filter={"roles.role": "read", "db": "shown"})
    assert [row["_id"] for row in everywhere["users"]] == ["shown.a"]


def test_failures_are_answered_later_each_time_and_logged(start_server: Callable[..., ServerProcess]) -> None:
    own = start_server("--auth", "--setParameter", "authFailedDelayMs=10")
    with Client(own.uri) as first:
        first.admin.command("createUser", "boss", pwd="secret word", roles=["root"])
    for _ in range(3):
        with login(own, "boss", "wrong word") as client:
            assert refusal(lambda client=client: client.admin.command("ping")) == 18
    with login(own, "boss", "secret word") as client:
        counted = client.admin.command("serverStatus")["security"]["authentication"]["mechanisms"]["SCRAM-SHA-256"]
        assert counted["authenticate"]["received"] - counted["authenticate"]["successful"] == 3
        with login(own, "boss", "wrong word") as wrong:
            assert refusal(lambda: wrong.admin.command("ping")) == 18
        logged = client.admin.command("getLog", "global")["log"]
    failures = [line["attr"] for line in own.events() if line["msg"] == "Authentication failed"]
    # A login that succeeds in between begins anew.
    assert [failure["delayMillis"] for failure in failures] == [10, 20, 40, 10]
    assert {failure["user"] for failure in failures} == {"boss"}
    assert not any(secret in line for line in [*own.lines, *logged] for secret in ("secret word", "wrong word"))
