"""The first start of a container: the root user and the initialisation scripts, before anybody can connect.

`python -m bucketd.server.initialise --dbpath DIR --scripts DIR` starts a server on a free port of the loopback
interface, creates the user named by MONGO_INITDB_ROOT_USERNAME and MONGO_INITDB_ROOT_PASSWORD, runs the scripts in
order of their names (`*.sh` with sh, `*.py` with a pymongo database in `db`, `*.js` with mongosh) and stops again.
It does what the entrypoint of MongoDB's official image does; a first start that failed half way is not taken for a
finished one.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pymongo import MongoClient

UNFINISHED = "initialising"


@contextmanager
def _server(dbpath: Path) -> Iterator[int]:
    """A server on a free port; yields the port."""
    command = [sys.executable, "-m", "bucketd.server", "--dbpath", str(dbpath), "--port", "0", "--bind_ip", "127.0.0.1"]
    # Nobody else reaches this server: what is done before the first client comes needs no encryption.
    environment = {**os.environ, "BUCKETD_TLS_MODE": "disabled"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if "Waiting for connections" in line:
                yield int(json.loads(line)["attr"]["port"])
                break
        else:
            raise click.ClickException(f"the server did not start (exit code {child.wait()})")
    finally:
        child.terminate()
        child.stdout.read()
        child.wait()


def _create_root(port: int, user: str, password: str) -> None:
    with MongoClient[dict[str, Any]]("127.0.0.1", port, directConnection=True) as client:
        client["admin"].command("createUser", user, pwd=password, roles=[{"role": "root", "db": "admin"}])


def _run_script(script: Path, port: int, database: str, user: str, password: str) -> None:
    """Run one script; other files than `*.sh`, `*.py` and `*.js` are passed over with a line that says so."""
    environment = {**os.environ, "MONGO_INITDB_PORT": str(port)}
    match script.suffix:
        case ".sh":
            subprocess.run(["sh", str(script)], check=True, env=environment)
        case ".py":
            with MongoClient[dict[str, Any]](
                "127.0.0.1", port, directConnection=True, username=user or None, password=password or None
            ) as client:
                runpy.run_path(str(script), init_globals={"client": client, "db": client[database]})
        case ".js":
            mongosh = shutil.which("mongosh")
            if mongosh is None:
                raise click.ClickException(
                    f"{script}: scripts in JavaScript need mongosh, which this image does not hold; "
                    "build the target server-with-mongosh, or write the script in Python (*.py)"
                )
            login = ["-u", user, "-p", password, "--authenticationDatabase", "admin"] if user else []
            subprocess.run(
                [mongosh, "--quiet", "--host", "127.0.0.1", "--port", str(port), *login, database, str(script)],
                check=True,
                env=environment,
            )
        case _:
            click.echo(f"initialise: {script.name} is passed over", err=True)
            return
    click.echo(f"initialise: {script.name} done", err=True)


@click.command(help=__doc__)
@click.option("--dbpath", required=True, type=click.Path(path_type=Path), help="Folder of the data.")
@click.option("--scripts", required=True, type=click.Path(path_type=Path), help="Folder of the scripts.")
def main(dbpath: Path, scripts: Path) -> None:
    """Do the first start's work, where there is any."""
    user = os.environ.get("MONGO_INITDB_ROOT_USERNAME", "")
    password = os.environ.get("MONGO_INITDB_ROOT_PASSWORD", "")
    database = os.environ.get("MONGO_INITDB_DATABASE") or "test"
    found = sorted(path for path in scripts.iterdir() if path.is_file()) if scripts.is_dir() else []
    if not user and not found:
        return
    dbpath.mkdir(parents=True, exist_ok=True)
    unfinished = dbpath / UNFINISHED
    unfinished.touch()
    with _server(dbpath) as port:
        if user:
            _create_root(port, user, password)
        for script in found:
            _run_script(script, port, database, user, password)
    unfinished.unlink()


if __name__ == "__main__":
    main()
