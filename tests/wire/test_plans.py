"""Plans as explain shows them: covered queries, limits, merged orders, disjunctions."""

from typing import Any

import pytest
from bson import Decimal128, Int64
from pymongo.collection import Collection
from pymongo.database import Database

Document = dict[str, Any]


@pytest.fixture
def things(database: Database[Document]) -> Collection[Document]:
    database.things.insert_many(
        {"_id": f"{number % 4}_{number:03}", "a": number % 10, "b": number % 7, "c": number} for number in range(200)
    )
    return database.things


def explained(things: Collection[Document], command: Document, verbosity: str = "executionStats") -> Document:
    return things.database.command("explain", command, verbosity=verbosity)


def stages(node: Document) -> str:
    below = node.get("inputStages") or ([node["inputStage"]] if "inputStage" in node else [])
    return " ".join([node["stage"], *(stages(one) for one in below)])


def plan_and_counts(reply: Document) -> tuple[str, int, int, int]:
    ran = reply["executionStats"]
    assert stages(ran["executionStages"]) == stages(reply["queryPlanner"]["winningPlan"])
    return stages(ran["executionStages"]), ran["nReturned"], ran["totalKeysExamined"], ran["totalDocsExamined"]


def test_the_pattern_of_buckets_reads_its_range_alone(things: Collection[Document]) -> None:
    command = {"find": "things", "filter": {"_id": {"$regex": "^1_"}}, "sort": {"_id": 1}, "skip": 9, "limit": 1}
    assert plan_and_counts(explained(things, command)) == ("LIMIT SKIP FETCH IXSCAN", 1, 10, 10)
    assert [row["_id"] for row in things.find({"_id": {"$regex": "^1_"}}).sort("_id").skip(9).limit(1)] == ["1_037"]


def test_covered_queries_read_no_document(things: Collection[Document]) -> None:
    things.create_index([("a", 1), ("b", -1)])
    command: Document = {"find": "things", "filter": {"a": 3}, "projection": {"_id": 0, "b": 1}}
    assert plan_and_counts(explained(things, command)) == ("PROJECTION_COVERED IXSCAN", 20, 20, 0)
    assert sorted(row["b"] for row in things.find({"a": 3}, {"_id": 0, "b": 1})) == sorted(
        number % 7 for number in range(3, 200, 10)
    )
    # With a value that only the document has, and with an array on the way, it is read.
    command["projection"] = {"_id": 0, "b": 1, "c": 1}
    assert plan_and_counts(explained(things, command)) == ("PROJECTION_SIMPLE FETCH IXSCAN", 20, 20, 20)
    things.insert_one({"a": 3, "b": [1, 2]})
    command["projection"] = {"_id": 0, "b": 1}
    assert plan_and_counts(explained(things, command)) == ("PROJECTION_SIMPLE FETCH IXSCAN", 21, 22, 21)


def test_covered_values_keep_their_types(database: Database[Document]) -> None:
    values = [1, Int64(1), 1.0, Decimal128("1.00"), -0.0, None, "x", {"y": Int64(2)}]
    database.c.insert_many([{"v": value, "k": place} for place, value in enumerate(values)])
    database.c.insert_one({"k": len(values)})
    database.c.create_index([("k", 1), ("v", 1)])
    found = list(database.c.find({"k": {"$gte": 0}}, {"_id": 0, "v": 1}).sort("k"))
    assert [repr(row.get("v", "missing")) for row in found] == [repr(value) for value in [*values, "missing"]]
    assert [type(row["v"]) for row in found[:-1]] == [type(value) for value in values]
    # A change of the type alone reaches the index.
    database.c.update_one({"k": 0}, {"$set": {"v": 1.0}})
    (row,) = database.c.find({"k": 0}, {"_id": 0, "v": 1})
    assert type(row["v"]) is float
    database.c.create_index("v", unique=True, partialFilterExpression={"k": 0})
    database.c.update_one({"k": 0}, {"$set": {"v": Int64(1)}})
    (row,) = database.c.find({"v": 1, "k": 0}, {"_id": 0, "v": 1}).hint("k_1_v_1")
    assert type(row["v"]) is Int64


