"""What the commands on users and roles need: rights over the databases of whom they change, and of all that they hand out.

To give a role takes `grantRole` on the role's own database, not on that of the user: who owns one database cannot make
anybody, themselves included, an owner of another.
"""

from collections.abc import Callable, Iterator
from typing import Any

from .context import Request
from .pipeline_needs import Need
from .roles import ANY_DATABASE


def _rows(request: Request, name: str) -> list[Any]:
    value = request.body.get(name)
    return value if isinstance(value, list) else []


def _on_roles(action: str, request: Request) -> Iterator[Need]:
    """The action on the database of each role in `roles`."""
    for row in _rows(request, "roles"):
        database = row.get("db") if isinstance(row, dict) else request.database
        yield action, database if isinstance(database, str) else request.database, ""


def _on_privileges(action: str, request: Request) -> Iterator[Need]:
    """The action on the database of each privilege in `privileges`; on admin for those of several or of the cluster."""
    for row in _rows(request, "privileges"):
        resource = row.get("resource") if isinstance(row, dict) else None
        database = resource.get("db") if isinstance(resource, dict) else None
        yield action, database if isinstance(database, str) and database else "admin", ""


def _restricting(request: Request) -> Iterator[Need]:
    if "authenticationRestrictions" in request.body:
        yield "setAuthenticationRestriction", request.database, ""


def create_user(request: Request) -> Iterator[Need]:
    """createUser."""
    yield "createUser", request.database, ""
    yield from _on_roles("grantRole", request)
    yield from _restricting(request)


def update_user(request: Request) -> Iterator[Need]:
    """updateUser of somebody else; of oneself, see `update_oneself`."""
    if "roles" in request.body:
        yield "revokeRole", ANY_DATABASE, ""
        yield from _on_roles("grantRole", request)
    if "pwd" in request.body or "mechanisms" in request.body:
        yield "changePassword", request.database, ""
    if "customData" in request.body:
        yield "changeCustomData", request.database, ""
    yield from _restricting(request)


def update_oneself(request: Request) -> Iterator[Need]:
    """updateUser of the user who asks."""
    own = {"changePassword": "changeOwnPassword", "changeCustomData": "changeOwnCustomData"}
    for action, database, collection in update_user(request):
        yield own.get(action, action), database, collection


def roles_given(request: Request) -> Iterator[Need]:
    """grantRolesToUser, grantRolesToRole."""
    yield from _on_roles("grantRole", request)


def roles_taken(request: Request) -> Iterator[Need]:
    """revokeRolesFromUser, revokeRolesFromRole."""
    yield from _on_roles("revokeRole", request)


def create_role(request: Request) -> Iterator[Need]:
    """createRole."""
    yield "createRole", request.database, ""
    yield from _on_roles("grantRole", request)
    yield from _on_privileges("grantRole", request)
    yield from _restricting(request)


def update_role(request: Request) -> Iterator[Need]:
    """updateRole."""
    yield "revokeRole", ANY_DATABASE, ""
    yield from _on_roles("grantRole", request)
    yield from _on_privileges("grantRole", request)
    yield from _restricting(request)


def privileges_given(request: Request) -> Iterator[Need]:
    """grantPrivilegesToRole."""
    yield from _on_privileges("grantRole", request)


def privileges_taken(request: Request) -> Iterator[Need]:
    """revokePrivilegesFromRole."""
    yield from _on_privileges("revokeRole", request)


def shown(action: str) -> Callable[[Request], Iterator[Need]]:
    """usersInfo and rolesInfo: the action on the database of each that is asked for."""

    def needs(request: Request) -> Iterator[Need]:
        value = request.value
        for row in value if isinstance(value, list) else [value]:
            if isinstance(row, dict) and row.get("forAllDBs"):
                yield action, ANY_DATABASE, ""
            elif isinstance(row, dict) and isinstance(row.get("db"), str):
                yield action, row["db"], ""
            else:
                yield action, request.database, ""

    return needs
