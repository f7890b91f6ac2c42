"""The document that an upsert starts from: what the query says outright."""

from collections.abc import Iterator
from typing import Any

from ...common.errors import NotSingleValueField
from ...common.paths import split_path
from ...common.values import Document
from ..match.base import MatchNode
from ..match.comparison import Comparison
from ..match.logical import And


def equality_document(filter: MatchNode, *, only_id: bool = False) -> Document:
    """A document with every value that the query fixes; dotted paths become objects.

    Raises:
        NotSingleValueField: the query fixes a path twice, or a path and one below it.
    """
    found: dict[tuple[str, ...], Any] = {}
    for path, value in _equalities(filter):
        parts = split_path(path)
        if only_id and parts[0] != "_id":
            continue
        for other in found:
            if other == parts:
                raise NotSingleValueField(f"cannot infer query fields to set, path '{path}' is matched twice")
            shorter = min(len(other), len(parts))
            if other[:shorter] == parts[:shorter]:
                raise NotSingleValueField(
                    f"cannot infer query fields to set, both paths '{path}' and '{'.'.join(other)}' are matched"
                )
        found[parts] = value
    document: Document = {}
    for parts, value in found.items():
        level = document
        for part in parts[:-1]:
            level = level.setdefault(part, {})
        level[parts[-1]] = value
    return document


def _equalities(node: MatchNode) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Comparison) and node.operator == "$eq":
        yield node.path, node.value
    elif isinstance(node, And):
        for child in node.children():
            yield from _equalities(child)
