"""Searching in strings: `$regexFind $regexFindAll $regexMatch`, `$replaceOne $replaceAll`, `$indexOfBytes $indexOfCP`."""

from collections.abc import Callable
from typing import Any, Final

from bson import Regex

from ...common.errors import Location
from ...common.numbers import INT32_MAX, INT32_MIN, is_number, whole_number
from ...common.ordering import regex_options
from ...common.pcre import OPTION_LETTERS, TIMEOUT_S, PatternError, PatternTimeout, compile_pattern
from ...common.values import Document, is_string, type_name
from .arithmetic import absent
from .base import Call, Constant, Expression, OperatorParser, ParseContext, call_of

_PATTERN_BYTES_MAX: Final = 16 * 1024
_STRING_BYTES_MAX: Final = 16 * 1024 * 1024


def _pattern_of(name: str, pattern: Any, options: Any) -> Any:
    """The compiled pattern of a `regex` operand and its options; None where the operand is null."""
    if not absent(options) and not is_string(options):
        raise Location(51106, f"{name} needs 'options' to be of type string")
    letters = "" if absent(options) else str(options)
    if absent(pattern):
        text = None
    elif isinstance(pattern, Regex):
        own = regex_options(pattern)
        if own and not absent(options):
            raise Location(51107, f"{name}: found regex option(s) specified in both 'regex' and 'option' fields")
        text, letters = pattern.pattern, own or letters
    elif is_string(pattern):
        text = str(pattern)
    else:
        raise Location(51105, f"{name} needs 'regex' to be of type string or regex")
    if text is not None and "\0" in text:
        raise Location(51109, f"{name}: regular expression cannot contain an embedded null byte")
    if "\0" in letters:
        raise Location(51110, f"{name}: regular expression options string cannot contain an embedded null byte")
    if text is None:
        return None
    for letter in letters:
        if letter not in OPTION_LETTERS:
            raise Location(51108, f"{name} invalid flag in regex options: {letter}")
    if len(text) > _PATTERN_BYTES_MAX // 4 and len(text.encode()) > _PATTERN_BYTES_MAX:
        raise Location(51111, f"Invalid Regex in {name}: regular expression is too large")
    try:
        return compile_pattern(text, letters)
    except PatternError as error:
        raise Location(51111, f"Invalid Regex in {name}: {error}") from error


def _found(match: Any) -> Document:
    return {"match": match[0], "idx": match.start(), "captures": list(match.groups())}


def _find(text: str, pattern: Any) -> Any:
    match = pattern.search(text, timeout=TIMEOUT_S)
    return None if match is None else _found(match)


def _find_all(text: str, pattern: Any) -> list[Document]:
    found, at = [], 0
    while at <= len(text):
        match = pattern.search(text, at, timeout=TIMEOUT_S)
        if match is None:
            break
        found.append(_found(match))
        # An empty match moves on by one character, so that the search ends.
        at = match.end() if match[0] else match.end() + 1
        if at >= len(text):
            break
    return found


def _match(text: str, pattern: Any) -> bool:
    return pattern.search(text, timeout=TIMEOUT_S) is not None


def _regex(search: Callable[[str, Any], Any], nothing: Callable[[], Any]) -> OperatorParser:
    def parse(name: str, spec: Any, context: ParseContext) -> Expression:
        given = _given(name, spec, context)
        keys = [key for key in ("input", "regex", "options") if key in given]
        fixed = all(isinstance(given[key], Constant) for key in keys[1:])
        ready = (
            _pattern_of(name, *[_value(given[key]) for key in keys[1:]], *([None] * (3 - len(keys)))) if fixed else None
        )

        def function(text: Any, pattern: Any, options: Any = None) -> Any:
            compiled = ready if fixed else _pattern_of(name, pattern, options)
            if not absent(text) and not is_string(text):
                raise Location(51104, f"{name} needs 'input' to be of type string")
            if absent(text) or compiled is None:
                return nothing()
            try:
                return search(str(text), compiled)
            except TimeoutError as error:
                raise PatternTimeout(compiled.pattern) from error

        return Call(
            name, [given[key] for key in keys], function, shown=lambda values: dict(zip(keys, values, strict=True))
        )

    return parse


