"""The tree of a projection: what stays, what goes, what is computed, level by level."""

from collections.abc import Iterator, Mapping, Set
from typing import Any, Protocol

from ..common.paths import as_object
from ..common.values import MISSING, Document

Variables = Mapping[str, Any]


class Computed(Protocol):
    """What gives a field a new value: every expression does."""

    def evaluate(self, document: Document, variables: Variables) -> Any:
        """The value, or MISSING."""
        ...

    def fields(self) -> Set[str] | None:
        """The paths it reads; None for the whole document."""
        ...

    def serialize(self) -> Any:
        """How it is written."""
        ...


class ProjectionNode:
    """One level of the tree.

    `named` are the fields that this level keeps (in an inclusion) or drops (in an exclusion); `children` go deeper;
    `computed` get a new value. Arrays are entered, at any depth of nesting.
    """

    def __init__(self, *, inclusion: bool) -> None:
        self.inclusion = inclusion
        self.named: set[str] = set()
        self.children: dict[str, ProjectionNode] = {}
        self.computed: dict[str, Computed] = {}
        self.order: list[str] = []
        self.has_computed = False

    def child(self, name: str) -> "ProjectionNode":
        """The level below a field, made when it is not there."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = ProjectionNode(inclusion=self.inclusion)
            self.order.append(name)
        return found

    def compute(self, name: str, expression: Computed) -> None:
        """Gives a field a computed value."""
        self.computed[name] = expression
        self.order.append(name)

    def finish(self) -> bool:
        """To be called when the tree is complete; returns whether anything below is computed."""
        below = [child.finish() for child in self.children.values()]
        self.has_computed = bool(self.computed) or any(below)
        return self.has_computed

    def apply(self, document: Document, root: Document, variables: Variables) -> Document:
        """The document as this level leaves it; expressions see `root`."""
        out = self._kept(document, root, variables) if self.inclusion else self._rest(document, root, variables)
        if self.has_computed:
            self._add_computed(document, out, root, variables)
        return out

    def paths(self, prefix: str = "") -> Iterator[str]:
        """The paths that are named, at any level."""
        for name in self.named:
            yield prefix + name
        for name, child in self.children.items():
            yield from child.paths(f"{prefix}{name}.")

    def shaped(self, prefix: str = "") -> Iterator[str]:
        """The paths within which something is computed: what lies there decides where the results go."""
        for name, child in self.children.items():
            if child.computed:
                yield prefix + name
            else:
                yield from child.shaped(f"{prefix}{name}.")

    def expressions(self) -> Iterator[Computed]:
        """The expressions at any level."""
        yield from self.computed.values()
        for child in self.children.values():
            yield from child.expressions()

    def _kept(self, document: Document, root: Document, variables: Variables) -> Document:
        named, children = self.named, self.children
        if not children:
            return {name: value for name, value in document.items() if name in named}
        out: Document = {}
        for name, value in document.items():
            if name in named:
                out[name] = value
            elif name in children:
                below = children[name].apply_to_value(value, root, variables)
                if below is not MISSING:
                    out[name] = below
        return out

    def _rest(self, document: Document, root: Document, variables: Variables) -> Document:
        named, children = self.named, self.children
        if not children:
            return {name: value for name, value in document.items() if name not in named}
        out: Document = {}
        for name, value in document.items():
            if name in children:
                out[name] = children[name].apply_to_value(value, root, variables)
            elif name not in named:
                out[name] = value
        return out

    def apply_to_value(self, value: Any, root: Document, variables: Variables) -> Any:
        """What this level makes of any value; MISSING when nothing is left of it."""
        document = as_object(value)
        if document is not None:
            return self.apply(document, root, variables)
        if type(value) is list:
            below = [self.apply_to_value(item, root, variables) for item in value]
            return [item for item in below if item is not MISSING]
        if self.has_computed:
            return self.apply({}, root, variables)
        return MISSING if self.inclusion else value

    def _add_computed(self, document: Document, out: Document, root: Document, variables: Variables) -> None:
        for name in self.order:
            expression = self.computed.get(name)
            if expression is not None:
                value = expression.evaluate(root, variables)
                if value is MISSING:
                    out.pop(name, None)
                else:
                    out[name] = value
            elif name not in document and self.children[name].has_computed:
                out[name] = self.children[name].apply({}, root, variables)

    def serialize(self) -> Document:
        """The tree in its normal form, without `_id`'s default."""
        shown: Document = dict.fromkeys(sorted(self.named), self.inclusion)
        for name in self.order:
            if name in self.computed:
                shown[name] = self.computed[name].serialize()
            else:
                shown[name] = self.children[name].serialize()
        return shown
