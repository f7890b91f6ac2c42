"""Who may run what: the actions that each command asks for, and the check before it runs.

Without `--auth` everything is allowed. With it, a command that needs a login is refused to a connection without one
(save for the localhost exception), and a command is refused to a user whose roles do not cover every action that it
needs on every collection that it reaches, those inside a pipeline included. Names of actions are those of MongoDB's
manual page "Privilege Actions".
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from ..common.errors import Unauthorized
from ..common.values import Document
from .context import Client, Request, Services
from .users import ROLES, USERS, RoleName, UserStore

Need = tuple[str, str, str]
"""Action, database, collection: no database means the cluster, no collection the database."""

_BY_LOCALHOST: Final = frozenset({"createUser", "createRole"})


def _collection(request: Request) -> str:
    value = request.value
    return value if isinstance(value, str) else ""


def _on_collection(*actions: str) -> Callable[[Request], Iterator[Need]]:
    def needs(request: Request) -> Iterator[Need]:
        for action in actions:
            yield action, request.database, _collection(request)

    return needs


def _on_database(*actions: str) -> Callable[[Request], Iterator[Need]]:
    def needs(request: Request) -> Iterator[Need]:
        for action in actions:
            yield action, request.database, ""

    return needs


def _on_cluster(*actions: str) -> Callable[[Request], Iterator[Need]]:
    def needs(request: Request) -> Iterator[Need]:
        for action in actions:
            yield action, "", ""

    return needs


def _nothing(request: Request) -> Iterator[Need]:
    """A login is enough."""
    return iter(())


def _update(request: Request) -> Iterator[Need]:
    yield "update", request.database, _collection(request)
    statements = request.documents("updates") if request.has("updates") else []
    if any(statement.get("upsert") for statement in statements):
        yield "insert", request.database, _collection(request)


def _find_and_modify(request: Request) -> Iterator[Need]:
    body = request.body
    yield "find", request.database, _collection(request)
    yield ("remove" if body.get("remove") else "update"), request.database, _collection(request)
    if body.get("upsert"):
        yield "insert", request.database, _collection(request)


def _bulk_write(request: Request) -> Iterator[Need]:
    names = [str(row.get("ns", "")) for row in request.documents("nsInfo")]
    for operation in request.documents("ops"):
        kind = next(iter(operation), "")
        number = operation.get(kind)
        name = names[number] if isinstance(number, int) and 0 <= number < len(names) else ""
        database, _, collection = name.partition(".")
        yield {"insert": "insert", "update": "update"}.get(kind, "remove"), database, collection
        if operation.get("upsert"):
            yield "insert", database, collection


def _rename(request: Request) -> Iterator[Need]:
    source, target = str(request.value), str(request.body.get("to", ""))
    (old, _, old_name), (new, _, new_name) = source.partition("."), target.partition(".")
    if old == new:
        yield "renameCollectionSameDB", old, old_name
        if request.body.get("dropTarget"):
            yield "dropCollection", new, new_name
        return
    for action in ("find", "dropCollection"):
        yield action, old, old_name
    for action in ("insert", "createIndex"):
        yield action, new, new_name


def _aggregate(request: Request) -> Iterator[Need]:
    pipeline = request.body.get("pipeline")
    yield from pipeline_needs(request.database, _collection(request), pipeline if isinstance(pipeline, list) else [])


_STAGE_ACTIONS: Final[dict[str, tuple[str, bool]]] = {
    "$collStats": ("collStats", False),
    "$indexStats": ("indexStats", False),
    "$planCacheStats": ("planCacheRead", False),
    "$currentOp": ("inprog", True),
    "$listSessions": ("listSessions", True),
}
"""First stages that read something else than documents: their action, and whether it is one of the cluster."""


def pipeline_needs(database: str, collection: str, pipeline: list[Any]) -> Iterator[Need]:
    """What a pipeline needs on the collection it starts from and on all that its stages reach."""
    first = next(iter(pipeline[0]), "") if pipeline and isinstance(pipeline[0], dict) else ""
    if first in _STAGE_ACTIONS:
        action, cluster = _STAGE_ACTIONS[first]
        own = first == "$currentOp" and not (pipeline[0][first] or {}).get("allUsers")
        if not own:
            yield (action, "", "") if cluster else (action, database, collection)
    elif collection:
        yield "find", database, collection
    for stage in pipeline:
        for name, spec in stage.items() if isinstance(stage, dict) else ():
            yield from _stage_needs(database, name, spec)


def _stage_needs(database: str, name: str, spec: Any) -> Iterator[Need]:
    match name, spec:
        case "$lookup" | "$graphLookup", {"from": str(other), **rest}:
            nested = rest.get("pipeline")
            yield from pipeline_needs(database, other, nested if isinstance(nested, list) else [])
        case "$lookup", {"pipeline": list(nested)}:
            yield from pipeline_needs(database, "", nested)
        case "$unionWith", str(other):
            yield "find", database, other
        case "$unionWith", {**fields}:
            nested = fields.get("pipeline")
            yield from pipeline_needs(database, str(fields.get("coll", "")), nested if isinstance(nested, list) else [])
        case "$facet", {**branches}:
            for branch in branches.values():
                for stage in branch if isinstance(branch, list) else ():
                    for inner, inner_spec in stage.items() if isinstance(stage, dict) else ():
                        yield from _stage_needs(database, inner, inner_spec)
        case "$out", target:
            where = _target(database, target)
            for action in ("insert", "remove"):
                yield action, *where
        case "$merge", target:
            where = _target(database, target.get("into") if isinstance(target, dict) else target)
            for action in ("insert", "update"):
                yield action, *where


def _target(database: str, target: Any) -> tuple[str, str]:
    if isinstance(target, dict):
        return str(target.get("db", database)), str(target.get("coll", ""))
    return database, str(target)


def _explain(request: Request) -> Iterator[Need]:
    inner = request.value
    if not isinstance(inner, dict) or not inner:
        return
    name = next(iter(inner))
    target = inner[name] if isinstance(inner[name], str) else ""
    if name == "aggregate":
        pipeline = inner.get("pipeline")
        yield from pipeline_needs(request.database, target, pipeline if isinstance(pipeline, list) else [])
    else:
        action = {"update": "update", "delete": "remove", "findAndModify": "update"}.get(name, "find")
        yield action, request.database, target


def _insert(request: Request) -> Iterator[Need]:
    yield "insert", request.database, _collection(request)
    if request.body.get("bypassDocumentValidation"):
        yield "bypassDocumentValidation", request.database, _collection(request)


_find = _on_collection("find")
_statistics = _on_collection("collStats")

NEEDS: Final[dict[str, Callable[[Request], Iterator[Need]]]] = {
    "aggregate": _aggregate,
    "autoCompact": _on_cluster("compact"),
    "bulkWrite": _bulk_write,
    "cleanupStructuredEncryptionData": _on_collection("cleanupStructuredEncryptionData"),
    "collMod": _on_collection("collMod"),
    "collStats": _statistics,
    "compact": _on_collection("compact"),
    "compactStructuredEncryptionData": _on_collection("compactStructuredEncryptionData"),
    "connPoolStats": _on_cluster("connPoolStats"),
    "convertToCapped": _on_collection("convertToCapped"),
    "cloneCollectionAsCapped": _on_database("insert", "find"),
    "count": _find,
    "create": _on_collection("createCollection"),
    "createIndexes": _on_collection("createIndex"),
    "createRole": _on_database("createRole", "grantRole"),
    "createUser": _on_database("createUser", "grantRole"),
    "currentOp": _on_cluster("inprog"),
    "dataSize": _on_database("find"),
    "dbHash": _on_database("dbHash"),
    "dbStats": _on_database("dbStats"),
    "delete": _on_collection("remove"),
    "distinct": _find,
    "drop": _on_collection("dropCollection"),
    "dropAllRolesFromDatabase": _on_database("dropRole"),
    "dropAllUsersFromDatabase": _on_database("dropUser"),
    "dropDatabase": _on_database("dropDatabase"),
    "dropIndexes": _on_collection("dropIndex"),
    "dropRole": _on_database("dropRole"),
    "dropUser": _on_database("dropUser"),
    "endSessions": _nothing,
    "explain": _explain,
    "filemd5": _on_database("find"),
    "find": _find,
    "findAndModify": _find_and_modify,
    "fsync": _on_cluster("fsync"),
    "fsyncUnlock": _on_cluster("unlock"),
    "getCmdLineOpts": _on_cluster("getCmdLineOpts"),
    "getClusterParameter": _on_cluster("getClusterParameter"),
    "getDefaultRWConcern": _on_cluster("getDefaultRWConcern"),
    "getLog": _on_cluster("getLog"),
    "getMore": _nothing,
    "getParameter": _on_cluster("getParameter"),
    "grantPrivilegesToRole": _on_database("grantRole"),
    "grantRolesToRole": _on_database("grantRole"),
    "grantRolesToUser": _on_database("grantRole"),
    "hostInfo": _on_cluster("hostInfo"),
    "insert": _insert,
    "invalidateUserCache": _on_cluster("invalidateUserCache"),
    "killAllSessions": _on_cluster("killAnySession"),
    "killAllSessionsByPattern": _on_cluster("killAnySession"),
    "killCursors": _on_collection("killCursors"),
    "killOp": _on_cluster("killop"),
    "killSessions": _nothing,
    "listCollections": _on_database("listCollections"),
    "listDatabases": _on_cluster("listDatabases"),
    "listIndexes": _on_collection("listIndexes"),
    "lockInfo": _on_cluster("serverStatus"),
    "logRotate": _on_cluster("logRotate"),
    "planCacheClear": _on_collection("planCacheWrite"),
    "planCacheClearFilters": _on_collection("planCacheIndexFilter"),
    "planCacheListFilters": _on_collection("planCacheIndexFilter"),
    "planCacheSetFilter": _on_collection("planCacheIndexFilter"),
    "profile": _on_database("enableProfiler"),
    "refreshSessions": _nothing,
    "reIndex": _on_collection("reIndex"),
    "renameCollection": _rename,
    "replSetGetConfig": _on_cluster("replSetGetConfig"),
    "replSetGetStatus": _on_cluster("replSetGetStatus"),
    "revokePrivilegesFromRole": _on_database("revokeRole"),
    "revokeRolesFromRole": _on_database("revokeRole"),
    "revokeRolesFromUser": _on_database("revokeRole"),
    "rolesInfo": _on_database("viewRole"),
    "serverStatus": _on_cluster("serverStatus"),
    "setClusterParameter": _on_cluster("setClusterParameter"),
    "setParameter": _on_cluster("setParameter"),
    "shutdown": _on_cluster("shutdown"),
    "startSession": _nothing,
    "top": _on_cluster("top"),
    "update": _update,
    "updateRole": _on_database("revokeRole", "grantRole"),
    "updateUser": _on_database("revokeRole", "grantRole", "changePassword"),
    "usersInfo": _on_database("viewUser"),
    "validateDBMetadata": _on_cluster("validate"),
    "validate": _on_collection("validate"),
}
"""What each command needs, by its registered name. One that is not here needs what only `__system` has: nobody is
let in by an omission."""


def check(services: Services, client: Client, name: str, needs_login: bool, request: Request) -> None:
    """Refuse a command that the connection may not run; `name` is its registered name.

    Raises:
        Unauthorized: nobody is logged in, or the user's roles do not allow it.
    """
    if not services.config.auth or not needs_login:
        return
    store: UserStore = services.users
    if client.user is None:
        if name in _BY_LOCALHOST and request.database == "admin" and _is_loopback(client) and store.nobody_exists():
            return
        raise Unauthorized(f"Command {request.name} requires authentication")
    user, database = client.user
    document = store.user(user, database)
    if document is None:
        client.user = None
        raise Unauthorized(f"Command {request.name} requires authentication")
    if name in _ALWAYS_OF_ONESELF and _is_about_oneself(request, client.user):
        return
    if name in ("listDatabases", "listCollections") and _only_own_names(request):
        return
    privileges = store.privileges(RoleName.from_document(row) for row in document["roles"])
    needs = NEEDS.get(name)
    wanted: Iterator[Need] | list[Need] = [("internal", "", "")] if needs is None else needs(request)
    for action, where, collection in wanted:
        if not privileges.allow(action, where, collection):
            raise Unauthorized(f"not authorized on {request.database} to execute command {_shell_style(request.body)}")


_ALWAYS_OF_ONESELF: Final = frozenset({"usersInfo"})


def _is_about_oneself(request: Request, user: tuple[str, str]) -> bool:
    value = request.value
    if isinstance(value, dict):
        return (value.get("user"), value.get("db")) == user
    return (value, request.database) == user


def _only_own_names(request: Request) -> bool:
    """The forms of listing that show what one may see instead of failing."""
    body = request.body
    if request.name == "listDatabases":
        return body.get("authorizedDatabases") is not False and bool(body.get("nameOnly"))
    return bool(body.get("authorizedCollections")) and bool(body.get("nameOnly"))


def _is_loopback(client: Client) -> bool:
    address = client.peer.rpartition(":")[0].strip("[]")
    return address.startswith("127.") or address in ("::1", "localhost", "")


_SECRETS: Final = frozenset({"pwd", "payload", "credentials", "key"})


def _shell_style(value: Any) -> str:
    """A document as the shell prints it, secrets left out."""
    if isinstance(value, dict):
        body: Document = value
        inner = ", ".join(f"{name}: {'xxx' if name in _SECRETS else _shell_style(item)}" for name, item in body.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[ {', '.join(map(_shell_style, value))} ]" if value else "[]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def touches_users(request: Request) -> bool:
    """True where a command writes to the collections of users and roles directly, as a restore does."""
    return request.database == USERS.database and _collection(request) in (USERS.collection, ROLES.collection)
