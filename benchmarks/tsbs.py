"""TSBS-shaped data: the `cpu-only` case, made from a seed.

Each host has ten string tags and reports ten metrics every ten seconds; a metric is a random walk with normal steps,
clamped to 0..100 and sent as a whole number, as the Time Series Benchmark Suite sends it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import numpy as np
from bson import ObjectId
from numpy.typing import NDArray

METRICS = (
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
)
REGIONS = {
    "us-east-1": 5,
    "us-west-1": 2,
    "us-west-2": 3,
    "eu-west-1": 3,
    "eu-central-1": 2,
    "ap-southeast-1": 2,
    "ap-southeast-2": 2,
    "ap-northeast-1": 2,
    "sa-east-1": 3,
}
INTERVAL = timedelta(seconds=10)
INTERVAL_MS = 10_000
START = datetime(2016, 1, 1, tzinfo=UTC)
START_MS = 1_451_606_400_000

_ENCODED_SECONDS = 1_700_000_000
_ENCODED_PER_SECOND = 100_000


@dataclass(frozen=True, slots=True)
class Scale:
    """How much data: `hosts` series of `hours` each."""

    hosts: int
    hours: float
    seed: int = 123

    @property
    def steps(self) -> int:
        """Measurements of one host."""
        return int(self.hours * 3600 / INTERVAL.total_seconds())

    @property
    def measurements(self) -> int:
        """Measurements of all hosts."""
        return self.steps * self.hosts

    @property
    def span_ms(self) -> int:
        """The time that the data cover, in milliseconds."""
        return self.steps * INTERVAL_MS


def host_tags(scale: Scale) -> list[dict[str, str]]:
    """The ten tags of every host."""
    random = np.random.default_rng(scale.seed)
    tags = []
    for host in range(scale.hosts):
        region = list(REGIONS)[int(random.integers(len(REGIONS)))]
        tags.append(
            {
                "hostname": f"host_{host}",
                "region": region,
                "datacenter": f"{region}{'abcde'[int(random.integers(REGIONS[region]))]}",
                "rack": str(random.integers(100)),
                "os": ["Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"][int(random.integers(3))],
                "arch": ["x64", "x86"][int(random.integers(2))],
                "team": ["SF", "NYC", "LON", "CHI"][int(random.integers(4))],
                "service": str(random.integers(20)),
                "service_version": str(random.integers(2)),
                "service_environment": ["production", "staging", "test"][int(random.integers(3))],
            }
        )
    return tags


def metric_values(scale: Scale) -> NDArray[np.uint8]:
    """Metrics as an array of shape (steps, hosts, metrics), whole numbers 0..100."""
    random = np.random.default_rng(scale.seed + 1)
    value = random.uniform(0, 100, (scale.hosts, len(METRICS)))
    values = np.empty((scale.steps, scale.hosts, len(METRICS)), dtype=np.uint8)
    for step in range(scale.steps):
        values[step] = value
        value = np.clip(value + random.normal(0, 1, value.shape), 0, 100)
    return values


def encoded(
    scale: Scale, values: NDArray[np.uint8] | None = None, size: int = 1000, only: range | None = None
) -> Iterator[list[bytes]]:
    """The documents as BSON, in order of time with the hosts in turn, in lists of `size`.

    Their `_id`s are those of one client that encodes 100,000 documents in a second. Whole steps are filled in at once,
    so that a generator of millions is no slower than the server that takes them.

    Args:
        only: which steps; None for all.
    """
    if values is None:
        values = metric_values(scale)
    block, starts, fields = _template(scale)
    ends = [*starts[1:], len(block)]
    steps = only if only is not None else range(scale.steps)
    at_once = max(1, 20_000 // scale.hosts)
    waiting: list[bytes] = []
    for first in range(steps.start, steps.stop, at_once):
        last = min(first + at_once, steps.stop)
        rows = np.tile(np.frombuffer(block, dtype=np.uint8), (last - first, 1))
        numbers = np.arange(first * scale.hosts, last * scale.hosts).reshape(last - first, scale.hosts)
        offsets = np.array(starts)
        _fill(rows, offsets + fields["seconds"], _ENCODED_SECONDS + numbers // _ENCODED_PER_SECOND, ">u4")
        _fill(rows, offsets + fields["counter"], numbers % (1 << 24), ">u4", skip=1)
        times = START_MS + np.arange(first, last) * INTERVAL_MS
        _fill(rows, offsets + fields["time"], np.repeat(times[:, None], scale.hosts, axis=1), "<i8")
        for host_ends, metric in ((np.array(ends), metric) for metric in range(len(METRICS))):
            _fill(rows, host_ends + fields[METRICS[metric]], values[first:last, :, metric], "<i4")
        for row in rows:
            step = row.tobytes()
            waiting += [step[start:end] for start, end in zip(starts, ends, strict=True)]
            while len(waiting) >= size:
                yield waiting[:size]
                del waiting[:size]
    if waiting:
        yield waiting


def row_batches(
    scale: Scale, values: NDArray[np.uint8], size: int
) -> Iterator[tuple[list[int], list[int], list[list[int]]]]:
    """Times (milliseconds), hosts and metrics of `size` measurements after another, for other protocols than ours."""
    flat = values.reshape(-1, len(METRICS))
    for start in range(0, len(flat), size):
        numbers = np.arange(start, min(start + size, len(flat)))
        times = START_MS + numbers // scale.hosts * INTERVAL_MS
        yield times.tolist(), (numbers % scale.hosts).tolist(), flat[numbers].tolist()


def _template(scale: Scale) -> tuple[bytes, list[int], dict[str, int]]:
    """The documents of one step after one another, where each begins, and where fields lie (metrics: from the end)."""
    identity = ObjectId(_ENCODED_SECONDS.to_bytes(4, "big") + b"bench" + bytes(3))
    parts = [
        bson.encode({"_id": identity, "time": START, "tags": tags, **dict.fromkeys(METRICS, 0)})
        for tags in host_tags(scale)
    ]
    starts = np.cumsum([0, *(len(part) for part in parts[:-1])]).tolist()
    fields = {"seconds": 9, "counter": 17, "time": 27}
    end = -1
    for name in reversed(METRICS):
        fields[name] = end - 4
        end -= 4 + len(name) + 2
    return b"".join(parts), starts, fields


def _fill(rows: NDArray[np.uint8], offsets: NDArray[Any], numbers: NDArray[Any], form: str, skip: int = 0) -> None:
    """Write numbers (one for each row and offset) as bytes of a form, without its first `skip` bytes."""
    raw = np.ascontiguousarray(numbers.astype(form))[..., None].view(np.uint8)
    for place in range(skip, raw.shape[-1]):
        rows[:, offsets + place - skip] = raw[..., place]


def documents(scale: Scale) -> Iterator[dict[str, Any]]:
    """Measurements in order of time, hosts in turn."""
    tags = host_tags(scale)
    for step, row in enumerate(metric_values(scale)):
        time = START + step * INTERVAL
        for host, numbers in enumerate(row.tolist()):
            yield {"time": time, "tags": tags[host], **dict(zip(METRICS, numbers, strict=True))}


def batches(scale: Scale, size: int = 1000) -> Iterator[list[dict[str, Any]]]:
    """The same in lists of `size`."""
    batch: list[dict[str, Any]] = []
    for document in documents(scale):
        batch.append(document)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
