"""Parses accumulators."""

from collections.abc import Callable
from typing import Any, Final

from ...common.errors import FailedToParse, Location, NotImplemented, TypeMismatch
from ...common.numbers import is_number, whole_number
from ...common.ordering import Collator
from ...common.values import Document, type_name
from ..expression.base import Constant, Expression, FieldPath, ParseContext
from ..expression.parse import OPERATORS
from ..expression.ranking import parse_shares
from ..sort import parse_sort
from .base import Accumulator, Evaluate, State
from .choices import Extreme, First, Last, Ranked, Several
from .collections import AddToSet, ConcatArrays, MergeObjects, Push, SetUnion
from .statistics import Deviation, Percentiles
from .sums import Average, Sum, Tally


def parse_accumulator(name: str, spec: Any, context: ParseContext, *, lists_are_values: bool = False) -> Accumulator:
    """Parse `{name: spec}`; in windows a list is an array of expressions, in groups there is none.

    Raises:
        Location: 15952 for an unknown name, 40237 for a list of operands, and what the operands raise.
    """
    if name == "$count":
        if isinstance(spec, list) and not lists_are_values:
            raise Location(40237, f"The {name} accumulator is a unary operator")
        if isinstance(spec, str) and spec:
            raise TypeMismatch("$count takes no arguments, i.e. $count:{}")
        if spec != {}:
            raise FailedToParse("$count takes no arguments, i.e. $count:{}")
        one = Constant(1)
        return Accumulator("$sum", one, lambda group: Tally(1), {"$const": 1})
    if name in ("$top", "$topN", "$bottom", "$bottomN"):
        return _ranked(name, spec, context)
    if name in ("$firstN", "$lastN", "$minN", "$maxN"):
        return _several(name, spec, context)
    if name in ("$median", "$percentile"):
        return _percentile(name, spec, context)
    make = _PLAIN.get(name)
    if make is None:
        if name == "$accumulator":
            raise NotImplemented(f"the accumulator {name} is not supported")
        if isinstance(spec, list) and name in OPERATORS:
            raise Location(40237, f"The {name} accumulator is a unary operator")
        raise Location(15952, f"unknown group operator '{name}'")
    if isinstance(spec, list) and not lists_are_values:
        raise Location(40237, f"The {name} accumulator is a unary operator")
    expression = context.parse(spec)
    if name == "$sum" and isinstance(expression, Constant) and type(expression.value) is int:
        whole: int = expression.value
        return Accumulator(name, expression, lambda group: Tally(whole), expression.serialize())
    evaluate, collator = expression.evaluate, context.collator
    if name == "$first" and not isinstance(expression, Constant | FieldPath):
        return Accumulator(name, expression, lambda group: First(evaluate, safe=False), expression.serialize())
    return Accumulator(name, expression, lambda group: make(evaluate, collator), expression.serialize())


_PLAIN: Final[dict[str, Callable[[Evaluate, Collator | None], State]]] = {
    "$addToSet": AddToSet,
    "$avg": lambda evaluate, collator: Average(evaluate),
    "$concatArrays": lambda evaluate, collator: ConcatArrays(evaluate),
    "$first": lambda evaluate, collator: First(evaluate),
    "$last": lambda evaluate, collator: Last(evaluate),
    "$max": lambda evaluate, collator: Extreme(evaluate, collator, 1),
    "$mergeObjects": lambda evaluate, collator: MergeObjects(evaluate),
    "$min": lambda evaluate, collator: Extreme(evaluate, collator, -1),
    "$push": lambda evaluate, collator: Push(evaluate),
    "$setUnion": SetUnion,
    "$stdDevPop": lambda evaluate, collator: Deviation(evaluate, False),
    "$stdDevSamp": lambda evaluate, collator: Deviation(evaluate, True),
    "$sum": lambda evaluate, collator: Sum(evaluate),
}


Count = Callable[[Document], int]


def _count(name: str, spec: Document, context: ParseContext) -> tuple[Count, Any]:
    """How many values a group keeps, and the expression for it as explain shows it; it may read the `_id` of the group."""
    expression = context.parse(spec["n"])
    if isinstance(expression, Constant):
        try:
            fixed = _checked_count(expression.value)
        except Location as error:
            raise Location(7548606, error.message) from None
        return lambda group: fixed, {"$const": fixed}
    return lambda group: _checked_count(expression.evaluate(group, {})), expression.serialize()


