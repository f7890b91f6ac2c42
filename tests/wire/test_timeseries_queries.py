"""Reading time-series collections: the plan that explain shows is the one that ran, and indexes go both ways."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import SON
from pymongo.database import Database
from pymongo.errors import OperationFailure

Document = dict[str, Any]
START = datetime(2024, 3, 1, tzinfo=UTC)
UNPACK = {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}


@pytest.fixture
def series(database: Database[Document]) -> Any:
    """Five sensors, a measurement every ten minutes for twelve hours."""
    database.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    database["series"].insert_many(
        [
            {
                "_id": sensor * 100 + step,
                "t": START + timedelta(minutes=10 * step),
                "m": {"s": sensor, "loc": [sensor, 5]},
                "x": step,
                "y": {"a": step},
            }
            for sensor in range(5)
            for step in range(72)
        ]
    )
    return database["series"]


def explained(series: Any, *pipeline: Document, verbosity: str = "executionStats", **options: Any) -> list[Document]:
    command = SON([("aggregate", "series"), ("pipeline", list(pipeline)), ("cursor", {})])
    command.update(options)
    reply = series.database.command("explain", command, verbosity=verbosity)
    stages: list[Document] = reply["stages"]
    return stages


def cursor_of(stages: list[Document]) -> Document:
    cursor: Document = stages[0]["$cursor"]
    return cursor


def leaf_of(stages: list[Document]) -> Document:
    plan: Document = cursor_of(stages)["queryPlanner"]["winningPlan"]
    while "inputStage" in plan:
        plan = plan["inputStage"]
    return plan


def names(stages: list[Document]) -> list[str]:
    return [next(iter(stage)) for stage in stages]


def examined(stages: list[Document]) -> int:
    count: int = cursor_of(stages)["executionStats"]["totalDocsExamined"]
    return count


def test_a_scan_of_everything(series: Any) -> None:
    stages = explained(series)
    assert names(stages) == ["$cursor", "$_internalUnpackBucket"]
    assert cursor_of(stages)["queryPlanner"]["namespace"] == f"{series.database.name}.system.buckets.series"
    assert leaf_of(stages)["stage"] == "COLLSCAN"
    assert stages[1]["$_internalUnpackBucket"] == {"exclude": [], **UNPACK}
    assert (examined(stages), stages[1]["nReturned"]) == (60, 360)


def test_a_filter_on_time_reads_the_range_of_ids_that_can_hold_it(series: Any) -> None:
    low, high = START + timedelta(hours=3, minutes=25), START + timedelta(hours=5)
    stages = explained(series, {"$match": {"t": {"$gte": low, "$lt": high}}})
    assert leaf_of(stages)["stage"] == "CLUSTERED_IXSCAN"
    assert "minRecord" in leaf_of(stages)
    assert "maxRecord" in leaf_of(stages)
    assert examined(stages) <= 5 * 4
    unpack = stages[1]["$_internalUnpackBucket"]
    assert unpack["eventFilter"] == {
        "$and": [{"t": {"$gte": low.replace(tzinfo=None)}}, {"t": {"$lt": high.replace(tzinfo=None)}}]
    } or set(map(str, unpack["eventFilter"]["$and"])) == {
        str({"t": {"$gte": low.replace(tzinfo=None)}}), str({"t": {"$lt": high.replace(tzinfo=None)}}),
    }  # fmt: skip
    assert "wholeBucketFilter" in unpack
    assert stages[1]["nReturned"] == 5 * 9


def test_a_filter_on_meta_goes_to_the_buckets_as_it_is(series: Any) -> None:
    series.create_index({"m.s": 1, "t": 1})
    stages = explained(series, {"$match": {"m.s": 3}})
    assert leaf_of(stages)["indexName"] == "m.s_1_t_1"
    assert leaf_of(stages)["keyPattern"] == {"meta.s": 1, "control.min.t": 1, "control.max.t": 1}
    assert "eventFilter" not in stages[1]["$_internalUnpackBucket"]
    assert examined(stages) == 12


def test_a_filter_on_a_measurement_leaves_out_buckets(series: Any) -> None:
    stages = explained(series, {"$match": {"x": {"$gte": 66}, "y.a": {"$lt": 70}}})
    assert stages[1]["nReturned"] == 5 * 4
    assert cursor_of(stages)["executionStats"]["nReturned"] == 5
    series.create_index({"x": -1})
    stages = explained(series, {"$match": {"x": {"$gte": 66}}})
    assert leaf_of(stages)["keyPattern"] == {"control.max.x": -1, "control.min.x": -1}
    assert stages[1]["nReturned"] == 30


def test_only_what_is_read_is_unpacked(series: Any) -> None:
    stages = explained(series, {"$group": {"_id": "$m.s", "mean": {"$avg": "$x"}}})
    assert stages[1]["$_internalUnpackBucket"]["include"] == ["m", "x"]
    stages = explained(series, {"$match": {"x": 3}}, {"$project": {"y.a": 1, "_id": 0}})
    assert stages[1]["$_internalUnpackBucket"]["include"] == ["x", "y"]


def test_counts_come_from_buckets(series: Any) -> None:
    stages = explained(series, {"$group": {"_id": "$m.s", "n": {"$sum": 1}}})
    assert names(stages) == ["$cursor", "$group"]
    assert {row["n"] for row in series.aggregate([{"$group": {"_id": "$m.s", "n": {"$sum": 1}}}])} == {72}
    assert list(series.aggregate([{"$match": {"m.s": 1}}, {"$count": "n"}])) == [{"n": 72}]
    assert series.count_documents({"x": {"$lt": 10}}) == 50
    assert series.estimated_document_count() == 360


@pytest.mark.parametrize(
    ("order", "bound", "leaf"),
    [
        ({"t": 1}, {"base": "min"}, "COLLSCAN"),
        ({"t": -1}, {"base": "min", "offsetSeconds": 3600}, "COLLSCAN"),
        ({"m": 1, "t": 1}, {"base": "min"}, "IXSCAN"),
        ({"m": -1, "t": -1}, {"base": "min", "offsetSeconds": 3600}, "IXSCAN"),
    ],
)
def test_an_order_by_time_is_no_blocking_sort(series: Any, order: Document, bound: Document, leaf: str) -> None:
    stages = explained(series, {"$sort": order})
    assert names(stages) == ["$cursor", "$_internalUnpackBucket", "$_internalBoundedSort"]
    assert stages[2]["$_internalBoundedSort"] == {"sortKey": order, "bound": bound, "limit": 0}
    assert leaf_of(stages)["stage"] == leaf
    assert cursor_of(stages)["queryPlanner"]["winningPlan"]["stage"] != "SORT"
    rows = list(series.aggregate([{"$sort": order}]))
    keys = [((row["m"]["s"] if "m" in order else 0), row["t"]) for row in rows]
    assert keys == sorted(keys, reverse=order["t"] < 0)
    assert len(rows) == 360


def test_an_order_with_a_limit_stops_early(series: Any) -> None:
    stages = explained(series, {"$sort": {"t": 1}}, {"$limit": 3})
    assert stages[2]["$_internalBoundedSort"]["limit"] == 3
    assert [row["t"] for row in series.find().sort("t", -1).limit(5)] == [
        (START + timedelta(minutes=710)).replace(tzinfo=None)
    ] * 5


@pytest.mark.parametrize("order", [{"x": 1}, {"t": 1, "x": 1}, {"t": 1, "m": 1}, {"m": 1, "x": 1}])
def test_other_orders_sort_measurements(series: Any, order: Document) -> None:
    assert names(explained(series, {"$sort": order}))[-1] == "$sort"


@pytest.mark.parametrize(
    ("pipeline", "step"),
    [
        ([{"$sort": {"m.s": 1, "t": -1}}, {"$group": {"_id": "$m.s", "x": {"$first": "$x"}}}], 71),
        ([{"$sort": {"t": -1}}, {"$group": {"_id": "$m", "x": {"$first": "$x"}}}], 71),
        ([{"$sort": {"t": 1}}, {"$group": {"_id": "$m.s", "x": {"$last": "$x"}}}], 71),
        ([{"$sort": {"t": 1}}, {"$group": {"_id": "$m.s", "x": {"$first": "$x"}}}], 0),
        ([{"$group": {"_id": "$m.s", "x": {"$top": {"sortBy": {"t": -1}, "output": "$x"}}}}], 71),
        ([{"$group": {"_id": "$m.s", "x": {"$bottom": {"sortBy": {"t": -1}, "output": "$x"}}}}], 0),
    ],
)
def test_the_last_point_of_each_series_comes_from_its_newest_bucket(
    series: Any, pipeline: list[Document], step: int
) -> None:
    stages = explained(series, *pipeline)
    assert leaf_of(stages)["stage"] == "DISTINCT_SCAN"
    assert examined(stages) <= 15
    rows = list(series.aggregate(pipeline))
    assert len(rows) == 5
    assert {row["x"] for row in rows} == {step}


def test_the_last_point_of_some_series(series: Any) -> None:
    pipeline = [
        {"$match": {"m.s": {"$in": [1, 3]}}},
        {"$sort": {"t": -1}},
        {"$group": {"_id": "$m.s", "x": {"$first": "$x"}}},
    ]
    assert sorted(row["_id"] for row in series.aggregate(pipeline)) == [1, 3]
    # A bucket that begins earlier and reaches further.
    series.insert_one({"_id": "late", "t": START + timedelta(minutes=719), "m": {"s": 1, "loc": [1, 5]}, "x": 999})
    assert {row["_id"]: row["x"] for row in series.aggregate(pipeline)} == {1: 999, 3: 71}


def test_packed_buckets_that_are_sorted_on_disk_are_whole(series: Any) -> None:
    pipeline = [{"$sort": {"m.s": -1}}, {"$group": {"_id": "$m.s", "x": {"$sum": "$x"}, "y": {"$first": "$y.a"}}}]
    expected = sorted(series.aggregate(pipeline), key=lambda row: int(row["_id"]))
    assert expected[0] == {"_id": 0, "x": 2556, "y": 0}
    series.database.command("compact", "series")
    admin = series.database.client.admin
    before = admin.command("getParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=1)
    admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=1000)
    try:
        found = series.aggregate(pipeline, allowDiskUse=True)
        assert sorted(found, key=lambda row: int(row["_id"])) == expected
    finally:
        name = "internalQueryMaxBlockingSortMemoryUsageBytes"
        admin.command("setParameter", 1, **{name: before[name]})


def test_find_explains_as_aggregate_does(series: Any) -> None:
    reply = series.find({"m.s": 1}).explain()
    assert names(reply["stages"]) == ["$cursor", "$_internalUnpackBucket"]


def test_explain_of_a_delete(series: Any) -> None:
    delete = {"delete": "series", "deletes": [{"q": {"x": 5, "m.s": 1}, "limit": 0}]}
    plan = series.database.command("explain", delete, verbosity="executionStats")
    root = plan["queryPlanner"]["winningPlan"]
    assert (root["stage"], root["opType"]) == ("TS_MODIFY", "deleteMany")
    assert root["residualFilter"] == {"x": {"$eq": 5}}
    done = plan["executionStats"]["executionStages"]
    assert (done["nMeasurementsDeleted"], done["nBucketsUnpacked"]) == (1, 1)
    assert series.count_documents({}) == 360


INDEXES = [
    ({"t": 1}, {"control.min.t": 1, "control.max.t": 1}),
    ({"t": -1}, {"control.max.t": -1, "control.min.t": -1}),
    ({"m": -1}, {"meta": -1}),
    ({"m.s": "hashed"}, {"meta.s": "hashed"}),
    ({"m.$**": 1}, {"meta.$**": 1}),
    ({"m.loc": "2d"}, {"meta.loc": "2d"}),
    ({"m.loc": "2dsphere"}, {"meta.loc": "2dsphere"}),
    ({"place": "2dsphere"}, {"data.place": "2dsphere_bucket"}),
    ({"x": 1}, {"control.min.x": 1, "control.max.x": 1}),
    (
        {"y.a": -1, "m.s": 1, "t": 1},
        {"control.max.y.a": -1, "control.min.y.a": -1, "meta.s": 1, "control.min.t": 1, "control.max.t": 1},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("key", "stored"), INDEXES)
def test_keys_are_mapped_to_buckets_and_back(series: Any, key: Document, stored: Document) -> None:
    name = series.create_index(list(key.items()))
    (shown,) = [index for index in series.list_indexes() if index["name"] == name]
    assert list(shown["key"].items()) == list(key.items())
    raw = series.database["system.buckets.series"]
    (kept,) = [index for index in raw.list_indexes() if index["name"] == name]
    assert list(kept["key"].items()) == list(stored.items())
    (used,) = [row for row in series.aggregate([{"$indexStats": {}}]) if row["name"] == name]
    assert list(used["key"].items()) == list(key.items())
    if "hashed" not in key.values() and not any(isinstance(kind, str) for kind in key.values()) and "m.$**" not in key:
        assert len(list(series.find().hint(list(key.items())))) == 360
    series.drop_index(list(key.items()))
    assert [index["name"] for index in series.list_indexes()] == ["m_1_t_1"]


@pytest.mark.parametrize(
    ("key", "options", "code"),
    [
        ({"x": 1}, {"unique": True}, 72),
        ({"x": "text"}, {}, 72),
        ({"x": 1}, {"sparse": True}, 72),
        ({"x": "hashed"}, {}, 67),
        ({"x": "2d"}, {}, 67),
        ({"t": "2dsphere"}, {}, 67),
        ({"x": 1}, {"expireAfterSeconds": 5}, 72),
        ({"t": 1}, {"expireAfterSeconds": 5}, 72),
        ({"t": 1, "m": 1}, {"expireAfterSeconds": 5, "partialFilterExpression": {"m": 1}}, 67),
    ],
)
def test_indexes_that_are_refused(series: Any, key: Document, options: Document, code: int) -> None:
    with pytest.raises(OperationFailure) as error:
        series.create_index(list(key.items()), **options)
    assert error.value.code == code
    assert [index["name"] for index in series.list_indexes()] == ["m_1_t_1"]


def test_partial_indexes(series: Any) -> None:
    filter = {"m.s": {"$gte": 3}, "x": {"$gt": 5}}
    series.create_index({"t": 1}, partialFilterExpression=filter, name="part")
    (shown,) = [index for index in series.list_indexes() if index["name"] == "part"]
    assert shown["partialFilterExpression"] == filter
    query = {"m.s": {"$gte": 4}, "x": {"$gt": 60}, "t": {"$gte": START}}
    assert {row["_id"] for row in series.find(query).hint("part")} == {row["_id"] for row in series.find(query)}
    assert series.count_documents(query) == 11


def test_hidden_indexes(series: Any) -> None:
    series.database.command("collMod", "series", index={"keyPattern": {"m": 1, "t": 1}, "hidden": True})
    assert next(iter(series.list_indexes()))["hidden"]
    with pytest.raises(OperationFailure) as error:
        list(series.find().hint("m_1_t_1"))
    assert error.value.code == 2
    series.database.command("collMod", "series", index={"name": "m_1_t_1", "hidden": False})
    assert len(list(series.find().hint("m_1_t_1"))) == 360


def test_joins_views_and_unions(series: Any) -> None:
    database = series.database
    database["sensors"].insert_many([{"_id": number, "name": f"sensor {number}"} for number in range(5)])
    joined = series.aggregate(
        [
            {"$match": {"x": 71}},
            {"$lookup": {"from": "sensors", "localField": "m.s", "foreignField": "_id", "as": "sensor"}},
            {"$sort": {"m.s": 1}},
        ]
    )
    assert [row["sensor"][0]["name"] for row in joined] == [f"sensor {number}" for number in range(5)]
    latest = database["sensors"].aggregate(
        [
            {
                "$lookup": {
                    "from": "series",
                    "let": {"id": "$_id"},
                    "pipeline": [{"$match": {"$expr": {"$eq": ["$m.s", "$$id"]}}}, {"$sort": {"t": -1}}, {"$limit": 1}],
                    "as": "latest",
                }
            }
        ]
    )
    assert [row["latest"][0]["x"] for row in latest] == [71] * 5
    database.create_collection("hot", viewOn="series", pipeline=[{"$match": {"x": {"$gte": 70}}}])
    assert database["hot"].count_documents({"m.s": 2}) == 2
    (row,) = database["sensors"].aggregate([{"$unionWith": "series"}, {"$count": "n"}])
    assert row["n"] == 365
    rows = database["sensors"].aggregate(
        [
            {
                "$graphLookup": {
                    "from": "series",
                    "startWith": "$_id",
                    "connectFromField": "x",
                    "connectToField": "_id",
                    "as": "all",
                    "maxDepth": 0,
                }
            }
        ]
    )
    assert [len(row["all"]) for row in rows] == [1, 1, 1, 1, 1]


def test_distinct_values(series: Any) -> None:
    assert sorted(series.distinct("m.s")) == [0, 1, 2, 3, 4]
    assert sorted(series.distinct("x", {"t": {"$lt": START + timedelta(minutes=30)}})) == [0, 1, 2]


def test_clients_can_unpack_buckets_themselves(series: Any) -> None:
    raw = series.database["system.buckets.series"]
    rows = list(raw.aggregate([{"$match": {"meta.s": 2}}, {"$_internalUnpackBucket": {"include": ["x"], **UNPACK}}]))
    assert sorted(row["x"] for row in rows) == list(range(72))
    assert set(rows[0]) == {"x"}
    external = {"$_unpackBucket": {"timeField": "t", "metaField": "m"}}
    assert list(raw.aggregate([external, {"$count": "n"}])) == [{"n": 360}]
    filtered = {"$_internalUnpackBucket": {"exclude": ["y"], **UNPACK, "eventFilter": {"x": {"$gt": 70}}}}
    assert sorted(row["_id"] for row in raw.aggregate([filtered])) == [71, 171, 271, 371, 471]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (5, 5346500),
        ({"bucketMaxSpanSeconds": 3600}, 5346508),
        ({"timeField": 5, "bucketMaxSpanSeconds": 3600}, 5346504),
        ({"timeField": "t", "metaField": 5, "bucketMaxSpanSeconds": 3600}, 5346505),
        ({"timeField": "t", "metaField": "a.b", "bucketMaxSpanSeconds": 3600}, 5545700),
        ({"timeField": "t"}, 5510602),
        ({"timeField": "t", "bucketMaxSpanSeconds": "x"}, 5510600),
        ({"timeField": "t", "bucketMaxSpanSeconds": 0}, 5510601),
        ({"include": [], "exclude": [], **UNPACK}, 5408000),
        ({"include": 5, **UNPACK}, 5346501),
        ({"include": [5], **UNPACK}, 5346502),
        ({"include": ["a.b"], **UNPACK}, 5346503),
        ({"computedMetaProjFields": 5, **UNPACK}, 5509900),
        ({"assumeNoMixedSchemaData": 1, **UNPACK}, 6067202),
        ({"unknown": 1, **UNPACK}, 5346506),
    ],
)
def test_what_the_unpacking_stage_refuses(series: Any, spec: Any, code: int) -> None:
    with pytest.raises(OperationFailure) as error:
        series.database["system.buckets.series"].aggregate([{"$_internalUnpackBucket": spec}])
    assert error.value.code == code


def test_fields_come_in_the_order_time_meta_columns(series: Any) -> None:
    assert list(series.find_one()) == ["t", "m", "_id", "x", "y"]
    assert series.find_one({"_id": 105}, {"y.a": 1, "_id": 0}) == {"y": {"a": 5}}


def test_near_points(series: Any) -> None:
    series.create_index({"m.loc": "2dsphere"})
    near = {"near": {"type": "Point", "coordinates": [3, 5]}, "distanceField": "d", "key": "m.loc", "spherical": True}
    rows = list(series.aggregate([{"$geoNear": {**near, "maxDistance": 1000}}]))
    assert len(rows) == 72
    assert {row["m"]["s"] for row in rows} == {3}


@pytest.mark.parametrize("key", ["m", "m.s", "x", "t", "y", "y.a", "list", "list.v", "mixed", "gone"])
@pytest.mark.parametrize("query", [{}, {"x": {"$gte": 5}}, {"m.s": 1}])
def test_distinct_values_are_those_of_a_plain_collection(
    database: Database[Document], key: str, query: Document
) -> None:
    rows = [
        {
            "_id": number,
            "t": START + timedelta(minutes=number % 9),
            "m": {"s": number % 3, "name": "a"},
            "x": [1, 1.0, 2.5, number][number % 4],
            "y": {"a": number % 2},
            "list": [number % 3, [number % 2], {"v": number % 4}],
            **({"mixed": [None, 1, "a", [None]][number % 4]} if number % 5 else {}),
        }
        for number in range(40)
    ]
    database.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    for name in ("series", "plain"):
        database[name].insert_many(rows)
    assert database.series.distinct(key, query) == database.plain.distinct(key, query)
