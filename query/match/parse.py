"""From a query document to a tree of nodes, with MongoDB's errors for what is none."""

import re
from collections.abc import Callable
from typing import Any, Final

from bson import Regex

from ...common.errors import BadValue, FailedToParse, Location
from ...common.ordering import Collator
from ...common.values import Document
from . import bits, comparison, elements, internal, patterns
from .base import AlwaysFalse, AlwaysTrue, MatchContext, MatchNode, OperatorParser
from .comparison import parse_equality
from .elements import ElemMatchObject, ElemMatchValue, is_operator_document, parse_elem_match
from .evaluation import parse_expr, parse_sample_rate, parse_where
from .geo import NEAR_OPERATORS, GeoNear, is_geo_document, parse_geo
from .logical import And, Or, parse_and, parse_nor, parse_or
from .schema import parse_json_schema
from .text import TextMatch, parse_text

PATH_OPERATORS: Final[dict[str, OperatorParser]] = {
    **comparison.OPERATORS,
    **elements.OPERATORS,
    **patterns.OPERATORS,
    **bits.OPERATORS,
    **internal.OPERATORS,
}
"""What may stand below a path."""


def _parse_comment(_operand: Any, _: MatchContext) -> MatchNode:
    return AlwaysTrue()


def _parse_constant(operator: str, node: type[MatchNode]) -> Callable[[Any, MatchContext], MatchNode]:
    def parse(operand: Any, _: MatchContext) -> MatchNode:
        if not isinstance(operand, (int, float)) or isinstance(operand, bool) or operand != 1:
            raise FailedToParse(f"{operator} must be an integer value of 1")
        return node()

    return parse


TOP_OPERATORS: Final[dict[str, Callable[[Any, MatchContext], MatchNode]]] = {
    "$and": parse_and,
    "$or": parse_or,
    "$nor": parse_nor,
    "$expr": parse_expr,
    "$jsonSchema": parse_json_schema,
    "$comment": _parse_comment,
    "$sampleRate": parse_sample_rate,
    "$text": parse_text,
    "$where": parse_where,
    "$alwaysTrue": _parse_constant("$alwaysTrue", AlwaysTrue),
    "$alwaysFalse": _parse_constant("$alwaysFalse", AlwaysFalse),
}
"""What may stand where a path may."""

_TOP_ONLY: Final = {
    "$expr": "$expr can only be applied to the top-level document",
    "$where": "$where can only be applied to the top-level document",
    "$text": "$text can only be applied to the top-level document",
}
_DEPTH_MAX: Final = 100


class _Parser(MatchContext):
    def __init__(
        self, collator: Collator | None, defined_variables: frozenset[str], *, in_elements: bool = False
    ) -> None:
        super().__init__(collator, defined_variables)
        self._depth = 0
        self._in_elements = int(in_elements)

    def elements(self, condition: Document) -> ElemMatchObject | ElemMatchValue:
        """Parses what `$elemMatch` wants of an element, wherever the array is."""
        return parse_elem_match("", condition, {}, self)

    def filter(self, document: Document, *, nested: bool = True) -> MatchNode:
        """See `MatchContext.filter`."""
        self._depth += 1
        if self._depth - 1 > _DEPTH_MAX:
            raise BadValue(f"exceeded maximum query tree depth of {_DEPTH_MAX}")
        children: list[MatchNode] = []
        for name, value in document.items():
            if name.startswith("$") and name not in ("$ref", "$id", "$db"):
                children.append(self._top(name, value))
            else:
                children.extend(self._field(name, value))
        self._depth -= 1
        return children[0] if len(children) == 1 else And(children) if children else AlwaysTrue()

    def _top(self, name: str, value: Any) -> MatchNode:
        parse = TOP_OPERATORS.get(name)
        if parse is None:
            raise BadValue(
                f"unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, "
                "consider using $getField or $setField."
            )
        if self._in_elements and name in _TOP_ONLY:
            raise BadValue(_TOP_ONLY[name])
        return parse(value, self)

    def _field(self, path: str, value: Any) -> list[MatchNode]:
        if is_operator_document(value):
            return self.operators(path, value)
        return [parse_equality(path, value, self)]

    def operators(self, path: str, document: Document) -> list[MatchNode]:
        """See `MatchContext.operators`."""
        if is_geo_document(document):
            return [parse_geo(path, document, self)]
        children: list[MatchNode] = []
        self._depth += 1
        if self._depth - 1 > _DEPTH_MAX:
            raise BadValue(f"exceeded maximum query tree depth of {_DEPTH_MAX}")
        for name, operand in document.items():
            if name == "$comment":
                continue
            parse = PATH_OPERATORS.get(name)
            if parse is None:
                raise BadValue(f"unknown operator: {name}")
            inner = name == "$elemMatch"
            self._in_elements += inner
            node = parse(path, operand, document, self)
            self._in_elements -= inner
            if node is not None:
                children.append(node)
        self._depth -= 1
        return children


