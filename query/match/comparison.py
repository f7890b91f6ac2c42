"""Comparisons with a value: `$eq $ne $gt $gte $lt $lte $in $nin`.

A range only ever holds between values of one type class; MinKey and MaxKey are comparable with everything. The operand
is known when the predicate compiles, so that the function that runs per value is the one for the operand's type.
"""

import re
from collections.abc import Hashable, Sequence
from typing import Any, Final

from bson import DatetimeMS, Decimal128, Int64, MaxKey, MinKey, Regex

from ...common.errors import BadValue
from ...common.ordering import (
    CLASS_MISSING,
    CLASS_NULL,
    KEY_NAN,
    KEY_NULL,
    Collator,
    OrderKey,
    canonical_class,
    order_key,
)
from ...common.values import MISSING, Document
from .base import AlwaysFalse, MatchContext, MatchNode, OperatorParser, PathNode, ValueTest, Variables
from .logical import Not
from .patterns import RegexMatch

PLAIN_NUMBERS: Final = frozenset((int, float, Int64))
"""The types whose values Python compares as MongoDB does, NaN apart."""


_RANKS: Final = {"$eq": 5, "$lte": 6, "$lt": 7, "$gt": 8, "$gte": 9}


class Comparison(PathNode):
    """A value stands in a relation to the operand."""

    def __init__(self, path: str, operator: str, value: Any, collator: Collator | None = None) -> None:
        super().__init__(path)
        self.operator = operator
        self.value = value
        self.collator = collator
        self.rank = _RANKS[operator]

    def alternative_key(self) -> Hashable | None:
        """See `MatchNode.alternative_key`."""
        return ("$eq", self.path) if self.operator == "$eq" else None

    def joined(self, others: Sequence[MatchNode]) -> MatchNode:
        """See `MatchNode.joined`."""
        values = [self.value, *(other.value for other in others if isinstance(other, Comparison))]
        return In(self.path, values, (), self.collator).simplified()

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {self.operator: self.value}

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        return comparison_test(self.operator, self.value, self.collator)


def comparison_test(operator: str, operand: Any, collator: Collator | None = None) -> ValueTest:
    """A function that tells whether a value stands in the relation to the operand."""
    if operand is None:
        return _null_test(operator)
    kind = type(operand)
    if kind in PLAIN_NUMBERS and operand == operand:
        return _number_test(operator, operand)
    if kind is str and collator is None:
        return _string_test(operator, operand)
    if kind is DatetimeMS:
        return _date_test(operator, int(operand))
    if operator == "$eq":
        return _equality_test(order_key(operand, collator), collator)
    return _range_test(operator, operand, collator)


def _null_test(operator: str) -> ValueTest:
    if operator in ("$gt", "$lt"):
        return lambda _: False
    return lambda value: value is None or value is MISSING


def _number_test(operator: str, operand: float) -> ValueTest:
    key = order_key(operand)
    plain = PLAIN_NUMBERS

    def equals(value: Any) -> bool:
        kind = type(value)
        if kind in plain:
            return bool(value == operand)
        return kind is Decimal128 and order_key(value) == key

    def greater(value: Any) -> bool:
        kind = type(value)
        if kind in plain:
            return bool(value > operand)
        return kind is Decimal128 and order_key(value) > key

    def greater_or_equal(value: Any) -> bool:
        kind = type(value)
        if kind in plain:
            return bool(value >= operand)
        return kind is Decimal128 and order_key(value) >= key

    def less(value: Any) -> bool:
        kind = type(value)
        if kind in plain:
            return bool(value < operand)
        return kind is Decimal128 and KEY_NAN < order_key(value) < key

    def less_or_equal(value: Any) -> bool:
        kind = type(value)
        if kind in plain:
            return bool(value <= operand)
        return kind is Decimal128 and KEY_NAN < order_key(value) <= key

    return _pick(operator, equals, greater, greater_or_equal, less, less_or_equal)


def _string_test(operator: str, operand: str) -> ValueTest:
    return _pick(
        operator,
        lambda value: type(value) is str and value == operand,
        lambda value: type(value) is str and value > operand,
        lambda value: type(value) is str and value >= operand,
        lambda value: type(value) is str and value < operand,
        lambda value: type(value) is str and value <= operand,
    )


def _date_test(operator: str, operand: int) -> ValueTest:
    return _pick(
        operator,
        lambda value: type(value) is DatetimeMS and int(value) == operand,
        lambda value: type(value) is DatetimeMS and int(value) > operand,
        lambda value: type(value) is DatetimeMS and int(value) >= operand,
        lambda value: type(value) is DatetimeMS and int(value) < operand,
        lambda value: type(value) is DatetimeMS and int(value) <= operand,
    )


def _pick(
    operator: str,
    equals: ValueTest,
    greater: ValueTest,
    greater_or_equal: ValueTest,
    less: ValueTest,
    less_or_equal: ValueTest,
) -> ValueTest:
    return {"$eq": equals, "$gt": greater, "$gte": greater_or_equal, "$lt": less, "$lte": less_or_equal}[operator]


