"""The power fails: what the disk was told to keep is kept, of the rest any sector may be missing. All acknowledged is there.

A recorder stands before the C library and notes what was written and synced; each cut is an image of the disk made of it.
"""

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bucketd.storage.lmdb_engine import LmdbEngine
from bucketd.storage.offline import check_pages
from support.faulty_disk import FaultyDisk, after_power_cut, read_log
from support.server_process import server_environment

CUTS = 150
CUTS_NIGHTLY = 3000

# Prints, after each commit, how long the log of the disk was by then, and what the commit made.
PROGRAM = textwrap.dedent(
    """
    import asyncio, os, random, sys
    from pathlib import Path
    from bucketd.storage.lmdb_engine import LmdbEngine

    async def main() -> None:
        moment = random.Random(1)
        engine = LmdbEngine(Path(sys.argv[1]), map_bytes=1 << 20)
        state = {}

        async def change(number: int) -> None:
            key = b"%04d" % moment.randrange(300)
            value = b"%06d" % number + bytes(moment.choice([10, 300, 5000, 40000]))
            def work(t):
                # The counter and the record change together or not at all.
                t.put("meta", b"x-count", b"%d" % (int(t.get("meta", b"x-count") or b"0") + 1))
                if number % 5 == 4:
                    t.delete("records", key)
                else:
                    t.put("records", key, value)
                t.put("indexes", b"n%06d" % number, key)
            await engine.write(work)
            print(os.stat(os.environ["FAULTY_DISK_LOG"]).st_size, number, flush=True)

        for number in range(0, 400, 4):
            await asyncio.gather(*(change(number + part) for part in range(4)))
        engine.close()

    asyncio.run(main())
    """
)


@pytest.fixture
def recorded(disk_library: Path, tmp_path: Path) -> tuple[FaultyDisk, list[tuple[int, int]]]:
    """A disk's log, and of each write how long the log was when it was acknowledged."""
    disk = FaultyDisk(disk_library, tmp_path, record=True)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")],
        env=server_environment() | disk.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    rows = [line.split() for line in ended.stdout.splitlines()]
    return disk, [(int(size), int(number)) for size, number in rows]


def cut_often(folder: Path, disk: FaultyDisk, acknowledged: list[tuple[int, int]], cuts: int, seed: int) -> None:
    events = read_log(disk.log)
    moment = random.Random(seed)
    lost = 0
    store = folder / "cut"
    store.mkdir()
    # Before the first commit is synced there is no store yet, and nobody was told anything.
    first = next(position for position, event in enumerate(events) if event.kind == "D")
    for _ in range(cuts):
        count = moment.randrange(first + 1, len(events) + 1)
        (store / "lock.mdb").unlink(missing_ok=True)
        (store / "data.mdb").write_bytes(after_power_cut(events, count, moment))
        at = events[count - 1].end
        engine = LmdbEngine(store, map_bytes=1 << 28)
        with engine.snapshot() as snapshot:
            there = {int(key[1:]) for key in snapshot.keys("indexes", b"n", b"o")}
            expected = {number for size, number in acknowledged if size <= at}
            lost += len(expected - there)
            counted = int(snapshot.get("meta", b"x-count") or b"0")
            assert counted == len(there), (counted, len(there), count, seed)
        engine.close()
        report = check_pages(store)
        assert report.errors == [], (report.errors, count, seed)
    print(f"\n{cuts} power cuts, {len(acknowledged)} acknowledged, {lost} lost (seed {seed})")
    assert lost == 0


def test_the_log_tells_of_syncs(recorded: tuple[FaultyDisk, list[tuple[int, int]]]) -> None:
    disk, acknowledged = recorded
    kinds = {event.kind for event in read_log(disk.log)}
    assert kinds == {"W", "D", "S"}
    assert len(acknowledged) == 400


def test_nothing_acknowledged_is_lost_in_a_power_cut(
    recorded: tuple[FaultyDisk, list[tuple[int, int]]], tmp_path: Path
) -> None:
    cut_often(tmp_path, *recorded, CUTS, seed=5)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_many_power_cuts(recorded: tuple[FaultyDisk, list[tuple[int, int]]], tmp_path: Path) -> None:
    cut_often(tmp_path, *recorded, CUTS_NIGHTLY, seed=int.from_bytes(os.urandom(4), "big"))
