"""The date operators: parts of dates, `$dateTrunc $dateAdd $dateSubtract $dateDiff $dateFromParts $dateToParts $dateToString`."""

from collections.abc import Callable
from typing import Any, Final

from bson import DatetimeMS, Int64, ObjectId, Timestamp

from ...common.errors import FailedToParse, Location
from ...common.numbers import INT64_MAX, INT64_MIN, whole_number
from ...common.values import MISSING, Document, is_string, type_name
from . import calendar
from .base import Call, Constant, Expression, Lazy, OperatorParser, ParseContext, Variables, named_operands
from .calendar import UNITS, UTC_ZONE, WEEKDAYS, Zone, zone

Part = Callable[[int], Any]


def milliseconds_of(value: Any, code: int = 16006) -> int:
    """A date, timestamp or ObjectId as milliseconds since 1970.

    Raises:
        Location: with the given number, for anything else.
    """
    if type(value) is DatetimeMS:
        return int(value)
    if isinstance(value, Timestamp):
        return int(value.time) * 1000
    if isinstance(value, ObjectId):
        return int.from_bytes(value.binary[:4], "big", signed=True) * 1000
    raise Location(code, f"can't convert from BSON type {type_name(value)} to Date")


def _zone_of(value: Any, name: str) -> Zone | None:
    """The zone of a `timezone` operand; None for null."""
    if value is None or value is MISSING:
        return None
    if not is_string(value):
        raise Location(40517, f"timezone must evaluate to a string, found {type_name(value)}")
    return zone(value)


def _part(part: Part) -> OperatorParser:
    """An operator that takes a date, or `{date, timezone}`."""

    def parse(name: str, spec: Any, context: ParseContext) -> Expression:
        if isinstance(spec, dict) and not next(iter(spec), "$").startswith("$"):
            for key in spec:
                if key not in ("date", "timezone"):
                    raise Location(40535, f'unrecognized option to {name}: "{key}"')
            if "date" not in spec:
                raise Location(40539, f"missing 'date' argument to {name}, provided: {spec}")
            items = [context.parse(spec[key]) for key in ("date", "timezone") if key in spec]
        else:
            if isinstance(spec, list):
                if len(spec) != 1:
                    raise Location(
                        40536, f"{name} accepts exactly one argument if given an array, but was given {len(spec)}"
                    )
                spec = spec[0]
            items = [context.parse(spec)]

        def function(date: Any, zone_name: Any = "UTC") -> Any:
            zone_of = _zone_of(zone_name, name)
            if date is None or date is MISSING or zone_of is None:
                return None
            return part(zone_of.to_local(milliseconds_of(date)))

        return Call(name, items, function)

    return parse


def _options(
    name: str,
    spec: Any,
    context: ParseContext,
    required: tuple[str, ...],
    optional: tuple[str, ...],
    codes: tuple[int, ...],
) -> dict[str, Expression]:
    """Named operands; the codes are those of no document, an unknown name, and each required name (or all of them)."""
    not_object, unknown, *missing = codes
    if isinstance(spec, dict) and not set(spec) - {*required, *optional}:
        for place, key in enumerate(required):
            if key not in spec:
                raise Location(missing[min(place, len(missing) - 1)], f"Missing '{key}' parameter to {name}")
    return named_operands(
        name,
        spec,
        context,
        required=required,
        optional=optional,
        not_object=not_object,
        unknown=unknown,
        missing=missing[0],
    )


def _unit(value: Any, name: str) -> str:
    if not is_string(value):
        raise Location(5439013, f"{name} requires 'unit' to be a string, but got {type_name(value)}")
    if value not in UNITS:
        raise FailedToParse(f"unknown time unit value: {value}")
    return value


def _start_of_week(value: Any, name: str) -> str:
    if not is_string(value):
        raise Location(5439015, f"{name} requires 'startOfWeek' to be a string, but got {type_name(value)}")
    lowered = value.lower()
    for day in WEEKDAYS:
        if lowered in (day, day[:3]):
            return day
    raise Location(5439016, f"{name}: unknown day of week value: {value}")


def _named(
    name: str,
    given: dict[str, Expression],
    compute: Callable[[dict[str, Any]], Any],
) -> Expression:
    """An operator of named operands, which are all evaluated; null where a given one is null or missing."""
    functions = [(key, expression.evaluate) for key, expression in given.items()]

    def evaluate(document: Document, variables: Variables) -> Any:
        values = {key: function(document, variables) for key, function in functions}
        for value in values.values():
            if value is None or value is MISSING:
                return None
        return compute(values)

    shown = {key: expression.serialize() for key, expression in given.items()}
    return Lazy(name, list(given.values()), evaluate, shown)


