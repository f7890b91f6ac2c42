"""Gives the TTL monitor what it needs of the server: parameters, the bucket catalog, currentOp, serverStatus."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from bson import ObjectId

from ..catalog.collections import Collection
from ..common.display import value_text
from ..ttl.monitor import TtlMonitor, TtlSettings
from ..ttl.rules import Lifetime
from .context import Services

_HEARD: Final = ("ttlMonitorSleepSecs", "ttlMonitorEnabled")


def open_monitor(services: Services) -> None:
    """Start the monitor, on a catalog that is loaded; whoever opened the services stops it."""

    def forget(collection: Collection, bucket_ids: Sequence[ObjectId]) -> None:
        # The bucket catalog is opened with the first insert.
        if services.buckets is not None:
            services.buckets.forget_buckets(collection, bucket_ids)

    monitor = TtlMonitor(
        services.engine,
        services.catalog,
        services.clock,
        partial(_settings, services),
        services.logger,
        on_buckets_removed=forget,
        watch=partial(_watch, services),
        locked=lambda: services.write_gate.closed,
    )
    for name in _HEARD:
        services.parameters.on_change(name, lambda _: monitor.wake())
    services.metric_sections["ttl"] = monitor.metrics
    services.ttl = monitor
    monitor.start()


def _settings(services: Services) -> TtlSettings:
    parameters = services.parameters
    return TtlSettings(
        enabled=parameters["ttlMonitorEnabled"],
        sleep_seconds=parameters["ttlMonitorSleepSecs"],
        sub_pass_seconds=parameters["ttlMonitorSubPassTargetSecs"],
        batch_deletes=parameters["ttlMonitorBatchDeletes"],
        target_documents=parameters["ttlIndexDeleteTargetDocs"],
        target_ms=parameters["ttlIndexDeleteTargetTimeMS"],
        low_priority_sub_passes=parameters["ttlCollLowPrioritySubpassLimit"],
        slow_ms=services.slow_ms,
    )


@contextmanager
def _watch(services: Services, lifetime: Lifetime) -> Iterator[Callable[[], bool]]:
    """An operation for currentOp, and for killOp, while a visit lasts."""
    operation = services.operations.begin()
    operation.kind = "remove"
    operation.description = "TTLMonitor"
    operation.writes = True
    operation.database = lifetime.collection.namespace.database
    operation.namespace = str(lifetime.collection.namespace)
    operation.command = {"q": lifetime.query(services.clock.now_ms()), "limit": 0}
    operation.plan_summary = (
        "CLUSTERED_IXSCAN" if lifetime.index is None else f"IXSCAN {value_text(lifetime.index.key)}"
    )
    try:
        yield lambda: not operation.killed
    finally:
        services.operations.end(operation)
