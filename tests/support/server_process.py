"""A real server in a process of its own, on a free port, with its data in a folder of the test."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_STOP_SECONDS = 20


def server_environment() -> dict[str, str]:
    """Variables for a process that imports bucketd from this checkout, without settings of ours."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BUCKETD_")}
    if (ROOT / ".typing").is_dir():
        # A checkout that is not installed is importable through this link.
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(ROOT / ".typing") + (os.pathsep + known if known else "")
    return environment


class ServerProcess:
    """Start, stop, kill and restart a server; the data in `dbpath` stays."""

    def __init__(self, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.dbpath = folder / "db"
        self.options = options
        self.port = 0
        self.lines: deque[str] = deque(maxlen=10_000)
        self._environment = environment or {}
        self._child: subprocess.Popen[str] | None = None
        self._drain: threading.Thread | None = None

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        """Return once the server says that it waits for connections."""
        self._spawn()
        assert self._child is not None
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.lines.append(line)
            if '"Waiting for connections"' in line:
                self.port = json.loads(line)["attr"]["port"]
                break
        else:
            self._child.stdout.close()
            raise AssertionError(f"the server did not start ({self._child.wait()}):\n" + "".join(self.lines))
        self._drain = threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True)
        self._drain.start()

    def start_and_kill(self, seconds: float) -> None:
        """Start it, and end it as a power cut does while it is starting."""
        self._spawn()
        assert self._child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._child.wait(seconds)
            raise AssertionError(f"the server did not start ({code})")
        self._drain = None
        self._end(SIGKILL)

    def _spawn(self) -> None:
        command = [sys.executable, "-m", "bucketd.server", "--port", str(self.port), "--dbpath", str(self.dbpath)]
        environment = server_environment() | self._environment
        self._child = subprocess.Popen(
            [*command, *self.options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def stop(self) -> int:
        """End it as an operator does; returns the exit code."""
        return self._end(SIGTERM)

    def kill(self) -> int:
        """End it as a power cut does."""
        return self._end(SIGKILL)

    def signal(self, number: Signals) -> None:
        assert self._child is not None
        self._child.send_signal(number)

    def wait(self) -> int:
        """Return the exit code of a server that ends by itself."""
        assert self._child is not None
        code = self._child.wait(_STOP_SECONDS)
        self._close()
        return code

    def errors(self) -> list[dict[str, Any]]:
        """What it logged as an error."""
        return [line for line in self.events() if line["s"] in ("E", "F")]

    def events(self) -> list[dict[str, Any]]:
        """Its log so far, line by line."""
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def _end(self, number: Signals) -> int:
        if self._child is None:
            return 0
        self._child.send_signal(number)
        try:
            code = self._child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            raise AssertionError("the server did not stop:\n" + "".join(self.lines)) from None
        finally:
            self._close()
        return code

    def _close(self) -> None:
        if self._drain is not None:
            self._drain.join()
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()
        self._child = None

    def _read(self, output: Any) -> None:
        for line in output:
            self.lines.append(line)
