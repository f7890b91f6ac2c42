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
from .dates import date_operator
from .numbers import OPERATORS as NUMBER_OPERATORS
from .numbers import SINGLY, places_of, rounding, singly
from .operands import (
    EXACT,
    NUMBERS,
    WHOLE,
    Mask,
    Unfit,
    doubles,
    here,
    largest,
    nothing,
    of_numbers,
    present_in,
    whole_result,
)

Compute = Callable[[Sequence[Column]], Column]

_NO_TEXT: Final = 2**32 - 1


def can_compute(expression: Expression, shared_field: str | None) -> bool:
    """Whether an expression reads columns alone, by operators that are known here."""
    match expression:
        case Constant():
            return type(expression.value) in (int, float, Int64, bool, str, DatetimeMS) or expression.value is None
        case FieldPath():
            if expression.variable != "CURRENT" or not expression.path:
                return False
            return len(expression.path) == 1 or expression.path[0] == shared_field
        case Call() | Lazy():
            found = _operator(expression)
            return found is not None and all(can_compute(operand, shared_field) for operand in found[0])
    return False


def column_name(expression: Expression, shared_field: str | None) -> str | None:
    """The column that an expression is; None where it is more than that."""
    if isinstance(expression, FieldPath) and can_compute(expression, shared_field):
        return str(expression.path[0]) if expression.path[0] != shared_field else None
    return None


def computed(expression: Expression, batch: ColumnBatch) -> Column:
    """The value of an expression for each row of a batch; see `can_compute`.

    Raises:
        Unfit: rows have to be looked at one by one.
    """
    match expression:
        case Constant():
            return _constant(expression.value, len(batch))
        case FieldPath():
            first = str(expression.path[0])
            column = batch.shared_column(expression.path[1:]) if first == batch.shared.name else batch.column(first)
            if column.kind == MIXED:
                raise Unfit
            return column
        case Call() | Lazy():
            found = _operator(expression)
            if found is not None:
                operands, compute = found
                columns = [computed(operand, batch) for operand in operands]
                with np.errstate(all="ignore"):
                    return compute(columns)
    raise Unfit


def absent_value(expression: Expression, column: Column) -> Any:
    """What rows without a value have in a column that is computed: null, or MISSING.

    Raises:
        Unfit: rows have to tell, one by one.
    """
    if isinstance(expression, FieldPath):
        return column.absent
    if isinstance(expression, Call | Lazy) and expression.name in ("$cond", "$ifNull"):
        raise Unfit
    return None


def _operator(expression: Call | Lazy) -> tuple[Sequence[Expression], Compute] | None:
    """The operands that differ from row to row, and what computes the operator; None where it is none known here."""
    name = expression.name
    compute = _OPERATORS.get(name)
    if compute is not None:
        collated = isinstance(expression, Call) and expression.collated
        return expression.operands, _without_strings(compute) if collated else compute
    if isinstance(expression, Call):
        if name in SINGLY:
            return expression.operands, singly(expression.function)
        if name in ("$round", "$trunc"):
            places = places_of(expression)
            rounded = None if places is None else rounding(name, places)
            return None if rounded is None else (expression.operands[:1], rounded)
    return date_operator(expression)


def _without_strings(compute: Compute) -> Compute:
    """The same where nothing is a string."""

    def compute_others(columns: Sequence[Column]) -> Column:
        if any(column.kind == BsonType.STRING for column in columns):
            raise Unfit
        return compute(columns)

    return compute_others


def truth(column: Column, rows: int) -> Mask:
    """Which rows count as true."""
    if column.kind == ABSENT:
        return np.zeros(rows, dtype=np.bool_)
    if column.kind == BsonType.BOOL or column.kind in NUMBERS:
        true: Mask = column.values != 0
    else:
        true = np.ones(rows, dtype=np.bool_)
    return true if column.present is None else true & column.present


