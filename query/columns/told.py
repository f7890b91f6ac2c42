"""Batches of buckets that nobody has to unpack, since what they tell of themselves is enough."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...common.values import Document
from ...kernels import BucketTotals, RowBlock
from ..plan.batches import Batch, RowBatch
from .batch import Column, ColumnBatch, Shared
from .grains import EVEN_OFFSETS_MS


@dataclass(frozen=True, slots=True)
class TotalsWanted:
    """What a group asks of buckets.

    Attributes:
        sums, least, greatest: the fields whose sums (with counts) and extremes it needs.
        grain_ms: its key does not change within so much time, from a multiple of it; None where it reads no time.
    """

    sums: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()
    grain_ms: int | None = None

    def within(self, time_bounds: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.bool_] | None:
        """Which buckets have one key for all of their times; None for all."""
        if self.grain_ms is None:
            return None
        earliest, latest = time_bounds
        same: NDArray[np.bool_] = (earliest // self.grain_ms == latest // self.grain_ms) & (earliest >= EVEN_OFFSETS_MS)
        return same


class ToldBatch(Batch):
    """The measurements of some buckets as far as their totals tell them; unpacked where somebody asks for more."""

    def __init__(
        self,
        totals: BucketTotals,
        shared: Callable[[Sequence[bytes | None]], Shared],
        time_field: str,
        unpack: Callable[[], Sequence[Batch]],
    ) -> None:
        """Wrap totals.

        Args:
            shared: makes what the rows of a bucket share of their metas.
            unpack: gives the measurements.
        """
        self.totals = totals
        self._unpack = unpack
        self._rows: Batch | None = None
        counts = totals.counts
        self._count = int(counts.sum())
        self.keys = ColumnBatch(
            _no_column,
            np.arange(len(counts) + 1, dtype=np.int64),
            shared(totals.metas),
            _no_rows,
            time_field=time_field,
            time_bounds=totals.time_bounds,
        )
        """A row for each bucket, which has what keys of groups are made of."""

    def __len__(self) -> int:
        return self._count

    def documents(self) -> list[Document]:
        """See `Batch.documents`."""
        return self._unpacked().documents()

    def raws(self) -> list[bytes]:
        """See `Batch.raws`."""
        return self._unpacked().raws()

    def select(self, positions: Sequence[int]) -> Batch:
        """See `Batch.select`."""
        return self._unpacked().select(positions)

    def _unpacked(self) -> Batch:
        if self._rows is None:
            self._rows = RowBatch(raws=[raw for batch in self._unpack() for raw in batch.raws()])
        return self._rows


def _no_column(name: str) -> Column:
    raise AssertionError(f"nobody reads the column {name} of buckets that are not unpacked")


def _no_rows(positions: object) -> RowBlock:
    raise AssertionError("nobody builds rows of buckets that are not unpacked")
