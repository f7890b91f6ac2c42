"""The commands on users: createUser, updateUser, dropUser, dropAllUsersFromDatabase, grant, revoke, usersInfo."""

import uuid
from collections.abc import Collection
from typing import Any, Final

from bson import Binary

from ...common.errors import BadValue, Location, TypeMismatch, UserNotFound
from ...common.values import Document, type_name
from ...query.match.parse import parse_filter
from ..context import Context, Request
from ..restrictions import network_of
from ..scram import DEFAULT_ITERATIONS, MECHANISMS, Mechanism, ScramCredentials
from ..users import USERS, RoleName, UserStore
from .arguments import Fields
from .base import Command

_EXTERNAL: Final = "$external"
_RESTRICTED_BY: Final = ("clientSource", "serverAddress")


def role_names(fields: Fields, name: str, *, required: bool) -> list[RoleName] | None:
    """The field as roles: names of the command's database, or `{role, db}`.

    Raises:
        BadValue: an element is neither.
    """
    rows = fields.take_list(name) if required else fields.take_list(name, default=None)
    if rows is None:
        return None
    names = []
    for row in rows:
        match row:
            case str():
                names.append(RoleName(row, fields.database))
            case {"role": str(role), "db": str(database)} if len(row) == 2:
                names.append(RoleName(role, database))
            case _:
                raise BadValue("Role names must be either strings or objects")
    return sorted(set(names))


def identity(database: str, name: str) -> str:
    """The `_id` of a user or role."""
    return f"{database}.{name}"


def existing_user(store: UserStore, name: str, database: str) -> Document:
    """The stored user.

    Raises:
        UserNotFound: there is none.
    """
    document = store.user(name, database)
    if document is None:
        raise UserNotFound(f"User {name}@{database} not found")
    return document


def _mechanisms(fields: Fields, digest_password: bool) -> list[Mechanism]:
    given = fields.take_list("mechanisms", default=None)
    if given is None:
        return list(MECHANISMS) if digest_password else ["SCRAM-SHA-1"]
    if not given:
        raise BadValue("mechanisms field must not be empty")
    chosen: list[Mechanism] = []
    for name in given:
        known: Mechanism | None = next((mechanism for mechanism in MECHANISMS if mechanism == name), None)
        if known is None:
            raise BadValue(f"Unknown auth mechanism '{name}'")
        chosen.append(known)
    if not digest_password and "SCRAM-SHA-256" in chosen:
        raise BadValue("Use of SCRAM-SHA-256 requires undigested passwords")
    return chosen


def _credentials(context: Context, mechanisms: list[Mechanism], user: str, password: str) -> Document:
    parameters = context.services.parameters
    iterations: dict[Mechanism, int] = {
        "SCRAM-SHA-1": int(parameters.get("scramIterationCount")),
        "SCRAM-SHA-256": int(parameters.get("scramSHA256IterationCount")),
    }
    return {
        mechanism: ScramCredentials.make(
            mechanism, user, password, iterations=iterations[mechanism] or DEFAULT_ITERATIONS[mechanism]
        ).to_document()
        for mechanism in mechanisms
    }


def restrictions_of(fields: Fields, command: str) -> list[Document] | None:
    """`authenticationRestrictions` as it is stored, each row with those fields that it has; None where not given.

    Raises:
        TypeMismatch, IDLUnknownField: a row is no document of these fields.
        UnsupportedFormat: an address cannot be read.
    """
    rows = fields.take_list("authenticationRestrictions", default=None)
    if rows is None:
        return None
    stored: list[Document] = []
    for row in rows:
        if not isinstance(row, dict):
            raise TypeMismatch(
                f"BSON field '{command}.authenticationRestrictions' is the wrong type '{type_name(row)}', expected "
                "type 'object'"
            )
        inner = Fields(row, f"{command}.authenticationRestrictions")
        kept: Document = {}
        for name in _RESTRICTED_BY:
            addresses = inner.take_list(name, default=None)
            if addresses is not None:
                for address in addresses:
                    network_of(address)
                kept[name] = list(addresses)
        inner.finish()
        stored.append(kept)
    return stored


