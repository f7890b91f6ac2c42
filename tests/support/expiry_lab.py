"""A store with a TTL monitor, for tests of what it deletes."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from bson import DatetimeMS, ObjectId

from bucketd.catalog import documents
from bucketd.catalog.catalog import Catalog
from bucketd.catalog.index_specs import IndexSpec
from bucketd.catalog.namespaces import Namespace
from bucketd.common.clock import TestClock
from bucketd.common.values import Document, decode, encode
from bucketd.query.match.parse import parse_filter
from bucketd.storage.engine import Engine, Transaction
from bucketd.ttl.monitor import SLICE_DOCUMENTS_MAX, TtlMonitor, TtlSettings
from bucketd.ttl.rules import Lifetime

NOW_MS = 1_700_000_000_000
THINGS = Namespace("test", "things")
OTHERS = Namespace("test", "others")
MANY = 5 * SLICE_DOCUMENTS_MAX // 2
_serial = itertools.count(1)


def catalog_on(engine: Engine) -> Catalog:
    def compiled(expression: Document, collation: Any) -> Any:
        matches = parse_filter(expression).compile()
        return lambda raw: matches(decode(raw))

    made = Catalog(engine, partial_compiler=compiled)
    made.load()
    return made


def ttl_index(path: str, seconds: Any, direction: int = 1, **options: Any) -> IndexSpec:
    return IndexSpec.parse(
        {"key": {path: direction}, "name": f"{path}_{next(_serial)}", "expireAfterSeconds": seconds, **options}
    )


class Lab:
    """A store with a monitor whose settings and log a test can reach."""

    def __init__(self, engine: Engine, catalog: Catalog, clock: TestClock) -> None:
        self.engine, self.catalog, self.clock = engine, catalog, clock
        self.settings = TtlSettings()
        self.removed: list[ObjectId] = []
        self.visits: list[Lifetime] = []
        self.wanted = True
        self.locked = False
        self.monitor = TtlMonitor(
            engine,
            catalog,
            clock,
            lambda: self.settings,
            structlog.get_logger(),
            on_buckets_removed=lambda collection, ids: self.removed.extend(ids),
            watch=self._watch,
            locked=lambda: self.locked,
        )

    @contextmanager
    def _watch(self, lifetime: Lifetime) -> Iterator[Any]:
        self.visits.append(lifetime)
        yield lambda: self.wanted

    async def insert(self, *rows: Document, into: Namespace = THINGS) -> None:
        def work(transaction: Transaction) -> None:
            collection = self.catalog.collection_in(transaction, into)
            assert collection is not None
            documents.insert_many(transaction, collection, [encode(row) for row in rows])

        await self.engine.write(work)

    def left(self, namespace: Namespace = THINGS) -> list[Any]:
        collection = self.catalog.get(namespace)
        assert collection is not None
        with self.engine.snapshot() as snapshot:
            found = [decode(raw)["_id"] for _, raw in documents.scan(snapshot, collection)]
            assert self.catalog.counts(collection, snapshot)[0] == len(found)
        return found


def date(ms: int) -> DatetimeMS:
    return DatetimeMS(ms)
