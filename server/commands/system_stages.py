"""First stages of pipelines that read the server's own state: `$collStats $indexStats $currentOp $listLocalSessions` …"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from bson import DatetimeMS, Int64

from ...catalog.collections import Collection
from ...catalog.documents import stored_bytes
from ...common.errors import (
    BadValue,
    CommandNotSupportedOnView,
    FailedToParse,
    InvalidNamespace,
    Location,
    NamespaceNotFound,
    TypeMismatch,
    UnsupportedFormat,
)
from ...common.values import Document, type_name
from ...query.pipeline.base import PipelineContext, Stage
from ...query.pipeline.parse import register
from ...query.plan.batches import Batch, RowBatch
from ...query.plan.nodes import PlanNode, Run
from ...storage.engine import Snapshot
from ..authorization import visible_collections
from ..context import Client, Services
from ..machine import host_name
from ..operations import Operation
from ..sizes import all_index_bytes, index_bytes
from .arguments import Fields
from .operations import current_operations
from .reading import cached_plans, resolve
from .sessions import local_sessions

RowMaker = Callable[[Snapshot], list[Document]]


class SystemRows(PlanNode):
    """Rows that are made when they are asked for."""

    def __init__(self, stage: str, make: RowMaker) -> None:
        super().__init__()
        self.stage = stage
        self._make = make

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        rows = self._make(run.snapshot)
        self.stats.advanced = len(rows)
        if rows:
            yield RowBatch(documents=rows)


class SystemStage(Stage):
    """A stage that reads what the server knows of itself."""

    is_source = True

    def __init__(self, name: str, spec: Any, context: PipelineContext) -> None:
        self.name = name  # type: ignore[misc]  # one class for the family
        self._spec = spec
        self._context = context
        _check(name, spec, context)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self._spec}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        assert self._context.sources is not None
        return self._context.sources.system(self.name, self._spec, self._context)


def _check(name: str, spec: Any, context: PipelineContext) -> None:
    """Refuse an operand that the stage cannot take."""
    if name == "$collStats":
        if not isinstance(spec, dict):
            raise Location(5447000, f"$collStats must take a nested object but found: {type_name(spec)}")
        fields = Fields(
            spec, "$collStats",
            known=("latencyStats", "storageStats", "count", "queryExecStats", "operationStats", "targetAllNodes"),
        )  # fmt: skip
        for option in ("latencyStats", "storageStats", "count", "queryExecStats"):
            fields.take_document(option, default=None)
        latency = spec.get("latencyStats")
        if latency is not None:
            inner = Fields(latency, "$collStats.latencyStats", known=("histograms",))
            if "histograms" in latency and not isinstance(latency["histograms"], bool):
                raise inner.wrong_type("histograms", latency["histograms"], "type 'bool'")
        if spec.get("count"):
            raise Location(31170, "count option to $collStats must be an empty object")
        if spec.get("queryExecStats"):
            raise Location(31141, "queryExecStats option to $collStats must be an empty object")
    elif name == "$indexStats":
        if not isinstance(spec, dict) or spec:
            raise Location(28803, "The $indexStats stage specification must be an empty object")
    elif name == "$planCacheStats":
        if not isinstance(spec, dict):
            raise FailedToParse(f"$planCacheStats value must be an object. Found: {type_name(spec)}")
        if unknown := [option for option in spec if option != "allHosts"]:
            raise FailedToParse(
                f"$planCacheStats parameters object may contain only 'allHosts' field. Found: {unknown[0]}"
            )
        if "allHosts" in spec and not isinstance(spec["allHosts"], bool):
            raise Location(13111, f"wrong type for field (allHosts) {type_name(spec['allHosts'])} != bool")
        if spec.get("allHosts"):
            raise Location(4503200, "$planCacheStats stage supports allHosts parameter only for sharded clusters")
    elif name == "$querySettings":
        if not isinstance(spec, dict):
            raise Location(7746800, f"$querySettings value must be an object. Found: {type_name(spec)}")
        fields = Fields(spec, name, known=("showDebugQueryShape",))
        if "showDebugQueryShape" in spec and not isinstance(spec["showDebugQueryShape"], bool):
            raise fields.wrong_type("showDebugQueryShape", spec["showDebugQueryShape"], "type 'bool'")
    elif name == "$queryStats":
        _check_query_stats(spec, context)
    elif name == "$listClusterCatalog":
        if context.namespace.collection != "$cmd.aggregate":
            raise Location(9621301, "The $listClusterCatalog stage must be run on a database")
        if not isinstance(spec, dict):
            raise Location(9621302, f"The $listClusterCatalog stage must be an object, found: {type_name(spec)}")
        fields = Fields(spec, name, known=("shards", "balancingConfiguration"))
        for option, value in spec.items():
            if not isinstance(value, bool):
                raise fields.wrong_type(option, value, "type 'bool'")
    elif name == "$currentOp":
        if not isinstance(spec, dict):
            raise TypeMismatch(f"$currentOp options must be specified in an object, but found: {type_name(spec)}")
        if context.namespace.database != "admin":
            raise InvalidNamespace("$currentOp must be run against the 'admin' database with {aggregate: 1}")
        fields = Fields(spec, name, known=_CURRENT_OP)
        for option, value in spec.items():
            if not isinstance(value, bool):
                raise fields.wrong_type(option, value, "type 'bool'")
        if spec.get("targetAllNodes"):
            raise FailedToParse("$currentOp supports targetAllNodes parameter only for sharded clusters")
    elif name in ("$listLocalSessions", "$listSessions"):
        listed_users(name, spec)


def listed_users(name: str, spec: Any) -> frozenset[tuple[str, str]]:
    """The users, by name and database, whose sessions are asked for; empty where nobody is named.

    Raises:
        MongoError: the operand is none of the stage, or names users and asks for all of them.
    """
    if not isinstance(spec, dict):
        raise TypeMismatch(f"{name} options must be specified in an object, but found: {type_name(spec)}")
    fields = Fields(spec, name, known=("allUsers", "users", "$_internalPredicate"))
    everybody = fields.take_bool("allUsers", exact=True)
    users = set()
    for position, row in enumerate(fields.take_list("users", default=[])):
        if row is None:
            continue
        path = f"users.{position}"
        if not isinstance(row, dict):
            raise fields.wrong_type(path, row, "type 'object'")
        user = Fields(row, fields.path(path), known=("user", "db"))
        users.add((user.take_string("user"), user.take_string("db")))
    if users and everybody:
        raise UnsupportedFormat(f"{name} may not specify {{allUsers:true}} and {{users:[...]}} at the same time")
    return frozenset(users)


_CURRENT_OP: Final = frozenset(
    {
        "allUsers", "backtrace", "idleConnections", "idleCursors", "idleSessions", "localOps", "targetAllNodes",
        "truncateOps",
    }
)  # fmt: skip


def system_rows(services: Services, stage: str, spec: Any, context: PipelineContext, operation: Operation) -> PlanNode:
    """The plan node of a stage that reads what the server knows of itself, as far as the operation's client may see."""
    own: dict[str, Callable[[Services, Any, PipelineContext, Client], list[Document]]] = {
        "$currentOp": _current_operations,
        "$listClusterCatalog": _catalog,
        "$listLocalSessions": _sessions,
        "$listSessions": _sessions,
    }
    if stage in own:
        make_own, client = own[stage], operation.client
        assert isinstance(client, Client)
        return SystemRows(stage, lambda _: make_own(services, spec, context, client))
    makers: dict[str, Callable[[Services, Any, PipelineContext, Snapshot], list[Document]]] = {
        "$collStats": _collection_stats,
        "$indexStats": _index_stats,
        "$planCacheStats": _cached_plans,
        "$querySettings": _nothing,
        "$queryStats": _nothing,
    }
    make = makers[stage]
    return SystemRows(stage, lambda snapshot: make(services, spec, context, snapshot))


