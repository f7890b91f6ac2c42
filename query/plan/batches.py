"""What flows between the nodes of a plan: batches of documents.

A batch carries its rows in whatever form they came in (raw BSON, decoded documents, or columns) and changes form only when
somebody asks. Metadata of rows (`textScore`, `geoNearDistance`, `recordId`, `sortKey` …) rides beside them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...common.values import Document, decode, encode
from ...kernels import RowBlock

Metadata = dict[str, Any]
Packed = tuple[RowBlock | list[bytes], int, int]
"""Rows, from one position up to and without another."""


class Batch(ABC):
    """Some rows, in order."""

    metadata: list[Metadata] | None = None
    record_keys: list[bytes] | None = None
    """Where the rows are stored, as long as they are documents of a collection."""
    unused: int = 0
    """Rows at the end that nobody looked at, told to the scan that read them when it goes on or ends."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def documents(self) -> list[Document]:
        """The rows decoded. Owned by the batch: whoever changes a document copies it first."""

    @abstractmethod
    def raws(self) -> list[bytes]:
        """The rows as raw BSON."""

    def packed(self) -> Packed:
        """The rows in the form that costs least to put into a reply, and which of that they are."""
        raws = self.raws()
        return raws, 0, len(raws)

    @abstractmethod
    def select(self, positions: Sequence[int]) -> "Batch":
        """The rows at these positions, in this order."""

    def slice(self, start: int, stop: int) -> "Batch":
        """The rows from `start` up to and without `stop`."""
        return self.select(range(start, min(stop, len(self))))


class RowBatch(Batch):
    """Rows held as raw BSON, as documents, or as both."""

    def __init__(
        self,
        *,
        raws: list[bytes] | None = None,
        documents: list[Document] | None = None,
        metadata: list[Metadata] | None = None,
        record_keys: list[bytes] | None = None,
    ) -> None:
        assert raws is not None or documents is not None
        self._raws = raws
        self._documents = documents
        self.metadata = metadata
        self.record_keys = record_keys

    def __len__(self) -> int:
        return len(self._raws) if self._raws is not None else len(self._documents or ())

    @property
    def decoded(self) -> bool:
        """Whether somebody decoded the rows, so that looking at them costs nothing."""
        return self._documents is not None

    def documents(self) -> list[Document]:
        """See `Batch.documents`; decodes once."""
        if self._documents is None:
            self._documents = [decode(raw) for raw in self._raws or ()]
        return self._documents

    def raws(self) -> list[bytes]:
        """See `Batch.raws`; encodes once."""
        if self._raws is None:
            self._raws = [encode(document) for document in self._documents or ()]
        return self._raws

    def select(self, positions: Sequence[int]) -> "RowBatch":
        """See `Batch.select`; keeps every form that is there."""
        return RowBatch(
            raws=None if self._raws is None else [self._raws[i] for i in positions],
            documents=None if self._documents is None else [self._documents[i] for i in positions],
            metadata=None if self.metadata is None else [self.metadata[i] for i in positions],
            record_keys=None if self.record_keys is None else [self.record_keys[i] for i in positions],
        )

    @staticmethod
    def joined(batches: "Sequence[RowBatch]") -> "RowBatch":
        """The rows of several batches one after the other, none of which has metadata."""
        decoded = bool(batches) and all(batch.decoded for batch in batches)
        return RowBatch(
            raws=[raw for batch in batches for raw in batch.raws()],
            documents=[document for batch in batches for document in batch.documents()] if decoded else None,
            record_keys=[key for batch in batches for key in batch.record_keys or ()],
        )


class BlockBatch(Batch):
    """Rows that the kernel holds, and that become objects of Python where somebody looks at them."""

    def __init__(self, block: RowBlock, start: int = 0, stop: int | None = None) -> None:
        """The rows of a block from `start` up to and without `stop`; None for its end."""
        self._block = block
        self._start = start
        self._stop = len(block) if stop is None else stop
        self._raws: list[bytes] | None = None
        self._documents: list[Document] | None = None

    def __len__(self) -> int:
        return self._stop - self._start

    def documents(self) -> list[Document]:
        """See `Batch.documents`; decodes once."""
        if self._documents is None:
            self._documents = [decode(raw) for raw in self.raws()]
        return self._documents

    def raws(self) -> list[bytes]:
        """See `Batch.raws`; makes them once."""
        if self._raws is None:
            self._raws = self._block.raws(self._start, self._stop)
        return self._raws

    def packed(self) -> Packed:
        """See `Batch.packed`."""
        return self._block, self._start, self._stop

    def select(self, positions: Sequence[int]) -> Batch:
        """See `Batch.select`; keeps every form that is there."""
        if self._raws is not None:
            documents = self._documents
            return RowBatch(
                raws=[self._raws[i] for i in positions],
                documents=None if documents is None else [documents[i] for i in positions],
            )
        return BlockBatch(self._block.select(np.asarray(positions, dtype=np.int64) + self._start))

    def slice(self, start: int, stop: int) -> "BlockBatch":
        """See `Batch.slice`."""
        stop = min(stop, len(self))
        return BlockBatch(self._block, self._start + min(start, stop), self._start + stop)


class RecordKeyBatch(Batch):
    """Rows of an index that have not been fetched: where they are stored and, for whoever merges, their entries' keys."""

    def __init__(self, record_keys: list[bytes], entry_keys: list[bytes] | None = None) -> None:
        self.record_keys: list[bytes] = record_keys
        self.entry_keys = entry_keys

    def __len__(self) -> int:
        return len(self.record_keys)

    def documents(self) -> list[Document]:
        """Refused: see `Fetch`."""
        raise AssertionError("entries of an index are fetched before anybody looks at documents")

    def raws(self) -> list[bytes]:
        """Refused: see `Fetch`."""
        raise AssertionError("entries of an index are fetched before anybody looks at documents")

    def select(self, positions: Sequence[int]) -> "RecordKeyBatch":
        """See `Batch.select`."""
        keys = self.entry_keys
        return RecordKeyBatch(
            [self.record_keys[i] for i in positions], None if keys is None else [keys[i] for i in positions]
        )
