"""From predicates to the parts of an index that can hold what matches.

A value has a KeyString that no other value's begins with, so a set of values is a list of intervals over the beginnings of
keys, and a compound index is searched by putting them one behind the other. Bounds may let too much through (the fetch tests
again), but never too little.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from bson import DatetimeMS, Decimal128, MaxKey, MinKey, Regex

from ...catalog.documents import collated_key_string
from ...catalog.index_specs import IndexSpec
from ...common.display import value_text
from ...common.ordering import order_key
from ...common.values import Document, type_name
from ...storage.keys import after
from ..match.base import MatchNode
from ..match.comparison import Comparison, In
from ..match.elements import ElemMatchObject, ElemMatchValue, Exists
from ..match.internal import InternalComparison
from ..match.logical import And, Not
from ..match.patterns import RegexMatch

RANGES_MAX: Final = 2000
EXACT_BYTES_MAX: Final = 300
"""Ranges over keys up to this length are not touched by the cutting of long keys."""
_CUT_BYTES: Final = 340


@dataclass(frozen=True, slots=True)
class Interval:
    """Values from `low` to `high`; both as KeyStrings of one ascending value, or beginnings of such."""

    low: bytes
    high: bytes
    low_inclusive: bool = True
    high_inclusive: bool = True
    text: str = "[MinKey, MaxKey]"
    reversed_text: str = "[MaxKey, MinKey]"

    @property
    def is_point(self) -> bool:
        """Whether it holds one value."""
        return self.low == self.high and self.low_inclusive and self.high_inclusive and self is not ALL

    def range(self, descending: bool) -> tuple[bytes, bytes]:
        """Keys with `start <= key < stop`, of a component kept in this direction."""
        low, high = self.low[:_CUT_BYTES], self.high[:_CUT_BYTES]
        low_inclusive = self.low_inclusive or len(low) < len(self.low)
        high_inclusive = self.high_inclusive or len(high) < len(self.high)
        if descending:
            low, high = _inverted(high), _inverted(low)
            low_inclusive, high_inclusive = high_inclusive, low_inclusive
        return (low if low_inclusive else after(low)), (after(high) if high_inclusive else high)


def _inverted(key: bytes) -> bytes:
    return bytes(255 - byte for byte in key)


ALL: Final = Interval(b"\x01", b"\xfe")


@dataclass(slots=True)
class FieldBounds:
    """The intervals of one field of an index, and the predicates that they say whole."""

    intervals: list[Interval]
    covered: list[MatchNode] = field(default_factory=list)

    @property
    def unbounded(self) -> bool:
        """Whether any value will do."""
        return self.intervals == [ALL]

    @property
    def points(self) -> bool:
        """Whether only single values will do."""
        return all(interval.is_point for interval in self.intervals)


@dataclass(frozen=True, slots=True)
class KeyShape:
    """The fields of the keys of an index, as a plan sees them.

    Attributes:
        paths: what explain calls them, and where their values come from.
        descending: whether each is kept from the highest value.
        multikey: for each, the components of its path that were arrays.
        ordered: whether each is in the order of its values; cells and hashes are not.
        pattern: the key as explain shows it.
        sparse: documents without any of the fields are left out.
    """

    paths: tuple[str, ...]
    descending: tuple[bool, ...]
    multikey: tuple[tuple[int, ...], ...]
    ordered: tuple[bool, ...]
    pattern: Document
    sparse: bool

    @classmethod
    def of(cls, index: IndexSpec) -> "KeyShape":
        """The shape of an index whose keys are the values of its paths."""
        paths = index.paths
        return cls(
            paths,
            index.descending,
            index.multikey_paths or ((),) * len(paths),
            tuple(not isinstance(value, str) for value in index.key.values()),
            index.key,
            index.sparse,
        )


@dataclass(slots=True)
class IndexBounds:
    """Where to look in an index.

    Attributes:
        shape: the fields of the key.
        fields: bounds of each field of the key.
        ranges: entry keys with `low <= key < high`, ascending and apart from each other.
        prefix_points: how many leading fields are bound to exactly one value.
        exact: everything in the ranges satisfies `covered`.
    """

    shape: KeyShape
    fields: list[FieldBounds]
    ranges: list[tuple[bytes, bytes]]
    prefix_points: int
    covered: list[MatchNode]
    exact: bool

    def shown(self, *, reverse: bool = False) -> Document:
        """`indexBounds` of explain."""
        shown: Document = {}
        for path, bounds in zip(self.shape.paths, self.fields, strict=True):
            intervals = reversed(bounds.intervals) if reverse else bounds.intervals
            shown[path] = [interval.reversed_text if reverse else interval.text for interval in intervals]
        return shown


class BoundsMaker:
    """Makes the bounds of one index for a conjunction of predicates."""

    def __init__(self, index: IndexSpec, collation: Document | None, shape: KeyShape | None = None) -> None:
        """`collation` is that of the operation: strings are only looked up where the index has the same."""
        self.index = index
        self.shape = KeyShape.of(index) if shape is None else shape
        stored = index.collation
        self._same_collation = (None if stored is None else stored.to_document()) == collation

    def make(self, predicates: Sequence[MatchNode]) -> IndexBounds:
        """Bounds for documents that satisfy all the predicates."""
        fields: list[FieldBounds] = []
        bounded_arrays: set[str] = set()
        for position, (path, components) in enumerate(zip(self.shape.paths, self.shape.multikey, strict=True)):
            arrays = {".".join(path.split(".")[:count]) for count in components}
            if arrays & bounded_arrays:
                # Another element of the same array may satisfy this one: only one field at a time is bound.
                fields.append(FieldBounds([ALL]))
                continue
            bounds = self.field_bounds(position, path, predicates, multikey=bool(components))
            if not bounds.unbounded:
                bounded_arrays |= arrays
            fields.append(bounds)
        return combined(self.shape, fields)

    def field_bounds(self, position: int, path: str, predicates: Sequence[MatchNode], *, multikey: bool) -> FieldBounds:
        """Bounds of one field of the key."""
        return self._field(path, predicates, multikey=multikey)

    def _field(self, path: str, predicates: Sequence[MatchNode], *, multikey: bool) -> FieldBounds:
        found: list[tuple[list[Interval], MatchNode, bool]] = []
        for predicate in predicates:
            made = self._intervals(path, predicate, multikey=multikey)
            if made is not None:
                found.append((made[0], predicate, made[1]))
        if not found:
            return FieldBounds([ALL])
        if multikey:
            intervals, predicate, exact = min(found, key=lambda row: _width(row[0]))
            return FieldBounds(intervals, [predicate] if exact else [])
        intervals = found[0][0]
        for other, _, _ in found[1:]:
            intervals = _intersection(intervals, other)
        return FieldBounds(intervals, [predicate for _, predicate, exact in found if exact])

    def _intervals(self, path: str, predicate: MatchNode, *, multikey: bool) -> tuple[list[Interval], bool] | None:
        """Intervals of a predicate on this path, and whether they say all of it; None where it says nothing."""
        match predicate:
            case Comparison() if predicate.path == path:
                return self._comparison(predicate.operator, predicate.value)
            case In() if predicate.path == path:
                return self._in(predicate)
            case InternalComparison() if predicate.path == path and not multikey:
                return self._across_types(predicate)
            case RegexMatch() if predicate.path == path:
                return self._regex(predicate)
            case Not() if not multikey:
                child = predicate.children()[0]
                if isinstance(child, Comparison) and child.path == path and child.operator == "$eq":
                    made = self._comparison("$eq", child.value)
                    if made is not None and child.value is not None and not self.shape.sparse:
                        return _complement(made[0][0]), made[1]
                return None
            case Exists() if predicate.path == path and self.shape.sparse:
                return [ALL], False
            case ElemMatchValue() if predicate.path == path:
                return self._element(path, predicate)
            case ElemMatchObject() if path.startswith(predicate.path + "."):
                inner = path.removeprefix(predicate.path + ".")
                child = predicate.children()[0]
                for one in child.children() if isinstance(child, And) else (child,):
                    made = self._intervals(inner, one, multikey=True)
                    if made is not None:
                        return made[0], False
                return None
            case _:
                return None

    def _element(self, path: str, predicate: ElemMatchValue) -> tuple[list[Interval], bool] | None:
        intervals: list[Interval] | None = None
        for condition in predicate.children():
            if isinstance(condition, Comparison):
                made = self._comparison(condition.operator, condition.value)
                if made is not None:
                    intervals = made[0] if intervals is None else _intersection(intervals, made[0])
        return None if intervals is None else (intervals, False)

    def _comparison(self, operator: str, value: Any) -> tuple[list[Interval], bool] | None:
        if isinstance(value, list | Regex) or (self.shape.sparse and value is None):
            return None
        if isinstance(value, str | dict) and not self._same_collation:
            return None
        key = self._key(value)
        if isinstance(value, MinKey | MaxKey):
            return ([_point(key, value)] if operator == "$eq" else _open_ended(operator, key, value)), False
        if value is None:
            # Null also means missing, and an empty array is kept as undefined: tested again after the fetch.
            return ([_point(key, value)], False) if operator in ("$eq", "$gte", "$lte") else None
        exact = len(key) <= EXACT_BYTES_MAX and not isinstance(value, dict)
        if operator == "$eq":
            return [_point(key, value)], exact
        if value != value or (isinstance(value, Decimal128) and value.to_decimal().is_nan()):
            return ([_point(key, value)] if operator in ("$gte", "$lte") else []), exact
        low, high, low_text, high_text = self._bracket(value)
        text = _value_text(value)
        match operator:
            case "$gt" | "$gte":
                closed = operator == "$gte"
                interval = Interval(
                    key, high, closed, True,
                    f"{'[' if closed else '('}{text}, {high_text}",
                    f"{_mirrored(high_text, first=True)}, {text}{']' if closed else ')'}",
                )  # fmt: skip
            case _:
                closed = operator == "$lte"
                interval = Interval(
                    low, key, True, closed,
                    f"{low_text}, {text}{']' if closed else ')'}",
                    f"{'[' if closed else '('}{text}, {_mirrored(low_text, first=False)}",
                )  # fmt: skip
        return [interval], exact

    def _across_types(self, predicate: InternalComparison) -> tuple[list[Interval], bool] | None:
        """The interval of a comparison in the order of all types; not exact, as missing values are kept as null."""
        value = predicate.value
        if value is None or self.shape.sparse or (isinstance(value, str | dict) and not self._same_collation):
            return None
        key = self._key(value)
        operator = predicate.plain_operator
        if operator == "$eq":
            return [_point(key, value)], False
        return _open_ended(operator, key, value), False

    def _in(self, predicate: In) -> tuple[list[Interval], bool] | None:
        intervals: list[Interval] = []
        exact = True
        for value in predicate.values:
            made = self._comparison("$eq", value)
            if made is None:
                return None
            intervals += made[0]
            exact = exact and made[1]
        for regex in predicate.regexes:
            made = self._regex(regex)
            if made is None:
                return None
            intervals += made[0]
            exact = exact and made[1]
        return _sorted(intervals), exact

    def _regex(self, predicate: RegexMatch) -> tuple[list[Interval], bool] | None:
        if not self._same_collation or self.index.collation is not None:
            return None
        prefix, whole = predicate.literal_prefix()
        regex_text = f"[{value_text(predicate.regex)}, {value_text(predicate.regex)}]"
        own = self._key(predicate.regex)
        if prefix:
            # A string ends in two bytes of its own: without them the key begins that of every longer string.
            start = self._key(prefix)[:-2]
            last = prefix[:-1] + chr(ord(prefix[-1]) + 1) if ord(prefix[-1]) < 0x10FFFF else prefix
            strings = Interval(start, start, True, True, f'["{prefix}", "{last}")', f'("{last}", "{prefix}"]')
            strings = Interval(start, after(start), True, False, strings.text, strings.reversed_text)
        else:
            low, _, _, _ = self._bracket("")
            strings = Interval(low, low, True, True, '["", {})', '({}, ""]')
            strings = Interval(low, after(low), True, False, strings.text, strings.reversed_text)
        exact = whole and len(prefix) * 4 <= EXACT_BYTES_MAX
        return [strings, Interval(own, own, True, True, regex_text, regex_text)], exact

    def _key(self, value: Any) -> bytes:
        return collated_key_string(self.index, {"": value}, [False])

    def _bracket(self, value: Any) -> tuple[bytes, bytes, str, str]:
        """The least and greatest beginnings of keys of the value's type class, and how explain shows them."""
        kind = type_name(value)
        if kind in ("int", "long", "double", "decimal"):
            infinity = float("inf")
            return self._key(-infinity), self._key(infinity), "[-inf", "inf]"
        if kind == "bool":
            return self._key(False), self._key(True), "[false", "true]"
        first = self._key(value)[:1]
        low_text, high_text = _BRACKET_TEXTS.get(kind, ("[MinKey", "MaxKey]"))
        return first, first, low_text, high_text


