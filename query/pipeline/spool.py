"""Rows kept for another reading: in memory up to a bound, beyond that in a temporary file."""

import tempfile
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import IO, Any, Final

from ...common.errors import MongoError, QueryExceededMemoryLimitNoDiskUseAllowed
from ...common.ordering import Collator
from ...common.values import Document, decode, encode
from ..plan.batches import Batch, Metadata, RowBatch
from ..plan.nodes import Run
from ..sort import Sorter, SortKey, SortPattern

_FRAME_BYTES: Final = 8


class Spool:
    """Batches in the order they came, to be read any number of times."""

    def __init__(self, stage: str, run: Run) -> None:
        self._stage = stage
        self._run = run
        self._batches: list[Batch] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def add(self, batch: Batch) -> None:
        """Keep a batch.

        Raises:
            QueryExceededMemoryLimitNoDiskUseAllowed: the rows do not fit and may not go to disk.
        """
        if self._file is not None:
            self._write(batch)
            return
        self._batches.append(batch)
        self._bytes += sum(len(raw) for raw in batch.raws())
        if self._bytes <= (self._run.facet_bytes_max if self._run.allow_disk_use else self._run.memory_bytes_max):
            return
        if not self._run.allow_disk_use:
            raise QueryExceededMemoryLimitNoDiskUseAllowed(
                f"Exceeded memory limit for {self._stage}, but didn't allow external spilling. Pass allowDiskUse:true to "
                "opt in."
            )
        # Nobody but this spool can open it.
        self._file = tempfile.TemporaryFile(dir=self._run.spill_folder)  # noqa: SIM115 (closed by `close`)
        for kept in self._batches:
            self._write(kept)
        self._batches = []

    def read(self) -> Iterator[Batch]:
        """All batches again. One reading at a time."""
        if self._file is None:
            yield from self._batches
            return
        self._file.seek(0)
        while head := self._file.read(_FRAME_BYTES):
            rows = int.from_bytes(head[:4], "little")
            yield self._read_batch(rows, has_metadata=head[4] == 1)

    def close(self) -> None:
        """Give up the rows."""
        self._batches = []
        if self._file is not None:
            self._file.close()

    def _write(self, batch: Batch) -> None:
        assert self._file is not None
        metadata = batch.metadata
        self._file.write(len(batch).to_bytes(4, "little") + bytes((metadata is not None, 0, 0, 0)))
        for raw in batch.raws():
            self._file.write(raw)
        for beside in metadata or ():
            self._file.write(encode(beside))

    def _read_batch(self, rows: int, *, has_metadata: bool) -> Batch:
        raws = [self._document() for _ in range(rows)]
        metadata: list[Metadata] | None = [decode(self._document()) for _ in range(rows)] if has_metadata else None
        return RowBatch(raws=raws, metadata=metadata)

    def _document(self) -> bytes:
        assert self._file is not None
        head = self._file.read(4)
        return head + self._file.read(int.from_bytes(head, "little") - 4)


class ComputedOrder(SortPattern):
    """An order by whatever a function makes of a document; for sorting beyond memory."""

    def __init__(self, key: Any) -> None:
        super().__init__(())
        self._computed = key

    def key(self, document: Document, metadata: Metadata | None = None, collator: Collator | None = None) -> SortKey:
        """See `SortPattern.key`."""
        found: SortKey = self._computed(document)
        return found


class OrderedRows:
    """Documents with what orders them, given back in that order; on disk where they do not fit into memory."""

    def __init__(
        self, run: Run, keyed: Callable[[Document], tuple[Any, Any]], refused: Callable[[int], MongoError]
    ) -> None:
        """`keyed` tells the key and the value that a document is ordered by; `refused` what is raised without disk."""
        self._run = run
        self._keyed = keyed
        self._refused = refused
        self._rows: list[tuple[Any, Any, Document]] = []
        self._bytes = 0
        self._row_bytes = 0
        self._sorter: Sorter | None = None
        self.count = 0

    def add(self, document: Document) -> Any:
        """Take a document; answers the value that it is ordered by.

        Raises:
            MongoError: the rows do not fit and may not go to disk.
        """
        key, value = self._keyed(document)
        if not self.count % 32:
            self._row_bytes = 2 * len(encode(document)) + 200
        self.count += 1
        if self._sorter is not None:
            self._sorter.add(document)
            return value
        self._rows.append((key, value, document))
        self._bytes += self._row_bytes
        if self._bytes > self._run.memory_bytes_max:
            if not self._run.allow_disk_use:
                raise self._refused(self._bytes)
            order = ComputedOrder(lambda one: (self._keyed(one)[0],))
            self._sorter = Sorter(
                order, memory_bytes_max=self._run.memory_bytes_max, spill_folder=self._run.spill_folder
            )
            for _, _, kept in self._rows:
                self._sorter.add(kept)
            self._rows = []
        return value

    def results(self) -> Iterator[tuple[Any, Any, Document]]:
        """Key, value and document of each, in order. Once, when all have been added."""
        if self._sorter is None:
            self._rows.sort(key=itemgetter(0))
            yield from self._rows
            return
        for row, _ in self._sorter.results():
            document = decode(row) if isinstance(row, bytes) else row
            yield *self._keyed(document), document

    def close(self) -> None:
        """Give up the rows."""
        self._rows = []
        if self._sorter is not None:
            self._sorter.close()
