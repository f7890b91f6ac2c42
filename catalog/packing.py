"""Puts buckets that nobody is filling any more into packs, in the background: see `packs`.

A pass walks through the buckets of a collection from the lowest that is new since the last one. It reads and compresses on a
thread of its own, under snapshots; the write closure puts a pack in the place of its buckets only if they still lie there as
they were read, so nobody has to be kept out meanwhile.
"""

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from ..common.errors import MongoError
from ..kernels import BucketError, bucket_in_order
from ..storage.engine import Engine, Transaction
from ..storage.errors import StorageError
from ..storage.keys import after, number_key
from . import documents, packs
from .catalog import Catalog
from .collections import Collection
from .merging import Merger
from .packs import Rows

PASS_MS: Final = 5000
"""So long between two looks for what can be packed."""
CLOSED_MIN: Final = 16
"""For fewer buckets that were closed since the last pass than this, or than a quarter of the active ones, there is none."""

_PUT_OFF_MAX: Final = 10
"""So many passes packing waits for merging."""
_STEP_BYTES: Final = 2 * 1024 * 1024
_LEFT_LOOSE: Final = packs.RAW_BYTES_MAX // 4
"""Fewer bytes beside each other than this wait for more."""


class Clock(Protocol):
    """What the packer needs of the clock."""

    async def sleep(self, duration_ms: int) -> None:
        """Return after so long."""


class Active(Protocol):
    """What the packer needs of the bucket catalog."""

    def active_ids(self, collection: Collection) -> set[bytes]:
        """Ids of the buckets that may still grow."""

    def fresh(self, collection: Collection) -> tuple[int, bytes] | None:
        """How many are new, and the lowest of their ids."""


@dataclass(slots=True)
class Made:
    """A pack, the bytes of the documents in it, and the buckets that it is to replace; keys with the collection's number."""

    value: bytes
    document_bytes: int
    rows: Rows


@dataclass(slots=True)
class Step:
    """What one stretch of a walk has found.

    Attributes:
        made: packs.
        skipped: record key of the first bucket that was left loose.
        resume: where to go on; None at the end.
    """

    made: list[Made] = field(default_factory=list)
    skipped: bytes | None = None
    resume: bytes | None = None


@dataclass(slots=True)
class _Loose:
    """What is known of the loose buckets of a collection.

    Attributes:
        count: about how many there are, active ones included. Nothing is known of those that were there at the start.
        low: no loose one lies before this record key.
        left: how many the last pass found no neighbours for.
        put_off: how often in a row nothing was packed, because it could not be merged first.
    """

    count: int = 0
    low: bytes = b""
    left: int = 0
    put_off: int = 0


