"""Starting and stopping: options, environment, configuration file, signals, exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from bucketd.common.config import SETTINGS
from support.server_process import ROOT, ServerProcess
from support.wire_client import WireClient

StartServer = Callable[..., ServerProcess]


def run(*options: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BUCKETD_")}
    environment["PYTHONPATH"] = str(ROOT / ".typing")
    return subprocess.run(
        [sys.executable, "-m", "bucketd.server", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
        cwd=cwd,
    )


def test_help_names_every_option() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for row in SETTINGS.values():
        assert f"--{row.metadata['flag']}" in shown.stdout


def test_version_tells_what_it_speaks() -> None:
    assert "speaks MongoDB 8.2" in run("--version").stdout


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--port", "x"], 2, "--port"),
        (["--port", "70000"], 2, "--port"),
        (["--nonsense"], 2, "--nonsense"),
        (["--setParameter", "nothing=5"], 2, "nothing"),
        (["--setParameter", "timeseriesBucketMaxCount=0"], 2, "timeseriesBucketMaxCount"),
        (["--config", "/does/not/exist"], 2, "/does/not/exist"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: list[str], code: int, words: str) -> None:
    ended = run("--dbpath", str(tmp_path), "--port", "0", *options)
    assert ended.returncode == code
    assert words in ended.stderr


def test_configuration_file_with_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "bucketd.conf"
    for content in ("net: {prot: 5}", "[1, 2]", "net: [", "replication: {replSetName: rs0}"):
        file.write_text(content)
        ended = run("--config", str(file), "--port", "0", "--dbpath", str(tmp_path / "db"))
        assert ended.returncode == 2, content
        assert ended.stderr


def test_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run("--port", str(port), "--dbpath", str(tmp_path))
    assert ended.returncode == 48
    assert "bucketd:" in ended.stderr


def test_folder_in_use_is_told(start_server: StartServer) -> None:
    own = start_server()
    ended = run("--port", "0", "--dbpath", str(own.dbpath))
    assert ended.returncode == 100
    assert "PathInUse" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_it_in_good_order(start_server: StartServer, number: signal.Signals) -> None:
    own = start_server()
    own.signal(number)
    assert own.wait() == 0
    assert own.events()[-1]["msg"] == "Shutdown complete"


def test_shutdown_command_stops_it_without_a_reply(start_server: StartServer) -> None:
    own = start_server()
    with WireClient(own.port, "admin") as wire:
        wire.tell({"shutdown": 1}, flags=0)
        assert wire.is_closed()
    assert own.wait() == 0


def test_ready_line_has_the_port(start_server: StartServer) -> None:
    own = start_server()
    (line,) = [event for event in own.events() if event["msg"] == "Waiting for connections"]
    assert (line["s"], line["c"], line["attr"]["port"]) == ("I", "NETWORK", own.port)


def test_settings_come_from_file_environment_and_flags(tmp_path: Path, start_server: StartServer) -> None:
    file = tmp_path / "bucketd.conf"
    file.write_text("setParameter: {ttlMonitorSleepSecs: 7, logLevel: 1}\nsystemLog: {quiet: true}\n")
    own = start_server(
        "--config",
        str(file),
        "--setParameter",
        "logLevel=2",
        "--setParameter",
        "ttlMonitorEnabled=false",
        BUCKETD_SLOW_MS="333",
    )
    with WireClient(own.port, "admin") as wire:
        asked = {"getParameter": 1, "ttlMonitorSleepSecs": 1, "logLevel": 1, "quiet": 1, "ttlMonitorEnabled": 1}
        answer = wire.ask(asked)
        assert {name: answer[name] for name in asked if name in answer} == {
            "ttlMonitorSleepSecs": 7,
            "logLevel": 2,
            "quiet": True,
            "ttlMonitorEnabled": False,
        }
        parsed: dict[str, Any] = wire.ask({"getCmdLineOpts": 1})["parsed"]
        assert parsed["operationProfiling"] == {"slowOpThresholdMs": 333}
        assert parsed["systemLog"] == {"quiet": True}


def test_log_file_is_written_and_rotated(tmp_path: Path, start_server: StartServer) -> None:
    path = tmp_path / "logs" / "bucketd.log"
    process = ServerProcess(tmp_path, "--logpath", str(path), "--unixSocketPrefix", str(tmp_path))
    # With --logpath nothing comes on standard output, so the socket of a known name tells that it is there.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "bucketd.server", "--port", str(port), "--dbpath", str(process.dbpath)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".typing")}
    child = subprocess.Popen([*command, *process.options], env=environment)
    try:
        uri = f"mongodb://127.0.0.1:{port}/?directConnection=true"
        with MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=20_000) as client:
            client["admin"].command("logRotate", 1)
            client["admin"].command("ping")
        socket_uri = "mongodb://" + str(tmp_path / f"mongodb-{port}.sock").replace("/", "%2F")
        with MongoClient[dict[str, Any]](socket_uri, directConnection=True) as client:
            assert client["admin"].command("ping")["ok"] == 1.0
    finally:
        child.terminate()
        assert child.wait(20) == 0
    assert not (tmp_path / f"mongodb-{port}.sock").exists()
    (older,) = path.parent.glob("bucketd.log.*")
    assert any(json.loads(line)["msg"] == "Waiting for connections" for line in older.read_text().splitlines())
    assert json.loads(path.read_text().splitlines()[-1])["msg"] == "Shutdown complete"


def test_data_goes_below_the_working_folder_where_nothing_is_said(tmp_path: Path) -> None:
    # Fails at the port, after the folder was made.
    with socket.create_server(("127.0.0.1", 0)) as other:
        ended = run("--port", str(other.getsockname()[1]), cwd=tmp_path)
    assert ended.returncode == 48
    assert (tmp_path / "data" / "db").is_dir() or os.access("/data/db", os.W_OK)


def test_pid_file_is_written_and_taken_away(tmp_path: Path, start_server: StartServer) -> None:
    file = tmp_path / "pid"
    own = start_server("--pidfilepath", str(file))
    assert file.read_text() == f"{own.pid}\n"
    assert own.stop() == 0
    assert not file.exists()


def test_what_was_set_outlives_a_restart(start_server: StartServer) -> None:
    own = start_server()
    asked = {"getParameter": 1, "featureCompatibilityVersion": 1}
    with WireClient(own.port, "admin") as wire:
        assert wire.ask(asked)["featureCompatibilityVersion"] == {"version": "8.2"}
        assert wire.ask({"setFeatureCompatibilityVersion": "8.0", "confirm": True})["ok"] == 1.0
    assert own.stop() == 0
    own.start()
    with WireClient(own.port, "admin") as wire:
        assert wire.ask(asked)["featureCompatibilityVersion"] == {"version": "8.0"}
