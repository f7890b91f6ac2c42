"""The command line: options to a Config, a Config to a running server, an end to an exit code."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..common.config import SETTINGS, Config, ConfigError, config_from
from ..common.limits import SERVER_VERSION
from ..storage.errors import StorageError
from .shutdown import Shutdown
from .tools import WithSubcommands
from .version import package_version

if TYPE_CHECKING:
    from .commands.base import Command
    from .context import Services

_EXIT_BAD_OPTIONS: Final = 2
_EXIT_CANNOT_START: Final = 48
_FRAMES_MAX: Final = 10_000
"""As mongod exits when it cannot listen."""
_SWITCH_SECONDS: Final = 0.0005
_EXIT_NO_DATA: Final = 100
"""As mongod exits when it cannot open its data."""


async def serve(config: Config) -> None:
    """Run the server until it is told to stop, by a signal or by the command `shutdown`.

    Raises:
        ConfigError, StorageError, OSError: it cannot start.
    """
    from .commands.handshake import FIRST_COMMANDS
    from .dispatch import Dispatcher
    from .listener import Listener
    from .services import open_services

    # The writer's thread wants its turn as soon as its commit is on disk: those who wait for it are many.
    sys.setswitchinterval(_SWITCH_SECONDS)
    loop = asyncio.get_running_loop()
    shutdown = Shutdown(loop, config.pid_file)
    shutdown.listen()
    async with open_services(config) as services:
        loop.set_exception_handler(
            lambda _, failure: services.logger.error(
                "Uncaught failure",
                component="CONTROL",
                reason=failure.get("message"),
                exc_info=failure.get("exception"),
            )
        )
        services.request_shutdown = shutdown.request
        shutdown.services = services
        loop.add_signal_handler(signal.SIGHUP, _reload_certificates, services)
        dispatcher = Dispatcher(FIRST_COMMANDS)
        listener = Listener(services, dispatcher)
        await listener.start()
        services.logger.info(
            "Waiting for connections",
            component="NETWORK",
            id=23016,
            ctx="listener",
            port=listener.port,
            ssl="off" if services.tls is None else "on",
        )
        services.log_memory.starting = False
        # The commands, and the query language with them, are loaded while the first clients say hello.
        services.commands = await asyncio.to_thread(_load_commands)
        dispatcher.complete(services.commands)
        # What was loaded stays; the collector need not look at it again.
        gc.freeze()
        await shutdown.requested()
        services.logger.info("Shutting down", component="CONTROL", id=23377, ctx="main")
        await listener.stop()
    shutdown.done()


def _reload_certificates(services: "Services") -> None:
    if services.tls is not None:
        from .tls import reload_certificates

        with contextlib.suppress(ConfigError):
            # It is logged, and the certificates of before go on.
            reload_certificates(services)


def _load_commands() -> "Mapping[str, Command]":
    from .commands.table import COMMANDS

    return COMMANDS


def _print_version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"bucketd {package_version()} (speaks MongoDB {SERVER_VERSION})")
        context.exit()


def _with_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """One option a setting, in the order of the table."""
    for name, row in reversed(list(SETTINGS.items())):
        meta = row.metadata
        is_flag = row.default is False
        shown = "" if is_flag or row.default in ("", ()) else f"  [{_default_text(row.default)}]"
        command = click.option(
            f"--{meta['flag']}",
            name,
            help=meta["summary"] + shown,
            metavar=None if is_flag else "VALUE",
            is_flag=is_flag,
            flag_value=True if is_flag else None,
            default=None,
            multiple=name == "set_parameters",
        )(command)
    return command


def _default_text(default: Any) -> str:
    return ",".join(default) if isinstance(default, tuple) else str(default)


@click.group(
    cls=WithSubcommands,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND ...]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("-f", "--config", "config_path", metavar="FILE", help="File of settings, in YAML with mongod's names.")
@_with_options
@click.option("-v", "more_verbose", count=True, help="Log more; the more v, the more.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.pass_context
def main(context: click.Context, /, config_path: str | None, more_verbose: int, **flags: Any) -> None:
    """Serve time-series collections, and ordinary ones, to clients of MongoDB; or run a COMMAND beside a server."""
    if context.invoked_subcommand is not None:
        return
    try:
        if more_verbose and flags.get("verbosity") is None:
            flags["verbosity"] = min(more_verbose, 5)
        if not flags["set_parameters"]:
            flags["set_parameters"] = None
        config = config_from(_read_file(config_path), os.environ, flags)
    except ConfigError as error:
        click.echo(f"bucketd: {error}\ntry 'bucketd --help' for more information", err=True)
        sys.exit(_EXIT_BAD_OPTIONS)
    # A pipeline of a thousand stages is as many generators within each other.
    sys.setrecursionlimit(_FRAMES_MAX)
    pid_file = Path(config.pid_file) if config.pid_file else None
    try:
        if pid_file is not None:
            pid_file.write_text(f"{os.getpid()}\n", encoding="ascii")
        _run(config)
    except ConfigError as error:
        click.echo(f"bucketd: {error}", err=True)
        sys.exit(_EXIT_BAD_OPTIONS)
    except StorageError as error:
        click.echo(f"bucketd: {type(error).__name__}: {error}", err=True)
        sys.exit(_EXIT_NO_DATA)
    except OSError as error:
        click.echo(f"bucketd: {error}", err=True)
        sys.exit(_EXIT_CANNOT_START)
    finally:
        if pid_file is not None:
            pid_file.unlink(missing_ok=True)


def _run(config: Config) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(config))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config))


def _read_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml

    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"the configuration file {path} is not made of settings")
    return document


if __name__ == "__main__":
    main()
