"""Filters over columns: which rows of a batch satisfy a predicate, where arrays can tell."""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from bson import DatetimeMS, Int64
from numpy.typing import NDArray

from ...common.values import BsonType
from ..match.base import AlwaysTrue, MatchNode
from ..match.comparison import Comparison, In
from ..match.elements import Exists
from ..match.evaluation import ExprMatch
from ..match.logical import And, Not, Or
from .batch import ABSENT, MIXED, Column, ColumnBatch
from .computed import can_compute, computed, truth
from .operands import Unfit

Mask = NDArray[np.bool_]

_EXACT_MAX: Final = 2**53
_IN_MAX: Final = 64
_WHOLE: Final = (BsonType.INT32, BsonType.INT64)
_COMPARE: Final = {
    "$eq": np.equal,
    "$gt": np.greater,
    "$gte": np.greater_equal,
    "$lt": np.less,
    "$lte": np.less_equal,
}


_RELATIONS: Final[dict[str, Callable[[str, str], bool]]] = {
    "$eq": str.__eq__,
    "$gt": str.__gt__,
    "$gte": str.__ge__,
    "$lt": str.__lt__,
    "$lte": str.__le__,
}


def filter_mask(node: MatchNode, batch: ColumnBatch) -> Mask | None:
    """Which rows satisfy the predicate, as `MatchNode.compile` would say; None where the arrays cannot tell."""
    match node:
        case AlwaysTrue():
            return np.ones(len(batch), dtype=np.bool_)
        case And() | Or():
            masks = [filter_mask(child, batch) for child in node.children()]
            return _combined(masks, np.logical_and if isinstance(node, And) else np.logical_or)
        case Exists() if _is_column(node.path, batch):
            column = batch.column(node.path)
            if column.kind == MIXED:
                return None
            if column.absent is None:
                return np.ones(len(batch), dtype=np.bool_)
            if column.kind == ABSENT:
                return np.zeros(len(batch), dtype=np.bool_)
            return np.ones(len(batch), dtype=np.bool_) if column.present is None else column.present
        case Comparison() if _is_column(node.path, batch) and node.operator in _COMPARE:
            if type(node.value) is str and node.collator is not None:
                return None
            return _compared(batch.column(node.path), node.operator, node.value, len(batch))
        case In() if _is_column(node.path, batch) and not node.regexes and len(node.values) <= _IN_MAX:
            if node.collator is not None and any(type(value) is str for value in node.values):
                return None
            column = batch.column(node.path)
            return _combined([_compared(column, "$eq", value, len(batch)) for value in node.values], np.logical_or)
        case Not():
            mask = filter_mask(node.child, batch)
            return None if mask is None else ~mask
        case ExprMatch() if can_compute(node.expression, batch.shared.name):
            try:
                return truth(computed(node.expression, batch), len(batch))
            except Unfit:
                return None
    return None


def _combined(masks: list[Mask | None], by: Any) -> Mask | None:
    known = [mask for mask in masks if mask is not None]
    if len(known) != len(masks):
        return None
    combined: Mask = by.reduce(known)
    return combined


def _is_column(path: str, batch: ColumnBatch) -> bool:
    return "." not in path and path != batch.shared.name


def _compared(column: Column, operator: str, operand: Any, rows: int) -> Mask | None:
    kind = type(operand)
    if column.kind == MIXED:
        return None
    if operand is None:
        return _null(column, operator, rows)
    if kind is str:
        return _of_strings(column, operator, operand, rows)
    if kind not in (int, float, Int64, DatetimeMS):
        return None
    is_date = kind is DatetimeMS
    if column.kind == ABSENT or is_date != (column.kind == BsonType.DATE):
        if column.kind in (ABSENT, BsonType.DATE, BsonType.STRING, BsonType.BOOL, BsonType.DOUBLE, *_WHOLE):
            # Of another type, or not there: no number and no date compares with it.
            return np.zeros(rows, dtype=np.bool_)
        return None
    if is_date:
        mask = _of_whole(column.values, operator, int(operand))
    elif column.kind in _WHOLE:
        mask = _of_whole(column.values, operator, operand)
    elif column.kind == BsonType.DOUBLE:
        mask = _of_doubles(column.values, operator, operand)
    elif column.kind in (BsonType.STRING, BsonType.BOOL):
        return np.zeros(rows, dtype=np.bool_)
    else:
        return None
    return mask if mask is None or column.present is None else mask & column.present


def _null(column: Column, operator: str, rows: int) -> Mask:
    """What is missing is like null, in all but what is greater or less."""
    if operator in ("$gt", "$lt"):
        return np.zeros(rows, dtype=np.bool_)
    if column.kind == ABSENT:
        return np.ones(rows, dtype=np.bool_)
    return np.zeros(rows, dtype=np.bool_) if column.present is None else ~column.present


def _of_strings(column: Column, operator: str, operand: str, rows: int) -> Mask:
    if column.kind != BsonType.STRING or column.texts is None:
        return np.zeros(rows, dtype=np.bool_)
    # One comparison for each of the different strings; the last place is for rows without one.
    holds = np.array([_RELATIONS[operator](text, operand) for text in [*column.texts, ""]], dtype=np.bool_)
    holds[-1] = False
    mask: Mask = holds[np.minimum(column.values, len(column.texts))]
    return mask


def _of_whole(values: NDArray[Any], operator: str, operand: Any) -> Mask | None:
    if isinstance(operand, float):
        if not math.isfinite(operand) or abs(operand) >= _EXACT_MAX:
            return None
        if not operand.is_integer():
            if operator == "$eq":
                return np.zeros(len(values), dtype=np.bool_)
            # The whole number below is on the same side as the operand, and is never met itself.
            operator = "$gt" if operator in ("$gt", "$gte") else "$lte"
        operand = math.floor(operand)
    if not -(2**63) <= operand < 2**63:
        return None
    mask: Mask = _COMPARE[operator](values, np.int64(int(operand)))
    return mask


def _of_doubles(values: NDArray[Any], operator: str, operand: Any) -> Mask | None:
    if not isinstance(operand, float):
        if abs(operand) > _EXACT_MAX:
            return None
        operand = float(operand)
    if math.isnan(operand):
        return None
    mask: Mask = _COMPARE[operator](values, operand)
    return mask