def _equality_test(key: OrderKey, collator: Collator | None) -> ValueTest:
    kind = key[0]

    def equals(value: Any) -> bool:
        return value is not MISSING and canonical_class(value) == kind and order_key(value, collator) == key

    return equals


def _range_test(operator: str, operand: Any, collator: Collator | None) -> ValueTest:
    key = order_key(operand, collator)
    if isinstance(operand, (MinKey, MaxKey)):
        # What is missing counts as null here, which is between the two.
        def position(value: Any) -> OrderKey | None:
            return KEY_NULL if value is MISSING else order_key(value, collator)
    else:
        kind = key[0]
        not_a_number = key == KEY_NAN

        def position(value: Any) -> OrderKey | None:
            if value is MISSING or canonical_class(value) != kind:
                return None
            found = order_key(value, collator)
            # NaN stands in no relation to a number but equality with itself.
            return None if (found == KEY_NAN) is not not_a_number else found

    def greater(value: Any) -> bool:
        found = position(value)
        return found is not None and found > key

    def greater_or_equal(value: Any) -> bool:
        found = position(value)
        return found is not None and found >= key

    def less(value: Any) -> bool:
        found = position(value)
        return found is not None and found < key

    def less_or_equal(value: Any) -> bool:
        found = position(value)
        return found is not None and found <= key

    return _pick(operator, greater, greater, greater_or_equal, less, less_or_equal)


class In(PathNode):
    """A value equals one of several, or matches one of several regular expressions."""

    rank = 13

    def __init__(
        self,
        path: str,
        values: Sequence[Any],
        regexes: Sequence[RegexMatch] = (),
        collator: Collator | None = None,
    ) -> None:
        super().__init__(path)
        distinct = {order_key(value, collator): value for value in reversed(values)}
        self.keys = frozenset(distinct)
        self.values: tuple[Any, ...] = tuple(distinct[key] for key in sorted(distinct))
        self.regexes = tuple(regexes)
        self.collator = collator

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {"$in": [*self.values, *(regex.regex for regex in self.regexes)]}

    def simplified(self) -> MatchNode:
        """See `MatchNode.simplified`: one value is an equality, none match nothing."""
        if not self.values and not self.regexes:
            return AlwaysFalse()
        if len(self.values) == 1 and not self.regexes:
            return Comparison(self.path, "$eq", self.values[0], self.collator)
        if len(self.regexes) == 1 and not self.values:
            return self.regexes[0]
        return self

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        keys, collator = self.keys, self.collator
        null = KEY_NULL in keys
        classes = {key[0] for key in keys} - {CLASS_NULL, CLASS_MISSING}
        strings = frozenset(value for value in self.values if type(value) is str) if collator is None else frozenset()
        patterns = [regex.value_test(variables) for regex in self.regexes]

        def test(value: Any) -> bool:
            if value is MISSING or value is None:
                return null
            if type(value) is str and collator is None:
                found = value in strings
            else:
                found = canonical_class(value) in classes and order_key(value, collator) in keys
            return found or any(pattern(value) for pattern in patterns)

        return test


def parse_equality(path: str, value: Any, context: MatchContext) -> MatchNode:
    """`path: value`, where a regular expression is a pattern."""
    if isinstance(value, (Regex, re.Pattern)):
        return RegexMatch.of_regex(path, value)
    return Comparison(path, "$eq", value, context.collator)


def _parse_range(operator: str) -> OperatorParser:
    def parse(path: str, operand: Any, _: Document, context: MatchContext) -> MatchNode:
        if operator != "$eq" and isinstance(operand, (Regex, re.Pattern)):
            raise BadValue(f"Can't have RegEx as arg to predicate over field '{path}'.")
        return Comparison(path, operator, operand, context.collator)

    return parse


def _parse_ne(path: str, operand: Any, _: Document, context: MatchContext) -> MatchNode:
    if isinstance(operand, (Regex, re.Pattern)):
        raise BadValue("Can't have regex as arg to $ne.")
    return Not(Comparison(path, "$eq", operand, context.collator))


def parse_in(operator: str, path: str, operand: Any, context: MatchContext) -> In:
    """`$in: [value or regular expression, …]`, also for `$nin`."""
    if not isinstance(operand, list):
        raise BadValue(f"{operator} needs an array")
    values, regexes = [], []
    for item in operand:
        if isinstance(item, dict) and next(iter(item), "").startswith("$"):
            raise BadValue(f"cannot nest $ under {operator}")
        if isinstance(item, (Regex, re.Pattern)):
            regexes.append(RegexMatch.of_regex(path, item))
        else:
            values.append(item)
    return In(path, values, regexes, context.collator)


def _parse_in(path: str, operand: Any, _: Document, context: MatchContext) -> MatchNode:
    return parse_in("$in", path, operand, context)


def _parse_nin(path: str, operand: Any, _: Document, context: MatchContext) -> MatchNode:
    return Not(parse_in("$nin", path, operand, context))


OPERATORS: Final[dict[str, OperatorParser]] = {
    **{operator: _parse_range(operator) for operator in ("$eq", "$gt", "$gte", "$lt", "$lte")},
    "$ne": _parse_ne,
    "$in": _parse_in,
    "$nin": _parse_nin,
}
