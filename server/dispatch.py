"""Request to command to reply: the one place where failures become replies."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..common.errors import (
    APIStrictError,
    BSONObjectTooLarge,
    CommandNotFound,
    DataCorruptionDetected,
    FileStreamFailed,
    IDLDuplicateField,
    InternalError,
    InvalidBSON,
    InvalidNamespace,
    InvalidOptions,
    Location,
    MongoError,
    OutOfDiskSpace,
    Overflow,
    TooManyLogicalSessions,
    TypeMismatch,
    Unauthorized,
)
from ..common.limits import BSON_DEPTH_MAX, MESSAGE_BYTES_MAX
from ..common.values import Document, decode, encode, is_string, type_name
from ..kernels import document_shape
from ..protocol.documents import elements
from ..protocol.messages import Message
from ..protocol.replies import Reply, success
from ..storage.errors import Corrupted, DiskFailed, StorageError, StoreFull
from .commands.base import Command
from .context import Context, Request
from .counters import NamespaceUse
from .generic_arguments import check_read_concern, parse_generic_arguments
from .operations import Operation
from .plain_inserts import PlainInserts
from .profiler import wants, write_down

_NO_DATABASE_CHARACTERS: Final = frozenset('/\\. "$\0')
_DATABASE_BYTES_MAX: Final = 63
_API_MANUAL: Final = "https://dochub.mongodb.org/core/manual-versioned-api"

_NOT_HELD_BACK: Final = frozenset({"abortTransaction", "commitTransaction", "endSessions"})
"""Commands that take a writeConcern and change no data: the lock of fsync does not stop them."""

_SILENT_WITHOUT_CONCERN: Final = frozenset({"insert", "update", "delete", "bulkWrite"})
"""With `w: 0` they answer that they ran, and not what came of it."""

_TOP_KINDS: Final = {
    "query": "queries",
    "getmore": "getmore",
    "insert": "insert",
    "update": "update",
    "remove": "remove",
    "command": "commands",
}


@dataclass(slots=True)
class Answer:
    """The reply to one request."""

    body: Reply
    """Raw BSON."""
    name: str = ""
    """The command, as far as it could be read."""
    more_to_come: bool = False
    """Run the same request again, and send its reply too."""


class Dispatcher:
    """Finds the command of a request, runs it, and turns whatever comes of it into a reply.

    It begins with the few commands of a first contact, so that the server can listen before all the others are loaded.
    """

    def __init__(self, first_commands: Mapping[str, Command]) -> None:
        self._commands = first_commands
        self._completed: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        self.plain_inserts = PlainInserts(self._failure, _account)

    def complete(self, commands: Mapping[str, Command]) -> None:
        """All commands are there; requests for others than the first have waited for it."""
        self._commands = commands
        if self._completed is not None:
            self._completed.set_result(None)
            self._completed = None

    async def answer(self, context: Context, message: Message, *, legacy_database: str | None = None) -> Answer:
        """The reply to a request. `legacy_database` is that of an OP_QUERY, whose body has no `$db`."""
        services = context.services
        operation = services.operations.begin()
        operation.client = context.client
        context.client.operation = operation
        answer = Answer(b"")
        command: Command | None = None
        failed: MongoError | None = None
        try:
            body = _decode_body(message.body)
            _check_sequences(message, body)
            answer.name = next(iter(body), "")
            database = legacy_database if legacy_database is not None else _database(body)
            _check_database_name(database)
            operation.database, operation.command = database, body
            command = await self._command(answer.name)
            operation.kind = command.op
            operation.writes = command.writes
            request = _request(message, answer, database, body, operation)
            reply = await self._run(context, command, request, answer)
            answer.body = success(reply) if isinstance(reply, dict) else reply
            if len(answer.body) > MESSAGE_BYTES_MAX - 1024:
                raise BSONObjectTooLarge(f"the reply of {len(answer.body)} bytes exceeds what a message can hold")
            if command.name == "insert" and legacy_database is None:
                self.plain_inserts.learn(context, command, request, message)
        except Exception as error:
            failed = error if isinstance(error, MongoError) else None
            answer.body = self._failure(context, answer.name, error)
            answer.more_to_come = False
        finally:
            context.client.operation = None
            services.operations.end(operation)
        _account(context, command, operation)
        if command is not None and "profile" in services.extra and wants(services, command.name, operation):
            try:
                await write_down(context, command.name, operation, len(answer.body), failed)
            except (MongoError, StorageError) as error:
                # What was asked for is done, or has failed, whether or not it can be written down.
                services.logger.error("The profiler cannot write", component="COMMAND", exc_info=error)
        return answer

    async def _command(self, name: str) -> Command:
        command = self._commands.get(name)
        if command is None and self._completed is not None:
            await asyncio.shield(self._completed)
            command = self._commands.get(name)
        if command is None:
            raise CommandNotFound(f"no such command: '{name}'")
        return command

    async def _run(self, context: Context, command: Command, request: Request, answer: Answer) -> Document | Reply:
        services = context.services
        services.counters.commands_run[command.name] += 1
        generic = request.generic
        if services.admission.limited:
            services.admission.check(services, context.client, command.name)
        if not command.ignores_generic:
            if command.admin_only and request.database != "admin":
                raise Unauthorized(f"{command.name} may only be run against the admin database.")
            if services.authorize is not None:
                services.authorize(services, context.client, command.name, command.needs_login, request)
            _check_api(services.parameters["requireApiVersion"], command, request)
            if generic.read_concern is not None:
                check_read_concern(command.name, generic.read_concern, supported=command.reads, body=request.body)
            if generic.write_concern is not None and not command.writes:
                raise InvalidOptions(f"Command {command.name} does not support writeConcern")
            # Whoever has not logged in must not fill the table of sessions.
            if generic.lsid is not None and (services.authorize is None or context.client.user is not None):
                try:
                    services.sessions.use(generic.lsid, context.client.user)
                except TooManyLogicalSessions:
                    services.counters.sessions_refused += 1
                    raise
        if generic.help:
            return {"help": f"help for: {command.name} {command.summary}"}
        request.operation.lsid = generic.lsid
        limit_ms = generic.max_time_ms
        if not limit_ms and command.reads and "maxTimeMS" not in request.body:
            limit_ms = services.cluster_parameters.default_read_ms
        request.operation.limit_time(limit_ms)
        if services.write_gate.closed and command.name not in _NOT_HELD_BACK and command.changes_data(request):
            await services.write_gate.pass_through(request.operation)
        told: Document | None = None
        if services.fail_points.active:
            told = await services.fail_points.before(
                command.name, _namespace_of(request), context.client, request.operation
            )
        reply = await command.run(context, request)
        if told is not None:
            reply = {**(reply if isinstance(reply, dict) else decode(bytes(reply))), **told}
        answer.more_to_come = request.more_to_come and request.exhaust_allowed
        concern = generic.write_concern
        if concern is not None and not concern.acknowledged and command.name in _SILENT_WITHOUT_CONCERN:
            return {}
        return reply

    def _failure(self, context: Context, name: str, error: Exception) -> bytes:
        """The reply that tells whatever became of a command."""
        services = context.services
        counters = services.counters
        if isinstance(error, StorageError):
            services.logger.error("Storage failed", component="STORAGE", command=name, exc_info=error)
            error = in_wire_terms(error)
        elif not isinstance(error, MongoError):
            # A fault of ours: the log has the whole of it, the client its name.
            services.logger.error("Command failed", component="COMMAND", command=name, exc_info=error)
            counters.asserts_regular += 1
            error = InternalError(f"{type(error).__name__}: {error}")
        counters.asserts_user += 1
        if isinstance(error, CommandNotFound):
            counters.commands_unknown += 1
        elif name in self._commands:
            counters.commands_failed[self._commands[name].name] += 1
        return encode(error.reply())


def in_wire_terms(error: StorageError) -> MongoError:
    """The store's failures, as drivers know them."""
    match error:
        case StoreFull():
            return OutOfDiskSpace(str(error))
        case DiskFailed():
            return FileStreamFailed(str(error))
        case Corrupted():
            return DataCorruptionDetected(str(error))
        case _:
            return InternalError(f"{type(error).__name__}: {error}")


