"""Shapes of queries: what is the same for two queries that differ in their constants alone."""

import hashlib
from typing import Any, Final

from bson import Regex

from ...common.values import Document, encode
from .planner import Wanted

_OPERATORS_OF_LISTS: Final = frozenset({"$in", "$nin", "$all"})


def shape_of(wanted: Wanted) -> str:
    """64 hexadecimal digits for the shape of a query with its order, its projection and its collation."""
    shape: Document = {"query": filter_shape(wanted.matcher.serialize())}
    if wanted.sort is not None:
        shape["sort"] = wanted.sort.serialize()
    if wanted.projection_spec:
        shape["projection"] = sorted(wanted.projection_spec)
    if wanted.collation is not None:
        shape["collation"] = wanted.collation.to_document()
    return hashlib.sha256(encode(shape)).hexdigest()


def filter_shape(value: Any) -> Any:
    """A filter without its constants."""
    if isinstance(value, dict):
        return {name: _operand_shape(name, operand) for name, operand in value.items()}
    if isinstance(value, list):
        return [filter_shape(item) for item in value]
    return "?regex" if isinstance(value, Regex) else "?"


def _operand_shape(name: str, operand: Any) -> Any:
    if name == "$expr":
        return "?"
    if name in _OPERATORS_OF_LISTS and isinstance(operand, list):
        return ["?regex" if any(isinstance(item, Regex) for item in operand) else "?"]
    return filter_shape(operand)