def _check_query_stats(spec: Any, context: PipelineContext) -> None:
    if not isinstance(spec, dict):
        raise FailedToParse(f"$queryStats value must be an object. Found: {type_name(spec)}")
    if context.namespace.database != "admin":
        raise InvalidNamespace("$queryStats must be run against the 'admin' database with {aggregate: 1}")
    fields = Fields(spec, "$queryStats", known=("transformIdentifiers",))
    transforming = fields.take_document("transformIdentifiers", default=None)
    if transforming is None:
        return
    inner = Fields(transforming, "$queryStats.transformIdentifiers", known=("algorithm", "hmacKey"))
    inner.take_enum("algorithm", ("hmac-sha-256",))
    inner.take_any("hmacKey")


def _nothing(services: Services, spec: Any, context: PipelineContext, snapshot: Snapshot) -> list[Document]:
    """No query has settings, and statistics of queries are gathered at a rate of none, as is MongoDB's default."""
    return []


def _cached_plans(services: Services, spec: Any, context: PipelineContext, snapshot: Snapshot) -> list[Document]:
    """What is remembered of plans.

    Raises:
        Location: 50933, no such collection; 40602, the pipeline is one on buckets.
    """
    source = resolve(services.catalog, context.namespace)
    collection = source.collection
    if source.is_timeseries:
        # What unpacks the buckets comes before it.
        raise Location(40602, "$planCacheStats is only valid as the first stage in a pipeline.")
    if collection is None:
        raise Location(50933, f"collection '{context.namespace}' does not exist")
    return [
        {
            "version": "1",
            "queryHash": entry.shape,
            "planCacheShapeHash": entry.shape,
            "planCacheKey": entry.key,
            "isActive": entry.is_active,
            "works": Int64(entry.works),
            "worksType": "works",
            "timeOfCreation": DatetimeMS(entry.created_ms),
            "createdFromQuery": entry.query,
            "cachedPlan": entry.trial.plan,
            "creationExecStats": entry.trial.runs,
            "candidatePlanScores": entry.trial.scores,
            "indexFilterSet": entry.filter_set,
            "estimatedSizeBytes": Int64(entry.size_bytes()),
            "host": _host(services),
        }
        for entry in cached_plans(services).of(collection)
    ]