def combined(shape: KeyShape, fields: list[FieldBounds]) -> IndexBounds:
    """Put the fields' intervals one behind the other, as far as the order of the index allows."""
    prefixes: list[bytes] = [b""]
    ranges: list[tuple[bytes, bytes]] | None = None
    covered: list[MatchNode] = []
    points = 0
    exact = True
    for bounds, descending in zip(fields, shape.descending, strict=True):
        if bounds.unbounded:
            break
        covered += bounds.covered
        parts = [interval.range(descending) for interval in bounds.intervals]
        if bounds.points and len(prefixes) * len(parts) <= RANGES_MAX:
            if len(prefixes) == 1 and len(parts) == 1:
                points += 1
            # A point's range is [key, after(key)): its start is the key itself.
            prefixes = [prefix + start for prefix, (start, _) in product(prefixes, parts)]
            exact = exact and all(len(prefix) <= EXACT_BYTES_MAX for prefix in prefixes)
            continue
        if len(prefixes) * len(parts) > RANGES_MAX:
            ranges = [(prefix, after(prefix)) for prefix in prefixes]
            exact = False
            break
        ranges = [(prefix + start, prefix + stop) for prefix, (start, stop) in product(prefixes, parts) if start < stop]
        exact = exact and all(len(low) <= EXACT_BYTES_MAX for low, _ in ranges)
        break
    if ranges is None:
        ranges = [(prefix, after(prefix)) if prefix else (b"", b"\xff" * 8) for prefix in prefixes]
    ranges.sort()
    return IndexBounds(shape, fields, ranges, points, covered, exact)


