"""find, getMore, killCursors, count, distinct: what a driver gets to read."""

from typing import Any

import pytest
from bson import Int64
from pymongo.database import Database
from pymongo.errors import OperationFailure

Document = dict[str, Any]


@pytest.fixture
def numbers(database: Database[Document]) -> Database[Document]:
    database.c.insert_many({"_id": number, "third": number % 3, "tags": [number, number + 1]} for number in range(30))
    return database


def code_of(error: pytest.ExceptionInfo[OperationFailure]) -> int | None:
    return error.value.code


def test_a_filter_a_sort_and_a_projection(numbers: Database[Document]) -> None:
    found = list(numbers.c.find({"third": 1, "_id": {"$gt": 20}}, {"third": 1}, sort=[("_id", -1)]))
    assert found == [{"_id": 28, "third": 1}, {"_id": 25, "third": 1}, {"_id": 22, "third": 1}]


@pytest.mark.parametrize("keys", [[("third", 1)], [("third", -1), ("_id", 1)], [("tags", 1)]])
def test_an_index_changes_no_answer(numbers: Database[Document], keys: list[tuple[str, int]]) -> None:
    queries: list[Document] = [
        {"third": 2},
        {"third": {"$in": [0, 2]}},
        {"tags": 5},
        {"$or": [{"third": 1}, {"tags": 4}]},
    ]
    before = [sorted(row["_id"] for row in numbers.c.find(query)) for query in queries]
    numbers.c.create_index(keys)
    assert [sorted(row["_id"] for row in numbers.c.find(query)) for query in queries] == before


def test_a_cursor_that_gave_a_full_batch_stays_open(numbers: Database[Document]) -> None:
    reply = numbers.command({"find": "c", "batchSize": 30})
    assert len(reply["cursor"]["firstBatch"]) == 30
    cursor_id = reply["cursor"]["id"]
    assert cursor_id != 0
    rest = numbers.command({"getMore": Int64(cursor_id), "collection": "c"})
    assert rest["cursor"] == {"nextBatch": [], "id": 0, "ns": f"{numbers.name}.c"}


def test_a_limit_closes_the_cursor(numbers: Database[Document]) -> None:
    reply = numbers.command({"find": "c", "batchSize": 2, "limit": 3})
    rest = numbers.command({"getMore": reply["cursor"]["id"], "collection": "c"})
    assert [row["_id"] for row in rest["cursor"]["nextBatch"]] == [2]
    assert rest["cursor"]["id"] == 0


def test_getmore_sees_what_came_in_behind_it(numbers: Database[Document]) -> None:
    reply = numbers.command({"find": "c", "batchSize": 2})
    numbers.c.update_one({"_id": 5}, {"$set": {"new": True}})
    numbers.c.delete_one({"_id": 6})
    rest = numbers.command({"getMore": reply["cursor"]["id"], "collection": "c"})["cursor"]["nextBatch"]
    assert rest[3] == {"_id": 5, "third": 2, "tags": [5, 6], "new": True}
    assert [row["_id"] for row in rest[:5]] == [2, 3, 4, 5, 7]


def test_a_dropped_collection_ends_its_cursors(numbers: Database[Document]) -> None:
    reply = numbers.command({"find": "c", "batchSize": 2})
    numbers.c.drop()
    with pytest.raises(OperationFailure) as error:
        numbers.command({"getMore": reply["cursor"]["id"], "collection": "c"})
    assert code_of(error) == 175


