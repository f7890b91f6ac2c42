"""aggregate, explain, the indexes' commands, `$out` and `$merge`, and edits of measurements."""

import datetime as dt
from typing import Any

import pytest
from pymongo import UpdateMany
from pymongo.database import Database
from pymongo.errors import OperationFailure

Document = dict[str, Any]
START = dt.datetime(2024, 1, 1)


@pytest.fixture
def rows(database: Database[Document]) -> Database[Document]:
    database.c.insert_many({"_id": number, "third": number % 3} for number in range(30))
    return database


@pytest.fixture
def measurements(database: Database[Document]) -> Database[Document]:
    database.create_collection("m", timeseries={"timeField": "t", "metaField": "s"})
    database.m.insert_many(
        {"t": START + dt.timedelta(seconds=number), "s": number % 2, "v": number} for number in range(100)
    )
    return database


def winning(reply: Document) -> list[str]:
    """The stages of the winning plan, from the top."""
    node = reply["queryPlanner"]["winningPlan"]
    found = []
    while node is not None:
        found.append(node["stage"])
        node = node.get("inputStage")
    return found


def test_a_pipeline_groups_and_sorts(rows: Database[Document]) -> None:
    found = list(
        rows.c.aggregate(
            [{"$match": {"_id": {"$lt": 10}}}, {"$group": {"_id": "$third", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
        )
    )
    assert found == [{"_id": 0, "n": 4}, {"_id": 1, "n": 3}, {"_id": 2, "n": 3}]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"aggregate": "c", "pipeline": []}, 9),
        ({"aggregate": "c", "pipeline": 1, "cursor": {}}, 14),
        ({"aggregate": "c", "pipeline": [1], "cursor": {}}, 14),
        ({"aggregate": "c", "pipeline": [{"$no": 1}], "cursor": {}}, 40324),
        ({"aggregate": "c", "pipeline": [{"a": 1, "b": 1}], "cursor": {}}, 40323),
        ({"aggregate": 2, "pipeline": [], "cursor": {}}, 2),
        ({"aggregate": 1, "pipeline": [{"$match": {}}], "cursor": {}}, 73),
        ({"aggregate": "c", "pipeline": [{"$out": "d"}, {"$match": {}}], "cursor": {}}, 40601),
        ({"aggregate": "c", "pipeline": [{"$merge": {"into": "d", "on": "third"}}], "cursor": {}}, 51183),
        ({"explain": {}}, 59),
        ({"explain": {"find": "c"}, "verbosity": "no"}, 2),
        ({"explain": {"ping": 1}}, 20),
        ({"createIndexes": "c", "indexes": []}, 2),
        ({"createIndexes": "c", "indexes": [{"key": {"a": 1}}]}, 9),
        ({"createIndexes": "c", "indexes": [{"key": {"a": 0}, "name": "x"}]}, 67),
        ({"dropIndexes": "c", "index": "_id_"}, 72),
        ({"dropIndexes": "c", "index": "none"}, 27),
        ({"dropIndexes": "missing", "index": "*"}, 26),
        ({"listIndexes": "missing"}, 26),
    ],
)
def test_bad_requests_are_told_by_code(rows: Database[Document], command: Document, code: int) -> None:
    with pytest.raises(OperationFailure) as error:
        rows.command(command)
    assert error.value.code == code


def test_plans_use_the_index_that_fits(rows: Database[Document]) -> None:
    assert winning(rows.command("explain", {"find": "c", "filter": {"third": 1}})) == ["COLLSCAN"]
    rows.c.create_index([("third", 1), ("_id", -1)])
    assert winning(rows.command("explain", {"find": "c", "filter": {"third": 1}})) == ["FETCH", "IXSCAN"]
    by_sort = rows.command("explain", {"find": "c", "filter": {"third": 1}, "sort": {"_id": 1}, "limit": 2})
    assert winning(by_sort) == ["LIMIT", "FETCH", "IXSCAN"]
    assert winning(rows.command("explain", {"find": "c", "filter": {"_id": 1}})) == ["EXPRESS_IXSCAN"]
    assert winning(rows.command("explain", {"find": "missing"})) == ["EOF"]
    natural = rows.command("explain", {"find": "c", "filter": {"third": 1}, "hint": {"$natural": 1}})
    assert winning(natural) == ["COLLSCAN"]


