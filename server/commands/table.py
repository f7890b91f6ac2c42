"""Every command that the server knows, one row each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .base import Command
from .handshake import Hello, Ping, WhatsMyUri


def table_of(*commands: Command) -> Mapping[str, Command]:
    """The commands by their names and aliases, having checked that each name stands once."""
    table: dict[str, Command] = {}
    for command in sorted(commands, key=lambda command: command.name):
        for name in (command.name, *command.aliases):
            assert name not in table, f"{name} stands twice"
            table[name] = command
    return MappingProxyType(table)


COMMANDS: Final = table_of(
    Hello(),
    Ping(),
    WhatsMyUri(),
)
"""By every name that a client may use."""
