"""What a command may reach: the services of the server, the client that asks, and the request with its operation."""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..catalog.namespaces import Namespace
from ..common.clock import Clock
from ..common.config import Config
from ..common.logs import LogMemory
from ..common.values import Document, decode
from ..protocol.documents import array_documents, split_documents
from .counters import Counters
from .cursors import CursorRegistry
from .generic_arguments import GenericArguments
from .index_filters import IndexFilters
from .operations import Operation, OperationRegistry
from .parameters import Parameters
from .sessions import SessionRegistry
from .topology import Topology
from .write_gate import WriteGate

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from .tls import Tls, TlsPeer

SectionProvider = Callable[[], Document]


@dataclass(slots=True, kw_only=True)
class Services:
    """The long-lived objects, opened by `services.open_services` and closed in reverse."""

    config: Config
    clock: Clock
    logger: "FilteringBoundLogger"
    parameters: Parameters
    counters: Counters
    operations: OperationRegistry
    sessions: SessionRegistry
    cursors: CursorRegistry
    topology: Topology
    started: float
    """On the clock's monotonic scale."""
    log_memory: LogMemory
    write_gate: WriteGate
    rotate_log: Callable[[], None] = lambda: None
    data_path: str = ""
    """The folder of the data."""
    engine: Any = None
    catalog: Any = None
    buckets: Any = None
    ttl: Any = None
    cluster_parameters: Any = None
    index_filters: IndexFilters = field(default_factory=IndexFilters)
    plan_cache: Any = None
    """Which plans won (`query.plan.plan_cache`); made with the first of them."""
    explaining: bool = False
    """Whether plans are made to be shown: they are all tried, and none is remembered."""
    fail_points: Any = None
    on_drop: list[Callable[[Namespace], object]] = field(default_factory=list)
    """Told the name of each collection and view that dropDatabase took away."""
    commands: Mapping[str, Any] = field(default_factory=dict)
    """The command table, by every name (set by whoever starts the server; `commands.table.COMMANDS`)."""
    status_sections: dict[str, SectionProvider] = field(default_factory=dict)
    """Sections of serverStatus that others contribute, by name: `services.status_sections["bucketCatalog"] = …`."""
    metric_sections: dict[str, SectionProvider] = field(default_factory=dict)
    """The same for sub-documents of serverStatus' `metrics`, e.g. `ttl`."""
    request_shutdown: Callable[[], None] = lambda: None
    """Ask the listener to stop in good order."""
    users: Any = None
    admission: Any = None
    """Which requests are let in."""
    establishment: Any = None
    """Which connections are let in."""
    logins: Any = None
    """What logins were tried."""
    tls: "Tls | None" = None
    """Certificates and the mode of TLS, where the server speaks it."""
    authorize: "Callable[[Services, Client, str, bool, Request], None] | None" = None
    """`authorization.check`, where clients must log in."""
    connections_max: int = 0
    """How many connections there may be at one time."""
    clients: "dict[int, Client]" = field(default_factory=dict)
    """Connected clients by connection id."""
    slow_ms: int = 100
    """What takes longer is logged; `profile` changes it."""
    memory_bytes: int = 1 << 30
    """What the machine, or a control group, gives."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Objects of parts that only some commands know (locks of fsync, profile levels …), by name."""


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """One connection, as far as commands may know it."""

    id: int
    peer: str
    """`address:port` of the client, as whatsmyuri tells it."""
    local: str
    connected_ms: int
    metadata: Document | None = None
    app_name: str = ""
    compressors: tuple[str, ...] = ()
    """What both sides speak, in the client's order."""
    uuid: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    said_hello: bool = False
    user: tuple[str, str] | None = None
    """Name and database of the user who logged in."""
    tls: "TlsPeer | None" = None
    """Who is at the other end, where the connection is encrypted."""
    operation: Operation | None = None
    """What it waits for at the moment."""
    abort: Callable[[], None] = lambda: None
    """Cut the connection."""
    entry: "asyncio.Future[None] | None" = None
    """Done when its turn has come, where connections come faster than they may."""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Context:
    """What a command may reach. Take what you need out of it before you call on."""

    services: Services
    client: Client


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One command as it came in; `generic` holds the arguments that every command accepts, already checked."""

    name: str
    """As the client spelled it, which may be an alias."""
    database: str
    body: Document
    """The decoded body section. Documents of document sequences are not in it: see `raw_documents`."""
    raw: bytes
    """The body section as raw BSON."""
    operation: Operation
    generic: GenericArguments
    sequences: Mapping[str, bytes] = field(default_factory=dict)
    """Document sequences by identifier: raw documents one after another."""
    acknowledged: bool = True
    """False where the client wants no reply (moreToCome)."""
    exhaust_allowed: bool = False
    """The client takes several replies: a command that has more may set `more_to_come`."""
    more_to_come: bool = False
    """Set by the command while it runs: send this reply, and run the same request once more."""

    @property
    def value(self) -> Any:
        """The value of the command's own field: `"readings"` of `{find: "readings"}`."""
        return self.body[self.name]

    def has(self, name: str) -> bool:
        """Whether the field is there, in the body or as a document sequence."""
        return name in self.body or name in self.sequences

    def raw_sequence(self, name: str) -> bytes | None:
        """The documents of the field one after another in one buffer, where they came as a document sequence."""
        return self.sequences.get(name)

    def raw_documents(self, name: str) -> list[bytes]:
        """Each document of the field as raw BSON, however it was sent; empty where the field is absent.

        Raises:
            TypeMismatch: the field is no array of documents.
        """
        sequence = self.sequences.get(name)
        if sequence is not None:
            return split_documents(sequence)
        if self.body.get(name) is None:
            return []
        return array_documents(self.raw, name, f"{self.name}.{name}")

    def documents(self, name: str) -> list[Document]:
        """The same, decoded."""
        return [decode(raw) for raw in self.raw_documents(name)]
