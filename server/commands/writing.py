"""What the commands that write share: where a write goes, documents made ready, statements run and their failures told.

Finding what a statement changes happens on snapshots, beside everybody else; changing it happens in short transactions on
the writer's thread, which look again at each document that changed in between.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from bson import DatetimeMS, Regex, Timestamp

from ...catalog import documents
from ...catalog.catalog import Catalog
from ...catalog.collections import Collection
from ...catalog.namespaces import Namespace, validate_collection_name
from ...common.errors import (
    BSONObjectTooLarge,
    CannotInsertTimeseriesBucketsWithMixedSchema,
    CommandNotSupportedOnView,
    DocumentValidationFailure,
    DollarPrefixedFieldName,
    InvalidBSON,
    InvalidIdField,
    InvalidNamespace,
    MongoError,
    WriteConflict,
)
from ...common.limits import DOCUMENT_BYTES_MAX
from ...common.ordering import canonical_class
from ...common.values import BsonType, Document, decode
from ...kernels import validate_document, with_id
from ...protocol.documents import elements
from ...query.match.failures import failure_details
from ...query.match.parse import parse_filter
from ...storage.engine import Engine, Transaction
from ..context import Services
from ..operations import Operation

Result = TypeVar("Result")
Change = Callable[[Transaction, Collection, bytes, bytes, Document], Result]
"""Changes one document: transaction, collection, record key, raw document, the same decoded."""

_SLICE_DOCUMENTS: Final = 1000
_SLICE_BYTES: Final = 4 * 1024 * 1024
_ERRORS_TEXT_MAX: Final = 1024 * 1024
RETRIES_MAX: Final = 100
_READ_ONLY_SYSTEM: Final = ("system.profile", "system.indexes", "system.namespaces")


@dataclass(slots=True)
class WriteErrors:
    """The `writeErrors` of a reply; texts beyond 1 MiB in all are left out."""

    rows: list[Document] = field(default_factory=list)
    _text: int = 0

    def add(self, index: int, error: MongoError) -> None:
        """One more failure."""
        row = error.write_error(index)
        self._text += len(row["errmsg"])
        if self._text > _ERRORS_TEXT_MAX:
            row["errmsg"] = ""
        self.rows.append(row)

    def in_order(self) -> list[Document]:
        """By position of the statement."""
        return sorted(self.rows, key=lambda row: int(row["index"]))


def refuse_view(catalog: Catalog, namespace: Namespace) -> Collection | None:
    """What a write goes to: a collection, the view of a time-series collection, or None where there is nothing yet.

    Raises:
        CommandNotSupportedOnView: it is a view.
    """
    collection = catalog.get(namespace)
    if collection is not None and collection.kind == "view":
        raise CommandNotSupportedOnView(f"Namespace {namespace} is a view, not a collection")
    return collection


def check_writable(namespace: Namespace) -> None:
    """Refuse names that nobody writes to.

    Raises:
        InvalidNamespace: the server keeps the collection for itself.
    """
    if namespace.collection in _READ_ONLY_SYSTEM:
        raise InvalidNamespace(f"cannot write to '{namespace}'")


async def ensure_collection(services: Services, namespace: Namespace) -> Collection:
    """The collection of this name, made where it is missing.

    Raises:
        InvalidNamespace: no collection can have the name.
        CommandNotSupportedOnView: it is a view.
    """
    collection = refuse_view(services.catalog, namespace)
    if collection is None:
        validate_collection_name(namespace)
        if namespace.is_system and namespace.collection not in ("system.js", "system.views", "system.users"):
            raise InvalidNamespace(f"Invalid system namespace: {namespace}")
        collection = await services.catalog.create(namespace, {}, exist_ok=True)
    return collection


def prepared(raw: bytes, fill_timestamp: Callable[[], Timestamp] | None) -> bytes:
    """A document as it is stored: with `_id` in front, checked.

    `fill_timestamp` gives the time that replaces empty timestamps at the top level; None leaves them.

    Raises:
        BadValue: the document is too large.
        InvalidIdField, DollarPrefixedFieldName: the `_id` cannot be one.
        InvalidBSON: the bytes are no document.
    """
    if len(raw) > DOCUMENT_BYTES_MAX:
        raise BSONObjectTooLarge(
            f"object to insert too large. size in bytes: {len(raw)}, max size: {DOCUMENT_BYTES_MAX}"
        )
    try:
        validate_document(raw)
        raw = with_id(raw)
    except ValueError as error:
        raise InvalidBSON(str(error)) from error
    kind = raw[4]
    if kind in _NO_ID_KINDS:
        raise InvalidIdField(f"The '_id' value cannot be of type {_NO_ID_KINDS[kind]}")
    if kind == BsonType.OBJECT:
        check_id(decode(raw)["_id"])
    if fill_timestamp is not None and _EMPTY_TIMESTAMP in raw and BsonType.TIMESTAMP in raw:
        return _filled(raw, fill_timestamp)
    return raw


_NO_ID_KINDS: Final = {
    int(BsonType.ARRAY): "array",
    int(BsonType.REGEX): "regex",
    int(BsonType.UNDEFINED): "undefined",
}
_EMPTY_TIMESTAMP: Final = bytes(8)


def _filled(raw: bytes, fill_timestamp: Callable[[], Timestamp]) -> bytes:
    """The document with times in place of the empty timestamps at its top level."""
    for kind, name, start, end in list(elements(raw)):
        if kind == BsonType.TIMESTAMP and name != "_id" and raw[start:end] == _EMPTY_TIMESTAMP:
            now = fill_timestamp()
            raw = raw[:start] + now.inc.to_bytes(4, "little") + now.time.to_bytes(4, "little") + raw[end:]
    return raw


def check_id(identity: Any) -> None:
    """Refuse what cannot be an `_id`.

    Raises:
        InvalidIdField: an array, a regular expression, undefined.
        DollarPrefixedFieldName: an object with a field that begins with `$`.
    """
    if isinstance(identity, list):
        raise InvalidIdField("The '_id' value cannot be of type array")
    if isinstance(identity, Regex):
        raise InvalidIdField("The '_id' value cannot be of type regex")
    if isinstance(identity, dict):
        for name in identity:
            if name.startswith("$"):
                raise DollarPrefixedFieldName(
                    f"_id fields may not contain '$'-prefixed fields: {name} is not valid for storage."
                )


class Validator:
    """The rule that the documents of a collection keep to."""

    def __init__(self, collection: Collection, now: DatetimeMS) -> None:
        """`now` is what the rule takes for the present."""
        rule = collection.validator
        options = collection.options
        self.level = options.get("validationLevel", "strict")
        self.action = options.get("validationAction", "error")
        self._rule = rule
        self._collation = collection.collation
        self._is_buckets = collection.is_buckets and collection.timeseries is not None
        self._matches: Callable[[Document], bool] | None = None
        if rule and self.level != "off":
            self._matches = parse_filter(rule, collator=collection.collation).compile({"NOW": now})

    @property
    def is_open(self) -> bool:
        """Whether everything passes."""
        return self._matches is None and not self._is_buckets

    def check(self, document: Document, *, before: Document | None = None) -> None:
        """Refuse a document that breaks the rule; `before` is what it replaces.

        Raises:
            DocumentValidationFailure
            CannotInsertTimeseriesBucketsWithMixedSchema: a bucket holds values of several types in one field.
        """
        if self._matches is None or self._matches(document) or self.action == "warn":
            if self._is_buckets:
                _check_types_of_bucket(document)
            return
        if before is not None and self.level == "moderate" and not self._matches(before):
            return
        details = failure_details(self._rule or {}, document, self._collation)
        raise DocumentValidationFailure(
            "Document failed validation",
            extra={"errInfo": {"failingDocumentId": document.get("_id"), "details": details}},
        )


def _check_types_of_bucket(bucket: Document) -> None:
    """Queries trust that the least and the greatest value of a field are of one class of type."""
    control = bucket.get("control")
    if isinstance(control, dict) and _mixed(control.get("min"), control.get("max")):
        raise CannotInsertTimeseriesBucketsWithMixedSchema(
            "Cannot write time-series bucket containing mixed schema data: its control.min and control.max are of "
            "different types"
        )


def _mixed(least: Any, greatest: Any) -> bool:
    if isinstance(least, dict) and isinstance(greatest, dict):
        return any(name in greatest and _mixed(value, greatest[name]) for name, value in least.items())
    if isinstance(least, list) and isinstance(greatest, list):
        return any(_mixed(one, other) for one, other in zip(least, greatest, strict=False))
    return canonical_class(least) != canonical_class(greatest)


class Stopped(Exception):
    """A document of a slice failed: which, and why."""

    def __init__(self, position: int, error: MongoError) -> None:
        super().__init__(str(error))
        self.position = position
        self.error = error


async def insert_documents(
    services: Services,
    namespace: Namespace,
    raws: Sequence[bytes],
    *,
    ordered: bool = True,
    bypass_validation: bool = False,
    fill_timestamps: bool = True,
    operation: Operation | None = None,
) -> tuple[int, WriteErrors]:
    """Insert documents into an ordinary collection, made where it is missing; returns how many, and the failures."""
    errors = WriteErrors()
    collection = await ensure_collection(services, namespace)
    check_writable(namespace)
    validator = Validator(collection, now_of(services))
    fill = _timestamps(services) if fill_timestamps else None
    ready: list[tuple[int, bytes]] = []
    for position, raw in enumerate(raws):
        try:
            stored = prepared(raw, fill)
            if not validator.is_open and not bypass_validation:
                validator.check(decode(stored))
        except MongoError as error:
            errors.add(position, error)
            if ordered:
                break
            continue
        ready.append((position, stored))
    stopped = ordered and bool(errors.rows)
    inserted = 0
    for part in _slices(ready):
        if operation is not None:
            operation.check()
        count, failures = await _insert_slice(services, namespace, part, ordered=ordered)
        inserted += count
        for position, failure in failures:
            if stopped:
                # What failed in the store comes before what failed in the checks.
                errors = WriteErrors()
                stopped = False
            errors.add(position, failure)
        if failures and ordered:
            break
    services.counters.insert += len(raws)
    services.counters.documents_inserted += inserted
    return inserted, errors


def _timestamps(services: Services) -> Callable[[], Timestamp]:
    """Gives rising timestamps of now."""
    seconds = services.clock.now_ms() // 1000
    count = 0

    def give() -> Timestamp:
        nonlocal count
        count += 1
        return Timestamp(seconds, count)

    return give


def _slices(rows: Sequence[tuple[int, bytes]]) -> Iterable[list[tuple[int, bytes]]]:
    """Rows in parts that one transaction takes in a few milliseconds."""
    part: list[tuple[int, bytes]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row[1])
        if len(part) >= _SLICE_DOCUMENTS or size >= _SLICE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


async def _insert_slice(
    services: Services, namespace: Namespace, rows: list[tuple[int, bytes]], *, ordered: bool
) -> tuple[int, list[tuple[int, MongoError]]]:
    """Insert one part; after a failure again without the document that failed (ordered: without those behind it)."""
    failures: list[tuple[int, MongoError]] = []
    left = rows
    while left:
        try:
            await write_in(services, namespace, _inserter(left))
        except Stopped as stop:
            failures.append((left[stop.position][0], stop.error))
            if ordered:
                left = left[: stop.position]
            elif len(failures) > 3:
                done, others = await _insert_singly(services, namespace, left, stop.position)
                return done, failures + others
            else:
                left = left[: stop.position] + left[stop.position + 1 :]
            continue
        return len(left), failures
    return 0, failures


def _inserter(rows: Sequence[tuple[int, bytes]]) -> Callable[[Transaction, Collection], None]:
    def insert(transaction: Transaction, collection: Collection) -> None:
        position = 0

        def each() -> Iterable[bytes]:
            nonlocal position
            for position, (_, raw) in enumerate(rows):  # noqa: B007 (read where a document fails)
                yield raw

        try:
            documents.insert_many(transaction, collection, each())
        except MongoError as error:
            raise Stopped(position, error) from None

    return insert


async def _insert_singly(
    services: Services, namespace: Namespace, rows: list[tuple[int, bytes]], failed: int
) -> tuple[int, list[tuple[int, MongoError]]]:
    """Many fail: each document in a transaction of its own, many to a commit."""
    import asyncio

    left = rows[:failed] + rows[failed + 1 :]
    results = await asyncio.gather(
        *(write_in(services, namespace, _inserter([row])) for row in left), return_exceptions=True
    )
    failures: list[tuple[int, MongoError]] = []
    for row, result in zip(left, results, strict=True):
        if isinstance(result, Stopped):
            failures.append((row[0], result.error))
        elif isinstance(result, BaseException):
            raise result
    return len(left) - len(failures), failures


async def write_in(
    services: Services, namespace: Namespace, work: Callable[[Transaction, Collection], Result]
) -> Result:
    """Run a change of one collection, made anew where it was dropped in between."""
    catalog: Catalog = services.catalog
    engine: Engine = services.engine
    for _ in range(RETRIES_MAX):
        collection = await ensure_collection(services, namespace)
        uuid = collection.uuid

        def closure(transaction: Transaction, uuid: Any = uuid) -> tuple[bool, Any]:
            current = catalog.collection_in(transaction, namespace)
            if current is None or current.uuid != uuid:
                return False, None
            return True, work(transaction, current)

        done, result = await engine.write(closure)
        if done:
            return result  # type: ignore[no-any-return]
    raise WriteConflict(f"the collection {namespace} is dropped again and again")


def now_of(services: Services) -> DatetimeMS:
    """The time as documents hold it."""
    return DatetimeMS(services.clock.now_ms())
