"""Window functions that are no accumulators: ranks, shifts, derivatives and integrals, moving averages, and filling."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from bson import DatetimeMS, Decimal128

from ...common.errors import FailedToParse, Location
from ...common.numbers import is_number, whole_number
from ...common.values import MISSING, Document, is_string, type_name
from ..expression.arithmetic import absent, add, divide, multiply, subtract
from ..expression.base import Constant, Expression, ParseContext, Variables
from ..expression.calendar import FIXED_MS
from ..sort import SortPattern

Span = tuple[int, int]


@dataclass(slots=True)
class Partition:
    """The rows of one partition, in order."""

    rows: list[Document]
    variables: Variables
    order: SortPattern | None
    keys: list[Any] = field(default_factory=list)
    """What orders each row, with all keys of the order."""
    values: list[Any] = field(default_factory=list)
    """The value of the first key of the order."""


class WindowFunction(ABC):
    """What an output field is computed by."""

    takes_window = False
    operands: Sequence[Expression] = ()

    @abstractmethod
    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """The value for each row."""


class Rank(WindowFunction):
    """`$rank $denseRank $documentNumber`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        made: list[Any] = []
        rank = dense = 0
        for number, key in enumerate(partition.keys, 1):
            if number == 1 or key != partition.keys[number - 2]:
                rank, dense = number, dense + 1
            made.append({"$rank": rank, "$denseRank": dense}.get(self.name, number))
        return made


