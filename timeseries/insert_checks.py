"""Measurements that an index of their buckets could not hold: found before they are placed.

Buckets of many clients are written in one commit, and what one index refuses would fail them all.
"""

from collections.abc import Sequence
from typing import Final

from ..catalog.collections import Collection
from ..catalog.index_entries import keys_of
from ..catalog.index_specs import IndexSpec
from ..catalog.timeseries_options import TimeseriesOptions
from ..common.errors import MongoError
from .indexes import to_view_index

_NEVER_REFUSES: Final = ("wildcard",)

Refusals = list[tuple[int, int, str]]
"""Position in the batch, MongoDB's code, and the message."""


_KNOWN_MAX: Final = 10_000
_known: dict[int, tuple[Collection, list[IndexSpec]]] = {}
"""By the number of the collection of buckets: as it was when it was looked at, and what was found."""


def doubtful_indexes(view: Collection, buckets: Collection | None) -> list[IndexSpec]:
    """The indexes that may refuse a measurement, as indexes on measurements."""
    if buckets is None:
        return []
    known = _known.get(buckets.id)
    if known is None or known[0] is not buckets:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        known = _known[buckets.id] = (buckets, _found(view, buckets))
    return known[1]


def _found(view: Collection, buckets: Collection) -> list[IndexSpec]:
    options = view.timeseries
    found: list[IndexSpec] = []
    for index in buckets.indexes:
        if index.kind == "btree" and len(index.paths) < 4 and len(_names(index.paths, options)) < 2:
            # As the index that every collection begins with: no two arrays can come together.
            continue
        shown = to_view_index(view, index)
        if shown is None:
            continue
        paths = [path for path in shown["key"] if options is None or path != options.time_field]
        if index.kind == "btree" and len(paths) < 2:
            continue
        if index.kind in _NEVER_REFUSES and len(shown["key"]) == 1:
            continue
        # A partial filter is left out: a bucket is taken in for any of its measurements.
        document = {name: value for name, value in shown.items() if name != "partialFilterExpression"}
        found.append(IndexSpec(document))
    return found


def _names(paths: Sequence[str], options: TimeseriesOptions | None) -> set[str]:
    """The fields of measurements that paths in buckets are about, the time left out."""
    names = {path.removeprefix("control.min.").removeprefix("control.max.") for path in paths}
    return names if options is None else names - {options.time_field}


def refusals(indexes: Sequence[IndexSpec], raws: Sequence[bytes]) -> Refusals:
    """Which measurements the indexes cannot hold."""
    refused: Refusals = []
    for position, raw in enumerate(raws):
        for index in indexes:
            try:
                keys_of(index, raw)
            except MongoError as error:
                refused.append((position, error.number, error.message))
                break
            except ValueError:
                # Malformed: whoever takes the batch apart says so.
                break
    return refused
