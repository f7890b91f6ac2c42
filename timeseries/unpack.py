"""Plan node: buckets → the measurements in them. The executor never hears of buckets."""

from collections.abc import Iterator, Sequence
from typing import Final

from ..catalog.timeseries_options import TimeseriesOptions
from ..common.errors import error_for
from ..common.values import Document
from ..kernels import BucketError, unpack_many
from ..query.match.base import AlwaysTrue, MatchNode
from ..query.plan.batches import Batch, RowBatch
from ..query.plan.nodes import PlanNode, Run

_BUCKETS_AT_ONCE: Final = 8


class UnpackBuckets(PlanNode):
    """Measurements of the buckets that its input yields, as raw documents: only the fields that are wanted."""

    stage = "UNPACK_TS_BUCKET"

    def __init__(
        self,
        source: PlanNode,
        options: TimeseriesOptions,
        *,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        limit: int | None = None,
        bucket_filter: MatchNode | None = None,
    ) -> None:
        """Prepare to unpack.

        Args:
            include, exclude: top-level fields of the measurements.
            limit: how many measurements are wanted at most.
            bucket_filter: what the buckets were chosen by, for explain.
        """
        super().__init__(source)
        self.options = options
        self.include = None if include is None else list(include)
        self.exclude = None if exclude is None else list(exclude)
        self.limit = limit
        self.bucket_filter: MatchNode = bucket_filter or AlwaysTrue()
        self.buckets = 0

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        left = self.limit
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            raws = batch.raws()
            for start in range(0, len(raws), _BUCKETS_AT_ONCE):
                rows = self._unpack(raws[start : start + _BUCKETS_AT_ONCE])
                if left is not None:
                    rows = rows[:left]
                    left -= len(rows)
                self.stats.advanced += len(rows)
                yield RowBatch(raws=rows) if rows else None
                if left == 0:
                    return
        self.stats.eof = True

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return self.spec()

    def spec(self) -> Document:
        """The operand of `$_internalUnpackBucket`."""
        spec: Document = {}
        if self.include is not None:
            spec["include"] = self.include
        else:
            spec["exclude"] = self.exclude or []
        spec.update(self.options.unpack_spec())
        return spec

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"nBucketsUnpacked": self.buckets}

    def _unpack(self, buckets: Sequence[bytes]) -> list[bytes]:
        self.buckets += len(buckets)
        options = self.options
        try:
            return unpack_many(buckets, options.time_field, options.meta_field, self.include, self.exclude)
        except BucketError as error:
            code, message = error.args
            raise error_for(int(code), str(message)) from error
