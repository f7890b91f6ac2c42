"""What tests share: a running server, a driver's client on it, a raw connection to it, a clock that stands still."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketd.common.clock import TestClock
from support.server_process import ServerProcess
from support.wire_client import WireClient

Document = dict[str, Any]

_names = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of a run; each test has a database of its own."""
    process = ServerProcess(tmp_path_factory.mktemp("server"))
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[MongoClient[Document]]:
    with MongoClient[Document](server.uri, serverSelectionTimeoutMS=10_000) as connected:
        yield connected


@pytest.fixture
def database(client: MongoClient[Document]) -> Iterator[Database[Document]]:
    """A database with a name that no other test has; it is dropped afterwards."""
    name = f"test_{next(_names)}"
    yield client[name]
    client.drop_database(name)


@pytest.fixture
def wire(server: ServerProcess) -> Iterator[WireClient]:
    """A raw connection."""
    with WireClient(server.port) as connected:
        yield connected


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ServerProcess]]:
    """Starts a server of the test's own: `start_server("--test-clock")`."""
    started: list[ServerProcess] = []

    def start(*options: str, **environment: str) -> ServerProcess:
        process = ServerProcess(tmp_path_factory.mktemp("own"), *options, environment=environment)
        started.append(process)
        process.start()
        return process

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def clock() -> TestClock:
    return TestClock(1_700_000_000_000)
