"""Plan node: buckets → the measurements in them. The executor never hears of buckets."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from bson import DatetimeMS
from numpy.typing import NDArray

from ..common.errors import error_for
from ..common.values import MISSING, Document, decode
from ..kernels import BucketError, BucketTotals, bucket_summary, unpack_edges, unpack_many
from ..query.columns.batch import ColumnBatch
from ..query.columns.compute import filter_mask
from ..query.columns.told import ToldBatch, TotalsWanted
from ..query.match.base import MatchNode
from ..query.match.raw import raw_filter
from ..query.plan.batches import Batch, BlockBatch, Packed, RowBatch
from ..query.plan.nodes import PlanNode, Run
from .columns import column_batches, shared_of

_FEW: Final = 4
_BUCKETS_AT_ONCE: Final = 32
"""Begun with a few, as a client may want no more than a page of measurements."""
_BUCKETS_OF_COLUMNS: Final = 512
_COLUMNS_AT_ONCE: Final = 1024
_TURNS_MAX: Final = 16
"""How often buckets that pass a filter whole and others may take turns before all are unpacked alike."""

End = Literal["newest", "oldest"]
Predicate = Callable[[Document], bool]
Mask = NDArray[np.bool_]


class BucketBatch(Batch):
    """The measurements of one bucket, and what is known of all that come after them."""

    def __init__(self, rows: Batch, start: DatetimeMS, meta: Any) -> None:
        """Wrap rows.

        Args:
            start: `control.min` of the time.
            meta: the bucket's meta value; MISSING where it has none.
        """
        self.rows = rows
        self.start = start
        self.meta = meta

    def __len__(self) -> int:
        return len(self.rows)

    def documents(self) -> list[Document]:
        """See `Batch.documents`."""
        return self.rows.documents()

    def raws(self) -> list[bytes]:
        """See `Batch.raws`."""
        return self.rows.raws()

    def packed(self) -> Packed:
        """See `Batch.packed`."""
        return self.rows.packed()

    def select(self, positions: Sequence[int]) -> "BucketBatch":
        """See `Batch.select`."""
        return BucketBatch(self.rows.select(positions), self.start, self.meta)


class UnpackBuckets(PlanNode):
    """Measurements of the buckets that its input yields, as raw documents: only the fields that are wanted."""

    stage = "UNPACK_TS_BUCKET"

    def __init__(
        self,
        source: PlanNode,
        time_field: str,
        meta_field: str | None,
        *,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        computed: Sequence[str] = (),
        limit: int | None = None,
        event_filter: MatchNode | None = None,
        whole_filter: MatchNode | None = None,
        in_order: bool = False,
        columnar: bool = False,
        gradual: bool = False,
        columns: Sequence[str] | None = None,
        edge: End | None = None,
        first: tuple[int, bool] | None = None,
        totals: TotalsWanted | None = None,
    ) -> None:
        """Prepare to unpack; the arguments are those of `UnpackSpec`."""
        super().__init__(source)
        self._time_field = time_field
        self._meta_field = meta_field
        self._include = None if include is None else list(include)
        self._exclude = None if exclude is None else list(exclude)
        self._computed = list(computed)
        self._limit = limit
        self._event_filter = event_filter
        self._whole_filter = whole_filter
        self._singly = in_order or bool(computed)
        self._in_order = in_order
        self._edge = edge
        self._first = first
        self._totals = totals
        self._columnar = columnar and (include is not None or columns is not None) and not computed and not in_order
        self._gradual = gradual
        self._own_columns = list(include or ()) if columns is None else list(columns)
        wide = max(len(self._own_columns), 1)
        self._columns_at_once = max(min(_BUCKETS_OF_COLUMNS, _COLUMNS_AT_ONCE // wide), 32)
        self._tested = self._tested_columns()
        sieve = None if whole_filter is None or not self._columnar else raw_filter(whole_filter)
        self._whole_sieve = sieve[0] if sieve is not None and sieve[1] else None
        self.buckets = 0

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        left = self._limit
        matches = None if self._event_filter is None else self._event_filter.compile(run.variables)
        whole = None if self._whole_filter is None else self._whole_filter.compile(run.variables)
        size = _FEW
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            raws = batch.raws()
            start = 0
            while start < len(raws):
                some = raws[start : start + self._at_once(size, len(raws), whole is not None)]
                start += len(some)
                size = min(2 * size, _BUCKETS_AT_ONCE)
                self.buckets += len(some)
                for rows in self._measurements(some, matches, whole):
                    if left is not None:
                        rows = rows.slice(0, left)
                        left -= len(rows)
                    self.stats.advanced += len(rows)
                    yield rows if len(rows) else None
                    if left == 0:
                        return
        self.stats.eof = True

    def _at_once(self, size: int, given: int, by_bucket: bool) -> int:
        """How many buckets are unpacked together."""
        if self._edge is not None:
            # What belongs together came together.
            return given
        if self._columnar and not self._gradual:
            return self._columns_at_once
        return 1 if self._singly or (by_bucket and self._tested is None) else size

    def _measurements(
        self, buckets: Sequence[bytes], matches: Predicate | None, whole: Predicate | None
    ) -> Sequence[Batch]:
        try:
            if self._edge is not None:
                return [self._edges(buckets, newest=self._edge == "newest")]
            if self._columnar:
                told, buckets, passes = self._told(buckets, self._pass_whole(buckets))
                return told + [
                    batch
                    for some, whole in self._by_whole(buckets, passes)
                    for batch in self._filtered(some, matches, whole)
                ]
            if self._tested is not None and not self._singly:
                picked = self._picked(buckets, self._tested)
                if picked is not None:
                    return picked
                return [self._unpack([bucket], matches, whole) for bucket in buckets]
            return [self._unpack(buckets, matches, whole)]
        except BucketError as error:
            code, message = error.args
            raise error_for(int(code), str(message)) from error

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"nBucketsUnpacked": self.buckets}

    def _tested_columns(self) -> list[str] | None:
        """The columns that the filter reads, where it reads columns alone and rows are built from what passes."""
        if self._event_filter is None or self._columnar or self._computed or self._exclude:
            return None
        fields = self._event_filter.fields()
        if fields is None or self._meta_field in fields or any("." in path for path in fields):
            return None
        return sorted(fields)

    def _columns(self, buckets: Sequence[bytes], fields: Sequence[str]) -> list[ColumnBatch]:
        return column_batches(
            buckets, self._time_field, self._meta_field, fields, built=self._wanted, shown_meta=self._shown_meta
        )

    def _picked(self, buckets: Sequence[bytes], tested: Sequence[str]) -> Sequence[Batch] | None:
        """The measurements that pass, of which alone all fields are looked at; None where columns cannot tell which."""
        assert self._event_filter is not None
        masks = []
        batches = self._columns(buckets, tested)
        for batch in batches:
            mask = filter_mask(self._event_filter, batch)
            if mask is None:
                return None
            masks.append(mask)
        if all(mask.all() for mask in masks):
            return [self._unpack(buckets, None, None)]
        kept = [batch.select(np.flatnonzero(mask)) for batch, mask in zip(batches, masks, strict=True) if mask.any()]
        return [BlockBatch(*batch.packed()) for batch in kept] or [RowBatch(raws=[])]

    def _cut(self, bucket: bytes, limit: int, *, newest: bool) -> Batch | None:
        """The first few measurements of a bucket in the order of time, with all of equal times; None if rows must tell."""
        if self._event_filter is not None and self._tested is None:
            return None
        (batch,) = self._columns([bucket], self._tested or ())
        if self._event_filter is not None:
            mask = filter_mask(self._event_filter, batch)
            if mask is None:
                return None
            batch = batch.select(np.flatnonzero(mask))
        times = batch.column(self._time_field).values
        if len(times) > limit:
            ordered = -times if newest else times
            batch = batch.select(np.flatnonzero(ordered <= np.partition(ordered, limit - 1)[limit - 1]))
        return BlockBatch(*batch.packed())

    def _edges(self, buckets: Sequence[bytes], *, newest: bool) -> Batch:
        """Of each series, whose buckets lie behind each other, the measurements of its latest or earliest time."""
        fields = None if self._wanted is None else list({*self._wanted, self._time_field})
        unpacked = unpack_edges(buckets, self._time_field, fields, newest)
        times = unpacked.column(self._time_field)[1]
        metas, offsets = unpacked.metas, unpacked.offsets
        if not len(times):
            return RowBatch(raws=[])
        first = [at for at in range(len(metas)) if at == 0 or metas[at] != metas[at - 1]]
        starts = offsets[first]
        edges = (np.maximum if newest else np.minimum).reduceat(times, starts)
        lengths = np.diff(np.concatenate((starts, [len(times)])))
        positions = np.flatnonzero(times == np.repeat(edges, lengths))
        if fields is not None and self._time_field not in (self._wanted or ()):
            unpacked = unpack_edges(buckets, self._time_field, self._wanted, newest)
        return BlockBatch(unpacked.build_rows(positions, self._shown_meta))

    @property
    def _wanted(self) -> list[str] | None:
        """The columns that are wanted; None for all."""
        return None if self._include is None else [name for name in self._include if name != self._meta_field]

    @property
    def _shown_meta(self) -> str | None:
        """The name of the meta field, where it is wanted."""
        return self._meta_field if self._include is None or self._meta_field in self._include else None

    def _pass_whole(self, buckets: Sequence[bytes]) -> Mask:
        """The buckets of which all measurements pass the filter, as control says."""
        if self._event_filter is None:
            return np.ones(len(buckets), dtype=np.bool_)
        if self._whole_sieve is None:
            return np.zeros(len(buckets), dtype=np.bool_)
        passes: Mask = np.frombuffer(self._whole_sieve.verdicts(list(buckets)), dtype=np.uint8) == 1
        return passes

    def _by_whole(self, buckets: Sequence[bytes], verdicts: Mask) -> Sequence[tuple[Sequence[bytes], bool]]:
        """The buckets in their order, those beside each other together that pass whole or do not."""
        if not buckets:
            return []
        borders = np.flatnonzero(verdicts[1:] != verdicts[:-1]) + 1
        if len(borders) > _TURNS_MAX:
            return [(buckets, bool(verdicts.all()))]
        edges = [0, *borders.tolist(), len(buckets)]
        return [(buckets[start:stop], bool(verdicts[start])) for start, stop in pairwise(edges)]

    def _told(self, buckets: Sequence[bytes], passes: Mask) -> tuple[list[Batch], Sequence[bytes], Mask]:
        """What the totals of buckets tell that pass the filter whole, the buckets that are left, and which of these pass."""
        if self._totals is None or not passes.any():
            return [], buckets, passes
        wanted = self._totals
        fields = list(wanted.sums), list(wanted.least), list(wanted.greatest)
        asked = _those(buckets, passes)
        totals = BucketTotals(asked, self._time_field, *fields)
        tells = totals.fits
        same = wanted.within(totals.time_bounds)
        if same is not None:
            tells &= same
        if not tells.any():
            return [], buckets, passes
        left = ~passes
        if not tells.all():
            asked = _those(asked, tells)
            totals = BucketTotals(asked, self._time_field, *fields)
            left[np.flatnonzero(passes)[~tells]] = True
        self.buckets -= len(asked)
        batch = ToldBatch(
            totals,
            partial(shared_of, self._meta_field),
            self._time_field,
            partial(self._columns, asked, self._own_columns),
        )
        return [batch], _those(buckets, left), passes[left]

    def _filtered(self, buckets: Sequence[bytes], matches: Predicate | None, whole: bool) -> list[ColumnBatch]:
        """The measurements that pass, as columns."""
        batches = self._columns(buckets, self._own_columns)
        if whole or matches is None or self._event_filter is None:
            return batches
        passed = []
        for batch in batches:
            mask = filter_mask(self._event_filter, batch)
            if mask is None:
                kept = [position for position, document in enumerate(batch.documents()) if matches(document)]
                passed.append(batch if len(kept) == len(batch) else batch.select(kept))
            else:
                passed.append(batch if mask.all() else batch.select(np.flatnonzero(mask)))
        return passed

    def _unpack(self, buckets: Sequence[bytes], matches: Predicate | None, whole: Predicate | None) -> Batch:
        cut = None
        if self._first is not None and not self._computed and not self._exclude:
            cut = self._cut(buckets[0], self._first[0], newest=self._first[1])
        if cut is None:
            block = unpack_many(buckets, self._time_field, self._meta_field, self._include, self._exclude)
            rows: Batch = BlockBatch(block)
        else:
            rows, matches, whole = cut, None, None
        if self._singly or whole is not None:
            bucket = decode(buckets[0])
            if self._computed:
                beside = {name: bucket[name] for name in self._computed if name in bucket}
                rows = RowBatch(documents=[document | beside for document in rows.documents()])
            if self._in_order:
                start_ms = bucket_summary(buckets[0], self._time_field)[3]
                rows = BucketBatch(rows, DatetimeMS(start_ms), bucket.get("meta", MISSING))
            if whole is not None and whole(bucket):
                return rows
        if matches is None:
            return rows
        kept = [position for position, document in enumerate(rows.documents()) if matches(document)]
        return rows if len(kept) == len(rows) else rows.select(kept)


def _those(buckets: Sequence[bytes], mask: Mask) -> list[bytes]:
    return [bucket for bucket, one in zip(buckets, mask.tolist(), strict=True) if one]
