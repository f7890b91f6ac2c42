"""`aggregate`, `count` and `distinct`: what is computed from documents."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from bson import Decimal128, Int64

from ...catalog.collections import Collection
from ...common.collation import Collation
from ...common.errors import APIStrictError, BadValue, FailedToParse, InvalidNamespace, Location, TypeMismatch
from ...common.limits import DOCUMENT_BYTES_MAX
from ...common.numbers import is_number
from ...common.ordering import order_key
from ...common.paths import path_values, split_path
from ...common.values import MISSING, Document, decode, encode
from ...protocol.documents import elements
from ...protocol.replies import Reply
from ...query.match.base import AlwaysTrue
from ...query.plan.index_scans import IndexScan
from ...query.plan.nodes import PlanNode
from ...query.plan.planner import Planned, Wanted
from ...query.plan.scans import Fetch
from ...query.plan.shaping import CountRecords, CountRows
from ...query.plan.wanted import DistinctBy
from ..context import Context, Request, Services
from .arguments import REQUIRED, Fields, whole_number
from .base import Command
from .pipelines import is_collectionless, needs_no_collection, plan_pipeline
from .reading import (
    Read,
    Source,
    check_collection_uuid,
    collation_for,
    execution_of,
    first_reply,
    let_variables,
    note_use,
    parse_query,
    plan_collection,
    refuse_variables_of_server,
    resolve,
    take_batch_size,
    take_collation,
    take_hint,
)

AGGREGATE_FIELDS: Final = frozenset(
    {
        "allowDiskUse", "bypassDocumentValidation", "bypassEmptyTsReplacement", "collation", "collectionUUID",
        "cursor", "encryptionInformation", "explain", "exchange", "fromMongos", "fromRouter", "hint",
        "includeQueryStatsMetrics", "isHybridSearch", "isMapReduceCommand", "let", "needsMerge",
        "needsSortedMerge", "passthroughToShard", "pipeline", "querySettings", "requestReshardingResumeToken",
        "requestResumeToken", "resumeAfter", "runtimeConstants", "startAt", "translatedForViewlessTimeseries",
    }
)  # fmt: skip


_NOT_STABLE: Final = frozenset(
    {
        "$currentOp", "$indexStats", "$listLocalSessions", "$listSessions", "$planCacheStats", "$search",
        "$searchMeta", "$vectorSearch", "$listSearchIndexes", "$queryStats", "$querySettings", "$listCatalog",
        "$listClusterCatalog", "$listSampledQueries", "$rankFusion", "$scoreFusion",
    }
)  # fmt: skip
"""Stages that are not in version 1 of the stable API."""


class AggregateRequest:
    """The fields of an aggregate, read and checked."""

    def __init__(self, services: Services, request: Request, *, explained: bool = False) -> None:
        fields = Fields(request, "aggregate", known=AGGREGATE_FIELDS)
        value = fields.take_any("aggregate")
        self.collectionless = False
        if is_number(value):
            if float(str(value)) != 1:
                raise BadValue("Invalid command format: the 'aggregate' field must specify a collection name or 1")
            self.collectionless = True
        self.explain = _plain_bool(fields, "explain", default=False)
        self.pipeline = check_pipeline(fields)
        if self.pipeline and "$planCacheStats" in self.pipeline[0]:
            _check_options_once(request.raw, ("pipeline", "0", "$planCacheStats"))
        if request.generic.api_strict:
            self._check_strict()
        if "cursor" not in request.body and not self.explain and not explained:
            raise FailedToParse("The 'cursor' option is required, except for aggregate with the explain argument")
        self.batch_size = None
        if "cursor" in request.body:
            cursor = fields.take_any("cursor")
            if not isinstance(cursor, dict):
                raise fields.wrong_type("cursor", cursor, "type 'object'")
            self.batch_size = take_batch_size(fields, cursor)
        self.allow_disk_use = _plain_bool(fields, "allowDiskUse", default=True)
        self.bypass_validation = fields.take_bool("bypassDocumentValidation", default=False)
        self.collation = take_collation(fields)
        self.let = fields.take_document("let", default=None)
        self.hint = take_hint(fields)
        from ...catalog.namespaces import Namespace

        if self.collectionless:
            self.namespace = Namespace(request.database, "$cmd.aggregate")
            request.operation.namespace = str(self.namespace)
            self._check_collectionless()
        else:
            self.namespace = fields.take_namespace("aggregate")
            if self.pipeline and needs_no_collection(self.pipeline[0]):
                raise InvalidNamespace(f"{next(iter(self.pipeline[0]))} must be run with {{aggregate: 1}}")
            check_collection_uuid(fields, services.catalog, self.namespace)
        if self.explain and request.generic.write_concern is not None:
            raise FailedToParse("Aggregate command does not support both explain and writeConcern")

    def _check_strict(self) -> None:
        """Refuse what is not in version 1 of the stable API."""
        if self.explain:
            raise APIStrictError("the 'explain' field of aggregate is not allowed with apiStrict:true in API Version 1")
        for stage in self.pipeline:
            name = next(iter(stage), "")
            counts_alone = name == "$collStats" and list(stage[name] if isinstance(stage[name], dict) else ()) != [
                "count"
            ]
            if name in _NOT_STABLE or counts_alone:
                raise APIStrictError(f"stage {name} is not allowed with apiStrict:true in API Version 1")

    def _check_collectionless(self) -> None:
        if not self.pipeline or not is_collectionless(self.pipeline[0]):
            first = next(iter(self.pipeline[0]), "") if self.pipeline else ""
            raise InvalidNamespace(
                f"{{aggregate: 1}} is not valid for '{first}'; a collection is required."
                if first
                else "{aggregate: 1} is not valid for an empty pipeline."
            )


def _check_options_once(raw: bytes, path: Sequence[str]) -> None:
    """Refuse a document within a raw request that holds a field twice, which nothing shows once it is decoded.

    Raises:
        FailedToParse
    """
    for part in path:
        found = next(
            (raw[start:end] for kind, name, start, end in elements(raw) if name == part and kind in (3, 4)), None
        )
        if found is None:
            return
        raw = found
    names = [name for _, name, _, _ in elements(raw)]
    if len(set(names)) < len(names):
        raise FailedToParse(f"{path[-1]} parameters object may contain a field only once")


def _plain_bool(fields: Fields, name: str, *, default: bool) -> bool:
    """A bool and nothing else, null not either."""
    value = fields.take_any(name, default=default)
    if not isinstance(value, bool):
        raise fields.wrong_type(name, value, "type 'bool'")
    return value


def check_pipeline(fields: Fields) -> list[Document]:
    """The stages of a request, each a document.

    Raises:
        TypeMismatch: it is no array, or an element no document.
        Location: 7749501, more stages than a pipeline may have.
    """
    pipeline = fields.take_any("pipeline", default=REQUIRED)
    if not isinstance(pipeline, list):
        raise TypeMismatch("'pipeline' option must be specified as an array")
    for stage in pipeline:
        if not isinstance(stage, dict):
            raise TypeMismatch("Each element of the 'pipeline' array must be an object")
    if len(pipeline) > 1000:
        raise Location(7749501, "Pipeline length must be no longer than 1000 stages")
    return pipeline


class Aggregate(Command):
    """`aggregate`."""

    name = "aggregate"
    summary = "Runs a pipeline over a collection."
    reads = True
    writes = True
    in_api_version_1 = True
    op = "query"

    def changes_data(self, request: Request) -> bool:
        """See `Command.changes_data`: only where the pipeline ends in a stage that writes."""
        pipeline = request.body.get("pipeline")
        last = pipeline[-1] if isinstance(pipeline, list) and pipeline else None
        return isinstance(last, dict) and ("$out" in last or "$merge" in last)

    async def run(self, context: Context, request: Request) -> Document | Reply:
        """Answer the first batch."""
        asked = AggregateRequest(context.services, request)
        if asked.explain:
            from .explain import explain_read, explaining

            read = plan_aggregate(explaining(context), request, asked)
            return await explain_read(context, request, read, "queryPlanner", request.body)
        read = plan_aggregate(context, request, asked)
        if read.writer is not None:
            written: bytes = await read.writer(context, request, read)
            return written
        return await first_reply(context, request, read, batch_size=asked.batch_size, keeps_empty=True)


def plan_aggregate(context: Context, request: Request, asked: AggregateRequest) -> Read:
    """The plan of an aggregate."""
    return plan_pipeline(
        context.services,
        asked.namespace,
        asked.pipeline,
        operation=request.operation,
        collation=asked.collation,
        let=asked.let,
        hint=asked.hint,
        allow_disk_use=asked.allow_disk_use,
        bypass_validation=asked.bypass_validation,
        collectionless=asked.collectionless,
    )


class CountRequest:
    """The fields of a count, read and checked."""

    def __init__(self, services: Services, request: Request) -> None:
        fields = Fields(
            request,
            known=(
                "query", "limit", "skip", "hint", "collation", "fields", "queryFields", "collectionUUID",
                "encryptionInformation", "includeQueryStatsMetrics", "querySettings", "isTimeseriesNamespace",
            ),
        )  # fmt: skip
        self.namespace = fields.take_namespace()
        self.query = fields.take_document("query", default={})
        self.limit = _count_limit(fields.take_any("limit", default=0))
        self.skip = int(fields.take_whole_number("skip", default=0, low=0))
        self.hint = take_hint(fields)
        self.collation = take_collation(fields)
        fields.take_any("fields")
        check_collection_uuid(fields, services.catalog, self.namespace)


def _count_limit(value: Any) -> int:
    """The limit of a count; its sign does not matter.

    Raises:
        BadValue: no number, or the least int64.
        FailedToParse: a number that is no int64.
    """
    if not is_number(value):
        raise BadValue("limit value is not a valid number")
    if isinstance(value, float | Decimal128):
        number = float(str(value))
        if not math.isfinite(number) or not -(2.0**63) <= number < 2.0**63:
            raise FailedToParse(f"Cannot represent as a 64-bit integer: limit: {value}")
        if number != int(number):
            raise FailedToParse(f"Expected an integer: limit: {value}")
    limit = whole_number(value)
    if limit == -(2**63):
        raise BadValue("Limit value for count cannot be min long")
    return abs(limit)


class CountCommand(Command):
    """`count`."""

    name = "count"
    summary = "Counts documents of a collection."
    reads = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how many match."""
        services = context.services
        asked = CountRequest(services, request)
        read = plan_count(context, request, asked)
        execution = execution_of(services, read)
        rows = (await execution.next_batch(1, watch=request.operation)).raws()
        execution.close()
        note_use(services, read, request)
        count = int(next(iter(decode(rows[0]).values()))) if rows else 0
        return {"n": count if count < 2**31 else Int64(count)}


