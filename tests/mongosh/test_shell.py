"""A session in a real mongosh: connect, look around, create, insert, query, explain."""

from collections.abc import Callable
from typing import Any

import pandas
import pytest
from pymongo import MongoClient
from vega_datasets import local_data

from end_to_end.weather_loading import load_weather
from mongosh.conftest import Shell
from support.server_process import ServerProcess

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", autouse=True)
def weather(shell_server: ServerProcess) -> None:
    with MongoClient(shell_server.uri) as client:
        load_weather(client["weather_shell"])


def test_looking_around(shell: Shell) -> None:
    printed = shell("show dbs\nshow collections\ndb.version()\n")
    assert "weather_shell" in printed
    assert "temperatures" in printed
    assert "[time-series]" in printed
    assert "8.2" in printed


def test_monthly_means_of_the_shell_equal_pandas(answer: Callable[[str], Any]) -> None:
    rows = answer(
        "db.temperatures.aggregate(["
        "{$group: {_id: {$dateTrunc: {date: '$date', unit: 'month'}}, mean: {$avg: '$temp'}}}, {$sort: {_id: 1}}"
        "]).toArray()"
    )
    frame = local_data.sf_temps()
    expected = frame.groupby(frame["date"].dt.to_period("M"))["temp"].mean()
    assert [row["_id"]["$date"][:7] for row in rows] == [str(month) for month in expected.index]
    assert [row["mean"] for row in rows] == pytest.approx(list(expected), rel=1e-12)


def test_extremes_and_the_latest(answer: Callable[[str], Any]) -> None:
    frame = local_data.seattle_weather()
    (extremes,) = answer(
        "db.weather.aggregate([{$group: {_id: null, low: {$min: '$temp_min'}, high: {$max: '$temp_max'}}}]).toArray()"
    )
    assert (extremes["low"], extremes["high"]) == (frame["temp_min"].min(), frame["temp_max"].max())
    (latest,) = answer(
        "db.weather.aggregate([{$sort: {station: 1, date: -1}},"
        " {$group: {_id: '$station.city', date: {$first: '$date'}}}]).toArray()"
    )
    assert pandas.Timestamp(latest["date"]["$date"]).tz_localize(None) == frame["date"].max()


def test_find_with_a_cursor_that_goes_on(answer: Callable[[str], Any]) -> None:
    assert answer("db.temperatures.find().batchSize(100).toArray().length") == len(local_data.sf_temps())
    assert answer("db.temperatures.countDocuments({temp: {$gt: 60}})") == int(
        (local_data.sf_temps()["temp"] > 60).sum()
    )


def test_creating_inserting_and_indexes(shell: Shell, answer: Callable[[str], Any]) -> None:
    printed = shell(
        "db.createCollection('typed', {timeseries: {timeField: 't', metaField: 'm'}})\n"
        "db.typed.insertOne({t: ISODate('2024-01-01T00:00:00Z'), m: 'a', v: 1})\n"
        "db.typed.insertMany([{t: ISODate('2024-01-01T00:00:01Z'), m: 'a', v: 2}, {t: new Date(), m: 'b'}])\n"
        "db.plain.insertOne({_id: 1, a: 1})\n"
        "db.plain.createIndex({a: 1})\n"
        "db.plain.updateOne({_id: 1}, {$set: {b: 2}, $inc: {a: 1}})\n"
    )
    assert "{ ok: 1 }" in printed
    assert "acknowledged: true" in printed
    assert "a_1" in printed
    assert answer("db.typed.find({m: 'a'}, {_id: 0}).sort({t: 1}).toArray()") == [
        {"t": {"$date": "2024-01-01T00:00:00Z"}, "m": "a", "v": 1},
        {"t": {"$date": "2024-01-01T00:00:01Z"}, "m": "a", "v": 2},
    ]
    assert [index["name"] for index in answer("db.typed.getIndexes()")] == ["m_1_t_1"]
    assert answer("db.plain.find().toArray()") == [{"_id": 1, "a": 2, "b": 2}]
    assert answer("db.plain.find({a: 2}).explain().queryPlanner.winningPlan.inputStage.stage") == "IXSCAN"


def test_statistics_and_explain(answer: Callable[[str], Any]) -> None:
    stats = answer("db.weather.stats()")
    assert stats["timeseries"]["bucketCount"] >= 1
    assert answer("db.stats().ok") == 1
    explained = answer("db.weather.find({wind: {$gt: 5}}).explain('executionStats')")
    names = [next(iter(stage)) for stage in explained["stages"]]
    assert names[:2] == ["$cursor", "$_internalUnpackBucket"]
    assert answer("db.serverStatus().process") == "mongod"
    assert answer("db.getCollectionInfos({name: 'weather'})")[0]["type"] == "timeseries"


def test_mistakes_are_told_and_the_shell_goes_on(shell: Shell) -> None:
    printed = shell(
        "try { db.weather.insertOne({station: 'x'}) } catch (error) { print('told: ' + error.message) }\n"
        "try { db.runCommand({nonsense: 1}) } catch (error) { print('told: ' + error.codeName) }\n"
        "print('still here')\n"
    )
    assert "'date' must be present and contain a valid BSON UTC datetime value" in printed
    assert "told: CommandNotFound" in printed
    assert "still here" in printed
