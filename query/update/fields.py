"""Operators on whole fields: `$set $setOnInsert $unset $inc $mul $min $max $currentDate $bit`, one end of `$rename`."""

from collections.abc import Callable
from typing import Any, Final

from bson import DatetimeMS, Decimal128, Int64, Timestamp

from ...common.display import element_text, value_text
from ...common.errors import BadValue, TypeMismatch
from ...common.numbers import is_number, sized_int
from ...common.ordering import Collator, compare, equal
from ...common.values import MISSING, Document, type_name
from .arithmetic import plus, times, zero_like
from .base import Change, Modifier, identical


class Set(Modifier):
    """`$set`: the operand itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        return value if identical(value, self.value) else self.value


class SetOnInsert(Set):
    """`$setOnInsert`: the operand, in documents that an upsert makes."""

    insert_only = True


class Unset(Modifier):
    """`$unset`: nothing."""

    creates = False
    skips_blocked = True

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        return MISSING


class RenameSource(Modifier):
    """The end of `$rename` that loses its value."""

    creates = False

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        return MISSING


class Arithmetic(Modifier):
    """`$inc` and `$mul`."""

    def __init__(self, operator: str, operand: Any) -> None:
        self.operator = operator
        self.operand = operand
        self._combine = plus if operator == "$inc" else times

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        if value is MISSING:
            return self.operand if self.operator == "$inc" else self._combine(zero_like(self.operand), self.operand)
        if not is_number(value):
            raise TypeMismatch(
                f"Cannot apply {self.operator} to a value of non-numeric type. {change.id_text()} has the field "
                f"'{path.rpartition('.')[2]}' of non-numeric type {type_name(value)}"
            )
        result = self._combine(value, self.operand)
        if result is None:
            raise BadValue(
                f"Failed to apply {self.operator} operations to current value ({_typed_text(value)}) "
                f"for document {change.id_text()}"
            )
        return value if type(value) is type(result) and equal(value, result) else result


def _typed_text(value: Any) -> str:
    name = {"int": "NumberInt", "long": "NumberLong", "double": "NumberDouble", "decimal": "NumberDecimal"}
    return f"({name[type_name(value)]}){value_text(value)}"


class Extreme(Modifier):
    """`$min` and `$max`, in the order of all BSON values."""

    def __init__(self, operator: str, operand: Any, collator: Collator | None) -> None:
        self.operand = operand
        self._sign = -1 if operator == "$min" else 1
        self._collator = collator

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        if value is MISSING:
            return self.operand
        return self.operand if compare(self.operand, value, self._collator) == self._sign else value


class CurrentDate(Modifier):
    """`$currentDate`: the time, as a date or as a timestamp."""

    def __init__(self, *, timestamp: bool) -> None:
        self.timestamp = timestamp

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        if self.timestamp:
            return Timestamp(int(change.now) // 1000, 1)
        return DatetimeMS(int(change.now))


class Bit(Modifier):
    """`$bit`: and, or, exclusive or with integers."""

    def __init__(self, steps: list[tuple[str, int]]) -> None:
        self.steps = steps

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        current = 0 if value is MISSING else value
        if isinstance(current, bool) or not isinstance(current, int):
            raise BadValue(
                f"Cannot apply $bit to a value of non-integral type.{change.id_text()} has the field "
                f"{path.rpartition('.')[2]} of non-integer type {type_name(current)}"
            )
        result = current
        for name, operand in self.steps:
            wide = isinstance(result, Int64) or isinstance(operand, Int64)
            result = sized_int(_BITWISE[name](int(result), int(operand)), wide=wide)
        return value if identical(value, result) else result


_BITWISE: Final[dict[str, Callable[[int, int], int]]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def parse_arithmetic(operator: str, path: str, operand: Any) -> Modifier:
    """`$inc: {path: number}` and `$mul`."""
    if not is_number(operand):
        verb = "increment" if operator == "$inc" else "multiply"
        raise TypeMismatch(f"Cannot {verb} with non-numeric argument: {{{element_text(path, operand)}}}")
    return Arithmetic(operator, operand)


def parse_current_date(path: str, operand: Any) -> Modifier:
    """`$currentDate: {path: true}` or `{path: {$type: "date" or "timestamp"}}`."""
    if isinstance(operand, bool):
        return CurrentDate(timestamp=False)
    if not isinstance(operand, dict):
        raise BadValue(
            f"{type_name(operand)} is not valid type for $currentDate. Please use a boolean ('true') or a $type "
            "expression ({$type: 'timestamp/date'})."
        )
    kind = None
    for name, value in operand.items():
        if name != "$type":
            raise BadValue(f"Unrecognized $currentDate option: {name}")
        kind = value
    if kind not in ("date", "timestamp"):
        raise BadValue(
            "The '$type' string field is required to be 'date' or 'timestamp': "
            "{$currentDate: {field : {$type: 'date'}}}"
        )
    return CurrentDate(timestamp=kind == "timestamp")


def parse_bit(path: str, operand: Any) -> Modifier:
    """`$bit: {path: {and|or|xor: integer}}`."""
    if not isinstance(operand, dict):
        raise BadValue(
            f"The $bit modifier is not compatible with a {type_name(operand)}. You must pass in an embedded document: "
            "{$bit: {field: {and/or/xor: #}}"
        )
    steps: list[tuple[str, int]] = []
    for name, value in operand.items():
        shown = "{" + element_text(name, value) + "}"
        if name not in _BITWISE:
            raise BadValue(
                f"The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is an unknown operator: "
                f"{shown}"
            )
        if isinstance(value, (bool, Decimal128)) or not isinstance(value, int):
            raise BadValue(
                f"The $bit modifier field must be an Integer(32/64 bit); a '{type_name(value)}' is not supported here: "
                f"{shown}"
            )
        steps.append((name, value))
    if not steps:
        raise BadValue(
            "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}"
        )
    return Bit(steps)


def renamed_pair(source: str, target: Any, document: Document) -> None:
    """Refuses a `$rename` between paths that have no meaning together."""
    shown = element_text(source, target)
    if type(target) is not str:
        raise BadValue(f"The 'to' field for $rename must be a string: {shown}")
    if source == target:
        raise BadValue(f"The source and target field for $rename must differ: {shown}")
    if target.startswith(source + ".") or source.startswith(target + "."):
        raise BadValue(f"The source and target field for $rename must not be on the same path: {shown}")
