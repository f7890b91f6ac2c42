"""Projections of find and of `$project`: which fields a document shows, and in what form.

`find=True` admits what only find knows: the positional `a.$`, `$elemMatch` and `$slice` of an array in place.
"""

from collections.abc import Callable, Set
from enum import Enum
from typing import Any

from ..common.display import value_text
from ..common.errors import BadValue, InvalidPipelineOperator, Location, QueryFeatureNotAllowed
from ..common.field_paths import parse_field_path
from ..common.numbers import INT32_MAX, INT32_MIN, is_number, truncated
from ..common.ordering import Collator
from ..common.paths import Path, as_object, get_path
from ..common.values import MISSING, Document, type_name
from .expression.base import Expression
from .expression.metadata import META_KINDS
from .expression.parse import ParseContext, parse_expression
from .match.base import MatchNode, PositionFinder, holds
from .match.elements import ElemMatchObject, ElemMatchValue, truthy
from .match.evaluation import ExprMatch
from .match.parse import parse_elements
from .match.schema import JsonSchema
from .projection_nodes import Computed, ProjectionNode, Variables

Metadata = dict[str, Any]
Rewrite = Callable[[Document, Document, int | None], Document]
"""Changes a projected document: the projected one, the original one, the position that `$` stands for."""


class Projection:
    """A projection, ready to be applied to documents."""

    def __init__(
        self,
        root: ProjectionNode,
        *,
        metas: list[tuple[Path, str]],
        rewrites: list[Rewrite],
        position: PositionFinder | None,
        positional: bool,
    ) -> None:
        root.finish()
        self._root = root
        self._metas = metas
        self._rewrites = rewrites
        self._position = position
        self._positional = positional

    @property
    def is_inclusion(self) -> bool:
        """Whether only what is named stays."""
        return self._root.inclusion

    @property
    def needs_metadata(self) -> frozenset[str]:
        """The kinds of metadata that rows need to carry."""
        return frozenset(kind for _, kind in self._metas)

    @property
    def is_plain_inclusion(self) -> bool:
        """Whether some fields stay and others are computed, and that is all."""
        return self.is_inclusion and not (self._metas or self._rewrites or self._positional)

    @property
    def is_identity(self) -> bool:
        """Whether every document stays as it is."""
        return not (self.is_inclusion or self._metas or self._rewrites or self._root.order or self._root.named)

    @property
    def named_only(self) -> frozenset[str] | None:
        """The top-level fields kept or dropped, when the projection does nothing else."""
        if self._metas or self._rewrites or self._root.order:
            return None
        return frozenset(self._root.named)

    def kept_whole(self, names: Set[str]) -> bool | None:
        """Whether all these fields of the top level come through as they are; None when that cannot be told."""
        if self._positional or self._rewrites:
            return None
        changed = {path[0] for path, _ in self._metas} | set(self._root.order)
        if self._root.inclusion:
            return names <= self._root.named - changed
        return names.isdisjoint(changed | self._root.named)

    def required_fields(self) -> frozenset[str] | None:
        """The paths that the projection reads; None when it reads the whole document."""
        if not self.is_inclusion or self._positional:
            return None
        paths = {*self._root.paths(), *self._root.shaped()}
        for expression in self._root.expressions():
            fields = expression.fields()
            if fields is None:
                return None
            paths |= fields
        return frozenset(paths)

    def apply(
        self,
        document: Document,
        variables: Variables,
        matched_position: int | None = None,
        metadata: Metadata | None = None,
    ) -> Document:
        """The document as the projection shows it. `matched_position` is what `$` stands for, when it is known."""
        out = self._root.apply(document, document, variables)
        if self._rewrites:
            if self._positional and matched_position is None and self._position is not None:
                matched_position = self._position(document)
            for rewrite in self._rewrites:
                out = rewrite(out, document, matched_position)
        for path, kind in self._metas:
            _put(out, path, MISSING if metadata is None else metadata.get(kind, MISSING))
        return out

    def serialize(self) -> Document:
        """The projection in its normal form, as explain shows it."""
        shown = self._root.serialize()
        identity = shown.pop("_id", None)
        if identity is not None:
            shown = {"_id": identity, **shown}
        elif self.is_inclusion:
            shown["_id"] = False
        for path, kind in self._metas:
            shown[".".join(path)] = {"$meta": kind}
        return shown