def plan_count(context: Context, request: Request, asked: CountRequest) -> Read:
    """The plan of a count; its one row holds the count alone."""
    services = context.services
    refuse_variables_of_server(asked.query)
    source = resolve(services.catalog, asked.namespace)
    if not source.is_plain:
        stages: list[Document] = [{"$match": asked.query}]
        if asked.skip:
            stages.append({"$skip": asked.skip})
        if asked.limit:
            stages.append({"$limit": asked.limit})
        stages.append({"$count": "count"})
        return plan_pipeline(
            services, asked.namespace, stages, operation=request.operation, collation=asked.collation, hint=asked.hint
        )
    collation = collation_for(asked.collation, source)
    variables = let_variables(services, None)
    matcher = parse_query(asked.query, collation, variables)
    wanted = Wanted(
        matcher=matcher,
        collation=collation,
        hint=asked.hint,
        reads=frozenset(),
        at_most=asked.skip + asked.limit if asked.limit else 0,
    )
    planned = plan_collection(services, source, wanted)
    counted = _counted(source.collection, planned, wanted)
    root: PlanNode = CountRows(counted, skip=asked.skip, limit=asked.limit)
    return Read(
        root=root,
        namespace=asked.namespace,
        source=source,
        leaf=replace(planned, root=root),
        matcher=matcher,
        variables=variables,
        collation=collation,
    )