def test_statistics_tell_what_was_read(rows: Database[Document]) -> None:
    rows.c.create_index([("third", 1)])
    reply = rows.command("explain", {"find": "c", "filter": {"third": 1}}, verbosity="executionStats")
    stats = reply["executionStats"]
    assert (stats["nReturned"], stats["totalKeysExamined"], stats["totalDocsExamined"]) == (10, 10, 10)
    assert stats["executionStages"]["inputStage"]["indexBounds"] == {"third": ["[1, 1]"]}


def test_explaining_a_write_changes_nothing(rows: Database[Document]) -> None:
    update = {"update": "c", "updates": [{"q": {"third": 1}, "u": {"$set": {"x": 1}}, "multi": True}]}
    reply = rows.command("explain", update, verbosity="executionStats")
    assert winning(reply)[0] == "UPDATE"
    assert reply["executionStats"]["executionStages"]["nMatched"] == 10
    delete = {"delete": "c", "deletes": [{"q": {}, "limit": 0}]}
    assert rows.command("explain", delete, verbosity="executionStats")["ok"] == 1
    assert rows.c.count_documents({"x": {"$exists": False}}) == 30


def test_a_pipeline_explains_by_stages(rows: Database[Document]) -> None:
    reply = rows.command(
        "explain",
        {"aggregate": "c", "pipeline": [{"$group": {"_id": "$third"}}], "cursor": {}},
        verbosity="executionStats",
    )
    assert [next(iter(stage)) for stage in reply["stages"]] == ["$cursor", "$group"]
    assert reply["stages"][1]["nReturned"] == 3


def test_indexes_come_and_go(rows: Database[Document]) -> None:
    reply = rows.command({"createIndexes": "c", "indexes": [{"key": {"third": 1}, "name": "t"}]})
    assert (reply["numIndexesBefore"], reply["numIndexesAfter"]) == (1, 2)
    again = rows.command({"createIndexes": "c", "indexes": [{"key": {"third": 1}, "name": "t"}]})
    assert again["note"] == "all indexes already exist"
    assert [index["name"] for index in rows.c.list_indexes()] == ["_id_", "t"]
    assert rows.command({"dropIndexes": "c", "index": {"third": 1}})["nIndexesWas"] == 2
    with pytest.raises(OperationFailure) as error:
        rows.c.create_index([("third", 1)], unique=True)
    assert error.value.code == 11000
    assert [index["name"] for index in rows.c.list_indexes()] == ["_id_"]


def test_out_replaces_a_collection(rows: Database[Document]) -> None:
    rows.d.insert_one({"old": True})
    rows.d.create_index([("third", 1)])
    assert list(rows.c.aggregate([{"$match": {"third": 1}}, {"$out": "d"}])) == []
    assert rows.d.count_documents({}) == 10
    assert rows.d.count_documents({"old": True}) == 0
    assert [index["name"] for index in rows.d.list_indexes()] == ["_id_", "third_1"]


def test_merge_in_its_modes(rows: Database[Document]) -> None:
    rows.d.insert_many([{"_id": 1, "a": 1}, {"_id": 100, "a": 1}])
    rows.c.aggregate([{"$match": {"_id": {"$lt": 3}}}, {"$merge": "d"}])
    assert list(rows.d.find().sort("_id")) == [
        {"_id": 0, "third": 0},
        {"_id": 1, "a": 1, "third": 1},
        {"_id": 2, "third": 2},
        {"_id": 100, "a": 1},
    ]
    rows.c.aggregate(
        [
            {"$match": {"_id": 1}},
            {"$merge": {"into": "d", "whenMatched": [{"$set": {"a": {"$add": ["$a", "$$new.third"]}}}]}},
        ]
    )
    assert rows.d.find_one({"_id": 1}) == {"_id": 1, "a": 2, "third": 1}


