"""After every history of inserts, deletes, changes of meta and restarts, buckets hold what they should and are sound."""

from typing import Any

from bson import DatetimeMS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.catalog import documents
from bucketd.catalog.buckets import BucketLimits
from bucketd.common.values import Document, decode, encode
from bucketd.kernels import validate_bucket
from bucketd.query.match.parse import parse_filter
from bucketd.query.update.parse import parse_update
from bucketd.storage.engine import Transaction
from bucketd.timeseries.edits import Remover, edit_target, meta_update, with_normal_meta
from support.measurements import NAMESPACE, Measurements
from support.memory_engine import MemoryEngine

START = 1_700_000_000_000 // 3_600_000 * 3_600_000
LIMITS = BucketLimits(count_max=6, memory_max=30_000)

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(0, 9000).map(lambda second: DatetimeMS(START + second * 1000)),
            "m": st.sampled_from(["a", "b"]),
        },
        optional={
            "x": st.one_of(st.integers(0, 9), st.text("pq", max_size=2), st.none()),
            "y": st.lists(st.integers(0, 3)),
        },
    ),
    min_size=1,
    max_size=12,
)
FILTERS = st.one_of(
    st.integers(0, 9).map(lambda bound: {"x": {"$gte": bound}}),
    st.integers(0, 9000).map(lambda second: {"t": {"$lt": DatetimeMS(START + second * 1000)}}),
    st.sampled_from([{"m": "a"}, {"m": "b", "x": 3}, {"y": 2}, {"x": None}, {"x": "p"}]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), ROWS),
        st.tuples(st.just("insert"), ROWS),
        st.tuples(st.just("delete"), FILTERS),
        st.tuples(st.just("relabel"), st.sampled_from([("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")])),
        st.tuples(st.just("restart"), st.none()),
    ),
    min_size=1,
    max_size=10,
)


async def on_each_bucket(lab: Measurements, work: Any) -> None:
    def run(transaction: Transaction) -> None:
        collection = lab.catalog.collection_in(transaction, NAMESPACE.buckets)
        assert collection is not None
        for record_key, raw in list(documents.scan(transaction, collection)):
            work(transaction, collection, record_key, raw)

    await lab.engine.write(run)


async def delete(lab: Measurements, filter: Document) -> None:
    view, buckets = lab.collection(NAMESPACE), lab.collection(NAMESPACE.buckets)
    target = edit_target(view, buckets, parse_filter(filter), None)
    remover = Remover(view, target, {})
    matches = target.bucket.compile({})

    def work(transaction: Transaction, collection: Any, record_key: bytes, raw: bytes) -> None:
        document = decode(raw)
        if matches(document):
            remover.remove_all(transaction, collection, record_key, raw, document)

    await on_each_bucket(lab, work)


async def relabel(lab: Measurements, old: str, new: str) -> None:
    filter, spec = meta_update(lab.collection(NAMESPACE), {"m": old}, {"$set": {"m": new}}, multi=True, upsert=False)
    matches, update = parse_filter(filter).compile({}), parse_update(spec)

    def work(transaction: Transaction, collection: Any, record_key: bytes, raw: bytes) -> None:
        document = decode(raw)
        if matches(document):
            changed, _ = update.apply(document, now=DatetimeMS(0))
            documents.replace(transaction, collection, record_key, raw, encode(with_normal_meta(changed)))

    await on_each_bucket(lab, work)


def check(lab: Measurements, expected: list[Document]) -> None:
    def by_id(row: Document) -> int:
        return int(row["_id"])

    assert sorted(lab.aggregate(), key=by_id) == sorted(expected, key=by_id)
    options, collection = lab.collection(NAMESPACE).timeseries, lab.collection(NAMESPACE.buckets)
    assert options is not None
    with lab.engine.snapshot() as snapshot:
        rows = list(documents.scan(snapshot, collection))
        for _, raw in rows:
            assert validate_bucket(raw, "t", "m", options.span_ms, options.rounding_seconds * 1000) == []
        stats = documents.read_stats(snapshot, collection)
        assert (stats.count, stats.data_bytes) == (len(rows), sum(len(raw) for _, raw in rows))
        for index in collection.indexes:
            assert len(list(documents.index_scan(snapshot, index))) == len(rows)
    assert lab.aggregate({"$count": "n"}) == ([{"n": len(expected)}] if expected else [])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
async def test_histories(steps: list[tuple[str, Any]]) -> None:
    engine = MemoryEngine()
    lab = Measurements(engine, LIMITS)
    await lab.create()
    expected: list[Document] = []
    number = 0
    for step, operand in steps:
        match step:
            case "insert":
                rows = [{"_id": number + at, **row} for at, row in enumerate(operand)]
                number += len(rows)
                await lab.insert(*rows)
                expected += rows
            case "delete":
                await delete(lab, operand)
                matches = parse_filter(operand).compile({})
                expected = [row for row in expected if not matches(row)]
            case "relabel":
                await relabel(lab, *operand)
                expected = [{**row, "m": operand[1]} if row["m"] == operand[0] else row for row in expected]
            case "restart":
                lab = Measurements(engine, LIMITS)
        check(lab, expected)
