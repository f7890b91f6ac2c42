"""The arguments that every command accepts, parsed once before the command runs."""

import math
from dataclasses import dataclass
from typing import Any, Final

from bson import Binary, Decimal128, Int64, Timestamp

from ..common.errors import (
    APIVersionError,
    BadValue,
    FailedToParse,
    IDLFailedToParse,
    IDLUnknownField,
    IllegalOperation,
    InvalidOptions,
    InvalidUUID,
    Location,
    NotAReplicaSet,
    TypeMismatch,
)
from ..common.values import Document, is_string, type_name

GENERIC_FIELDS: Final = frozenset(
    {
        "$audit",
        "$client",
        "$clusterTime",
        "$configServerState",
        "$configTime",
        "$db",
        "$oplogQueryData",
        "$queryOptions",
        "$readPreference",
        "$replData",
        "$tenant",
        "$topologyTime",
        "allowImplicitCollectionCreation",
        "apiDeprecationErrors",
        "apiStrict",
        "apiVersion",
        "autocommit",
        "clientOperationKey",
        "comment",
        "coordinator",
        "databaseVersion",
        "expectPrefix",
        "help",
        "lsid",
        "maxTimeMS",
        "maxTimeMSOpOnly",
        "mayBypassWriteBlocking",
        "rawData",
        "readConcern",
        "requestGossipRoutingCache",
        "serialization_context",
        "shardVersion",
        "startOrContinueTransaction",
        "startTransaction",
        "tracking_info",
        "txnNumber",
        "txnRetryCounter",
        "versionContext",
        "writeConcern",
    }
)
"""Fields that count as unknown nowhere."""

_MAX_TIME_MS_MAX: Final = 2**31 - 1
_INT64_LIMIT: Final = 2**63
_READ_PREFERENCE_MODES: Final = ("primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest")
_READ_CONCERN_LEVELS: Final = ("local", "available", "majority", "linearizable", "snapshot")
_PROVENANCES: Final = ("clientSupplied", "implicitDefault", "customDefault", "getLastErrorDefaults")
_READ_CONCERN_FIELDS: Final = frozenset(
    {
        "afterClusterTime",
        "afterOpTime",
        "allowTransactionTableSnapshot",
        "atClusterTime",
        "level",
        "provenance",
        "waitLastStableRecoveryTimestamp",
    }
)
_WRITE_CONCERN_FIELDS: Final = frozenset(
    {
        "w",
        "j",
        "journal",
        "fsync",
        "wtimeout",
        "wtimeoutMS",
        "wElectionId",
        "wOpTime",
        "wOpId",
        "provenance",
        "getLastError",
    }
)
_W_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class ReadConcern:
    """What a reader asks of the data that it sees; on a standalone server every level that is allowed reads locally."""

    level: str | None
    provenance: str | None
    document: Document


@dataclass(frozen=True, slots=True)
class WriteConcern:
    """When a write counts as done."""

    w: int | str
    journal: bool | None
    document: Document

    @property
    def acknowledged(self) -> bool:
        """False for `w: 0`, which `j: true` overrides."""
        return self.w != 0 or bool(self.journal)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericArguments:
    """The generic arguments of one request."""

    max_time_ms: int = 0
    """0 where there is no limit."""
    comment: Any = None
    lsid: bytes | None = None
    """The 16 bytes of the session's UUID."""
    read_concern: ReadConcern | None = None
    write_concern: WriteConcern | None = None
    api_version: str | None = None
    api_strict: bool = False
    api_deprecation_errors: bool = False
    read_preference: str = "primary"
    raw_data: bool = False
    help: bool = False


NO_ARGUMENTS: Final = GenericArguments()


def parse_generic_arguments(command: str, body: Document) -> GenericArguments:
    """Read the generic arguments of a request of the command (named in error messages).

    What only some commands support (read and write concerns) is checked against the command by dispatch.
    """
    # A plain request has `$db` and perhaps `lsid`; most others are done after this loop.
    found = [name for name in body if name in GENERIC_FIELDS]
    if found == ["$db"]:
        return NO_ARGUMENTS
    lsid = _lsid(command, body.get("lsid"))
    _refuse_transactions(command, body, lsid)
    api_version, api_strict, api_deprecation_errors = _api_parameters(command, body)
    _check_cluster_time(body.get("$clusterTime"))
    return GenericArguments(
        max_time_ms=max_time_ms(command, body.get("maxTimeMS")),
        comment=body.get("comment"),
        lsid=lsid,
        read_concern=_read_concern(command, body.get("readConcern")) if "readConcern" in body else None,
        write_concern=_write_concern(command, body.get("writeConcern")) if "writeConcern" in body else None,
        api_version=api_version,
        api_strict=api_strict,
        api_deprecation_errors=api_deprecation_errors,
        read_preference=_read_preference(body.get("$readPreference")),
        raw_data=_flag(command, "rawData", body.get("rawData")),
        help=bool(body.get("help")) and body.get("help") is True,
    )


