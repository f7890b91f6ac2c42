"""`$rename`: what moves, and the end that receives it."""

from typing import Any

from ...common.errors import BadValue
from ...common.paths import as_object, split_path
from ...common.values import MISSING, Document
from .base import Change, Modifier, identical


class RenameTarget(Modifier):
    """The end of `$rename` that receives the value."""

    creates = True

    def __init__(self, source: str) -> None:
        self.source = source

    def modified(self, value: Any, path: str, change: Change) -> Any:
        """See `Modifier.modified`."""
        moved = change.renamed.get(self.source, MISSING)
        return value if moved is MISSING or identical(value, moved) else moved


def renamed_value(document: Document, source: str, target: str, change: Change) -> Any:
    """The value that moves, MISSING when there is none; refuses ways through arrays."""
    value = _through_objects(document, source, "source", change)
    if value is not MISSING:
        _through_objects(document, target, "destination", change)
    return value


def _through_objects(document: Document, path: str, end: str, change: Change) -> Any:
    value: Any = document
    walked: list[str] = []
    for part in split_path(path):
        if type(value) is list:
            raise BadValue(
                f"The {end} field cannot be an array element, '{path}' in doc with {change.id_text()[1:-1]} has an "
                f"array field called '{walked[-1]}'"
            )
        entered = as_object(value)
        if entered is None:
            return MISSING
        value = entered.get(part, MISSING)
        if value is MISSING:
            return MISSING
        walked.append(part)
    return value
