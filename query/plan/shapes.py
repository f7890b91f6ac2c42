"""Shapes of queries: what is the same for two queries that differ in their constants alone."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from bson import Regex

from ...common.values import Document, encode
from .wanted import Wanted

_OPERATORS_OF_LISTS: Final = frozenset({"$in", "$nin", "$all"})
_PLANNED_STAGES: Final = frozenset(
    {
        "$bucket", "$count", "$densify", "$group", "$lookup", "$project", "$replaceRoot", "$setWindowFields", "$sort",
        "$sortByCount",
    }
)  # fmt: skip
"""Stages that count in how the part before them is planned."""
_LITERAL: Final = frozenset({"collation", "hint", "sort"})
_LOGICAL: Final = frozenset({"$and", "$nor", "$or"})


def shape_of(wanted: Wanted, stages: Sequence[str] = ()) -> str:
    """64 hexadecimal digits for the shape of a query with its order, its projection and its collation.

    `stages` names what follows in a pipeline.
    """
    shape: Document = {"query": _planned_shape(wanted.matcher.serialize())}
    if wanted.sort is not None:
        shape["sort"] = wanted.sort.serialize()
    if wanted.projection_spec:
        shape["projection"] = {
            name: bool(value) if isinstance(value, int | float) else "?"
            for name, value in sorted(wanted.projection_spec.items())
        }
    if wanted.collation is not None:
        shape["collation"] = wanted.collation.to_document()
    later = [name for name in stages if name in _PLANNED_STAGES]
    if later:
        shape["stages"] = later
    return hashlib.sha256(encode(shape)).hexdigest()


def command_shape(command: Document) -> str:
    """64 hexadecimal digits for a command that reads. Clauses count in the order in which they were written."""
    shape: Document = {}
    for position, (name, value) in enumerate(command.items()):
        if position == 0 or name in _LITERAL:
            shape[name] = value
        elif name in ("filter", "query") and isinstance(value, dict):
            if value:
                shape["filter"] = _filter_shape(value)
        elif name == "projection" and isinstance(value, dict):
            shape[name] = {
                path: bool(kept) if isinstance(kept, int | float) else _constantless(kept)
                for path, kept in value.items()
            }
        elif name == "pipeline" and isinstance(value, list):
            shape[name] = [_stage_shape(stage) for stage in value]
        else:
            shape[name] = _constantless(value)
    return hashlib.sha256(encode(shape)).hexdigest()


def _stage_shape(stage: Any) -> Any:
    if isinstance(stage, dict) and isinstance(stage.get("$match"), dict):
        return {"$match": _filter_shape(stage["$match"])}
    return _constantless(stage)


def _filter_shape(document: Document) -> Any:
    """A filter as it was written, without its constants; an equality is one however it was written."""
    clauses = list(_clauses(document))
    return clauses[0] if len(clauses) == 1 else {"$and": clauses}


def _clauses(document: Document) -> Iterator[Document]:
    for name, operand in document.items():
        if name == "$and" and isinstance(operand, list):
            for part in operand:
                yield from _clauses(part) if isinstance(part, dict) else ()
        elif name in _LOGICAL and isinstance(operand, list):
            yield {name: [_filter_shape(part) if isinstance(part, dict) else "?" for part in operand]}
        elif name == "$jsonSchema":
            yield {name: _schema_shape(operand)}
        elif name.startswith("$"):
            yield {name: _constantless(operand)}
        elif isinstance(operand, dict) and next(iter(operand), "").startswith("$"):
            for operator, value in operand.items():
                yield {name: {operator: _operator_shape(operator, value)}}
        else:
            yield {name: {"$eq": "?"}}


def _operator_shape(operator: str, operand: Any) -> Any:
    if operator == "$exists":
        return bool(operand)
    if operator == "$type":
        return operand if isinstance(operand, list) else [operand]
    if operator in ("$in", "$nin") and isinstance(operand, list):
        return sorted({str(_constantless(item)) for item in operand})
    if operator in ("$elemMatch", "$not") and isinstance(operand, dict):
        if next(iter(operand), "").startswith("$"):
            return {name: _operator_shape(name, value) for name, value in operand.items()}
        return _filter_shape(operand)
    return _constantless(operand)


def _schema_shape(schema: Any) -> Any:
    """A schema keeps the names that it speaks of."""
    if isinstance(schema, dict):
        return {name: _schema_shape(value) for name, value in schema.items()}
    if isinstance(schema, list):
        return [_schema_shape(value) for value in schema]
    return schema if isinstance(schema, str) else "?"


def _constantless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _constantless(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_constantless(item) for item in value]
    return value if isinstance(value, str) and value.startswith("$") else "?"


def _planned_shape(value: Any) -> Any:
    """A filter in the form that the parser gives it, without its constants."""
    if isinstance(value, dict):
        return {name: _planned_operand(name, operand) for name, operand in value.items()}
    if isinstance(value, list):
        return [_planned_shape(item) for item in value]
    return "?regex" if isinstance(value, Regex) else "?"


def _planned_operand(name: str, operand: Any) -> Any:
    if name == "$expr":
        return "?"
    if name == "$jsonSchema":
        return _schema_shape(operand)
    if name in _OPERATORS_OF_LISTS and isinstance(operand, list):
        return ["?regex" if any(isinstance(item, Regex) for item in operand) else "?"]
    return _planned_shape(operand)
