"""A disk that fails when a test says so, and one that forgets what was not synced: see faulty_disk.c."""

import mmap
import random
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("faulty_disk.c")
_FIELDS: Final = (
    "write_error", "sync_error", "root_error", "short_writes", "sync_delay_us", "writes", "syncs", "failures",
)  # fmt: skip
_HEAD: Final = struct.Struct("<cqq")
_SECTOR: Final = 512
_PAGE: Final = 4096


def build(folder: Path) -> Path:
    """Compile the library; a C compiler is needed to build the kernels anyway."""
    library = folder / "faulty_disk.so"
    command = ["cc", "-O1", "-Wall", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return library


class FaultyDisk:
    """The test's side of the controls."""

    def __init__(self, library: Path, folder: Path, *, record: bool = False) -> None:
        path = folder / "controls"
        path.write_bytes(bytes(8 * len(_FIELDS)))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.log = folder / "disk.log"
        self.environment = {"LD_PRELOAD": str(library), "FAULTY_DISK_CONTROL": str(path)}
        """Variables of the process that the disk is for."""
        if record:
            self.environment["FAULTY_DISK_LOG"] = str(self.log)

    def set(self, **values: int) -> None:
        """`set(sync_error=errno.EIO)`: until it is set to 0 again."""
        for name, value in values.items():
            struct.pack_into("<q", self._map, 8 * _FIELDS.index(name), value)

    def get(self, name: str) -> int:
        """`writes`, `syncs` and `failures` are counted."""
        return int(struct.unpack_from("<q", self._map, 8 * _FIELDS.index(name))[0])


@dataclass(slots=True)
class DiskEvent:
    """A write, a write through (`D`), or a sync (`S`)."""

    kind: str
    offset: int
    content: bytes
    end: int
    """Where the log goes on behind it."""


def read_log(path: Path) -> list[DiskEvent]:
    """What the disk was told to do, in order; the last one may be cut off and is left out then."""
    raw = path.read_bytes()
    events = []
    at = 0
    while at + _HEAD.size <= len(raw):
        kind, offset, size = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        if at + size > len(raw):
            break
        events.append(DiskEvent(kind.decode(), offset, raw[at : at + size], at + size))
        at += size
    return events


def after_power_cut(events: list[DiskEvent], count: int, moment: random.Random) -> bytes:
    """A data.mdb as it may be when the power fails after the first `count` events.

    What was synced or written through is there. Of what was written since the last sync, each sector may be there or not.
    """
    synced = max((position for position in range(count) if events[position].kind == "S"), default=-1)
    image = bytearray()
    for position, event in enumerate(events[:count]):
        if event.kind == "S":
            continue
        end = event.offset + len(event.content)
        if len(image) < end:
            image.extend(bytes(end - len(image)))
        if position < synced or event.kind == "D":
            image[event.offset : end] = event.content
            continue
        fate = moment.random()
        for start in range(0, len(event.content), _SECTOR):
            if fate < 0.3 or (fate < 0.8 and moment.random() < 0.5):
                part = event.content[start : start + _SECTOR]
                image[event.offset + start : event.offset + start + len(part)] = part
    return bytes(image)
