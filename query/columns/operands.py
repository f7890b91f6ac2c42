"""What operators on columns share: which rows have values, how large whole numbers are, and which types go together."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...common.numbers import INT32_MAX, INT32_MIN
from ...common.values import BsonType
from .batch import ABSENT, Column

Mask = NDArray[np.bool_]

EXACT: Final = 2**53
WHOLE: Final = (BsonType.INT32, BsonType.INT64)
NUMBERS: Final = (BsonType.DOUBLE, *WHOLE)


class Unfit(Exception):
    """The types or values of a batch are none that arrays can compute with."""


def nothing(rows: int) -> Column:
    """A column without values."""
    return Column(ABSENT, np.zeros(rows, dtype=np.int64))


def here(column: Column, rows: int) -> Mask:
    """Which rows have a value."""
    if column.kind == ABSENT:
        return np.zeros(rows, dtype=np.bool_)
    return np.ones(rows, dtype=np.bool_) if column.present is None else column.present


def present_in(columns: Sequence[Column]) -> Mask | None:
    """The rows that have a value in all of the columns; None for all rows."""
    masks = [column.present for column in columns if column.present is not None]
    if not masks:
        return None
    both: Mask = np.logical_and.reduce(masks)
    return both


def shown(values: NDArray[Any], present: Mask | None) -> NDArray[Any]:
    """The values of the rows that have one."""
    return values if present is None else values[present]


def largest(column: Column) -> int:
    """The greatest absolute value of whole numbers."""
    if not len(column.values):
        return 0
    return max(abs(int(column.values.max())), abs(int(column.values.min())))


def doubles(column: Column) -> NDArray[np.float64]:
    """Numbers as doubles, as exact as one by one."""
    return column.values.astype(np.float64) if column.kind != BsonType.DOUBLE else column.values


def of_numbers(columns: Sequence[Column]) -> Column | None:
    """Nothing, where a column holds nothing; `Unfit` where one holds something else than numbers."""
    for column in columns:
        if column.kind not in (ABSENT, *NUMBERS):
            raise Unfit
    if any(column.kind == ABSENT for column in columns):
        return nothing(len(columns[0].values))
    return None


def whole_result(values: NDArray[np.int64], columns: Sequence[Column], present: Mask | None) -> Column:
    """Whole numbers of the width that each has by itself, where that is one width."""
    if any(column.kind == BsonType.INT64 for column in columns):
        return Column(BsonType.INT64, values, present)
    found = shown(values, present)
    if len(found) and (int(found.min()) < INT32_MIN or int(found.max()) > INT32_MAX):
        raise Unfit
    return Column(BsonType.INT32, values, present)
