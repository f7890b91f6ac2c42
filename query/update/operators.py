"""Updates with operators: `{$set: {…}, $inc: {…}}`."""

from collections.abc import Mapping
from typing import Any, Final

from bson import DatetimeMS

from ...common.display import value_text
from ...common.errors import (
    BadValue,
    ConflictingUpdateOperators,
    DollarPrefixedFieldName,
    EmptyFieldName,
    FailedToParse,
    ImmutableField,
    InvalidIdField,
    Location,
)
from ...common.ordering import Collator, order_key
from ...common.paths import Path, split_path
from ...common.values import MISSING, Document, type_name
from ..match.base import MatchNode
from . import arrays, fields
from .array_filters import ArrayFilters
from .base import Change, Modifier, Update, identical
from .rename import RenameTarget, renamed_value
from .tree import ALL_ELEMENTS, Elements, Fields, Leaf, Node
from .upsert import equality_document

_ID_TYPES_REFUSED: Final = ("array", "regex", "undefined")


class OperatorUpdate(Update):
    """An update of single paths."""

    def __init__(self, root: Fields, paths: list[str], renames: list[tuple[str, str]], *, needs_position: bool) -> None:
        super().__init__()
        self._root = root
        self._paths = paths
        self._renames = renames
        self._id_path = next((path for path in paths if path == "_id" or path.startswith("_id.")), None)
        self.needs_position = needs_position

    def changed_paths(self) -> frozenset[str]:
        """See `Update.changed_paths`."""
        return frozenset(self._paths)

    def upsert_base(self, filter: MatchNode) -> Document:
        """See `Update.upsert_base`."""
        return equality_document(filter)

    def apply(
        self,
        document: Document,
        *,
        is_insert: bool = False,
        matched_filter: MatchNode | None = None,
        matched_position: int | None = None,
        now: DatetimeMS,
    ) -> tuple[Document, bool]:
        """See `Update.apply`."""
        if self.needs_position and matched_position is None and not is_insert:
            matched_position = self._position(matched_filter, document)
        change = Change(document, now, is_insert, matched_position)
        for source, target in self._renames:
            moved = change.renamed[source] = renamed_value(document, source, target, change)
            if moved is not MISSING and "_id" in (source, target) and not is_insert:
                raise ImmutableField("Performing an update on the path '_id' would modify the immutable field '_id'")
        result = self._root.applied_to_object(document, "", change)
        if result is document:
            return document, False
        if self._id_path is not None:
            result = _with_same_id(document, result, self._id_path)
        if is_insert and "_id" in result and next(iter(result)) != "_id":
            result = {"_id": result["_id"], **result}
        return result, True


def _with_same_id(before: Document, after: Document, path: str) -> Document:
    old, new = before.get("_id", MISSING), after.get("_id", MISSING)
    if old is MISSING:
        check_id(new)
        return after
    if identical(old, new):
        return after
    if new is MISSING or order_key(old) != order_key(new):
        raise ImmutableField(f"Performing an update on the path '{path}' would modify the immutable field '_id'")
    return {**after, "_id": old}


def check_id(value: Any) -> None:
    """Refuses values that no `_id` may have."""
    if value is MISSING:
        return
    kind = type_name(value)
    if kind in _ID_TYPES_REFUSED:
        raise InvalidIdField(f"The '_id' value cannot be of type {kind}")
    if isinstance(value, dict):
        for name in value:
            if name.startswith("$") and name not in ("$id", "$ref", "$db"):
                raise DollarPrefixedFieldName(
                    f"The dollar ($) prefixed field '{name}' in '_id.{name}' is not valid for storage."
                )


OPERATORS: Final = (
    "$addToSet",
    "$bit",
    "$currentDate",
    "$inc",
    "$max",
    "$min",
    "$mul",
    "$pop",
    "$pull",
    "$pullAll",
    "$push",
    "$rename",
    "$set",
    "$setOnInsert",
    "$unset",
)


