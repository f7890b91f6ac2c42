"""Sorting: what a sort document means, the key it gives a document, and a sorter that spills to disk.

An array stands for its smallest element where the order ascends and for its largest where it descends. Where several
keys of a compound order lie in one array, they are taken from one element together.
"""

import heapq
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN
from operator import itemgetter
from typing import IO, Any, Final

from bson import Decimal128

from ..common.display import element_text, value_text
from ..common.errors import BadValue, FailedToParse, Location, QueryExceededMemoryLimitNoDiskUseAllowed
from ..common.field_paths import parse_field_path
from ..common.numbers import is_number, truncated
from ..common.ordering import KEY_MISSING, KEY_NULL, Collator, OrderKey, order_key
from ..common.paths import Path, is_index
from ..common.values import MISSING, Document, decode, encode

Metadata = dict[str, Any]
Row = bytes | Document

KEYS_MAX: Final = 32
_META_KINDS: Final = frozenset(("textScore", "randVal", "geoNearDistance", "searchScore", "vectorSearchScore", "score"))
_EMPTY_ARRAY: Final = object()
"""Stands at the end of a path for an array without elements, which sorts before null."""


class Descending:
    """A key that sorts the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: OrderKey) -> None:
        self.key = key

    def __lt__(self, other: "Descending") -> bool:
        return other.key < self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)


SortKey = tuple[OrderKey | Descending, ...]


@dataclass(frozen=True, slots=True)
class SortPart:
    """One key of an order: a path with a direction, or a kind of metadata."""

    path: str
    parts: Path
    ascending: bool
    meta: str | None = None


class SortPattern:
    """An order of documents."""

    def __init__(self, parts: Sequence[SortPart]) -> None:
        self.parts: tuple[SortPart, ...] = tuple(parts)
        self._simple: tuple[tuple[str, bool], ...] | None = None
        if all(part.meta is None and len(part.parts) == 1 for part in parts):
            self._simple = tuple((part.path, part.ascending) for part in parts)

    @property
    def fields(self) -> tuple[str, ...]:
        """The paths, metadata left out."""
        return tuple(part.path for part in self.parts if part.meta is None)

    @property
    def metadata(self) -> frozenset[str]:
        """The kinds of metadata that rows need to carry."""
        return frozenset(part.meta for part in self.parts if part.meta is not None)

    def serialize(self) -> Document:
        """The sort document."""
        return {
            part.path: {"$meta": part.meta} if part.meta is not None else 1 if part.ascending else -1
            for part in self.parts
        }

    def key(self, document: Document, metadata: Metadata | None = None, collator: Collator | None = None) -> SortKey:
        """The document's key in this order, directions applied: a smaller key comes first."""
        if self._simple is not None:
            keys: list[OrderKey | Descending] = []
            for name, ascending in self._simple:
                value = document.get(name)
                if type(value) is list:
                    break
                key = order_key(value, collator)
                keys.append(key if ascending else Descending(key))
            else:
                return tuple(keys)
        return self._key_with_arrays(document, metadata, collator)

    def values(self, document: Document, metadata: Metadata | None = None) -> list[Any]:
        """The values that decide, one per key, as `{$meta: "sortKey"}` shows them."""
        tuples = self._tuples(document, metadata)
        best = min(tuples, key=lambda found: self._directed(found, None))
        return [None if value is MISSING else [] if value is _EMPTY_ARRAY else value for value in best]

    def _key_with_arrays(self, document: Document, metadata: Metadata | None, collator: Collator | None) -> SortKey:
        return min(self._directed(found, collator) for found in self._tuples(document, metadata))

    def _directed(self, values: Sequence[Any], collator: Collator | None) -> SortKey:
        keys: list[OrderKey | Descending] = []
        for part, value in zip(self.parts, values, strict=True):
            if value is MISSING:
                key = KEY_NULL
            elif value is _EMPTY_ARRAY:
                key = KEY_MISSING
            else:
                key = order_key(value, collator)
            keys.append(key if part.ascending else Descending(key))
        return tuple(keys)

    def _tuples(self, document: Document, metadata: Metadata | None) -> list[list[Any]]:
        start: list[tuple[Any, Path]] = []
        for part in self.parts:
            if part.meta is None:
                start.append((document, part.parts))
            elif metadata is not None and part.meta in metadata:
                start.append((metadata[part.meta], ()))
            elif part.meta in _REQUIRED_META:
                raise Location(40218, f"query requires {_REQUIRED_META[part.meta]} metadata, but it is not available")
            else:
                start.append((random.random() if part.meta == "randVal" else MISSING, ()))
        return _expanded(start, [part.meta is not None for part in self.parts])


_REQUIRED_META: Final = {"textScore": "text score", "geoNearDistance": "geo near distance"}
"""What cannot be sorted by where it is missing, in the words of the complaint."""


