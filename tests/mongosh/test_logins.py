"""pymongo, mongosh and the Node driver log in over TLS, and are refused where they should be."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from mongosh.conftest import FOLDER
from support.certificates import Certificates
from support.server_process import ServerProcess

pytestmark = pytest.mark.timeout(900)

Client = MongoClient[dict[str, Any]]
PASSWORD = "pass wörd"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """TLS and logins required; `writer` may write into `logins`, `reader` may read it, `holder` has a certificate."""
    server = ServerProcess(
        tmp_path_factory.mktemp("guarded"),
        *("--auth", "--tlsMode", "requireTLS", "--tlsAllowConnectionsWithoutCertificates"),
        *("--tlsCertificateKeyFile", str(certificates.server), "--tlsCAFile", str(certificates.ca)),
    )
    server.start()
    trusted = {"tls": True, "tlsCAFile": str(certificates.ca)}
    with Client(server.uri, **trusted) as first:
        first.admin.command("createUser", "boss", pwd=PASSWORD, roles=["root"])
    with Client(server.uri, username="boss", password=PASSWORD, **trusted) as boss:
        for name, role in (("writer", "readWrite"), ("reader", "read")):
            boss.admin.command(
                "createUser",
                name,
                pwd=PASSWORD,
                roles=[{"role": role, "db": "logins"}],
                mechanisms=["SCRAM-SHA-256"],
            )
        _, subject = certificates.make_alice()
        boss["$external"].command("createUser", subject, roles=[{"role": "readWrite", "db": "logins"}])
    yield server
    server.stop()


CASES = [
    pytest.param("writer", PASSWORD, True, None, id="the right password"),
    pytest.param("writer", "wrong", True, 18, id="a wrong password"),
    pytest.param("nobody", PASSWORD, True, 18, id="an unknown user"),
    pytest.param("reader", PASSWORD, True, 13, id="a missing role"),
    pytest.param(None, None, True, 13, id="no login"),
    pytest.param("writer", PASSWORD, False, "selection", id="no TLS"),
]


@pytest.mark.parametrize(("user", "password", "tls", "refused"), CASES)
def test_pymongo(
    guarded: ServerProcess, certificates: Certificates, user: str | None, password: str | None, tls: bool, refused: Any
) -> None:
    options: dict[str, Any] = {"serverSelectionTimeoutMS": 10_000 if tls else 500}
    if tls:
        options |= {"tls": True, "tlsCAFile": str(certificates.ca)}
    if user is not None:
        options |= {"username": user, "password": password, "authMechanism": "SCRAM-SHA-256"}
    with Client(guarded.uri, **options) as client:
        table = client["logins"]["python"]
        if refused is None:
            table.replace_one({"_id": 1}, {"a": 1}, upsert=True)
            assert table.find_one() == {"_id": 1, "a": 1}
        elif refused == "selection":
            with pytest.raises(ServerSelectionTimeoutError):
                table.insert_one({})
        else:
            with pytest.raises(OperationFailure) as failed:
                table.insert_one({})
            assert failed.value.code == refused


@pytest.mark.parametrize(("user", "password", "tls", "refused"), CASES)
def test_node_driver(
    mongosh_path: Path,
    guarded: ServerProcess,
    certificates: Certificates,
    user: str | None,
    password: str | None,
    tls: bool,
    refused: Any,
) -> None:
    options: dict[str, Any] = {"serverSelectionTimeoutMS": 20_000 if tls else 1000}
    if tls:
        options |= {"tls": True, "tlsCAFile": str(certificates.ca)}
    if user is not None:
        options |= {"auth": {"username": user, "password": password}, "authMechanism": "SCRAM-SHA-256"}
    told = _node(guarded, options)
    if refused is None:
        assert told == {"found": {"_id": 1, "a": 1}, "tls": True}
    elif refused == "selection":
        assert told["name"] == "MongoServerSelectionError"
    else:
        assert (told["name"], told["code"]) == ("MongoServerError", refused)


def test_node_driver_by_certificate(mongosh_path: Path, guarded: ServerProcess, certificates: Certificates) -> None:
    key, _ = certificates.make_alice()
    trusted = {"tls": True, "tlsCAFile": str(certificates.ca), "authMechanism": "MONGODB-X509"}
    assert _node(guarded, {**trusted, "tlsCertificateKeyFile": str(key)})["found"] == {"_id": 1, "a": 1}
    assert _node(guarded, trusted)["code"] == 18


def _node(server: ServerProcess, options: dict[str, Any]) -> dict[str, Any]:
    finished = subprocess.run(
        ["node", "login.mjs", server.uri, json.dumps(options)],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    told: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize(("user", "password", "tls", "refused"), CASES)
def test_mongosh(
    mongosh_path: Path,
    guarded: ServerProcess,
    certificates: Certificates,
    tmp_path: Path,
    user: str | None,
    password: str | None,
    tls: bool,
    refused: Any,
) -> None:
    words = ["node", str(mongosh_path), f"mongodb://127.0.0.1:{guarded.port}/logins?serverSelectionTimeoutMS=10000"]
    if tls:
        words += ["--tls", "--tlsCAFile", str(certificates.ca)]
    else:
        words[-1] = words[-1].replace("10000", "1000")
    if user is not None and password is not None:
        words += ["--username", user, "--password", password, "--authenticationDatabase", "admin"]
        words += ["--authenticationMechanism", "SCRAM-SHA-256"]
    finished = subprocess.run(
        [*words, "--quiet", "--eval", "try { db.shell.insertOne({}); print('written') } catch (e) { print(e.code) }"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOME": str(tmp_path), "NO_COLOR": "1"},
    )
    told = finished.stdout + finished.stderr
    if refused is None:
        assert finished.stdout.split() == ["written"]
    elif refused == "selection":
        assert finished.returncode != 0
        assert "written" not in told
    elif refused == 18:
        # The shell logs in before it runs anything.
        assert finished.returncode != 0
        assert "Authentication failed" in told
    else:
        assert finished.stdout.split() == [str(refused)]
