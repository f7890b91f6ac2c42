"""Making anew what can be made from the documents: indexes and counts."""

from collections.abc import Iterable

from ..catalog.catalog import Catalog
from ..catalog.checking import CollectionCheck
from ..catalog.collections import Collection


async def repair_collection(catalog: Catalog, found: CollectionCheck) -> None:
    """Make broken indexes anew, and wrong counts.

    Raises:
        DuplicateKey: as `rebuild_indexes`.
    """
    await rebuild_indexes(catalog, found.collection, sorted(found.broken_indexes))
    if found.counts_are_wrong:
        await catalog.correct_counts(found.collection.namespace)


async def rebuild_indexes(catalog: Catalog, collection: Collection, names: Iterable[str]) -> None:
    """Make indexes anew from the documents; one after another, so that most of them can be used meanwhile.

    Raises:
        DuplicateKey: two documents have a key that a unique index takes once.
    """
    for name in names:
        index = collection.index(name)
        if index is not None and index.is_id:
            await catalog.rebuild_index(collection.namespace, name)
        elif index is not None:
            await catalog.drop_indexes(collection.namespace, [name])
            await catalog.create_indexes(collection.namespace, [index.with_changes(id=0)])
