"""`explain`: how another command would be, or was, run."""

import platform
from dataclasses import replace
from typing import Any, Final

from bson import Int64

from ...common.errors import BadValue, CommandNotFound, IllegalOperation, InvalidLength
from ...common.limits import SERVER_VERSION
from ...common.values import Document, encode
from ...query.execute import Execution
from ...query.match.base import AlwaysTrue, MatchNode
from ...query.plan.batches import Batch
from ...query.plan.explain import execution_stats, query_planner
from ...query.plan.near import NearScan
from ...query.plan.nodes import PlanNode, plan_document
from ...query.plan.planner import Planned
from ...query.plan.shapes import command_shape
from ...query.plan.shaping import PassThrough
from ..context import Context, Request, Services
from .aggregate import (
    AggregateRequest,
    CountRequest,
    DistinctRequest,
    plan_aggregate,
    plan_count,
    plan_distinct,
)
from .arguments import Fields
from .base import Command
from .changing import Selection, plan_selection
from .delete import prepare_delete, read_delete_request
from .find import FindRequest, plan_request
from .find_and_modify import FindAndModifyRequest, prepare_find_and_modify
from .reading import Read, Source, cached_plans, execution_of
from .timeseries_writes import explain_edit
from .update import prepare_update, read_update_request
from .writing import refuse_view

_VERBOSITIES: Final = ("queryPlanner", "executionStats", "allPlansExecution")
_GIT_VERSION: Final = "unknown"