_BRACKET_TEXTS: Final = {
    "string": ('[""', "{})"),
    "object": ("[{}", "[])"),
    "binData": ("[BinData(0, )", "ObjectId('000000000000000000000000'))"),
    "objectId": ("[ObjectId('000000000000000000000000')", "ObjectId('ffffffffffffffffffffffff')]"),
    "date": ("[new Date(-9223372036854775808)", "new Date(9223372036854775807)]"),
    "timestamp": ("[Timestamp(0, 0)", "Timestamp(4294967295, 4294967295)]"),
}


def _mirrored(text: str, *, first: bool) -> str:
    """A bound's text for the other end of its interval."""
    if first:
        return ("[" if text.endswith("]") else "(") + text[:-1]
    return text[1:] + ("]" if text.startswith("[") else ")")


def _value_text(value: Any) -> str:
    if isinstance(value, DatetimeMS):
        return f"new Date({int(value)})"
    return value_text(value)


def _point(key: bytes, value: Any) -> Interval:
    shown = _value_text(value)
    text = f"[{shown}, {shown}]"
    return Interval(key, key, True, True, text, text)


def _open_ended(operator: str, key: bytes, value: Any) -> list[Interval]:
    text = _value_text(value)
    match operator:
        case "$gt" | "$gte":
            closed = operator == "$gte"
            return [Interval(key, ALL.high, closed, True, f"{'[' if closed else '('}{text}, MaxKey]")]
        case _:
            closed = operator == "$lte"
            return [Interval(ALL.low, key, True, closed, f"[MinKey, {text}{']' if closed else ')'}")]


