"""Hashed, wildcard, geospatial and text indexes as clients make them, see them and ask them."""

from typing import Any

import pytest
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure

Document = dict[str, Any]
ORIGIN = {"type": "Point", "coordinates": [0, 0]}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]]}


def point(x: float, y: float) -> Document:
    return {"type": "Point", "coordinates": [x, y]}


def scans(collection: Collection[Document], filter: Document, **options: Any) -> list[tuple[str, str | None]]:
    """Stage and index of every part of the plan that was chosen."""
    shown = collection.database.command(
        "explain", {"find": collection.name, "filter": filter, **options}, verbosity="queryPlanner"
    )
    found: list[tuple[str, str | None]] = []

    def walk(node: Document) -> None:
        found.append((node["stage"], node.get("indexName")))
        for below in [node[name] for name in ("inputStage",) if name in node] + node.get("inputStages", []):
            walk(below)

    walk(shown["queryPlanner"]["winningPlan"])
    return found


@pytest.mark.parametrize(
    ("asked", "listed"),
    [
        ({"key": {"p": "2dsphere"}}, {"key": {"p": "2dsphere"}, "2dsphereIndexVersion": 3}),
        (
            {"key": {"p": "2d"}, "bits": 20, "min": -10, "max": 10},
            {"key": {"p": "2d"}, "bits": 20, "min": -10.0, "max": 10.0},
        ),
        ({"key": {"p": "hashed", "q": 1}}, {"key": {"p": "hashed", "q": 1}}),
        (
            {"key": {"$**": 1}, "wildcardProjection": {"a": 1}},
            {"key": {"$**": 1}, "wildcardProjection": {"a": 1}},
        ),
        (
            {"key": {"k": 1, "title": "text", "body": "text"}, "weights": {"title": 5}},
            {
                "key": {"k": 1, "_fts": "text", "_ftsx": 1},
                "weights": {"body": 1, "title": 5},
                "default_language": "english",
                "language_override": "language",
                "textIndexVersion": 3,
            },
        ),
    ],
)
def test_an_index_is_listed_with_its_options(database: Database[Document], asked: Document, listed: Document) -> None:
    command = {"createIndexes": "c", "indexes": [{"name": "i", **asked}]}
    assert database.command(command)["numIndexesAfter"] == 2
    assert database.command(command)["numIndexesAfter"] == 2
    (row,) = [row for row in database["c"].list_indexes() if row["name"] == "i"]
    assert {name: dict(value) if isinstance(value, dict) else value for name, value in row.items()} == {
        "v": 2, "name": "i", **listed,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "document", "code"),
    [
        ({"a": "hashed"}, {"a": [1]}, 16766),
        ({"a.b": "hashed"}, {"a": [{"b": 1}]}, 16766),
        ({"p": "2dsphere"}, {"p": "here"}, 16755),
        ({"p": "2dsphere"}, {"p": point(181, 0)}, 16755),
        ({"p": "2dsphere"}, {"p": [ORIGIN]}, 16755),
        ({"p": "2d"}, {"p": [181, 0]}, 13027),
        ({"p": "2d"}, {"p": [1]}, 13068),
        ({"p": "2d"}, {"p": ["x", 1]}, 13026),
        ({"t": "text"}, {"t": "x", "language": 5}, 17261),
        ({"t": "text"}, {"t": "x", "language": "klingon"}, 17262),
        ({"k": 1, "t": "text"}, {"t": "x", "k": [1]}, 16675),
    ],
)
def test_what_an_index_cannot_hold(database: Database[Document], key: Document, document: Document, code: int) -> None:
    collection = database["c"]
    database.command({"createIndexes": "c", "indexes": [{"name": "i", "key": key}]})
    with pytest.raises(OperationFailure) as caught:
        collection.insert_one(document)
    assert caught.value.code == code
    collection.drop_index("i")
    collection.insert_one(document)
    with pytest.raises(OperationFailure) as caught:
        database.command({"createIndexes": "c", "indexes": [{"name": "i", "key": key}]})
    assert caught.value.code == code
    assert [row["name"] for row in collection.list_indexes()] == ["_id_"]