def test_the_servers_own_stages(rows: Database[Document]) -> None:
    (stats,) = rows.c.aggregate([{"$collStats": {"count": {}, "storageStats": {}}}])
    assert stats["count"] == 30
    assert stats["storageStats"]["nindexes"] == 1
    assert [row["name"] for row in rows.c.aggregate([{"$indexStats": {}}])] == ["_id_"]
    assert list(rows.client.admin.aggregate([{"$currentOp": {}}]))


def test_measurements_are_deleted_singly_and_by_series(measurements: Database[Document]) -> None:
    assert measurements.m.delete_many({"v": {"$lt": 10}}).deleted_count == 10
    assert measurements.m.delete_one({"v": 50}).deleted_count == 1
    removed = measurements.m.find_one_and_delete({"v": 52}, projection={"_id": 0, "v": 1})
    assert removed == {"v": 52}
    assert measurements.m.delete_many({"s": 1}).deleted_count == 45
    assert sorted(row["v"] for row in measurements.m.find()) == [
        number for number in range(10, 100, 2) if number not in (50, 52)
    ]
    measurements.m.insert_one({"t": START, "s": 0, "v": 1000})
    assert measurements.m.count_documents({"s": 0}) == 44


def test_only_the_meta_field_is_updated(measurements: Database[Document]) -> None:
    done = measurements.m.update_many({"s": 1}, {"$set": {"s": "one"}})
    assert (done.matched_count, done.modified_count) == (50, 50)
    assert measurements.m.count_documents({"s": "one"}) == 50
    for statement in (
        {"q": {"s": 0}, "u": {"$set": {"v": 1}}, "multi": True},
        {"q": {"v": 0}, "u": {"$set": {"s": 1}}, "multi": True},
        {"q": {"s": 0}, "u": {"$set": {"s": 1}}},
        {"q": {"s": 0}, "u": {"$set": {"s": 1}}, "multi": True, "upsert": True},
    ):
        reply = measurements.command({"update": "m", "updates": [statement]})
        assert reply["writeErrors"][0]["code"] == 72


def test_a_delete_of_measurements_explains(measurements: Database[Document]) -> None:
    reply = measurements.command(
        "explain", {"delete": "m", "deletes": [{"q": {"v": {"$lt": 10}}, "limit": 0}]}, verbosity="executionStats"
    )
    stage = reply["executionStats"]["executionStages"]
    assert (stage["stage"], stage["nMeasurementsDeleted"]) == ("TS_MODIFY", 10)
    assert measurements.m.count_documents({}) == 100


def test_out_to_a_time_series_collection(rows: Database[Document]) -> None:
    stages: list[Document] = [
        {"$set": {"t": {"$toDate": {"$multiply": [1000, {"$toLong": "$_id"}]}}}},
        {"$out": {"db": rows.name, "coll": "ts", "timeseries": {"timeField": "t", "metaField": "third"}}},
    ]
    rows.c.aggregate(stages)
    assert rows.ts.count_documents({"third": 1}) == 10
    rows.c.aggregate(stages)
    assert rows.ts.count_documents({}) == 30


