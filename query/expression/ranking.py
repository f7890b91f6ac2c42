"""Arrays by order and by statistics: `$sortArray $zip $firstN $lastN $minN $maxN $median $percentile $stdDevPop $stdDevSamp`."""

import math
from functools import cmp_to_key
from itertools import zip_longest
from typing import Any, Final

from bson import Decimal128

from ...common.errors import BadValue, Location
from ...common.numbers import is_number, whole_number
from ...common.ordering import Collator, compare, order_key
from ...common.paths import get_path
from ...common.values import MISSING, Document, type_name
from ..sort import Descending
from .arithmetic import absent, to_decimal
from .arrays import check_count
from .base import VARIADIC, Call, Expression, Lazy, OperatorParser, ParseContext, Variables, operands


def _sort_parts(name: str, by: Document) -> list[tuple[tuple[str, ...], bool]]:
    """Paths to sort by, each with whether it ascends."""
    parts = []
    for path, direction in by.items():
        whole = whole_number(direction) if is_number(direction) else None
        if whole not in (1, -1) or not path:
            raise Location(2942505, f"{name}: the value of '{path}' in the sort document must be 1 or -1")
        parts.append((tuple(path.split(".")), whole == 1))
    if not parts:
        raise Location(2942505, f"{name}: the sort document must have at least one key")
    return parts


def _sort_key(item: Any, parts: list[tuple[tuple[str, ...], bool]], collator: Collator | None) -> tuple[Any, ...]:
    """The key of an element; arrays are compared as they are, not entered."""
    keys = []
    for path, ascending in parts:
        value = get_path(item, path)
        key = order_key(None if value is MISSING else value, collator)
        keys.append(key if ascending else Descending(key))
    return tuple(keys)


