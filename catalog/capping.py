"""Capped copies of collections, made in one step: nobody sees half of one, and nothing is written beside it."""

from ..common.errors import NamespaceExists, NamespaceNotFound
from ..storage.engine import Transaction
from . import documents
from .catalog import Catalog
from .collections import Collection
from .namespaces import Namespace

_NOT_COPIED = ("clusteredIndex", "expireAfterSeconds", "temp")


async def copy_capped(catalog: Catalog, source: Namespace, target: Namespace, size: int) -> Collection:
    """A capped collection of `size` bytes with the newest documents of the source that fit, in their order.

    It has the options of the source, the index on `_id` and no other. Where source and target are one, the copy takes
    the place of the source.

    Raises:
        NamespaceNotFound, NamespaceExists
    """

    def work(transaction: Transaction) -> dict[Namespace, Collection | None]:
        original = catalog.collection_in(transaction, source)
        if original is None:
            raise NamespaceNotFound(f"source collection {source} does not exist")
        taken = None if target == source else catalog.collection_in(transaction, target)
        if taken is not None:
            raise NamespaceExists(f"cloneCollectionAsCapped failed - destination collection {target} already exists")
        kept = _newest(transaction, original, size)
        if target == source:
            catalog.forget(transaction, original)
        options = {name: value for name, value in original.options.items() if name not in _NOT_COPIED}
        copy = catalog.make(transaction, target, {**options, "capped": True, "size": size}, "collection", None, None)
        documents.insert_many(transaction, copy, kept)
        return {target: copy}

    (made,) = (await catalog.change(work)).values()
    assert made is not None
    catalog.sweep()
    return made


def _newest(transaction: Transaction, collection: Collection, size: int) -> list[bytes]:
    """The last documents that have room in `size` bytes together, and the last one in any case."""
    found: list[bytes] = []
    room = size
    for _, raw in documents.scan(transaction, collection, reverse=True):
        room -= len(raw)
        if room < 0 and found:
            break
        found.append(raw)
    found.reverse()
    return found
