"""Opens the long-lived objects, hands them out together, and closes them in reverse."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..catalog.catalog import Catalog
from ..catalog.merging import Merger
from ..catalog.packing import Packer
from ..common.clock import Clock, SystemClock, TestClock
from ..common.collation import Collation
from ..common.config import Config, ConfigError
from ..common.errors import BadValue, MongoError
from ..common.logs import LogMemory, open_logger
from ..common.values import Document, decode
from ..kernels import set_object_id_clock
from ..storage.lmdb_engine import LmdbEngine
from ..ttl.repair import repair_lifetimes
from .admission import RequestAdmission
from .authorization import check
from .cluster_parameters import ClusterParameters
from .context import Services
from .counters import Counters
from .cursors import CursorRegistry
from .expiry import open_monitor
from .fail_points import FailPoints
from .log_file import LogFile
from .logins import Logins
from .machine import memory_limit_mib
from .operations import OperationRegistry
from .parameters import Parameters, parameter_error
from .sessions import SessionRegistry
from .system_collections import open_system_collections
from .topology import Topology
from .users import UserStore
from .write_gate import WriteGate

VERSION_KEY: Final = b"featureCompatibilityVersion"
"""Where the store keeps what setFeatureCompatibilityVersion set."""

_HOUSEKEEPING_MS: Final = 4_000
_MEMORY_SECONDS: Final = 1.0


@asynccontextmanager
async def open_services(config: Config, *, clock: Clock | None = None) -> AsyncIterator[Services]:
    """Open everything that lasts as long as the server; the block is its life.

    Raises:
        ConfigError: a server parameter of the configuration cannot be.
        StorageError: the folder of the data cannot be opened.
    """
    clock = clock or (TestClock(SystemClock().now_ms()) if config.test_clock else SystemClock())
    parameters = _parameters(config)
    async with AsyncExitStack() as stack:
        if isinstance(clock, TestClock):
            _number_ids_by(clock, stack)
        memory = LogMemory()
        log_file = LogFile(config.logpath, append=config.logappend)
        stack.callback(log_file.close)
        memory.verbosity = parameters["logLevel"]
        parameters.on_change("logLevel", partial(setattr, memory, "verbosity"))
        logger = open_logger(log_file.write, clock, memory)
        stack.callback(logger.info, "Shutdown complete", component="CONTROL", id=20565)
        cursors = CursorRegistry(
            clock,
            lambda: int(parameters["cursorTimeoutMillis"]),
            lambda: int(parameters["bucketdMaxOpenCursors"]),
        )
        stack.callback(cursors.close_all)
        operations = OperationRegistry(clock)
        sessions = SessionRegistry(
            clock,
            lambda: int(parameters["localLogicalSessionTimeoutMinutes"]),
            lambda: int(parameters["maxSessions"]),
        )
        sessions.on_end += [cursors.kill_session, operations.kill_session]
        services = Services(
            config=config,
            clock=clock,
            logger=logger,
            log_memory=memory,
            parameters=parameters,
            counters=Counters(),
            operations=operations,
            sessions=sessions,
            cursors=cursors,
            topology=Topology(),
            started=clock.monotonic(),
            write_gate=WriteGate(),
            fail_points=FailPoints(),
            rotate_log=log_file.rotate,
            slow_ms=config.slow_ms,
            memory_bytes=memory_limit_mib() << 20,
        )
        services.admission = RequestAdmission(parameters, services.memory_bytes)
        if config.tls_mode != "disabled":
            # A server without TLS starts without loading it.
            from .tls import Tls

            tls = services.tls = Tls(config)
            parameters.fill("tlsMode", config.tls_mode)
            parameters.check_before("tlsMode", tls.check_mode)
            parameters.on_change("tlsMode", partial(setattr, tls, "mode"))
        else:
            parameters.check_before("tlsMode", _no_tls)
        _open_data(services, stack)
        await services.catalog.resume()
        await repair_lifetimes(services.catalog, logger)
        await open_system_collections(services)
        open_monitor(services)
        stack.push_async_callback(services.ttl.stop)
        merger = Merger(
            services.engine,
            services.catalog,
            lambda: services.buckets,
            lambda: bool(parameters["timeseriesMergeBuckets"]),
        )
        packer = Packer(
            services.engine,
            services.catalog,
            clock,
            lambda: services.buckets,
            logger,
            lambda: bool(parameters["timeseriesPackBuckets"]),
            merger,
        )
        services.extra["packer"] = packer
        packer.start()
        stack.push_async_callback(packer.stop)
        stack.callback(_watch_memory(services))
        housekeeping = asyncio.get_running_loop().create_task(_housekeeping(services))
        stack.push_async_callback(_stop_task, housekeeping)
        # What waits for the lock of fsync is finished, or the rest would wait for it.
        stack.callback(services.write_gate.give_up)
        yield services


def _no_tls(mode: Any) -> None:
    if mode != "disabled":
        raise BadValue(f"Illegal state transition for tlsMode, attempt to change from disabled to {mode}")


def _number_ids_by(clock: TestClock, stack: AsyncExitStack) -> None:
    """Let new ObjectIds begin with the time of the clock."""

    def tell() -> None:
        set_object_id_clock(clock.now_ms() if clock.frozen else None, clock.now_ms() - SystemClock().now_ms())

    clock.on_change.append(tell)
    tell()
    stack.callback(set_object_id_clock, None, 0)


def default_dbpath() -> str:
    """`/data/db`, as mongod has it, where that is there to be used; else `data/db` below the working folder."""
    usual = Path("/data/db")
    if usual.is_dir() and os.access(usual, os.W_OK | os.X_OK):
        return str(usual)
    return str(Path("data") / "db")


def _parameters(config: Config) -> Parameters:
    parameters = Parameters()
    parameters.fill("port", config.port)
    if config.verbosity:
        parameters.at_startup("logLevel", config.verbosity)
    if config.quiet:
        parameters.at_startup("quiet", True)
    for name, value in config.set_parameters:
        try:
            parameters.at_startup(name, value)
        except MongoError as error:
            raise ConfigError(parameter_error(error, name)) from error
    return parameters


def _open_data(services: Services, stack: AsyncExitStack) -> None:
    """Open the store and what stands on it."""
    path = Path(services.config.dbpath or default_dbpath())
    path.mkdir(parents=True, exist_ok=True)
    services.data_path = str(path)
    # What does not fit into memory goes beside the data: a system's own folder for it may be memory itself, or read-only.
    spilled = path / "_tmp"
    spilled.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(spilled)
    services.engine = LmdbEngine(path, map_bytes=services.config.map_bytes)
    stack.callback(services.engine.close)
    with services.engine.snapshot() as snapshot:
        version = snapshot.get("meta", VERSION_KEY)
    if version is not None:
        services.parameters.fill("featureCompatibilityVersion", decode(version))
    services.cluster_parameters = ClusterParameters(services.engine)
    services.catalog = Catalog(services.engine, partial_compiler=partial_filter)
    services.catalog.load()
    stack.push_async_callback(services.catalog.close)
    services.users = UserStore(services.engine, services.catalog)
    services.logins = Logins()
    if services.config.auth:
        services.authorize = check


def partial_filter(expression: Document, collation: Collation | None) -> Callable[[bytes], bool]:
    """Whether a raw document belongs into an index with this filter."""
    # The query language is loaded with the first index that needs it.
    from ..query.match.parse import parse_filter

    matches = parse_filter(expression, collator=collation).compile()
    return lambda raw: matches(decode(raw))


def _watch_memory(services: Services) -> Callable[[], None]:
    """Look at the memory every second, by the loop's clock; returns what ends it."""
    loop = asyncio.get_running_loop()
    handle: asyncio.TimerHandle

    def look() -> None:
        nonlocal handle
        services.admission.look_at_memory()
        handle = loop.call_later(_MEMORY_SECONDS, look)

    handle = loop.call_later(_MEMORY_SECONDS, look)
    return lambda: handle.cancel()


async def _housekeeping(services: Services) -> None:
    """Now and then: end idle cursors and sessions."""
    pause_ms = min(_HOUSEKEEPING_MS, services.parameters["logicalSessionRefreshMillis"])
    while True:
        await services.clock.sleep(pause_ms)
        try:
            services.cursors.kill_idle()
            services.sessions.expire()
        except Exception as error:
            # The next round may go better; without this one, everything else still does.
            services.logger.error("Housekeeping failed", component="CONTROL", exc_info=error)


async def _stop_task(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
