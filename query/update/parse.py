"""From an update of a command to what applies it: operators, a replacement, or a pipeline."""

from collections.abc import Mapping
from typing import Any

from ...common.errors import FailedToParse
from ...common.ordering import Collator
from ...common.values import Document
from ..match.base import NO_VARIABLES
from .array_filters import ArrayFilters
from .base import Update
from .operators import OperatorParser
from .pipeline import PipelineParser
from .replacement import Replacement


def parse_update(
    update: Document | list[Any],
    *,
    array_filters: list[Any] | None = None,
    collator: Collator | None = None,
    variables: Mapping[str, Any] | None = None,
    upsert: bool = False,
    fill_timestamps: bool = True,
) -> Update:
    """The update that a document or pipeline asks for.

    `variables` are the values of `let`, of `c` and of system variables, by name without `$$`. `fill_timestamps` puts
    the time in place of empty timestamps of a replacement.

    Raises:
        MongoError: what is asked for is no update.
    """
    values = NO_VARIABLES if variables is None else variables
    if isinstance(update, list):
        if array_filters is not None:
            raise FailedToParse("arrayFilters may not be specified for pipeline-syle updates")
        return PipelineParser(collator=collator, variables=values, provided=frozenset({"CLUSTER_TIME"})).parse(update)
    if not next(iter(update), "").startswith("$"):
        if array_filters:
            raise FailedToParse("arrayFilters may not be specified for replacement-style updates")
        return Replacement(update, fill_timestamps=fill_timestamps)
    filters = ArrayFilters(
        array_filters or [], collator=collator, defined_variables=frozenset(values), variables=values
    )
    return OperatorParser(filters, collator=collator, variables=values).parse(update)