def test_conditions_on_indexed_fields_are_tested_before_the_fetch(things: Collection[Document]) -> None:
    things.create_index([("a", 1), ("b", 1)])
    reply = explained(things, {"find": "things", "filter": {"a": 3, "b": {"$mod": [3, 1]}, "c": {"$gt": 0}}})
    name, found, keys, documents = plan_and_counts(reply)
    assert (name, keys, found) == ("FETCH IXSCAN", 20, documents)
    assert reply["queryPlanner"]["winningPlan"]["inputStage"]["filter"] == {"b": {"$mod": [3, 1]}}
    assert reply["queryPlanner"]["winningPlan"]["filter"] == {"c": {"$gt": 0}}


def test_counts_and_distinct_values_by_index_alone(things: Collection[Document]) -> None:
    things.create_index([("a", 1), ("b", 1)])
    counted: Document = {"count": "things", "query": {"a": 3}}
    assert plan_and_counts(explained(things, counted)) == ("COUNT COUNT_SCAN", 1, 20, 0)
    counted["query"] = {"a": {"$in": [3, 4]}, "b": {"$mod": [7, 1]}}
    assert plan_and_counts(explained(things, counted))[0::3] == ("COUNT IXSCAN", 0)
    counted |= {"query": {"a": {"$gte": 0}}, "limit": 5, "skip": 2}
    assert plan_and_counts(explained(things, counted))[1:] == (1, 7, 0)
    assert things.database.command(counted)["n"] == 5


def test_orders_are_merged(things: Collection[Document]) -> None:
    things.create_index([("a", 1), ("c", 1)])
    things.create_index([("b", -1), ("c", -1)])
    command: Document = {"find": "things", "filter": {"a": {"$in": [3, 5]}}, "sort": {"c": -1}, "limit": 3}
    assert plan_and_counts(explained(things, command))[:2] == ("LIMIT FETCH SORT_MERGE IXSCAN IXSCAN", 3)
    assert [row["c"] for row in things.find({"a": {"$in": [3, 5]}}).sort("c", -1).limit(3)] == [195, 193, 185]
    either = {"$or": [{"a": 3}, {"b": 5}]}
    command = {"find": "things", "filter": either, "sort": {"c": 1}}
    assert plan_and_counts(explained(things, command))[0] == "SUBPLAN FETCH SORT_MERGE IXSCAN IXSCAN"
    assert [row["c"] for row in things.find(either).sort("c", 1)] == [
        c for c in range(200) if c % 10 == 3 or c % 7 == 5
    ]


def test_disjunctions_are_planned_apart(things: Collection[Document]) -> None:
    either = {"$or": [{"a": 3}, {"b": 5}]}
    assert (
        stages(explained(things, {"find": "things", "filter": either})["queryPlanner"]["winningPlan"])
        == "SUBPLAN COLLSCAN"
    )
    things.create_index("a")
    things.create_index("b")
    reply = explained(things, {"find": "things", "filter": either, "projection": {"a": 1}})
    assert plan_and_counts(reply)[:2] == ("SUBPLAN PROJECTION_SIMPLE FETCH OR IXSCAN IXSCAN", 45)
    hinted = explained(things, {"find": "things", "filter": either, "hint": {"a": 1}})
    assert stages(hinted["queryPlanner"]["winningPlan"]) == "FETCH IXSCAN"


def cached(things: Collection[Document]) -> list[Document]:
    return list(things.aggregate([{"$planCacheStats": {}}]))