class Shift(WindowFunction):
    """`$shift`: the value of another row."""

    def __init__(self, output: Expression, by: int, default: Any) -> None:
        self.output = output
        self.by = by
        self.default = default
        self.operands = (output,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        values = _values(self.output, partition)
        count = len(values)
        return [
            _null(values[place + self.by]) if 0 <= place + self.by < count else self.default for place in range(count)
        ]


class Slope(WindowFunction):
    """`$derivative`: from the first row of the window to its last."""

    takes_window = True

    def __init__(self, source: Expression, unit: str | None) -> None:
        self.source = source
        self.unit = unit
        self.operands = (source,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        values = _values(self.source, partition)
        made: list[Any] = []
        for low, high in spans:
            if high - low < 2:
                made.append(None)
                continue
            first, last = values[low], values[high - 1]
            run = _distance(partition.values[low], partition.values[high - 1], self.unit, (5624900, 5624901))
            if absent(first) or absent(last) or _is_zero(run):
                made.append(None)
                continue
            made.append(divide(subtract(last, first), run))
        return made


class Area(WindowFunction):
    """`$integral`: by the trapezoidal rule over the window."""

    takes_window = True

    def __init__(self, source: Expression, unit: str | None) -> None:
        self.source = source
        self.unit = unit
        self.operands = (source,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        values = _values(self.source, partition)
        points = [place for place, value in enumerate(values) if is_number(value)]
        areas: dict[int, Any] = {}
        for before, after in pairwise(points):
            run = _distance(partition.values[before], partition.values[after], self.unit, (5423902, 5423901))
            areas[after] = multiply(divide(add(values[before], values[after]), 2), run)
        made: list[Any] = []
        for low, high in spans:
            inside = [place for place in points if low <= place < high]
            made.append(add(0.0, *[areas[place] for place in inside[1:]]) if inside else None)
        return made


class MovingAverage(WindowFunction):
    """`$expMovingAvg`."""

    def __init__(self, source: Expression, weight: Any) -> None:
        self.source = source
        self.weight = weight
        self.operands = (source,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        average: Any = None
        made: list[Any] = []
        for value in _values(self.source, partition):
            if not is_number(value):
                made.append(None)
                continue
            before = average
            average = value
            if before is not None:
                average = add(multiply(value, self.weight), multiply(before, subtract(1, self.weight)))
            made.append(average if isinstance(average, Decimal128) else float(average))
        return made


class LastSeen(WindowFunction):
    """`$locf`: the last value that was neither null nor missing."""

    def __init__(self, source: Expression) -> None:
        self.source = source
        self.operands = (source,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        seen: Any = None
        made = []
        for value in _values(self.source, partition):
            seen = seen if absent(value) else value
            made.append(seen)
        return made


class LinearFill(WindowFunction):
    """`$linearFill`: on the straight line between the values around a gap."""

    def __init__(self, source: Expression) -> None:
        self.source = source
        self.operands = (source,)

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        values = _values(self.source, partition)
        places = partition.values
        for place in places:
            if not is_number(place) and type(place) is not DatetimeMS:
                raise Location(
                    605001, f"$linearFill: the sortBy field must be a number or a date, not {type_name(place)}"
                )
        for place in range(1, len(partition.keys)):
            if partition.keys[place] == partition.keys[place - 1]:
                raise Location(6050106, "There can be no repeated values in the sort field")
        made = [_null(value) for value in values]
        left: int | None = None
        for right, value in enumerate(values):
            if absent(value):
                continue
            if not is_number(value):
                raise Location(605001, f"$linearFill only supports numeric values, not {type_name(value)}")
            for gap in range(right if left is None else left + 1, right):
                assert left is not None
                share = divide(
                    _plain(subtract(places[gap], places[left])), _plain(subtract(places[right], places[left]))
                )
                made[gap] = add(values[left], multiply(subtract(value, values[left]), share))
            left = right
        return made


def _values(expression: Expression, partition: Partition) -> list[Any]:
    return [expression.evaluate(row, partition.variables) for row in partition.rows]


def _null(value: Any) -> Any:
    return None if value is MISSING else value


def _plain(value: Any) -> Any:
    return int(value) if type(value) is DatetimeMS else value


def _is_zero(value: Any) -> bool:
    return bool(value.to_decimal() == 0 if isinstance(value, Decimal128) else value == 0)


def _distance(first: Any, last: Any, unit: str | None, codes: tuple[int, int]) -> Any:
    """How far two values of the order are apart, in units where they are dates."""
    dated = type(first) is DatetimeMS and type(last) is DatetimeMS
    if unit is not None:
        if not dated:
            raise Location(codes[0], "with 'unit' the sortBy field is expected to be a Date")
        return (int(last) - int(first)) / FIXED_MS[unit]
    if not is_number(first) or not is_number(last):
        raise Location(codes[1], "the sortBy field is expected to be a number, or 'unit' to be given for dates")
    return subtract(last, first)


def _options(name: str, spec: Any, wanted: Sequence[str]) -> Document:
    if not isinstance(spec, dict):
        raise FailedToParse(f"{name} expects an object, but got {type_name(spec)}")
    for key in spec:
        if key not in wanted:
            raise FailedToParse(f"{name} got unexpected argument: {key}")
    return spec


def _single(name: str, order: SortPattern | None, code: int) -> None:
    if order is None or len(order.parts) != 1:
        raise Location(code, f"{name} must be specified with a top level sortBy expression with exactly one element")


def _parse_rank(name: str, spec: Any, context: ParseContext, order: SortPattern | None) -> WindowFunction:
    if spec != {}:
        raise Location(5371603, f"{name} must be specified with '{{}}' as the value")
    _single(name, order, 5371602)
    return Rank(name)


def _parse_shift(name: str, spec: Any, context: ParseContext, order: SortPattern | None) -> WindowFunction:
    given = _options(name, spec, ("output", "by", "default"))
    if order is None:
        raise FailedToParse(f"{name} requires a sortBy")
    if "output" not in given:
        raise FailedToParse(f"{name} requires an 'output' expression.")
    if "by" not in given:
        raise FailedToParse(f"{name} requires 'by' as an integer value.")
    by = whole_number(given["by"]) if is_number(given["by"]) else None
    if by is None:
        raise FailedToParse(f"'{name}:by' field must be an integer, but found by: {given['by']}")
    default = context.parse(given.get("default"))
    if not isinstance(default, Constant):
        raise FailedToParse(f"'{name}:default' expression must yield a constant value.")
    return Shift(context.parse(given["output"]), by, default.value)


def _parse_slope(name: str, spec: Any, context: ParseContext, order: SortPattern | None) -> WindowFunction:
    given = _options(name, spec, ("input", "unit"))
    if order is None or len(order.parts) != 1:
        raise FailedToParse(f"{name} requires a non-compound sortBy")
    if "input" not in given:
        raise FailedToParse(f"{name} requires an 'input' expression")
    unit = given.get("unit")
    if unit is not None and not is_string(unit):
        raise FailedToParse(f"{name} 'unit' must be a string")
    if unit is not None and unit not in FIXED_MS:
        if unit in ("month", "quarter", "year"):
            raise Location(5490710, "unit must be 'week' or smaller")
        raise FailedToParse(f"unknown time unit value: {unit}")
    source = context.parse(given["input"])
    return Slope(source, unit) if name == "$derivative" else Area(source, unit)


def _parse_moving_average(name: str, spec: Any, context: ParseContext, order: SortPattern | None) -> WindowFunction:
    given = _options(name, spec, ("input", "N", "alpha"))
    if "input" not in given or ("N" in given) == ("alpha" in given):
        raise FailedToParse(
            f"{name} sub object must have exactly two fields: An 'input' field, and either an 'N' field or an 'alpha' field"
        )
    if order is None:
        raise FailedToParse(f"{name} requires an explicit 'sortBy'")
    if "N" in given:
        count = whole_number(given["N"]) if is_number(given["N"]) else None
        if count is None or count <= 0:
            raise FailedToParse(f"'N' field must be an integer greater than zero, but found {given['N']}")
        return MovingAverage(context.parse(given["input"]), 2 / (count + 1))
    alpha = given["alpha"]
    if not is_number(alpha) or not 0 < float(str(alpha)) < 1:
        raise FailedToParse(f"'alpha' must be between 0 and 1 (exclusive), found alpha: {alpha}")
    return MovingAverage(context.parse(given["input"]), alpha)


def _parse_last_seen(name: str, spec: Any, context: ParseContext, order: SortPattern | None) -> WindowFunction:
    return LastSeen(context.parse(spec))


def _parse_linear_fill(name: str, spec: Any, context: ParseContext, order: SortPattern | None) -> WindowFunction:
    _single(name, order, 605001)
    return LinearFill(context.parse(spec))


FunctionParser = Callable[[str, Any, ParseContext, SortPattern | None], WindowFunction]

FUNCTIONS: Final[dict[str, FunctionParser]] = {
    "$denseRank": _parse_rank,
    "$derivative": _parse_slope,
    "$documentNumber": _parse_rank,
    "$expMovingAvg": _parse_moving_average,
    "$integral": _parse_slope,
    "$linearFill": _parse_linear_fill,
    "$locf": _parse_last_seen,
    "$rank": _parse_rank,
    "$shift": _parse_shift,
}
