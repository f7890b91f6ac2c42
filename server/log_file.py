"""Where log lines go: standard output, or a file that can be rotated."""

import contextlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO


class LogFile:
    """The file of `--logpath`, or standard output where there is none. Whole lines, flushed at once."""

    def __init__(self, path: str, *, append: bool) -> None:
        self._path = Path(path) if path else None
        self._file: TextIO = sys.stdout
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not append:
                self._set_aside()
            self._file = self._path.open("a", encoding="utf-8")

    def write(self, line: str) -> None:
        """Write a line. One that cannot be written (a full disk, a reader that went away) is lost; serving goes on."""
        with contextlib.suppress(OSError):
            self._file.write(line + "\n")
            self._file.flush()

    def rotate(self) -> None:
        """Go on in a new file; the old one keeps its name with the time after it."""
        if self._path is None:
            return
        self._file.close()
        self._set_aside()
        self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        """Let go of the file."""
        if self._path is not None:
            self._file.close()

    def _set_aside(self) -> None:
        assert self._path is not None
        if self._path.exists():
            moment = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
            self._path.rename(self._path.with_name(f"{self._path.name}.{moment}"))
