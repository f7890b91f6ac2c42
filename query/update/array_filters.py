"""`arrayFilters`: which elements `$[name]` means."""

import re
from typing import Any, Final

from ...common.display import value_text
from ...common.errors import BadValue, FailedToParse, MongoError, QueryFeatureNotAllowed, TypeMismatch
from ...common.ordering import Collator
from ...common.values import Document, type_name
from ..match.base import ValueTest, Variables, holds
from ..match.evaluation import ExprMatch
from ..match.parse import parse_filter

_NAME: Final = re.compile(r"[a-z][a-zA-Z0-9]*\Z")


class ArrayFilters:
    """The filters of an update by their names; remembers which were asked for."""

    def __init__(
        self,
        filters: list[Any],
        *,
        collator: Collator | None,
        defined_variables: frozenset[str],
        variables: Variables,
    ) -> None:
        self.tests: dict[str, ValueTest] = {}
        self._used: set[str] = set()
        for document in filters:
            if not isinstance(document, dict):
                raise TypeMismatch(f"array filters must be objects, found {type_name(document)}")
            try:
                node = parse_filter(
                    document, collator=collator, defined_variables=defined_variables, allow_near=False, allow_text=False
                )
                if holds(node, ExprMatch):
                    raise QueryFeatureNotAllowed("$expr is not allowed in this context")
                name = _single_name(document)
            except MongoError as error:
                raise error.with_context("Error parsing array filter") from error
            if name in self.tests:
                raise FailedToParse(f"Found multiple array filters with the same top-level field name {name}")
            self.tests[name] = _element_test(name, node.compile(variables))

    def use(self, name: str, path: str) -> None:
        """Notes that a path goes through the elements of a filter."""
        if name not in self.tests:
            raise BadValue(f"No array filter found for identifier '{name}' in path '{path}'")
        self._used.add(name)

    def check_all_used(self, update: Document) -> None:
        """Refuses filters that no path needs."""
        for name in self.tests:
            if name not in self._used:
                raise FailedToParse(
                    f"The array filter for identifier '{name}' was not used in the update {value_text(update)}"
                )


def _element_test(name: str, matches: ValueTest) -> ValueTest:
    return lambda element: matches({name: element})


def _single_name(document: Document) -> str:
    names = _names(document)
    if not names:
        raise FailedToParse("Cannot use an expression without a top-level field name in arrayFilters")
    first, *others = dict.fromkeys(names)
    if others:
        raise FailedToParse(f"Expected a single top-level field name, found '{first}' and '{others[0]}'")
    if not _NAME.match(first):
        raise BadValue(
            "The top-level field name must be an alphanumeric string beginning with a lowercase letter, found "
            f"'{first}'"
        )
    return first


def _names(document: Document) -> list[str]:
    names: list[str] = []
    for path, value in document.items():
        if path in ("$and", "$or", "$nor"):
            for clause in value:
                names.extend(_names(clause))
        elif not path.startswith("$"):
            names.append(path.partition(".")[0])
    return names