class Packer:
    """The background task, and what it remembers of each collection."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        clock: Clock,
        buckets: Callable[[], Active | None],
        logger: Any,
        enabled: Callable[[], bool],
        merger: Merger | None = None,
    ) -> None:
        """Make one that does nothing yet.

        Args:
            buckets: the bucket catalog, once there is one.
            enabled: whether passes are wanted.
            merger: merges what can be merged before it is packed.
        """
        self._merger = merger
        self._enabled = enabled
        self._engine = engine
        self._catalog = catalog
        self._clock = clock
        self._buckets = buckets
        self._logger = logger
        self._loose: dict[int, _Loose] = {}
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.packed = 0
        """Buckets packed since the start."""

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End, after the write at hand."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(PASS_MS)
            try:
                await self._look_around()
            except (MongoError, StorageError) as error:
                # Whatever is loose stays readable, and the next pass may do better.
                self._logger.error("Packing buckets failed", component="STORAGE", exc_info=error)

    async def _look_around(self) -> None:
        """Pack what has been closed, of every collection where it is enough."""
        active = self._buckets()
        if active is None or not self._enabled():
            return
        for collection in self._catalog.all_collections():
            if not collection.packed:
                continue
            fresh = active.fresh(collection)
            if fresh is None:
                continue
            loose = self._loose.setdefault(collection.id, _Loose())
            loose.count += fresh[0]
            loose.low = min(loose.low, packs.record_key(fresh[1]))
            ids = active.active_ids(collection)
            if loose.count - len(ids) - loose.left >= max(CLOSED_MIN, len(ids) // 4):
                await self.pack(collection, ids)
                loose.left = max(loose.count - len(ids), 0)

    async def pack(self, collection: Collection, active: Set[bytes] = frozenset(), *, everything: bool = False) -> int:
        """Pack the buckets of a collection; returns how many.

        Args:
            active: ids of the buckets to leave alone.
            everything: from the first one on, and however few lie beside each other.
        """
        async with self._one_at_a_time:
            loose = self._loose.setdefault(collection.id, _Loose())
            noted = loose.low
            low = b"" if everything else noted
            resume: bytes | None = low
            skipped: bytes | None = None
            packed = 0
            if self._merger is not None:
                merged = await self._merger.merge(collection, low, packed=everything)
                loose.count = max(loose.count - merged.gone, 0)
                if merged.put_off and not everything and loose.put_off < _PUT_OFF_MAX:
                    # What can still be merged is packed when somebody has read without a pause for long.
                    loose.put_off += 1
                    return 0
                loose.put_off = 0
            while resume is not None:
                step = await asyncio.to_thread(self._read, collection, resume, active, everything)
                if step.made:
                    packed += await self._engine.write_beside(partial(self._put, collection=collection, step=step))
                skipped = skipped if skipped is not None else step.skipped
                resume = step.resume
            loose.count = max(loose.count - packed, 0)
            # What was noted meanwhile is looked for in the next pass.
            if loose.low == noted:
                loose.low = skipped if skipped is not None else packs.record_key(b"\xff" * 12)
            self.packed += packed
            return packed

    def _read(self, collection: Collection, low: bytes, active: Set[bytes], everything: bool) -> Step:
        """Read on from a record key, and make packs; on a thread of its own."""
        prefix = number_key(collection.id)
        step = Step()
        time_field = str(collection.options["timeseries"]["timeField"])
        run: Rows = []
        raw_bytes = read_bytes = 0
        last = b""

        def flush(*, at_end: bool) -> None:
            """Make packs of what lies beside each other; what is too little waits, or is read again in the next step."""
            nonlocal run, raw_bytes
            while run and (raw_bytes >= packs.RAW_BYTES_MAX or at_end):
                few = at_end and raw_bytes < _LEFT_LOOSE and not everything
                share = run if few else _share(run)
                made = None if few else packs.pack([(key, _in_order(raw, time_field)) for key, raw in share])
                count = len(share) if made is None else made[0]
                if made is None:
                    step.skipped = step.skipped if step.skipped is not None else run[0][0]
                else:
                    step.made.append(Made(made[1], made[2], [(prefix + key, raw) for key, raw in run[:count]]))
                raw_bytes -= sum(len(raw) for _, raw in run[:count])
                run = run[count:]

        with self._engine.snapshot() as snapshot:
            for key, raw in snapshot.scan("records", prefix + low, after(prefix)):
                last = key[8:]
                read_bytes += len(raw)
                if packs.is_pack(raw) or last[1:] in active or not packs.may_be_packed(last, raw):
                    if not packs.is_pack(raw):
                        step.skipped = step.skipped if step.skipped is not None else last
                    flush(at_end=True)
                else:
                    run.append((last, raw))
                    raw_bytes += len(raw)
                    flush(at_end=False)
                if read_bytes >= _STEP_BYTES:
                    step.resume = run[0][0] if run else last + b"\0"
                    return step
            flush(at_end=True)
        return step

    def _put(self, transaction: Transaction, collection: Collection, step: Step) -> int:
        """Put packs in the place of their buckets, where these lie as they were read."""
        current = self._catalog.collection_in(transaction, collection.namespace)
        if current is None or current.id != collection.id:
            return 0
        packed = 0
        for made in step.made:
            rows = made.rows
            first, last = rows[0][0], rows[-1][0]
            if list(transaction.scan("records", first, last + b"\0")) != rows:
                continue
            for key, _ in rows[:-1]:
                transaction.delete("records", key)
            transaction.put("records", last, made.value)
            packs.note_saved(transaction, number_key(collection.id), made.document_bytes - len(made.value))
            documents.note_rewritten(transaction, current, made.document_bytes - sum(len(raw) for _, raw in rows))
            packed += len(rows)
        return packed


def _in_order(raw: bytes, time_field: str) -> bytes:
    """A bucket in the order of time: what came out of order takes more, and is read with more effort."""
    try:
        return bucket_in_order(raw, time_field) or raw
    except BucketError:
        # Somebody else wrote it; it stays as it is.
        return raw


def _share(run: Rows) -> Rows:
    """As many from the first as make a pack, and at least one."""
    total = 0
    for number, (_, raw) in enumerate(run[: packs.COUNT_MAX]):
        total += len(raw)
        if total > packs.RAW_BYTES_MAX and number:
            return run[:number]
    return run[: packs.COUNT_MAX]
