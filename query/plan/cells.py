"""Keys of hashes and cells: eight bytes that stand for a value in an index."""

from typing import Final

from .bounds import Interval

_CELL: Final = b"\x32"
"""The first byte of the key of a hash or a cell; eight bytes follow."""


def cell_key(cell: int) -> bytes:
    """The key of a hash or a cell."""
    return _CELL + cell.to_bytes(8, "big")


def cell_interval(low: int, high: int) -> Interval:
    """All cells from one to another."""
    text, reversed_text = f"[{low}, {high}]", f"[{high}, {low}]"
    return Interval(cell_key(low), cell_key(high), True, True, text, reversed_text)


def without(ranges: list[tuple[int, int]], taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of some ranges when others are taken out; both ascending and apart."""
    left = []
    for low, high in ranges:
        at = low
        for first, last in taken:
            if last < at:
                continue
            if first > high:
                break
            if first > at:
                left.append((at, first - 1))
            at = last + 1
        if at <= high:
            left.append((at, high))
    return left


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges ascending and apart."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found
