"""What every part of a predicate is: a node that compiles to a function and prints itself.

Parsing (parse.py and the families) makes the tree and finds every fault of the request; compiling makes closures that
run once per document. A node also tells how it judges one value by itself, which is how `$elemMatch`, `$pull` and
array filters look at elements.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from ...common.ordering import Collator
from ...common.paths import Path, as_object, path_values, positioned_values, split_path
from ...common.values import MISSING, Document

Predicate = Callable[[Document], bool]
PositionFinder = Callable[[Document], int | None]
ValueTest = Callable[[Any], bool]
Variables = Mapping[str, Any]

NO_VARIABLES: Final[Variables] = {}


class MatchNode(ABC):
    """A part of a predicate.

    `rank` orders the nodes below a conjunction or disjunction: in this order they are shown and tried.
    """

    rank: int = 100

    @abstractmethod
    def compile(self, variables: Variables | None = None) -> Predicate:
        """A function that tells whether a document matches."""

    @abstractmethod
    def serialize(self) -> Document:
        """The node as a query, in the normal form that explain shows."""

    @abstractmethod
    def fields(self) -> frozenset[str] | None:
        """The paths that decide; None when that cannot be told."""

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """A function that judges one value by itself; here: the value as a document."""
        matches = self.compile(variables)

        def test(value: Any) -> bool:
            document = as_object(value)
            return document is not None and matches(document)

        return test

    def position(self, variables: Variables | None = None) -> PositionFinder | None:
        """A function that gives the position, in an array of the document, of the element that made it match.

        It is what `$` stands for in updates and projections. None when the node never tells one.
        """
        return None

    def simplified(self) -> "MatchNode":
        """The node in its simplest form with the same meaning."""
        return self

    def order(self) -> tuple[Any, ...]:
        """Where the node stands among its siblings."""
        return (self.rank, "", tuple(child.order() for child in self.children()))

    def alternative_key(self) -> Hashable | None:
        """Equal for nodes of a disjunction that can be one node; None where there is no such node."""
        return None

    def joined(self, others: "Sequence[MatchNode]") -> "MatchNode":
        """One node that matches what this one or any of the others matches; all have the same `alternative_key`."""
        raise TypeError(f"{type(self).__name__} cannot be joined")

    def children(self) -> Sequence["MatchNode"]:
        """The nodes directly below."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.serialize()!r})"


class AlwaysTrue(MatchNode):
    """Matches everything: the empty query."""

    rank = 25

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        return lambda _: True

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        return lambda _: True

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {}

    def fields(self) -> frozenset[str]:
        """See `MatchNode.fields`."""
        return frozenset()


class AlwaysFalse(MatchNode):
    """Matches nothing."""

    rank = 24

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        return lambda _: False

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        return lambda _: False

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {"$alwaysFalse": 1}

    def fields(self) -> frozenset[str]:
        """See `MatchNode.fields`."""
        return frozenset()


class PathNode(MatchNode):
    """A condition on the values that a path leads to.

    `expand` says whether an array at the end of the path is tried by its elements too.
    """

    expand: bool = True

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts: Path = split_path(path)

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        return on_path(self.parts, self.value_test(variables), expand=self.expand)

    @abstractmethod
    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""

    def order(self) -> tuple[Any, ...]:
        """See `MatchNode.order`."""
        return (self.rank, self.path, tuple(child.order() for child in self.children()))

    def element_position(self, value: Any, variables: Variables | None = None) -> int | None:
        """The position within the value that decided, where the condition itself looks at elements."""
        return None

    def position(self, variables: Variables | None = None) -> PositionFinder | None:
        """See `MatchNode.position`."""
        test = self.value_test(variables)

        def find(document: Document) -> int | None:
            for value, position in positioned_values(document, self.parts, expand=self.expand):
                if test(value):
                    return self.element_position(value, variables) if position is None else position
            return None

        return find

    @abstractmethod
    def condition(self) -> Document:
        """The operator and its operand, without the path."""

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {self.path: self.condition()}

    def fields(self) -> frozenset[str]:
        """See `MatchNode.fields`."""
        return frozenset((self.path,))


def holds(node: MatchNode, kind: type[MatchNode]) -> bool:
    """Whether there is a node of a kind anywhere in a tree."""
    return isinstance(node, kind) or any(holds(child, kind) for child in node.children())


def on_path(parts: Sequence[str], test: ValueTest, *, expand: bool = True) -> Predicate:
    """A predicate on documents: whether the test holds for any value that the path leads to."""
    if len(parts) == 1:
        return _on_field(parts[0], test, expand)
    path = tuple(parts)
    first, rest = path[0], path[1:]
    last = len(rest) - 1

    def matches(document: Document) -> bool:
        value = document.get(first, MISSING)
        for at, part in enumerate(rest):
            if type(value) is not dict:
                return any(test(found) for found in path_values(value, rest[at:], expand=expand))
            value = value.get(part, MISSING)
            if value is MISSING:
                return test(MISSING)
            if at == last and expand and type(value) is list:
                return any(map(test, value)) or test(value)
        return test(value)

    return matches


def _on_field(name: str, test: ValueTest, expand: bool) -> Predicate:
    if not expand:
        return lambda document: test(document.get(name, MISSING))

    def matches(document: Document) -> bool:
        value = document.get(name, MISSING)
        if type(value) is list:
            return any(map(test, value)) or test(value)
        return test(value)

    return matches


class MatchContext(ABC):
    """What a family of operators needs to know and may ask for while it parses."""

    def __init__(self, collator: Collator | None, defined_variables: frozenset[str]) -> None:
        self.collator = collator
        self.defined_variables = defined_variables

    @abstractmethod
    def filter(self, document: Document, *, nested: bool = True) -> MatchNode:
        """Parses a whole query; `nested` refuses what is allowed at the top alone."""

    @abstractmethod
    def operators(self, path: str, document: Document) -> list[MatchNode]:
        """Parses `{$op: operand, …}` on a path."""


OperatorParser = Callable[[str, Any, Document, MatchContext], MatchNode | None]
"""Parses one operator: the path, the operand, the whole document of operators around it. None: nothing to match."""
