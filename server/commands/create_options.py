"""The options of `create`: read, checked against each other, and put into the form that `listCollections` shows."""

from dataclasses import dataclass, field
from typing import Any, Final

from bson import Int64

from ...catalog.index_specs import IndexSpec, is_id_key
from ...catalog.namespaces import Namespace
from ...catalog.timeseries_options import TimeseriesOptions, lifetime_seconds
from ...common.collation import Collation
from ...common.display import value_text
from ...common.errors import (
    BadValue,
    FailedToParse,
    InvalidIndexSpecificationOption,
    InvalidOptions,
    Location,
    TypeMismatch,
)
from ...common.ordering import equal
from ...common.values import Document, is_string, type_name
from ..context import Request
from .arguments import Fields, whole_number
from .encrypted_fields import check_encrypted_fields
from .validators import check_validator
from .view_definitions import check_view_name

SIZE_MAX: Final = 1 << 50
DOCUMENTS_MAX: Final = (1 << 31) - 1
_LEVELS: Final = ("off", "strict", "moderate")
_ACTIONS: Final = ("error", "warn", "errorAndLog")
_KNOWN: Final = (
    "autoIndexId", "capped", "changeStreamPreAndPostImages", "clusteredIndex", "collation", "encryptedFields",
    "expireAfterSeconds", "flags", "idIndex", "indexOptionDefaults", "max", "pipeline", "recordIdsReplicated", "size",
    "storageEngine", "temp", "timeseries", "validationAction", "validationLevel", "validator", "viewOn",
)  # fmt: skip
_WITH_TIMESERIES: Final = frozenset(
    {"timeseries", "expireAfterSeconds", "storageEngine", "indexOptionDefaults", "collation"}
)
_ON_BUCKETS: Final = frozenset({"validator", "clusteredIndex", "validationLevel", "validationAction"})


@dataclass(slots=True)
class CreateOptions:
    """Checked options of a collection to be made."""

    namespace: Namespace
    options: Document = field(default_factory=dict)
    timeseries: TimeseriesOptions | None = None
    is_view: bool = False
    id_index: IndexSpec | None = None


def read_create_options(request: Request, now_ms: int) -> CreateOptions:
    """Read and check the fields of `create`.

    Raises:
        MongoError: what no collection can be.
    """
    fields = Fields(request, known=_KNOWN)
    namespace = fields.take_namespace()
    made = CreateOptions(namespace)
    options = made.options
    _capped(fields, options)
    _clustered(fields, namespace, options)
    _validation(fields, namespace, options)
    view_on = fields.take_string("viewOn", default=None)
    pipeline = fields.take_list("pipeline", default=None)
    if pipeline is not None:
        pipeline = [stage for stage in pipeline if stage is not None]
    for position, stage in enumerate(pipeline or ()):
        if not isinstance(stage, dict):
            raise TypeMismatch(
                f"BSON field 'create.pipeline.{position}' is the wrong type '{type_name(stage)}', expected type 'object'"
            )
    for name in ("storageEngine", "indexOptionDefaults"):
        document = fields.take_document(name, default=None)
        if document:
            _check_storage_options(fields, name, document)
            options[name] = document
    collation = fields.take_document("collation", default=None)
    if collation is not None:
        parsed = Collation.parse(collation)
        if parsed is not None:
            options["collation"] = parsed.to_document()
    images = fields.nested("changeStreamPreAndPostImages", known=("enabled",))
    if images is not None and not images.has("enabled"):
        raise images.missing("enabled")
    if images is not None and images.take_bool("enabled", exact=True):
        options["changeStreamPreAndPostImages"] = {"enabled": True}
    encrypted = fields.take_document("encryptedFields", default=None)
    if encrypted is not None:
        check_encrypted_fields(fields, encrypted)
        if options.get("capped"):
            raise Location(6367301, "Encrypted fields cannot be used with a capped collection")
        if view_on is not None or fields.has("timeseries"):
            raise Location(6346401, "Encrypted fields cannot be used with views or timeseries collections")
        raise Location(6346402, "Encrypted collections are not supported on standalone")
    if fields.take_bool("temp"):
        options["temp"] = True
    id_index = fields.take_document("idIndex", default=None)
    _conflicts(fields, namespace, view_on, pipeline, "changeStreamPreAndPostImages" in options)
    _expiry(fields, options, now_ms)
    if fields.has("timeseries"):
        made.timeseries = TimeseriesOptions.parse(fields.take_any("timeseries"), str(namespace))
    if view_on is not None:
        made.is_view = True
        made.options = {"viewOn": view_on, "pipeline": pipeline or []}
        if "collation" in options:
            made.options["collation"] = options["collation"]
        check_view_name(view_on, namespace)
    if id_index is not None:
        made.id_index = _id_index(id_index, options.get("collation"))
    return made


