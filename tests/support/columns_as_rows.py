"""Measurements of several types, expressions over them, and answers that are compared: for laws of columns and rows."""

import math
from collections.abc import Callable
from typing import Any

from bson import DatetimeMS, Int64
from hypothesis import strategies as st

from bucketd.catalog.buckets import BucketLimits
from bucketd.common.errors import MongoError
from bucketd.common.values import Document, encode
from support.measurements import Measurements
from support.memory_engine import MemoryEngine

START = 1_700_000_000_000 // 3_600_000 * 3_600_000
DOUBLES = st.one_of(
    st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 0.1, 1e16, 1.0])
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "d": DOUBLES,
    "i": st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, -(2**31)])),
    "l": st.sampled_from([Int64(1), Int64(-7), Int64(2**62), Int64(2**63 - 1), Int64(-(2**63))]),
    "s": st.sampled_from(["", "a", "b", "é"]),
    "b": st.booleans(),
    "w": st.sampled_from([DatetimeMS(0), DatetimeMS(-5), DatetimeMS(2**40)]),
}


CALM: dict[str, st.SearchStrategy[Any]] = {
    **FIELDS,
    "d": st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 0.1, 1e16, -1e16, 1e-300, 5e-324, 2.0**60, 1.0])),
    "l": st.sampled_from([Int64(1), Int64(-7), Int64(2**40), Int64(-(2**40))]),
}
"""The same without what only rows can tell."""


@st.composite
def typed(draw: st.DrawFn, fields: dict[str, st.SearchStrategy[Any]] = FIELDS) -> list[Document]:
    names = draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, unique=True))
    always = draw(st.booleans())
    rows = []
    for number in range(draw(st.integers(1, 60))):
        row: Document = {
            "_id": number,
            "t": DatetimeMS(START + draw(st.integers(0, 3 * 3600)) * 1000),
            "m": draw(st.sampled_from(["a", "b", {"x": 1}])),
        }
        for name in names:
            if always or draw(st.booleans()):
                row[name] = draw(fields[name])
        rows.append(row)
    return rows


def trunc(unit: str, **more: Any) -> Document:
    return {"$dateTrunc": {"date": "$t", "unit": unit, **more}}


_LEAVES = st.sampled_from(
    ["$d", "$i", "$l", "$w", "$b", "$t", "$s", "$m.x", "a", "é", 0, 1, -3, 2.5, Int64(7), None, True, DatetimeMS(5)]
)
UNARY = [
    "$ceil", "$exp", "$floor", "$ln", "$round", "$sin", "$sqrt", "$toBool", "$toDate", "$toDouble", "$toInt", "$toLong", "$trunc",
]  # fmt: skip
PARTS = [
    "$dayOfMonth", "$dayOfWeek", "$dayOfYear", "$hour", "$isoDayOfWeek", "$isoWeek", "$isoWeekYear", "$millisecond", "$minute",
    "$month", "$second", "$week", "$year",
]  # fmt: skip
ZONES = st.sampled_from(
    ["UTC", "+05:45", "-0330", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"]
)
DATE_UNITS = st.sampled_from(["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"])


def dated(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    """Operators on dates that are mostly dates."""
    dates = st.one_of(st.sampled_from(["$t", "$w"]), inner)
    amounts = st.one_of(st.integers(-40, 40), inner)
    week = st.sampled_from(["sunday", "Mon", "friday"])
    return st.one_of(
        st.builds(lambda name, date: {name: date}, st.sampled_from(PARTS), dates),
        st.builds(lambda name, date, zone: {name: {"date": date, "timezone": zone}}, st.sampled_from(PARTS), dates, ZONES),
        st.builds(
            lambda date, unit, size, zone, first: {
                "$dateTrunc": {"date": date, "unit": unit, "binSize": size, "timezone": zone, "startOfWeek": first}
            },
            dates,
            DATE_UNITS,
            st.integers(1, 30),
            ZONES,
            week,
        ),
        st.builds(
            lambda name, date, unit, amount, zone: {
                name: {"startDate": date, "unit": unit, "amount": amount, "timezone": zone}
            },
            st.sampled_from(["$dateAdd", "$dateSubtract"]),
            dates,
            DATE_UNITS,
            amounts,
            ZONES,
        ),
        st.builds(
            lambda start, end, unit, zone, first: {
                "$dateDiff": {
                    "startDate": start, "endDate": end, "unit": unit, "timezone": zone, "startOfWeek": first,
                }
            },
            dates,
            dates,
            DATE_UNITS,
            ZONES,
            week,
        ),
    )  # fmt: skip


EXPRESSIONS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from(["$add", "$multiply", "$subtract", "$divide"]), st.lists(inner, min_size=2, max_size=2)
        ).map(lambda pair: dict([pair])),
        st.tuples(
            st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]), st.lists(inner, min_size=2, max_size=2)
        ).map(lambda pair: dict([pair])),
        st.tuples(st.sampled_from(["$and", "$or", "$ifNull"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda pair: dict([pair])
        ),
        st.lists(inner, min_size=3, max_size=3).map(lambda parts: {"$cond": parts}),
        inner.map(lambda one: {"$not": [one]}),
        inner.map(lambda one: {"$abs": one}),
        st.tuples(st.sampled_from(["$mod", "$pow"]), st.lists(inner, min_size=2, max_size=2)).map(
            lambda pair: dict([pair])
        ),
        st.tuples(st.sampled_from(UNARY), inner).map(lambda pair: dict([pair])),
        st.tuples(st.sampled_from(["$round", "$trunc"]), inner, st.integers(-3, 4)).map(
            lambda parts: {parts[0]: [parts[1], parts[2]]}
        ),
        dated(inner),
    ),
    max_leaves=4,
).filter(lambda one: isinstance(one, dict))


async def stored(rows: list[Document]) -> Measurements:
    """The rows in buckets, of which some are packed."""
    lab = Measurements(MemoryEngine(), BucketLimits(count_max=25))
    await lab.create()
    later = len(rows) // 3 if len(rows) % 2 else 0
    await lab.insert(*rows[: len(rows) - later])
    if len(rows) % 4:
        await lab.pack()
    if later:
        await lab.insert(*rows[len(rows) - later :])
    return lab


def id_first(value: Any) -> Any:
    """The value with each `_id` at the beginning, where the driver's encoding puts that of a whole document."""
    if isinstance(value, list):
        return [id_first(item) for item in value]
    if isinstance(value, dict):
        ordered = {"_id": value["_id"], **value} if "_id" in value else value
        return {name: id_first(item) for name, item in ordered.items()}
    return value


def by_group(rows: list[Document]) -> list[bytes]:
    return sorted(encode(id_first(row)) for row in rows)


ERROR = object()


def answer(run: Callable[[], Any]) -> Any:
    """What comes of it; all errors are alike, since they depend on which row comes first."""
    try:
        return run()
    except MongoError:
        return ERROR


def bucket_order(lab: Measurements) -> list[Document]:
    """The measurements as rows, in the order in which buckets give them."""
    return lab.aggregate()