def _expanded(ways: list[tuple[Any, Path]], final: list[bool]) -> list[list[Any]]:
    """The combinations of values at the ends of the ways; ways through one array go through one element together."""
    walked: list[tuple[Any, Path]] = []
    array: list[Any] | None = None
    for (value, parts), done in zip(ways, final, strict=True):
        if not done:
            value, parts = _advance(value, parts)
            if type(value) is list:
                if array is not None and array is not value:
                    raise BadValue("cannot sort with keys that are parallel arrays")
                array = value
        walked.append((value, parts))
    if array is None:
        return [[value for value, _ in walked]]
    through = [not done and value is array for (value, _), done in zip(walked, final, strict=True)]
    found: list[list[Any]] = []
    for element in array or [_EMPTY_ARRAY]:
        below: list[tuple[Any, Path]] = []
        ended = list(final)
        for at, (value, parts) in enumerate(walked):
            if not through[at]:
                below.append((value, parts))
                ended[at] = True
            elif not parts:
                below.append((element, ()))
                ended[at] = True
            elif type(element) is dict:
                below.append((element, parts))
            else:
                below.append((MISSING, ()))
                ended[at] = True
        found.extend(_expanded(below, ended))
    return found


def _advance(value: Any, parts: Path) -> tuple[Any, Path]:
    """Follows the path through objects, and by position into arrays, up to its end or to an array to be expanded."""
    while parts:
        if type(value) is dict:
            value = value.get(parts[0], MISSING)
        elif type(value) is list and is_index(parts[0]):
            name = parts[0]
            if any(type(item) is dict and name in item for item in value):
                return value, parts
            at = int(name)
            value = value[at] if at < len(value) else MISSING
        elif type(value) is list:
            return value, parts
        else:
            return MISSING, ()
        parts = parts[1:]
    return value, parts


