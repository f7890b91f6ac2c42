"""Buckets → batches of typed columns."""

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..common.values import MISSING, decode
from ..kernels import BucketColumns, unpack_columns, unpack_columns_beside
from ..query.columns.batch import MIXED, Column, ColumnBatch, Shared

_THREADS: Final = min(os.cpu_count() or 1, 4)
_BUCKETS_A_THREAD: Final = 32


def column_batches(
    buckets: Sequence[bytes], time_field: str, meta_field: str | None, fields: Sequence[str]
) -> list[ColumnBatch]:
    """The named fields of the measurements in some buckets; the segments are the buckets, what they share is the meta.

    Many buckets are unpacked on several threads, and make a batch for each. The time is unpacked where somebody asks for it.

    Raises:
        BucketError: a bucket is not well formed.
    """
    parts = max(min(_THREADS, len(buckets) // _BUCKETS_A_THREAD), 1)
    made, start = [], 0
    others = [name for name in fields if name != time_field]
    for unpacked in unpack_columns_beside(buckets, time_field, others, parts):
        own = buckets[start : start + len(unpacked.metas)]
        start += len(own)
        made.append(_batch(unpacked, own, fields, time_field, meta_field))
    return made


def _batch(
    unpacked: BucketColumns, buckets: Sequence[bytes], fields: Sequence[str], time_field: str, meta_field: str | None
) -> ColumnBatch:
    known = frozenset(unpacked.fields)
    offsets = unpacked.offsets

    def column(name: str) -> Column:
        if name == time_field and name not in known:
            # Often what buckets say of their times is enough.
            kind, values, present = unpack_columns(buckets, time_field, [time_field]).column(name)
            return Column(kind, values, present)
        if name not in known:
            return Column(0, np.zeros(int(offsets[-1]), dtype=np.int64))
        kind, values, present = unpacked.column(name)
        if kind == MIXED:
            return Column(MIXED, values, present)
        return Column(kind, values, present, unpacked.strings(name) if kind == 2 else None)

    def build(positions: Any) -> list[bytes]:
        whole = (
            unpacked if time_field not in fields or time_field in known else unpack_columns(buckets, time_field, fields)
        )
        return whole.build_rows(np.ascontiguousarray(positions, dtype=np.int64), meta_field)

    shared = Shared(meta_field, unpacked.metas, _value)
    return ColumnBatch(column, offsets, shared, build, time_field=time_field, time_bounds=unpacked.time_bounds)


def _value(meta: bytes | None) -> Any:
    """The value of a type byte and bytes."""
    if meta is None:
        return MISSING
    element = meta[:1] + b"\0" + meta[1:]
    return decode((len(element) + 5).to_bytes(4, "little") + element + b"\0")[""]