def _host(services: Services) -> str:
    return f"{host_name()}:{services.config.port}"


def _collection(services: Services, context: PipelineContext, stage: str) -> Collection:
    source = resolve(services.catalog, context.namespace)
    if source.is_view:
        raise CommandNotSupportedOnView(f"{stage} is not supported on the view {context.namespace}")
    collection = source.collection
    if collection is not None and collection.kind == "timeseries":
        collection = services.catalog.get(collection.namespace.buckets)
    if collection is None:
        raise NamespaceNotFound(f"Unable to retrieve {stage[1:]} in $collStats stage :: caused by :: "
                                f"Collection [{context.namespace}] not found.")  # fmt: skip
    return collection


def _collection_stats(services: Services, spec: Any, context: PipelineContext, snapshot: Snapshot) -> list[Document]:
    row: Document = {
        "ns": str(context.namespace),
        "host": _host(services),
        "localTime": DatetimeMS(services.clock.now_ms()),
    }
    if spec.get("latencyStats") is not None:
        use = services.counters.namespaces.get(str(context.namespace))
        row["latencyStats"] = {
            "reads": _latency(None if use is None else use.read),
            "writes": _latency(None if use is None else use.write),
            "commands": _latency(None),
            "transactions": _latency(None),
        }
    if spec.get("storageStats") is not None:
        scale = _scale(spec["storageStats"])
        collection = _collection(services, context, "$storageStats")
        if collection.is_buckets and not context.namespace.is_buckets:
            row["storageStats"] = timeseries_stats(services, collection, snapshot, scale=scale)
        else:
            row["storageStats"] = storage_stats(services, collection, snapshot, scale=scale)
    if spec.get("count") is not None:
        count, _ = services.catalog.counts(_collection(services, context, "$count"), snapshot)
        row["count"] = count
    if spec.get("queryExecStats") is not None:
        _collection(services, context, "$queryExecStats")
        row["queryExecStats"] = {"collectionScans": {"total": Int64(0), "nonTailable": Int64(0)}}
    return [row]


def _scale(spec: Document) -> int:
    fields = Fields(spec, "$collStats.storageStats", known=("scale", "verbose", "waitForLock", "numericOnly"))
    scale = fields.take_whole_number("scale", default=1)
    fields.take_bool("verbose")
    if scale < 1:
        raise BadValue(f"BSON field 'scale' value must be >= 1, actual value '{scale}'")
    return min(int(scale), 2**31 - 1)


def _latency(use: Any) -> Document:
    return {
        "latency": Int64(0 if use is None else use.time_us),
        "ops": Int64(0 if use is None else use.count),
        "queryableEncryptionLatencyMicros": Int64(0),
    }


