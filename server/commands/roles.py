"""The commands on roles of one's own: create, update, drop, grant, revoke, rolesInfo."""

from collections.abc import Iterable
from typing import Any, Final

from ...common.errors import (
    BadValue,
    FailedToParse,
    InvalidRoleModification,
    Location,
    NotImplemented,
    RoleNotFound,
    TypeMismatch,
)
from ...common.values import Document, is_string
from ..context import Context, Request
from ..roles import GRANTABLE_ACTIONS, Privilege, builtin_privileges, builtin_role_names
from ..users import ROLES, USERS, RoleName, UserStore
from .arguments import Fields
from .base import Command
from .users import identity, restrictions_of, role_names

_NO_ROLES_IN: Final = ("local", "$external")
_RESOURCES: Final = ({"db", "collection"}, {"cluster"}, {"anyResource"})


def _privileges(fields: Fields, *, required: bool) -> list[Privilege] | None:
    """The field `privileges`; those of one resource together.

    Raises:
        FailedToParse, TypeMismatch: it is no list of privileges.
        InvalidRoleModification: a role of one database about something else.
    """
    rows = fields.take_list("privileges") if required else fields.take_list("privileges", default=None)
    if rows is None:
        return None
    privileges = []
    for row in rows:
        if not isinstance(row, dict):
            raise TypeMismatch("Elements in privilege arrays must be objects")
        resource, actions = row.get("resource"), row.get("actions")
        if not isinstance(resource, dict) or set(resource) not in _RESOURCES:
            raise FailedToParse("resource must be {db, collection}, {cluster: true} or {anyResource: true}")
        if not all(is_string(resource[name]) for name in ("db", "collection") if name in resource):
            raise FailedToParse("db and collection of a resource must be strings")
        if not all(resource[name] is True for name in ("cluster", "anyResource") if name in resource):
            raise FailedToParse("cluster and anyResource of a resource must be true")
        if not isinstance(actions, list) or not actions or not all(map(is_string, actions)):
            raise FailedToParse("actions must be a non-empty list of strings")
        unknown = [action for action in actions if action not in GRANTABLE_ACTIONS]
        if unknown:
            raise FailedToParse(f"Unrecognized action privilege strings: {','.join(unknown)}")
        if fields.database != "admin" and resource.get("db") != fields.database:
            raise InvalidRoleModification(
                f"Roles on the '{fields.database}' database cannot be granted privileges that target other databases "
                "or the cluster"
            )
        privileges.append(Privilege.from_document(row))
    return _together(privileges)


def _together(privileges: Iterable[Privilege]) -> list[Privilege]:
    """One privilege for each resource."""
    actions: dict[Privilege, frozenset[str]] = {}
    for privilege in privileges:
        bare = Privilege(
            frozenset(), privilege.database, privilege.collection, privilege.cluster, privilege.any_resource
        )
        actions[bare] = actions.get(bare, frozenset()) | privilege.actions
    return [
        Privilege(some, bare.database, bare.collection, bare.cluster, bare.any_resource)
        for bare, some in actions.items()
        if some
    ]


def _without(privileges: Iterable[Privilege], taken: Iterable[Privilege]) -> list[Privilege]:
    gone = list(taken)
    left = []
    for privilege in privileges:
        actions = privilege.actions
        for other in gone:
            if (other.database, other.collection, other.cluster, other.any_resource) == (
                privilege.database, privilege.collection, privilege.cluster, privilege.any_resource,
            ):  # fmt: skip
                actions -= other.actions
        left.append(
            Privilege(actions, privilege.database, privilege.collection, privilege.cluster, privilege.any_resource)
        )
    return _together(left)


def _existing(store: UserStore, name: RoleName) -> Document:
    """The stored role.

    Raises:
        InvalidRoleModification: it is a built-in one.
        RoleNotFound
    """
    if builtin_privileges(name.role, name.database) is not None:
        raise InvalidRoleModification(f"{name} is a built-in role and cannot be modified")
    document = store.role(name)
    if document is None:
        raise RoleNotFound(f"Role {name} not found")
    return dict(document)


def _check_inherited(store: UserStore, name: RoleName, roles: Iterable[RoleName]) -> None:
    """Refuse roles that a role cannot inherit.

    Raises:
        RoleNotFound, InvalidRoleModification
    """
    wanted = list(roles)
    store.check_roles(wanted)
    for role in wanted:
        if name.database not in ("admin", role.database):
            raise InvalidRoleModification(
                f"Roles on the '{name.database}' database cannot be granted roles from other databases"
            )
        if name in store.closure([role]):
            raise InvalidRoleModification(f"Granting {role} to {name} would introduce a cycle in the role graph")


