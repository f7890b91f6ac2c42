"""Log lines: JSON in the shape that mongod writes, one line each, the latest kept for getLog.

{"t":{"$date":"2026-01-01T12:00:00.000Z"},"s":"I","c":"NETWORK","id":23016,"ctx":"listener",
 "msg":"Waiting for connections","attr":{"port":27017}}
"""

import json
import logging
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from .clock import Clock

_LINES_KEPT: Final = 1024
_SEVERITIES: Final[Mapping[str, str]] = {
    "debug": "D1",
    "info": "I",
    "warning": "W",
    "error": "E",
    "exception": "E",
    "critical": "F",
}


class LogMemory:
    """The latest lines, and the warnings of the start."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self.lines_written = 0
        self.startup_warnings: list[str] = []
        self.starting = True
        self.verbosity = 0
        """0 keeps lines of the level `debug` away; it may change at any time."""

    def keep(self, line: str, severity: str) -> None:
        """Remember a line."""
        self.lines.append(line)
        self.lines_written += 1
        if self.starting and severity == "W":
            self.startup_warnings.append(line)


class Shape:
    """The last processor: an event as a line in mongod's shape.

    `component` (`c`), `id` and `ctx` of the event are fields of their own; all else goes to `attr`.
    """

    def __init__(self, clock: Clock, memory: LogMemory) -> None:
        self._clock = clock
        self._memory = memory

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> str:
        """Render, and keep, one event."""
        if method == "debug" and self._memory.verbosity == 0:
            raise structlog.DropEvent
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        severity = _SEVERITIES.get(method, "I")
        line: dict[str, Any] = {
            "t": {"$date": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")},
            "s": severity,
            "c": event.pop("component", "-"),
            "id": event.pop("id", 0),
            "ctx": event.pop("ctx", "main"),
            "msg": event.pop("event"),
        }
        _unfold_exception(event)
        if event:
            line["attr"] = event
        text = json.dumps(line, default=str, ensure_ascii=False, separators=(",", ":"))
        self._memory.keep(text, severity)
        return text


class Lines:
    """Where lines go: a function that writes one. Every level writes alike."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.debug = self.info = self.warning = self.error = self.exception = self.critical = write


def open_logger(write: Callable[[str], None], clock: Clock, memory: LogMemory) -> FilteringBoundLogger:
    """A logger that gives each line to `write`, newline not included."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        Lines(write),
        processors=[Shape(clock, memory)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        cache_logger_on_first_use=True,
    )
    return logger


def _unfold_exception(event: MutableMapping[str, Any]) -> None:
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        event["error"] = f"{type(error).__name__}: {error}"
        event["traceback"] = "".join(traceback.format_exception(error))
