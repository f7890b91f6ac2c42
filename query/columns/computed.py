"""Expressions over columns: arithmetic, comparison, logic and choice on whole arrays.

What is null and what is missing is the same here, so only those ask who treat them alike. Where arrays cannot give what the
row engine gives, to the last bit and type, `Unfit` says so, and rows are looked at one by one.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from bson import DatetimeMS, Int64
from numpy.typing import NDArray

from ...common.numbers import INT32_MAX, INT32_MIN, INT64_MAX
from ...common.values import BsonType
from ..expression.base import Call, Constant, Expression, FieldPath, Lazy
from .batch import ABSENT, MIXED, Column, ColumnBatch

Mask = NDArray[np.bool_]

_EXACT: Final = 2**53
_WHOLE: Final = (BsonType.INT32, BsonType.INT64)
_NUMBERS: Final = (BsonType.DOUBLE, *_WHOLE)


class Unfit(Exception):
    """The types or values of a batch are none that arrays can compute with."""


def can_compute(expression: Expression, shared_field: str | None) -> bool:
    """Whether an expression reads columns alone, by operators that are known here."""
    match expression:
        case Constant():
            return type(expression.value) in (int, float, Int64, bool, DatetimeMS) or expression.value is None
        case FieldPath():
            return expression.variable == "CURRENT" and len(expression.path) == 1 and expression.path[0] != shared_field
        case Call() | Lazy():
            return expression.name in _OPERATORS and all(
                can_compute(operand, shared_field) for operand in expression.operands
            )
    return False


def computed(expression: Expression, batch: ColumnBatch) -> Column:
    """The value of an expression for each row of a batch; see `can_compute`.

    Raises:
        Unfit: rows have to be looked at one by one.
    """
    match expression:
        case Constant():
            return _constant(expression.value, len(batch))
        case FieldPath():
            column = batch.column(str(expression.path[0]))
            if column.kind == MIXED:
                raise Unfit
            return column
        case Call() | Lazy():
            operands = [computed(operand, batch) for operand in expression.operands]
            with np.errstate(all="ignore"):
                return _OPERATORS[expression.name](operands)
    raise Unfit


def truth(column: Column, rows: int) -> Mask:
    """Which rows count as true."""
    if column.kind == ABSENT:
        return np.zeros(rows, dtype=np.bool_)
    if column.kind == BsonType.BOOL or column.kind in _NUMBERS:
        true: Mask = column.values != 0
    else:
        true = np.ones(rows, dtype=np.bool_)
    return true if column.present is None else true & column.present


def _constant(value: Any, rows: int) -> Column:
    match value:
        case None:
            return Column(ABSENT, np.zeros(rows, dtype=np.int64))
        case bool():
            return Column(BsonType.BOOL, np.full(rows, value, dtype=np.bool_))
        case float():
            return Column(BsonType.DOUBLE, np.full(rows, value, dtype=np.float64))
        case DatetimeMS():
            return Column(BsonType.DATE, np.full(rows, int(value), dtype=np.int64))
    wide = isinstance(value, Int64) or not INT32_MIN <= value <= INT32_MAX
    return Column(BsonType.INT64 if wide else BsonType.INT32, np.full(rows, int(value), dtype=np.int64))


def _present(columns: Sequence[Column]) -> Mask | None:
    """The rows that have a value in all of the columns; None for all rows."""
    masks = [column.present for column in columns if column.present is not None]
    if not masks:
        return None
    both: Mask = np.logical_and.reduce(masks)
    return both


def _largest(column: Column) -> int:
    """The greatest absolute value of whole numbers."""
    if not len(column.values):
        return 0
    return max(abs(int(column.values.max())), abs(int(column.values.min())))


def _doubles(column: Column) -> NDArray[np.float64]:
    """Numbers as doubles, as exact as one by one."""
    return column.values.astype(np.float64) if column.kind != BsonType.DOUBLE else column.values


def _of_numbers(columns: Sequence[Column]) -> Column | None:
    """Nothing, where a column holds nothing; `Unfit` where one holds something else than numbers."""
    for column in columns:
        if column.kind not in (ABSENT, *_NUMBERS):
            raise Unfit
    if any(column.kind == ABSENT for column in columns):
        return Column(ABSENT, np.zeros(len(columns[0].values), dtype=np.int64))
    return None


def _whole_result(values: NDArray[np.int64], columns: Sequence[Column], present: Mask | None) -> Column:
    """Whole numbers of the width that each has by itself, where that is one width."""
    if any(column.kind == BsonType.INT64 for column in columns):
        return Column(BsonType.INT64, values, present)
    shown = values if present is None else values[present]
    if len(shown) and (int(shown.min()) < INT32_MIN or int(shown.max()) > INT32_MAX):
        raise Unfit
    return Column(BsonType.INT32, values, present)


def _add(columns: Sequence[Column]) -> Column:
    if not columns:
        raise Unfit
    nothing = _of_numbers(columns)
    if nothing is not None:
        return nothing
    present = _present(columns)
    if all(column.kind in _WHOLE for column in columns):
        if sum(_largest(column) for column in columns) > INT64_MAX:
            raise Unfit
        total: NDArray[np.int64] = np.add.reduce([column.values for column in columns])
        return _whole_result(total, columns, present)
    if len(columns) > 2:
        # Several are added up with one rounding.
        raise Unfit
    sums = np.zeros(len(columns[0].values))
    for column in columns:
        sums = sums + _doubles(column)
    return Column(BsonType.DOUBLE, sums, present)


def _subtract(columns: Sequence[Column]) -> Column:
    left, right = columns
    if left.kind == BsonType.DATE and right.kind == BsonType.DATE:
        if _largest(left) + _largest(right) > INT64_MAX:
            raise Unfit
        return Column(BsonType.INT64, left.values - right.values, _present(columns))
    nothing = _of_numbers(columns)
    if nothing is not None:
        return nothing
    present = _present(columns)
    if left.kind in _WHOLE and right.kind in _WHOLE:
        if _largest(left) + _largest(right) > INT64_MAX:
            raise Unfit
        return _whole_result(left.values - right.values, columns, present)
    return Column(BsonType.DOUBLE, _doubles(left) - _doubles(right), present)


def _multiply(columns: Sequence[Column]) -> Column:
    if not columns:
        raise Unfit
    nothing = _of_numbers(columns)
    if nothing is not None:
        return nothing
    present = _present(columns)
    if all(column.kind in _WHOLE for column in columns):
        bound, product = 1, np.ones(len(columns[0].values), dtype=np.int64)
        for column in columns:
            bound *= max(_largest(column), 1)
            product = product * column.values
        if bound > INT64_MAX:
            raise Unfit
        return _whole_result(product, columns, present)
    result = np.ones(len(columns[0].values))
    for column in columns:
        result = result * _doubles(column)
    return Column(BsonType.DOUBLE, result, present)


def _divide(columns: Sequence[Column]) -> Column:
    nothing = _of_numbers(columns)
    if nothing is not None:
        return nothing
    left, right = columns
    present = _present(columns)
    divisors = _doubles(right)
    if (divisors == 0).any() and (present is None or (divisors[present] == 0).any()):
        # Whether that is an error is told row by row.
        raise Unfit
    return Column(BsonType.DOUBLE, _doubles(left) / divisors, present)


def _absolute(columns: Sequence[Column]) -> Column:
    nothing = _of_numbers(columns)
    if nothing is not None:
        return nothing
    (column,) = columns
    if column.kind == BsonType.DOUBLE:
        return Column(BsonType.DOUBLE, np.abs(column.values), column.present)
    if _largest(column) > INT64_MAX:
        raise Unfit
    return _whole_result(np.abs(column.values), columns, column.present)


def _comparison(test: Callable[[NDArray[np.int64]], Mask]) -> Callable[[Sequence[Column]], Column]:
    def compare(columns: Sequence[Column]) -> Column:
        left, right = columns
        return Column(BsonType.BOOL, test(_order(left, right)))

    return compare


def _order(left: Column, right: Column) -> NDArray[np.int64]:
    """-1, 0 or 1 as the value on the left stands to that on the right."""
    rows = len(left.values)
    left_here, right_here = _here(left, rows), _here(right, rows)
    if bool((~left_here & ~right_here).any()):
        # Null and missing differ.
        raise Unfit
    order = left_here.astype(np.int64) - right_here.astype(np.int64)
    both = left_here & right_here
    if not both.any():
        return order
    if left.kind in _NUMBERS and right.kind in _NUMBERS:
        low, high = left.values, right.values
        if left.kind != right.kind and BsonType.DOUBLE in (left.kind, right.kind):
            if any(column.kind in _WHOLE and _largest(column) > _EXACT for column in (left, right)):
                raise Unfit
            low, high = _doubles(left), _doubles(right)
        for column in (left, right):
            if column.kind == BsonType.DOUBLE and np.isnan(column.values).any():
                raise Unfit
    elif left.kind == right.kind and left.kind in (BsonType.DATE, BsonType.BOOL):
        low, high = left.values.astype(np.int64), right.values.astype(np.int64)
    else:
        raise Unfit
    found = (low > high).astype(np.int64) - (low < high)
    return np.where(both, found, order)


def _here(column: Column, rows: int) -> Mask:
    if column.kind == ABSENT:
        return np.zeros(rows, dtype=np.bool_)
    return np.ones(rows, dtype=np.bool_) if column.present is None else column.present


def _all(columns: Sequence[Column]) -> Column:
    return Column(BsonType.BOOL, np.logical_and.reduce([truth(column, len(columns[0].values)) for column in columns]))


def _any(columns: Sequence[Column]) -> Column:
    return Column(BsonType.BOOL, np.logical_or.reduce([truth(column, len(columns[0].values)) for column in columns]))


def _not(columns: Sequence[Column]) -> Column:
    return Column(BsonType.BOOL, ~truth(columns[0], len(columns[0].values)))


def _cond(columns: Sequence[Column]) -> Column:
    test, then, otherwise = columns
    return _chosen(truth(test, len(test.values)), then, otherwise)


def _if_null(columns: Sequence[Column]) -> Column:
    *tried, found = columns
    for column in reversed(tried):
        found = _chosen(_here(column, len(column.values)), column, found)
    return found


def _chosen(first: Mask, then: Column, otherwise: Column) -> Column:
    """The one column where a row is true, else the other; both are of one type."""
    kinds = {then.kind, otherwise.kind} - {ABSENT}
    if not kinds:
        return then
    if len(kinds) > 1 or BsonType.STRING in kinds:
        if first.all():
            return then
        if not first.any():
            return otherwise
        raise Unfit
    (kind,) = kinds
    rows = len(first)
    values = np.where(
        first, _values_of(then, kind, otherwise.values.dtype), _values_of(otherwise, kind, then.values.dtype)
    )
    present = np.where(first, _here(then, rows), _here(otherwise, rows))
    return Column(kind, values, None if present.all() else present)


def _values_of(column: Column, kind: int, dtype: Any) -> NDArray[Any]:
    return column.values if column.kind == kind else column.values.astype(dtype)


_OPERATORS: Final[dict[str, Callable[[Sequence[Column]], Column]]] = {
    "$abs": _absolute,
    "$add": _add,
    "$and": _all,
    "$cond": _cond,
    "$divide": _divide,
    "$eq": _comparison(lambda order: order == 0),
    "$gt": _comparison(lambda order: order > 0),
    "$gte": _comparison(lambda order: order >= 0),
    "$ifNull": _if_null,
    "$lt": _comparison(lambda order: order < 0),
    "$lte": _comparison(lambda order: order <= 0),
    "$multiply": _multiply,
    "$ne": _comparison(lambda order: order != 0),
    "$not": _not,
    "$or": _any,
    "$subtract": _subtract,
}