@pytest.mark.parametrize(
    ("stage", "code"),
    [
        ({"$currentOp": {"idleCursors": 1}}, 14),
        ({"$currentOp": {"unknown": True}}, 40415),
        ({"$currentOp": {"targetAllNodes": True}}, 9),
        ({"$listLocalSessions": {"users": {}}}, 14),
        ({"$listLocalSessions": {"users": [{"user": "u"}]}}, 40414),
        ({"$listLocalSessions": {"users": [{"user": "u", "db": "d"}], "allUsers": True}}, 12),
        ({"$listLocalSessions": {"allUsers": 1}}, 14),
    ],
)
def test_what_system_stages_refuse(rows: Database[Document], stage: Document, code: int) -> None:
    with pytest.raises(OperationFailure) as failure:
        rows.client.admin.command({"aggregate": 1, "pipeline": [stage], "cursor": {}})
    assert failure.value.code == code


def test_local_sessions_are_told_by_user(rows: Database[Document]) -> None:
    with rows.client.start_session() as session:
        rows.command("ping", session=session)
        wanted = {"_id.id": session.session_id["id"]}
        (found,) = rows.client.admin.aggregate([{"$listLocalSessions": {}}, {"$match": wanted}])
        assert len(found["_id"]["uid"]) == 32
        nobody = {"$listLocalSessions": {"users": [{"user": "nobody", "db": "admin"}]}}
        assert list(rows.client.admin.aggregate([nobody])) == []


def test_rankings_are_fused(rows: Database[Document]) -> None:
    rows.c.delete_many({"_id": {"$gt": 2}})
    rows.c.update_one({"_id": 0}, {"$set": {"b": 1}})
    pipelines = {"up": [{"$sort": {"_id": 1}}], "b": [{"$match": {"b": 1}}, {"$sort": {"b": 1}}]}
    fusion = {
        "$rankFusion": {"input": {"pipelines": pipelines}, "combination": {"weights": {"b": 2}}, "scoreDetails": True}
    }
    shown = {"$project": {"score": {"$meta": "score"}, "details": {"$meta": "scoreDetails"}}}
    found = list(rows.c.aggregate([fusion, shown]))
    assert [row["_id"] for row in found] == [0, 1, 2]
    assert [row["score"] for row in found] == pytest.approx([3 / 61, 1 / 62, 1 / 63])
    assert found[1]["details"]["details"] == [
        {"inputPipelineName": "up", "rank": 2, "weight": 1.0, "details": []},
        {"inputPipelineName": "b", "rank": "NA"},
    ]
    rows.create_collection("odd", viewOn="c", pipeline=[{"$match": {"_id": {"$ne": 0}}}])
    assert [row["_id"] for row in rows.odd.aggregate([fusion])] == [1, 2]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (1, 9),
        ({}, 40414),
        ({"input": {"pipelines": {}}}, 2),
        ({"input": {"pipelines": {"p": []}}}, 9834300),
        ({"input": {"pipelines": {"p": [{"$match": {}}]}}}, 9191100),
        ({"input": {"pipelines": {"p": [{"$sort": {"a": 1}}, {"$unset": "a"}]}}}, 9191103),
        ({"input": {"pipelines": {"p": [{"$sort": {"a": 1}}]}}, "combination": {"weights": {"q": 1}}}, 9967500),
        ({"input": {"pipelines": {"p": [{"$sort": {"a": 1}}]}}, "combination": {"weights": {"p": -1}}}, 9460300),
    ],
)
def test_fusions_that_are_none(rows: Database[Document], spec: object, code: int) -> None:
    with pytest.raises(OperationFailure) as failure:
        rows.c.aggregate([{"$rankFusion": spec}])
    assert failure.value.code == code


def test_the_catalog_is_a_stage(rows: Database[Document]) -> None:
    rows.create_collection("v", viewOn="c", pipeline=[])
    found = {row["ns"]: row for row in rows.aggregate([{"$listClusterCatalog": {}}])}
    assert found[f"{rows.name}.c"]["type"] == "collection"
    assert found[f"{rows.name}.c"]["idIndex"]["key"] == {"_id": 1}
    assert found[f"{rows.name}.v"]["options"] == {"viewOn": "c", "pipeline": []}
    assert list(rows.client.admin.aggregate([{"$querySettings": {}}])) == []


