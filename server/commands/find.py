"""`find`: documents of a collection or view, filtered, sorted, cut and shaped."""

from typing import Any, Final

from ...common.collation import Collation
from ...common.errors import BadValue, FailedToParse, InvalidNamespace, InvalidPipelineOperator
from ...common.values import Document
from ...protocol.replies import Reply
from ...query.plan.planner import Wanted
from ...query.projection import parse_projection
from ...query.sort import SortPattern, parse_sort
from ..context import Context, Request, Services
from .arguments import Fields
from .base import Command
from .pipelines import plan_pipeline
from .reading import (
    Read,
    Source,
    check_collection_uuid,
    collation_for,
    first_reply,
    let_variables,
    parse_query,
    plan_collection,
    resolve,
    take_collation,
    take_hint,
)

FIND_FIELDS: Final = frozenset(
    {
        "allowDiskUse", "allowPartialResults", "awaitData", "batchSize", "collation", "collectionUUID", "filter",
        "hint", "includeQueryStatsMetrics", "let", "limit", "max", "min", "noCursorTimeout", "oplogReplay",
        "projection", "querySettings", "resumeAfter", "requestResumeToken", "returnKey", "showRecordId", "singleBatch",
        "skip", "sort", "startAt", "tailable", "term",
    }
)  # fmt: skip


def take_filter(fields: Fields, name: str) -> Document:
    """The filter of a request; none matches everything, null is refused."""
    filter = fields.take_any(name, default={})
    if not isinstance(filter, dict):
        raise fields.wrong_type(name, filter, "type 'object'")
    return filter


class FindRequest:
    """The fields of a find, read and checked."""

    def __init__(self, services: Services, request: Request) -> None:
        fields = Fields(request, "find", known=FIND_FIELDS)
        self.namespace = fields.take_namespace()
        if self.namespace.collection.startswith("$"):
            raise InvalidNamespace(f"Invalid namespace specified '{self.namespace}'")
        check_collection_uuid(fields, services.catalog, self.namespace)
        self.filter = take_filter(fields, "filter")
        self.sort_spec = fields.take_document("sort", default={})
        self.projection_spec = fields.take_document("projection", default={})
        self.hint = take_hint(fields)
        self.skip = int(fields.take_whole_number("skip", default=0, low=0))
        self.limit = int(fields.take_whole_number("limit", default=0, low=0))
        size = fields.take_whole_number("batchSize", default=None, low=0)
        self.batch_size = None if size is None else int(size)
        self.single_batch = fields.take_bool("singleBatch", default=False)
        self.min = fields.take_document("min", default={}) or None
        self.max = fields.take_document("max", default={}) or None
        self.return_key = fields.take_bool("returnKey", default=False)
        self.show_record_id = fields.take_bool("showRecordId", default=False)
        self.tailable = fields.take_bool("tailable", default=False)
        self.await_data = fields.take_bool("awaitData", default=False)
        self.no_timeout = fields.take_bool("noCursorTimeout", default=False)
        fields.take_bool("allowPartialResults", default=False)
        fields.take_bool("oplogReplay", default=False)
        fields.take_bool("includeQueryStatsMetrics", default=False, exact=True)
        self.allow_disk_use = fields.take_bool("allowDiskUse", default=True)
        self.collation = take_collation(fields)
        self.let = fields.take_document("let", default=None)
        if self.await_data and not self.tailable:
            raise FailedToParse("Cannot set 'awaitData' without also setting 'tailable'")
        if self.tailable and self.single_batch:
            raise BadValue("Cannot use tailable option with the 'singleBatch' option")

    @property
    def natural(self) -> int:
        """1 or -1 where the order of storage is asked for."""
        direction = self.sort_spec.get("$natural")
        if direction is None:
            return 0
        if list(self.sort_spec) != ["$natural"]:
            raise BadValue("Cannot include '$natural' in compound sort")
        return natural_direction(direction)


def natural_direction(direction: Any) -> int:
    """1 or -1 of `$natural`.

    Raises:
        BadValue: any other value.
    """
    if isinstance(direction, bool) or not isinstance(direction, int | float) or direction not in (1, -1):
        raise BadValue("$natural sort cannot be set to a value other than -1 or 1.")
    return int(direction)


def find_sort(spec: Document) -> SortPattern | None:
    """The order that find asks for; None for the order of storage.

    Raises:
        Location: a bad sort.
    """
    if not spec or "$natural" in spec:
        return None
    return parse_sort(spec)


