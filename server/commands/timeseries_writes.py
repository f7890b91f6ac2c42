"""The door from the writing commands to time-series collections: loaded with the first of them that is used."""

from typing import TYPE_CHECKING, Any

from ...catalog.collections import Collection
from ...catalog.index_specs import IndexSpec
from ...common.values import Document
from ...query.plan.nodes import PlanNode
from ..context import Request, Services
from ..operations import Operation
from .writing import WriteErrors

if TYPE_CHECKING:
    from .delete import DeleteStatement
    from .find_and_modify import FindAndModifyRequest
    from .update import UpdateResult, UpdateStatement, WriteOptions


async def insert_measurements_into(
    services: Services, collection: Collection, request: Request, raws: list[bytes], *, ordered: bool
) -> tuple[int, WriteErrors]:
    """Insert measurements; returns how many went in, and the failures."""
    from ...timeseries.insert import insert_measurements

    count, rows = await insert_measurements(services, collection, raws, ordered)
    services.counters.insert += len(raws)
    services.counters.documents_inserted += count
    return count, WriteErrors(list(rows))


async def update_measurements_in(
    services: Services,
    collection: Collection,
    statement: "UpdateStatement",
    options: "WriteOptions",
    operation: Operation,
) -> "UpdateResult":
    """Run one update on measurements."""
    from ...timeseries.edits import update_measurements
    from .update import UpdateResult

    matched, modified = await update_measurements(services, collection, statement, options, operation)
    return UpdateResult(matched, modified)


async def delete_measurements_in(
    services: Services,
    collection: Collection,
    statement: "DeleteStatement",
    let: Document | None,
    operation: Operation,
) -> int:
    """Run one delete on measurements; returns how many went."""
    from ...timeseries.edits import delete_measurements

    count: int = await delete_measurements(services, collection, statement, let, operation)
    return count


async def find_and_modify_measurement(
    services: Services, collection: Collection, asked: "FindAndModifyRequest", operation: Operation
) -> Document:
    """Run findAndModify on measurements; returns its reply."""
    from ...timeseries.edits import find_and_modify

    reply: Document = await find_and_modify(services, collection, asked, operation)
    return reply


def index_for_buckets(collection: Collection, spec: IndexSpec) -> IndexSpec:
    """The index on buckets that stands for one on measurements."""
    from ...timeseries.indexes import to_bucket_index

    made: Any = to_bucket_index(collection, spec)
    return made  # type: ignore[no-any-return]


def index_for_view(collection: Collection, index: IndexSpec) -> Document | None:
    """The row of `listIndexes` for an index on buckets; None where it has no counterpart on measurements."""
    from ...timeseries.indexes import to_view_index

    made: Any = to_view_index(collection, index)
    return made  # type: ignore[no-any-return]


def explain_edit(services: Services, collection: Collection, statement: Any, let: Document | None) -> PlanNode:
    """The plan that finds what an update or delete of measurements changes."""
    from ...timeseries.edits import plan_edit

    made: PlanNode = plan_edit(services, collection, statement, let)
    return made
