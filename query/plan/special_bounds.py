"""Bounds in the indexes that keep something else than values, above all hashes, and leaves with their paths."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bson import MaxKey, MinKey

from ...catalog.index_makers import descends, wildcard_projection, wildcard_scope
from ...catalog.index_options import is_wildcard_path
from ...catalog.index_specs import IndexSpec
from ...common.display import value_text
from ...common.values import Document, encode
from ...kernels import key_hash, key_string
from ...storage.keys import after
from ..match.base import MatchNode
from ..match.comparison import Comparison, In
from ..match.elements import ElemMatchObject, ElemMatchValue, Exists, TypeIs
from ..match.logical import And, Not
from ..match.patterns import RegexMatch
from .bounds import BoundsMaker, FieldBounds, IndexBounds, Interval, KeyShape
from .cells import cell_interval
from .geo_bounds import GeoBounds, has_region

PATH_FIELD: Final = "$_path"


def makers(index: IndexSpec, collation: Document | None, predicates: Sequence[MatchNode]) -> Iterator[BoundsMaker]:
    """What makes the bounds of an index for some predicates; a wildcard index can be looked into by several paths."""
    match index.kind:
        case "wildcard":
            yield from _wildcard_makers(index, collation, predicates)
        case "hashed":
            yield HashedBounds(index, collation)
        case "2d" | "2dsphere" | "2dsphere_bucket":
            if any(has_region(index, predicate) for predicate in predicates):
                yield GeoBounds(index, collation)
        case "btree":
            yield BoundsMaker(index, collation)


class HashedBounds(BoundsMaker):
    """Bounds of an index of which one field is a hash."""

    def field_bounds(self, position: int, path: str, predicates: Sequence[MatchNode], *, multikey: bool) -> FieldBounds:
        """See `BoundsMaker.field_bounds`: only values by themselves have a hash."""
        if self.index.key[path] != "hashed":
            return super().field_bounds(position, path, predicates, multikey=multikey)
        equal = [
            predicate
            for predicate in predicates
            if (isinstance(predicate, Comparison) and predicate.operator == "$eq")
            or (isinstance(predicate, In) and not predicate.regexes)
        ]
        bounds = self._field(path, equal, multikey=multikey)
        if bounds.unbounded:
            return bounds
        hashes = sorted({key_hash(interval.low) for interval in bounds.intervals})
        return FieldBounds([cell_interval(number, number) for number in hashes])


def covered_paths(index: IndexSpec, predicates: Sequence[MatchNode]) -> list[str]:
    """The paths that predicates look at and a wildcard index takes in."""
    covers = _Coverage(index)
    found: dict[str, None] = {}
    for predicate in predicates:
        for path in _paths_of(predicate):
            if covers(path):
                found[path] = None
    return list(found)


def _paths_of(predicate: MatchNode) -> Iterator[str]:
    """The paths at which a document that satisfies the predicate has something."""
    match predicate:
        case Comparison():
            if predicate.value is not None and (
                predicate.operator == "$eq" or not isinstance(predicate.value, MinKey | MaxKey)
            ):
                yield predicate.path
        case In():
            if not any(value is None for value in predicate.values):
                yield predicate.path
        case RegexMatch() | Exists() | TypeIs() | ElemMatchValue():
            yield predicate.path
        case ElemMatchObject():
            child = predicate.children()[0]
            for one in child.children() if isinstance(child, And) else (child,):
                for inner in _paths_of(one):
                    yield f"{predicate.path}.{inner}"
        case Not():
            child = predicate.children()[0]
            if isinstance(child, Comparison) and child.operator == "$eq" and child.value is None:
                yield child.path


class _Coverage:
    """Whether a wildcard index takes in all leaves at a path."""

    def __init__(self, index: IndexSpec) -> None:
        wildcard = next(path for path in index.paths if is_wildcard_path(path))
        self._scope = wildcard_scope(wildcard)
        self._leaves, self._others = wildcard_projection(index)
        self._numbers = not index.multikey

    def __call__(self, path: str) -> bool:
        if not self._numbers and any(part.isdigit() for part in path.split(".")):
            # A number may be a position in an array, and those are not in the paths of keys.
            return False
        if self._scope:
            return path == self._scope or path.startswith(self._scope + ".")
        for named, included in self._leaves:
            if path == named or path.startswith(named + "."):
                return included
            if named.startswith(path + "."):
                # Only a part of what is below is taken in.
                return False
        return self._others


def _wildcard_makers(
    index: IndexSpec, collation: Document | None, predicates: Sequence[MatchNode]
) -> Iterator[BoundsMaker]:
    fields = list(index.key.items())
    at = next(position for position, (path, _) in enumerate(fields) if is_wildcard_path(path))
    multikey: list[tuple[int, ...]] = list(index.multikey_paths or ((),) * len(fields))
    for path in covered_paths(index, predicates):
        whole = tuple(range(1, path.count(".") + 2)) if multikey[at] else ()
        pattern = dict([*fields[:at], (PATH_FIELD, fields[at][1]), (path, fields[at][1]), *fields[at + 1 :]])
        shape = KeyShape(
            tuple(pattern),
            tuple(descends(value) if name != PATH_FIELD else False for name, value in pattern.items()),
            (*multikey[:at], (), whole, *multikey[at + 1 :]),
            tuple(name != PATH_FIELD for name in pattern),
            pattern,
            sparse=False,
        )
        yield WildcardBounds(index, collation, shape, path)
    if at > 0:
        pattern = dict([*fields[:at], (PATH_FIELD, fields[at][1])])
        yield BoundsMaker(
            index,
            collation,
            KeyShape(
                tuple(pattern), (*index.descending[:at], False), ((),) * len(pattern),
                # Of a document that has many leaves there are many entries, so no order either.
                (False,) * len(pattern), pattern, sparse=False,
            ),
        )  # fmt: skip


class WildcardBounds(BoundsMaker):
    """Bounds of a wildcard index for the leaves at one path."""

    def __init__(self, index: IndexSpec, collation: Document | None, shape: KeyShape, path: str) -> None:
        super().__init__(index, collation, shape)
        self._path = path
        self._below = False

    def make(self, predicates: Sequence[MatchNode]) -> IndexBounds:
        """See `BoundsMaker.make`."""
        plain = self._field(self._path, self._leaf_predicates(predicates), multikey=True)
        self._below = plain.unbounded
        return super().make(predicates)

    def field_bounds(self, position: int, path: str, predicates: Sequence[MatchNode], *, multikey: bool) -> FieldBounds:
        """See `BoundsMaker.field_bounds`."""
        if path == PATH_FIELD:
            return FieldBounds(self._paths())
        if path != self._path:
            return super().field_bounds(position, path, predicates, multikey=multikey)
        return self._field(path, self._leaf_predicates(predicates), multikey=multikey)

    def _leaf_predicates(self, predicates: Sequence[MatchNode]) -> list[MatchNode]:
        """Those that only leaves at the path can satisfy, and only by their own values."""
        return [predicate for predicate in predicates if not isinstance(predicate, Not) and _by_leaf(predicate)]

    def _paths(self) -> list[Interval]:
        key = key_string(_encoded(self._path))
        text = value_text(self._path)
        own = Interval(key, key, True, True, f"[{text}, {text}]", f"[{text}, {text}]")
        if not self._below:
            return [own]
        # Whether there is anything at the path is told by what is below it as well.
        start = key_string(_encoded(self._path + "."))[:-2]
        low, high = value_text(self._path + "."), value_text(self._path + "/")
        return [own, Interval(start, after(start), True, False, f"[{low}, {high})", f"({high}, {low}]")]


def _encoded(text: str) -> bytes:
    return encode({"": text})


def _by_leaf(predicate: MatchNode) -> bool:
    """Whether a value that satisfies the predicate is kept as a leaf, itself or by its elements."""
    match predicate:
        case Comparison():
            return _is_leaf(predicate.value, predicate.operator)
        case In():
            return all(_is_leaf(value, "$eq") for value in predicate.values)
        case RegexMatch():
            return True
        case ElemMatchValue():
            return any(isinstance(one, Comparison) and _by_leaf(one) for one in predicate.children()) and not any(
                isinstance(one, Comparison) and not _by_leaf(one) for one in predicate.children()
            )
        case ElemMatchObject():
            child = predicate.children()[0]
            return all(_by_leaf(one) for one in (child.children() if isinstance(child, And) else (child,)))
    return False


def _is_leaf(value: Any, operator: str) -> bool:
    if value is None or isinstance(value, list):
        return False
    if isinstance(value, MinKey | MaxKey):
        return operator == "$eq"
    if isinstance(value, dict):
        return not value and operator == "$eq"
    return True


def usable_without_bounds(index: IndexSpec) -> bool:
    """Whether a hint alone is reason enough to read all of the index."""
    return index.kind in ("btree", "hashed", "2dsphere", "2dsphere_bucket", "2d")