def _checked_count(value: Any) -> int:
    whole = whole_number(value) if is_number(value) else None
    if whole is None:
        raise Location(5787902, f"Value for 'n' must be of integral type, but found {type_name(value)}")
    if whole <= 0:
        raise Location(5787908, f"'n' must be greater than 0, found {whole}")
    return whole


def _percentile(name: str, spec: Any, context: ParseContext) -> Accumulator:
    expression, shares = parse_shares(name, spec, context)
    evaluate, single = expression.evaluate, name == "$median"
    shown: Document = {"input": expression.serialize(), "method": spec["method"]}
    if not single:
        shown = {"input": shown["input"], "p": shares, "method": spec["method"]}
    return Accumulator(name, expression, lambda group: Percentiles(evaluate, shares, single), shown)


def _several(name: str, spec: Any, context: ParseContext) -> Accumulator:
    if not isinstance(spec, dict):
        raise Location(5787801, f"specification must be an object; found {name}: {spec}")
    for key in spec:
        if key not in ("n", "input"):
            raise Location(5787901, f"Unknown argument for 'n' operator: {key}")
    for key, code in (("n", 5787906), ("input", 5787907)):
        if key not in spec:
            raise Location(code, f"Missing value for '{key}'")
    count, shown_count = _count(name, spec, context)
    expression = context.parse(spec["input"])
    if name == "$sum" and isinstance(expression, Constant) and type(expression.value) is int:
        whole: int = expression.value
        return Accumulator(name, expression, lambda group: Tally(whole), expression.serialize())
    evaluate, collator = expression.evaluate, context.collator
    shown = {"n": shown_count, "input": expression.serialize()}
    return Accumulator(name, expression, lambda group: Several(evaluate, count(group), name, collator), shown)


def _one(group: Document) -> int:
    return 1


def _ranked(name: str, spec: Any, context: ParseContext) -> Accumulator:
    if not isinstance(spec, dict):
        raise Location(5788001, f"specification must be an object; found {name}: {spec}")
    single = name in ("$top", "$bottom")
    for key in spec:
        if key not in ("sortBy", "output") and (single or key != "n"):
            raise Location(5788002, f"Unknown argument to {name}: {key}")
    for key, code in (("n", 5788003), ("output", 5788004), ("sortBy", 5788005)):
        if key not in spec and not (single and key == "n"):
            raise Location(code, f"Missing value for '{key}'")
    if not isinstance(spec["sortBy"], dict):
        raise Location(10065, "expected 'sortBy' to already exist as an object")
    count, shown_count = (_one, None) if single else _count(name, spec, context)
    pattern = parse_sort(spec["sortBy"])
    expression = context.parse(spec["output"])
    if name == "$sum" and isinstance(expression, Constant) and type(expression.value) is int:
        whole: int = expression.value
        return Accumulator(name, expression, lambda group: Tally(whole), expression.serialize())
    evaluate, collator = expression.evaluate, context.collator

    def begin(group: Document) -> State:
        return Ranked(
            evaluate, pattern, count(group), bottom=name.startswith("$bottom"), single=single, collator=collator
        )

    shown: Document = {"sortBy": pattern.serialize(), "output": expression.serialize()}
    if not single:
        shown = {"n": shown_count, **shown}
    return Accumulator(name, WithFields(expression, pattern.fields), begin, shown)


class WithFields(Expression):
    """An expression that reads further fields beside its own, by which rows are sorted."""

    def __init__(self, inner: Expression, sorted_by: tuple[str, ...]) -> None:
        self.evaluate = inner.evaluate
        self.inner = inner
        self.sorted_by = frozenset(sorted_by)

    def serialize(self) -> Any:
        """See `Expression.serialize`."""
        return self.inner.serialize()

    def fields(self) -> frozenset[str] | None:
        """See `Expression.fields`."""
        inner = self.inner.fields()
        return None if inner is None else inner | self.sorted_by
