"""Accumulators: what `$group`, `$bucket` and windows gather over many documents.

An accumulator is parsed once into a factory; each group has a state of its own that takes values one by one and tells the
result in the end. Result types are those of the arithmetic expressions: sums keep int32 and int64 as long as they fit.
"""

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from bson import Decimal128, Int64

from ..common.errors import ExceededMemoryLimit, Location, NotImplemented, TypeMismatch
from ..common.numbers import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, is_number, whole_number
from ..common.ordering import Collator, OrderKey, order_key
from ..common.values import MISSING, Document, encode, type_name
from .expression.arithmetic import DECIMAL, absent, divide, from_decimal, to_decimal
from .expression.base import Constant, Expression, ParseContext, Variables
from .expression.objects import merge
from .expression.ranking import numbers_of, parse_shares, percentile_of
from .sort import SortPattern, parse_sort

_VALUE_BYTES_MAX: Final = 100 * 1024 * 1024


class State(ABC):
    """What one group has gathered."""

    @abstractmethod
    def add(self, document: Document, variables: Variables) -> None:
        """Take the value of one more document."""

    @abstractmethod
    def result(self) -> Any:
        """What was gathered."""

    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return 64


@dataclass(slots=True)
class Accumulator:
    """A parsed accumulator: its name, what it reads, and how to begin a state."""

    name: str
    expression: Expression
    begin: Callable[[], State]
    shown: Any

    def serialize(self) -> Document:
        """The accumulator in the normal form that explain shows."""
        return {self.name: self.shown}

    def fields(self) -> frozenset[str] | None:
        """The paths that it reads."""
        return self.expression.fields()


class Sum(State):
    """`$sum`: exact while the numbers are whole, and free of rounding in their order where they are doubles."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any]) -> None:
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

    def result(self) -> Any:
        """See `State.result`."""
        if self._decimal is not None:
            total = DECIMAL.add(self._decimal, Decimal(self._whole))
            if self._any_double:
                total = DECIMAL.add(total, Decimal(self._double()))
            return from_decimal(total)
        if self._any_double:
            return self._double()
        if not self._wide and INT32_MIN <= self._whole <= INT32_MAX:
            return self._whole
        return Int64(self._whole) if INT64_MIN <= self._whole <= INT64_MAX else float(self._whole)

    def _double(self) -> float:
        if self._special:
            return self._special
        try:
            high = float(self._whole)
            # Two doubles hold what one may round off.
            return math.fsum([*self._doubles, high, float(self._whole - int(high))])
        except OverflowError:
            return math.inf if sum(self._doubles) > 0 else -math.inf


def _partials(values: list[float]) -> list[float]:
    """A few doubles with exactly the same sum."""
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
    return partials


class Average(Sum):
    """`$avg`."""

    def result(self) -> Any:
        """See `State.result`."""
        if not self.count:
            return None
        if self._decimal is None and not self._any_double:
            return self._whole / self.count
        return divide(super().result(), self.count)


class Extreme(State):
    """`$min` and `$max`."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any], collator: Collator | None, sign: int) -> None:
        self._evaluate = evaluate
        self._collator = collator
        self._sign = sign
        self._key: OrderKey | None = None
        self._value: Any = None

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if value is None or value is MISSING:
            return
        key = order_key(value, self._collator)
        if self._key is None or (key < self._key if self._sign < 0 else key > self._key):
            self._key, self._value = key, value

    def result(self) -> Any:
        """See `State.result`."""
        return self._value


class First(State):
    """`$first`."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any]) -> None:
        self._evaluate = evaluate
        self._value: Any = MISSING
        self._empty = True

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        if self._empty:
            self._value, self._empty = self._evaluate(document, variables), False

    def result(self) -> Any:
        """See `State.result`."""
        return None if self._value is MISSING else self._value


class Last(State):
    """`$last`."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any]) -> None:
        self._evaluate = evaluate
        self._document: Document | None = None
        self._variables: Variables = {}

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        self._document, self._variables = document, variables

    def result(self) -> Any:
        """See `State.result`."""
        value = MISSING if self._document is None else self._evaluate(self._document, self._variables)
        return None if value is MISSING else value