def _parse_date_trunc(name: str, spec: Any, context: ParseContext) -> Expression:
    given = _options(
        name,
        spec,
        context,
        ("date", "unit"),
        ("binSize", "timezone", "startOfWeek"),
        (5439007, 5439008, 5439009, 5439010),
    )
    fixed_unit = given["unit"].value if isinstance(given["unit"], Constant) else None
    if (
        fixed_unit is not None
        and fixed_unit != "week"
        and "startOfWeek" in given
        and isinstance(given["date"], Constant)
    ):
        # What is not looked at is not checked either.
        given.pop("startOfWeek")

    def compute(values: dict[str, Any]) -> DatetimeMS:
        date = milliseconds_of(values["date"], 5166307)
        unit = _unit(values["unit"], name)
        size = values.get("binSize", 1)
        whole = whole_number(size)
        if whole is None:
            raise Location(5439017, f"{name} requires 'binSize' to be a 64-bit integer, but got value '{size}'")
        if whole <= 0:
            raise Location(5439018, f"{name} requires 'binSize' to be greater than 0, but got value {whole}")
        if unit in calendar.FIXED_MS and unit not in ("day", "week") and whole * calendar.FIXED_MS[unit] > INT64_MAX:
            raise Location(5439002, f"{name}: the bin size {whole} is too large for the unit {unit}")
        if whole > _BINS_MAX and unit in ("month", "quarter", "year"):
            raise Location(5439006, f"{name}: the bin size {whole} is too large for the unit {unit}")
        zone_of = _zone_of(values.get("timezone", "UTC"), name) or UTC_ZONE
        weekly = unit == "week" and "startOfWeek" in values
        first = _start_of_week(values["startOfWeek"], name) if weekly else "sunday"
        return _as_date(calendar.truncate(date, unit, whole, zone_of, first), 5439014)

    return _named(name, given, compute)


_BINS_MAX: Final = 100_000_000_000
_DAYS: Final = {"month": 30, "quarter": 90, "year": 365}
"""About how long a unit lasts, to refuse amounts that cannot end in a date."""


def _as_date(milliseconds: int, code: int) -> DatetimeMS:
    if not INT64_MIN <= milliseconds <= INT64_MAX:
        raise Location(code, "date overflow")
    return DatetimeMS(milliseconds)


def _parse_date_add(name: str, spec: Any, context: ParseContext) -> Expression:
    given = _options(name, spec, context, ("startDate", "unit", "amount"), ("timezone",), (5166400, 5166401, 5166402))
    sign = -1 if name == "$dateSubtract" else 1

    def compute(values: dict[str, Any]) -> DatetimeMS:
        if type(values["startDate"]) not in (DatetimeMS, Timestamp, ObjectId):
            raise Location(5166403, f"{name} requires startDate to be convertible to a date")
        date = milliseconds_of(values["startDate"])
        unit = _unit(values["unit"], name)
        amount = whole_number(values["amount"])
        if amount is None or not INT64_MIN <= amount <= INT64_MAX:
            raise Location(5166405, f"{name} expects integer amount of time units")
        zone_of = _zone_of(values.get("timezone", "UTC"), name) or UTC_ZONE
        length = calendar.FIXED_MS.get(unit) or _DAYS[unit] * calendar.MS_PER_DAY
        if abs(amount) > INT64_MAX // length:
            raise Location(5976500, f"invalid {name} 'amount' parameter value: {amount} {unit}")
        return _as_date(calendar.add(date, unit, sign * amount, zone_of), 5166406)

    return _named(name, given, compute)


def _parse_date_diff(name: str, spec: Any, context: ParseContext) -> Expression:
    given = _options(
        name,
        spec,
        context,
        ("startDate", "endDate", "unit"),
        ("timezone", "startOfWeek"),
        (5166301, 5166302, 5166303, 5166304, 5166305),
    )

    def compute(values: dict[str, Any]) -> Int64:
        start = milliseconds_of(values["startDate"], 5166307)
        end = milliseconds_of(values["endDate"], 5166307)
        unit = _unit(values["unit"], name)
        zone_of = _zone_of(values.get("timezone", "UTC"), name) or UTC_ZONE
        weekly = unit == "week" and "startOfWeek" in values
        first = _start_of_week(values["startOfWeek"], name) if weekly else "sunday"
        return Int64(calendar.difference(start, end, unit, zone_of, first))

    return _named(name, given, compute)


_CIVIL: Final = ("year", "month", "day", "hour", "minute", "second", "millisecond")
_ISO: Final = ("isoWeekYear", "isoWeek", "isoDayOfWeek", "hour", "minute", "second", "millisecond")


