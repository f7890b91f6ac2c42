"""Accumulators: what `$group`, `$bucket` and windows gather over many documents.

An accumulator is parsed once into a factory; each group has a state of its own that takes values one by one and tells the
result in the end. A state can hand over what it holds and take it back, so that groups may wait on disk. Result types are
those of the arithmetic expressions: sums keep int32 and int64 as long as they fit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...common.errors import ExceededMemoryLimit
from ...common.values import Document, encode
from ..expression.base import Expression, Variables

Evaluate = Callable[[Document, Variables], Any]

STATE_BYTES: Final = 200
"""About what a state takes beside its values."""
_VALUE_BYTES_MAX: Final = 100 * 1024 * 1024


class State(ABC):
    """What one group has gathered."""

    __slots__ = ()

    @abstractmethod
    def add(self, document: Document, variables: Variables) -> None:
        """Take the value of one more document."""

    @abstractmethod
    def result(self) -> Any:
        """What was gathered."""

    @abstractmethod
    def kept(self) -> Any:
        """All that it has gathered, in values that can be written down."""

    @abstractmethod
    def absorb(self, kept: Any) -> None:
        """Take what a state of the same accumulator had kept; what came to that one came after what is here."""

    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return STATE_BYTES


@dataclass(slots=True)
class Accumulator:
    """A parsed accumulator: its name, what it reads, and how to begin a state."""

    name: str
    expression: Expression
    begin: Callable[[Document], State]
    """Takes the `_id` of the group where that is a document, else an empty one."""
    shown: Any

    def serialize(self) -> Document:
        """The accumulator in the normal form that explain shows."""
        return {self.name: self.shown}

    def fields(self) -> frozenset[str] | None:
        """The paths that it reads."""
        return self.expression.fields()


def value_bytes(value: Any) -> int:
    """About how much memory a value takes."""
    if isinstance(value, str):
        return len(value) + 60
    return len(encode({"": value})) * 3 if isinstance(value, dict | list) else 40


def check_bytes(name: str, size: int) -> None:
    """Refuse a single value of a group that outgrows its bound.

    Raises:
        ExceededMemoryLimit: it does.
    """
    if size > _VALUE_BYTES_MAX:
        raise ExceededMemoryLimit(
            f"{name} used too much memory and spilling to disk cannot reduce memory consumption any further. "
            f"Memory limit: {_VALUE_BYTES_MAX} bytes"
        )