class Find(Command):
    """`find`."""

    name = "find"
    summary = "Finds documents in a collection."
    reads = True
    in_api_version_1 = True
    op = "query"

    async def run(self, context: Context, request: Request) -> Reply:
        """Answer the first batch."""
        asked = FindRequest(context.services, request)
        read = plan_request(context, request, asked)
        return await first_reply(
            context,
            request,
            read,
            batch_size=asked.batch_size,
            limit=asked.limit,
            single_batch=asked.single_batch,
            no_timeout=asked.no_timeout,
            await_data=asked.await_data,
        )


def plan_request(context: Context, request: Request, asked: FindRequest) -> Read:
    """The plan of a find, on a collection or through views."""
    services = context.services
    source = resolve(services.catalog, asked.namespace)
    collation = collation_for(asked.collation, source)
    variables = let_variables(services, asked.let)
    if not source.is_plain:
        return _plan_on_view(context, request, asked, source)
    return plan_find_request(services, asked, source, collation, variables)


def plan_find_request(
    services: Services, asked: FindRequest, source: Source, collation: Collation | None, variables: dict[str, Any]
) -> Read:
    """The plan of a find on a collection that is read as it is."""
    matcher = parse_query(asked.filter, collation, variables)
    natural = asked.natural
    sort = find_sort(asked.sort_spec)
    projection = None
    if asked.projection_spec:
        projection = parse_projection(
            asked.projection_spec, filter=matcher, collator=collation, defined_variables=frozenset(variables)
        )
    if asked.tailable:
        _check_tailable(asked, source, sort, natural)
    hint = asked.hint
    if isinstance(hint, dict) and "$natural" in hint:
        natural = natural or natural_direction(hint["$natural"])
    wanted = Wanted(
        matcher=matcher,
        sort=sort,
        natural=natural,
        skip=asked.skip,
        limit=asked.limit,
        projection=projection,
        projection_spec=asked.projection_spec or None,
        hint=hint,
        collation=collation,
        min=asked.min,
        max=asked.max,
        show_record_id=asked.show_record_id,
        return_key=asked.return_key,
        tailable=asked.tailable,
    )
    planned = plan_collection(services, source, wanted)
    return Read(
        root=planned.root,
        namespace=asked.namespace,
        source=source,
        leaf=planned,
        matcher=matcher,
        variables=variables,
        allow_disk_use=asked.allow_disk_use,
        collation=collation,
        tailable=asked.tailable,
    )


def _check_tailable(asked: FindRequest, source: Source, sort: SortPattern | None, natural: int) -> None:
    if sort is not None or natural < 0:
        raise BadValue("cannot use tailable option with a sort other than {$natural: 1}")
    if source.collection is not None and not source.collection.capped:
        raise BadValue(
            f"error processing query: ns={asked.namespace} :: caused by :: "
            "tailable cursor requested on non capped collection"
        )


def _plan_on_view(context: Context, request: Request, asked: FindRequest, source: Source) -> Read:
    """The same as a pipeline on what the view reads."""
    for name, given in (
        ("tailable", asked.tailable),
        ("returnKey", asked.return_key),
        ("showRecordId", asked.show_record_id),
    ):
        if given:
            raise InvalidPipelineOperator(f"Option {name} not supported in aggregation.")
    if asked.min is not None or asked.max is not None:
        raise InvalidPipelineOperator("Option min or max not supported in aggregation.")
    natural = asked.natural
    return plan_pipeline(
        context.services,
        asked.namespace,
        find_as_pipeline(asked, natural),
        operation=request.operation,
        collation=asked.collation,
        let=asked.let,
        hint=asked.hint if not natural else {"$natural": natural},
        allow_disk_use=asked.allow_disk_use,
    )


def find_as_pipeline(asked: FindRequest, natural: int) -> list[Document]:
    """The stages that do what the find asks for."""
    stages: list[Document] = []
    if asked.filter:
        stages.append({"$match": asked.filter})
    if asked.sort_spec and not natural:
        stages.append({"$sort": asked.sort_spec})
    if asked.skip:
        stages.append({"$skip": asked.skip})
    if asked.limit:
        stages.append({"$limit": asked.limit})
    if asked.projection_spec:
        stages.append({"$project": asked.projection_spec})
    return stages
