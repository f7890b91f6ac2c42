"""Server parameters, in one table: what setParameter sets and getParameter tells, with types, ranges and defaults."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from bson import Decimal128, Int64

from ..common.errors import BadValue, InvalidOptions, MongoError, Overflow, TypeMismatch
from ..common.limits import FEATURE_COMPATIBILITY_VERSION, MESSAGE_BYTES_MAX, SESSION_TIMEOUT_MINUTES
from ..common.values import Document, is_string, type_name

Kind = Literal["bool", "int", "long", "double", "string", "document", "array"]

_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row: a value of the server with a name that MongoDB gave it (or, beginning with `bucketd`, we did)."""

    name: str
    kind: Kind
    default: Any
    startup: bool = True
    runtime: bool = True
    low: float | None = None
    high: float | None = None
    above: float | None = None
    """The value must be greater."""
    length_max: int | None = None

    def read(self, value: Any) -> Any:
        """The value that a client or the command line gave, as the parameter keeps it.

        Raises:
            BadValue, TypeMismatch, Overflow: it cannot be.
        """
        match self.kind:
            case "bool":
                return _truth(value)
            case "int" | "long" | "double":
                return self._number(value)
            case "array":
                return self._names(value)
            case "string":
                if not is_string(value):
                    raise TypeMismatch(
                        f"Invalid value for parameter {self.name}: wrong type '{type_name(value)}', expected 'string'"
                    )
                if self.length_max is not None and len(value.encode()) > self.length_max:
                    raise Overflow(f"Value for parameter {self.name} must be no more than {self.length_max} bytes")
                return value
            case _:
                raise InvalidOptions(f"not allowed to change [{self.name}]")

    def shown(self, value: Any) -> Any:
        """The value as BSON: a `long` stays an int64, however small."""
        return Int64(value) if self.kind == "long" else value

    def _names(self, value: Any) -> list[str]:
        known = set(self.default)
        names = list(value) if isinstance(value, list | tuple) else [value]
        for name in names:
            if name not in known:
                raise BadValue(f"Invalid value for parameter {self.name}: {name!r} is none of {sorted(known)}")
        return names

    def _number(self, value: Any) -> float | int:
        number: float | int
        if isinstance(value, bool):
            number = int(value)
        elif isinstance(value, int | float):
            number = value
        elif isinstance(value, Decimal128):
            number = float(value.to_decimal())
        else:
            raise BadValue(f"Failed to set parameter {self.name}: not a number: {value!r}")
        if self.kind != "double":
            if isinstance(number, float) and not math.isfinite(number):
                raise BadValue(f"Failed to set parameter {self.name}: {number} is no whole number")
            number = int(number)
            most = _INT32_MAX if self.kind == "int" else 2**63 - 1
            if not -most - 1 <= number <= most:
                raise BadValue(f"Failed to set parameter {self.name}: {number} is out of range")
        for bound, holds, sign in (
            (self.low, self.low is None or number >= self.low, "greater than or equal to"),
            (self.high, self.high is None or number <= self.high, "less than or equal to"),
            (self.above, self.above is None or number > self.above, "greater than"),
        ):
            if not holds:
                raise BadValue(f"Invalid value for parameter {self.name}: {number} is not {sign} {bound}")
        return number


def _truth(value: Any) -> bool:
    """As MongoDB takes any value for a truth: null and numbers equal to zero are false."""
    if isinstance(value, Decimal128):
        return bool(value.to_decimal() != 0)
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    return True


_NEITHER: Final = {"startup": False, "runtime": False}
_STARTUP: Final = {"startup": True, "runtime": False}
_RUNTIME: Final = {"startup": False, "runtime": True}

