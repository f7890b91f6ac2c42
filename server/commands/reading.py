"""What the commands that read share: which collection a name stands for, the plan for it, and the cursor over its rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bson import DatetimeMS

from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.namespaces import Namespace
from ...common.collation import Collation
from ...common.errors import (
    BadValue,
    CollectionUUIDMismatch,
    FailedToParse,
    InvalidUUID,
    Location,
    OptionNotSupportedOnView,
    QueryPlanKilled,
    TypeMismatch,
    ViewDepthLimitExceeded,
)
from ...common.limits import FIRST_BATCH_DOCUMENTS
from ...common.numbers import is_number
from ...common.values import Document, type_name
from ...kernels import RowArray
from ...protocol.replies import Reply
from ...query.execute import Execution, MemoryLimits
from ...query.match.base import AlwaysTrue, MatchNode
from ...query.match.parse import parse_filter
from ...query.plan.nodes import PlanNode
from ...query.plan.plan_cache import PlanCache
from ...query.plan.planner import Planned, Wanted, plan_find
from ..context import Context, Request, Services
from ..exact_expiry import hide_expired
from .answering import answer_rows
from .arguments import Fields

_UUID_BYTES: Final = 16
VIEW_DEPTH_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Source:
    """What a name stands for.

    Attributes:
        namespace: the name that was asked for.
        collection: the collection that is read in the end, or the view of a time-series collection; None where there is
            none.
        pipeline: the stages of the views on the way, to be run first.
        is_view: whether the name is that of a view.
        collation: the default collation of what was asked for.
    """

    namespace: Namespace
    collection: Collection | None
    pipeline: tuple[Document, ...] = ()
    is_view: bool = False
    collation: Collation | None = None

    @property
    def is_timeseries(self) -> bool:
        """Whether what is read in the end are the measurements of a time-series collection."""
        return self.collection is not None and self.collection.kind == "timeseries"

    @property
    def is_plain(self) -> bool:
        """Whether the collection can be read as it is."""
        return not self.is_view and not self.is_timeseries


def resolve(catalog: Catalog, namespace: Namespace) -> Source:
    """Follow views down to the collection that they read.

    Raises:
        ViewDepthLimitExceeded: more views than may stand on each other.
    """
    collection = catalog.get(namespace)
    if collection is None or collection.kind != "view":
        return Source(namespace, collection, collation=None if collection is None else collection.collation)
    asked = collection
    pipeline: list[Document] = []
    for _ in range(VIEW_DEPTH_MAX + 1):
        pipeline = [*collection.pipeline, *pipeline]
        below = Namespace(namespace.database, collection.view_on or "")
        found = catalog.get(below)
        if found is None or found.kind != "view":
            return Source(namespace, found, tuple(pipeline), is_view=True, collation=asked.collation)
        collection = found
    raise ViewDepthLimitExceeded(f"View depth too deep or view cycle detected; maximum depth is {VIEW_DEPTH_MAX}")


def check_collection_uuid(fields: Fields, catalog: Catalog, namespace: Namespace) -> None:
    """Refuse the request where it names another collection by its UUID."""
    wanted = fields.take_any("collectionUUID")
    if wanted is None:
        return
    if not isinstance(wanted, bytes) or getattr(wanted, "subtype", 0) != 4:
        raise fields.wrong_type("collectionUUID", wanted, "type 'binData'")
    if len(wanted) != _UUID_BYTES:
        raise InvalidUUID("uuid must be a 16-byte binary field with UUID (4) subtype")
    found = catalog.get(namespace)
    if found is not None and found.kind == "collection" and found.uuid.bytes == bytes(wanted):
        return
    actual = next((one.namespace for one in catalog.all_collections() if one.uuid.bytes == bytes(wanted)), None)
    same_database = actual is not None and actual.database == namespace.database
    raise CollectionUUIDMismatch(
        "Collection UUID does not match that specified",
        extra={
            "db": namespace.database,
            "collectionUUID": wanted,
            "expectedCollection": namespace.collection,
            "actualCollection": actual.collection if actual is not None and same_database else None,
        },
    )


def take_collation(fields: Fields, name: str = "collation") -> Document | None:
    """The collation of a request; an empty document counts as none."""
    document = fields.take_document(name, default=None)
    return document or None


def collation_for(asked: Document | None, source: Source) -> Collation | None:
    """The collation to compare with: the request's, else that of the collection.

    Raises:
        OptionNotSupportedOnView: a view has another one.
    """
    if asked is None:
        return source.collation
    collation = Collation.parse(asked)
    if source.is_view and document_of(collation) != document_of(source.collation):
        raise OptionNotSupportedOnView(f"Cannot override a view's default collation: {source.namespace}")
    return collation


def document_of(collation: Collation | None) -> Document | None:
    """The options of a collation; None where strings compare byte by byte."""
    return None if collation is None else collation.to_document()


def take_hint(fields: Fields) -> str | Document | None:
    """The index that the request wants read, by name or by key."""
    hint = fields.take_any("hint", default={})
    if isinstance(hint, dict):
        return check_natural(hint) or None
    if type(hint) is not str:
        raise FailedToParse("Hint must be a string or an object")
    return hint


def check_natural(hint: Document) -> Document:
    """A hint by key, having checked the direction of `$natural`.

    Raises:
        BadValue: it is neither 1 nor -1.
    """
    if "$natural" in hint:
        direction = hint["$natural"]
        number = float(str(direction)) if is_number(direction) else 0.0
        if number not in (1.0, -1.0) or len(hint) > 1:
            raise BadValue("$natural hint may only accept 1 or -1")
    return hint


def system_variables(services: Services) -> dict[str, Any]:
    """The values of the variables that the server gives."""
    return {"NOW": DatetimeMS(services.clock.now_ms()), "USER_ROLES": []}


def let_variables(services: Services, let: Document | None) -> dict[str, Any]:
    """The values of `let` beside those of the system; each may use the ones before it."""
    values = system_variables(services)
    if let:
        from ...query.expression.parse import ParseContext, parse_expression

        for name, spec in let.items():
            if name in ("NOW", "CLUSTER_TIME", "USER_ROLES", "JS_SCOPE", "IS_MR"):
                raise Location(4738901, f"Cannot specify a value for the system variable '{name}'")
            check_variable_name(name)
            _refuse_system_variables(spec)
            context = ParseContext(variables=frozenset(values))
            expression = parse_expression(spec, context)
            fields = expression.fields()
            if fields is None or fields:
                raise Location(
                    4890500, "Command let Expression tried to access a field, but this is not allowed because command "
                    "let expressions run before the query examines any documents.",
                )  # fmt: skip
            value = expression.evaluate({}, values)
            values[name] = value
    return values


def refuse_variables_of_server(filter: Any) -> None:
    """Some commands evaluate their filters without the variables that the server gives.

    Raises:
        Location: 51144, an expression of the filter uses one.
    """
    for name, operand in filter.items() if isinstance(filter, dict) else ():
        if name == "$expr":
            _refuse_system_variables(operand)
        elif name in ("$and", "$or", "$nor") and isinstance(operand, list):
            for one in operand:
                refuse_variables_of_server(one)


def _refuse_system_variables(spec: Any) -> None:
    """`let` is evaluated before the server gives its variables.

    Raises:
        Location: 51144, one of them is used.
    """
    if isinstance(spec, str) and spec.split(".")[0] in ("$$NOW", "$$CLUSTER_TIME", "$$USER_ROLES"):
        raise Location(51144, f"Builtin variable '{spec[2:]}' is not available")
    if isinstance(spec, list):
        for item in spec:
            _refuse_system_variables(item)
    if isinstance(spec, dict) and "$literal" not in spec:
        for item in spec.values():
            _refuse_system_variables(item)


def check_variable_name(name: str) -> None:
    """Refuse what a user may not call a variable."""
    if not name:
        raise FailedToParse("empty variable names are not allowed")
    if name != "CURRENT" and not (name[0].islower() or ord(name[0]) >= 128):
        raise FailedToParse(f"'{name}' starts with an invalid character for a user variable name")
    for character in name[1:]:
        if not (character.isalnum() or character == "_" or ord(character) >= 128):
            raise FailedToParse(f"'{name}' contains an invalid character for a variable name: '{character}'")


@dataclass(slots=True, kw_only=True)
class Read:
    """A plan that is ready to run, and what explain wants to know of it.

    Attributes:
        root: gives the rows.
        leaf: the part that reads the collection, with the plans that were not chosen.
        stages: what runs after the leaf, as (stage of the pipeline, its node), the leaf itself left out.
        matcher: the filter of the leaf.
        variables: values of `let` and of the system.
    """

    root: PlanNode
    namespace: Namespace
    source: Source
    leaf: Planned | None = None
    stages: list[tuple[Document, PlanNode]] = field(default_factory=list)
    matcher: MatchNode = field(default_factory=AlwaysTrue)
    variables: Mapping[str, Any] = field(default_factory=dict)
    allow_disk_use: bool = True
    collation: Collation | None = None
    collectionless: bool = False
    tailable: bool = False
    writer: Any = None
    """Runs the pipeline where it ends in a stage that writes."""

    @property
    def reply_namespace(self) -> str:
        """What the cursor says it reads."""
        return str(self.namespace)


def guard_of(catalog: Catalog, source: Source) -> Callable[[], None] | None:
    """A check that the collection is still the one that the plan was made for."""
    collection = source.collection
    if collection is None:
        return None
    namespace, uuid = collection.namespace, collection.uuid

    def check() -> None:
        current = catalog.get(namespace)
        if current is None or current.uuid != uuid:
            raise QueryPlanKilled(
                f"Executor error during getMore :: caused by :: collection dropped or renamed. UUID {uuid}"
                if current is None
                else f"Executor error during getMore :: caused by :: collection was replaced: {namespace}"
            )

    return check


def execution_of(services: Services, read: Read) -> Execution:
    """Ready to hand out the rows of the plan."""
    return Execution(
        read.root,
        services.engine,
        variables=read.variables,
        allow_disk_use=read.allow_disk_use,
        guard=guard_of(services.catalog, read.source),
        limits=MemoryLimits(
            int(services.parameters["internalQueryMaxBlockingSortMemoryUsageBytes"]),
            int(services.parameters["internalDocumentSourceGroupMaxMemoryBytes"]),
            int(services.parameters["internalQueryFacetBufferSizeBytes"]),
        ),
    )


def parse_query(filter: Document, collation: Collation | None, variables: Mapping[str, Any]) -> MatchNode:
    """The tree of a filter that may use the variables."""
    return parse_filter(filter, collator=collation, defined_variables=frozenset(variables))


def cached_plans(services: Services) -> PlanCache:
    """The cache of plans."""
    if services.plan_cache is None:
        services.plan_cache = PlanCache(services.clock.now_ms)
    cache: PlanCache = services.plan_cache
    return cache


def plan_collection(services: Services, source: Source, wanted: Wanted) -> Planned:
    """The plan of a query on a collection that can be read as it is."""
    services.index_filters.apply(source.collection, wanted)
    hide_expired(services, source.collection, wanted)
    with services.engine.snapshot() as snapshot:
        planned = plan_find(
            source.collection, wanted, snapshot, None if services.explaining else cached_plans(services)
        )
    planned.wanted = wanted
    planned.collection = source.collection
    return planned


async def first_reply(
    context: Context,
    request: Request,
    read: Read,
    *,
    batch_size: int | None,
    limit: int = 0,
    single_batch: bool = False,
    no_timeout: bool = False,
    await_data: bool = False,
    keeps_empty: bool = False,
    op: str = "query",
) -> Reply:
    """Run the plan for its first batch, and keep a cursor where there is more.

    `keeps_empty`: an empty batch that was asked for leaves a cursor, even if the collection is empty.
    """
    services = context.services
    execution = execution_of(services, read)
    rows_max = FIRST_BATCH_DOCUMENTS if batch_size is None else batch_size
    if limit:
        rows_max = min(rows_max, limit)
    rows = await execution.next_batch(rows_max, watch=request.operation) if rows_max else RowArray()
    services.counters.documents_returned += len(rows)
    done = execution.exhausted or single_batch or (limit and len(rows) >= limit and not read.tailable)
    if not rows_max and not limit and _has_nothing(services, read):
        done = not keeps_empty or read.source.collection is None
    if read.tailable and rows_max and not len(rows) and _has_nothing(services, read):
        done = True
    cursor_id = 0
    if done:
        execution.close()
    else:
        cursor_id = services.cursors.open(
            execution,
            read.reply_namespace,
            lsid=request.generic.lsid,
            command=request.body,
            no_timeout=no_timeout,
            tailable=read.tailable,
            await_data=await_data,
            user=context.client.user,
            extra={
                "left": limit - len(rows) if limit else None,
                "time_left_ms": request.generic.max_time_ms,
            },
        )
        request.operation.cursor_id = cursor_id
    note_use(services, read, request)
    return await answer_rows(True, cursor_id, read.reply_namespace, rows)


def note_use(services: Services, read: Read, request: Request) -> None:
    """Count what the plan read, and remember its short form."""
    if read.leaf is None:
        return
    names = []
    for node in walk(read.leaf.root):
        services.counters.keys_scanned += node.stats.keys_examined
        services.counters.documents_scanned += node.stats.docs_examined
        if not node.inputs:
            index = getattr(node, "index", None)
            names.append(node.stage if index is None else f"{node.stage} {_key_text(index.key)}")
    request.operation.plan_summary = ", ".join(names)


def _key_text(key: Document) -> str:
    return "{ " + ", ".join(f"{path}: {value}" for path, value in key.items()) + " }"


def walk(node: PlanNode) -> list[PlanNode]:
    """The node and all below it."""
    found = [node]
    for below in node.inputs:
        found += walk(below)
    return found


def _has_nothing(services: Services, read: Read) -> bool:
    """Whether there is nothing to read, as can be told without reading."""
    if read.collectionless or read.source.is_timeseries:
        return False
    collection = read.source.collection
    if collection is None:
        return True
    with services.engine.snapshot() as snapshot:
        count, _ = services.catalog.counts(collection, snapshot)
    return bool(count == 0)


def take_batch_size(fields: Fields, cursor: Any) -> int | None:
    """`cursor.batchSize` of a request that answers with a cursor; None where it does not say."""
    if cursor is None:
        return None
    if not isinstance(cursor, dict):
        raise TypeMismatch(
            f"BSON field '{fields.path('cursor')}' is the wrong type '{type_name(cursor)}', expected type 'object'"
        )
    inner = Fields(cursor, fields.path("cursor"), known=("batchSize",))
    size = inner.take_whole_number("batchSize", default=None, low=0)
    return None if size is None else int(size)
