"""`$minMaxScaler`: where a value lies between the least and the greatest of its window."""

from collections.abc import Sequence
from typing import Any

from ...common.errors import FailedToParse, Location
from ...common.numbers import is_number
from ...common.ordering import OrderKey, order_key
from ...common.values import type_name
from ..expression.arithmetic import add, divide, multiply, subtract
from ..expression.base import Constant, Expression, ParseContext
from .window_functions import Partition, Span, WindowFunction


class MinMaxScaler(WindowFunction):
    """`$minMaxScaler`."""

    takes_window = True

    def __init__(self, source: Expression, low: Any, high: Any) -> None:
        self._source = source
        self._low = low
        self._width = subtract(high, low)
        self.operands = (source,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        values = [self._source.evaluate(row, partition.variables) for row in partition.rows]
        for value in values:
            if not is_number(value):
                raise Location(
                    10487000,
                    f"'input' argument to $minMaxScaler must evaluate to a numeric type, got: {type_name(value)}",
                )
        keys = [order_key(value) for value in values]
        made: list[Any] = []
        at: Span = (0, 0)
        least = greatest = 0
        for place, (low, high) in enumerate(spans):
            if low != at[0] or high < at[1] or at[0] == at[1]:
                at, least, greatest = (low, low), low, low
            for other in range(at[1], high):
                least = other if keys[other] < keys[least] else least
                greatest = other if keys[other] > keys[greatest] else greatest
            at = (low, max(high, at[1]))
            made.append(self._scaled(values, keys, (place, least, greatest)) if low < high else None)
        return made

    def _scaled(self, values: list[Any], keys: list[OrderKey], places: tuple[int, int, int]) -> Any:
        value, least, greatest = (values[place] for place in places)
        if keys[places[1]] == keys[places[2]]:
            return 0
        share = divide(subtract(value, least), subtract(greatest, least))
        return add(multiply(share, self._width), self._low)


def parse_scaler(name: str, spec: Any, context: ParseContext) -> MinMaxScaler:
    """The window function of an operand: a number to scale, or `{input, min, max}`.

    Raises:
        FailedToParse: the range has another form, or no width.
    """
    if not isinstance(spec, dict) or next(iter(spec), "").startswith("$"):
        return MinMaxScaler(context.parse(spec), 0, 1)
    for key in spec:
        if key not in ("input", "min", "max"):
            raise FailedToParse(f"{name} got unexpected argument: {key}")
    if "input" not in spec:
        raise FailedToParse(f"{name} requires an 'input' expression")
    bounds = []
    for key, default in (("min", 0), ("max", 1)):
        bound = context.parse(spec.get(key, default))
        if not isinstance(bound, Constant) or not is_number(bound.value):
            raise FailedToParse(f"{name} requires '{key}' to be a constant number")
        bounds.append(bound.value)
    if order_key(bounds[0]) >= order_key(bounds[1]):
        raise FailedToParse(f"{name} requires 'max' to be greater than 'min'")
    return MinMaxScaler(context.parse(spec["input"]), *bounds)