class Explain(Command):
    """`explain`."""

    name = "explain"
    summary = "Explains how a command is run."
    reads = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer plan and, where asked for, what it did."""
        fields = Fields(request, known=("verbosity",))
        inner = fields.take_document("explain")
        verbosity = fields.take_enum("verbosity", _VERBOSITIES, default="allPlansExecution")
        if not inner:
            raise CommandNotFound("Explain failed due to unknown command: ")
        name = next(iter(inner))
        if inner.get("$db", request.database) != request.database:
            raise BadValue(f"Mismatched $db in explain command. Expected {request.database} but got {inner['$db']}.")
        command = context.services.commands.get(name)
        if command is None:
            raise CommandNotFound(f"Explain failed due to unknown command: {name}")
        explained = replace(request, name=name, body=inner, raw=encode(inner), sequences={})
        read = _read(explaining(context), explained, command.name)
        return await explain_read(context, request, read, verbosity, inner)


def explaining(context: Context) -> Context:
    """The same for plans that are made to be shown."""
    return replace(context, services=replace(context.services, explaining=True))


def _read(context: Context, request: Request, name: str) -> Read:
    """The plan of the explained command."""
    services = context.services
    match name:
        case "find":
            return plan_request(context, request, FindRequest(services, request))
        case "aggregate":
            return plan_aggregate(context, request, AggregateRequest(services, request, explained=True))
        case "count":
            return plan_count(context, request, CountRequest(services, request))
        case "distinct":
            return plan_distinct(context, request, DistinctRequest(services, request))
        case "update":
            namespace, statements, _, options = read_update_request(services, request)
            if len(statements) != 1:
                raise InvalidLength("explained write batches must be of size 1")
            edited = _edit_of_measurements(services, namespace, statements[0], options.let)
            if edited is not None:
                return edited
            prepared = prepare_update(services, namespace, statements[0], options)
            return _write(services, namespace, prepared.selection, "UPDATE", multi=statements[0].multi)
        case "delete":
            namespace, deletes, _, let = read_delete_request(services, request)
            if len(deletes) != 1:
                raise InvalidLength("explained write batches must be of size 1")
            edited = _edit_of_measurements(services, namespace, deletes[0], let)
            if edited is not None:
                return edited
            selection = prepare_delete(services, namespace, deletes[0], let)
            stage = "BATCHED_DELETE" if deletes[0].multi else "DELETE"
            return _write(services, namespace, selection, stage, multi=deletes[0].multi)
        case "findAndModify":
            asked = FindAndModifyRequest(services, request)
            refuse_view(services.catalog, asked.namespace)
            prepared = prepare_find_and_modify(services, asked)
            stage = "DELETE" if asked.remove else "UPDATE"
            return _write(services, asked.namespace, prepared.selection, stage, multi=False)
    raise IllegalOperation(f"Explain failed due to unknown command: {name}")


def _edit_of_measurements(services: Services, namespace: Any, statement: Any, let: Document | None) -> Read | None:
    collection = refuse_view(services.catalog, namespace)
    if collection is None or collection.kind != "timeseries":
        return None
    root = explain_edit(services, collection, statement, let)
    matcher = getattr(root.inputs[0], "matcher", None)
    return Read(
        root=root,
        namespace=namespace.buckets,
        source=Source(namespace, collection),
        leaf=Planned(root, []),
        matcher=matcher if isinstance(matcher, MatchNode) else AlwaysTrue(),
    )


def _write(services: Services, namespace: Any, selection: Selection, stage: str, *, multi: bool) -> Read:
    collection = refuse_view(services.catalog, namespace)
    if not multi:
        selection.wanted.limit = 1
    planned = plan_selection(services, collection, selection)
    root = Modify(planned.root, stage)
    return Read(
        root=root,
        namespace=namespace,
        source=Source(namespace, collection),
        leaf=replace(
            planned,
            root=root,
            rejected=[Modify(node, stage) for node in planned.rejected],
            wanted=selection.wanted,
            collection=collection,
        ),
        matcher=selection.matcher,
        variables=selection.variables,
    )


class Modify(PassThrough):
    """What a write would do to the rows that it finds: they are counted, and left alone."""

    def __init__(self, source: PlanNode, stage: str) -> None:
        super().__init__(source)
        self.stage = stage
        self._rows = 0

    def see(self, batch: Batch) -> None:
        """See `PassThrough.see`."""
        self._rows += len(batch)

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        if self.stage == "UPDATE":
            return {
                "nMatched": self._rows,
                "nWouldModify": self._rows,
                "nWouldUpsert": 0,
            }
        return {"nWouldDelete": self._rows}


async def explain_read(context: Context, request: Request, read: Read, verbosity: str, command: Document) -> Document:
    """The reply for a plan, having run it where the verbosity asks for that."""
    services = context.services
    if read.writer is not None:
        read.writer.check(read)
    returned: int | None = None
    if verbosity != "queryPlanner":
        returned = await _run(services, read, request)
    if isinstance(read.root, PassThrough):
        returned = 0
    all_plans = verbosity == "allPlansExecution"
    reply: Document = {"explainVersion": "1"}
    if read.leaf is None or read.stages or read.writer is not None:
        reply["stages"] = _stages(services, read, verbosity, all_plans=all_plans)
    else:
        reply |= _sections(services, read, read.leaf, read.matcher, verbosity, returned=returned, all_plans=all_plans)
    return {
        **reply,
        "queryShapeHash": command_shape(_without_generic(command)).upper(),
        "command": {**_without_generic(command), "$db": request.database},
        "serverInfo": {
            "host": platform.node(),
            "port": services.config.port,
            "version": SERVER_VERSION,
            "gitVersion": _GIT_VERSION,
        },
        "serverParameters": _SERVER_PARAMETERS | {name: services.parameters[name] for name in _SET_BY_PARAMETER},
    }


_SERVER_PARAMETERS: Final[Document] = {
    "internalQueryFacetBufferSizeBytes": 104857600,
    "internalQueryFacetMaxOutputDocSizeBytes": 104857600,
    "internalLookupStageIntermediateDocumentMaxSizeBytes": 104857600,
    "internalDocumentSourceGroupMaxMemoryBytes": 104857600,
    "internalQueryMaxBlockingSortMemoryUsageBytes": 104857600,
    "internalQueryProhibitBlockingMergeOnMongoS": 0,
    "internalQueryMaxAddToSetBytes": 104857600,
    "internalDocumentSourceSetWindowFieldsMaxMemoryBytes": 104857600,
    "internalQueryFrameworkControl": "forceClassicEngine",
    "internalQueryPlannerIgnoreIndexWithCollationForRegex": 1,
}


_SET_BY_PARAMETER: Final = (
    "internalDocumentSourceGroupMaxMemoryBytes",
    "internalQueryMaxBlockingSortMemoryUsageBytes",
    "internalQueryFacetBufferSizeBytes",
)


def _without_generic(command: Document) -> Document:
    return {name: value for name, value in command.items() if name not in ("$db", "lsid", "$clusterTime", "maxTimeMS")}


async def _run(services: Services, read: Read, request: Request) -> int:
    """Run the plan to its end, and throw away its rows; returns how many there were."""
    execution: Execution = execution_of(services, read)
    count = 0
    try:
        while (batch := await execution.next_rows(watch=request.operation)) is not None:
            count += len(batch)
    finally:
        execution.close()
    return count


def _sections(
    services: Services,
    read: Read,
    planned: Planned,
    matcher: MatchNode,
    verbosity: str,
    *,
    returned: int | None,
    all_plans: bool,
) -> Document:
    """`queryPlanner` and, where the plan was run, `executionStats`."""
    collection = read.source.collection
    namespace = str(read.namespace if collection is None or read.source.is_timeseries else collection.namespace)
    if read.source.is_timeseries and collection is not None:
        namespace = str(collection.namespace.buckets)
    sections: Document = {"queryPlanner": query_planner(namespace, matcher, planned, cached_plans(services))}
    if verbosity != "queryPlanner":
        sections["executionStats"] = execution_stats(
            planned.root, planned.rejected, returned=returned, all_plans=all_plans
        )
    return sections


def _stages(services: Services, read: Read, verbosity: str, *, all_plans: bool) -> list[Document]:
    """The stages of a pipeline, the part that reads the collection as `$cursor` in front."""
    ran = verbosity != "queryPlanner"
    stages: list[Document] = []
    later = read.stages
    if read.leaf is not None:
        leaf = read.leaf
        near = isinstance(leaf.root, NearScan)
        sections = _sections(services, read, leaf, read.matcher, verbosity, returned=None, all_plans=all_plans)
        cursor: Document = {"$geoNearCursor" if near else "$cursor": sections}
        stages.append(_with_counts(cursor, leaf.root) if ran else cursor)
        if near:
            # The cursor stands for the stage that it is named after.
            later = later[1:]
    for stage, node in later:
        stages.append(_with_counts(stage, node) if ran else dict(stage))
    if not stages:
        stages.append(plan_document(read.root))
    if read.writer is not None:
        stages.append(dict(read.writer.stage))
    return stages


def _with_counts(stage: Document, node: PlanNode) -> Document:
    return {
        **stage,
        **node.describe_stats(),
        **node.stats.extra,
        "nReturned": Int64(node.stats.advanced),
        "executionTimeMillisEstimate": Int64(node.stats.time_ns // 1_000_000),
    }
