"""What every expression is: parsed once, a function of document and variables, printable, and open about what it reads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from bson import Decimal128

from ...common.errors import FailedToParse, Location, MongoError, error_for
from ...common.ordering import Collator
from ...common.paths import Path, expression_getter, expression_path
from ...common.values import MISSING, Document

Variables = Mapping[str, Any]
Evaluate = Callable[[Document, Variables], Any]

SYSTEM_VARIABLES: Final = frozenset(
    {"ROOT", "CURRENT", "REMOVE", "NOW", "CLUSTER_TIME", "DESCEND", "PRUNE", "KEEP", "USER_ROLES", "SEARCH_META"}
)


class Verdict(str):
    """What `$redact` is told; compared by identity, since a string of a document may read the same."""

    __slots__ = ()


DESCEND: Final = Verdict("$$DESCEND")
PRUNE: Final = Verdict("$$PRUNE")
KEEP: Final = Verdict("$$KEEP")
_VERDICTS: Final = {"DESCEND": DESCEND, "PRUNE": PRUNE, "KEEP": KEEP}


def to_bool(value: Any) -> bool:
    """Whether a value counts as true: all but false, null, missing and zero."""
    if value is True or value is False:
        return bool(value)
    if value is None or value is MISSING:
        return False
    if isinstance(value, int | float):
        return value != 0
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        return number.is_nan() or number != 0
    return True


class Expression(ABC):
    """A part of an expression. `evaluate(document, variables)` gives its value, or MISSING."""

    evaluate: Evaluate

    @abstractmethod
    def serialize(self) -> Any:
        """The expression in the normal form that explain shows."""

    def children(self) -> Sequence["Expression"]:
        """The expressions directly below."""
        return ()

    def fields(self) -> frozenset[str] | None:
        """The paths of the document that decide; None where the whole document does."""
        found: set[str] = set()
        for child in self.children():
            fields = child.fields()
            if fields is None:
                return None
            found |= fields
        return frozenset(found)

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same for every document and every variable."""
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.serialize()!r})"


class Constant(Expression):
    """A literal value."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.evaluate = lambda document, variables: value

    def serialize(self) -> Any:
        """See `Expression.serialize`."""
        return {"$const": self.value}

    @property
    def is_constant(self) -> bool:
        """See `Expression.is_constant`."""
        return True


class FieldPath(Expression):
    """`$a.b` or `$$variable.a.b`."""

    def __init__(self, variable: str, path: Path) -> None:
        self.variable = variable
        self.path = path
        self.evaluate = self._function()

    def _function(self) -> Evaluate:
        path, variable = self.path, self.variable
        if variable in _VERDICTS:
            verdict = _VERDICTS[variable]
            return lambda document, variables: verdict
        if variable == "REMOVE":
            return lambda document, variables: MISSING
        if variable == "CURRENT":
            if not path:
                return lambda document, variables: variables.get("CURRENT", document)
            get = expression_getter(path)
            return lambda document, variables: get(variables.get("CURRENT", document))
        if variable == "ROOT":
            if not path:
                return lambda document, variables: variables.get("ROOT", document)
            return lambda document, variables: expression_path(variables.get("ROOT", document), path)
        if not path:
            return lambda document, variables: variables.get(variable, MISSING)
        return lambda document, variables: expression_path(variables.get(variable, MISSING), path)

    def serialize(self) -> str:
        """See `Expression.serialize`."""
        dotted = ".".join(self.path)
        if self.variable == "CURRENT" and self.path:
            return f"${dotted}"
        return f"$${self.variable}.{dotted}" if self.path else f"$${self.variable}"

    def fields(self) -> frozenset[str] | None:
        """See `Expression.fields`."""
        if self.variable in ("CURRENT", "ROOT"):
            return frozenset({".".join(self.path)}) if self.path else None
        return frozenset()


class ObjectExpression(Expression):
    """`{name: expression, …}`; fields without a value are left out."""

    def __init__(self, parts: Sequence[tuple[str, Expression]]) -> None:
        self.parts = tuple(parts)
        functions = [(name, expression.evaluate) for name, expression in self.parts]

        def evaluate(document: Document, variables: Variables) -> Document:
            made = {}
            for name, function in functions:
                value = function(document, variables)
                if value is not MISSING:
                    made[name] = value
            return made

        self.evaluate = evaluate

    def children(self) -> Sequence[Expression]:
        """See `Expression.children`."""
        return [expression for _, expression in self.parts]

    def serialize(self) -> Document:
        """See `Expression.serialize`."""
        return {name: expression.serialize() for name, expression in self.parts}

    @property
    def is_constant(self) -> bool:
        """See `Expression.is_constant`."""
        return all(expression.is_constant for _, expression in self.parts)


class ArrayExpression(Expression):
    """`[expression, …]`; what is missing becomes null."""

    def __init__(self, items: Sequence[Expression]) -> None:
        self.items = tuple(items)
        functions = [item.evaluate for item in self.items]

        def evaluate(document: Document, variables: Variables) -> list[Any]:
            values = [function(document, variables) for function in functions]
            return [None if value is MISSING else value for value in values]

        self.evaluate = evaluate

    def children(self) -> Sequence[Expression]:
        """See `Expression.children`."""
        return self.items

    def serialize(self) -> list[Any]:
        """See `Expression.serialize`."""
        return [item.serialize() for item in self.items]

    @property
    def is_constant(self) -> bool:
        """See `Expression.is_constant`."""
        return all(item.is_constant for item in self.items)


class Call(Expression):
    """An operator on operands that are all evaluated first."""

    def __init__(
        self,
        name: str,
        operands: Sequence[Expression],
        function: Callable[..., Any],
        *,
        shown: Callable[[Sequence[Any]], Any] | None = None,
        constant: bool = True,
    ) -> None:
        """`function` takes the operands' values; `shown` puts serialised operands together (by default a list)."""
        self.name = name
        self.operands = tuple(operands)
        self._shown = shown
        self._pure = constant
        self.function = function
        self.collated = False
        """Whether strings compare by a collation."""
        functions = [operand.evaluate for operand in self.operands]
        if len(functions) == 1:
            first = functions[0]
            self.evaluate = lambda document, variables: function(first(document, variables))
        elif len(functions) == 2:
            left, right = functions
            self.evaluate = lambda document, variables: function(left(document, variables), right(document, variables))
        else:
            self.evaluate = lambda document, variables: function(*[one(document, variables) for one in functions])

    def children(self) -> Sequence[Expression]:
        """See `Expression.children`."""
        return self.operands

    def serialize(self) -> Document:
        """See `Expression.serialize`."""
        values = [operand.serialize() for operand in self.operands]
        return {self.name: self._shown(values) if self._shown is not None else values}

    @property
    def is_constant(self) -> bool:
        """See `Expression.is_constant`."""
        return self._pure and all(operand.is_constant for operand in self.operands)


