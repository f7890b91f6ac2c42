"""Conditions on the element itself and on arrays: `$exists $type $size $all $elemMatch`, and arithmetic: `$mod`."""

import re
from collections.abc import Sequence
from typing import Any, Final

from bson import DBRef, Decimal128, Regex

from ...common.display import element_text, value_text
from ...common.errors import BadValue, FailedToParse, TypeMismatch
from ...common.numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, is_number, truncated, whole_number
from ...common.paths import as_object
from ...common.values import MISSING, TYPE_ALIASES, BsonType, Document, type_of
from .base import AlwaysFalse, MatchContext, MatchNode, OperatorParser, PathNode, ValueTest, Variables
from .comparison import parse_equality
from .logical import And, Not

_NUMBER_TYPES: Final = frozenset((BsonType.DOUBLE, BsonType.INT32, BsonType.INT64, BsonType.DECIMAL128))
_TYPES_BY_ALIAS: Final = {alias: kind for kind, alias in TYPE_ALIASES.items()}
_CODES: Final = frozenset(int(kind) for kind in BsonType)
_PATHLESS_IN_ELEMENTS: Final = frozenset(("$and", "$or", "$nor", "$where"))


class Exists(PathNode):
    """There is a value."""

    rank = 12

    expand = False

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {"$exists": True}

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        return lambda value: value is not MISSING


class TypeIs(PathNode):
    """A value is of one of some types."""

    rank = 20

    def __init__(self, path: str, types: frozenset[BsonType], *, all_numbers: bool = False) -> None:
        super().__init__(path)
        self.all_numbers = all_numbers
        self.types = types

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        codes: list[Any] = sorted(int(kind) for kind in self.types if not (self.all_numbers and kind in _NUMBER_TYPES))
        return {"$type": ["number", *codes] if self.all_numbers else codes}

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        types = self.types
        return lambda value: value is not MISSING and type_of(value) in types


class Size(PathNode):
    """The value is an array of a certain length."""

    rank = 4

    expand = False

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path)
        self.size = size

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {"$size": self.size}

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        size = self.size
        return lambda value: type(value) is list and len(value) == size


class Mod(PathNode):
    """A number, cut to an integer, leaves a certain remainder."""

    rank = 11

    def __init__(self, path: str, divisor: int, remainder: int) -> None:
        super().__init__(path)
        self.divisor = divisor
        self.remainder = remainder

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {"$mod": [self.divisor, self.remainder]}

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        divisor, remainder = abs(self.divisor), self.remainder

        def test(value: Any) -> bool:
            if not is_number(value):
                return False
            number = _dividend(value)
            if number is None:
                return False
            # The remainder has the sign of the dividend.
            left = abs(number) % divisor
            return (-left if number < 0 else left) == remainder

        return test


def _dividend(value: Any) -> int | None:
    if isinstance(value, float) and not INT64_MIN <= value < -INT64_MIN:
        return None
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        if not number.is_finite() or number.adjusted() > 30 or not INT64_MIN <= int(number) <= INT64_MAX:
            return None
    return truncated(value)


class ElemMatchObject(PathNode):
    """An element of an array, taken as a document, matches a query."""

    rank = 2

    expand = False

    def __init__(self, path: str, child: MatchNode) -> None:
        super().__init__(path)
        self.child = child

    def children(self) -> Sequence[MatchNode]:
        """See `MatchNode.children`."""
        return (self.child,)

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {"$elemMatch": self.child.serialize()}

    def element_test(self, variables: Variables | None = None) -> ValueTest:
        """A function that tells whether one element matches."""
        matches = self.child.compile(variables)

        def test(element: Any) -> bool:
            if type(element) is list:
                return matches({str(at): item for at, item in enumerate(element)})
            document = as_object(element)
            return document is not None and matches(document)

        return test

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        test = self.element_test(variables)
        return lambda value: type(value) is list and any(map(test, value))

    def element_position(self, value: Any, variables: Variables | None = None) -> int | None:
        """See `PathNode.element_position`."""
        test = self.element_test(variables)
        return next((at for at, element in enumerate(value) if test(element)), None)

    def simplified(self) -> MatchNode:
        """See `MatchNode.simplified`."""
        return ElemMatchObject(self.path, self.child.simplified())


class ElemMatchValue(PathNode):
    """An element of an array satisfies some operators, all of them by itself."""

    rank = 3

    expand = False

    def __init__(self, path: str, conditions: Sequence[MatchNode]) -> None:
        super().__init__(path)
        self.conditions = tuple(conditions)

    def children(self) -> Sequence[MatchNode]:
        """See `MatchNode.children`."""
        return self.conditions

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        shown: Document = {}
        for child in self.conditions:
            shown.update(child.serialize().get("", {}))
        return {"$elemMatch": shown}

    def element_test(self, variables: Variables | None = None) -> ValueTest:
        """A function that tells whether one element satisfies all."""
        return And(self.conditions).value_test(variables)

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        test = self.element_test(variables)
        return lambda value: type(value) is list and any(map(test, value))

    def element_position(self, value: Any, variables: Variables | None = None) -> int | None:
        """See `PathNode.element_position`."""
        test = self.element_test(variables)
        return next((at for at, element in enumerate(value) if test(element)), None)


def is_operator_document(value: Any) -> bool:
    """Whether an object holds operators rather than fields; a reference (`$ref`, `$id`) is a plain value."""
    if not isinstance(value, dict):
        return False
    first = next(iter(value), "")
    return first.startswith("$") and first not in ("$ref", "$id", "$db")


