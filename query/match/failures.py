"""Why a document does not match a validator, in the form of `errInfo.details`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ...common.paths import get_path, split_path
from ...common.values import MISSING, Document, type_name
from .parse import parse_filter
from .schema_failures import schema_failures

_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "$all": "array did not contain all specified values",
        "$elemMatch": "array did not satisfy the child predicate",
        "$in": "no matching value found in array",
        "$mod": "remainder did not match",
        "$ne": "comparison succeeded",
        "$nin": "matching value found in array",
        "$regex": "regular expression did not match",
        "$size": "array length was not equal to given size",
        "$type": "type did not match",
    }
)


def failure_details(rule: Document, document: Document, collator: Any = None) -> Document:
    """The first level of what a document breaks; the rule is one that it does not match."""

    def matches(part: Document) -> bool:
        return parse_filter(part, collator=collator).compile({})(document)

    return _of_rule(rule, document, matches)


Matches = Callable[[Document], bool]


def _of_rule(rule: Document, document: Document, matches: Matches) -> Document:
    clauses = [{name: operand} for name, operand in rule.items()]
    if len(clauses) == 1:
        ((name, operand),) = rule.items()
        return _of_clause(name, operand, document, matches)
    return _of_clauses("$and", clauses, document, matches)


def _of_clauses(operator: str, clauses: list[Document], document: Document, matches: Matches) -> Document:
    broken = [
        {"index": at, "details": _of_rule(clause, document, matches)}
        for at, clause in enumerate(clauses)
        if not matches(clause)
    ]
    return {"operatorName": operator, "clausesNotSatisfied": broken}


def _of_clause(name: str, operand: Any, document: Document, matches: Matches) -> Document:
    if name in ("$and", "$or"):
        return _of_clauses(name, operand, document, matches)
    if name == "$nor":
        kept = [
            {"index": at, "details": {"operatorName": next(iter(clause), ""), "specifiedAs": clause}}
            for at, clause in enumerate(operand)
            if matches(clause)
        ]
        return {"operatorName": "$nor", "clausesSatisfied": kept}
    if name == "$jsonSchema":
        return {
            "operatorName": name,
            **{key: operand[key] for key in ("title", "description") if key in operand},
            "schemaRulesNotSatisfied": schema_failures(operand, document),
        }
    if name == "$expr":
        return {
            "operatorName": name,
            "specifiedAs": {name: operand},
            "reason": "expression did not match",
            "expressionResult": False,
        }
    if name.startswith("$"):
        return {"operatorName": name, "specifiedAs": {name: operand}, "reason": "expression did not match"}
    return _of_path(name, operand, document, matches)


def _of_path(path: str, operand: Any, document: Document, matches: Matches) -> Document:
    operators = operand if isinstance(operand, dict) and next(iter(operand), "").startswith("$") else {"$eq": operand}
    parts = [(name, {path: {name: value}}) for name, value in operators.items() if name != "$options"]
    if "$options" in operators:
        parts = [
            (name, {path: {**part[path], "$options": operators["$options"]}} if name == "$regex" else part)
            for name, part in parts
        ]
    broken = [(name, part) for name, part in parts if not matches(part)]
    if len(parts) > 1:
        rows = [
            {"index": at, "details": _of_operator(name, path, part, document)}
            for at, (name, part) in enumerate(parts)
            if (name, part) in broken
        ]
        return {"operatorName": "$and", "clausesNotSatisfied": rows}
    name, _ = parts[0]
    return _of_operator(name, path, {path: operand}, document)


def _of_operator(name: str, path: str, shown: Document, document: Document) -> Document:
    value = get_path(document, split_path(path))
    details: Document = {"operatorName": name, "specifiedAs": shown}
    if name == "$exists":
        return {**details, "reason": "path does not exist" if value is MISSING else "path does exist"}
    if name == "$not":
        return {**details, "reason": "child expression matched"}
    if value is MISSING:
        return {**details, "reason": "field was missing"}
    details |= {"reason": _REASONS.get(name, "comparison failed"), "consideredValue": value}
    if name == "$type":
        details["consideredType"] = type_name(value)
    return details
