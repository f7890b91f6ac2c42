"""Updates and deletes of measurements: what is allowed, and what they come to on the buckets.

An update changes the meta field alone, of whole buckets. A delete takes whole buckets where its filter is about the meta
field alone; else each bucket that may hold a match is unpacked, and written again with the measurements that stay.
Closed buckets are left as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bson import Int64

from ..catalog import documents
from ..catalog.collections import Collection
from ..catalog.timeseries_options import EXTENDED_RANGE, TimeseriesOptions
from ..common.collation import Collation
from ..common.errors import InvalidOptions
from ..common.values import Document, decode
from ..kernels import bucket_summary, keep_rows, unpack_rows
from ..query.match.base import AlwaysTrue, MatchNode
from ..query.match.logical import And
from ..query.match.parse import parse_filter
from ..query.plan.batches import Batch
from ..query.plan.nodes import PlanNode
from ..query.plan.shaping import PassThrough
from ..storage.engine import Transaction
from .predicates import Target, all_of, widen

OPEN_BUCKETS: Final[Document] = {"control.closed": {"$not": {"$eq": True}}}


@dataclass(frozen=True, slots=True)
class EditTarget:
    """The filter of an edit, taken apart.

    Attributes:
        bucket: what a bucket has to satisfy, being open included.
        rest: what each of its measurements has to satisfy.
    """

    bucket: MatchNode
    rest: MatchNode

    @property
    def takes_whole_buckets(self) -> bool:
        """Whether every measurement of a bucket that matches does."""
        return isinstance(self.rest, AlwaysTrue)


def edit_target(view: Collection, buckets: Collection, matcher: MatchNode, collation: Collation | None) -> EditTarget:
    """Take the filter of a delete on measurements apart."""
    options = _options(view)
    widened = widen(
        [matcher],
        Target(options.time_field, options.meta_field, options.span_ms),
        collation=collation,
        default_collation=view.collation,
        extended=bool(buckets.flags.get(EXTENDED_RANGE)),
    )
    bucket = And([parse_filter(OPEN_BUCKETS), *widened.bucket]).simplified()
    return EditTarget(bucket, all_of(widened.rest))


def _options(view: Collection) -> TimeseriesOptions:
    options = view.timeseries
    assert options is not None, view.namespace
    return options


class Remover:
    """Removes measurements from buckets, in a transaction."""

    def __init__(self, view: Collection, target: EditTarget, variables: Mapping[str, Any]) -> None:
        self._options = _options(view)
        self._whole = target.takes_whole_buckets
        self._matches: Callable[[Document], bool] = target.rest.compile(variables)

    def remove_all(
        self, transaction: Transaction, buckets: Collection, record_key: bytes, raw: bytes, document: Document
    ) -> int:
        """Remove every measurement of a bucket that matches; returns how many."""
        if self._whole:
            documents.remove(transaction, buckets, record_key, raw)
            return self.count(raw)
        rows = self._rows(raw)
        keep = bytes(not self._matches(decode(row)) for row in rows)
        return self._keep(transaction, buckets, record_key, raw, keep)

    def remove_first(
        self, transaction: Transaction, buckets: Collection, record_key: bytes, raw: bytes, document: Document
    ) -> Document | None:
        """Remove the first measurement of a bucket that matches; returns it."""
        rows = self._rows(raw)
        for position, row in enumerate(rows):
            measurement = decode(row)
            if self._matches(measurement):
                keep = bytes(at != position for at in range(len(rows)))
                self._keep(transaction, buckets, record_key, raw, keep)
                return measurement
        return None

    def has_match(self, raw: bytes) -> bool:
        """Whether a bucket holds a measurement that matches."""
        return self._whole or any(self._matches(decode(row)) for row in self._rows(raw))

    def matching(self, raw: bytes) -> int:
        """How many measurements of a bucket match."""
        if self._whole:
            return self.count(raw)
        return sum(self._matches(decode(row)) for row in self._rows(raw))

    def count(self, raw: bytes) -> int:
        """How many measurements a bucket holds."""
        return bucket_summary(raw, self._options.time_field)[0]

    def _rows(self, raw: bytes) -> list[bytes]:
        return unpack_rows(raw, self._options.time_field, self._options.meta_field)

    def _keep(self, transaction: Transaction, buckets: Collection, record_key: bytes, raw: bytes, keep: bytes) -> int:
        removed = keep.count(0)
        if removed:
            left = keep_rows(raw, self._options.time_field, keep, buckets.collate)
            if left is None:
                documents.remove(transaction, buckets, record_key, raw)
            else:
                documents.replace(transaction, buckets, record_key, raw, left)
        return removed


class ModifyMeasurements(PassThrough):
    """What a delete would do, for explain: measurements are counted, and left alone."""

    stage = "TS_MODIFY"

    def __init__(self, source: PlanNode, target: EditTarget, remover: Remover, *, multi: bool) -> None:
        super().__init__(source)
        self._target = target
        self._remover = remover
        self._multi = multi
        self._deleted = 0
        self._buckets = 0
        if target.takes_whole_buckets and multi:
            self.stage = "DELETE"

    def see(self, batch: Batch) -> None:
        """See `PassThrough.see`."""
        for raw in batch.raws():
            self._buckets += 1
            if self._multi:
                self._deleted += self._remover.matching(raw)
            elif not self._deleted:
                self._deleted += self._remover.has_match(raw)

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        if self.stage == "DELETE":
            return {}
        return {
            "opType": "deleteMany" if self._multi else "deleteOne",
            "bucketFilter": self._target.bucket.serialize(),
            "residualFilter": self._target.rest.serialize(),
        }

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        if self.stage == "DELETE":
            return {"nWouldDelete": Int64(self._deleted)}
        return {"nMeasurementsDeleted": Int64(self._deleted), "nBucketsUnpacked": Int64(self._buckets)}


def meta_update(
    view: Collection, filter: Document, update: Document | list[Any], *, multi: bool, upsert: bool
) -> tuple[Document, Document]:
    """Filter and update of measurements in terms of their buckets.

    Raises:
        InvalidOptions: it changes, or asks for, anything but the meta field.
    """
    meta = _options(view).meta_field
    if not multi:
        raise InvalidOptions("Cannot perform a non-multi update on a time-series collection")
    if upsert:
        raise InvalidOptions("Cannot perform an upsert on a time-series collection")
    if meta is None:
        raise InvalidOptions("Cannot perform an update on a time-series collection that does not have a metaField")
    bucket_filter = _on_meta(filter, meta)
    if isinstance(update, list):
        raise InvalidOptions("Cannot perform an update on a time-series collection using a pipeline update")
    if not next(iter(update), "").startswith("$"):
        raise InvalidOptions("Cannot perform an update on a time-series collection using a replacement document")
    return {**OPEN_BUCKETS, **({"$and": [bucket_filter]} if bucket_filter else {})}, _update_of_meta(update, meta)


def with_normal_meta(bucket: Document) -> Document:
    """The bucket with the fields of its meta value sorted by name, as measurements of the same series are looked up."""
    return {name: _sorted_by_name(value) if name == "meta" else value for name, value in bucket.items()}


def _sorted_by_name(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted_by_name(value[name]) for name in sorted(value, key=str.encode)}
    return [_sorted_by_name(item) for item in value] if isinstance(value, list) else value


def _update_of_meta(update: Document, meta: str) -> Document:
    changed: Document = {}
    for operator, operands in update.items():
        if not isinstance(operands, dict):
            changed[operator] = operands
            continue
        changed[operator] = {}
        for path, operand in operands.items():
            paths = [path, operand] if operator == "$rename" else [path]
            if not all(isinstance(one, str) and _is_meta(one, meta) for one in paths):
                raise InvalidOptions(
                    "Cannot perform an update on a time-series collection which updates a field that is not the "
                    f"metaField '{meta}'"
                )
            value = _renamed(operand, meta) if operator == "$rename" else operand
            changed[operator][_renamed(path, meta)] = value
    return changed


def _is_meta(path: str, meta: str) -> bool:
    return path == meta or path.startswith(meta + ".")


def _renamed(path: str, meta: str) -> str:
    return "meta" + path[len(meta) :]


def _on_meta(filter: Document, meta: str) -> Document:
    """The filter with the meta field called as in a bucket.

    Raises:
        InvalidOptions: it is about anything else.
    """
    changed: Document = {}
    for name, value in filter.items():
        if name in ("$expr", "$where"):
            raise InvalidOptions(f"Cannot use {name} when performing an update or delete on a time-series collection")
        if name in ("$and", "$or", "$nor") and isinstance(value, list):
            changed[name] = [_on_meta(clause, meta) if isinstance(clause, dict) else clause for clause in value]
        elif name == "$jsonSchema" and isinstance(value, dict):
            changed[name] = _schema_on_meta(value, meta)
        elif name.startswith("$"):
            changed[name] = value
        elif _is_meta(name, meta):
            changed[_renamed(name, meta)] = value
        else:
            raise _not_meta(meta)
    return changed


def _schema_on_meta(schema: Document, meta: str) -> Document:
    changed = dict(schema)
    if isinstance(required := schema.get("required"), list):
        if any(name != meta for name in required):
            raise _not_meta(meta)
        changed["required"] = ["meta"]
    if isinstance(properties := schema.get("properties"), dict):
        if any(name != meta for name in properties):
            raise _not_meta(meta)
        changed["properties"] = {"meta": properties[meta]} if properties else {}
    return changed


def _not_meta(meta: str) -> InvalidOptions:
    return InvalidOptions(
        "Cannot perform an update or delete on a time-series collection when querying on a field that is not the "
        f"metaField '{meta}'"
    )