def max_time_ms(command: str, value: Any) -> int:
    """A time limit in milliseconds, 0 for none."""
    if value is None:
        return 0
    number: float | int
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
        raise _wrong_type(command, "maxTimeMS", value, "types '[long, int, decimal, double]'")
    number = float(value.to_decimal()) if isinstance(value, Decimal128) else value
    if isinstance(number, float):
        if math.isnan(number) or math.isinf(number) or number != math.floor(number):
            raise FailedToParse(f"maxTimeMS has non-integral value: {number:g}")
        if abs(number) >= _INT64_LIMIT:
            raise FailedToParse(f"maxTimeMS cannot be represented as a 64-bit integer: {number:g}")
        number = int(number)
    if not 0 <= number <= _MAX_TIME_MS_MAX:
        raise BadValue(f"{number} value for maxTimeMS is out of range [0, {_MAX_TIME_MS_MAX}]")
    return int(number)


def _wrong_type(command: str, name: str, value: Any, expected: str) -> TypeMismatch:
    return TypeMismatch(f"BSON field '{command}.{name}' is the wrong type '{type_name(value)}', expected {expected}")


def _flag(command: str, name: str, value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong_type(command, name, value, "type 'bool'")
    return value


def _lsid(command: str, value: Any) -> bytes | None:
    if value is None:
        return None
    return parse_lsid(f"{command}.lsid", value)


def parse_lsid(path: str, value: Any) -> bytes:
    """The 16 bytes of a session's id from its `{id: UUID}`.

    Raises:
        TypeMismatch, IDLFailedToParse, IDLUnknownField, InvalidUUID: it is no such thing; `path` names it.
    """
    if not isinstance(value, dict):
        raise TypeMismatch(f"BSON field '{path}' is the wrong type '{type_name(value)}', expected type 'object'")
    for name in value:
        if name not in ("id", "uid", "txnNumber", "txnUUID"):
            raise IDLUnknownField(f"BSON field '{path}.{name}' is an unknown field.")
    identity = value.get("id")
    if identity is None:
        raise IDLFailedToParse(f"BSON field '{path}.id' is missing but a required field")
    if not isinstance(identity, bytes):
        raise TypeMismatch(f"BSON field '{path}.id' is the wrong type '{type_name(identity)}', expected type 'binData'")
    subtype = identity.subtype if isinstance(identity, Binary) else 0
    if subtype != 4:
        raise TypeMismatch(f"BSON field '{path}.id' is the wrong binData type '{subtype}', expected type 'UUID'")
    if len(identity) != 16:
        raise InvalidUUID("uuid must be a 16-byte binary field with UUID (4) subtype")
    return bytes(identity)


def _refuse_transactions(command: str, body: Document, lsid: bytes | None) -> None:
    """A standalone server has no transactions and no retryable writes."""
    number = body.get("txnNumber")
    autocommit = body.get("autocommit")
    start = body.get("startTransaction")
    if number is None and autocommit is None and start is None:
        return
    if number is not None and (isinstance(number, bool) or not isinstance(number, Int64)):
        raise _wrong_type(command, "txnNumber", number, "type 'long'")
    for name, value in (("autocommit", autocommit), ("startTransaction", start)):
        if value is not None and not isinstance(value, bool):
            raise _wrong_type(command, name, value, "type 'bool'")
    if number is None:
        what = "'autocommit'" if autocommit is not None else "'startTransaction'"
        raise InvalidOptions(f"{what} field requires a transaction number to also be specified")
    if lsid is None:
        raise InvalidOptions("Transaction number requires a session ID to also be specified")
    if number < 0:
        raise InvalidOptions("Transaction number cannot be negative")
    if autocommit is True:
        raise InvalidOptions("Specifying autocommit=true is not allowed.")
    if start is False:
        raise InvalidOptions("Specifying startTransaction=false is not allowed.")
    if start is True and autocommit is None:
        raise InvalidOptions("'startTransaction' field requires 'autocommit' field to also be specified")
    raise IllegalOperation("Transaction numbers are only allowed on a replica set member or mongos")


def _api_parameters(command: str, body: Document) -> tuple[str | None, bool, bool]:
    version = body.get("apiVersion")
    if version is not None and not is_string(version):
        raise _wrong_type(command, "apiVersion", version, "type 'string'")
    strict = _flag(command, "apiStrict", body.get("apiStrict"))
    deprecation_errors = _flag(command, "apiDeprecationErrors", body.get("apiDeprecationErrors"))
    if version is None:
        for name in ("apiStrict", "apiDeprecationErrors"):
            if body.get(name) is not None:
                raise Location(4886600, f"Provided {name} without passing apiVersion")
    elif version != "1":
        raise APIVersionError('API version must be "1"')
    return version, strict, deprecation_errors


def _check_cluster_time(value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise TypeMismatch(f"BSON field '$clusterTime' is the wrong type '{type_name(value)}', expected type 'object'")
    moment = value.get("clusterTime")
    if moment is None:
        raise IDLFailedToParse("BSON field '$clusterTime.clusterTime' is missing but a required field")
    if not isinstance(moment, Timestamp):
        raise TypeMismatch(
            f"BSON field '$clusterTime.clusterTime' is the wrong type '{type_name(moment)}', expected type 'timestamp'"
        )


def _read_preference(value: Any) -> str:
    if value is None:
        return "primary"
    if is_string(value):
        mode: Any = value
    elif isinstance(value, dict):
        mode = value.get("mode", "primary")
    else:
        raise TypeMismatch(f'"$readPreference" had the wrong type. Expected object, found {type_name(value)}')
    if not is_string(mode):
        raise TypeMismatch(f'"mode" had the wrong type. Expected string, found {type_name(mode)}')
    if mode not in _READ_PREFERENCE_MODES:
        raise FailedToParse(
            f"Could not parse $readPreference mode '{mode}'. Only the modes "
            f"'primary', 'primaryPreferred', 'secondary', 'secondaryPreferred', and 'nearest' are supported."
        )
    return mode


def _read_concern(command: str, value: Any) -> ReadConcern | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _wrong_type(command, "readConcern", value, "type 'object'")
    for name, member in value.items():
        if name not in _READ_CONCERN_FIELDS:
            raise IDLUnknownField(f"BSON field 'readConcern.{name}' is an unknown field.")
        if name in ("level", "provenance") and member is not None and not is_string(member):
            raise _wrong_type("readConcern", name, member, "type 'string'")
        if name in ("afterClusterTime", "atClusterTime") and not isinstance(member, Timestamp):
            raise _wrong_type("readConcern", name, member, "type 'timestamp'")
    level = value.get("level")
    if level is not None and level not in _READ_CONCERN_LEVELS:
        raise BadValue(f"Enumeration value '{level}' for field 'readConcern.level' is not a valid value.")
    provenance = value.get("provenance")
    if provenance is not None and provenance not in _PROVENANCES:
        raise BadValue(f"Enumeration value '{provenance}' for field 'readConcern.provenance' is not a valid value.")
    return ReadConcern(level, provenance, value)


_LOCAL_STAGES: Final = frozenset(
    {"$currentOp", "$listClusterCatalog", "$listLocalSessions", "$planCacheStats", "$querySettings"}
)


def _check_stages(pipeline: Any, level: str) -> None:
    """Refuse a level that the first or last stage of a pipeline does not have."""
    stages = [stage for stage in pipeline if isinstance(stage, dict)] if isinstance(pipeline, list) else []
    first, last = (next(iter(stages[place]), "") if stages else "" for place in (0, -1))
    if (first in _LOCAL_STAGES and level != "local") or (last in ("$out", "$merge") and level == "linearizable"):
        stage = first if first in _LOCAL_STAGES else last
        raise InvalidOptions(
            f"Aggregation stage {stage} cannot run with a readConcern other than one it supports: {level}"
        )


def check_read_concern(command: str, concern: ReadConcern, *, supported: bool, body: Document | None = None) -> None:
    """Refuse a read concern that the command, its stages, or a standalone server, does not have."""
    level = concern.level or "local"
    if command == "aggregate" and body is not None:
        _check_stages(body.get("pipeline"), level)
    if command == "count" and level == "snapshot":
        supported = False
    if not supported and level != "local":
        raise InvalidOptions(
            f'Command {command} does not support {{ readConcern: {{ level: "{level}", provenance: '
            f'"{concern.provenance or "clientSupplied"}" }} }} :: caused by :: read concern not supported'
        )
    if concern.document.get("atClusterTime") is not None and level != "snapshot":
        raise InvalidOptions(
            "readConcern.atClusterTime field can be set only if readConcern.level is equal to snapshot"
        )
    at = concern.document.get("atClusterTime")
    if at is not None and at.time == 0:
        raise InvalidOptions("readConcern.atClusterTime cannot be a null timestamp")
    if level in ("snapshot", "linearizable"):
        raise NotAReplicaSet(f"node needs to be a replica set member to use readConcern: {level}")
    after = concern.document.get("afterClusterTime")
    if after == Timestamp(0, 0):
        raise InvalidOptions("readConcern.afterClusterTime cannot be a null timestamp")
    if after is not None:
        raise IllegalOperation("Cannot specify afterClusterTime read concern without a replica set")


def _write_concern(command: str, value: Any) -> WriteConcern | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _wrong_type(command, "writeConcern", value, "type 'object'")
    for name in value:
        if name not in _WRITE_CONCERN_FIELDS:
            raise IDLUnknownField(f"BSON field 'WriteConcern.{name}' is an unknown field.")
    provenance = value.get("provenance")
    if provenance is not None:
        if not is_string(provenance):
            raise _wrong_type("WriteConcern", "provenance", provenance, "type 'string'")
        if provenance not in _PROVENANCES:
            raise BadValue(
                f"Enumeration value '{provenance}' for field 'WriteConcern.provenance' is not a valid value."
            )
    journal = _safe_bool("WriteConcern", "j", value.get("j", value.get("journal")))
    fsync = _safe_bool("WriteConcern", "fsync", value.get("fsync"))
    if journal and fsync:
        raise FailedToParse("fsync and j options cannot be used together")
    _check_timeout(value.get("wtimeout", value.get("wtimeoutMS")))
    w = _w(value["w"]) if "w" in value else 1
    if isinstance(w, int) and w > 1:
        raise BadValue("cannot use 'w' > 1 when a host is not replicated")
    if isinstance(w, str) and w != "majority":
        raise BadValue(f"cannot use non-majority 'w' mode \"{w}\" when a host is not a member of a replica set")
    return WriteConcern(w, journal, value)


def _safe_bool(command: str, name: str, value: Any) -> bool | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value != 0
    if isinstance(value, Decimal128):
        return value.to_decimal() != 0
    raise _wrong_type(command, name, value, "types '[bool, long, int, decimal, double]'")


def _check_timeout(value: Any) -> None:
    """Nobody waits for anybody here; only a number that is too large is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
        return
    number = float(value.to_decimal()) if isinstance(value, Decimal128) else value
    if number > _MAX_TIME_MS_MAX:
        raise FailedToParse(f"wtimeout must be no more than {_MAX_TIME_MS_MAX}, found {number:g}")


def _check_tags(tags: Document) -> None:
    """The form of a `w` by tags, which the one member there is fulfils."""
    if not tags:
        raise FailedToParse("tagged write concern requires tags")
    for tag, count in tags.items():
        if isinstance(count, bool) or not isinstance(count, int | float | Decimal128):
            raise FailedToParse(f"tags must be a single level document with only number values; found: {tag}")


def _w(value: Any) -> int | str:
    if isinstance(value, dict):
        _check_tags(value)
        return 1
    if value is None:
        raise BadValue("cannot use non-majority 'w' mode null when a host is not a member of a replica set")
    if is_string(value):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
        raise FailedToParse("w has to be a number, string, or object")
    number = float(value.to_decimal()) if isinstance(value, Decimal128) else value
    if isinstance(number, float) and not math.isfinite(number):
        raise FailedToParse("w has to be a non-negative number and not greater than 50")
    # Decimals are rounded half to even, doubles cut.
    number = round(number) if isinstance(value, Decimal128) else int(number)
    if not 0 <= number <= _W_MAX:
        raise FailedToParse(f"w has to be a non-negative number and not greater than {_W_MAX}; found: {number}")
    return number
