"""Small things: `$bitAnd $bitOr $bitXor $bitNot`, `$bsonSize $binarySize`, `$tsSecond $tsIncrement`, `$sigmoid`."""

import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from bson import Decimal128, Int64, Timestamp

from ...common.errors import Location, TypeMismatch
from ...common.numbers import is_number
from ...common.values import BsonType, encode, is_string, type_name, type_of
from .arithmetic import DECIMAL, absent, from_decimal, is_wide
from .base import VARIADIC, Call, Expression, OperatorParser, ParseContext, call_of
from .hashing import hashed_index_key


def _check_whole(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeMismatch(f"{name} only supports int and long operands, not {type_name(value)}")


def _bits(name: str, combine: Callable[[int, int], int], start: int) -> OperatorParser:
    def function(*values: Any) -> Any:
        if any(absent(value) for value in values):
            return None
        for value in values:
            _check_whole(name, value)
        result = reduce(combine, (int(value) for value in values), start)
        return Int64(result) if any(is_wide(value) for value in values) else result

    return call_of(function, 0, VARIADIC)


def _bit_not(value: Any) -> Any:
    if absent(value):
        return None
    _check_whole("$bitNot", value)
    return Int64(~int(value)) if is_wide(value) else ~int(value)


def _bson_size(value: Any) -> Any:
    if absent(value):
        return None
    if not isinstance(value, dict):
        raise Location(31393, f"$bsonSize requires a document input, found: {type_name(value)}")
    return len(encode(value))


def _binary_size(value: Any) -> Any:
    if absent(value):
        return None
    if is_string(value):
        return len(value.encode())
    if type_of(value) is not BsonType.BINARY:
        raise Location(51276, f"$binarySize requires a string or BinData argument, found: {type_name(value)}")
    return 16 if isinstance(value, uuid.UUID) else len(value)


def _timestamp(name: str, code: int, part: Callable[[Timestamp], int]) -> OperatorParser:
    def function(value: Any) -> Any:
        if absent(value):
            return None
        if not isinstance(value, Timestamp):
            raise Location(code, f" Argument to {name} must be a timestamp, but is {type_name(value)}")
        return Int64(part(value))

    return call_of(function, 1)


def _sigmoid(value: Any) -> Any:
    if absent(value):
        return None
    if not is_number(value):
        raise TypeMismatch(f"$sigmoid only supports numeric types, not {type_name(value)}")
    if isinstance(value, Decimal128):
        power = DECIMAL.exp(-value.to_decimal())
        return from_decimal(DECIMAL.divide(Decimal(1), DECIMAL.add(Decimal(1), power)))
    number = float(value)
    if number >= 0:
        return 1 / (1 + math.exp(-number))
    return math.exp(number) / (1 + math.exp(number)) if number == number else number


def _parse_sigmoid(name: str, spec: Any, context: ParseContext) -> Expression:
    if isinstance(spec, list):
        # Brackets around the operand are not taken for brackets alone here.
        raise TypeMismatch(f"{name} only supports numeric types, not array")
    return Call(name, [context.parse(spec)], _sigmoid)


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$binarySize": call_of(_binary_size, 1),
    "$bitAnd": _bits("$bitAnd", lambda left, right: left & right, -1),
    "$bitNot": call_of(_bit_not, 1),
    "$bitOr": _bits("$bitOr", lambda left, right: left | right, 0),
    "$bitXor": _bits("$bitXor", lambda left, right: left ^ right, 0),
    "$bsonSize": call_of(_bson_size, 1),
    "$sigmoid": _parse_sigmoid,
    "$toHashedIndexKey": call_of(hashed_index_key, 1),
    "$tsIncrement": _timestamp("$tsIncrement", 5687302, lambda value: int(value.inc)),
    "$tsSecond": _timestamp("$tsSecond", 5687301, lambda value: int(value.time)),
}
