"""A real mongosh to type into, installed from the lock file beside this one where Node is present."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server_process import ServerProcess

FOLDER = Path(__file__).parent
SHELL = FOLDER / "node_modules" / "mongosh" / "bin" / "mongosh.js"
NODE_MAJOR_MIN = 20

Shell = Callable[[str], str]


def _why_not() -> str | None:
    """Why mongosh cannot run here; None where it can."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return "mongosh needs Node.js and npm, which are not installed"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < NODE_MAJOR_MIN:
        return f"mongosh needs Node.js {NODE_MAJOR_MIN}, this is {version}"
    return None


@pytest.fixture(scope="session")
def mongosh_path() -> Path:
    reason = _why_not()
    if reason is not None:
        pytest.skip(reason)
    if not SHELL.exists():
        subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=FOLDER,
            check=True,
            capture_output=True,
            timeout=600,
        )
    return SHELL


@pytest.fixture(scope="module")
def shell_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("mongosh"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shell(mongosh_path: Path, shell_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Type lines into a shell on the database `weather_shell`; returns what it printed."""
    home = tmp_path_factory.mktemp("home")

    def type_into(lines: str) -> str:
        finished = subprocess.run(
            ["node", str(mongosh_path), f"mongodb://127.0.0.1:{shell_server.port}/weather_shell", "--quiet"],
            input=lines,
            capture_output=True,
            text=True,
            timeout=90,
            env={**os.environ, "HOME": str(home), "NO_COLOR": "1"},
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    return type_into


@pytest.fixture(scope="module")
def answer(shell: Shell) -> Callable[[str], Any]:
    """The value of one expression, by way of the shell's EJSON."""

    def evaluate(expression: str) -> Any:
        printed = shell(f'print("<<" + EJSON.stringify({expression}) + ">>")\n')
        return json.loads(printed[printed.rindex("<<") + 2 : printed.rindex(">>")])

    return evaluate
