"""Which rows of a batch come first in an order of columns."""

import numpy as np
from numpy.typing import NDArray

from ...common.values import BsonType
from ..sort import SortPattern
from .batch import ABSENT, Column, ColumnBatch

Key = NDArray[np.int64] | NDArray[np.float64]


def first_rows(batch: ColumnBatch, pattern: SortPattern, limit: int, *, collated: bool) -> NDArray[np.int64] | None:
    """The places, ascending, of the first `limit` rows of a batch that has more; None where columns cannot tell.

    Of rows that are equal in the order, the first in the batch are taken.
    """
    keys: list[Key] = []
    for path, part in zip(pattern.fields, pattern.parts, strict=True):
        column = column_at(batch, path)
        made = None if column is None else sort_keys(column, collated=collated)
        if made is None:
            return None
        keys += made if part.ascending else [turned(key) for key in made]
    if not keys:
        return np.arange(limit, dtype=np.int64)
    if len(keys) > 1:
        return np.sort(np.lexsort(keys[::-1])[:limit])
    (key,) = keys
    edge = np.partition(key, limit - 1)[limit - 1]
    better = np.flatnonzero(key < edge)
    equal = np.flatnonzero(key == edge)[: limit - len(better)]
    return np.sort(np.concatenate((better, equal)))


def turned(key: Key) -> Key:
    """A key that sorts the other way round."""
    return -key if key.dtype == np.float64 else np.invert(key.astype(np.int64))


def column_at(batch: ColumnBatch, path: str) -> Column | None:
    """The column of a path by which rows are sorted; None where it leads into a column."""
    first, *rest = path.split(".")
    if first == batch.shared.name:
        return batch.shared_column(tuple(rest))
    return None if rest else batch.column(first)


def sort_keys(column: Column, *, collated: bool) -> list[Key] | None:
    """Arrays that sort, one after the other, as the values do: what is missing comes first, then what is not a number."""
    values: Key
    match column.kind:
        case kind if kind == ABSENT:
            return []
        case BsonType.DOUBLE:
            values = column.values
            wrong = np.isnan(values)
            if wrong.any():
                classes = np.where(wrong, 1, 2)
                if column.present is not None:
                    classes = np.where(column.present, classes, 0)
                return [classes, np.where(wrong, 0.0, values)]
        case BsonType.INT32 | BsonType.INT64 | BsonType.DATE | BsonType.BOOL:
            values = column.values.astype(np.int64)
        case BsonType.STRING if column.texts is not None and not collated:
            ranks = np.empty(len(column.texts) + 1, dtype=np.int64)
            order = sorted(range(len(column.texts)), key=column.texts.__getitem__)
            ranks[order] = np.arange(len(order))
            ranks[-1] = 0
            values = ranks[np.minimum(column.values, len(column.texts))]
        case _:
            return None
    if column.present is None:
        return [values]
    return [column.present.astype(np.int64), np.where(column.present, values, 0)]
