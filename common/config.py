"""Every setting of the server, in one table: its default, its names (as flag, in YAML, in the environment) and its use.

The same value can come from four places, and the later one wins: default, file of `--config`, environment, flag.
What can change while the server runs is a server parameter (`--setParameter`), not a setting.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

ENVIRONMENT_PREFIX: Final = "BUCKETD_"


class ConfigError(Exception):
    """A setting that does not exist, or with a value that it cannot have."""


def _whole_number(text: Any) -> int:
    if isinstance(text, bool):
        raise ValueError("not a whole number")
    return int(text)


def _truth(text: Any) -> bool:
    if isinstance(text, bool):
        return text
    known = {"true": True, "1": True, "yes": True, "on": True, "enabled": True}
    known |= {"false": False, "0": False, "no": False, "off": False, "disabled": False}
    try:
        return known[str(text).lower()]
    except KeyError:
        raise ValueError("not true or false") from None


def _names(text: Any) -> tuple[str, ...]:
    parts = text if isinstance(text, list | tuple) else str(text).split(",")
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _compressors(text: Any) -> tuple[str, ...]:
    names = _names(text)
    if names == ("disabled",):
        return ()
    for name in names:
        if name not in ("snappy", "zlib", "zstd"):
            raise ValueError(f"no such compressor: {name}")
    return names


_TLS_MODES: Final = ("disabled", "allowTLS", "preferTLS", "requireTLS")


def _tls_mode(text: Any) -> str:
    if text not in _TLS_MODES:
        raise ValueError(f"expected one of {', '.join(_TLS_MODES)}, not '{text}'")
    return str(text)


def _tls_versions(text: Any) -> tuple[str, ...]:
    names = tuple(name for name in _names(text) if name.lower() != "none")
    for name in names:
        if name.upper() not in ("TLS1_0", "TLS1_1", "TLS1_2", "TLS1_3"):
            raise ValueError(f"no such version of TLS: {name}")
    return names


def _pairs(text: Any) -> tuple[tuple[str, Any], ...]:
    if isinstance(text, Mapping):
        return tuple(text.items())
    pairs = []
    for part in text if isinstance(text, list | tuple) else _names(text):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ValueError(f"expected name=value, not '{part}'")
        pairs.append((name, value))
    return tuple(pairs)


def _setting(
    default: Any,
    read: Callable[[Any], Any],
    summary: str,
    *,
    flag: str,
    yaml: str,
    low: int | None = None,
    high: int | None = None,
) -> Any:
    """One row of the table. `flag` is the option without dashes, `yaml` the dotted path in the file of `--config`."""
    return field(
        default=default,
        metadata={"read": read, "summary": summary, "flag": flag, "yaml": yaml, "low": low, "high": high},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How the server was asked to run."""

    port: int = _setting(
        27017, _whole_number, "TCP port; 0 takes a free one.", flag="port", yaml="net.port", low=0, high=65535
    )
    bind_ip: tuple[str, ...] = _setting(
        ("localhost",), _names, "Addresses to listen on, separated by commas.", flag="bind_ip", yaml="net.bindIp"
    )
    bind_ip_all: bool = _setting(False, _truth, "Listen on every address.", flag="bind_ip_all", yaml="net.bindIpAll")
    ipv6: bool = _setting(False, _truth, "Listen on IPv6 as well.", flag="ipv6", yaml="net.ipv6")
    max_connections: int = _setting(
        65536,
        _whole_number,
        "Connections at one time; those beyond it are refused.",
        flag="maxConns",
        yaml="net.maxIncomingConnections",
        low=1,
    )
    unix_socket_prefix: str = _setting(
        "",
        str,
        "Folder of a Unix domain socket `mongodb-<port>.sock`; empty for none.",
        flag="unixSocketPrefix",
        yaml="net.unixDomainSocket.pathPrefix",
    )
    compressors: tuple[str, ...] = _setting(
        ("snappy", "zstd", "zlib"),
        _compressors,
        "Compressors to agree upon with clients, or `disabled`.",
        flag="networkMessageCompressors",
        yaml="net.compression.compressors",
    )
    in_flight_bytes_max: int = _setting(
        512 * 1024 * 1024,
        _whole_number,
        "Bytes of requests that are read and not yet answered, over all connections; beyond it nothing more is read.",
        flag="maxInFlightBytes",
        yaml="net.maxInFlightBytes",
        low=48_000_000,
    )
    in_flight_bytes_per_connection_max: int = _setting(
        128 * 1024 * 1024,
        _whole_number,
        "The same for one connection.",
        flag="maxInFlightBytesPerConnection",
        yaml="net.maxInFlightBytesPerConnection",
        low=48_000_000,
    )
    dbpath: str = _setting(
        "",
        str,
        "Folder of the data. Default: /data/db where it exists and is writable, else ./data/db, which is made.",
        flag="dbpath",
        yaml="storage.dbPath",
    )
    map_bytes: int = _setting(
        1 << 40,
        _whole_number,
        "Address space set aside for the store; takes no disk until it is used.",
        flag="mapBytes",
        yaml="storage.mapBytes",
        low=1 << 20,
    )
    logpath: str = _setting(
        "", str, "File that log lines go to; empty for standard output.", flag="logpath", yaml="systemLog.path"
    )
    logappend: bool = _setting(
        False,
        _truth,
        "Append to the file of --logpath instead of starting it anew.",
        flag="logappend",
        yaml="systemLog.logAppend",
    )
    quiet: bool = _setting(False, _truth, "Log less.", flag="quiet", yaml="systemLog.quiet")
    verbosity: int = _setting(
        0, _whole_number, "How much to log, 0 to 5.", flag="verbosity", yaml="systemLog.verbosity", low=0, high=5
    )
    slow_ms: int = _setting(
        100,
        _whole_number,
        "Operations that take longer, in milliseconds, are logged.",
        flag="slowms",
        yaml="operationProfiling.slowOpThresholdMs",
    )
    pid_file: str = _setting(
        "", str, "File to write the process id to.", flag="pidfilepath", yaml="processManagement.pidFilePath"
    )
    auth: bool = _setting(False, _truth, "Clients must log in.", flag="auth", yaml="security.authorization")
    tls_mode: str = _setting(
        "disabled",
        _tls_mode,
        "disabled, allowTLS, preferTLS (both take plain connections too) or requireTLS.",
        flag="tlsMode",
        yaml="net.tls.mode",
    )
    tls_certificate_key_file: str = _setting(
        "",
        str,
        "PEM file with the server's certificate and its key.",
        flag="tlsCertificateKeyFile",
        yaml="net.tls.certificateKeyFile",
    )
    tls_certificate_key_password: str = _setting(
        "",
        str,
        "Password of the key.",
        flag="tlsCertificateKeyFilePassword",
        yaml="net.tls.certificateKeyFilePassword",
    )
    tls_ca_file: str = _setting(
        "", str, "PEM file of the authorities that sign clients' certificates.", flag="tlsCAFile", yaml="net.tls.CAFile"
    )
    tls_crl_file: str = _setting(
        "", str, "PEM file with the certificates that were revoked.", flag="tlsCRLFile", yaml="net.tls.CRLFile"
    )
    tls_allow_without_certificates: bool = _setting(
        False,
        _truth,
        "Clients need not show a certificate; one that they show must still be good.",
        flag="tlsAllowConnectionsWithoutCertificates",
        yaml="net.tls.allowConnectionsWithoutCertificates",
    )
    tls_disabled_protocols: tuple[str, ...] = _setting(
        (),
        _tls_versions,
        "Versions not to speak: TLS1_2 or TLS1_3; those before 1.2 are never spoken.",
        flag="tlsDisabledProtocols",
        yaml="net.tls.disabledProtocols",
    )
    set_parameters: tuple[tuple[str, Any], ...] = _setting(
        (), _pairs, "A server parameter, name=value; may be given often.", flag="setParameter", yaml="setParameter"
    )
    test_clock: bool = _setting(
        False,
        _truth,
        "Time stands still and is set, advanced and let run by the admin command testClock; for tests.",
        flag="test-clock",
        yaml="bucketd.testClock",
    )

    def __post_init__(self) -> None:
        for row in fields(self):
            low, high = row.metadata["low"], row.metadata["high"]
            value = getattr(self, row.name)
            if (low is not None and value < low) or (high is not None and value > high):
                beyond = f"less than {low}" if low is not None and value < low else f"more than {high}"
                raise ConfigError(f"--{row.metadata['flag']} may not be {beyond}: {value}")

    def parsed(self) -> dict[str, Any]:
        """The settings that differ from their defaults, nested as in YAML: `parsed` of getCmdLineOpts."""
        document: dict[str, Any] = {}
        for row in fields(self):
            value = getattr(self, row.name)
            if value == row.default:
                continue
            *folders, last = row.metadata["yaml"].split(".")
            inner = document
            for name in folders:
                inner = inner.setdefault(name, {})
            inner[last] = _shown(row.name, value)
        return document


