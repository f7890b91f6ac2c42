"""Inserts of measurements whose command is one that came before: answered without a task, a future or a parse of their own.

Whoever inserts sends the same command again and again, and only the documents differ. A command that went the long way
through the dispatcher is remembered by its bytes; the next one of the same bytes is checked against whatever can have
changed since, its measurements are placed at once, and its reply is sent by whoever ends the commit. Where anything is
out of the ordinary it goes the long way again, which also words every refusal.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..catalog.namespaces import Namespace
from ..common.errors import MongoError
from ..protocol.framing import OpCode
from ..protocol.messages import Message
from .context import Context, Request
from .operations import Operation

if TYPE_CHECKING:
    from .commands.base import Command

_INT32: Final = struct.Struct("<i")
_BEGINNING: Final = struct.pack("<iIB", OpCode.MSG, 0, 0)
"""From the kind of a message on: no flags, and its body first."""
_BEGINNING_AT: Final = 12
_BODY_AT: Final = _BEGINNING_AT + len(_BEGINNING)
_IDENTIFIER: Final = b"documents\0"
_FORMS_MAX: Final = 2000
_BODY_BYTES_MAX: Final = 1024
_BODY_FIELDS: Final = frozenset(
    {
        "$db", "apiDeprecationErrors", "apiStrict", "apiVersion", "bypassDocumentValidation", "comment", "insert", "lsid",
        "ordered", "writeConcern",
    }
)  # fmt: skip
_REPLY: Final = struct.Struct("<i3si4sdB")


@dataclass(frozen=True, slots=True)
class _Form:
    """A command that may come again."""

    command: "Command"
    request: Request
    """Without its documents."""
    namespace: Namespace


class PlainInserts:
    """The commands that are remembered, and how requests are answered by them."""

    def __init__(
        self,
        failed: Callable[[Context, str, Exception], bytes],
        account: Callable[[Context, "Command | None", Operation], None],
    ) -> None:
        """What the dispatcher has for every command: the reply that tells a failure, and the counting of what was done."""
        self._failed = failed
        self._account = account
        self._forms: dict[bytes, _Form] = {}

    def learn(self, context: Context, command: "Command", request: Request, message: Message) -> None:
        """Remember the command of a request that went well, if it is one that can be answered here."""
        body, generic = request.body, request.generic
        concern = generic.write_concern
        if (
            message.flags
            or message.sequences.keys() != {"documents"}
            or len(message.body) > _BODY_BYTES_MAX
            or not body.keys() <= _BODY_FIELDS
            or (concern is not None and not concern.acknowledged)
        ):
            return
        if len(self._forms) >= _FORMS_MAX:
            self._forms.clear()
        operation = Operation(0, context.services.clock)
        operation.namespace = request.operation.namespace
        kept = Request(
            name=request.name,
            database=request.database,
            body=body,
            raw=request.raw,
            operation=operation,
            generic=generic,
            sequences={"documents": b""},
        )
        namespace = Namespace(request.database, request.value)
        self._forms[message.body] = _Form(command, kept, namespace)

    def begin(self, context: Context, raw: bytes, answered: Callable[[bytes], object]) -> bool:
        """Begin to answer a message; `answered` gets the body of the reply, after this has returned.

        Returns:
            False, and nothing was done, where it goes the long way.
        """
        if not self._forms or not raw.startswith(_BEGINNING, _BEGINNING_AT) or len(raw) < _BODY_AT + _INT32.size:
            return False
        sequence_at: int = _BODY_AT + _INT32.unpack_from(raw, _BODY_AT)[0]
        form = self._forms.get(raw[_BODY_AT:sequence_at])
        documents_at = sequence_at + 1 + _INT32.size + len(_IDENTIFIER)
        if (
            form is None
            or len(raw) <= documents_at
            or raw[sequence_at] != 1
            or _INT32.unpack_from(raw, sequence_at + 1)[0] != len(raw) - sequence_at - 1
            or not raw.startswith(_IDENTIFIER, sequence_at + 1 + _INT32.size)
            or not _is_let_in(context, form)
        ):
            return False
        # It came with the kernels, which a server loads after it has begun to listen.
        from ..timeseries.insert import begin_measurements

        services = context.services
        insert = _Insert(self, context, form, services.operations.begin(), answered)
        try:
            insert.count = begin_measurements(services, form.namespace, raw, documents_at, insert.told)
        except Exception as error:
            # What it is, is told in one place, and later, as whoever asked expects.
            insert.note_begun()
            asyncio.get_running_loop().call_soon(insert.told, error)
            return True
        if not insert.count:
            services.operations.end(insert.operation)
            return False
        insert.note_begun()
        return True

    def end(self, insert: "_Insert", error: Exception | None) -> bytes:
        """Count what was done; returns the reply."""
        context = insert.context
        services = context.services
        services.operations.end(insert.operation)
        if context.client.operation is insert.operation:
            context.client.operation = None
        if error is None:
            services.counters.insert += insert.count
            services.counters.documents_inserted += insert.count
            reply = _REPLY.pack(_REPLY.size, b"\x10n\0", insert.count, b"\x01ok\0", 1.0, 0)
        else:
            reply = self._failed(context, insert.form.command.name, error)
        self._account(context, insert.form.command, insert.operation)
        return reply


class _Insert:
    """One request that is being answered."""

    __slots__ = ("_answered", "_owner", "context", "count", "form", "operation")

    def __init__(
        self,
        owner: PlainInserts,
        context: Context,
        form: _Form,
        operation: Operation,
        answered: Callable[[bytes], object],
    ) -> None:
        self._owner = owner
        self._answered = answered
        self.context = context
        self.form = form
        self.count = 0
        self.operation = operation
        operation.client = context.client

    def note_begun(self) -> None:
        """It does not go the long way: let others see it."""
        form, operation = self.form, self.operation
        self.context.services.counters.commands_run[form.command.name] += 1
        operation.database, operation.command = form.request.database, form.request.body
        operation.namespace = form.request.operation.namespace
        operation.kind, operation.writes = form.command.op, True
        operation.lsid = form.request.generic.lsid
        self.context.client.operation = operation

    def told(self, error: Exception | None) -> None:
        """The measurements are durable, or will not be."""
        self._answered(self._owner.end(self, error))


def _is_let_in(context: Context, form: _Form) -> bool:
    """Whether nothing that can change between two requests stands in the way of this one."""
    services, client = context.services, context.client
    generic = form.request.generic
    if (
        services.admission.limited
        or services.write_gate.closed
        or services.fail_points.active
        or ("profile" in services.extra and services.extra["profile"].get(form.request.database))
        or (generic.api_version is None and services.parameters["requireApiVersion"])
    ):
        return False
    try:
        if services.authorize is not None:
            services.authorize(services, client, form.command.name, form.command.needs_login, form.request)
        if generic.lsid is not None and (services.authorize is None or client.user is not None):
            services.sessions.use(generic.lsid, client.user)
    except MongoError:
        return False
    return True
