"""Every command that the server knows, one row each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .administration import (
    DropConnections,
    Fsync,
    FsyncUnlock,
    RotateCertificates,
    SetFeatureCompatibilityVersion,
    Shutdown,
)
from .aggregate import Aggregate, CountCommand, Distinct
from .authentication import Authenticate, Logout, SaslContinue, SaslStart
from .base import Command
from .bucket_health import BucketHealthReport
from .bulk_write import BulkWrite
from .capping import CloneCollectionAsCapped, ConvertToCapped
from .cluster_parameters import GetClusterParameter, SetClusterParameter
from .collection_changes import CollMod
from .collection_stats import CollStats
from .collections import Create, Drop, ListCollections, RenameCollection
from .compaction import AutoCompact, Compact
from .cursors import GetMore, KillCursors
from .databases import DataSize, DbStats, DropDatabase, ListDatabases
from .delete import Delete
from .diagnostics import (
    BuildInfo,
    ConnPoolStats,
    Features,
    GetCmdLineOpts,
    GetLog,
    HostInfo,
    ListCommands,
    LockInfo,
    LogRotate,
)
from .encryption import CleanupStructuredEncryptionData, CompactStructuredEncryptionData
from .explain import Explain
from .fail_points import ConfigureFailPoint
from .find import Find
from .find_and_modify import FindAndModify
from .handshake import ConnectionStatus, Hello, Ping, WhatsMyUri
from .hashing import DbHash, FileMd5
from .indexes import CreateIndexes, DropIndexes, ListIndexes
from .insert import Insert
from .metadata_check import ValidateDbMetadata
from .operations import CurrentOp, KillOp, Profile, Top
from .parameters import GetParameter, SetParameter
from .plan_cache import PlanCacheClear, PlanCacheClearFilters, PlanCacheListFilters, PlanCacheSetFilter
from .retention import TestClock, TtlPass
from .roles import (
    CreateRole,
    DropAllRolesFromDatabase,
    DropRole,
    GrantPrivilegesToRole,
    GrantRolesToRole,
    RevokePrivilegesFromRole,
    RevokeRolesFromRole,
    RolesInfo,
    UpdateRole,
)
from .sessions import (
    AbortTransaction,
    CommitTransaction,
    EndSessions,
    KillAllSessions,
    KillAllSessionsByPattern,
    KillSessions,
    ReapLogicalSessionCacheNow,
    RefreshLogicalSessionCacheNow,
    RefreshSessions,
    StartSession,
)
from .standalone import (
    GetDefaultRWConcern,
    GetShardMap,
    SetDefaultRWConcern,
    SetIndexCommitQuorum,
    SetUserWriteBlockMode,
    ShardingState,
    refused_commands,
)
from .status import ServerStatus
from .update import UpdateCommand
from .users import (
    CreateUser,
    DropAllUsersFromDatabase,
    DropUser,
    GrantRolesToUser,
    InvalidateUserCache,
    RevokeRolesFromUser,
    UpdateUser,
    UsersInfo,
)
from .validation import ReIndex, Validate


def table_of(*commands: Command) -> Mapping[str, Command]:
    """The commands by their names and aliases, having checked that each name stands once."""
    table: dict[str, Command] = {}
    for command in sorted(commands, key=lambda command: command.name):
        for name in (command.name, *command.aliases):
            assert name not in table, f"{name} stands twice"
            table[name] = command
    return MappingProxyType(table)


COMMANDS: Final = table_of(
    Aggregate(),
    BulkWrite(),
    CountCommand(),
    CreateIndexes(),
    Delete(),
    Distinct(),
    DropIndexes(),
    Explain(),
    Find(),
    FindAndModify(),
    GetMore(),
    Insert(),
    KillCursors(),
    ListIndexes(),
    TtlPass(),
    UpdateCommand(),
    AbortTransaction(),
    TestClock(),
    Authenticate(),
    AutoCompact(),
    BucketHealthReport(),
    BuildInfo(),
    CleanupStructuredEncryptionData(),
    CloneCollectionAsCapped(),
    CommitTransaction(),
    ConfigureFailPoint(),
    ConnPoolStats(),
    ConnectionStatus(),
    CollMod(),
    Compact(),
    CompactStructuredEncryptionData(),
    ConvertToCapped(),
    CollStats(),
    Create(),
    CreateRole(),
    CreateUser(),
    CurrentOp(),
    DataSize(),
    DbHash(),
    DbStats(),
    DropAllRolesFromDatabase(),
    DropAllUsersFromDatabase(),
    DropConnections(),
    DropDatabase(),
    Drop(),
    DropRole(),
    DropUser(),
    EndSessions(),
    Features(),
    FileMd5(),
    Fsync(),
    FsyncUnlock(),
    GetClusterParameter(),
    GetCmdLineOpts(),
    GetDefaultRWConcern(),
    GetLog(),
    GetParameter(),
    GetShardMap(),
    GrantPrivilegesToRole(),
    GrantRolesToRole(),
    GrantRolesToUser(),
    Hello(),
    HostInfo(),
    InvalidateUserCache(),
    KillAllSessions(),
    KillAllSessionsByPattern(),
    KillOp(),
    KillSessions(),
    ListCollections(),
    ListCommands(),
    ListDatabases(),
    LockInfo(),
    LogRotate(),
    Logout(),
    Ping(),
    PlanCacheClear(),
    PlanCacheClearFilters(),
    PlanCacheListFilters(),
    PlanCacheSetFilter(),
    Profile(),
    ReapLogicalSessionCacheNow(),
    RefreshLogicalSessionCacheNow(),
    RefreshSessions(),
    ReIndex(),
    RenameCollection(),
    RevokePrivilegesFromRole(),
    RevokeRolesFromRole(),
    RevokeRolesFromUser(),
    RolesInfo(),
    RotateCertificates(),
    SaslContinue(),
    SaslStart(),
    ServerStatus(),
    SetClusterParameter(),
    SetDefaultRWConcern(),
    SetFeatureCompatibilityVersion(),
    SetIndexCommitQuorum(),
    SetParameter(),
    SetUserWriteBlockMode(),
    ShardingState(),
    Shutdown(),
    StartSession(),
    Top(),
    UpdateRole(),
    UpdateUser(),
    UsersInfo(),
    Validate(),
    ValidateDbMetadata(),
    WhatsMyUri(),
    *refused_commands(),
)
"""By every name that a client may use."""
