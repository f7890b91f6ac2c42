"""The paths of an update as a tree, and how the tree is laid over a document.

Every operator sees the document as it was. Only what changes is copied; a part that stays is the same object
afterwards.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...common.display import element_text
from ...common.errors import (
    BadValue,
    CannotBackfillArray,
    ConflictingUpdateOperators,
    DollarPrefixedFieldName,
    PathNotViable,
)
from ...common.paths import as_object, is_index
from ...common.values import MISSING, Document
from ..match.base import ValueTest
from .base import Change, Modifier

PADDING_MAX: Final = 1_500_000
ALL_ELEMENTS: Final = ""


class Node(ABC):
    """A place in the tree."""

    @abstractmethod
    def applied(self, value: Any, path: str, change: Change) -> Any:
        """The new value for the value at this place: the same object when nothing changes, MISSING when it goes."""

    @abstractmethod
    def merged(self, other: "Node", path: str) -> "Node":
        """One node that does what both do."""

    @abstractmethod
    def leaves(self) -> Iterator["Leaf"]:
        """The operators at and below this place."""


class Leaf(Node):
    """Where an operator works."""

    def __init__(self, modifier: Modifier) -> None:
        self.modifier = modifier

    def applied(self, value: Any, path: str, change: Change) -> Any:
        """See `Node.applied`."""
        modifier = self.modifier
        if (modifier.insert_only and not change.is_insert) or (value is MISSING and not modifier.creates):
            return value
        return modifier.modified(value, path, change)

    def merged(self, other: Node, path: str) -> Node:
        """See `Node.merged`."""
        raise ConflictingUpdateOperators(f"Update created a conflict at '{path}'")

    def leaves(self) -> Iterator["Leaf"]:
        """See `Node.leaves`."""
        yield self


class Fields(Node):
    """Goes on by field names, array positions, and `$`."""

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.positional: Node | None = None

    def child(self, name: str) -> Node | None:
        """What is below a name."""
        return self.positional if name == "$" else self.children.get(name)

    def put(self, name: str, node: Node) -> None:
        """Sets what is below a name."""
        if name == "$":
            self.positional = node
        else:
            self.children[name] = node

    def leaves(self) -> Iterator[Leaf]:
        """See `Node.leaves`."""
        if self.positional is not None:
            yield from self.positional.leaves()
        for child in self.children.values():
            yield from child.leaves()

    def merged(self, other: Node, path: str) -> Node:
        """See `Node.merged`."""
        if not isinstance(other, Fields):
            raise ConflictingUpdateOperators(f"Update created a conflict at '{path}'")
        both = Fields()
        both.children = dict(self.children)
        for name, node in other.children.items():
            mine = both.children.get(name)
            both.children[name] = node if mine is None else mine.merged(node, f"{path}.{name}")
        if self.positional is not None and other.positional is not None:
            both.positional = self.positional.merged(other.positional, f"{path}.$")
        else:
            both.positional = self.positional or other.positional
        return both

    def applied(self, value: Any, path: str, change: Change) -> Any:
        """See `Node.applied`."""
        if type(value) is list:
            return self._applied_to_array(value, path, change)
        if value is MISSING:
            made = self.applied_to_object({}, path, change)
            return made if made else MISSING
        document = as_object(value)
        if document is not None:
            result = self.applied_to_object(document, path, change)
            return value if result is document else result
        for name, child in self._ordered(path, change):
            self._blocked(name, child, value, path, change)
        return value

    def applied_to_object(self, document: Document, path: str, change: Change) -> Document:
        """The object with every change below it; the same object when there is none."""
        result: Document | None = None
        for name, child in self._ordered(path, change):
            old = document.get(name, MISSING)
            below = f"{path}.{name}" if path else name
            new = child.applied(old, below, change)
            if new is old:
                continue
            if result is None:
                result = dict(document)
            if new is MISSING:
                del result[name]
            else:
                if not path and not change.is_insert:
                    check_top_name(name)
                result[name] = new
        return document if result is None else result

    def _applied_to_array(self, array: list[Any], path: str, change: Change) -> list[Any]:
        result: list[Any] | None = None
        for name, child in self._ordered(path, change):
            if not is_index(name):
                self._blocked(name, child, array, path, change)
                continue
            at = int(name)
            held = array if result is None else result
            old = held[at] if at < len(held) else MISSING
            new = child.applied(old, f"{path}.{name}", change)
            if new is old:
                continue
            if result is None:
                result = list(array)
            if at < len(result):
                # An element that goes leaves null behind: the others keep their places.
                result[at] = None if new is MISSING else new
            else:
                if at - len(result) > PADDING_MAX:
                    raise CannotBackfillArray(f"can't backfill more than {PADDING_MAX} elements")
                result.extend([None] * (at - len(result)))
                result.append(new)
        return array if result is None else result

    def _blocked(self, name: str, child: Node, value: Any, path: str, change: Change) -> None:
        """Refuses to go on below a value that has no such place, unless all operators below pass over that."""
        for leaf in child.leaves():
            modifier = leaf.modifier
            if not modifier.skips_blocked and (change.is_insert or not modifier.insert_only):
                raise PathNotViable(
                    f"Cannot create field '{name}' in element {{{element_text(path.rpartition('.')[2], value)}}}"
                )

    def _ordered(self, path: str, change: Change) -> list[tuple[str, Node]]:
        children = self.children
        if self.positional is not None:
            if change.position is None:
                raise BadValue("The positional operator did not find the match needed from the query.")
            name = str(change.position)
            mine = children.get(name)
            node = self.positional if mine is None else mine.merged(self.positional, f"{path}.{name}")
            children = {**children, name: node}
        if len(children) == 1:
            return list(children.items())
        return sorted(children.items(), key=lambda pair: _name_order(pair[0]))


def _name_order(name: str) -> tuple[int, int, str]:
    return (0, int(name), "") if is_index(name) else (1, 0, name)


class Elements(Node):
    """Goes on into all elements of an array (`$[]`) and into those that filters choose (`$[name]`)."""

    def __init__(self, filters: Mapping[str, ValueTest]) -> None:
        self.children: dict[str, Node] = {}
        self._filters = filters

    def leaves(self) -> Iterator[Leaf]:
        """See `Node.leaves`."""
        for child in self.children.values():
            yield from child.leaves()

    def merged(self, other: Node, path: str) -> Node:
        """See `Node.merged`."""
        if not isinstance(other, Elements):
            raise ConflictingUpdateOperators(f"Update created a conflict at '{path}'")
        both = Elements(self._filters)
        both.children = dict(self.children)
        for name, node in other.children.items():
            mine = both.children.get(name)
            both.children[name] = node if mine is None else mine.merged(node, f"{path}.$[{name}]")
        return both

    def applied(self, value: Any, path: str, change: Change) -> Any:
        """See `Node.applied`."""
        if all(leaf.modifier.insert_only for leaf in self.leaves()) and not change.is_insert:
            return value
        if value is MISSING:
            raise BadValue(f"The path '{path}' must exist in the document in order to apply array updates.")
        if type(value) is not list:
            raise BadValue(
                f"Cannot apply array updates to non-array element {element_text(path.rpartition('.')[2], value)}"
            )
        result: list[Any] | None = None
        for at, element in enumerate(value):
            below = f"{path}.{at}"
            node = self._node_for(element, below)
            if node is None:
                continue
            new = node.applied(element, below, change)
            if new is not element:
                if result is None:
                    result = list(value)
                result[at] = None if new is MISSING else new
        return value if result is None else result

    def _node_for(self, element: Any, path: str) -> Node | None:
        chosen: Node | None = None
        for name, child in self.children.items():
            if name == ALL_ELEMENTS or self._filters[name](element):
                chosen = child if chosen is None else chosen.merged(child, path)
        return chosen


def check_top_name(name: str) -> None:
    """Refuses names that a document's own fields may not get by an update."""
    if name.startswith("$") and name not in ("$id", "$ref", "$db"):
        raise DollarPrefixedFieldName(
            f"The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's "
            "replacement document. Consider using an aggregation pipeline with $replaceWith."
        )
