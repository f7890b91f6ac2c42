"""WHAT AN OPERATOR DOES BESIDE A SERVER: the subcommands of `bucketd`."""

import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import click

EXIT_NO_DATA: Final = 100
"""As the server exits where it cannot open its data."""

SUBCOMMANDS: Final[Mapping[str, str]] = {"backup": "backup", "check": "check", "restore": "backup"}
"""By its name: the module of this folder that has it. It is loaded when somebody calls it."""

json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")


class WithSubcommands(click.Group):
    """A command with options of its own that others stand beside; their modules are loaded when they are called."""

    def list_commands(self, context: click.Context) -> list[str]:
        """See `click.Group.list_commands`."""
        return sorted(SUBCOMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """See `click.Group.get_command`."""
        module = SUBCOMMANDS.get(name)
        if module is None:
            return None
        found: Any = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        assert isinstance(found, click.Command)
        return found


def fail(error: Exception, code: int, *, as_json: bool) -> NoReturn:
    """Tell why nothing was done, and exit."""
    if as_json:
        click.echo(json.dumps({"done": False, "error": type(error).__name__, "message": str(error)}))
    else:
        click.echo(f"bucketd: {type(error).__name__}: {error}", err=True)
    sys.exit(code)
