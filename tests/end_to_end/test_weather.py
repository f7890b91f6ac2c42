"""Real weather through pymongo: what the server answers equals what pandas computes, before and after a restart."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pandas
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from vega_datasets import local_data

from end_to_end.weather_loading import example_module
from support.server_process import ServerProcess


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return example_module()


@pytest.fixture(scope="module", params=["as loaded", "after a restart"])
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, example: ModuleType
) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("weather")
    server = ServerProcess(folder)
    server.start()
    try:
        with MongoClient(server.uri) as client:
            example.load(client["weather_test"])
        if request.param == "after a restart":
            server.stop()
            server.start()
        with MongoClient(server.uri) as client:
            yield client["weather_test"]
    finally:
        server.stop()


def means_by_month(frame: pandas.DataFrame, field: str) -> dict[pandas.Timestamp, tuple[float, int]]:
    grouped = frame.groupby(frame["date"].dt.to_period("M").dt.to_timestamp())[field].agg(["mean", "count"])
    return {month: (row["mean"], int(row["count"])) for month, row in grouped.iterrows()}


@pytest.mark.parametrize(
    ("collection", "field", "source"),
    [
        ("temperatures", "temp", "sf_temps"),
        ("weather", "temp_max", "seattle_weather"),
        ("weather", "wind", "seattle_weather"),
    ],
)
def test_monthly_means(loaded: Database[Any], example: ModuleType, collection: str, field: str, source: str) -> None:
    expected = means_by_month(getattr(local_data, source)(), field)
    rows = example.monthly_means(loaded[collection], field)
    assert [row["_id"] for row in rows] == [month.to_pydatetime() for month in expected]
    for row, (mean, count) in zip(rows, expected.values(), strict=True):
        assert row["count"] == count
        assert row["mean"] == pytest.approx(mean, rel=1e-12)


def test_extremes(loaded: Database[Any], example: ModuleType) -> None:
    frame = local_data.seattle_weather()
    row = example.extremes(loaded["weather"], "temp_min", "temp_max")
    assert row["lowest"] == frame["temp_min"].min()
    assert row["highest"] == frame["temp_max"].max()


def test_latest_of_each_station(loaded: Database[Any], example: ModuleType) -> None:
    frame = local_data.seattle_weather()
    (row,) = example.latest_per_station(loaded["weather"])
    newest = frame.loc[frame["date"].idxmax()]
    assert row["_id"] == "Seattle"
    assert row["date"] == newest["date"].to_pydatetime()
    assert row["last"]["weather"] == newest["weather"]
    assert row["last"]["precipitation"] == newest["precipitation"]


def test_every_measurement_is_there_once(loaded: Database[Any]) -> None:
    for collection, frame in (("temperatures", local_data.sf_temps()), ("weather", local_data.seattle_weather())):
        assert loaded[collection].count_documents({}) == len(frame)
        stored = sorted(row["date"] for row in loaded[collection].find({}, {"date": 1, "_id": 0}))
        assert stored == sorted(frame["date"].dt.to_pydatetime().tolist())


def test_a_range_of_time_and_a_threshold(loaded: Database[Any]) -> None:
    frame = local_data.seattle_weather()
    start, stop = pandas.Timestamp("2013-03-01"), pandas.Timestamp("2013-06-01")
    chosen = frame[(frame["date"] >= start) & (frame["date"] < stop) & (frame["wind"] > 5.0)]
    found = list(
        loaded["weather"].find(
            {"date": {"$gte": start.to_pydatetime(), "$lt": stop.to_pydatetime()}, "wind": {"$gt": 5.0}},
            {"_id": 0, "date": 1, "wind": 1},
        )
    )
    assert sorted((row["date"], row["wind"]) for row in found) == sorted(
        (date.to_pydatetime(), wind) for date, wind in zip(chosen["date"], chosen["wind"], strict=True)
    )
