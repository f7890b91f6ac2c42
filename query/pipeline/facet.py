"""`$facet`, which runs several pipelines on the same rows, and `$bucketAuto`, which finds boundaries itself."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from bson import Decimal128

from ...common.errors import BSONObjectTooLarge, Location, MongoError, QueryExceededMemoryLimitNoDiskUseAllowed
from ...common.field_paths import check_field_name
from ...common.numbers import INT32_MAX, INT32_MIN, is_number, whole_number
from ...common.ordering import compare, order_key
from ...common.values import MISSING, Document, encode, is_string, type_name
from ..accumulators.base import Accumulator, State
from ..expression.arithmetic import to_decimal
from ..expression.base import Constant, Expression
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import Fields, PipelineContext, Stage, StageNode, StageParser, joined
from .group import parse_field
from .inner import check_stages, parsed, run_inner
from .spool import OrderedRows, Spool

_NOT_IN_FACET: Final = (
    "$changeStreamSplitLargeEvent", "$collStats", "$facet", "$geoNear", "$indexStats", "$listClusterCatalog",
    "$listLocalSessions", "$listSampledQueries", "$merge", "$out", "$planCacheStats", "$queryStats", "$querySettings",
    "$documents", "$listCatalog", "$search", "$searchMeta", "$vectorSearch", "$currentOp", "$listSearchIndexes",
)  # fmt: skip
_ROW_BYTES_MAX: Final = 16 * 1024 * 1024 + 16 * 1024
_OUTPUT_BYTES_MAX: Final = 100 * 1024 * 1024


class Facet(Stage):
    """`$facet`."""

    name = "$facet"

    def __init__(self, spec: Document, context: PipelineContext) -> None:
        self.spec = spec
        self.pipelines = {
            name: parsed(pipeline, context.inside(self.name)).optimized() for name, pipeline in spec.items()
        }

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Facet":
        """Parse the operand."""
        if not isinstance(spec, dict) or not spec:
            raise Location(40169, "the $facet specification must be a non-empty object")
        for name, pipeline in spec.items():
            check_field_name(name)
            if "." in name:
                raise Location(16412, f"FieldPath field names may not contain '.': {name}")
            if not isinstance(pipeline, list):
                raise Location(40170, f"arguments to $facet must be arrays, {name} is type {type_name(pipeline)}")
            for stage in pipeline:
                if not isinstance(stage, dict):
                    raise Location(40171, f"elements of arrays in $facet spec must be non-empty objects: {name}")
            check_stages(pipeline, _NOT_IN_FACET, 40600, "$facet")
        return cls(spec, context)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: {name: pipeline.serialize() for name, pipeline in self.pipelines.items()}}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _FacetNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        found: Fields = frozenset()
        for pipeline in self.pipelines.values():
            found = joined(found, pipeline.required_fields())
        return found


class _RowsNode(PlanNode):
    """Rows that are there already."""

    stage = "QUEUED_DATA"

    def __init__(self, rows: Spool) -> None:
        super().__init__()
        self._rows = rows

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        yield from self._rows.read()


class _FacetNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, Facet)
        rows = Spool("$facet", run)
        try:
            for batch in self.inputs[0].batches(run):
                if batch is not None:
                    rows.add(batch)
                yield None
            made: Document = {}
            size = 0
            for name, pipeline in stage.pipelines.items():
                found: list[Document] = []
                for batch in run_inner(pipeline.node(_RowsNode(rows)), run, run.variables):
                    if batch is not None:
                        found += batch.documents()
                        size += sum(len(raw) for raw in batch.raws())
                        if size > _OUTPUT_BYTES_MAX:
                            raise Location(
                                4031700,
                                f"document constructed by $facet is {size} bytes, which exceeds the limit of "
                                f"{_OUTPUT_BYTES_MAX} bytes",
                            )
                    yield None
                made[name] = found
        finally:
            rows.close()
        if size > _ROW_BYTES_MAX // 2 and len(encode(made)) > _ROW_BYTES_MAX:
            raise BSONObjectTooLarge(f"BSONObj size is invalid: the document of $facet exceeds {_ROW_BYTES_MAX} bytes")
        self.stats.advanced = 1
        yield RowBatch(documents=[made])


_R10: Final = (100, 125, 160, 200, 250, 315, 400, 500, 630, 800)
_R20: Final = (*_R10, 112, 140, 180, 224, 280, 355, 450, 560, 710, 900)
_R40: Final = (
    *_R20, 106, 118, 132, 150, 170, 190, 212, 236, 265, 300, 335, 375, 425, 475, 530, 600, 670, 750, 850, 950,
)  # fmt: skip
_R80: Final = (
    *_R40, 103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290, 307, 325, 345,
    365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875, 925, 975,
)  # fmt: skip
_E24: Final = (10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91)
_GIVEN_SERIES: Final[dict[str, tuple[int, ...]]] = {
    "1-2-5": (10, 20, 50),
    "R5": (10, 16, 25, 40, 63),
    "R10": _R10,
    "R20": _R20,
    "R40": _R40,
    "R80": _R80,
    "E6": _E24[::4],
    "E12": _E24[::2],
    "E24": _E24,
}
_POWERS: Final = "POWERSOF2"
_GRANULARITIES: Final = (*_GIVEN_SERIES, "E48", "E96", "E192", _POWERS)


@lru_cache
def series(name: str) -> tuple[float, ...]:
    """The preferred numbers of one decade, ascending."""
    if name in _GIVEN_SERIES:
        return tuple(float(number) for number in sorted(_GIVEN_SERIES[name]))
    count = int(name[1:])
    made = [float(round(100 * 10 ** (place / count))) for place in range(count)]
    # The one number of the standard that is not the rounded power.
    return tuple(920.0 if number == 919 else number for number in made)


def round_up(value: float, granularity: str) -> float:
    """The smallest preferred number above a value."""
    if value == 0:
        return 0.0
    if granularity == _POWERS:
        return 2.0 ** (math.floor(math.log2(value)) + 1)
    return next(number for number in _around(value, granularity) if number > value)


def round_down(value: float, granularity: str) -> float:
    """The largest preferred number below a value."""
    if value == 0:
        return 0.0
    if granularity == _POWERS:
        return 2.0 ** (math.ceil(math.log2(value)) - 1)
    return next(number for number in reversed(_around(value, granularity)) if number < value)


def _around(value: float, granularity: str) -> list[float]:
    """The preferred numbers of the decades around a value, ascending."""
    numbers = series(granularity)
    decade = math.floor(math.log10(value)) - math.floor(math.log10(numbers[0]))
    return [
        number * 10.0**power if power >= 0 else number / 10.0**-power
        for power in (decade - 1, decade, decade + 1)
        for number in numbers
    ]


class BucketAuto(Stage):
    """`$bucketAuto`."""

    name = "$bucketAuto"

    def __init__(
        self,
        key: Expression,
        count: int,
        accumulators: dict[str, Accumulator],
        granularity: str | None,
        context: PipelineContext,
    ) -> None:
        self.key = key
        self.count = count
        self.accumulators = accumulators
        self.granularity = granularity
        self.context = context

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "BucketAuto":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise Location(40240, f"The argument to $bucketAuto must be an object, but found type: {type_name(spec)}.")
        granularity: str | None = None
        count: int | None = None
        key: Expression | None = None
        accumulators: dict[str, Accumulator] = {}
        for name, value in spec.items():
            match name:
                case "groupBy":
                    key = _group_by(value, context)
                case "buckets":
                    count = _bucket_count(value, context)
                case "output":
                    if not isinstance(value, dict):
                        raise Location(
                            40244,
                            f"The $bucketAuto 'output' field must be an object, but found type: {type_name(value)}.",
                        )
                    accumulators = {field: parse_field(field, one, context) for field, one in value.items()}
                case "granularity":
                    if not is_string(value):
                        raise Location(
                            40261,
                            f"The $bucketAuto 'granularity' field must be a string, found type: {type_name(value)}.",
                        )
                    if value not in _GRANULARITIES:
                        raise Location(40257, f"Unknown rounding granularity '{value}'")
                    granularity = value
                case _:
                    raise Location(40245, f"Unrecognized option to $bucketAuto: {name}.")
        if key is None or count is None:
            raise Location(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified.")
        if not accumulators:
            accumulators = {"count": parse_field("count", {"$sum": 1}, context)}
        return cls(key, count, accumulators, granularity, context)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        shown: Document = {"groupBy": self.key.serialize(), "buckets": self.count}
        if self.granularity is not None:
            shown["granularity"] = self.granularity
        shown["output"] = {name: one.serialize() for name, one in self.accumulators.items()}
        return {self.name: shown}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _BucketAutoNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        found = self.key.fields()
        for accumulator in self.accumulators.values():
            found = joined(found, accumulator.fields())
        return found


def _group_by(value: Any, context: PipelineContext) -> Expression:
    if not (is_string(value) and value.startswith("$")) and not (
        isinstance(value, dict) and next(iter(value), "").startswith("$")
    ):
        raise Location(
            40239,
            "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an expression object, but "
            f"found: {value}.",
        )
    return context.expressions.parse(value)


def _bucket_count(value: Any, context: PipelineContext) -> int:
    expression = context.expressions.parse(value)
    if isinstance(expression, Constant):
        value = expression.value
    if not is_number(value):
        raise Location(
            40241, f"The $bucketAuto 'buckets' field must be a numeric value, but found type: {type_name(value)}."
        )
    whole = whole_number(value)
    if whole is None or not INT32_MIN <= whole <= INT32_MAX:
        raise Location(40242, f"The $bucketAuto 'buckets' field must be representable as a 32-bit integer: {value}")
    if whole <= 0:
        raise Location(40243, f"The $bucketAuto 'buckets' field must be greater than 0, but found: {value}.")
    return whole


class _BucketAutoNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, BucketAuto)

        def keyed(document: Document) -> tuple[Any, Any]:
            value = stage.key.evaluate(document, run.variables)
            value = None if value is MISSING else value
            if stage.granularity is not None:
                _check_granular(value)
            return order_key(value, stage.context.collation), value

        def refused(size: int) -> MongoError:
            return QueryExceededMemoryLimitNoDiskUseAllowed(
                f"Exceeded memory limit for $bucketAuto, but didn't allow external sort; used {size} bytes. Pass "
                "allowDiskUse:true to opt in."
            )

        rows = OrderedRows(run, keyed, refused)
        try:
            for batch in self.inputs[0].batches(run):
                for document in () if batch is None else batch.documents():
                    rows.add(document)
                yield None
            made = self._buckets(stage, rows, run)
        finally:
            rows.close()
        self.stats.advanced = len(made)
        if made:
            yield RowBatch(documents=made)

    def _buckets(self, stage: BucketAuto, rows: OrderedRows, run: Run) -> list[Document]:
        made: list[Document] = []
        size = max(1, math.floor(rows.count / stage.count + 0.5))
        ordered = rows.results()
        following = next(ordered, None)
        low: Any = None
        while following is not None:
            if not made:
                low = (
                    following[1] if stage.granularity is None else round_down(_double(following[1]), stage.granularity)
                )
            states: dict[str, State] = {name: one.begin({}) for name, one in stage.accumulators.items()}
            room = rows.count if len(made) == stage.count - 1 else size
            last = following
            high: Any = MISSING
            while following is not None:
                if room <= 0:
                    belongs, high = _belongs(last, following, high, stage.granularity)
                    if not belongs:
                        break
                for state in states.values():
                    state.add(following[2], run.variables)
                room -= 1
                last, following = following, next(ordered, None)
            if following is None and high is MISSING:
                high = last[1] if stage.granularity is None else round_up(_double(last[1]), stage.granularity)
            elif following is None and stage.granularity is None:
                high = last[1]
            made.append({"_id": {"min": low, "max": high}, **{name: one.result() for name, one in states.items()}})
            low = high
        return made


def _belongs(
    last: tuple[Any, Any, Document], row: tuple[Any, Any, Document], high: Any, granularity: str | None
) -> tuple[bool, Any]:
    """Whether a row still goes into a bucket that has its size, and the bound of the bucket as far as it is known."""
    if granularity is None:
        return row[0] == last[0], row[1]
    if high is MISSING:
        high = round_up(_double(last[1]), granularity)
    if compare(high, row[1]) > 0 or (high == 0 and _double(row[1]) == 0):
        return True, high
    return False, round_down(_double(row[1]), granularity) if high == 0 else high


def _double(value: Any) -> float:
    return float(to_decimal(value)) if isinstance(value, Decimal128) else float(value)


def _check_granular(value: Any) -> None:
    if not is_number(value):
        raise Location(
            40258,
            "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: "
            f"{type_name(value)}",
        )
    number = _double(value)
    if math.isnan(number):
        raise Location(40259, "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN")
    if number < 0:
        raise Location(40260, "$bucketAuto can specify a 'granularity' with non-negative numbers only")


STAGES: Final[dict[str, StageParser]] = {"$bucketAuto": BucketAuto.parse, "$facet": Facet.parse}
