"""A server process to measure, raw sockets to load it with, and the table of results."""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import bson
import lmdb
import psutil
from pymongo import MongoClient

OP_MSG = 2013


@dataclass(slots=True)
class Server:
    """A running server: its port, its process, and how long it took to be ready (seconds)."""

    port: int
    process: psutil.Process
    ready_seconds: float
    dbpath: Path

    def cpu_seconds(self) -> float:
        """CPU time that the server has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        """Memory that the server has resident."""
        return int(self.process.memory_info().rss)

    def client(self, **options: Any) -> MongoClient[dict[str, Any]]:
        """A pymongo client of this server."""
        return MongoClient("127.0.0.1", self.port, directConnection=True, **options)


@contextmanager
def running_server(
    *options: str, module: str = "bucketd.server", environment: dict[str, str] | None = None
) -> Iterator[Server]:
    """A server on a free port with an empty folder, stopped at the end.

    Args:
        module: what is run in its place.
        environment: variables that it gets beside ours.
    """
    with tempfile.TemporaryDirectory(prefix="bucketd-bench-") as folder:
        command = [sys.executable, "-m", module, "--port", "0", "--dbpath", folder, *options]
        started = time.perf_counter()
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert child.stdout is not None
        port = None
        said = []
        for line in child.stdout:
            said.append(line)
            if "Waiting for connections" in line:
                port = int(json.loads(line)["attr"]["port"])
                break
        ready = time.perf_counter() - started
        if port is None:
            raise RuntimeError(f"the server did not start: exit code {child.wait()}, {''.join(said)[-2000:]}")
        # What it says is read, and forgotten, lest it wait for a reader.
        drain = threading.Thread(target=deque, args=(child.stdout, 0), daemon=True)
        drain.start()
        try:
            yield Server(port, psutil.Process(child.pid), ready, Path(folder))
        finally:
            child.terminate()
            child.wait(timeout=60)
            drain.join()
            child.stdout.close()


def insert_message(request_id: int, database: str, collection: str, raws: list[bytes]) -> bytes:
    """An `insert` as OP_MSG with its documents in a sequence."""
    body = bson.encode({"insert": collection, "ordered": False, "$db": database})
    documents = b"".join(raws)
    identifier = b"documents\0"
    sequence = struct.pack("<i", 4 + len(identifier) + len(documents)) + identifier + documents
    payload = b"\0\0\0\0" + b"\0" + body + b"\1" + sequence
    return struct.pack("<iiii", 16 + len(payload), request_id, 0, OP_MSG) + payload


class RawClient:
    """A socket that sends ready messages and reads replies; nothing is decoded unless asked."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def send(self, message: bytes) -> None:
        """Send a whole message."""
        self._socket.sendall(message)

    def receive(self) -> dict[str, Any]:
        """Read one reply and decode its body."""
        (length,) = struct.unpack("<i", self._reader.read(4))
        rest = self._reader.read(length - 4)
        return bson.decode(rest[12 + 5 :])

    def close(self) -> None:
        """Let go of the socket."""
        self._reader.close()
        self._socket.close()


@dataclass(slots=True)
class Row:
    """One figure: as it is shown, and as a number with what it should be."""

    name: str
    shown: str
    note: str
    value: float | None = None
    goal: float | None = None
    at_least: bool = False
    peers: dict[str, float] = field(default_factory=dict)
    """The same of others, from the same run."""

    @property
    def verdict(self) -> str:
        """The goal and the ratio to it; nothing where there is none."""
        if self.goal is None or self.value is None:
            return ""
        met = self.value >= self.goal if self.at_least else self.value <= self.goal
        return (
            f"{'>=' if self.at_least else '<='} {self.goal:g}: {self.value / self.goal:.2f}{'' if met else ' MISSED'}"
        )


@dataclass(slots=True)
class Table:
    """Rows of results, printed as they come."""

    rows: list[Row] = field(default_factory=list)

    def add(
        self,
        name: str,
        shown: str,
        note: str = "",
        *,
        value: float | None = None,
        goal: float | None = None,
        at_least: bool = False,
        peers: dict[str, float] | None = None,
    ) -> None:
        """Record and print one figure.

        Args:
            goal: what `value` should be at most, or with `at_least`, at least.
            peers: the same of others.
        """
        row = Row(name, shown, note, value, goal, at_least, peers or {})
        self.rows.append(row)
        print(f"{name:<52} {shown:>14}  {row.verdict:<24}  {note}".rstrip(), flush=True)

    def write_markdown(self, path: Path) -> None:
        """Put the rows as a table between the marks in a page, in the place of what is there."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.peers))
        lines = [
            f"| what | bucketd | goal | {''.join(f'{name} | ' for name in names)}notes |",
            "| --- " * (4 + len(names)) + "|",
        ]
        for row in self.rows:
            sign = "≥" if row.at_least else "≤"
            goal = "" if row.goal is None else f"{sign} {row.goal:,g}"
            if goal and row.verdict.endswith("MISSED"):
                goal += " missed"
            others = []
            for name in names:
                value = row.peers.get(name)
                share = "" if not value or not row.value else f" (x{row.value / value:.2f})"
                others.append(
                    "" if value is None else f"{value:,.{0 if value >= 1000 else 3 if value < 1 else 1}f}{share}"
                )
            note = "" if row.peers else row.note
            lines.append(f"| {' | '.join([row.name.strip(), row.shown, goal, *others, note])} |")
        begin, end = "<!-- table begins -->\n", "<!-- table ends -->"
        before, _, rest = path.read_text().partition(begin)
        path.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2])

    def write_json(self, path: Path) -> None:
        """All rows, for other programs."""
        path.write_text(json.dumps([{**asdict(row), "verdict": row.verdict} for row in self.rows], indent=1) + "\n")


def disk_bytes(folder: Path) -> int:
    """Bytes that the files of a folder really take."""
    return sum(os.stat(path).st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def used_bytes(folder: Path) -> int:
    """Bytes of the pages of a store that hold anything, its indexes and counts among them."""
    with (
        lmdb.open(str(folder), readonly=True, lock=False, max_dbs=16) as environment,
        environment.begin() as transaction,
    ):
        pages = 0
        for name in (None, *(key for key, _ in transaction.cursor())):
            table = None if name is None else environment.open_db(name, txn=transaction, create=False)
            stat = environment.stat() if table is None else transaction.stat(table)
            pages += stat["leaf_pages"] + stat["overflow_pages"] + stat["branch_pages"]
        return int(pages * environment.stat()["psize"])
