"""Buckets → batches of typed columns."""

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..common.values import MISSING, decode
from ..kernels import BucketColumns, unpack_columns_beside
from ..query.columns.batch import MIXED, Column, ColumnBatch, Shared

_THREADS: Final = min(os.cpu_count() or 1, 4)
_BUCKETS_A_THREAD: Final = 32


def column_batches(
    buckets: Sequence[bytes], time_field: str, meta_field: str | None, fields: Sequence[str]
) -> list[ColumnBatch]:
    """The named fields of the measurements in some buckets; the segments are the buckets, what they share is the meta.

    Many buckets are unpacked on several threads, and make a batch for each.

    Raises:
        BucketError: a bucket is not well formed.
    """
    parts = min(_THREADS, len(buckets) // _BUCKETS_A_THREAD)
    return [
        _batch(unpacked, time_field, meta_field)
        for unpacked in unpack_columns_beside(buckets, time_field, fields, max(parts, 1))
    ]


def _batch(unpacked: BucketColumns, time_field: str, meta_field: str | None) -> ColumnBatch:
    known = frozenset(unpacked.fields)
    offsets = unpacked.offsets

    def column(name: str) -> Column:
        if name not in known:
            return Column(0, np.zeros(int(offsets[-1]), dtype=np.int64))
        kind, values, present = unpacked.column(name)
        if kind == MIXED:
            return Column(MIXED, values, present)
        return Column(kind, values, present, unpacked.strings(name) if kind == 2 else None)

    def build(positions: Any) -> list[bytes]:
        return unpacked.build_rows(np.ascontiguousarray(positions, dtype=np.int64), meta_field)

    return ColumnBatch(column, offsets, Shared(meta_field, unpacked.metas, _value), build, time_field=time_field)


def _value(meta: bytes | None) -> Any:
    """The value of a type byte and bytes."""
    if meta is None:
        return MISSING
    element = meta[:1] + b"\0" + meta[1:]
    return decode((len(element) + 5).to_bytes(4, "little") + element + b"\0")[""]
