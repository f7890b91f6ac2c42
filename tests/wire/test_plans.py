"""Plans as explain shows them: covered queries, limits, merged orders, disjunctions."""

from typing import Any

import pytest
from bson import Decimal128, Int64
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

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


def test_pipelines_count_by_index_alone(things: Collection[Document]) -> None:
    things.create_index([("a", 1), ("b", 1)])
    pipeline: list[Document] = [{"$match": {"a": {"$gte": 8}}}, {"$count": "n"}]
    ran = explained(things, {"aggregate": "things", "pipeline": pipeline, "cursor": {}})["stages"][0]["$cursor"]
    assert stages(ran["queryPlanner"]["winningPlan"]) == "COUNT_SCAN"
    assert ran["executionStats"]["totalDocsExamined"] == 0
    assert list(things.aggregate(pipeline)) == [{"n": 40}]
    assert list(things.aggregate([pipeline[0], {"$skip": 3}, {"$limit": 9}, pipeline[1]])) == [{"n": 9}]


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
    (_, lost) = explained(things, command, "allPlansExecution")["executionStats"]["allPlansExecution"]
    assert lost["totalKeysExamined"] == 56
    # Queries of another shape have plans of their own; those that name their index, or have no choice, have none.
    list(things.find({"a": 1, "b": 2}).sort("b"))
    list(things.find({"a": 1, "b": 2}, hint="a_1"))
    list(things.find({"a": 1}))
    assert len(cached(things)) == 2


def test_branches_are_remembered_apart(things: Collection[Document]) -> None:
    things.create_index("a")
    things.create_index("b")
    either = {"$or": [{"a": 3, "b": 1}, {"b": 5, "a": {"$gt": 7}}]}
    expected = [c for c in range(200) if (c % 10 == 3 and c % 7 == 1) or (c % 7 == 5 and c % 10 > 7)]
    for _ in range(3):
        assert sorted(row["c"] for row in things.find(either)) == expected
    assert [entry["createdFromQuery"]["query"] for entry in cached(things)] == [
        {"$and": [{"a": {"$eq": 3}}, {"b": {"$eq": 1}}]},
        {"$and": [{"b": {"$eq": 5}}, {"a": {"$gt": 7}}]},
    ]
    assert all(entry["isActive"] for entry in cached(things))


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


def cursor_of(reply: Document) -> Document:
    found: Document = reply["stages"][0]["$cursor"]
    return found


def test_distinct_values_by_one_entry_each(things: Collection[Document]) -> None:
    things.create_index([("a", 1), ("b", -1), ("c", 1)])
    command: Document = {"distinct": "things", "key": "a"}
    name, returned, keys, documents = plan_and_counts(explained(things, command))
    assert (name, returned, keys, documents) == ("PROJECTION_COVERED DISTINCT_SCAN", 10, 10, 0)
    assert things.distinct("a") == list(range(10))
    command |= {"key": "b", "query": {"a": {"$in": [1, 4]}}}
    name, _, keys, documents = plan_and_counts(explained(things, command))
    assert (name, keys, documents) == ("PROJECTION_COVERED DISTINCT_SCAN", 14, 0)
    assert things.distinct("b", {"a": {"$in": [1, 4]}}) == list(range(7))
    # What the bounds do not say is tested, on every entry.
    command["query"] = {"a": 1, "c": {"$mod": [2, 1]}}
    assert plan_and_counts(explained(things, command))[0] == "PROJECTION_COVERED IXSCAN"
    assert things.distinct("b", command["query"]) == list(range(7))
    things.insert_one({"a": [3, 77]})
    assert "DISTINCT_SCAN" not in stages(
        explained(things, {"distinct": "things", "key": "a"})["queryPlanner"]["winningPlan"]
    )
    assert things.distinct("a") == [*range(10), 77]