_ROWS: Final = (
    Parameter("KeysRotationIntervalSec", "int", 7776000, **_STARTUP, low=1),
    Parameter("ShardingTaskExecutorPoolReplicaSetMatching", "string", "automatic"),
    Parameter("allowDiskUseByDefault", "bool", True),
    Parameter("authFailedDelayMs", "int", 100, low=0, high=5000),
    Parameter("authSchemaVersion", "int", 5, **_NEITHER),
    Parameter("authenticationMechanisms", "array", ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"], **_STARTUP),
    Parameter("automationServiceDescriptor", "string", "", length_max=64),
    Parameter("bucketdHandshakeTimeoutMillis", "int", 30_000, above=0),
    Parameter("bucketdMaxOpenCursors", "int", 100_000, low=1),
    Parameter("bucketdMemoryLimitMiB", "int", 0, low=0),
    Parameter("bucketdMessageTimeoutMillis", "int", 60_000, above=0),
    Parameter("bucketdUnauthenticatedIdleMillis", "int", 120_000, above=0),
    Parameter("bucketdUnauthenticatedRequestsPerSecond", "int", 1000, low=1),
    Parameter("bucketdWriteTimeoutMillis", "int", 600_000, above=0),
    Parameter("connPoolMaxConnsPerHost", "int", 200, **_STARTUP),
    Parameter("cursorTimeoutMillis", "long", 600_000, above=0),
    Parameter("enableLocalhostAuthBypass", "bool", True, **_STARTUP),
    Parameter("enableTestCommands", "bool", False, **_STARTUP),
    Parameter("featureCompatibilityVersion", "document", {"version": FEATURE_COMPATIBILITY_VERSION}, **_NEITHER),
    Parameter("ingressConnectionEstablishmentBurstCapacitySecs", "double", sys.float_info.max, above=0),
    Parameter("ingressConnectionEstablishmentMaxQueueDepth", "int", 0, low=0),
    Parameter("ingressConnectionEstablishmentRateLimiterEnabled", "bool", False),
    Parameter("ingressConnectionEstablishmentRatePerSec", "int", _INT32_MAX, low=1),
    Parameter("ingressRequestAdmissionBurstCapacitySecs", "double", sys.float_info.max, above=0),
    Parameter("ingressRequestAdmissionRatePerSec", "int", _INT32_MAX, low=1),
    Parameter("ingressRequestRateLimiterEnabled", "bool", False),
    Parameter("internalDocumentSourceGroupMaxMemoryBytes", "long", 100 * 1024 * 1024, above=0),
    Parameter("internalQueryFacetBufferSizeBytes", "long", 100 * 1024 * 1024, above=0),
    Parameter("internalQueryMaxBlockingSortMemoryUsageBytes", "long", 100 * 1024 * 1024, low=0),
    Parameter("localLogicalSessionTimeoutMinutes", "int", SESSION_TIMEOUT_MINUTES, **_STARTUP, above=0),
    Parameter("logComponentVerbosity", "document", {}),
    Parameter("logLevel", "int", 0, low=0, high=5),
    Parameter("logicalSessionRefreshMillis", "int", 300_000, **_STARTUP, above=0),
    Parameter("maxBSONDepth", "int", 200, **_STARTUP, low=5, high=250),
    Parameter("maxSessions", "int", 1_000_000, **_STARTUP, low=1),
    Parameter("notablescan", "bool", False),
    Parameter("port", "int", 27017, **_NEITHER),
    Parameter("preAuthMaximumMessageSizeBytes", "int", 16_384, low=1024, high=MESSAGE_BYTES_MAX),
    Parameter("quiet", "bool", False),
    Parameter("requireApiVersion", "bool", False),
    Parameter("saslHostName", "string", "", **_STARTUP),
    Parameter("scramIterationCount", "int", 10_000, low=5000),
    Parameter("scramSHA256IterationCount", "int", 15_000, low=5000),
    Parameter("timeseriesBucketMaxCount", "int", 1000, **_STARTUP, low=1),
    Parameter("timeseriesBucketMaxSize", "int", 128_000, **_STARTUP, low=1),
    Parameter("timeseriesBucketMinCount", "int", 10, **_STARTUP, low=1),
    Parameter("timeseriesBucketMinSize", "int", 5120, low=1),
    Parameter("timeseriesBucketVersion", "int", 2, **_STARTUP, low=1, high=2),
    Parameter("timeseriesIdleBucketExpiryMaxCountPerAttempt", "int", 3, **_STARTUP, low=2),
    Parameter("timeseriesIdleBucketExpiryMemoryUsageThreshold", "long", 0),
    Parameter("timeseriesInsertMaxRetriesOnDuplicates", "int", 5, low=0),
    Parameter("timeseriesLargeMeasurementThreshold", "int", 512, low=0),
    Parameter("timeseriesMergeBuckets", "bool", True),
    Parameter("timeseriesPackBuckets", "bool", True),
    Parameter("tlsMode", "string", "disabled", **_RUNTIME),
    Parameter("transactionLifetimeLimitSeconds", "int", 60, low=1),
    Parameter("ttlCollLowPrioritySubpassLimit", "int", 4, **_RUNTIME, low=0),
    Parameter("ttlExactReads", "bool", False),
    Parameter("ttlIndexDeleteTargetDocs", "long", 50_000, low=0),
    Parameter("ttlIndexDeleteTargetTimeMS", "long", 1000, low=0),
    Parameter("ttlMonitorBatchDeletes", "bool", True),
    Parameter("ttlMonitorEnabled", "bool", True),
    Parameter("ttlMonitorSleepSecs", "int", 60, above=0),
    Parameter("ttlMonitorSubPassTargetSecs", "int", 60, low=0),
)

PARAMETERS: Final[Mapping[str, Parameter]] = MappingProxyType({row.name: row for row in _ROWS})
"""Every parameter by its name, in alphabetical order."""


class Parameters:
    """The values of all parameters: `parameters["ttlMonitorSleepSecs"]`."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {name: row.default for name, row in PARAMETERS.items()}
        self._listeners: dict[str, list[Callable[[Any], object]]] = {}
        self._checks: dict[str, Callable[[Any], object]] = {}
        self._verbosities = dict.fromkeys(_COMPONENTS, -1)

    def __getitem__(self, name: str) -> Any:
        if name == "logComponentVerbosity":
            return self._component_verbosity()
        return self._values[name]

    def get(self, name: str) -> Any:
        """The same; a parameter is there or the name is a mistake."""
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PARAMETERS)

    def shown(self, name: str) -> Any:
        """The value as getParameter tells it."""
        return PARAMETERS[name].shown(self[name])

    def on_change(self, name: str, heard: Callable[[Any], object]) -> None:
        """Call `heard` with the new value whenever somebody sets the parameter."""
        assert name in PARAMETERS, name
        self._listeners.setdefault(name, []).append(heard)

    def check_before(self, name: str, check: Callable[[Any], object]) -> None:
        """Call `check` with a new value before it is set at runtime; it raises where the value cannot be."""
        assert name in PARAMETERS, name
        self._checks[name] = check

    def at_startup(self, name: str, value: Any) -> None:
        """Set a parameter as the command line, the environment or the configuration file asks; `value` may be a text.

        Raises:
            MongoError: no such parameter, not settable at start, or a value that cannot be.
        """
        row = PARAMETERS.get(name)
        if row is None or not row.startup:
            raise InvalidOptions(f"Unknown --setParameter '{name}'")
        self._values[name] = row.read(_from_text(row.kind, value) if isinstance(value, str) else value)

    def fill(self, name: str, value: Any) -> None:
        """Tell the value of a parameter that nobody can set."""
        assert name in PARAMETERS, name
        self._values[name] = value

    def set_at_runtime(self, changes: Mapping[str, Any]) -> Any:
        """Set parameters, all or none of them; returns the former value of the first.

        Raises:
            MongoError: as setParameter is answered.
        """
        values: dict[str, Any] = {}
        for name, value in changes.items():
            row = PARAMETERS.get(name)
            if row is None:
                raise InvalidOptions(f"attempted to set unrecognized parameter [{name}], use help:true to see options ")
            if not row.runtime:
                raise InvalidOptions(f"not allowed to change [{name}] at runtime")
            values[name] = _component_changes(value) if name == "logComponentVerbosity" else row.read(value)
            if name in self._checks:
                self._checks[name](values[name])
        if not values:
            raise InvalidOptions("no option found to set, use help:true to see options ")
        former = self.shown(next(iter(values)))
        for name, value in values.items():
            if name == "logComponentVerbosity":
                self._set_components(value)
            else:
                self._values[name] = value
            for heard in self._listeners.get(name, ()):
                heard(self[name])
        return former

    def _set_components(self, changes: Mapping[str, int]) -> None:
        for path, verbosity in changes.items():
            if path:
                self._verbosities[path] = verbosity
            else:
                self._values["logLevel"] = max(verbosity, 0)

    def _component_verbosity(self) -> Document:
        tree: Document = {"verbosity": self._values["logLevel"]}
        for path, verbosity in self._verbosities.items():
            *folders, last = path.split(".")
            inner = tree
            for name in folders:
                inner = inner[name]
            inner[last] = {"verbosity": verbosity}
        return tree


_COMPONENTS: Final = (
    "accessControl",
    "assert",
    "command",
    "control",
    "executor",
    "geo",
    "globalIndex",
    "index",
    "network",
    "network.asio",
    "network.bridge",
    "network.connectionPool",
    "processHealth",
    "query",
    "query.optimizer",
    "query.ce",
    "query.rejected",
    "queryStats",
    "replication",
    "replication.election",
    "replication.heartbeats",
    "replication.initialSync",
    "replication.rollback",
    "sharding",
    "sharding.balancerCommandScheduler",
    "sharding.migration",
    "sharding.rangeDeleter",
    "sharding.shardingCatalogRefresh",
    "storage",
    "storage.recovery",
    "storage.journal",
    "storage.wt",
    "streams",
    "test",
    "tenantMigration",
    "write",
    "ftdc",
    "transaction",
    "resourceConsumption",
)
"""The components whose verbosity can be set, parents before children."""


def _component_changes(value: Any) -> dict[str, int]:
    """Verbosities by component, `` for the top, of a document given to setParameter."""
    if not isinstance(value, dict):
        raise TypeMismatch(f"log component verbosity is not a document, but {type_name(value)}")
    changes: dict[str, int] = {}
    _collect_components("", value, changes)
    return changes


def _collect_components(path: str, document: Document, changes: dict[str, int]) -> None:
    for name, value in document.items():
        if name == "verbosity":
            changes[path] = _verbosity(value)
            continue
        inner = f"{path}.{name}" if path else name
        if inner not in _COMPONENTS:
            raise BadValue(f"Invalid component name {inner}")
        if isinstance(value, dict):
            _collect_components(inner, value, changes)
        else:
            changes[inner] = _verbosity(value)


def _verbosity(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(f"Expected a number for verbosity, found {type_name(value)}")
    if not math.isfinite(value) or not -_INT32_MAX - 1 <= value <= _INT32_MAX:
        raise BadValue(f"verbosity {value} is out of range")
    return int(value)


def _from_text(kind: Kind, text: str) -> Any:
    try:
        match kind:
            case "bool":
                return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
            case "int" | "long":
                return int(text)
            case "double":
                return float(text)
            case "array":
                return [part.strip() for part in text.split(",") if part.strip()]
            case _:
                return text
    except (ValueError, KeyError):
        raise BadValue(f"not a {kind}: '{text}'") from None


def parameter_error(error: MongoError, name: str) -> str:
    """What to tell whoever starts the server with a parameter that cannot be."""
    return f"--setParameter {name}: {error.message}"