def test_plans_that_won_are_remembered(things: Collection[Document]) -> None:
    things.create_index("a")
    things.create_index("b")
    question: Document = {"a": 3, "b": {"$gte": 5}}
    command = {"find": "things", "filter": question}
    wanted = [row["_id"] for row in things.find(question, hint={"$natural": 1})]

    assert sorted(row["_id"] for row in things.find(question)) == sorted(wanted)
    (entry,) = cached(things)
    assert (entry["isActive"], entry["works"], entry["createdFromQuery"]["query"]) == (
        False, 21, {"$and": [{"a": {"$eq": 3}}, {"b": {"$gte": 5}}]},
    )  # fmt: skip
    assert entry["cachedPlan"]["inputStage"]["indexName"] == "a_1"
    assert [run["totalKeysExamined"] for run in entry["creationExecStats"]] == [20, 56]
    planner = explained(things, command)["queryPlanner"]
    assert (planner["winningPlan"]["isCached"], planner["planCacheKey"]) == (False, entry["planCacheKey"])
    assert planner["planCacheShapeHash"] == entry["planCacheShapeHash"]

    assert sorted(row["_id"] for row in things.find(question)) == sorted(wanted)
    assert cached(things)[0]["isActive"]
    planner = explained(things, command)["queryPlanner"]
    assert planner["winningPlan"]["isCached"]
    assert len(planner["rejectedPlans"]) == 1
    # Queries of another shape have plans of their own; those that name their index, or have no choice, have none.
    list(things.find({"a": 1, "b": 2}).sort("b"))
    list(things.find({"a": 1, "b": 2}, hint="a_1"))
    list(things.find({"a": 1}))
    assert len(cached(things)) == 2


def test_plans_are_forgotten(things: Collection[Document]) -> None:
    things.create_index("a")
    things.create_index("b")
    list(things.find({"a": 1, "b": 1}))
    list(things.find({"a": 1, "b": {"$gt": 1}}))
    command = things.database.command
    command("planCacheClear", "things", query={"a": 7, "b": 7})
    (left,) = cached(things)
    assert left["createdFromQuery"]["query"] == {"$and": [{"a": {"$eq": 1}}, {"b": {"$gt": 1}}]}
    command("planCacheClear", "things")
    assert cached(things) == []
    list(things.find({"a": 1, "b": 1}))
    before = explained(things, {"find": "things", "filter": {"a": 1, "b": 1}}, "queryPlanner")["queryPlanner"]
    things.create_index("c")
    assert cached(things) == []
    after = explained(things, {"find": "things", "filter": {"a": 1, "b": 1}}, "queryPlanner")["queryPlanner"]
    assert before["planCacheShapeHash"] == after["planCacheShapeHash"]
    assert before["planCacheKey"] != after["planCacheKey"]
    list(things.find({"a": 1, "b": 1}))
    command("collMod", "things", index={"name": "c_1", "hidden": True})
    assert cached(things) == []


def test_a_plan_that_got_worse_is_tried_again(things: Collection[Document]) -> None:
    things.create_index("a")
    things.create_index("b")
    for _ in range(2):
        list(things.find({"a": 77, "b": 3}))
    assert cached(things)[0]["cachedPlan"]["inputStage"]["indexName"] == "a_1"
    things.insert_many({"_id": number, "a": 88, "b": number} for number in range(300))
    # Where much lies under `a`, the other index is better, and the next ones are answered with that.
    assert len(list(things.find({"a": 88, "b": 3}))) == 1
    (entry,) = cached(things)
    assert entry["cachedPlan"]["inputStage"]["indexName"] == "b_1"


def test_statistics_of_plans_that_are_none(database: Database[Document]) -> None:
    from pymongo.errors import OperationFailure

    with pytest.raises(OperationFailure) as missing:
        database.missing.aggregate([{"$planCacheStats": {}}])
    assert missing.value.code == 50933
    database.create_collection("m", timeseries={"timeField": "t"})
    with pytest.raises(OperationFailure) as measurements:
        database.m.aggregate([{"$planCacheStats": {}}])
    assert measurements.value.code == 40602


def test_pipelines_read_what_they_need(things: Collection[Document]) -> None:
    things.create_index([("a", 1), ("b", 1)])
    pipeline: list[Document] = [{"$match": {"a": {"$lt": 2}}}, {"$group": {"_id": "$a", "n": {"$max": "$b"}}}]
    command: Document = {"aggregate": "things", "pipeline": pipeline, "cursor": {}}
    stages_of = explained(things, command)["stages"][0]["$cursor"]["executionStats"]
    assert (stages_of["totalKeysExamined"], stages_of["totalDocsExamined"]) == (40, 0)
    assert sorted(row["n"] for row in things.aggregate(pipeline)) == [6, 6]