def failure_reply(error: MongoError) -> bytes:
    """The raw reply that tells an error of the protocol, before any command was known."""
    return encode(error.reply())


def _decode_body(raw: bytes) -> Document:
    try:
        fields, depth = document_shape(raw, BSON_DEPTH_MAX + 1)
    except ValueError as error:
        raise InvalidBSON(str(error)) from error
    if depth > BSON_DEPTH_MAX + 1:
        raise Overflow(f"BSONObj exceeds the maximum nested object depth: {BSON_DEPTH_MAX}")
    body = decode(raw)
    if fields != len(body):
        seen: set[str] = set()
        for _, name, _, _ in elements(raw):
            if name in seen:
                raise IDLDuplicateField(f"BSON field '{name}' is a duplicate field")
            seen.add(name)
    return body


def _database(body: Document) -> str:
    database = body.get("$db")
    if database is None:
        raise Location(40571, "OP_MSG requests require a $db argument")
    if not is_string(database):
        raise TypeMismatch(f"BSON field '$db' is the wrong type '{type_name(database)}', expected type 'string'")
    return database


def _check_database_name(name: str) -> None:
    if not name or len(name.encode()) > _DATABASE_BYTES_MAX or not _NO_DATABASE_CHARACTERS.isdisjoint(name):
        # `$external` holds users, no collections.
        if name == "$external":
            return
        raise InvalidNamespace(f"Invalid database name: '{name}'")


