"""Covariance over windows, and standard deviation over windows that rows leave again.

Rows come into a window and leave it, and the sums follow. What is not finite is counted apart, so that a window is as good
as new once it has left.
"""

import math
from collections.abc import Sequence
from typing import Any

from bson import Decimal128

from ...common.numbers import is_number
from ..accumulators.statistics import Deviation
from ..expression.arithmetic import add, divide, multiply, subtract, to_decimal
from ..expression.base import Expression
from .window_functions import Partition, Span, WindowFunction

Pair = tuple[Any, Any]


def _is_finite(value: Any) -> bool:
    return to_decimal(value).is_finite() if isinstance(value, Decimal128) else math.isfinite(value)


class Covariance(WindowFunction):
    """`$covariancePop $covarianceSamp` of pairs of numbers."""

    takes_window = True

    def __init__(self, pairs: Expression, sample: bool) -> None:
        self.pairs = pairs
        self.sample = sample
        self.operands = (pairs,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        values = [self.pairs.evaluate(row, partition.variables) for row in partition.rows]
        pairs = [
            (value[0], value[1])
            if isinstance(value, list) and len(value) == 2 and is_number(value[0]) and is_number(value[1])
            else None
            for value in values
        ]
        moment = _Moment()
        made: list[Any] = []
        low = high = 0
        for start, end in spans:
            if start < low or end < high or start >= high:
                moment, low, high = _Moment(), start, start
            for pair in pairs[high:end]:
                if pair is not None:
                    moment.enter(pair)
            for pair in pairs[low:start]:
                if pair is not None:
                    moment.leave(pair)
            low, high = start, max(end, start)
            made.append(moment.covariance(self.sample))
        return made


class _Moment:
    """The joint moment of the pairs in a window."""

    def __init__(self) -> None:
        self._count = 0
        self._sums: list[Any] = [0.0, 0.0]
        self._moment: Any = 0.0
        self._special: list[Any] = []

    def enter(self, pair: Pair) -> None:
        """A pair comes in."""
        left, right = _comparable(pair)
        if not (_is_finite(left) and _is_finite(right)):
            self._special.append(pair)
            return
        mean_left = divide(self._sums[0], self._count) if self._count else left
        self._sums = [add(self._sums[0], left), add(self._sums[1], right)] if self._count else [left, right]
        self._count += 1
        ahead = subtract(right, divide(self._sums[1], self._count))
        product = multiply(subtract(left, mean_left), ahead)
        self._moment = add(self._moment, product) if self._count > 1 else product

    def leave(self, pair: Pair) -> None:
        """A pair goes out that came in before."""
        left, right = _comparable(pair)
        if not (_is_finite(left) and _is_finite(right)):
            self._special.remove(pair) if pair in self._special else self._special.pop(0)
            return
        mean_right = divide(self._sums[1], self._count)
        self._count -= 1
        if not self._count:
            self._sums, self._moment = [0.0, 0.0], 0.0
            return
        self._sums = [subtract(self._sums[0], left), subtract(self._sums[1], right)]
        ahead = subtract(left, divide(self._sums[0], self._count))
        self._moment = subtract(self._moment, multiply(ahead, subtract(right, mean_right)))

    def covariance(self, sample: bool) -> Any:
        """The covariance of what is in; null where that is too little."""
        below = self._count - 1 if sample else self._count
        if below <= 0:
            return None
        if self._count == 1:
            return 0.0
        if self._special:
            numbers = [number for pair in self._special for number in pair if not _is_finite(number)]
            return add(*numbers)
        return divide(self._moment, below)


def _comparable(pair: Pair) -> Pair:
    """Both numbers, whole ones as doubles, so that sums neither wrap around nor change their type."""
    left, right = (number if isinstance(number, Decimal128) else float(number) for number in pair)
    return left, right


class SlidingDeviation(WindowFunction):
    """`$stdDevPop $stdDevSamp` where rows leave the window: null while something in it is not finite."""

    takes_window = True

    def __init__(self, operand: Expression, sample: bool) -> None:
        self.operand = operand
        self.sample = sample
        self.operands = (operand,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        values = [self.operand.evaluate(row, partition.variables) for row in partition.rows]
        numbers = [value if is_number(value) else None for value in values]
        return [self._of([number for number in numbers[low:high] if number is not None]) for low, high in spans]

    def _of(self, numbers: list[Any]) -> Any:
        if not all(_is_finite(number) for number in numbers):
            return None
        if len(numbers) == 1 and not self.sample:
            return 0
        state = Deviation(lambda document, variables: None, self.sample)
        for number in numbers:
            state.add_value(number)
        return state.result()
