"""Predicates on measurements → predicates on the buckets that can hold what matches.

A filter is taken apart into conjuncts. One that is about the meta field alone moves to the bucket as it is. Of one on the
time or on a measurement a loose form goes to the bucket as well: it never leaves out a bucket that holds a match, and the
measurements are tested again. What says nothing about a bucket stays with the measurements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bson import DatetimeMS, ObjectId

from ..common.collation import Collation
from ..common.ordering import KEY_NAN, canonical_class, order_key
from ..common.paths import get_path, split_path
from ..common.values import MISSING, Document, type_name
from ..query.expression.base import Expression
from ..query.match.base import AlwaysTrue, MatchNode, PathNode, ValueTest, Variables
from ..query.match.comparison import Comparison, In
from ..query.match.elements import Exists, TypeIs
from ..query.match.evaluation import ExprMatch
from ..query.match.geo import BucketGeoMatch, GeoMatch
from ..query.match.geometries import Geometry
from ..query.match.internal import InternalComparison
from ..query.match.logical import And, Or
from ..query.match.parse import parse_filter
from ..query.match.sphere import Cap

_LOW_TAIL: Final = b"\0" * 8
_HIGH_TAIL: Final = b"\xff" * 8
_SECONDS_MAX: Final = 2**32 - 1
_NUMBERS: Final = ("int", "long", "double", "decimal")
_RANGED: Final = (*_NUMBERS, "string", "date", "objectId", "timestamp", "bool")
_IN_MAX: Final = 50
_MIRRORED: Final = {"$eq": "$eq", "$gt": "$lt", "$gte": "$lte", "$lt": "$gt", "$lte": "$gte"}


@dataclass(slots=True)
class Widened:
    """A filter on measurements, taken apart.

    Attributes:
        bucket: what a bucket has to satisfy.
        rest: what each measurement has to satisfy still.
    """

    bucket: list[MatchNode] = field(default_factory=list)
    rest: list[MatchNode] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """Names in the measurements, and how much time a bucket may cover."""

    time_field: str
    meta_field: str | None
    span_ms: int


class Renamed:
    """An expression in terms of buckets."""

    def __init__(self, value: Any) -> None:
        self.value = value


def renamed_expression(expression: Expression, meta_field: str | None) -> Renamed | None:
    """The expression with the meta field under its name in a bucket; None where it reads anything else."""
    fields = expression.fields()
    if fields is None:
        return None
    if not all(meta_field is not None and (path == meta_field or path.startswith(meta_field + ".")) for path in fields):
        return None
    shown = expression.serialize()
    return None if meta_field is None and fields else Renamed(_with_meta(shown, meta_field))


def _with_meta(shown: Any, meta_field: str | None) -> Any:
    if isinstance(shown, str) and meta_field is not None and shown.startswith("$") and not shown.startswith("$$"):
        path = shown[1:]
        return "$meta" + path[len(meta_field) :] if path == meta_field or path.startswith(meta_field + ".") else shown
    if isinstance(shown, list):
        return [_with_meta(item, meta_field) for item in shown]
    if isinstance(shown, dict) and set(shown) != {"$const"} and set(shown) != {"$literal"}:
        return {name: _with_meta(value, meta_field) for name, value in shown.items()}
    return shown


def widen(
    filters: Sequence[MatchNode],
    options: Target,
    *,
    collation: Collation | None,
    default_collation: Collation | None,
    extended: bool,
) -> Widened:
    """Take the conjunction of some filters apart.

    Args:
        collation: what the query compares strings by.
        default_collation: what the collection compares strings by, which made the smallest and the greatest of a bucket.
        extended: the `_id` of buckets is not in the order of time.
    """
    widened = Widened()
    maker = _Maker(options, collation, same=_document(collation) == _document(default_collation), extended=extended)
    for conjunct in _conjuncts(filters):
        moved = maker.on_meta(conjunct)
        if moved is not None:
            widened.bucket.append(moved)
            continue
        widened.rest.append(conjunct)
        loose = maker.loose(conjunct)
        if loose is not None:
            widened.bucket.append(loose)
    return widened


def all_of(nodes: Sequence[MatchNode]) -> MatchNode:
    """The conjunction of some nodes."""
    if not nodes:
        return AlwaysTrue()
    return nodes[0] if len(nodes) == 1 else And(list(nodes))


class MixedTypes(PathNode):
    """Smallest and greatest value of a field are of different types, so they do not bound what is between them."""

    rank = 99

    def __init__(self, path: str) -> None:
        super().__init__(f"control.min.{path}")
        self._paths = (split_path(f"control.min.{path}"), split_path(f"control.max.{path}"))

    def compile(self, variables: Variables | None = None) -> Any:
        """See `MatchNode.compile`."""
        low_path, high_path = self._paths

        def differs(document: Document) -> bool:
            low, high = get_path(document, low_path), get_path(document, high_path)
            return low is not MISSING and high is not MISSING and canonical_class(low) != canonical_class(high)

        return differs

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`: a value alone does not tell."""
        return lambda value: True

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        return {"$_internalMixedTypes": True}