def _shown(name: str, value: Any) -> Any:
    if name == "set_parameters":
        return dict(value)
    if name == "tls_certificate_key_password":
        return "<password>"
    if name == "auth":
        return "enabled"
    return ",".join(value) if isinstance(value, tuple) else value


SETTINGS: Final[Mapping[str, "Field[Any]"]] = {row.name: row for row in fields(Config)}
"""Every setting by its name."""

_WITHOUT_EFFECT: Final = (
    "net.compression",
    "net.unixDomainSocket.enabled",
    "net.wireObjectCheck",
    "processManagement.timeZoneInfo",
    "storage.directoryPerDB",
    "storage.engine",
    "storage.journal",
    "storage.wiredTiger",
    "systemLog.destination",
    "systemLog.timeStampFormat",
)
"""Paths that stand in the files of mongod and mean nothing here: read over, with all below them."""


def config_from(document: Mapping[str, Any], environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """The settings from the document of `--config`, the environment, and flags by the name of the setting.

    Raises:
        ConfigError: a setting of the document is unknown, or a value cannot be.
    """
    values: dict[str, Any] = {}
    by_path = {row.metadata["yaml"]: row for row in SETTINGS.values()}
    for path, value in _leaves(document, tuple(by_path)):
        row = by_path.get(path)
        if row is not None:
            values[row.name] = _read(row, value, f"{path} of the configuration file")
        elif not any(path == known or path.startswith(known + ".") for known in _WITHOUT_EFFECT):
            raise ConfigError(f"Unrecognized option: {path}")
    for row in SETTINGS.values():
        name = ENVIRONMENT_PREFIX + row.name.upper()
        if environment.get(name):
            values[row.name] = _read(row, environment[name], name)
        if flags.get(row.name) is not None:
            given = _read(row, flags[row.name], f"--{row.metadata['flag']}")
            # Parameters add up; a flag names one of them, and leaves the others of the file alone.
            values[row.name] = (*values.get(row.name, ()), *given) if row.name == "set_parameters" else given
    return Config(**values)


def _leaves(document: Mapping[str, Any], whole: Sequence[str], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted paths and values of a nested document; the paths in `whole` are not taken apart."""
    found: list[tuple[str, Any]] = []
    for name, value in document.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path not in whole:
            found.extend(_leaves(value, whole, path + "."))
        else:
            found.append((path, value))
    return found


def _read(row: "Field[Any]", value: Any, place: str) -> Any:
    try:
        return row.metadata["read"](value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{place}: {error}") from error
