"""`$out` and `$merge`: where a pipeline's rows go instead of to the client."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bson import ObjectId

from ...catalog import documents
from ...catalog.collections import Collection
from ...catalog.namespaces import NAMESPACE_BYTES_MAX, Namespace, validate_collection_name
from ...catalog.timeseries_options import TimeseriesOptions
from ...common.collation import Collation
from ...common.display import value_text
from ...common.errors import (
    BadValue,
    CommandNotSupportedOnView,
    DuplicateKey,
    IllegalOperation,
    ImmutableField,
    InvalidNamespace,
    InvalidOptions,
    Location,
    MergeStageNoMatchingDocument,
    MongoError,
    TypeMismatch,
)
from ...common.field_paths import parse_field_path
from ...common.ordering import equal
from ...common.paths import get_path, split_path
from ...common.values import MISSING, Document, decode, encode, type_name
from ...kernels import RowArray
from ...protocol.replies import Reply, cursor_reply
from ...query.match.parse import parse_filter
from ...query.plan.planner import Wanted
from ...query.update.base import Update
from ...query.update.parse import parse_update
from ...storage.engine import Transaction
from ..context import Context, Request, Services
from .arguments import REQUIRED, Fields
from .changing import Selection, change_one
from .reading import Read, check_variable_name, execution_of
from .writing import Validator, ensure_collection, insert_documents, now_of, prepared, refuse_view

_KEPT: Final = ("expireAfterSeconds", "collation", "storageEngine", "indexOptionDefaults")
"""Options that a time-series collection keeps when its content is replaced."""
_MATCHED: Final = ("replace", "keepExisting", "merge", "fail", "pipeline", "delete")
_NOT_MATCHED: Final = ("insert", "discard", "fail")
_ALLOWED: Final = frozenset(
    {
        ("replace", "insert"), ("replace", "fail"), ("replace", "discard"), ("keepExisting", "insert"),
        ("merge", "insert"), ("merge", "fail"), ("merge", "discard"), ("fail", "insert"), ("pipeline", "insert"),
        ("pipeline", "fail"), ("pipeline", "discard"),
    }
)  # fmt: skip


class Output(ABC):
    """The last stage of a pipeline that writes."""

    def __init__(self, services: Services, stage: Document, *, bypass_validation: bool) -> None:
        self.services = services
        self.stage = stage
        self.bypass_validation = bypass_validation

    async def __call__(self, context: Context, request: Request, read: Read) -> Reply:
        """Run the pipeline, write its rows, and answer an empty cursor."""
        self.check(read)
        execution = execution_of(self.services, read)
        try:
            await self.begin()
            while (batch := await execution.next_rows(watch=request.operation)) is not None:
                await self.write(batch.raws(), request)
            await self.finish()
        except BaseException:
            await self.give_up()
            raise
        finally:
            execution.close()
        return cursor_reply(True, 0, read.reply_namespace, RowArray())

    def check(self, read: Read) -> None:
        """Refuse a target that cannot be."""
        return

    async def begin(self) -> None:
        """Make ready."""
        return

    @abstractmethod
    async def write(self, raws: list[bytes], request: Request) -> None:
        """Take some rows."""

    async def finish(self) -> None:
        """All rows were taken."""
        return

    async def give_up(self) -> None:
        """Something failed on the way."""
        return


def parse_output(
    services: Services,
    namespace: Namespace,
    stage: Document,
    variables: Mapping[str, Any],
    *,
    bypass_validation: bool = False,
) -> Output:
    """The output that the last stage of a pipeline asks for.

    Raises:
        MongoError: what is wrong with it.
    """
    ((name, spec),) = stage.items()
    if name == "$out":
        return Out(services, namespace, spec, bypass_validation=bypass_validation)
    return Merge(services, namespace, spec, variables, bypass_validation=bypass_validation)


class Out(Output):
    """`$out`: the rows become the whole of a collection, all at once when the last of them is there."""

    def __init__(self, services: Services, namespace: Namespace, spec: Any, *, bypass_validation: bool) -> None:
        super().__init__(services, {"$out": spec}, bypass_validation=bypass_validation)
        self.target, self._timeseries = _out_target(namespace, spec)
        self._temporary = Namespace(self.target.database, f"tmp.agg_out.{ObjectId()}")
        self.stage = {"$out": {"coll": self.target.collection, "db": self.target.database}}

    def check(self, read: Read) -> None:
        """See `Output.check`."""
        existing = self.services.catalog.get(self.target)
        if existing is None:
            validate_collection_name(self.target)
            return
        if existing.kind == "view" and self._timeseries is None:
            raise CommandNotSupportedOnView(f"Namespace {self.target} is a view, not a collection")
        if existing.kind == "timeseries":
            stored = existing.options["timeseries"]
            if self._timeseries is not None and self._timeseries != stored:
                raise Location(
                    7406103,
                    f"Time field, meta field and granularity of $out do not match those of {self.target}: "
                    f"{value_text(stored)}",
                )
            self._timeseries = stored
        if existing.kind != "timeseries" and self._timeseries is not None:
            raise Location(7268700, "Cannot create a time-series collection from a non time-series collection or view.")
        if existing.capped:
            raise Location(17152, f"namespace '{self.target}' is capped so it can't be used for $out")

    async def begin(self) -> None:
        """See `Output.begin`: an empty collection with the options and indexes of the one to be replaced."""
        if self._timeseries is not None:
            from .collections import create_timeseries
            from .create_options import CreateOptions

            asked = TimeseriesOptions.from_document(self._timeseries)
            catalog = self.services.catalog
            kept = catalog.get(self.target)
            options = {} if kept is None else {name: kept.options[name] for name in _KEPT if name in kept.options}
            await create_timeseries(self.services, CreateOptions(self._temporary, options, timeseries=asked))
            before = catalog.get(self.target.buckets)
            if before is not None:
                made = {index.name for index in catalog.get(self._temporary.buckets).indexes}
                indexes = [index for index in before.indexes if index.name not in made]
                await catalog.create_indexes(self._temporary.buckets, indexes)
            return
        catalog = self.services.catalog
        existing: Collection | None = catalog.get(self.target)
        options = {} if existing is None else existing.options
        await catalog.create(self._temporary, options)
        if existing is not None and (indexes := [index for index in existing.indexes if not index.is_id]):
            await catalog.create_indexes(self._temporary, indexes)

    async def write(self, raws: list[bytes], request: Request) -> None:
        """See `Output.write`."""
        if self._timeseries is not None:
            from ...timeseries.insert import insert_measurements

            view = self.services.catalog.get(self._temporary)
            _, _, rows = await insert_measurements(self.services, view, raws, True)
            if rows:
                raise _as_error(rows[0])
            return
        _, errors = await insert_documents(
            self.services,
            self._temporary,
            raws,
            bypass_validation=self.bypass_validation,
            fill_timestamps=False,
            operation=request.operation,
        )
        if errors.rows:
            raise _as_error(errors.rows[0])

    async def finish(self) -> None:
        """See `Output.finish`."""
        if self._timeseries is not None:
            catalog = self.services.catalog
            for told in self.services.on_drop:
                told(self.target)
                told(self._temporary)
            moves = [(self._temporary.buckets, self.target.buckets), (self._temporary, self.target)]
            await catalog.rename_many(moves, drop_target=True)
            return
        await self.services.catalog.rename(self._temporary, self.target, drop_target=True)

    async def give_up(self) -> None:
        """See `Output.give_up`."""
        await self.services.catalog.drop(self._temporary, self._temporary.buckets)


def _as_error(row: Document) -> MongoError:
    from ...common.errors import error_for

    error = error_for(int(row["code"]), f"PlanExecutor error during aggregation :: caused by :: {row['errmsg']}")
    error.extra = {name: value for name, value in row.items() if name not in ("index", "code", "errmsg")}
    return error


def _out_target(namespace: Namespace, spec: Any) -> tuple[Namespace, Document | None]:
    timeseries: Document | None = None
    if type(spec) is str:
        target = Namespace(namespace.database, spec)
    elif isinstance(spec, dict):
        fields = Fields(spec, "$out", known=("db", "coll", "timeseries"))
        database = fields.take_string("db")
        target = Namespace(database, fields.take_string("coll"))
        timeseries = fields.take_document("timeseries", default=None)
        if timeseries is not None:
            checked = TimeseriesOptions.parse(timeseries, str(target), any_meta=True)
            timeseries = checked.to_document()
    else:
        raise Location(16990, f"$out only supports a string or object argument, but found {type_name(spec)}")
    if target.collection.startswith("system.") or (target.is_system and not target.is_buckets):
        raise Location(17385, f"Can't $out to special collection: {target.collection}")
    if target.database in ("admin", "config", "local"):
        raise Location(31321, f"Can't $out to internal database: {target.database}")
    if not target.collection or target.collection.startswith("."):
        raise InvalidNamespace(f"Invalid $out target namespace, {target}")
    _check_name(target)
    return target, timeseries


def _check_name(target: Namespace) -> None:
    """Refuse what no collection can be called.

    Raises:
        IllegalOperation: as the stages that write tell it.
    """
    if "$" in target.collection or len(str(target).encode()) > NAMESPACE_BYTES_MAX:
        raise IllegalOperation(f"Invalid target namespace, {target}")
    validate_collection_name(target)


class Merge(Output):
    """`$merge`: each row is put into a collection, or together with what is there."""

    def __init__(
        self,
        services: Services,
        namespace: Namespace,
        spec: Any,
        variables: Mapping[str, Any],
        *,
        bypass_validation: bool,
    ) -> None:
        super().__init__(services, {"$merge": spec}, bypass_validation=bypass_validation)
        if spec == "":
            raise InvalidNamespace("Invalid $merge target namespace")
        document = {"into": spec} if type(spec) is str else spec
        if not isinstance(document, dict):
            raise TypeMismatch(f"$merge requires a string or object argument, but found {type_name(spec)}")
        self._fields = Fields(document, "$merge", known=("into", "on", "let", "whenMatched", "whenNotMatched"))
        self.target = _merge_target(namespace, self._fields)
        self._on = _on_fields(self._fields.take_any("on", default=MISSING))
        self._given_on = self._on is not None
        self._modes(self._fields)
        self._let(self._fields, variables)
        self._paths: tuple[str, ...] = self._on or ("_id",)
        self._sparse = False
        self._collation: Collation | None = None
        self.stage = {
            "$merge": {
                "into": {"db": self.target.database, "coll": self.target.collection},
                "on": list(self._paths) if len(self._paths) > 1 else self._paths[0],
                "let": document.get("let", {}),
                "whenMatched": self._pipeline if self._pipeline is not None else self._matched,
                "whenNotMatched": self._not_matched,
            }
        }

    def _modes(self, fields: Fields) -> None:
        matched = fields.take_any("whenMatched", default="merge")
        self._pipeline: list[Document] | None = None
        if isinstance(matched, list):
            for stage in matched:
                if not isinstance(stage, dict):
                    raise TypeMismatch("Each element of the 'pipeline' array must be an object")
            self._pipeline, matched = matched, "pipeline"
        elif type(matched) is not str:
            raise Location(
                51191, f"$merge 'whenMatched' field must be either a string or an array, but found {type_name(matched)}"
            )
        elif matched not in ("replace", "keepExisting", "merge", "fail"):
            raise BadValue(f"Enumeration value '{matched}' for field 'whenMatched' is not a valid value.")
        not_matched = fields.take_enum("whenNotMatched", _NOT_MATCHED, default="insert")
        if (matched, not_matched) not in _ALLOWED:
            raise Location(
                51181,
                f"Combination of $merge modes 'whenMatched: {matched}' and 'whenNotMatched: {not_matched}' is not "
                "supported",
            )
        self._matched, self._not_matched = matched, not_matched

    def _let(self, fields: Fields, variables: Mapping[str, Any]) -> None:
        from ...query.expression.parse import ParseContext, parse_expression

        let = fields.take_document("let", default=None)
        if let is not None and self._pipeline is None:
            raise Location(51199, "Cannot use 'let' variables with 'whenMatched: " + self._matched + "' mode")
        self._variables = dict(variables)
        self._expressions: dict[str, Any] = {}
        if self._pipeline is None:
            return
        specs: Document = {"new": "$$ROOT"} if let is None else dict(let)
        if "new" in specs and specs["new"] != "$$ROOT":
            raise Location(51273, "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'")
        specs.setdefault("new", "$$ROOT")
        for name, spec in specs.items():
            check_variable_name(name)
            self._expressions[name] = parse_expression(spec, ParseContext(variables=frozenset(self._variables)))
        # A pipeline that cannot be is refused before anything is written.
        try:
            self._update({}, dict.fromkeys(self._expressions))
        except InvalidOptions:
            # A stage that no update may use is told when there is something to update.
            return

    def check(self, read: Read) -> None:
        """See `Output.check`."""
        self._collation = read.collation
        existing = refuse_view(self.services.catalog, self.target)
        if existing is not None and existing.kind == "timeseries":
            raise CommandNotSupportedOnView(f"Cannot $merge into a time-series collection: {self.target}")
        if existing is None:
            validate_collection_name(self.target)
        if set(self._paths) == {"_id"}:
            return
        wanted = set(self._paths)
        for index in existing.indexes if existing is not None else ():
            if (
                index.unique
                and index.kind == "btree"
                and set(index.paths) == wanted
                and index.partial_filter is None
                and not index.building
                and index.collation == read.collation
            ):
                self._sparse = index.sparse
                return
        raise Location(51183, "Cannot find index to verify that join fields will be unique")

    async def write(self, raws: list[bytes], request: Request) -> None:
        """See `Output.write`."""
        if self._not_matched == "insert":
            await ensure_collection(self.services, self.target)
        failure: MongoError | None = None
        if self._not_matched == "discard" and self.services.catalog.get(self.target) is None:
            # There is nothing that could match.
            return
        for raw in raws:
            request.operation.check()
            without_id = b"\x07_id\0" not in raw and "_id" not in decode(raw)
            document = decode(prepared(raw, None))
            for attempt in range(3):
                try:
                    await self._put(document, request, made_id=without_id)
                    break
                except DuplicateKey as error:
                    if attempt == 2 or self._matched == "fail":
                        # Rows come in batches, and the others of a batch are written all the same.
                        failure = failure or error
                        break
        if failure is not None:
            raise failure

    async def _put(self, document: Document, request: Request, *, made_id: bool) -> None:
        filter = {path: {"$eq": self._on_value(document, path)} for path in self._paths}
        matcher = parse_filter(filter, collator=self._collation)
        selection = Selection(wanted=Wanted(matcher=matcher, collation=self._collation), variables=self._variables)

        def change(
            transaction: Transaction, collection: Collection, record_key: bytes, raw: bytes, existing: Document
        ) -> bool:
            given = {name: value for name, value in document.items() if name != "_id"} if made_id else document
            new = self._joined(existing, given)
            if new is not None:
                self._check(collection, new)
                documents.replace(transaction, collection, record_key, raw, encode(new))
            return True

        def insert(transaction: Transaction, collection: Collection) -> bool:
            if self._not_matched == "fail":
                raise MergeStageNoMatchingDocument(
                    "$merge could not find a matching document in the target collection for at least one document in "
                    "the source collection"
                )
            if self._not_matched == "insert":
                made = self._inserted(document)
                self._check(collection, made)
                documents.insert(transaction, collection, encode(made))
            return True

        await change_one(self.services, self.target, selection, change, request.operation, otherwise=insert)

    def _inserted(self, document: Document) -> Document:
        """The document as it is stored where none matches: as an upsert makes it."""
        made = document
        for path in self._paths:
            if path not in made and "." not in path:
                # It was looked for by null.
                made = {**made, path: None}
        if self._matched in ("merge", "keepExisting"):
            # These are upserts that set field by field, in the order of names.
            rest = sorted(name for name in made if name != "_id")
            made = {"_id": made["_id"], **{name: made[name] for name in rest}}
        return made

    def _check(self, collection: Collection, document: Document) -> None:
        if not self.bypass_validation and collection.validator:
            Validator(collection, now_of(self.services)).check(document)

    def _on_value(self, document: Document, path: str) -> Any:
        value = get_path(document, split_path(path))
        if value is MISSING or value is None:
            if self._sparse:
                raise Location(51132, "$merge write error: 'on' field cannot be missing, null, undefined or an array")
            return None
        if isinstance(value, list):
            raise Location(51185, "$merge write error: 'on' field cannot be an array")
        return value

    def _joined(self, existing: Document, new: Document) -> Document | None:
        """The document that takes the place of the existing one; None where that stays."""
        match self._matched:
            case "keepExisting":
                return None
            case "fail":
                raise DuplicateKey(
                    "PlanExecutor error during aggregation :: caused by :: E11000 duplicate key error collection: "
                    f"{self.target} index: _id_ dup key: $merge with whenMatched: fail found a matching document",
                    extra={"keyPattern": dict.fromkeys(self._paths, 1),
                           "keyValue": {path: get_path(new, split_path(path)) for path in self._paths}},
                )  # fmt: skip
            case "replace":
                merged = dict(new)
                self._keep_id(existing, merged)
                return {"_id": existing["_id"], **merged}
            case "merge":
                merged = dict(new)
                self._keep_id(existing, merged)
                return {**existing, **merged, "_id": existing["_id"]}
        values = {name: expression.evaluate(new, self._variables) for name, expression in self._expressions.items()}
        changed, _ = self._update(new, values).apply(existing, now=now_of(self.services))
        if "_id" in changed and not equal(changed["_id"], existing["_id"]):
            raise ImmutableField(
                "PlanExecutor error during aggregation :: caused by :: $merge failed to update the matching document, "
                "did you attempt to modify the _id or the shard key?"
            )
        return changed

    def _keep_id(self, existing: Document, new: Document) -> None:
        if "_id" in new and not equal(new["_id"], existing["_id"]):
            raise ImmutableField(
                "PlanExecutor error during aggregation :: caused by :: $merge failed to update the matching document, "
                "did you attempt to modify the _id or the shard key?"
            )

    def _update(self, new: Document, values: Mapping[str, Any]) -> Update:
        return parse_update(
            list(self._pipeline or ()),
            variables={**self._variables, **{name: value for name, value in values.items() if value is not MISSING}},
        )


def _merge_target(namespace: Namespace, fields: Fields) -> Namespace:
    into = fields.take_any("into", default=REQUIRED)
    if type(into) is str:
        if not into:
            raise Location(5786800, "Invalid $merge target namespace")
        target = Namespace(namespace.database, into)
    elif isinstance(into, dict):
        inner = Fields(into, "$merge.into", known=("db", "coll"))
        database = inner.take_string("db", default=None) or namespace.database
        collection = inner.take_string("coll", default=None)
        if not collection:
            raise Location(5786801, "Invalid $merge target namespace: 'coll' is missing")
        target = Namespace(database, collection)
    else:
        raise Location(51178, f"$merge 'into' field must be either a string or an object, but found {type_name(into)}")
    if target.database in ("admin", "config", "local"):
        raise Location(31320, f"Cannot $merge to internal database: {target.database}")
    if target.is_system:
        raise Location(31319, f"Cannot $merge to special collection: {target.collection}")
    validate_collection_name(target)
    return target


def _on_fields(on: Any) -> tuple[str, ...] | None:
    if on is MISSING:
        return None
    if type(on) is str:
        paths: Sequence[Any] = [on]
    elif isinstance(on, list):
        if not on:
            raise Location(51187, "If explicitly specifying $merge 'on', must include at least one field")
        paths = on
    else:
        raise Location(
            51186, f"$merge 'on' field must be either a string or an array of strings, but found {type_name(on)}"
        )
    for path in paths:
        if type(path) is not str:
            raise Location(51134, f"$merge 'on' array elements must be strings, but found {type_name(path)}")
        parse_field_path(path)
    if len(set(paths)) < len(paths):
        raise Location(31465, "Found a duplicate field in the $merge 'on' array")
    return tuple(paths)
