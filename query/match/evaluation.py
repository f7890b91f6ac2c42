"""Conditions on whole documents: `$expr`, `$sampleRate`, and the refusal of `$where`."""

import random
from dataclasses import replace
from typing import Any

from ...common.errors import BadValue
from ...common.numbers import is_number
from ...common.ordering import compare
from ...common.values import Document
from ..expression.base import Expression, to_bool
from ..expression.parse import ParseContext, parse_expression
from .base import NO_VARIABLES, AlwaysFalse, AlwaysTrue, MatchContext, MatchNode, Predicate, Variables


class ExprMatch(MatchNode):
    """An expression is true for the document."""

    rank = 23

    def __init__(self, expression: Expression, context: ParseContext | None = None) -> None:
        """`context` is the one in which the expression was parsed, for whoever wants to write it anew."""
        self.expression = expression
        self.context = context

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        evaluate = self.expression.evaluate
        values = NO_VARIABLES if variables is None else variables
        return lambda document: to_bool(evaluate(document, values))

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {"$expr": self.expression.serialize()}

    def fields(self) -> frozenset[str] | None:
        """See `MatchNode.fields`."""
        fields = self.expression.fields()
        return None if fields is None else frozenset(fields)


class SampleRate(MatchNode):
    """Each document matches with a certain probability."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        rate, draw = self.rate, random.random
        return lambda _: draw() < rate

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {"$sampleRate": self.rate}

    def fields(self) -> frozenset[str]:
        """See `MatchNode.fields`."""
        return frozenset()

    def simplified(self) -> MatchNode:
        """See `MatchNode.simplified`: none and all need no dice."""
        return AlwaysFalse() if self.rate <= 0 else AlwaysTrue() if self.rate >= 1 else self


def parse_expr(operand: Any, context: MatchContext) -> MatchNode:
    """`$expr: expression`."""
    known = ParseContext(collator=context.collator, variables=context.defined_variables)
    if isinstance(operand, dict) and _is_membership_of_field(operand.get("$in")):
        # MongoDB tests this one as an `$in` of queries as well, and that one knows nothing of the collation.
        known = replace(known, collator=None)
    return ExprMatch(parse_expression(operand, known), known)


def _is_membership_of_field(operands: Any) -> bool:
    if not isinstance(operands, list) or len(operands) != 2:
        return False
    field, values = operands
    return isinstance(field, str) and field.startswith("$") and field[1:2] != "$" and isinstance(values, list)


def parse_sample_rate(operand: Any, _: MatchContext) -> MatchNode:
    """`$sampleRate: probability`."""
    if not is_number(operand):
        raise BadValue("argument to $sampleRate must be a numeric type")
    if compare(operand, 0) < 0 or compare(operand, 1) > 0:
        raise BadValue("numeric argument to $sampleRate must be in [0, 1]")
    return SampleRate(float(str(operand)))


def parse_where(_operand: Any, _: MatchContext) -> MatchNode:
    """`$where`, which needs JavaScript and is answered as by a server that has it switched off."""
    raise BadValue("no globalScriptEngine in $where parsing")
