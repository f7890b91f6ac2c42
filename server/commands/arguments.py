"""Typed reading of request fields: unknown fields refused, wrong types and ranges told in MongoDB's words."""

import math
from collections.abc import Collection
from typing import Any, Final, TypeVar, overload

from bson import Binary, Decimal128

from ...catalog.namespaces import Namespace
from ...common.errors import BadValue, IDLFailedToParse, IDLUnknownField, InvalidNamespace, TypeMismatch
from ...common.values import Document, is_string, type_name
from ..context import Request
from ..generic_arguments import GENERIC_FIELDS
from ..operations import Operation

Default = TypeVar("Default")

_NUMBER_TYPES: Final = "types '[long, int, decimal, double]'"
_BOOL_TYPES: Final = "types '[bool, long, int, decimal, double]'"
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class _Required:
    """The type of `REQUIRED`."""


REQUIRED: Final = _Required()
"""As a default: the field must be there."""


class Fields:
    """The fields of a request (or of a document within it), taken one by one.

    With `known`, a field that is not in it is refused at once; without, `finish` refuses what nobody took. A null
    counts as absent. `command` is how messages call the document: `BSON field '<command>.<field>' …`.
    """

    def __init__(
        self,
        request: Request | Document,
        command: str | None = None,
        known: Collection[str] | None = None,
        *,
        generic: bool | None = None,
    ) -> None:
        if isinstance(request, Request):
            self._document = request.body
            self._sequences: Collection[str] = request.sequences
            self.command = command or request.name
            self._own: str | None = request.name
            self.database = request.database
            self._operation: Operation | None = request.operation
        else:
            self._document = request
            self._sequences = ()
            self.command = command or ""
            self._own = None
            self.database = ""
            self._operation = None
        self._generic = self._own is not None if generic is None else generic
        self._taken: set[str] = set()
        if known is not None:
            self._refuse_unknown(known)

    def path(self, name: str) -> str:
        """How messages call the field."""
        return f"{self.command}.{name}" if self.command else name

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._document.get(name) is not None or name in self._sequences

    def take_any(self, name: str, *, default: Any = None) -> Any:
        """The value as it is; the default where the field is absent (a null is returned as None)."""
        self._taken.add(name)
        if name not in self._document:
            if default is REQUIRED:
                raise self.missing(name)
            return default
        return self._document[name]

    def take_namespace(self, name: str | None = None) -> Namespace:
        """The namespace of the command: its database and the collection named by `name`, the command's own field."""
        field = name or self._own or self.command
        value = self.take_any(field)
        if isinstance(value, Binary) and value.subtype == 4:
            raise InvalidNamespace("collection UUIDs are not accepted in place of a name here")
        if not is_string(value):
            raise InvalidNamespace(f"collection name has invalid type {type_name(value)}")
        namespace = collection_namespace(self.database, value)
        if self._operation is not None:
            self._operation.namespace = str(namespace)
        return namespace

    @overload
    def take_bool(self, name: str, *, exact: bool = False) -> bool: ...
    @overload
    def take_bool(self, name: str, *, default: Default, exact: bool = False) -> bool | Default: ...
    def take_bool(self, name: str, *, default: Any = False, exact: bool = False) -> Any:
        """A truth value; also a number, unless `exact`."""
        value = self._take(name, default)
        if value is _ABSENT:
            return default
        if isinstance(value, bool):
            return value
        if not exact and isinstance(value, int | float):
            return value != 0
        if not exact and isinstance(value, Decimal128):
            number = value.to_decimal()
            return number.is_nan() or number != 0
        raise self.wrong_type(name, value, "type 'bool'" if exact else _BOOL_TYPES)

    @overload
    def take_string(self, name: str) -> str: ...
    @overload
    def take_string(self, name: str, *, default: Default) -> str | Default: ...
    def take_string(self, name: str, *, default: Any = REQUIRED) -> Any:
        """A string."""
        value = self._take(name, default)
        if value is _ABSENT:
            return default
        if not is_string(value):
            raise self.wrong_type(name, value, "type 'string'")
        return value

    def take_enum(self, name: str, choices: Collection[str], *, default: Any = REQUIRED) -> Any:
        """One of a few strings."""
        value = self.take_string(name, default=default)
        if isinstance(value, str) and value not in choices and value != default:
            raise BadValue(f"Enumeration value '{value}' for field '{self.path(name)}' is not a valid value.")
        return value

    @overload
    def take_document(self, name: str) -> Document: ...
    @overload
    def take_document(self, name: str, *, default: Default) -> Document | Default: ...
    def take_document(self, name: str, *, default: Any = REQUIRED) -> Any:
        """A document."""
        value = self._take(name, default)
        if value is _ABSENT:
            return default
        if not isinstance(value, dict):
            raise self.wrong_type(name, value, "type 'object'")
        return value

    @overload
    def take_list(self, name: str) -> list[Any]: ...
    @overload
    def take_list(self, name: str, *, default: Default) -> list[Any] | Default: ...
    def take_list(self, name: str, *, default: Any = REQUIRED) -> Any:
        """An array."""
        value = self._take(name, default)
        if value is _ABSENT:
            return default
        if not isinstance(value, list):
            raise self.wrong_type(name, value, "type 'array'")
        return value

    @overload
    def take_whole_number(self, name: str, *, low: int | None = None, high: int | None = None) -> int: ...
    @overload
    def take_whole_number(
        self, name: str, *, default: Default, low: int | None = None, high: int | None = None
    ) -> int | Default: ...
    def take_whole_number(
        self, name: str, *, default: Any = REQUIRED, low: int | None = None, high: int | None = None
    ) -> Any:
        """A number as a whole one: doubles are cut towards zero, decimals rounded half to even, NaN is 0."""
        value = self._take(name, default)
        if value is _ABSENT:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
            raise self.wrong_type(name, value, _NUMBER_TYPES)
        number = whole_number(value)
        if low is not None and number < low:
            raise BadValue(f"BSON field '{name}' value must be >= {low}, actual value '{number}'")
        if high is not None and number > high:
            raise BadValue(f"BSON field '{name}' value must be <= {high}, actual value '{number}'")
        return number

    def take_long(self, name: str, *, default: Any = REQUIRED) -> Any:
        """An int64 and nothing else, as cursor ids are."""
        value = self._take(name, default)
        if value is _ABSENT:
            return default
        if type_name(value) != "long":
            raise self.wrong_type(name, value, "type 'long'")
        return int(value)

    def nested(self, name: str, known: Collection[str] | None = None) -> "Fields | None":
        """The fields of a sub-document, None where it is absent."""
        document = self.take_document(name, default=None)
        return None if document is None else Fields(document, self.path(name), known)

    def finish(self) -> None:
        """Refuse every field that was not taken."""
        self._refuse_unknown(self._taken)

    def wrong_type(self, name: str, value: Any, expected: str) -> TypeMismatch:
        """The error for a value of the wrong type; `expected` is `type 'x'` or `types '[x, y]'`."""
        return TypeMismatch(
            f"BSON field '{self.path(name)}' is the wrong type '{type_name(value)}', expected {expected}"
        )

    def missing(self, name: str) -> IDLFailedToParse:
        """The error for a required field that is not there."""
        return IDLFailedToParse(f"BSON field '{self.path(name)}' is missing but a required field")

    def _take(self, name: str, default: Any) -> Any:
        self._taken.add(name)
        value = self._document.get(name)
        if value is None:
            if default is REQUIRED:
                raise self.missing(name)
            return _ABSENT
        return value

    def _refuse_unknown(self, known: Collection[str]) -> None:
        for name in (*self._document, *self._sequences):
            if name in known or name == self._own or (self._generic and name in GENERIC_FIELDS):
                continue
            raise IDLUnknownField(f"BSON field '{self.path(name)}' is an unknown field.")


_ABSENT: Final = _Required()


def whole_number(value: int | float | Decimal128) -> int:
    """A number as an int64: cut towards zero (a decimal: rounded half to even), NaN as 0, saturating."""
    if isinstance(value, Decimal128):
        decimal = value.to_decimal()
        if decimal.is_nan():
            return 0
        if decimal.is_infinite() or abs(decimal) >= _INT64_MAX:
            return _INT64_MAX if decimal > 0 else _INT64_MIN
        return int(decimal.to_integral_value())
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return _INT64_MAX if value > 0 else _INT64_MIN
    return max(_INT64_MIN, min(_INT64_MAX, int(value)))


def collection_namespace(database: str, collection: str) -> Namespace:
    """The namespace of a collection that a command names.

    Raises:
        InvalidNamespace: no collection can have that name.
    """
    if collection == "" or collection.startswith(".") or "\0" in collection:
        raise InvalidNamespace(f"Invalid namespace specified '{database}.{collection}'")
    namespace = Namespace(database, collection)
    if len(str(namespace).encode()) > 255:
        raise InvalidNamespace(f"Fully qualified namespace is too long. Namespace: {namespace} Max: 255")
    return namespace
