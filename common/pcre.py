r"""Regular expressions as PCRE2 reads them, run by the `regex` package with a limit on time.

The package's second dialect is close to PCRE; what differs is rewritten: `\d \w \s \b` and POSIX classes are ASCII
unless the pattern begins with `(*UCP)`, case folding is simple, brackets in classes are literal, `\Q…\E`, `\Z`, `\h`,
`\x{…}`, `\k<…>` and their like exist.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

import regex

TIMEOUT_S: Final = 5.0
PATTERN_LENGTH_MAX: Final = 32764
OPTION_LETTERS: Final = frozenset("imsxu")

_FLAGS: Final = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL, "x": regex.VERBOSE}
_START_VERBS: Final = (
    "(*UTF8)",
    "(*UTF)",
    "(*UCP)",
    "(*ANYCRLF)",
    "(*ANY)",
    "(*LF)",
    "(*CRLF)",
    "(*CR)",
    "(*BSR_ANYCRLF)",
)

_ASCII: Final = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[A-Za-z0-9_]",
    "W": "[^A-Za-z0-9_]",
    "s": r"[\t-\r ]",
    "S": r"[^\t-\r ]",
    "b": "(?:(?<=[A-Za-z0-9_])(?![A-Za-z0-9_])|(?<![A-Za-z0-9_])(?=[A-Za-z0-9_]))",
    "B": "(?:(?<=[A-Za-z0-9_])(?=[A-Za-z0-9_])|(?<![A-Za-z0-9_])(?![A-Za-z0-9_]))",
}
_ALWAYS: Final = {
    "h": r"[\t \xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]",
    "H": r"[^\t \xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]",
    "v": r"[\n-\r\x85\u2028\u2029]",
    "V": r"[^\n-\r\x85\u2028\u2029]",
    "N": r"[^\n]",
}
_POSIX: Final = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\t-\r ",
    "blank": r"\t ",
    "punct": r"!-/:-@\[-`{-~",
    "print": " -~",
    "graph": "!-~",
    "cntrl": r"\x00-\x1f\x7f",
    "xdigit": "0-9A-Fa-f",
    "word": "A-Za-z0-9_",
    "ascii": r"\x00-\x7f",
}
_UNDOTTED: Final = {"i": "(?-i:[iI])", "I": "(?-i:[iI])", "ı": "(?-i:ı)", "İ": "(?-i:İ)"}
_GROUP_HEADER: Final = regex.compile(
    r"\(\?(?:P?<[A-Za-z_]\w*>|'\w+'|P[=>]\w+\)|<[=!]|[=!:>|]|&\w+\)|\(\w+\)|[a-zA-Z^-]*[:)]|R\)|[+-]?\d+\))"
)
# The package prepares the longest literal run of a pattern for a fast search, in a time that grows with the cube of its
# length and that its timeout does not see. A look ahead at "any character" in front of a character changes no answer and
# ends a run.
_RUN_LENGTH: Final = 48
_RUN_END: Final = r"(?=[\s\S])"
_SIGNS: Final = regex.compile(r"[\\.\[\](){}*+?^$|]")
_ESCAPED_SIGN: Final = regex.compile(r"\\([!-/:-@\[-`{-~])")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_OCTAL: Final = frozenset("01234567")


class PatternError(ValueError):
    """A pattern that cannot be compiled."""


class PatternTimeout(Exception):
    """A pattern that needs too long for a string."""


class Found(Protocol):
    """Where and what a pattern matched."""

    def __getitem__(self, group: int, /) -> str:
        """The text of a group; 0 is the whole match."""

    def start(self) -> int:
        """Where the match begins."""

    def end(self) -> int:
        """Where the match ends."""

    def groups(self) -> tuple[str | None, ...]:
        """The texts of the groups; None where one took no part."""


class Pattern(Protocol):
    """What a compiled pattern can do."""

    @property
    def pattern(self) -> str:
        """The pattern as it was given, or as the package reads it."""

    def search(self, string: str, pos: int = 0, *, timeout: float) -> Found | None:
        """The first match at `pos` or later; `TimeoutError` where that takes too long."""


class _FoundLiteral:
    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start

    def __getitem__(self, group: int, /) -> str:
        return self._text

    def start(self) -> int:
        return self._start

    def end(self) -> int:
        return self._start + len(self._text)

    def groups(self) -> tuple[str | None, ...]:
        return ()


class _LiteralPattern:
    """A pattern without signs, which a search for a string answers in linear time."""

    def __init__(self, pattern: str, text: str) -> None:
        self._pattern = pattern
        self._text = text

    @property
    def pattern(self) -> str:
        return self._pattern

    def search(self, string: str, pos: int = 0, *, timeout: float) -> _FoundLiteral | None:
        at = string.find(self._text, pos)
        return None if at < 0 else _FoundLiteral(self._text, at)


def compile_pattern(pattern: str, options: str = "") -> Pattern:
    """The compiled pattern.

    Raises:
        PatternError: the pattern has no meaning.
    """
    if not set(options) & set("ix") and (text := _literal(pattern)) is not None:
        return _LiteralPattern(pattern, text)
    compiled: Pattern = _compiled(pattern, "".join(sorted(set(options))))
    return compiled


def searcher(pattern: str, options: str = "") -> Callable[[str], bool]:
    """A function that tells whether a string matches somewhere.

    Raises:
        PatternError: the pattern has no meaning. (The function itself raises `PatternTimeout`.)
    """
    if not set(options) & set("ixm"):
        literal = _literal(pattern)
        if literal is not None:
            return lambda string: literal in string
        if pattern.startswith("^") and (start := _literal(pattern[1:])) is not None:
            return lambda string: string.startswith(start)
    search = compile_pattern(pattern, options).search

    def matches(string: str) -> bool:
        try:
            return search(string, timeout=TIMEOUT_S) is not None
        except TimeoutError as error:
            raise PatternTimeout(pattern) from error

    return matches


def literal_prefix(pattern: str, options: str = "") -> tuple[str, bool]:
    """What every matching string begins with, empty when nothing is known; and whether every string that does matches."""
    if set(options) & set("imx") or not pattern.startswith("^") or "|" in pattern:
        return "", False
    prefix = ""
    at = 1
    while at < len(pattern):
        char = pattern[at]
        step = 1
        if char == "\\" and at + 1 < len(pattern) and not pattern[at + 1].isalnum():
            char, step = pattern[at + 1], 2
        elif char in "\\.[](){}*+?^$":
            return prefix, False
        following = pattern[at + step : at + step + 1]
        if following in ("*", "?", "{"):
            return prefix, False
        prefix += char
        at += step
    return prefix, bool(prefix)


def _literal(pattern: str) -> str | None:
    """The string that a pattern without any sign but escaped ones stands for; None when it has others."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise PatternError("regular expression is too large")
    if "\\" not in pattern:
        return None if _SIGNS.search(pattern) else pattern
    return None if _SIGNS.search(_ESCAPED_SIGN.sub("", pattern)) else _ESCAPED_SIGN.sub(r"\1", pattern)


