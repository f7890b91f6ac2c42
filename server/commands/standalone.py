"""Commands of MongoDB that this server knows and answers with what a standalone server says, or does not have.

A name that is in none of these tables nor in the table of commands is unknown (59).
"""

from typing import Final

from ...common.errors import (
    CommandNotSupported,
    IllegalOperation,
    IndexNotFound,
    Location,
    MongoError,
    NoReplicationEnabled,
    NotImplemented,
    SearchNotEnabled,
)
from ...common.values import Document
from ..context import Context, Request
from .arguments import Fields
from .base import Command


class _Refused(Command):
    """A command whose answer is always the same error."""

    def __init__(self, name: str, error: type[MongoError], message: str, *, admin_only: bool, writes: bool) -> None:
        self.name = name  # type: ignore[misc]
        self.summary = "Not available on this server."  # type: ignore[misc]
        self.admin_only = admin_only  # type: ignore[misc]
        self.writes = writes  # type: ignore[misc]
        self._error = error
        self._message = message

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        raise self._error(self._message)


_OF_REPLICA_SETS: Final = (
    "replSetAbortPrimaryCatchUp",
    "replSetFreeze",
    "replSetGetConfig",
    "replSetGetRBID",
    "replSetGetStatus",
    "replSetHeartbeat",
    "replSetInitiate",
    "replSetMaintenance",
    "replSetReconfig",
    "replSetRequestVotes",
    "replSetResizeOplog",
    "replSetStepDown",
    "replSetStepUp",
    "replSetSyncFrom",
    "replSetUpdatePosition",
)

_NOT_BUILT: Final = (
    "analyze",
    "removeQuerySettings",
    "setQuerySettings",
)

_OF_SEARCH: Final = ("createSearchIndexes", "dropSearchIndex", "listSearchIndexes", "updateSearchIndex")

_NOT_BUILT_ADMIN: Final = ("configureQueryAnalyzer",)


def refused_commands() -> list[Command]:
    """One command for each name of the tables."""
    commands: list[Command] = [
        _Refused(name, NoReplicationEnabled, "not running with --replSet", admin_only=True, writes=False)
        for name in _OF_REPLICA_SETS
    ]
    for names, admin_only in ((_NOT_BUILT, False), (_NOT_BUILT_ADMIN, True)):
        commands += [
            _Refused(name, NotImplemented, f"{name} is not implemented", admin_only=admin_only, writes=True)
            for name in names
        ]
    commands += [
        _Refused(
            name,
            SearchNotEnabled,
            "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires additional "
            "configuration.",
            admin_only=False,
            writes=True,
        )
        for name in _OF_SEARCH
    ]
    commands += [
        _Refused("applyOps", CommandNotSupported, "applyOps is not supported", admin_only=False, writes=True),
        _Refused("mapReduce", CommandNotSupported, "mapReduce needs JavaScript", admin_only=False, writes=True),
    ]
    return commands


class GetDefaultRWConcern(Command):
    """`getDefaultRWConcern`: a standalone server keeps no defaults."""

    name = "getDefaultRWConcern"
    summary = "Default read and write concerns."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        Fields(request, known=("inMemory",)).take_bool("inMemory", exact=True)
        raise Location(51300, "'getDefaultRWConcern' is not supported on standalone nodes.")


class SetDefaultRWConcern(Command):
    """`setDefaultRWConcern`: a standalone server keeps no defaults."""

    name = "setDefaultRWConcern"
    summary = "Sets the default read and write concerns."
    admin_only = True
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        fields = Fields(request, known=("defaultReadConcern", "defaultWriteConcern"))
        fields.take_document("defaultReadConcern", default=None)
        fields.take_document("defaultWriteConcern", default=None)
        raise Location(51300, "'setDefaultRWConcern' is not supported on standalone nodes.")


class SetIndexCommitQuorum(Command):
    """`setIndexCommitQuorum`: no index build waits for other members of a replica set."""

    name = "setIndexCommitQuorum"
    summary = "Sets how many members have to finish an index build."
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        fields = Fields(request, known=("indexNames", "commitQuorum"))
        namespace = fields.take_namespace()
        fields.take_list("indexNames")
        raise IndexNotFound(f"Cannot find an index build on collection '{namespace}' with the provided index names")


class SetUserWriteBlockMode(Command):
    """`setUserWriteBlockMode`: for members of replica sets."""

    name = "setUserWriteBlockMode"
    summary = "Blocks the writes of users."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        fields = Fields(request, known=("global", "reason"))
        if fields.take_any("global") is None:
            raise fields.missing("global")
        fields.take_bool("global", exact=True)
        fields.take_enum(
            "reason",
            ("Unspecified", "ClusterToClusterMigrationInProgress", "DiskUseThresholdExceeded"),
            default=None,
        )
        raise IllegalOperation("setUserWriteBlockMode cannot be run on standalones")


class ShardingState(Command):
    """`shardingState`: there are no shards."""

    name = "shardingState"
    summary = "Whether this server is a shard."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer that it is none."""
        return {"enabled": False}


class GetShardMap(Command):
    """`getShardMap`: there are no shards."""

    name = "getShardMap"
    summary = "The shards of a cluster."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer an empty map."""
        return {"map": {}, "hosts": {}, "connStrings": {}}
