"""`$setWindowFields`: fields computed from the rows around a row, and `$fill`, which is one use of it."""

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import groupby
from typing import Any, Final

from ...common.errors import FailedToParse, Location, TypeMismatch
from ...common.field_paths import parse_field_path
from ...common.ordering import order_key
from ...common.paths import get_path
from ...common.values import MISSING, Document, decode, encode, is_string, type_name
from ..accumulators.base import Accumulator
from ..accumulators.parse import parse_accumulator
from ..columns.keys import key_parts
from ..expression.base import Constant, Expression, FieldPath
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from ..sort import Sorter, SortPattern, parse_sort
from .base import Fields, PipelineContext, Stage, StageNode, StageParser, joined
from .column_stages import ColumnGathering, ColumnWindows, can_arrange
from .moments import Covariance, SlidingDeviation
from .reshape import STAGES as RESHAPING
from .reshape import replaced
from .scaling import parse_scaler
from .spool import ComputedOrder
from .window_columns import ArrayFunction, array_function
from .window_frames import Frame, parse_frame
from .window_functions import FUNCTIONS, Partition, Span, WindowFunction

_ACCUMULATORS: Final = frozenset(
    {
        "$addToSet", "$avg", "$bottom", "$bottomN", "$concatArrays", "$count", "$first", "$firstN", "$last", "$lastN", "$max",
        "$maxN", "$median", "$min", "$minN", "$percentile", "$push", "$setUnion", "$stdDevPop", "$stdDevSamp", "$sum", "$top",
        "$topN",
    }
)  # fmt: skip


_PARTITION_KEY: Final = "__internal_setWindowFields_partition_key"
"""Under this name explain shows a computed partition."""
_LITERAL: Final = ("N", "alpha", "by", "unit")
_PARTITION_FACTOR: Final = 10
"""How much larger than the bound of the stage one partition may be where disk may be used."""


def _too_large(size: int, run: Run) -> Location:
    return Location(
        5414201,
        f"Exceeded memory limit in DocumentSourceSetWindowFields, used {size} bytes but max allowed is "
        f"{run.memory_bytes_max}",
    )


class Gathered(WindowFunction):
    """An accumulator over the rows of the window."""

    takes_window = True

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator

    @property
    def accumulator(self) -> Accumulator:
        """What gathers."""
        return self._accumulator

    def results(self, partition: Partition, spans: Sequence[Span]) -> list[Any]:
        """See `WindowFunction.results`."""
        made: list[Any] = []
        rows, variables = partition.rows, partition.variables
        state = self._accumulator.begin({})
        at = (0, 0)
        for low, high in spans:
            if low != at[0] or high < at[1]:
                state, at = self._accumulator.begin({}), (low, low)
            elif made and high == at[1]:
                made.append(made[-1])
                continue
            for row in rows[at[1] : high]:
                state.add(row, variables)
            at = (low, max(high, at[1]))
            value = state.result()
            # A state that grows goes on with its own list.
            made.append(list(value) if isinstance(value, list) else value)
        return made


