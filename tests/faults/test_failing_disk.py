"""Errors of the disk under a server: the client is told, nothing is damaged, reads go on, and so do writes afterwards."""

import contextlib
import errno
import resource
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteError

from faults.test_kill import checked_offline
from support.faulty_disk import FaultyDisk
from support.server_process import ServerProcess

Document = dict[str, Any]
StartServer = Callable[..., ServerProcess]
START = datetime(2024, 1, 1, tzinfo=UTC)
OUT_OF_DISK_SPACE = 14031
FILE_STREAM_FAILED = 39


@pytest.fixture
def served(on_faulty_disk: StartServer) -> Iterator[tuple[ServerProcess, Database[Document]]]:
    server = on_faulty_disk()
    with MongoClient[Document](server.uri) as client:
        lab = client["lab"]
        lab.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
        lab["plain"].create_index("n", unique=True)
        write(lab, 0)
        yield server, lab


def write(lab: Database[Document], number: int) -> None:
    """A document and a measurement, each in a command of its own."""
    lab["plain"].insert_one({"_id": number, "n": number})
    lab["series"].insert_one({"_id": number, "t": START + timedelta(seconds=number), "m": 1, "v": number})


def code_of(action: Callable[[], object]) -> int | None:
    try:
        action()
    except (WriteError, OperationFailure) as error:
        return error.code
    return None


def refused(lab: Database[Document], number: int) -> set[int | None]:
    """The codes with which every kind of write fails; reads go on meanwhile."""
    codes = {
        code_of(lambda: lab["plain"].insert_one({"_id": number, "n": number})),
        code_of(lambda: lab["series"].insert_one({"_id": number, "t": START, "m": 1})),
        code_of(lambda: lab["plain"].update_one({"_id": 0}, {"$inc": {"x": 1}})),
        code_of(lambda: lab["plain"].delete_one({"_id": 0})),
        code_of(lambda: lab["other"].create_index("a")),
        code_of(lambda: lab["plain"].rename("elsewhere")),
        code_of(lambda: lab["series"].drop()),
    }
    assert lab["plain"].find_one({"n": 0}) == {"_id": 0, "n": 0}
    assert [row["_id"] for row in lab["series"].find({"m": 1})] == [0]
    assert sorted(lab.list_collection_names()) == ["plain", "series", "system.buckets.series", "system.views"]
    return codes


def goes_on(server: ServerProcess, lab: Database[Document]) -> None:
    """Writes are taken again, everything is whole, and is there after a restart."""
    for number in range(1, 30):
        write(lab, number)
    for name in ("plain", "series"):
        told = lab.command("validate", name)
        assert (told["valid"], told["warnings"]) == (True, []), told
    server.kill()
    server.start()
    assert sorted(row["_id"] for row in lab["series"].find()) == list(range(30))
    assert sorted(row["n"] for row in lab["plain"].find()) == list(range(30))
    assert server.stop() == 0
    found = checked_offline(server.dbpath)
    assert found["valid"], found
    server.start()


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ({"write_error": errno.EIO}, FILE_STREAM_FAILED),
        ({"sync_error": errno.EIO}, FILE_STREAM_FAILED),
        ({"root_error": errno.EIO}, FILE_STREAM_FAILED),
        ({"short_writes": 1}, FILE_STREAM_FAILED),
        ({"write_error": errno.ENOSPC}, OUT_OF_DISK_SPACE),
        ({"write_error": errno.EDQUOT}, OUT_OF_DISK_SPACE),
        ({"sync_error": errno.ENOSPC}, OUT_OF_DISK_SPACE),
    ],
    ids=str,
)
def test_a_failing_disk(
    served: tuple[ServerProcess, Database[Document]], disk: FaultyDisk, faults: dict[str, int], code: int
) -> None:
    server, lab = served
    disk.set(**faults)
    assert refused(lab, 1) == {code}
    assert disk.get("failures") > 0
    disk.set(**dict.fromkeys(faults, 0))
    goes_on(server, lab)


