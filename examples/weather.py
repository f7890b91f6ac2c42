"""Load real weather into time-series collections, and ask for monthly means, extremes and the latest of each station.

    bucketd --port 27017 &
    python examples/weather.py mongodb://127.0.0.1:27017

The data comes with the package `vega_datasets`: a year of hourly temperatures of San Francisco, and four years of daily
weather of Seattle.
"""

import sys
from typing import Any

from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from vega_datasets import local_data

Rows = list[dict[str, Any]]


def load(database: Database[dict[str, Any]]) -> None:
    """Create `temperatures` (hourly) and `weather` (daily), and insert every measurement."""
    temperatures = database.create_collection(
        "temperatures", timeseries={"timeField": "date", "metaField": "station", "granularity": "hours"}
    )
    weather = database.create_collection(
        "weather", timeseries={"timeField": "date", "metaField": "station", "granularity": "hours"}
    )
    hourly = local_data.sf_temps()
    temperatures.insert_many(
        {"date": date.to_pydatetime(), "station": {"city": "San Francisco"}, "temp": float(temp)}
        for date, temp in zip(hourly["date"], hourly["temp"], strict=True)
    )
    daily = local_data.seattle_weather()
    weather.insert_many(
        {"date": row.pop("date").to_pydatetime(), "station": {"city": "Seattle"}, **row}
        for row in daily.to_dict(orient="records")
    )


def monthly_means(collection: Collection[dict[str, Any]], field: str) -> Rows:
    """The mean of a field in each month, oldest first."""
    return list(
        collection.aggregate(
            [
                {
                    "$group": {
                        "_id": {"$dateTrunc": {"date": "$date", "unit": "month"}},
                        "mean": {"$avg": f"${field}"},
                        "count": {"$sum": 1},
                    }
                },
                {"$sort": {"_id": 1}},
            ]
        )
    )


def extremes(collection: Collection[dict[str, Any]], low: str, high: str) -> dict[str, Any]:
    """The lowest `low` and the highest `high` of all measurements."""
    (row,) = collection.aggregate(
        [{"$group": {"_id": None, "lowest": {"$min": f"${low}"}, "highest": {"$max": f"${high}"}}}]
    )
    return row


def latest_per_station(collection: Collection[dict[str, Any]]) -> Rows:
    """The newest measurement of each station."""
    return list(
        collection.aggregate(
            [
                {"$sort": {"station": 1, "date": -1}},
                {"$group": {"_id": "$station.city", "date": {"$first": "$date"}, "last": {"$first": "$$ROOT"}}},
                {"$sort": {"_id": 1}},
            ]
        )
    )


def main(uri: str) -> None:
    """Load the data into the database `example` and print the answers."""
    with MongoClient[dict[str, Any]](uri) as client:
        client.drop_database("example")
        database = client["example"]
        load(database)
        for row in monthly_means(database["temperatures"], "temp"):
            print(f"San Francisco {row['_id']:%Y-%m}  {row['mean']:6.2f} °F  ({row['count']} hours)")
        print("Seattle, lowest and highest:", extremes(database["weather"], "temp_min", "temp_max"))
        for name in ("temperatures", "weather"):
            print("latest:", latest_per_station(database[name]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "mongodb://127.0.0.1:27017")
