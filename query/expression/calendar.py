"""The calendar behind the date operators: time zones, parts of a date, and steps by units, all on milliseconds since 1970.

Days are counted with the proleptic Gregorian calendar for every year that a BSON date can name, which is far beyond what
Python's `datetime` holds; offsets of named zones come from the tz database.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...common.errors import Location

MS_PER_DAY: Final = 86_400_000
UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
FIXED_MS: Final = {
    "millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": MS_PER_DAY, "week": 7 * MS_PER_DAY,
}  # fmt: skip
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_OFFSET: Final = re.compile(r"([+-])(\d{2}):?(\d{2})?\Z")
_ZONES_WITH_HISTORY: Final = (-62_135_596_800_000, 253_402_300_799_000)
"""Years 1 to 9999: outside, a named zone's standard time is taken."""


class Parts(NamedTuple):
    """A date taken apart."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    millisecond: int


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date; months beyond 1..12 roll over into years, days into months."""
    year += (month - 1) // 12
    month = (month - 1) % 12 + 1
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468 + day - 1


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * of_year + 2) // 153
    day = of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + (3 if month_index < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day


def parts_of(local_ms: int) -> Parts:
    """The parts of a local time."""
    days, rest = divmod(local_ms, MS_PER_DAY)
    year, month, day = civil_from_days(days)
    hour, rest = divmod(rest, 3_600_000)
    minute, rest = divmod(rest, 60_000)
    second, millisecond = divmod(rest, 1000)
    return Parts(year, month, day, hour, minute, second, millisecond)


def from_parts(year: int, month: int, day: int, hour: int, minute: int, second: int, millisecond: int) -> int:
    """The local time of parts, which may lie outside their usual ranges."""
    return (
        days_from_civil(year, month, day) * MS_PER_DAY
        + hour * 3_600_000
        + minute * 60_000
        + second * 1000
        + millisecond
    )


def days_in_month(year: int, month: int) -> int:
    """How many days a month has."""
    return days_from_civil(year, month + 1, 1) - days_from_civil(year, month, 1)


def iso_weekday(days: int) -> int:
    """1 for Monday to 7 for Sunday."""
    return (days + 3) % 7 + 1


def iso_week(local_ms: int) -> tuple[int, int]:
    """ISO 8601 year and week."""
    days = local_ms // MS_PER_DAY
    thursday = days - iso_weekday(days) + 4
    year = civil_from_days(thursday)[0]
    return year, (thursday - days_from_civil(year, 1, 1)) // 7 + 1


def day_of_year(local_ms: int) -> int:
    """1 to 366."""
    days = local_ms // MS_PER_DAY
    return days - days_from_civil(civil_from_days(days)[0], 1, 1) + 1


class Zone:
    """A time zone: an offset, or a name of the tz database."""

    def __init__(self, info: tzinfo | None, offset_ms: int) -> None:
        self._info = info
        self._offset_ms = offset_ms

    @property
    def is_utc(self) -> bool:
        """Whether local time is UTC."""
        return self._info is None and self._offset_ms == 0

    @property
    def fixed_offset_ms(self) -> int | None:
        """What local time is always ahead of UTC; None for a name of the tz database."""
        return self._offset_ms if self._info is None else None

    def offset_ms(self, utc_ms: int) -> int:
        """What local time is ahead of UTC at this moment."""
        if self._info is None:
            return self._offset_ms
        low, high = _ZONES_WITH_HISTORY
        moment = datetime.fromtimestamp(max(low, min(high, utc_ms)) // 1000, UTC)
        offset = self._info.utcoffset(moment.astimezone(self._info))
        return 0 if offset is None else int(offset / timedelta(milliseconds=1))

    def to_local(self, utc_ms: int) -> int:
        """Local time of a moment."""
        return utc_ms + (self._offset_ms if self._info is None else self.offset_ms(utc_ms))

    def to_utc(self, local_ms: int) -> int:
        """The moment of a local time; of two, the earlier; a time that was skipped counts on from before the gap."""
        if self._info is None:
            return local_ms - self._offset_ms
        before = self.offset_ms(local_ms - MS_PER_DAY)
        guess = local_ms - before
        if self.offset_ms(guess) == before:
            return guess
        later = local_ms - self.offset_ms(local_ms + MS_PER_DAY)
        return later if self.offset_ms(later) == local_ms - later else guess


UTC_ZONE: Final = Zone(None, 0)


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """A zone by its name (`Europe/Oslo`) or offset (`+02`, `+0200`, `+02:00`).

    Raises:
        Location: 40485, there is no such zone.
    """
    offset = _OFFSET.match(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        return Zone(None, (-minutes if offset[1] == "-" else minutes) * 60_000)
    if name in ("UTC", "GMT"):
        return UTC_ZONE
    try:
        if not name or name.startswith(("/", ".")):
            raise ZoneInfoNotFoundError(name)
        return Zone(ZoneInfo(name), 0)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Location(40485, f'unrecognized time zone identifier: "{name}"') from error


def truncate(utc_ms: int, unit: str, bin_size: int, zone_of: Zone, start_of_week: str = "sunday") -> int:
    """The start of the bin that a moment lies in; bins are counted from 2000-01-01 in the zone (weeks from the first day given).

    Raises:
        Location: 5439014, the moment cannot be represented.
    """
    local = zone_of.to_local(utc_ms)
    if unit in ("millisecond", "second", "minute", "hour"):
        step = FIXED_MS[unit] * bin_size
        # Units below a day count real time, so that a day of 23 or 25 hours has that many bins.
        reference = zone_of.to_utc(_REFERENCE_MS)
        return utc_ms - (utc_ms - reference) % step
    if unit == "day":
        days = local // MS_PER_DAY
        return zone_of.to_utc((days - (days - _REFERENCE_DAY) % bin_size) * MS_PER_DAY)
    if unit == "week":
        first = _first_week_day(start_of_week)
        days = local // MS_PER_DAY
        return zone_of.to_utc((days - (days - first) % (7 * bin_size)) * MS_PER_DAY)
    year, month, *_ = parts_of(local)
    months = (year - 2000) * 12 + month - 1
    step = {"month": 1, "quarter": 3, "year": 12}[unit] * bin_size
    months -= months % step
    return zone_of.to_utc(days_from_civil(2000, 1 + months, 1) * MS_PER_DAY)


_REFERENCE_DAY: Final = days_from_civil(2000, 1, 1)
_REFERENCE_MS: Final = _REFERENCE_DAY * MS_PER_DAY


def _first_week_day(start_of_week: str) -> int:
    """The first such day of the week on or after 2000-01-01."""
    wanted = WEEKDAYS.index(start_of_week) + 1
    return _REFERENCE_DAY + (wanted - iso_weekday(_REFERENCE_DAY)) % 7


def add(utc_ms: int, unit: str, amount: int, zone_of: Zone) -> int:
    """A moment some units later; a day of the month that does not exist becomes the month's last."""
    if unit in ("hour", "minute", "second", "millisecond"):
        return utc_ms + FIXED_MS[unit] * amount
    local = zone_of.to_local(utc_ms)
    if unit in ("day", "week"):
        return zone_of.to_utc(local + FIXED_MS[unit] * amount)
    parts = parts_of(local)
    months = parts.year * 12 + parts.month - 1 + amount * {"month": 1, "quarter": 3, "year": 12}[unit]
    year, month = months // 12, months % 12 + 1
    day = min(parts.day, days_in_month(year, month))
    return zone_of.to_utc(from_parts(year, month, day, *parts[3:]))


def difference(start_ms: int, end_ms: int, unit: str, zone_of: Zone, start_of_week: str = "sunday") -> int:
    """How many boundaries of the unit lie between two moments."""
    if unit == "millisecond":
        return end_ms - start_ms
    start, end = zone_of.to_local(start_ms), zone_of.to_local(end_ms)
    if unit in ("second", "minute"):
        return end_ms // FIXED_MS[unit] - start_ms // FIXED_MS[unit]
    if unit == "hour":
        shift = zone_of.offset_ms(start_ms)
        return (end_ms + shift) // FIXED_MS[unit] - (start_ms + shift) // FIXED_MS[unit]
    if unit == "day":
        return end // MS_PER_DAY - start // MS_PER_DAY
    if unit == "week":
        first = WEEKDAYS.index(start_of_week)
        return (end // MS_PER_DAY + 3 - first) // 7 - (start // MS_PER_DAY + 3 - first) // 7
    step = {"month": 1, "quarter": 3, "year": 12}[unit]
    (start_year, start_month, *_), (end_year, end_month, *_) = parts_of(start), parts_of(end)
    return (end_year * 12 + end_month - 1) // step - (start_year * 12 + start_month - 1) // step
