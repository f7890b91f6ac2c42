"""`$jsonSchema`: draft 4 of JSON Schema in MongoDB's dialect."""

from typing import Any

from .base import MatchContext, MatchNode


def parse_json_schema(operand: Any, context: MatchContext) -> MatchNode:
    """`$jsonSchema: schema`."""
    raise NotImplementedError
