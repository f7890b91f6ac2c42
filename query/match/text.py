"""`$text`: words in the text index of a collection."""

from typing import Any

from ...catalog.text_options import LANGUAGES
from ...common.errors import BadValue, IndexNotFound, NoSuchKey, TypeMismatch
from ...common.values import Document, type_name
from .base import MatchContext, MatchNode, Predicate, Variables


class TextMatch(MatchNode):
    """A search in the text index."""

    rank = 27

    def __init__(self, search: str, language: str, *, case_sensitive: bool, diacritic_sensitive: bool) -> None:
        self.search = search
        self.language = language
        self.case_sensitive = case_sensitive
        self.diacritic_sensitive = diacritic_sensitive

    def compile(self, variables: Variables | None = None) -> Predicate:
        """See `MatchNode.compile`: there is no way without the index.

        Raises:
            IndexNotFound: always.
        """
        raise IndexNotFound("text index required for $text query")

    def serialize(self) -> Document:
        """See `MatchNode.serialize`."""
        return {
            "$text": {
                "$search": self.search,
                "$language": self.language,
                "$caseSensitive": self.case_sensitive,
                "$diacriticSensitive": self.diacritic_sensitive,
            }
        }

    def fields(self) -> None:
        """See `MatchNode.fields`."""
        return None


def parse_text(operand: Any, _: MatchContext) -> MatchNode:
    """`$text: {$search, $language, $caseSensitive, $diacriticSensitive}`."""
    if not isinstance(operand, dict):
        raise BadValue("$text expects an object")
    if "$search" not in operand:
        raise NoSuchKey('Missing expected field "$search"')
    search = _typed(operand, "$search", str, "")
    language = _typed(operand, "$language", str, "")
    if language and language.lower() not in LANGUAGES:
        raise BadValue(f'unsupported language: "{language}" for text index version 3')
    case_sensitive = _typed(operand, "$caseSensitive", bool, False)
    diacritic_sensitive = _typed(operand, "$diacriticSensitive", bool, False)
    for name in operand:
        if name not in ("$search", "$language", "$caseSensitive", "$diacriticSensitive"):
            raise BadValue(f"extra fields in $text: {name}")
    return TextMatch(search, language, case_sensitive=case_sensitive, diacritic_sensitive=diacritic_sensitive)


def _typed(operand: Document, name: str, kind: type, default: Any) -> Any:
    value = operand.get(name, default)
    if type(value) is not kind:
        wanted = "string" if kind is str else "bool"
        raise TypeMismatch(f'"{name}" had the wrong type. Expected {wanted}, found {type_name(value)}')
    return value
