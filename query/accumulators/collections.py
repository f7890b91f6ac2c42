"""Accumulators that gather values: `$push $addToSet $concatArrays $setUnion $mergeObjects`."""

from typing import Any, ClassVar

from ...common.errors import Location, TypeMismatch
from ...common.ordering import Collator, OrderKey, order_key
from ...common.values import MISSING, Document, type_name
from ..expression.arithmetic import absent
from ..expression.base import Variables
from ..expression.objects import merge
from .base import STATE_BYTES, Evaluate, State, check_bytes, value_bytes


class Push(State):
    """`$push`."""

    __slots__ = ("_bytes", "_evaluate", "_values")

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._values: list[Any] = []
        self._bytes = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if value is not MISSING:
            self._values.append(value)
            self._bytes += value_bytes(value)
            check_bytes("$push", self._bytes)

    def result(self) -> Any:
        """See `State.result`."""
        return self._values

    def kept(self) -> Any:
        """See `State.kept`."""
        return self._values

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        self._values += kept
        self._bytes += sum(value_bytes(value) for value in kept)
        check_bytes("$push", self._bytes)

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + self._bytes


class AddToSet(State):
    """`$addToSet`."""

    __slots__ = ("_bytes", "_collator", "_evaluate", "_values")
    _name: ClassVar[str] = "$addToSet"

    def __init__(self, evaluate: Evaluate, collator: Collator | None) -> None:
        self._evaluate = evaluate
        self._collator = collator
        self._values: dict[OrderKey, Any] = {}
        self._bytes = 0

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if value is not MISSING:
            self._take(value)

    def _take(self, value: Any) -> None:
        key = order_key(value, self._collator)
        if key not in self._values:
            self._values[key] = value
            self._bytes += 160 + value_bytes(value)
            check_bytes(self._name, self._bytes)

    def result(self) -> Any:
        """See `State.result`."""
        return list(self._values.values())

    def kept(self) -> Any:
        """See `State.kept`."""
        return self.result()

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        for value in kept:
            self._take(value)

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + self._bytes


class ConcatArrays(State):
    """`$concatArrays`."""

    __slots__ = ("_bytes", "_evaluate", "_values")

    def __init__(self, evaluate: Evaluate) -> None:
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
        self._bytes += sum(value_bytes(item) for item in value)
        check_bytes("$concatArrays", self._bytes)

    def result(self) -> Any:
        """See `State.result`."""
        return list(self._values)

    def kept(self) -> Any:
        """See `State.kept`."""
        return self._values

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        self._values += kept
        self._bytes += sum(value_bytes(item) for item in kept)
        check_bytes("$concatArrays", self._bytes)

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + self._bytes


class SetUnion(AddToSet):
    """`$setUnion`."""

    __slots__ = ()
    _name: ClassVar[str] = "$setUnion"

    def add(self, document: Document, variables: Variables) -> None:
        """See `State.add`."""
        value = self._evaluate(document, variables)
        if value is MISSING:
            return
        if not isinstance(value, list):
            raise TypeMismatch(f"$setUnion requires array inputs, but input is of type {type_name(value)}")
        for item in value:
            self._take(item)


class MergeObjects(State):
    """`$mergeObjects`."""

    __slots__ = ("_evaluate", "_merged")

    def __init__(self, evaluate: Evaluate) -> None:
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

    def kept(self) -> Any:
        """See `State.kept`."""
        return self._merged

    def absorb(self, kept: Any) -> None:
        """See `State.absorb`."""
        self._merged = merge(self._merged, kept)

    def size_bytes(self) -> int:
        """See `State.size_bytes`."""
        return STATE_BYTES + value_bytes(self._merged)
