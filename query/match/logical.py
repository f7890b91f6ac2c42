"""And, or, nor and not."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ...common.errors import BadValue
from ...common.values import Document
from .base import (
    AlwaysFalse,
    AlwaysTrue,
    MatchContext,
    MatchNode,
    PathNode,
    PositionFinder,
    Predicate,
    ValueTest,
    Variables,
)


class _Group(MatchNode):
    """Several nodes under one operator."""

    operator = ""

    def __init__(self, children: Sequence[MatchNode]) -> None:
        self._children = tuple(children)

    def children(self) -> Sequence[MatchNode]:
        """See `MatchNode.children`."""
        return self._children

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {self.operator: [child.serialize() for child in self._children]}

    def fields(self) -> frozenset[str] | None:
        """See `MatchNode.fields`."""
        found: set[str] = set()
        for child in self._children:
            fields = child.fields()
            if fields is None:
                return None
            found |= fields
        return frozenset(found)


class And(_Group):
    """All of the nodes match."""

    rank = 0

    operator = "$and"

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        return all_of([child.compile(variables) for child in self._children])

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        return all_of([child.value_test(variables) for child in self._children])

    def simplified(self) -> MatchNode:
        """See `MatchNode.simplified`."""
        kept: list[MatchNode] = []
        for child in self._children:
            simple = child.simplified()
            if isinstance(simple, AlwaysFalse):
                return simple
            if isinstance(simple, And):
                kept.extend(simple.children())
            elif not isinstance(simple, AlwaysTrue):
                kept.append(simple)
        if not kept:
            return AlwaysTrue()
        return kept[0] if len(kept) == 1 else And(_in_order(kept))

    def position(self, variables: Variables | None = None) -> PositionFinder | None:
        """See `MatchNode.position`: the last node that tells one decides."""
        finders = [finder for child in self._children if (finder := child.position(variables)) is not None]
        if not finders:
            return None

        def find(document: Document) -> int | None:
            found = (finder(document) for finder in reversed(finders))
            return next((position for position in found if position is not None), None)

        return find


class Or(_Group):
    """At least one of the nodes matches."""

    rank = 1

    operator = "$or"

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        return _any_of([child.compile(variables) for child in self._children])

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        return _any_of([child.value_test(variables) for child in self._children])

    def simplified(self) -> MatchNode:
        """See `MatchNode.simplified`."""
        kept: list[MatchNode] = []
        for child in self._children:
            simple = child.simplified()
            if isinstance(simple, AlwaysTrue):
                return simple
            if isinstance(simple, Or):
                kept.extend(simple.children())
            elif not isinstance(simple, AlwaysFalse):
                kept.append(simple)
        if not kept:
            return AlwaysFalse()
        kept = _joined(kept)
        return kept[0] if len(kept) == 1 else Or(_in_order(kept))


class Nor(_Group):
    """None of the nodes matches."""

    rank = 19

    operator = "$nor"

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        some = _any_of([child.compile(variables) for child in self._children])
        return lambda document: not some(document)

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        some = _any_of([child.value_test(variables) for child in self._children])
        return lambda value: not some(value)

    def simplified(self) -> MatchNode:
        """See `MatchNode.simplified`."""
        kept: list[MatchNode] = []
        for child in self._children:
            simple = child.simplified()
            if isinstance(simple, AlwaysTrue):
                return AlwaysFalse()
            if not isinstance(simple, AlwaysFalse):
                kept.append(simple)
        return Nor(_in_order(kept)) if kept else AlwaysTrue()


class Not(MatchNode):
    """The node does not match; what is missing counts as not matching, so that the negation holds for it."""

    rank = 18

    def __init__(self, child: MatchNode) -> None:
        self.child = child

    def children(self) -> Sequence[MatchNode]:
        """See `MatchNode.children`."""
        return (self.child,)

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`."""
        matches = self.child.compile(variables)
        return lambda document: not matches(document)

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        test = self.child.value_test(variables)
        return lambda value: not test(value)

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        if isinstance(self.child, PathNode):
            return {self.child.path: {"$not": self.child.condition()}}
        return {"$nor": [self.child.serialize()]}

    def fields(self) -> frozenset[str] | None:
        """See `MatchNode.fields`."""
        return self.child.fields()

    def simplified(self) -> MatchNode:
        """See `MatchNode.simplified`."""
        simple = self.child.simplified()
        if isinstance(simple, Not):
            return simple.child
        if isinstance(simple, AlwaysFalse):
            return AlwaysTrue()
        if isinstance(simple, AlwaysTrue):
            return AlwaysFalse()
        return Not(simple)


def _in_order(nodes: Sequence[MatchNode]) -> list[MatchNode]:
    return sorted(nodes, key=lambda node: node.order())


def _joined(nodes: Sequence[MatchNode]) -> list[MatchNode]:
    """The nodes of a disjunction, with those that can be one node made one: equalities on a path become `$in`."""
    groups: dict[Hashable, list[MatchNode]] = {}
    for node in nodes:
        groups.setdefault(node.alternative_key() or id(node), []).append(node)
    return [group[0].joined(group[1:]) if len(group) > 1 else group[0] for group in groups.values()]


def all_of(tests: list[ValueTest]) -> ValueTest:
    """One test that holds when all of them do."""
    if not tests:
        return lambda _: True
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:
        first, second = tests
        return lambda value: first(value) and second(value)

    def every(value: Any) -> bool:
        for test in tests:  # noqa: SIM110 (a generator is slower)
            if not test(value):
                return False
        return True

    return every


def _any_of(tests: list[ValueTest]) -> ValueTest:
    if len(tests) == 1:
        return tests[0]

    def some(value: Any) -> bool:
        for test in tests:  # noqa: SIM110 (a generator is slower)
            if test(value):
                return True
        return False

    return some


def _clauses(operator: str, operand: Any, context: MatchContext) -> Iterable[MatchNode]:
    if not isinstance(operand, list):
        raise BadValue(f"{operator} must be an array")
    if not operand:
        raise BadValue(f"{operator} argument must be a non-empty array")
    for clause in operand:
        if not isinstance(clause, dict):
            raise BadValue(f"{operator} argument's entries must be objects")
        yield context.filter(clause)


def parse_and(operand: Any, context: MatchContext) -> MatchNode:
    """`$and: [query, …]`."""
    return And(list(_clauses("$and", operand, context)))


def parse_or(operand: Any, context: MatchContext) -> MatchNode:
    """`$or: [query, …]`."""
    return Or(list(_clauses("$or", operand, context)))


def parse_nor(operand: Any, context: MatchContext) -> MatchNode:
    """`$nor: [query, …]`."""
    return Nor(list(_clauses("$nor", operand, context)))
