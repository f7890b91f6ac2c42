"""Validators of collections: which filters can be one, and where."""

from typing import Final

from ...catalog.namespaces import Namespace
from ...common.errors import BadValue, InvalidOptions, Location
from ...common.values import Document
from ...query.match.base import MatchNode
from ...query.match.geo import GeoNear
from ...query.match.parse import parse_filter
from ...query.match.text import TextMatch

_INTERNAL_DATABASES: Final = frozenset({"admin", "config", "local"})


def check_validator(validator: Document, namespace: Namespace) -> None:
    """Refuse what cannot be asked of one document alone, and validators of collections of the server's own.

    Raises:
        InvalidOptions, BadValue, Location, and what a filter raises
    """
    if validator and namespace.database in _INTERNAL_DATABASES:
        raise InvalidOptions(f"Document validators are not allowed on collections in the {namespace.database} database")
    if validator and namespace.is_system and not namespace.is_buckets:
        raise InvalidOptions(f"Document validators are not allowed on system collection {namespace}")
    refuse_searches(parse_filter(validator))


def refuse_searches(node: MatchNode) -> None:
    """Refuse what only an index can answer.

    Raises:
        BadValue, Location
    """
    if isinstance(node, TextMatch):
        raise BadValue("$text is not allowed in this context")
    if isinstance(node, GeoNear):
        raise Location(5626500, "$geoNear, $near, and $nearSphere are not allowed in this context")
    for child in node.children():
        refuse_searches(child)
