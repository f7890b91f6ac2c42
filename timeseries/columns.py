"""Buckets → batches of typed columns."""

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..common.values import MISSING, BsonType, decode
from ..kernels import BucketColumns, RowBlock, unpack_columns, unpack_columns_beside, unpack_many
from ..query.columns.batch import MIXED, Column, ColumnBatch, Shared

_THREADS: Final = min(os.cpu_count() or 1, 4)
_BUCKETS_A_THREAD: Final = 32


def column_batches(
    buckets: Sequence[bytes],
    time_field: str,
    meta_field: str | None,
    fields: Sequence[str],
    *,
    built: Sequence[str] | None = None,
    shown_meta: str | None = None,
) -> list[ColumnBatch]:
    """The named fields of the measurements in some buckets; the segments are the buckets, what they share is the meta.

    Many buckets are unpacked on several threads, and make a batch for each. The time is unpacked where somebody asks for it.

    Args:
        fields: what is unpacked now.
        built: the fields of rows that are built, apart from the meta; None for all.
        shown_meta: the name of the meta in them; None where it is left out.

    Raises:
        BucketError: a bucket is not well formed.
    """
    parts = max(min(_THREADS, len(buckets) // _BUCKETS_A_THREAD), 1)
    made, start = [], 0
    others = [name for name in fields if name not in (time_field, meta_field)]
    for unpacked in unpack_columns_beside(buckets, time_field, others, parts):
        own = buckets[start : start + len(unpacked.metas)]
        start += len(own)
        source = _Buckets(own, unpacked, time_field, meta_field, built, shown_meta)
        shared = shared_of(meta_field, unpacked.metas)
        made.append(
            ColumnBatch(
                source.column,
                unpacked.offsets,
                shared,
                source.build,
                time_field=time_field,
                time_bounds=unpacked.time_bounds,
            )
        )
    return made


def shared_of(meta_field: str | None, metas: Sequence[bytes | None]) -> Shared:
    """What the rows of each bucket share, of the metas as kernels give them."""
    return Shared(meta_field, metas, _value)


class _Buckets:
    """Some buckets with the columns that are unpacked of them."""

    def __init__(
        self,
        buckets: Sequence[bytes],
        unpacked: BucketColumns,
        time_field: str,
        meta_field: str | None,
        built: Sequence[str] | None,
        shown_meta: str | None,
    ) -> None:
        self._meta_field = meta_field
        self._buckets = buckets
        self._unpacked = unpacked
        self._time_field = time_field
        self._built = None if built is None else list(built)
        self._shown_meta = shown_meta
        self._known = frozenset(unpacked.fields)

    def column(self, name: str) -> Column:
        """The values of a field; what was not unpacked is not told by columns, but for the time."""
        unpacked = self._unpacked
        if name == self._time_field and name not in self._known:
            # Often what buckets say of their times is enough.
            unpacked = unpack_columns(self._buckets, self._time_field, [name])
        elif name not in self._known:
            # Nobody asked for it: rows have to tell.
            return Column(MIXED, np.zeros(len(unpacked), dtype=np.int64))
        kind, values, present = unpacked.column(name)
        return Column(kind, values, present, unpacked.strings(name) if kind == BsonType.STRING else None)

    def build(self, positions: NDArray[np.int64]) -> RowBlock:
        """Documents of rows: other columns are unpacked now, of the buckets that hold these rows."""
        if self._built is not None and self._known.issuperset(self._built):
            return self._unpacked.build_rows(np.ascontiguousarray(positions), self._shown_meta)
        if not len(positions):
            return self._unpacked.build_rows(np.ascontiguousarray(positions))
        offsets = self._unpacked.offsets
        segments = np.searchsorted(offsets, positions, side="right") - 1
        used, places = np.unique(segments, return_inverse=True)
        buckets = [self._buckets[at] for at in used.tolist()]
        include = self._built
        if include is not None and self._shown_meta is not None:
            include = [*include, self._shown_meta]
        exclude = [self._meta_field] if include is None and self._shown_meta is None and self._meta_field else None
        some = unpack_many(buckets, self._time_field, self._meta_field, include, exclude)
        counts = np.diff(offsets)[used]
        moved = positions - offsets[segments] + (np.cumsum(counts) - counts)[places]
        return some.select(np.ascontiguousarray(moved))


def _value(meta: bytes | None) -> Any:
    """The value of a type byte and bytes."""
    if meta is None:
        return MISSING
    element = meta[:1] + b"\0" + meta[1:]
    return decode((len(element) + 5).to_bytes(4, "little") + element + b"\0")[""]