def test_entries_follow_updates_and_deletes(database: Database[Document]) -> None:
    collection = database["c"]
    for key in ({"p": "2dsphere"}, {"h": "hashed"}, {"$**": 1}, {"t": "text"}):
        database.command({"createIndexes": "c", "indexes": [{"name": str(key), "key": key}]})
    collection.insert_many(
        [{"_id": number, "p": point(number, 0), "h": number, "t": f"word{number}"} for number in range(5)]
    )
    collection.update_one({"_id": 1}, {"$set": {"p": point(100, 0), "h": "moved", "t": "elsewhere"}})
    collection.delete_one({"_id": 2})
    near = {"p": {"$geoWithin": {"$centerSphere": [[0, 0], 0.2]}}}
    assert sorted(row["_id"] for row in collection.find(near)) == [0, 3, 4]
    assert scans(collection, near)[-1] == ("IXSCAN", "{'p': '2dsphere'}")
    assert [row["_id"] for row in collection.find({"h": "moved"}).hint("{'h': 'hashed'}")] == [1]
    assert [row["_id"] for row in collection.find({"h": 2}).hint("{'h': 'hashed'}")] == []
    assert [row["_id"] for row in collection.find({"$text": {"$search": "elsewhere word1"}})] == [1]
    assert [row["_id"] for row in collection.find({"t": "elsewhere"}).hint("{'$**': 1}")] == [1]


def test_plans_use_the_index_that_fits(database: Database[Document]) -> None:
    collection = database["c"]
    collection.insert_many(
        [{"a": number, "o": {"x": number}, "p": point(number % 90, 0), "q": [number % 90, 0]} for number in range(200)]
    )
    specs = [{"a": "hashed"}, {"o.$**": 1}, {"p": "2dsphere"}, {"q": "2d"}]
    database.command(
        {"createIndexes": "c", "indexes": [{"name": f"i{at}", "key": key} for at, key in enumerate(specs)]}
    )
    assert scans(collection, {"a": 5}) == [("FETCH", None), ("IXSCAN", "i0")]
    assert scans(collection, {"a": {"$in": [5, 6]}}) == [("FETCH", None), ("IXSCAN", "i0")]
    assert scans(collection, {"a": {"$gt": 5}}) == [("COLLSCAN", None)]
    assert scans(collection, {"o.x": {"$gte": 5, "$lt": 7}}) == [("FETCH", None), ("IXSCAN", "i1")]
    assert scans(collection, {"o.y": {"$exists": True}}) == [("FETCH", None), ("IXSCAN", "i1")]
    assert scans(collection, {"o.x": None}) == [("COLLSCAN", None)]
    assert scans(collection, {"p": {"$geoIntersects": {"$geometry": SQUARE}}})[-1] == ("IXSCAN", "i2")
    assert scans(collection, {"q": {"$geoWithin": {"$box": [[0, 0], [5, 5]]}}})[-1] == ("IXSCAN", "i3")
    assert scans(collection, {"p": {"$geoWithin": {"$box": [[0, 0], [5, 5]]}}}) == [("COLLSCAN", None)]
    assert scans(collection, {"p": {"$near": {"$geometry": ORIGIN}}}) == [("GEO_NEAR_2DSPHERE", "i2")]
    assert scans(collection, {"q": {"$near": [0, 0]}}) == [("GEO_NEAR_2D", "i3")]
    few = collection.database.command(
        "explain",
        {"find": "c", "filter": {"p": {"$near": {"$geometry": ORIGIN, "$maxDistance": 1000}}}},
        verbosity="executionStats",
    )
    assert few["executionStats"]["nReturned"] == 3
    assert few["executionStats"]["totalDocsExamined"] < 20


