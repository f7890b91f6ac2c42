"""A disk that fails on demand."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.faulty_disk import FaultyDisk, build
from support.server_process import ServerProcess


@pytest.fixture(scope="session")
def disk_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def disk(disk_library: Path, tmp_path: Path) -> FaultyDisk:
    return FaultyDisk(disk_library, tmp_path)


@pytest.fixture
def on_faulty_disk(disk: FaultyDisk, tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts a server whose disk is the faulty one."""
    started: list[ServerProcess] = []

    def start(*options: str) -> ServerProcess:
        process = ServerProcess(tmp_path, *options, environment=disk.environment)
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.stop()
