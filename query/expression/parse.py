"""Parses expressions: field paths, variables, literals, objects, arrays, and operators from the table of all families."""

from typing import Any, Final

from ...common.errors import FailedToParse, InvalidPipelineOperator, Location, NotImplemented
from ...common.field_paths import parse_field_path
from . import (
    arithmetic,
    arrays,
    bits,
    conditions,
    conversions,
    date_strings,
    dates,
    metadata,
    objects,
    patterns,
    ranking,
    strings,
    types,
)
from .base import (
    SYSTEM_VARIABLES,
    ArrayExpression,
    Constant,
    Expression,
    FieldPath,
    ObjectExpression,
    OperatorParser,
    ParseContext,
    check_variable_name,
    folded,
)

__all__ = ["OPERATORS", "ParseContext", "parse_expression"]

DEPTH_MAX: Final = 200
_STRING_BYTES_MAX: Final = 16 * 1024 * 1024

OPERATORS: Final[dict[str, OperatorParser]] = {
    **arithmetic.OPERATORS,
    **arrays.OPERATORS,
    **bits.OPERATORS,
    **conditions.OPERATORS,
    **conversions.OPERATORS,
    **date_strings.OPERATORS,
    **dates.OPERATORS,
    **metadata.OPERATORS,
    **objects.OPERATORS,
    **patterns.OPERATORS,
    **ranking.OPERATORS,
    **strings.OPERATORS,
    **types.OPERATORS,
}
"""Every operator, by name."""

_KNOWN_ELSEWHERE: Final = frozenset(
    {
        "$accumulator", "$function", "$encStrContains", "$encStrEndsWith", "$encStrNormalizedEq",
        "$encStrStartsWith",
    }
)  # fmt: skip


def parse_expression(spec: Any, context: ParseContext) -> Expression:
    """Parse an expression; constant parts are worked out.

    Raises:
        InvalidPipelineOperator: 168, an operator that does not exist.
        Location: 15983 and what the operators raise for their operands.
    """
    if isinstance(spec, str):
        if len(spec) >= _STRING_BYTES_MAX // 4 and len(spec.encode()) >= _STRING_BYTES_MAX:
            raise Location(16493, "a string of an expression is too large")
        return parse_path(spec, context) if spec.startswith("$") else Constant(spec)
    if isinstance(spec, dict):
        return folded(_parse_object(spec, context))
    if isinstance(spec, list):
        return folded(ArrayExpression([parse_expression(item, context) for item in spec]))
    return Constant(spec)


ParseContext.parser = staticmethod(parse_expression)


def parse_path(text: str, context: ParseContext) -> Expression:
    """`$a.b`, or `$$variable.a.b`.

    Raises:
        Location: 17276 for a variable that nobody defined, 16872 for a lone `$`.
        FailedToParse: an empty name of a variable.
    """
    if not text.startswith("$$"):
        if text == "$":
            raise Location(16872, "'$' by itself is not a valid FieldPath")
        return FieldPath("CURRENT", parse_field_path(text[1:]))
    name, _, rest = text[2:].partition(".")
    if not name:
        raise FailedToParse("empty variable names are not allowed")
    if name == "CLUSTER_TIME" and name not in context.variables:
        raise Location(10071200, "Builtin variable '$$CLUSTER_TIME' is not available")
    if name not in SYSTEM_VARIABLES and name not in context.variables:
        # A name that is read may begin with a capital letter, as those of the system do.
        check_variable_name(name[0].lower() + name[1:])
        raise Location(17276, f"Use of undefined variable: {name}")
    if text.endswith("."):
        raise Location(40353, "FieldPath must not end with a '.'.")
    return FieldPath(name, parse_field_path(rest) if rest else ())


def _parse_object(spec: dict[str, Any], context: ParseContext) -> Expression:
    first = next(iter(spec), "")
    if first.startswith("$"):
        if len(spec) != 1:
            raise Location(15983, f"an object representing an expression must have exactly one field: {spec}")
        return _parse_operator(first, spec[first], context)
    parts = []
    for name, value in spec.items():
        if name.startswith("$"):
            raise Location(
                16410, f"FieldPath field names may not start with '$'. Consider using $getField or $setField: {name}"
            )
        if not name:
            raise Location(15998, "FieldPath field names may not be empty strings.")
        if "." in name:
            raise Location(16412, "FieldPath field names may not contain '.'. Consider using $getField or $setField.")
        parts.append((name, parse_expression(value, context)))
    return ObjectExpression(parts)


def _parse_operator(name: str, spec: Any, context: ParseContext) -> Expression:
    parser = OPERATORS.get(name)
    if parser is None:
        if name in _KNOWN_ELSEWHERE:
            raise NotImplemented(f"the expression {name} is not supported")
        raise InvalidPipelineOperator(f"Unrecognized expression '{name}'")
    return parser(name, spec, context)
