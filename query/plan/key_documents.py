"""Documents told from the entries of an index, where the entries say enough."""

from collections.abc import Collection as Some
from collections.abc import Sequence

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.index_entries import record_of_entry, types_of_entry
from ...catalog.index_specs import IndexSpec
from ...common.values import decode, encode
from ...kernels import IndexEntryReader
from ...storage.engine import Snapshot
from ..projection_nodes import ProjectionNode

_NOTHING = encode({})


def tells(index: IndexSpec) -> bool:
    """Whether the entries of an index say which values they were made from."""
    return index.kind == "btree" and index.collation is None and not index.multikey


def lie_apart(paths: Some[str]) -> bool:
    """Whether no path lies below another."""
    return not any(other.startswith(path + ".") for path in paths for other in paths)


class KeyDocuments:
    """Documents of some of the paths of an index, made of its entries; read where an entry does not tell them."""

    def __init__(self, collection: Collection, index: IndexSpec, paths: Some[str]) -> None:
        """`paths` are paths of the index that lie apart."""
        self._collection = collection
        self.paths = frozenset(paths)
        self._reader = IndexEntryReader(index.paths, index.descending, [path in self.paths for path in index.paths])
        self._kept = _inclusion([path for path in index.paths if path in self.paths])
        self.documents_read = 0

    def raws(self, snapshot: Snapshot, entries: Sequence[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes]]:
        """Record keys and raw documents of entries, each given as its key and what it holds."""
        record_keys = [record_of_entry(value) for _, value in entries]
        if not self.paths:
            return record_keys, [_NOTHING] * len(entries)
        told = self._reader.documents([(key, types_of_entry(value)) for key, value in entries])
        if None not in told:
            return record_keys, [raw for raw in told if raw is not None]
        found = [
            (key, raw)
            for key, one in zip(record_keys, told, strict=True)
            if (raw := self._read(snapshot, key) if one is None else one) is not None
        ]
        return [key for key, _ in found], [raw for _, raw in found]

    def _read(self, snapshot: Snapshot, record_key: bytes) -> bytes | None:
        raw = documents.fetch(snapshot, self._collection, record_key)
        if raw is None:
            return None
        self.documents_read += 1
        document = decode(raw)
        return encode(self._kept.apply(document, document, {}))


def _inclusion(paths: Sequence[str]) -> ProjectionNode:
    root = ProjectionNode(inclusion=True)
    for path in paths:
        *above, last = path.split(".")
        node = root
        for part in above:
            node = node.child(part)
        node.named.add(last)
    root.finish()
    return root
