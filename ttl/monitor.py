"""Deletes what has outlived its lifetime, a little at a time.

Reading hides nothing that has expired: a document is there until a pass takes it away. A pass is made of sub-passes. A
sub-pass visits every lifetime in turn; a visit ends when nothing is left or its target is reached, and those that have
more are visited again, round after round, until the sub-pass has taken its time. A pass ends with the sub-pass that
leaves nothing. Each deletion is a short transaction of its own, so that whoever writes meanwhile waits for one of them at
most, and a crash between two loses nothing but the deletions that were still to come.

Deletions have a low priority: they share the commits of other writers instead of asking for their own. A collection that
several sub-passes in a row could not finish is cleaned with the priority of everybody else.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from bson import Int64, ObjectId

from ..catalog import documents
from ..catalog.catalog import Catalog
from ..catalog.collections import Collection
from ..common.clock import Clock
from ..common.values import Document
from ..storage.engine import Engine, Transaction
from .rules import Lifetime, bucket_id_of, lifetimes_of

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

SLICE_DOCUMENTS_MAX: Final = 200
"""As many documents go in one transaction; so many that a commit pays, so few that no other writer waits long."""
SLICE_SECONDS_MAX: Final = 0.005
"""A transaction ends after this long with fewer."""
SLICE_DOCUMENTS_BESIDE: Final = 64
SLICE_SECONDS_BESIDE: Final = 0.001
"""The same beside other writers, whose commit it lengthens."""

BucketsRemoved = Callable[[Collection, Sequence[ObjectId]], object]
Watch = Callable[[Lifetime], AbstractContextManager[Callable[[], bool]]]
"""Shows a visit to operators while it lasts; what it gives is asked, now and then, whether to go on."""


@dataclass(frozen=True, slots=True)
class TtlSettings:
    """The server's parameters; a target of 0 is none."""

    enabled: bool = True
    sleep_seconds: int = 60
    sub_pass_seconds: int = 60
    batch_deletes: bool = True
    target_documents: int = 50_000
    target_ms: int = 1000
    low_priority_sub_passes: int = 4
    """So many sub-passes may leave a collection unfinished before its priority is raised."""
    slow_ms: int = 100
    """A visit that takes as long is logged."""


@dataclass(slots=True)
class PassReport:
    """What a pass did."""

    deleted_documents: int = 0
    deleted_buckets: int = 0
    sub_passes: int = 0
    errors: int = 0


@dataclass(slots=True)
class TtlCounters:
    """Since the start of the server."""

    deleted_documents: int = 0
    """Buckets count as documents."""
    passes: int = 0
    sub_passes: int = 0
    invalid_index_skips: int = 0
    raised_priorities: int = 0
    """Collections of sub-passes, that is, whose priority was raised."""


@dataclass(slots=True)
class _Slice:
    """What one transaction removed."""

    count: int
    buckets: list[ObjectId]
    more: bool


