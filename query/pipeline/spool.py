"""Rows kept for another reading: in memory up to a bound, beyond that in a temporary file."""

import tempfile
from collections.abc import Iterator
from typing import IO, Any, Final

from ...common.errors import QueryExceededMemoryLimitNoDiskUseAllowed
from ...common.ordering import Collator
from ...common.values import Document, decode, encode
from ..plan.batches import Batch, Metadata, RowBatch
from ..plan.nodes import Run
from ..sort import SortKey, SortPattern

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
        if self._bytes <= self._run.memory_bytes_max:
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
