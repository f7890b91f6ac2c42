"""What the bucket catalog counts, by collection and in all."""

from collections import Counter
from typing import Final

from bson import Int64

from ..common.values import Document

CLOSED_DUE_TO: Final = {
    "count": "numBucketsClosedDueToCount",
    "size": "numBucketsClosedDueToSize",
    "cache_pressure": "numBucketsClosedDueToCachePressure",
    "schema": "numBucketsClosedDueToSchemaChange",
}
COUNTERS: Final = (
    "numBucketInserts", "numBucketUpdates", "numBucketsOpenedDueToMetadata", "numBucketsClosedDueToCount",
    "numBucketsClosedDueToSchemaChange", "numBucketsClosedDueToSize", "numBucketsClosedDueToTimeForward",
    "numBucketsClosedDueToMemoryThreshold", "numCommits", "numWaits", "numMeasurementsCommitted",
    "avgNumMeasurementsPerCommit", "numBucketsClosedDueToReopening", "numBucketsArchivedDueToMemoryThreshold",
    "numBucketsArchivedDueToTimeBackward", "numBucketsReopened", "numBucketsKeptOpenDueToLargeMeasurements",
    "numBucketsClosedDueToCachePressure", "numBucketsFrozen", "numCompressedBucketsConvertedToUnsorted",
    "numBucketsFetched", "numBucketsQueried", "numBucketFetchesFailed", "numBucketQueriesFailed",
    "numBucketReopeningsFailed", "numDuplicateBucketsReopened", "numBucketsMerged",
)  # fmt: skip


class BucketCounters:
    """The counters of every collection since the start of the server."""

    def __init__(self) -> None:
        self._by_collection: dict[int, Counter[str]] = {}

    def of(self, collection_id: int) -> Counter[str]:
        """The counters of a collection, to count with."""
        counters = self._by_collection.get(collection_id)
        if counters is None:
            counters = self._by_collection[collection_id] = Counter()
        return counters

    def shown(self, collection_id: int) -> Document:
        """The counters of a collection, as `collStats` shows them."""
        return _shown(self.of(collection_id))

    def total(self) -> Document | None:
        """Those of all collections, as `serverStatus` shows them; None where nothing was counted yet."""
        if not self._by_collection:
            return None
        total: Counter[str] = Counter()
        for counters in self._by_collection.values():
            total.update(counters)
        return _shown(total)


def _shown(counters: Counter[str]) -> Document:
    shown: Document = {}
    for name in COUNTERS:
        if name != "avgNumMeasurementsPerCommit":
            shown[name] = Int64(counters[name])
        elif counters["numCommits"]:
            shown[name] = Int64(counters["numMeasurementsCommitted"] // counters["numCommits"])
    return shown
