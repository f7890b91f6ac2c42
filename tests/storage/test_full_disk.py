"""A store that cannot grow tells so, loses nothing, and goes on when there is room again."""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The limit on the size of files stands in for a full disk; it is the process's own, so the test has one of its own.
PROGRAM = textwrap.dedent(
    """
    import asyncio, resource, signal, sys
    from pathlib import Path
    from bucketd.storage.errors import StoreFull
    from bucketd.storage.lmdb_engine import LmdbEngine

    async def main() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        path = Path(sys.argv[1])
        engine = LmdbEngine(path, map_bytes=1 << 30)
        await engine.write(lambda t: t.put("records", b"first", b"1"))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, hard))
        kept = full = 0
        for number in range(16):
            try:
                await engine.write(lambda t: t.put("records", b"n%03d" % number, bytes(1 << 20)))
                kept += 1
            except StoreFull:
                full += 1
        assert kept and full, (kept, full)
        with engine.snapshot() as snapshot:
            assert len(list(snapshot.keys("records", b"n", b"o"))) == kept
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await engine.write(lambda t: t.put("records", b"last", bytes(1 << 20)))
        engine.close()
        engine = LmdbEngine(path)
        with engine.snapshot() as snapshot:
            assert snapshot.get("records", b"first") == b"1"
            assert snapshot.get("records", b"last") == bytes(1 << 20)
            assert len(list(snapshot.keys("records", b"n", b"o"))) == kept
        engine.close()

    asyncio.run(main())
    """
)


def test_no_room_left(tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")],
        env={"PYTHONPATH": str(ROOT / ".typing"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
