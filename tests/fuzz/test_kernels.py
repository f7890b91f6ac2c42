"""Changed bytes at the kernels, in a process whose memory is bounded; and bombs, which are small and would become large."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.server_process import ROOT, server_environment

SECONDS = 10
SECONDS_NIGHTLY = int(os.environ.get("BUCKETD_TEST_FUZZ_SECONDS", "900"))
CORPUS = Path(__file__).with_name("corpus") / "kernels.txt"


def run(folder: Path, seconds: float, seed: int) -> None:
    environment = server_environment()
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "tests"), environment.get("PYTHONPATH", "")))
    ended = subprocess.run(
        [sys.executable, "-m", "fuzz.kernel_program", str(seconds), str(seed), str(folder), str(CORPUS)],
        capture_output=True,
        text=True,
        timeout=seconds + 100,
        check=False,
        env=environment,
    )
    print("\n" + ended.stdout[-5000:])
    assert ended.returncode == 0, (ended.returncode, ended.stdout[-5000:], ended.stderr[-3000:], folder / "last")


@pytest.mark.timeout(150)
def test_no_input_finds_a_fault(tmp_path: Path) -> None:
    run(tmp_path, SECONDS, seed=3)


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_no_input_finds_a_fault_in_a_long_night(tmp_path: Path) -> None:
    run(tmp_path, SECONDS_NIGHTLY, seed=int.from_bytes(os.urandom(4), "big"))


BOMBS = textwrap.dedent(
    """
    import resource, sys
    import bson
    import numpy as np
    from bucketd import kernels

    # Twice what an answer may take: the buffer, and the objects that are made of it.
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))

    def run_of(blocks):
        # Each block of eight bytes says that the last value comes 1,920 times more.
        out = b""
        while blocks > 0:
            some = min(blocks, 16)
            out += bytes([0x80 | (some - 1)]) + (0xFF).to_bytes(8, "little") * some
            blocks -= some
        return out

    def column(kind, value, blocks):
        return bytes([kind, 0]) + value + run_of(blocks) + b"\\0"

    def bucket(times, values, count):
        control = {"version": 2, "min": {"t": bson.DatetimeMS(0)}, "max": {"t": bson.DatetimeMS(1000)}, "count": count}
        data = {"t": bson.Binary(times, 7), "v": bson.Binary(values, 7)}
        return bson.encode({"_id": bson.ObjectId(bytes(12)), "control": control, "meta": 1, "data": data})

    def rows_of_columns(raw):
        columns = kernels.unpack_columns([raw], "t")
        columns.build_rows(np.arange(len(columns)), "m").raws()

    date = (1000).to_bytes(8, "little")
    text = (200_001).to_bytes(4, "little") + b"x" * 200_000 + b"\\0"
    binary = (200_000).to_bytes(4, "little") + b"\\0" + b"x" * 200_000
    bombs = []
    for blocks in (20, 2_000, 100_000):
        for count in (3, blocks * 1920 + 1):
            for kind, value in ((16, b"\\5\\0\\0\\0"), (1, bytes(8)), (2, text), (5, binary), (8, b"\\1")):
                bombs.append(bucket(column(9, date, blocks), column(kind, value, blocks), count))
    refused = done = 0
    for raw in bombs:
        for blow in (
            lambda: kernels.unpack_rows(raw, "t", "m"),
            lambda: rows_of_columns(raw),
            lambda: kernels.validate_bucket(raw, "t", "m", 3_600_000, 60_000),
            lambda: kernels.BucketBuilder.from_document(raw, "t"),
            lambda: kernels.keep_rows(raw, "t", b"\\1" * 38_401),
            lambda: kernels.column_decode(bytes(bson.decode(raw)["data"]["v"]), 100_000),
        ):
            try:
                blow()
                done += 1
            except ValueError:
                refused += 1
    print(done, refused)
    """
)


@pytest.mark.timeout(200)
def test_bombs_of_columns_stay_small() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BOMBS],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=server_environment(),
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    done, refused = map(int, ended.stdout.split())
    assert done > 10
    assert refused > 20
