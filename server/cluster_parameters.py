"""Cluster parameters: a few documents that `setClusterParameter` sets and `getClusterParameter` tells.

A standalone server keeps them like a cluster does. `defaultMaxTimeMS` limits reads that bring no limit of their own;
the others are about change streams and migrations, which only replica sets and clusters have.
"""

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from bson import Decimal128, Int64

from ..common.errors import BadValue, DollarPrefixedFieldName, NoSuchKey, TypeMismatch
from ..common.values import Document, decode, encode, is_string, type_name
from ..storage.engine import Engine

_KEY: Final = b"clusterParameters"
_DEFAULTS: Final[Mapping[str, Document]] = MappingProxyType(
    {
        "changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": "off"}},
        "changeStreams": {"expireAfterSeconds": Int64(3600)},
        "defaultMaxTimeMS": {"readOperations": Int64(0)},
        "fleDisableSubstringPreviewParameterLimits": {"shouldDisableLimits": False},
        "pauseMigrationsDuringMultiUpdates": {"enabled": False},
    }
)


class ClusterParameters:
    """The values of all cluster parameters."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.snapshot() as snapshot:
            stored = snapshot.get("meta", _KEY)
        self._values: dict[str, Document] = {} if stored is None else decode(stored)

    @property
    def default_read_ms(self) -> int:
        """How long a read may take that does not say; 0 for ever."""
        held = self._values.get("defaultMaxTimeMS")
        return int(held["readOperations"]) if held else 0

    def names(self) -> list[str]:
        """Every name."""
        return list(_DEFAULTS)

    def document(self, name: str) -> Document:
        """The value as `getClusterParameter` tells it.

        Raises:
            NoSuchKey
        """
        if name not in _DEFAULTS:
            raise NoSuchKey(f"no such cluster parameter {name}")
        return {"_id": name, **copy.deepcopy(self._values.get(name) or _DEFAULTS[name])}

    async def set(self, name: str, value: Any) -> None:
        """Set a parameter, and keep it over a restart.

        Raises:
            NoSuchKey, BadValue, TypeMismatch, DollarPrefixedFieldName: the value cannot be, or there is no such name.
        """
        if name not in _DEFAULTS:
            raise NoSuchKey(f"no such cluster parameter {name}")
        if not isinstance(value, dict):
            raise BadValue(f"cluster parameter {name} has to be a document, found {type_name(value)}")
        for field in value:
            if field.startswith("$"):
                raise DollarPrefixedFieldName(f"the field name '{field}' begins with '$'")
        values = {**self._values, name: _READERS[name](value)}
        raw = encode(values)
        await self._engine.write(lambda transaction: transaction.put("meta", _KEY, raw))
        self._values = values


def _known(value: Document, *names: str) -> None:
    for field in value:
        if field not in names:
            raise BadValue(f"'{field}' is an unknown field of the parameter")


def _number(path: str, value: Any, low: int) -> Int64:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
        raise TypeMismatch(f"'{path}' has to be a number, found {type_name(value)}")
    number = float(value.to_decimal()) if isinstance(value, Decimal128) else value
    if not low <= number < 2**63:
        raise BadValue(f"'{path}' has to be at least {low}, found {number}")
    return Int64(int(number))


def _truth(value: Document, name: str) -> Document:
    _known(value, name)
    given = value.get(name)
    if given is not None and not isinstance(given, bool):
        raise TypeMismatch(f"'{name}' has to be a bool, found {type_name(given)}")
    return {name: bool(given)}


def _change_stream_options(value: Document) -> Document:
    _known(value, "preAndPostImages")
    images = value.get("preAndPostImages")
    if not isinstance(images, dict):
        raise BadValue("'changeStreamOptions.preAndPostImages' has to be a document")
    _known(images, "expireAfterSeconds")
    seconds = images.get("expireAfterSeconds", "off")
    if is_string(seconds):
        if seconds != "off":
            raise BadValue(f"'expireAfterSeconds' has to be a number or 'off', found '{seconds}'")
        return {"preAndPostImages": {"expireAfterSeconds": "off"}}
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | Decimal128):
        raise BadValue(f"'expireAfterSeconds' has to be a number or 'off', found {type_name(seconds)}")
    return {"preAndPostImages": {"expireAfterSeconds": _number("expireAfterSeconds", seconds, 1)}}


def _change_streams(value: Document) -> Document:
    _known(value, "expireAfterSeconds")
    seconds = value.get("expireAfterSeconds")
    return {"expireAfterSeconds": Int64(3600) if seconds is None else _number("expireAfterSeconds", seconds, 1)}


def _default_max_time(value: Document) -> Document:
    _known(value, "readOperations")
    limit = value.get("readOperations")
    return {"readOperations": Int64(0) if limit is None else _number("readOperations", limit, 0)}


_READERS: Final[Mapping[str, Callable[[Document], Document]]] = MappingProxyType(
    {
        "changeStreamOptions": _change_stream_options,
        "changeStreams": _change_streams,
        "defaultMaxTimeMS": _default_max_time,
        "fleDisableSubstringPreviewParameterLimits": lambda value: _truth(value, "shouldDisableLimits"),
        "pauseMigrationsDuringMultiUpdates": lambda value: _truth(value, "enabled"),
    }
)
