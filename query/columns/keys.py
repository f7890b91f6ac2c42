"""Keys of groups over columns: which runs of rows belong to one group.

A key, or each field of a key that is an object, is a part of its own. A part is evaluated once for all rows that it cannot
tell apart: those of one series where it reads the shared field, of one stretch of time where it truncates the time, of equal
values where it reads columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from bson import DatetimeMS
from numpy.typing import NDArray

from ...common.ordering import order_key
from ...common.values import MISSING, BsonType, Document
from ...kernels import GroupRuns
from ..expression.base import Expression, FieldPath, ObjectExpression
from .batch import ABSENT, ColumnBatch
from .computed import absent_value, can_compute, computed
from .grains import EVEN_OFFSETS_MS, SECOND, time_grain
from .operands import Unfit
from .zones import distinct

Numbers = NDArray[np.int64]

CODED: Final = (BsonType.DOUBLE, BsonType.INT32, BsonType.INT64, BsonType.DATE, BsonType.STRING, BsonType.BOOL)
"""Types of columns by whose values rows are told apart."""
_SAFE: Final = 2**62


@dataclass(slots=True)
class KeyPart:
    """A part of a key.

    Attributes:
        name: its field in the key; None where it is the whole key.
        shares: it reads the shared field.
        grain_ms: within so much time (from a multiple of it) it does not change; None where it reads no time.
        columns: the columns that it reads.
        computes: it can be computed for all rows at once.
        only_computes: nothing else is known of it.
    """

    name: str | None
    expression: Expression
    shares: bool
    grain_ms: int | None
    columns: list[str]
    computes: bool = False
    only_computes: bool = False


@dataclass(slots=True)
class _Variants:
    """The values of a part that were met: several of them may be equal, as 1 and 1.0 are."""

    values: list[Any] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)
    cached: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, value: Any, collation: Any, *, whole: bool) -> int:
        if whole and value is MISSING:
            # As a whole key it is null; as a part it is left out.
            value = None
        key = MISSING if value is MISSING else order_key(value, collation)
        self.values.append(value)
        self.classes.append(self.numbers.setdefault(key, len(self.numbers)))
        return len(self.values) - 1


@dataclass(slots=True)
class Runs:
    """Rows that lie behind each other and belong to one group; slots number the groups, of which there are `groups`."""

    starts: Numbers
    stops: Numbers
    slots: Numbers
    groups: int
    native: GroupRuns


class GroupKeys:
    """Gives the groups of a stage their slots, batch after batch."""

    def __init__(self, parts: Sequence[KeyPart], collation: Any, time_field: str) -> None:
        self._parts = list(parts)
        self._collation = collation
        self._time_field = time_field
        self._whole = len(parts) == 1 and parts[0].name is None
        self._variants = [_Variants() for _ in parts]
        self._shared_numbers: dict[Any, int] = {}
        self._slots: dict[tuple[int, ...], int] = {}
        self.values: list[Any] = []
        """The key of each slot."""

    def clear(self) -> None:
        """Begin anew with the slots."""
        self._slots = {}
        self.values = []
        self._variants = [_Variants() for _ in self._parts]

    def runs(self, batch: ColumnBatch, variables: Mapping[str, Any]) -> Runs | None:
        """The runs of a batch that has rows, in order; None where its keys are too many to number."""
        segments = batch.bounds
        found = []
        by_segment = segments is not None
        for part, variants in zip(self._parts, self._variants, strict=True):
            numbered = self._of_part(part, variants, batch, variables)
            if numbered is None:
                return None
            found.append(numbered)
            by_segment = by_segment and numbered[1]
        if by_segment and segments is not None:
            # Segments without rows are no runs.
            some = np.flatnonzero(segments[1:] > segments[:-1])
            starts, stops = segments[some], segments[some + 1]
            picked = [variants[some] for variants, _ in found]
        else:
            rows = [variants[batch.segments] if segmented else variants for variants, segmented in found]
            changes = np.zeros(len(batch) - 1, dtype=np.bool_)
            for one in rows:
                changes |= one[1:] != one[:-1]
            borders = np.flatnonzero(changes) + 1
            starts = np.concatenate(([0], borders))
            stops = np.concatenate((borders, [len(batch)]))
            picked = [one[starts] for one in rows]
        slots = self._number(picked, len(starts))
        if slots is None:
            return None
        groups = len(self.values)
        return Runs(starts, stops, slots, groups, GroupRuns(len(batch), groups, starts, stops, slots))

    def _of_part(
        self, part: KeyPart, variants: _Variants, batch: ColumnBatch, variables: Mapping[str, Any]
    ) -> tuple[Numbers, bool] | None:
        """The variant of each row, or (True) of each segment; None where they are too many to number."""
        if part.computes:
            try:
                return self._of_computed(part, variants, batch), False
            except Unfit:
                if part.only_computes:
                    return None
        codes: list[Numbers] = []
        segmented = not part.columns and batch.bounds is not None
        grain = 1
        if part.grain_ms is not None:
            earliest, latest = batch.time_bounds
            grain = part.grain_ms if int(earliest.min()) >= EVEN_OFFSETS_MS else SECOND
            if segmented:
                firsts = earliest // grain
                segmented = bool((firsts == latest // grain).all())
                if segmented:
                    codes.append(firsts)
            if not segmented:
                codes.append(batch.column(self._time_field).values // grain)
        if part.shares:
            numbers = self._shared(batch)
            codes.append(numbers if segmented else numbers[batch.segments])
        for name in part.columns:
            column = batch.column(name)
            if column.kind != ABSENT:
                values = column.values
                bits = values.view(np.int64) if column.kind == BsonType.DOUBLE else values.astype(np.int64)
                found = distinct(bits)[2]
                codes.append(found if column.present is None else np.where(column.present, found + 1, 0))
        if not codes:
            rows = len(batch.shared.values) if segmented else len(batch)
            codes.append(np.zeros(rows, dtype=np.int64))
        # What depends on one thing alone is known from batch to batch.
        lasting = not part.columns and len(codes) == 1 and not (part.shares and part.grain_ms is not None)
        code = _combined(codes)
        if code is None:
            return None
        met, firsts, inverse = distinct(code)
        chosen = np.empty(len(met), dtype=np.int64)
        for at, (number, row) in enumerate(zip(met.tolist(), firsts.tolist(), strict=True)):
            known = variants.cached.get((grain, number)) if lasting else None
            if known is None:
                document = self._stands_for(part, batch, row, segmented)
                known = variants.add(part.expression.evaluate(document, variables), self._collation, whole=self._whole)
                if lasting:
                    variants.cached[grain, number] = known
            chosen[at] = known
        return chosen[inverse], segmented

    def _of_computed(self, part: KeyPart, variants: _Variants, batch: ColumnBatch) -> Numbers:
        """The variant of each row, of what is computed for all rows.

        Raises:
            Unfit: rows have to tell.
        """
        column = computed(part.expression, batch)
        kind, present = column.kind, column.present
        if kind not in (ABSENT, *CODED):
            raise Unfit
        absent = absent_value(part.expression, column) if kind == ABSENT or present is not None else None
        chosen = np.full(len(batch), -1, dtype=np.int64)
        rows = np.flatnonzero(present) if present is not None else np.arange(len(batch) if kind != ABSENT else 0)
        if len(rows):
            values = column.values[rows]
            met, firsts, inverse = distinct(
                values.view(np.int64) if kind == BsonType.DOUBLE else values.astype(np.int64)
            )
            lasting = kind != BsonType.STRING
            known = []
            for number, first in zip(met.tolist(), firsts.tolist(), strict=True):
                variant = variants.cached.get((kind, number)) if lasting else None
                if variant is None:
                    variant = variants.add(column.converted(values[first]), self._collation, whole=self._whole)
                    if lasting:
                        variants.cached[kind, number] = variant
                known.append(variant)
            chosen[rows] = np.array(known, dtype=np.int64)[inverse]
        if len(rows) < len(batch):
            variant = variants.cached.get((ABSENT, 0))
            if variant is None:
                variant = variants.cached[ABSENT, 0] = variants.add(absent, self._collation, whole=self._whole)
            chosen[chosen < 0] = variant
        return chosen

    def _shared(self, batch: ColumnBatch) -> Numbers:
        """A number for the shared value of each segment, the same in all batches."""
        known = self._shared_numbers
        keys = batch.shared.keys
        return np.fromiter((known.setdefault(key, len(known)) for key in keys), dtype=np.int64, count=len(keys))

    def _stands_for(self, part: KeyPart, batch: ColumnBatch, place: int, segmented: bool) -> Document:
        """A document with what the part reads, of a row, or of the first row of a segment."""
        document: Document = {}
        segment = place if segmented else int(batch.segments[place])
        if part.grain_ms is not None:
            # Any time of the stretch will do.
            times = batch.time_bounds[1] if segmented else batch.column(self._time_field).values
            document[self._time_field] = DatetimeMS(int(times[place]))
        if part.shares and batch.shared.name is not None:
            document[batch.shared.name] = batch.shared.values[segment]
        for name in part.columns:
            document[name] = batch.column(name).value(place)
        return {name: item for name, item in document.items() if item is not MISSING}

    def _number(self, picked: list[Numbers], runs: int) -> Numbers | None:
        """The slots of runs, from the variants of each part; new groups are numbered in the order of their first runs."""
        classes = [
            np.asarray(variants.classes, dtype=np.int64)[one]
            for one, variants in zip(picked, self._variants, strict=True)
        ]
        code = _combined(classes)
        if code is None:
            return None
        _, firsts, inverse = distinct(code)
        slots = np.empty(len(firsts), dtype=np.int64)
        order = np.argsort(firsts, kind="stable")
        runs_met = firsts[order]
        keys = zip(*(one[runs_met].tolist() for one in classes), strict=True)
        chosen = zip(*(one[runs_met].tolist() for one in picked), strict=True)
        known = self._slots
        numbered = []
        for key, variants in zip(keys, chosen, strict=True):
            slot = known.get(key)
            if slot is None:
                slot = known[key] = len(self.values)
                self.values.append(self._value(variants))
            numbered.append(slot)
        slots[order] = numbered
        assert len(inverse) == runs
        return slots[inverse]

    def _value(self, chosen: Sequence[int]) -> Any:
        values = [variants.values[number] for variants, number in zip(self._variants, chosen, strict=True)]
        if self._whole:
            return values[0]
        return {str(part.name): value for part, value in zip(self._parts, values, strict=True) if value is not MISSING}


def _combined(codes: list[Numbers]) -> Numbers | None:
    """One code in the place of several; None where there would be too many."""
    combined, width = codes[0], 0
    for position, part in enumerate(codes):
        low = int(part.min())
        span = int(part.max()) - low + 1
        if position == 0:
            width = span
            combined = part - low if len(codes) > 1 else part
            continue
        if width * span >= _SAFE:
            return None
        combined = combined * span + (part - low)
        width *= span
    return combined


def key_parts(key: Expression, time_field: str, shared_field: str | None) -> list[KeyPart] | None:
    """The parts of a key; None where it reads what columns do not hold, or the time to the millisecond without being computed."""
    named: Sequence[tuple[str | None, Expression]] = [(None, key)]
    if isinstance(key, ObjectExpression) and key.parts:
        named = key.parts
    parts = []
    for name, expression in named:
        fields = expression.fields()
        if fields is None:
            return None
        shares, columns, grain, only_computes = False, [], None, False
        for path in sorted(fields):
            if shared_field is not None and (path == shared_field or path.startswith(shared_field + ".")):
                shares = True
            elif path == time_field:
                grain = time_grain(expression, time_field)
                only_computes |= grain is None
            elif "." in path:
                return None
            else:
                columns.append(path)
        computes = can_compute(expression, shared_field)
        if only_computes and not computes:
            return None
        computes &= only_computes or (bool(columns) and not isinstance(expression, FieldPath))
        parts.append(KeyPart(name, expression, shares, grain, columns, computes, only_computes))
    return parts
