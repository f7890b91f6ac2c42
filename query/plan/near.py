"""The node that reads a geospatial index from a point on: the nearest documents first.

The index is searched in circles that grow. What lies within a circle that was searched whole is given out in the order of its
distance; the rest waits for the next circle.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...common.errors import Location
from ...common.values import Document, decode
from ..match.base import AlwaysTrue, MatchNode, Predicate
from ..match.geo import GeoNear
from ..match.sphere import EARTH_RADIUS_M
from .batches import Batch, Metadata, RowBatch
from .bounds import IndexBounds
from .cells import joined, without
from .geo_bounds import GeoBounds, Ranges, cap_boxes, cap_ranges, flat_ranges
from .nodes import PlanNode, Run

_FIRST_ANGLE: Final = 1e-4
_FEW: Final = 300
_MANY: Final = 600
"""Circles grow by more where they found few documents, and by less where they found many, which have to wait in memory."""
_FIRST_PART: Final = 1 / 2048
"""The first circle in the plane, as a part of the index's extent."""

Found = tuple[float, bytes, bytes, Any]


class NearScan(PlanNode):
    """Documents in the order of their distance from a point."""

    def __init__(
        self,
        collection: Collection,
        index: IndexSpec,
        near: GeoNear,
        rest: MatchNode,
        collation: Document | None,
        predicates: Sequence[MatchNode],
    ) -> None:
        super().__init__()
        self.stage = "GEO_NEAR_2DSPHERE" if index.key[near.path] == "2dsphere" else "GEO_NEAR_2D"
        self.collection = collection
        self.index = index
        self.near = near
        self.matcher = None if isinstance(rest, AlwaysTrue) else rest
        self._collation = collation
        self._predicates = predicates
        self._angles = near.spherical

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.index.state.accesses += 1
        matches = None if self.matcher is None else self.matcher.compile(run.variables)
        seen: set[bytes] = set()
        waiting: list[Found] = []
        searched: Ranges = []
        steps = self._steps()
        radius, whole = next(steps)
        while True:
            before = self.stats.docs_examined
            ranges = without(self._ranges(radius, whole=whole), searched)
            searched = joined([*searched, *ranges])
            bounds = self._bounds(ranges)
            for low, high in bounds.ranges:
                self.stats.seeks += 1
                last: bytes | None = None
                while True:
                    entries = list(
                        islice(
                            documents.index_scan(run.snapshot, self.index, low, high, after_key=last), run.batch_rows
                        )
                    )
                    self.stats.keys_examined += len(entries)
                    self.stats.works += len(entries)
                    for _, key in entries:
                        if key not in seen:
                            seen.add(key)
                            found = self._found(run, key, matches)
                            if found is not None:
                                waiting.append(found)
                    if len(entries) < run.batch_rows:
                        break
                    last = entries[-1][0]
                    yield None
            waiting.sort(key=lambda found: found[:2])
            ready = len(waiting) if whole else sum(1 for found in waiting if self._measure(found[0]) <= radius)
            for start in range(0, ready, run.batch_rows):
                part = waiting[start : min(start + run.batch_rows, ready)]
                self.stats.advanced += len(part)
                yield _batch(part)
            del waiting[:ready]
            yield None
            if whole:
                break
            radius, whole = steps.send(self.stats.docs_examined - before)
        self.stats.eof = True

    def _found(self, run: Run, key: bytes, matches: Predicate | None) -> Found | None:
        raw = documents.fetch(run.snapshot, self.collection, key)
        if raw is None:
            return None
        self.stats.docs_examined += 1
        document = decode(raw)
        place = self.near.nearest(document)
        if place is None or (matches is not None and not matches(document)):
            return None
        return place[0], key, raw, place[1]

    def _measure(self, distance: float) -> float:
        """A distance in the unit of circles: an angle, or one of the plane."""
        return distance / EARTH_RADIUS_M if self.near.metres else distance

    def _steps(self) -> Generator[tuple[float, bool], int, None]:
        """Growing circles, and whether each is the last; it is told how many documents each added."""
        unit = EARTH_RADIUS_M if self.near.metres else 1.0
        low, high = self.near.minimum / unit, self.near.maximum / unit
        extent = _extent(self.index)
        limit, first = (math.pi, _FIRST_ANGLE) if self._angles else (4 * extent, extent * _FIRST_PART)
        radius, step = max(first, low), first
        while True:
            whole = radius >= high or radius >= limit
            added = yield (high if whole else radius), whole
            if added < _FEW:
                step *= 2 if added else 4
            elif added > _MANY:
                step /= 2
            radius += step

    def _ranges(self, radius: float, *, whole: bool) -> Ranges:
        # The slack makes up for rounding in the distances that are compared with the circle.
        reach = radius * (1 + 1e-9) + 1e-9
        point = self.near.point
        if self.index.key[self.near.path] == "2dsphere":
            return cap_ranges(point.points[0], reach)
        if self._angles:
            boxes = cap_boxes(point.points[0], min(reach, math.pi))
        else:
            assert point.pair is not None
            (x, y), reach = point.pair, min(reach, 1e300)
            boxes = [((x - reach, y - reach), (x + reach, y + reach))]
        return joined([one for low, high in boxes for one in flat_ranges(self.index, low, high)])

    def _bounds(self, ranges: Ranges) -> IndexBounds:
        return GeoBounds(self.index, self._collation, (self.near.path, ranges)).make(self._predicates)

    def usable(self) -> bool:
        """Whether the fields before the place are bound, so that the index can be searched by the place."""
        bounds = self._bounds([(0, 0)])
        position = list(self.index.key).index(self.near.path)
        return not any(field.unbounded for field in bounds.fields[:position])

    def check_point(self) -> None:
        """Refuse a point outside of the plane of a 2d index.

        Raises:
            Location: 16433.
        """
        if self.stage != "GEO_NEAR_2D" or self.near.point.pair is None:
            return
        options = self.index.document
        low, high = float(options.get("min", -180)), float(options.get("max", 180))
        if not all(low <= number <= high for number in self.near.point.pair):
            raise Location(16433, f"point not in interval of [ {low:g}, {high:g} ]")

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        shown: Document = {} if self.matcher is None else {"filter": self.matcher.serialize()}
        return {
            **shown,
            "keyPattern": self.index.key,
            "indexName": self.index.name,
            "indexVersion": 2,
        }

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"keysExamined": self.stats.keys_examined, "docsExamined": self.stats.docs_examined}


def _extent(index: IndexSpec) -> float:
    low, high = float(index.document.get("min", -180)), float(index.document.get("max", 180))
    return high - low


def _batch(rows: Sequence[Found]) -> RowBatch:
    metadata: list[Metadata] = [{"geoNearDistance": distance, "geoNearPoint": place} for distance, _, _, place in rows]
    return RowBatch(raws=[raw for _, _, raw, _ in rows], metadata=metadata, record_keys=[key for _, key, _, _ in rows])
