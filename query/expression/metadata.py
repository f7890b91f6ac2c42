"""`$meta`: what is known of a row beside its document."""

from typing import Any, Final

from ...common.errors import Location
from ...common.values import MISSING, Document
from .base import Expression, OperatorParser, ParseContext, Variables

META_KINDS: Final = frozenset(
    (
        "textScore",
        "randVal",
        "searchScore",
        "searchHighlights",
        "geoNearDistance",
        "geoNearPoint",
        "recordId",
        "indexKey",
        "sortKey",
        "searchScoreDetails",
        "searchSequenceToken",
        "vectorSearchScore",
        "timeseriesBucketMinTime",
        "timeseriesBucketMaxTime",
        "score",
        "scoreDetails",
        "stream",
    )
)
METADATA_VARIABLE: Final = "$meta"
"""The variable that holds the metadata of a row; no name of a user can collide with it."""


class Meta(Expression):
    """`{$meta: kind}`; missing where the row has no such metadata."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

        def evaluate(document: Document, variables: Variables) -> Any:
            metadata = variables.get(METADATA_VARIABLE)
            return MISSING if metadata is None else metadata.get(kind, MISSING)

        self.evaluate = evaluate

    def serialize(self) -> Document:
        """See `Expression.serialize`."""
        return {"$meta": self.kind}


def metadata_read(expression: Any) -> frozenset[str]:
    """The kinds of metadata that an expression reads."""
    if isinstance(expression, Meta):
        return frozenset({expression.kind})
    children = expression.children() if isinstance(expression, Expression) else ()
    return frozenset(kind for child in children for kind in metadata_read(child))


def _parse(name: str, spec: Any, context: ParseContext) -> Expression:
    if type(spec) is not str:
        raise Location(17307, "$meta only supports string arguments")
    if spec not in META_KINDS:
        raise Location(17308, f"Unsupported argument to $meta: {spec}")
    return Meta(spec)


OPERATORS: Final[dict[str, OperatorParser]] = {"$meta": _parse}