def _parse_sort_array(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(2942500, f"{name} requires an object as an argument, found: {type_name(spec)}")
    for key in spec:
        if key not in ("input", "sortBy"):
            raise Location(2942501, f"{name} found an unknown argument: {key}")
    for key, code in (("input", 2942502), ("sortBy", 2942503)):
        if key not in spec:
            raise Location(code, f"{name} requires '{key}' to be specified")
    source, by, collator = context.parse(spec["input"]), spec["sortBy"], context.collator
    if isinstance(by, dict):
        parts = _sort_parts(name, by)

        def arranged(array: list[Any]) -> list[Any]:
            return sorted(array, key=lambda item: _sort_key(item, parts, collator))

    else:
        direction = whole_number(by) if is_number(by) else None
        if not is_number(by):
            raise Location(2942507, f"{name}: 'sortBy' must be an object or a number, found: {type_name(by)}")
        if direction not in (1, -1):
            raise Location(2942506, f"{name}: 'sortBy' must be 1 or -1, found: {by}")

        def arranged(array: list[Any]) -> list[Any]:
            return sorted(array, key=cmp_to_key(lambda left, right: (direction or 1) * compare(left, right, collator)))

    def function(array: Any) -> Any:
        if absent(array):
            return None
        if not isinstance(array, list):
            raise Location(
                2942504, f"The input argument to {name} must be an array, but was of type: {type_name(array)}"
            )
        return arranged(array)

    return Call(name, [source], function, shown=lambda values: {"input": values[0], "sortBy": by})


def _parse_zip(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(34460, f"{name} only supports an object as an argument, found {type_name(spec)}")
    inputs: list[Expression] = []
    defaults: list[Expression] = []
    longest = False
    for key, value in spec.items():
        match key:
            case "inputs":
                if not isinstance(value, list):
                    raise Location(34461, f"inputs must be an array of expressions, found {type_name(value)}")
                inputs = [context.parse(item) for item in value]
            case "defaults":
                if not isinstance(value, list):
                    raise Location(34462, f"defaults must be an array of expressions, found {type_name(value)}")
                defaults = [context.parse(item) for item in value]
            case "useLongestLength":
                if not isinstance(value, bool):
                    raise Location(34463, f"useLongestLength must be a bool, found {type_name(value)}")
                longest = value
            case _:
                raise Location(34464, f"{name} found an unknown argument: {key}")
    if not inputs:
        raise Location(34465, f"{name} requires at least one input array")
    if defaults and not longest:
        raise Location(34466, "cannot specify defaults unless useLongestLength is true")
    if defaults and len(defaults) != len(inputs):
        raise Location(34467, "defaults and inputs must have the same length")

    def evaluate(document: Document, variables: Variables) -> Any:
        arrays = [one.evaluate(document, variables) for one in inputs]
        for array in arrays:
            if absent(array):
                return None
            if not isinstance(array, list):
                raise Location(34468, f"{name} found a non-array expression in input: {array}")
        if not longest:
            return [list(row) for row in zip(*arrays, strict=False)]
        fill = [one.evaluate(document, variables) for one in defaults] or [None] * len(arrays)
        fill = [None if value is MISSING else value for value in fill]
        return [
            [fill[place] if item is MISSING else item for place, item in enumerate(row)]
            for row in zip_longest(*arrays, fillvalue=MISSING)
        ]

    shown: Document = {"inputs": [one.serialize() for one in inputs]}
    if defaults:
        shown["defaults"] = [one.serialize() for one in defaults]
    shown["useLongestLength"] = longest
    return Lazy(name, [*inputs, *defaults], evaluate, shown)


def _parse_several(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(5787801, f"specification must be an object; found {name}: {spec}")
    for key in spec:
        if key not in ("n", "input"):
            raise Location(5787901, f"Unknown argument for 'n' operator: {key}")
    for key, code in (("n", 5787906), ("input", 5787907)):
        if key not in spec:
            raise Location(code, f"Missing value for '{key}'")
    collator = context.collator

    def function(count: Any, array: Any) -> Any:
        most = check_count(name, count)
        if absent(array):
            array = None
        if not isinstance(array, list):
            raise Location(5788200, "Input must be an array")
        if name == "$firstN":
            return array[:most]
        if name == "$lastN":
            return array[-most:]
        kept = [item for item in array if not absent(item)]
        return sorted(kept, key=lambda item: order_key(item, collator), reverse=name == "$maxN")[:most]

    items = [context.parse(spec["n"]), context.parse(spec["input"])]
    return Call(name, items, function, shown=lambda values: {"n": values[0], "input": values[1]})


def numbers_of(values: list[Any]) -> list[float]:
    """The numbers among the values, as doubles."""
    return [
        float(to_decimal(value)) if isinstance(value, Decimal128) else float(value)
        for value in values
        if is_number(value)
    ]


def percentile_of(ordered: list[float], share: float) -> float | None:
    """The smallest of the ordered numbers that at least this share of them do not exceed."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def parse_shares(name: str, spec: Any, context: ParseContext) -> tuple[Expression, list[float]]:
    """The input and the shares of `$median` and `$percentile`.

    Raises:
        MongoError: 40414 and 40415 for missing and unknown operands, 2 for a method that does not exist, 7750301 and
            7750303 for shares that are none.
    """
    if not isinstance(spec, dict):
        raise Location(
            7436100 if name == "$median" else 7429703, f"specification must be an object; found {name} :{spec}"
        )
    wanted = ("input", "method") if name == "$median" else ("input", "p", "method")
    for key in spec:
        if key not in wanted:
            raise Location(40415, f"BSON field '{name}.{key}' is an unknown field.")
    for key in wanted:
        if key not in spec:
            raise Location(40414, f"BSON field '{name}.{key}' is missing but a required field")
    method = spec["method"]
    if not isinstance(method, str):
        raise BadValue(f"BSON field '{name}.method' is the wrong type '{type_name(method)}', expected type 'string'")
    if method not in ("approximate", "discrete", "continuous"):
        raise BadValue("Currently only 'approximate' can be used as percentile 'method'.")
    if name == "$median":
        return context.parse(spec["input"]), [0.5]
    parsed = context.parse(spec["p"])
    shares = parsed.evaluate({}, {}) if parsed.is_constant else None
    if not isinstance(shares, list) or not shares:
        raise Location(7750301, "The $percentile 'p' field must be an array of constant numbers between 0.0 and 1.0")
    numbers = []
    for share in shares:
        if not is_number(share):
            raise Location(7750302, f"The $percentile 'p' field must be an array of numbers, found: {share}")
        number = float(to_decimal(share)) if isinstance(share, Decimal128) else float(share)
        if not 0 <= number <= 1:
            raise Location(
                7750303, f"The $percentile 'p' field must be an array of numbers from 0 to 1, found: {share}"
            )
        numbers.append(number)
    return context.parse(spec["input"]), numbers


def _parse_percentile(name: str, spec: Any, context: ParseContext) -> Expression:
    source, shares = parse_shares(name, spec, context)

    def function(value: Any) -> Any:
        ordered = sorted(
            number for number in numbers_of(value if isinstance(value, list) else [value]) if number == number
        )
        found = [percentile_of(ordered, share) for share in shares]
        return found[0] if name == "$median" else found

    def shown(values: Any) -> Document:
        if name == "$median":
            return {"input": values[0], "method": spec["method"]}
        return {"input": values[0], "p": shares, "method": spec["method"]}

    return Call(name, [source], function, shown=shown)


def deviation(values: list[Any], *, sample: bool) -> float | None:
    """The standard deviation of the numbers among the values."""
    numbers = numbers_of(values)
    below = len(numbers) - 1 if sample else len(numbers)
    if below <= 0:
        return None
    mean = squares = 0.0
    for count, number in enumerate(numbers, 1):
        delta = number - mean
        mean += delta / count
        squares += delta * (number - mean)
    return math.sqrt(squares / below) if squares == squares else math.nan


def _deviation(sample: bool) -> OperatorParser:
    def parse(name: str, spec: Any, context: ParseContext) -> Expression:
        def function(*values: Any) -> Any:
            found = values[0] if len(values) == 1 and isinstance(values[0], list) else list(values)
            return deviation(found, sample=sample)

        return Call(name, operands(name, spec, context, 0, VARIADIC), function)

    return parse


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$firstN": _parse_several,
    "$lastN": _parse_several,
    "$maxN": _parse_several,
    "$median": _parse_percentile,
    "$minN": _parse_several,
    "$percentile": _parse_percentile,
    "$sortArray": _parse_sort_array,
    "$stdDevPop": _deviation(False),
    "$stdDevSamp": _deviation(True),
    "$zip": _parse_zip,
}