def _constant(value: Any, rows: int) -> Column:
    match value:
        case None:
            return nothing(rows)
        case bool():
            return Column(BsonType.BOOL, np.full(rows, value, dtype=np.bool_))
        case str():
            return Column(BsonType.STRING, np.zeros(rows, dtype=np.uint32), None, [value])
        case float():
            return Column(BsonType.DOUBLE, np.full(rows, value, dtype=np.float64))
        case DatetimeMS():
            return Column(BsonType.DATE, np.full(rows, int(value), dtype=np.int64))
    wide = isinstance(value, Int64) or not INT32_MIN <= value <= INT32_MAX
    return Column(BsonType.INT64 if wide else BsonType.INT32, np.full(rows, int(value), dtype=np.int64))


def _add(columns: Sequence[Column]) -> Column:
    if not columns:
        raise Unfit
    dates = [column for column in columns if column.kind == BsonType.DATE]
    if len(dates) == 1:
        others = [column for column in columns if column.kind != BsonType.DATE]
        return _date_moved(dates[0], others, 1)
    absent = of_numbers(columns)
    if absent is not None:
        return absent
    present = present_in(columns)
    if all(column.kind in WHOLE for column in columns):
        if sum(largest(column) for column in columns) > INT64_MAX:
            raise Unfit
        total: NDArray[np.int64] = np.add.reduce([column.values for column in columns])
        return whole_result(total, columns, present)
    if len(columns) > 2:
        # Several are added up with one rounding.
        raise Unfit
    sums = np.zeros(len(columns[0].values))
    for column in columns:
        sums = sums + doubles(column)
    return Column(BsonType.DOUBLE, sums, present)


def _date_moved(date: Column, others: Sequence[Column], sign: int) -> Column:
    """A date and whole milliseconds."""
    absent = of_numbers(others)
    if absent is not None:
        return absent
    if any(column.kind not in WHOLE for column in others):
        raise Unfit
    if largest(date) + sum(largest(column) for column in others) > INT64_MAX:
        raise Unfit
    moved = date.values
    for column in others:
        moved = moved + sign * column.values
    return Column(BsonType.DATE, moved, present_in([date, *others]))


def _subtract(columns: Sequence[Column]) -> Column:
    left, right = columns
    if left.kind == BsonType.DATE and right.kind == BsonType.DATE:
        if largest(left) + largest(right) > INT64_MAX:
            raise Unfit
        return Column(BsonType.INT64, left.values - right.values, present_in(columns))
    if left.kind == BsonType.DATE:
        return _date_moved(left, [right], -1)
    absent = of_numbers(columns)
    if absent is not None:
        return absent
    present = present_in(columns)
    if left.kind in WHOLE and right.kind in WHOLE:
        if largest(left) + largest(right) > INT64_MAX:
            raise Unfit
        return whole_result(left.values - right.values, columns, present)
    return Column(BsonType.DOUBLE, doubles(left) - doubles(right), present)


def _multiply(columns: Sequence[Column]) -> Column:
    if not columns:
        raise Unfit
    absent = of_numbers(columns)
    if absent is not None:
        return absent
    present = present_in(columns)
    if all(column.kind in WHOLE for column in columns):
        bound, product = 1, np.ones(len(columns[0].values), dtype=np.int64)
        for column in columns:
            bound *= max(largest(column), 1)
            product = product * column.values
        if bound > INT64_MAX:
            raise Unfit
        return whole_result(product, columns, present)
    result = np.ones(len(columns[0].values))
    for column in columns:
        result = result * doubles(column)
    return Column(BsonType.DOUBLE, result, present)


def _divide(columns: Sequence[Column]) -> Column:
    absent = of_numbers(columns)
    if absent is not None:
        return absent
    left, right = columns
    present = present_in(columns)
    divisors = doubles(right)
    if (divisors == 0).any() and (present is None or (divisors[present] == 0).any()):
        # Whether that is an error is told row by row.
        raise Unfit
    return Column(BsonType.DOUBLE, doubles(left) / divisors, present)


