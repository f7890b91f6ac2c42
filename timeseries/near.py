"""`$geoNear` on measurements: what buckets tell of places, then the distances of the measurements, nearest first."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..catalog.collections import Collection
from ..common.errors import Location, NoQueryExecutionPlans
from ..common.values import Document
from ..query.match.geo import BucketGeoMatch
from ..query.match.geo import GeoNear as NearCondition
from ..query.match.sphere import EARTH_RADIUS_M, Cap
from ..query.pipeline.base import Stage, StageNode
from ..query.pipeline.geo_near import GeoNear
from ..query.pipeline.reshape import Match
from ..query.plan.batches import Batch, Metadata, RowBatch
from ..query.plan.nodes import PlanNode, Run

_SLACK: Final = 1e-9
"""Added to the circle in which places are looked for, so that rounding leaves nothing out."""


def near_on_buckets(stages: Sequence[Stage], buckets: Collection, meta: str | None) -> tuple[list[Stage], list[Stage]]:
    """A pipeline on measurements as what goes before the unpacking of buckets, and what comes behind it.

    Raises:
        Location: 5892921 without a key; 1938439 and 5860208, options that measurements do not support.
        NoQueryExecutionPlans: a field of the meta field without a geospatial index.
    """
    if not stages or not isinstance(stages[0], GeoNear):
        return [], list(stages)
    asked = stages[0]
    if asked.key is None:
        raise Location(5892921, "Must specify 'key' option for $geoNear on a time-series collection")
    if asked.has_query:
        raise Location(1938439, "Must not specify 'query' for $geoNear on a time-series collection; use $match instead")
    near, path = asked.condition(asked.key), asked.key
    place = f"data.{path}"
    if meta is not None and (path == meta or path.startswith(meta + ".")):
        place = "meta" + path[len(meta) :]
        if not any(index.key.get(place) in ("2d", "2dsphere") for index in buckets.indexes):
            raise NoQueryExecutionPlans(
                f"error processing query: ns={buckets.namespace} planner returned error :: caused by :: unable to find "
                "index for $geoNear query"
            )
    elif asked.places_field is not None:
        raise Location(5860208, "$geoNear 'includeLocs' is not supported on time-series metrics")
    before: list[Stage] = []
    if near.spherical:
        reach = near.maximum / (EARTH_RADIUS_M if near.metres else 1.0) + _SLACK
        filter = BucketGeoMatch(path, {"$centerSphere": [list(near.point.pair or ()), reach]},
                                Cap(near.point.points[0], reach), place=place)  # fmt: skip
        before.append(Match(filter, filter.serialize()))
    return before, [NearestMeasurements(near, asked), asked, *stages[1:]]


class NearestMeasurements(Stage):
    """The measurements within reach of a point, in the order of their distance."""

    name = "$geoNear"

    def __init__(self, near: NearCondition, asked: GeoNear) -> None:
        self.near = near
        self.asked = asked

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {"$sort": {"$distance": 1}}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _Nearest(self, source, self.near)


class _Nearest(StageNode):
    """Reads everything, measures, sorts."""

    def __init__(self, stage: Stage, source: PlanNode, near: NearCondition) -> None:
        super().__init__(stage, source)
        self.near = near

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        found: list[tuple[float, int, Document, Any]] = []
        for batch in self.inputs[0].batches(run):
            if batch is not None:
                for document in batch.documents():
                    nearest = self.near.nearest(document)
                    if nearest is not None:
                        found.append((nearest[0], len(found), document, nearest[1]))
            yield None
        found.sort(key=lambda row: row[:2])
        for start in range(0, len(found), run.batch_rows):
            part = found[start : start + run.batch_rows]
            metadata: list[Metadata] = [
                {"geoNearDistance": distance, "geoNearPoint": place} for distance, _, _, place in part
            ]
            self.stats.advanced += len(part)
            yield RowBatch(documents=[document for _, _, document, _ in part], metadata=metadata)
        self.stats.eof = True