def _put(document: Document, path: Path, value: Any) -> None:
    """Sets a path in a document that nobody else holds, or takes it away when the value is MISSING."""
    for part in path[:-1]:
        below = document.get(part)
        if value is MISSING and not isinstance(below, dict):
            return
        below = dict(below) if isinstance(below, dict) else {}
        document[part] = below
        document = below
    if value is MISSING:
        document.pop(path[-1], None)
    else:
        document[path[-1]] = value


class _FirstElement:
    """The first element of an array field that matches, as an array; missing when none does."""

    def __init__(self, path: Path, node: ElemMatchObject | ElemMatchValue) -> None:
        self._path = path
        self._node = node
        self._test = node.element_test()

    def evaluate(self, document: Document, variables: Variables) -> Any:
        """See `Computed.evaluate`."""
        value = get_path(document, self._path)
        if type(value) is not list:
            return MISSING
        for element in value:
            if self._test(element):
                return [element]
        return MISSING

    def fields(self) -> frozenset[str]:
        """See `Computed.fields`."""
        return frozenset((".".join(self._path),))

    def serialize(self) -> Any:
        """See `Computed.serialize`."""
        return self._node.condition()


class _Leaf(Enum):
    """What becomes of a field that is not computed."""

    KEPT = 1
    DROPPED = 2
    SLICED = 3
    META = 4


