"""The profiler: what was done in a database, written into its capped collection `system.profile`."""

import random
from typing import Final

from bson import DatetimeMS, Int64

from ..catalog import documents
from ..catalog.catalog import Catalog
from ..catalog.collections import Collection
from ..catalog.namespaces import Namespace
from ..common.errors import MongoError
from ..common.values import Document, encode
from ..storage.engine import Engine, Transaction
from .context import Context, Services
from .operations import Operation

COLLECTION: Final = "system.profile"
_BYTES: Final = 1024 * 1024
_COMMAND_BYTES_MAX: Final = 50 * 1024
_OPS: Final = {"find": "query", "getMore": "getmore", "insert": "insert", "update": "update", "delete": "remove"}
_SECRET: Final = frozenset({"authenticate", "createUser", "saslContinue", "saslStart", "updateUser", "copydbsaslstart"})
_NOT_PROFILED: Final = frozenset({"hello", "isMaster", "ismaster", "profile"})


def wants(services: Services, name: str, operation: Operation) -> bool:
    """Whether an operation has to be written down."""
    levels: dict[str, int] = services.extra.get("profile") or {}
    level = levels.get(operation.database, 0)
    if (
        level == 0
        or services.write_gate.closed
        or name in _NOT_PROFILED
        or operation.namespace.endswith(f".{COLLECTION}")
    ):
        return False
    if level > 1:
        return True
    settings: Document = services.extra.get("profile settings") or {}
    if "filter" in settings:
        return True
    slow = operation.elapsed_us() >= services.slow_ms * 1000 and not operation.waited
    return slow and random.random() < settings.get("sampleRate", 1.0)


async def make_collection(services: Services, database: str) -> Collection:
    """The collection of a database that the profiler writes into."""
    catalog: Catalog = services.catalog
    namespace = Namespace(database, COLLECTION)
    held = catalog.get(namespace)
    if held is not None:
        return held
    return await catalog.create(namespace, {"capped": True, "size": _BYTES}, indexes=(), exist_ok=True)


async def write_down(
    context: Context, name: str, operation: Operation, reply_bytes: int, error: MongoError | None
) -> None:
    """Put a document about an operation into the collection."""
    services = context.services
    row = _row(context, name, operation, reply_bytes, error)
    settings: Document = services.extra.get("profile settings") or {}
    if "filter" in settings:
        # The query language is loaded with the first command that needs it.
        from ..query.match.parse import parse_filter

        if not parse_filter(settings["filter"]).compile()(row):
            return
    raw = encode(row)
    namespace = (await make_collection(services, operation.database)).namespace
    catalog: Catalog = services.catalog
    engine: Engine = services.engine

    def work(transaction: Transaction) -> None:
        current = catalog.collection_in(transaction, namespace)
        if current is not None:
            documents.insert(transaction, current, raw)

    await engine.write(work)


def _row(context: Context, name: str, operation: Operation, reply_bytes: int, error: MongoError | None) -> Document:
    command: Document = dict(operation.command)
    if name in _SECRET:
        command = {name: 1, "$db": operation.database}
    elif len(encode(command)) > _COMMAND_BYTES_MAX:
        command = {"$truncated": str(command)[:_COMMAND_BYTES_MAX], "comment": command.get("comment")}
    row: Document = {
        "op": _OPS.get(name, "command"),
        "ns": operation.namespace or f"{operation.database}.$cmd",
        "command": command,
    }
    if operation.cursor_id:
        row["cursorid"] = Int64(operation.cursor_id)
    if error is not None:
        row |= {"ok": 0.0, "errMsg": error.message, "errName": error.code_name, "errCode": error.number}
    row |= {"numYield": operation.yields, "responseLength": reply_bytes, "protocol": "op_msg"}
    if operation.plan_summary is not None:
        row["planSummary"] = operation.plan_summary
    client = context.client
    user = client.user
    return {
        **row,
        "millis": operation.elapsed_us() // 1000,
        "ts": DatetimeMS(context.services.clock.now_ms()),
        "client": client.peer.rpartition(":")[0],
        "appName": client.app_name,
        "allUsers": [] if user is None else [{"user": user[0], "db": user[1]}],
        "user": "" if user is None else f"{user[0]}@{user[1]}",
    }