def parse_filter(
    filter: Document,
    *,
    collator: Collator | None = None,
    defined_variables: frozenset[str] = frozenset(),
    allow_near: bool = True,
    allow_text: bool = True,
) -> MatchNode:
    """The tree of a query, in its simplest form.

    `defined_variables` are the names that `$expr` may use after `$$`; their values are given when the tree compiles.
    Where no plan of its own belongs to the query, `$near` and `$text` have no place.
    """
    if not allow_near and _mentions_near(filter):
        raise Location(5626500, _NEAR_NOT_HERE)
    node = _Parser(collator, defined_variables).filter(filter, nested=False)
    _Places(allow_near=allow_near, allow_text=allow_text).check(node, top=True)
    return node.simplified()


class _Places:
    """Refuses `$near` and `$text` where they may not stand, or together."""

    def __init__(self, *, allow_near: bool, allow_text: bool) -> None:
        self._allow_near = allow_near
        self._allow_text = allow_text
        self._near = False
        self._text = False

    def check(self, node: MatchNode, *, top: bool, either: bool = False) -> None:
        """Looks at a node and all below; `top` says that every document of the result matches the node.

        `either` says that every document matches this node or another below the same disjunction.
        """
        if isinstance(node, GeoNear):
            if not self._allow_near:
                raise Location(5626500, _NEAR_NOT_HERE)
            if not top:
                raise BadValue("geoNear must be top-level expr")
            if self._near:
                raise BadValue("Too many geoNear expressions")
            self._near = True
        if isinstance(node, TextMatch):
            if not self._allow_text:
                raise BadValue("$text is not allowed in this context")
            if not (top or either):
                raise BadValue("$text must be a top-level expression")
            if self._text:
                raise BadValue("Too many text expressions")
            self._text = True
        if self._near and self._text:
            raise BadValue("text and geoNear not allowed in same query")
        for child in node.children():
            self.check(
                child,
                top=top and isinstance(node, And),
                either=(top or either) and isinstance(node, (And, Or)),
            )


_NEAR_NOT_HERE: Final = (
    "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators require sorting geospatial "
    "data. If you do not need sort, consider using $geoWithin instead."
)


def _mentions_near(filter: Any) -> bool:
    """Whether a query has `$near` or the like on some path, however it goes on."""
    if isinstance(filter, list):
        return any(_mentions_near(item) for item in filter)
    if not isinstance(filter, dict):
        return False
    for name, value in filter.items():
        if name in ("$and", "$or", "$nor"):
            if _mentions_near(value):
                return True
        elif not name.startswith("$") and isinstance(value, dict) and any(name in value for name in NEAR_OPERATORS):
            return True
    return False


def parse_condition(
    condition: Any,
    *,
    collator: Collator | None = None,
    defined_variables: frozenset[str] = frozenset(),
) -> MatchNode:
    """The tree of a condition on single values, as in `$pull`: operators, a regular expression, a value to equal."""
    parser = _Parser(collator, defined_variables)
    if is_operator_document(condition):
        return And(parser.operators("", condition)).simplified()
    if isinstance(condition, (Regex, re.Pattern)):
        return parse_equality("", condition, parser)
    return parse_equality("", condition, parser)


def parse_elements(
    condition: Document,
    *,
    collator: Collator | None = None,
    defined_variables: frozenset[str] = frozenset(),
) -> ElemMatchObject | ElemMatchValue:
    """The tree of what `$elemMatch` of a projection wants of an element."""
    node = _Parser(collator, defined_variables, in_elements=True).elements(condition)
    _Places(allow_near=False, allow_text=False).check(node, top=False)
    return node