def truthy(value: Any) -> bool:
    """What `$exists` takes for true: everything but false, null, and zeros."""
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        return bool(number.is_nan() or number != 0)
    if value is None or isinstance(value, (bool, int, float)):
        return bool(value)
    return True


def _parse_exists(path: str, operand: Any, _: Document, _context: MatchContext) -> MatchNode:
    return Exists(path) if truthy(operand) else Not(Exists(path))


def parse_types(operand: Any, *, name: str = "$type") -> tuple[frozenset[BsonType], bool]:
    """The types that an operand names by code or alias, alone or in an array; and whether "number" was among them."""
    items = operand if isinstance(operand, list) else [operand]
    if not items:
        raise FailedToParse(f"{name} must match at least one type")
    types: set[BsonType] = set()
    all_numbers = False
    for item in items:
        if isinstance(item, str):
            if item == "number":
                types |= _NUMBER_TYPES
                all_numbers = True
            elif item in _TYPES_BY_ALIAS:
                types.add(_TYPES_BY_ALIAS[item])
            else:
                raise BadValue(f"Unknown type name alias: {item}")
        elif is_number(item):
            types.add(_type_by_code(item))
        else:
            raise TypeMismatch("type must be represented as a number or a string")
    return frozenset(types), all_numbers


def _type_by_code(item: Any) -> BsonType:
    code = whole_number(item)
    if code is None or code not in _CODES:
        raise BadValue(f"Invalid numerical type code: {value_text(item)}")
    return BsonType(code)


def _parse_type(path: str, operand: Any, _: Document, _context: MatchContext) -> MatchNode:
    types, all_numbers = parse_types(operand)
    return TypeIs(path, types, all_numbers=all_numbers)


def non_negative(operator: str, operand: Any) -> int:
    """An operand that has to be a whole number, zero or more."""
    shown = element_text(operator, operand)
    if not is_number(operand):
        raise BadValue(f"Failed to parse {operator}. Expected a number in: {shown}")
    number = whole_number(operand)
    if number is None or not INT32_MIN <= number <= INT32_MAX:
        reason = "Expected an integer" if number is None else "Cannot represent as a 32-bit integer"
        raise BadValue(f"Failed to parse {operator}. {reason}: {shown}")
    if number < 0:
        raise BadValue(f"Failed to parse {operator}. Expected a non-negative number in: {shown}")
    return number


def _parse_size(path: str, operand: Any, _: Document, _context: MatchContext) -> MatchNode:
    return Size(path, non_negative("$size", operand))


def _parse_mod(path: str, operand: Any, _: Document, _context: MatchContext) -> MatchNode:
    if not isinstance(operand, list):
        raise BadValue("malformed mod, needs to be an array")
    if len(operand) < 2:
        raise BadValue("malformed mod, not enough elements")
    if len(operand) > 2:
        raise BadValue("malformed mod, too many elements")
    divisor, remainder = (_mod_part(name, item) for name, item in zip(("divisor", "remainder"), operand, strict=True))
    if divisor == 0:
        raise BadValue("divisor cannot be 0")
    return Mod(path, divisor, remainder)


def _mod_part(name: str, item: Any) -> int:
    if not is_number(item):
        raise BadValue(f"malformed mod, {name} not a number")
    number = _dividend(item)
    if number is None:
        raise BadValue(
            f"malformed mod, {name} value is invalid :: caused by :: "
            f"Unable to coerce NaN/Inf to integral type: {value_text(item)}"
        )
    return number


def _parse_all(path: str, operand: Any, _: Document, context: MatchContext) -> MatchNode:
    if not isinstance(operand, list):
        raise BadValue("$all needs an array")
    if not operand:
        return AlwaysFalse()
    first = operand[0]
    if isinstance(first, dict) and next(iter(first), "") == "$elemMatch":
        return And([_all_element(path, item, context) for item in operand])
    children: list[MatchNode] = []
    for item in operand:
        if is_operator_document(item):
            raise BadValue("no $ expressions in $all")
        children.append(parse_equality(path, item, context))
    return And(children)


def _all_element(path: str, item: Any, context: MatchContext) -> MatchNode:
    if not isinstance(item, dict) or next(iter(item), "") != "$elemMatch" or len(item) != 1:
        raise BadValue("$all/$elemMatch has to be consistent")
    return parse_elem_match(path, item["$elemMatch"], item, context)


def parse_elem_match(path: str, operand: Any, _: Document, context: MatchContext) -> ElemMatchObject | ElemMatchValue:
    """`$elemMatch: {operators}` on the elements, or `$elemMatch: {query}` on the elements as documents."""
    if not isinstance(operand, dict):
        raise BadValue("$elemMatch needs an Object")
    if is_operator_document(operand) and next(iter(operand)) not in _PATHLESS_IN_ELEMENTS:
        return ElemMatchValue(path, context.operators("", operand))
    return ElemMatchObject(path, context.filter(operand))


def _parse_not(path: str, operand: Any, _: Document, context: MatchContext) -> MatchNode:
    if isinstance(operand, (Regex, re.Pattern)):
        return Not(parse_equality(path, operand, context))
    if isinstance(operand, DBRef) or not isinstance(operand, dict):
        raise BadValue("$not needs a regex or a document")
    if not operand:
        raise BadValue("$not cannot be empty")
    return Not(And(context.operators(path, operand)))


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$exists": _parse_exists,
    "$type": _parse_type,
    "$size": _parse_size,
    "$mod": _parse_mod,
    "$all": _parse_all,
    "$elemMatch": parse_elem_match,
    "$not": _parse_not,
}
