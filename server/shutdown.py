"""How a server ends: in good order, and within a bound whatever it is doing.

What was acknowledged is durable before it is acknowledged, so that an end at any moment loses nothing. The bound is for what
cannot be interrupted: an expression that computes on the event loop leaves it no turn to end in.
"""

import asyncio
import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .context import Services

BOUND_SECONDS: Final = 10.0
"""From the signal to the end; requests at hand have about half of it to end by themselves."""
_LAST_SECONDS: Final = 10.0
"""After the bound, for whoever keeps even other threads from running."""


class Shutdown:
    """Waits for a signal or the command `shutdown`, and watches what comes of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pid_file: str) -> None:
        self._loop = loop
        self._pid_file = pid_file
        self._asked = asyncio.Event()
        self._watch: threading.Timer | None = None
        self.services: Services | None = None
        """Once they are open."""

    def listen(self) -> None:
        """Take SIGTERM and SIGINT; on the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.request)
            # The loop hears of a signal in its turn. This is run between two steps of whatever the main thread does.
            signal.signal(number, self._at_once)
            signal.siginterrupt(number, False)

    def request(self) -> None:
        """End, from now on."""
        self._begin_watch()
        self._asked.set()

    async def requested(self) -> None:
        """Return when somebody has asked for the end."""
        await self._asked.wait()

    def done(self) -> None:
        """It has ended in good order."""
        if self._watch is not None:
            self._watch.cancel()
            faulthandler.cancel_dump_traceback_later()

    def _at_once(self, number: int, frame: FrameType | None) -> None:
        self._begin_watch()

    def _begin_watch(self) -> None:
        if self._watch is None:
            self._watch = threading.Timer(BOUND_SECONDS, self._give_up)
            self._watch.daemon = True
            self._watch.start()
            faulthandler.dump_traceback_later(BOUND_SECONDS + _LAST_SECONDS, exit=True)

    def _give_up(self) -> None:
        """The bound is over: write what is queued, and leave. On the watch's own thread."""
        services = self.services
        tidy: list[Callable[[], object]] = []
        if services is not None:
            tidy.append(services.engine.finish_writes)
            tidy.append(
                lambda: services.logger.warning(
                    "Shutting down without waiting any longer; requests are cut off", component="CONTROL", ctx="main"
                )
            )
        if self._pid_file:
            tidy.append(lambda: Path(self._pid_file).unlink(missing_ok=True))
        try:
            for step in tidy:
                step()
        finally:
            os._exit(0)