class _Maker:
    """Makes the bucket's predicates of one collection."""

    def __init__(self, options: Target, collation: Collation | None, *, same: bool, extended: bool) -> None:
        self._options = options
        self._collation = collation
        self._same_collation = same
        self._extended = extended

    def on_meta(self, node: MatchNode) -> MatchNode | None:
        """The predicate with the meta field under its name in a bucket; None where it is about something else too."""
        meta = self._options.meta_field
        fields = node.fields()
        if meta is None or not fields or not all(path == meta or path.startswith(meta + ".") for path in fields):
            return None
        renamed = _renamed(node.serialize(), meta)
        return None if renamed is None else parse_filter(renamed, collator=self._collation)

    def loose(self, node: MatchNode) -> MatchNode | None:
        """What a bucket satisfies that holds a measurement which satisfies the predicate; None where nothing is known."""
        match node:
            case And():
                made = [one for one in (self.loose(child) for child in node.children()) if one is not None]
                return all_of(made) if made else None
            case Or():
                branches = [self._on_either(child) for child in node.children()]
                known = [one for one in branches if one is not None]
                return Or(known) if known and len(known) == len(branches) else None
            case In() if not node.regexes and 0 < len(node.values) <= _IN_MAX:
                equal = [self._compared(node.path, "$eq", value) for value in node.values]
                told = [one for one in equal if one is not None]
                return Or(told) if len(told) == len(equal) and len(told) > 1 else None
            case Comparison():
                return self._compared(node.path, node.operator, node.value)
            case GeoMatch() if isinstance(node.region, Geometry | Cap):
                return None if self._is_meta(node.path) else BucketGeoMatch(node.path, node.operand, node.region)
            case Exists() | TypeIs():
                return self._there(node.path)
            case ExprMatch():
                return self._expressed(node.expression.serialize())
        return None

    def _there(self, path: str) -> MatchNode | None:
        """A measurement has the field: then the smallest of its values is known."""
        return None if self._is_meta(path) else Exists(f"control.min.{path}")

    def _expressed(self, shown: Any) -> MatchNode | None:
        """A comparison of the time with a constant, or several of which all hold."""
        if not isinstance(shown, dict) or len(shown) != 1:
            return None
        ((operator, operands),) = shown.items()
        if not isinstance(operands, list):
            return None
        if operator == "$and":
            made = [one for one in map(self._expressed, operands) if one is not None]
            return all_of(made) if made else None
        if operator not in _MIRRORED or len(operands) != 2:
            return None
        left, right = operands
        if isinstance(left, dict):
            left, right, operator = right, left, _MIRRORED[operator]
        if left != f"${self._options.time_field}" or not isinstance(right, dict) or set(right) != {"$const"}:
            return None
        return self._on_time(operator, right["$const"])

    def _is_meta(self, path: str) -> bool:
        meta = self._options.meta_field
        return meta is not None and (path == meta or path.startswith(meta + "."))

    def _on_either(self, node: MatchNode) -> MatchNode | None:
        """A branch of a disjunction, on meta or on measurements."""
        moved = self.on_meta(node)
        if moved is not None:
            return moved
        if isinstance(node, And):
            made = [one for one in (self._on_either(child) for child in node.children()) if one is not None]
            return all_of(made) if made else None
        return self.loose(node)

    def _compared(self, path: str, operator: str, value: Any) -> MatchNode | None:
        if path == self._options.time_field:
            return self._on_time(operator, value)
        kind = type_name(value)
        if kind not in _RANGED or self._is_meta(path):
            return None
        if kind == "string" and not self._same_collation:
            return None
        if kind in ("double", "decimal") and order_key(value) == KEY_NAN:
            # Not a number equals itself only, and is no bound to the others.
            return None
        if "." not in path:
            return self._across_types(path, operator, value)
        low: list[MatchNode] = []
        high: list[MatchNode] = []
        if operator in ("$eq", "$lt", "$lte"):
            low.append(self._at_most(path, "$lt" if operator == "$lt" else "$lte", value, kind))
        if operator in ("$eq", "$gt", "$gte"):
            high.append(
                Comparison(f"control.max.{path}", "$gt" if operator == "$gt" else "$gte", value, self._collation)
            )
        prefixes = path.split(".")
        mixed: list[MatchNode] = [MixedTypes(".".join(prefixes[: end + 1])) for end in range(len(prefixes))]
        return Or([all_of([*low, *high]), *mixed])

    def _across_types(self, path: str, operator: str, value: Any) -> MatchNode:
        """Smallest and greatest are in the order of all types, so they bound a field of any types; indexes can be asked."""
        made: list[MatchNode] = []
        if operator in ("$eq", "$lt", "$lte"):
            strict = "$_internalExprLt" if operator == "$lt" else "$_internalExprLte"
            made.append(InternalComparison(f"control.min.{path}", strict, value, self._collation))
        if operator in ("$eq", "$gt", "$gte"):
            strict = "$_internalExprGt" if operator == "$gt" else "$_internalExprGte"
            made.append(InternalComparison(f"control.max.{path}", strict, value, self._collation))
        return all_of(made)

    def _at_most(self, path: str, operator: str, value: Any, kind: str) -> MatchNode:
        side = f"control.min.{path}"
        compared = Comparison(side, operator, value, self._collation)
        if kind in _NUMBERS:
            # NaN is the smallest number, and no number is greater than it or less to a query.
            return Or([compared, Comparison(side, "$eq", float("nan"))])
        return compared

    def _on_time(self, operator: str, value: Any) -> MatchNode | None:
        if type_name(value) != "date":
            return None
        time_ms, span_ms = int(value), self._options.span_ms
        low, high = f"control.min.{self._options.time_field}", f"control.max.{self._options.time_field}"
        made: list[MatchNode] = []
        ids: list[MatchNode] = []
        if operator in ("$eq", "$gt", "$gte"):
            strict = operator == "$gt"
            made.append(Comparison(low, "$gt" if strict else "$gte", _date(time_ms - span_ms)))
            made.append(Comparison(high, "$gt" if strict else "$gte", value))
            first = max(time_ms - span_ms, 0) // 1000
            if first <= _SECONDS_MAX:
                ids.append(Comparison("_id", "$gte", ObjectId(first.to_bytes(4, "big") + _LOW_TAIL)))
        if operator in ("$eq", "$lt", "$lte"):
            strict = operator == "$lt"
            made.append(Comparison(low, "$lt" if strict else "$lte", value))
            made.append(Comparison(high, "$lt" if strict else "$lte", _date(time_ms + span_ms)))
            last = -(-time_ms // 1000)
            if 0 <= last <= _SECONDS_MAX:
                ids.append(Comparison("_id", "$lte", ObjectId(last.to_bytes(4, "big") + _HIGH_TAIL)))
        if not made:
            return None
        return all_of(made if self._extended else [*ids, *made])


def _date(time_ms: int) -> DatetimeMS:
    return DatetimeMS(max(-(2**63), min(2**63 - 1, time_ms)))


def _document(collation: Collation | None) -> Document | None:
    return None if collation is None else collation.to_document()


def _conjuncts(nodes: Sequence[MatchNode]) -> list[MatchNode]:
    found: list[MatchNode] = []
    for node in nodes:
        if isinstance(node, And):
            found += _conjuncts(node.children())
        elif not isinstance(node, AlwaysTrue):
            found.append(node)
    return found


def _renamed(filter: Document, meta: str) -> Document | None:
    """A filter on the meta field with the field under its name in a bucket; None where that cannot be said."""
    renamed: Document = {}
    for name, value in filter.items():
        if name in ("$and", "$or", "$nor"):
            branches = [_renamed(branch, meta) for branch in value]
            if any(branch is None for branch in branches):
                return None
            renamed[name] = branches
        elif name.startswith("$"):
            return None
        else:
            renamed["meta" + name[len(meta) :]] = value
    return renamed
