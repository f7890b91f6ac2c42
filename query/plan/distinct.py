"""Scans that look at one entry of an index for each value of a field, and pass over the others."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.documents import collated_key_string
from ...catalog.index_entries import types_of_entry
from ...catalog.index_specs import IndexSpec
from ...common.paths import get_path, split_path
from ...common.values import MISSING, decode
from ...kernels import IndexEntryReader
from ...storage.keys import after
from .access import has_nothing_left, read_paths
from .batches import Batch
from .bounds import BoundsMaker, IndexBounds
from .candidates import sort_by, usable
from .index_scans import Entry, IndexScan
from .key_documents import KeyDocuments, lie_apart, tells
from .nodes import PlanNode, Run
from .scans import Fetch
from .wanted import DistinctBy, Wanted, collation_document, conjuncts

_PREFIX_BYTES_MAX: Final = 300
"""Behind longer beginnings of keys there may be ones that were cut: they are looked at one by one."""
_ENTRIES: Final = 64
"""Entries between two breathing points."""


class DistinctScan(IndexScan):
    """The first entry within the bounds for each value of a field, for each value of the fields before it.

    An entry that does not tell its values is passed over alone, so a value may come more than once.
    """

    stage = "DISTINCT_SCAN"

    def __init__(
        self,
        collection: Collection,
        index: IndexSpec,
        bounds: IndexBounds,
        fields: int,
        *,
        reverse: bool,
        told: KeyDocuments | None,
        missing_counts: bool,
    ) -> None:
        """`fields` counts the fields of the key up to and with the one whose values differ.

        Where what is missing does not count, the entries of null are looked at until one is no missing value.
        """
        super().__init__(collection, index, bounds, reverse=reverse, told=told, covers=told is not None)
        self._paths = index.paths[:fields]
        self._missing_counts = missing_counts
        self._descending = list(index.descending[:fields])
        wanted = [position < fields for position in range(len(index.paths))]
        self._reader = IndexEntryReader(index.paths, index.descending, wanted)

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        self.index.state.accesses += 1
        for low, high in reversed(self.bounds.ranges) if self.reverse else self.bounds.ranges:
            last: bytes | None = None
            more = True
            while more:
                entries: list[Entry] = []
                while more and len(entries) < min(_ENTRIES, max(run.rows_wanted, 1)):
                    self.stats.seeks += 1
                    found = documents.entry_scan(
                        run.snapshot, self.index, low, high, after_key=last, reverse=self.reverse
                    )
                    entry = next(islice(found, 1), None)
                    if entry is None:
                        more = False
                        break
                    entries.append(entry)
                    prefix = self._prefix(entry)
                    if prefix is None:
                        last = entry[0]
                    elif self.reverse:
                        high, last = prefix, None
                    else:
                        low, last = after(prefix), None
                    more = low < high
                if entries:
                    batch = self._taken(entries, run)
                    yield batch if len(batch) else None
        self.stats.eof = True

    def _prefix(self, entry: Entry) -> bytes | None:
        """What all keys with the same values begin with; None where the entry does not tell."""
        key, value = entry
        (told,) = self._reader.documents([(key, types_of_entry(value))])
        if told is None:
            return None
        document = decode(told)
        values = {str(place): get_path(document, split_path(path)) for place, path in enumerate(self._paths)}
        if values[str(len(values) - 1)] is MISSING and not self._missing_counts:
            return None
        values = {place: None if value is MISSING else value for place, value in values.items()}
        prefix = collated_key_string(self.index, values, self._descending)
        return prefix if key.startswith(prefix) and len(prefix) <= _PREFIX_BYTES_MAX else None


def distinct_source(collection: Collection, wanted: Wanted, indexes: Sequence[IndexSpec]) -> PlanNode | None:
    """The scan for the values that are wanted, where an index with no condition left to test leads to them."""
    by = wanted.distinct
    if by is None or wanted.skip or wanted.limit:
        return None
    found = []
    for index in indexes:
        if not tells(index) or by.path not in index.paths or not _is_usable(index, by, wanted):
            continue
        position = index.paths.index(by.path)
        bounds = BoundsMaker(index, collation_document(wanted)).make(conjuncts(wanted.matcher))
        if not has_nothing_left(index, bounds, wanted) or not lie_apart(index.paths[: position + 1]):
            continue
        if not all(field.points for field in bounds.fields[:position]):
            continue
        reverse = False
        if wanted.sort is not None:
            sorts, reverse = sort_by(index, bounds, wanted)
            if not sorts or wanted.sort.parts[0].path != by.path:
                continue
        paths = read_paths(wanted, sorts=True)
        covers = paths is not None and paths <= set(index.paths) and lie_apart(paths)
        told = KeyDocuments(collection, index, paths) if covers and paths is not None else None
        found.append((not covers, position, len(index.paths), index, bounds, reverse, told))
    if not found:
        return None
    _, position, _, index, bounds, reverse, told = min(found, key=lambda row: row[:3])
    scan = DistinctScan(
        collection,
        index,
        bounds,
        position + 1,
        reverse=reverse != by.last,
        told=told,
        missing_counts=by.missing_counts,
    )
    return scan if told is not None else Fetch(scan, collection)


def _is_usable(index: IndexSpec, by: DistinctBy, wanted: Wanted) -> bool:
    """Whether the index holds all documents that count."""
    if index.sparse and not by.missing_counts:
        # It leaves out nothing that has the field.
        return not (index.hidden or index.building or index.partial_filter is not None)
    return usable(index, conjuncts(wanted.matcher), wanted) and not (index.sparse and by.missing_counts)
