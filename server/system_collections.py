"""The collections that every server has: what its data is compatible with, and when it was started."""

import os
import platform
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from bson import Int64

from ..catalog import documents
from ..catalog.catalog import Catalog
from ..catalog.namespaces import Namespace
from ..common.limits import SERVER_VERSION
from ..common.values import Document, encode
from ..storage.engine import Engine, Transaction
from .context import Services

_VERSIONS: Final = Namespace("admin", "system.version")
_SESSIONS: Final = Namespace("config", "system.sessions")
_STARTS: Final = Namespace("local", "startup_log")
_OPTIONS: Final[dict[Namespace, Document]] = {
    _VERSIONS: {},
    _SESSIONS: {},
    _STARTS: {"capped": True, "size": 10 * 1024 * 1024},
}
_COMPATIBILITY: Final = "featureCompatibilityVersion"


async def open_system_collections(services: Services) -> None:
    """Make what is missing, and write down that the server was started."""
    catalog: Catalog = services.catalog
    missing = [namespace for namespace in _OPTIONS if catalog.get(namespace) is None]
    if missing:
        await catalog.create_many(
            [(namespace, _OPTIONS[namespace], "collection", None, None) for namespace in missing], exist_ok=True
        )
    version = services.parameters[_COMPATIBILITY]["version"]
    start = encode(_start(services))
    engine: Engine = services.engine

    def work(transaction: Transaction) -> None:
        put_version(catalog, transaction, version)
        starts = catalog.collection_in(transaction, _STARTS)
        if starts is not None:
            documents.insert(transaction, starts, start)

    await engine.write(work)


def put_version(catalog: Catalog, transaction: Transaction, version: str) -> None:
    """Show in `admin.system.version` what the data is compatible with."""
    versions = catalog.collection_in(transaction, _VERSIONS)
    if versions is None:
        return
    raw = encode({"_id": _COMPATIBILITY, "version": version})
    found = documents.fetch_by_id(transaction, versions, _COMPATIBILITY)
    if found is None:
        documents.insert(transaction, versions, raw)
    elif found[1] != raw:
        documents.replace(transaction, versions, *found, raw)


def _start(services: Services) -> Document:
    now_ms = services.clock.now_ms()
    host = platform.node()
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    local = moment.astimezone(timezone(timedelta(seconds=time.localtime(now_ms // 1000).tm_gmtoff)))
    return {
        "_id": f"{host}-{now_ms}",
        "hostname": host,
        "startTime": moment,
        "startTimeLocal": local.strftime("%a %b %d %H:%M:%S.%f")[:-3],
        "cmdLine": services.config.parsed(),
        "pid": Int64(os.getpid()),
        "buildinfo": {"version": SERVER_VERSION, "sysInfo": sys.platform},
    }
