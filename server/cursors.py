"""Open cursors: kept between two batches, taken by one getMore at a time, forgotten when idle, killed on demand."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..common.clock import Clock
from ..common.errors import (
    CursorInUse,
    CursorKilled,
    CursorNotFound,
    IngressRequestRateLimitExceeded,
    Location,
    MongoError,
    Unauthorized,
)
from ..common.values import Document


class Execution(Protocol):
    """What a cursor holds on to: a plan that was stopped after a batch."""

    def close(self) -> None:
        """Let go of whatever the plan holds."""


@dataclass(slots=True, kw_only=True, eq=False)
class Cursor:
    """A query between two batches."""

    id: int
    namespace: str
    execution: Any
    lsid: bytes | None
    """The session that it was opened in."""
    command: Document
    """What opened it, for currentOp."""
    opened_ms: int
    used_ms: int
    no_timeout: bool = False
    tailable: bool = False
    await_data: bool = False
    batches: int = 0
    documents: int = 0
    pinned: bool = False
    """A getMore is at work on it."""
    killed: MongoError | None = None
    user: tuple[str, str] | None = None
    """Whose it is, by name and database."""
    extra: dict[str, Any] = field(default_factory=dict)
    """For whoever opened it: what its getMore needs to know."""


@dataclass(slots=True)
class KilledCursors:
    """The reply to killCursors, list by list."""

    killed: list[int] = field(default_factory=list)
    not_found: list[int] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


@dataclass(slots=True)
class CursorCounters:
    """What `metrics.cursor` of serverStatus tells."""

    timed_out: int = 0
    refused: int = 0
    opened: int = 0
    more_than_one_batch: int = 0


class CursorRegistry:
    """Every open cursor of the server.

    `open` after the first batch of a query that has more; then, for each further batch, `take`, and in the end either
    `release` (there is more to come) or `close`.
    """

    def __init__(
        self, clock: Clock, idle_ms_max: Callable[[], int], open_max: Callable[[], int] = lambda: 1_000_000
    ) -> None:
        self._open_max = open_max
        self._clock = clock
        self._idle_ms_max = idle_ms_max
        self._cursors: dict[int, Cursor] = {}
        self.counters = CursorCounters()

    def open(
        self,
        execution: Execution,
        namespace: str,
        *,
        lsid: bytes | None = None,
        command: Document | None = None,
        no_timeout: bool = False,
        tailable: bool = False,
        await_data: bool = False,
        user: tuple[str, str] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> int:
        """Keep the execution for a later getMore on this namespace (`db.collection` as replied); returns its id.

        Raises:
            IngressRequestRateLimitExceeded: there are too many already; the execution is closed.
        """
        if len(self._cursors) >= (most := self._open_max()):
            self.counters.refused += 1
            execution.close()
            raise IngressRequestRateLimitExceeded(
                f"There are {most} open cursors already, try again later",
                labels=("SystemOverloadedError", "RetryableError", "NoWritesPerformed"),
            )
        cursor_id = secrets.randbits(63)
        while cursor_id == 0 or cursor_id in self._cursors:
            cursor_id = secrets.randbits(63)
        now_ms = self._clock.now_ms()
        self._cursors[cursor_id] = Cursor(
            id=cursor_id,
            namespace=namespace,
            execution=execution,
            lsid=lsid,
            command=command or {},
            opened_ms=now_ms,
            used_ms=now_ms,
            no_timeout=no_timeout,
            tailable=tailable,
            await_data=await_data,
            batches=1,
            user=user,
            extra=extra or {},
        )
        self.counters.opened += 1
        return cursor_id

    def take(
        self,
        cursor_id: int,
        namespace: str,
        *,
        lsid: bytes | None = None,
        user: tuple[str, str] | None = None,
    ) -> Cursor:
        """Pin the cursor for one getMore.

        Raises:
            CursorNotFound, Unauthorized, CursorInUse, Location 50738: as the getMore is answered.
        """
        cursor = self._cursors.get(cursor_id)
        if cursor is None:
            raise CursorNotFound(f"cursor id {cursor_id} not found")
        if cursor.namespace != namespace:
            raise Unauthorized(
                f"Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace "
                f"{cursor.namespace}"
            )
        if cursor.user != user:
            raise Unauthorized(f"cursor id {cursor_id} was not created by the authenticated user")
        if cursor.lsid is not None and cursor.lsid != lsid:
            whose = "without an lsid" if lsid is None else f"in session {_hex(lsid)}"
            raise Location(
                50738,
                f"Cannot run getMore on cursor {cursor_id}, which was created in session {_hex(cursor.lsid)}, {whose}",
            )
        if cursor.pinned:
            raise CursorInUse(f"cursor id {cursor_id} is already in use")
        cursor.pinned = True
        return cursor

    def release(self, cursor: Cursor) -> None:
        """The getMore is done and the cursor has more to give.

        Raises:
            CursorKilled: somebody killed the cursor while the getMore was at work; it is gone.
        """
        cursor.pinned = False
        cursor.used_ms = self._clock.now_ms()
        cursor.batches += 1
        if cursor.batches == 2:
            self.counters.more_than_one_batch += 1
        if cursor.killed is not None:
            self.close(cursor)
            raise cursor.killed

    def close(self, cursor: Cursor) -> None:
        """Forget a cursor that is exhausted or has failed."""
        if self._cursors.pop(cursor.id, None) is not None:
            cursor.execution.close()

    def owner(self, cursor_id: int) -> tuple[str, str] | None:
        """Whose cursor it is; nobody's where it does not exist."""
        cursor = self._cursors.get(cursor_id)
        return None if cursor is None else cursor.user

    def kill(self, cursor_ids: Iterable[int]) -> KilledCursors:
        """Kill cursors by id; one at work ends with its getMore."""
        result = KilledCursors()
        for cursor_id in cursor_ids:
            cursor = self._cursors.get(cursor_id)
            if cursor is None or cursor.killed is not None:
                result.not_found.append(cursor_id)
            else:
                self._kill(cursor, CursorKilled(f"cursor id {cursor_id} was killed"))
                result.killed.append(cursor_id)
        return result

    def kill_session(self, lsid: bytes) -> int:
        """Kill the cursors of a session; returns how many."""
        return self.kill_where(
            lambda cursor: cursor.lsid == lsid, CursorKilled("cursor killed because its session was killed")
        )

    def kill_where(self, matches: Callable[[Cursor], bool], reason: MongoError) -> int:
        """Kill what matches; a getMore at work answers `reason`."""
        doomed = [cursor for cursor in self._cursors.values() if cursor.killed is None and matches(cursor)]
        for cursor in doomed:
            self._kill(cursor, reason)
        return len(doomed)

    def kill_idle(self) -> int:
        """Kill what nobody asked for longer than `cursorTimeoutMillis`; returns how many.

        A cursor of a session lives as long as the session.
        """
        before_ms = self._clock.now_ms() - self._idle_ms_max()
        count = self.kill_where(
            lambda cursor: (
                not cursor.no_timeout and not cursor.pinned and cursor.lsid is None and cursor.used_ms <= before_ms
            ),
            CursorKilled("cursor timed out"),
        )
        self.counters.timed_out += count
        return count

    def close_all(self) -> None:
        """The server stops."""
        for cursor in list(self._cursors.values()):
            self.close(cursor)

    def __iter__(self) -> Iterator[Cursor]:
        return iter(list(self._cursors.values()))

    def __len__(self) -> int:
        return len(self._cursors)

    def _kill(self, cursor: Cursor, reason: MongoError) -> None:
        cursor.killed = reason
        if not cursor.pinned:
            self.close(cursor)


def _hex(lsid: bytes) -> str:
    return lsid.hex()
