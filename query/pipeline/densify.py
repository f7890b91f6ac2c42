"""`$densify`: rows for the values that are missing in a sequence of numbers or dates."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from bson import DatetimeMS, Decimal128

from ...common.errors import FailedToParse, Location, TypeMismatch
from ...common.field_paths import parse_field_path
from ...common.numbers import is_number, whole_number
from ...common.ordering import Collator, compare, order_key
from ...common.paths import get_path
from ...common.values import MISSING, Document, is_string, type_name
from ..columns.densified import ColumnDensify
from ..expression import calendar
from ..expression.arithmetic import add, to_decimal
from ..expression.calendar import UNITS, UTC_ZONE
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import Fields, PipelineContext, Stage, StageNode, StageParser, joined
from .column_stages import ColumnGathering
from .reshape import replaced
from .spool import OrderedRows

GENERATED_MAX: Final = 500_000


@dataclass(frozen=True, slots=True)
class Range:
    """How far apart values are, and from where to where they go."""

    step: Any
    unit: str | None
    bounds: str
    low: Any = None
    high: Any = None

    def value(self, base: Any, number: int) -> Any:
        """The value that many steps after the base."""
        if self.unit is None:
            if isinstance(base, Decimal128) or isinstance(self.step, Decimal128):
                return add(base, Decimal128(to_decimal(self.step) * number))
            return add(base, self.step * number)
        return DatetimeMS(calendar.add(int(base), self.unit, int(self.step) * number, UTC_ZONE))


def _check_keys(name: str, spec: Document, wanted: tuple[str, ...], required: tuple[str, ...]) -> None:
    for key in spec:
        if key not in wanted:
            raise Location(40415, f"BSON field '{name}.{key}' is an unknown field.")
    for key in required:
        if key not in spec:
            raise Location(40414, f"BSON field '{name}.{key}' is missing but a required field")


def _parse_range(spec: Any) -> Range:
    if not isinstance(spec, dict):
        raise TypeMismatch(f"BSON field '$densify.range' is the wrong type '{type_name(spec)}', expected type 'object'")
    _check_keys("$densify.range", spec, ("step", "unit", "bounds"), ("step", "bounds"))
    step, unit, bounds = spec["step"], spec.get("unit"), spec["bounds"]
    if not is_number(step):
        raise TypeMismatch(f"BSON field '$densify.range.step' is the wrong type '{type_name(step)}'")
    length = to_decimal(step)
    if length.is_nan() or length <= 0:
        raise Location(5733401, "The step parameter in a range statement must be a strictly positive numeric value")
    if unit is not None:
        if not is_string(unit):
            raise TypeMismatch(f"BSON field '$densify.range.unit' is the wrong type '{type_name(unit)}'")
        if unit not in UNITS:
            raise FailedToParse(f"unknown time unit value: {unit}")
        if whole_number(step) is None:
            raise Location(
                6586400, "The step parameter in a range statement must be a whole number when densifying dates"
            )
    if is_string(bounds):
        if bounds not in ("full", "partition"):
            raise Location(5946802, "Bounds string must either be 'full' or 'partition'")
        return Range(step, unit, str(bounds))
    if not isinstance(bounds, list):
        raise Location(5946802, "Bounds must be a string or an array")
    if len(bounds) != 2:
        raise Location(5733403, "A bounding array in a range statement must have exactly two elements")
    low, high = bounds
    if not all(is_number(bound) for bound in bounds) and not all(type(bound) is DatetimeMS for bound in bounds):
        raise Location(5733402, "A bounding array must contain either both dates or both numeric types")
    if compare(low, high) > 0:
        raise Location(5733402, "A bounding array must be an ascending array of either two dates or two numbers")
    if is_number(low) and unit is not None:
        raise Location(5733409, "Numeric bounds may not have unit parameter")
    if not is_number(low) and unit is None:
        raise Location(5733410, "Date bounds must have a unit parameter")
    return Range(step, unit, "explicit", low, high)


class Densify(Stage):
    """`$densify`."""

    name = "$densify"

    def __init__(self, spec: Document, field: str, by: list[str], values: Range, collation: Collator | None) -> None:
        self.spec = spec
        self.field = parse_field_path(field)
        self.by = [parse_field_path(one) for one in by]
        self.range = values
        self.collation = collation
        self.gives_columns = False
        """Whether who takes its rows looks at columns."""

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Densify":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise Location(5733400, f"the $densify stage specification must be an object, found {type_name(spec)}")
        _check_keys(cls.name, spec, ("field", "partitionByFields", "range"), ("field", "range"))
        if not is_string(spec["field"]):
            raise TypeMismatch(
                f"BSON field '$densify.field' is the wrong type '{type_name(spec['field'])}', expected type 'string'"
            )
        by = spec.get("partitionByFields", [])
        if not isinstance(by, list) or not all(is_string(one) for one in by):
            raise TypeMismatch("BSON field '$densify.partitionByFields' must be an array of strings")
        values = _parse_range(spec["range"])
        if values.bounds == "partition" and not by:
            raise Location(
                5733408,
                "One may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields. "
                "You may have meant to specify 'full' bounds.",
            )
        if spec["field"] in by:
            raise Location(
                8993000, "BSON field '$densify.partitionByFields' contains the field that is being densified"
            )
        return cls(spec, spec["field"], by, values, context.collation)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.spec}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _DensifyNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return joined(wanted, self.columns())

    def columns(self) -> Fields:
        """The paths that it reads itself."""
        return frozenset(".".join(path) for path in (self.field, *self.by))

    def over_columns(self, time_field: str, shared_field: str | None) -> ColumnDensify | None:
        """The same over batches of columns, where these can do it: of the time, by what is within the shared field."""
        values = self.range
        if self.field != (time_field,) or values.unit is None or any(path[0] != shared_field for path in self.by):
            return None
        explicit = values.bounds == "explicit"
        step = whole_number(values.step)
        if step is None:
            return None
        return ColumnDensify(
            self.by,
            step,
            values.unit,
            full=values.bounds == "full",
            low=int(values.low) if explicit else None,
            high=int(values.high) if explicit else None,
            collation=self.collation,
            identity_of=self.identity_of,
            made_max=GENERATED_MAX,
        )

    def giving_columns(self) -> "Densify":
        """The same for a stage behind it that looks at columns."""
        made = copy(self)
        made.gives_columns = True
        return made

    def value_of(self, document: Document) -> Any:
        """What the document has in the field; MISSING for null too.

        Raises:
            Location: 5733201 for neither number nor date, 6053600 for one that does not go with the step.
        """
        value = get_path(document, self.field)
        if value is None or value is MISSING:
            return MISSING
        if not is_number(value) and type(value) is not DatetimeMS:
            raise Location(5733201, "Densify field type must be numeric or a date")
        if is_number(value) == (self.range.unit is not None):
            kind = "numeric" if is_number(value) else "date"
            raise Location(
                6053600, f"Encountered {kind} densify value in collection, which the unit of the step does not fit"
            )
        return value

    def identity_of(self, document: Document) -> Document:
        """The fields that tell the partition of a document."""
        identity: Document = {}
        for path in self.by:
            value = get_path(document, path)
            if value is not MISSING:
                identity = replaced(identity, path, value)
        return identity


def _widened(extent: tuple[Any, Any] | None, value: Any) -> tuple[Any, Any]:
    """The least and the greatest value so far; of equal ones the first."""
    if extent is None:
        return value, value
    low, high = extent
    return (value if compare(value, low) < 0 else low), (value if compare(value, high) > 0 else high)


class _DensifyNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, Densify)
        source = self.inputs[0].batches(run)
        gathering = ColumnGathering(stage.over_columns, source, run.memory_bytes_max)
        done = yield from gathering.through(
            lambda plan, held: plan.rows(held), self.stats, gives_columns=stage.gives_columns
        )
        if not done:
            yield from self._by_rows(gathering.batches(), run)

    def _by_rows(self, source: Iterator[Batch | None], run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, Densify)

        def keyed(document: Document) -> tuple[Any, Any]:
            value = stage.value_of(document)
            partition = tuple(order_key(get_path(document, path), stage.collation) for path in stage.by)
            return (partition, order_key(value)), value

        def refused(size: int) -> Location:
            return Location(6007200, f"$densify exceeded memory limit of {run.memory_bytes_max}")

        rows = OrderedRows(run, keyed, refused)
        extent: tuple[Any, Any] | None = None
        try:
            for batch in source:
                for document in () if batch is None else batch.documents():
                    value = rows.add(document)
                    if stage.range.bounds == "full" and value is not MISSING:
                        extent = _widened(extent, value)
                yield None
            part: list[Document] = []
            made = 0
            for row, generated in self._dense(stage, rows, extent):
                made += generated
                if made > GENERATED_MAX:
                    raise Location(
                        5897900, f"Generated {made} documents in $densify, which is over the limit of {GENERATED_MAX}."
                    )
                part.append(row)
                if len(part) >= run.batch_rows:
                    self.stats.advanced += len(part)
                    yield RowBatch(documents=part)
                    part = []
            self.stats.advanced += len(part)
            if part:
                yield RowBatch(documents=part)
        finally:
            rows.close()
        self.stats.eof = True

    def _dense(
        self, stage: Densify, rows: OrderedRows, extent: tuple[Any, Any] | None
    ) -> Iterator[tuple[Document, bool]]:
        if not rows.count and stage.range.bounds == "explicit" and not stage.by:
            yield from self._between(stage, {}, stage.range.low, 0, self._until(stage.range.high, closed=False))
        for _, members in groupby(rows.results(), key=lambda row: row[0][0]):
            yield from self._partition(stage, members, extent)

    def _partition(
        self, stage: Densify, members: Iterator[tuple[Any, Any, Document]], extent: tuple[Any, Any] | None
    ) -> Iterator[tuple[Document, bool]]:
        """One partition, the documents without a value first."""
        explicit = stage.range.bounds == "explicit"
        base = stage.range.low if explicit else None if extent is None else extent[0]
        identity: Document | None = None
        known = False
        number = 0
        for _, value, document in members:
            if identity is None:
                identity = stage.identity_of(document)
            if value is MISSING:
                yield document, False
                continue
            known = True
            base = value if base is None else base
            if compare(value, base) >= 0:
                stop = value
                if explicit and compare(stage.range.high, value) < 0:
                    stop = stage.range.high
                # Equal values need not be the same: those before a row are told by its own.
                own = stage.identity_of(document)
                for row, count in self._numbered(stage, own, base, number, self._until(stop, closed=False)):
                    number = count
                    yield row, True
                if compare(stage.range.value(base, number), value) == 0:
                    number += 1
            yield document, False
        if explicit:
            end = self._until(stage.range.high, closed=False)
            yield from self._between(stage, identity or {}, base, number, end)
        elif extent is not None and known:
            yield from self._between(stage, identity or {}, base, number, self._until(extent[1], closed=True))

    def _until(self, end: Any, *, closed: bool) -> Callable[[Any], bool]:
        """Whether a value still lies before an end."""
        return lambda value: compare(value, end) < (1 if closed else 0)

    def _numbered(
        self, stage: Densify, identity: Document, base: Any, number: int, inside: Callable[[Any], bool]
    ) -> Iterator[tuple[Document, int]]:
        value = stage.range.value(base, number)
        while inside(value):
            number += 1
            yield replaced(identity, stage.field, value), number
            value = stage.range.value(base, number)

    def _between(
        self, stage: Densify, identity: Document, base: Any, number: int, inside: Callable[[Any], bool]
    ) -> Iterator[tuple[Document, bool]]:
        for row, _ in self._numbered(stage, identity, base, number, inside):
            yield row, True


STAGES: Final[dict[str, StageParser]] = {"$densify": Densify.parse}
