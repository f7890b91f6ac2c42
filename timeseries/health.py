"""How well the buckets of a time-series collection are used: how full they are, what a value takes, and what could be better.

Buckets are looked at one by one, each for as long as it takes to read its control.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from bson import Int64

from ..catalog.timeseries_options import SPAN_SECONDS, TimeseriesOptions
from ..common.values import Document, decode, encode
from ..kernels import BucketError, bucket_summary

_SPARSE: Final = 0.1
"""Buckets are sparse where they hold less than this share of what they may."""
_FULL: Final = 0.9
_LATE: Final = 0.2
_FEW: Final = 2
_LOOSE: Final = 0.5
_ENOUGH: Final = 32
"""With fewer buckets there is nothing to say."""


class BucketHealth:
    """What was seen of the buckets of a collection so far."""

    def __init__(self, options: TimeseriesOptions, count_max: int) -> None:
        """Begin.

        Args:
            count_max: how many measurements a bucket may hold.
        """
        self._options = options
        self._count_max = count_max
        self._counts: list[int] = []
        self._spans_ms = 0
        self._values = 0
        self._document_bytes = 0
        self._stored_bytes = 0
        self._packed = 0
        self._unsorted = 0
        self._damaged = 0
        self._series: Counter[int] = Counter()

    def see(self, raws: Sequence[bytes], stored_bytes: int, *, packed: bool) -> None:
        """Take note of the buckets of one record.

        Args:
            stored_bytes: what the record takes in the store.
            packed: whether the buckets lie in a pack.
        """
        self._stored_bytes += stored_bytes
        for raw in raws:
            try:
                count, version, _, min_ms, max_ms = bucket_summary(raw, self._options.time_field)
            except BucketError:
                self._damaged += 1
                continue
            bucket = decode(raw)
            self._counts.append(count)
            self._spans_ms += max_ms - min_ms
            fields = bucket["data"].keys() - {self._options.time_field, "_id"}
            self._values += count * len(fields)
            self._document_bytes += len(raw)
            self._packed += packed
            self._unsorted += version == 3
            self._series[hash(encode({"": bucket["meta"]}) if "meta" in bucket else b"")] += 1

    def report(self) -> Document:
        """All of it, and advice."""
        buckets = len(self._counts)
        if not buckets:
            return {"buckets": Int64(0), "damagedBuckets": Int64(self._damaged), "advice": []}
        ordered = sorted(self._counts)
        measurements = sum(ordered)
        values = max(self._values, 1)
        return {
            "buckets": Int64(buckets),
            "damagedBuckets": Int64(self._damaged),
            "series": Int64(len(self._series)),
            "bucketsPerSeries": buckets / len(self._series),
            "measurements": Int64(measurements),
            "measurementsPerBucket": {
                "mean": measurements / buckets,
                "least": ordered[0],
                "median": ordered[buckets // 2],
                "most": ordered[-1],
            },
            "fillRatio": self._fill,
            "spanRatio": self._span,
            "unsortedBuckets": Int64(self._unsorted),
            "packedBuckets": Int64(self._packed),
            "values": Int64(self._values),
            "documentBytesPerValue": self._document_bytes / values,
            "storedBytesPerValue": self._stored_bytes / values,
            "advice": self._advice() if buckets >= _ENOUGH else [],
        }

    @property
    def _fill(self) -> float:
        """Measurements as a share of those that there could be."""
        return sum(self._counts) / len(self._counts) / self._count_max

    @property
    def _span(self) -> float:
        """The time that buckets cover, as a share of the time that they may cover."""
        return self._spans_ms / len(self._counts) / self._options.span_ms

    def _advice(self) -> list[Document]:
        found: list[Document] = []
        buckets = len(self._counts)
        mean = sum(self._counts) / buckets
        options = self._options

        def advise(code: str, text: str) -> None:
            found.append({"code": code, "text": text})

        coarser, finer = _next(options, 1), _next(options, -1)
        if len(self._series) * _FEW > buckets and mean < _SPARSE * self._count_max and self._span < _SPARSE:
            advise(
                "meta",
                f"Nearly every series has a single bucket, of {mean:.1f} measurements: does a field of the metaField change from "
                "measurement to measurement? Such a field belongs beside it.",
            )
        elif self._fill < _SPARSE and self._span > 0.5:
            said = f"granularity '{coarser}'" if coarser else "a longer bucketMaxSpanSeconds"
            advise(
                "granularity",
                f"Buckets cover their whole span and hold {mean:.1f} of {self._count_max} measurements: with {said} they would "
                "be fuller and fewer (collMod).",
            )
        elif self._fill > _FULL and self._span < _SPARSE and finer:
            advise(
                "granularity",
                f"Buckets are full after {self._span:.1%} of their span: with granularity '{finer}', which only a new collection "
                "can have, queries for short times would find them sooner.",
            )
        if self._unsorted > _LATE * buckets:
            advise(
                "order",
                f"{self._unsorted / buckets:.0%} of the buckets hold measurements that came after later ones: sorted by time "
                "within a series they take less and are read faster.",
            )
        if self._packed < _LOOSE * buckets:
            advise(
                "pack",
                f"{1 - self._packed / buckets:.0%} of the buckets are not packed yet: `compact` packs them at once.",
            )
        return found


def _next(options: TimeseriesOptions, step: int) -> str | None:
    """The granularity beside that of the collection; None where there is none."""
    names = list(SPAN_SECONDS)
    if options.granularity is None:
        return None
    at = names.index(options.granularity) + step
    return names[at] if 0 <= at < len(names) else None