def _complement(point: Interval) -> list[Interval]:
    """Everything but one value."""
    text = point.text[1 : point.text.index(", ")] if ", " in point.text else point.text
    half = len(point.text) // 2
    text = point.text[1:half]
    return [
        Interval(ALL.low, point.low, True, False, f"[MinKey, {text})", f"({text}, MinKey]"),
        Interval(point.high, ALL.high, False, True, f"({text}, MaxKey]", f"[MaxKey, {text})"),
    ]


def _sorted(intervals: list[Interval]) -> list[Interval]:
    """In order, each once."""
    return sorted(dict.fromkeys(intervals), key=lambda interval: (interval.low, interval.high))


def _width(intervals: list[Interval]) -> tuple[int, int]:
    """Fewer is better: points before ranges, few before many."""
    return (0 if all(interval.is_point for interval in intervals) else 1, len(intervals))


def _intersection(left: list[Interval], right: list[Interval]) -> list[Interval]:
    """The values that are in some interval of each."""
    found = [both for one in left for other in right if (both := _overlap(one, other)) is not None]
    return _sorted(found)


def _overlap(one: Interval, other: Interval) -> Interval | None:
    (one_start, one_stop), (other_start, other_stop) = one.range(False), other.range(False)
    start, stop = max(one_start, other_start), min(one_stop, other_stop)
    if start >= stop:
        return None
    lower = one if one_start >= other_start else other
    upper = one if one_stop <= other_stop else other
    if lower is upper:
        return lower
    return Interval(
        lower.low,
        upper.high,
        lower.low_inclusive,
        upper.high_inclusive,
        f"{_left(lower.text)}, {_right(upper.text)}",
        f"{_left(upper.reversed_text)}, {_right(lower.reversed_text)}",
    )


def _left(text: str) -> str:
    return text.partition(", ")[0] if text.count(", ") == 1 else text[: text.rindex(", ")]


def _right(text: str) -> str:
    return text.partition(", ")[2] if text.count(", ") == 1 else text[text.rindex(", ") + 2 :]


def same_value(one: Any, other: Any) -> bool:
    """Whether two operands are equal as BSON values."""
    return order_key(one) == order_key(other)
