"""What is going on: currentOp and its data for `$currentOp`, killOp, top, profile."""

from collections.abc import Iterator
from typing import Any, Final

from bson import DatetimeMS, Decimal128, Int64

from ...common.errors import BadValue, Location, NoSuchKey, Unauthorized
from ...common.values import Document, encode
from ..authorization import may
from ..context import Client, Context, Request, Services
from ..cursors import Cursor
from ..machine import host_name
from ..operations import Operation
from ..profiler import make_collection
from .arguments import Fields
from .base import Command
from .sessions import session_document

_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_SHOWN_COMMAND_BYTES: Final = 1024
_SECRETS: Final = frozenset({"createUser", "updateUser", "saslStart", "saslContinue", "authenticate"})
_PROFILE: Final = "profile"


def current_operations(
    services: Services,
    *,
    idle_connections: bool = False,
    idle_cursors: bool = False,
    truncate: bool = False,
    user: tuple[str, str] | None = None,
) -> Iterator[Document]:
    """A document for each operation that runs and, on demand, for each idle connection and cursor.

    With `user`, by name and database, those of this user alone.
    """
    for operation in services.operations:
        client = operation.client
        if user is not None and not (isinstance(client, Client) and client.user == user):
            continue
        yield _operation_document(services, operation, client if isinstance(client, Client) else None, truncate)
    if idle_connections:
        for client in services.clients.values():
            if client.operation is None and user in (None, client.user):
                yield {
                    "type": "op",
                    **_client_fields(services, client),
                    "active": False,
                    "currentOpTime": _iso_time(services),
                }
    if idle_cursors:
        for cursor in services.cursors:
            if not cursor.pinned and user in (None, cursor.user):
                yield _cursor_document(services, cursor)


class CurrentOp(Command):
    """`currentOp`: the operations that run."""

    name = "currentOp"
    summary = "The operations that run at the moment."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{inprog}`; whatever is not an option of the command filters its documents."""
        body = request.body
        wanted = {
            name: value
            for name, value in body.items()
            if name not in ("currentOp", "$all", "$ownOps", "$truncateOps", "comment", "lsid")
            and not (name.startswith("$") and name not in ("$or", "$and", "$nor", "$expr"))
        }
        # The query language is loaded with the first command that needs it.
        from ...query.match.parse import parse_filter

        matches = parse_filter(wanted).compile()
        return {
            "inprog": [
                document
                for document in current_operations(
                    context.services,
                    idle_connections=bool(body.get("$all")),
                    truncate=bool(body.get("$truncateOps")),
                    user=context.client.user if body.get("$ownOps") else None,
                )
                if matches(document)
            ]
        }


class KillOp(Command):
    """`killOp`: asks an operation to end."""

    name = "killOp"
    summary = "Interrupts a running operation."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer that it was tried, whether or not there is such an operation."""
        services, number = context.services, _operation_number(request.body)
        if services.config.auth:
            victim = next((operation.client for operation in services.operations if operation.opid == number), None)
            own = isinstance(victim, Client) and victim.user == context.client.user
            if not own and not may(services, context.client, "killop"):
                raise Unauthorized("not authorized on admin to execute command { killOp }")
        services.operations.kill(number)
        return {"info": "attempting to kill op"}


class Top(Command):
    """`top`: time and number of what was done to each collection since the start."""

    name = "top"
    summary = "Use of each collection."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{totals}`."""
        totals: Document = {"note": "all times in microseconds"}
        for namespace, use in sorted(context.services.counters.namespaces.items()):
            cells = {"total": use.total, "readLock": use.read, "writeLock": use.write, **use.by_kind}
            totals[namespace] = {
                name: {"time": Int64(cell.time_us), "count": Int64(cell.count)} for name, cell in cells.items()
            }
        return {"totals": totals}


class Profile(Command):
    """`profile`: what is written into `system.profile` of a database, and what the log calls slow."""

    name = _PROFILE
    summary = "Settings of the profiler."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the settings as they were."""
        services = context.services
        fields = Fields(request, known=("slowms", "sampleRate", "filter"))
        level = fields.take_whole_number(_PROFILE)
        slow_ms = fields.take_whole_number("slowms", default=None)
        rate = _sample_rate(fields)
        levels: dict[str, int] = services.extra.setdefault(_PROFILE, {})
        settings: Document = services.extra.setdefault("profile settings", {"sampleRate": 1.0})
        answer: Document = {
            "was": levels.get(request.database, 0),
            "slowms": services.slow_ms,
            "sampleRate": settings["sampleRate"],
        }
        if "filter" in settings:
            answer["filter"] = settings["filter"]
            answer["note"] = "When a filter expression is set, slowms and sampleRate are not used for profiling."
        changes: Document = {}
        if "filter" in request.body:
            changes["filter"] = _profile_filter(request.body["filter"])
        if 0 <= level <= 2:
            if level:
                await make_collection(services, request.database)
            levels[request.database] = level
        if slow_ms is not None:
            services.slow_ms = max(_INT32_MIN, min(slow_ms, _INT32_MAX))
        if rate is not None:
            settings["sampleRate"] = rate
        if "filter" in changes:
            settings.pop("filter", None)
            if changes["filter"] is not None:
                settings["filter"] = changes["filter"]
        return answer


