"""Every step of the Dockerfile is a script, and every script does its work here too, without a container engine."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from support.certificates import Certificates

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"

pytestmark = pytest.mark.timeout(900)


def test_every_run_line_is_a_script_or_installs_packages() -> None:
    lines = re.findall(r"^RUN (.*)$", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert lines
    for line in lines:
        for part in line.split(" && "):
            assert re.match(r"sh (/source/docker)?/steps/|apt-get |rm -rf |npm install --global ", part), part


def test_every_copied_file_exists() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source


def test_missing_prerequisites_are_named(tmp_path: Path) -> None:
    for tool in ("sh", "dirname"):
        found = next(Path(folder) / tool for folder in os.environ["PATH"].split(":") if (Path(folder) / tool).exists())
        (tmp_path / tool).symlink_to(found)
    finished = subprocess.run(
        ["sh", str(DOCKER / "steps" / "check-prerequisites")],
        env={"PATH": str(tmp_path), "PYTHON": "python-that-is-not-there"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 1
    for word in ("Python 3.11", "C compiler", "Rust toolchain"):
        assert word in finished.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image holds in /opt/bucketd, made by the image's own steps."""
    folder = tmp_path_factory.mktemp("image")
    source = folder / "source"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    environment = {**os.environ, "PYTHON": sys.executable, "CARGO_TARGET_DIR": str(ROOT / "kernels" / "target")}
    for step in (
        ["build-wheels", str(source), str(folder / "wheels")],
        ["install", str(folder / "wheels"), str(folder / "bucketd")],
    ):
        subprocess.run(["sh", str(source / "docker" / "steps" / step[0]), *step[1:]], check=True, env=environment)
    return folder / "bucketd"


drains: dict[int, threading.Thread] = {}
"""Who reads the output of a server, by its process."""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def wait_for_port(port: int, process: "subprocess.Popen[str]") -> None:
    """Return once the server has written its ready line; its output is read on in the background."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if '"Waiting for connections"' in line and json.loads(line)["attr"]["port"] == port:
            drains[process.pid] = threading.Thread(target=process.stdout.read, daemon=True)
            drains[process.pid].start()
            return
    raise AssertionError("".join(seen))


def start_container(
    installed: Path, dbpath: Path, scripts: Path, **environment: str
) -> tuple[subprocess.Popen[str], int]:
    """Run the entrypoint as the image would; returns the process and its port once it serves."""
    port = free_port()
    process = subprocess.Popen(
        ["sh", str(DOCKER / "entrypoint"), "--port", str(port)],
        env={
            **os.environ,
            "PATH": f"{installed / 'bin'}:{os.environ['PATH']}",
            "BUCKETD_DBPATH": str(dbpath),
            "BUCKETD_INITDB": str(scripts),
            "BUCKETD_BIND_IP": "127.0.0.1",
            **environment,
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for_port(port, process)
    return process, port


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    assert process.stdout is not None
    drains[process.pid].join()
    process.stdout.close()


def healthy(installed: Path, port: int) -> bool:
    command = [str(installed / "bin" / "python"), str(DOCKER / "healthcheck")]
    return subprocess.run(command, env={**os.environ, "BUCKETD_PORT": str(port)}).returncode == 0


def test_without_variables_it_serves_and_is_healthy(installed: Path, tmp_path: Path) -> None:
    process, port = start_container(installed, tmp_path / "db", tmp_path / "none")
    try:
        with MongoClient("127.0.0.1", port) as client:
            client["app"]["things"].insert_one({"_id": 1})
        assert healthy(installed, port)
    finally:
        stop(process)
    assert not healthy(installed, port)


def test_root_user_and_scripts_as_the_official_image(installed: Path, tmp_path: Path) -> None:
    scripts = tmp_path / "initdb"
    scripts.mkdir()
    (scripts / "10-first.py").write_text("db['seeded'].insert_one({'_id': 'python', 'database': db.name})\n")
    (scripts / "20-second.sh").write_text('echo "$MONGO_INITDB_DATABASE" > "$(dirname "$BUCKETD_INITDB")/shell-ran"\n')
    (scripts / "ignored.txt").write_text("not a script")
    secret = tmp_path / "password"
    secret.write_text("pass word")
    variables = {
        "MONGO_INITDB_ROOT_USERNAME": "boss",
        "MONGO_INITDB_ROOT_PASSWORD_FILE": str(secret),
        "MONGO_INITDB_DATABASE": "app",
    }
    for _ in ("an empty volume", "the same volume again"):
        process, port = start_container(installed, tmp_path / "db", scripts, **variables)
        try:
            assert healthy(installed, port)
            with MongoClient("127.0.0.1", port, username="boss", password="pass word") as client:
                assert client["app"]["seeded"].find_one() == {"_id": "python", "database": "app"}
                assert client["app"]["seeded"].count_documents({}) == 1
            with MongoClient("127.0.0.1", port) as client, pytest.raises(OperationFailure) as refused:
                client["app"]["seeded"].find_one()
            assert refused.value.code == 13
            with (
                MongoClient("127.0.0.1", port, username="boss", password="wrong") as client,
                pytest.raises(OperationFailure) as refused,
            ):
                client["app"]["seeded"].find_one()
            assert refused.value.code == 18
        finally:
            stop(process)
    assert (tmp_path / "shell-ran").read_text() == "app\n"


def test_half_a_pair_of_variables_is_refused(tmp_path: Path) -> None:
    finished = subprocess.run(
        ["sh", str(DOCKER / "entrypoint")],
        env={**os.environ, "BUCKETD_DBPATH": str(tmp_path), "MONGO_INITDB_ROOT_USERNAME": "boss"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 1
    assert "go together" in finished.stderr


READ_ONLY = """
set -e
mount --bind "$0" "$0"
mount -o remount,bind,ro /
if touch "$1/written" 2>/dev/null; then echo "not read-only" >&2; exit 99; fi
shift
exec "$@"
"""


def can_be_read_only(folder: Path) -> bool:
    """Whether this system lets a test make a root file system of its own that is read-only."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, str(folder), str(folder.parent), "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


