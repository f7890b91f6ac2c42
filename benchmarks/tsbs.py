"""TSBS-shaped data: the `cpu-only` case, made from a seed.

Each host has ten string tags and reports ten metrics every ten seconds; a metric is a random walk with normal steps,
clamped to 0..100 and sent as a whole number, as the Time Series Benchmark Suite sends it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

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
START = datetime(2016, 1, 1, tzinfo=UTC)


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


def metric_values(scale: Scale) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Metrics as an array of shape (steps, hosts, metrics), whole numbers 0..100."""
    random = np.random.default_rng(scale.seed + 1)
    value = random.uniform(0, 100, (scale.hosts, len(METRICS)))
    values = np.empty((scale.steps, scale.hosts, len(METRICS)), dtype=np.int64)
    for step in range(scale.steps):
        values[step] = value
        value = np.clip(value + random.normal(0, 1, value.shape), 0, 100)
    return values


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
