"""The built-in roles: which actions each allows, on which resources.

Names and contents follow MongoDB's manual pages "Built-In Roles" and "Privilege Actions". Only actions that some
command of the server asks for, or that `rolesInfo` and `connectionStatus` are expected to show, are listed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

_ANSWERS_MAX: Final = 1000
ANY_DATABASE: Final = "*"
"""In place of a database's name: all of them."""


def _actions(names: str) -> frozenset[str]:
    return frozenset(names.split())


_READ: Final = _actions(
    "changeStream collStats dbHash dbStats find killCursors listCollections listIndexes listSearchIndexes planCacheRead"
)
_READ_WRITE: Final = _READ | _actions(
    "cleanupStructuredEncryptionData compactStructuredEncryptionData convertToCapped createCollection createIndex"
    " createSearchIndexes dropCollection dropIndex dropSearchIndex insert remove renameCollectionSameDB update"
    " updateSearchIndex"
)
_DB_ADMIN: Final = _actions(
    "analyze bypassDocumentValidation collMod collStats compact convertToCapped createCollection createIndex dbStats"
    " dropCollection dropDatabase dropIndex enableProfiler indexStats listCollections listIndexes planCacheIndexFilter"
    " planCacheRead planCacheWrite reIndex renameCollectionSameDB storageDetails validate"
)
_USER_ADMIN: Final = _actions(
    "changeCustomData changePassword createRole createUser dropRole dropUser grantRole revokeRole"
    " setAuthenticationRestriction viewRole viewUser"
)
_MONITOR_CLUSTER: Final = _actions(
    "connPoolStats getCmdLineOpts getDefaultRWConcern getLog getParameter hostInfo inprog listDatabases listSessions"
    " netstat queryStatsRead replSetGetConfig replSetGetStatus serverStatus shardingState top getClusterParameter"
    " getShardMap"
)
_HOST_CLUSTER: Final = _actions(
    "applicationMessage fsync invalidateUserCache killAnyCursor killAnySession killop logRotate setParameter shutdown"
    " unlock advanceClock rotateCertificates dropConnections flushRouterConfig oidReset closeAllDatabases touch compact"
)
_MANAGER_CLUSTER: Final = _actions(
    "appendOplogNote getDefaultRWConcern listSessions replSetConfigure setDefaultRWConcern"
    " setFeatureCompatibilityVersion applicationMessage flushRouterConfig getClusterParameter querySettings"
    " replSetGetConfig replSetGetStatus replSetResizeOplog replSetStateChange setClusterParameter setUserWriteBlockMode"
)
_RESTORE: Final = _actions(
    "bypassDocumentValidation changeCustomData changePassword collMod convertToCapped createCollection createIndex"
    " createRole createUser dropCollection dropRole dropUser find grantRole insert listCollections remove revokeRole"
    " update viewRole viewUser"
)


