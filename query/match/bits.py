"""Conditions on the bits of integers and of binary data: `$bitsAllSet $bitsAnySet $bitsAllClear $bitsAnyClear`."""

from typing import Any, Final

from bson import Binary

from ...common.display import element_text
from ...common.errors import BadValue, FailedToParse
from ...common.numbers import INT64_MAX, INT64_MIN, is_number, whole_number
from ...common.values import Document
from .base import MatchContext, MatchNode, OperatorParser, PathNode, ValueTest, Variables

_POSITION_MAX: Final = 2**31 - 1


_RANKS: Final = {"$bitsAllSet": 14, "$bitsAllClear": 15, "$bitsAnySet": 16, "$bitsAnyClear": 17}


class BitTest(PathNode):
    """Some bits of the value are set, or clear.

    The mask is an unbounded integer of bit positions. Negative integers go on with their sign to the left, binary data
    with zeros; bit 0 of binary data is the lowest bit of its first byte.
    """

    def __init__(self, path: str, operator: str, mask: int) -> None:
        super().__init__(path)
        self.operator = operator
        self.rank = _RANKS[operator]
        self.mask = mask

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        positions = [at for at in range(self.mask.bit_length()) if self.mask >> at & 1]
        return {self.operator: positions}

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        mask, operator = self.mask, self.operator

        def test(value: Any) -> bool:
            bits = _bits_of(value)
            if bits is None:
                return False
            common = bits & mask
            if operator == "$bitsAllSet":
                return common == mask
            if operator == "$bitsAnySet":
                return common != 0
            if operator == "$bitsAllClear":
                return common == 0
            return common != mask

        return test


def _bits_of(value: Any) -> int | None:
    if is_number(value):
        number = whole_number(value)
        return number if number is not None and INT64_MIN <= number <= INT64_MAX else None
    if isinstance(value, bytes):
        if isinstance(value, Binary) and value.subtype == 2:
            # Its stored payload begins with its length.
            value = len(value).to_bytes(4, "little") + value
        return int.from_bytes(value, "little")
    return None


def _parse_bits(operator: str) -> OperatorParser:
    def parse(path: str, operand: Any, _: Document, _context: MatchContext) -> MatchNode:
        return BitTest(path, operator, _mask(operator, operand))

    return parse


def _mask(operator: str, operand: Any) -> int:
    if isinstance(operand, list):
        mask = 0
        for item in operand:
            mask |= 1 << _position(item)
        return mask
    if is_number(operand):
        number = whole_number(operand)
        shown = element_text(operator, operand)
        if number is None:
            raise FailedToParse(f"Expected an integer: {shown}")
        if not INT64_MIN <= number <= INT64_MAX:
            raise FailedToParse(f"Cannot represent as a 64-bit integer: {shown}")
        if number < 0:
            raise FailedToParse(f"Expected a non-negative number in: {shown}")
        return number
    if isinstance(operand, (bytes, Binary)):
        return int.from_bytes(operand, "little")
    raise BadValue(f"{operator} takes an Array, a number, or a BinData but received: {element_text(operator, operand)}")


def _position(item: Any) -> int:
    shown = element_text("0", item)
    if not is_number(item):
        raise BadValue(f"bit positions must be an integer but got: {shown}")
    number = whole_number(item)
    if number is None:
        raise BadValue(f"bit positions must be an integer but got: {shown}")
    if number < 0:
        raise BadValue(f"bit positions must be >= 0 but got: {shown}")
    if number > _POSITION_MAX:
        raise BadValue(f"bit positions cannot be represented as a 32-bit signed integer: {shown}")
    return number


OPERATORS: Final[dict[str, OperatorParser]] = {
    operator: _parse_bits(operator) for operator in ("$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear")
}