def test_all_who_share_a_failed_commit_are_told(
    served: tuple[ServerProcess, Database[Document]], disk: FaultyDisk
) -> None:
    server, lab = served
    disk.set(sync_error=errno.EIO, sync_delay_us=20_000)
    codes: list[int | None] = []

    def insert(number: int) -> None:
        codes.append(code_of(lambda: lab["plain"].insert_one({"_id": number, "n": number})))
        codes.append(code_of(lambda: lab["series"].insert_one({"_id": number, "t": START, "m": number % 3})))

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [FILE_STREAM_FAILED] * 16
    disk.set(sync_error=0, sync_delay_us=0)
    goes_on(server, lab)


def test_a_slow_disk_is_shared(served: tuple[ServerProcess, Database[Document]], disk: FaultyDisk) -> None:
    _, lab = served
    before = disk.get("syncs")
    disk.set(sync_delay_us=30_000)
    each = 5

    def insert(number: int) -> None:
        for count in range(each):
            lab["plain"].insert_one({"n": 1000 + number * each + count})

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    disk.set(sync_delay_us=0)
    print(f"\n{16 * each} inserts of 16 clients: {disk.get('syncs') - before} syncs of 30 ms")
    # Sixteen writers that wait for each other's syncs would need eighty of them.
    assert disk.get("syncs") - before < 16 * each / 2
    assert lab["plain"].count_documents({"n": {"$gte": 1000}}) == 16 * each


def test_the_lock_of_fsync_waits_for_the_disk_as_long_as_it_is_told(
    served: tuple[ServerProcess, Database[Document]], disk: FaultyDisk
) -> None:
    _, lab = served
    before = disk.get("syncs")
    disk.set(sync_delay_us=1_500_000)
    writing = threading.Thread(target=lambda: lab["plain"].insert_one({"n": 5000}))
    writing.start()
    while disk.get("syncs") == before:
        pass
    admin = lab.client.admin
    assert code_of(lambda: admin.command({"fsync": 1, "lock": True, "fsyncLockAcquisitionTimeoutMillis": 50})) == 24
    assert admin.command("fsync", lock=True)["lockCount"] == 1
    # The lock was not there before the write that it waited for had ended.
    assert lab["plain"].find_one({"n": 5000}) is not None
    disk.set(sync_delay_us=0)
    assert admin.command("fsyncUnlock")["lockCount"] == 0
    writing.join()
    lab["plain"].insert_one({"n": 5001})


def test_a_disk_that_fails_at_the_start(on_faulty_disk: StartServer, disk: FaultyDisk) -> None:
    disk.set(sync_error=errno.EIO)
    with pytest.raises(AssertionError, match="DiskFailed"):
        on_faulty_disk()
    disk.set(sync_error=0)
    on_faulty_disk()


def test_a_full_disk_of_a_limit(tmp_path: Path) -> None:
    """The limit on the size of files is the machine's own way to refuse growth; the server meets it for real."""
    server = ServerProcess(tmp_path)
    server.start()
    with MongoClient[Document](server.uri) as client:
        lab = client["lab"]
        lab.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
        lab["plain"].create_index("n", unique=True)
        write(lab, 0)
        limit = (server.dbpath / "data.mdb").stat().st_size + 8192
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        blob = "x" * 500_000
        assert code_of(lambda: lab["large"].insert_many([{"x": blob} for _ in range(10)])) == OUT_OF_DISK_SPACE
        assert lab["plain"].find_one() == {"_id": 0, "n": 0}
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        lab["large"].insert_many([{"x": blob} for _ in range(10)])
        goes_on(server, lab)
    server.stop()


def test_a_full_file_system(tmp_path: Path) -> None:
    """A file system of eight megabytes, where the machine lets us mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount a file system")
    try:
        server = ServerProcess(folder)
        server.start()
        with MongoClient[Document](server.uri) as client:
            lab = client["lab"]
            lab.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
            lab["plain"].create_index("n", unique=True)
            write(lab, 0)
            filler = folder / "filler"
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 12))
            blob = "x" * 500_000
            assert code_of(lambda: lab["large"].insert_many([{"x": blob} for _ in range(4)])) == OUT_OF_DISK_SPACE
            assert lab["series"].count_documents({}) == 1
            filler.unlink()
            goes_on(server, lab)
        server.stop()
    finally:
        subprocess.run(["umount", str(folder)], check=True)
