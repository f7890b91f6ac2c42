"""Comparison, logic, choice and variables: `$eq … $cmp`, `$and $or $not`, `$cond $ifNull $switch`, `$let`, `$literal`."""

from collections.abc import Callable
from typing import Any, Final

from ...common.errors import FailedToParse, Location
from ...common.ordering import compare
from ...common.values import MISSING, Document, type_name
from .base import (
    VARIADIC,
    Call,
    Constant,
    Expression,
    Lazy,
    OperatorParser,
    ParseContext,
    Variables,
    check_variable_name,
    operands,
    to_bool,
)


def _comparison(test: Callable[[int], Any]) -> OperatorParser:
    def parse(name: str, spec: Any, context: ParseContext) -> Expression:
        collator = context.collator
        call = Call(name, operands(name, spec, context, 2), lambda left, right: test(compare(left, right, collator)))
        call.collated = collator is not None
        return call

    return parse


def _parse_and(name: str, spec: Any, context: ParseContext) -> Expression:
    items = operands(name, spec, context, 0, VARIADIC)
    functions = [item.evaluate for item in items]

    def evaluate(document: Document, variables: Variables) -> bool:
        return all(to_bool(function(document, variables)) for function in functions)

    return Lazy(name, items, evaluate, [item.serialize() for item in items]) if items else Constant(True)


def _parse_or(name: str, spec: Any, context: ParseContext) -> Expression:
    items = operands(name, spec, context, 0, VARIADIC)
    if any(isinstance(item, Constant) and to_bool(item.value) for item in items):
        return Constant(True)
    functions = [item.evaluate for item in items]

    def evaluate(document: Document, variables: Variables) -> bool:
        return any(to_bool(function(document, variables)) for function in functions)

    return Lazy(name, items, evaluate, [item.serialize() for item in items]) if items else Constant(False)


def _parse_not(name: str, spec: Any, context: ParseContext) -> Expression:
    return Call(name, operands(name, spec, context, 1), lambda value: not to_bool(value))


def _parse_cond(name: str, spec: Any, context: ParseContext) -> Expression:
    if isinstance(spec, dict):
        for key in spec:
            if key not in ("if", "then", "else"):
                raise Location(17083, f"Unrecognized parameter to $cond: {key}")
        for number, key in ((17080, "if"), (17081, "then"), (17082, "else")):
            if key not in spec:
                raise Location(number, f"Missing '{key}' parameter to $cond")
        items = [context.parse(spec[key]) for key in ("if", "then", "else")]
    else:
        items = operands(name, spec, context, 3)
    test, then, otherwise = (item.evaluate for item in items)

    def evaluate(document: Document, variables: Variables) -> Any:
        chosen = then if to_bool(test(document, variables)) else otherwise
        return chosen(document, variables)

    return Lazy(name, items, evaluate, [item.serialize() for item in items])


def _parse_if_null(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, list) or len(spec) < 2:
        count = len(spec) if isinstance(spec, list) else 1
        raise Location(1257300, f"$ifNull needs at least two arguments, had: {count}")
    items = [context.parse(item) for item in spec]
    for item in items:
        if item.is_constant:
            # What is constant is worked out beforehand, and so is its failure.
            item.evaluate({}, {})
    *tried, last = (item.evaluate for item in items)

    def evaluate(document: Document, variables: Variables) -> Any:
        for function in tried:
            value = function(document, variables)
            if value is not None and value is not MISSING:
                return value
        return last(document, variables)

    return Lazy(name, items, evaluate, [item.serialize() for item in items])