class Output:
    """One field that the stage adds."""

    def __init__(self, name: str, spec: Any, order: SortPattern | None, context: PipelineContext) -> None:
        self.path = parse_field_path(name)
        self.spec = spec
        if not isinstance(spec, dict):
            raise FailedToParse(f"The field '{name}' must be a window function object")
        functions = [key for key in spec if key.startswith("$")]
        for key in spec:
            if not key.startswith("$") and key != "window":
                why = f"Window function found an unknown argument: {key}"
                # These look at their whole object themselves, and take nothing beside their name.
                raise Location(5371601, why) if functions[:1] == ["$documentNumber"] else FailedToParse(why)
        if len(functions) > 1 and functions[0] == "$documentNumber":
            raise Location(5371601, f"$documentNumber must be specified with nothing beside it: {name}")
        if len(functions) != 1:
            raise FailedToParse(
                "Expected a $-prefixed window function" + (f": {name}" if not functions else ", exactly one")
            )
        function = self._name = functions[0]
        self._context = context
        parse = FUNCTIONS.get(function)
        if function in ("$covariancePop", "$covarianceSamp"):
            operand = context.expressions.parse(spec[function])
            self.function: WindowFunction = Covariance(operand, sample=function == "$covarianceSamp")
        elif function == "$minMaxScaler":
            self.function = parse_scaler(function, spec[function], context.expressions)
        elif parse is not None:
            self.function = parse(function, spec[function], context.expressions, order)
        elif function in _ACCUMULATORS:
            accumulator = parse_accumulator(function, spec[function], context.expressions, lists_are_values=True)
            self.function = Gathered(accumulator)
        else:
            raise FailedToParse(f"Unrecognized window function, {function}")
        if "window" in spec and not self.function.takes_window:
            code = 5371601 if function in ("$rank", "$denseRank", "$documentNumber") else 9
            message = f"{function} does not accept a 'window' field"
            raise Location(code, message) if code != 9 else FailedToParse(message)
        if "window" not in spec and function == "$derivative":
            raise FailedToParse("$derivative requires explicit window bounds")
        self.frame = parse_frame(spec["window"], order) if "window" in spec else Frame()
        if function in ("$stdDevPop", "$stdDevSamp") and self.frame.low is not None:
            operand = context.expressions.parse(spec[function])
            self.function = SlidingDeviation(operand, sample=function == "$stdDevSamp")

    @property
    def gathers(self) -> Accumulator | None:
        """The accumulator, where the function is one."""
        return self.function.accumulator if isinstance(self.function, Gathered) else None

    def serialize(self) -> Document:
        """The function and its window, in the normal form that explain shows."""
        if isinstance(self.function, Gathered):
            shown = self.function.accumulator.serialize()
        else:
            operand, written = self._operand().serialize(), self.spec[self._name]
            if not written:
                operand = written
            elif isinstance(written, dict) and isinstance(operand, dict):
                # Some operands are no expressions.
                operand |= {name: written[name] for name in _LITERAL if name in written and name in operand}
            shown = {self._name: operand}
        if self.function.takes_window:
            shown = {**shown, "window": self.spec.get("window", {"documents": ["unbounded", "unbounded"]})}
        return shown

    def fields(self) -> Fields:
        """The paths that the function reads."""
        return self.function.accumulator.fields() if isinstance(self.function, Gathered) else self._operand().fields()

    def _operand(self) -> Expression:
        return self._context.expressions.parse(self.spec[self._name])


class SetWindowFields(Stage):
    """`$setWindowFields`."""

    name = "$setWindowFields"

    def __init__(
        self, spec: Document, by: Expression | None, order: SortPattern | None, outputs: list[Output], collation: Any
    ) -> None:
        self.spec = spec
        self.by = by
        self.order = order
        self.outputs = outputs
        self.collation = collation
        self.gives_columns = False
        """Whether who takes its rows looks at columns."""

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "SetWindowFields":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise FailedToParse(f"the $setWindowFields stage specification must be an object, found {type_name(spec)}")
        for name in spec:
            if name not in ("partitionBy", "sortBy", "output"):
                raise Location(40415, f"BSON field '$setWindowFields.{name}' is an unknown field.")
        if "output" not in spec:
            raise Location(40414, "BSON field '$setWindowFields.output' is missing but a required field")
        if not isinstance(spec["output"], dict):
            raise TypeMismatch(
                f"BSON field '$setWindowFields.output' is the wrong type '{type_name(spec['output'])}', "
                "expected type 'object'"
            )
        order_spec = spec.get("sortBy")
        if order_spec is not None and not isinstance(order_spec, dict):
            raise TypeMismatch(
                f"BSON field '$setWindowFields.sortBy' is the wrong type '{type_name(order_spec)}', expected type 'object'"
            )
        order = parse_sort(order_spec) if order_spec else None
        by = context.expressions.parse(spec["partitionBy"]) if spec.get("partitionBy") is not None else None
        if isinstance(by, Constant):
            if isinstance(by.value, list):
                raise TypeMismatch("An expression used to partition cannot evaluate to value of type array")
            by = None
        # An empty order leaves the rows as they come, and satisfies windows that need one.
        shown_order = order if order is not None or order_spec is None else parse_sort({})
        outputs = [Output(name, value, shown_order, context) for name, value in spec["output"].items()]
        return cls(spec, by, order, outputs, context.collation)

    def over_columns(self, time_field: str, shared_field: str | None) -> ColumnWindows | None:
        """The same over batches of columns, where these can do it."""
        parts = None if self.by is None else key_parts(self.by, time_field, shared_field)
        if (self.by is not None and parts is None) or not can_arrange(self.order, shared_field):
            return None
        fields: list[tuple[str, Frame, ArrayFunction]] = []
        for output in self.outputs:
            name = output.path[0]
            function = array_function(output.function, output.gathers, output.frame, shared_field)
            if function is None or len(output.path) > 1 or name in (time_field, shared_field):
                return None
            if output.frame.by_range and self.order is None:
                return None
            fields.append((name, output.frame, function))
        return ColumnWindows(parts, self.order, self.collation, fields)

    def giving_columns(self) -> "SetWindowFields":
        """The same for a stage behind it that looks at columns."""
        made = copy(self)
        made.gives_columns = True
        return made

    def columns(self) -> Fields:
        """The paths that it reads itself."""
        found: Fields = frozenset()
        for fields in (
            frozenset() if self.by is None else self.by.fields(),
            frozenset() if self.order is None else frozenset(self.order.fields),
            *(output.fields() for output in self.outputs),
        ):
            found = joined(found, fields)
        return found

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.spec}

    def explained(self) -> list[Document]:
        """See `Stage.explained`: the order that it needs, and a stage of another name that relies on it."""
        plain = isinstance(self.by, FieldPath) and self.by.variable == "CURRENT" and bool(self.by.path)
        path = ".".join(self.by.path) if isinstance(self.by, FieldPath) and plain else _PARTITION_KEY
        shown: Document = {}
        order: Document = {}
        if self.by is not None:
            shown["partitionBy"] = f"${path}"
            order[path] = 1
        if self.order is not None:
            shown["sortBy"] = self.order.serialize()
            order |= {name: direction for name, direction in self.order.serialize().items() if name not in order}
        shown["output"] = {".".join(output.path): output.serialize() for output in self.outputs}
        stages: list[Document] = [{"$_internalSetWindowFields": shown}]
        if order:
            stages.insert(0, {"$sort": {"sortKey": order, "outputSortKeyMetadata": True}})
        if self.by is not None and not plain:
            stages.insert(0, {"$addFields": {_PARTITION_KEY: self.by.serialize()}})
            stages.append({"$project": {_PARTITION_KEY: False, "_id": True}})
        return stages

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _WindowNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return joined(wanted, self.columns())


