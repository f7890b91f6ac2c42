"""Buckets → a batch of typed columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..common.values import MISSING, decode
from ..kernels import unpack_columns
from ..query.columns.batch import MIXED, Column, ColumnBatch, Shared, segment_numbers


def column_batch(
    buckets: Sequence[bytes], time_field: str, meta_field: str | None, fields: Sequence[str]
) -> ColumnBatch:
    """The named fields of the measurements in some buckets; the segments are the buckets, what they share is the meta.

    Raises:
        BucketError: a bucket is not well formed.
    """
    unpacked = unpack_columns(buckets, time_field, fields)
    offsets = unpacked.offsets
    metas = unpacked.metas
    segments = np.repeat(np.arange(len(buckets), dtype=np.int64), np.diff(offsets))
    known = frozenset(unpacked.fields)

    def column(name: str) -> Column:
        if name not in known:
            return Column(0, np.zeros(len(segments), dtype=np.int64))
        kind, values, present = unpacked.column(name)
        if kind == MIXED:
            return Column(MIXED, values, present)
        return Column(kind, values, present, unpacked.strings(name) if kind == 2 else None)

    def build(positions: Any) -> list[bytes]:
        return unpacked.build_rows(np.ascontiguousarray(positions, dtype=np.int64), meta_field)

    shared = Shared(meta_field, [_value(meta) for meta in metas], segment_numbers(metas))
    return ColumnBatch(column, segments, shared, build, time_field=time_field)


def _value(meta: bytes | None) -> Any:
    """The value of a type byte and bytes."""
    if meta is None:
        return MISSING
    element = meta[:1] + b"\0" + meta[1:]
    return decode((len(element) + 5).to_bytes(4, "little") + element + b"\0")[""]
