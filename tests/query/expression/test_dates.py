"""Dates: parts, truncation, differences and texts, in zones with and without daylight saving."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from bson import Code, DatetimeMS, Int64, ObjectId, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from bucketd.common.errors import MongoError
from support.pipelines import evaluated

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(text: str) -> DatetimeMS:
    moment = datetime.fromisoformat(text if "+" in text else text + "+00:00")
    return DatetimeMS(int((moment - EPOCH) / timedelta(milliseconds=1)))


DATE = at("2024-03-10T14:25:36.789")  # a Sunday


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("$year", 2024), ("$month", 3), ("$dayOfMonth", 10), ("$hour", 14), ("$minute", 25), ("$second", 36),
        ("$millisecond", 789), ("$dayOfWeek", 1), ("$dayOfYear", 70), ("$week", 10), ("$isoWeek", 10),
        ("$isoWeekYear", 2024), ("$isoDayOfWeek", 7),
    ],
)  # fmt: skip
def test_part(name: str, expected: int) -> None:
    assert evaluated({name: "$d"}, {"d": DATE}) == expected
    assert evaluated({name: {"date": "$d", "timezone": "+00:00"}}, {"d": DATE}) == expected
    assert evaluated({name: ["$d"]}, {"d": DATE}) == expected
    assert evaluated({name: None}) is None
    assert evaluated({name: {"date": "$d", "timezone": None}}, {"d": DATE}) is None


@pytest.mark.parametrize("value", [Timestamp(86_400, 1), ObjectId("000151800000000000000000")])
def test_timestamps_and_object_ids_are_dates(value: Any) -> None:
    assert evaluated({"$dayOfMonth": "$d"}, {"d": value}) == 2


@pytest.mark.parametrize(
    ("date", "options", "expected"),
    [
        ("2024-03-10T14:25:36.789", {"unit": "hour"}, "2024-03-10T14:00:00"),
        ("2024-03-10T14:25:36.789", {"unit": "minute", "binSize": 10}, "2024-03-10T14:20:00"),
        ("2024-03-10T14:25:36.789", {"unit": "second", "binSize": 7}, "2024-03-10T14:25:34"),
        ("2024-03-10T14:25:36.789", {"unit": "day"}, "2024-03-10T00:00:00"),
        ("2024-03-13T14:25:36.789", {"unit": "week"}, "2024-03-10T00:00:00"),
        ("2024-03-10T14:25:36.789", {"unit": "week", "startOfWeek": "monday"}, "2024-03-04T00:00:00"),
        ("2024-03-10T14:25:36.789", {"unit": "week", "startOfWeek": "FRI"}, "2024-03-08T00:00:00"),
        ("2024-03-10T14:25:36.789", {"unit": "month"}, "2024-03-01T00:00:00"),
        ("2024-03-10T14:25:36.789", {"unit": "month", "binSize": 5}, "2024-03-01T00:00:00"),
        ("2024-03-10T14:25:36.789", {"unit": "quarter"}, "2024-01-01T00:00:00"),
        ("2024-03-10T14:25:36.789", {"unit": "year", "binSize": 10}, "2020-01-01T00:00:00"),
        ("1999-12-31T23:00:00", {"unit": "year", "binSize": 10}, "1990-01-01T00:00:00"),
        ("2024-03-31T12:00:00", {"unit": "day", "timezone": "Europe/Berlin"}, "2024-03-30T23:00:00"),
        ("2024-04-01T12:00:00", {"unit": "day", "timezone": "Europe/Berlin"}, "2024-03-31T22:00:00"),
        ("2024-04-01T12:00:00", {"unit": "day", "timezone": "-03:30"}, "2024-04-01T03:30:00"),
    ],
)
def test_truncated(date: str, options: dict[str, Any], expected: str) -> None:
    assert evaluated({"$dateTrunc": {"date": at(date), **options}}) == at(expected)


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"$dateTrunc": {"unit": "day"}}, 5439009),
        ({"$dateTrunc": {"date": DATE, "unit": "hour", "binSize": Int64(2**62)}}, 5439002),
        ({"$dateTrunc": {"date": DATE, "unit": "year", "binSize": Int64(2**62)}}, 5439006),
        ({"$dateAdd": {"startDate": DATE, "unit": "month", "amount": 30_000_000_000}}, 5976500),
        ({"$dateFromParts": {"isoWeekYear": 2024, "month": 1}}, 40525),
        ({"$dateTrunc": {"date": DATE}}, 5439010),
        ({"$dateTrunc": {"date": DATE, "unit": "week", "startOfWeek": "x"}}, 5439016),
        ({"$dateTrunc": {"date": DATE, "unit": "day", "timezone": Code("UTC")}}, 40517),
        ({"$dateDiff": {"startDate": DATE, "unit": "day"}}, 5166304),
        ({"$dateDiff": {"startDate": DATE, "endDate": DATE, "unit": 1}}, 5439013),
        ({"$dateDiff": {"startDate": DATE, "endDate": 1, "unit": "day"}}, 5166307),
        ({"$dateAdd": {"startDate": DATE, "unit": "day"}}, 5166402),
        ({"$dateAdd": {"startDate": 1, "unit": "day", "amount": 1}}, 5166403),
        ({"$dateAdd": {"startDate": DATE, "unit": "day", "amount": 0.5}}, 5166405),
        ({"$dateTrunc": 1}, 5439007),
        ({"$dateTrunc": {"date": DATE, "unit": "day", "x": 1}}, 5439008),
        ({"$dateTrunc": {"date": "a", "unit": "day"}}, 5166307),
        ({"$dateTrunc": {"date": DATE, "unit": 1}}, 5439013),
        ({"$dateTrunc": {"date": DATE, "unit": "eon"}}, 9),
        ({"$dateTrunc": {"date": DATE, "unit": "day", "binSize": 0}}, 5439018),
        ({"$dateTrunc": {"date": DATE, "unit": "day", "binSize": "1"}}, 5439017),
        ({"$dateTrunc": {"date": DATE, "unit": "day", "timezone": 1}}, 40517),
        ({"$dateTrunc": {"date": DATE, "unit": "day", "timezone": "Mars/Base"}}, 40485),
        ({"$year": "a"}, 16006),
        ({"$year": {"date": DATE, "x": 1}}, 40535),
        ({"$year": {"timezone": "UTC"}}, 40539),
        ({"$year": [1, 2]}, 40536),
        ({"$dateToString": {"date": DATE, "format": "%Q"}}, 18536),
        ({"$dateToString": {"date": DATE, "format": "%"}}, 18535),
        ({"$dateToString": {"format": "%Y"}}, 18628),
        ({"$dateFromParts": {"month": 1}}, 40516),
        ({"$dateFromParts": {"year": 2024, "isoWeek": 1}}, 40489),
        ({"$dateFromParts": {"year": 10_000}}, 40523),
    ],
)
def test_complaint(spec: Any, code: int) -> None:
    with pytest.raises(MongoError) as caught:
        evaluated(spec)
    assert caught.value.number == code


@pytest.mark.parametrize(
    ("start", "unit", "amount", "expected"),
    [
        ("2024-01-31T00:00:00", "month", 1, "2024-02-29T00:00:00"),
        ("2024-02-29T00:00:00", "year", 1, "2025-02-28T00:00:00"),
        ("2024-01-01T00:00:00", "quarter", -1, "2023-10-01T00:00:00"),
        ("2024-01-01T00:00:00", "millisecond", 1, "2024-01-01T00:00:00.001"),
        ("2024-03-01T00:00:00", "week", -1, "2024-02-23T00:00:00"),
    ],
)
def test_added(start: str, unit: str, amount: int, expected: str) -> None:
    spec = {"startDate": at(start), "unit": unit, "amount": amount}
    assert evaluated({"$dateAdd": spec}) == at(expected)
    assert evaluated({"$dateSubtract": {**spec, "amount": -amount}}) == at(expected)


@pytest.mark.parametrize(
    ("start", "end", "unit", "expected"),
    [
        ("2024-01-01T23:59:59.999", "2024-01-02T00:00:00", "day", 1),
        ("2024-01-31T00:00:00", "2024-02-01T00:00:00", "month", 1),
        ("2024-02-01T00:00:00", "2023-12-31T00:00:00", "year", -1),
        ("2024-03-09T00:00:00", "2024-03-10T00:00:00", "week", 1),
        ("2024-01-01T00:00:00", "2024-12-31T00:00:00", "quarter", 3),
        ("2024-01-01T00:00:00", "2024-01-01T00:59:59", "hour", 0),
    ],
)
def test_difference(start: str, end: str, unit: str, expected: int) -> None:
    value = evaluated({"$dateDiff": {"startDate": at(start), "endDate": at(end), "unit": unit}})
    assert value == expected
    assert type(value) is Int64


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "2024-03-10T14:25:36.789Z"),
        ({"timezone": "America/New_York"}, "2024-03-10T10:25:36.789"),
        (
            {"format": "%d/%m/%Y %H:%M:%S.%L %j %U %V %G %u %w %b %B %%"},
            "10/03/2024 14:25:36.789 070 10 10 2024 7 1 Mar March %",
        ),
        ({"format": "%z %Z", "timezone": "Asia/Kolkata"}, "+0530 330"),
    ],
)
def test_text(options: dict[str, Any], expected: str) -> None:
    assert evaluated({"$dateToString": {"date": DATE, **options}}) == expected


def test_null_dates() -> None:
    assert evaluated({"$dateToString": {"date": None}}) is None
    assert evaluated({"$dateToString": {"date": "$missing", "onNull": "none"}}) == "none"
    assert evaluated({"$dateTrunc": {"date": None, "unit": "day"}}) is None


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "+05:45", "-0330"]
UNITS = ["millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"]
dates = st.integers(-(10**12), 4 * 10**12).map(DatetimeMS)


@given(dates, st.sampled_from(UNITS), st.integers(1, 400), st.sampled_from(ZONES), st.sampled_from(["sunday", "thu"]))
def test_truncation_is_idempotent_and_goes_back(
    date: DatetimeMS, unit: str, size: int, timezone: str, start: str
) -> None:
    options = {"unit": unit, "binSize": size, "timezone": timezone, "startOfWeek": start}
    once = evaluated({"$dateTrunc": {"date": date, **options}})
    assert int(once) <= int(date)
    assert evaluated({"$dateTrunc": {"date": once, **options}}) == once


@given(dates, dates, st.sampled_from(UNITS), st.integers(1, 50), st.sampled_from(ZONES))
def test_truncation_keeps_order(one: DatetimeMS, other: DatetimeMS, unit: str, size: int, timezone: str) -> None:
    low, high = sorted((int(one), int(other)))
    options = {"unit": unit, "binSize": size, "timezone": timezone}
    first = evaluated({"$dateTrunc": {"date": DatetimeMS(low), **options}})
    second = evaluated({"$dateTrunc": {"date": DatetimeMS(high), **options}})
    assert int(first) <= int(second)


@given(dates, st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]))
def test_parts_are_those_of_the_calendar(date: DatetimeMS, timezone: str) -> None:
    local = (EPOCH + timedelta(milliseconds=int(date))).astimezone(ZoneInfo(timezone))
    parts = evaluated({"$dateToParts": {"date": date, "timezone": timezone}})
    assert list(parts.values()) == [
        local.year, local.month, local.day, local.hour, local.minute, local.second, local.microsecond // 1000,
    ]  # fmt: skip
    year, week, day = local.isocalendar()
    iso = evaluated({"$dateToParts": {"date": date, "timezone": timezone, "iso8601": True}})
    assert (iso["isoWeekYear"], iso["isoWeek"], iso["isoDayOfWeek"]) == (year, week, day)


@given(dates)
def test_parts_and_texts_lead_back(date: DatetimeMS) -> None:
    parts = evaluated({"$dateToParts": {"date": date}})
    assert evaluated({"$dateFromParts": parts}) == date
    iso = evaluated({"$dateToParts": {"date": date, "iso8601": True}})
    assert evaluated({"$dateFromParts": iso}) == date
    assert evaluated({"$dateFromString": {"dateString": evaluated({"$dateToString": {"date": date}})}}) == date


@given(dates, dates, st.sampled_from(UNITS))
def test_difference_counts_boundaries(start: DatetimeMS, end: DatetimeMS, unit: str) -> None:
    there = evaluated({"$dateDiff": {"startDate": start, "endDate": end, "unit": unit}})
    back = evaluated({"$dateDiff": {"startDate": end, "endDate": start, "unit": unit}})
    assert there == -back
    floor = evaluated({"$dateTrunc": {"date": start, "unit": unit}})
    assert evaluated({"$dateAdd": {"startDate": floor, "unit": unit, "amount": there}}) == evaluated(
        {"$dateTrunc": {"date": end, "unit": unit}}
    )
