"""The store on LMDB: groups, failures that take nothing with them, growth, and a folder that is taken."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bucketd.storage.engine import Transaction
from bucketd.storage.errors import DuplicateKey, PathInUse, StorageError, StoreFull
from bucketd.storage.lmdb_engine import LmdbEngine


@pytest.fixture
def engine(tmp_path: Path):
    opened = LmdbEngine(tmp_path / "store")
    yield opened
    opened.close()


def put(*pairs: tuple[bytes, bytes]):
    def work(transaction: Transaction) -> int:
        for key, value in pairs:
            transaction.put("records", key, value)
        return len(pairs)

    return work


async def test_what_was_written_is_read_in_order(engine: LmdbEngine) -> None:
    assert await engine.write(put((b"b", b"2"), (b"a", b"1"), (b"c", b"3"))) == 3
    with engine.snapshot() as snapshot:
        assert list(snapshot.scan("records", b"a", b"c")) == [(b"a", b"1"), (b"b", b"2")]
        assert list(snapshot.scan("records", b"a", b"c", reverse=True)) == [(b"b", b"2"), (b"a", b"1")]
        assert list(snapshot.keys("records", b"aa", b"z")) == [b"b", b"c"]
        assert list(snapshot.keys("records", b"", b"z", reverse=True)) == [b"c", b"b", b"a"]
        assert list(snapshot.keys("records", b"x", b"z", reverse=True)) == []
        assert snapshot.get("records", b"c") == b"3"
        assert snapshot.get("indexes", b"c") is None


async def test_a_failing_work_takes_nothing_with_it(engine: LmdbEngine) -> None:
    def fail(transaction: Transaction) -> None:
        transaction.put("records", b"gone", b"")
        raise ValueError("on purpose")

    results = await asyncio.gather(
        engine.write(put((b"x", b""))), engine.write(fail), engine.write(put((b"y", b""))), return_exceptions=True
    )
    assert results[0] == results[2] == 1
    assert isinstance(results[1], ValueError)
    with pytest.raises(ValueError, match="on purpose"):
        await engine.write(fail)
    with engine.snapshot() as snapshot:
        assert list(snapshot.keys("records", b"", b"\xff")) == [b"x", b"y"]


async def test_works_that_wait_share_a_commit(engine: LmdbEngine) -> None:
    before = engine.writer.commits
    await asyncio.gather(*(engine.write(put((str(number).encode(), b""))) for number in range(500)))
    assert engine.writer.commits - before < 100
    with engine.snapshot() as snapshot:
        assert sum(1 for _ in snapshot.keys("records", b"", b"\xff")) == 500


async def test_insert_refuses_a_key_that_exists(engine: LmdbEngine) -> None:
    def work(transaction: Transaction) -> bool:
        transaction.insert("records", b"k", b"1")
        with pytest.raises(DuplicateKey):
            transaction.insert("records", b"k", b"2")
        return transaction.delete("records", b"k") and not transaction.delete("records", b"k")

    assert await engine.write(work)


async def test_a_range_is_deleted_in_slices(engine: LmdbEngine) -> None:
    await engine.write(put(*((bytes([number]), b"v") for number in range(1, 100))))
    removed = []
    while True:
        removed.append(await engine.write(lambda t: t.delete_range("records", b"\x05", b"\x50", 30)))
        if removed[-1] < 30:
            break
    assert sum(removed) == 0x50 - 5
    with engine.snapshot() as snapshot:
        assert len(list(snapshot.keys("records", b"", b"\xff"))) == 99 - 0x50 + 5


async def test_the_map_grows(tmp_path: Path) -> None:
    engine = LmdbEngine(tmp_path / "small", map_bytes=1 << 20)
    blob = bytes(200_000)
    for number in range(20):
        await engine.write(put((str(number).encode(), blob)))
    await asyncio.gather(*(engine.write(put((f"g{number}".encode(), blob))) for number in range(20)))
    with engine.snapshot() as snapshot:
        assert sum(len(value) for _, value in snapshot.scan("records", b"", b"\xff")) == 40 * len(blob)
    engine.close()


async def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    engine = LmdbEngine(tmp_path)
    await engine.write(put((b"large", bytes(range(256)) * 65_536)))
    engine.close()
    engine = LmdbEngine(tmp_path)
    with engine.snapshot() as snapshot:
        assert snapshot.get("records", b"large") == bytes(range(256)) * 65_536
    engine.close()
    with pytest.raises(StorageError):
        await engine.write(put((b"late", b"")))


async def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    engine = LmdbEngine(tmp_path)
    with pytest.raises(PathInUse):
        LmdbEngine(tmp_path)
    engine.close()
    LmdbEngine(tmp_path).close()


async def test_a_waiter_that_gives_up_does_not_disturb_others(engine: LmdbEngine) -> None:
    impatient = asyncio.create_task(engine.write(put((b"i", b""))))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await engine.write(put((b"j", b""))) == 1
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_while_it_is_held_nothing_is_written(engine: LmdbEngine) -> None:
    first = asyncio.create_task(engine.write(put((b"before", b""))))
    await asyncio.sleep(0)
    release = await engine.hold()
    assert first.done() or await first
    commits = engine.writer.commits
    waiting = [asyncio.create_task(engine.write(put((str(number).encode(), b"")))) for number in range(3)]
    again = asyncio.create_task(engine.hold())
    await asyncio.sleep(0)
    with engine.snapshot() as snapshot:
        assert list(snapshot.keys("records", b"", b"\xff")) == [b"before"]
    assert engine.writer.commits == commits
    release()
    assert await asyncio.gather(*waiting) == [1, 1, 1]
    (await again)()
    assert await engine.write(put((b"after", b""))) == 1


async def test_closing_finishes_what_was_held(tmp_path: Path) -> None:
    engine = LmdbEngine(tmp_path)
    await engine.hold()
    waiting = asyncio.create_task(engine.write(put((b"held", b""))))
    await asyncio.sleep(0)
    await asyncio.to_thread(engine.close)
    assert await waiting == 1
    engine = LmdbEngine(tmp_path)
    with engine.snapshot() as snapshot:
        assert snapshot.get("records", b"held") == b""
    engine.close()


async def test_a_map_at_its_bound_takes_what_fits_and_goes_on(tmp_path: Path) -> None:
    engine = LmdbEngine(tmp_path, map_bytes=1 << 20, map_bytes_max=2 << 20)
    large = put((b"large", bytes(4 << 20)))
    with pytest.raises(StoreFull, match="the map of the store is full"):
        await engine.write(large)
    outcome = await asyncio.gather(
        engine.write(put((b"a", b"1"))), engine.write(large), engine.write(put((b"b", b"2"))), return_exceptions=True
    )
    assert (outcome[0], outcome[2]) == (1, 1)
    assert isinstance(outcome[1], StoreFull)
    with engine.snapshot() as snapshot:
        assert list(snapshot.keys("records", b"", b"\xff")) == [b"a", b"b"]
    engine.close()
    engine = LmdbEngine(tmp_path, map_bytes=1 << 20)
    assert await engine.write(large) == 1
    engine.close()


async def test_closing_waits_for_a_reader_on_another_thread(tmp_path: Path) -> None:
    engine = LmdbEngine(tmp_path / "store")
    await engine.write(put((b"a", b"1")))
    begun, closing = threading.Event(), threading.Event()

    def read() -> bytes | None:
        with engine.snapshot() as snapshot:
            begun.set()
            assert closing.wait(30)
            return snapshot.get("records", b"a")

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(read)
        assert begun.wait(30)
        closed = pool.submit(engine.close)
        closing.set()
        assert reader.result(30) == b"1"
        closed.result(30)
