"""`bucketd backup` and `bucketd restore`: a copy of a store that may be served meanwhile, and back."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from ...storage.errors import StorageError
from ...storage.offline import Manifest, back_up
from ...storage.offline import restore as restore_store
from . import EXIT_NO_DATA, fail, json_option


@click.command(short_help="Copy a store, also while a server has it open.")
@click.option("--dbpath", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of the data.")
@click.option(
    "--out", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of the backup; new or empty."
)
@json_option
def backup(dbpath: Path, out: Path, as_json: bool) -> None:
    """Copy the store in a folder, compacted, as of one moment, while a server goes on serving it.

    All that was acknowledged before it began is in it. The copy is verified, and has a checksum in backup.json.

    \b
    Exit code 0: done. 2: wrong options. 100: not done, and nothing of it is left.
    """
    try:
        manifest = back_up(dbpath, out)
    except StorageError as error:
        fail(error, EXIT_NO_DATA, as_json=as_json)
    _tell(manifest, f"backed up {dbpath} to {out}", as_json=as_json)


@click.command(short_help="Put a backup into an empty folder.")
@click.option(
    "--from", "source", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of the backup."
)
@click.option(
    "--dbpath", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of the data; new or empty."
)
@json_option
def restore(source: Path, dbpath: Path, as_json: bool) -> None:
    """Put a backup into a folder in which no store is, for a server to start on.

    The backup's checksum is verified before, and the store after.

    \b
    Exit code 0: done. 2: wrong options. 100: not done, and nothing of it is left.
    """
    try:
        manifest = restore_store(source, dbpath)
    except StorageError as error:
        fail(error, EXIT_NO_DATA, as_json=as_json)
    _tell(manifest, f"restored {source} to {dbpath}", as_json=as_json)


def _tell(manifest: Manifest, what: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"done": True, **asdict(manifest)}))
    else:
        click.echo(f"{what}: {manifest.bytes} bytes of {manifest.created}, format {manifest.format}")