@pytest.mark.parametrize(
    ("filter", "code"),
    [
        ({"p": {"$near": {"$geometry": ORIGIN}}}, 291),
        ({"p": {"$near": [0, 0]}}, 291),
        ({"$text": {"$search": "x"}}, 27),
    ],
)
def test_what_needs_an_index_is_refused_without(database: Database[Document], filter: Document, code: int) -> None:
    database["c"].insert_one({"p": ORIGIN})
    with pytest.raises(OperationFailure) as caught:
        list(database["c"].find(filter))
    assert caught.value.code == code


def test_a_search_in_texts(database: Database[Document]) -> None:
    collection = database["c"]
    database.command(
        {"createIndexes": "c", "indexes": [{"name": "t", "key": {"a": "text", "b": "text"}, "weights": {"a": 10}}]}
    )
    collection.insert_many(
        [
            {"_id": 1, "a": "The quick brown fox", "b": "jumps"},
            {"_id": 2, "a": "lazy dogs", "b": "a fox was here"},
            {"_id": 3, "a": "Füchse laufen", "language": "german"},
        ]
    )

    def found(search: str, **options: Any) -> list[int]:
        cursor = collection.find({"$text": {"$search": search, **options}}, {"s": {"$meta": "textScore"}})
        return [row["_id"] for row in cursor.sort([("s", {"$meta": "textScore"})])]

    assert found("foxes") == [1, 2]
    assert found('"brown fox"') == [1]
    assert found("fox -brown") == [2]
    assert found("the") == []
    assert found("Fox", **{"$caseSensitive": True}) == []
    assert found("läufst laufend", **{"$language": "german"}) == [3]
    (scored,) = collection.aggregate(
        [{"$match": {"$text": {"$search": "jumping"}}}, {"$project": {"b": 1, "s": {"$meta": "textScore"}}}]
    )
    assert scored == {"_id": 1, "b": "jumps", "s": pytest.approx(1.0)}
    with pytest.raises(OperationFailure) as caught:
        database.command({"createIndexes": "c", "indexes": [{"name": "u", "key": {"c": "text"}}]})
    assert caught.value.code == 85


def test_geo_near_tells_distances(database: Database[Document]) -> None:
    collection = database["c"]
    collection.create_index([("p", "2dsphere")])
    collection.insert_many([{"_id": number, "p": point(number, 0)} for number in (3, 1, 2)])
    stage = {"near": ORIGIN, "distanceField": "far.away", "maxDistance": 250_000, "includeLocs": "at"}
    rows = list(collection.aggregate([{"$geoNear": stage}]))
    assert [row["_id"] for row in rows] == [1, 2]
    assert rows[0]["far"]["away"] == pytest.approx(111_318.845)
    assert rows[0]["at"] == point(1, 0)
    shown = database.command("explain", {"aggregate": "c", "pipeline": [{"$geoNear": stage}], "cursor": {}})
    (cursor,) = shown["stages"]
    assert cursor["$geoNearCursor"]["queryPlanner"]["winningPlan"]["stage"] == "GEO_NEAR_2DSPHERE"
    for pipeline, code in (
        ([{"$match": {"_id": 1}}, {"$geoNear": stage}], 40603),
        ([{"$geoNear": {"near": 5}}], 5860401),
    ):
        with pytest.raises(OperationFailure) as caught:
            list(collection.aggregate(pipeline))
        assert caught.value.code == code


