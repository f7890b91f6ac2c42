"""What the pages on time-series collections have one type into mongosh, and what it prints then."""

from collections.abc import Callable
from typing import Any

import pytest

from mongosh.conftest import Shell

pytestmark = pytest.mark.timeout(900)

TEMPERATURES = {18: (12, 11, 11, 12, 16, 15), 19: (13, 12, 11, 12, 17, 12)}


def weather(name: str) -> str:
    """Lines that insert twelve temperatures of one sensor, one every four hours."""
    rows = ",\n".join(
        "{metadata: {sensorId: 5578, type: 'temperature'}, "
        f"timestamp: ISODate('2021-05-{day}T{4 * step:02}:00:00.000Z'), temp: {temperature}}}"
        for day, row in TEMPERATURES.items()
        for step, temperature in enumerate(row)
    )
    return f"db.{name}.insertMany([\n{rows}\n])\n"


@pytest.fixture(scope="module", autouse=True)
def session(shell: Shell) -> str:
    return shell(
        "db.createCollection('forecast', {timeseries: {timeField: 'timestamp', metaField: 'metadata',"
        " granularity: 'hours'}})\n" + weather("forecast")
    )


def test_creating_and_inserting(session: str) -> None:
    assert "{ ok: 1 }" in session
    assert "acknowledged: true" in session
    assert session.count("ObjectId(") == 12


def test_one_measurement(answer: Callable[[str], Any]) -> None:
    found = answer("db.forecast.findOne({timestamp: ISODate('2021-05-18T00:00:00.000Z')})")
    assert list(found) == ["timestamp", "metadata", "temp", "_id"]
    assert (found["metadata"], found["temp"]) == ({"sensorId": 5578, "type": "temperature"}, 12)


def test_daily_means(answer: Callable[[str], Any]) -> None:
    rows = answer(
        "db.forecast.aggregate([{$project: {date: {$dateToParts: {date: '$timestamp'}}, temp: 1}},"
        " {$group: {_id: {date: {year: '$date.year', month: '$date.month', day: '$date.day'}}, avgTmp: {$avg: '$temp'}}},"
        " {$sort: {_id: 1}}]).toArray()"
    )
    assert rows == [
        {"_id": {"date": {"year": 2021, "month": 5, "day": day}}, "avgTmp": sum(row) / len(row)}
        for day, row in TEMPERATURES.items()
    ]


def test_collections_by_type(answer: Callable[[str], Any]) -> None:
    rows = answer("db.runCommand({listCollections: 1, filter: {type: 'timeseries'}}).cursor.firstBatch")
    (row,) = [row for row in rows if row["name"] == "forecast"]
    assert row["options"]["timeseries"] == {
        "timeField": "timestamp",
        "metaField": "metadata",
        "granularity": "hours",
        "bucketMaxSpanSeconds": 2592000,
    }


def test_expiry_and_granularity_are_changed(shell: Shell, answer: Callable[[str], Any]) -> None:
    shell(
        "db.createCollection('day', {timeseries: {timeField: 'timestamp', metaField: 'metadata', granularity: 'seconds'},"
        " expireAfterSeconds: 86400})\n"
        "db.runCommand({collMod: 'day', expireAfterSeconds: 604801})\n"
        "db.runCommand({collMod: 'day', timeseries: {granularity: 'minutes'}})\n"
    )
    (row,) = answer("db.getCollectionInfos({name: 'day'})")
    assert row["options"]["expireAfterSeconds"] == 604801
    assert row["options"]["timeseries"]["granularity"] == "minutes"
    shell("db.runCommand({collMod: 'day', expireAfterSeconds: 'off'})\n")
    assert "expireAfterSeconds" not in answer("db.getCollectionInfos({name: 'day'})")[0]["options"]
    finer = "db.runCommand({collMod: 'day', timeseries: {granularity: 'seconds'}})"
    assert "told: InvalidOptions" in shell(f"try {{ {finer} }} catch (error) {{ print('told: ' + error.codeName) }}\n")


def test_secondary_indexes_hints_and_sorts(shell: Shell, answer: Callable[[str], Any]) -> None:
    printed = shell("db.forecast.createIndex({timestamp: 1, 'metadata.sensorId': 1})\n")
    assert "timestamp_1_metadata.sensorId_1" in printed
    assert [index["name"] for index in answer("db.forecast.getIndexes()")] == [
        "metadata_1_timestamp_1",
        "timestamp_1_metadata.sensorId_1",
    ]
    plan = answer(
        "db.forecast.find({timestamp: {$gte: ISODate('2021-05-18T12:00:00.000Z')}}).sort({timestamp: 1}).explain()"
    )
    winner = plan["stages"][0]["$cursor"]["queryPlanner"]["winningPlan"]
    assert winner["inputStage"]["stage"] == "IXSCAN"
    assert list(plan["stages"][2]) == ["$_internalBoundedSort"]
    count = answer(
        "db.forecast.find({'metadata.sensorId': 5578}).hint('timestamp_1_metadata.sensorId_1').toArray().length"
    )
    assert count == 12


def test_the_last_point(shell: Shell, answer: Callable[[str], Any]) -> None:
    shell("db.forecast.createIndex({'metadata.sensorId': 1, timestamp: -1})\n")
    last = (
        "db.forecast.aggregate([{$sort: {'metadata.sensorId': 1, timestamp: -1}},"
        " {$group: {_id: '$metadata.sensorId', ts: {$first: '$timestamp'}, temp: {$first: '$temp'}}}])"
    )
    assert answer(f"{last}.toArray()") == [{"_id": 5578, "ts": {"$date": "2021-05-19T20:00:00Z"}, "temp": 12}]
    plan = answer(last.replace("aggregate(", "explain().aggregate("))
    assert plan["stages"][0]["$cursor"]["queryPlanner"]["winningPlan"]["stage"] == "DISTINCT_SCAN"


def test_metadata_is_updated_and_measurements_are_removed(answer: Callable[[str], Any]) -> None:
    updated = answer("db.forecast.updateMany({'metadata.sensorId': 5578}, {$set: {'metadata.type': 'air'}})")
    assert updated["modifiedCount"] == 12
    assert answer("db.forecast.deleteMany({temp: {$lt: 12}})")["deletedCount"] == 3
    assert answer("db.forecast.countDocuments({'metadata.type': 'air'})") == 9


def test_windows_over_time(answer: Callable[[str], Any]) -> None:
    rows = answer(
        "db.forecast.aggregate([{$setWindowFields: {partitionBy: '$metadata.sensorId', sortBy: {timestamp: 1},"
        " output: {mean: {$avg: '$temp', window: {range: [-8, 0], unit: 'hour'}}}}},"
        " {$sort: {timestamp: 1}}, {$limit: 3}]).toArray()"
    )
    assert [row["mean"] for row in rows] == pytest.approx([12, 12, 14])
