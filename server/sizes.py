"""Sizes of what is stored, for the commands that tell them."""

import os
from collections.abc import Iterable
from itertools import islice
from typing import Final

from ..catalog.catalog import Catalog
from ..catalog.collections import Collection
from ..catalog.index_specs import IndexSpec
from ..storage.engine import Snapshot
from ..storage.keys import after, number_key

_KEYS_COUNTED_MAX: Final = 1000
_KEY_OVERHEAD_BYTES: Final = 8
"""What LMDB keeps for each entry of a page beside key and value."""


def index_bytes(snapshot: Snapshot, index: IndexSpec, documents: int) -> int:
    """Bytes of an index: exact where it is small, else as many as the number of documents lets expect."""
    prefix = number_key(index.id)
    size = count = 0
    for key, value in islice(snapshot.scan("indexes", prefix, after(prefix)), _KEYS_COUNTED_MAX):
        size += len(key) + len(value) + _KEY_OVERHEAD_BYTES
        count += 1
    return size if count < _KEYS_COUNTED_MAX else size * max(documents, count) // count


def all_index_bytes(snapshot: Snapshot, collection: Collection, documents: int) -> int:
    """The same for all indexes of a collection."""
    return sum(index_bytes(snapshot, index, documents) for index in collection.indexes)


def bytes_on_disk(snapshot: Snapshot, catalog: Catalog, collections: Iterable[Collection]) -> int:
    """Documents and indexes of some collections."""
    size = 0
    for collection in collections:
        if not collection.is_view:
            documents, data_bytes = catalog.counts(collection, snapshot)
            size += data_bytes + all_index_bytes(snapshot, collection, documents)
    return size


def disk_bytes(path: str) -> tuple[int, int]:
    """Used bytes and all bytes of the file system that holds the path."""
    try:
        status = os.statvfs(path)
    except OSError:
        return 0, 0
    total = status.f_frsize * status.f_blocks
    return total - status.f_frsize * status.f_bavail, total