class Push(State):
    """`$push`."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any]) -> None:
        self._evaluate = evaluate
        self._values: list[Any] = []
        self._bytes = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if value is not MISSING:
            self._values.append(value)
            self._bytes += _size(value)
            if self._bytes > _VALUE_BYTES_MAX:
                raise ExceededMemoryLimit(
                    f"$push used too much memory and cannot spill to disk. Used: {self._bytes} bytes. Memory limit: "
                    f"{_VALUE_BYTES_MAX} bytes"
                )

    def result(self) -> Any:
        """See `State.result`."""
        return self._values

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return self._bytes + 64


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) + 60
    return len(encode({"": value})) * 3 if isinstance(value, dict | list) else 40


class AddToSet(State):
    """`$addToSet`."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any], collator: Collator | None) -> None:
        self._evaluate = evaluate
        self._collator = collator
        self._values: dict[OrderKey, Any] = {}

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if value is not MISSING:
            self._values.setdefault(order_key(value, self._collator), value)

    def result(self) -> Any:
        """See `State.result`."""
        return list(self._values.values())

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return 160 * len(self._values) + 64


class Deviation(State):
    """`$stdDevPop` and `$stdDevSamp`, by Welford's recurrence."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any], sample: bool) -> None:
        self._evaluate = evaluate
        self._sample = sample
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if is_number(value):
            number = float(to_decimal(value)) if isinstance(value, Decimal128) else float(value)
            self._count += 1
            delta = number - self._mean
            self._mean += delta / self._count
            self._squares += delta * (number - self._mean)

    def result(self) -> Any:
        """See `State.result`."""
        below = self._count - 1 if self._sample else self._count
        return math.sqrt(self._squares / below) if below > 0 else None


class Percentiles(State):
    """`$median` and `$percentile`, from all the numbers."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any], shares: list[float], single: bool) -> None:
        self._evaluate = evaluate
        self._shares = shares
        self._single = single
        self._numbers: list[float] = []

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
        return 32 * len(self._numbers) + 64


class ConcatArrays(State):
    """`$concatArrays`."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any]) -> None:
        self._evaluate = evaluate
        self._values: list[Any] = []
        self._bytes = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if value is MISSING:
            return
        if not isinstance(value, list):
            raise TypeMismatch(f"$concatArrays requires array inputs, but input is of type {type_name(value)}")
        self._values += value
        self._bytes += sum(_size(item) for item in value)
        if self._bytes > _VALUE_BYTES_MAX:
            raise ExceededMemoryLimit(
                f"$concatArrays used too much memory and cannot spill to disk. Used: {self._bytes} bytes. Memory limit: "
                f"{_VALUE_BYTES_MAX} bytes"
            )

    def result(self) -> Any:
        """See `State.result`."""
        return list(self._values)

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return self._bytes + 64


class SetUnion(State):
    """`$setUnion`."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any], collator: Collator | None) -> None:
        self._evaluate = evaluate
        self._collator = collator
        self._values: dict[OrderKey, Any] = {}

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if value is MISSING:
            return
        if not isinstance(value, list):
            raise TypeMismatch(f"$setUnion requires array inputs, but input is of type {type_name(value)}")
        for item in value:
            self._values.setdefault(order_key(item, self._collator), item)

    def result(self) -> Any:
        """See `State.result`."""
        return list(self._values.values())

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return 160 * len(self._values) + 64


class MergeObjects(State):
    """`$mergeObjects`."""

    def __init__(self, evaluate: Callable[[Document, Variables], Any]) -> None:
        self._evaluate = evaluate
        self._merged: Document = {}

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if not absent(value) and not isinstance(value, dict):
            raise Location(5911200, f"$mergeObjects only supports objects, not {type_name(value)}")
        self._merged = merge(self._merged, value)

    def result(self) -> Any:
        """See `State.result`."""
        return self._merged


