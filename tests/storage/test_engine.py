"""What the contract of the store promises, of every engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketd.storage.checked_engine import CheckedEngine
from bucketd.storage.engine import KEY_BYTES_MAX, Engine, Transaction
from bucketd.storage.errors import DuplicateKey, StorageError
from bucketd.storage.lmdb_engine import LmdbEngine
from support.memory_engine import MemoryEngine

MAKERS: dict[str, Callable[[Path], Engine]] = {
    "lmdb": lambda path: LmdbEngine(path, map_bytes=1 << 28, sync=False),
    "memory": lambda path: MemoryEngine(),
    "checked lmdb": lambda path: CheckedEngine(LmdbEngine(path, map_bytes=1 << 28, sync=False)),
    "checked memory": lambda path: CheckedEngine(MemoryEngine()),
}


@pytest.fixture(params=MAKERS)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    opened = MAKERS[request.param](tmp_path)
    yield opened
    opened.close()


def put(table: str, *keys: bytes) -> Callable[[Transaction], None]:
    def work(transaction: Transaction) -> None:
        for key in keys:
            transaction.put(table, key, b"<" + key + b">")

    return work


def everything(engine: Engine, table: str = "records") -> dict[bytes, bytes]:
    with engine.snapshot() as snapshot:
        return dict(snapshot.scan(table, b"", b"\xff" * 20))


async def test_scan_leaves_out_its_upper_end(engine: Engine) -> None:
    await engine.write(put("records", b"a", b"b", b"c"))
    with engine.snapshot() as snapshot:
        assert [key for key, _ in snapshot.scan("records", b"a", b"c")] == [b"a", b"b"]
        assert [key for key, _ in snapshot.scan("records", b"a", b"c", reverse=True)] == [b"b", b"a"]
        assert list(snapshot.keys("records", b"c", b"a")) == []


async def test_tables_are_apart(engine: Engine) -> None:
    await engine.write(put("records", b"a"))
    await engine.write(put("indexes", b"b"))
    assert list(everything(engine, "records")) == [b"a"]
    assert list(everything(engine, "indexes")) == [b"b"]


async def test_a_snapshot_does_not_change(engine: Engine) -> None:
    await engine.write(put("records", b"a"))
    with engine.snapshot() as snapshot:
        await engine.write(put("records", b"b"))
        assert snapshot.get("records", b"b") is None
        assert list(snapshot.keys("records", b"", b"z")) == [b"a"]
    assert list(everything(engine)) == [b"a", b"b"]


async def test_a_transaction_sees_what_it_wrote(engine: Engine) -> None:
    def work(transaction: Transaction) -> list[bytes]:
        transaction.put("records", b"b", b"")
        transaction.delete("records", b"a")
        return list(transaction.keys("records", b"", b"z"))

    await engine.write(put("records", b"a"))
    assert await engine.write(work) == [b"b"]


async def test_what_fails_leaves_nothing_and_tells_its_own_error(engine: Engine) -> None:
    class Told(Exception):
        pass

    def fail(transaction: Transaction) -> None:
        transaction.put("records", b"gone", b"")
        raise Told

    outcomes = await asyncio.gather(
        engine.write(put("records", b"a")),
        engine.write(fail),
        engine.write(put("records", b"b")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), Told, type(None)]
    assert list(everything(engine)) == [b"a", b"b"]


async def test_a_key_that_exists_is_refused_and_the_transaction_goes_on(engine: Engine) -> None:
    def work(transaction: Transaction) -> None:
        with pytest.raises(DuplicateKey):
            transaction.insert("records", b"a", b"other")
        transaction.insert("records", b"b", b"new")

    await engine.write(put("records", b"a"))
    await engine.write(work)
    assert everything(engine) == {b"a": b"<a>", b"b": b"new"}


async def test_a_range_goes_in_slices(engine: Engine) -> None:
    await engine.write(put("records", *(bytes([number]) for number in range(1, 101))))
    removed = [await engine.write(lambda t: t.delete_range("records", b"\x0b", b"\x5b", 30)) for _ in range(4)]
    assert removed == [30, 30, 20, 0]
    assert list(everything(engine)) == [bytes([number]) for number in (*range(1, 11), *range(91, 101))]


async def test_large_values_and_long_keys(engine: Engine) -> None:
    key, value = b"k" * KEY_BYTES_MAX, bytes(range(256)) * (17 * 4096)
    await engine.write(lambda transaction: transaction.put("records", key, value))
    with engine.snapshot() as snapshot:
        assert snapshot.get("records", key) == value


async def test_works_are_run_in_the_order_they_came(engine: Engine) -> None:
    def append(number: int) -> Callable[[Transaction], int]:
        def work(transaction: Transaction) -> int:
            so_far = transaction.get("records", b"row") or b""
            transaction.put("records", b"row", so_far + bytes([number]))
            return number

        return work

    assert await asyncio.gather(*(engine.write(append(number)) for number in range(50))) == list(range(50))
    assert everything(engine)[b"row"] == bytes(range(50))


async def test_nothing_is_written_after_closing(tmp_path: Path) -> None:
    for number, make in enumerate(MAKERS.values()):
        engine = make(tmp_path / str(number))
        engine.close()
        with pytest.raises(StorageError):
            await engine.write(put("records", b"late"))


KEYS = st.binary(min_size=1, max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.binary(max_size=3)),
    st.tuples(st.just("insert"), KEYS, st.binary(max_size=3)),
    st.tuples(st.just("delete"), KEYS, st.just(b"")),
    st.tuples(st.just("delete_range"), KEYS, KEYS),
)


def play(transaction: Transaction, steps: list[tuple[str, bytes, bytes]], fails: bool) -> None:
    for name, one, other in steps:
        if name == "put":
            transaction.put("records", one, other)
        elif name == "delete":
            transaction.delete("records", one)
        elif name == "delete_range":
            transaction.delete_range("records", one, other, 3)
        else:
            try:
                transaction.insert("records", one, other)
            except DuplicateKey:
                continue
    if fails:
        raise ValueError("on purpose")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    works=st.lists(st.tuples(st.lists(STEPS, max_size=8), st.booleans()), max_size=6),
    low=KEYS,
    high=KEYS,
    reverse=st.booleans(),
)
async def test_lmdb_does_what_dictionaries_do(
    works: list[tuple[list[tuple[str, bytes, bytes]], bool]],
    low: bytes,
    high: bytes,
    reverse: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    real: Engine = CheckedEngine(LmdbEngine(tmp_path_factory.mktemp("law"), map_bytes=1 << 26, sync=False))
    model: Engine = MemoryEngine()
    try:
        for steps, fails in works:
            for engine in (real, model):
                try:
                    await engine.write(lambda transaction, steps=steps, fails=fails: play(transaction, steps, fails))
                except ValueError:
                    assert fails
            assert everything(real) == everything(model)
        with real.snapshot() as one, model.snapshot() as other:
            scanned = [list(snapshot.scan("records", low, high, reverse=reverse)) for snapshot in (one, other)]
            assert scanned[0] == scanned[1]
    finally:
        real.close()


async def test_who_does_not_wait_is_told(engine: Engine) -> None:
    told: list[object] = []
    done = asyncio.get_running_loop().create_future()

    def fails(transaction: Transaction) -> None:
        transaction.put("records", b"gone", b"")
        raise KeyError("why")

    def count(transaction: Transaction) -> int:
        transaction.put("records", b"here", b"")
        return 5

    engine.write_then(fails, lambda result, error: told.append((result, type(error))))
    engine.write_then(count, lambda result, error: told.append((result, error)))
    engine.write_then(count, lambda result, error: done.set_result(None))
    await done
    assert told == [(None, KeyError), (5, None)]
    assert list(everything(engine)) == [b"here"]


async def test_whoever_is_told_badly_keeps_it_from_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = LmdbEngine(tmp_path, map_bytes=1 << 28, sync=False)
    done = asyncio.get_running_loop().create_future()

    def fail(result: object, error: object) -> None:
        raise RuntimeError("not our fault")

    engine.write_then(put("records", b"a"), fail)
    engine.write_then(put("records", b"b"), lambda result, error: done.set_result(None))
    await done
    assert "what follows a write has failed" in caplog.text
    assert list(everything(engine)) == [b"a", b"b"]
    engine.close()
