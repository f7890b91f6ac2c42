"""Accumulators that choose values: `$min $max $first $last $firstN $lastN $minN $maxN $top $topN $bottom $bottomN`."""

import heapq
from typing import Any

from ...common.ordering import Collator, OrderKey, order_key
from ...common.values import MISSING, Document
from ..expression.arithmetic import absent
from ..expression.base import Variables
from ..sort import SortPattern
from .base import STATE_BYTES, Evaluate, State, check_bytes, value_bytes


class Extreme(State):
    """`$min` and `$max`."""

    __slots__ = ("_collator", "_evaluate", "_key", "_sign", "_value")

    def __init__(self, evaluate: Evaluate, collator: Collator | None, sign: int) -> None:
        self._evaluate = evaluate
        self._collator = collator
        self._sign = sign
        self._key: OrderKey | None = None
        self._value: Any = None

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        self.take(self._evaluate(document, variables))

    def take(self, value: Any) -> None:
        """Take a value."""
        if value is None or value is MISSING:
            return
        key = order_key(value, self._collator)
        if self._key is None or (key < self._key if self._sign < 0 else key > self._key):
            self._key, self._value = key, value

    def result(self) -> Any:
        """See `State.result`."""
        return self._value

    def kept(self) -> Any:
        """See `State.kept`."""
        return self._value

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        self.take(kept)

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + value_bytes(self._value)


class First(State):
    """`$first`."""

    __slots__ = ("_empty", "_evaluate", "_safe", "_value")

    def __init__(self, evaluate: Evaluate, *, safe: bool = True) -> None:
        """`safe`: the expression cannot fail."""
        self._evaluate = evaluate
        self._safe = safe
        self._value: Any = MISSING
        self._empty = True

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`: what fails for a later document fails all the same."""
        if self._empty or not self._safe:
            self.take(self._evaluate(document, variables))

    def take(self, value: Any) -> None:
        """Take a value, if it is the first."""
        if self._empty:
            self._value, self._empty = value, False

    def result(self) -> Any:
        """See `State.result`."""
        return None if self._value is MISSING else self._value

    def kept(self) -> Any:
        """See `State.kept`."""
        return [self._empty, self.result()]

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        if self._empty:
            self._empty, self._value = kept

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + value_bytes(self._value)


class Last(State):
    """`$last`."""

    __slots__ = ("_document", "_evaluate", "_value", "_variables")

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._document: Document | None = None
        self._variables: Variables = {}
        self._value: Any = None

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`; only the last one is evaluated."""
        self._document, self._variables = document, variables

    def take(self, value: Any) -> None:
        """Take a value."""
        self._document, self._value = None, value

    def result(self) -> Any:
        """See `State.result`."""
        if self._document is not None:
            self._value = self._evaluate(self._document, self._variables)
            self._document = None
        return None if self._value is MISSING else self._value

    def kept(self) -> Any:
        """See `State.kept`."""
        return self.result()

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        self._document, self._value = None, kept

    def size_bytes(self) -> int:
        """See `State.size_bytes`; holds the value alone from now on."""
        return STATE_BYTES + value_bytes(self.result())


class Several(State):
    """`$firstN $lastN $minN $maxN`: up to `n` values."""

    __slots__ = ("_bytes", "_collator", "_count", "_evaluate", "_kind", "_values")

    def __init__(self, evaluate: Evaluate, count: int, kind: str, collator: Collator | None) -> None:
        self._evaluate = evaluate
        self._count = count
        self._kind = kind
        self._collator = collator
        self._values: list[Any] = []
        self._bytes = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        self._take(self._evaluate(document, variables))

    def _take(self, value: Any) -> None:
        if self._kind in ("$minN", "$maxN"):
            if absent(value):
                return
        elif value is MISSING:
            value = None
        if self._kind == "$firstN" and len(self._values) >= self._count:
            return
        self._values.append(value)
        self._bytes += value_bytes(value)
        if self._kind == "$lastN":
            for gone in self._values[: -self._count]:
                self._bytes -= value_bytes(gone)
            del self._values[: -self._count]
        elif len(self._values) > 4 * self._count + 64:
            self._values = self.result()
            self._bytes = sum(value_bytes(item) for item in self._values)
        check_bytes(self._kind, self._bytes)

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
        return STATE_BYTES + self._bytes

    def kept(self) -> Any:
        """See `State.kept`."""
        return self._values

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        for value in kept:
            self._take(value)


class Ranked(State):
    """`$top $topN $bottom $bottomN`: the outputs of the first or last documents of an order."""

    __slots__ = ("_bottom", "_bytes", "_collator", "_count", "_evaluate", "_pattern", "_rows", "_seen", "_single")

    def __init__(
        self,
        evaluate: Evaluate,
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
        self._bytes = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        key = self._pattern.key(document, None, self._collator)
        if self._single and self._rows:
            best = self._rows[0][0]
            if key < best if not self._bottom else not key < best:
                self._rows[0] = (key, self._seen, self._output(document, variables))
            return
        self._take(key, self._output(document, variables))

    def _output(self, document: Document, variables: Variables) -> Any:
        value = self._evaluate(document, variables)
        return None if value is MISSING else value

    def _take(self, key: Any, value: Any) -> None:
        self._seen += 1
        self._rows.append((key, self._seen, value))
        self._bytes += 200 + value_bytes(value)
        if len(self._rows) > 4 * self._count + 64:
            self._cut()
            check_bytes("$bottomN" if self._bottom else "$topN", self._bytes)

    def _cut(self) -> None:
        self._rows.sort(key=lambda row: (row[0], row[1]))
        self._rows = self._rows[-self._count :] if self._bottom else self._rows[: self._count]
        self._bytes = sum(200 + value_bytes(value) for _, _, value in self._rows)

    def result(self) -> Any:
        """See `State.result`."""
        self._cut()
        values = [value for _, _, value in self._rows]
        return (values[0] if values else None) if self._single else values

    def kept(self) -> Any:
        """See `State.kept`."""
        self._rows.sort(key=lambda row: row[1])
        return [(key, value) for key, _, value in self._rows]

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        for key, value in kept:
            self._take(key, value)
        if self._single:
            self._cut()

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + self._bytes
