"""Where time comes from: one object that is handed to whoever asks."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable


class Clock(ABC):
    """The only thing that knows what time it is.

    Wall time (`now_ms`) is what is stored and what things expire by; somebody may set it, back as well as forward.
    `elapsed_ms` counts how much of it has passed, and never goes back: what happens every minute is reckoned by that.
    `monotonic` measures how long something takes; it never stands still, also where the wall does, so that a limit on an
    operation always holds.
    """

    @abstractmethod
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    @abstractmethod
    def elapsed_ms(self) -> int:
        """Milliseconds that have passed since some moment, whatever became of the wall meanwhile."""

    @abstractmethod
    async def sleep(self, duration_ms: int) -> None:
        """Return once `elapsed_ms()` has grown by this much."""

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()


class SystemClock(Clock):
    """The time of the operating system."""

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        """See `Clock.elapsed_ms`."""
        return time.monotonic_ns() // 1_000_000

    async def sleep(self, duration_ms: int) -> None:
        """See `Clock.sleep`."""
        due_ms = self.elapsed_ms() + duration_ms
        # A sleep may end a moment early.
        while (left_ms := due_ms - self.elapsed_ms()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left_ms / 1000)


class TestClock(Clock):
    """Stands still until it is told to move on, or to run. Used on one event loop only."""

    __test__ = False

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0
        self._running_since: float | None = None
        self._moved: set[asyncio.Future[None]] = set()
        self.on_change: list[Callable[[], object]] = []
        """Told that the clock was moved, stopped or started."""

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self._running_since is None

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._now_ms + self._run_ms()

    def elapsed_ms(self) -> int:
        """See `Clock.elapsed_ms`."""
        return self._elapsed_ms + self._run_ms()

    async def sleep(self, duration_ms: int) -> None:
        """See `Clock.sleep`."""
        due_ms = self.elapsed_ms() + duration_ms
        while (left_ms := due_ms - self.elapsed_ms()) > 0:
            moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._moved.add(moved)
            try:
                await asyncio.wait({moved}, timeout=None if self.frozen else left_ms / 1000)
            finally:
                self._moved.discard(moved)

    def advance(self, duration_ms: int) -> None:
        """Let time pass, and wake whoever has waited long enough."""
        assert duration_ms >= 0, "time does not run backwards here"
        self._now_ms += duration_ms
        self._elapsed_ms += duration_ms
        self._tell()

    def set(self, now_ms: int) -> None:
        """Make it another time: a later one as if it had passed, an earlier one without any passing."""
        ahead_ms = now_ms - self.now_ms()
        self._now_ms += ahead_ms
        self._elapsed_ms += max(ahead_ms, 0)
        self._tell()

    def freeze(self, frozen: bool) -> None:
        """Stand still from now on, or run as the time of the system does."""
        run_ms = self._run_ms()
        self._now_ms += run_ms
        self._elapsed_ms += run_ms
        self._running_since = None if frozen else time.monotonic()
        self._tell()

    def _run_ms(self) -> int:
        return 0 if self._running_since is None else int((time.monotonic() - self._running_since) * 1000)

    def _tell(self) -> None:
        for moved in self._moved:
            if not moved.done():
                moved.set_result(None)
        for listener in self.on_change:
            listener()