class TtlMonitor:
    """The background task that expires documents and buckets. Used on the event loop only."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        clock: Clock,
        settings: Callable[[], TtlSettings],
        logger: "FilteringBoundLogger",
        *,
        on_buckets_removed: BucketsRemoved = lambda collection, ids: None,
        watch: Watch = lambda lifetime: nullcontext(lambda: True),
        locked: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make a monitor; `start` sets it to work.

        Args:
            settings: asked again before each step, so that a change counts at once.
            on_buckets_removed: told of buckets that are gone.
            watch: see `Watch`.
            locked: whether nobody may write now; then a pass ends, and the next one goes on.
        """
        self._engine = engine
        self._catalog = catalog
        self._clock = clock
        self._settings = settings
        self._logger = logger
        self._on_buckets_removed = on_buckets_removed
        self._watch = watch
        self._locked = locked
        self._passing = asyncio.Lock()
        self._rethink = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._slept_from_ms = clock.elapsed_ms()
        self._waiting: list[asyncio.Future[None]] = []
        self._told: set[int] = set()
        self._on_demand: Callable[[], bool] | None = None
        self.counters = TtlCounters()

    def start(self) -> None:
        """Begin to sleep; the first pass comes after that."""
        self._slept_from_ms = self._clock.elapsed_ms()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End, in the middle of a pass where need be."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._settle()

    def wake(self) -> None:
        """The settings have changed: think again how long to sleep."""
        self._rethink.set()

    async def settled(self) -> None:
        """Return when no pass is due any more; for whoever moved the clock."""
        while self._task is not None and not self._task.done() and self._left_ms() <= 0:
            self._rethink.set()
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(done)
            await done

    def metrics(self) -> Document:
        """`metrics.ttl` of serverStatus."""
        return {
            "collSubpassesIncreasedPriority": Int64(self.counters.raised_priorities),
            "deletedDocuments": Int64(self.counters.deleted_documents),
            "invalidTTLIndexSkips": Int64(self.counters.invalid_index_skips),
            "passes": Int64(self.counters.passes),
            "subPasses": Int64(self.counters.sub_passes),
        }

    async def run_pass(self, *, on_demand: Callable[[], bool] | None = None) -> PassReport:
        """Delete everything that has expired, and return what that was.

        Args:
            on_demand: run although the monitor is switched off, as long as this is true.
        """
        async with self._passing:
            self._on_demand = on_demand
            started = self._clock.monotonic()
            report = PassReport()
            more = True
            behind: dict[int, int] = {}
            while more and self._may_go_on():
                more = await self._sub_pass(report, behind)
                report.sub_passes += 1
                self.counters.sub_passes += 1
            self.counters.passes += report.sub_passes > 0
            found = report.deleted_documents or report.deleted_buckets
            tell = self._logger.info if found else self._logger.debug
            tell(
                "Deleted expired documents" if found else "Nothing has expired",
                component="INDEX",
                ctx="TTLMonitor",
                deletedDocuments=report.deleted_documents,
                deletedBuckets=report.deleted_buckets,
                subPasses=report.sub_passes,
                durationMillis=int((self._clock.monotonic() - started) * 1000),
            )
            return report

    def _left_ms(self) -> int:
        """How long it is until the next pass."""
        return self._slept_from_ms + self._settings().sleep_seconds * 1000 - self._clock.elapsed_ms()

    async def _run(self) -> None:
        while True:
            await self._sleep()
            try:
                if self._settings().enabled and not self._locked():
                    await self.run_pass()
            except Exception as error:
                # The next pass may go better; without this one, everything else still does.
                self._logger.error("TTL pass failed", component="INDEX", ctx="TTLMonitor", exc_info=error)
            self._slept_from_ms = self._clock.elapsed_ms()
            self._settle()

    async def _sleep(self) -> None:
        """Until the next pass is due, however often that changes meanwhile."""
        loop = asyncio.get_running_loop()
        while (left_ms := self._left_ms()) > 0:
            self._rethink.clear()
            waits = {loop.create_task(self._clock.sleep(left_ms)), loop.create_task(self._rethink.wait())}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if not done.done():
                done.set_result(None)

    def _may_go_on(self) -> bool:
        wanted = self._settings().enabled if self._on_demand is None else self._on_demand()
        return wanted and not self._locked()

    async def _sub_pass(self, report: PassReport, behind: dict[int, int]) -> bool:
        """Visit every lifetime, again and again where there is more; True where time ended it.

        `behind` counts, by the number of a collection, how many sub-passes in a row have left something of it.
        """
        started = self._clock.monotonic()
        lifetimes = self._lifetimes()
        limit = self._settings().low_priority_sub_passes
        raised = {number for lifetime in lifetimes if behind.get(number := lifetime.collection.id, 0) >= limit}
        self.counters.raised_priorities += len(raised)
        while lifetimes:
            unfinished = []
            for lifetime in lifetimes:
                if not self._may_go_on():
                    return False
                if await self._visit(lifetime, report, hurry=lifetime.collection.id in raised):
                    unfinished.append(lifetime)
            lifetimes = unfinished
            if self._clock.monotonic() - started >= self._settings().sub_pass_seconds:
                break
        left = {lifetime.collection.id for lifetime in lifetimes}
        counts = {number: behind.get(number, 0) + 1 for number in left}
        behind.clear()
        behind.update(counts)
        return bool(lifetimes)

    def _lifetimes(self) -> list[Lifetime]:
        found = []
        for collection in self._catalog.all_collections():
            lifetimes = lifetimes_of(collection)
            found += lifetimes.valid
            for index in lifetimes.invalid:
                self.counters.invalid_index_skips += 1
                if index.id not in self._told:
                    self._told.add(index.id)
                    self._logger.warning(
                        "Nothing expires by this TTL index",
                        component="INDEX",
                        ctx="TTLMonitor",
                        namespace=str(collection.namespace),
                        index=index.name,
                    )
        return found

    async def _visit(self, lifetime: Lifetime, report: PassReport, *, hurry: bool) -> bool:
        """Delete what has expired by one lifetime, up to the targets; True where there is more."""
        started = self._clock.monotonic()
        now_ms = self._clock.now_ms()
        names = _names_of(lifetime)
        count = 0
        self._logger.debug("Running TTL job", component="INDEX", ctx="TTLMonitor", **names)
        try:
            with self._watch(lifetime) as wanted:
                while self._may_go_on() and wanted():
                    lifetime = self._renamed(lifetime)
                    # Where the clock was set back meanwhile, less has expired.
                    now_ms = min(now_ms, self._clock.now_ms())
                    write = self._engine.write if hurry else self._engine.write_beside
                    settings = self._settings()
                    target = settings.target_documents if settings.batch_deletes else 0
                    beside = not hurry and not self._engine.quiet()
                    limit = SLICE_DOCUMENTS_BESIDE if beside else SLICE_DOCUMENTS_MAX
                    if target:
                        limit = min(limit, max(target - count, 1))
                    seconds = SLICE_SECONDS_BESIDE if beside else SLICE_SECONDS_MAX
                    work = partial(self._remove, planned=lifetime, now_ms=now_ms, limit=limit, seconds=seconds)
                    removed = await write(work)
                    count += removed.count
                    self._note(lifetime.collection, removed, report)
                    if not removed.more:
                        if self._renamed(lifetime).collection.namespace != lifetime.collection.namespace:
                            continue
                        return False
                    elapsed_ms = (self._clock.monotonic() - started) * 1000
                    if settings.batch_deletes and (0 < target <= count or 0 < settings.target_ms <= elapsed_ms):
                        return True
                return False
        except Exception as error:
            # One collection that cannot be cleaned does not keep the others from it.
            report.errors += 1
            self._logger.error(
                "Error running TTL job on collection",
                component="INDEX",
                ctx="TTLMonitor",
                id=5400703,
                exc_info=error,
                **names,
            )
            return False
        finally:
            duration_ms = int((self._clock.monotonic() - started) * 1000)
            if count and duration_ms >= self._settings().slow_ms:
                self._logger.info(
                    "Deleted expired documents using "
                    + ("clustered index scan" if lifetime.index is None else "index"),
                    component="INDEX",
                    ctx="TTLMonitor",
                    id=5400702 if lifetime.index is None else 5479200,
                    numDeleted=count,
                    durationMillis=duration_ms,
                    **names,
                )

    def _renamed(self, lifetime: Lifetime) -> Lifetime:
        """The lifetime under the name that its collection has now."""
        planned = lifetime.collection
        current = self._catalog.get(planned.namespace)
        if current is None or current.id != planned.id:
            current = next((one for one in self._catalog.all_collections() if one.id == planned.id), None)
        return lifetime if current is None else replace(lifetime, collection=current)

    def _note(self, collection: Collection, removed: _Slice, report: PassReport) -> None:
        if collection.is_buckets:
            report.deleted_buckets += removed.count
        else:
            report.deleted_documents += removed.count
        self.counters.deleted_documents += removed.count
        if removed.buckets:
            self._on_buckets_removed(collection, removed.buckets)

    def _remove(
        self, transaction: Transaction, *, planned: Lifetime, now_ms: int, limit: int, seconds: float
    ) -> _Slice:
        """One transaction's worth of deletions, by the collection as it is now; runs on the writer's thread."""
        nothing = _Slice(0, [], more=False)
        collection = self._catalog.collection_in(transaction, planned.collection.namespace)
        lifetime = None if collection is None else planned.in_current(collection)
        # What locks the server may have come while this waited for its turn.
        if collection is None or lifetime is None or self._locked():
            return nothing
        until = self._clock.monotonic() + seconds
        record_keys: dict[bytes, None] = {}
        for record_key in lifetime.expired(transaction, lifetime.cut_ms(now_ms)):
            record_keys[record_key] = None
            if len(record_keys) == limit:
                break
        count = 0
        buckets = []
        for record_key in record_keys:
            raw = documents.fetch(transaction, collection, record_key)
            if raw is None:
                continue
            documents.remove(transaction, collection, record_key, raw)
            count += 1
            bucket_id = bucket_id_of(collection, raw)
            if bucket_id is not None:
                buckets.append(bucket_id)
            if self._clock.monotonic() >= until:
                return _Slice(count, buckets, more=True)
        # Entries without a document, should there be any, are no reason to begin again.
        return _Slice(count, buckets, more=count > 0 and len(record_keys) == limit)


def _names_of(lifetime: Lifetime) -> dict[str, str]:
    names = {"namespace": str(lifetime.collection.namespace)}
    if lifetime.index is not None:
        names["index"] = lifetime.index.name
    return names
