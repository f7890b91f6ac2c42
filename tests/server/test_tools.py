"""bucketd check, backup and restore, as an operator calls them."""

import json
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import lmdb
import pytest
from pymongo import MongoClient

from bucketd.storage.format import FORMAT_VERSION
from support.server_process import ServerProcess, server_environment

Document = dict[str, Any]
START = datetime(2024, 1, 1, tzinfo=UTC)


def bucketd(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bucketd.server", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=server_environment(),
    )


def check(dbpath: Path, *options: str) -> tuple[int, Document]:
    ended = bucketd("check", "--dbpath", dbpath, "--json", *options)
    found: Document = json.loads(ended.stdout)
    return ended.returncode, found


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Folder of a store with something of every kind, stopped in good order."""
    server = ServerProcess(tmp_path)
    server.start()
    with MongoClient[Document](server.uri) as client:
        fill(client)
    assert server.stop() == 0
    return server.dbpath


def fill(client: MongoClient[Document]) -> None:
    lab = client["lab"]
    lab["plain"].insert_many([{"_id": number, "a": number % 7, "long": "x" * 9000} for number in range(50)])
    lab["plain"].create_index("a")
    lab["plain"].create_index("tags", unique=True, sparse=True)
    lab["plain"].insert_one({"_id": "tagged", "tags": ["x", "y"]})
    lab.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    lab["series"].insert_many([{"t": START + timedelta(seconds=n), "m": n % 3, "v": n / 7} for n in range(500)])
    lab.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    lab["clustered"].insert_many([{"_id": f"k{number}"} for number in range(20)])
    lab.create_collection("glance", viewOn="plain", pipeline=[{"$match": {"a": 1}}])
    lab["gone"].insert_many([{} for _ in range(20)])
    lab["gone"].drop()


def tamper(dbpath: Path, table: str, change: Any) -> None:
    """Change what lies in a table, behind the back of everybody."""
    environment = lmdb.open(str(dbpath), max_dbs=4)
    with environment.begin(write=True, db=environment.open_db(table.encode())) as transaction:
        change(transaction)
    environment.close()


def test_a_whole_store_is_whole(filled: Path) -> None:
    code, found = check(filled)
    assert (code, found["valid"], found["errors"], found["warnings"]) == (0, True, [], [])
    records = {row["ns"]: row["records"] for row in found["collections"]}
    assert (records["lab.plain"], records["lab.clustered"]) == (51, 20)
    assert records["lab.system.buckets.series"] >= 3
    assert found["pages"]["used"] + found["pages"]["free"] + found["pages"]["lost"] == found["pages"]["total"]
    shown = bucketd("check", "--dbpath", filled)
    assert shown.returncode == 0
    assert "lab.plain: 51 records" in shown.stdout
    assert "the store is whole" in shown.stdout


def test_missing_and_surplus_entries_are_found_and_repaired(filled: Path) -> None:
    def change(transaction: Any) -> None:
        rows = [(bytes(key), bytes(value)) for key, value in transaction.cursor()]
        (most,) = Counter(key[:8] for key, _ in rows).most_common(1)[0][:1]
        keys = [key for key, _ in rows if key.startswith(most)]
        transaction.delete(keys[len(keys) // 2])
        transaction.put(keys[3][:-1] + b"\xf0", (99).to_bytes(8, "big"))

    tamper(filled, "indexes", change)
    code, found = check(filled)
    assert (code, found["valid"]) == (1, False)
    told = [text for row in found["collections"] for text in row["errors"]]
    assert any("missing in the index" in text for text in told), told
    code, found = check(filled, "--repair")
    assert (code, found["valid"]) == (0, True)
    assert any("made anew" in text for text in found["repaired"])
    assert check(filled)[0] == 0


def test_validate_repairs_the_index_on_id_beside_clients(filled: Path, tmp_path: Path) -> None:
    numbers: list[bytes] = []

    def find(transaction: Any) -> None:
        for name in (b"lab\0plain", b"lab\0system.buckets.series"):
            indexes = bson.decode(transaction.get(name))["indexes"]
            numbers.extend(int(index["id"]).to_bytes(8, "big") for index in indexes)

    def change(transaction: Any) -> None:
        # Of every index an entry is lost: of the one on `_id`, of ordinary ones, and of the buckets'.
        for number in numbers:
            transaction.delete(next(bytes(key) for key, _ in transaction.cursor() if key.startswith(number)))

    tamper(filled, "catalog", find)
    tamper(filled, "indexes", change)
    server = ServerProcess(tmp_path)
    server.start()
    with MongoClient[Document](server.uri) as client:
        lab = client["lab"]
        told = lab.command("validate", "plain")
        assert not told["valid"]
        assert not told["indexDetails"]["_id_"]["valid"]
        told = lab.command("validate", "plain", repair=True)
        assert (told["valid"], told["repaired"]) == (True, True), told
        assert [row["_id"] for row in lab["plain"].find().hint("_id_")][:3] == [0, 1, 2]
        assert lab["plain"].find_one({"_id": 0}) is not None
        assert next(iter(lab["plain"].list_indexes()))["name"] == "_id_"
        assert lab["plain"].update_one({"_id": 0}, {"$set": {"a": 100}}).modified_count == 1
        assert lab["plain"].count_documents({"a": 100}, hint="a_1") == 1
        assert lab.command("validate", "series", repair=True)["valid"]
    server.stop()
    code, found = check(filled)
    assert code == 0, found


def test_a_wrong_count_is_found_and_repaired(filled: Path) -> None:
    def change(transaction: Any) -> None:
        for key, value in transaction.cursor():
            if key.startswith(b"stats") and int.from_bytes(value[:8], "big") == 51:
                transaction.put(key, (52).to_bytes(8, "big") + value[8:])

    tamper(filled, "meta", change)
    code, found = check(filled)
    (row,) = [row for row in found["collections"] if row["errors"]]
    assert (code, row["ns"]) == (1, "lab.plain")
    assert "51 documents were read" in row["errors"][0]
    assert check(filled, "--repair")[0] == 0


def test_a_damaged_document_and_bucket_are_found(filled: Path) -> None:
    def change(transaction: Any) -> None:
        for key, value in list(transaction.cursor()):
            if b"long" in value and value.endswith(b"\0"):
                transaction.put(key, value[:-3] + b"\xff\xff\xff")
                break
        for key, value in list(transaction.cursor()):
            at = value.find(b"control")
            if at > 0:
                count = value.find(b"count\0", at)
                transaction.put(key, value[: count + 6] + bytes([value[count + 6] ^ 1]) + value[count + 7 :])
                break

    tamper(filled, "records", change)
    code, found = check(filled)
    broken = {row["ns"] for row in found["collections"] if row["errors"]}
    assert code == 1
    assert broken == {"lab.plain", "lab.system.buckets.series"}


def test_what_belongs_to_nothing_is_found(filled: Path) -> None:
    tamper(filled, "records", lambda transaction: transaction.put((4000).to_bytes(8, "big") + b"k", b"v"))
    code, found = check(filled)
    assert code == 1
    assert any("4000" in text for text in found["errors"])


def test_a_damaged_catalog_entry_is_found(filled: Path) -> None:
    def change(transaction: Any) -> None:
        transaction.put(b"lab\0plain", transaction.get(b"lab\0plain")[:-5])

    tamper(filled, "catalog", change)
    code, found = check(filled)
    assert code == 1
    assert any("cannot be read" in text and "plain" in text for text in found["errors"])


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9])
def test_overwritten_pages_are_found(filled: Path, at: float) -> None:
    data = filled / "data.mdb"
    content = bytearray(data.read_bytes())
    page = int(len(content) * at) // 4096
    # A free page may hold anything: look for one that is in use.
    for number in range(page, len(content) // 4096):
        content[number * 4096 : (number + 1) * 4096] = bytes(4096)
        data.write_bytes(content)
        code, found = check(filled)
        if code == 1:
            assert not found["valid"]
            return
    pytest.fail("no damage was found")


def test_a_store_that_was_cut_off_is_refused_and_told(filled: Path) -> None:
    data = filled / "data.mdb"
    content = data.read_bytes()
    data.write_bytes(content[: len(content) // 3])
    code, found = check(filled)
    assert code == 1
    assert any("behind the end of the file" in text for text in found["errors"])
    started = bucketd("--port", "0", "--dbpath", filled)
    assert started.returncode == 100
    assert "was cut off" in started.stderr


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"x" * 20_000])
def test_what_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    ended = bucketd("check", "--dbpath", tmp_path)
    assert ended.returncode == 100
    assert "Corrupted" in ended.stderr


def test_folders_without_a_store_are_refused(tmp_path: Path) -> None:
    for command in (("check", "--dbpath", tmp_path), ("backup", "--dbpath", tmp_path, "--out", tmp_path / "b")):
        ended = bucketd(*command)
        assert ended.returncode == 100, command
        assert "there is no store" in ended.stderr
    assert not (tmp_path / "b").exists()


def test_a_store_in_use_is_not_checked(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    ended = bucketd("check", "--dbpath", server.dbpath)
    server.stop()
    assert ended.returncode == 100
    assert f"in use by another process (pid {server_pid(ended.stderr)})" in ended.stderr


def server_pid(text: str) -> str:
    return text.split("(pid ")[1].split(")")[0]


def test_a_backup_holds_what_was_acknowledged_before_it(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    stop = threading.Event()
    acknowledged: list[str] = []

    def write() -> None:
        with MongoClient[Document](server.uri) as client:
            count = 0
            while not stop.is_set():
                ids = [f"{count}/{i}" for i in range(20)]
                client["lab"]["busy"].insert_many([{"_id": name} for name in ids])
                client["lab"]["series"].insert_many(
                    [{"_id": name, "t": START + timedelta(seconds=count), "m": 1} for name in ids]
                )
                acknowledged.extend(ids)
                count += 1

    with MongoClient[Document](server.uri) as client:
        fill(client)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            goal = len(acknowledged) + 100
            while len(acknowledged) < goal:
                assert writer.is_alive()
            before = list(acknowledged)
            ended = bucketd("backup", "--dbpath", server.dbpath, "--out", tmp_path / f"backup{number}", "--json")
            assert ended.returncode == 0, ended.stdout
    finally:
        stop.set()
        writer.join()
        server.stop()
    restored = ServerProcess(tmp_path / "restored")
    ended = bucketd("restore", "--from", tmp_path / "backup2", "--dbpath", restored.dbpath)
    assert ended.returncode == 0, ended.stderr
    assert check(restored.dbpath)[0] == 0
    restored.start()
    with MongoClient[Document](restored.uri) as client:
        for name in ("busy", "series"):
            stored = {row["_id"] for row in client["lab"][name].find({}, {"_id": 1})}
            assert set(before) <= stored
            assert client["lab"].command("validate", name)["valid"]
    restored.stop()


def test_restore_refuses_what_it_should(filled: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    assert bucketd("backup", "--dbpath", filled, "--out", backup).returncode == 0
    refused = bucketd("restore", "--from", backup, "--dbpath", filled)
    assert refused.returncode == 100
    assert "is not empty" in refused.stderr
    assert check(filled)[0] == 0
    again = bucketd("backup", "--dbpath", filled, "--out", backup)
    assert again.returncode == 100
    assert "is not empty" in again.stderr
    content = bytearray((backup / "data.mdb").read_bytes())
    content[len(content) // 2] ^= 1
    (backup / "data.mdb").write_bytes(content)
    target = tmp_path / "target"
    damaged = bucketd("restore", "--from", backup, "--dbpath", target)
    assert damaged.returncode == 100
    assert "is not what was backed up" in damaged.stderr
    assert not target.exists()
    (backup / "backup.json").unlink()
    unfinished = bucketd("restore", "--from", backup, "--dbpath", target)
    assert "no finished backup" in unfinished.stderr


@pytest.mark.parametrize("stamp", [str(FORMAT_VERSION + 1).encode(), b"0", b"x"])
def test_other_formats_are_refused_everywhere(filled: Path, tmp_path: Path, stamp: bytes) -> None:
    tamper(filled, "meta", lambda transaction: transaction.put(b"format", stamp))
    for command in (
        ("check", "--dbpath", filled),
        ("backup", "--dbpath", filled, "--out", tmp_path / "b"),
        ("--port", "0", "--dbpath", filled),
    ):
        ended = bucketd(*command)
        assert ended.returncode == 100, command
        assert "format" in ended.stderr


def test_subcommands_stand_in_the_help() -> None:
    shown = bucketd("--help").stdout
    for name in ("backup", "check", "restore"):
        assert f"  {name} " in shown
        assert bucketd(name, "--help").returncode == 0
        assert bucketd(name).returncode == 2
    assert bucketd("nothing").returncode == 2