def _check_sequences(message: Message, body: Document) -> None:
    for name in message.sequences:
        if name in body:
            raise Location(40433, f"Duplicate field between body and document sequence {name}")


def _request(message: Message, answer: Answer, database: str, body: Document, operation: Operation) -> Request:
    return Request(
        name=answer.name,
        database=database,
        body=body,
        raw=message.body,
        operation=operation,
        generic=parse_generic_arguments(answer.name, body),
        sequences=message.sequences,
        acknowledged=message.wants_reply,
        exhaust_allowed=message.exhaust_allowed,
    )


def _namespace_of(request: Request) -> str:
    """The collection that a command names, as far as its own field is a name."""
    return f"{request.database}.{request.value}" if is_string(request.value) else request.database


def _check_api(required: bool, command: Command, request: Request) -> None:
    generic = request.generic
    if generic.api_version is None:
        if required and command.needs_login:
            raise Location(
                498870, "The apiVersion parameter is required, please configure your MongoClient's API version"
            )
    elif generic.api_strict and not command.in_api_version_1:
        raise APIStrictError(
            f"Provided apiStrict:true, but the command {command.name} is not in API Version 1. Information on "
            f"supported commands and migrations in API Version 1 can be found at {_API_MANUAL}"
        )


def _account(context: Context, command: Command | None, operation: Operation) -> None:
    """Count what was done, and log what took long."""
    services = context.services
    counters = services.counters
    elapsed_us = operation.elapsed_us()
    if command is None or command.op == "command":
        counters.command += 1
    elif command.op == "query":
        counters.query += 1
    elif command.op == "getmore":
        counters.getmore += 1
    if operation.namespace and command is not None:
        use = counters.namespaces.get(operation.namespace)
        if use is None:
            use = counters.namespaces[operation.namespace] = NamespaceUse()
        use.total.add(elapsed_us)
        (use.write if command.writes else use.read).add(elapsed_us)
        use.by_kind[_TOP_KINDS[command.op]].add(elapsed_us)
    if elapsed_us >= services.slow_ms * 1000 and not operation.waited:
        services.logger.info(
            "Slow query",
            component="COMMAND",
            id=51803,
            ctx=f"conn{context.client.id}",
            type=operation.kind,
            ns=operation.namespace or f"{operation.database}.$cmd",
            command=next(iter(operation.command), ""),
            planSummary=operation.plan_summary,
            durationMillis=elapsed_us // 1000,
        )
