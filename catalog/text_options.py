"""The options of text indexes, checked and filled in as the catalog keeps them.

The fields of text give way to `_fts` and `_ftsx` in the key, and stand with their weights in `weights`.
"""

from typing import Any, Final

from bson import Decimal128

from ..common.display import value_text
from ..common.errors import CannotCreateIndex
from ..common.numbers import is_number
from ..common.values import Document

TEXT_FIELD: Final = "_fts"
_SCORE_FIELD: Final = "_ftsx"
_WEIGHT_MAX: Final = 1_000_000_000
_CODES: Final = {
    "da": "danish",
    "nl": "dutch",
    "en": "english",
    "fi": "finnish",
    "fr": "french",
    "de": "german",
    "hu": "hungarian",
    "it": "italian",
    "nb": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "es": "spanish",
    "sv": "swedish",
    "tr": "turkish",
}
LANGUAGES: Final = frozenset((*_CODES, *_CODES.values(), "none"))
"""The languages of text search, by code and by name."""


def set_text_options(document: Document) -> None:
    """Check the options of a text index, and write those that were not given.

    Raises:
        CannotCreateIndex: a collation, or an option that is none of a text index.
    """
    if document.get("collation") is not None:
        raise CannotCreateIndex("text indexes do not support collation")
    version = document.get("textIndexVersion", 3)
    if isinstance(version, Decimal128) or float(version) not in (1, 2, 3):
        raise CannotCreateIndex(f"bad textIndexVersion: {value_text(version)}")
    if document.get("language_override") == "":
        raise CannotCreateIndex("language_override cannot be an empty string")
    language = document.get("default_language", "english")
    if language.lower() not in LANGUAGES:
        raise CannotCreateIndex("default_language is not valid")
    weights = {path: _weight(path, value) for path, value in document.get("weights", {}).items()}
    key: Document = {}
    for path, value in document["key"].items():
        if value != "text" and path != _SCORE_FIELD:
            key[path] = value
            continue
        key[TEXT_FIELD], key[_SCORE_FIELD] = "text", 1
        if path not in (TEXT_FIELD, _SCORE_FIELD):
            weights.setdefault(path, 1)
    if not weights:
        raise CannotCreateIndex("text index has no fields: neither in its key nor in weights")
    document["key"] = key
    document["weights"] = dict(sorted(weights.items()))
    document["default_language"] = language
    document.setdefault("language_override", "language")
    document["textIndexVersion"] = int(float(version))


def _weight(path: str, value: Any) -> Any:
    if not is_number(value) or not 0 < float(str(value)) < _WEIGHT_MAX:
        raise CannotCreateIndex(
            f"text index weight must be in the exclusive interval (0,1000000000) but found: {value_text(value)}"
        )
    number = float(str(value))
    return int(number) if number.is_integer() else number
