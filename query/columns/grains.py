"""How much time an expression takes as one: `$dateTrunc` to the hour does not change within an hour."""

from typing import Any, Final

from ..expression.base import Expression

SECOND: Final = 1000
_MINUTE: Final = 60_000
_QUARTER: Final = 900_000
_HOUR: Final = 3_600_000
_DAY: Final = 86_400_000
EVEN_OFFSETS_MS: Final = 63_072_000_000
"""1972: since then every time zone is some quarters of an hour from UTC."""
_HOURLY: Final = frozenset({"$hour"})
_DAILY: Final = frozenset(
    {
        "$year",
        "$month",
        "$dayOfMonth",
        "$dayOfWeek",
        "$dayOfYear",
        "$week",
        "$isoWeek",
        "$isoWeekYear",
        "$isoDayOfWeek",
    }
)
_UTC: Final = ("UTC", "GMT", "Z")


def time_grain(expression: Expression, time_field: str) -> int | None:
    """Milliseconds within which (from a multiple of them since 1970) it does not change; None where that is not known.

    It holds for times since 1972; before, an offset from UTC may be any number of seconds.
    """
    grain = _grain(expression.serialize(), time_field)
    return None if grain is None else int(grain)


def _grain(shown: Any, time_field: str) -> float | None:
    """The same of an expression in its normal form; infinite without the time."""
    if isinstance(shown, str):
        return None if shown == f"${time_field}" else float("inf")
    if isinstance(shown, list):
        return _least([_grain(item, time_field) for item in shown])
    if not isinstance(shown, dict) or "$const" in shown:
        return float("inf")
    if len(shown) == 1:
        ((operator, operand),) = shown.items()
        own = _own_grain(operator, operand, time_field)
        if own is not None:
            return own
    return _least([_grain(item, time_field) for item in shown.values()])


def _own_grain(operator: str, operand: Any, time_field: str) -> float | None:
    """The same of an operator on the time itself; None where it is none of those that are known."""
    if isinstance(operand, list) and len(operand) == 1:
        operand = operand[0]
    if operand == f"${time_field}":
        operand = {"date": operand}
    if not isinstance(operand, dict) or operand.get("date") != f"${time_field}":
        return None
    if not all(isinstance(item, dict) and "$const" in item for name, item in operand.items() if name != "date"):
        return None
    # Offsets of other zones are some quarters of an hour.
    even = operand.get("timezone", {"$const": "UTC"})["$const"] in _UTC
    if operator in _HOURLY:
        return _HOUR if even else _QUARTER
    if operator in _DAILY:
        return _DAY if even else _QUARTER
    if operator in ("$minute", "$second"):
        return _MINUTE if operator == "$minute" else SECOND
    if operator == "$dateTrunc":
        unit = str(operand.get("unit", {}).get("$const"))
        if unit == "millisecond":
            return None
        smaller = {"second": SECOND, "minute": _MINUTE}.get(unit)
        if smaller is not None:
            return smaller
        if not even:
            return _QUARTER
        return _HOUR if unit == "hour" else _DAY
    return None


def _least(found: list[float | None]) -> float | None:
    known = [grain for grain in found if grain is not None]
    return None if len(known) != len(found) else min(known, default=float("inf"))