class OperatorParser:
    """Builds the tree of one update document."""

    def __init__(
        self,
        filters: ArrayFilters,
        *,
        collator: Collator | None,
        variables: Mapping[str, Any],
    ) -> None:
        self._filters = filters
        self._collator = collator
        self._variables = dict(variables)
        self._root = Fields()
        self._paths: list[str] = []
        self._renames: list[tuple[str, str]] = []
        self._needs_position = False

    def parse(self, update: Document) -> OperatorUpdate:
        """The update of a document whose first name is an operator."""
        for operator, operands in update.items():
            if operator not in OPERATORS:
                raise FailedToParse(
                    f"Unknown modifier: {operator}. Expected a valid update modifier or pipeline-style update "
                    "specified as an array"
                )
            if not isinstance(operands, dict):
                raise FailedToParse(
                    f"Modifiers operate on fields but we found type {type_name(operands)} instead. For example: "
                    f"{{$mod: {{<field>: ...}}}} not {{{operator}: {value_text(operands)}}}"
                )
            for path, operand in operands.items():
                if operator == "$rename":
                    self._rename(path, operand, operands)
                else:
                    self._put(path, self._modifier(operator, path, operand))
        self._filters.check_all_used(update)
        return OperatorUpdate(self._root, self._paths, self._renames, needs_position=self._needs_position)

    def _modifier(self, operator: str, path: str, operand: Any) -> Modifier:
        match operator:
            case "$set":
                return fields.Set(operand)
            case "$setOnInsert":
                return fields.SetOnInsert(operand)
            case "$unset":
                return fields.Unset()
            case "$inc" | "$mul":
                return fields.parse_arithmetic(operator, path, operand)
            case "$min" | "$max":
                return fields.Extreme(operator, operand, self._collator)
            case "$currentDate":
                return fields.parse_current_date(path, operand)
            case "$bit":
                return fields.parse_bit(path, operand)
            case "$push":
                return arrays.parse_push(path, operand, self._collator)
            case "$addToSet":
                return arrays.parse_add_to_set(path, operand, self._collator)
            case "$pop":
                return arrays.parse_pop(path, operand)
            case "$pull":
                return arrays.parse_pull(path, operand, self._collator, frozenset(self._variables), self._variables)
            case _:
                return arrays.parse_pull_all(path, operand, self._collator)

    def _rename(self, source: str, target: Any, operands: Document) -> None:
        fields.renamed_pair(source, target, operands)
        for name, path in (("source", source), ("destination", target)):
            parts = self._split(path)
            if any(part == "$" or part.startswith("$[") for part in parts):
                raise BadValue(f"The {name} field for $rename may not be dynamic: {path}")
        self._put(source, fields.RenameSource())
        self._put(target, RenameTarget(source))
        self._renames.append((source, target))

    def _split(self, path: str) -> Path:
        if not path:
            raise EmptyFieldName("An empty update path is not valid.")
        if "\x00" in path:
            raise Location(9867600, f"The path '{path.replace(chr(0), chr(92) + '0')}' contains a null byte")
        parts = split_path(path)
        if "" in parts:
            raise EmptyFieldName(f"The update path '{path}' contains an empty field name, which is not allowed.")
        return parts

    def _put(self, path: str, modifier: Modifier) -> None:
        parts = self._split(path)
        if parts.count("$") > 1:
            raise BadValue(f"Too many positional (i.e. '$') elements found in path '{path}'")
        if parts[0] == "$":
            raise BadValue(f"Cannot have positional (i.e. '$') element in the first position in path '{path}'")
        if _identifier(parts[0]) is not None:
            raise BadValue(
                f"Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{path}'"
            )
        self._needs_position = self._needs_position or "$" in parts
        node: Fields | Elements = self._root
        for at, part in enumerate(parts):
            if isinstance(node, Elements):
                name = _identifier(part) or ALL_ELEMENTS
                if name:
                    self._filters.use(name, path)
                existing: Node | None = node.children.get(name)
            else:
                name = part
                existing = node.child(name)
            if at + 1 == len(parts):
                if existing is not None:
                    raise self._conflict(path, parts[: at + 1])
                below: Node = Leaf(modifier)
            else:
                wanted = Elements if _identifier(parts[at + 1]) is not None else Fields
                if existing is None:
                    below = Elements(self._filters.tests) if wanted is Elements else Fields()
                elif isinstance(existing, wanted):
                    below = existing
                else:
                    raise self._conflict(path, parts[: at + 1])
            if isinstance(node, Elements):
                node.children[name] = below
            else:
                node.put(name, below)
            if isinstance(below, (Fields, Elements)):
                node = below
        self._paths.append(path)

    def _conflict(self, path: str, parts: Path) -> ConflictingUpdateOperators:
        return ConflictingUpdateOperators(f"Updating the path '{path}' would create a conflict at '{'.'.join(parts)}'")


def _identifier(part: str) -> str | None:
    """What stands in the brackets of `$[…]`; None for other components."""
    return part[2:-1] if part.startswith("$[") and part.endswith("]") else None
