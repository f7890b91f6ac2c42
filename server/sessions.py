"""Logical sessions: made by their first use, kept while used, ended, killed, expired."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..common.clock import Clock
from ..common.errors import TooManyLogicalSessions


@dataclass(slots=True)
class Session:
    """One logical session of a client."""

    lsid: bytes
    started_ms: int
    used_ms: int
    user: tuple[str, str] | None = None
    """Name and database of the user whose session it is."""
    ended: bool = False
    """The client said that it is done; what it left open goes with the next `expire`, unless it comes back."""


class SessionRegistry:
    """Every logical session that is alive, by the 16 bytes of its id.

    `on_end` hears of each session that ended, was killed or expired, so that its cursors and operations can go.
    """

    def __init__(
        self,
        clock: Clock,
        timeout_minutes: Callable[[], int],
        sessions_max: Callable[[], int] = lambda: 1_000_000,
    ) -> None:
        self._clock = clock
        self._timeout_minutes = timeout_minutes
        self._sessions_max = sessions_max
        self._sessions: dict[bytes, Session] = {}
        self.on_end: list[Callable[[bytes], object]] = []

    def start(self, user: tuple[str, str] | None = None) -> Session:
        """A new session with an id of our making."""
        return self.use(uuid.uuid4().bytes, user)

    def use(self, lsid: bytes, user: tuple[str, str] | None = None) -> Session:
        """Note a use of the session; an unknown one begins to exist."""
        now_ms = self._clock.now_ms()
        session = self._sessions.get(lsid)
        if session is None:
            if len(self._sessions) >= self._sessions_max():
                raise TooManyLogicalSessions("cannot add session into the cache: too many sessions")
            session = self._sessions[lsid] = Session(lsid, now_ms, now_ms, user)
        else:
            session.used_ms = now_ms
            session.ended = False
        return session

    def owner(self, lsid: bytes) -> tuple[str, str] | None:
        """The user whose session it is; nobody where nobody logged in, or there is none."""
        session = self._sessions.get(lsid)
        return None if session is None else session.user

    def end(self, lsid: bytes) -> bool:
        """The client says that it is done with the session; True where it existed."""
        session = self._sessions.get(lsid)
        if session is None:
            return False
        session.ended = True
        return True

    def kill(self, lsid: bytes) -> None:
        """End whatever goes on in the session; the session itself may be used again."""
        self._tell(lsid)

    def expire(self) -> int:
        """Forget sessions that ended, or were not used for `localLogicalSessionTimeoutMinutes`; returns how many."""
        before_ms = self._clock.now_ms() - self._timeout_minutes() * 60_000
        gone = [session.lsid for session in self._sessions.values() if session.ended or session.used_ms <= before_ms]
        for lsid in gone:
            del self._sessions[lsid]
            self._tell(lsid)
        return len(gone)

    def __contains__(self, lsid: bytes) -> bool:
        return lsid in self._sessions

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def _tell(self, lsid: bytes) -> None:
        for heard in self.on_end:
            heard(lsid)