@lru_cache(maxsize=1024)
def _compiled(pattern: str, options: str) -> "regex.Pattern[str]":
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise PatternError("regular expression is too large")
    flags = regex.VERSION1
    for letter in options:
        flags |= _FLAGS.get(letter, 0)
    try:
        return regex.compile(
            _Translator(pattern, verbose="x" in options, ignore_case="i" in options).translated(), flags
        )
    except (regex.error, RecursionError, OverflowError, ValueError, KeyError, IndexError) as error:
        raise PatternError(str(error)) from error


class _Translator:
    """One walk over a pattern of PCRE that writes it in the dialect of the package."""

    def __init__(self, pattern: str, *, verbose: bool, ignore_case: bool) -> None:
        self._pattern = pattern
        self._verbose = verbose
        self._at = 0
        self._ucp = False
        # The package takes all of i, I, ı and İ for one letter when it ignores case.
        self._undotted = _UNDOTTED if ignore_case and "(?" not in pattern else {}
        self._out: list[str] = []

    def translated(self) -> str:
        self._start_verbs()
        pattern = self._pattern
        run_start = 0
        while self._at < len(pattern):
            char = pattern[self._at]
            if char in "()[]{}*+?|":
                run_start = self._at + 1
            elif (
                self._at - run_start >= _RUN_LENGTH and not char.isspace() and pattern[self._at : self._at + 2] != "\\E"
            ):
                self._out.append(_RUN_END)
                run_start = self._at
            if char == "\\":
                self._escape()
            elif char == "[":
                self._class()
            elif char == "(" and pattern.startswith("(?#", self._at):
                self._at = self._comment_end()
            elif char == "(" and (header := _GROUP_HEADER.match(pattern, self._at)):
                self._out.append(header[0])
                self._at = header.end()
            elif char == "#" and self._verbose:
                end = pattern.find("\n", self._at)
                self._at = len(pattern) if end < 0 else end + 1
            else:
                self._out.append(self._undotted.get(char, char))
                self._at += 1
        # Case folding of whole strings (ß = ss) is not PCRE's.
        return "(?-f)" + "".join(self._out)

    def _start_verbs(self) -> None:
        while verb := next((verb for verb in _START_VERBS if self._pattern.startswith(verb, self._at)), None):
            self._ucp = self._ucp or verb == "(*UCP)"
            self._at += len(verb)

    def _comment_end(self) -> int:
        end = self._pattern.find(")", self._at)
        if end < 0:
            raise PatternError("missing ) after (?# comment")
        return end + 1

    def _braced(self, start: int) -> tuple[str, int]:
        """The text in the braces that open at `start`, and where it goes on."""
        end = self._pattern.find("}", start)
        if end < 0:
            raise PatternError("missing terminating }")
        return self._pattern[start + 1 : end], end + 1

    def _escape(self) -> None:
        at = self._at + 1
        if at >= len(self._pattern):
            raise PatternError("\\ at end of pattern")
        char = self._pattern[at]
        if char == "Q":
            end = self._pattern.find("\\E", at)
            text = self._pattern[at + 1 :] if end < 0 else self._pattern[at + 1 : end]
            runs = (text[start : start + _RUN_LENGTH] for start in range(0, len(text), _RUN_LENGTH))
            self._out.append(_RUN_END.join(regex.escape(run) for run in runs))
            self._at = len(self._pattern) if end < 0 else end + 2
        elif char == "E":
            self._at = at + 1
        elif char == "Z":
            self._out.append(r"(?=\n?\Z)")
            self._at = at + 1
        elif char == "z":
            self._out.append(r"\Z")
            self._at = at + 1
        elif char in "kg":
            self._reference(char, at + 1)
        elif char in _ALWAYS:
            self._out.append(_ALWAYS[char])
            self._at = at + 1
        elif char in _ASCII and not self._ucp:
            self._out.append(_ASCII[char])
            self._at = at + 1
        elif char == "C":
            raise PatternError("\\C is not allowed in a UTF pattern")
        else:
            self._out.append(self._character(in_class=False))

    def _reference(self, char: str, at: int) -> None:
        opened = self._pattern[at : at + 1]
        closing = {"{": "}", "<": ">", "'": "'"}.get(opened)
        if closing is None:
            end = at + 1 if opened in "+-" else at
            while end < len(self._pattern) and self._pattern[end].isdecimal():
                end += 1
            name = self._pattern[at:end]
        else:
            end = self._pattern.find(closing, at + 1)
            if end < 0:
                raise PatternError(f"\\{char} is not followed by a name or number")
            name = self._pattern[at + 1 : end]
            end += 1
        if not name:
            raise PatternError(f"\\{char} is not followed by a name or number")
        if char == "g" and opened in ("<", "'"):
            self._out.append(f"(?{name})" if name.lstrip("+-").isdecimal() else f"(?&{name})")
        elif name.startswith("-"):
            self._out.append(f"\\g<{self._groups_so_far() + 1 - int(name[1:])}>")
        else:
            self._out.append(f"\\g<{name}>")
        self._at = end

    def _groups_so_far(self) -> int:
        text = "".join(self._out)
        return len(regex.findall(r"(?<!\\)\((?!\?)|\(\?P?<(?![=!])", text))

    def _character(self, *, in_class: bool) -> str:
        """An escape that stands for one character, or that both dialects share."""
        at = self._at + 1
        char = self._pattern[at]
        if char == "x":
            if self._pattern.startswith("{", at + 1):
                digits, self._at = self._braced(at + 1)
            else:
                end = at + 1
                while end < at + 3 and end < len(self._pattern) and self._pattern[end] in _HEX:
                    end += 1
                digits, self._at = self._pattern[at + 1 : end], end
            return _literal_character(int(digits or "0", 16))
        if char == "o" and self._pattern.startswith("{", at + 1):
            digits, self._at = self._braced(at + 1)
            return _literal_character(int(digits, 8))
        if char == "c" and at + 1 < len(self._pattern):
            self._at = at + 2
            return _literal_character(ord(self._pattern[at + 1].upper()) ^ 64)
        if char == "0" or (in_class and char in _OCTAL):
            end = at
            while end < at + 3 and end < len(self._pattern) and self._pattern[end] in _OCTAL:
                end += 1
            digits, self._at = self._pattern[at:end], end
            return _literal_character(int(digits, 8))
        if char in "pP":
            return self._property(at)
        if char == "e":
            self._at = at + 1
            return r"\x1b"
        if char == "b" and in_class:
            self._at = at + 1
            return r"\x08"
        self._at = at + 1
        if (char.isalpha() and char.isascii() and char not in "afnrtABDGKRSWXbdsw") or char in "uUlL":
            raise PatternError("unrecognized character follows \\")
        return "\\" + char if char.isascii() and (char.isalnum() or not char.isalpha()) else char

    def _property(self, at: int) -> str:
        negated = self._pattern[at] == "P"
        if self._pattern.startswith("{", at + 1):
            name, self._at = self._braced(at + 1)
        else:
            name, self._at = self._pattern[at + 1 : at + 2], at + 2
        if name.startswith("^"):
            negated, name = not negated, name[1:]
        if not name:
            raise PatternError("malformed \\P or \\p sequence")
        if name == "Any":
            return "[^\\s\\S]" if negated else "[\\s\\S]"
        if name == "L&":
            return "[^\\p{Lu}\\p{Ll}\\p{Lt}]" if negated else "[\\p{Lu}\\p{Ll}\\p{Lt}]"
        return f"\\{'P' if negated else 'p'}{{{name}}}"

    def _class(self) -> None:
        pattern = self._pattern
        at = self._at + 1
        out = ["["]
        if pattern.startswith("^", at):
            out.append("^")
            at += 1
        first = True
        while True:
            if at >= len(pattern):
                raise PatternError("missing terminating ] for character class")
            char = pattern[at]
            if char == "]" and not first:
                break
            first = False
            if char == "[" and pattern.startswith("[:", at) and (end := pattern.find(":]", at)) > 0:
                out.append(self._posix(pattern[at + 2 : end]))
                at = end + 2
            elif char == "\\":
                self._at = at
                out.append(self._class_escape())
                at = self._at
            else:
                # In the second dialect brackets nest, and doubled signs are operations on sets.
                out.append("\\" + char if char in "[]&|~" else char)
                if char == "-" and pattern.startswith("-", at + 1):
                    out[-1] = "\\-"
                at += 1
        self._at = at + 1
        self._out.append("".join(out) + "]")

    def _class_escape(self) -> str:
        at = self._at + 1
        if at >= len(self._pattern):
            raise PatternError("\\ at end of pattern")
        char = self._pattern[at]
        if char == "Q":
            end = self._pattern.find("\\E", at)
            text = self._pattern[at + 1 :] if end < 0 else self._pattern[at + 1 : end]
            self._at = len(self._pattern) if end < 0 else end + 2
            return "".join("\\" + sign if not sign.isalnum() else sign for sign in text)
        if char == "E":
            self._at = at + 1
            return ""
        if char in "BRXNK":
            raise PatternError("escape sequence is invalid in character class")
        if char != "b":
            if char in _ALWAYS:
                self._at = at + 1
                return _ALWAYS[char]
            if char in _ASCII and not self._ucp:
                self._at = at + 1
                return _ASCII[char]
        return self._character(in_class=True)

    def _posix(self, name: str) -> str:
        negated = name.startswith("^")
        name = name.removeprefix("^")
        if name not in _POSIX:
            raise PatternError("unknown POSIX class name")
        if self._ucp and name not in ("xdigit", "ascii", "word"):
            return f"[:{'^' if negated else ''}{name}:]"
        return f"[^{_POSIX[name]}]" if negated else _POSIX[name]


def _literal_character(code: int) -> str:
    if code > 0x10FFFF:
        raise PatternError("character code point value in \\x{} or \\o{} is too large")
    return f"\\U{code:08x}"