def _sample_rate(fields: Fields) -> float | None:
    value = fields.take_any("sampleRate")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
        raise fields.wrong_type("sampleRate", value, "types '[long, int, decimal, double]'")
    rate = float(value.to_decimal()) if isinstance(value, Decimal128) else float(value)
    if not 0.0 <= rate <= 1.0:
        raise BadValue("'sampleRate' must be between 0.0 and 1.0 inclusive")
    return rate


def _profile_filter(value: Any) -> Document | None:
    """The filter in the form in which it is shown; None for `unset`."""
    if value == "unset" and isinstance(value, str):
        return None
    if not isinstance(value, dict):
        raise BadValue("Expected an object, or the string 'unset'.")
    from ...query.match.parse import parse_filter

    return parse_filter(value).serialize()


def _operation_number(body: Document) -> int:
    if "op" not in body:
        raise NoSuchKey('Missing expected field "op"')
    value = body["op"]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
        raise Fields(body, "killOp").wrong_type("op", value, "types '[long, int, decimal, double]'")
    number = value.to_decimal() if isinstance(value, Decimal128) else value
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        raise BadValue('Expected field "op" to have a value exactly representable as a 64-bit integer')
    if not _INT32_MIN <= number <= _INT32_MAX:
        raise Location(26823, "invalid op : " + str(int(number)) + ". Op ID cannot be represented with 32 bits")
    return int(number)


def _operation_document(services: Services, operation: Operation, client: Client | None, truncate: bool) -> Document:
    elapsed_us = operation.elapsed_us()
    command = dict(operation.command)
    if next(iter(command), "") in _SECRETS:
        command = {next(iter(command)): 1, "$db": operation.database}
    command.pop("speculativeAuthenticate", None)
    shown: Document = command
    if truncate and len(encode(command)) > _SHOWN_COMMAND_BYTES:
        shown = {"$truncated": str(command)[:_SHOWN_COMMAND_BYTES]}
        if "comment" in command:
            shown["comment"] = command["comment"]
    return {
        "type": "op",
        **_client_fields(services, client, operation.description),
        "active": True,
        "currentOpTime": _iso_time(services),
        "threaded": True,
        "opid": operation.opid,
        **({"lsid": session_document(operation.lsid)} if operation.lsid is not None else {}),
        "secs_running": Int64(elapsed_us // 1_000_000),
        "microsecs_running": Int64(elapsed_us),
        "op": operation.kind,
        "ns": operation.namespace or f"{operation.database}.$cmd",
        "redacted": False,
        "command": shown,
        **({"planSummary": operation.plan_summary} if operation.plan_summary is not None else {}),
        **({"killPending": True} if operation.killed else {}),
        "numYields": operation.yields,
        "locks": {},
        "waitingForLock": False,
        "lockStats": {},
        "waitingForFlowControl": False,
        "flowControlStats": {},
    }


def _client_fields(services: Services, client: Client | None, description: str = "internal") -> Document:
    host = f"{host_name()}:{services.parameters['port']}"
    if client is None:
        return {"host": host, "desc": description}
    return {
        "host": host,
        "desc": f"conn{client.id}",
        "connectionId": client.id,
        "client": client.peer,
        **({"appName": client.app_name} if client.app_name else {}),
        **({"clientMetadata": client.metadata} if client.metadata else {}),
        **({"effectiveUsers": [{"user": client.user[0], "db": client.user[1]}]} if client.user else {}),
    }


def _cursor_document(services: Services, cursor: Cursor) -> Document:
    return {
        "type": "idleCursor",
        "host": f"{host_name()}:{services.parameters['port']}",
        "ns": cursor.namespace,
        **({"lsid": session_document(cursor.lsid)} if cursor.lsid is not None else {}),
        "cursor": {
            "cursorId": Int64(cursor.id),
            "createdDate": DatetimeMS(cursor.opened_ms),
            "lastAccessDate": DatetimeMS(cursor.used_ms),
            "nDocsReturned": Int64(cursor.documents),
            "nBatchesReturned": Int64(cursor.batches),
            "noCursorTimeout": cursor.no_timeout,
            "tailable": cursor.tailable,
            "awaitData": cursor.await_data,
            "originatingCommand": cursor.command,
        },
    }


def _iso_time(services: Services) -> str:
    moment = DatetimeMS(services.clock.now_ms()).as_datetime()
    return moment.isoformat(timespec="milliseconds")