@pytest.mark.parametrize(("accumulator", "expected"), [("$first", 0), ("$last", 190)])
def test_first_and_last_rows_of_groups_by_one_entry_each(
    things: Collection[Document], accumulator: str, expected: int
) -> None:
    things.create_index([("a", 1), ("c", 1)])
    pipeline: list[Document] = [
        {"$sort": {"a": 1, "c": 1}},
        {"$group": {"_id": "$a", "c": {accumulator: "$c"}, "b": {accumulator: "$b"}}},
    ]
    command: Document = {"aggregate": "things", "pipeline": pipeline, "cursor": {}}
    reply = explained(things, command)
    ran = cursor_of(reply)["executionStats"]
    assert stages(ran["executionStages"]).endswith("FETCH DISTINCT_SCAN")
    assert (ran["totalKeysExamined"], ran["totalDocsExamined"]) == (10, 10)
    assert reply["stages"][1]["$groupByDistinctScan"] == {"newRoot": {"_id": "$a", "c": "$c", "b": "$b"}}
    found = sorted(things.aggregate(pipeline), key=lambda row: row["_id"])
    assert found == [{"_id": a, "c": expected + a, "b": (expected + a) % 7} for a in range(10)]
    del pipeline[1]["$group"]["b"]
    ran = cursor_of(explained(things, command))["executionStats"]
    assert (stages(ran["executionStages"]), ran["totalDocsExamined"]) == ("PROJECTION_COVERED DISTINCT_SCAN", 0)


def test_groups_without_accumulators_and_other_groups(things: Collection[Document]) -> None:
    things.create_index([("a", 1), ("c", 1)])
    things.insert_many([{"_id": 1}, {"_id": 2, "a": None}])
    command: Document = {"aggregate": "things", "pipeline": [{"$group": {"_id": "$a"}}], "cursor": {}}
    assert cursor_of(explained(things, command))["executionStats"]["totalKeysExamined"] == 11
    found = [row["_id"] for row in things.aggregate(command["pipeline"])]
    assert found == [None, *range(10)]
    # A mixture, a sum, and an order that the index does not give, read everything.
    for accumulators, sort in (
        ({"x": {"$first": "$c"}, "y": {"$last": "$c"}}, {"a": 1, "c": 1}),
        ({"x": {"$sum": 1}}, {"a": 1, "c": 1}),
        ({"x": {"$first": "$c"}}, {"c": 1}),
    ):
        command["pipeline"] = [{"$sort": sort}, {"$group": {"_id": "$a", **accumulators}}]
        assert "DISTINCT_SCAN" not in stages(
            cursor_of(explained(things, command, "queryPlanner"))["queryPlanner"]["winningPlan"]
        )
    found = sorted(
        (row["_id"] or 0, row["x"]) for row in things.aggregate(command["pipeline"]) if row["_id"] is not None
    )
    assert found == [(a, a) for a in range(10)]


def test_pipelines_decode_what_they_need(things: Collection[Document]) -> None:
    command: Document = {
        "aggregate": "things",
        "pipeline": [{"$group": {"_id": "$b", "n": {"$sum": "$c"}}}],
        "cursor": {},
    }
    plan = cursor_of(explained(things, command, "queryPlanner"))["queryPlanner"]["winningPlan"]
    assert (stages(plan), plan["transformBy"]) == ("PROJECTION_SIMPLE COLLSCAN", {"b": True, "c": True, "_id": False})
    found = {row["_id"]: row["n"] for row in things.aggregate(command["pipeline"])}
    assert found == {b: sum(c for c in range(200) if c % 7 == b) for b in range(7)}
    assert [row["n"] for row in things.aggregate([{"$match": {"b": 3}}, {"$count": "n"}])] == [29]


def test_an_option_of_the_statistics_stands_once(database: Database[Document]) -> None:
    database.c.insert_one({})
    body = b"\x08allHosts\0\0" * 2
    twice = RawBSONDocument((len(body) + 5).to_bytes(4, "little") + body + b"\0")
    with pytest.raises(OperationFailure) as caught:
        database.command({"aggregate": "c", "pipeline": [{"$planCacheStats": twice}], "cursor": {}})
    assert caught.value.code == 9
