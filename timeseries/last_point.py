"""The newest (or oldest) measurement of each series, from the buckets that can hold it: a step through the index by series."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..catalog import documents
from ..catalog.bucket_reopening import series_index
from ..catalog.collections import Collection
from ..catalog.index_specs import IndexSpec
from ..catalog.timeseries_options import TimeseriesOptions
from ..common.values import BsonType, Document, decode
from ..kernels import bucket_summary, find_field, key_string
from ..query.match.base import AlwaysTrue, MatchNode
from ..query.match.comparison import Comparison, In
from ..query.match.logical import And, Or
from ..query.pipeline.base import Stage
from ..query.pipeline.group import Group
from ..query.pipeline.order import Sort
from ..query.plan.batches import Batch, RowBatch
from ..query.plan.nodes import PlanNode, Run
from ..query.sort import SortPattern
from ..storage.engine import Snapshot
from ..storage.keys import after
from .unpack import End

_SERIES_AT_ONCE = 256


def end_wanted(behind: Sequence[Stage], time_field: str, meta_field: str) -> End | None:
    """Which measurement of each group by meta decides the result of the stages; None where it is not just one."""
    if len(behind) > 1 and isinstance(behind[0], Sort) and isinstance(behind[1], Group) and behind[0].limit is None:
        group = behind[1]
        newest_first = _newest_first(behind[0].pattern, group, time_field, meta_field)
        names = {accumulator.name for accumulator in group.accumulators.values()}
        if newest_first is None or names not in ({"$first"}, {"$last"}):
            return None
        return "newest" if newest_first == (names == {"$first"}) else "oldest"
    if behind and isinstance(behind[0], Group) and behind[0].accumulators:
        group = behind[0]
        ends: set[End] = set()
        for accumulator in group.accumulators.values():
            if accumulator.name not in ("$top", "$bottom"):
                return None
            newest_first = _newest_first(_sort_of(accumulator.shown), group, time_field, meta_field)
            if newest_first is None:
                return None
            ends.add("newest" if newest_first == (accumulator.name == "$top") else "oldest")
        return ends.pop() if len(ends) == 1 else None
    return None


def _sort_of(shown: Any) -> SortPattern:
    from ..query.sort import parse_sort

    return parse_sort(shown["sortBy"])


def _newest_first(pattern: SortPattern, group: Group, time_field: str, meta_field: str) -> bool | None:
    """Whether the order puts the newest measurement of a group first; None where anything else has a say in it."""
    grouped = _grouped_paths(group.key.serialize())
    if pattern.metadata or grouped is None or pattern.fields[-1] != time_field:
        return None
    if not all(path == meta_field or path.startswith(meta_field + ".") for path in grouped):
        return None
    for path in pattern.fields[:-1]:
        if not any(path == fixed or path.startswith(fixed + ".") for fixed in grouped):
            return None
    return not pattern.parts[-1].ascending


def _grouped_paths(key: Any) -> list[str] | None:
    """The paths whose values a group key consists of; None where it is computed."""
    if isinstance(key, str) and key.startswith("$") and not key.startswith("$$"):
        return [key[1:]]
    if isinstance(key, dict):
        if set(key) == {"$const"}:
            return []
        found: list[str] = []
        for name, value in key.items():
            inner = None if name.startswith("$") else _grouped_paths(value)
            if inner is None:
                return None
            found += inner
        return found
    return None


def usable_index(buckets: Collection, options: TimeseriesOptions) -> IndexSpec | None:
    """An index by which one can step from series to series."""
    index = series_index(buckets, options)
    if index is None or index.hidden or index.multikey or index.state.long_keys or options.meta_field is None:
        return None
    return index


def is_steady(matcher: MatchNode) -> bool:
    """Whether a filter on meta gives the same for all series that lie together in an index."""
    match matcher:
        case AlwaysTrue():
            return True
        case And() | Or():
            return all(is_steady(child) for child in matcher.children())
        case Comparison():
            return matcher.value is not None
        case In():
            return None not in matcher.values and not matcher.regexes
    return False


class SeriesEnds(Stage):
    """The buckets that can hold the newest or the oldest measurement of their series."""

    name = "$cursor"
    is_source = True

    def __init__(
        self, buckets: Collection, options: TimeseriesOptions, index: IndexSpec, end: End, matcher: MatchNode
    ) -> None:
        self.buckets = buckets
        self.options = options
        self.index = index
        self.end = end
        self.matcher = matcher

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: {}}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return SeriesEndScan(self)


class SeriesEndScan(PlanNode):
    """Seeks to the end of each series in the index and fetches what overlaps with it."""

    stage = "DISTINCT_SCAN"

    def __init__(self, of: SeriesEnds) -> None:
        super().__init__()
        self.of = of
        self.matcher = of.matcher
        self._descending = of.index.descending

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        index, matcher = self.of.index, self.matcher
        shown: Document = {} if isinstance(matcher, AlwaysTrue) else {"filter": matcher.serialize()}
        return {
            **shown,
            "keyPattern": index.key,
            "indexName": index.name,
            "isMultiKey": False,
            "isUnique": False,
            "isSparse": False,
            "isPartial": False,
            "indexVersion": 2,
            "direction": "backward" if self._reverse else "forward",
        }

    @property
    def _reverse(self) -> bool:
        """Whether the wanted end of a series is the last of it in the index."""
        return (self.of.end == "newest") != self._descending[1]

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        matches = None if isinstance(self.matcher, AlwaysTrue) else self.matcher.compile(run.variables)
        border: bytes | None = None
        done = False
        while not done:
            found: list[bytes] = []
            for _ in range(_SERIES_AT_ONCE):
                border, rows = self._next_series(run.snapshot, border)
                if border is None:
                    done = True
                    break
                if rows and (matches is None or matches(decode(rows[0]))):
                    found += rows
            self.stats.advanced += len(found)
            yield RowBatch(raws=found) if found else None
        self.stats.eof = True

    def _next_series(self, snapshot: Snapshot, border: bytes | None) -> tuple[bytes | None, list[bytes]]:
        """The key that all entries of the next series begin with, and its buckets; None at the end."""
        index, reverse = self.of.index, self._reverse
        if reverse:
            entries = documents.index_scan(snapshot, index, b"", border, reverse=True)
        else:
            entries = documents.index_scan(snapshot, index, b"" if border is None else after(border))
        prefix: bytes | None = None
        rows: list[bytes] = []
        edge_ms = 0
        newest = self.of.end == "newest"
        limit: bytes | None = None
        below = False
        for key, record_key in entries:
            self.stats.keys_examined += 1
            if prefix is not None and not key.startswith(prefix):
                break
            if limit is not None and (key < limit) == below:
                break
            raw = documents.fetch(snapshot, self.of.buckets, record_key)
            if raw is None:
                continue
            self.stats.docs_examined += 1
            _, _, _, min_ms, max_ms = bucket_summary(raw, self.of.options.time_field)
            known = edge_ms
            if prefix is None:
                prefix = self._key_from(raw)
                edge_ms = max_ms if newest else min_ms
            elif newest:
                edge_ms = max(edge_ms, max_ms)
            if limit is None or edge_ms != known:
                # Keys tell where a bucket begins: those that cannot reach the edge are not fetched.
                limit, below = self._limit(raw, edge_ms)
            rows.append(raw)
        return prefix, rows

    def _limit(self, raw: bytes, edge_ms: int) -> tuple[bytes, bool]:
        """A key, and whether it is those below it whose buckets begin too far from the edge to hold it (else the others)."""
        span_ms = self.of.options.span_ms
        if self.of.end == "newest":
            # Those that begin at `edge_ms - span_ms` or before.
            last = edge_ms - span_ms
            return (self._key_from(raw, last), False) if self._descending[1] else (self._key_from(raw, last + 1), True)
        first = edge_ms + span_ms
        return (self._key_from(raw, first - 1), True) if self._descending[1] else (self._key_from(raw, first), False)

    def _key_from(self, raw: bytes, start_ms: int | None = None) -> bytes:
        """What keys of a bucket's series begin with, those of buckets that begin at a time."""
        found = find_field(raw, "meta")
        kind, value = (BsonType.NULL, b"") if found is None else found
        elements = bytes((kind, 0)) + value
        if start_ms is not None:
            elements += bytes((BsonType.DATE, 0)) + start_ms.to_bytes(8, "little", signed=True)
        document = (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"
        return key_string(document, list(self._descending[: 1 if start_ms is None else 2]))
