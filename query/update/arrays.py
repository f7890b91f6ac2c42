"""Operators on arrays: `$push $addToSet $pop $pull $pullAll`."""

from typing import Any

from bson import Regex

from ...common.display import element_text, value_text
from ...common.errors import BadValue, FailedToParse, TypeMismatch
from ...common.numbers import INT64_MAX, INT64_MIN, is_number, whole_number
from ...common.ordering import Collator, order_key
from ...common.paths import as_object
from ...common.values import MISSING, type_name
from ..match.base import MatchNode, ValueTest
from ..match.elements import is_operator_document
from ..match.parse import TOP_OPERATORS, parse_filter
from ..sort import SortPattern, parse_sort
from .base import Change, Modifier, identical


class Push(Modifier):
    """`$push`: inserts, then sorts, then cuts."""

    def __init__(
        self,
        items: list[Any],
        *,
        position: int | None = None,
        sort: SortPattern | int | None = None,
        slice: int | None = None,
        collator: Collator | None = None,
    ) -> None:
        self.items = items
        self.position = position
        self.sort = sort
        self.slice = slice
        self._collator = collator

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        if value is MISSING:
            value_list: list[Any] = []
        elif type(value) is list:
            value_list = value
        else:
            raise BadValue(
                f"The field '{path}' must be an array but is of type {type_name(value)} in document {change.id_text()}"
            )
        at = len(value_list)
        if self.position is not None:
            at = min(self.position, at) if self.position >= 0 else max(0, at + self.position)
        result = [*value_list[:at], *self.items, *value_list[at:]]
        if self.sort is not None:
            result = self._sorted(result)
        if self.slice is not None:
            result = result[: self.slice] if self.slice >= 0 else result[self.slice :]
        return value if value is not MISSING and identical(value, result) else result

    def _sorted(self, items: list[Any]) -> list[Any]:
        if isinstance(self.sort, SortPattern):
            pattern = self.sort
            return sorted(items, key=lambda item: pattern.key(as_object(item) or {}, None, self._collator))
        return sorted(items, key=lambda item: order_key(item, self._collator), reverse=self.sort == -1)


class AddToSet(Modifier):
    """`$addToSet`: appends what is not there yet."""

    def __init__(self, items: list[Any], collator: Collator | None) -> None:
        self.items = items
        self._collator = collator

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        present = value if isinstance(value, list) else []
        if value is not MISSING and present is not value:
            raise BadValue(
                "Cannot apply $addToSet to non-array field. "
                f"Field named '{path.rpartition('.')[2]}' has non-array type {type_name(value)}"
            )
        keys = {order_key(item, self._collator) for item in present}
        added = []
        for item in self.items:
            key = order_key(item, self._collator)
            if key not in keys:
                keys.add(key)
                added.append(item)
        return [*present, *added] if added or value is MISSING else value


class Pop(Modifier):
    """`$pop`: takes the first (-1) or the last (1) element away."""

    creates = False

    def __init__(self, *, first: bool) -> None:
        self.first = first

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        if value is MISSING:
            return value
        if type(value) is not list:
            raise TypeMismatch(f"Path '{path}' contains an element of non-array type '{type_name(value)}'")
        if not value:
            return value
        return value[1:] if self.first else value[:-1]


class Pull(Modifier):
    """`$pull` and `$pullAll`: takes away every element that a test holds for."""

    creates = False

    def __init__(self, test: ValueTest) -> None:
        self._test = test

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        if value is MISSING:
            return value
        if type(value) is not list:
            raise BadValue("Cannot apply $pull to a non-array value")
        kept = [item for item in value if not self._test(item)]
        return value if len(kept) == len(value) else kept


def parse_push(path: str, operand: Any, collator: Collator | None) -> Modifier:
    """`$push: {path: value}` or `{path: {$each: […], $position, $sort, $slice}}`."""
    if not isinstance(operand, dict) or "$each" not in operand:
        return Push([operand])
    modifiers: dict[str, Any] = {}
    for name, value in operand.items():
        if name == "$each":
            if not isinstance(value, list):
                raise BadValue(
                    f"The argument to $each in $push must be an array but it was of type: {type_name(value)}"
                )
        elif name == "$slice":
            modifiers["slice"] = _integer("slice", value, "but was given type: ")
        elif name == "$position":
            modifiers["position"] = _integer("position", value, "not of type: ")
        elif name == "$sort":
            modifiers["sort"] = _push_sort(value)
        else:
            raise BadValue(f"Unrecognized clause in $push: {name}")
    return Push(operand["$each"], collator=collator, **modifiers)