def parse_sort(spec: Any) -> SortPattern:
    """The order that a sort document asks for; an empty one gives a pattern without keys.

    Raises:
        MongoError: the document is none, or asks for what is no order.
    """
    if not isinstance(spec, dict):
        raise Location(15973, "the $sort key specification must be an object")
    parts: list[SortPart] = []
    for path, direction in spec.items():
        if isinstance(direction, dict):
            parts.append(SortPart(path, (), ascending=False, meta=_meta_kind(direction)))
            continue
        if not is_number(direction):
            raise Location(15974, f"Illegal key in $sort specification: {element_text(path, direction)}")
        sign = _sign(direction)
        if sign not in (1, -1):
            raise Location(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")
        parts.append(SortPart(path, parse_field_path(path), ascending=sign == 1))
    if sum(part.meta is None for part in parts) > KEYS_MAX:
        raise Location(13103, "too many compound keys")
    return SortPattern(parts)


def _sign(direction: Any) -> int | None:
    if isinstance(direction, Decimal128):
        number = direction.to_decimal()
        if not number.is_finite() or number.adjusted() > 9:
            return None
        return int(number.to_integral_value(rounding=ROUND_HALF_EVEN))
    return truncated(direction)


def _meta_kind(direction: Document) -> str:
    if "$meta" not in direction:
        raise Location(17312, "$meta is the only expression supported by $sort right now")
    if len(direction) != 1:
        raise FailedToParse("Cannot have additional keys in a $meta sort specification")
    kind = direction["$meta"]
    if type(kind) is not str or kind not in _META_KINDS:
        raise Location(31138, f"Illegal $meta sort: $meta: {value_text(kind)}")
    return kind


_SLICE_ROWS: Final = 4096

_Entry = tuple[SortKey, Row, Metadata | None, int]


class Sorter:
    """Takes rows, gives them back in order; keeps the sort stable.

    With a `limit` it keeps little more than that many rows. What does not fit into `memory_bytes_max` goes to temporary
    files in sorted runs, or is refused when disk may not be used. A row is raw BSON or a document, and comes back in
    the form it was added (from disk: as raw BSON).
    """

    def __init__(
        self,
        pattern: SortPattern,
        collator: Collator | None = None,
        *,
        limit: int | None = None,
        memory_bytes_max: int = 100 * 1024 * 1024,
        spill_folder: str | None = None,
        allow_disk_use: bool = True,
        patient: bool = False,
    ) -> None:
        """`patient`: rows go to disk when `relieve` is called, which whoever adds rows does often."""
        self._patient = patient
        self._key_of = pattern.key
        self._collator = collator
        self._limit = limit or None
        self._memory_bytes_max = memory_bytes_max
        self._spill_folder = spill_folder
        self._allow_disk_use = allow_disk_use
        self._rows: list[_Entry] = []
        # Sorted already, a slice at a time, so that no step takes long; what was added earlier stands in front.
        self._slices: list[list[_Entry]] = []
        self._runs: list[IO[bytes]] = []
        self._worst: SortKey | None = None
        self._bytes = 0
        self._size_guess = 0
        self.bytes_sorted = 0
        self.spills = 0
        self.spilled_bytes = 0
        self.spilled_rows = 0

    @property
    def used_disk(self) -> bool:
        """Whether any row went to disk."""
        return self.spills > 0

    def add(self, document: Document, *, raw: bytes | None = None, metadata: Metadata | None = None) -> None:
        """Takes one row; it comes back as `raw` when that is given.

        Raises:
            QueryExceededMemoryLimitNoDiskUseAllowed: the rows do not fit and may not go to disk.
        """
        key = self._key_of(document, metadata, self._collator)
        # A later row with an equal key comes after the others, so that it never gets in.
        if self._worst is not None and not key < self._worst:
            return
        if raw is not None:
            size = len(raw) + 128
        else:
            if not len(self._rows) % 32:
                self._size_guess = len(encode(document)) * 2 + 128
            size = self._size_guess
        self._rows.append((key, document if raw is None else raw, metadata, size))
        self._bytes += size
        self.bytes_sorted += size
        if self._limit is None:
            if len(self._rows) >= _SLICE_ROWS:
                self._rows.sort(key=itemgetter(0))
                self._slices.append(self._rows)
                self._rows = []
        elif len(self._rows) >= 2 * self._limit + 64:
            self._cut(self._limit)
        if self._bytes > self._memory_bytes_max:
            if self._limit is not None and len(self._rows) > self._limit:
                self._cut(self._limit)
            if self._bytes > self._memory_bytes_max and not self._patient:
                for _ in self._spill():
                    pass

    def relieve(self) -> Iterator[None]:
        """Brings rows to disk where they do not fit into memory, slice by slice."""
        if self._bytes > self._memory_bytes_max:
            yield from self._spill()

    def results(self) -> Iterator[tuple[Row, Metadata | None]]:
        """The rows in order. To be called once, when all have been added."""
        sources: list[Iterator[tuple[SortKey, Row, Metadata | None]]] = [self._read(run) for run in self._runs]
        sources.append((key, row, metadata) for key, row, metadata, _ in self._in_order())
        merged = heapq.merge(*sources, key=itemgetter(0)) if len(sources) > 1 else sources[0]
        found = ((row, metadata) for _, row, metadata in merged)
        for given, pair in enumerate(found):
            if self._limit is not None and given >= self._limit:
                break
            yield pair
        self.close()

    def close(self) -> None:
        """Gives up the rows and the temporary files."""
        self._rows = []
        self._slices = []
        for run in self._runs:
            run.close()
        self._runs = []

    def _in_order(self) -> Iterator[_Entry]:
        """What is in memory, in order; a row costs little by itself."""
        self._rows.sort(key=itemgetter(0))
        if not self._slices:
            return iter(self._rows)
        return heapq.merge(*self._slices, self._rows, key=itemgetter(0))

    def _cut(self, limit: int) -> None:
        self._rows.sort(key=itemgetter(0))
        del self._rows[limit:]
        self._worst = self._rows[-1][0]
        self._bytes = sum(size for _, _, _, size in self._rows)

    def _spill(self) -> Iterator[None]:
        if not self._allow_disk_use:
            raise QueryExceededMemoryLimitNoDiskUseAllowed(
                f"Sort exceeded memory limit of {self._memory_bytes_max} bytes, "
                "but did not opt in to external sorting. Pass allowDiskUse:true to opt in."
            )
        run = tempfile.TemporaryFile(dir=self._spill_folder)  # noqa: SIM115 (lives as long as the sorter)
        self._runs.append(run)
        written = 0
        for at, (_, row, metadata, _) in enumerate(self._in_order()):
            written = at + 1
            if not at % _SLICE_ROWS:
                yield
            raw = row if isinstance(row, bytes) else encode(row)
            beside = b"" if metadata is None else encode(metadata)
            run.write(len(raw).to_bytes(4, "little") + len(beside).to_bytes(4, "little") + raw + beside)
        self.spills += 1
        self.spilled_rows += written
        self.spilled_bytes += run.tell()
        run.seek(0)
        self._rows = []
        self._slices = []
        self._bytes = 0

    def _read(self, run: IO[bytes]) -> Iterator[tuple[SortKey, Row, Metadata | None]]:
        while head := run.read(8):
            raw = run.read(int.from_bytes(head[:4], "little"))
            beside_bytes = int.from_bytes(head[4:], "little")
            metadata = decode(run.read(beside_bytes)) if beside_bytes else None
            yield self._key_of(decode(raw), metadata, self._collator), raw, metadata


def comparison_key(pattern: SortPattern, collator: Collator | None = None) -> Callable[[Document], SortKey]:
    """The pattern's key as a function for `sorted` and `min`."""
    return lambda document: pattern.key(document, None, collator)
