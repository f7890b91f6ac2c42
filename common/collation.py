"""Collations: how strings compare for a language, as requests ask for it.

The orders are those of Unicode's CLDR, which the kernels hold; strings are compared in their normal form, whether or not
`normalization` asks for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN
from functools import lru_cache
from typing import Any, Final

from bson import Decimal128

# The comparisons that a dataclass writes need the name `NotImplemented` for themselves.
from . import errors
from .display import value_text
from .errors import (
    BadValue,
    IDLFailedToParse,
    IDLUnknownField,
    IncompatibleCollationVersion,
    TypeMismatch,
)
from .numbers import is_number, truncated
from .values import Document, type_name

VERSION: Final = "57.1"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LANGUAGES: Final = _words(
    "af am ar as az be bg bn bo bs ca chr cs cy da de dsb dz ee el en eo es et fa fi fil fo fr ga gl gu ha haw he hi "
    "hr hsb hu hy id ig is it ja ka kk kl km kn ko kok ky lb lkt ln lo lt lv mk ml mn mr ms mt my nb ne nl nn om or "
    "pa pl ps pt ro ru se si sk sl smn sq sr sv sw ta te th to tr ug uk ur uz vi wae yi yo zh zu"
)
_ROOT_LANGUAGES: Final = _words("de en fr ga id it ms nl pt sw zu")
"""Languages whose order is the root's."""
_NORMALIZED: Final = _words("as bn bo el fa gu he hi ig km kn kok mr my or pa ps si ta te th vi wo yi yo")
"""Languages that ask for normal forms."""
_KEYWORDS: Final = {
    "big5han": "big5han",
    "dictionary": "dict",
    "gb2312han": "gb2312",
    "phonebook": "phonebk",
    "traditional": "trad",
}
"""Kinds of orders whose short names differ."""

_UPPER_FIRST: Final = frozenset(("da", "mt"))
_CASE_FIRST: Final = ("off", "upper", "lower")
_ALTERNATE: Final = ("non-ignorable", "shifted")
_MAX_VARIABLE: Final = ("punct", "space")