def _comparison(test: Callable[[NDArray[np.int64]], Mask]) -> Callable[[Sequence[Column]], Column]:
    def compare(columns: Sequence[Column]) -> Column:
        left, right = columns
        return Column(BsonType.BOOL, test(_order(left, right)))

    return compare


def _order(left: Column, right: Column) -> NDArray[np.int64]:
    """-1, 0 or 1 as the value on the left stands to that on the right."""
    rows = len(left.values)
    left_here, right_here = here(left, rows), here(right, rows)
    if bool((~left_here & ~right_here).any()):
        # Null and missing differ.
        raise Unfit
    order = left_here.astype(np.int64) - right_here.astype(np.int64)
    both = left_here & right_here
    if not both.any():
        return order
    if left.kind in NUMBERS and right.kind in NUMBERS:
        low, high = left.values, right.values
        if left.kind != right.kind and BsonType.DOUBLE in (left.kind, right.kind):
            if any(column.kind in WHOLE and largest(column) > EXACT for column in (left, right)):
                raise Unfit
            low, high = doubles(left), doubles(right)
        for column in (left, right):
            if column.kind == BsonType.DOUBLE and np.isnan(column.values).any():
                raise Unfit
    elif left.kind == right.kind and left.kind in (BsonType.DATE, BsonType.BOOL):
        low, high = left.values.astype(np.int64), right.values.astype(np.int64)
    elif left.kind == right.kind == BsonType.STRING:
        ranks = {text: rank for rank, text in enumerate(sorted({*(left.texts or ()), *(right.texts or ())}))}
        low, high = _numbered(left, ranks), _numbered(right, ranks)
    else:
        raise Unfit
    found = (low > high).astype(np.int64) - (low < high)
    return np.where(both, found, order)


def _numbered(column: Column, numbers: dict[str, int]) -> NDArray[np.int64]:
    """The numbers of a column's strings; 0 where there is none."""
    texts = column.texts or []
    found = np.array([*(numbers[text] for text in texts), 0], dtype=np.int64)
    moved: NDArray[np.int64] = found[np.minimum(column.values, len(texts))]
    return moved


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
        found = _chosen(here(column, len(column.values)), column, found)
    return found


def _chosen(first: Mask, then: Column, otherwise: Column) -> Column:
    """The one column where a row is true, else the other; both are of one type."""
    kinds = {then.kind, otherwise.kind} - {ABSENT}
    if not kinds:
        return then
    if len(kinds) > 1:
        if first.all():
            return then
        if not first.any():
            return otherwise
        raise Unfit
    (kind,) = kinds
    rows = len(first)
    if kind == BsonType.STRING:
        return _chosen_strings(first, then, otherwise)
    values = np.where(
        first, _values_of(then, kind, otherwise.values.dtype), _values_of(otherwise, kind, then.values.dtype)
    )
    present = np.where(first, here(then, rows), here(otherwise, rows))
    return Column(kind, values, None if present.all() else present)


def _chosen_strings(first: Mask, then: Column, otherwise: Column) -> Column:
    texts: dict[str, int] = {}
    for text in (*(then.texts or ()), *(otherwise.texts or ())):
        texts.setdefault(text, len(texts))
    left, right = (
        _numbered(column, texts) if column.kind == BsonType.STRING else np.zeros(len(first), dtype=np.int64)
        for column in (then, otherwise)
    )
    present = np.where(first, here(then, len(first)), here(otherwise, len(first)))
    codes = np.where(present, np.where(first, left, right), _NO_TEXT).astype(np.uint32)
    return Column(BsonType.STRING, codes, None if present.all() else present, list(texts))


def _values_of(column: Column, kind: int, dtype: Any) -> NDArray[Any]:
    return column.values if column.kind == kind else column.values.astype(dtype)


_OPERATORS: Final[dict[str, Compute]] = {
    **NUMBER_OPERATORS,
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
