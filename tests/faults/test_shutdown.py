"""The end of a server that is busy: within a bound, with everything that was acknowledged, whatever it computes."""

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from support.server_process import ServerProcess

Document = dict[str, Any]
StartServer = Callable[..., ServerProcess]

LONG = {"$sum": {"$map": {"input": {"$range": [0, 300_000]}, "as": "x", "in": {"$sum": {"$range": [0, 2000]}}}}}
"""An expression that computes for many minutes in one go."""


def write_until_the_end(uri: str, acknowledged: list[int], started: threading.Event) -> None:
    with MongoClient[Document](uri, serverSelectionTimeoutMS=2000) as client:
        number = 0
        try:
            while True:
                client["lab"]["c"].insert_one({"_id": number})
                acknowledged.append(number)
                number += 1
                started.set()
        except PyMongoError:
            started.set()


def compute(uri: str) -> None:
    with MongoClient[Document](uri, serverSelectionTimeoutMS=2000) as client:
        try:
            list(client["lab"].aggregate([{"$documents": [{}]}, {"$set": {"x": LONG}}]))
        except PyMongoError:
            return


def is_busy(uri: str) -> bool:
    """Whether the server does not answer within a moment."""
    with MongoClient[Document](uri, serverSelectionTimeoutMS=700, socketTimeoutMS=700) as client:
        try:
            client.admin.command("ping")
        except PyMongoError:
            return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_that_computes(start_server: StartServer, number: signal.Signals) -> None:
    server = start_server()
    acknowledged: list[int] = []
    started = threading.Event()
    writers = threading.Thread(target=write_until_the_end, args=(server.uri, acknowledged, started))
    writers.start()
    assert started.wait(20)
    computing = threading.Thread(target=compute, args=(server.uri,))
    computing.start()
    while not is_busy(server.uri):
        pass
    server.signal(number)
    assert server.wait() == 0
    writers.join()
    computing.join()
    assert any("without waiting" in event["msg"] for event in server.events())
    server.start()
    with MongoClient[Document](server.uri) as client:
        stored = {row["_id"] for row in client["lab"]["c"].find()}
        assert set(acknowledged) <= stored <= {*acknowledged, len(acknowledged)}
        assert client["lab"].command("validate", "c")["valid"]


def test_the_command_ends_a_server_under_load_and_its_lock(start_server: StartServer) -> None:
    server = start_server()
    acknowledged: list[int] = []
    started = threading.Event()
    writer = threading.Thread(target=write_until_the_end, args=(server.uri, acknowledged, started))
    writer.start()
    assert started.wait(20)
    with MongoClient[Document](server.uri) as client:
        assert client.admin.command("fsync", lock=True)["lockCount"] == 1
        locked_at = len(acknowledged)
        assert client.admin.command("fsync", lock=True)["lockCount"] == 2
        stored = client["lab"]["c"].count_documents({})
        assert stored in (locked_at, locked_at + 1)
        with pytest.raises((PyMongoError, OperationFailure)):
            client.admin.command("shutdown")
    assert server.wait() == 0
    writer.join()
    assert "Shutdown complete" in {event["msg"] for event in server.events()}
    server.start()
    with MongoClient[Document](server.uri) as client:
        stored_now = {row["_id"] for row in client["lab"]["c"].find()}
        assert set(acknowledged) <= stored_now
