"""Predicates that raw documents are judged by: most of a scan's rows are refused or taken before anybody decodes them."""

from collections.abc import Sequence
from typing import Any, Final

from bson import DatetimeMS, Int64, ObjectId, Timestamp

from ...common.paths import split_path
from ...common.values import encode
from ...kernels import RawFilter
from .base import MatchNode, PathNode
from .comparison import Comparison, In
from .elements import Exists
from .internal import InternalComparison
from .logical import And, Or

_CONSTANTS: Final = (int, float, Int64, str, DatetimeMS, ObjectId, bool, Timestamp)
_IN_MAX: Final = 64

Condition = tuple[Any, ...]


def raw_filter(node: MatchNode) -> tuple[RawFilter, bool] | None:
    """The predicate on raw documents, and whether it says everything; None where it would say nothing.

    If it does not say everything, it refuses rows that cannot match, and the others are still to be tested.
    """
    parts: Sequence[MatchNode] = node.children() if isinstance(node, And) else (node,)
    found = [condition for part in parts if (condition := _condition(part)) is not None]
    if not found:
        return None
    return RawFilter(found[0] if len(found) == 1 else ("and", found)), len(found) == len(parts)


def _condition(node: MatchNode) -> Condition | None:
    match node:
        case And() | Or():
            below = [_condition(child) for child in node.children()]
            if any(condition is None for condition in below):
                return None
            return ("and" if isinstance(node, And) else "or", below)
        case Comparison() if _is_plain(node.value, node.collator):
            return ("compare", _path(node), node.operator, _constant(node.value))
        case InternalComparison() if _is_plain(node.value, node.collator):
            return ("loose", _path(node), node.plain_operator, _constant(node.value))
        case In() if not node.regexes and all(_is_plain(value, node.collator) for value in node.values):
            if sum(type(value) is not str for value in node.values) > _IN_MAX:
                return None
            return ("in", _path(node), [_constant(value) for value in node.values])
        case Exists():
            return ("exists", _path(node), True)
    return None


def _path(node: PathNode) -> list[str]:
    return list(split_path(node.path))


def _is_plain(value: Any, collator: Any) -> bool:
    kind = type(value)
    if kind is str:
        return collator is None
    return kind in _CONSTANTS and value == value


def _constant(value: Any) -> tuple[int, bytes]:
    raw = encode({"": value})
    return raw[4], raw[6:-1]
