"""The stage `$_internalUnpackBucket`, and its outer form `$_unpackBucket`: buckets in, measurements out.

The view of a time-series collection begins with it, and clients may put it into pipelines on `system.buckets.<name>`. What
later stages let it leave out (`rewrites`) is kept in it, and explain shows it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from ..common import errors
from ..common.errors import Location
from ..common.numbers import whole_number
from ..common.values import Document, type_name
from ..query.columns.told import TotalsWanted
from ..query.match.base import MatchNode
from ..query.match.parse import parse_filter
from ..query.pipeline.base import Fields, PipelineContext, Stage
from ..query.plan.nodes import PlanNode
from .unpack import End, UnpackBuckets

_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class UnpackSpec:
    """What is unpacked, and how.

    Attributes:
        time_field, meta_field: names in the measurements.
        span_seconds: how much time a bucket may cover; None where nobody said.
        include, exclude: top-level fields, at most one of the two.
        computed_meta: fields that stages before added to the buckets, which every measurement gets.
        uniform: the buckets are known to hold one type in a field.
        extended: the collection holds dates that the `_id` of a bucket cannot tell.
        fixed: buckets begin and end at whole spans.
        event_filter: what a measurement must satisfy.
        whole_filter: what a bucket satisfies only if all of its measurements satisfy `event_filter`.
        limit: how many measurements are wanted at most.
        in_order: each bucket's measurements come as a batch that tells the bucket's first time.
        columnar: who reads the measurements wants columns.
        gradual: who reads the columns may want no more than a few rows.
        columns: those that it wants, where rows are built of others; None for what is included.
        first: so many measurements are wanted at most, in the order of time (or from the newest, if True), bucket by bucket.
        totals: what buckets have to tell of themselves, for nobody to want their measurements.
        edge: only the measurements at one end of each series are wanted; the buckets of a series come together.
    """

    time_field: str
    meta_field: str | None = None
    span_seconds: int | None = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    computed_meta: tuple[str, ...] = ()
    uniform: bool = False
    extended: bool = False
    fixed: bool = False
    event_filter: MatchNode | None = None
    whole_filter: MatchNode | None = None
    limit: int | None = None
    in_order: bool = False
    columnar: bool = False
    gradual: bool = False
    columns: tuple[str, ...] | None = None
    first: tuple[int, bool] | None = None
    edge: End | None = None
    totals: TotalsWanted | None = None

    def to_document(self) -> Document:
        """The operand of the stage."""
        shown: Document = {}
        if self.include is not None:
            shown["include"] = list(self.include)
        else:
            shown["exclude"] = list(self.exclude or ())
        shown["timeField"] = self.time_field
        if self.meta_field is not None:
            shown["metaField"] = self.meta_field
        if self.span_seconds is not None:
            shown["bucketMaxSpanSeconds"] = self.span_seconds
        for name, value in (
            ("assumeNoMixedSchemaData", self.uniform),
            ("usesExtendedRange", self.extended),
            ("fixedBuckets", self.fixed),
        ):
            if value:
                shown[name] = True
        if self.computed_meta:
            shown["computedMetaProjFields"] = list(self.computed_meta)
        if self.whole_filter is not None:
            shown["wholeBucketFilter"] = self.whole_filter.serialize()
        if self.event_filter is not None:
            shown["eventFilter"] = self.event_filter.serialize()
        return shown


class UnpackStage(Stage):
    """`$_internalUnpackBucket`."""

    name = "$_internalUnpackBucket"

    def __init__(self, spec: UnpackSpec) -> None:
        self.spec = spec

    def changed(self, **changes: Any) -> "UnpackStage":
        """The stage with other values in its `UnpackSpec`."""
        return UnpackStage(replace(self.spec, **changes))

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.spec.to_document()}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        spec = self.spec
        return UnpackBuckets(
            source,
            spec.time_field,
            spec.meta_field,
            include=spec.include,
            exclude=spec.exclude,
            computed=spec.computed_meta,
            limit=spec.limit,
            event_filter=spec.event_filter,
            whole_filter=spec.whole_filter,
            in_order=spec.in_order,
            columnar=spec.columnar,
            gradual=spec.gradual,
            columns=spec.columns,
            first=spec.first,
            edge=spec.edge,
            totals=spec.totals,
        )

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return None


_TOLD_BY_HEADS: Final = ("_id", "control", "meta")


def needs_heads_only(spec: UnpackSpec, read_before: Iterable[str]) -> bool:
    """Whether buckets are asked for nothing but heads and columns.

    Args:
        read_before: the paths that are read of buckets before they are unpacked.
    """
    tested: frozenset[str] | None = frozenset() if spec.whole_filter is None else spec.whole_filter.fields()
    if tested is None:
        return False
    return all(path.partition(".")[0] in _TOLD_BY_HEADS for path in (*tested, *spec.computed_meta, *read_before))


def parse_internal(spec: Any, context: PipelineContext) -> UnpackStage:
    """Parse `$_internalUnpackBucket`.

    Raises:
        Location: what is wrong with it, by MongoDB's numbers.
        NotImplemented: metadata of the first and last time of a bucket is asked for.
    """
    if not isinstance(spec, dict):
        raise Location(5346500, f"$_internalUnpackBucket specification must be an object, got: {type_name(spec)}")
    made: dict[str, Any] = {}
    for name, value in spec.items():
        match name:
            case "include" | "exclude":
                if "include" in made or "exclude" in made:
                    raise Location(5408000, "The $_internalUnpackBucket stage expects at most one of include/exclude")
                made[name] = _names(value, name, 5346501, 5346502, 5346503)
            case "timeField":
                made["time_field"] = _text(value, "timeField", 5346504)
            case "metaField":
                made["meta_field"] = _meta_field(value, 5346505)
            case "bucketMaxSpanSeconds":
                made["span_seconds"] = _seconds(value)
            case "computedMetaProjFields":
                made["computed_meta"] = _names(value, name, 5509900, 5509901, 5509902)
            case "assumeNoMixedSchemaData":
                made["uniform"] = _flag(value, name, 6067202)
            case "usesExtendedRange":
                made["extended"] = _flag(value, name, 6646901)
            case "fixedBuckets":
                made["fixed"] = _flag(value, name, 7655300)
            case "eventFilter" | "wholeBucketFilter":
                if not isinstance(value, dict):
                    code = 7026902 if name == "eventFilter" else 7026900
                    raise Location(code, f"{name} field must be an object, got: {type_name(value)}")
                key = "event_filter" if name == "eventFilter" else "whole_filter"
                made[key] = parse_filter(value, collator=context.collation)
            case "includeMinTimeAsMetadata" | "includeMaxTimeAsMetadata":
                if _flag(value, name, 6460208 if "Min" in name else 6460209):
                    raise errors.NotImplemented(f"{name} of $_internalUnpackBucket is not supported")
            case _:
                raise Location(5346506, f"unrecognized parameter to $_internalUnpackBucket: {name}")
    if "time_field" not in made:
        raise Location(5346508, "The $_internalUnpackBucket stage requires a timeField parameter")
    if "span_seconds" not in made:
        raise Location(5510602, "The $_internalUnpackBucket stage requires a bucketMaxSpanSeconds parameter")
    return UnpackStage(UnpackSpec(**made))


def parse_external(spec: Any, context: PipelineContext) -> UnpackStage:
    """Parse `$_unpackBucket`.

    Raises:
        Location: what is wrong with it, by MongoDB's numbers.
    """
    if not isinstance(spec, dict):
        raise Location(5612400, f"$_unpackBucket specification must be an object, got: {type_name(spec)}")
    made: dict[str, Any] = {}
    for name, value in spec.items():
        match name:
            case "timeField":
                made["time_field"] = _text(value, "timeField", 5612401)
            case "metaField":
                made["meta_field"] = _meta_field(value, 5612402)
            case "assumeNoMixedSchemaData":
                made["uniform"] = _flag(value, name, 6067203)
            case _:
                raise Location(5612404, f"unrecognized parameter to $_unpackBucket: {name}")
    if "time_field" not in made:
        raise Location(5612405, "The $_unpackBucket stage requires a timeField parameter")
    return UnpackStage(UnpackSpec(**made))


def _names(value: Any, name: str, not_array: int, not_text: int, dotted: int) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Location(not_array, f"{name} field must be an array, got: {type_name(value)}")
    for item in value:
        if not isinstance(item, str):
            raise Location(not_text, f"{name} array elements must be strings, got: {type_name(item)}")
        if "." in item:
            raise Location(dotted, f"{name} array elements must be top-level fields, got: {item}")
    return tuple(value)


def _text(value: Any, name: str, code: int) -> str:
    if not isinstance(value, str):
        raise Location(code, f"{name} field must be a string, got: {type_name(value)}")
    return value


def _meta_field(value: Any, code: int) -> str:
    text = _text(value, "metaField", code)
    if "." in text:
        raise Location(5545700, f"metaField field must be a single-element field path, got: {text}")
    return text


def _seconds(value: Any) -> int:
    if type_name(value) != "int":
        raise Location(5510600, f"bucketMaxSpanSeconds field must be an integer, got: {type_name(value)}")
    whole = whole_number(value)
    if whole is None or not 0 < whole <= _INT32_MAX:
        raise Location(5510601, "bucketMaxSpanSeconds field must be greater than zero")
    return whole


def _flag(value: Any, name: str, code: int) -> bool:
    if not isinstance(value, bool):
        raise Location(code, f"{name} field must be a bool, got: {type_name(value)}")
    return value