def _parse_switch(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(40060, f"$switch requires an object as an argument, found: {type_name(spec)}")
    branches: list[tuple[Expression, Expression]] = []
    default: Expression | None = None
    for key, value in spec.items():
        if key == "branches":
            if not isinstance(value, list):
                raise Location(40061, f"$switch expected an array for 'branches', found: {type_name(value)}")
            branches = [_branch(one, context) for one in value]
        elif key == "default":
            default = context.parse(value)
        else:
            raise Location(40067, f"$switch found an unknown argument: {key}")
    if not branches:
        raise Location(40068, "$switch requires at least one branch.")
    if default is None and all(isinstance(case, Constant) and not to_bool(case.value) for case, _ in branches):
        raise Location(
            40069, "Cannot execute a switch statement where all the cases evaluate to false without a default."
        )
    if default is not None and default.is_constant:
        # What it gives is worked out beforehand, and so is its failure.
        default.evaluate({}, {})
    functions = [(case.evaluate, then.evaluate) for case, then in branches]
    otherwise = None if default is None else default.evaluate

    def evaluate(document: Document, variables: Variables) -> Any:
        for case, then in functions:
            if to_bool(case(document, variables)):
                return then(document, variables)
        if otherwise is None:
            raise Location(
                40066, "$switch could not find a matching branch for an input, and no default was specified."
            )
        return otherwise(document, variables)

    shown: Document = {"branches": [{"case": case.serialize(), "then": then.serialize()} for case, then in branches]}
    if default is not None:
        shown["default"] = default.serialize()
    items = [item for pair in branches for item in pair] + ([] if default is None else [default])
    return Lazy(name, items, evaluate, shown)


def _branch(spec: Any, context: ParseContext) -> tuple[Expression, Expression]:
    if not isinstance(spec, dict):
        raise Location(40062, f"$switch expected each branch to be an object, found: {type_name(spec)}")
    for key in spec:
        if key not in ("case", "then"):
            raise Location(40063, f"$switch found an unknown argument to a branch: {key}")
    if "case" not in spec:
        raise Location(40064, "$switch requires each branch have a 'case' expression")
    if "then" not in spec:
        raise Location(40065, "$switch requires each branch have a 'then' expression.")
    return context.parse(spec["case"]), context.parse(spec["then"])


class Bound(Expression):
    """An expression with variables of its own: `$let`."""

    def __init__(self, name: str, bound: dict[str, Expression], body: Expression) -> None:
        self.name = name
        self.bound = bound
        self.body = body
        functions = [(variable, expression.evaluate) for variable, expression in bound.items()]
        inner = body.evaluate

        def evaluate(document: Document, variables: Variables) -> Any:
            values = {variable: function(document, variables) for variable, function in functions}
            return inner(document, {**variables, **values})

        self.evaluate = evaluate

    def children(self) -> list[Expression]:
        """See `Expression.children`."""
        return [*self.bound.values(), self.body]

    def serialize(self) -> Document:
        """See `Expression.serialize`."""
        return {
            self.name: {
                "vars": {variable: expression.serialize() for variable, expression in self.bound.items()},
                "in": self.body.serialize(),
            }
        }


def _parse_let(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(16874, "$let only supports an object as its argument")
    for key in spec:
        if key not in ("vars", "in"):
            raise Location(16875, f"Unrecognized parameter to $let: {key}")
    if "vars" not in spec:
        raise Location(16876, "Missing 'vars' parameter to $let")
    if "in" not in spec:
        raise Location(16877, "Missing 'in' parameter to $let")
    if not isinstance(spec["vars"], dict):
        why = "invalid parameter: expected an object (vars)"
        raise FailedToParse(why) if isinstance(spec["vars"], list) else Location(10065, why)
    for variable in spec["vars"]:
        if variable != "CURRENT":
            check_variable_name(variable)
    bound = {variable: context.parse(value) for variable, value in spec["vars"].items()}
    return Bound(name, bound, context.with_variables(*bound).parse(spec["in"]))


def _parse_literal(name: str, spec: Any, context: ParseContext) -> Expression:
    return Constant(spec)


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$and": _parse_and,
    "$cmp": _comparison(lambda order: order),
    "$cond": _parse_cond,
    "$const": _parse_literal,
    "$eq": _comparison(lambda order: order == 0),
    "$expr": lambda name, spec, context: context.parse(spec),
    "$gt": _comparison(lambda order: order > 0),
    "$gte": _comparison(lambda order: order >= 0),
    "$ifNull": _parse_if_null,
    "$let": _parse_let,
    "$literal": _parse_literal,
    "$lt": _comparison(lambda order: order < 0),
    "$lte": _comparison(lambda order: order <= 0),
    "$ne": _comparison(lambda order: order != 0),
    "$not": _parse_not,
    "$or": _parse_or,
    "$switch": _parse_switch,
}
