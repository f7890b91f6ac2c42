"""Reads dates from strings: `$dateFromString`, by a format or by the usual ways of writing a date."""

import re
from typing import Any, Final

from bson import DatetimeMS

from ...common.errors import ConversionFailure, Location
from ...common.values import Document, is_string, type_name
from . import calendar
from .arithmetic import absent
from .base import Constant, Expression, Lazy, OperatorParser, ParseContext, Variables
from .calendar import MS_PER_DAY, UTC_ZONE, Zone, zone

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH: Final = "(?P<name>" + "|".join(f"{month[:3]}(?:{month[3:]})?" for month in _MONTHS) + r"|sept)\.?"
_WEEKDAY: Final = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,?\s+)?"
_DATES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<year>[+-]?\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})",
        r"(?P<year>\d{4})-?W(?P<week>\d{2})(?:-?(?P<weekday>[1-7]))?",
        r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})",
        r"(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})",
        r"(?P<day>\d{1,2})[-.](?P<month>\d{1,2})[-.](?P<year>\d{4})",
        r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})(?!\d)",
        r"(?P<year>\d{4})-(?P<yearday>\d{3})(?!\d)",
        r"(?P<year>\d{4})-(?P<month>\d{2})(?![\d-])",
        _WEEKDAY + _MONTH + r"\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{4})",
        _WEEKDAY + r"(?P<day>\d{1,2})(?:st|nd|rd|th)?[\s.-]+" + _MONTH + r",?[\s.-]+(?P<year>\d{4})",
        r"(?P<year>\d{4})[\s-]+" + _MONTH + r"[\s-]+(?P<day>\d{1,2})",
    )
)
_CLOCK: Final = re.compile(
    r"(?:T|\s+|\s*at\s+)?(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?)?"
    r"(?:\s*(?P<half>[ap])\.?m\.?)?",
    re.IGNORECASE,
)
_BASIC_CLOCK: Final = re.compile(
    r"T(?P<hour>\d{2})(?P<minute>\d{2})(?P<second>\d{2})?(?:[.,](?P<fraction>\d{1,9}))?", re.I
)
_ZONE: Final = re.compile(
    r"\s*(?:(?P<utc>Z|UTC|GMT)(?![A-Za-z+-])|(?:UTC|GMT)?(?P<offset>[+-]\d{1,2}(?::?\d{2})?)|(?P<name>[A-Za-z_]+(?:/[A-Za-z_+-]+)*))\s*\Z",
    re.IGNORECASE,
)
_ABBREVIATIONS: Final = {"EST": -300, "EDT": -240, "CST": -360, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420,
    "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "WET": 0, "WEST": 60, "BST": 60, "MSK": 180, "JST": 540}  # fmt: skip


def _failure(text: str, why: str) -> ConversionFailure:
    return ConversionFailure(f"Error parsing date string '{text}'; {why}")


_AROUND: Final = " \t\r\n\0\u00a0"


class Found:
    """The parts of a date as they are read from a string."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: dict[str, int] = {}
        self.offset_ms: int | None = None
        self.zone: Zone | None = None

    @property
    def has_zone(self) -> bool:
        """Whether the string itself tells the zone."""
        return self.offset_ms is not None or self.zone is not None

    def milliseconds(self, outside: Zone | None) -> int:
        """The moment; `outside` is the zone that was asked for beside the string.

        Raises:
            ConversionFailure: a part is out of its range, or there are two zones.
        """
        if outside is not None and not outside.is_utc and self.has_zone:
            raise _failure(
                self.text, "you cannot pass in a date/time string with time zone information and a time zone"
            )
        local = self._days() * MS_PER_DAY + self._clock()
        if self.offset_ms is not None:
            return local - self.offset_ms
        return (self.zone or outside or UTC_ZONE).to_utc(local)

    def _days(self) -> int:
        parts = self.parts
        year = parts.get("year", parts.get("isoYear", 1970))
        if "week" in parts or "isoYear" in parts:
            fourth = calendar.days_from_civil(year, 1, 4)
            week, day = parts.get("week", 1), parts.get("weekday", 1)
            if not 1 <= week <= 53 or not 1 <= day <= 7:
                raise _failure(self.text, "the parsed date was invalid")
            return fourth - calendar.iso_weekday(fourth) + 1 + (week - 1) * 7 + day - 1
        if "yearday" in parts:
            length = 366 if calendar.days_in_month(year, 2) == 29 else 365
            if not 1 <= parts["yearday"] <= length:
                raise _failure(self.text, "the parsed date was invalid")
            return calendar.days_from_civil(year, 1, 1) + parts["yearday"] - 1
        month, day = parts.get("month", 1), parts.get("day", 1)
        if not 1 <= month <= 12 or not 1 <= day <= calendar.days_in_month(year, month):
            raise _failure(self.text, "the parsed date was invalid")
        return calendar.days_from_civil(year, month, day)

    def _clock(self) -> int:
        hour, minute, second = (self.parts.get(name, 0) for name in ("hour", "minute", "second"))
        if hour > 24 or minute > 59 or second > 60 or (hour == 24 and (minute or second)):
            raise _failure(self.text, "the parsed time was invalid")
        return hour * 3_600_000 + minute * 60_000 + second * 1000 + self.parts.get("millisecond", 0)


def read_date(text: str, outside: Zone | None = None) -> int:
    """Milliseconds since 1970 of a date written in one of the usual ways.

    Raises:
        ConversionFailure: it cannot be read.
    """
    found = Found(text)
    stripped = text.strip(_AROUND)
    for pattern in _DATES:
        match = pattern.match(stripped)
        if match is None:
            continue
        given = match.groupdict()
        name = given.pop("name", None)
        found.parts = {key: int(value) for key, value in given.items() if value is not None}
        if name is not None:
            found.parts["month"] = _month(name)
        rest = stripped[match.end() :]
        if rest and not _read_clock(found, rest):
            found.offset_ms = found.zone = None
            continue
        return found.milliseconds(outside)
    raise _failure(text, "could not parse it as a date")


def _month(name: str) -> int:
    return next(place for place, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))


def _read_clock(found: Found, rest: str) -> bool:
    match = _BASIC_CLOCK.match(rest) or _CLOCK.match(rest.lstrip(","))
    if match is None:
        return _read_zone(found, rest)
    given = match.groupdict()
    if given.get("minute") is None and given.get("half") is None:
        return _read_zone(found, rest)
    for name in ("hour", "minute", "second"):
        found.parts[name] = int(given[name] or 0)
    found.parts["millisecond"] = int((given["fraction"] or "0").ljust(3, "0")[:3])
    if given.get("half"):
        found.parts["hour"] = found.parts["hour"] % 12 + (12 if given["half"].lower() == "p" else 0)
    after = rest.lstrip(",")[match.end() :] if match.re is _CLOCK else rest[match.end() :]
    return not after.strip() or _read_zone(found, after)


def _read_zone(found: Found, text: str) -> bool:
    match = _ZONE.match(text)
    if match is None:
        return False
    if match["utc"]:
        found.offset_ms = 0
    elif match["offset"]:
        found.offset_ms = _offset(match["offset"]) * 60_000
    elif match["name"].upper() in _ABBREVIATIONS:
        found.offset_ms = _ABBREVIATIONS[match["name"].upper()] * 60_000
    else:
        try:
            found.zone = zone(match["name"])
        except Location:
            return False
    return True


def _offset(text: str) -> int:
    digits = text[1:].replace(":", "")
    hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
    return (hours * 60 + minutes) * (-1 if text[0] == "-" else 1)


_SPECIFIERS: Final[dict[str, tuple[str, str]]] = {
    "Y": ("year", r"\d{4}"),
    "m": ("month", r"\d{1,2}"),
    "d": ("day", r"\d{1,2}"),
    "H": ("hour", r"\d{1,2}"),
    "M": ("minute", r"\d{1,2}"),
    "S": ("second", r"\d{1,2}"),
    "L": ("millisecond", r"\d{1,3}"),
    "j": ("yearday", r"\d{1,3}"),
    "G": ("isoYear", r"\d{4}"),
    "V": ("week", r"\d{1,2}"),
    "u": ("weekday", r"\d"),
    "b": ("month", "(?:" + "|".join(month[:3] for month in _MONTHS) + ")"),
    "B": ("month", "(?:" + "|".join(_MONTHS) + ")"),
    "z": ("zone", r"(?:[+-]\d{2}:?\d{2}|Z|UTC|GMT)"),
    "Z": ("zoneMinutes", r"[+-]?\d{1,4}"),
}


def check_read_format(text: str) -> None:
    """Refuse a format with a specifier that cannot be read.

    Raises:
        Location: 18535 for a `%` at the end, 18536 for an unknown letter.
    """
    position = text.find("%")
    while position >= 0:
        if position + 1 >= len(text):
            raise Location(18535, "Unmatched '%' at end of format string")
        if text[position + 1] not in _SPECIFIERS and text[position + 1] != "%":
            raise Location(18536, f"Invalid format character '%{text[position + 1]}' in format string")
        position = text.find("%", position + 2)


def read_formatted(text: str, form: str, outside: Zone | None = None) -> int:
    """Milliseconds since 1970 of a date written by a format.

    Raises:
        ConversionFailure: the string does not have the format.
    """
    found, at, place = Found(text), 0, 0
    while place < len(form):
        if form[place] != "%" or form[place + 1] == "%":
            literal = form[place]
            if not text.startswith(literal, at):
                raise _failure(text, "it does not have the format")
            at, place = at + 1, place + (2 if literal == "%" else 1)
            continue
        name, pattern = _SPECIFIERS[form[place + 1]]
        match = re.compile(pattern, re.IGNORECASE).match(text, at)
        if match is None:
            raise _failure(text, "it does not have the format")
        at, place = match.end(), place + 2
        value = match[0]
        if name == "zone":
            found.offset_ms = _offset(value) * 60_000 if value[0] in "+-" else 0
        elif name == "zoneMinutes":
            found.offset_ms = int(value) * 60_000
        elif name == "month" and not value.isdecimal():
            found.parts[name] = _month(value)
        elif name == "millisecond":
            found.parts[name] = int(value.ljust(3, "0"))
        else:
            found.parts[name] = int(value)
    if at != len(text):
        raise _failure(text, "trailing data")
    if "year" not in found.parts and "isoYear" not in found.parts:
        raise _failure(text, "it names no year")
    return found.milliseconds(outside)


def _parse_date_from_string(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(40540, f"{name} only supports an object as an argument, found: {type_name(spec)}")
    for key in spec:
        if key not in ("dateString", "format", "timezone", "onNull", "onError"):
            raise Location(40541, f"Unrecognized argument to {name}: {key}")
    if "dateString" not in spec:
        raise Location(40542, f"Missing 'dateString' parameter to {name}")
    given = {key: context.parse(value) for key, value in spec.items()}
    form_of = given.get("format")
    if isinstance(form_of, Constant) and not absent(form_of.value):
        _checked_format(name, form_of.value)

    def evaluate(document: Document, variables: Variables) -> Any:
        text = given["dateString"].evaluate(document, variables)
        zone_name = given["timezone"].evaluate(document, variables) if "timezone" in given else "UTC"
        form = given["format"].evaluate(document, variables) if "format" in given else ""
        if not absent(form) and "format" in given:
            _checked_format(name, form)
        if not absent(zone_name) and not is_string(zone_name):
            raise Location(40517, f"timezone must evaluate to a string, found {type_name(zone_name)}")
        outside = zone(zone_name) if "timezone" in given and not absent(zone_name) else None
        if absent(text):
            return given["onNull"].evaluate(document, variables) if "onNull" in given else None
        try:
            if not is_string(text):
                raise ConversionFailure(f"{name} requires that 'dateString' be a string, found: {type_name(text)}")
            if absent(zone_name) or absent(form):
                return None
            return DatetimeMS(read_formatted(text, form, outside) if "format" in given else read_date(text, outside))
        except ConversionFailure:
            if "onError" not in given:
                raise
            return given["onError"].evaluate(document, variables)

    shown = {key: expression.serialize() for key, expression in given.items()}
    return Lazy(name, list(given.values()), evaluate, shown)


def _checked_format(name: str, form: Any) -> None:
    if not is_string(form):
        raise Location(40684, f"{name} requires that 'format' be a string, found: {type_name(form)}")
    check_read_format(form)


OPERATORS: Final[dict[str, OperatorParser]] = {"$dateFromString": _parse_date_from_string}