def _capped(fields: Fields, options: Document) -> None:
    capped = fields.take_bool("capped")
    size = fields.take_whole_number("size", default=None, low=1, high=SIZE_MAX)
    documents = fields.take_whole_number("max", default=None)
    if documents is not None and documents > DOCUMENTS_MAX:
        raise BadValue("max in a capped collection has to be < 2^31 or not set")
    if fields.take_any("autoIndexId") is not None and not fields.take_bool("autoIndexId"):
        raise InvalidOptions("autoIndexId:false is not allowed for collections in this database")
    if capped and size is None:
        raise InvalidOptions("the 'size' field is required when 'capped' is true")
    if not capped and not fields.has("viewOn") and (size is not None or documents is not None):
        name = "size" if size is not None else "max"
        if fields.has("clusteredIndex") and name == "max":
            raise Location(6049204, "Clustered collections cannot have a maximum number of documents")
        raise InvalidOptions(f"the 'capped' field needs to be true when the '{name}' field is present")
    if capped:
        options["capped"] = True
        options["size"] = int(size or 0)
        if documents is not None and documents > 0:
            options["max"] = int(documents)


def _clustered(fields: Fields, namespace: Namespace, options: Document) -> None:
    value = fields.take_any("clusteredIndex", default=False)
    if value is None:
        raise fields.wrong_type("clusteredIndex", None, "types '[bool, object]'")
    if value is False and not fields.has("clusteredIndex"):
        return
    if options.get("capped"):
        raise Location(6049200, "A capped collection cannot be clustered")
    if not isinstance(value, dict):
        if isinstance(value, bool | int | float) or type_name(value) == "decimal":
            truth = fields.take_bool("clusteredIndex")
            if fields.has("timeseries"):
                if truth and namespace.is_buckets:
                    return
                raise InvalidOptions(f"{namespace}: 'timeseries' is not allowed with 'clusteredIndex'")
            if not truth:
                return
            raise Location(
                5979703, "The 'clusteredIndex' legacy format {clusteredIndex: <bool>} is only supported for buckets"
            )
        raise fields.wrong_type("clusteredIndex", value, "types '[bool, object]'")
    inner = Fields(value, fields.path("clusteredIndex"), known=("key", "name", "unique", "v"))
    key = inner.take_document("key")
    unique = inner.take_bool("unique", default=None)
    if unique is None:
        raise inner.missing("unique")
    version = inner.take_any("v", default=2)
    name = inner.take_string("name", default="_id_")
    if fields.has("timeseries"):
        raise InvalidOptions(f"{namespace}: 'timeseries' is not allowed with 'clusteredIndex'")
    if fields.has("viewOn"):
        raise Location(6026500, "The 'clusteredIndex' option is not supported with views")
    if list(key) != ["_id"] or not equal(key["_id"], 1):
        raise InvalidIndexSpecificationOption(
            f"The clusteredIndex option is not supported for key pattern {value_text(key)}: only {{_id: 1}} is"
        )
    if not unique:
        raise Location(5979700, "The clusteredIndex option requires unique: true to be specified")
    if whole_number(version) != 2:
        raise Location(5979704, "The clusteredIndex option requires v: 2")
    options["clusteredIndex"] = {"v": 2, "key": {"_id": 1}, "name": name, "unique": True}