class _Parser:
    """One walk over a projection document."""

    def __init__(self, *, filter: MatchNode | None, collator: Collator | None, find: bool, variables: frozenset[str]):
        self._filter = filter
        self._collator = collator
        self._find = find
        self._variables = variables
        self._inclusion: bool | None = None
        self._id_kept: bool | None = None
        self._leaves: dict[Path, Computed | _Leaf] = {}
        self._inner: set[Path] = set()
        self._metas: list[tuple[Path, str]] = []
        self._rewrites: list[Rewrite] = []
        self._positional = False
        self._element_match = False

    def parse(self, spec: Document) -> Projection:
        for name, value in spec.items():
            self._field((), name, value)
        inclusion = self._inclusion
        if inclusion is None:
            inclusion = self._element_match or bool(self._id_kept)
        root = ProjectionNode(inclusion=inclusion)
        for path, leaf in self._leaves.items():
            node = root
            for part in path[:-1]:
                node = node.child(part)
            if not isinstance(leaf, _Leaf):
                node.compute(path[-1], leaf)
            elif leaf is (_Leaf.KEPT if inclusion else _Leaf.DROPPED) or (leaf is _Leaf.SLICED and inclusion):
                node.named.add(path[-1])
        if inclusion and ("_id",) not in self._leaves and ("_id",) not in self._inner:
            root.named.add("_id")
        return Projection(
            root,
            metas=self._metas,
            rewrites=self._rewrites,
            position=self._position_finder() if self._positional else None,
            positional=self._positional,
        )

    def _position_finder(self) -> PositionFinder | None:
        return None if self._filter is None else self._filter.position()

    def _field(self, prefix: Path, name: str, value: Any) -> None:
        if name.endswith(".$") and not prefix:
            self._positional_field(name, value)
            return
        if self._find and ".$." in name:
            raise Location(31394, "As of 4.4, it's illegal to specify positional operator in the middle of a path.")
        path = (*prefix, *parse_field_path(name))
        if isinstance(value, dict):
            self._object(path, value)
        elif isinstance(value, bool) or is_number(value):
            self._flag(path, truthy(value))
        else:
            self._computed(path, value)

    def _flag(self, path: Path, keep: bool) -> None:
        if path == ("_id",):
            self._id_kept = keep
        else:
            self._mode(path, inclusion=keep)
        self._leaf(path, _Leaf.KEPT if keep else _Leaf.DROPPED)

    def _mode(self, path: Path, *, inclusion: bool) -> None:
        if self._inclusion is None:
            self._inclusion = inclusion
        elif self._inclusion is not inclusion:
            shown = ".".join(path)
            if inclusion:
                raise Location(31253, f"Cannot do inclusion on field {shown} in exclusion projection")
            raise Location(31254, f"Cannot do exclusion on field {shown} in inclusion projection")

    def _leaf(self, path: Path, leaf: "Computed | _Leaf") -> None:
        shown = ".".join(path)
        if path in self._inner or path in self._leaves:
            raise Location(31250, f"Path collision at {shown}")
        for end in range(1, len(path)):
            if path[:end] in self._leaves:
                raise Location(31249, f"Path collision at {shown} remaining portion {'.'.join(path[end:])}")
        self._inner.update(path[:end] for end in range(1, len(path)))
        self._leaves[path] = leaf

    def _object(self, path: Path, value: Document) -> None:
        shown = ".".join(path)
        if not value:
            raise Location(51270, f"An empty sub-projection is not a valid value. Found empty object at path {shown}")
        operator = next(iter(value))
        if not operator.startswith("$"):
            for name, item in value.items():
                self._field(path, name, item)
            return
        if len(value) > 1:
            parse_field_path(operator)
        operand = value[operator]
        if operator == "$elemMatch" and self._find:
            self._elements(path, operand)
        elif operator == "$slice" and self._find and path not in self._leaves and _is_find_slice(operand):
            self._slice(path, operand)
        elif operator == "$meta":
            self._meta(path, operand)
        else:
            self._computed(path, value)

    def _computed(self, path: Path, value: Any) -> None:
        shown = ".".join(path)
        if self._inclusion is False:
            if isinstance(value, dict):
                raise Location(31252, f"Cannot use expression other than $meta in exclusion projection: {shown}")
            raise Location(31310, f"Cannot use an expression {value_text({shown: value})} in an exclusion projection")
        expression = self._expression(value)
        self._inclusion = True
        self._leaf(path, expression)

    def _expression(self, value: Any) -> Expression:
        try:
            return parse_expression(value, ParseContext(collator=self._collator, variables=self._variables))
        except InvalidPipelineOperator as error:
            operator = next(iter(value)) if isinstance(value, dict) and value else ""
            if operator != "$elemMatch" and operator and error.message.endswith(f"'{operator}'"):
                raise Location(31325, f"Unknown expression {operator}") from error
            raise

    # What find alone knows.

    def _positional_field(self, name: str, value: Any) -> None:
        if not self._find:
            raise Location(31324, "Cannot use positional projection in aggregation projection")
        if ".$." in name:
            raise Location(31394, "As of 4.4, it's illegal to specify positional operator in the middle of a path.")
        path = parse_field_path(name.removesuffix(".$"))
        if isinstance(value, dict):
            raise Location(31271, f"positional projection cannot be used with {value_text(value)}")
        if not isinstance(value, bool) and not is_number(value):
            raise Location(31308, f"positional projection cannot be used with a literal: {value_text(value)}")
        if not truthy(value):
            raise Location(31395, "positional projection cannot be used with exclusion")
        if self._positional:
            raise Location(31276, "Cannot specify more than one positional projection per query.")
        if self._element_match:
            raise Location(31256, "Cannot specify positional operator and $elemMatch in the same projection.")
        if self._filter is not None and holds(self._filter, ExprMatch):
            raise QueryFeatureNotAllowed("Cannot use positional projection with $expr")
        self._mode(path, inclusion=True)
        self._leaf(path, _Leaf.KEPT)
        self._positional = True
        self._rewrites.append(lambda out, document, position: _only_matched(out, path, position))

    def _elements(self, path: Path, operand: Any) -> None:
        if not isinstance(operand, dict):
            raise Location(31274, f"elemMatch: Invalid argument, object required, but got {type_name(operand)}")
        if self._positional:
            raise Location(31255, "Cannot specify positional operator and $elemMatch in the same projection.")
        if len(path) > 1:
            raise Location(31275, "Cannot use $elemMatch projection on a nested field.")
        if "$jsonSchema" in operand:
            raise QueryFeatureNotAllowed("$jsonSchema is not allowed in this context")
        node = parse_elements(operand, collator=self._collator, defined_variables=self._variables)
        if holds(node, JsonSchema):
            raise QueryFeatureNotAllowed("$jsonSchema is not allowed in this context")
        self._element_match = True
        self._leaf(path, _FirstElement(path, node))

    def _slice(self, path: Path, operand: Any) -> None:
        if isinstance(operand, list):
            skip, limit = (_int32(item) for item in operand)
            if limit <= 0:
                raise Location(
                    28724, f"First argument to $slice must be an array, but is of type: {type_name(operand[0])}"
                )
        else:
            skip, limit = None, _int32(operand)
        self._leaf(path, _Leaf.SLICED)
        self._rewrites.append(lambda out, document, position: _sliced(out, path, skip, limit))

    def _meta(self, path: Path, operand: Any) -> None:
        if type(operand) is not str:
            raise Location(17307, "$meta only supports string arguments")
        if operand not in META_KINDS:
            raise Location(17308, f"Unsupported argument to $meta: {operand}")
        self._leaf(path, _Leaf.META)
        self._metas.append((path, operand))


