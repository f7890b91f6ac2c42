"""What the server counts while it works, for serverStatus and top."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class CompressionCounters:
    """Bytes in and out of one compressor."""

    compressor_in: int = 0
    compressor_out: int = 0
    decompressor_in: int = 0
    decompressor_out: int = 0


@dataclass(slots=True)
class TimeAndCount:
    """One cell of `top`."""

    time_us: int = 0
    count: int = 0

    def add(self, time_us: int) -> None:
        """One more, which took this long."""
        self.time_us += time_us
        self.count += 1


@dataclass(slots=True)
class NamespaceUse:
    """One row of `top`."""

    total: TimeAndCount = field(default_factory=TimeAndCount)
    read: TimeAndCount = field(default_factory=TimeAndCount)
    write: TimeAndCount = field(default_factory=TimeAndCount)
    by_kind: dict[str, TimeAndCount] = field(
        default_factory=lambda: {
            kind: TimeAndCount() for kind in ("queries", "getmore", "insert", "update", "remove", "commands")
        }
    )


@dataclass(slots=True)
class Counters:
    """Plain numbers; whoever does the work adds to them."""

    # opcounters: statements, not commands, for the writes.
    insert: int = 0
    query: int = 0
    update: int = 0
    delete: int = 0
    getmore: int = 0
    command: int = 0

    # metrics.document
    documents_returned: int = 0
    documents_inserted: int = 0
    documents_updated: int = 0
    documents_deleted: int = 0

    # metrics.queryExecutor
    keys_scanned: int = 0
    documents_scanned: int = 0

    # asserts
    asserts_regular: int = 0
    asserts_warning: int = 0
    asserts_message: int = 0
    asserts_user: int = 0

    # connections
    connections_current: int = 0
    connections_created: int = 0
    connections_rejected: int = 0
    connections_active: int = 0
    exhaust_hello: int = 0
    awaiting_topology_change: int = 0

    # transportSecurity, metrics.network
    tls_versions: Counter[str] = field(default_factory=Counter)
    tls_handshake_ms: float = 0.0
    tls_failed: int = 0

    # bucketd.limits: connections that were cut, by why.
    dropped_handshake: int = 0
    dropped_unfinished: int = 0
    dropped_strangers: int = 0
    dropped_deaf: int = 0
    dropped_oversized: int = 0
    # What waited or was refused, by why.
    reads_paused: int = 0
    strangers_delayed: int = 0
    cursors_refused: int = 0
    sessions_refused: int = 0

    # network
    bytes_in: int = 0
    bytes_out: int = 0
    physical_bytes_in: int = 0
    physical_bytes_out: int = 0
    requests: int = 0

    sorted_in_memory: int = 0
    sorted_on_disk: int = 0

    commands_run: Counter[str] = field(default_factory=Counter)
    commands_failed: Counter[str] = field(default_factory=Counter)
    commands_unknown: int = 0
    compression: dict[str, CompressionCounters] = field(
        default_factory=lambda: {name: CompressionCounters() for name in ("snappy", "zstd", "zlib")}
    )
    namespaces: dict[str, NamespaceUse] = field(default_factory=dict)
