"""Server parameters: what setParameter sets and getParameter tells, with their types, ranges and defaults."""

from typing import Any


class Parameters:
    """The values of all server parameters."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]