def _is_find_slice(operand: Any) -> bool:
    if isinstance(operand, list):
        return len(operand) == 2 and all(is_number(item) for item in operand)
    return is_number(operand)


def _int32(value: Any) -> int:
    number = truncated(value)
    return 0 if number is None else max(INT32_MIN, min(INT32_MAX, number))


def _sliced(value: Any, path: Path, skip: int | None, limit: int) -> Any:
    if type(value) is list:
        if path:
            return [_sliced(item, path, skip, limit) if as_object(item) is not None else item for item in value]
        return _cut(value, skip, limit)
    document = as_object(value)
    if not path or document is None or path[0] not in document:
        return value
    return {**document, path[0]: _sliced(document[path[0]], path[1:], skip, limit)}


def _cut(array: list[Any], skip: int | None, limit: int) -> list[Any]:
    if skip is None:
        return array[:limit] if limit >= 0 else array[limit:]
    start = skip if skip >= 0 else max(0, len(array) + skip)
    return array[start : start + limit]


def _only_matched(value: Any, path: Path, position: int | None) -> Any:
    """The value with the first array on the path cut down to the element that matched."""
    if type(value) is list:
        if position is None:
            raise Location(
                51246,
                "Executor error during find command :: caused by :: positional operator '.$' couldn't find a matching "
                "element in the array",
            )
        if position >= len(value):
            raise Location(
                51247,
                "Executor error during find command :: caused by :: positional operator '.$' element mismatch",
            )
        return [value[position]]
    document = as_object(value)
    if not path or document is None or path[0] not in document:
        return value
    return {**document, path[0]: _only_matched(document[path[0]], path[1:], position)}


def parse_projection(
    spec: Any,
    *,
    filter: MatchNode | None = None,
    collator: Collator | None = None,
    find: bool = True,
    defined_variables: frozenset[str] = frozenset(),
) -> Projection:
    """The projection of a document: of find, or with `find=False` of `$project`.

    `filter` is the query, by which `$` finds its element.
    """
    if not isinstance(spec, dict):
        if find:
            raise BadValue("projection must be an object")
        raise Location(15969, "$project specification must be an object")
    if not spec and not find:
        raise Location(51272, "Invalid $project :: caused by :: projection specification must have at least one field")
    return _Parser(filter=filter, collator=collator, find=find, variables=defined_variables).parse(spec)