class CreateRole(Command):
    """`createRole`."""

    name = "createRole"
    summary = "Adds a role to the system."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`; 51002 where the role exists."""
        fields = Fields(request)
        store: UserStore = context.services.users
        name = RoleName(fields.take_string(self.name), request.database)
        privileges = _privileges(fields, required=True) or []
        roles = role_names(fields, "roles", required=True) or []
        restrictions = restrictions_of(fields, self.name)
        fields.finish()
        if not name.role:
            raise BadValue("Role name must be non-empty")
        if name.database in _NO_ROLES_IN:
            raise BadValue(f"Cannot create roles in the {name.database} database")
        if builtin_privileges(name.role, name.database) is not None:
            raise BadValue("Cannot create roles with the same name as a built-in role")
        _check_inherited(store, name, roles)
        if store.role(name) is not None:
            raise Location(51002, f'Role "{name}" already exists')
        document: Document = {
            "_id": identity(name.database, name.role),
            "role": name.role,
            "db": name.database,
            "privileges": [privilege.to_document() for privilege in privileges],
            "roles": [role.to_document() for role in roles],
        }
        if restrictions:
            document["authenticationRestrictions"] = restrictions
        await store.change(ROLES, put=[document])
        return {}


class UpdateRole(Command):
    """`updateRole`: other privileges or other roles."""

    name = "updateRole"
    summary = "Changes a role."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request)
        store: UserStore = context.services.users
        name = RoleName(fields.take_string(self.name), request.database)
        privileges = _privileges(fields, required=False)
        roles = role_names(fields, "roles", required=False)
        restrictions = restrictions_of(fields, self.name)
        fields.finish()
        if privileges is None and roles is None and restrictions is None:
            raise BadValue("Must specify at least one field to update in updateRole")
        document = _existing(store, name)
        if privileges is not None:
            document["privileges"] = [privilege.to_document() for privilege in privileges]
        if roles is not None:
            _check_inherited(store, name, roles)
            document["roles"] = [role.to_document() for role in roles]
        if restrictions:
            document["authenticationRestrictions"] = restrictions
        elif restrictions is not None:
            document.pop("authenticationRestrictions", None)
        await store.change(ROLES, put=[document])
        return {}


class _ChangePrivileges(Command):
    """What granting and revoking privileges have in common."""

    writes = True

    def changed(self, had: list[Privilege], named: list[Privilege]) -> list[Privilege]:
        """The privileges that the role has afterwards."""
        raise NotImplementedError

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request)
        store: UserStore = context.services.users
        name = RoleName(fields.take_string(self.name), request.database)
        named = _privileges(fields, required=True) or []
        fields.finish()
        if not named:
            raise BadValue(f'{self.name} command requires a non-empty "privileges" array')
        document = _existing(store, name)
        had = [Privilege.from_document(row) for row in document["privileges"]]
        document["privileges"] = [privilege.to_document() for privilege in self.changed(had, named)]
        await store.change(ROLES, put=[document])
        return {}


class GrantPrivilegesToRole(_ChangePrivileges):
    """`grantPrivilegesToRole`."""

    name = "grantPrivilegesToRole"
    summary = "Gives privileges to a role."

    def changed(self, had: list[Privilege], named: list[Privilege]) -> list[Privilege]:
        """With them."""
        return _together([*had, *named])


class RevokePrivilegesFromRole(_ChangePrivileges):
    """`revokePrivilegesFromRole`."""

    name = "revokePrivilegesFromRole"
    summary = "Takes privileges from a role."

    def changed(self, had: list[Privilege], named: list[Privilege]) -> list[Privilege]:
        """Without them."""
        return _without(had, named)


class _ChangeInherited(Command):
    """What granting and revoking roles have in common."""

    writes = True
    adds = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request)
        store: UserStore = context.services.users
        name = RoleName(fields.take_string(self.name), request.database)
        named = role_names(fields, "roles", required=True) or []
        fields.finish()
        if not named:
            raise BadValue(f'{self.name} command requires a non-empty "roles" array')
        document = _existing(store, name)
        had = {RoleName.from_document(row) for row in document["roles"]}
        if self.adds:
            _check_inherited(store, name, named)
        roles = had | set(named) if self.adds else had - set(named)
        document["roles"] = [role.to_document() for role in sorted(roles)]
        await store.change(ROLES, put=[document])
        return {}


class GrantRolesToRole(_ChangeInherited):
    """`grantRolesToRole`."""

    name = "grantRolesToRole"
    summary = "Lets a role inherit others."


class RevokeRolesFromRole(_ChangeInherited):
    """`revokeRolesFromRole`."""

    name = "revokeRolesFromRole"
    summary = "Takes inherited roles from a role."
    adds = False


async def _drop(store: UserStore, names: list[RoleName]) -> int:
    """Remove roles, first from whoever has them."""
    gone = set(names)
    for namespace, rows in ((USERS, store.users()), (ROLES, store.roles())):
        changed = []
        for row in rows:
            left = [role for role in row["roles"] if RoleName.from_document(role) not in gone]
            if len(left) != len(row["roles"]):
                changed.append({**row, "roles": left})
        await store.change(namespace, put=changed)
    return await store.change(ROLES, remove=[identity(name.database, name.role) for name in names])


class DropRole(Command):
    """`dropRole`."""

    name = "dropRole"
    summary = "Removes a role."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request)
        store: UserStore = context.services.users
        name = RoleName(fields.take_string(self.name), request.database)
        fields.finish()
        _existing(store, name)
        await _drop(store, [name])
        return {}


class DropAllRolesFromDatabase(Command):
    """`dropAllRolesFromDatabase`."""

    name = "dropAllRolesFromDatabase"
    summary = "Removes all roles of a database."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{n}`."""
        fields = Fields(request)
        fields.take_any(self.name)
        fields.finish()
        store: UserStore = context.services.users
        return {"n": await _drop(store, [RoleName.from_document(row) for row in store.roles(request.database)])}


class RolesInfo(Command):
    """`rolesInfo`: which roles there are, and what they allow."""

    name = "rolesInfo"
    summary = "Shows roles."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{roles: […]}`; never an error for an unknown role."""
        fields = Fields(request)
        store: UserStore = context.services.users
        asked = fields.take_any(self.name)
        if fields.take_any("showPrivileges") == "asUserFragment":
            raise NotImplemented("rolesInfo with showPrivileges: 'asUserFragment' is not supported")
        show_privileges = fields.take_bool("showPrivileges")
        show_builtin = fields.take_bool("showBuiltinRoles")
        show_restrictions = fields.take_bool("showAuthenticationRestrictions")
        fields.finish()
        rows = []
        for name in _asked_roles(store, asked, request.database, show_builtin=show_builtin):
            builtin = builtin_privileges(name.role, name.database) is not None
            document = store.role(name)
            if document is None and not builtin:
                continue
            inherited = [RoleName.from_document(row) for row in (document or {}).get("roles", [])]
            closure = store.closure(inherited)
            row: Document = {
                "_id": identity(name.database, name.role),
                "role": name.role,
                "db": name.database,
                "isBuiltin": builtin,
                "roles": [role.to_document() for role in inherited],
                "inheritedRoles": [role.to_document() for role in closure],
            }
            if show_privileges:
                row["privileges"] = [privilege.to_document() for privilege in store.own_privileges(name)]
                row["inheritedPrivileges"] = [
                    privilege.to_document() for privilege in store.privileges([name, *closure]).privileges
                ]
            if show_restrictions:
                own = (document or {}).get("authenticationRestrictions")
                named = (store.role(role) or {} for role in closure)
                beyond = [role["authenticationRestrictions"] for role in named if "authenticationRestrictions" in role]
                row["authenticationRestrictions"] = [own] if own else []
                row["inheritedAuthenticationRestrictions"] = [*([own] if own else []), *beyond]
            rows.append(row)
        return {"roles": rows}


def _asked_roles(store: UserStore, asked: Any, database: str, *, show_builtin: bool) -> list[RoleName]:
    """The roles that the value of rolesInfo means."""
    if isinstance(asked, int | float) and not isinstance(asked, bool):
        names = [RoleName.from_document(row) for row in store.roles(database)]
        if show_builtin:
            names += [RoleName(role, database) for role in builtin_role_names(database)]
        return sorted(names)
    names = []
    for one in asked if isinstance(asked, list) else [asked]:
        match one:
            case str():
                names.append(RoleName(one, database))
            case {"role": str(role), "db": str(where)}:
                names.append(RoleName(role, where))
            case _:
                raise BadValue("Role names must be either strings or objects")
    return names