class CreateUser(Command):
    """`createUser`: a new user with roles and a password."""

    name = "createUser"
    summary = "Adds a user to the system."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`; 51003 where the user exists."""
        fields = Fields(request)
        store: UserStore = context.services.users
        user = fields.take_string("createUser")
        password = fields.take_string("pwd", default=None)
        roles = role_names(fields, "roles", required=True) or []
        custom = fields.take_document("customData", default=None)
        digest = fields.take_bool("digestPassword", default=True)
        mechanisms = _mechanisms(fields, digest)
        restrictions = restrictions_of(fields, self.name)
        fields.finish()
        database = request.database
        if not user:
            raise BadValue("User document needs 'user' field to be non-empty")
        if database == "local":
            raise BadValue("Cannot create users in the local database")
        if password is None and database != _EXTERNAL:
            raise BadValue(
                "Must provide a 'pwd' field for all user documents, except those with '$external' as the"
                " user's source db"
            )
        if password is not None and database == _EXTERNAL:
            raise BadValue("Cannot set the password for users defined on the '$external' database")
        if not digest:
            raise BadValue("digestPassword: false is not supported; send the password itself")
        store.check_roles(roles)
        if store.user(user, database) is not None:
            raise Location(51003, f'User "{user}@{database}" already exists')
        document: Document = {
            "_id": identity(database, user),
            "userId": Binary(uuid.uuid4().bytes, 4),
            "user": user,
            "db": database,
            "credentials": {"external": True}
            if password is None
            else _credentials(context, mechanisms, user, password),
            "roles": [role.to_document() for role in roles],
        }
        if custom is not None:
            document["customData"] = custom
        if restrictions:
            document["authenticationRestrictions"] = restrictions
        await store.change(USERS, put=[document])
        return {}


class UpdateUser(Command):
    """`updateUser`: another password, other roles or other custom data."""

    name = "updateUser"
    summary = "Changes a user."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`; 11 where there is no such user."""
        fields = Fields(request)
        store: UserStore = context.services.users
        user = fields.take_string("updateUser")
        password = fields.take_string("pwd", default=None)
        roles = role_names(fields, "roles", required=False)
        custom = fields.take_document("customData", default=None)
        digest = fields.take_bool("digestPassword", default=True)
        restrictions = restrictions_of(fields, self.name)
        given_mechanisms = fields.has("mechanisms")
        mechanisms = _mechanisms(fields, digest)
        fields.finish()
        if password is None and roles is None and custom is None and restrictions is None and not given_mechanisms:
            raise BadValue("Must specify at least one field to update in updateUser")
        document = dict(existing_user(store, user, request.database))
        if password is not None:
            if request.database == _EXTERNAL:
                raise BadValue("Cannot set the password for users defined on the '$external' database")
            document["credentials"] = _credentials(context, mechanisms, user, password)
        elif given_mechanisms:
            kept = {name: value for name, value in document["credentials"].items() if name in mechanisms}
            if set(kept) != set(mechanisms):
                raise BadValue("mechanisms field must be a subset of previously set mechanisms")
            document["credentials"] = kept
        if roles is not None:
            store.check_roles(roles)
            document["roles"] = [role.to_document() for role in roles]
        if custom is not None:
            document["customData"] = custom
        if restrictions:
            document["authenticationRestrictions"] = restrictions
        elif restrictions is not None:
            document.pop("authenticationRestrictions", None)
        await store.change(USERS, put=[document])
        return {}


class DropUser(Command):
    """`dropUser`: one user less."""

    name = "dropUser"
    summary = "Removes a user."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`; 11 where there is no such user."""
        fields = Fields(request)
        store: UserStore = context.services.users
        user = fields.take_string("dropUser")
        fields.finish()
        existing_user(store, user, request.database)
        await store.change(USERS, remove=[identity(request.database, user)])
        return {}


