"""Collations: how strings compare for a language, as requests ask for it.

With PyICU installed every locale of ICU is there. Without it only the locales that follow the root order of Unicode
(English, French, German …) are, and they are exact for Latin letters, digits and ASCII (root_collation.py); others are
refused rather than answered wrongly.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN
from functools import lru_cache
from typing import Any, Final

from bson import Decimal128

from .display import value_text
from .errors import (
    BadValue,
    IDLFailedToParse,
    IDLUnknownField,
    IncompatibleCollationVersion,
    NotImplemented,
    TypeMismatch,
)
from .numbers import is_number, truncated
from .root_collation import RootOrder
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
        normalization = self._boolean("normalization", default=_normalizes(locale))
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


def _icu() -> Any:
    """The module of PyICU, None where it is not installed."""
    try:
        import icu  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return icu


def _normalizes(locale: str) -> bool:
    icu = _icu()
    if icu is None or locale == "simple":
        return False
    collator = icu.Collator.createInstance(icu.Locale(locale))
    mode = collator.getAttribute(icu.UCollAttribute.NORMALIZATION_MODE)
    return bool(mode == icu.UCollAttributeValue.ON)


def _key_function(collation: Collation) -> Callable[[str], bytes]:
    icu = _icu()
    if icu is not None:
        return _icu_key_function(icu, collation)
    name = collation.locale.partition("@")[0]
    if name.split("_")[0] not in _ROOT_LANGUAGES or name in ("fr_CA", "en_US_POSIX") or "@" in collation.locale:
        raise NotImplemented(f"The locale '{collation.locale}' needs ICU, which this server was installed without")
    return RootOrder(
        strength=collation.strength,
        case_level=collation.case_level,
        case_first=collation.case_first,
        numeric=collation.numeric_ordering,
        shifted=collation.alternate == "shifted",
        shifts_punctuation=collation.max_variable == "punct",
        backwards=collation.backwards,
    ).key


def _icu_key_function(icu: Any, collation: Collation) -> Callable[[str], bytes]:
    attribute, value = icu.UCollAttribute, icu.UCollAttributeValue
    on_off = {True: value.ON, False: value.OFF}
    # PyICU has no method for the variable group; the locale's keyword sets it.
    keyword = f"{';' if '@' in collation.locale else '@'}kv={collation.max_variable}"
    collator = icu.Collator.createInstance(icu.Locale(collation.locale + keyword))
    strengths = (value.PRIMARY, value.SECONDARY, value.TERTIARY, value.QUATERNARY, value.IDENTICAL)
    collator.setAttribute(attribute.STRENGTH, strengths[collation.strength - 1])
    collator.setAttribute(attribute.CASE_LEVEL, on_off[collation.case_level])
    first = {"off": value.OFF, "upper": value.UPPER_FIRST, "lower": value.LOWER_FIRST}
    collator.setAttribute(attribute.CASE_FIRST, first[collation.case_first])
    collator.setAttribute(attribute.NUMERIC_COLLATION, on_off[collation.numeric_ordering])
    shifted = {"non-ignorable": value.NON_IGNORABLE, "shifted": value.SHIFTED}
    collator.setAttribute(attribute.ALTERNATE_HANDLING, shifted[collation.alternate])
    collator.setAttribute(attribute.NORMALIZATION_MODE, on_off[collation.normalization])
    collator.setAttribute(attribute.FRENCH_COLLATION, on_off[collation.backwards])

    def key(string: str) -> bytes:
        return bytes(collator.getSortKey(string))

    return key
