"""Whether a whole store is whole: the catalog, what every collection holds, and that nothing lies there that is nobody's.

For a store that nobody writes to: all of it is looked at under one snapshot.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ..storage.engine import Snapshot
from ..storage.keys import NUMBER_MAX, after, number_key, number_of
from . import documents
from .catalog import VIEWS, Catalog, entry_key
from .checking import CollectionCheck
from .collections import Collection
from .garbage import garbage_in, last_id
from .namespaces import Namespace

_TOLD_MAX: Final = 100


@dataclass(slots=True)
class StoreReport:
    """What was seen of a store."""

    collections: list[dict[str, Any]] = field(default_factory=list)
    """For each: `ns`, `kind`, `records`, `dataBytes`, `keysPerIndex`, `errors`, `warnings`, `brokenIndexes`."""
    errors: list[str] = field(default_factory=list)
    """What is wrong beyond single collections."""
    warnings: list[str] = field(default_factory=list)
    damaged: list[CollectionCheck] = field(default_factory=list)
    """Checks of collections that something is wrong with."""

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong anywhere."""
        return not self.errors and not self.damaged

    def tell(self, problem: str) -> None:
        """Note what is wrong."""
        if len(self.errors) < _TOLD_MAX:
            self.errors.append(problem)


def check_store(snapshot: Snapshot, catalog: Catalog, *, progress: Callable[[Collection], None]) -> StoreReport:
    """Look at everything.

    Args:
        snapshot: of the store.
        catalog: of the same store; what of it cannot be read is told, and the rest is loaded.
        progress: is told of each collection before it is looked at.
    """
    report = StoreReport()
    catalog.load(lambda key, error: report.tell(f"the catalog entry {key!r} cannot be read: {error}"))
    collections = sorted(catalog.all_collections(), key=lambda collection: collection.namespace)
    _check_entries(snapshot, collections, report)
    _check_numbers(snapshot, collections, report)
    _check_names(snapshot, catalog, collections, report)
    for collection in collections:
        if collection.kind == "collection":
            progress(collection)
            report.collections.append(_check_collection(snapshot, collection, report))
    return report


def _check_collection(snapshot: Snapshot, collection: Collection, report: StoreReport) -> dict[str, Any]:
    check = CollectionCheck(collection)
    while check.step(snapshot):
        pass
    if not check.valid or check.counts_are_wrong:
        report.damaged.append(check)
    unfinished = [index.name for index in collection.indexes if index.building]
    return {
        "ns": str(collection.namespace),
        "kind": "timeseries" if collection.is_buckets else "collection",
        "records": check.records,
        "dataBytes": check.data_bytes,
        "keysPerIndex": check.entries,
        # Nobody writes meanwhile: a count that differs is wrong.
        "errors": [*check.errors, *(check.warnings if check.counts_are_wrong else ())],
        "warnings": [
            f"the build of the index {name} was cut short, and is given up at the next start" for name in unfinished
        ],
        "brokenIndexes": sorted(check.broken_indexes),
    }


def _check_entries(snapshot: Snapshot, collections: list[Collection], report: StoreReport) -> None:
    """Each entry lies under its own name, and no number is given twice."""
    taken: dict[int, str] = {}
    highest = last_id(snapshot)
    for collection in collections:
        if snapshot.get("catalog", entry_key(collection.namespace)) is None:
            report.tell(f"the catalog entry of {collection.namespace} lies under another name")
        numbers = [(index.id, f"{collection.namespace}, index {index.name}") for index in collection.indexes]
        if collection.kind == "collection":
            numbers.append((collection.id, str(collection.namespace)))
        for number, name in numbers:
            if number in taken:
                report.tell(f"{name} and {taken[number]} have the same number {number}")
            elif not 0 < number <= highest:
                report.tell(f"{name} has the number {number}, which was never given")
            taken[number] = name


def _check_numbers(snapshot: Snapshot, collections: list[Collection], report: StoreReport) -> None:
    """Whatever lies in the tables lies under the number of something that exists, or is known to be garbage."""
    known = {
        "records": {collection.id for collection in collections if collection.kind == "collection"},
        "indexes": {index.id for collection in collections for index in collection.indexes},
    }
    for table, number in garbage_in(snapshot):
        if table not in known:
            report.tell(f"there is garbage in a table {table!r}")
        elif number in known[table]:
            report.tell(f"what lies under {number} in {table} is in use, and listed as garbage")
        else:
            known[table].add(number)
    for table, numbers in known.items():
        number = 0
        while (key := next(snapshot.keys(table, number_key(number), b"\xff" * 9), None)) is not None:
            if len(key) < 8:
                report.tell(f"the table {table} has a key without a number: {key.hex()}")
                break
            number = number_of(key)
            if number not in numbers:
                report.tell(f"the table {table} holds entries of nothing that exists, under the number {number}")
            if number == NUMBER_MAX:
                break
            number += 1
    counted = {documents.stats_key(collection) for collection in collections}
    prefix = documents.STATS_PREFIX
    for key in snapshot.keys("meta", prefix, after(prefix)):
        if key not in counted:
            report.warnings.append(f"there are counts of a collection that does not exist: {key.hex()}")


def _check_names(snapshot: Snapshot, catalog: Catalog, collections: list[Collection], report: StoreReport) -> None:
    """Time series have their buckets, and views their row."""
    for collection in collections:
        name = collection.namespace
        if collection.kind == "timeseries" and catalog.get(name.buckets) is None:
            report.tell(f"the time series {name} has no buckets")
        if collection.is_buckets and catalog.get(name.view_of_buckets) is None:
            report.warnings.append(f"the buckets {name} have no time series")
        if collection.is_view:
            views = catalog.get(Namespace(name.database, VIEWS))
            if views is None or documents.fetch_by_id(snapshot, views, str(name)) is None:
                report.tell(f"the view {name} is missing in {VIEWS}")
