"""`$_internalExprEq` and its like: comparisons across types, as expressions compare.

They stand in filters that the server writes itself, such as those of partial indexes on buckets. They let through what they
cannot judge: an array anywhere on the path.
"""

from collections.abc import Callable
from typing import Any, Final

from bson import Regex

from ...common.errors import BadValue
from ...common.ordering import OrderKey, order_key
from ...common.values import MISSING, Document
from .base import MatchContext, MatchNode, OperatorParser, PathNode, Predicate, ValueTest, Variables

_TESTS: Final[dict[str, Callable[[OrderKey, OrderKey], bool]]] = {
    "$_internalExprEq": lambda left, right: left == right,
    "$_internalExprGt": lambda left, right: left > right,
    "$_internalExprGte": lambda left, right: left >= right,
    "$_internalExprLt": lambda left, right: left < right,
    "$_internalExprLte": lambda left, right: left <= right,
}


class InternalComparison(PathNode):
    """A value stands in a relation to the operand in the order of all types."""

    rank = 28

    expand = False

    def __init__(self, path: str, operator: str, value: Any, collator: Any = None) -> None:
        super().__init__(path)
        self.operator = operator
        self.value = value
        self.collator = collator

    @property
    def plain_operator(self) -> str:
        """The comparison of queries that goes the same way."""
        return "$" + self.operator.removeprefix("$_internalExpr").lower()

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {self.operator: self.value}

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`: an array on the way lets the document through."""
        test, parts = self.value_test(variables), self.parts

        def matches(document: Document) -> bool:
            value: Any = document
            for part in parts:
                if type(value) is list:
                    return True
                value = value.get(part, MISSING) if type(value) is dict else MISSING
            return test(value)

        return matches

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        holds, operand, collator = _TESTS[self.operator], order_key(self.value, self.collator), self.collator

        def test(value: Any) -> bool:
            return type(value) is list or holds(order_key(value, collator), operand)

        return test


def _parser(operator: str) -> OperatorParser:
    def parse(path: str, operand: Any, _: Document, context: MatchContext) -> MatchNode:
        if isinstance(operand, list | Regex):
            raise BadValue(f"{operator} cannot be used with an array or a regular expression")
        return InternalComparison(path, operator, operand, context.collator)

    return parse


OPERATORS: Final[dict[str, OperatorParser]] = {operator: _parser(operator) for operator in _TESTS}
