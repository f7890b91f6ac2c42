"""The benchmarks on little data: every query is asked, and a wrong answer is seen."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import contest, iot
from benchmarks.answers import WrongAnswer, answer, check
from benchmarks.contender import Bucketd
from benchmarks.harness import Table
from benchmarks.queries import QUERIES
from benchmarks.tsbs import METRICS, START_MS, Scale, documents, encoded, metric_values

SCALE = Scale(hosts=3, hours=0.5)


def test_encoded_documents_are_those_of_the_generator() -> None:
    import bson

    decoded = [bson.decode(raw) for raws in encoded(SCALE, size=7) for raw in raws]
    identities = [document.pop("_id") for document in decoded]
    assert identities == sorted(set(identities))
    assert decoded == [{**row, "time": row["time"].replace(tzinfo=None)} for row in documents(SCALE)]


def test_every_query_is_answered_as_computed() -> None:
    table = Table()
    results = contest.queries(table, SCALE, [Bucketd], list(QUERIES.values()), smoke=True)
    assert set(results["bucketd"].medians) == set(QUERIES)


def test_a_wrong_answer_ends_the_benchmark() -> None:
    values = metric_values(SCALE)
    query = QUERIES["high-cpu-all"]
    ask = query.asks(SCALE)[0]
    right = answer(query, ask, SCALE, np.full_like(values, 95))
    assert len(right) == SCALE.measurements
    check("nobody", query, right[::-1], right)
    wrong = right.copy()
    wrong[5, 3] += 1
    with pytest.raises(WrongAnswer, match="row 5"):
        check("nobody", query, wrong, right)
    with pytest.raises(WrongAnswer, match="rows"):
        check("nobody", query, right[1:], right)


def test_minutes_are_those_of_plain_python() -> None:
    values = metric_values(SCALE)
    query = QUERIES["single-groupby-5-8-1"]
    ask = query.asks(SCALE)[0]
    greatest: dict[int, list[int]] = {}
    for number, row in enumerate(documents(SCALE)):
        at = START_MS + number // SCALE.hosts * 10_000
        if ask.start_ms <= at < ask.end_ms:
            found = [row[name] for name in METRICS[:5]]
            before = greatest.setdefault(at // 60_000 * 60_000, found)
            greatest[at // 60_000 * 60_000] = [max(pair) for pair in zip(before, found, strict=True)]
    expected = [[at, *found] for at, found in sorted(greatest.items())]
    assert answer(query, ask, SCALE, values).tolist() == expected


def test_trucks_are_found_though_points_are_late_and_missing() -> None:
    iot.iot(Table(), trucks=4, hours=0.5)