class DropAllUsersFromDatabase(Command):
    """`dropAllUsersFromDatabase`: every user of the database."""

    name = "dropAllUsersFromDatabase"
    summary = "Removes all users of a database."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{n}`."""
        fields = Fields(request)
        fields.take_any("dropAllUsersFromDatabase")
        fields.finish()
        store: UserStore = context.services.users
        gone = [row["_id"] for row in store.users(request.database)]
        return {"n": await store.change(USERS, remove=gone)}


class _ChangeRoles(Command):
    """What grant and revoke have in common."""

    writes = True

    def changed(self, had: set[RoleName], named: Collection[RoleName]) -> set[RoleName]:
        """The roles that the user has afterwards."""
        raise NotImplementedError

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`; 11 for an unknown user, 31 for an unknown role."""
        fields = Fields(request)
        store: UserStore = context.services.users
        user = fields.take_string(self.name)
        named = role_names(fields, "roles", required=True) or []
        fields.finish()
        if not named:
            raise BadValue(f'{self.name} command requires a non-empty "roles" array')
        document = dict(existing_user(store, user, request.database))
        store.check_roles(named)
        had = {RoleName.from_document(row) for row in document["roles"]}
        document["roles"] = [role.to_document() for role in sorted(self.changed(had, named))]
        await store.change(USERS, put=[document])
        return {}


class GrantRolesToUser(_ChangeRoles):
    """`grantRolesToUser`: more roles."""

    name = "grantRolesToUser"
    summary = "Gives roles to a user."

    def changed(self, had: set[RoleName], named: Collection[RoleName]) -> set[RoleName]:
        """With them."""
        return had | set(named)


class RevokeRolesFromUser(_ChangeRoles):
    """`revokeRolesFromUser`: fewer roles."""

    name = "revokeRolesFromUser"
    summary = "Takes roles from a user."

    def changed(self, had: set[RoleName], named: Collection[RoleName]) -> set[RoleName]:
        """Without them."""
        return had - set(named)


class UsersInfo(Command):
    """`usersInfo`: who is there."""

    name = "usersInfo"
    summary = "Shows users."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{users: […]}`, sorted by name and database; never an error for somebody unknown."""
        fields = Fields(request)
        store: UserStore = context.services.users
        asked = fields.take_any("usersInfo")
        show_credentials = fields.take_bool("showCredentials", default=False)
        show_custom = fields.take_bool("showCustomData", default=True)
        show_privileges = fields.take_bool("showPrivileges", default=False)
        show_restrictions = fields.take_bool("showAuthenticationRestrictions", default=False)
        condition = fields.take_document("filter", default=None)
        fields.finish()
        wanted = None if condition is None else parse_filter(condition).compile()
        users = []
        for row in _asked_users(store, asked, request.database):
            shown: Document = {name: row[name] for name in ("_id", "userId", "user", "db") if name in row}
            if show_custom and "customData" in row:
                shown["customData"] = row["customData"]
            shown["roles"] = row["roles"]
            shown["mechanisms"] = sorted(row["credentials"])
            if show_credentials:
                shown["credentials"] = row["credentials"]
            if show_privileges or show_restrictions:
                shown["authenticationRestrictions"] = row.get("authenticationRestrictions", [])
            if show_privileges:
                names = [RoleName.from_document(role) for role in row["roles"]]
                shown["inheritedRoles"] = [role.to_document() for role in store.closure(names)]
                shown["inheritedPrivileges"] = [
                    privilege.to_document() for privilege in store.privileges(names).privileges
                ]
            if wanted is None or wanted(shown):
                users.append(shown)
        return {"users": users}


def _asked_users(store: UserStore, asked: Any, database: str) -> list[Document]:
    """The users that the value of usersInfo means."""
    if isinstance(asked, dict) and asked.get("forAllDBs"):
        return store.users()
    if isinstance(asked, int | float) and not isinstance(asked, bool):
        return store.users(database)
    found = []
    for one in asked if isinstance(asked, list) else [asked]:
        match one:
            case str():
                found.append(store.user(one, database))
            case {"user": str(user), "db": str(where)}:
                found.append(store.user(user, where))
            case _:
                raise BadValue("User names must be either strings or objects")
    return sorted((row for row in found if row is not None), key=lambda row: (row["user"], row["db"]))


class InvalidateUserCache(Command):
    """`invalidateUserCache`: nothing is cached, so there is nothing to forget."""

    name = "invalidateUserCache"
    summary = "Forgets what is remembered of users."
    admin_only = False

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        return {}
