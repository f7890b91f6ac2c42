"""Dotted paths as requests write them, checked."""

from typing import Final

from .errors import Location, Overflow
from .paths import Path, split_path

PATH_DEPTH_MAX: Final = 200


def parse_field_path(path: str) -> Path:
    """The components of a path that names a field in a pipeline, a sort or a projection.

    Raises:
        Location: an empty component, one that starts with `$`, or one that holds NUL.
        Overflow: more components than a document can have levels.
    """
    if not path:
        raise Location(40352, "FieldPath cannot be constructed with empty string")
    if path.endswith("."):
        raise Location(40353, "FieldPath must not end with a '.'.")
    parts = split_path(path)
    if len(parts) > PATH_DEPTH_MAX:
        raise Overflow("FieldPath is too long")
    for part in parts:
        check_field_name(part)
    return parts


def check_field_name(name: str) -> None:
    """Refuses what cannot be one component of a path."""
    if not name:
        raise Location(15998, "FieldPath field names may not be empty strings.")
    if name.startswith("$") and name not in ("$ref", "$id", "$db"):
        raise Location(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.")
    if "\x00" in name:
        raise Location(16411, "FieldPath field names may not contain '\0'. Consider using $getField or $setField.")
