"""`$sum` and `$avg`."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
from bson import Decimal128, Int64
from numpy.typing import NDArray

from ...common.numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from ...common.values import Document
from ..expression.arithmetic import DECIMAL, divide, from_decimal
from ..expression.base import Variables
from .base import STATE_BYTES, Evaluate, State


class Sum(State):
    """`$sum`: exact while the numbers are whole, and free of rounding in their order where they are doubles."""

    __slots__ = ("_any_double", "_decimal", "_doubles", "_evaluate", "_special", "_whole", "_wide", "count")

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._whole = 0
        self._wide = False
        self._doubles: list[float] = []
        self._special = 0.0
        self._any_double = False
        self._decimal: Decimal | None = None
        self.count = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        self.add_value(self._evaluate(document, variables))

    def add_value(self, value: Any) -> None:
        """Take a value; what is no number is passed over."""
        kind = type(value)
        if kind is int:
            self._whole += value
            self._wide = self._wide or not INT32_MIN <= value <= INT32_MAX
        elif kind is float:
            self._any_double = True
            if math.isfinite(value):
                self._doubles.append(value)
                if len(self._doubles) >= 4096:
                    self._doubles = _partials(self._doubles)
            else:
                self._special += value
        elif kind is Int64:
            self._whole += int(value)
            self._wide = True
        elif kind is Decimal128:
            self._decimal = DECIMAL.add(self._decimal or Decimal(0), value.to_decimal())
        else:
            return
        self.count += 1

    def add_whole(self, total: int, count: int, *, wide: bool) -> None:
        """Take `count` whole numbers with this sum; `wide` where they are 64 bits wide."""
        self._whole += total
        self._wide = self._wide or wide
        self.count += count

    def add_doubles(self, values: NDArray[np.float64]) -> None:
        """Take doubles."""
        if len(values):
            self._any_double = True
            finite = np.isfinite(values)
            if not finite.all():
                for value in values[~finite].tolist():
                    self._special += value
                values = values[finite]
            self._doubles = _partials([*self._doubles, *values.tolist()])
            self.count += len(finite)

    def result(self) -> Any:
        """See `State.result`."""
        if self._decimal is not None:
            total = DECIMAL.add(self._decimal, Decimal(self._whole))
            if self._any_double:
                total = DECIMAL.add(total, Decimal(self._double(0)))
            return from_decimal(total)
        if self._any_double:
            return self._double(self._whole)
        if not self._wide and INT32_MIN <= self._whole <= INT32_MAX:
            return self._whole
        return Int64(self._whole) if INT64_MIN <= self._whole <= INT64_MAX else float(self._whole)

    def kept(self) -> Any:
        """See `State.kept`."""
        decimal = None if self._decimal is None else str(self._decimal)
        doubles = _partials(self._doubles)
        return [str(self._whole), self._wide, doubles, self._special, self._any_double, decimal, self.count]

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        whole, wide, doubles, special, any_double, decimal, count = kept
        self._whole += int(whole)
        self._wide = self._wide or wide
        self._doubles = _partials([*self._doubles, *doubles])
        self._special += special
        self._any_double = self._any_double or any_double
        if decimal is not None:
            self._decimal = DECIMAL.add(self._decimal or Decimal(0), Decimal(decimal))
        self.count += count

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + 24 * len(self._doubles)

    def _double(self, whole: int) -> float:
        """The sum of the doubles and of a whole number, rounded once."""
        if self._special:
            return self._special
        try:
            high = float(whole)
            # Two doubles hold what one may round off.
            return math.fsum([*self._doubles, high, float(whole - int(high))])
        except OverflowError:
            return math.inf if sum(self._doubles) > 0 else -math.inf


def _partials(values: list[float]) -> list[float]:
    """A few doubles with exactly the same sum."""
    parts: list[float] = []
    try:
        # Each is the rounded sum of what those before it leave over, until nothing is.
        while rest := math.fsum([*values, *(-part for part in parts)]):
            parts.append(rest)
    except OverflowError:
        return _partials_by_steps(values)
    return parts


def _partials_by_steps(values: list[float]) -> list[float]:
    """The same for sums that leave the range of doubles on the way."""
    partials: list[float] = []
    for number in values:
        kept = 0
        for other in partials:
            if abs(number) < abs(other):
                number, other = other, number
            high = number + other
            low = other - (high - number)
            if low:
                partials[kept] = low
                kept += 1
            number = high
        partials[kept:] = [number]
    # A sum beyond all doubles has no parts among them: what is added later may bring it back.
    return partials if all(math.isfinite(part) for part in partials) else values


class Average(Sum):
    """`$avg`."""

    __slots__ = ()

    def result(self) -> Any:
        """See `State.result`."""
        if not self.count:
            return None
        if self._decimal is None and not self._any_double:
            return self._whole / self.count
        return divide(super().result(), self.count)


class Tally(State):
    """`$sum` of a constant int32, of which `$sum: 1` and `$count` are most of what is ever gathered."""

    __slots__ = ("_one", "_whole", "count")

    def __init__(self, one: int) -> None:
        self._one = one
        self._whole = 0
        self.count = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        self.count += 1

    def result(self) -> Any:
        """See `State.result`."""
        whole = self._total()
        if INT32_MIN <= whole <= INT32_MAX:
            return whole
        return Int64(whole) if INT64_MIN <= whole <= INT64_MAX else float(whole)

    def kept(self) -> Any:
        """See `State.kept`: in the form of a `Sum`."""
        return [str(self._total()), False, [], 0.0, False, None, self.count]

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        self._whole += int(kept[0])

    def _total(self) -> int:
        return self._whole + self._one * self.count
