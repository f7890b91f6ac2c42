"""Strings by pattern: regular expressions, as a value and as `$regex` with `$options`."""

import re
from typing import Any, Final

from bson import Regex

from ...common.errors import BadValue, Location
from ...common.ordering import order_key, regex_options
from ...common.pcre import OPTION_LETTERS, PatternError, PatternTimeout, literal_prefix, searcher
from ...common.values import Document
from .base import MatchContext, MatchNode, OperatorParser, PathNode, ValueTest, Variables

_PATTERN_BYTES_MAX: Final = 16384
_PYTHON_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": re.UNICODE}


class RegexMatch(PathNode):
    """A string matches a regular expression, or the value is that very expression."""

    rank = 10

    def __init__(self, path: str, pattern: str, flags: str = "") -> None:
        super().__init__(path)
        self.pattern = pattern
        self.flags = "".join(sorted(set(flags)))
        if "\x00" in pattern:
            raise BadValue("Regular expression cannot contain an embedded null byte")
        if len(pattern.encode()) > _PATTERN_BYTES_MAX:
            raise Location(51091, f"Regular expression is invalid: it is longer than {_PATTERN_BYTES_MAX} bytes")
        try:
            self._search = searcher(pattern, self.flags)
        except PatternError as error:
            raise Location(51091, f"Regular expression is invalid: {error}") from error

    @classmethod
    def of_regex(cls, path: str, value: "Regex[str] | re.Pattern[str]") -> "RegexMatch":
        """The node of a regular expression of BSON."""
        pattern = value.pattern
        return cls(path, pattern if isinstance(pattern, str) else pattern.decode(), regex_options(value))

    @property
    def regex(self) -> "Regex[str]":
        """The expression as a value of BSON."""
        flags = 0
        for letter in self.flags:
            flags |= _PYTHON_FLAGS.get(letter, 0)
        return Regex(self.pattern, flags)

    def literal_prefix(self) -> tuple[str, bool]:
        """What every matching string begins with, as far as the pattern tells, and whether all that do so match."""
        return literal_prefix(self.pattern, self.flags)

    def condition(self) -> Document:
        """See `PathNode.condition`."""
        shown: Document = {"$regex": self.pattern}
        if self.flags:
            shown["$options"] = self.flags
        return shown

    def value_test(self, variables: Variables | None = None) -> ValueTest:
        """See `MatchNode.value_test`."""
        search = self._search
        own = order_key(self.regex)

        def test(value: Any) -> bool:
            kind = type(value)
            if kind is str:
                try:
                    return search(value)
                except PatternTimeout as error:
                    raise Location(
                        51156, f"Error occurred while executing the regular expression: {self.pattern}"
                    ) from error
            return (kind is Regex or kind is re.Pattern) and order_key(value) == own

        return test


def check_options(options: str) -> None:
    """Refuses option letters that no regular expression has."""
    for letter in options:
        if letter not in OPTION_LETTERS:
            raise Location(51108, f"invalid flag in regex options: {letter}")


def parse_regex_document(path: str, document: Document) -> RegexMatch:
    """`{$regex: pattern, $options: letters}`, the two in either order."""
    pattern, letters = "", ""
    for name, value in document.items():
        if name == "$regex":
            if type(value) is str:
                pattern = value
            elif isinstance(value, (Regex, re.Pattern)):
                own = regex_options(value)
                pattern = value.pattern if isinstance(value.pattern, str) else value.pattern.decode()
                if own:
                    if letters:
                        raise Location(51074, "options set in both $regex and $options")
                    letters = own
            else:
                raise BadValue("$regex has to be a string")
        elif name == "$options":
            if type(value) is not str:
                raise BadValue("$options has to be a string")
            if letters:
                raise Location(51075, "options set in both $regex and $options")
            letters = value
    check_options(letters)
    return RegexMatch(path, pattern, letters)


def _parse_regex(path: str, _operand: Any, document: Document, _context: MatchContext) -> MatchNode:
    return parse_regex_document(path, document)


def _parse_options(_path: str, _operand: Any, document: Document, _context: MatchContext) -> None:
    if "$regex" not in document:
        raise BadValue("$options needs a $regex")


OPERATORS: Final[dict[str, OperatorParser]] = {"$regex": _parse_regex, "$options": _parse_options}