def _value(expression: Expression) -> Any:
    assert isinstance(expression, Constant)
    return expression.value


def _given(name: str, spec: Any, context: ParseContext) -> dict[str, Expression]:
    if not isinstance(spec, dict):
        raise Location(51103, f"{name} expects an object of named arguments but found: {type_name(spec)}")
    for key in spec:
        if key not in ("input", "regex", "options"):
            raise Location(31024, f"{name} found unrecognized field: {key}")
    for key, code in (("input", 31022), ("regex", 31023)):
        if key not in spec:
            raise Location(code, f"{name} requires '{key}' parameter")
    return {key: context.parse(value) for key, value in spec.items()}


def _parse_replace(name: str, spec: Any, context: ParseContext) -> Expression:
    keys = ("input", "find", "replacement")
    if not isinstance(spec, dict):
        raise Location(51751, f"{name} requires an object as an argument, found: {type_name(spec)}")
    for key in spec:
        if key not in keys:
            raise Location(51750, f"{name} found an unknown argument: {key}")
    for key, code in zip(keys, (51749, 51748, 51747), strict=True):
        if key not in spec:
            raise Location(code, f"{name} requires '{key}' to be specified")
    given = [context.parse(spec[key]) for key in keys]
    most = 1 if name == "$replaceOne" else -1

    def function(text: Any, find: Any, replacement: Any) -> Any:
        for key, value, code in zip(keys, (text, find, replacement), (10503904, 10503901, 10503902), strict=True):
            if not absent(value) and not is_string(value):
                raise Location(code, f"{name} requires that '{key}' be a string, found: {value}")
        if absent(text) or absent(find) or absent(replacement):
            return None
        made = str(text).replace(find, replacement, most)
        for one in (text, find, made):
            if len(one) >= _STRING_BYTES_MAX // 4 and len(one.encode()) >= _STRING_BYTES_MAX:
                raise Location(16493, f"{name}: a string is too large")
        return made

    return Call(name, given, function, shown=lambda values: dict(zip(keys, values, strict=True)))


def _index_of(name: str, codes: tuple[int, int], as_bytes: bool) -> OperatorParser:
    def bound(value: Any, kind: str) -> int:
        whole = whole_number(value) if is_number(value) else None
        if whole is None or not INT32_MIN <= whole <= INT32_MAX:
            raise Location(
                40096, f"{name} requires an integral {kind} index, found a value of type: {type_name(value)}"
            )
        if whole < 0:
            raise Location(40097, f"{name} requires a nonnegative {kind} index, found: {whole}")
        return whole

    def function(text: Any, wanted: Any, *bounds: Any) -> Any:
        if absent(text):
            return None
        if not is_string(text):
            raise Location(codes[0], f"{name} requires a string as the first argument, found: {type_name(text)}")
        if not is_string(wanted):
            raise Location(codes[1], f"{name} requires a string as the second argument, found: {type_name(wanted)}")
        where: Any = text.encode() if as_bytes else str(text)
        what: Any = wanted.encode() if as_bytes else str(wanted)
        start = bound(bounds[0], "starting") if bounds else 0
        stop = min(bound(bounds[1], "ending"), len(where)) if len(bounds) > 1 else len(where)
        if as_bytes or not where:
            return -1 if start > len(where) or stop < start else where.find(what, start, stop)
        # Code points are searched by where a match begins; it may end behind the bound.
        place = where.find(what, start)
        return place if place < stop else -1

    return call_of(function, 2, 4)


OPERATORS: Final[dict[str, OperatorParser]] = {
    "$indexOfBytes": _index_of("$indexOfBytes", (40091, 40092), True),
    "$indexOfCP": _index_of("$indexOfCP", (40093, 40094), False),
    "$regexFind": _regex(_find, lambda: None),
    "$regexFindAll": _regex(_find_all, list),
    "$regexMatch": _regex(_match, lambda: False),
    "$replaceAll": _parse_replace,
    "$replaceOne": _parse_replace,
}