def _counted(collection: Collection | None, planned: Planned, wanted: Wanted) -> PlanNode:
    """What is counted: without a filter, the count that is kept."""
    if collection is not None and isinstance(wanted.matcher, AlwaysTrue) and wanted.hint is None:
        return CountRecords(collection)
    root = planned.root
    scan = root
    if isinstance(root, Fetch) and root.matcher is None:
        # The entries say it all: no document is looked at.
        (scan,) = root.inputs
    if isinstance(scan, IndexScan):
        scan.count_alone()
        return scan
    return root


class DistinctRequest:
    """The fields of a distinct, read and checked."""

    def __init__(self, services: Services, request: Request) -> None:
        fields = Fields(
            request,
            known=("key", "query", "collation", "hint", "collectionUUID", "includeQueryStatsMetrics", "querySettings",
                   "isTimeseriesNamespace"),
        )  # fmt: skip
        self.namespace = fields.take_namespace()
        self.key = fields.take_string("key")
        if "\0" in self.key:
            raise Location(31032, "Key field cannot contain an embedded null byte")
        self.query = fields.take_document("query", default={})
        self.collation = take_collation(fields)
        self.hint = take_hint(fields)
        check_collection_uuid(fields, services.catalog, self.namespace)


class Distinct(Command):
    """`distinct`."""

    name = "distinct"
    summary = "Lists the different values of a field."
    reads = True
    op = "query"

    async def run(self, context: Context, request: Request) -> Document | Reply:
        """Answer the values, each once, in order."""
        services = context.services
        asked = DistinctRequest(services, request)
        read = plan_distinct(context, request, asked)
        execution = execution_of(services, read)
        values = DistinctValues(asked.key, read.collation)
        try:
            while (batch := await execution.next_rows(watch=request.operation)) is not None:
                for document in batch.documents():
                    values.add(document)
        finally:
            execution.close()
        note_use(services, read, request)
        if not read.source.is_plain:
            # What went through a pipeline is answered with another type of `ok`.
            return encode({"values": values.in_order(), "ok": 1})
        return {"values": values.in_order()}


