"""`$addFields` before a `$group`: what is computed is put into the accumulators, which columns can do."""

from collections.abc import Sequence
from typing import Any

from ..common.errors import MongoError
from ..common.values import Document
from ..query.expression.base import Expression, ObjectExpression
from ..query.pipeline.base import PipelineContext, Stage
from ..query.pipeline.group import Group
from ..query.pipeline.reshape import Reshape
from .unpack_stage import UnpackSpec


class _NotPossible(Exception):
    """An expression reads a part of what is computed."""


def inlined(behind: Sequence[Stage], spec: UnpackSpec, context: PipelineContext) -> list[Stage]:
    """The stages with the `$addFields` before a leading `$group` taken into it, where columns can do that."""
    adding = 0
    while (
        adding < len(behind) and isinstance(behind[adding], Reshape) and behind[adding].name in ("$addFields", "$set")
    ):
        adding += 1
    if not adding or adding == len(behind):
        return list(behind)
    group = behind[adding]
    if not isinstance(group, Group):
        return list(behind)
    try:
        shown = _shown(group)
        for stage in reversed(behind[:adding]):
            assert isinstance(stage, Reshape)
            shown = _replaced(shown, _computed(stage, spec, context))
        made = Group.parse(shown, context)
    except (_NotPossible, MongoError):
        return list(behind)
    if made.over_columns(spec.time_field, spec.meta_field) is None:
        return list(behind)
    return [made, *behind[adding + 1 :]]


def _shown(group: Group) -> Document:
    accumulators = {name: one.serialize() for name, one in group.accumulators.items()}
    return {"_id": group.key.serialize(), **accumulators}


def _computed(stage: Reshape, spec: UnpackSpec, context: PipelineContext) -> dict[str, Any]:
    """The fields that the stage sets, with their expressions in normal form."""
    made = {}
    for name, value in stage.spec.items():
        expression: Expression = context.expressions.parse(value)
        if "." in name or name in (spec.meta_field, spec.time_field) or isinstance(expression, ObjectExpression):
            raise _NotPossible
        if expression.fields() is None or "$$" in str(expression.serialize()):
            raise _NotPossible
        made[name] = expression.serialize()
    return made


def _replaced(shown: Any, computed: dict[str, Any]) -> Any:
    """An expression in normal form with expressions in the place of fields."""
    if isinstance(shown, str) and shown.startswith("$"):
        name, dot, _ = shown[1:].partition(".")
        if shown.startswith("$$"):
            raise _NotPossible
        if name in computed:
            if dot:
                raise _NotPossible
            return computed[name]
        return shown
    if isinstance(shown, list):
        return [_replaced(item, computed) for item in shown]
    if isinstance(shown, dict) and "$const" not in shown:
        return {name: _replaced(value, computed) for name, value in shown.items()}
    return shown