class Lazy(Expression):
    """An operator that decides itself which operands it evaluates."""

    def __init__(self, name: str, operands: Sequence[Expression], evaluate: Evaluate, shown: Any) -> None:
        """`shown` is the serialised operand of the operator."""
        self.name = name
        self.operands = tuple(operands)
        self.evaluate = evaluate
        self._shown = shown

    def children(self) -> Sequence[Expression]:
        """See `Expression.children`."""
        return self.operands

    def serialize(self) -> Document:
        """See `Expression.serialize`."""
        return {self.name: self._shown}

    @property
    def is_constant(self) -> bool:
        """See `Expression.is_constant`."""
        return bool(self.operands) and all(operand.is_constant for operand in self.operands)


def folded(expression: Expression) -> Expression:
    """A constant in the place of an expression that has one value; a failure is left for when it runs."""
    if isinstance(expression, Constant) or not expression.is_constant:
        return expression
    try:
        value = expression.evaluate({}, {})
    except MongoError:
        return expression
    return expression if value is MISSING else Constant(value)


@dataclass(frozen=True)
class ParseContext:
    """What is known where an expression is parsed: the collation, and which variables are defined."""

    collator: Collator | None = None
    variables: frozenset[str] = field(default_factory=frozenset)
    depth: int = 0

    parser: ClassVar[Callable[[Any, "ParseContext"], Expression]]
    """Set by `parse`, so that the families of operators need not import it."""

    def parse(self, spec: Any) -> Expression:
        """Parse an operand."""
        return type(self).parser(spec, self)

    def with_variables(self, *names: str) -> "ParseContext":
        """The same with further variables defined."""
        return replace(self, variables=self.variables | set(names))


def check_variable_name(name: str) -> None:
    """Refuse a name that no variable of a user can have.

    Raises:
        FailedToParse: it does not begin with a lower-case letter, or holds another character than letters and digits.
    """
    first = name[:1]
    if not (first.islower() and first.isascii()) and first.isascii():
        raise FailedToParse(f"'{name}' starts with an invalid character for a user variable name")
    for character in name:
        if character.isascii() and not (character.isalnum() or character == "_"):
            raise FailedToParse(f"'{name}' contains an invalid character for a variable name: '{character}'")


OperatorParser = Callable[[str, Any, ParseContext], Expression]


def operands(name: str, spec: Any, context: ParseContext, low: int, high: int | None = None) -> list[Expression]:
    """The operands of an operator that takes a list, or one operand without brackets.

    Raises:
        Location: 16020 for a wrong number, 28667 outside a range of numbers.
    """
    items = spec if isinstance(spec, list) else [spec]
    high = low if high is None else high
    if low == high and len(items) != low:
        raise Location(16020, f"Expression {name} takes exactly {low} arguments. {len(items)} were passed in.")
    if not low <= len(items) <= high:
        raise Location(
            28667,
            f"Expression {name} takes at least {low} arguments, and at most {high}, but {len(items)} were passed in.",
        )
    return [context.parse(item) for item in items]


def call_of(
    function: Callable[..., Any], low: int, high: int | None = None, *, constant: bool = True
) -> OperatorParser:
    """The parser of an operator that is a plain function of its operands."""

    def parse(name: str, spec: Any, context: ParseContext) -> Expression:
        return Call(name, operands(name, spec, context, low, high), function, constant=constant)

    return parse


VARIADIC: Final = 1 << 30


def named_operands(
    name: str,
    spec: Any,
    context: ParseContext,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    not_object: int = 9,
    unknown: int = 9,
    missing: int = 9,
) -> dict[str, Expression]:
    """The operands of an operator that takes a document of them; numbers are the codes of its complaints."""

    if not isinstance(spec, dict):
        raise error_for(not_object, f"{name} only supports an object as its argument")
    for key in spec:
        if key not in required and key not in optional:
            raise error_for(unknown, f"Unrecognized argument to {name}: {key}")
    for key in required:
        if key not in spec:
            raise error_for(missing, f"Missing '{key}' parameter to {name}")
    return {key: context.parse(value) for key, value in spec.items()}
