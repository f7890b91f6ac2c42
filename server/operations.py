"""What runs at the moment: one Operation a request, found by its number, limited in time, killed on demand."""

import asyncio
from collections.abc import Iterator

from ..common.clock import Clock
from ..common.errors import Interrupted, InterruptedAtShutdown, MaxTimeMSExpired, MongoError
from ..common.values import Document

_OPID_MAX = 2**31 - 1


class Operation:
    """One request while it runs.

    Work that takes long calls `check` every few milliseconds: it raises what ends the operation, `MaxTimeMSExpired`
    past the deadline or `Interrupted` after a killOp.
    """

    __slots__ = (
        "_clock",
        "_killed",
        "_woken",
        "client",
        "command",
        "cursor_id",
        "database",
        "deadline",
        "description",
        "kind",
        "lsid",
        "namespace",
        "opid",
        "plan_summary",
        "started",
        "started_ms",
        "waited",
        "writes",
        "yields",
    )

    def __init__(self, opid: int, clock: Clock) -> None:
        self._clock = clock
        self._killed: MongoError | None = None
        self._woken: asyncio.Future[None] | None = None
        self.opid = opid
        self.started_ms = clock.now_ms()
        self.started = clock.monotonic()
        self.deadline: float | None = None
        """On the clock's monotonic scale."""
        self.kind = "command"
        """`op` of currentOp: query, getmore, insert, update, remove, command."""
        self.namespace = ""
        self.database = ""
        self.command: Document = {}
        self.client: object | None = None
        self.description = "internal"
        """Who does it, where it is no client."""
        self.lsid: bytes | None = None
        self.plan_summary: str | None = None
        self.cursor_id: int | None = None
        self.yields = 0
        self.waited = False
        """It waited for something to happen, so the time it took says nothing."""
        self.writes = False

    def check(self) -> None:
        """Raise what ends the operation, if anything does."""
        if self._killed is not None:
            raise self._killed
        if self.deadline is not None and self._clock.monotonic() >= self.deadline:
            raise MaxTimeMSExpired("operation exceeded time limit")

    def limit_time(self, max_time_ms: int) -> None:
        """Let the operation run for this long from its start; 0 for as long as it takes."""
        self.deadline = self.started + max_time_ms / 1000 if max_time_ms else None

    def elapsed_us(self) -> int:
        """Microseconds since the operation began."""
        return int((self._clock.monotonic() - self.started) * 1_000_000)

    def kill(self, reason: MongoError | None = None) -> None:
        """End the operation at its next check, or at once where it waits in `wait`."""
        if self._killed is None:
            self._killed = reason or Interrupted("operation was interrupted")
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    @property
    def killed(self) -> bool:
        """Whether somebody asked for the operation to end."""
        return self._killed is not None

    async def wait(self, moment: asyncio.Future[None], seconds: float | None = None) -> bool:
        """Wait for the future, at most `seconds`, the deadline, or until killed; True where the future came first."""
        self.check()
        if self.deadline is not None:
            left = self.deadline - self._clock.monotonic()
            seconds = left if seconds is None else min(left, seconds)
        self.waited = True
        self._woken = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({moment, self._woken}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._woken = None
        if moment.done():
            return True
        self.check()
        return False


class OperationRegistry:
    """Every operation that runs, by number."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_opid = 0
        self._running: dict[int, Operation] = {}

    def begin(self) -> Operation:
        """Register a new operation."""
        self._last_opid = self._last_opid % _OPID_MAX + 1
        operation = Operation(self._last_opid, self._clock)
        self._running[operation.opid] = operation
        return operation

    def end(self, operation: Operation) -> None:
        """The operation has its answer."""
        self._running.pop(operation.opid, None)

    def get(self, opid: int) -> Operation | None:
        """The running operation with this number."""
        return self._running.get(opid)

    def kill(self, opid: int) -> bool:
        """Ask the operation to end; False where none has this number."""
        operation = self._running.get(opid)
        if operation is None:
            return False
        operation.kill()
        return True

    def kill_session(self, lsid: bytes) -> None:
        """Ask every operation of the session to end."""
        for operation in self:
            if operation.lsid == lsid:
                operation.kill()

    def kill_all_for_shutdown(self) -> None:
        """Ask everything to end because the server does."""
        for operation in self:
            operation.kill(InterruptedAtShutdown("interrupted at shutdown"))

    def __iter__(self) -> Iterator[Operation]:
        return iter(list(self._running.values()))

    def __len__(self) -> int:
        return len(self._running)
