"""Objects: `$mergeObjects $objectToArray $getField $setField $unsetField`."""

from typing import Any, Final

from ...common.errors import Location
from ...common.values import MISSING, Document, is_string, type_name
from .arithmetic import absent
from .base import VARIADIC, Constant, Expression, FieldPath, Lazy, OperatorParser, ParseContext, Variables, call_of


def merge(*objects: Any) -> Document:
    """The fields of all objects, later ones winning; null and missing count as empty."""
    merged: Document = {}
    for one in objects:
        if absent(one):
            continue
        if not isinstance(one, dict):
            raise Location(40400, f"$mergeObjects requires object inputs, but input {one} is of type {type_name(one)}")
        merged.update(one)
    return merged


def _merge_operands(*objects: Any) -> Document:
    """The same for operands: a single one may be an array of objects."""
    return merge(*(objects[0] if len(objects) == 1 and isinstance(objects[0], list) else objects))


def _to_array(value: Any) -> Any:
    if absent(value):
        return None
    if not isinstance(value, dict):
        raise Location(40390, f"$objectToArray requires a document input, found: {type_name(value)}")
    return [{"k": name, "v": item} for name, item in value.items()]


def _parse_get_field(name: str, spec: Any, context: ParseContext) -> Expression:
    if isinstance(spec, dict) and "field" in spec:
        for key in spec:
            if key not in ("field", "input"):
                raise Location(3041701, f"$getField found an unknown argument: {key}")
        if "input" not in spec:
            raise Location(3041703, "$getField requires 'input' to be specified")
        field, source = context.parse(spec["field"]), context.parse(spec["input"])
    elif isinstance(spec, dict) and ("input" in spec or not spec):
        raise Location(3041702, "$getField requires 'field' to be specified")
    else:
        field, source = context.parse(spec), FieldPath("CURRENT", ())
    if isinstance(field, Constant) and not isinstance(field.value, str):
        raise Location(
            3041704, f"$getField requires 'field' to evaluate to type String, but got {type_name(field.value)}"
        )

    def evaluate(document: Document, variables: Variables) -> Any:
        key = field.evaluate(document, variables)
        if not is_string(key):
            raise Location(3041704, f"$getField requires 'field' to evaluate to type String, but got {type_name(key)}")
        value = source.evaluate(document, variables)
        if value is None:
            return None
        return value.get(key, MISSING) if isinstance(value, dict) else MISSING

    return Lazy(name, [field, source], evaluate, {"field": field.serialize(), "input": source.serialize()})


def _parse_set_field(name: str, spec: Any, context: ParseContext) -> Expression:
    wanted = ("field", "input", "value") if name == "$setField" else ("field", "input")
    if not isinstance(spec, dict):
        raise Location(4161100, f"{name} only supports an object as its argument")
    for key in spec:
        if key not in wanted:
            raise Location(4161101, f"{name} found an unknown argument: {key}")
    for key, code in (("field", 4161102), ("value", 4161103), ("input", 4161109)):
        if key in wanted and key not in spec:
            raise Location(code, f"{name} requires '{key}' to be specified")
    source = context.parse(spec["input"])
    if isinstance(spec["field"], str) and spec["field"].startswith("$"):
        raise Location(
            4161108,
            f"'{spec['field']}' is a field path reference which is not allowed in this context. "
            f"Did you mean {{$literal: '{spec['field']}'}}?",
        )
    field = context.parse(spec["field"])
    written = spec["field"]
    computed = isinstance(written, list) or (
        isinstance(written, dict) and bool(written) and next(iter(written)) not in ("$literal", "$const")
    )
    # What could be worked out beforehand is no constant yet when this is looked at.
    if computed or not isinstance(field, Constant):
        raise Location(4161106, f"{name} requires 'field' to evaluate to a constant")
    if is_string(field.value) and "\0" in field.value:
        raise Location(9534700, f"{name}: field names may not contain null bytes")
    if not is_string(field.value):
        raise Location(4161107, f"{name} requires 'field' to evaluate to type String, but got {type_name(field.value)}")
    key = str(field.value)
    value_of = context.parse(spec["value"]) if "value" in wanted else None

    def evaluate(document: Document, variables: Variables) -> Any:
        value = MISSING if value_of is None else value_of.evaluate(document, variables)
        target = source.evaluate(document, variables)
        if absent(target):
            return None
        if not isinstance(target, dict):
            raise Location(4161105, f"{name} requires 'input' to evaluate to type Object, but got {type_name(target)}")
        if value is MISSING:
            return {other: item for other, item in target.items() if other != key}
        return {**target, key: value}

    shown: Document = {"field": field.serialize(), "input": source.serialize()}
    if value_of is not None:
        shown["value"] = value_of.serialize()
    return Lazy(name, [field, source, *([] if value_of is None else [value_of])], evaluate, shown)


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$getField": _parse_get_field,
    "$mergeObjects": call_of(_merge_operands, 0, VARIADIC),
    "$objectToArray": call_of(_to_array, 1),
    "$setField": _parse_set_field,
    "$unsetField": _parse_set_field,
}
