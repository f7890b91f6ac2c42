"""A batch of rows that are held column by column, and become documents only where somebody asks for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from bson import DatetimeMS, Int64
from numpy.typing import NDArray

from ...common.paths import Path, expression_path
from ...common.values import MISSING, BsonType, Document, decode
from ...kernels import RowBlock
from ..plan.batches import Batch, BlockBatch

Positions = NDArray[np.int64]

MIXED = 255
"""Kind of a column whose values are of several types, or of one that has no array."""
ABSENT = 0
"""Kind of a column that no row has a value in."""


_NO_TEXT: Final = 2**32 - 1
_DTYPES: Final[dict[int, Any]] = {BsonType.DOUBLE: np.float64, BsonType.BOOL: np.bool_}
_KINDS: Final[dict[type, int]] = {
    float: BsonType.DOUBLE,
    int: BsonType.INT32,
    Int64: BsonType.INT64,
    DatetimeMS: BsonType.DATE,
    bool: BsonType.BOOL,
    str: BsonType.STRING,
}


@dataclass(slots=True)
class Column:
    """The values of one field.

    Attributes:
        kind: their BSON type, `MIXED` or `ABSENT`.
        values: one for each row: float64, int64 (dates in milliseconds), bool, or positions in `texts`; undefined if mixed.
        present: which rows have a value; None where all have.
        texts: the different strings.
        absent: what rows without a value have, MISSING or None for null.
    """

    kind: int
    values: NDArray[Any]
    present: NDArray[np.bool_] | None = None
    texts: list[str] | None = None
    absent: Any = MISSING

    def listed(self, rows: int, absent: Any = ...) -> list[Any]:
        """The values of all rows as Python holds them; `absent` where there is none."""
        absent = self.absent if absent is ... else absent
        if self.kind == ABSENT:
            return [absent] * rows
        made: list[Any]
        match self.kind:
            case BsonType.DATE:
                made = list(map(DatetimeMS, self.values.tolist()))
            case BsonType.INT64:
                made = list(map(Int64, self.values.tolist()))
            case BsonType.STRING:
                texts = [*(self.texts or ()), ""]
                made = [texts[at] for at in np.minimum(self.values, len(texts) - 1).tolist()]
            case _:
                made = self.values.tolist()
        if self.present is not None:
            for row in np.flatnonzero(~self.present).tolist():
                made[row] = absent
        return made

    def select(self, positions: Positions) -> "Column":
        """The rows at these positions."""
        present = None if self.present is None else self.present[positions]
        return Column(self.kind, self.values[positions], present, self.texts, self.absent)

    def value(self, row: int) -> Any:
        """The value of a row as Python holds it; MISSING (or what stands for it) where there is none."""
        if self.kind == ABSENT or (self.present is not None and not self.present[row]):
            return self.absent
        return self.converted(self.values[row])

    def converted(self, value: Any) -> Any:
        """A value of the array as Python holds it."""
        match self.kind:
            case BsonType.DOUBLE:
                return float(value)
            case BsonType.INT32:
                return int(value)
            case BsonType.INT64:
                return Int64(value)
            case BsonType.DATE:
                return DatetimeMS(int(value))
            case BsonType.BOOL:
                return bool(value)
            case BsonType.STRING if self.texts is not None:
                return self.texts[int(value)]
        raise AssertionError(f"no value of kind {self.kind} lies in an array")


@dataclass(slots=True)
class Shared:
    """What is the same for all rows of a segment: the name of the field, and of each segment the value.

    Attributes:
        name: None where segments share nothing.
        keys: one for each segment; equal for equal values.
        of: gives the value of a key; MISSING where it has none.
    """

    name: str | None
    keys: Sequence[bytes | None]
    of: Callable[[bytes | None], Any]

    @property
    def values(self) -> "SharedValues":
        """The values, one for each segment."""
        return SharedValues(self)


class SharedValues:
    """The values of segments, decoded where one is asked for."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def __len__(self) -> int:
        return len(self._shared.keys)

    def __getitem__(self, segment: int) -> Any:
        return self._shared.of(self._shared.keys[segment])