def _validation(fields: Fields, namespace: Namespace, options: Document) -> None:
    validator = fields.take_document("validator", default=None)
    level = fields.take_enum("validationLevel", _LEVELS, default=None)
    action = fields.take_enum("validationAction", _ACTIONS, default=None)
    if validator is not None:
        check_validator(validator, namespace)
        options["validator"] = validator
    if level is not None:
        options["validationLevel"] = level
    if action is not None:
        options["validationAction"] = action


def _check_storage_options(fields: Fields, name: str, document: Document) -> None:
    """Options of storage engines, which are kept and have no effect, are documents of documents."""
    if name == "indexOptionDefaults":
        inner = Fields(document, fields.path(name), known=("storageEngine",))
        document = inner.take_document("storageEngine", default={})
        name = f"{name}.storageEngine"
    for engine, value in document.items():
        if not isinstance(value, dict):
            raise BadValue(f"'{name}.{engine}' has to be an embedded document.")
        if engine != "wiredTiger":
            raise InvalidOptions(f"{engine} is not a registered storage engine for this server")
        for option, setting in value.items():
            if option != "configString":
                raise InvalidOptions(f"'{option}' is not a supported option in {name}.{engine}")
            if not is_string(setting):
                raise TypeMismatch(f"'{option}' must be a string, found {type_name(setting)}")
            if "\0" in setting:
                raise FailedToParse(f"'{option}' must not contain null bytes")
            if setting.strip():
                # There is no such engine here whose settings could be told apart.
                raise BadValue(f"the setting '{setting}' of {name}.{engine}.{option} is unknown")


def _conflicts(
    fields: Fields, namespace: Namespace, view_on: str | None, pipeline: list[Any] | None, images: bool
) -> None:
    """Refuse options that do not go together."""
    if pipeline is not None and view_on is None:
        raise InvalidOptions("'pipeline' option cannot be specified without 'viewOn'")
    present = [name for name in _KNOWN if fields.has(name)]
    if fields.has("timeseries"):
        allowed = _WITH_TIMESERIES | (_ON_BUCKETS if namespace.is_buckets else frozenset())
        for name in present:
            if name in allowed or (name == "capped" and not fields.take_bool("capped")):
                continue
            raise InvalidOptions(f"{namespace}: 'timeseries' is not allowed with '{name}'")
    if view_on is not None:
        for name in present:
            if name in ("idIndex", "autoIndexId", "expireAfterSeconds") or (
                name == "changeStreamPreAndPostImages" and images
            ):
                raise InvalidOptions(f"'{name}' is not supported on a view")
    if fields.has("idIndex") and fields.has("clusteredIndex"):
        raise InvalidOptions("idIndex is not allowed with clusteredIndex")


def _expiry(fields: Fields, options: Document, now_ms: int) -> None:
    if not fields.has("expireAfterSeconds"):
        return
    value = fields.take_whole_number("expireAfterSeconds")
    if not fields.has("timeseries") and not isinstance(options.get("clusteredIndex"), dict):
        raise InvalidOptions(
            "'expireAfterSeconds' is only supported on time-series collections or when the 'clusteredIndex' option is "
            "specified"
        )
    options["expireAfterSeconds"] = Int64(lifetime_seconds(value, now_ms))


def _id_index(spec: Document, collation: Document | None) -> IndexSpec:
    """The index on `_id` as asked for, which can only be what it is anyway."""
    if isinstance(spec.get("key"), dict) and "name" in spec and not is_id_key(spec["key"]):
        raise BadValue(f"The field 'key' for an _id index must be {{_id: 1}}, but got {value_text(spec['key'])}")
    parsed = IndexSpec.parse(spec, default_collation=collation)
    asked = None if parsed.collation is None else parsed.collation.to_document()
    if asked != collation:
        raise BadValue(
            "The 'collation' option of the _id index must equal the collation of the collection: "
            f"{value_text(asked)} and {value_text(collation)}"
        )
    return parsed