def test_it_writes_nowhere_but_into_its_volume(installed: Path, tmp_path: Path) -> None:
    dbpath = tmp_path / "db"
    dbpath.mkdir()
    if not can_be_read_only(dbpath):
        pytest.skip("this system does not let a test remount its root read-only")
    port = free_port()
    process = subprocess.Popen(
        [
            *("unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, str(dbpath), str(tmp_path)),
            *("sh", str(DOCKER / "entrypoint"), "--port", str(port)),
            *("--setParameter", "internalQueryMaxBlockingSortMemoryUsageBytes=1000"),
        ],
        env={
            **os.environ,
            "PATH": f"{installed / 'bin'}:{os.environ['PATH']}",
            "BUCKETD_DBPATH": str(dbpath),
            "BUCKETD_INITDB": str(tmp_path / "none"),
            "BUCKETD_BIND_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for_port(port, process)
    try:
        with MongoClient("127.0.0.1", port) as client:
            things = client["app"]["things"]
            things.insert_many({"_id": number, "text": "x" * 100} for number in range(1000))
            # More than may be sorted in memory: it goes to disk, beside the data.
            rows = list(things.aggregate([{"$sort": {"text": 1, "_id": -1}}], allowDiskUse=True))
            assert [row["_id"] for row in rows] == list(range(999, -1, -1))
    finally:
        stop(process)
    assert (dbpath / "data.mdb").exists()


def test_with_tls_it_is_set_up_and_healthy(installed: Path, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    settings = {
        "BUCKETD_TLS_MODE": "requireTLS",
        "BUCKETD_TLS_CERTIFICATE_KEY_FILE": str(certificates.server),
        "BUCKETD_TLS_CA_FILE": str(certificates.ca),
        "MONGO_INITDB_ROOT_USERNAME": "boss",
        "MONGO_INITDB_ROOT_PASSWORD": "secret",
    }
    process, port = start_container(installed, tmp_path / "db", tmp_path / "none", **settings)
    try:
        key, _ = certificates.make_alice()
        trusted = {"tls": True, "tlsCAFile": str(certificates.ca), "tlsCertificateKeyFile": str(key)}
        with MongoClient("127.0.0.1", port, username="boss", password="secret", **trusted) as client:
            client["app"]["things"].insert_one({"_id": 1})
        assert not healthy(installed, port)
        command = [str(installed / "bin" / "python"), str(DOCKER / "healthcheck")]
        assert subprocess.run(command, env={**os.environ, **settings, "BUCKETD_PORT": str(port)}).returncode == 0
    finally:
        stop(process)
