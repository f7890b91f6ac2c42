"""Who may run what: the actions that each command asks for, and the check before it runs.

Without `--auth` everything is allowed. With it, a command that needs a login is refused to a connection without one
(save for the localhost exception), and a command is refused to a user whose roles do not cover every action that it
needs on every collection that it reaches, those inside a pipeline included. Names of actions are those of MongoDB's
manual page "Privilege Actions".
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from ..common.errors import Unauthorized
from ..common.values import Document
from . import user_needs
from .context import Client, Request, Services
from .pipeline_needs import Need, pipeline_needs, writes_elsewhere
from .roles import ANY_DATABASE, Privileges
from .users import UserStore

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
    yield from _bypassing(request, request.database, _collection(request))


def _find_and_modify(request: Request) -> Iterator[Need]:
    body = request.body
    yield "find", request.database, _collection(request)
    yield ("remove" if body.get("remove") else "update"), request.database, _collection(request)
    if body.get("upsert"):
        yield "insert", request.database, _collection(request)
    yield from _bypassing(request, request.database, _collection(request))


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
        yield from _bypassing(request, database, collection)


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
    yield from pipeline_needs(request.database, _collection(request), pipeline)
    if writes_elsewhere(pipeline):
        for action, database, collection in pipeline_needs(request.database, "", pipeline):
            if action in ("insert", "update"):
                yield from _bypassing(request, database, collection)


def _bypassing(request: Request, database: str, collection: str) -> Iterator[Need]:
    """What writing past a validator needs besides."""
    if request.body.get("bypassDocumentValidation"):
        yield "bypassDocumentValidation", database, collection


def _explain(request: Request) -> Iterator[Need]:
    inner = request.value
    if not isinstance(inner, dict) or not inner:
        return
    # What is explained needs what it would need to run.
    name = _EXPLAINED.get(next(iter(inner)), "")
    yield from NEEDS[name](replace(request, name=next(iter(inner)), body=inner)) if name else ()


_EXPLAINED: Final = {
    **{
        name: name
        for name in ("aggregate", "count", "delete", "distinct", "find", "findAndModify", "update", "bulkWrite")
    },
    "findandmodify": "findAndModify",
}


def _insert(request: Request) -> Iterator[Need]:
    yield "insert", request.database, _collection(request)
    yield from _bypassing(request, request.database, _collection(request))


def _create(request: Request) -> Iterator[Need]:
    yield "createCollection", request.database, _collection(request)
    if "viewOn" in request.body:
        yield from _behind_view(request)


def _coll_mod(request: Request) -> Iterator[Need]:
    yield "collMod", request.database, _collection(request)
    if "viewOn" in request.body or "pipeline" in request.body:
        yield from _behind_view(request)


def _behind_view(request: Request) -> Iterator[Need]:
    """Who defines a view must be able to read what it shows: others need to be able to read the view alone."""
    source = request.body.get("viewOn")
    yield from pipeline_needs(request.database, source if isinstance(source, str) else "", request.body.get("pipeline"))


def _data_size(request: Request) -> Iterator[Need]:
    database, _, collection = str(request.value).partition(".")
    yield "find", database, collection


def _validate_metadata(request: Request) -> Iterator[Need]:
    database, collection = request.body.get("db"), request.body.get("collection")
    if isinstance(database, str) and database:
        yield "validate", database, collection if isinstance(collection, str) else ""
    else:
        yield "validate", ANY_DATABASE, ""


def _file_md5(request: Request) -> Iterator[Need]:
    root = request.body.get("root", "fs")
    yield "find", request.database, f"{root}.chunks"


def _clone_capped(request: Request) -> Iterator[Need]:
    yield "find", request.database, _collection(request)
    target = str(request.body.get("toCollection", ""))
    for action in ("insert", "createIndex", "convertToCapped"):
        yield action, request.database, target


def _current_op(request: Request) -> Iterator[Need]:
    if not request.body.get("$ownOps"):
        yield "inprog", "", ""


_find = _on_collection("find")
_statistics = _on_collection("collStats")

NEEDS: Final[dict[str, Callable[[Request], Iterator[Need]]]] = {
    "abortTransaction": _nothing,
    "aggregate": _aggregate,
    "analyze": _on_collection("analyze"),
    "applyOps": _on_cluster("appendOplogNote"),
    "autoCompact": _on_cluster("compact"),
    "bucketHealth": _statistics,
    "bulkWrite": _bulk_write,
    "cleanupStructuredEncryptionData": _on_collection("cleanupStructuredEncryptionData"),
    "commitTransaction": _nothing,
    "configureFailPoint": _on_cluster("setParameter"),
    "configureQueryAnalyzer": _on_cluster("setParameter"),
    "collMod": _coll_mod,
    "collStats": _statistics,
    "compact": _on_collection("compact"),
    "compactStructuredEncryptionData": _on_collection("compactStructuredEncryptionData"),
    "connPoolStats": _on_cluster("connPoolStats"),
    "convertToCapped": _on_collection("convertToCapped"),
    "cloneCollectionAsCapped": _clone_capped,
    "count": _find,
    "create": _create,
    "createIndexes": _on_collection("createIndex"),
    "createRole": user_needs.create_role,
    "createUser": user_needs.create_user,
    "createSearchIndexes": _on_collection("createSearchIndexes"),
    "currentOp": _current_op,
    "dataSize": _data_size,
    "dbHash": _on_database("dbHash"),
    "dbStats": _on_database("dbStats"),
    "delete": _on_collection("remove"),
    "distinct": _find,
    "drop": _on_collection("dropCollection"),
    "dropAllRolesFromDatabase": _on_database("dropRole"),
    "dropAllUsersFromDatabase": _on_database("dropUser"),
    "dropConnections": _on_cluster("dropConnections"),
    "dropDatabase": _on_database("dropDatabase"),
    "dropIndexes": _on_collection("dropIndex"),
    "dropRole": _on_database("dropRole"),
    "dropSearchIndex": _on_collection("dropSearchIndex"),
    "dropUser": _on_database("dropUser"),
    "explain": _explain,
    "filemd5": _file_md5,
    "find": _find,
    "findAndModify": _find_and_modify,
    "fsync": _on_cluster("fsync"),
    "fsyncUnlock": _on_cluster("unlock"),
    "getCmdLineOpts": _on_cluster("getCmdLineOpts"),
    "getClusterParameter": _on_cluster("getClusterParameter"),
    "getDefaultRWConcern": _on_cluster("getDefaultRWConcern"),
    "getLog": _on_cluster("getLog"),
    "getMore": _nothing,
    "getShardMap": _on_cluster("getShardMap"),
    "getParameter": _on_cluster("getParameter"),
    "grantPrivilegesToRole": user_needs.privileges_given,
    "grantRolesToRole": user_needs.roles_given,
    "grantRolesToUser": user_needs.roles_given,
    "hostInfo": _on_cluster("hostInfo"),
    "insert": _insert,
    "invalidateUserCache": _on_cluster("invalidateUserCache"),
    "killAllSessions": _on_cluster("killAnySession"),
    "killAllSessionsByPattern": _on_cluster("killAnySession"),
    "killCursors": _nothing,
    "killOp": _nothing,
    "killSessions": _nothing,
    "listCollections": _on_database("listCollections"),
    "listDatabases": _on_cluster("listDatabases"),
    "listIndexes": _on_collection("listIndexes"),
    "listSearchIndexes": _on_collection("listSearchIndexes"),
    "lockInfo": _on_cluster("serverStatus"),
    "logRotate": _on_cluster("logRotate"),
    "mapReduce": _find,
    "planCacheClear": _on_collection("planCacheWrite"),
    "planCacheClearFilters": _on_collection("planCacheIndexFilter"),
    "planCacheListFilters": _on_collection("planCacheIndexFilter"),
    "planCacheSetFilter": _on_collection("planCacheIndexFilter"),
    "profile": _on_database("enableProfiler"),
    "reapLogicalSessionCacheNow": _nothing,
    "refreshLogicalSessionCacheNow": _nothing,
    "refreshSessions": _nothing,
    "reIndex": _on_collection("reIndex"),
    "renameCollection": _rename,
    "removeQuerySettings": _on_cluster("querySettings"),
    **{
        name: _on_cluster(action)
        for name, action in {
            "replSetAbortPrimaryCatchUp": "replSetStateChange",
            "replSetFreeze": "replSetStateChange",
            "replSetGetRBID": "internal",
            "replSetHeartbeat": "internal",
            "replSetInitiate": "replSetConfigure",
            "replSetMaintenance": "replSetStateChange",
            "replSetReconfig": "replSetConfigure",
            "replSetRequestVotes": "internal",
            "replSetResizeOplog": "replSetResizeOplog",
            "replSetStepDown": "replSetStateChange",
            "replSetStepUp": "replSetStateChange",
            "replSetSyncFrom": "replSetStateChange",
            "replSetUpdatePosition": "internal",
        }.items()
    },
    "replSetGetConfig": _on_cluster("replSetGetConfig"),
    "replSetGetStatus": _on_cluster("replSetGetStatus"),
    "revokePrivilegesFromRole": user_needs.privileges_taken,
    "revokeRolesFromRole": user_needs.roles_taken,
    "revokeRolesFromUser": user_needs.roles_taken,
    "rolesInfo": user_needs.shown("viewRole"),
    "rotateCertificates": _on_cluster("rotateCertificates"),
    "serverStatus": _on_cluster("serverStatus"),
    "setClusterParameter": _on_cluster("setClusterParameter"),
    "setDefaultRWConcern": _on_cluster("setDefaultRWConcern"),
    "setFeatureCompatibilityVersion": _on_cluster("setFeatureCompatibilityVersion"),
    "setIndexCommitQuorum": _on_collection("createIndex"),
    "setQuerySettings": _on_cluster("querySettings"),
    "setUserWriteBlockMode": _on_cluster("setUserWriteBlockMode"),
    "shardingState": _on_cluster("shardingState"),
    "setParameter": _on_cluster("setParameter"),
    "shutdown": _on_cluster("shutdown"),
    "startSession": _nothing,
    "testClock": _on_cluster("advanceClock"),
    "ttlPass": _on_cluster("advanceClock"),
    "top": _on_cluster("top"),
    "update": _update,
    "updateSearchIndex": _on_collection("updateSearchIndex"),
    "updateRole": user_needs.update_role,
    "updateUser": user_needs.update_user,
    "usersInfo": user_needs.shown("viewUser"),
    "validateDBMetadata": _validate_metadata,
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
    if client.user is None and _is_first_of_all(services, client, name, request):
        return
    privileges = privileges_of(services, client)
    if privileges is None:
        raise Unauthorized(f"Command {request.name} requires authentication")
    if not all(privileges.allow(*need) for need in _needs(name, request, client)):
        raise Unauthorized(f"not authorized on {request.database} to execute command {_shell_style(request.body)}")


def _needs(name: str, request: Request, client: Client) -> Iterator[Need]:
    if name in ("usersInfo", "updateUser") and _is_about_oneself(request, client.user):
        return user_needs.update_oneself(request) if name == "updateUser" else _nothing(request)
    if name in ("listDatabases", "listCollections") and _only_own_names(request):
        return _nothing(request)
    needs = NEEDS.get(name)
    return iter([("internal", "", "")]) if needs is None else needs(request)


def privileges_of(services: Services, client: Client) -> Privileges | None:
    """What the client may do; None where nobody is logged in, or the user has been dropped since."""
    if client.user is None:
        return None
    store: UserStore = services.users
    privileges = store.privileges_of(*client.user)
    if privileges is None:
        client.user = None
    return privileges


def may(services: Services, client: Client, action: str, database: str = "", collection: str = "") -> bool:
    """Whether the client may do something; without `--auth`, everybody may do everything."""
    if not services.config.auth:
        return True
    privileges = privileges_of(services, client)
    return privileges is not None and privileges.allow(action, database, collection)


def visible_collections(services: Services, client: Client) -> Callable[[str, str], bool]:
    """Which collections, by database and name, a client may do something with; without `--auth`, all."""
    if not services.config.auth:
        return lambda database, name: True
    privileges = privileges_of(services, client)
    return (lambda database, name: False) if privileges is None else privileges.touch_collection


def _is_first_of_all(services: Services, client: Client, name: str, request: Request) -> bool:
    """The localhost exception: somebody at the machine itself makes the first user or role."""
    return (
        name in _BY_LOCALHOST
        and request.database == "admin"
        and bool(services.parameters["enableLocalhostAuthBypass"])
        and _is_loopback(client)
        and bool(services.users.nobody_exists())
    )


def _is_about_oneself(request: Request, user: tuple[str, str] | None) -> bool:
    value = request.value
    if isinstance(value, dict):
        return (value.get("user"), value.get("db")) == user
    return (value, request.database) == user


def _only_own_names(request: Request) -> bool:
    """The forms of listing that show what one may see instead of failing."""
    body = request.body
    if request.name == "listDatabases":
        return body.get("authorizedDatabases") is not False
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
