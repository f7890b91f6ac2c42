"""`$stdDevPop $stdDevSamp $median $percentile`."""

import math
from typing import Any

from bson import Decimal128

from ...common.numbers import is_number
from ...common.values import Document
from ..expression.arithmetic import to_decimal
from ..expression.base import Variables
from ..expression.ranking import numbers_of, percentile_of
from .base import STATE_BYTES, Evaluate, State


class Deviation(State):
    """`$stdDevPop` and `$stdDevSamp`, by Welford's recurrence."""

    __slots__ = ("_count", "_evaluate", "_mean", "_sample", "_squares")

    def __init__(self, evaluate: Evaluate, sample: bool) -> None:
        self._evaluate = evaluate
        self._sample = sample
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        self.add_value(self._evaluate(document, variables))

    def add_value(self, value: Any) -> None:
        """Take a value; what is no number is passed over."""
        if is_number(value):
            number = float(to_decimal(value)) if isinstance(value, Decimal128) else float(value)
            self._count += 1
            delta = number - self._mean
            self._mean += delta / self._count
            self._squares += delta * (number - self._mean)

    def result(self) -> Any:
        """See `State.result`."""
        below = self._count - 1 if self._sample else self._count
        if below <= 0:
            return None
        # The sign of what is no number is nobody's.
        return math.sqrt(self._squares / below) if self._squares == self._squares else math.nan

    def kept(self) -> Any:
        """See `State.kept`."""
        return [self._count, self._mean, self._squares]

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        count, mean, squares = kept
        if not count:
            return
        total = self._count + count
        delta = mean - self._mean
        self._mean += delta * count / total
        self._squares += squares + delta * delta * self._count * count / total
        self._count = total


class Percentiles(State):
    """`$median` and `$percentile`, from all the numbers."""

    __slots__ = ("_evaluate", "_numbers", "_shares", "_single")

    def __init__(self, evaluate: Evaluate, shares: list[float], single: bool) -> None:
        self._evaluate = evaluate
        self._shares = shares
        self._single = single
        self._numbers: list[float] = []

    @property
    def shares(self) -> list[float]:
        """Which percentiles are wanted, from 0 to 1."""
        return self._shares

    @property
    def single(self) -> bool:
        """Whether there is one, which is told without brackets."""
        return self._single

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        self._numbers += [number for number in numbers_of([self._evaluate(document, variables)]) if number == number]

    def result(self) -> Any:
        """See `State.result`."""
        ordered = sorted(self._numbers)
        found = [percentile_of(ordered, share) for share in self._shares]
        return found[0] if self._single else found

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + 32 * len(self._numbers)

    def kept(self) -> Any:
        """See `State.kept`."""
        return self._numbers

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        self._numbers += kept