def test_metadata_in_expressions(rows: Database[Document]) -> None:
    rows.t.insert_many([{"_id": 1, "s": "coffee coffee"}, {"_id": 2, "s": "coffee and cake"}])
    rows.t.create_index([("s", "text")])
    search = {"$match": {"$text": {"$search": "coffee"}}}
    added = {"$addFields": {"double": {"$multiply": [2, {"$meta": "textScore"}]}, "one": {"$meta": "textScore"}}}
    found = list(rows.t.aggregate([search, added, {"$sort": {"one": -1}}]))
    assert [row["double"] for row in found] == pytest.approx([2 * row["one"] for row in found])
    assert all(row["one"] > 0 for row in found)
    with pytest.raises(OperationFailure) as failure:
        rows.t.aggregate([{"$match": {}}, added])
    assert failure.value.code == 40218
    with pytest.raises(OperationFailure) as failure:
        rows.t.aggregate([{"$addFields": {"one": {"$meta": "nothing"}}}])
    assert failure.value.code == 17308


def test_explain_shows_the_stages_that_run(rows: Database[Document]) -> None:
    def explained(*stages: Document, verbosity: str = "queryPlanner") -> list[Document]:
        command = {"aggregate": "c", "pipeline": list(stages), "cursor": {}}
        shown = rows.command({"explain": command, "verbosity": verbosity})["stages"]
        assert "$cursor" in shown[0]
        return list(shown[1:])

    # The filter on what is not computed has gone to the collection.
    pushed = rows.command(
        {
            "explain": {
                "aggregate": "c",
                "pipeline": [{"$set": {"n": 1}}, {"$match": {"third": 1, "n": 1}}],
                "cursor": {},
            },
            "verbosity": "queryPlanner",
        }
    )["stages"]
    assert pushed[0]["$cursor"]["queryPlanner"]["parsedQuery"] == {"third": {"$eq": 1}}
    assert pushed[2] == {"$match": {"n": {"$eq": 1}}}
    assert explained({"$unwind": "$a"}, {"$count": "n"})[1:] == [
        {"$group": {"_id": {"$const": None}, "n": {"$sum": {"$const": 1}}, "$willBeMerged": False}},
        {"$project": {"n": True, "_id": False}},
    ]
    (group, order) = explained({"$bucket": {"groupBy": "$_id", "boundaries": [0, 10, 30]}})
    assert [branch["then"] for branch in group["$group"]["_id"]["$switch"]["branches"]] == [
        {"$const": 0},
        {"$const": 10},
    ]
    assert order == {"$sort": {"sortKey": {"_id": 1}}}
    assert explained(
        {"$unwind": "$a"},
        {
            "$setWindowFields": {
                "partitionBy": "$third",
                "sortBy": {"_id": 1},
                "output": {"n": {"$sum": 1, "window": {"documents": ["unbounded", "current"]}}, "r": {"$rank": {}}},
            }
        },
    )[1:] == [
        {"$sort": {"sortKey": {"third": 1, "_id": 1}, "outputSortKeyMetadata": True}},
        {
            "$_internalSetWindowFields": {
                "partitionBy": "$third",
                "sortBy": {"_id": 1},
                "output": {
                    "n": {"$sum": {"$const": 1}, "window": {"documents": ["unbounded", "current"]}},
                    "r": {"$rank": {}},
                },
            }
        },
    ]
    computed = explained({"$unwind": "$a"}, {"$setWindowFields": {"partitionBy": {"$mod": ["$_id", 2]}, "output": {}}})[
        1:
    ]
    key = "__internal_setWindowFields_partition_key"
    assert computed == [
        {"$addFields": {key: {"$mod": ["$_id", {"$const": 2}]}}},
        {"$sort": {"sortKey": {key: 1}, "outputSortKeyMetadata": True}},
        {"$_internalSetWindowFields": {"partitionBy": f"${key}", "output": {}}},
        {"$project": {key: False, "_id": True}},
    ]
    (group,) = explained({"$group": {"_id": "$third"}}, verbosity="executionStats")
    assert (group["nReturned"], group["usedDisk"], group["spills"]) == (3, False, 0)