class Several(State):
    """`$firstN $lastN $minN $maxN`: up to `n` values."""

    def __init__(
        self, evaluate: Callable[[Document, Variables], Any], count: int, kind: str, collator: Collator | None
    ) -> None:
        self._evaluate = evaluate
        self._count = count
        self._kind = kind
        self._collator = collator
        self._values: list[Any] = []

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if self._kind in ("$minN", "$maxN"):
            if absent(value):
                return
        elif value is MISSING:
            value = None
        if self._kind == "$firstN" and len(self._values) >= self._count:
            return
        self._values.append(value)
        if self._kind == "$lastN":
            del self._values[: -self._count]
        elif len(self._values) > 4 * self._count + 64:
            self._values = self.result()

    def result(self) -> Any:
        """See `State.result`."""
        if self._kind == "$minN":
            return heapq.nsmallest(self._count, self._values, key=self._order)
        if self._kind == "$maxN":
            return heapq.nlargest(self._count, self._values, key=self._order)
        return list(self._values)

    def _order(self, value: Any) -> OrderKey:
        return order_key(value, self._collator)

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return 64 + 40 * len(self._values)


class Ranked(State):
    """`$top $topN $bottom $bottomN`: the outputs of the first or last documents of an order."""

    def __init__(
        self,
        evaluate: Callable[[Document, Variables], Any],
        pattern: SortPattern,
        count: int,
        *,
        bottom: bool,
        single: bool,
        collator: Collator | None,
    ) -> None:
        self._evaluate = evaluate
        self._pattern = pattern
        self._count = count
        self._bottom = bottom
        self._single = single
        self._collator = collator
        self._rows: list[tuple[Any, int, Any]] = []
        self._seen = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        key = self._pattern.key(document, None, self._collator)
        self._seen += 1
        if self._single and self._rows:
            best = self._rows[0][0]
            if key < best if not self._bottom else not key < best:
                self._rows[0] = (key, self._seen, self._evaluate(document, variables))
            return
        self._rows.append((key, self._seen, self._evaluate(document, variables)))
        if len(self._rows) > 4 * self._count + 64:
            self._cut()

    def _cut(self) -> None:
        self._rows.sort(key=lambda row: (row[0], row[1]))
        self._rows = self._rows[-self._count :] if self._bottom else self._rows[: self._count]

    def result(self) -> Any:
        """See `State.result`."""
        self._cut()
        values = [None if value is MISSING else value for _, _, value in self._rows]
        return (values[0] if values else None) if self._single else values

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return 64 + 200 * len(self._rows)


def parse_accumulator(name: str, spec: Any, context: ParseContext, *, lists_are_values: bool = False) -> Accumulator:
    """Parse `{name: spec}`; in windows a list is an array of expressions, in groups there is none.

    Raises:
        Location: 15952 for an unknown name, 40237 for a list of operands, and what the operands raise.
    """
    if name == "$count":
        if spec != {}:
            raise Location(9, "$count takes no arguments, i.e. $count:{}")
        one = Constant(1)
        return Accumulator("$sum", one, lambda: Sum(one.evaluate), {"$const": 1})
    if name in ("$top", "$topN", "$bottom", "$bottomN"):
        return _ranked(name, spec, context)
    if name in ("$firstN", "$lastN", "$minN", "$maxN"):
        return _several(name, spec, context)
    if name in ("$median", "$percentile"):
        return _percentile(name, spec, context)
    make = _PLAIN.get(name)
    if make is None:
        if name == "$accumulator":
            raise NotImplemented(f"the accumulator {name} is not supported")
        raise Location(15952, f"unknown group operator '{name}'")
    if isinstance(spec, list) and not lists_are_values:
        raise Location(40237, f"The {name} accumulator is a unary operator")
    expression = context.parse(spec)
    evaluate, collator = expression.evaluate, context.collator
    return Accumulator(name, expression, lambda: make(evaluate, collator), expression.serialize())


