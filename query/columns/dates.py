"""The date operators on arrays: parts of dates, `$dateTrunc`, `$dateAdd`, `$dateSubtract` and `$dateDiff`.

The calendar is that of `expression.calendar`, with the same formulas on whole numbers; what depends on days alone is reckoned
once for each day.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...common.errors import MongoError
from ...common.numbers import whole_number
from ...common.values import BsonType
from ..expression import calendar
from ..expression.base import Call, Constant, Expression, Lazy
from ..expression.calendar import FIXED_MS, MS_PER_DAY, UNITS, WEEKDAYS
from .batch import ABSENT, Column
from .operands import WHOLE, Unfit, largest, nothing, present_in
from .zones import Times, ZoneTimes, distinct, zone_times

Compute = Callable[[Sequence[Column]], Column]

_LIMIT_MS: Final = 2**60
"""Times beyond are looked at one by one: nothing computed of others leaves 64 bits."""
_BINS_MAX: Final = 10**6
_REFERENCE_DAY: Final = calendar.days_from_civil(2000, 1, 1)
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


def _civil(days: Times) -> tuple[Times, Times, Times]:
    """See `calendar.civil_from_days`."""
    days = days + 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * of_year + 2) // 153
    day = of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + np.where(month_index < 10, 3, -9)
    return year_of_era + era * 400 + (month <= 2), month, day


def _days(year: Times, month: Times, day: Times | int) -> Times:
    """See `calendar.days_from_civil`."""
    year = year + (month - 1) // 12
    month = (month - 1) % 12 + 1
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5
    found: Times = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468 + day - 1
    return found


def _weekday(days: Times) -> Times:
    return (days + 3) % 7 + 1


def _day_of_year(days: Times) -> Times:
    year, _, _ = _civil(days)
    return days - _days(year, np.ones_like(year), 1) + 1


def _iso_week(days: Times) -> tuple[Times, Times]:
    thursday = days - _weekday(days) + 4
    year, _, _ = _civil(thursday)
    return year, (thursday - _days(year, np.ones_like(year), 1)) // 7 + 1


_OF_DAYS: Final[dict[str, Callable[[Times], Times]]] = {
    "$dayOfMonth": lambda days: _civil(days)[2],
    "$dayOfWeek": lambda days: _weekday(days) % 7 + 1,
    "$dayOfYear": _day_of_year,
    "$isoDayOfWeek": _weekday,
    "$isoWeek": lambda days: _iso_week(days)[1],
    "$isoWeekYear": lambda days: _iso_week(days)[0],
    "$month": lambda days: _civil(days)[1],
    "$week": lambda days: (_day_of_year(days) - 1 - _weekday(days) % 7 + 7) // 7,
    "$year": lambda days: _civil(days)[0],
}
_OF_CLOCK: Final = {"$hour": (3_600_000, 24), "$minute": (60_000, 60), "$second": (1000, 60), "$millisecond": (1, 1000)}


def _by_day(local: Times, of_days: Callable[[Times], Times]) -> Times:
    """What depends on the day alone."""
    if not len(local):
        return local
    days, _, inverse = distinct(local // MS_PER_DAY)
    found: Times = of_days(days)[inverse]
    return found


def _dates(columns: Sequence[Column]) -> Column | None:
    """Nothing, where a column has no dates; `Unfit` where one has something else, or dates beyond all measure."""
    for column in columns:
        if column.kind not in (ABSENT, BsonType.DATE) or (column.kind != ABSENT and largest(column) >= _LIMIT_MS):
            raise Unfit
    return nothing(len(columns[0].values)) if any(column.kind == ABSENT for column in columns) else None


def _of_date(kind: int, zone: ZoneTimes, function: Callable[[Times, ZoneTimes], Times]) -> Compute:
    """A function of one date."""

    def compute(columns: Sequence[Column]) -> Column:
        (column,) = columns
        return _dates(columns) or Column(kind, function(column.values, zone), column.present)

    return compute


def _part(name: str, zone: ZoneTimes) -> Compute:
    of_days = _OF_DAYS.get(name)
    if of_days is not None:
        kind = BsonType.INT64 if name == "$isoWeekYear" else BsonType.INT32
        return _of_date(kind, zone, lambda times, zone: _by_day(zone.to_local(times), of_days))
    length, count = _OF_CLOCK[name]
    return _of_date(BsonType.INT32, zone, lambda times, zone: zone.to_local(times) // length % count)


def _trunc(unit: str, size: int, zone: ZoneTimes, first: str) -> Compute:
    """See `calendar.truncate`."""

    def small(times: Times, zone: ZoneTimes) -> Times:
        reference = zone.to_utc(np.array([_REFERENCE_DAY * MS_PER_DAY], dtype=np.int64))[0]
        found: Times = times - (times - reference) % (FIXED_MS[unit] * size)
        return found

    def begin(days: Times) -> Times:
        if unit in ("day", "week"):
            wanted = _REFERENCE_DAY
            if unit == "week":
                wanted += (WEEKDAYS.index(first) + 1 - calendar.iso_weekday(_REFERENCE_DAY)) % 7
            begun = days - (days - wanted) % (size * (7 if unit == "week" else 1))
        else:
            year, month, _ = _civil(days)
            months = (year - 2000) * 12 + month - 1
            months -= months % (_MONTHS[unit] * size)
            begun = _days(np.full_like(months, 2000), 1 + months, 1)
        return zone.to_utc(begun * MS_PER_DAY)

    if unit in ("millisecond", "second", "minute", "hour"):
        return _of_date(BsonType.DATE, zone, small)
    return _of_date(BsonType.DATE, zone, lambda times, zone: _by_day(zone.to_local(times), begin))


def _moved(unit: str, sign: int, zone: ZoneTimes) -> Compute:
    """See `calendar.add`: a date and an amount."""
    length = FIXED_MS.get(unit) or MS_PER_DAY * 31 * _MONTHS[unit]

    def compute(columns: Sequence[Column]) -> Column:
        dates, amounts = columns
        if amounts.kind not in (ABSENT, *WHOLE):
            raise Unfit
        absent = _dates([dates])
        if absent is not None or amounts.kind == ABSENT:
            return absent or nothing(len(dates.values))
        if largest(amounts) * length >= _LIMIT_MS:
            raise Unfit
        by = amounts.values * sign
        present = present_in(columns)
        if unit in ("hour", "minute", "second", "millisecond"):
            return Column(BsonType.DATE, dates.values + by * length, present)
        local = zone.to_local(dates.values)
        if unit in ("day", "week"):
            return Column(BsonType.DATE, zone.to_utc(local + by * length), present)
        days = local // MS_PER_DAY
        year, month, day = _civil(days)
        months = year * 12 + month - 1 + by * _MONTHS[unit]
        begun = _days(months // 12, months % 12 + 1, 1)
        last = _days(months // 12, months % 12 + 2, 1) - begun
        moved = (begun + np.minimum(day, last) - 1) * MS_PER_DAY + local % MS_PER_DAY
        return Column(BsonType.DATE, zone.to_utc(moved), present)

    return compute


def dates_later(dates: Column, unit: str, amounts: Times | int) -> Times:
    """Dates so many units later, in UTC.

    Raises:
        Unfit: they leave what arrays hold.
    """
    if isinstance(amounts, int):
        if abs(amounts) >= _LIMIT_MS:
            raise Unfit
        amounts = np.full(len(dates.values), amounts, dtype=np.int64)
    found: Times = _moved(unit, 1, zone_times("UTC"))([dates, Column(BsonType.INT64, amounts)]).values
    return found


def _difference(unit: str, zone: ZoneTimes, first: str) -> Compute:
    """See `calendar.difference`."""

    def between(start: Times, end: Times) -> Times:
        if unit in ("millisecond", "second", "minute"):
            return end // FIXED_MS[unit] - start // FIXED_MS[unit]
        if unit == "hour":
            shift = zone.offsets(start)
            return (end + shift) // FIXED_MS[unit] - (start + shift) // FIXED_MS[unit]
        low, high = zone.to_local(start) // MS_PER_DAY, zone.to_local(end) // MS_PER_DAY
        if unit == "day":
            return high - low
        if unit == "week":
            shifted = 3 - WEEKDAYS.index(first)
            return (high + shifted) // 7 - (low + shifted) // 7
        (low_year, low_month, _), (high_year, high_month, _) = _civil(low), _civil(high)
        step = _MONTHS[unit]
        return (high_year * 12 + high_month - 1) // step - (low_year * 12 + low_month - 1) // step

    def compute(columns: Sequence[Column]) -> Column:
        start, end = columns
        return _dates(columns) or Column(BsonType.INT64, between(start.values, end.values), present_in(columns))

    return compute


def date_operator(expression: Expression) -> tuple[list[Expression], Compute] | None:
    """The operands of a date operator that differ from row to row, and what computes it; None where it is none known here.

    Unit, zone and the like have to be constants, of which nothing is wrong.
    """
    if not isinstance(expression, Call | Lazy):
        return None
    name = expression.name
    if isinstance(expression, Call):
        if name not in _OF_DAYS and name not in _OF_CLOCK:
            return None
        given = dict(zip(("date", "timezone"), expression.operands, strict=False))
    elif name in ("$dateTrunc", "$dateAdd", "$dateSubtract", "$dateDiff"):
        given = dict(zip(expression.serialize()[name], expression.operands, strict=True))
    else:
        return None
    varying = [given.pop(key) for key in ("date", "startDate", "endDate", "amount") if key in given]
    constants = {key: one.value for key, one in given.items() if isinstance(one, Constant)}
    if len(constants) != len(given):
        return None
    compute = _prepared(name, constants)
    return None if compute is None else (varying, compute)


def _prepared(name: str, given: dict[str, Any]) -> Compute | None:
    """What computes an operator with these constants; None where one of them is wrong."""
    zone_name, unit = given.get("timezone", "UTC"), given.get("unit", "day")
    first = str(given.get("startOfWeek", "sunday")).lower()
    if type(zone_name) is not str or unit not in UNITS or not isinstance(given.get("startOfWeek", ""), str):
        return None
    day = next((day for day in WEEKDAYS if first in (day, day[:3])), None)
    try:
        zone = zone_times(zone_name)
    except MongoError:
        return None
    if day is None:
        return None
    match name:
        case "$dateTrunc":
            size = whole_number(given.get("binSize", 1))
            return None if size is None or not 0 < size <= _BINS_MAX else _trunc(unit, size, zone, day)
        case "$dateAdd" | "$dateSubtract":
            return _moved(unit, -1 if name == "$dateSubtract" else 1, zone)
        case "$dateDiff":
            return _difference(unit, zone, day)
    return _part(name, zone)
