"""What makes the keys of an index of each kind, as the kernels know how."""

from collections.abc import Callable
from typing import Any, Protocol

from ..common.numbers import is_number
from ..kernels import FlatKeyMaker, IndexKeyMaker, SphereKeyMaker, TextKeyMaker, WildcardKeyMaker
from .index_options import is_wildcard_path
from .index_specs import IndexSpec
from .text_options import TEXT_FIELD
from .wildcard_projections import flat


class KeyMaker(Protocol):
    """Makes the keys of one index."""

    def keys(
        self, document: bytes, collate: Callable[[str], bytes] | None = None
    ) -> tuple[list[bytes], list[list[int]] | None]:
        """Different keys of a raw document in order, and the components of paths that were arrays."""


def key_maker(index: IndexSpec) -> KeyMaker:
    """What makes the keys of an index."""
    match index.kind:
        case "wildcard":
            return _wildcard(index)
        case "hashed":
            hashed = list(index.key.values()).index("hashed")
            return IndexKeyMaker(list(index.paths), list(index.descending), index.sparse, hashed)
        case "2dsphere" | "2dsphere_bucket":
            fields = [
                (path, value if isinstance(value, str) else None, descends(value)) for path, value in index.key.items()
            ]
            return SphereKeyMaker(fields, index.document.get("2dsphereIndexVersion", 3) != 1)
        case "2d":
            return flat_key_maker(index)
        case "text":
            return text_key_maker(index)
        case _:
            return IndexKeyMaker(list(index.paths), list(index.descending), index.sparse)


def flat_key_maker(index: IndexSpec) -> FlatKeyMaker:
    """What makes the keys of a 2d index and tells where to look in it."""
    path = next(path for path, value in index.key.items() if value == "2d")
    options = index.document
    low, high = float(options.get("min", -180)), float(options.get("max", 180))
    return FlatKeyMaker(path, len(index.key), int(options.get("bits", 26)), low, high)


def text_key_maker(index: IndexSpec) -> TextKeyMaker:
    """What makes the keys of a text index, and what a search of texts asks."""
    fields = [(path, descends(value)) for path, value in index.key.items()]
    position = index.paths.index(TEXT_FIELD)
    weights = {path: float(weight) for path, weight in index.document["weights"].items()}
    others = weights.pop("$**", None)
    options = index.document
    return TextKeyMaker(
        fields[:position],
        fields[position + 2 :],
        list(weights.items()),
        others,
        options["default_language"],
        options["language_override"],
    )


def wildcard_scope(path: str) -> str:
    """The path below which a wildcard takes everything in; empty for the whole document."""
    return path.removesuffix("$**").removesuffix(".")


def wildcard_projection(index: IndexSpec) -> tuple[list[tuple[str, bool]], bool]:
    """The paths that a wildcard index names, and whether it takes in those that it does not name."""
    projection = index.document.get("wildcardProjection")
    leaves = [] if projection is None else flat(projection)
    named = [included for path, included in leaves if path != "_id"]
    inclusive = named[0] if named else any(included for _, included in leaves)
    if not any(path == "_id" or path.startswith("_id.") for path, _ in leaves):
        leaves = [*leaves, ("_id", False)]
    return leaves, not inclusive


def _wildcard(index: IndexSpec) -> KeyMaker:
    fields = [(path, descends(value)) for path, value in index.key.items()]
    position = next(at for at, (path, _) in enumerate(fields) if is_wildcard_path(path))
    projection, others = wildcard_projection(index)
    return WildcardKeyMaker(
        fields[:position],
        fields[position + 1 :],
        wildcard_scope(fields[position][0]),
        fields[position][1],
        projection,
        others,
    )


def descends(value: Any) -> bool:
    """Whether a field of a key is kept from the highest value."""
    return is_number(value) and float(str(value)) < 0