@dataclass(frozen=True, slots=True)
class Collation:
    """A collation with all its options; also the collator that makes keys by it."""

    locale: str
    case_level: bool = False
    case_first: str = "off"
    strength: int = 3
    numeric_ordering: bool = False
    alternate: str = "non-ignorable"
    max_variable: str = "punct"
    normalization: bool = False
    backwards: bool = False
    _key: Callable[[str], bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_key", lru_cache(maxsize=4096)(_key_function(self)))

    def key(self, string: str) -> bytes:
        """Bytes that sort as the string does."""
        return self._key(string)

    def to_document(self) -> Document:
        """The collation as collections and indexes show it, every option spelled out."""
        return {
            "locale": self.locale,
            "caseLevel": self.case_level,
            "caseFirst": self.case_first,
            "strength": self.strength,
            "numericOrdering": self.numeric_ordering,
            "alternate": self.alternate,
            "maxVariable": self.max_variable,
            "normalization": self.normalization,
            "backwards": self.backwards,
            "version": VERSION,
        }

    @staticmethod
    def parse(document: Any) -> "Collation | None":
        """The collation of a request; None for the simple one, which compares bytes.

        Raises:
            MongoError: the document asks for what is no collation.
        """
        if not isinstance(document, dict):
            raise TypeMismatch(
                f"BSON field 'collation' is the wrong type '{type_name(document)}', expected type 'object'"
            )
        return _Parser(document).parse()


class _Parser:
    def __init__(self, document: Document) -> None:
        self._document = document

    def parse(self) -> Collation | None:
        document = self._document
        for name in document:
            if name not in _FIELDS:
                raise IDLUnknownField(f"BSON field 'collation.{name}' is an unknown field.")
        if "locale" not in document:
            raise IDLFailedToParse("BSON field 'collation.locale' is missing but a required field")
        locale = self._string("locale", "", None)
        language = _checked_language(locale, document)
        case_level = self._boolean("caseLevel", default=False)
        case_first = self._string("caseFirst", "upper" if language in _UPPER_FIRST else "off", _CASE_FIRST)
        strength = self._strength()
        numeric_ordering = self._boolean("numericOrdering", default=False)
        alternate = self._string("alternate", "shifted" if language == "th" else "non-ignorable", _ALTERNATE)
        max_variable = self._string("maxVariable", "punct", _MAX_VARIABLE)
        normalization = self._boolean("normalization", default=_normalizes(language))
        backwards = self._boolean("backwards", default=locale == "fr_CA", null=False)
        version = self._string("version", VERSION, None)
        if version != VERSION:
            raise IncompatibleCollationVersion(
                f"Requested collation version {version} but the only available collator version was {VERSION}"
            )
        if locale == "simple":
            return None
        if document.get("caseFirst", "off") not in ("off", None) and not case_level and strength < 3:
            raise BadValue(
                "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2, found: "
                f"{value_text(document)}"
            )
        if backwards and strength == 1:
            raise BadValue(f"'backwards' is invalid with 'strength' of 1, found: {value_text(document)}")
        return Collation(
            locale,
            case_level,
            case_first,
            strength,
            numeric_ordering,
            alternate,
            max_variable,
            normalization,
            backwards,
        )

    def _wrong_type(self, name: str, expected: str) -> TypeMismatch:
        return TypeMismatch(
            f"BSON field 'collation.{name}' is the wrong type '{type_name(self._document[name])}', "
            f"expected type{expected}"
        )

    def _boolean(self, name: str, *, default: bool, null: bool = True) -> bool:
        value = self._document.get(name, default)
        if value is None and null:
            return default
        if not isinstance(value, bool):
            raise self._wrong_type(name, " 'bool'")
        return value

    def _string(self, name: str, default: str, allowed: tuple[str, ...] | None) -> str:
        value = self._document.get(name, default)
        if value is None and name != "locale":
            return default
        if type(value) is not str:
            raise self._wrong_type(name, " 'string'")
        if allowed is not None and value not in allowed:
            raise BadValue(f"Enumeration value '{value}' for field 'collation.{name}' is not a valid value.")
        return value

    def _strength(self) -> int:
        value = self._document.get("strength")
        if value is None:
            return 3
        if not is_number(value):
            raise self._wrong_type("strength", "s '[long, int, decimal, double]'")
        if isinstance(value, Decimal128):
            number = value.to_decimal()
            finite = number.is_finite() and number.adjusted() < 9
            strength = int(number.to_integral_value(rounding=ROUND_HALF_EVEN)) if finite else 0
        else:
            strength = truncated(value) or 0
        if not 1 <= strength <= 5:
            raise BadValue(f"Field 'strength' must be an integer 1 through 5. Got: {strength}")
        return strength


_FIELDS: Final = frozenset(
    (
        "locale",
        "caseLevel",
        "caseFirst",
        "strength",
        "numericOrdering",
        "alternate",
        "maxVariable",
        "normalization",
        "backwards",
        "version",
    )
)


def _checked_language(locale: str, document: Document) -> str:
    if locale == "simple":
        return ""
    name, _, keywords = locale.partition("@")
    language, *rest = name.split("_")
    well_formed = all(part.isalnum() and part.isascii() and 2 <= len(part) <= 8 for part in rest)
    if "\x00" in locale or language not in _LANGUAGES or not well_formed or (keywords and "=" not in keywords):
        raise BadValue(f"Field 'locale' is invalid in: {value_text(document)}")
    return language


def _normalizes(language: str) -> bool:
    return language in _NORMALIZED


def _key_function(collation: Collation) -> Callable[[str], bytes]:
    # The kernels are loaded with the first collation.
    from ..kernels import Collator

    collator = Collator(
        _bcp47(collation),
        strength=collation.strength,
        case_level=collation.case_level,
        case_first=collation.case_first,
        numeric=collation.numeric_ordering,
        shifted=collation.alternate == "shifted",
        shifts_punctuation=collation.max_variable == "punct",
    )
    if collation.alternate == "shifted" and collation.max_variable == "space":
        # MongoDB counts the no-break space among the punctuation; another character of that kind stands for it.
        return lambda string: collator.key(string.replace("\u00a0", "\ufe4e"))
    return collator.key


def _bcp47(collation: Collation) -> str:
    """The locale as BCP 47 has it.

    Raises:
        NotImplemented: accents from the end of the string in a language that has an order of its own.
    """
    name, _, keywords = collation.locale.partition("@")
    parts = name.replace("POSIX", "posix").split("_")
    if collation.backwards and name != "fr_CA":
        if parts[0] not in _ROOT_LANGUAGES or keywords:
            raise errors.NotImplemented(f"'backwards' is not supported for the locale '{collation.locale}'")
        return "fr-CA"
    if name == "fr_CA" and not collation.backwards:
        return "fr"
    extensions = []
    for keyword in keywords.split(";") if keywords else ():
        key, _, value = keyword.partition("=")
        if key == "collation":
            extensions += ["co", _KEYWORDS.get(value, value)]
    return "-".join([*parts, "u", *extensions] if extensions else parts)
