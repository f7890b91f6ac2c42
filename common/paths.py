"""Where a dotted path leads in a document: in plain steps, as predicates read it, and as expressions read it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bson import DBRef

from .values import MISSING, Document

Path = tuple[str, ...]


def split_path(path: str) -> Path:
    """The components of a dotted path."""
    return tuple(path.split("."))


def is_index(component: str) -> bool:
    """Whether a path component can name a position in an array: digits, without a leading zero."""
    return component.isascii() and component.isdecimal() and (component == "0" or component[0] != "0")


def get_path(document: Any, parts: Sequence[str]) -> Any:
    """The value reached through objects alone, MISSING where a step fails; arrays are not entered."""
    value = document
    for part in parts:
        if type(value) is not dict:
            value = as_object(value)
            if value is None:
                return MISSING
        value = value.get(part, MISSING)
        if value is MISSING:
            return MISSING
    return value


def as_object(value: Any) -> Document | None:
    """The value as an object, None when it is none."""
    if isinstance(value, dict):
        return value
    if isinstance(value, DBRef):
        return dict(value.as_doc())
    return None


def path_values(document: Any, parts: Sequence[str], *, expand: bool = True) -> Iterator[Any]:
    """What a predicate on the path is tried on.

    Arrays on the way are entered, by position and through each of their objects. MISSING stands for a way that ends
    early outside of an array. An array at the end gives its elements and then itself; with `expand=False` only itself.
    """
    return _walk(document, parts, 0, expand)


def _walk(value: Any, parts: Sequence[str], at: int, expand: bool) -> Iterator[Any]:
    last = len(parts)
    while at < last:
        if type(value) is not dict:
            if type(value) is list:
                yield from _walk_array(value, parts, at, expand)
                return
            value = as_object(value)
            if value is None:
                yield MISSING
                return
        value = value.get(parts[at], MISSING)
        if value is MISSING:
            yield MISSING
            return
        at += 1
    if expand and type(value) is list:
        yield from value
    yield value


def _walk_array(array: list[Any], parts: Sequence[str], at: int, expand: bool) -> Iterator[Any]:
    for element in array:
        entered = element if type(element) is dict else as_object(element)
        if entered is not None:
            yield from _walk(entered, parts, at, expand)
    if is_index(parts[at]) and (index := int(parts[at])) < len(array):
        element = array[index]
        if at + 1 == len(parts) or type(element) is list or as_object(element) is not None:
            yield from _walk(element, parts, at + 1, expand)


def positioned_values(document: Any, parts: Sequence[str], *, expand: bool = True) -> Iterator[tuple[Any, int | None]]:
    """`path_values`, each with its position in the outermost array that was entered element by element."""
    value = document
    for at, part in enumerate(parts):
        if type(value) is list:
            yield from _positioned_in_array(value, parts, at, expand)
            return
        entered = as_object(value)
        value = MISSING if entered is None else entered.get(part, MISSING)
    if expand and type(value) is list:
        for position, element in enumerate(value):
            yield element, position
    yield value, None


def _positioned_in_array(
    array: list[Any], parts: Sequence[str], at: int, expand: bool
) -> Iterator[tuple[Any, int | None]]:
    for position, element in enumerate(array):
        entered = as_object(element)
        if entered is not None:
            for found in _walk(entered, parts, at, expand):
                yield found, position
    if is_index(parts[at]) and (index := int(parts[at])) < len(array):
        rest = parts[at + 1 :]
        if not rest or type(array[index]) is list or as_object(array[index]) is not None:
            yield from positioned_values(array[index], rest, expand=expand)


def expression_path(document: Any, parts: Sequence[str]) -> Any:
    """The value of a field path in an expression: arrays on the way are mapped over their objects."""
    return _expression_from(document, parts, 0)


def _expression_from(value: Any, parts: Sequence[str], at: int) -> Any:
    last = len(parts)
    while at < last:
        if type(value) is not dict:
            if type(value) is list:
                found = [_expression_from(item, parts, at) for item in value if as_object(item) is not None]
                return [item for item in found if item is not MISSING]
            value = as_object(value)
            if value is None:
                return MISSING
        value = value.get(parts[at], MISSING)
        if value is MISSING:
            return MISSING
        at += 1
    return value


def expression_getter(parts: Sequence[str]) -> Callable[[Any], Any]:
    """`expression_path` of these parts as a function of the document, made for being called often."""
    path = tuple(parts)
    if len(path) == 1:
        first = path[0]

        def get_one(document: Any) -> Any:
            return document.get(first, MISSING) if type(document) is dict else _expression_from(document, path, 0)

        return get_one
    if len(path) == 2:
        first, second = path

        def get_two(document: Any) -> Any:
            if type(document) is dict:
                inner = document.get(first, MISSING)
                if type(inner) is dict:
                    return inner.get(second, MISSING)
                return _expression_from(inner, path, 1) if inner is not MISSING else MISSING
            return _expression_from(document, path, 0)

        return get_two
    return lambda document: _expression_from(document, path, 0)
