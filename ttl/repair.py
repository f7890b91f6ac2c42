"""Puts right the lifetimes of TTL indexes that no createIndexes of today would take.

Data that older servers wrote may hold NaN, fractions or texts. What is no lifetime becomes the longest one there is, so that
nothing is lost by it; a fraction is cut.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from ..catalog.catalog import Catalog
from ..catalog.collections import Collection
from ..catalog.index_options import TTL_SECONDS_MAX
from ..catalog.index_specs import IndexSpec
from ..common.numbers import is_number
from .rules import whole_seconds

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


async def repair_lifetimes(catalog: Catalog, logger: "FilteringBoundLogger") -> int:
    """Store a lifetime that is one in every TTL index that has another; returns how many there were."""
    count = 0
    for collection in catalog.all_collections():
        wrong = {index.id: lifetime for index in collection.indexes if (lifetime := _repaired(index)) is not None}
        if not wrong:
            continue
        await catalog.modify(collection.namespace, partial(_with_lifetimes, lifetimes=wrong))
        count += len(wrong)
        for index in collection.indexes:
            if index.id in wrong:
                logger.warning(
                    "Fixed the expireAfterSeconds of a TTL index",
                    component="INDEX",
                    ctx="TTLMonitor",
                    namespace=str(collection.namespace),
                    index=index.name,
                    was=str(index.document["expireAfterSeconds"]),
                    now=wrong[index.id],
                )
    return count


def _repaired(index: IndexSpec) -> int | None:
    """The lifetime that a TTL index should have, where it has another."""
    if "expireAfterSeconds" not in index.document:
        return None
    value: Any = index.document["expireAfterSeconds"]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TTL_SECONDS_MAX:
        return None
    if is_number(value) and 0 <= float(str(value)) <= TTL_SECONDS_MAX:
        return whole_seconds(value)
    return TTL_SECONDS_MAX


def _with_lifetimes(collection: Collection, *, lifetimes: dict[int, int]) -> Collection:
    changed = []
    for index in collection.indexes:
        seconds = lifetimes.get(index.id)
        if seconds is not None:
            original = index.document.get("originalSpec")
            shown = {} if original is None else {"originalSpec": {**original, "expireAfterSeconds": seconds}}
            changed.append(index.with_options(expireAfterSeconds=seconds, **shown))
        else:
            changed.append(index)
    return collection.with_changes(indexes=tuple(changed))
