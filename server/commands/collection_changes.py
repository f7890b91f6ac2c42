"""`collMod`: other options for a collection, a view, a time-series collection, or one of their indexes."""

import math
from typing import Any, Final

from bson import Decimal128, Int64

from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.index_options import TTL_SECONDS_MAX
from ...catalog.index_specs import IndexSpec
from ...catalog.namespaces import Namespace
from ...catalog.timeseries_options import lifetime_seconds
from ...common.display import value_text
from ...common.errors import (
    BadValue,
    DuplicateKey,
    IndexNotFound,
    InvalidOptions,
    Location,
    NamespaceNotFound,
    TypeMismatch,
)
from ...common.ordering import equal
from ...common.values import Document, type_name
from ..context import Context, Request, Services
from ..operations import Operation
from .arguments import Fields
from .base import Command
from .create_options import DOCUMENTS_MAX, SIZE_MAX
from .indexes import clustered_name
from .reading import check_collection_uuid
from .timeseries_writes import index_for_view
from .unique_conversion import cannot_convert, violations_of
from .validators import check_validator
from .view_definitions import check_view, check_view_name

_LEVELS: Final = ("off", "strict", "moderate")
_ACTIONS: Final = ("error", "warn", "errorAndLog")
_KNOWN: Final = (
    "cappedMax", "cappedSize", "changeStreamPreAndPostImages", "collectionUUID", "dryRun", "expireAfterSeconds", "index",
    "isTimeseriesNamespace", "pipeline", "recordPreImages", "timeseries", "timeseriesBucketsMayHaveMixedSchemaData",
    "validationAction", "validationLevel", "validator", "viewOn",
)  # fmt: skip


