"""The root order of Unicode strings without ICU: exact for ASCII and for Latin letters with common accents.

A key is the weights of all letters, then of all accents, then of case, as far as the strength asks for. Letters of other
scripts follow after Latin ones by code point, signs after the ASCII signs of their kind.
"""

import unicodedata
from typing import Final

_SPACES: Final = "\t\n\v\f\r\x85\u2028\u2029 "
_PUNCTUATION: Final = "_-,;:!?.'\"()[]{}@*/\\&#%"
_SYMBOLS: Final = "`^+<=>|~$"
_PUNCTUATION_AT: Final = 0x40
_SYMBOLS_AT: Final = 0x200000
_DIGITS_AT: Final = 0x400000
_LETTERS_AT: Final = 0x410000
_OTHERS_AT: Final = 0x500000
_OTHERS_OF_KIND: Final = 0x100

_MARKS: Final = {
    mark: weight
    for weight, mark in enumerate(
        "\u0301\u0300\u0306\u0302\u030c\u030a\u0308\u030b\u0303\u0307\u0338\u0335\u0336\u0327\u0328\u0304".strip(),
        start=0x20,
    )
}
_MARKS_AFTER: Final = 0x60
_STROKE: Final = "\u0335"
_ETH: Final = "\u0336"
_EXPANSIONS: Final = {
    "ß": "ss",
    "ẞ": "SS",
    "æ": "ae",
    "Æ": "AE",
    "œ": "oe",
    "Œ": "OE",
    "ø": "o\u0338",
    "Ø": "O\u0338",
    "đ": "d" + _STROKE,
    "Đ": "D" + _STROKE,
    "ð": "d" + _ETH,
    "Ð": "D" + _ETH,
    "ħ": "h" + _STROKE,
    "Ħ": "H" + _STROKE,
    "ł": "l" + _STROKE,
    "Ł": "L" + _STROKE,
}
_EXPANSION_MARK: Final = 0x5F

_PLAIN: Final[dict[str, int]] = {
    **{char: at for at, char in enumerate(_SPACES, start=0x10)},
    **{char: at for at, char in enumerate(_PUNCTUATION, start=_PUNCTUATION_AT)},
    **{char: at for at, char in enumerate(_SYMBOLS, start=_SYMBOLS_AT)},
    **{char: _DIGITS_AT + at for at, char in enumerate("0123456789")},
    **{char: _LETTERS_AT + at for at, char in enumerate("abcdefghiıjklmnŋopqĸrstŧuvwxyzþ")},
}


class RootOrder:
    """The root order with the options of a collation."""

    def __init__(
        self,
        *,
        strength: int = 3,
        case_level: bool = False,
        case_first: str = "off",
        numeric: bool = False,
        shifted: bool = False,
        shifts_punctuation: bool = True,
        backwards: bool = False,
    ) -> None:
        self._strength = strength
        self._case_level = case_level
        self._upper, self._lower = (1, 2) if case_first == "upper" else (2, 1)
        self._numeric = numeric
        self._variable_below = 0 if not shifted else _SYMBOLS_AT if shifts_punctuation else _PUNCTUATION_AT
        self._backwards = backwards

    def key(self, string: str) -> bytes:
        """Bytes that sort as the string does."""
        primary: list[int] = []
        secondary: list[int] = []
        cases: list[int] = []
        variable: list[int] = []
        text = unicodedata.normalize("NFD", "".join(_expanded(char) for char in string))
        at = 0
        skipped = False
        while at < len(text):
            char = text[at]
            if self._numeric and char.isdecimal():
                end = at
                while end < len(text) and text[end].isdecimal():
                    end += 1
                digits = "".join(str(unicodedata.decimal(digit)) for digit in text[at:end]).lstrip("0") or "0"
                primary.extend((_DIGITS_AT, len(digits), *(int(digit) + 1 for digit in digits)))
                secondary.append(0x10)
                cases.append(self._lower)
                at, skipped = end, False
                continue
            at += 1
            if char == _BETWEEN:
                secondary.append(_EXPANSION_MARK)
                continue
            if unicodedata.combining(char):
                if not skipped:
                    secondary.append(_MARKS.get(char) or _MARKS_AFTER + (ord(char) & 0xFFFF))
                continue
            # A variant of other characters (a ligature, a superscript) differs from them like case does.
            plain = unicodedata.normalize("NFKD", char)
            for part in plain:
                weight = _weight(part)
                if weight == 0:
                    continue
                skipped = weight < self._variable_below
                if skipped:
                    variable.append(weight)
                    continue
                primary.append(weight)
                secondary.append(0x10)
                cases.append((self._upper if part.isupper() else self._lower) + (0 if plain == char else 2))
                if self._variable_below:
                    variable.append(0xFFFFFF)
        return self._joined(primary, secondary, cases, variable, text)

    def _joined(
        self, primary: list[int], secondary: list[int], cases: list[int], variable: list[int], text: str
    ) -> bytes:
        key = b"".join(weight.to_bytes(3, "big") for weight in primary)
        if self._strength >= 2:
            if self._backwards:
                secondary = secondary[::-1]
            key += b"\0\0\0" + b"".join(weight.to_bytes(3, "big") for weight in secondary)
        if self._case_level or self._strength >= 3:
            key += b"\0\0\0" + bytes(cases)
        if self._strength >= 4:
            key += b"\0" + b"".join(weight.to_bytes(3, "big") for weight in variable)
        if self._strength == 5:
            key += b"\0\0" + text.replace(_BETWEEN, "").encode("utf-32-be", "surrogatepass")
        return key


_BETWEEN: Final = "\ufdd0"
"""Stands between the letters that one character expands to; no character of any text."""


def _expanded(char: str) -> str:
    found = _EXPANSIONS.get(char)
    if found is None:
        return char
    return found if unicodedata.combining(found[-1]) else _BETWEEN.join(found)


def _weight(char: str) -> int:
    lower = char.lower()
    plain = _PLAIN.get(lower)
    if plain is not None:
        return plain
    if char.isdecimal():
        return _DIGITS_AT + unicodedata.decimal(char)
    if unicodedata.category(char) in ("Cc", "Cf"):
        return 0
    kind = unicodedata.category(char)[0]
    if kind == "P":
        return _PUNCTUATION_AT + _OTHERS_OF_KIND + ord(char)
    if kind == "S":
        return _SYMBOLS_AT + _OTHERS_OF_KIND + ord(char)
    return _OTHERS_AT + ord(lower[0])
