"""Arrays and sets: `$size $arrayElemAt $slice $in $filter $map $reduce $range $concatArrays …`, `$setUnion …`."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from bson import Decimal128, Int64

from ...common.errors import FailedToParse, Location
from ...common.numbers import INT32_MAX, INT32_MIN, is_number, whole_number
from ...common.ordering import Collator, order_key
from ...common.values import MISSING, Document, type_name
from ..accumulators.sums import Average, Sum
from .arithmetic import absent
from .base import (
    VARIADIC,
    Call,
    Constant,
    Expression,
    Lazy,
    OperatorParser,
    ParseContext,
    Variables,
    call_of,
    check_variable_name,
    operands,
    to_bool,
)


def _size(value: Any) -> int:
    if not isinstance(value, list):
        raise Location(17124, f"The argument to $size must be an array, but was of type: {type_name(value)}")
    return len(value)


def _is_array(value: Any) -> bool:
    return isinstance(value, list)


def _element_at(array: Any, index: Any) -> Any:
    if absent(array) or absent(index):
        return None
    if not isinstance(array, list):
        raise Location(28689, f"$arrayElemAt's first argument must be an array, but is {type_name(array)}")
    if not is_number(index):
        raise Location(28690, f"$arrayElemAt's second argument must be a numeric value, but is {type_name(index)}")
    position = whole_number(index)
    if position is None or not INT32_MIN <= position <= INT32_MAX:
        raise Location(28691, f"$arrayElemAt's second argument must be representable as a 32-bit integer: {index}")
    return array[position] if -len(array) <= position < len(array) else MISSING


def _end(name: str, position: int) -> Callable[[Any], Any]:
    def function(array: Any) -> Any:
        if absent(array):
            return None
        if not isinstance(array, list):
            raise Location(28689, f"{name}'s argument must be an array, but is {type_name(array)}")
        return array[position] if array else MISSING

    return function


def _slice(array: Any, *numbers: Any) -> Any:
    if absent(array) or any(absent(number) for number in numbers):
        return None
    if not isinstance(array, list):
        raise Location(28724, f"First argument to $slice must be an array, but is of type: {type_name(array)}")
    wholes = []
    for place, number in enumerate(numbers):
        if not is_number(number):
            raise Location(
                28725 + 2 * place,
                f"argument {place + 2} to $slice must be numeric, but is of type: {type_name(number)}",
            )
        whole = whole_number(number)
        if whole is None or not INT32_MIN <= whole <= INT32_MAX:
            raise Location(
                28726 + 2 * place, f"argument {place + 2} to $slice can't be represented as a 32-bit integer: {number}"
            )
        wholes.append(whole)
    if len(wholes) == 1:
        return array[: wholes[0]] if wholes[0] >= 0 else array[wholes[0] :]
    start, count = wholes
    if count <= 0:
        raise Location(28729, f"Third argument to $slice must be positive: {count}")
    start = start if start >= 0 else max(len(array) + start, 0)
    return array[start : start + count]


def _parse_in(name: str, spec: Any, context: ParseContext) -> Expression:
    collator = context.collator

    def function(value: Any, array: Any) -> bool:
        if not isinstance(array, list):
            raise Location(40081, f"$in requires an array as a second argument, found: {type_name(array)}")
        key = order_key(value, collator)
        return any(order_key(item, collator) == key for item in array)

    return Call(name, operands(name, spec, context, 2), function)


def _concat(*arrays: Any) -> Any:
    if any(absent(array) for array in arrays):
        return None
    joined: list[Any] = []
    for array in arrays:
        if not isinstance(array, list):
            raise Location(28664, f"$concatArrays only supports arrays, not {type_name(array)}")
        joined += array
    return joined


def _reverse(array: Any) -> Any:
    if absent(array):
        return None
    if not isinstance(array, list):
        raise Location(34435, f"The argument to $reverseArray must be an array, but was of type: {type_name(array)}")
    return array[::-1]


def _range(start: Any, stop: Any, step: Any = 1) -> list[int]:
    numbers = []
    for value, not_number, not_whole in ((start, 34443, 34444), (stop, 34445, 34446), (step, 34447, 34448)):
        if not is_number(value):
            raise Location(not_number, f"$range requires numeric arguments, found value of type: {type_name(value)}")
        whole = whole_number(value)
        if whole is None or not INT32_MIN <= whole <= INT32_MAX:
            raise Location(
                not_whole, f"$range requires arguments that can be represented as 32-bit integers, found: {value}"
            )
        numbers.append(whole)
    if numbers[2] == 0:
        raise Location(34449, "$range requires a non-zero step value")
    return list(range(*numbers))


_NO_END: Final = object()


def _index_of(collator: Collator | None, array: Any, wanted: Any, start: Any = 0, stop: Any = _NO_END) -> Any:
    if absent(array):
        return None
    if not isinstance(array, list):
        raise Location(40090, f"$indexOfArray requires an array as a first argument, found: {type_name(array)}")
    bounds = []
    for value in (start, len(array) if stop is _NO_END else stop):
        whole = whole_number(value) if is_number(value) else None
        if whole is None or not INT32_MIN <= whole <= INT32_MAX:
            raise Location(
                9711600, f"$indexOfArray requires an integral starting and ending index, found: {type_name(value)}"
            )
        if whole < 0:
            raise Location(9711601, f"$indexOfArray requires a nonnegative starting and ending index, found: {whole}")
        bounds.append(whole)
    key = order_key(wanted, collator)
    places = range(bounds[0], min(bounds[1], len(array)))
    return next((at for at in places if order_key(array[at], collator) == key), -1)


def _parse_index_of(name: str, spec: Any, context: ParseContext) -> Expression:
    return Call(name, operands(name, spec, context, 2, 4), partial(_index_of, context.collator))


def _variable(name: str, spec: Document, key: str, default: str) -> str:
    chosen = spec.get(key, default)
    if not isinstance(chosen, str):
        raise FailedToParse(f"{name}: '{key}' must be a string")
    if chosen != "CURRENT" or name != "$map":
        check_variable_name(chosen)
    return chosen


def _parse_map(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(16878, "$map only supports an object as its argument")
    for key in spec:
        if key not in ("input", "as", "in"):
            raise Location(16879, f"Unrecognized parameter to $map: {key}")
    for number, key in ((16880, "input"), (16882, "in")):
        if key not in spec:
            raise Location(number, f"Missing '{key}' parameter to $map")
    variable = _variable(name, spec, "as", "this")
    source = context.parse(spec["input"])
    body = context.with_variables(variable).parse(spec["in"])
    get, each = source.evaluate, body.evaluate

    def evaluate(document: Document, variables: Variables) -> Any:
        array = get(document, variables)
        if absent(array):
            return None
        if not isinstance(array, list):
            raise Location(16883, f"input to $map must be an array not {type_name(array)}")
        values = [each(document, {**variables, variable: item}) for item in array]
        return [None if value is MISSING else value for value in values]

    return Lazy(name, [source, body], evaluate, {"input": source.serialize(), "as": variable, "in": body.serialize()})


def _parse_filter(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(28646, "$filter only supports an object as its argument")
    for key in spec:
        if key not in ("input", "as", "cond", "limit"):
            raise Location(28647, f"Unrecognized parameter to $filter: {key}")
    for number, key in ((28648, "input"), (28650, "cond")):
        if key not in spec:
            raise Location(number, f"Missing '{key}' parameter to $filter")
    variable = _variable(name, spec, "as", "this")
    source = context.parse(spec["input"])
    condition = context.with_variables(variable).parse(spec["cond"])
    limit = context.parse(spec["limit"]) if "limit" in spec else None
    get, test = source.evaluate, condition.evaluate

    def evaluate(document: Document, variables: Variables) -> Any:
        array = get(document, variables)
        if absent(array):
            return None
        if not isinstance(array, list):
            raise Location(28651, f"input to $filter must be an array not {type_name(array)}")
        most = None if limit is None else limit.evaluate(document, variables)
        if not absent(most):
            whole = whole_number(most) if is_number(most) else None
            if whole is None or not INT32_MIN <= whole <= INT32_MAX:
                raise Location(327391, f"$filter: limit must be represented as a 32-bit integral value: {most}")
            if whole < 1:
                raise Location(327392, f"$filter: limit must be greater than 0: {whole}")
            most = whole
        kept: list[Any] = []
        for item in array:
            if to_bool(test(document, {**variables, variable: item})):
                kept.append(item)
                if len(kept) == most:
                    break
        return kept

    items = [source, condition] + ([] if limit is None else [limit])
    shown = {"input": source.serialize(), "as": variable, "cond": condition.serialize()}
    if limit is not None:
        shown["limit"] = limit.serialize()
    return Lazy(name, items, evaluate, shown)


def _parse_reduce(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(40075, f"$reduce requires an object as an argument, found: {type_name(spec)}")
    for key in spec:
        if key not in ("input", "initialValue", "in"):
            raise Location(40076, f"$reduce found an unknown argument: {key}")
    for number, key in ((40077, "input"), (40078, "initialValue"), (40079, "in")):
        if key not in spec:
            raise Location(number, f"$reduce requires '{key}' to be specified")
    source, initial = context.parse(spec["input"]), context.parse(spec["initialValue"])
    body = context.with_variables("this", "value").parse(spec["in"])
    get, each = source.evaluate, body.evaluate

    def evaluate(document: Document, variables: Variables) -> Any:
        array = get(document, variables)
        if absent(array):
            return None
        if not isinstance(array, list):
            raise Location(40080, f"$reduce requires that 'input' be an array, found: {type_name(array)}")
        value = initial.evaluate(document, variables)
        for item in array:
            value = each(document, {**variables, "this": item, "value": value})
        return value

    shown = {"input": source.serialize(), "initialValue": initial.serialize(), "in": body.serialize()}
    return Lazy(name, [source, initial, body], evaluate, shown)


def _set(name: str, code: int, merge: Callable[[list[dict[Any, Any]]], Any], *, nulls: bool = False) -> OperatorParser:
    """An operator on arrays as sets; each set is a mapping from key to value."""

    def parse(operator: str, spec: Any, context: ParseContext) -> Expression:
        low, high = (2, 2) if operator in ("$setDifference", "$setIsSubset") else (0, VARIADIC)
        if operator == "$setEquals":
            count = len(spec) if isinstance(spec, list) else 1
            if count < 2:
                raise Location(17045, f"$setEquals needs at least two arguments had: {count}")
        collator = context.collator

        def function(*arrays: Any) -> Any:
            if nulls and operator != "$setUnion" and any(absent(array) for array in arrays):
                return None
            for place, array in enumerate(arrays):
                if nulls and absent(array):
                    return None
                if not isinstance(array, list):
                    number = 17042 if operator == "$setIsSubset" and place else code
                    raise Location(
                        number + (place if operator == "$setDifference" else 0),
                        f"All operands of {name} must be arrays. One argument is of type: {type_name(array)}",
                    )
            return merge([{order_key(item, collator): item for item in reversed(array)} for array in arrays])

        given = operands(operator, spec, context, low, high)
        if operator == "$setEquals" and any(
            isinstance(one, Constant) and not isinstance(one.value, list) for one in given
        ):
            raise Location(5887502, f"All operands of {name} must be arrays")
        return Call(operator, given, function)

    return parse


def _union(sets: list[dict[Any, Any]]) -> list[Any]:
    merged: dict[Any, Any] = {}
    for one in sets:
        for key, value in one.items():
            merged.setdefault(key, value)
    return [merged[key] for key in sorted(merged)]


def _intersection(sets: list[dict[Any, Any]]) -> list[Any]:
    if not sets:
        return []
    first, *others = sets
    return [first[key] for key in sorted(first) if all(key in other for other in others)]


def _difference(sets: list[dict[Any, Any]]) -> list[Any]:
    left, right = sets
    return [value for key, value in reversed(left.items()) if key not in right]


def _all_true(values: Any) -> bool:
    if not isinstance(values, list):
        raise Location(17040, f"$allElementsTrue's argument must be an array, but is {type_name(values)}")
    return all(to_bool(value) for value in values)


def _any_true(values: Any) -> bool:
    if not isinstance(values, list):
        raise Location(17041, f"$anyElementTrue's argument must be an array, but is {type_name(values)}")
    return any(to_bool(value) for value in values)


def _over(combine: Callable[[list[Any], Any], Any]) -> OperatorParser:
    """`$sum $avg $min $max` as expressions: over the operands, or over the one operand where it is an array."""

    def parse(name: str, spec: Any, context: ParseContext) -> Expression:
        collator = context.collator

        def function(*values: Any) -> Any:
            found = list(values[0]) if len(values) == 1 and isinstance(values[0], list) else list(values)
            return combine(found, collator)

        return Call(name, operands(name, spec, context, 0, VARIADIC), function)

    return parse


def total(values: list[Any], _: Any = None) -> Any:
    """The sum of the numbers among the values."""
    return _summed(Sum, values)


def average(values: list[Any], _: Any = None) -> Any:
    """The mean of the numbers among the values; null where there is none."""
    if any(type(value) is Int64 for value in values) and not any(type(value) is Decimal128 for value in values):
        # Whole numbers of 64 bits are gathered as doubles.
        values = [float(value) if type(value) is Int64 else value for value in values]
    return _summed(Average, values)


def _summed(kind: type[Sum], values: list[Any]) -> Any:
    state = kind(_nothing)
    for value in values:
        state.add_value(value)
    return state.result()


def _nothing(document: Document, variables: Variables) -> Any:
    return MISSING


def _extreme(values: list[Any], collator: Any, choose: Callable[..., Any]) -> Any:
    kept = [value for value in values if not absent(value)]
    return choose(kept, key=lambda value: order_key(value, collator)) if kept else None


def _to_pairs(array: Any) -> Any:
    if absent(array):
        return None
    if not isinstance(array, list):
        raise Location(40386, f"$arrayToObject requires an array input, found: {type_name(array)}")
    made: Document = {}
    first = array[0] if array else None
    for item in array:
        if isinstance(first, list) and not isinstance(item, list):
            raise Location(40396, f"$arrayToObject requires a consistent input format, found: {type_name(item)}")
        if isinstance(first, dict) and not isinstance(item, dict):
            raise Location(40391, f"$arrayToObject requires a consistent input format, found: {type_name(item)}")
        match item:
            case [str(key), value]:
                made[key] = value
            case {"k": str(key), "v": value} if len(item) == 2:
                made[key] = value
            case list() if len(item) != 2:
                raise Location(
                    40397, f"$arrayToObject requires an array of size 2 arrays, found array of size: {len(item)}"
                )
            case list():
                raise Location(
                    40395, f"$arrayToObject requires an array of key-value pairs with string keys: {type_name(item[0])}"
                )
            case dict() if set(item) != {"k", "v"}:
                raise Location(
                    40392 if len(item) != 2 else 40393, "$arrayToObject requires an object keys of 'k' and 'v'"
                )
            case dict():
                raise Location(
                    40394, f"$arrayToObject requires an object with string keys, found: {type_name(item['k'])}"
                )
            case _:
                raise Location(40398, f"Unrecognised input type format for $arrayToObject: {type_name(item)}")
    for key in made:
        if "\0" in key:
            raise Location(
                4940400 if isinstance(first, list) else 4940401, "Key field cannot contain an embedded null byte"
            )
    return made


def check_count(name: str, value: Any) -> int:
    """An `n` that must be a positive whole number."""
    whole = whole_number(value) if is_number(value) else None
    if whole is None:
        raise Location(5787902, f"Value for 'n' must be of integral type, but found {type_name(value)}")
    if whole <= 0:
        raise Location(5787908, f"'n' must be greater than 0, found {whole}")
    return whole


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$allElementsTrue": call_of(_all_true, 1),
    "$anyElementTrue": call_of(_any_true, 1),
    "$arrayElemAt": call_of(_element_at, 2),
    "$arrayToObject": call_of(_to_pairs, 1),
    "$avg": _over(average),
    "$concatArrays": call_of(_concat, 0, VARIADIC),
    "$filter": _parse_filter,
    "$first": call_of(_end("$first", 0), 1),
    "$in": _parse_in,
    "$indexOfArray": _parse_index_of,
    "$isArray": call_of(_is_array, 1),
    "$last": call_of(_end("$last", -1), 1),
    "$map": _parse_map,
    "$max": _over(lambda values, collator: _extreme(values, collator, max)),
    "$min": _over(lambda values, collator: _extreme(values, collator, min)),
    "$range": call_of(_range, 2, 3, constant=False),
    "$reduce": _parse_reduce,
    "$reverseArray": call_of(_reverse, 1),
    "$setDifference": _set("$setDifference", 17048, _difference, nulls=True),
    "$setEquals": _set("$setEquals", 17044, lambda sets: all(one.keys() == sets[0].keys() for one in sets)),
    "$setIntersection": _set("$setIntersection", 17047, _intersection, nulls=True),
    "$setIsSubset": _set("$setIsSubset", 17046, lambda sets: sets[0].keys() <= sets[1].keys()),
    "$setUnion": _set("$setUnion", 17043, _union, nulls=True),
    "$size": call_of(_size, 1),
    "$slice": call_of(_slice, 2, 3),
    "$sum": _over(total),
}
