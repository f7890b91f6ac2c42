"""Plan node: buckets → the measurements in them. The executor never hears of buckets."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from bson import DatetimeMS

from ..common.errors import error_for
from ..common.values import MISSING, Document, decode
from ..kernels import BucketError, bucket_summary, unpack_many
from ..query.columns.batch import ColumnBatch
from ..query.columns.compute import filter_mask
from ..query.match.base import MatchNode
from ..query.plan.batches import Batch, RowBatch
from ..query.plan.nodes import PlanNode, Run
from .columns import column_batches

_BUCKETS_AT_ONCE: Final = 8
_BUCKETS_OF_COLUMNS: Final = 256
_COLUMNS_AT_ONCE: Final = 1024

Predicate = Callable[[Document], bool]


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
        self._at_once = 1 if in_order or computed or whole_filter is not None else _BUCKETS_AT_ONCE
        self._in_order = in_order
        self._columnar = columnar and include is not None and not computed and not in_order
        if self._columnar:
            wide = max(len(self._include or ()), 1)
            self._at_once = max(min(_BUCKETS_OF_COLUMNS, _COLUMNS_AT_ONCE // wide), 32)
        self.buckets = 0

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        left = self._limit
        matches = None if self._event_filter is None else self._event_filter.compile(run.variables)
        whole = None if self._whole_filter is None else self._whole_filter.compile(run.variables)
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            raws = batch.raws()
            for start in range(0, len(raws), self._at_once):
                some = raws[start : start + self._at_once]
                if self._columnar:
                    found: list[Batch] = self._columns(some, matches)
                else:
                    found = [self._unpack(some, matches, whole)]
                for rows in found:
                    if left is not None:
                        rows = rows.slice(0, left)
                        left -= len(rows)
                    self.stats.advanced += len(rows)
                    yield rows if len(rows) else None
                    if left == 0:
                        return
        self.stats.eof = True

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"nBucketsUnpacked": self.buckets}

    def _columns(self, buckets: Sequence[bytes], matches: Predicate | None) -> list[Batch]:
        """The measurements as columns, filtered."""
        self.buckets += len(buckets)
        fields = [name for name in self._include or () if name != self._meta_field]
        # The filter may ask for the time where nobody else does.
        fields += [] if self._time_field in fields else [self._time_field]
        try:
            batches = column_batches(buckets, self._time_field, self._meta_field, fields)
        except BucketError as error:
            code, message = error.args
            raise error_for(int(code), str(message)) from error
        return [self._filtered(batch, matches) for batch in batches]

    def _filtered(self, batch: ColumnBatch, matches: Predicate | None) -> ColumnBatch:
        if matches is None or self._event_filter is None:
            return batch
        mask = filter_mask(self._event_filter, batch)
        if mask is None:
            kept = [position for position, document in enumerate(batch.documents()) if matches(document)]
            return batch if len(kept) == len(batch) else batch.select(kept)
        return batch if mask.all() else batch.select(np.flatnonzero(mask))

    def _unpack(self, buckets: Sequence[bytes], matches: Predicate | None, whole: Predicate | None) -> Batch:
        self.buckets += len(buckets)
        try:
            raws = unpack_many(buckets, self._time_field, self._meta_field, self._include, self._exclude)
        except BucketError as error:
            code, message = error.args
            raise error_for(int(code), str(message)) from error
        rows: Batch = RowBatch(raws=raws)
        if self._at_once == 1:
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
