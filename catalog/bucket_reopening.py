"""Finds stored buckets that have room for a measurement: an archived one by its id, others by an index on meta and time."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from bson import DatetimeMS

from ..common.values import encode
from ..kernels import BucketBuilder, bucket_summary, fingerprint, key_string
from ..storage.engine import Snapshot
from ..storage.keys import after
from . import documents
from .collections import Collection
from .index_specs import IndexSpec
from .open_buckets import Meta, OpenBucket
from .timeseries_options import TimeseriesOptions

_CANDIDATES_MAX: Final = 4
_OBJECT_ID_ELEMENT: Final = b"\x16\x00\x00\x00\x07_id\x00"


def series_index(buckets: Collection, options: TimeseriesOptions) -> IndexSpec | None:
    """An index that begins with meta and the start of the bucket."""
    start = f"control.min.{options.time_field}"
    wanted = [start] if options.meta_field is None else ["meta", start]
    for index in buckets.indexes:
        usable = not index.building and index.kind == "btree" and index.partial_filter is None and not index.sparse
        if usable and list(index.paths)[: len(wanted)] == wanted and index.collation is None:
            return index
    return None


def fetch_bucket(snapshot: Snapshot, buckets: Collection, bucket_id: bytes) -> bytes | None:
    """A stored bucket by the bytes of its id."""
    return documents.fetch(snapshot, buckets, key_string(_OBJECT_ID_ELEMENT + bucket_id + b"\0"))


def find_buckets(
    snapshot: Snapshot, buckets: Collection, options: TimeseriesOptions, index: IndexSpec, meta: Meta, time_ms: int
) -> Iterator[bytes]:
    """Stored buckets of the series that begin at most a span before the time, the latest first."""
    descending = list(index.descending)
    prefix = b""
    if options.meta_field is not None:
        prefix = key_string(_one_value(meta), descending[:1])
        descending = descending[1:]
    bounds = [
        prefix + key_string(encode({"": DatetimeMS(moment)}), descending[:1])
        for moment in (max(time_ms - options.span_ms + 1, -(2**63)), time_ms)
    ]
    low, high = min(bounds), after(max(bounds))
    found = documents.index_scan(snapshot, index, low, high, reverse=not descending[0])
    for _, record_key in islice(found, _CANDIDATES_MAX):
        raw = documents.fetch(snapshot, buckets, record_key)
        if raw is not None:
            yield raw


def has_room(raw: bytes, options: TimeseriesOptions, count_max: int, size_max: int) -> bool:
    """Whether a stored bucket may go on growing.

    Raises:
        BucketError: it is not well formed.
    """
    count, _, closed, _, _ = bucket_summary(raw, options.time_field)
    return not closed and count < count_max and len(raw) < size_max


def reopened(raw: bytes, buckets: Collection, options: TimeseriesOptions) -> OpenBucket:
    """The stored bucket as an open one.

    Raises:
        BucketError: it is not well formed.
    """
    builder = BucketBuilder.from_document(raw, options.time_field, buckets.collate)
    return OpenBucket(
        buckets.namespace,
        buckets.id,
        builder,
        builder.meta,
        builder.min_ms,
        options.span_ms,
        builder.bucket_id,
        stored=fingerprint(raw),
        version=builder.version,
    )


def _one_value(meta: Meta) -> bytes:
    """A document of one value, null where there is none."""
    element = b"\x0a\0" if meta is None else meta[:1] + b"\0" + meta[1:]
    return (len(element) + 5).to_bytes(4, "little") + element + b"\0"
