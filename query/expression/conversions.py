"""Conversions: `$convert`, and `$toBool $toInt …`, which are its short forms."""

import base64
import binascii
import re
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from bson import Binary, Int64

from ...common.errors import BadValue, ConversionFailure, FailedToParse, Location
from ...common.numbers import INT32_MAX, INT32_MIN, is_number, whole_number
from ...common.values import TYPE_ALIASES, BsonType, Document, is_string, type_name, type_of
from .arithmetic import absent
from .base import Expression, Lazy, OperatorParser, ParseContext, Variables, call_of
from .types import SIMPLE_TARGETS

_FORMATS: Final = ("auto", "base64", "base64url", "hex", "utf8", "uuid")
_UUID_SUBTYPE: Final = 4
_OLD_SUBTYPE: Final = 2
_STRING_BYTES_MAX: Final = 16 * 1024 * 1024
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_BY_ALIAS: Final = {alias: kind for kind, alias in TYPE_ALIASES.items()}


def _failure(why: str) -> ConversionFailure:
    return ConversionFailure(f"{why} in $convert with no onError value")


def _subtype(value: Any) -> int:
    if isinstance(value, uuid.UUID):
        return _UUID_SUBTYPE
    return value.subtype if isinstance(value, Binary) else 0


def _bytes(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    raw = bytes(value)
    # The old subtype has its length once more within, which decoding takes away.
    return struct.pack("<i", len(raw)) + raw if _subtype(value) == _OLD_SUBTYPE else raw


def _binary(raw: bytes, subtype: int) -> Any:
    return Binary(raw, subtype) if subtype else raw


def _binary_text(value: Any, form: str) -> str:
    """The text of a binary value."""
    raw, subtype = _bytes(value), _subtype(value)
    if form == "auto":
        form = "uuid" if subtype == _UUID_SUBTYPE and len(raw) == 16 else "base64"
    _check_size(len(raw), form)
    match form:
        case "base64":
            return base64.b64encode(raw).decode()
        case "base64url":
            return base64.urlsafe_b64encode(raw).decode().rstrip("=")
        case "hex":
            return raw.hex().upper()
        case "utf8":
            try:
                return raw.decode()
            except UnicodeDecodeError as error:
                raise _failure("BinData does not represent a valid UTF-8 string") from error
        case _:
            if subtype != _UUID_SUBTYPE or len(raw) != 16:
                raise _failure("only BinData of subtype 4 can be converted with the format 'uuid'")
            return str(uuid.UUID(bytes=raw))


def _check_size(size: int, form: str) -> None:
    """Refuse a text that no string may be."""
    length = {"hex": 2 * size, "utf8": size, "uuid": 0}.get(form, (size + 2) // 3 * 4)
    if length >= _STRING_BYTES_MAX:
        raise _failure(f"the resulting string of {length} bytes exceeds the maximum of {_STRING_BYTES_MAX}")


def _text_binary(text: str, form: str, subtype: int) -> Any:
    """The binary value that a text writes down."""
    if (form == "uuid") != (subtype == _UUID_SUBTYPE):
        raise _failure(f"the format '{form}' does not give BinData of subtype {subtype}")
    try:
        match form:
            case "base64":
                return _binary(base64.b64decode(text, validate=True), subtype)
            case "base64url":
                if "+" in text or "/" in text:
                    raise binascii.Error("a character of another alphabet")
                padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
                return _binary(base64.b64decode(padded, altchars=b"-_", validate=True), subtype)
            case "hex":
                return _binary(binascii.unhexlify(text), subtype)
            case "utf8":
                return _binary(text.encode(), subtype)
            case "uuid" if _UUID.match(text):
                return Binary(uuid.UUID(text).bytes, subtype)
    except ValueError as error:
        raise _failure(f"Input '{text}' is not valid in the format '{form}'") from error
    raise _failure(f"Input '{text}' cannot be read with the format '{form}'")


_SIGNS: Final = {"little": "<", "big": ">"}


def _number_binary(value: Any, order: str, subtype: int) -> Any:
    letter = "d" if isinstance(value, float) else "q" if type_of(value) is BsonType.INT64 else "i"
    return _binary(struct.pack(_SIGNS[order] + letter, value), subtype)


def _binary_number(value: Any, target: str, order: str) -> Any:
    raw = _bytes(value)
    signs = _SIGNS[order]
    sizes = {"int": (1, 2, 4), "long": (1, 2, 4, 8), "double": (4, 8)}[target]
    if len(raw) not in sizes:
        raise _failure(f"Failed to convert BinData to {target}: {len(raw)} bytes are no such number")
    if target == "double":
        return struct.unpack(signs + ("f" if len(raw) == 4 else "d"), raw)[0]
    whole = int.from_bytes(raw, "little" if order == "little" else "big", signed=True)
    return Int64(whole) if target == "long" else whole


def convert(value: Any, target: str, *, subtype: int = 0, form: str | None = None, order: str = "little") -> Any:
    """A value, which is neither null nor missing, as another type.

    Raises:
        ConversionFailure: 241, there is no such conversion, or the value has no counterpart.
        Location: 4341115, a conversion between strings and binary data that names no format.
    """
    binary = type_of(value) is BsonType.BINARY
    if target == "string" and binary:
        return _binary_text(value, _required(form))
    if target == "binData":
        if is_string(value):
            return _text_binary(str(value), _required(form), subtype)
        if binary:
            if _subtype(value) != subtype:
                raise _failure("Conversions between different BinData subtypes are not supported")
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return _number_binary(value, order, subtype)
    elif binary and target in ("int", "long", "double"):
        return _binary_number(value, target, order)
    elif target in SIMPLE_TARGETS:
        return SIMPLE_TARGETS[target](value)
    raise _failure(f"Unsupported conversion from {type_name(value)} to {target}")


def _required(form: str | None) -> str:
    if form is None:
        raise Location(4341115, "Format must be speficied when converting between string and BinData")
    return form


def _target_of(value: Any) -> str:
    """The alias of the type that a `to` operand names."""
    if is_string(value):
        if value not in _BY_ALIAS and value != "missing":
            raise BadValue(f"Unknown type name: {value}")
        return str(value)
    if not is_number(value):
        raise FailedToParse(f"$convert's 'to' argument must be a string or number, but is {type_name(value)}")
    number = whole_number(value)
    if number is None or not INT32_MIN <= number <= INT32_MAX:
        raise FailedToParse("In $convert, numeric 'to' argument is not an integer")
    if number == 0:
        return "missing"
    try:
        return TYPE_ALIASES[BsonType(number)]
    except ValueError as error:
        raise FailedToParse(
            f"In $convert, numeric value for 'to' does not correspond to a BSON type: {number}"
        ) from error


def _subtype_of(value: Any) -> int:
    if not is_number(value):
        raise Location(4341108, f"$convert's 'subtype' argument must be a number, but is {type_name(value)}")
    number = whole_number(value)
    if number is None:
        raise Location(4341106, "In $convert, numeric 'subtype' argument is not an integer")
    if not (0 <= number <= 9 or 128 <= number <= 255):
        raise Location(4341107, f"In $convert, numeric value for 'subtype' is not a subtype of BinData: {number}")
    return number


def _form_of(value: Any) -> str | None:
    if absent(value):
        return None
    if not is_string(value):
        raise Location(4341114, f"$convert requires that 'format' be a string, found: {type_name(value)}")
    if value not in _FORMATS:
        raise Location(4341125, f"Invalid 'format' argument for $convert: {value}")
    return str(value)


def _order_of(value: Any) -> str:
    if absent(value):
        return "little"
    if not is_string(value):
        raise Location(9130001, f"$convert requires that 'byteOrder' be a string, found: {type_name(value)}")
    if value not in _SIGNS:
        raise Location(9130002, f"Invalid 'byteOrder' argument for $convert: {value}")
    return str(value)


_KEYS: Final = ("input", "to", "format", "byteOrder", "onError", "onNull")


def _parse_convert(name: str, spec: Any, context: ParseContext) -> Expression:
    if not isinstance(spec, dict):
        raise FailedToParse(f"{name} expects an object of named arguments but found: {type_name(spec)}")
    for key in spec:
        if key not in _KEYS:
            raise FailedToParse(f"{name} found an unknown argument: {key}")
    for key in ("input", "to"):
        if key not in spec:
            raise FailedToParse(f"Missing '{key}' parameter to {name}")
    target = spec["to"]
    parsed: dict[str, Expression] = {key: context.parse(spec[key]) for key in _KEYS if key in spec and key != "to"}
    subtype: Expression | None = None
    if isinstance(target, dict) and not next(iter(target), "").startswith("$"):
        if "type" not in target:
            raise FailedToParse(f"Missing 'type' parameter to {name}'s 'to'")
        to = context.parse(target["type"])
        subtype = context.parse(target["subtype"]) if "subtype" in target else None
        if absent(target["type"]):
            raise FailedToParse(f"{name}'s 'to.type' argument must be a string or number, but is null")
    else:
        to = context.parse(target)
    for key in ("onError", "onNull"):
        if key in parsed and parsed[key].is_constant:
            # What it gives is worked out beforehand, and so is its failure.
            parsed[key].evaluate({}, {})

    def evaluate(document: Document, variables: Variables) -> Any:
        values = {key: parsed[key].evaluate(document, variables) for key in _KEYS[:4] if key in parsed}
        wanted = to.evaluate(document, variables)
        chosen = None
        if not absent(wanted):
            chosen = _target_of(wanted["type"] if isinstance(wanted, dict) and "type" in wanted else wanted)
        if absent(values["input"]):
            return parsed["onNull"].evaluate(document, variables) if "onNull" in parsed else None
        if chosen is None:
            return None
        kind = subtype.evaluate(document, variables) if subtype is not None else wanted
        number = 0
        if subtype is not None:
            number = _subtype_of(kind) if chosen == "binData" else 0
        elif isinstance(wanted, dict) and "subtype" in wanted and chosen == "binData":
            number = _subtype_of(wanted["subtype"])
        form, order = _form_of(values.get("format")), _order_of(values.get("byteOrder"))
        try:
            return convert(values["input"], chosen, subtype=number, form=form, order=order)
        except ConversionFailure:
            if "onError" not in parsed:
                raise
            return parsed["onError"].evaluate(document, variables)

    shown = {key: expression.serialize() for key, expression in parsed.items()}
    shown["to"] = to.serialize() if subtype is None else {"type": to.serialize(), "subtype": subtype.serialize()}
    return Lazy(name, [*parsed.values(), to, *([] if subtype is None else [subtype])], evaluate, shown)


def _short(target: str, **options: Any) -> OperatorParser:
    function: Callable[[Any], Any] = lambda value: None if absent(value) else convert(value, target, **options)  # noqa: E731
    parse_call = call_of(function, 1)

    def parse(name: str, spec: Any, context: ParseContext) -> Expression:
        if isinstance(spec, list) and len(spec) != 1:
            raise Location(50723, f"{name} requires a single argument, got {len(spec)}")
        return parse_call(name, spec, context)

    return parse


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$convert": _parse_convert,
    "$toBool": _short("bool"),
    "$toDate": _short("date"),
    "$toDecimal": _short("decimal"),
    "$toDouble": _short("double"),
    "$toInt": _short("int"),
    "$toLong": _short("long"),
    "$toObjectId": _short("objectId"),
    "$toString": _short("string", form="auto"),
    "$toUUID": _short("binData", form="uuid", subtype=_UUID_SUBTYPE),
}