@dataclass(frozen=True, slots=True)
class Privilege:
    """Actions on a resource. Empty `database` or `collection` stands for all (system collections apart)."""

    actions: frozenset[str]
    database: str = ""
    collection: str = ""
    cluster: bool = False
    any_resource: bool = False

    def covers(self, action: str, database: str, collection: str) -> bool:
        """True where it allows the action on the collection (or, with an empty `collection`, on the database)."""
        if action not in self.actions:
            return False
        if self.any_resource:
            return True
        if self.cluster:
            return database == ""
        if database == ANY_DATABASE:
            return not self.database and not self.collection
        if database == "" or (self.database and self.database != database):
            return False
        if self.collection:
            return self.collection == collection
        return not collection.startswith("system.") or collection in READABLE_SYSTEM_COLLECTIONS

    def to_document(self) -> dict[str, Any]:
        """The form of `showPrivileges`."""
        resource: dict[str, Any]
        if self.any_resource:
            resource = {"anyResource": True}
        elif self.cluster:
            resource = {"cluster": True}
        else:
            resource = {"db": self.database, "collection": self.collection}
        return {"resource": resource, "actions": sorted(self.actions)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """From the form that `createRole` takes and `admin.system.roles` keeps; checked by the command."""
        resource = document["resource"]
        return cls(
            frozenset(document["actions"]),
            resource.get("db", ""),
            resource.get("collection", ""),
            bool(resource.get("cluster", False)),
            bool(resource.get("anyResource", False)),
        )


READABLE_SYSTEM_COLLECTIONS: Final = frozenset({"system.js"})


def _database_roles(database: str) -> dict[str, tuple[Privilege, ...]]:
    """The roles that every database has; an empty name makes those of all databases."""
    read = (Privilege(_READ, database), Privilege(_READ, database, "system.js"))
    read_write = (Privilege(_READ_WRITE, database), Privilege(_READ_WRITE, database, "system.js"))
    admin = (Privilege(_DB_ADMIN, database), Privilege(_READ | {"dropCollection"}, database, "system.profile"))
    users = (Privilege(_USER_ADMIN, database),)
    return {
        "read": read,
        "readWrite": read_write,
        "dbAdmin": admin,
        "userAdmin": users,
        "dbOwner": (*read_write, *admin, *users),
        "enableSharding": (Privilege(frozenset({"enableSharding"}), database),),
    }


def _admin_roles() -> dict[str, tuple[Privilege, ...]]:
    everywhere = _database_roles("")
    listing = Privilege(frozenset({"listDatabases"}), cluster=True)
    monitor = (
        Privilege(_MONITOR_CLUSTER, cluster=True),
        Privilege(frozenset({"collStats", "dbStats", "indexStats"})),
    )
    host = (Privilege(_HOST_CLUSTER, cluster=True), Privilege(frozenset({"killCursors"})))
    manager = (Privilege(_MANAGER_CLUSTER, cluster=True),)
    cluster_admin = (*monitor, *host, *manager, Privilege(frozenset({"dropDatabase"})))
    backup = (
        Privilege(frozenset({"appendOplogNote", "getParameter", "listDatabases", "serverStatus"}), cluster=True),
        Privilege(frozenset({"find", "listCollections", "listIndexes", "collStats"}), any_resource=True),
    )
    restore = (Privilege(frozenset({"getParameter"}), cluster=True), Privilege(_RESTORE, any_resource=True))
    users = (
        *everywhere["userAdmin"],
        Privilege(frozenset({"invalidateUserCache", "listDatabases"}), cluster=True),
        Privilege(_READ, "admin", "system.users"),
        Privilege(_READ, "admin", "system.roles"),
    )
    read_write = (*everywhere["readWrite"], listing)
    admin = (*everywhere["dbAdmin"], listing)
    return {
        "readAnyDatabase": (*everywhere["read"], listing),
        "readWriteAnyDatabase": read_write,
        "dbAdminAnyDatabase": admin,
        "userAdminAnyDatabase": users,
        "clusterMonitor": monitor,
        "hostManager": host,
        "clusterManager": manager,
        "clusterAdmin": cluster_admin,
        "backup": backup,
        "restore": restore,
        "root": (*read_write, *admin, *users, *cluster_admin, *backup, *restore),
        "directShardOperations": (Privilege(frozenset({"issueDirectShardOperations"}), cluster=True),),
        "__system": (Privilege(_ALL_ACTIONS, any_resource=True),),
    }


_ALL_ACTIONS: Final = (
    _READ_WRITE
    | _DB_ADMIN
    | _USER_ADMIN
    | _MONITOR_CLUSTER
    | _HOST_CLUSTER
    | _MANAGER_CLUSTER
    | _RESTORE
    | frozenset({"dropConnections", "renameCollection", "reIndex"})
)
ACTIONS: Final = _ALL_ACTIONS
GRANTABLE_ACTIONS: Final = ACTIONS | _actions(
    "addShard analyze anyAction auditConfigure changeOwnCustomData changeOwnPassword"
    " auditLogRotate authSchemaUpgrade bypassWriteBlockingMode"
    " checkMetadataConsistency cleanupOrphaned cleanupStructuredEncryptionData closeAllDatabases"
    " compactStructuredEncryptionData cpuProfiler createDatabase createSearchIndexes dropSearchIndex enableSharding"
    " flushRouterConfig forceUUID fsyncUnlock getClusterParameter getDatabaseVersion getShardMap getShardVersion"
    " internal issueDirectShardOperations killAnyCursor listCachedAndActiveUsers listSearchIndexes listShards moveChunk"
    " moveCollection oidReset querySettings queryStatsRead refineCollectionShardKey removeShard repairDatabase"
    " replSetHeartbeat replSetReconfig replSetResizeOplog replSetStateChange reshardCollection resync"
    " rotateCertificates serverStatus setChangeStreamState setClusterParameter setUserWriteBlockMode shardCollection"
    " shardedDataDistribution splitChunk splitVector touch unshardCollection updateRole updateSearchIndex updateUser"
    " useUUID viewUser"
)
"""What a role may name; MongoDB has commands for all of them, this server not for each."""
_OF_EVERY_DATABASE: Final = tuple(_database_roles("x"))
_OF_ADMIN: Final = _admin_roles()


def builtin_role_names(database: str) -> list[str]:
    """The built-in roles of a database, sorted."""
    names = list(_OF_EVERY_DATABASE)
    if database == "admin":
        names += _OF_ADMIN
    return sorted(names)


def builtin_privileges(role: str, database: str) -> tuple[Privilege, ...] | None:
    """What a built-in role of a database allows; None where there is no such role."""
    if database == "admin" and role in _OF_ADMIN:
        return _OF_ADMIN[role]
    return _database_roles(database).get(role)


@dataclass(frozen=True, slots=True)
class Privileges:
    """Everything that somebody may do."""

    privileges: tuple[Privilege, ...] = ()
    _asked: dict[tuple[str, str, str], bool] = field(default_factory=dict, compare=False, repr=False)
    """Answers of `allow`."""

    @classmethod
    def union(cls, several: Iterable[tuple[Privilege, ...]]) -> Self:
        """All of them together, each once."""
        return cls(tuple(dict.fromkeys(privilege for privileges in several for privilege in privileges)))

    def allow(self, action: str, database: str = "", collection: str = "") -> bool:
        """True where some privilege covers the action; an empty `database` means the cluster."""
        asked = action, database, collection
        answer = self._asked.get(asked)
        if answer is None:
            if len(self._asked) >= _ANSWERS_MAX:
                self._asked.clear()
            answer = any(privilege.covers(*asked) for privilege in self.privileges)
            self._asked[asked] = answer
        return answer

    def touch_database(self, database: str) -> bool:
        """True where some privilege allows anything in the database."""
        return any(
            privilege.any_resource or privilege.database in ("", database)
            for privilege in self.privileges
            if privilege.actions and not privilege.cluster
        )

    def touch_collection(self, database: str, collection: str) -> bool:
        """True where some privilege allows anything with the collection."""
        return any(
            privilege.covers(action, database, collection)
            for privilege in self.privileges
            for action in list(privilege.actions)[:1]
        )