class _WindowNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, SetWindowFields)
        source = self.inputs[0].batches(run)
        gathering = ColumnGathering(stage.over_columns, source, run.memory_bytes_max)
        done = yield from gathering.through(
            lambda plan, held: plan.rows(held, run.variables), self.stats, gives_columns=stage.gives_columns
        )
        if not done:
            yield from self._by_rows(gathering.batches(), run)

    def _by_rows(self, source: Iterator[Batch | None], run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, SetWindowFields)
        rows: list[tuple[Any, Any, Document]] = []
        sorter: Sorter | None = None
        size = 0
        try:
            for batch in source:
                rows += [
                    (self._partition(stage, document, run), self._key(stage, document), document)
                    for document in (() if batch is None else batch.documents())
                ]
                if batch is not None and len(batch):
                    size += len(encode(batch.documents()[0])) * len(batch) * 2
                if size > run.memory_bytes_max:
                    if not run.allow_disk_use:
                        raise _too_large(size, run)
                    if sorter is None:
                        sorter = self._sorter(stage, run)
                    for _, _, document in rows:
                        sorter.add(document)
                    rows = []
                yield None
            rows.sort(key=lambda row: (row[0], row[1]))
            ordered: Iterator[tuple[Any, Any, Document]] = iter(rows)
            if sorter is not None:
                for _, _, document in rows:
                    sorter.add(document)
                rows = []
                ordered = self._ordered(stage, sorter, run)
            yield from self._partitions(stage, ordered, run, bounded=sorter is not None)
            self.stats.eof = True
        finally:
            if sorter is not None:
                sorter.close()

    def _sorter(self, stage: SetWindowFields, run: Run) -> Sorter:
        """Puts the rows in order on disk where they do not fit into memory."""
        order = ComputedOrder(lambda document: (self._partition(stage, document, run), self._key(stage, document)))
        return Sorter(order, memory_bytes_max=run.memory_bytes_max, spill_folder=run.spill_folder)

    def _ordered(self, stage: SetWindowFields, sorter: Sorter, run: Run) -> Iterator[tuple[Any, Any, Document]]:
        for row, _ in sorter.results():
            document = decode(row) if isinstance(row, bytes) else row
            yield self._partition(stage, document, run), self._key(stage, document), document

    def _partitions(
        self, stage: SetWindowFields, ordered: Iterator[tuple[Any, Any, Document]], run: Run, *, bounded: bool
    ) -> Iterator[Batch | None]:
        for _, members in groupby(ordered, key=lambda row: row[0]):
            chosen: list[tuple[Any, Any, Document]] = []
            size = 0
            for member in members:
                chosen.append(member)
                if bounded and not len(chosen) % 512:
                    size += len(encode(member[2])) * 512 * 2
                    # A partition is computed in memory, so that a single one cannot be without bounds.
                    if size > _PARTITION_FACTOR * run.memory_bytes_max:
                        raise _too_large(size, run)
                    yield None
            made = self._computed(stage, chosen, run)
            for start in range(0, len(made), run.batch_rows):
                part = made[start : start + run.batch_rows]
                self.stats.advanced += len(part)
                yield RowBatch(documents=part)
            yield None

    def _partition(self, stage: SetWindowFields, document: Document, run: Run) -> Any:
        if stage.by is None:
            return ()
        value = stage.by.evaluate(document, run.variables)
        if isinstance(value, list):
            raise TypeMismatch("An expression used to partition cannot evaluate to value of type array")
        return order_key(None if value is MISSING else value, stage.collation)

    def _key(self, stage: SetWindowFields, document: Document) -> Any:
        return () if stage.order is None else stage.order.key(document, None, stage.collation)

    def _computed(self, stage: SetWindowFields, chosen: list[tuple[Any, Any, Document]], run: Run) -> list[Document]:
        rows = [document for _, _, document in chosen]
        first = stage.order.parts[0].parts if stage.order is not None else ()
        partition = Partition(
            rows,
            run.variables,
            stage.order,
            [key for _, key, _ in chosen],
            [get_path(row, first) for row in rows] if first else [],
        )
        made = list(rows)
        for output in stage.outputs:
            spans = output.frame.spans(partition.values, len(rows))
            for place, value in enumerate(output.function.results(partition, spans)):
                made[place] = replaced(made[place], output.path, value)
        return made