def _parse_date_from_parts(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise Location(40519, f"{name} only supports an object as its argument")
    for key in spec:
        if key not in {*_CIVIL, *_ISO, "timezone"}:
            raise Location(40518, f"Unrecognized argument to {name}: {key}")
    if "year" not in spec and "isoWeekYear" not in spec:
        raise Location(40516, f"{name} requires either 'year' or 'isoWeekYear' to be present")
    iso = "isoWeekYear" in spec
    wrong = set(spec) & (set(_CIVIL[:3]) if iso else set(_ISO[:3]))
    if wrong:
        raise Location(
            40525 if iso and "year" not in spec else 40489, f"{name} does not allow mixing natural dates with ISO dates"
        )
    given = {key: context.parse(value) for key, value in spec.items()}

    def compute(values: dict[str, Any]) -> DatetimeMS:
        numbers = {}
        for key in _ISO if iso else _CIVIL:
            low = 1 if key in ("month", "day", "isoWeek", "isoDayOfWeek") else 0
            whole = whole_number(values.get(key, low))
            if whole is None:
                raise Location(40515, f"'{key}' must evaluate to an integer, found {type_name(values[key])}")
            limits = (1, 9999) if key in ("year", "isoWeekYear") else (-32768, 32767) if key in _NARROW else None
            if limits is not None and not limits[0] <= whole <= limits[1]:
                code = 40523 if key in ("year", "isoWeekYear") else 31034
                raise Location(
                    code, f"'{key}' must evaluate to an integer in the range {limits[0]} to {limits[1]}, found {whole}"
                )
            numbers[key] = whole
        zone_of = _zone_of(values.get("timezone", "UTC"), name) or UTC_ZONE
        year, second, third, *clock = numbers.values()
        if iso:
            january4 = calendar.days_from_civil(year, 1, 4)
            days = january4 - calendar.iso_weekday(january4) + 1 + (second - 1) * 7 + third - 1
            local = days * calendar.MS_PER_DAY + calendar.from_parts(1970, 1, 1, *clock)
        else:
            local = calendar.from_parts(year, second, third, *clock)
        return _as_date(zone_of.to_utc(local), 40517)

    return _named(name, given, compute)


_NARROW: Final = frozenset({"month", "day", "isoWeek", "isoDayOfWeek", "hour", "minute"})


def _parse_date_to_parts(name: str, spec: Any, context: ParseContext) -> Expression:
    given = _options(name, spec, context, ("date",), ("timezone", "iso8601"), (40524, 40520, 40522))

    def compute(values: dict[str, Any]) -> Document:
        iso = values.get("iso8601", False)
        if not isinstance(iso, bool):
            raise Location(40521, f"iso8601 must evaluate to a bool, found {type_name(iso)}")
        zone_of = _zone_of(values.get("timezone", "UTC"), name) or UTC_ZONE
        local = zone_of.to_local(milliseconds_of(values["date"]))
        parts = calendar.parts_of(local)._asdict()
        if not iso:
            return dict(parts)
        year, week = calendar.iso_week(local)
        day = calendar.iso_weekday(local // calendar.MS_PER_DAY)
        clock = {key: parts[key] for key in _CIVIL[3:]}
        return {"isoWeekYear": year, "isoWeek": week, "isoDayOfWeek": day, **clock}

    return _named(name, given, compute)


def _sunday_week(local: int) -> int:
    """Week of the year, 0 to 53, weeks beginning on Sunday."""
    weekday = calendar.iso_weekday(local // calendar.MS_PER_DAY) % 7
    return (calendar.day_of_year(local) - 1 - weekday + 7) // 7


_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_FORMATS: Final[dict[str, Callable[[int], str]]] = {
    "Y": lambda local: _four_digits(calendar.parts_of(local).year),
    "m": lambda local: f"{calendar.parts_of(local).month:02}",
    "d": lambda local: f"{calendar.parts_of(local).day:02}",
    "H": lambda local: f"{calendar.parts_of(local).hour:02}",
    "M": lambda local: f"{calendar.parts_of(local).minute:02}",
    "S": lambda local: f"{calendar.parts_of(local).second:02}",
    "L": lambda local: f"{calendar.parts_of(local).millisecond:03}",
    "j": lambda local: f"{calendar.day_of_year(local):03}",
    "u": lambda local: str(calendar.iso_weekday(local // calendar.MS_PER_DAY)),
    "w": lambda local: str(calendar.iso_weekday(local // calendar.MS_PER_DAY) % 7 + 1),
    "U": lambda local: f"{_sunday_week(local):02}",
    "V": lambda local: f"{calendar.iso_week(local)[1]:02}",
    "G": lambda local: _four_digits(calendar.iso_week(local)[0]),
    "b": lambda local: _MONTHS[calendar.parts_of(local).month - 1][:3],
    "B": lambda local: _MONTHS[calendar.parts_of(local).month - 1],
    "%": lambda local: "%",
}


def _four_digits(year: int) -> str:
    if not 0 <= year <= 9999:
        raise Location(18537, f"Could not convert date to string: year {year} is outside 0..9999")
    return f"{year:04}"


def check_format(text: str) -> None:
    """Refuse a format with a specifier that does not exist.

    Raises:
        Location: 18535 for a `%` at the end, 18536 for an unknown letter.
    """
    position = text.find("%")
    while position >= 0:
        if position + 1 >= len(text):
            raise Location(18535, "Unmatched '%' at end of format string")
        if text[position + 1] not in _FORMATS and text[position + 1] not in "zZ":
            raise Location(18536, f"Invalid format character '%{text[position + 1]}' in format string")
        position = text.find("%", position + 2)


def format_date(utc_ms: int, text: str, zone_of: Zone) -> str:
    """A moment by a format, as `$dateToString` writes it."""
    check_format(text)
    local = zone_of.to_local(utc_ms)
    out, position = [], 0
    while (found := text.find("%", position)) >= 0:
        letter = text[found + 1]
        out.append(text[position:found])
        if letter in "zZ":
            minutes = (local - utc_ms) // 60_000
            sign = "-" if minutes < 0 else "+"
            out.append(f"{sign}{abs(minutes) // 60:02}{abs(minutes) % 60:02}" if letter == "z" else str(minutes))
        else:
            out.append(_FORMATS[letter](local))
        position = found + 2
    return "".join([*out, text[position:]])


def _parse_date_to_string(name: str, spec: Any, context: ParseContext) -> Expression:
    given = _options(name, spec, context, ("date",), ("format", "timezone", "onNull"), (18629, 18534, 18628))
    on_null = given.pop("onNull", None)
    if isinstance(given.get("format"), Constant):
        fixed = given["format"].serialize()["$const"]
        if fixed is not None:
            if not is_string(fixed):
                raise Location(18533, f"{name} requires that 'format' be a string, found: {type_name(fixed)}")
            check_format(fixed)
    functions = {key: expression.evaluate for key, expression in given.items()}

    def evaluate(document: Document, variables: Variables) -> Any:
        values = {key: function(document, variables) for key, function in functions.items()}
        date = values["date"]
        if date is None or date is MISSING:
            return None if on_null is None else on_null.evaluate(document, variables)
        if any(value is None or value is MISSING for value in values.values()):
            return None
        zone_of = _zone_of(values.get("timezone", "UTC"), name) or UTC_ZONE
        default = "%Y-%m-%dT%H:%M:%S.%LZ" if zone_of.is_utc else "%Y-%m-%dT%H:%M:%S.%L"
        text = values.get("format", default)
        if not is_string(text):
            raise Location(18533, f"{name} requires that 'format' be a string, found: {type_name(text)}")
        return format_date(milliseconds_of(date), text, zone_of)

    items = [*given.values(), *([] if on_null is None else [on_null])]
    shown = {key: expression.serialize() for key, expression in given.items()}
    if on_null is not None:
        shown["onNull"] = on_null.serialize()
    return Lazy(name, items, evaluate, shown)


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$dateAdd": _parse_date_add,
    "$dateDiff": _parse_date_diff,
    "$dateFromParts": _parse_date_from_parts,
    "$dateSubtract": _parse_date_add,
    "$dateToParts": _parse_date_to_parts,
    "$dateToString": _parse_date_to_string,
    "$dateTrunc": _parse_date_trunc,
    "$dayOfMonth": _part(lambda local: calendar.parts_of(local).day),
    "$dayOfWeek": _part(lambda local: calendar.iso_weekday(local // calendar.MS_PER_DAY) % 7 + 1),
    "$dayOfYear": _part(calendar.day_of_year),
    "$hour": _part(lambda local: calendar.parts_of(local).hour),
    "$isoDayOfWeek": _part(lambda local: calendar.iso_weekday(local // calendar.MS_PER_DAY)),
    "$isoWeek": _part(lambda local: calendar.iso_week(local)[1]),
    "$isoWeekYear": _part(lambda local: Int64(calendar.iso_week(local)[0])),
    "$millisecond": _part(lambda local: calendar.parts_of(local).millisecond),
    "$minute": _part(lambda local: calendar.parts_of(local).minute),
    "$month": _part(lambda local: calendar.parts_of(local).month),
    "$second": _part(lambda local: calendar.parts_of(local).second),
    "$week": _part(_sunday_week),
    "$year": _part(lambda local: calendar.parts_of(local).year),
}