class DistinctValues:
    """Collects the different values at a path; elements of arrays count one by one."""

    def __init__(self, key: str, collator: Collation | None) -> None:
        self._parts = split_path(key)
        self._collator = collator
        self._found: dict[Any, Any] = {}
        self._bytes = 0

    def add(self, document: Document) -> None:
        """Note the values of one document.

        Raises:
            Location: 17217, more than a reply can hold.
        """
        for value in path_values(document, self._parts, expand=False):
            if value is MISSING:
                continue
            for item in value if isinstance(value, list) else (value,):
                key = order_key(item, self._collator)
                if key not in self._found:
                    self._found[key] = item
                    self._bytes += len(encode({"": item})) + 4
                    if self._bytes > DOCUMENT_BYTES_MAX:
                        raise Location(17217, "distinct too big, 16mb cap")

    def in_order(self) -> list[Any]:
        """The values, sorted."""
        return [self._found[key] for key in sorted(self._found)]


def plan_distinct(context: Context, request: Request, asked: DistinctRequest) -> Read:
    """The plan that finds the documents whose values count."""
    services = context.services
    refuse_variables_of_server(asked.query)
    source: Source = resolve(services.catalog, asked.namespace)
    if not source.is_plain:
        stages: list[Document] = [{"$match": asked.query}]
        first = asked.key.partition(".")[0]
        if source.is_timeseries and first and not first.startswith("$"):
            # Each value of the field once, which columns tell; what is missing stays so.
            stages += [{"$group": {"_id": {"v": f"${first}"}}}, {"$replaceWith": {first: "$_id.v"}}]
        return plan_pipeline(
            services,
            asked.namespace,
            stages,
            operation=request.operation,
            collation=asked.collation,
            hint=asked.hint,
        )
    collation = collation_for(asked.collation, source)
    variables = let_variables(services, None)
    matcher = parse_query(asked.query, collation, variables)
    wanted = Wanted(
        matcher=matcher,
        collation=collation,
        hint=asked.hint,
        reads=frozenset((asked.key,)),
        # Strings that are equal under a collation are one value, and which of them is told is that of the first document.
        distinct=DistinctBy(asked.key, missing_counts=False) if collation is None else None,
    )
    planned = plan_collection(services, source, wanted)
    return Read(
        root=planned.root,
        namespace=asked.namespace,
        source=source,
        leaf=planned,
        matcher=matcher,
        variables=variables,
        collation=collation,
    )