class Fill(Stage):
    """`$fill`: values for fields that are null or missing."""

    name = "$fill"

    def __init__(self, spec: Document, stages: list[Stage]) -> None:
        self.spec = spec
        self.stages = stages

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Fill":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise Location(40201, f"the $fill stage specification must be an object, found {type_name(spec)}")
        for name in spec:
            if name not in ("partitionBy", "partitionByFields", "sortBy", "output"):
                raise Location(40415, f"BSON field '$fill.{name}' is an unknown field.")
        output = spec.get("output")
        if "output" not in spec:
            raise Location(40414, "BSON field '$fill.output' is missing but a required field")
        if not isinstance(output, dict) or not output:
            raise Location(6050203, "The output field must contain an object with at least one element")
        by = cls._partition(spec)
        windows: Document = {}
        values: Document = {}
        for name, one in output.items():
            if not isinstance(one, dict) or len(one) != 1:
                raise Location(6050202, f"The output field '{name}' must be an object with 'method' or 'value'")
            if "value" in one:
                values[name] = {"$ifNull": [f"${name}", one["value"]]}
            elif one.get("method") in ("linear", "locf"):
                function = "$linearFill" if one["method"] == "linear" else "$locf"
                if function == "$linearFill" and not spec.get("sortBy"):
                    raise FailedToParse("'sortBy' is required with the method 'linear'")
                windows[name] = {function: f"${name}"}
            else:
                raise Location(6050202, "Method must be either locf or linear")
        stages: list[Stage] = []
        if windows:
            asked: Document = {"output": windows}
            if by is not None:
                asked["partitionBy"] = by
            if "sortBy" in spec:
                asked["sortBy"] = spec["sortBy"]
            stages.append(SetWindowFields.parse(asked, context))
        if values:
            stages.append(RESHAPING["$addFields"](values, context))
        return cls(spec, stages)

    @staticmethod
    def _partition(spec: Document) -> Any:
        if "partitionBy" in spec and "partitionByFields" in spec:
            raise Location(6050204, "Maximum one of 'partitionBy' and 'partitionByFields' can be specified in '$fill'")
        if "partitionByFields" not in spec:
            return spec.get("partitionBy")
        fields = spec["partitionByFields"]
        if not isinstance(fields, list) or not all(is_string(field) for field in fields):
            raise TypeMismatch("BSON field '$fill.partitionByFields' must be an array of strings")
        # The names of the parts do not show; those of the fields may be paths, which no object may hold.
        return {f"p{place}": f"${field}" for place, field in enumerate(fields)} or None

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.spec}

    def explained(self) -> list[Document]:
        """See `Stage.explained`."""
        return [shown for stage in self.stages for shown in stage.explained()]

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        for stage in reversed(self.stages):
            wanted = stage.needs(wanted)
        return wanted

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        for stage in self.stages:
            source = stage.node(source)
        return source


STAGES: Final[dict[str, StageParser]] = {"$fill": Fill.parse, "$setWindowFields": SetWindowFields.parse}