_PLAIN: Final[dict[str, Callable[[Callable[[Document, Variables], Any], Collator | None], State]]] = {
    "$addToSet": AddToSet,
    "$avg": lambda evaluate, collator: Average(evaluate),
    "$concatArrays": lambda evaluate, collator: ConcatArrays(evaluate),
    "$first": lambda evaluate, collator: First(evaluate),
    "$last": lambda evaluate, collator: Last(evaluate),
    "$max": lambda evaluate, collator: Extreme(evaluate, collator, 1),
    "$mergeObjects": lambda evaluate, collator: MergeObjects(evaluate),
    "$min": lambda evaluate, collator: Extreme(evaluate, collator, -1),
    "$push": lambda evaluate, collator: Push(evaluate),
    "$setUnion": SetUnion,
    "$stdDevPop": lambda evaluate, collator: Deviation(evaluate, False),
    "$stdDevSamp": lambda evaluate, collator: Deviation(evaluate, True),
    "$sum": lambda evaluate, collator: Sum(evaluate),
}


def _count(name: str, spec: Document, context: ParseContext) -> int:
    expression = context.parse(spec["n"])
    value = expression.value if isinstance(expression, Constant) else MISSING
    if value is MISSING:
        raise NotImplemented(f"{name} with an 'n' that depends on the group is not supported")
    whole = whole_number(value) if is_number(value) else None
    if whole is None:
        raise Location(5787902, f"Value for 'n' must be of integral type, but found {type_name(value)}")
    if whole <= 0:
        raise Location(5787908, f"'n' must be greater than 0, found {whole}")
    return whole


def _percentile(name: str, spec: Any, context: ParseContext) -> Accumulator:
    expression, shares = parse_shares(name, spec, context)
    evaluate, single = expression.evaluate, name == "$median"
    shown: Document = {"input": expression.serialize(), "method": spec["method"]}
    if not single:
        shown = {"input": shown["input"], "p": shares, "method": spec["method"]}
    return Accumulator(name, expression, lambda: Percentiles(evaluate, shares, single), shown)


def _several(name: str, spec: Any, context: ParseContext) -> Accumulator:
    if not isinstance(spec, dict):
        raise Location(5787801, f"specification must be an object; found {name}: {spec}")
    for key in spec:
        if key not in ("n", "input"):
            raise Location(5787901, f"Unknown argument for 'n' operator: {key}")
    for key, code in (("n", 5787906), ("input", 5787907)):
        if key not in spec:
            raise Location(code, f"Missing value for '{key}'")
    count = _count(name, spec, context)
    expression = context.parse(spec["input"])
    evaluate, collator = expression.evaluate, context.collator
    shown = {"n": {"$const": count}, "input": expression.serialize()}
    return Accumulator(name, expression, lambda: Several(evaluate, count, name, collator), shown)


def _ranked(name: str, spec: Any, context: ParseContext) -> Accumulator:
    if not isinstance(spec, dict):
        raise Location(5788001, f"specification must be an object; found {name}: {spec}")
    single = name in ("$top", "$bottom")
    for key in spec:
        if key not in ("sortBy", "output") and (single or key != "n"):
            raise Location(5788002, f"Unknown argument to {name}: {key}")
    for key, code in (("n", 5788003), ("output", 5788004), ("sortBy", 5788005)):
        if key not in spec and not (single and key == "n"):
            raise Location(code, f"Missing value for '{key}'")
    if not isinstance(spec["sortBy"], dict):
        raise Location(10065, "expected 'sortBy' to already exist as an object")
    count = 1 if single else _count(name, spec, context)
    pattern = parse_sort(spec["sortBy"])
    expression = context.parse(spec["output"])
    evaluate, collator = expression.evaluate, context.collator

    def begin() -> State:
        return Ranked(evaluate, pattern, count, bottom=name.startswith("$bottom"), single=single, collator=collator)

    shown: Document = {"sortBy": pattern.serialize(), "output": expression.serialize()}
    if not single:
        shown = {"n": {"$const": count}, **shown}
    return Accumulator(name, _WithFields(expression, pattern.fields), begin, shown)


class _WithFields(Expression):
    """An expression that reads further fields beside its own."""

    def __init__(self, inner: Expression, fields: tuple[str, ...]) -> None:
        self.evaluate = inner.evaluate
        self._inner = inner
        self._fields = frozenset(fields)

    def serialize(self) -> Any:
        """See `Expression.serialize`."""
        return self._inner.serialize()

    def fields(self) -> frozenset[str] | None:
        """See `Expression.fields`."""
        inner = self._inner.fields()
        return None if inner is None else inner | self._fields