def _integer(name: str, value: Any, wrong: str) -> int:
    if not is_number(value):
        raise BadValue(f"The value for ${name} must be an integer value {wrong}{type_name(value)}")
    number = whole_number(value)
    if number is None or not INT64_MIN <= number <= INT64_MAX:
        raise BadValue(
            f"The value for ${name} must be an integer value, but got: {value_text(value)}"
            if name == "position"
            else f"The value for ${name} must be an integer value but was given {value_text(value)}"
        )
    return number


def _push_sort(value: Any) -> SortPattern | int:
    if isinstance(value, dict):
        if not value:
            raise BadValue("The $sort pattern is empty when it should be a set of fields.")
        for name, direction in value.items():
            if not name or name.startswith(".") or name.endswith(".") or ".." in name:
                raise BadValue(f"The $sort field is a dotted field but has an empty part: {name}")
            if name.startswith("$"):
                raise BadValue(f"The $sort field cannot start with '$': {name}")
            if whole_number(direction) not in (1, -1):
                raise BadValue("The $sort element value must be either 1 or -1")
        return parse_sort(value)
    if is_number(value):
        number = whole_number(value)
        if number not in (1, -1):
            raise BadValue("The $sort element value must be either 1 or -1")
        return number
    raise BadValue("The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields")


def parse_add_to_set(path: str, operand: Any, collator: Collator | None) -> Modifier:
    """`$addToSet: {path: value}` or `{path: {$each: […]}}`."""
    if not isinstance(operand, dict) or next(iter(operand), "") != "$each":
        return AddToSet([operand], collator)
    each = operand["$each"]
    if not isinstance(each, list):
        raise TypeMismatch(f"The argument to $each in $addToSet must be an array but it was of type {type_name(each)}")
    if len(operand) > 1:
        raise BadValue(f"Found unexpected fields after $each in $addToSet: {value_text(operand)}")
    return AddToSet(each, collator)


def parse_pop(path: str, operand: Any) -> Modifier:
    """`$pop: {path: 1 or -1}`."""
    shown = element_text(path, operand)
    if not is_number(operand):
        raise FailedToParse(f"Expected a number in: {shown}")
    number = whole_number(operand)
    if number is None:
        raise FailedToParse(f"Expected an integer: {shown}")
    if number not in (1, -1):
        raise FailedToParse(f"$pop expects 1 or -1, found: {number}")
    return Pop(first=number == -1)


def parse_pull(
    path: str, operand: Any, collator: Collator | None, defined_variables: frozenset[str], variables: dict[str, Any]
) -> Modifier:
    """`$pull: {path: value or condition}`; a plain object is a query on elements that are objects."""
    if isinstance(operand, dict) and (not is_operator_document(operand) or next(iter(operand)) in TOP_OPERATORS):
        node: MatchNode = parse_filter(operand, collator=collator, defined_variables=defined_variables)
        matches = node.compile(variables)

        def on_object(item: Any) -> bool:
            document = as_object(item)
            return document is not None and matches(document)

        return Pull(on_object)
    if not isinstance(operand, (dict, Regex)):
        key = order_key(operand, collator)
        return Pull(lambda item: order_key(item, collator) == key)
    node = parse_filter({"": operand}, collator=collator, defined_variables=defined_variables)
    on_value = node.compile(variables)
    return Pull(lambda item: on_value({"": item}))


def parse_pull_all(path: str, operand: Any, collator: Collator | None) -> Modifier:
    """`$pullAll: {path: [value, …]}`."""
    if not isinstance(operand, list):
        raise BadValue(f"$pullAll requires an array argument but was given a {type_name(operand)}")
    keys = frozenset(order_key(item, collator) for item in operand)
    return Pull(lambda item: order_key(item, collator) in keys)
