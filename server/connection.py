"""One client: reads its messages, has each answered in order, and holds back what is too fast or too much.

Bytes come in on the protocol's callbacks and are cut into messages; one task a connection takes the messages in turn,
has them answered and writes the replies. Reading stops while messages wait, or while the server as a whole holds too
many bytes of requests; the task waits while the client does not read its replies.

Plain inserts of measurements do without the task: one is begun as it comes in and answered when its commit has ended, and what
came in behind it waits as long.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from ..common.errors import ClientDisconnect, InterruptedAtShutdown, MongoError
from ..common.limits import MESSAGE_BYTES_MAX
from ..protocol.compression import NEVER_COMPRESSED, Compressor, claimed_bytes, compress, decompress
from ..protocol.framing import BrokenStream, FrameReader, Header, OpCode, next_request_id
from ..protocol.legacy import NotACommand, build_query_failure, build_reply, parse_query
from ..protocol.messages import (
    Message,
    MessageFlag,
    build_message,
    closes_connection,
    flags_of,
    message_head,
    parse_message,
)
from ..protocol.replies import Reply
from .context import Context, Services
from .dispatch import Answer, Dispatcher, failure_reply

if TYPE_CHECKING:
    from .listener import Connections

_WAITING_MESSAGES_MAX: Final = 16
_LARGE_BYTES: Final = 64 * 1024
"""From here on a message needs room before it is read."""
_SLOW_BYTES: Final = 512 * 1024
"""From here on a message is compressed and decompressed beside the event loop."""
_WRITE_BUFFER_BYTES: Final = 1024 * 1024


class Connection(asyncio.Protocol):
    """The server's end of one socket."""

    def __init__(self, services: Services, dispatcher: Dispatcher, connections: "Connections") -> None:
        self._services = services
        self._dispatcher = dispatcher
        self._connections = connections
        self._reader = FrameReader()
        self._waiting: deque[bytes] = deque()
        self._plain: bytes | None = None
        """The plain insert that is being answered."""
        self._more: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self._reserved_bytes = 0
        self._wants_room = False
        self._waiting_bytes = 0
        self._guarded = services.authorize is not None
        self._spoke = False
        self._unfinished = False
        self._waiting_bytes_max = services.config.in_flight_bytes_per_connection_max
        self._ended = False
        self._lost = False
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._context: Context | None = None
        self._answering = False

    # The callbacks of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        # uvloop's transports have the methods of asyncio's, and not its classes.
        self._transport = transport = cast(asyncio.Transport, transport)
        client = self._connections.admit(self, transport)
        if client is None:
            self._lost = True
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        client.abort = self.abort
        self._connections.patience.connected(self)
        if self._guarded:
            self._reader.limit = self._services.parameters["preAuthMaximumMessageSizeBytes"]
        self._context = Context(services=self._services, client=client)
        self._task = asyncio.get_running_loop().create_task(self._serve(self._context))

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._lost:
            return
        self._services.counters.physical_bytes_in += len(data)
        try:
            messages = self._reader.feed(data)
        except BrokenStream as error:
            if self._reader.limit < MESSAGE_BYTES_MAX:
                self._services.counters.dropped_oversized += 1
            self._break(error)
            return
        if messages:
            size = sum(map(len, messages))
            self._waiting.extend(messages)
            self._waiting_bytes += size
            self._connections.in_flight_bytes += size
            if self._unfinished:
                self._unfinished = False
                self._release()
                self._connections.patience.finished(self)
            if self._more is not None and not self._more.done():
                self._go_on()
            if (
                len(self._waiting) > _WAITING_MESSAGES_MAX
                or self._waiting_bytes > self._waiting_bytes_max
                or self._connections.in_flight_is_full()
            ):
                self._pause()
        if self._reader.held_bytes:
            self._unfinished = True
            self._connections.patience.began(self)
            wanted = self._reader.wanted_bytes
            if wanted > _LARGE_BYTES and not self._reserved_bytes:
                self._reserve(wanted)

    def eof_received(self) -> bool:
        """The client sends nothing more. What it sent already is answered, in case that it still listens."""
        self._end_of_input()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self._lost = True
        self._end_of_input()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def pause_writing(self) -> None:
        """The client does not read what it is sent."""
        self._writable = asyncio.get_running_loop().create_future()
        self._connections.patience.deaf(self)

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
        self._connections.patience.heard(self)

    # For the listener.

    @property
    def held_bytes(self) -> int:
        """Bytes of a message that is not yet whole."""
        return self._reader.held_bytes

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._answering or self._plain is not None

    def drop(self, reason: str) -> None:
        """Cut the connection of a client that was waited for in vain."""
        self._break(BrokenStream(reason))

    def grant(self, size: int) -> None:
        """There is room for the message that it has begun to send."""
        self._reserved_bytes = size
        self._wants_room = False
        if self._reader.held_bytes:
            self._connections.patience.began(self)
        self.resume_reading()

    def abort(self) -> None:
        """Cut the connection; what waits is not run."""
        self._clear_waiting()
        if self._transport is not None:
            self._transport.abort()

    def close_when_idle(self) -> None:
        """Close once the request at hand is answered; one that waits for something is interrupted."""
        self._clear_waiting()
        self._stop_waiting()
        operation = self._context.client.operation if self._context is not None else None
        if operation is not None and operation.waited:
            operation.kill(InterruptedAtShutdown("interrupted at shutdown"))

    def resume_reading(self) -> None:
        """There is room for more."""
        if self._paused and not self._lost and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    async def closed(self) -> None:
        """Return when the last request was answered and the task has ended."""
        if self._task is not None:
            await asyncio.wait({self._task})

    # The task.

    async def _serve(self, context: Context) -> None:
        client = context.client
        try:
            if client.entry is not None:
                await client.entry
            while (message := await self._next()) is not None:
                self._answering = True
                stranger = self._guarded and client.user is None
                if stranger or not self._spoke:
                    self._spoke = True
                    self._connections.patience.spoke(self, stranger=stranger)
                try:
                    if stranger:
                        await self._connections.slow_down(client)
                    go_on = await self._process(context, message)
                finally:
                    self._answering = False
                    self._waiting_bytes -= len(message)
                    self._connections.finished(len(message))
                if not go_on:
                    break
                if stranger and client.user is not None:
                    self._reader.limit = MESSAGE_BYTES_MAX
                    self._connections.patience.spoke(self, stranger=False)
                self._read_on()
        except BrokenStream as error:
            self._break(error)
        except Exception as error:
            # Nothing that a client sends may come to this; whatever it was, others must not notice.
            self._services.logger.error(
                "Connection failed", component="NETWORK", ctx=f"conn{client.id}", exc_info=error
            )
        finally:
            self._clear_waiting()
            self._lost = True
            if self._transport is not None:
                self._transport.close()
            self._connections.dismiss(self, client)

    async def _next(self) -> bytes | None:
        """The next message that is no plain insert, once those before it are answered; None where no more will come."""
        while True:
            self._more = asyncio.get_running_loop().create_future()
            self._go_on()
            if not self._more.done():
                await self._more
            if self._plain is None:
                if self._waiting:
                    return self._waiting.popleft()
                if self._ended:
                    return None

    def _read_on(self) -> None:
        """Read again, where that was stopped and few messages wait."""
        if self._paused and len(self._waiting) <= _WAITING_MESSAGES_MAX // 2 and not self._wants_room:
            if self._connections.in_flight_is_full():
                self._connections.wait_for_room(self)
            else:
                self.resume_reading()

    # Plain inserts.

    def _go_on(self) -> None:
        """While the task waits: begin the next plain insert, or let the task go on where there is something else to do."""
        if self._plain is not None or (self._waiting and self._begin_plain_insert()):
            return
        if (self._waiting or self._ended) and self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _begin_plain_insert(self) -> bool:
        context = self._context
        if context is None or not self._spoke or self._writable is not None or self._lost:
            return False
        if self._guarded and context.client.user is None:
            return False
        raw = self._waiting[0]
        if not self._dispatcher.plain_inserts.begin(context, raw, self._plain_answered):
            return False
        self._plain = self._waiting.popleft()
        self._services.counters.requests += 1
        self._services.counters.bytes_in += len(raw)
        return True

    def _plain_answered(self, reply: bytes) -> None:
        """Send the reply to the plain insert that was under way, and go on."""
        raw, self._plain = self._plain, None
        assert raw is not None, "only what was begun is answered"
        message = build_message(reply, request_id=next_request_id(), response_to=Header.of(raw).request_id)
        counters = self._services.counters
        counters.bytes_out += len(message)
        self._waiting_bytes -= len(raw)
        self._connections.finished(len(raw))
        if not self._lost and self._transport is not None:
            counters.physical_bytes_out += len(message)
            self._transport.write(message)
        self._go_on()
        self._read_on()

    async def _process(self, context: Context, raw: bytes) -> bool:
        """Answer one message; False where the connection ends with it."""
        counters = self._services.counters
        counters.requests += 1
        header = Header.of(raw)
        if header.op_code != OpCode.COMPRESSED:
            return await self._process_plain(context, raw, header, None)
        claimed = claimed_bytes(raw)
        if self._guarded and context.client.user is None and claimed > self._reader.limit:
            counters.dropped_oversized += 1
            raise BrokenStream("a message of somebody who has not logged in is too large")
        outer_bytes = len(raw)
        # A small message may hold a large one: those that are unpacked at one time have a limit of their own.
        await self._connections.unpacking(claimed)
        try:
            if claimed >= _SLOW_BYTES:
                raw, compressor = await asyncio.to_thread(decompress, raw, context.client.compressors)
            else:
                raw, compressor = decompress(raw, context.client.compressors)
            if compressor.name in counters.compression:
                counters.compression[compressor.name].decompressor_in += outer_bytes
                counters.compression[compressor.name].decompressor_out += len(raw)
            return await self._process_plain(context, raw, Header.of(raw), compressor)
        finally:
            self._connections.unpacked(claimed)

    async def _process_plain(self, context: Context, raw: bytes, header: Header, compressor: Compressor | None) -> bool:
        self._services.counters.bytes_in += len(raw)
        if header.op_code == OpCode.MSG:
            return await self._process_message(context, raw, header, compressor)
        if header.op_code == OpCode.QUERY:
            await self._process_query(context, raw, header)
            return True
        raise BrokenStream(f"message of kind {header.op_code}")

    async def _process_message(
        self, context: Context, raw: bytes, header: Header, compressor: Compressor | None
    ) -> bool:
        flags = flags_of(raw)
        silent = bool(flags & MessageFlag.MORE_TO_COME)
        checksum = bool(flags & MessageFlag.CHECKSUM_PRESENT)
        try:
            message = parse_message(raw)
        except MongoError as error:
            closes = closes_connection(error)
            if not silent:
                answer = Answer(failure_reply(error))
                await self._reply(answer, header.request_id, compressor, checksum=checksum and not closes)
            return not closes
        response_to = header.request_id
        while True:
            answer = await self._dispatcher.answer(context, message)
            if silent:
                return True
            response_to = await self._reply(answer, response_to, compressor, checksum=checksum)
            if not answer.more_to_come or self._ended:
                return True

    async def _process_query(self, context: Context, raw: bytes, header: Header) -> None:
        try:
            command = parse_query(raw)
        except NotACommand:
            reply = build_query_failure(request_id=next_request_id(), response_to=header.request_id)
        except MongoError as error:
            reply = build_reply(failure_reply(error), request_id=next_request_id(), response_to=header.request_id)
        else:
            message = Message(command.request_id, 0, command.body, {})
            answer = await self._dispatcher.answer(context, message, legacy_database=command.database)
            reply = build_reply(bytes(answer.body), request_id=next_request_id(), response_to=header.request_id)
        self._services.counters.bytes_out += len(reply)
        await self._write(reply)

    async def _reply(self, answer: Answer, response_to: int, compressor: Compressor | None, *, checksum: bool) -> int:
        """Send a reply; returns its request id, which the next one of a stream responds to."""
        counters = self._services.counters
        request_id = next_request_id()
        compressed = compressor is not None and answer.name not in NEVER_COMPRESSED
        if isinstance(answer.body, memoryview) and not checksum and not compressed:
            head = message_head(
                len(answer.body), request_id=request_id, response_to=response_to, more_to_come=answer.more_to_come
            )
            counters.bytes_out += len(head) + len(answer.body)
            await self._write(head, answer.body)
            return request_id
        reply = build_message(
            answer.body,
            request_id=request_id,
            response_to=response_to,
            more_to_come=answer.more_to_come,
            checksum=checksum,
        )
        counters.bytes_out += len(reply)
        if compressed and compressor is not None:
            plain_bytes = len(reply)
            if plain_bytes >= _SLOW_BYTES:
                # Others get their turn meanwhile.
                reply = await asyncio.to_thread(compress, reply, compressor)
            else:
                reply = compress(reply, compressor)
            if compressor.name in counters.compression:
                counters.compression[compressor.name].compressor_in += plain_bytes
                counters.compression[compressor.name].compressor_out += len(reply)
        await self._write(reply)
        return request_id

    async def _write(self, *parts: Reply) -> None:
        if self._lost or self._transport is None:
            return
        self._services.counters.physical_bytes_out += sum(map(len, parts))
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        if self._writable is not None:
            await self._writable

    # Ends.

    def _stop_waiting(self) -> None:
        self._ended = True
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _end_of_input(self) -> None:
        self._stop_waiting()
        operation = self._context.client.operation if self._context is not None else None
        # A read has nobody left to read for; a write that was sent is done.
        if operation is not None and not operation.writes:
            operation.kill(ClientDisconnect("operation was interrupted because the client disconnected"))

    def _break(self, error: BrokenStream) -> None:
        client = self._context.client if self._context is not None else None
        self._services.logger.info(
            "Ending connection: message cannot be read",
            component="NETWORK",
            ctx=f"conn{client.id}" if client else "listener",
            remote=client.peer if client else "",
            reason=str(error),
        )
        self.abort()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._services.counters.reads_paused += 1
            self._paused = True
            self._transport.pause_reading()

    def _reserve(self, size: int) -> None:
        """Read on where there is room for the whole message; else wait, which is not the client's fault."""
        if self._connections.reserve(self, size):
            self._reserved_bytes = size
        else:
            self._wants_room = True
            self._connections.patience.finished(self)
            self._pause()

    def _release(self) -> None:
        if self._reserved_bytes:
            self._connections.release(self._reserved_bytes)
            self._reserved_bytes = 0

    def _clear_waiting(self) -> None:
        self._release()
        while self._waiting:
            size = len(self._waiting.popleft())
            self._waiting_bytes -= size
            self._connections.finished(size)
