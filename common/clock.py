"""Where time comes from: one object that is handed to whoever asks."""

import asyncio
import time
from abc import ABC, abstractmethod


class Clock(ABC):
    """The only thing that knows what time it is.

    Wall time (`now_ms`) is what is stored and what things expire by. `monotonic` measures how long something takes; it
    never stands still, also where the wall does, so that a limit on an operation always holds.
    """

    @abstractmethod
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    @abstractmethod
    async def sleep_until(self, at_ms: int) -> None:
        """Return once `now_ms()` has reached `at_ms`."""

    def monotonic(self) -> float:
        """Seconds since some moment in the past."""
        return time.monotonic()

    async def sleep(self, duration_ms: int) -> None:
        """Return once this much wall time has passed."""
        await self.sleep_until(self.now_ms() + duration_ms)


class SystemClock(Clock):
    """The time of the operating system."""

    # A step of the system's clock is noticed after this long at the latest.
    _NAP_MS_MAX = 60_000

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, at_ms: int) -> None:
        """See `Clock.sleep_until`."""
        # The wall may be set forward meanwhile, so the rest is measured again after each nap.
        while (left_ms := at_ms - self.now_ms()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left_ms, self._NAP_MS_MAX) / 1000)


class TestClock(Clock):
    """Stands still until it is told to move on."""

    __test__ = False

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._now_ms

    async def sleep_until(self, at_ms: int) -> None:
        """See `Clock.sleep_until`."""
        while self._now_ms < at_ms:
            moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            sleeper = (at_ms, moved)
            self._sleepers.append(sleeper)
            try:
                await moved
            finally:
                if sleeper in self._sleepers:
                    self._sleepers.remove(sleeper)

    def advance(self, duration_ms: int) -> None:
        """Let time pass, and wake whoever has waited long enough. Runs on the event loop's thread."""
        assert duration_ms >= 0, "time does not run backwards here"
        self._now_ms += duration_ms
        due = [sleeper for sleeper in self._sleepers if sleeper[0] <= self._now_ms]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > self._now_ms]
        for _, moved in due:
            if not moved.done():
                moved.set_result(None)
