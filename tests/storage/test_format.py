"""The stamp of a store: new, of today, of yesterday, of tomorrow, and none at all."""

from pathlib import Path

import lmdb
import pytest

from bucketd.storage import format
from bucketd.storage.engine import Transaction
from bucketd.storage.errors import Corrupted, FormatTooNew, FormatTooOld
from bucketd.storage.lmdb_engine import LmdbEngine


def stamp(path: Path, value: bytes | None) -> None:
    """Put another format record into a store, or take it away."""
    environment = lmdb.open(str(path), max_dbs=4)
    with environment.begin(write=True) as transaction:
        meta = environment.open_db(b"meta", transaction)
        if value is None:
            transaction.delete(format.FORMAT_KEY, db=meta)
        else:
            transaction.put(format.FORMAT_KEY, value, db=meta)
    environment.close()


def stamp_of(engine: LmdbEngine) -> bytes | None:
    with engine.snapshot() as snapshot:
        return snapshot.get("meta", format.FORMAT_KEY)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with something in it."""
    engine = LmdbEngine(tmp_path / "store")
    engine.write_blocking(lambda transaction: transaction.put("records", b"k", b"v"))
    engine.close()
    return tmp_path / "store"


def test_a_new_store_is_stamped(store: Path) -> None:
    engine = LmdbEngine(store)
    assert stamp_of(engine) == str(format.FORMAT_VERSION).encode()
    engine.close()


def test_a_newer_format_is_refused_and_left_alone(store: Path) -> None:
    newer = str(format.FORMAT_VERSION + 1).encode()
    stamp(store, newer)
    with pytest.raises(FormatTooNew, match=f"format {format.FORMAT_VERSION + 1}.*reads up to {format.FORMAT_VERSION}"):
        LmdbEngine(store)
    stamp(store, str(format.FORMAT_VERSION).encode())
    LmdbEngine(store).close()


@pytest.mark.parametrize("version", sorted(format.UPGRADES))
def test_an_older_format_is_upgraded_with_its_data(store: Path, version: int) -> None:
    stamp(store, str(version).encode())
    engine = LmdbEngine(store)
    assert stamp_of(engine) == str(format.FORMAT_VERSION).encode()
    with engine.snapshot() as snapshot:
        assert snapshot.get("records", b"k") == b"v"
    engine.close()


def test_an_older_format_without_a_way_is_refused(store: Path) -> None:
    stamp(store, b"0")
    with pytest.raises(FormatTooOld, match="format 0"):
        LmdbEngine(store)


@pytest.mark.parametrize("damaged", [b"", b"two", b"-1", b"9" * 30, None])
def test_a_damaged_or_missing_stamp_is_refused(store: Path, damaged: bytes | None) -> None:
    stamp(store, damaged)
    with pytest.raises(Corrupted):
        LmdbEngine(store)


def test_a_stranger_s_environment_is_refused(tmp_path: Path) -> None:
    environment = lmdb.open(str(tmp_path), max_dbs=4)
    with environment.begin(write=True) as transaction:
        transaction.put(b"x", b"y", db=environment.open_db(b"records", transaction))
    environment.close()
    with pytest.raises(Corrupted, match="no store of bucketd's"):
        LmdbEngine(tmp_path)


def test_upgrades_run_one_after_another_or_not_at_all(store: Path) -> None:
    def double(transaction: Transaction) -> None:
        transaction.put("records", b"k", (transaction.get("records", b"k") or b"") * 2)

    def fail(transaction: Transaction) -> None:
        double(transaction)
        raise Corrupted("on purpose")

    current = format.FORMAT_VERSION
    engine = LmdbEngine(store)

    def upgrade(steps: dict[int, object]) -> None:
        engine.write_blocking(
            lambda transaction: format.prepare(transaction, "here", current=current + 2, upgrades=steps)  # type: ignore[arg-type]
        )

    with pytest.raises(Corrupted, match="on purpose"):
        upgrade({current: double, current + 1: fail})
    assert stamp_of(engine) == str(current).encode()
    upgrade({current: double, current + 1: double})
    with engine.snapshot() as snapshot:
        assert snapshot.get("records", b"k") == b"vvvv"
    assert stamp_of(engine) == str(current + 2).encode()
    engine.close()