def test_killed_cursors_are_gone(numbers: Database[Document]) -> None:
    cursor_id = numbers.command({"find": "c", "batchSize": 2})["cursor"]["id"]
    reply = numbers.command({"killCursors": "c", "cursors": [cursor_id, Int64(5)]})
    assert reply["cursorsKilled"] == [cursor_id]
    assert reply["cursorsNotFound"] == [5]
    with pytest.raises(OperationFailure) as error:
        numbers.command({"getMore": cursor_id, "collection": "c"})
    assert code_of(error) == 43


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"find": "c", "nonsense": 1}, 40415),
        ({"find": "c", "filter": 1}, 14),
        ({"find": "c", "filter": {"a": {"$no": 1}}}, 2),
        ({"find": "c", "sort": {"a": 0}}, 15975),
        ({"find": "c", "limit": -1}, 2),
        ({"find": "c", "hint": "none"}, 2),
        ({"find": "c", "hint": 1}, 9),
        ({"find": "c", "min": {"a": 1}}, 51173),
        ({"find": "c", "awaitData": True}, 9),
        ({"find": "c", "tailable": True}, 2),
        ({"find": 1}, 73),
        ({"getMore": 1, "collection": "c"}, 14),
        ({"killCursors": "c", "cursors": [1]}, 14),
        ({"count": "c", "skip": -1}, 2),
        ({"count": "c", "limit": "x"}, 2),
        ({"distinct": "c"}, 40414),
        ({"distinct": "c", "key": "a\0"}, 31032),
    ],
)
def test_bad_requests_are_told_by_code(numbers: Database[Document], command: Document, code: int) -> None:
    with pytest.raises(OperationFailure) as error:
        numbers.command(command)
    assert code_of(error) == code


def test_counts(numbers: Database[Document]) -> None:
    assert numbers.command("count", "c")["n"] == 30
    assert numbers.command("count", "c", query={"third": 1})["n"] == 10
    assert numbers.command("count", "c", skip=25, limit=-3)["n"] == 3
    assert numbers.command("count", "missing")["n"] == 0


def test_distinct_values_are_sorted_and_taken_out_of_arrays(numbers: Database[Document]) -> None:
    assert numbers.c.distinct("third") == [0, 1, 2]
    assert numbers.c.distinct("tags", {"_id": {"$lt": 3}}) == [0, 1, 2, 3]


def test_min_and_max_need_an_index(numbers: Database[Document]) -> None:
    numbers.c.create_index([("third", 1)])
    found = numbers.c.find({}).min([("third", 1)]).max([("third", 2)]).hint([("third", 1)])
    assert {row["third"] for row in found} == {1}


def test_record_ids_and_keys(numbers: Database[Document]) -> None:
    assert numbers.c.find_one({"_id": 3}, show_record_id=True)["$recordId"] == 4
    numbers.c.create_index([("third", 1)])
    assert numbers.c.find_one({"third": 2}, return_key=True) == {"third": 2}


def test_a_tailable_cursor_waits_for_more(database: Database[Document]) -> None:
    database.create_collection("log", capped=True, size=100_000)
    database.log.insert_one({"_id": 1})
    reply = database.command({"find": "log", "tailable": True, "awaitData": True})
    assert [row["_id"] for row in reply["cursor"]["firstBatch"]] == [1]
    database.log.insert_one({"_id": 2})
    more = database.command({"getMore": reply["cursor"]["id"], "collection": "log", "maxTimeMS": 50})
    assert [row["_id"] for row in more["cursor"]["nextBatch"]] == [2]
    assert more["cursor"]["id"] != 0


def test_let_variables_reach_the_filter(numbers: Database[Document]) -> None:
    found = numbers.command(
        {"find": "c", "filter": {"$expr": {"$eq": ["$_id", "$$wanted"]}}, "let": {"wanted": {"$add": [3, 4]}}}
    )
    assert [row["_id"] for row in found["cursor"]["firstBatch"]] == [7]


def test_views_are_read_through_their_pipelines(numbers: Database[Document]) -> None:
    numbers.command({"create": "v", "viewOn": "c", "pipeline": [{"$match": {"third": 1}}]})
    numbers.command({"create": "w", "viewOn": "v", "pipeline": [{"$project": {"third": 0}}]})
    assert numbers.w.find_one({"_id": 4}) == {"_id": 4, "tags": [4, 5]}
    assert numbers.command("count", "w")["n"] == 10
    assert numbers.v.distinct("third") == [1]
    with pytest.raises(OperationFailure) as error:
        numbers.v.insert_one({})
    assert code_of(error) == 166
