"""Stages that gather by a key: `$group $count $sortByCount`."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from bson import Int64

from ...common.errors import Location, MongoError
from ...common.numbers import is_number
from ...common.ordering import CLASS_NUMBER, order_key
from ...common.values import MISSING, Document, is_string
from ..accumulators.base import Accumulator
from ..accumulators.parse import WithFields, parse_accumulator
from ..columns.batch import ColumnBatch
from ..columns.group import ColumnGroup, ColumnGrouping, column_group
from ..columns.told import ToldBatch
from ..expression.base import Expression, FieldPath
from ..plan.batches import Batch, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import Fields, PipelineContext, Stage, StageNode, StageParser, joined
from .group_table import GroupTable


class Group(Stage):
    """`$group`."""

    name = "$group"

    def __init__(self, key: Expression, accumulators: dict[str, Accumulator], collation: Any) -> None:
        self.key = key
        self.accumulators = accumulators
        self.collation = collation

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "Group":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise Location(15947, "a group's fields must be specified in an object")
        key: Expression | None = None
        accumulators: dict[str, Accumulator] = {}
        for name, value in spec.items():
            if name == "_id":
                _check_parts(value)
                key = context.expressions.parse(value)
            else:
                accumulators[name] = parse_field(name, value, context)
        if key is None:
            raise Location(15955, "a group specification must include an _id")
        return cls(key, accumulators, context.collation)

    def over_columns(self, time_field: str, shared_field: str | None) -> ColumnGroup | None:
        """The same over batches of columns, where these can do it."""
        accumulators = list(self.accumulators.values())
        return column_group(self.key, accumulators, self.collation, time_field=time_field, shared_field=shared_field)

    def columns(self) -> Fields:
        """The paths that decide, apart from whole documents of rows that were chosen by them."""
        found = self.key.fields()
        for accumulator in self.accumulators.values():
            expression, fields = accumulator.expression, accumulator.fields()
            if fields is None:
                fields = expression.sorted_by if isinstance(expression, WithFields) else frozenset()
            found = joined(found, fields)
        return found

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {
            self.name: {
                "_id": self.key.serialize(),
                **{name: accumulator.serialize() for name, accumulator in self.accumulators.items()},
            }
        }

    def chooses(self) -> tuple[str, bool] | None:
        """The path that it groups by, where it looks at the first rows of groups alone, or (true) at the last alone."""
        names = {accumulator.name for accumulator in self.accumulators.values()}
        key = self.key
        if not isinstance(key, FieldPath) or key.variable not in ("CURRENT", "ROOT") or not key.path:
            return None
        return (".".join(key.path), names == {"$last"}) if names in (set(), {"$first"}, {"$last"}) else None

    def as_document(self) -> Document:
        """The document of a group made of one row."""
        fields = {name: accumulator.expression.serialize() for name, accumulator in self.accumulators.items()}
        return {"_id": self.key.serialize(), **fields}

    def explained(self) -> list[Document]:
        """See `Stage.explained`."""
        return [{self.name: {**self.serialize()[self.name], "$willBeMerged": False}}]

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return GroupNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        found = self.key.fields()
        for accumulator in self.accumulators.values():
            found = joined(found, accumulator.fields())
        return found


def _check_parts(identity: Any) -> None:
    """Refuse a compound `_id` that looks like a projection."""
    if not isinstance(identity, dict) or next(iter(identity), "").startswith("$"):
        return
    for name, value in identity.items():
        if not name:
            raise Location(15998, "FieldPath field names may not be empty strings.")
        if isinstance(value, bool) or is_number(value):
            raise Location(17390, "$group does not support inclusion-style expressions")


def parse_field(name: str, value: Any, context: PipelineContext) -> Accumulator:
    """One output field of a `$group` or `$bucket`.

    Raises:
        Location: 40234, 40235, 40236, 40238 for what is no single accumulator under a plain name.
    """
    if "." in name:
        raise Location(40235, f"The field name '{name}' cannot contain '.'")
    if name.startswith("$"):
        raise Location(40236, f"The field name '{name}' cannot be an operator name")
    if not isinstance(value, dict) or not value:
        raise Location(40234, f"The field '{name}' must be an accumulator object")
    if len(value) != 1:
        raise Location(40238, f"The field '{name}' must specify one accumulator")
    operator, operand = next(iter(value.items()))
    if not operator.startswith("$"):
        raise Location(40234, f"The field '{name}' must be an accumulator object")
    return parse_accumulator(operator, operand, context.expressions)


_Finished = tuple[Any, list[Any]]

_GROUPED_NUMBERS: Final = {("can't $divide by zero", 2): 4848401, ("can't $mod by zero", 16610): 4848403}


def _as_grouped(error: MongoError) -> MongoError:
    """The same failure with the number that it has within a group."""
    number = _GROUPED_NUMBERS.get((error.message, error.number))
    return error if number is None else Location(number, error.message)


def _gather_columns(columns: ColumnGrouping, batch: ColumnBatch | ToldBatch, run: Run) -> bool:
    """Add a batch that is held in columns, as such; False where that cannot be."""
    try:
        if isinstance(batch, ToldBatch):
            return columns.gather_told(batch, run.variables)
        return columns.gather(batch, run.variables)
    except MongoError as error:
        raise _as_grouped(error) from None


Enough = Callable[[ColumnGrouping, ColumnBatch], bool]


class GroupNode(StageNode):
    """Groups in a table by key; bounded in memory."""

    def __init__(self, stage: Group, source: PlanNode, *, enough: Enough | None = None) -> None:
        """`enough`, asked after each batch of columns, may end the reading."""
        super().__init__(stage, source)
        self._enough = enough

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        stage = self.of
        assert isinstance(stage, Group)
        table = GroupTable(
            [accumulator.begin for accumulator in stage.accumulators.values()],
            memory_bytes_max=run.group_bytes_max,
            allow_disk_use=run.allow_disk_use,
            folder=run.spill_folder,
        )
        columns: ColumnGrouping | None = None
        over_columns = True
        try:
            for batch in self.inputs[0].batches(run):
                keys = batch.keys if isinstance(batch, ToldBatch) else batch
                if isinstance(keys, ColumnBatch) and over_columns and columns is None:
                    group = stage.over_columns(keys.time_field, keys.shared.name)
                    columns = None if group is None else group.begin(run.group_bytes_max)
                    over_columns = columns is not None
                if batch is None:
                    pass
                elif (
                    isinstance(batch, ColumnBatch | ToldBatch)
                    and columns is not None
                    and _gather_columns(columns, batch, run)
                ):
                    assert isinstance(keys, ColumnBatch)
                    if self._enough is not None and table.empty and self._enough(columns, keys):
                        break
                    if columns.full:
                        columns.hand_over(table)
                else:
                    if columns is not None:
                        # What came first goes first.
                        columns.hand_over(table)
                    self._gather(stage, table, batch, run.variables)
                    yield from table.relieve()
                yield None
            if columns is not None and table.empty:
                yield from self._column_rows(stage, columns, run)
            else:
                if columns is not None:
                    columns.hand_over(table)
                yield from self._rows(stage, table, run)
        finally:
            table.close()
        self.stats.eof = True
        spilling = table.spilling
        self.stats.extra = {
            "usedDisk": spilling.spills > 0,
            "spills": Int64(spilling.spills),
            "spilledDataStorageSize": Int64(spilling.bytes),
            "spilledBytes": Int64(spilling.bytes),
            "spilledRecords": Int64(spilling.records),
        }

    def _column_rows(self, stage: Group, columns: ColumnGrouping, run: Run) -> Iterator[Batch | None]:
        """The groups, where all of them were gathered in columns."""
        names = ["_id", *stage.accumulators]
        for start in range(0, len(columns), run.batch_rows):
            rows = columns.rows(names, start, min(start + run.batch_rows, len(columns)))
            self.stats.advanced += len(rows)
            yield RowBatch(documents=rows)

    def _gather(self, stage: Group, table: GroupTable, batch: Batch, variables: dict[str, Any]) -> None:
        key_of, collation = stage.key.evaluate, stage.collation
        # What reads nothing is given nothing.
        documents = batch.documents() if stage.needs(None) != frozenset() else [{} for _ in range(len(batch))]
        table.patient = True
        table.make_room(len(batch))
        table.patient = False
        groups = table.groups
        try:
            for document in documents:
                value = key_of(document, variables)
                kind = type(value)
                if kind is int:
                    key: Any = (CLASS_NUMBER, value)
                elif kind is str and collation is None:
                    key = value
                else:
                    if value is MISSING:
                        value = None
                    key = order_key(value, collation)
                group = groups.get(key)
                for state in table.group(key, value) if group is None else group[1]:
                    state.add(document, variables)
        except MongoError as error:
            raise _as_grouped(error) from None

    def _rows(self, stage: Group, table: GroupTable, run: Run) -> Iterator[Batch | None]:
        names = ["_id", *stage.accumulators]
        rows: list[Document] = []
        for group in _named_failures(table.finished()):
            if group is None:
                yield None
                continue
            value, results = group
            rows.append(dict(zip(names, (value, *results), strict=True)))
            if len(rows) >= run.batch_rows:
                self.stats.advanced += len(rows)
                yield RowBatch(documents=rows)
                rows = []
        if rows:
            self.stats.advanced += len(rows)
            yield RowBatch(documents=rows)


def _named_failures(groups: Iterator[_Finished | None]) -> Iterator[_Finished | None]:
    """The groups; some accumulators work out only in the end what they took."""
    try:
        yield from groups
    except MongoError as error:
        raise _as_grouped(error) from None


def parse_count(spec: Any, context: PipelineContext) -> Stage:
    """`$count: name`, which is a `$group` and a `$project`."""
    if not is_string(spec):
        raise Location(40156, "the count field must be a non-empty string")
    if not spec:
        raise Location(40157, "the count field must be a non-empty string")
    if spec.startswith("$"):
        raise Location(40158, "the count field cannot be a $-prefixed path")
    if "\0" in spec:
        raise Location(40159, "the count field cannot contain a null byte")
    if "." in spec:
        raise Location(40160, "the count field cannot contain '.'")
    if spec == "_id":
        raise Location(9039800, "the count field cannot be '_id'")
    return Count(spec)


class Count(Stage):
    """`$count`."""

    name = "$count"

    def __init__(self, field: str) -> None:
        self.field = field

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.field}

    def explained(self) -> list[Document]:
        """See `Stage.explained`."""
        counted = {"_id": {"$const": None}, self.field: {"$sum": {"$const": 1}}, "$willBeMerged": False}
        return [{"$group": counted}, {"$project": {self.field: True, "_id": False}}]

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _CountNode(self, source)

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return frozenset()


class _CountNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        assert isinstance(self.of, Count)
        total = 0
        for batch in self.inputs[0].batches(run):
            total += 0 if batch is None else len(batch)
            yield None
        if total:
            self.stats.advanced = 1
            yield RowBatch(documents=[{self.of.field: total}])


class SortByCount(Stage):
    """`$sortByCount`: groups by a value, the largest first."""

    name = "$sortByCount"

    def __init__(self, group: Group) -> None:
        self.group = group

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "SortByCount":
        """Parse the operand."""
        if isinstance(spec, dict):
            if not next(iter(spec), "").startswith("$"):
                raise Location(
                    40147,
                    f"the sortByCount field must be defined as a $-prefixed path or an expression inside an object: {spec}",
                )
        elif isinstance(spec, str):
            if not spec.startswith("$"):
                raise Location(
                    40148,
                    "the sortByCount field must be defined as a $-prefixed path or an expression inside an object",
                )
        else:
            raise Location(40149, "the sortByCount field must be specified as a string or as an object")
        return cls(Group.parse({"_id": spec, "count": {"$sum": 1}}, context))

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.group.key.serialize()}

    def explained(self) -> list[Document]:
        """See `Stage.explained`."""
        return [*self.group.explained(), {"$sort": {"sortKey": {"count": -1}}}]

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _SortByCountNode(self, GroupNode(self.group, source))

    def needs(self, wanted: Fields) -> Fields:
        """See `Stage.needs`."""
        return self.group.needs(wanted)


class _SortByCountNode(StageNode):
    def batches(self, run: Run) -> Iterator[Batch | None]:
        rows: list[Document] = []
        for batch in self.inputs[0].batches(run):
            rows += [] if batch is None else batch.documents()
            yield None
        rows.sort(key=lambda row: int(row["count"]), reverse=True)
        self.stats.advanced = len(rows)
        if rows:
            yield RowBatch(documents=rows)


STAGES: Final[dict[str, StageParser]] = {
    "$count": parse_count,
    "$group": Group.parse,
    "$sortByCount": SortByCount.parse,
}
