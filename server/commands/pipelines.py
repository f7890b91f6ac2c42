"""Pipelines onto collections, views and time-series collections: what the query planner takes, and the stages after it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ...catalog.namespaces import Namespace
from ...common.collation import Collation
from ...common.values import Document
from ...query.match.base import AlwaysTrue, MatchNode
from ...query.match.logical import And
from ...query.plan.nodes import PlanNode
from ...query.plan.planner import Wanted
from ...query.plan.shaping import Rows
from ...query.sort import SortPattern, parse_sort
from ..context import Context, Request, Services
from ..operations import Operation
from .reading import Read, Source, collation_for, let_variables, parse_query, plan_collection, resolve

if TYPE_CHECKING:
    pass

COLLECTIONLESS_STAGES: Final = frozenset(
    {"$documents", "$currentOp", "$listLocalSessions", "$changeStream", "$queryStats", "$listSessions",
     "$listMqlEntities", "$queue", "$listSampledQueries", "$querySettings", "$listCatalog", "$listClusterCatalog",
     "$shardedDataDistribution"}
)  # fmt: skip


def is_collectionless(stage: Document) -> bool:
    """Whether a pipeline that begins with this stage reads no collection."""
    return next(iter(stage), "") in COLLECTIONLESS_STAGES - {"$changeStream", "$listCatalog"} or (
        next(iter(stage), "") == "$listCatalog"
    )


class Absorbed:
    """The leading stages that the query planner does itself."""

    def __init__(self, pipeline: Sequence[Document], collation: Collation | None, variables: dict[str, Any]) -> None:
        matchers: list[MatchNode] = []
        self.sort: SortPattern | None = None
        self.skip = 0
        self.limit = 0
        self.count = 0
        """How many stages these were."""
        while self.count < len(pipeline):
            ((name, operand),) = pipeline[self.count].items()
            if name == "$match" and self.sort is None and not self.skip and not self.limit:
                matchers.append(parse_query(operand, collation, variables))
            elif name == "$sort" and self.sort is None and not self.skip and not self.limit and _is_plain(operand):
                self.sort = parse_sort(operand)
            elif name == "$skip" and not self.skip and not self.limit:
                self.skip = int(float(str(operand)))
            elif name == "$limit" and not self.limit:
                self.limit = int(float(str(operand)))
            else:
                break
            self.count += 1
        joined: MatchNode = AlwaysTrue() if not matchers else matchers[0] if len(matchers) == 1 else And(matchers)
        self.matcher = joined.simplified()


def _is_plain(sort: Document) -> bool:
    """Whether a sort goes by fields alone."""
    return bool(sort) and "$natural" not in sort and not any(isinstance(value, dict) for value in sort.values())


def plan_pipeline(
    services: Services,
    namespace: Namespace,
    pipeline: Sequence[Document],
    *,
    operation: Operation,
    collation: Document | None = None,
    let: Document | None = None,
    hint: str | Document | None = None,
    allow_disk_use: bool = True,
    bypass_validation: bool = False,
    collectionless: bool = False,
    context: Context | None = None,
    request: Request | None = None,
) -> Read:
    """The plan of a pipeline.

    Raises:
        MongoError: what is wrong with the pipeline.
    """
    source = Source(namespace, None) if collectionless else resolve(services.catalog, namespace)
    comparing = collation_for(collation, source)
    variables = let_variables(services, let)
    return PipelinePlanner(services, operation, comparing, variables, hint=hint, allow_disk_use=allow_disk_use).plan(
        namespace, source, pipeline, collectionless=collectionless
    )


class PipelinePlanner:
    """Plans pipelines of one request, those within `$lookup` and the like included."""

    def __init__(
        self,
        services: Services,
        operation: Operation,
        collation: Collation | None,
        variables: dict[str, Any],
        *,
        hint: str | Document | None = None,
        allow_disk_use: bool = True,
    ) -> None:
        self._services = services
        self._operation = operation
        self._collation = collation
        self._variables = variables
        self._hint = hint
        self._allow_disk_use = allow_disk_use

    def plan(
        self, namespace: Namespace, source: Source, pipeline: Sequence[Document], *, collectionless: bool = False
    ) -> Read:
        """The plan of a pipeline on what a name stands for."""
        raise NotImplementedError


_ = (Rows, Wanted, plan_collection, PlanNode)