class ColumnBatch(Batch):
    """Rows of several segments, each of which has one value of the shared field."""

    def __init__(
        self,
        columns: Callable[[str], Column],
        offsets: Positions,
        shared: Shared,
        build: Callable[[Positions], RowBlock],
        *,
        time_field: str,
        time_bounds: tuple[Positions, Positions],
        positions: Positions | None = None,
        in_order: bool = True,
    ) -> None:
        """Wrap arrays.

        Args:
            columns: gives the whole column of a field.
            offsets: where the rows of each segment begin in the whole columns, and at last how many rows there are.
            build: makes documents of rows, by their places in the whole columns.
            time_field: the column that always holds a date.
            time_bounds: for each segment a time that none of its rows is before, and one that none is after.
            positions: the rows that are in the batch; None for all.
            in_order: whether the positions ascend.
        """
        self._columns = columns
        self._offsets = offsets
        self.shared = shared
        self._build = build
        self.time_field = time_field
        self.time_bounds = time_bounds
        self._positions = positions
        self._in_order = in_order
        self._segments: Positions | None = None
        self._block: RowBlock | None = None
        self._raws: list[bytes] | None = None
        self._documents: list[Document] | None = None
        self._cached: dict[str, Column] = {}

    def __len__(self) -> int:
        return int(self._offsets[-1]) if self._positions is None else len(self._positions)

    def column(self, name: str) -> Column:
        """The values of a field that was unpacked, for the rows of the batch."""
        column = self._cached.get(name)
        if column is None:
            column = self._columns(name)
            if self._positions is not None and column.kind != MIXED:
                column = column.select(self._positions)
            self._cached[name] = column
        return column

    def made(self, key: int, make: "Callable[[ColumnBatch], Column]") -> Column:
        """A column that is made of others; kept under a number that is its own."""
        name = f"\0{key}"
        column = self._cached.get(name)
        if column is None:
            column = self._cached[name] = make(self)
        return column

    def shared_column(self, parts: Path) -> Column:
        """What the rows have at a path within the shared field; mixed where their types have no array in common."""
        name = "\0".join(("", "", *parts))
        column = self._cached.get(name)
        if column is None:
            column = self._cached[name] = self._of_shared(parts)
        return column

    def _of_shared(self, parts: Path) -> Column:
        numbers: dict[bytes | None, int] = {}
        codes = [numbers.setdefault(key, len(numbers)) for key in self.shared.keys]
        values = [expression_path(self.shared.of(key), parts) for key in numbers]
        types = {type(value) for value in values if value is not MISSING}
        if not types:
            return Column(ABSENT, np.zeros(len(self), dtype=np.int64))
        kind = _KINDS.get(types.pop(), MIXED)
        if types or kind == MIXED:
            return Column(MIXED, np.zeros(len(self), dtype=np.int64))
        texts: dict[str, int] = {}
        if kind == BsonType.STRING:
            array = np.array(
                [_NO_TEXT if value is MISSING else texts.setdefault(value, len(texts)) for value in values],
                dtype=np.uint32,
            )
        else:
            plain = [
                0 if value is MISSING else value if type(value) in (float, bool) else int(value) for value in values
            ]
            array = np.array(plain, dtype=_DTYPES.get(kind, np.int64))
        by_row = np.array(codes, dtype=np.int64)[self.segments]
        here = np.array([value is not MISSING for value in values], dtype=np.bool_)
        return Column(
            kind, array[by_row], None if here.all() else here[by_row], list(texts) if kind == BsonType.STRING else None
        )

    @property
    def bounds(self) -> Positions | None:
        """Where the rows of each segment begin in the batch, and how many rows there are; None where they are mixed up."""
        if self._positions is None:
            return self._offsets
        return np.searchsorted(self._positions, self._offsets).astype(np.int64) if self._in_order else None

    def as_segments(self) -> "ColumnBatch":
        """The same rows in a batch whose segments lie behind each other."""
        if self.bounds is not None:
            return self
        segments = self.segments
        runs = np.flatnonzero(np.concatenate(([True], segments[1:] != segments[:-1])))
        used = segments[runs]
        return ColumnBatch(
            self.column,
            np.concatenate((runs, [len(self)])).astype(np.int64),
            Shared(self.shared.name, [self.shared.keys[segment] for segment in used.tolist()], self.shared.of),
            lambda positions: self.select(positions).packed()[0],
            time_field=self.time_field,
            time_bounds=(self.time_bounds[0][used], self.time_bounds[1][used]),
        )

    @property
    def segments(self) -> Positions:
        """The segment of each row."""
        if self._segments is None:
            segments = np.repeat(np.arange(len(self._offsets) - 1, dtype=np.int64), np.diff(self._offsets))
            self._segments = segments if self._positions is None else segments[self._positions]
        return self._segments

    def documents(self) -> list[Document]:
        """See `Batch.documents`; decodes once."""
        if self._documents is None:
            self._documents = [decode(raw) for raw in self.raws()]
        return self._documents

    def documents_of(self, rows: Positions, fields: Sequence[str] | None) -> list[Document]:
        """Documents of some rows with these top-level fields, of which none is mixed; None for whole documents."""
        if fields is None:
            return self.select(rows).documents()
        if not len(rows):
            return []
        made: list[Document] = [{} for _ in range(len(rows))]
        for name in fields:
            if name == self.shared.name:
                shared = self.shared.values
                values = [shared[segment] for segment in self.segments[rows].tolist()]
            else:
                column = self.column(name)
                values = (column if column.kind == ABSENT else column.select(rows)).listed(len(rows))
            for document, value in zip(made, values, strict=True):
                if value is not MISSING:
                    document[name] = value
        return made

    def raws(self) -> list[bytes]:
        """See `Batch.raws`; builds once."""
        if self._raws is None:
            self._raws = self.packed()[0].raws()
        return self._raws

    def packed(self) -> tuple[RowBlock, int, int]:
        """See `Batch.packed`; builds once."""
        if self._block is None:
            positions = self._positions
            self._block = self._build(np.arange(len(self)) if positions is None else positions)
        return self._block, 0, len(self)

    def as_rows(self) -> Batch:
        """The same as rows that are built."""
        block, start, stop = self.packed()
        return BlockBatch(block, start, stop)

    def select(self, positions: Sequence[int] | Positions) -> "ColumnBatch":
        """See `Batch.select`."""
        chosen = np.asarray(positions, dtype=np.int64)
        return ColumnBatch(
            self._columns,
            self._offsets,
            self.shared,
            self._build,
            time_field=self.time_field,
            time_bounds=self.time_bounds,
            positions=chosen if self._positions is None else self._positions[chosen],
            in_order=self._in_order and bool((chosen[1:] > chosen[:-1]).all()),
        )
