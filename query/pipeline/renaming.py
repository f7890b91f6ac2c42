"""Conditions under other names: what a filter behind a stage means before it.

A stage that only gives a field another name lets a filter on the new name through as one on the old. A `$group` does so for
the fields of its key, but only for conditions that hold for one of two equal values if they hold for the other, because a
group shows one of the values that it was made of (1 and 1.0 are one group), and null where the field is missing.
"""

import copy
from collections.abc import Mapping
from typing import Any

from bson import MaxKey, MinKey

from ...common.errors import MongoError
from ...common.paths import is_index
from ...common.values import MISSING
from ..expression.base import Expression, FieldPath, ObjectExpression
from ..match.base import AlwaysFalse, AlwaysTrue, MatchNode, PathNode
from ..match.comparison import Comparison, In
from ..match.elements import ElemMatchObject, ElemMatchValue, Exists, Mod
from ..match.evaluation import ExprMatch
from ..match.logical import And, Nor, Not, Or
from ..match.patterns import RegexMatch
from .base import Rename


def from_names(names: Mapping[str, str]) -> Rename:
    """Renames by a table of prefixes: new name to old name."""

    def rename(path: str) -> str | None:
        for new, old in names.items():
            if path == new:
                return old
            if path.startswith(new + "."):
                return old + path[len(new) :]
        return None

    return rename


def renamed(node: MatchNode, rename: Rename) -> MatchNode | None:
    """The condition with each path renamed; None where that cannot be done."""
    match node:
        case AlwaysTrue() | AlwaysFalse():
            return node
        case And() | Or() | Nor():
            children = [renamed(child, rename) for child in node.children()]
            known = [child for child in children if child is not None]
            return type(node)(known) if len(known) == len(children) else None
        case Not():
            child = renamed(node.child, rename)
            return None if child is None else Not(child)
        case PathNode():
            path = rename(node.path)
            if path is None:
                return None
            made = copy.copy(node)
            made.path, made.parts = path, tuple(path.split("."))
            return made
        case ExprMatch():
            return _renamed_expression(node, rename)
    return None


def _renamed_expression(node: ExprMatch, rename: Rename) -> MatchNode | None:
    if node.context is None or node.expression.fields() is None:
        return None
    try:
        shown = node.expression.serialize()
        if node.context.parse(shown).serialize() != shown:
            return None
        made = _with_names(shown, rename)
        return None if made is MISSING else ExprMatch(node.context.parse(made), node.context)
    except MongoError:
        return None


def _with_names(shown: Any, rename: Rename) -> Any:
    """A serialised expression with its field paths renamed; MISSING where one cannot be."""
    if isinstance(shown, str) and shown.startswith("$"):
        if shown.startswith("$$"):
            return MISSING if shown.startswith(("$$ROOT", "$$CURRENT")) else shown
        path = rename(shown[1:])
        return MISSING if path is None else "$" + path
    if isinstance(shown, list):
        items = [_with_names(item, rename) for item in shown]
        return MISSING if any(item is MISSING for item in items) else items
    if isinstance(shown, dict) and set(shown) != {"$const"} and set(shown) != {"$literal"}:
        made = {name: _with_names(value, rename) for name, value in shown.items()}
        return MISSING if any(value is MISSING for value in made.values()) else made
    return shown


def key_names(key: Expression) -> dict[str, str]:
    """The parts of the key of groups that are fields of the rows: the path in a group to that in a row."""
    if _is_plain(key):
        return {"_id": _only_name(key)}
    if isinstance(key, ObjectExpression):
        return {f"_id.{name}": _only_name(part) for name, part in key.parts if _is_plain(part)}
    return {}


def _is_plain(key: Expression) -> bool:
    # A longer path may lead through arrays, which a filter does not gather as an expression does.
    return isinstance(key, FieldPath) and key.variable in ("CURRENT", "ROOT") and len(key.path) == 1


def _only_name(key: Expression) -> str:
    assert isinstance(key, FieldPath)
    return key.path[0]


def is_same_for_equals(node: MatchNode, *, null_for_missing: str | None) -> bool:
    """Whether a condition holds for all of several equal values or for none.

    Args:
        null_for_missing: the path at which null stands for what is missing, if there is one.
    """
    match node:
        case AlwaysTrue() | AlwaysFalse():
            return True
        case And() | Or() | Nor() | Not():
            return all(is_same_for_equals(child, null_for_missing=null_for_missing) for child in node.children())
        case In() if node.regexes:
            return False
        case Comparison() | In() | Exists():
            if node.path != null_for_missing:
                return True
            test = node.value_test()
            return test(MISSING) == test(None)
    return False


def safe_before_redaction(node: MatchNode) -> MatchNode | None:
    """What must hold for a document so that the condition can hold for what a `$redact` leaves of it; None for nothing."""
    match node:
        case And():
            parts = [safe_before_redaction(child) for child in node.children()]
            kept = [part for part in parts if part is not None]
            return None if not kept else kept[0] if len(kept) == 1 else And(kept)
        case Or():
            parts = [safe_before_redaction(child) for child in node.children()]
            whole = [part for part in parts if part is not None]
            return Or(whole) if whole and len(whole) == len(parts) else None
        case PathNode() if any(is_index(part) for part in node.parts):
            # Elements that are taken away move the others.
            return None
        case ElemMatchObject():
            child = safe_before_redaction(node.child)
            return None if child is None else ElemMatchObject(node.path, child)
        case ElemMatchValue():
            return None
        case Comparison():
            return node if _is_whole(node.value) else None
        case In():
            return node if all(_is_whole(value) for value in node.values) else None
        case RegexMatch() | Mod():
            return node
    return None


def _is_whole(value: Any) -> bool:
    """Whether a value is taken away as a whole or not at all, and is not what stands for a missing one."""
    return value is not None and not isinstance(value, dict | list | MinKey | MaxKey)
