"""What the operating system tells of this machine and process; where it tells nothing, a value that claims nothing."""

import os
import platform
import socket
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_MIB: Final = 1024 * 1024
_OPEN_FILES_UNLIMITED: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Processors:
    """The processors of the machine."""

    logical: int
    physical: int
    sockets: int
    megahertz: str
    model: str


def raise_open_files() -> int:
    """Let this process open as many files and sockets as the system allows it to; returns how many."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            # Some systems name a hard limit that they do not grant.
            hard = soft
    return _OPEN_FILES_UNLIMITED if hard == resource.RLIM_INFINITY else hard


@cache
def host_name() -> str:
    """The name of the machine."""
    return socket.gethostname()


@cache
def processors() -> Processors:
    """What /proc/cpuinfo tells, else what Python knows."""
    logical = os.cpu_count() or 1
    text = _read("/proc/cpuinfo")
    cores: set[tuple[str, str]] = set()
    found: dict[str, str] = {}
    for block in text.split("\n\n"):
        rows = dict(_row(line) for line in block.splitlines() if ":" in line)
        found = found or rows
        if "physical id" in rows:
            cores.add((rows["physical id"], rows.get("core id", "0")))
    return Processors(
        logical=logical,
        physical=len(cores) or logical,
        sockets=len({socket_id for socket_id, _ in cores}) or 1,
        megahertz=found.get("cpu MHz", ""),
        model=found.get("model name", ""),
    )


def memory_mib() -> int:
    """Memory of the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    except (ValueError, OSError):
        return 0


def memory_limit_mib() -> int:
    """What a control group leaves of it."""
    text = _read("/sys/fs/cgroup/memory.max").strip()
    whole = memory_mib()
    return min(whole, int(text) // _MIB) if text.isdigit() else whole


def resident_and_virtual_mib() -> tuple[int, int]:
    """Memory of this process."""
    fields = _read("/proc/self/statm").split()
    if len(fields) < 2:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        mib = max(1, peak // (_MIB if sys.platform == "darwin" else 1024))
        return mib, mib
    page = os.sysconf("SC_PAGE_SIZE")
    return max(1, int(fields[1]) * page // _MIB), max(1, int(fields[0]) * page // _MIB)


def page_faults() -> int:
    """Pages that had to be read from disk for this process."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def processor_seconds() -> tuple[float, float]:
    """Processor time of this process in user and system mode."""
    times = os.times()
    return times.user, times.system


@cache
def operating_system() -> tuple[str, str, str]:
    """Type, name and version."""
    release = dict(
        line.split("=", 1) for line in _read("/etc/os-release").splitlines() if "=" in line and line[:1].isalpha()
    )
    name = release.get("PRETTY_NAME", "").strip('"') or platform.system()
    return platform.system(), name, release.get("VERSION_ID", "").strip('"') or platform.release()


def page_size() -> int:
    """Bytes of a page of memory."""
    return os.sysconf("SC_PAGE_SIZE")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _row(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