def storage_stats(services: Services, collection: Collection, snapshot: Snapshot, *, scale: int = 1) -> Document:
    """What a collection takes."""
    count, size = services.catalog.counts(collection, snapshot)
    total_index = all_index_bytes(snapshot, collection, count)
    stored = stored_bytes(snapshot, collection)
    row: Document = {
        "size": size // scale,
        "count": count,
    }
    if count:
        row["avgObjSize"] = size // count
    row |= {
        "numOrphanDocs": 0,
        "storageSize": stored // scale,
        "freeStorageSize": 0,
        "capped": collection.capped,
        "nindexes": len(collection.indexes),
        "indexDetails": {},
        "indexBuilds": [index.name for index in collection.indexes if index.building],
        "totalIndexSize": total_index // scale,
        "totalSize": (stored + total_index) // scale,
        "indexSizes": {index.name: index_bytes(snapshot, index, count) // scale for index in collection.indexes},
        "scaleFactor": scale,
    }
    if collection.capped:
        row |= {"max": collection.capped_documents_max, "maxSize": collection.capped_bytes_max // scale}
    return row


def timeseries_stats(services: Services, buckets: Collection, snapshot: Snapshot, *, scale: int = 1) -> Document:
    """What a time-series collection takes: the sizes of its buckets, and the counters of its part of the catalog."""
    sizes = storage_stats(services, buckets, snapshot, scale=scale)
    series: Document = {"bucketsNs": str(buckets.namespace), "bucketCount": sizes.pop("count")}
    average = sizes.pop("avgObjSize", None)
    if average is not None:
        series["avgBucketSize"] = average
    if services.buckets is not None:
        series.update(services.buckets.statistics(buckets))
    return {**sizes, "timeseries": series}


def _index_stats(services: Services, spec: Any, context: PipelineContext, snapshot: Snapshot) -> list[Document]:
    source = resolve(services.catalog, context.namespace)
    collection = source.collection
    view = collection if collection is not None and collection.kind == "timeseries" else None
    if view is not None:
        collection = services.catalog.get(view.namespace.buckets)
    if collection is None:
        return []
    rows: list[Document] = []
    for index in collection.indexes:
        shown: Document | None = index.to_document()
        if view is not None:
            from .timeseries_writes import index_for_view

            shown = index_for_view(view, index)
        if shown is None:
            continue
        rows.append(
            {
                "name": index.name,
                "key": shown["key"],
                "host": _host(services),
                "accesses": {"ops": Int64(index.state.accesses), "since": DatetimeMS(index.state.since_ms)},
                "spec": shown,
            }
        )
    return rows


def _user_alone(services: Services, client: Client) -> tuple[str, str] | None:
    """The user whose things alone are shown; None where everything is, for want of logins."""
    return client.user if services.config.auth else None


def _current_operations(services: Services, spec: Any, context: PipelineContext, client: Client) -> list[Document]:
    return list(
        current_operations(
            services,
            idle_connections=bool(spec.get("idleConnections")),
            idle_cursors=bool(spec.get("idleCursors")),
            truncate=bool(spec.get("truncateOps")),
            user=None if spec.get("allUsers") else _user_alone(services, client),
        )
    )


def _sessions(services: Services, spec: Any, context: PipelineContext, client: Client) -> list[Document]:
    users = listed_users("$listLocalSessions", spec)
    alone = _user_alone(services, client)
    if alone is not None and not users and not spec.get("allUsers"):
        users = frozenset({alone})
    return list(local_sessions(services, users))


def _catalog(services: Services, spec: Any, context: PipelineContext, client: Client) -> list[Document]:
    """The collections of the database, or of all of them where it is `admin`."""
    database = context.namespace.database
    names = services.catalog.list_databases() if database == "admin" else [database]
    rows: list[Document] = []
    visible = visible_collections(services, client)
    for name in names:
        for collection in services.catalog.list_collections(name):
            listed = collection.listing()
            if not visible(name, listed["name"]):
                continue
            row: Document = {"db": name, "ns": f"{name}.{listed['name']}", "type": listed["type"]}
            row |= {key: listed[key] for key in ("options", "info", "idIndex") if key in listed}
            row["sharded"] = False
            if spec.get("shards"):
                row["shards"] = []
            rows.append(row)
    return rows


def _parser(name: str) -> Callable[[Any, PipelineContext], Stage]:
    return lambda spec, context: SystemStage(name, spec, context)


def register_system_stages() -> None:
    """Make the stages known to the parser of pipelines."""
    for name in (
        "$collStats", "$currentOp", "$indexStats", "$listClusterCatalog", "$listLocalSessions", "$listSessions",
        "$planCacheStats", "$querySettings", "$queryStats",
    ):  # fmt: skip
        register(name, _parser(name))
