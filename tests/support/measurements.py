"""A time-series collection in a store of its own, for tests that need no server."""

from typing import Any

from bucketd.catalog import documents
from bucketd.catalog.buckets import BucketCatalog, BucketLimits
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.collections import Collection
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.catalog.packing import Packer
from bucketd.catalog.timeseries_options import TimeseriesOptions
from bucketd.common.clock import TestClock
from bucketd.common.values import Document, decode, encode
from bucketd.kernels import partition
from bucketd.query.execute import run_all
from bucketd.query.match.logical import And
from bucketd.query.pipeline.base import PipelineContext
from bucketd.query.pipeline.parse import Pipeline, parse_pipeline
from bucketd.query.plan.nodes import PlanNode
from bucketd.query.plan.planner import Wanted, plan_find
from bucketd.query.plan.scans import Eof
from bucketd.storage.engine import Engine, Snapshot
from bucketd.timeseries.view import bucket_pipeline, needs_heads, on_buckets

NAMESPACE = Namespace("lab", "readings")


class Measurements:
    """`lab.readings`, with time field `t` and meta field `m`."""

    def __init__(self, engine: Engine, limits: BucketLimits | None = None) -> None:
        self.engine = engine
        self.catalog = Catalog(engine)
        self.catalog.load()
        self.limits = limits or BucketLimits()
        self.buckets = BucketCatalog(engine, self.catalog, self.limits)

    async def create(self, **options: Any) -> None:
        parsed = TimeseriesOptions.parse({"timeField": "t", "metaField": "m", **options}, str(NAMESPACE))
        series = {"timeseries": parsed.to_document()}
        index = IndexSpec({"v": 2, "key": {"meta": 1, "control.min.t": 1, "control.max.t": 1}, "name": "m_1_t_1"})
        await self.catalog.create_many(
            [
                (NAMESPACE.buckets, {"clusteredIndex": True, **series}, "collection", [index], None),
                (NAMESPACE, series, "timeseries", None, None),
            ]
        )

    async def insert(self, *rows: Document) -> None:
        batch = partition([encode(row) for row in rows], "t", "m")
        assert not batch.errors
        await self.buckets.insert(NAMESPACE.buckets, batch)

    async def pack(self) -> int:
        """Pack all buckets, those that may still grow included; returns how many."""
        packer = Packer(self.engine, self.catalog, TestClock(0), lambda: None, None, lambda: True)
        return await packer.pack(self.collection(NAMESPACE.buckets), everything=True)

    def collection(self, namespace: Namespace) -> Collection:
        found = self.catalog.get(namespace)
        assert found is not None
        return found

    def stored(self) -> list[Document]:
        """The bucket documents, in the order of their ids."""
        prefix = self.collection(NAMESPACE.buckets)
        with self.engine.snapshot() as snapshot:
            return [decode(raw) for _, raw in documents.scan(snapshot, prefix)]

    def aggregate(self, *stages: Document) -> list[Document]:
        with self.engine.snapshot() as snapshot:
            rows = run_all(self.plan(snapshot, *stages), snapshot)
            return [document for batch in rows for document in batch.documents()]

    def plan(self, snapshot: Snapshot, *stages: Document) -> PlanNode:
        """The plan of a pipeline on the measurements."""
        context = PipelineContext(namespace=NAMESPACE)
        pipeline = parse_pipeline(list(stages), context).optimized()
        view, buckets = self.collection(NAMESPACE), self.collection(NAMESPACE.buckets)
        on_them = on_buckets(buckets, bucket_pipeline(view, buckets, pipeline), context)
        if on_them.stages[0].name == "$cursor":
            return Pipeline(on_them.stages[1:]).node(on_them.stages[0].node(Eof()))
        leading, rest = on_them.split_leading()
        filters = [match.matcher for match in leading.filters]
        if needs_heads(rest, filters, None if leading.sort is None else leading.sort.pattern):
            buckets = buckets.with_heads
        wanted = Wanted(
            matcher=And(filters).simplified(),
            sort=None if leading.sort is None else leading.sort.pattern,
            limit=leading.limit or 0,
        )
        return rest.node(plan_find(buckets, wanted, snapshot).root)

    def counters(self) -> Document:
        return self.buckets.statistics(self.collection(NAMESPACE.buckets))
