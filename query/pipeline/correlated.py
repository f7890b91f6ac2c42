"""Filters on the variables of a `$lookup`, written so that an index can serve them.

`{$match: {$expr: {$eq: ["$a", "$$x"]}}}` says nothing to an index. By the time a document is looked up the variable has a
value, so that the comparison can stand beside the expression as one that an index understands.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bson import Regex

from ...common.paths import get_path
from ...common.values import MISSING, Document

_TURNED: Final = {"$eq": "$eq", "$gt": "$lt", "$gte": "$lte", "$lt": "$gt", "$lte": "$gte"}
_INTERNAL: Final = {
    "$eq": "$_internalExprEq",
    "$gt": "$_internalExprGt",
    "$gte": "$_internalExprGte",
    "$lt": "$_internalExprLt",
    "$lte": "$_internalExprLte",
}


def with_known_operands(pipeline: Sequence[Document], variables: Mapping[str, Any]) -> list[Document]:
    """The pipeline, its first filters with the comparisons that follow from the values of variables."""
    made: list[Document] = []
    first = True
    for stage in pipeline:
        spec = stage.get("$match")
        first = first and (isinstance(spec, dict) or "$documents" in stage)
        added = list(_comparisons(spec, variables)) if first and isinstance(spec, dict) else []
        made.append({"$match": {"$and": [spec, *added]}} if added else stage)
    return made


def _comparisons(spec: Document, variables: Mapping[str, Any]) -> Iterator[Document]:
    """What has to hold where a filter does, comparison by comparison."""
    for name, operand in spec.items():
        if name == "$and" and isinstance(operand, list):
            for one in operand:
                if isinstance(one, dict):
                    yield from _comparisons(one, variables)
        elif name == "$expr" and isinstance(operand, dict):
            yield from _of_expression(operand, variables)


def _of_expression(expression: Document, variables: Mapping[str, Any]) -> Iterator[Document]:
    if len(expression) != 1:
        return
    name, operands = next(iter(expression.items()))
    if not isinstance(operands, list):
        return
    if name == "$and":
        for one in operands:
            if isinstance(one, dict):
                yield from _of_expression(one, variables)
        return
    if name not in _INTERNAL or len(operands) != 2:
        return
    for path, other, operator in ((*operands, name), (*reversed(operands), _TURNED[name])):
        value = _value(other, variables)
        if _is_path(path) and value is not None and value is not MISSING and not isinstance(value, list | Regex):
            yield {path[1:]: {_INTERNAL[operator]: value}}


def _is_path(operand: Any) -> bool:
    return isinstance(operand, str) and operand.startswith("$") and not operand.startswith("$$") and len(operand) > 1


def _value(operand: Any, variables: Mapping[str, Any]) -> Any:
    """The value of a variable, or of a path of objects in it; MISSING for anything else."""
    if not isinstance(operand, str) or not operand.startswith("$$"):
        return MISSING
    name, *path = operand[2:].split(".")
    return get_path(variables[name], path) if name in variables else MISSING


def mentions(spec: Any, texts: Sequence[str]) -> bool:
    """Whether a name or a string in a pipeline begins with one of the texts."""
    if isinstance(spec, str):
        return spec.startswith(tuple(texts))
    if isinstance(spec, dict):
        return any(mentions(name, texts) or mentions(value, texts) for name, value in spec.items())
    return isinstance(spec, list) and any(mentions(item, texts) for item in spec)
