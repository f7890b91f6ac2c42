"""Which paths a wildcard index takes in: the option `wildcardProjection`, checked and asked."""

from typing import Any

from ..common.display import value_text
from ..common.errors import BadValue, FailedToParse, Location, TypeMismatch
from ..common.numbers import is_number
from ..common.values import Document, type_name


def check_wildcard_projection(projection: Any, key: Any) -> Document:
    """Refuse what is no projection of paths, or does not belong to this key.

    Raises:
        TypeMismatch, BadValue, FailedToParse, Location: 31254 and 31253 for inclusion beside exclusion, 31249 and 31250 for
            a path below another, 51271 for a computed field.
    """
    paths = list(key) if isinstance(key, dict) else []
    wildcards = [path for path in paths if path == "$**" or path.endswith(".$**")]
    if not wildcards:
        raise BadValue("The field 'wildcardProjection' is only allowed in a wildcard index")
    if not isinstance(projection, dict):
        raise TypeMismatch(f"The field 'wildcardProjection' must be an object, but got {type_name(projection)}")
    if "$**" not in paths:
        raise FailedToParse(
            f"The field 'wildcardProjection' is only allowed when 'key' is {{\"$**\": ±1}}: {value_text(key)}"
        )
    if not projection:
        raise FailedToParse("The 'wildcardProjection' field can't be an empty object")
    leaves = flat(projection)
    seen: list[str] = []
    modes = set()
    for path, included in leaves:
        for other in seen:
            if path == other or path.startswith(other + "."):
                raise Location(31249, f"Path collision at {path} remaining portion {path[len(other) + 1 :]}")
            if other.startswith(path + "."):
                raise Location(31250, f"Path collision at {path}")
        seen.append(path)
        if path != "_id":
            modes.add(included)
            if len(modes) > 1:
                if included:
                    raise Location(31253, f"Cannot do inclusion on field {path} in exclusion projection")
                raise Location(31254, f"Cannot do exclusion on field {path} in inclusion projection")
    return projection


def flat(projection: Document, prefix: str = "") -> list[tuple[str, bool]]:
    """Paths and whether they are included, nested objects taken apart.

    Raises:
        Location: 51271, a value that computes a field.
    """
    leaves: list[tuple[str, bool]] = []
    for name, value in projection.items():
        if isinstance(value, dict) and value:
            leaves += flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool) or is_number(value):
            leaves.append((prefix + name, value if isinstance(value, bool) else float(str(value)) != 0))
        else:
            raise Location(51271, f"Bad projection specification, cannot use computed fields: {value_text(projection)}")
    return leaves


def is_projected(projection: Document, path: str) -> bool:
    """Whether a (checked) projection takes a path in, or something above or below it."""
    leaves = flat(projection)
    inclusive = _is_inclusive(leaves)
    for name, included in leaves:
        if path == name or path.startswith(name + "."):
            return included
        if included and name.startswith(path + "."):
            return True
    return not inclusive and path.partition(".")[0] != "_id"


def _is_inclusive(leaves: list[tuple[str, bool]]) -> bool:
    """Whether only what is named is taken in; `_id` decides where it is named alone."""
    return next((included for name, included in leaves if name != "_id"), any(included for _, included in leaves))
