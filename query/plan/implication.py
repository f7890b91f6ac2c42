"""Whether a filter matches only what a partial or sparse index holds."""

from collections.abc import Sequence
from typing import Any

from bson import MaxKey, MinKey

from ...common.collation import Collation
from ...common.values import Document
from ..match.base import MatchNode
from ..match.comparison import Comparison, In
from ..match.elements import Exists
from ..match.internal import InternalComparison
from ..match.logical import Or
from ..match.parse import parse_filter
from .bounds import same_value
from .wanted import conjuncts


def wants_field(predicate: MatchNode, paths: Sequence[str]) -> bool:
    """Whether the predicate fails for documents without the field, and the field is one of these."""
    match predicate:
        case Exists():
            return predicate.path in paths
        case Comparison():
            return predicate.path in paths and not (
                predicate.value is None or isinstance(predicate.value, MinKey | MaxKey)
            )
        case In():
            return predicate.path in paths and not any(value is None for value in predicate.values)
    return False


def implies(predicates: Sequence[MatchNode], partial: Document, collation: Collation | None) -> bool:
    """Whether every document that satisfies the predicates is in the partial index."""
    return all(
        any(_implies_one(given, needed) for given in predicates)
        for needed in conjuncts(parse_filter(partial, collator=collation))
    )


def _implies_one(given: MatchNode, needed: MatchNode) -> bool:
    if given.serialize() == needed.serialize() and type(given) is type(needed):
        return True
    if isinstance(given, In) and given.values and not given.regexes:
        return all(_implies_one(Comparison(given.path, "$eq", value), needed) for value in given.values)
    if isinstance(needed, InternalComparison):
        return _implies_internal(given, needed)
    if isinstance(given, Or):
        return all(_implies_one(branch, needed) for branch in given.children())
    if not isinstance(given, Comparison):
        return False
    if isinstance(needed, Exists):
        return needed.path == given.path and given.value is not None
    if isinstance(needed, In):
        return (
            needed.path == given.path
            and given.operator == "$eq"
            and any(same_value(given.value, value) for value in needed.values)
        )
    if not isinstance(needed, Comparison) or needed.path != given.path:
        return False
    if given.operator == "$eq":
        return needed.compile()(_as_document(given.path, given.value))
    same_direction = given.operator[:3] == needed.operator[:3] and given.operator != "$eq" != needed.operator
    if not same_direction:
        return False
    if same_value(given.value, needed.value):
        return not (given.operator.endswith("e") and not needed.operator.endswith("e"))
    return needed.compile()(_as_document(given.path, given.value))


def _implies_internal(given: MatchNode, needed: InternalComparison) -> bool:
    """The same for what is needed in the order of all types."""
    if not isinstance(given, Comparison | InternalComparison) or given.path != needed.path or given.value is None:
        return False
    operator = given.operator if isinstance(given, Comparison) else given.plain_operator
    wanted = needed.plain_operator
    if operator == "$eq":
        return needed.value_test()(given.value)
    if operator[:3] != wanted[:3] or wanted == "$eq":
        return False
    if same_value(given.value, needed.value):
        return not (operator.endswith("e") and not wanted.endswith("e"))
    return needed.value_test()(given.value)


def _as_document(path: str, value: Any) -> Document:
    document: Any = value
    for part in reversed(path.split(".")):
        document = {part: document}
    return dict(document)
