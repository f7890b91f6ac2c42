"""Whoever takes part: takes the same data in, and answers the same queries over its own protocol."""

import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from bson import decode_all
from numpy.typing import NDArray

from .answers import Answer
from .harness import Server, running_server, used_bytes
from .loading import Load, create, load
from .queries import Ask, Query
from .tsbs import METRICS, Scale


class Contender(ABC):
    """A database to measure. `start`, then `load` once, then queries, then `stop`."""

    name: str

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """What it lacks to run here; None where it is installed."""

    @classmethod
    def refuses(cls, scale: Scale) -> str | None:
        """Why it does not take part with so much data; None where it does."""
        return None

    @abstractmethod
    def start(self) -> None:
        """Start a server of its own with empty storage."""

    @abstractmethod
    def stop(self) -> None:
        """End it, and remove what it stored."""

    @abstractmethod
    def load(self, scale: Scale, values: NDArray[np.uint8]) -> Load:
        """Take all measurements in; encoding what is sent is not timed."""

    @abstractmethod
    def fetch(self, query: Query, ask: Ask) -> Any:
        """Ask, and read the whole answer as bytes. This is what is timed."""

    @abstractmethod
    def read(self, query: Query, fetched: Any) -> Answer:
        """What was fetched, as the table that `Query.columns` describes. This is not timed."""

    @abstractmethod
    def stored_bytes(self) -> int:
        """What the measurements take on disk, with their indexes."""

    def answers(self, query: Query) -> bool:
        """Whether it can be asked this at all."""
        return True

    def asked(self, query: Query, ask: Ask) -> Ask:
        """What it is asked instead, where its windows of time are not free."""
        return ask


class Bucketd(Contender):
    """This server."""

    name = "bucketd"

    def __init__(self, *options: str, module: str = "bucketd.server") -> None:
        self._options = options
        self._module = module
        self._stack = ExitStack()
        self.server: Server

    @classmethod
    def missing(cls) -> str | None:
        """See `Contender.missing`."""
        return None

    def start(self) -> None:
        """See `Contender.start`."""
        self.server = self._stack.enter_context(running_server(*self._options, module=self._module))
        create(self.server, "cpu", {"tags.hostname": 1, "time": 1})
        self._empty = used_bytes(self.server.dbpath)
        client = self._stack.enter_context(self.server.client())
        self.collection = client["bench"]["cpu"]

    def stop(self) -> None:
        """See `Contender.stop`."""
        self._stack.close()

    def load(self, scale: Scale, values: NDArray[np.uint8]) -> Load:
        """See `Contender.load`; then what would be packed in the background is packed, as others merge and vacuum."""
        done = load(self.server, "cpu", scale, values)
        self.collection.database.command("compact", "cpu")
        return done

    def fetch(self, query: Query, ask: Ask) -> list[bytes]:
        """See `Contender.fetch`."""
        if query.kind == "all":
            return list(self.collection.find_raw_batches({}))
        return list(self.collection.aggregate_raw_batches(query.pipeline(ask)))

    def read(self, query: Query, fetched: list[bytes]) -> Answer:
        """See `Contender.read`."""
        rows = [row for batch in fetched for row in decode_all(batch, _OPTIONS)]
        return np.array([_row(query, row) for row in rows])

    def stored_bytes(self) -> int:
        """See `Contender.stored_bytes`: the pages in use. The file has free ones beside them, which are filled next."""
        return used_bytes(self.server.dbpath) - self._empty


def _row(query: Query, row: dict[str, Any]) -> list[Any]:
    """One row of an answer, as numbers."""
    match query.kind:
        case "count":
            return [row["n"]]
        case "by minute" | "by hour" | "last minutes":
            return [int(row["_id"]), *(row[name] for name in query.names)]
        case "by hour and host":
            return [int(row["_id"]["time"]), host_number(row["_id"]["host"]), *(row[name] for name in query.names)]
        case "last point":
            return [int(row["time"]), host_number(row["_id"]), *(row[name] for name in METRICS)]
    return [int(row["time"]), host_number(row["tags"]["hostname"]), *(row[name] for name in METRICS)]


def host_number(name: str) -> int:
    """The number in `host_<number>`."""
    return int(name.removeprefix("host_"))


def _options() -> Any:
    from bson import CodecOptions
    from bson.codec_options import DatetimeConversion

    return CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)


_OPTIONS = _options()


class ServerProcess:
    """The process of a peer: started, waited for, measured, ended."""

    def __init__(self, command: list[str], folder: Path, **options: Any) -> None:
        with (folder / "output").open("wb") as output:
            self._child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, **options)
        self.process = psutil.Process(self._child.pid)
        self._folder = folder

    def wait_for(self, ready: Any, seconds: float = 30.0) -> None:
        """Until `ready` raises no OSError.

        Raises:
            RuntimeError: it ended, or was not ready in time; with the end of what it said.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                ready()
            except OSError:
                if self._child.poll() is not None or time.monotonic() > deadline:
                    said = (self._folder / "output").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"{self._child.args!r} does not answer: {said}") from None
                time.sleep(0.05)
            else:
                return

    def cpu_seconds(self) -> float:
        """CPU time of the process and its children, ended ones too."""
        times = self.process.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        for child in self.process.children(recursive=True):
            try:
                of_child = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += of_child.user + of_child.system
        return float(total)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._child.terminate()
        try:
            self._child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