def test_the_present_in_commands(rows: Database[Document]) -> None:
    past: Document = {"$expr": {"$lt": ["$d", "$$NOW"]}}
    for refused in ({"count": "c", "query": past}, {"distinct": "c", "key": "a", "query": {"$or": [past]}}):
        with pytest.raises(OperationFailure) as failure:
            rows.command(refused)
        assert failure.value.code == 51144
    # What only looks like the variable is a string.
    assert rows.c.count_documents({"a": "$$NOW"}) == 0
    rows.create_collection("checked", validator=past)
    rows.checked.insert_one({"d": dt.datetime(2000, 1, 1)})
    with pytest.raises(OperationFailure) as failure:
        rows.checked.insert_one({"d": dt.datetime(2200, 1, 1)})
    assert failure.value.code == 121
    stamp = [{"$set": {"t": "$$NOW"}}]
    rows.c.bulk_write([UpdateMany({"_id": {"$lt": 10}}, stamp), UpdateMany({"_id": {"$gte": 10}}, stamp)])
    assert len(rows.c.distinct("t")) == 1
    rows.command({"create": "v", "viewOn": "c", "pipeline": [{"$set": {"t": "$$CLUSTER_TIME"}}]})
    with pytest.raises(OperationFailure) as failure:
        list(rows.v.find())
    assert failure.value.code == 10071200


def test_statistics_of_queries_are_not_gathered(database: Database[Document]) -> None:
    admin = database.client.admin
    assert list(admin.aggregate([{"$queryStats": {}}])) == []
    with pytest.raises(OperationFailure) as failure:
        database.aggregate([{"$queryStats": {}}])
    assert failure.value.code == 73
    with pytest.raises(OperationFailure):
        admin.aggregate([{"$queryStats": {"transformIdentifiers": {"algorithm": "md5"}}}])


def test_an_empty_batch_of_an_empty_collection_leaves_a_cursor(database: Database[Document]) -> None:
    database.create_collection("empty")
    command: Document = {"aggregate": "empty", "pipeline": [], "cursor": {"batchSize": 0}}
    identity = database.command(command)["cursor"]["id"]
    assert identity != 0
    assert database.command("getMore", identity, collection="empty")["cursor"] == {
        "nextBatch": [],
        "id": 0,
        "ns": f"{database.name}.empty",
    }
    assert database.command({**command, "aggregate": "missing"})["cursor"]["id"] == 0


def test_merge_writes_what_it_can(rows: Database[Document]) -> None:
    rows.target.create_index("k", unique=True)
    rows.target.insert_one({"_id": 100, "k": "taken"})
    rows.source.insert_many([{"_id": 1, "k": "taken"}, {"_id": 2, "k": "free", "b": 1, "a": 2}])
    with pytest.raises(OperationFailure) as failure:
        rows.source.aggregate([{"$sort": {"_id": 1}}, {"$merge": "target"}])
    assert failure.value.code == 11000
    assert [row["_id"] for row in rows.target.find().sort("_id")] == [2, 100]
    assert list(rows.target.find_one({"_id": 2}) or {}) == ["_id", "a", "b", "k"]
    rows.source.aggregate([{"$merge": {"into": "nowhere", "whenNotMatched": "discard"}}])
    assert "nowhere" not in rows.list_collection_names()
    # What it joins by is there afterwards.
    rows.other.insert_one({"_id": 7, "x": 1})
    rows.other.aggregate([{"$unset": "_id"}, {"$merge": {"into": "target", "on": "k"}}])
    assert [(row["k"], row["x"]) for row in rows.target.find({"x": 1})] == [(None, 1)]