def test_places_of_measurements(database: Database[Document]) -> None:
    from datetime import datetime

    database.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    collection = database["ts"]
    names = [
        collection.create_index([("p", "2dsphere")]),
        collection.create_index([("m.q", "2dsphere")]),
        collection.create_index([("m.n", "hashed")]),
    ]
    collection.insert_many(
        [
            {"t": datetime(2024, 1, 1), "m": {"n": number, "q": point(number, 0)}, "p": point(0, number), "v": number}
            for number in range(60)
        ]
    )
    buckets = {row["name"]: dict(row["key"]) for row in database["system.buckets.ts"].list_indexes()}
    assert [buckets[name] for name in names] == [
        {"data.p": "2dsphere_bucket"}, {"meta.q": "2dsphere"}, {"meta.n": "hashed"},
    ]  # fmt: skip
    shown = {row["name"]: dict(row["key"]) for row in collection.list_indexes()}
    assert [shown[name] for name in names] == [{"p": "2dsphere"}, {"m.q": "2dsphere"}, {"m.n": "hashed"}]
    within = {"$geoWithin": {"$geometry": SQUARE}}
    for path, count in (("p", 11), ("m.q", 11)):
        assert len(list(collection.find({path: within}))) == count
    stage = {"near": ORIGIN, "key": "p", "distanceField": "d", "maxDistance": 350_000}
    assert [row["v"] for row in collection.aggregate([{"$geoNear": stage}])] == [0, 1, 2, 3]
    with pytest.raises((OperationFailure, BulkWriteError)) as caught:
        collection.insert_one({"t": datetime(2024, 1, 1), "m": {"n": 1}, "p": "nowhere"})
    assert caught.value.code == 16755
    assert collection.count_documents({}) == 60


def test_a_partial_index_on_measurements(database: Database[Document]) -> None:
    from datetime import datetime, timedelta

    database.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    collection = database["ts"]
    collection.create_index([("v", -1)], name="high", partialFilterExpression={"v": {"$gt": 90}})
    start = datetime(2024, 1, 1)
    collection.insert_many([{"t": start + timedelta(days=number), "m": number, "v": number} for number in range(100)])
    shown = database.command("explain", {"find": "ts", "filter": {"v": {"$gte": 95}}}, verbosity="executionStats")
    assert '"high"' in str(shown).replace("'", '"')
    assert sorted(row["v"] for row in collection.find({"v": {"$gte": 95}})) == [95, 96, 97, 98, 99]
    assert len(list(collection.find({"v": {"$gte": 50}}))) == 50


def test_documents_found_by_place_or_text_are_changed(database: Database[Document]) -> None:
    collection = database["c"]
    collection.create_index([("p", "2dsphere")])
    collection.create_index([("t", "text")])
    collection.insert_many(
        [{"_id": number, "p": point(number, 0), "t": f"word{number} common"} for number in range(10)]
    )
    near = {"p": {"$near": {"$geometry": ORIGIN, "$maxDistance": 250_000}}}
    assert collection.update_many(near, {"$set": {"seen": True}}).modified_count == 3
    assert (
        collection.update_one({"p": {"$near": {"$geometry": point(7, 0)}}}, {"$set": {"first": True}}).modified_count
        == 1
    )
    assert [row["_id"] for row in collection.find({"first": True})] == [7]
    found = collection.find_one_and_delete({"$text": {"$search": "word4"}})
    assert found is not None
    assert found["_id"] == 4
    assert collection.update_many({"$text": {"$search": "common"}}, {"$set": {"t": "gone"}}).modified_count == 9
    assert collection.delete_many({"$text": {"$search": "common"}}).deleted_count == 0
    assert collection.delete_one({"_id": 1, **near}).deleted_count == 1


@pytest.mark.parametrize("ordered", [True, False])
def test_a_measurement_that_an_index_refuses_stays_out_alone(database: Database[Document], ordered: bool) -> None:
    from datetime import datetime

    database.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    collection = database["ts"]
    collection.create_index([("p", "2dsphere")])
    collection.create_index([("m.h", "hashed")])
    start = datetime(2024, 1, 1)
    rows: list[Document] = [{"_id": number, "t": start, "m": {"h": 1}, "p": point(number, 0)} for number in range(6)]
    rows[2]["p"] = "nowhere"
    rows[4]["m"] = {"h": [1, 2]}
    with pytest.raises(BulkWriteError) as caught:
        collection.insert_many(rows, ordered=ordered)
    told = [(row["index"], row["code"]) for row in caught.value.details["writeErrors"]]
    assert told == ([(2, 16755)] if ordered else [(2, 16755), (4, 16766)])
    assert sorted(row["_id"] for row in collection.find()) == ([0, 1] if ordered else [0, 1, 3, 5])
