"""Roles of one's own: made, changed, inherited, and obeyed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from support.server_process import ServerProcess

Document = dict[str, Any]
FIND: Document = {"resource": {"db": "shop", "collection": "prices"}, "actions": ["find"]}
INSERT: Document = {"resource": {"db": "shop", "collection": "prices"}, "actions": ["insert"]}


@pytest.fixture
def shop(
    start_server: Callable[..., ServerProcess],
) -> Iterator[tuple[Database[Document], Callable[[], Database[Document]]]]:
    """The database as root sees it, and a function that logs a clerk in."""
    server = start_server("--auth")
    clients: list[MongoClient[Document]] = []

    def login(user: str, database: str) -> Database[Document]:
        client = MongoClient[Document](server.uri, username=user, password="secret", authSource=database)
        clients.append(client)
        return client["shop"]

    with MongoClient[Document](server.uri) as first:
        first.admin.command("createUser", "root", pwd="secret", roles=["root"])
    yield login("root", "admin"), lambda: login("clerk", "shop")
    for client in clients:
        client.close()


def code_of(call: Callable[[], object]) -> int | None:
    with pytest.raises(OperationFailure) as caught:
        call()
    return caught.value.code


def test_a_role_allows_what_it_says(
    shop: tuple[Database[Document], Callable[[], Database[Document]]],
) -> None:
    root, clerk_login = shop
    root["prices"].insert_one({"_id": 1})
    root.command("createRole", "reader", privileges=[FIND], roles=[])
    root.command("createRole", "clerk", privileges=[], roles=["reader"])
    root.command("createUser", "clerk", pwd="secret", roles=["clerk"])
    clerk = clerk_login()
    assert clerk["prices"].find_one() == {"_id": 1}
    assert code_of(lambda: clerk["prices"].insert_one({"_id": 2})) == 13
    assert code_of(lambda: clerk["others"].find_one()) == 13
    root.command("grantPrivilegesToRole", "clerk", privileges=[INSERT])
    clerk["prices"].insert_one({"_id": 2})
    root.command("revokePrivilegesFromRole", "clerk", privileges=[INSERT])
    assert code_of(lambda: clerk["prices"].insert_one({"_id": 3})) == 13
    root.command("revokeRolesFromRole", "clerk", roles=["reader"])
    assert code_of(lambda: clerk["prices"].find_one()) == 13
    root.command("updateRole", "clerk", privileges=[FIND])
    assert clerk["prices"].count_documents({}) == 2
    root.command("dropRole", "clerk")
    assert root.command("usersInfo", "clerk")["users"][0]["roles"] == []


def test_roles_are_shown(database: Database[Document]) -> None:
    database.command("createRole", "a", privileges=[], roles=["read"])
    database.command("createRole", "b", privileges=[], roles=["a"])
    shown = database.command("rolesInfo", "b", showPrivileges=True)["roles"][0]
    assert [role["role"] for role in shown["inheritedRoles"]] == ["a", "read"]
    assert shown["privileges"] == []
    assert any("find" in privilege["actions"] for privilege in shown["inheritedPrivileges"])
    assert [row["role"] for row in database.command("rolesInfo", 1)["roles"]] == ["a", "b"]
    assert database.command("rolesInfo", "none")["roles"] == []
    assert database.command("dropAllRolesFromDatabase", 1)["n"] == 2
    assert database.command("rolesInfo", 1)["roles"] == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"createRole": "read", "privileges": [], "roles": []}, 2),
        ({"createRole": "x", "privileges": [], "roles": ["none"]}, 31),
        ({"createRole": "x", "privileges": [FIND], "roles": []}, 49),
        (
            {"createRole": "x", "privileges": [{"resource": {"cluster": True}, "actions": ["shutdown"]}], "roles": []},
            49,
        ),
        ({"createRole": "x", "privileges": [{"resource": {}, "actions": ["find"]}], "roles": []}, 9),
        ({"createRole": "x", "roles": []}, 40414),
        ({"createRole": "x", "privileges": [], "roles": [{"role": "read", "db": "elsewhere"}]}, 49),
        ({"grantRolesToRole": "read", "roles": ["readWrite"]}, 49),
        ({"dropRole": "none"}, 31),
        ({"updateRole": "none", "roles": []}, 31),
    ],
)
def test_roles_that_cannot_be(database: Database[Document], command: Document, code: int) -> None:
    assert code_of(lambda: database.command(command)) == code


def test_roles_do_not_inherit_in_circles(database: Database[Document]) -> None:
    database.command("createRole", "a", privileges=[], roles=[])
    database.command("createRole", "b", privileges=[], roles=["a"])
    assert code_of(lambda: database.command("grantRolesToRole", "a", roles=["b"])) == 49
    assert code_of(lambda: database.command("createRole", "a", privileges=[], roles=[])) == 51002
    database.command("dropAllRolesFromDatabase", 1)