class CollMod(Command):
    """`collMod`."""

    name = "collMod"
    summary = "Changes options of a collection, view or index."
    writes = True
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the old and new values of what was changed of an index."""
        services = context.services
        catalog: Catalog = services.catalog
        fields = Fields(request, known=_KNOWN)
        namespace = fields.take_namespace()
        collection = catalog.get(namespace)
        if collection is None:
            raise NamespaceNotFound(f"ns does not exist: {namespace}")
        check_collection_uuid(fields, catalog, namespace)
        change = _Change(fields, collection, services, request.operation)
        if collection.kind == "view":
            change.on_view(catalog)
        elif collection.kind == "timeseries":
            change.on_timeseries()
        else:
            change.on_collection()
        reply = await change.apply(catalog)
        return reply


class _Change:
    """What one request changes, read and checked."""

    def __init__(self, fields: Fields, collection: Collection, services: Services, operation: Operation) -> None:
        self._fields = fields
        self._collection = collection
        self._services = services
        self._operation = operation
        self._now_ms = services.clock.now_ms()
        self._options: Document = {}
        """New options; None takes one out."""
        self._timeseries: Document | None = None
        self._flags: Document = {}
        self._index = fields.nested("index", known=("name", "keyPattern", "expireAfterSeconds", "hidden", "unique",
                                                    "prepareUnique"))  # fmt: skip
        self._validator = fields.take_document("validator", default=None)
        self._level = fields.take_enum("validationLevel", _LEVELS, default=None)
        self._action = fields.take_enum("validationAction", _ACTIONS, default=None)
        self._view_on = fields.take_string("viewOn", default=None)
        self._pipeline = fields.take_list("pipeline", default=None)
        self._capped_size = fields.take_whole_number("cappedSize", default=None, low=1, high=SIZE_MAX)
        self._capped_max = fields.take_whole_number("cappedMax", default=None)
        if self._capped_max is not None and self._capped_max > DOCUMENTS_MAX:
            raise BadValue("max in a capped collection has to be < 2^31 or not set")
        images = fields.nested("changeStreamPreAndPostImages", known=("enabled",))
        if images is not None and not images.has("enabled"):
            raise images.missing("enabled")
        self._images = None if images is None else images.take_bool("enabled", exact=True)
        self._dry_run = fields.take_bool("dryRun", default=False)
        if self._dry_run and (self._index is None or not self._index.has("unique")):
            raise InvalidOptions("dryRun mode is only supported for changes of an index to a unique one")

    def on_view(self, catalog: Catalog) -> None:
        """Check a change of a view.

        Raises:
            InvalidOptions: something else than `viewOn` and `pipeline`, and what makes no view.
        """
        for name in ("index", "validator", "validationLevel", "validationAction", "cappedSize", "cappedMax", "timeseries",
                     "expireAfterSeconds", "changeStreamPreAndPostImages"):  # fmt: skip
            if self._fields.has(name):
                raise InvalidOptions(f"option not supported on a view: {name}")
        if self._view_on is None and self._pipeline is None:
            return
        if self._view_on is not None:
            check_view_name(self._view_on, self._collection.namespace)
            self._options["viewOn"] = self._view_on
        if self._pipeline is not None:
            stages = [stage for stage in self._pipeline if stage is not None]
            for stage in stages:
                if not isinstance(stage, dict):
                    raise TypeMismatch("Each element of the 'pipeline' array must be an object")
            self._options["pipeline"] = stages
        check_view(catalog, self._collection.namespace, {**self._collection.options, **self._options})

    def on_timeseries(self) -> None:
        """Check a change of a time-series collection."""
        for name in ("validator", "validationLevel", "validationAction", "viewOn", "pipeline",
                     "changeStreamPreAndPostImages", "recordPreImages"):  # fmt: skip
            if self._fields.has(name):
                raise InvalidOptions(f"option not supported on a time-series collection: {name}")
        if self._index is not None:
            for name in ("unique", "prepareUnique"):
                if self._index.has(name):
                    raise InvalidOptions(f"option not supported on a time-series collection: {name}")
        self._read_timeseries()
        self._read_expiry()

    def on_collection(self) -> None:
        """Check a change of an ordinary collection, or of buckets."""
        if self._view_on is not None:
            raise InvalidOptions("'viewOn' option only supported on a view")
        if self._pipeline is not None:
            raise InvalidOptions("'pipeline' option only supported on a view")
        if self._fields.has("timeseries"):
            raise InvalidOptions("option only supported on a time-series collection: timeseries")
        if self._validator is not None:
            check_validator(self._validator, self._collection.namespace)
            self._options["validator"] = self._validator or None
        if self._level is not None:
            self._options["validationLevel"] = self._level
        if self._action is not None:
            self._options["validationAction"] = self._action
        if self._images is not None:
            self._options["changeStreamPreAndPostImages"] = {"enabled": True} if self._images else None
        for name, value in (("size", self._capped_size), ("max", self._capped_max)):
            if value is not None:
                if not self._collection.capped:
                    raise InvalidOptions(f"option only supported on a capped collection: {name}")
                self._options[name] = int(value) if value > 0 else None
        self._read_expiry()

    async def apply(self, catalog: Catalog) -> Document:
        """Make the change; returns the reply."""
        namespace = self._collection.namespace
        target = namespace.buckets if self._collection.kind == "timeseries" else namespace
        reply: Document = {}
        changes: dict[Namespace, Any] = {}
        spec: IndexSpec | None = None
        if self._index is not None:
            held = catalog.get(target)
            if held is None:
                raise NamespaceNotFound(f"ns does not exist: {namespace}")
            spec, reply = self._changed_index(held)
        if self._dry_run:
            assert spec is not None
            violations = await violations_of(self._services, target, spec, self._operation)
            if violations:
                raise cannot_convert(violations)
            return {}
        changed_index = spec

        def change(current: Collection) -> Collection:
            indexes = tuple(
                changed_index if changed_index is not None and index.name == changed_index.name else index
                for index in current.indexes
            )
            options = {name: value for name, value in {**current.options, **self._options}.items() if value is not None}
            return current.with_changes(options=options, flags={**current.flags, **self._flags}, indexes=indexes)

        changes[target] = change
        if target != namespace:
            changes[namespace] = change
        if changed_index is not None and changed_index.unique and not self._was_unique(catalog, target, changed_index):
            await self._rebuild_unique(catalog, target, changed_index)
        await catalog.modify_many(changes)
        if "timeseries" in self._options and self._services.buckets is not None:
            # What is open was opened under the old span.
            self._services.buckets.forget(target)
        return reply

    def _was_unique(self, catalog: Catalog, target: Namespace, spec: IndexSpec) -> bool:
        held = catalog.get(target)
        before = None if held is None else held.index(spec.name)
        return before is not None and before.unique

    async def _rebuild_unique(self, catalog: Catalog, target: Namespace, spec: IndexSpec) -> None:
        """Entries of unique indexes have another form: the index is made anew.

        Raises:
            CannotConvertIndexToUnique: the data is not unique.
        """
        held = catalog.get(target)
        assert held is not None
        before = held.index(spec.name)
        assert before is not None
        await catalog.drop_indexes(target, [spec.name])
        try:
            await catalog.create_indexes(target, [spec.with_changes(id=0)])
        except DuplicateKey as error:
            await catalog.create_indexes(target, [before.with_changes(id=0)])
            raise cannot_convert(await violations_of(self._services, target, before, self._operation)) from error
        self._index = None

    def _read_timeseries(self) -> None:
        asked = self._fields.take_any("timeseries")
        current = self._collection.timeseries
        if asked is None or current is None:
            return
        changed = current.changed(asked)
        if changed != current:
            self._options["timeseries"] = changed.to_document()
            self._flags["bucketingChanged"] = True

    def _read_expiry(self) -> None:
        absent = object()
        value = self._fields.take_any("expireAfterSeconds", default=absent)
        if value is absent:
            return
        if value is None:
            raise self._fields.wrong_type("expireAfterSeconds", value, "types '[string, int, decimal, double, long]'")
        clustered = self._collection.kind == "timeseries" or self._collection.clustered
        if isinstance(value, str) and type_name(value) == "string":
            if value != "off":
                raise InvalidOptions(
                    "Invalid string value for the 'clusteredIndex::expireAfterSeconds' option. Expected 'off'"
                )
            if not clustered:
                raise InvalidOptions("'expireAfterSeconds' option is only supported on collections clustered by _id")
            self._options["expireAfterSeconds"] = None
            return
        number = self._fields.take_whole_number("expireAfterSeconds")
        if not clustered:
            raise InvalidOptions("'expireAfterSeconds' option is only supported on collections clustered by _id")
        self._options["expireAfterSeconds"] = Int64(lifetime_seconds(number, self._now_ms))

    def _changed_index(self, held: Collection) -> tuple[IndexSpec, Document]:
        """The index with its new options, and the reply that tells them."""
        asked = self._index
        assert asked is not None
        name = asked.take_string("name", default=None)
        key = asked.take_document("keyPattern", default=None)
        expire = asked.take_any("expireAfterSeconds")
        hidden = asked.take_bool("hidden", default=None)
        unique = asked.take_bool("unique", default=None)
        prepare = asked.take_bool("prepareUnique", default=None)
        if name is not None and key is not None:
            raise InvalidOptions("Cannot specify both key pattern and name.")
        if name is None and key is None:
            raise InvalidOptions("Must specify either index name or key pattern.")
        if expire is None and hidden is None and unique is None and prepare is None:
            raise InvalidOptions("no expireAfterSeconds, hidden, unique, or prepareUnique field")
        index = self._find_index(held, name, key)
        reply: Document = {}
        options: Document = {}
        if expire is not None:
            self._expire(index, expire, options, reply)
        if hidden is not None:
            if index.is_id:
                raise BadValue("can't hide _id index")
            if hidden != index.hidden:
                index.state.accesses, index.state.since_ms = 0, self._now_ms
                options["hidden"] = hidden or None
                reply["hidden_old"], reply["hidden_new"] = index.hidden, hidden
        if prepare is not None:
            before = bool(index.document.get("prepareUnique"))
            if index.is_id:
                raise InvalidOptions("cannot set 'prepareUnique' on the _id index")
            if prepare != before:
                if options:
                    raise InvalidOptions("prepareUnique cannot be changed together with other options of an index")
                options["prepareUnique"] = prepare or None
                reply["prepareUnique_old"], reply["prepareUnique_new"] = before, prepare
        if unique is not None:
            if not unique:
                raise BadValue("Cannot make index non-unique")
            if not index.unique:
                if not index.document.get("prepareUnique") and not prepare:
                    raise InvalidOptions(
                        "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first."
                    )
                options["unique"] = True
                options["prepareUnique"] = None
                reply["unique_new"] = True
        return index.with_options(**options), reply

    def _find_index(self, held: Collection, name: str | None, key: Document | None) -> IndexSpec:
        if name is not None:
            index = held.index(name)
            if index is None and self._collection.clustered and name == clustered_name(self._collection):
                raise Location(6011800, "The 'clusteredIndex' option does not support collMod of an index")
            if index is None:
                raise IndexNotFound(f"cannot find index {name} for ns {self._collection.namespace}")
            return index
        found = []
        for candidate in held.indexes:
            shown: Document | None = candidate.key
            if self._collection.kind == "timeseries":
                row = index_for_view(self._collection, candidate)
                shown = None if row is None else row["key"]
            if shown is not None and list(shown) == list(key or {}) and equal(shown, key):
                found.append(candidate)
        if not found:
            raise IndexNotFound(f"cannot find index {value_text(key)} for ns {self._collection.namespace}")
        return found[0]

    def _expire(self, index: IndexSpec, value: Any, options: Document, reply: Document) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
            raise TypeMismatch(
                f"BSON field 'collMod.index.expireAfterSeconds' is the wrong type '{type_name(value)}', "
                "expected types '[long, int, decimal, double]'"
            )
        # Decimals are rounded half to even, doubles cut.
        number = float(value.to_decimal().to_integral_value()) if isinstance(value, Decimal128) else float(value)
        seconds = 0 if math.isnan(number) else int(max(min(number, TTL_SECONDS_MAX), -TTL_SECONDS_MAX))
        if seconds < 0:
            raise InvalidOptions("TTL index 'expireAfterSeconds' option cannot be less than 0")
        if index.is_id:
            raise InvalidOptions("the _id field does not support TTL indexes")
        if self._collection.kind == "timeseries":
            if index.expire_after_seconds is None:
                raise InvalidOptions("TTL indexes are not supported here: the index has no expireAfterSeconds")
        elif len(index.key) > 1:
            raise InvalidOptions("TTL indexes are single-field indexes, compound indexes do not support TTL")
        # Indexes of special kinds are taken as they are by MongoDB too: nothing ever expires by them.
        before = index.expire_after_seconds
        if before is not None:
            reply["expireAfterSeconds_old"] = Int64(before)
        reply["expireAfterSeconds_new"] = Int64(seconds)
        options["expireAfterSeconds"] = seconds
        original = index.document.get("originalSpec")
        if original is not None:
            options["originalSpec"] = {**original, "expireAfterSeconds": seconds}
